/* SPDX-License-Identifier: Apache-2.0 */
/* `trainmark mlperf explain` over results that are made up, no two of whose figures are alike: all cells, ratios and
 * JSON, to the letter (tests/golden/whole-mlperf-explain.txt). What the figures are: tests/mlperf/test_breakdown.c. */
#include "support/test.h"
#include "cli/cli.h"
#include "cli/mlperf.h"
#include "mlperf/breakdown.h"
#include "told.h"

#include <math.h>
#include <signal.h>

/* --- results that are made up ------------------------------------------------------------------------------------- */

typedef struct {
    const char *benchmark;
    double      rate; /* samples/s: on both sides of where digits change */
    size_t      used, runs, of_spread;
    const char *problem;
    bool        valid;
    int64_t     batch;
} made_result;

#define FORTY "a_benchmark_whose_name_has_forty_letters"

static const made_result made[] = {
    { "llama31_8b", 9.9994, 3, 3, 3, NULL, true, 64 },    { "llama31_8b", 10, 2, 2, 2, NULL, false, 0 },
    { NULL, 99.994, 1, 1, 1, NULL, true, 8192 },          { NULL, 100, 1, 2, 2, "a run is bad", false, 1 },
    { FORTY, 999.94, 5, 0, 5, NULL, true, 12 },           { FORTY, 1000, 4, 1, 0, NULL, true, 16 },
    { "llama31_8b", 123456.7, 2, 1, 4, NULL, true, 640 }, { "flux1", NAN, 2, 1, 2, NULL, true, 5 },
    { "flux1", 0.5, 0, 1, 1, "none counts", false, 2 },
};

static double        last;
static tm_submission submissions[sizeof made / sizeof made[0]];
static int           opened;

/* Another number each time. */
static double another(void)
{
    last = fmod(last * 5 + 37.015625, 997);
    return last;
}

static size_t number_of(const tm_submission *s)
{
    return (size_t)(s - submissions);
}

tm_status tm_submission_open(const char *path, tm_ruleset ruleset, tm_submission **out, tm_error *err)
{
    size_t i = (size_t)(path[0] - 'a');
    assert_int_equal(ruleset, TM_RULESET_6_0_0);
    if (i >= sizeof made / sizeof made[0]) return tm_fail(err, TM_INVALID, "there is no '%s'", path);
    submissions[i] = (tm_submission){ .path = path, .benchmark = made[i].benchmark };
    opened++;
    *out = &submissions[i];
    return TM_OK;
}

void tm_submission_close(tm_submission *s)
{
    assert_true(s == &submissions[number_of(s)]);
    opened--;
}

/* Nobody asks for these. */
tm_submission *tm_submission_create(const char *path, tm_ruleset ruleset)
{
    (void)path, (void)ruleset;
    return NULL;
}

void tm_submission_add(tm_submission *s, const char *name, tm_mllog *log)
{
    (void)s, (void)name, (void)log;
}

tm_status tm_submission_judge(const tm_submission *s, const tm_reference *given, bool full, tm_rcp_verdict *out,
                              tm_error *err)
{
    (void)s, (void)given, (void)full, (void)out;
    return tm_fail(err, TM_INTERNAL, "nobody asks for this");
}

static void make_spread(tm_spread *s, double mean, size_t n)
{
    *s = (tm_spread){ .mean = n ? mean : (double)NAN, .deviation = another() / 40, .geometric = another(), .n = n };
}

static tm_breakdown_run make_run(size_t i)
{
    static const char *const names[] = { "result_0.txt", "result_1.txt", "result_2.txt" };
    tm_breakdown_run         r = { .name = names[i], .used = i != 1, .evaluations = 3 + i };
    double *const            values[] = { &r.seconds,  &r.init_s, &r.train_s,    &r.eval_s,         &r.samples,
                                          &r.crossing, &r.rate,   &r.first_rate, &r.rate_variation, &r.tracked };
    for (size_t k = 0; k < sizeof values / sizeof values[0]; k++) *values[k] = another();
    if (i == 2) r.tracked = r.first_rate = (double)NAN;
    return r;
}

