/* SPDX-License-Identifier: Apache-2.0 */
/* What is worked out of logs, every figure: the reference records of all benchmarks, the convergence test over batches
 * and samples, scores by number of runs, times taken apart. tests/mlperf/whole-references.txt, whole-results.txt. */
#include "support/mllogs.h"
#include "support/whole.h"

#include "base/arena.h"
#include "mlperf/benchmark.h"
#include "mlperf/breakdown.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

static const char *const kinds[] = {
    "llama31_8b",
    "llama2_70b_lora",
    "llama31_405b",
    "trainmark_tiny",
    "flux1",
    "gpt_oss_20b",
    "deepseekv3_671b",
    "trainmark_tiny_lora",
    "trainmark_tiny_flux",
    "qwen35_397b_grpo",
    "llama31_8b_more",
    "",
};

/* --- references --------------------------------------------------------------------------------------------------- */

static void add_record(tm_text *out, const tm_reference_record *r)
{
    tm_text_printf(out, "%lld: %zu%s, mean %.12g, deviation %.10g, least %.10g, speedup %.10g%s %s;",
                   (long long)r->batch, r->n, r->whole ? " whole" : "", r->mean, r->deviation, r->minimum,
                   r->max_speedup, r->pruned ? ", pruned" : "", r->hyper);
    for (size_t i = 0; i < r->n; i++)
        if (i == 0 || r->samples[i] > r->samples[i - 1] || i + 1 == r->n)
            tm_text_printf(out, " %zu %.12g", i, r->samples[i]);
    tm_text_add(out, "\n");
}

static void add_choices(tm_text *out, const tm_reference *reference)
{
    static const int64_t more[] = { 0,   1,   7,   9,   20,  24,  33,   40,   47,     65,
                                    100, 127, 129, 200, 300, 511, 1000, 3000, 1 << 20 };
    for (size_t i = 0; i < reference->n + COUNT(more); i++) {
        int64_t batch = i < reference->n ? reference->records[i].batch : more[i - reference->n];
        for (int full = 0; full < 2; full++) {
            tm_reference_record r = { .hyper = "none" };
            tm_reference_choice choice = tm_reference_choose(reference, batch, full, &r);
            tm_text_printf(out, "  batch %lld%s: %d, ", (long long)batch, full ? " full" : "", (int)choice);
            if (r.n > 0)
                tm_text_printf(out, "that of %lld\n", (long long)r.batch);
            else
                add_record(out, &r);
        }
    }
}

static void references_to_the_letter(void **state)
{
    tm_text   out = { 0 };
    tm_arena *arena = tm_arena_create();
    double    x[300];
    (void)state;
    for (size_t i = 0; i < COUNT(kinds); i++) {
        const tm_reference_kind *kind = tm_reference_kind_find(kinds[i]);
        const tm_reference      *before = NULL;
        tm_text_printf(&out, "== %s: ", kinds[i]);
        if (kind) tm_text_printf(&out, "%d runs, %s, relief %g", kind->runs, kind->progress, kind->relief);
        tm_text_add(&out, kind ? "\n" : "none\n");
        for (int r = 0; r < TM_RULESET_COUNT; r++) {
            const tm_reference *reference = tm_reference_built_in(kinds[i], (tm_ruleset)r, arena);
            tm_text_printf(&out, "%s: %zu records\n", tm_ruleset_name((tm_ruleset)r), reference ? reference->n : 0);
            if (!reference || (before && before->n == reference->n)) continue;
            for (size_t k = 0; k < reference->n; k++) add_record(&out, &reference->records[k]);
            add_choices(&out, reference);
            before = reference;
        }
    }
    tm_text_add(&out, "== quantiles\n");
    for (int d = 1; d <= 40; d++) tm_text_printf(&out, "%.14g\n", tm_student_quantile_95(d));
    tm_text_add(&out, "== sums\n");
    for (size_t i = 0; i < COUNT(x); i++) x[i] = 1.0 / (double)(i * i % 97 + 3);
    for (size_t n = 0; n <= COUNT(x); n += n < 40 ? 1 : n < 120 ? 11 : n < 140 ? 1 : 16)
        tm_text_printf(&out, "%zu %a\n", n, tm_numpy_sum(x, n));
    tm_arena_destroy(arena);
    whole_is("tests/mlperf/whole-references.txt", &out);
}

