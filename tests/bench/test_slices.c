/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a model and the rounds of slices, on a tiny GPT. */
#include "base/clock.h"
#include "bench/slices.h"
#include "system/validity.h"

#include "../support/training.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/test.h"

static tm_run_options tiny(void)
{
    tm_run_options run = { .model_name = "tiny", .step = test_gpt_options(), .learning_rate = 1e-3, .seed = 3 };
    run.step.shape.n_layers = 5;
    run.schedule = (tm_schedule){ .kind = TM_SCHEDULE_WARMUP_STABLE_DECAY, .steps = 1000, .decay_ratio = -1 };
    run.source = (tm_source_options){ .name = "mock", .vocab = run.step.shape.vocab_size, .seq = run.step.seq };
    run.prefetch = 2;
    return run;
}

typedef struct {
    tm_device        *device;
    tm_run_options    run;
    tm_part           part[3], whole;
    tm_slices_options options;
} bench_case;

static void case_open(bench_case *c)
{
    *c = (bench_case){ .device = test_device_open("cpu", 1), .run = tiny() };
    for (int k = 0; k < 3; k++) assert_int_equal(tm_part_plan(&c->run, k + 1, c->device, &c->part[k], NULL), TM_OK);
    assert_int_equal(tm_part_plan(&c->run, 5, c->device, &c->whole, NULL), TM_OK);
    c->options = (tm_slices_options){
        .device = c->device, .turn_seconds = 0.002, .max_rounds = 4, .end_ns = tm_now_ns() + (int64_t)60e9
    };
}

/* --- verdicts ----------------------------------------------------------------------------------------------------- */

enum { PARTS = 4, ROUNDS = 4 };

static const char (*verdicts)[ROUNDS + 1]; /* of every part: a letter for each round; NULL: all are valid */
static int turn, watched;

tm_validity *tm_validity_start(const char *sysroot)
{
    assert_string_equal(sysroot, "");
    watched++;
    return (tm_validity *)(void *)&watched;
}

void tm_validity_sample(tm_validity *v)
{
    assert_ptr_equal(v, &watched);
}

void tm_validity_stop(tm_validity *v, int64_t from_ns, tm_validity_report *out)
{
    int round = turn / PARTS, part = round % 2 ? PARTS - 1 - turn % PARTS : turn % PARTS;
    assert_ptr_equal(v, &watched);
    assert_int_equal(from_ns, 0);
    *out = (tm_validity_report){ .verdict = TM_VERDICT_VALID };
    if (!verdicts) return;
    char letter = verdicts[part][round];
    out->verdict = letter == 'i'   ? TM_VERDICT_INVALID
                   : letter == 'n' ? TM_VERDICT_NOISY
                   : letter == 'v' ? TM_VERDICT_VALID
                                   : TM_VERDICT_NOT_JUDGED;
    snprintf(out->reason, sizeof out->reason, "part %d in round %d", part, round);
    turn++;
}

void tm_validity_destroy(tm_validity *v)
{
    assert_ptr_equal(v, &watched);
    watched--;
}

/* A part has the worst verdict of its turns, and the reason of the first that was as bad. */
TEST(the_worst_turn_counts)
{
    static const char letters[][PARTS][ROUNDS + 1] = { { "vvvv", "--v-", "vnin", "----" },
                                                       { "nnvi", "-vnn", "ivni", "v---" } };
    static const struct {
        tm_verdict  verdict;
        const char *reason;
    } wanted[][PARTS] = { { { TM_VERDICT_VALID, "part 0 in round 0" },
                            { TM_VERDICT_VALID, "part 1 in round 2" },
                            { TM_VERDICT_INVALID, "part 2 in round 2" },
                            { TM_VERDICT_NOT_JUDGED, "" } },
                          { { TM_VERDICT_INVALID, "part 0 in round 3" },
                            { TM_VERDICT_NOISY, "part 1 in round 2" },
                            { TM_VERDICT_INVALID, "part 2 in round 0" },
                            { TM_VERDICT_VALID, "part 3 in round 0" } } };
    for (int i = 0; i < 2; i++) {
        bench_case c;
        tm_slices  s;
        tm_error   err = { 0 };
        case_open(&c);
        c.options.together = i == 1;
        verdicts = letters[i], turn = 0;
        assert_int_equal(tm_slices_measure(&c.options, c.part, 3, &c.whole, 5, &s, &err), TM_OK);
        verdicts = NULL;
        assert_int_equal(turn, PARTS * ROUNDS);
        assert_int_equal(watched, 0);
        for (int k = 0; k < PARTS; k++) {
            assert_int_equal(s.verdict[k], wanted[i][k].verdict);
            assert_string_equal(s.reason[k], wanted[i][k].reason);
        }
        tm_slices_fini(&s);
        tm_device_close(c.device);
    }
}

/* From one or two rounds, what cannot be is noise; from three on it is left to the guards. */
TEST(noise)
{
    tm_slices s = { .rounds = 2, .line = { .a = 1, .b = 0.1, .value = 2 } };
    tm_peaks  peaks = { .flops = 100 }, unknown = { 0 };
    assert_false(tm_slices_are_noise(&s, 190, &peaks));
    assert_true(tm_slices_are_noise(&s, 230, &peaks));
    assert_false(tm_slices_are_noise(&s, 230, &unknown));
    s.line.b = 0;
    assert_true(tm_slices_are_noise(&s, 190, &unknown));
    s.line = (tm_line){ .a = -3, .b = 0.1, .value = -1 };
    assert_true(tm_slices_are_noise(&s, 190, &unknown));
    s.rounds = 3;
    assert_false(tm_slices_are_noise(&s, 190, &peaks));
}

TESTS_ALONE
