/* SPDX-License-Identifier: Apache-2.0 */
/* Times taken apart and scores of logs in which something is odd: lines that are missing, that come twice or at the
 * same time, numbers at the end of what a double holds. Of each the figures that follow. */
#include "base/arena.h"
#include "apps/mlperf/breakdown.h"
#include "apps/mlperf/seeds.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

static void line(tm_text *out, const char *ms, const char *key, const char *value, const char *metadata)
{
    tm_text_printf(out, ":::MLLOG {\"time_ms\": %s, \"key\": \"%s\", \"value\": %s, \"metadata\": {%s}}\n", ms, key,
                   value, metadata);
}

/* One more run of these lines, "; " between them, in short: "KEY MS"; "stop MS", with success; "loss MS VALUE SAMPLES";
 * "block FROM TO SAMPLES", of which the samples may be left out; "seed VALUE"; or the line itself. It is taken to
 * comply. */
static void add(tm_submission *s, const char *rows)
{
    tm_text   text = { 0 };
    tm_mllog *log;
    tm_error  err = { 0 };
    for (const char *at = rows; *at; at += strspn(at, "; ")) {
        char w[4][96] = { "", "", "", "" }, samples[96];
        sscanf(at, "%95[^ ;] %95[^ ;] %95[^ ;] %95[^ ;]", w[0], w[1], w[2], w[3]);
        const char *count = w[3][0] ? w[3] : "";
        snprintf(samples, sizeof samples, *count ? "\"samples_count\": %s" : "%s", count);
        if (w[0][0] == ':')
            tm_text_printf(&text, "%.*s\n", (int)strcspn(at, ";"), at);
        else if (strcmp(w[0], "stop") == 0)
            line(&text, w[1], "run_stop", "null", "\"status\": \"success\"");
        else if (strcmp(w[0], "loss") == 0)
            line(&text, w[1], "eval_accuracy", w[2], samples);
        else if (strcmp(w[0], "seed") == 0)
            line(&text, "1", "seed", w[1], "\"file\": \"x\", \"lineno\": 5");
        else if (strcmp(w[0], "block") == 0) {
            if (strcmp(w[1], "-") != 0) line(&text, w[1], "block_start", "null", "");
            line(&text, w[2], "block_stop", "null", samples);
        } else
            line(&text, w[1], w[0], "null", "");
        at += strcspn(at, ";");
    }
    assert_int_equal(tm_mllog_parse("log", text.data, text.length, &log, &err), TM_OK);
    tm_text_fini(&text);
    tm_submission_add(s, "run", log);
    s->runs[s->n - 1].report.passed = true;
}

/* Of LoRA in the open division, where no convergence test changes the figures. */
static tm_submission *empty(void)
{
    tm_submission *s = tm_submission_create("folder", TM_RULESET_5_1_0);
    s->benchmark = "llama2_70b_lora"; /* its target: 0.925 */
    s->division = "open";
    return s;
}

static tm_breakdown computed(const tm_submission *s)
{
    tm_breakdown b;
    tm_error     err = { 0 };
    if (tm_breakdown_compute(s, NULL, &b, &err) != TM_OK) fail_msg("%s", err.text);
    return b;
}

static void is(double value, double wanted, const char *what)
{
    if (!(fabs(value - wanted) <= 1e-12 * fabs(wanted))) fail_msg("%s: %.17g is not %.17g", what, value, wanted);
}

/* --- one run ------------------------------------------------------------------------------------------------------ */

TEST(blocks_without_a_beginning_or_samples)
{
    tm_submission *s = empty();
    /* No block: no time, but samples; none since: no rate; two without samples; an evaluation of the same samples. */
    add(s, "run_start 0; block - 1000 7; loss 1000 2 1; block 2000 4000 7; block 5000 6000; block 7000 8000 Infinity; "
           "loss 8000 1.5; block 8000 12000 47; block 12000 14000 57; block 14000 15000 67; loss 15000 1 1; "
           "stop 16000");
    tm_breakdown            b = computed(s);
    const tm_breakdown_run *r = b.runs;
    assert_true(r->used);
    is(r->train_s, 11, "six blocks");
    is(r->eval_s, 4, "what lies between and behind");
    is(r->first, 7, "first evaluation");
    is(r->samples, 67, "last evaluation");
    assert_int_equal(r->evaluations, 3);
    is(r->step, 60, "the one step");
    is(r->first_rate, 10, "40 samples in 4 s");
    is(r->rate_variation, sqrt(12.5) / 7.5, "5 and 10 a second");
    assert_true(isnan(r->init_s));
    tm_submission_close(s);
}

TEST(an_evaluation_of_unknown_samples_is_none)
{
    tm_submission *s = empty();
    add(s, "run_start 0; block 0 500; loss 1000 2; loss 2000 3 20; stop 4000");
    add(s, "run_start 0; block 0 500; loss 1000 2; stop 4000");
    tm_breakdown b = computed(s);
    assert_int_equal(b.runs[0].evaluations, 1);
    is(b.runs[0].first, 20, "the first that counts");
    assert_true(b.runs[0].used);
    assert_int_equal(b.runs[1].evaluations, 0);
    assert_true(isnan(b.runs[1].samples));
    assert_false(b.runs[1].used);
    assert_int_equal(b.used, 1);
    tm_submission_close(s);
}

