/* SPDX-License-Identifier: Apache-2.0 */
/* Failures and checkpoints: published rates, the best of many intervals, and a job played with random failures. */
#include "support/test.h"

#include "base/random.h"
#include "plan/goodput.h"

static void within(const char *what, double value, double wanted, double tolerance)
{
    if (!(fabs(value / wanted - 1) <= tolerance)) fail_msg("%s: %g, wanted %g", what, value, wanted);
}

/* 3.8 failures in a thousand days of a node (Llama 3, 16,384 GPUs), 100,000 GPUs. */
TEST(a_hundred_thousand_devices)
{
    tm_failures slow = { 86400 / (12500 * 3.8e-3), 30, 300 }, fast = { 86400 / (12500 * 3.8e-3), 5, 120 };
    within("between", slow.between, 30.4 * 60, 0.01);
    within("interval", tm_checkpoint_interval(&slow), 331, 0.12);
    within("goodput", tm_goodput(&slow, tm_checkpoint_interval(&slow)), 0.74, 0.01);
    within("interval", tm_checkpoint_interval(&fast), 135, 0.06);
    within("goodput", tm_goodput(&fast, tm_checkpoint_interval(&fast)), 0.88, 0.01);
}

/* No other interval is much better, and far ones are worse. */
TEST(the_interval_is_the_best)
{
    for (double between = 600; between < 1e6; between *= 5)
        for (double save = 1; save < between / 20; save *= 4) {
            tm_failures f = { between, save, 100 };
            double      best = tm_checkpoint_interval(&f), at_best = tm_goodput(&f, best);
            for (double times = 0.1; times < 10; times *= 1.2)
                if (tm_goodput(&f, best * times) > at_best * 1.005)
                    fail_msg("%g s of %g, saved in %g s: %g times that is better", best, between, save, times);
            assert_true(tm_goodput(&f, 5 * best) < at_best && tm_goodput(&f, best / 5) < at_best);
        }
    tm_failures endless = { 100, 300, 10 };
    assert_float_equal(tm_checkpoint_interval(&endless), 100, 0);
}

/* A million seconds with failures at random times: work since the last checkpoint is lost. */
TEST(as_a_job_that_is_played)
{
    const tm_failures f = { 3000, 20, 150 };
    double            interval = tm_checkpoint_interval(&f), time = 0, done = 0, since = 0;
    uint64_t          i = 0;
    double            next = -f.between * log(1 - tm_random_uniform(7, 0, i++));
    while (time < 3e7) {
        double piece = interval - since + f.save;
        if (time + piece < next) { /* to the next checkpoint */
            time += piece;
            done += interval - since;
            since = 0;
            continue;
        }
        time = next + f.restart;
        since = 0;
        next = time - f.between * log(1 - tm_random_uniform(7, 0, i++));
    }
    within("goodput", done / time, tm_goodput(&f, interval), 0.02);
}