static const char *const files[] = {
    "",
    "[]",
    "{}",
    "{\"a\": 1}",
    "{\"a\": {\"Benchmark\": 1}}",
    "{\"a\": {\"Benchmark\": \"llama31_8b\"}}",
    "{\"a\": {\"Benchmark\": \"llama31_8b\", \"BS\": \"8\"}}",
    "{\"a\": {\"Benchmark\": \"llama31_8b\", \"BS\": 0}}",
    "{\"a\": {\"Benchmark\": \"llama31_8b\", \"BS\": 1.5}}",
    "{\"a\": {\"Benchmark\": \"llama31_8b\", \"BS\": 1073741825}}",
    "{\"a\": {\"Benchmark\": \"llama31_8b\", \"BS\": 1073741824}}",
    "{\"a\": {\"Benchmark\": \"llama31_8b\", \"BS\": 1, \"Hyperparams\": []}}",
    "{\"a\": {\"Benchmark\": \"llama31_8b\", \"BS\": 1, \"Hyperparams\": {}}}",
    "{\"a\": {\"Benchmark\": \"llama31_8b\", \"BS\": 1, \"Hyperparams\": {}, \"samples to converge\": 1}}",
    "{\"a\": {\"Benchmark\": \"llama31_8b\", \"BS\": 1, \"Hyperparams\": {}, \"samples to converge\": [1, 2, 3, 4], "
    "\"Epochs to converge\": [1, 2, 3, 4]}}",
    "{\"a\": {\"Benchmark\": \"bert\", \"BS\": 1, \"Hyperparams\": {}, \"samples to converge\": [1, 2, 3, 4]}}",
    "{\"a\": {\"Benchmark\": \"llama31_8b\", \"BS\": 1, \"Hyperparams\": {}, \"samples to converge\": [1, 2, 3]}}",
    "{\"a\": {\"Benchmark\": \"llama31_8b\", \"BS\": 1, \"Hyperparams\": {}, \"samples to converge\": [1, 2, 3, 0]}}",
    "{\"a\": {\"Benchmark\": \"llama31_8b\", \"BS\": 1, \"Hyperparams\": {}, \"samples to converge\": [1, 2, 1e16, "
    "4]}}",
    "{\"a\": {\"Benchmark\": \"llama31_8b\", \"BS\": 1, \"Hyperparams\": {}, \"samples to converge\": [true, 2, 3, "
    "4]}}",
    "{\"a\": {\"Benchmark\": \"llama31_8b\", \"BS\": 1, \"Hyperparams\": {}, \"samples to converge\": [1, 2, NaN, 4]}}",
    "{\"a\": {\"Benchmark\": \"llama31_8b\", \"BS\": 2.0, \"Hyperparams\": {\"a\": [1.50, true]}, \"Epochs to "
    "converge\": "
    "[4, 2.5, 3, 1e15]}}",
    "{\"a\": {\"Benchmark\": \"llama31_8b\", \"BS\": 8, \"Hyperparams\": {}, \"samples to converge\": [7, 7, 7, 7, "
    "7]}, "
    "\"b\": {\"Benchmark\": \"llama31_8b\", \"BS\": 4, \"Hyperparams\": {}, \"samples to converge\": [5, 9, 6, 8]}}",
    "{\"a\": {\"Benchmark\": \"llama31_8b\", \"BS\": 8, \"Hyperparams\": {}, \"samples to converge\": [7, 7, 7, 7]}, "
    "\"b\": {\"Benchmark\": \"llama31_8b\", \"BS\": 8, \"Hyperparams\": {}, \"samples to converge\": [5, 9, 6, 8]}}",
    "{\"a\": {\"Benchmark\": \"llama31_8b\", \"BS\": 8, \"Hyperparams\": {}, \"samples to converge\": [7, 7, 7, 7]}, "
    "\"b\": {\"Benchmark\": \"flux1\", \"BS\": 4, \"Hyperparams\": {}, \"samples to converge\": [5, 9, 6, 8]}}",
};

