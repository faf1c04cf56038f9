/* SPDX-License-Identifier: Apache-2.0 */
/* A time to train taken apart: made-up runs whose parts are known exactly, and logs in which something is odd. */
#include "support/test.h"

#include "apps/mlperf/breakdown.h"
#include "support/folder.h"
#include "support/mllogs.h"

static char *folders[2];

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) folders[i] = test_tree_make();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) test_tree_remove(folders[i]);
    return 0;
}

static void near(double value, double wanted, const char *what)
{
    if (!(fabs(value - wanted) <= 1e-9 * (1 + fabs(wanted)))) fail_msg("%s: %.17g is not %.17g", what, value, wanted);
}

/* A LoRA run: evaluated at 1536 and every 384 samples, 30 s each; the target (0.925) lies halfway between the last two.
 */
static test_mllog run_of(int64_t samples, int64_t ms_per_sample, int i)
{
    test_mllog log = test_mllog_good("llama2_70b_lora", 8, samples, i);
    log.first = 1536;
    log.interval = 384;
    log.eval_ms = 30000;
    log.run_ms = samples * ms_per_sample + ((samples - 1536) / 384 + 1) * log.eval_ms;
    log.loss = 0.92;
    log.slope = 0.01;
    log.init_ms = 20000 + 1000 * i;
    return log;
}

static const int64_t samples_of_runs[10] = { 3072, 3072, 3456, 3072, 3456, 3072, 2688, 3840, 3072, 3456 };

static void write_result(int which, int64_t ms_per_sample)
{
    for (int i = 0; i < 10; i++) {
        test_mllog log = run_of(samples_of_runs[i], ms_per_sample, i);
        test_mllog_write(&log, folders[which], i);
    }
}

static tm_submission *explain(int which, tm_breakdown *b)
{
    tm_submission *s;
    tm_error       err = { 0 };
    if (tm_submission_open(folders[which], TM_RULESET_5_1_0, &s, &err) != TM_OK) fail_msg("%s", err.text);
    if (tm_breakdown_compute(s, NULL, b, &err) != TM_OK) fail_msg("%s", err.text);
    return s;
}

TEST(parts_of_known_runs)
{
    tm_breakdown b;
    write_result(0, 500);
    tm_submission *s = explain(0, &b);
    assert_int_equal(b.used, 10);
    double mean = 0, squares = 0;
    for (int i = 0; i < 10; i++) {
        const tm_breakdown_run *r = &b.runs[i];
        double                  samples = (double)samples_of_runs[i], n = (samples - 1536) / 384 + 1;
        near(r->samples, samples, "samples");
        near(r->first, 1536, "first evaluation");
        near(r->step, 384, "interval");
        assert_int_equal(r->evaluations, (int)n);
        near(r->eval_s, 30 * n, "evaluation");
        near(r->train_s, samples / 2, "training");
        near(r->seconds, samples / 2 + 30 * n, "all");
        near(r->rate, 2, "rate");
        near(r->first_rate, 2, "rate of the first block");
        near(r->crossing, samples - 192, "samples at the target");
        near(r->init_s, 20 + i, "initialisation");
        assert_true(isnan(r->tracked));
        mean += samples / 10;
    }
    for (int i = 0; i < 10; i++) squares += pow((double)samples_of_runs[i] - mean, 2);
    near(b.samples.mean, mean, "mean of samples");
    near(b.samples.deviation, sqrt(squares / 9), "their deviation");
    near(b.rate.mean, 2, "mean rate");
    near(b.rate.deviation, 0, "its deviation");
    near(b.rate_variation, 0, "within a run");
    near(b.evaluation_s.mean, 30, "one evaluation");
    near(b.overshoot.mean, 192, "beyond the target");
    near(b.interval, 384, "interval");
    near(b.rounding_share, 384.0 * 384 / 12 / (squares / 9), "share of rounding");
    near(b.train_share.mean + b.eval_share.mean, 1, "nothing else");
    double span = mean - 1536;
    near(b.best_interval, sqrt(2 * span * 2 * 30), "best interval");
    near(b.finer[0].saved_s, 192 * 0.5 / 2, "saved by halves");
    near(b.finer[0].evaluations_s, span / 384 * 30, "evaluations of halves");
    near(b.finer[0].net_s, b.finer[0].evaluations_s - b.finer[0].saved_s, "net of halves");
    near(b.finer[1].saved_s, 192 * 0.75 / 2, "saved by quarters");
    near(b.finer[1].evaluations_s, 3 * span / 384 * 30, "evaluations of quarters");
    /* the convergence test takes back what is saved below the reference's mean */
    const tm_rcp_verdict *v = &b.score.rcp;
    double                fewer = v->samples - 96;
    assert_true(v->passed && fewer < v->record.mean);
    near(b.finer[0].scaled_s, (b.seconds.mean + b.finer[0].net_s) * v->record.mean / fewer - b.seconds.mean * v->factor,
         "scaled");
    tm_submission_close(s);
}