tm_status tm_breakdown_compute(const tm_submission *submission, const tm_reference *given, tm_breakdown *out,
                               tm_error *err)
{
    static tm_breakdown_run runs[sizeof made / sizeof made[0]][3];
    size_t                  i = number_of(submission);
    const made_result      *m = &made[i];
    (void)err;
    assert_null(given);
    *out = (tm_breakdown){ .runs = runs[i], .n = m->runs, .used = m->used };
    for (size_t k = 0; k < m->runs; k++) runs[i][k] = make_run(k);
    out->score = (tm_score){ .problem = m->problem,
                             .valid = m->valid,
                             .minutes = another(),
                             .scaled = another(),
                             .factor = 1 + another() / 1000,
                             .rcp = { .batch = m->batch } };
    tm_spread *const spreads[] = { &out->seconds,      &out->samples,  &out->init_s,
                                   &out->evaluation_s, &out->crossing, &out->overshoot };
    for (size_t k = 0; k < sizeof spreads / sizeof spreads[0]; k++)
        make_spread(spreads[k], 40 * another(), m->of_spread);
    make_spread(&out->rate, m->rate, m->of_spread);
    make_spread(&out->first_rate, m->rate * 1.00005, m->of_spread);
    make_spread(&out->tracked, m->rate * 0.99995, m->of_spread);
    make_spread(&out->train_share, (70 + 3 * (double)i) / 100, m->of_spread);
    make_spread(&out->eval_share, (8 + (double)i) / 80, m->of_spread);
    double *const values[] = { &out->rate_variation, &out->interval, &out->rounding_share, &out->best_interval };
    for (size_t k = 0; k < sizeof values / sizeof values[0]; k++) *values[k] = another();
    out->rate_variation /= 1000, out->rounding_share /= 1000;
    for (int k = 0; k < TM_BREAKDOWN_FINER; k++)
        out->finer[k] = (tm_breakdown_finer){ .parts = 2 * k + 2,
                                              .saved_s = another(),
                                              .evaluations_s = another(),
                                              .net_s = (k ? -1 : 1) * another(),
                                              .scaled_s = i % 3 == 2 ? (double)NAN : another() };
    return TM_OK;
}

bool tm_breakdown_compare(const tm_submission *of_a, const tm_breakdown *a, const tm_submission *of_b,
                          const tm_breakdown *b, tm_breakdown_ratio *out)
{
    assert_true(a->used == made[number_of(of_a)].used && b->used == made[number_of(of_b)].used);
    assert_true(number_of(of_a) <= number_of(of_b));
    if (a->score.problem || b->score.problem) return false;
    *out = (tm_breakdown_ratio){ another() / 100, another() / 100, another() / 100,
                                 another() / 100, another() / 100, another() / 100 };
    return true;
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

static tm_status explain(const char *words)
{
    char     copy[300], *rest = copy, *argv[40];
    int      argc = 0;
    tm_error err = { 0 };
    snprintf(copy, sizeof copy, "mlperf explain|--ruleset|6.0.0|%s", words);
    for (char *word; (word = strsep(&rest, "|"));) argv[argc++] = word;
    argv[argc] = NULL;
    last = 1;
    tm_text_printf(&told, "> %s\n", words);
    told_begin();
    tm_status st = tm_cli_call(&tm_mlperf_command_explain, "mlperf explain", argc, argv, &err);
    told_end(st, &err);
    assert_int_equal(opened, 0);
    return st;
}

TEST(all_that_is_said)
{
    assert_int_equal(explain("a"), TM_OK);
    assert_int_equal(explain("a|b|c|d|e|f|g|h"), TM_OK);
    assert_int_equal(explain("h|a|--json"), TM_OK);
    assert_int_equal(explain("d|i|--json"), TM_NEGATIVE);
    assert_int_equal(explain("i|a"), TM_NEGATIVE);
    assert_int_equal(explain("a folder|b\tx\x01y\x7fz\xc3\xa4"), TM_OK);
    assert_int_equal(explain("a|nowhere"), TM_INVALID);
    assert_int_equal(explain("a|a|a|a|a|a|a|a|a|a|a|a|a|a|a|a|a"), TM_USAGE);
    told_is("tests/golden/whole-mlperf-explain.txt");
}

/* Sixteen side by side are the most. */
TEST(sixteen_results)
{
    assert_int_equal(explain("a|c|e|h|a|c|e|h|a|c|e|h|a|c|e|h"), TM_OK);
    told.length = 0;
}

TESTS_ALONE
TEST_FIXTURE(told_enter, told_leave)