static void add_file(tm_text *out, const char *text, size_t n, tm_arena *arena)
{
    const tm_reference *reference = NULL;
    tm_error            err = { 0 };
    tm_status           st = tm_reference_parse("f.json", text, n, arena, &reference, &err);
    tm_text_printf(out, "== %.300s\n", text);
    if (st != TM_OK) {
        tm_text_printf(out, "  -> %s: %s\n", tm_status_text(st), err.text);
        return;
    }
    for (size_t i = 0; i < reference->n && i < 3; i++) add_record(out, &reference->records[i]);
    tm_text_printf(out, "  of %s, %zu\n", reference->kind->name, reference->n);
}

static void files_to_the_letter(void **state)
{
    tm_text   out = { 0 };
    tm_arena *arena = tm_arena_create();
    (void)state;
    for (size_t i = 0; i < COUNT(files); i++) add_file(&out, files[i], strlen(files[i]), arena);
    for (int values = 10000; values <= 10001; values++) {
        tm_text text = { 0 };
        tm_text_add(
            &text,
            "{\"a\": {\"Benchmark\": \"llama31_8b\", \"BS\": 8, \"Hyperparams\": {}, \"samples to converge\": [1");
        for (int i = 1; i < values; i++) tm_text_add(&text, i % 2 ? ",1" : ",2");
        tm_text_add(&text, "]}}");
        add_file(&out, text.data, text.length, arena);
        tm_text_fini(&text);
    }
    for (int records = 1000; records <= 1001; records++) {
        tm_text text = { 0 };
        for (int i = 0; i < records; i++)
            tm_text_printf(&text,
                           "%s\"%d\": {\"Benchmark\": \"flux1\", \"BS\": %d, \"Hyperparams\": {}, \"samples to "
                           "converge\": [1, 2, 3, %d]}",
                           i ? ", " : "{", i, records - i, i + 1);
        tm_text_add(&text, "}");
        add_file(&out, text.data, text.length, arena);
        tm_text_fini(&text);
    }
    tm_arena_destroy(arena);
    whole_is("tests/mlperf/whole-reference-files.txt", &out);
}

static void benchmarks_to_the_letter(void **state)
{
    static const int64_t batches[] = { 1, 7, 8, 16, 24, 80, 383, 384, 385, 12288, 262144, 300000 };
    tm_text              out = { 0 };
    (void)state;
    for (const tm_mlperf_benchmark *b = tm_mlperf_benchmarks; b->name; b++) {
        assert_ptr_equal(tm_mlperf_benchmark_find(b->name), b);
        tm_text_printf(&out, "%s: %.6g every %lld, skips %g + %lld, %lld samples, %s on %s by %s%s%s since %s\n ",
                       b->name, b->target, (long long)b->interval_samples, b->skip_per_sample, (long long)b->skip,
                       (long long)b->eval_samples, b->model, b->source, b->protocol ? b->protocol : "none",
                       b->adapters ? ", adapters" : "", b->public ? ", public" : "", tm_ruleset_name(b->since));
        for (size_t i = 0; i < COUNT(batches); i++)
            tm_text_printf(&out, " %lld:%lld+%lld", (long long)batches[i],
                           (long long)tm_mlperf_first_eval_step(b, batches[i]),
                           (long long)tm_mlperf_eval_steps(b, batches[i]));
        tm_text_add(&out, "\n");
    }
    assert_null(tm_mlperf_benchmark_find("bert"));
    whole_is("tests/mlperf/whole-benchmarks.txt", &out);
}

/* --- results ------------------------------------------------------------------------------------------------------ */