TEST(two_results)
{
    tm_breakdown a, b;
    write_result(0, 500);
    write_result(1, 250);
    for (int i = 0; i < 4; i++) { /* the second also needs more samples */
        test_mllog log = run_of(3840, 250, i);
        test_mllog_write(&log, folders[1], i);
    }
    tm_submission     *s = explain(0, &a), *t = explain(1, &b);
    tm_breakdown_ratio r;
    assert_true(tm_breakdown_compare(s, &a, t, &b, &r));
    near(r.rate, 0.5, "half the time per sample");
    assert_true(r.samples > 1 && r.overhead > 1); /* evaluation weighs more when training is faster */
    near(r.factor, b.score.factor / a.score.factor, "factor");
    near(r.samples * r.rate * r.overhead * r.trimming * r.factor, r.scaled, "the product");
    near(r.scaled, b.score.scaled / a.score.scaled, "of the scores");
    assert_true(tm_breakdown_compare(s, &a, s, &a, &r));
    near(r.scaled, 1, "with itself");
    near(r.trimming, 1, "with itself");
    tm_submission_close(t);
    for (int i = 0; i < 10; i++) {
        test_mllog log = test_mllog_good("llama31_8b", 32, 184320, i);
        test_mllog_write(&log, folders[1], i);
    }
    t = explain(1, &b);
    assert_false(tm_breakdown_compare(s, &a, t, &b, &r));
    /* one evaluation per run: no interval, no crossing */
    assert_int_equal(b.used, 10);
    assert_true(isnan(b.interval) && isnan(b.crossing.mean) && isnan(b.rounding_share) && isnan(b.best_interval));
    tm_submission_close(t);
    tm_submission_close(s);
}

/* --- logs in which something is odd ------------------------------------------------------------------------------- */

static void line(tm_text *out, const char *ms, const char *key, const char *value, const char *metadata)
{
    tm_text_printf(out, ":::MLLOG {\"time_ms\": %s, \"key\": \"%s\", \"value\": %s, \"metadata\": {%s}}\n", ms, key,
                   value, metadata);
}

/* One more run of these lines, "; " between them, in short: "KEY MS" or "KEY MS - SAMPLES"; "stop MS", with success;
 * "loss MS VALUE SAMPLES"; "block FROM TO SAMPLES", of which the samples may be left out. It is taken to comply. */
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
        if (strcmp(w[0], "stop") == 0)
            line(&text, w[1], "run_stop", "null", "\"status\": \"success\"");
        else if (strcmp(w[0], "loss") == 0)
            line(&text, w[1], "eval_accuracy", w[2], samples);
        else if (strcmp(w[0], "block") == 0) {
            if (strcmp(w[1], "-") != 0) line(&text, w[1], "block_start", "null", "");
            line(&text, w[2], "block_stop", "null", samples);
        } else
            line(&text, w[1], w[0], "null", samples);
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
    near(r->train_s, 11, "six blocks");
    near(r->eval_s, 4, "what lies between and behind");
    near(r->first, 7, "first evaluation");
    near(r->samples, 67, "last evaluation");
    assert_int_equal(r->evaluations, 3);
    near(r->step, 60, "the one step");
    near(r->first_rate, 10, "40 samples in 4 s");
    near(r->rate_variation, sqrt(12.5) / 7.5, "5 and 10 a second");
    assert_true(isnan(r->init_s));
    tm_submission_close(s);
}

/* Twice at the same number of samples, above the target and below: there is no line between them. */
TEST(a_target_is_crossed_between_two_numbers_of_samples)
{
    tm_submission *s = empty();
    add(s, "run_start 0; block 0 500; loss 1000 1 20; loss 2000 0.9 20; stop 4000");
    add(s, "run_start 0; block 0 500 20; eval_start 900; loss 1000 1 1; eval_start 1900 - 30; loss 2000 0.925 1; "
           "eval_stop 2500; eval_stop 3000; stop 4000");
    add(s, "run_start 0; block 0 500; loss 1000 0.925 20; loss 2000 0.9 30; stop 4000");
    tm_breakdown b = computed(s);
    assert_int_equal(b.used, 3);
    assert_true(isnan(b.runs[0].crossing));
    near(b.runs[1].crossing, 30, "met exactly, where the evaluation began");
    near(b.runs[1].eval_s, 0.6, "the evaluation that ended");
    near(b.runs[1].step, 10, "from where the block ended");
    assert_true(isnan(b.runs[2].crossing)); /* it was met before */
    assert_int_equal(b.crossing.n, 1);
    assert_true(isnan(b.runs[0].step));
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
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char rows[128];
        snprintf(rows, sizeof rows, "run_start 0; block %s; loss 3000 1; stop %s", cases[i].block, cases[i].stop);
        add(s, rows);
    }
    tm_breakdown b = computed(s);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (b.runs[i].used != cases[i].used) fail_msg("case %zu", i);
    assert_int_equal(b.used, 4);
    assert_int_equal(b.samples.n, 4);
    tm_submission_close(s);
}

/* A single run has no score; other benchmarks are not compared. */
TEST(only_scores_of_one_benchmark_are_compared)
{
    static const char plain[] = "run_start 0; block 0 2000 10; loss 3000 1; stop 6000";
    tm_submission    *s = empty(), *few = empty(), *unused = empty();
    for (int k = 0; k < 3; k++) add(s, plain), add(unused, "run_start 0; stop 6000");
    add(few, plain);
    tm_breakdown       of_s = computed(s), of_few = computed(few), of_unused = computed(unused);
    tm_breakdown_ratio r;
    assert_true(tm_breakdown_compare(s, &of_s, s, &of_s, &r));
    near(r.scaled, 1, "of equal ones");
    assert_false(tm_breakdown_compare(s, &of_s, few, &of_few, &r));
    assert_false(tm_breakdown_compare(unused, &of_unused, s, &of_s, &r)); /* three scores, but no samples */
    tm_submission_close(s);
    tm_submission_close(few);
    tm_submission_close(unused);
}

TEST_FIXTURE(set_up, tear_down)
