/* SPDX-License-Identifier: Apache-2.0 */
/* Times of training by keys: distributions and shifts as diffusers has them (data/flow/times.txt, made by
 * tools/make_flow_fixture.py), and means over them. */
#include "base/random.h"
#include "data/flow.h"
#include "train/generate/euler.h"

#include "support/test.h"

enum { DRAWS = 20000 };

static tm_source_options options_of(tm_flow_times times, double shift)
{
    tm_source_options o = { .seed = 7 };
    o.flow.protocol = TM_FLOW_MLPERF;
    o.flow.times = times;
    o.flow.logit_std = 1;
    o.flow.shift = shift;
    return o;
}

static double drawn(const tm_source_options *o, int64_t index)
{
    double t = tm_flow_time(o, TM_SPLIT_TRAIN, index);
    assert_true(t >= 0 && t <= 1);
    return t;
}

/* All times drawn from below `u` are below `wanted`, all others are not: a bracket of about 1 / DRAWS. */
static void expect_at(const tm_source_options *o, double u, double wanted)
{
    double nearest = 1;
    for (int64_t i = 0; i < DRAWS; i++) {
        double from = tm_random_uniform(o->seed, tm_random_stream("flow.time") + (uint64_t)i, 0), t = drawn(o, i);
        assert_true(from < u ? t < wanted + 1e-6 : t > wanted - 1e-6);
        nearest = fmin(nearest, fabs(t - wanted));
    }
    assert_true(nearest < 0.01);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void expect_quantile(double mean, double std, double p, double wanted)
{
    static double     times[DRAWS];
    tm_source_options o = options_of(TM_TIMES_LOGIT_NORMAL, 0);
    o.flow.logit_mean = mean;
    o.flow.logit_std = std;
    for (int64_t i = 0; i < DRAWS; i++) times[i] = drawn(&o, i);
    qsort(times, DRAWS, sizeof times[0], by_value);
    if (fabs(times[(int)(p * DRAWS)] - wanted) > 0.01)
        fail_msg("mean %g, deviation %g: %g of the times are below %g, not %g", mean, std, p, times[(int)(p * DRAWS)],
                 wanted);
}

TEST(times_are_those_of_diffusers)
{
    FILE  *file = fopen("tests/data/flow/times.txt", "r");
    char   line[200];
    int    seen[4] = { 0 };
    double a, b, c, d;
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "shift %lf %lf", &a, &b) == 2) {
            assert_true(fabs(tm_euler_shift(&tm_euler_times_dev, (int64_t)a) / b - 1) < 1e-12);
            seen[0]++;
        } else if (sscanf(line, "dynamic %lf %lf %lf", &a, &b, &c) == 3) {
            tm_source_options o = options_of(TM_TIMES_UNIFORM, tm_euler_shift(&tm_euler_times_dev, (int64_t)a));
            expect_at(&o, b, c);
            seen[1]++;
        } else if (sscanf(line, "time %lf %lf %lf", &a, &b, &c) == 3) {
            tm_source_options o = options_of(TM_TIMES_UNIFORM, a);
            expect_at(&o, b, c);
            seen[2]++;
        } else if (sscanf(line, "quantile %lf %lf %lf %lf", &a, &b, &c, &d) == 4) {
            expect_quantile(a, b, c, d);
            seen[3]++;
        } else {
            fail_msg("a line of another form: %s", line);
        }
    }
    fclose(file);
    assert_true(seen[0] == 6 && seen[1] == 42 && seen[2] == 28 && seen[3] == 20);
}

static double itself(double t, const void *context)
{
    (void)context;
    return t;
}

static double least(double t, const void *context)
{
    double s = *(const double *)context;
    return s * s / ((1 - t) * (1 - t) * s * s + t * t);
}

TEST(means_are_those_of_the_times)
{
    static const double shifts[] = { 0, 0.3, 3, 7 }, means[] = { 0, 1, -2 };
    double              spread = 0.5;
    for (int k = 0; k < 4; k++) {
        tm_source_options o = options_of(TM_TIMES_UNIFORM, shifts[k]);
        double            a = shifts[k], exact = a > 0 ? a / (a - 1) - a * log(a) / ((a - 1) * (a - 1)) : 0.5;
        assert_true(fabs(tm_flow_mean(&o.flow, itself, NULL) - exact) < 1e-9);
        for (int m = 0; m < 6; m++) {
            double sum = 0, squares = 0;
            o.flow.times = m < 3 ? TM_TIMES_LOGIT_NORMAL : TM_TIMES_UNIFORM;
            o.flow.logit_mean = means[m % 3];
            for (int64_t i = 0; i < DRAWS; i++) {
                double x = least(drawn(&o, i), &spread);
                sum += x / DRAWS;
                squares += x * x / DRAWS;
            }
            double error = sqrt((squares - sum * sum) / DRAWS);
            assert_true(fabs(tm_flow_mean(&o.flow, least, &spread) - sum) < 4 * error);
        }
    }
    tm_source_options o = options_of(TM_TIMES_LOGIT_NORMAL, 0); /* symmetric */
    assert_true(fabs(tm_flow_mean(&o.flow, itself, NULL) - 0.5) < 1e-12);
}

TESTS_IN_ORDER