static void add_verdicts(tm_text *out)
{
    static const struct {
        const char *benchmark;
        int64_t     batch, samples;
    } rows[] = { { "llama31_8b", 32, 184320 },
                 { "llama31_8b", 32, 160000 },
                 { "llama31_8b", 24, 168960 },
                 { "llama31_8b", 8, 161280 },
                 { "llama31_8b", 8, 100 },
                 { "llama31_8b", 100000, 1 },
                 { "llama2_70b_lora", 8, 3072 },
                 { "llama2_70b_lora", 32, 5280 },
                 { "flux1", 1024, 3000000 },
                 { "gpt_oss_20b", 16, 200000 },
                 { "trainmark_tiny", 8, 800 },
                 { "deepseekv3_671b", 512, 9000 },
                 { "bert", 8, 100 } };
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int ruleset = 0; ruleset < TM_RULESET_COUNT; ruleset++)
            for (int full = 0; full < 2; full++) {
                tm_arena      *arena = tm_arena_create();
                tm_rcp_run     runs[5];
                tm_rcp_verdict v;
                tm_error       err = { 0 };
                for (int k = 0; k < 5; k++)
                    runs[k] = (tm_rcp_run){
                        NULL, true, (double)(rows[i].samples + k * k), true, (double)rows[i].batch, rows[i].benchmark
                    };
                assert_int_equal(tm_rcp_judge(runs, 5, NULL, (tm_ruleset)ruleset, full, arena, &v, &err), TM_OK);
                tm_text_printf(out, "== %s %s, %lld of %lld: %d, factor %.12g%s%s\n",
                               tm_ruleset_name((tm_ruleset)ruleset), v.benchmark, (long long)rows[i].samples,
                               (long long)v.batch, (int)v.choice, v.factor, v.judged ? ", judged" : "",
                               tm_rcp_scales(&v) ? ", scales" : "");
                tm_rcp_print(&v, out);
                tm_arena_destroy(arena);
            }
}

/* Results of `n` runs, of which the last `bad` are aborted or have no end. */
static tm_submission *submission_of(const char *benchmark, int n, int bad)
{
    tm_submission *s = tm_submission_create("folder", TM_RULESET_5_1_0);
    for (int i = 0; i < n; i++) {
        char       name[32];
        test_mllog log = test_mllog_good(benchmark, 8, 3072 + 384 * (i % 4), i);
        log.first = 1536;
        log.interval = 384;
        log.eval_ms = 30000 + 1000 * i;
        log.run_ms = log.samples * (400 + 10 * i * i) + ((log.samples - 1536) / 384 + 1) * log.eval_ms;
        log.loss = 0.92 - 0.001 * i;
        log.slope = 0.01;
        log.init_ms = 20000 + 1000 * i;
        if (i >= n - bad) log.status = i % 2 ? NULL : "aborted", log.loss = 1;
        snprintf(name, sizeof name, "result_%d.txt", i);
        tm_submission_add(s, name, test_mllog_make(&log));
    }
    return s;
}

static void add_score(tm_text *out, const tm_score *s)
{
    tm_text_printf(out, "  score: %zu bad, wanted %d%s, %s, %.12g x %.12g = %.12g, '%s' %s\n", s->bad, s->wanted,
                   s->closed ? ", closed" : "", s->problem ? s->problem : "fine", s->minutes, s->factor, s->scaled,
                   s->rcp_word, s->valid ? "valid" : "not valid");
    for (size_t i = 0; i < s->n; i++)
        tm_text_printf(out, "    %s %s%s %.15g %.15g %.12g\n", s->runs[i].name,
                       s->runs[i].problem ? s->runs[i].problem : "counts", s->runs[i].timed ? ", timed" : "",
                       s->runs[i].start_ms, s->runs[i].stop_ms, s->runs[i].minutes);
}

static void add_spread(tm_text *out, const char *name, tm_spread s)
{
    tm_text_printf(out, "  %s: mean %.10g, deviation %.10g, geometric %.10g of %zu\n", name, s.mean, s.deviation,
                   s.geometric, s.n);
}

static void add_breakdown(tm_text *out, const tm_breakdown *b)
{
    add_score(out, &b->score);
    for (size_t i = 0; i < b->n; i++) {
        const tm_breakdown_run *r = &b->runs[i];
        tm_text_printf(
            out,
            "    %s%s: %.10g s, init %.10g, train %.10g, eval %.10g in %zu, samples %.10g from %.10g by %.10g, "
            "crossing %.10g, rate %.10g, first %.10g, variation %.10g, tracked %.10g\n",
            r->name, r->used ? "" : " left out", r->seconds, r->init_s, r->train_s, r->eval_s, r->evaluations,
            r->samples, r->first, r->step, r->crossing, r->rate, r->first_rate, r->rate_variation, r->tracked);
    }
    add_spread(out, "seconds", b->seconds);
    add_spread(out, "samples", b->samples);
    add_spread(out, "rate", b->rate);
    add_spread(out, "training", b->train_share);
    add_spread(out, "evaluating", b->eval_share);
    add_spread(out, "init", b->init_s);
    add_spread(out, "an evaluation", b->evaluation_s);
    add_spread(out, "crossing", b->crossing);
    add_spread(out, "overshoot", b->overshoot);
    add_spread(out, "first rate", b->first_rate);
    add_spread(out, "tracked", b->tracked);
    tm_text_printf(out, "  target %.10g, used %zu, variation %.10g, interval %.10g, rounding %.10g, best %.10g\n",
                   b->target, b->used, b->rate_variation, b->interval, b->rounding_share, b->best_interval);
    for (int i = 0; i < TM_BREAKDOWN_FINER; i++)
        tm_text_printf(out, "  %d parts: saves %.10g, costs %.10g, net %.10g, scaled %.10g\n", b->finer[i].parts,
                       b->finer[i].saved_s, b->finer[i].evaluations_s, b->finer[i].net_s, b->finer[i].scaled_s);
}