/* Twice at the same number of samples, above the target and below: there is no line between them. */
TEST(a_target_is_crossed_between_two_numbers_of_samples)
{
    tm_submission *s = empty();
    add(s, "run_start 0; block 0 500; loss 1000 1 20; loss 2000 0.9 20; stop 4000");
    add(s, "run_start 0; block 0 500; loss 1000 1 20; loss 2000 0.925 30; stop 4000");
    add(s, "run_start 0; block 0 500; loss 1000 0.925 20; loss 2000 0.9 30; stop 4000");
    tm_breakdown b = computed(s);
    assert_int_equal(b.used, 3);
    assert_true(isnan(b.runs[0].crossing));
    is(b.runs[1].crossing, 30, "met exactly");
    assert_true(isnan(b.runs[2].crossing)); /* it was met before */
    assert_int_equal(b.crossing.n, 1);
    assert_true(isnan(b.runs[0].step));
    tm_submission_close(s);
}

TEST(the_first_beginning_counts_and_the_first_end)
{
    tm_submission *s = empty();
    add(s, "init_start 2000; init_start 5000; init_stop 9000; init_stop 19000; run_start 20000");
    add(s, "init_start 5000; init_start 2000; init_stop 9000");
    add(s, "init_stop 9000; init_start 10000; init_stop 11000");
    tm_breakdown b = computed(s);
    is(b.runs[0].init_s, 7, "twice");
    is(b.runs[1].init_s, 7, "earlier");
    assert_true(isnan(b.runs[2].init_s));
    tm_submission_close(s);
}

TEST(lines_that_cannot_be_read_are_passed_over)
{
    tm_submission *s = empty();
    add(s, "run_start 0; :::MLLOG {\"time_ms\": 500, \"key\": \"eval_accuracy\", \"value\": 9}; "
           ":::MLLOG {\"time_ms\": 500, ; block 1000 2000 10; loss 2000 1; stop 4000");
    tm_breakdown b = computed(s);
    assert_int_equal(b.runs[0].evaluations, 1);
    is(b.runs[0].rate, 10, "the one block");
    assert_true(b.runs[0].used);
    tm_submission_close(s);
}

/* A run counts if its samples, its seconds and their quotient are numbers above zero. */
TEST(runs_whose_figures_make_no_sense_are_left_out)
{
    static const struct {
        const char *block, *stop;
        bool        used;
    } cases[] = {
        { "0 2000 10", "4000", true },        { "0 2000 10", "0.001", true },
        { "0 2000 10", "0", false },       /* no time at all */
        { "0 2000 10", "\"inf\"", false }, /* without end */
        { "0 2000 0", "4000", false },     /* no sample */
        { "0 2000 -5", "4000", false },       { "0 2000 1", "4000", true },
        { "2000 1000 10", "4000", false }, /* a block that ends before it begins */
        { "2000 2000 10", "4000", false }, /* or lasts no time */
        { "2000 2000.001 10", "4000", true },
    };
    tm_submission *s = empty();
    for (size_t i = 0; i < COUNT(cases); i++) {
        char rows[128];
        snprintf(rows, sizeof rows, "run_start 0; block %s; loss 3000 1; stop %s", cases[i].block, cases[i].stop);
        add(s, rows);
    }
    tm_breakdown b = computed(s);
    for (size_t i = 0; i < COUNT(cases); i++)
        if (b.runs[i].used != cases[i].used) fail_msg("case %zu", i);
    assert_int_equal(b.used, 4);
    assert_int_equal(b.samples.n, 4);
    tm_submission_close(s);
}

/* --- scores ------------------------------------------------------------------------------------------------------- */

static const char plain[] = "run_start 0; block 0 2000 10; loss 3000 1; stop 6000";

/* No name, or one without rules: no target, no number of runs that is wanted, and nothing to be compared with. */
TEST(of_no_known_benchmark)
{
    static const char *const names[] = { NULL, "bert", "llama2_70b_lora" };
    for (size_t i = 0; i < COUNT(names); i++) {
        tm_submission *s = empty();
        s->benchmark = names[i];
        for (int k = 0; k < 3; k++) add(s, plain);
        tm_breakdown b = computed(s);
        if (i < 2)
            assert_true(isnan(b.target));
        else
            is(b.target, 0.925, "target");
        tm_submission_close(s);
        s = empty();
        s->benchmark = names[i];
        add(s, plain); /* a single one has no score */
        assert_false(computed(s).score.valid);
        assert_int_equal(b.score.wanted, i < 2 ? 0 : 10);
        assert_true(b.score.valid == (i < 2)); /* three runs of ten */
        assert_false(b.score.closed);
        is(b.score.minutes, 0.1, "minutes");
        tm_submission_close(s);
    }
}

