/* SPDX-License-Identifier: Apache-2.0 */
/* NeMo's learning rates as published, schedules in words, and those that are none. (Others: test_schedules.c.) */
#include "support/test.h"
#include "train/certify/rate.h"
#include "train/optimizer/schedule.h"

TEST(nemo_cosine_has_the_published_values)
{
    static const tm_schedule s = {
        .kind = TM_SCHEDULE_NEMO, .steps = 1200000, .warmup_steps = 128, .min_lr_factor = 0.1
    };
    static const tm_schedule lora = { .kind = TM_SCHEDULE_NEMO, .steps = 1024 }; /* no warm-up, down to 0 */
    static const tm_schedule all = { .kind = TM_SCHEDULE_NEMO, .steps = 4, .warmup_steps = 9 }; /* counts as 4 */
    static const struct {
        const tm_schedule *schedule;
        int64_t            step;
        double             peak, wanted;
    } rows[] = { { &s, 0, 8e-4, 6.2015503875969e-06 },
                 { &s, 127, 8e-4, 0.000793798449612403 },
                 { &s, 129, 8e-4, 0.000799999999998766 },
                 { &s, 5375, 8e-4, 0.00079996602826633 },
                 { &s, 1200001, 8e-4, 8e-5 },
                 { &lora, 0, 4e-4, 4e-4 },
                 { &lora, 1, 4e-4, 0.000399999058761915 },
                 { &lora, 191, 4e-4, 0.00036663403294038 },
                 { &lora, 383, 4e-4, 0.00027710321076879 },
                 { &all, 4, 1, 1 },
                 { &all, 5, 1, 0 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const double is = tm_schedule_factor(rows[i].schedule, rows[i].step);
        assert_true(fabs(rows[i].peak * is - rows[i].wanted) <= 1e-13 * rows[i].wanted);
        assert_float_equal(tm_certified_factor(rows[i].schedule, rows[i].step + 1), is, 1e-12);
    }
    assert_int_equal(tm_schedule_decay_steps(&s), 1199872);
    assert_int_equal(tm_schedule_decay_steps(&all), 0);
}

/* In words, and how long it decays. */
TEST(schedules_are_told)
{
    static const struct {
        tm_schedule schedule;
        int64_t     decay;
        const char *words;
    } rows[] = {
        { { .steps = 20, .warmup_steps = 4, .decay_ratio = 0.4 }, 8, "linear warmup, stable, linear decay" },
        { { .steps = 20, .warmup_steps = 4, .decay_ratio = 0.4, .decay = TM_DECAY_SQRT },
          8,
          "linear warmup, stable, sqrt decay" },
        { { .steps = 20, .warmup_steps = 4, .decay_ratio = 0.9, .decay = TM_DECAY_COSINE }, /* more than is left */
          16,
          "linear warmup, stable, cosine decay" },
        { { .steps = 21, .warmup_steps = 4, .decay_ratio = 0.55 }, 12, "linear warmup, stable, linear decay" },
        { { .steps = 20, .warmup_steps = 4 }, 0, "constant after linear warmup" },
        { { .kind = TM_SCHEDULE_NEMO, .steps = 20, .warmup_steps = 4 }, 16, "cosine with linear warmup" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(tm_schedule_decay_steps(&rows[i].schedule), rows[i].decay);
        assert_string_equal(tm_schedule_words(&rows[i].schedule), rows[i].words);
        for (int64_t step = 1; step < 30; step++)
            assert_float_equal(tm_certified_factor(&rows[i].schedule, step),
                               tm_schedule_factor(&rows[i].schedule, step - 1), 1e-12);
    }
}

TEST(wrong_schedules_are_named)
{
    const struct {
        tm_schedule schedule;
        const char *words; /* NULL: it is one */
    } cases[] = {
        { { .steps = 0 }, "schedule: 0 steps, at least 1 wanted" },
        { { .steps = 1 }, NULL },
        { { .steps = 1, .warmup_steps = -1 }, "schedule: -1 warm-up steps, at least 0 wanted" },
        { { .steps = 1, .decay_ratio = 1 }, NULL },
        { { .steps = 1, .decay_ratio = 1.5 }, "schedule: decay ratio 1.5, at most 1 wanted" },
        { { .steps = 1, .decay_ratio = (double)NAN }, "schedule: decay ratio nan, at most 1 wanted" },
        { { .steps = 1, .min_lr_factor = 1 }, NULL },
        { { .steps = 1, .min_lr_factor = 2 }, "schedule: lowest factor 2, 0 to 1 wanted" },
        { { .steps = 1, .min_lr_factor = -0.5 }, "schedule: lowest factor -0.5, 0 to 1 wanted" },
        { { .steps = 1, .min_lr_factor = (double)NAN }, "schedule: lowest factor nan, 0 to 1 wanted" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tm_error err = { 0 };
        assert_int_equal(tm_schedule_check(&cases[i].schedule, &err), cases[i].words ? TM_INVALID : TM_OK);
        assert_string_equal(err.text, cases[i].words ? cases[i].words : "");
    }
}