/* A log by hand: what is odd in it. Times in seconds. */
static void add_by_hand(tm_submission *s, const char *name, const char *const *lines)
{
    test_mllog log = test_mllog_good("llama2_70b_lora", 8, 3072, 1);
    tm_text    text = { 0 };
    tm_mllog  *made;
    tm_error   err = { 0 };
    test_mllog_print(&log, &text);
    text.length = (size_t)(strstr(text.data, "\"init_stop\"") - text.data); /* the head alone */
    while (text.data[text.length - 1] != '\n') text.length--;
    for (; lines[0]; lines += 4)
        tm_text_printf(&text, ":::MLLOG {\"time_ms\": %s, \"key\": \"%s\", \"value\": %s, \"metadata\": {%s}}\n",
                       lines[0], lines[1], lines[2], lines[3]);
    assert_int_equal(tm_mllog_parse(name, text.data, text.length, &made, &err), TM_OK);
    tm_submission_add(s, name, made);
    tm_text_fini(&text);
}

#define N(count) "\"samples_count\": " count
#define END "\"status\": \"success\", " N("1")
static const char *const two_starts[] = { "1700000000000",
                                          "init_stop",
                                          "null",
                                          "",
                                          "1700000001000",
                                          "run_start",
                                          "null",
                                          "",
                                          "1700000002000",
                                          "block_start",
                                          "null",
                                          N("0"),
                                          "1700000003000",
                                          "run_start",
                                          "null",
                                          "",
                                          "1700000004000",
                                          "block_start",
                                          "null",
                                          N("0"),
                                          "1700000006000",
                                          "block_stop",
                                          "null",
                                          N("100"),
                                          "1700000006500",
                                          "eval_accuracy",
                                          "0.95",
                                          N("92"),
                                          "1700000007000",
                                          "block_start",
                                          "null",
                                          N("100"),
                                          "1700000011000",
                                          "block_stop",
                                          "null",
                                          N("150"),
                                          "1700000012000",
                                          "block_start",
                                          "null",
                                          N("150"),
                                          "1700000012000",
                                          "block_stop",
                                          "null",
                                          N("160"),
                                          "1700000012250",
                                          "tracked_stats",
                                          "{\"throughput\": 3}",
                                          "",
                                          "1700000012250",
                                          "tracked_stats",
                                          "{\"throughput\": 0}",
                                          "",
                                          "1700000012250",
                                          "tracked_stats",
                                          "{\"throughput\": \"4\"}",
                                          "",
                                          "1700000012500",
                                          "eval_accuracy",
                                          "NaN",
                                          N("160"),
                                          "1700000012500",
                                          "eval_accuracy",
                                          "\"x\"",
                                          N("170"),
                                          "1700000013000",
                                          "block_start",
                                          "null",
                                          N("160"),
                                          "1700000015000",
                                          "block_stop",
                                          "null",
                                          N("190"),
                                          "1700000015000",
                                          "eval_accuracy",
                                          "0.925",
                                          N("190"),
                                          "1700000018000",
                                          "run_stop",
                                          "null",
                                          END,
                                          "1700000028000",
                                          "run_stop",
                                          "null",
                                          END,
                                          NULL };