TEST(the_division_decides_whether_convergence_is_tested)
{
    static const char *const divisions[] = { NULL, "open", "closed", "Closed" };
    for (size_t i = 0; i < COUNT(divisions); i++) {
        tm_submission *s = empty();
        s->benchmark = "bert";
        s->division = divisions[i];
        for (int k = 0; k < 3; k++) {
            add(s, plain);
            s->runs[k].rcp = (tm_rcp_run){ NULL, true, 10, true, 8, "bert" };
        }
        tm_breakdown b = computed(s);
        assert_int_equal(b.score.closed, i == 2);
        assert_string_equal(b.score.rcp_word, i == 2 ? "No RCP" : "");
        assert_int_equal(b.score.valid, i != 2);
        assert_null(b.score.problem);
        tm_submission_close(s);
    }
}

/* --- seeds -------------------------------------------------------------------------------------------------------- */

/* A thousand seeds of a log are looked at, and a second one is warned of. */
TEST(seeds_of_a_log_have_a_limit)
{
    for (int n = 0; n <= 1001; n += n < 3 ? 1 : n < 999 ? 996 : 1) {
        tm_submission *s = empty();
        tm_text        rows = { 0 };
        for (int i = 0; i < n; i++) tm_text_printf(&rows, "seed %d; ", i);
        add(s, n ? rows.data : "run_start 1");
        tm_text_fini(&rows);
        tm_seeds_report seeds = tm_seeds_check(s);
        assert_int_equal(seeds.n, n > 1000 ? 1000 : n);
        assert_int_equal(seeds.warnings.n, n > 1);
        assert_int_equal(seeds.errors.n, n == 0);
        assert_int_equal(seeds.passed, n > 0);
        tm_submission_close(s);
    }
}

/* --- two results -------------------------------------------------------------------------------------------------- */

static tm_submission *three(const char *rows)
{
    tm_submission *s = empty();
    for (int k = 0; k < 3; k++) add(s, rows);
    return s;
}

static bool compared(const tm_submission *of_a, const tm_submission *of_b, tm_breakdown_ratio *r)
{
    tm_breakdown a = computed(of_a), b = computed(of_b);
    *r = (tm_breakdown_ratio){ 0 };
    return tm_breakdown_compare(of_a, &a, of_b, &b, r);
}

/* Not compared, and nothing is told. */
static void apart(const tm_submission *a, const tm_submission *b)
{
    static const tm_breakdown_ratio nothing;
    tm_breakdown_ratio              r;
    assert_false(compared(a, b, &r));
    assert_memory_equal(&r, &nothing, sizeof r);
}

TEST(only_scores_of_one_benchmark_are_compared)
{
    tm_breakdown_ratio r;
    tm_submission     *s = three(plain), *t = three(plain), *few = empty(), *unused = three("run_start 0; stop 6000");
    add(few, plain);
    assert_true(compared(s, t, &r));
    is(r.scaled, 1, "of equal ones");
    apart(few, t); /* a single run has no score */
    apart(s, few);
    tm_breakdown of = computed(unused);
    assert_null(of.score.problem); /* three scores, but no samples */
    assert_int_equal(of.used, 0);
    apart(unused, t);
    apart(s, unused);
    t->benchmark = NULL;
    apart(s, t);
    apart(t, s);
    t->benchmark = "flux1";
    apart(s, t);
    t->benchmark = s->benchmark;
    assert_true(compared(s, t, &r));
    tm_submission_close(s);
    tm_submission_close(t);
    tm_submission_close(few);
    tm_submission_close(unused);
}

/* Each of the quotients that must be finite for a comparison, beyond a double for once. */
TEST(quotients_beyond_a_double_are_no_comparison)
{
    tm_breakdown_ratio r;
    tm_submission     *a = three("run_start 0; block 0 2000 1e-200; loss 3000 1; stop 6000"),
                  *b = three("run_start 0; block 0 2000 1e200; loss 3000 1; stop 6000"), *c = empty(),
                  *d = three(plain);
    assert_false(compared(a, b, &r));
    assert_true(isinf(r.samples) && isfinite(r.scaled) && isfinite(r.rate) && isfinite(r.overhead));
    assert_false(compared(b, a, &r));
    assert_true(isinf(r.rate) && isfinite(r.scaled) && isfinite(r.samples) && isfinite(r.overhead));
    for (int i = 0; i < 2; i++) /* the fastest and the slowest do not count: the score is zero */
        add(c, "run_start 6000; block 0 2000 10; loss 3000 1; stop 6000");
    add(c, plain);
    assert_false(compared(c, d, &r));
    assert_true(isinf(r.scaled) && isfinite(r.samples) && isfinite(r.rate) && isfinite(r.overhead));
    assert_true(compared(d, c, &r));
    is(r.scaled, 0, "nothing of it");
    tm_submission_close(a);
    tm_submission_close(b);
    a = three("run_start 0; block -1e303 0 1e100; loss 0 1; stop 1000");
    b = three("run_start 0; block 0 1e-17 1e100; loss 0 1; stop 1000");
    assert_false(compared(a, b, &r));
    assert_true(isinf(r.overhead) && isfinite(r.scaled) && isfinite(r.samples) && isfinite(r.rate));
    tm_submission_close(a);
    tm_submission_close(b);
    tm_submission_close(c);
    tm_submission_close(d);
}
