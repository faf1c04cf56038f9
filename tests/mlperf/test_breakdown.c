/* SPDX-License-Identifier: Apache-2.0 */
/* A time to train taken apart: made-up runs whose parts are known exactly. */
#include "support/test.h"

#include "base/file.h"
#include "apps/mlperf/breakdown.h"
#include "support/folder.h"
#include "support/mllogs.h"
#include "support/training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

TEST(runs_without_score_are_left_out)
{
    tm_breakdown b;
    write_result(0, 500);
    test_mllog log = run_of(3072, 500, 4);
    log.loss = 0.93;
    log.status = "aborted";
    test_mllog_write(&log, folders[0], 4);
    tm_submission *s = explain(0, &b);
    assert_int_equal(b.used, 9);
    assert_false(b.runs[4].used);
    assert_int_equal(b.samples.n, 9);
    tm_submission_close(s);
}

/* Three runs whose log is changed before it is written. */
static tm_submission *three(void (*change)(tm_text *log), tm_breakdown *b)
{
    for (int i = 0; i < 3; i++) {
        char       path[600];
        tm_text    text = { 0 };
        tm_error   err = { 0 };
        test_mllog log = run_of(3072, 500, i);
        test_mllog_print(&log, &text);
        change(&text);
        snprintf(path, sizeof path, "%s/result_%d.txt", folders[0], i);
        assert_int_equal(tm_file_write(path, text.data, text.length, &err), TM_OK);
        tm_text_fini(&text);
    }
    return explain(0, b);
}

/* Lines that have the word come `times` times. */
static void repeat(tm_text *text, const char *word, int times)
{
    tm_text out = { 0 };
    for (const char *line = text->data; *line;) {
        size_t n = strcspn(line, "\n") + 1;
        for (int i = memmem(line, n, word, strlen(word)) ? times : 1; i > 0; i--) tm_text_add_n(&out, line, n);
        line += n;
    }
    tm_text_fini(text);
    *text = out;
}

static void no_evaluations(tm_text *text)
{
    repeat(text, "\"eval_st", 0);
}

static void epochs_for_blocks(tm_text *text)
{
    repeat(text, "\"block_st", 0);
    tm_text_add(text, ":::MLLOG {\"time_ms\": 5, \"key\": \"epoch_start\", \"value\": 1, \"metadata\": {}}\n");
}

static void no_run(tm_text *text)
{
    repeat(text, "\"run_start", 0);
}

static void batch_twice(tm_text *text)
{
    repeat(text, "\"global_batch_size\"", 2);
}

/* Evaluations are one step short, and there are two throughputs. */
static void short_of_a_step(tm_text *text)
{
    for (char *at = text->data; (at = strstr(at, "eval_accuracy")) != NULL; at++) {
        char *count = strstr(at, "\"samples_count\": ") + 17, digits[32];
        snprintf(digits, sizeof digits, "%ld", strtol(count, NULL, 10) - 8);
        memcpy(count, digits, 4);
    }
    tm_text     out = { 0 };
    const char *begun = strchr(strstr(text->data, "\"run_start\""), '\n') + 1;
    tm_text_add_n(&out, text->data, (size_t)(begun - text->data));
    for (int k = 2; k < 4; k++)
        tm_text_printf(&out,
                       ":::MLLOG {\"time_ms\": 9, \"key\": \"tracked_stats\", \"value\": {\"throughput\": %d}, "
                       "\"metadata\": {}}\n",
                       k);
    tm_text_add(&out, begun);
    tm_text_fini(text);
    *text = out;
}

TEST(logs_with_other_lines)
{
    tm_breakdown   b;
    tm_submission *s = three(no_evaluations, &b); /* they are what lies between blocks */
    assert_int_equal(b.used, 3);
    near(b.runs[0].eval_s, 150, "evaluation between blocks");
    near(b.runs[0].rate, 2, "rate");
    tm_submission_close(s);
    s = three(epochs_for_blocks, &b); /* not compliant, but measured */
    assert_int_equal(b.used, 0);
    near(b.runs[0].eval_s, 150, "evaluation");
    near(b.runs[0].train_s, 1536, "training is the rest");
    tm_submission_close(s);
    s = three(no_run, &b);
    assert_int_equal(b.used, 0);
    assert_true(isnan(b.runs[0].seconds) && isnan(b.seconds.mean));
    tm_submission_close(s);
    s = three(batch_twice, &b); /* what the checker only warns of is no failure of a submission */
    assert_int_equal(b.used, 3);
    assert_true(s->runs[2].report.passed);
    assert_int_equal(s->runs[2].report.warnings.n, 1);
    tm_submission_close(s);
    s = three(short_of_a_step, &b); /* the samples of a block_stop count, those of an eval_accuracy do not */
    assert_int_equal(b.used, 3);
    near(s->runs[0].rcp.samples, 3064, "what the convergence test reads");
    near(b.runs[0].samples, 3072, "what was trained");
    near(b.tracked.mean, 2.5, "throughput");
    tm_submission_close(s);
}

TEST_FIXTURE(set_up, tear_down)