static const char *const evaluations[] = { "1700000000000",
                                           "init_stop",
                                           "null",
                                           "",
                                           "1700000001000",
                                           "run_start",
                                           "null",
                                           "",
                                           "1700000002000",
                                           "eval_stop",
                                           "null",
                                           N("5"),
                                           "1700000003000",
                                           "eval_start",
                                           "null",
                                           N("64"),
                                           "1700000004500",
                                           "eval_accuracy",
                                           "1.125",
                                           N("60"),
                                           "1700000004750",
                                           "eval_stop",
                                           "null",
                                           N("64"),
                                           "1700000005000",
                                           "eval_start",
                                           "null",
                                           "",
                                           "1700000005500",
                                           "eval_accuracy",
                                           "0.725",
                                           N("9"),
                                           "1700000005750",
                                           "eval_stop",
                                           "null",
                                           N("96"),
                                           "1700000006000",
                                           "eval_start",
                                           "null",
                                           N("128"),
                                           "1700000006500",
                                           "eval_accuracy",
                                           "0.825",
                                           N("120"),
                                           "1700000009000",
                                           "run_stop",
                                           "null",
                                           END,
                                           NULL };
static const char *const no_end[] = {
    "1700000000000", "run_stop", "null",  END, "1700000001000", "run_start", "null", "", "1700000002000",
    "eval_accuracy", "0.5",      N("64"), NULL
};
static const char *const backwards[] = { "1700000000000",
                                         "init_stop",
                                         "null",
                                         "",
                                         "1700000009000",
                                         "run_start",
                                         "null",
                                         "",
                                         "1700000008000",
                                         "eval_accuracy",
                                         "0.5",
                                         N("64"),
                                         "1700000008000",
                                         "run_stop",
                                         "null",
                                         END,
                                         NULL };

static void results_to_the_letter(void **state)
{
    tm_text out = { 0 };
    (void)state;
    add_verdicts(&out);
    for (int n = 1; n <= 11; n++)
        for (int bad = 0; bad < 3 && bad <= n; bad++) {
            if (n > 4 && n < 9 && bad) continue;
            tm_breakdown   b;
            tm_error       err = { 0 };
            tm_submission *s = submission_of("llama2_70b_lora", n, bad);
            assert_int_equal(tm_breakdown_compute(s, NULL, &b, &err), TM_OK);
            tm_text_printf(&out, "== %d runs, %d bad\n", n, bad);
            if (n == 3 || n == 10)
                add_breakdown(&out, &b);
            else
                add_score(&out, &b.score);
            tm_submission_close(s);
        }
    tm_breakdown   b, a;
    tm_error       err = { 0 };
    tm_submission *s = tm_submission_create("folder", TM_RULESET_6_1_0),
                  *other = submission_of("llama2_70b_lora", 10, 1);
    add_by_hand(s, "two_starts", two_starts);
    add_by_hand(s, "evaluations", evaluations);
    add_by_hand(s, "no_end", no_end);
    add_by_hand(s, "backwards", backwards);
    for (size_t i = 0; i < s->n; i++) s->runs[i].report.passed = true;
    tm_text_printf(&out, "== by hand: %s, %s\n", s->benchmark, s->division);
    assert_int_equal(tm_breakdown_compute(s, NULL, &b, &err), TM_OK);
    add_breakdown(&out, &b);
    tm_submission_close(s);
    s = submission_of("llama2_70b_lora", 9, 0);
    assert_int_equal(tm_breakdown_compute(s, NULL, &a, &err), TM_OK);
    assert_int_equal(tm_breakdown_compute(other, NULL, &b, &err), TM_OK);
    for (int way = 0; way < 2; way++) {
        tm_breakdown_ratio r = { 0 };
        bool compared = way ? tm_breakdown_compare(other, &b, s, &a, &r) : tm_breakdown_compare(s, &a, other, &b, &r);
        tm_text_printf(&out, "== %s: %.10g = %.10g x %.10g x %.10g x %.10g x %.10g\n", compared ? "compared" : "apart",
                       r.scaled, r.samples, r.rate, r.overhead, r.trimming, r.factor);
    }
    tm_submission_close(s);
    tm_submission_close(other);
    whole_is("tests/mlperf/whole-results.txt", &out);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(references_to_the_letter),
    cmocka_unit_test(files_to_the_letter),
    cmocka_unit_test(benchmarks_to_the_letter),
    cmocka_unit_test(results_to_the_letter),
};

TM_TESTS(tests, NULL, NULL)
