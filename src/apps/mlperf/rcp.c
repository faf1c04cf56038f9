/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/mlperf/rcp.h"

#include "apps/mlperf/python.h"
#include "stats/summary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- one log ------------------------------------------------------------------------------------------------------ */

static const char *stop(tm_arena *arena, const tm_mllog_record *r, const char *what)
{
    return tm_arena_format(arena, "line %lld: %s", (long long)r->line, what);
}

/* Python's round(x, 3): three decimals of the exact value. */
static double rounded(double x)
{
    char text[400];
    snprintf(text, sizeof text, "%.3f", x);
    return strtod(text, NULL);
}

static const char *scan_evaluation(const tm_mllog_record *r, tm_arena *arena, const tm_rcp_run *run, double *seen)
{
    const tm_reference_kind *row = run->benchmark ? tm_reference_kind_find(run->benchmark) : NULL;
    const char              *progress = row ? row->progress : "epoch_num";
    const tm_json_value     *metadata = tm_json_member(r->object, "metadata");
    const tm_json_value     *count = tm_json_member(metadata, progress);
    if (!count || !tm_json_is_number(count) || !isfinite(count->number))
        return tm_arena_format(arena, "line %lld: an evaluation without a number '%s' in its metadata%s",
                               (long long)r->line, progress,
                               run->benchmark ? "" : "; submission_benchmark must come before the evaluations");
    if (row && !tm_json_member(r->object, "value")) return stop(arena, r, "an evaluation without a value");
    *seen = row ? count->number : rounded(count->number); /* only epochs are rounded */
    return NULL;
}

/* What one line changes; returns the problem or NULL. `seen`: samples of the last evaluation, NAN before the first. */
static const char *scan_record(const tm_mllog_record *r, tm_arena *arena, tm_rcp_run *run, double *seen)
{
    bool batch = tm_mllog_mentions(r, "global_batch_size"), benchmark = tm_mllog_mentions(r, "submission_benchmark");
    bool evaluation = tm_mllog_mentions(r, "eval_accuracy") || tm_mllog_mentions(r, "eval_error");
    if (!batch && !benchmark && !evaluation && !tm_mllog_mentions(r, "run_stop")) return NULL;
    if (!r->object) return stop(arena, r, "not JSON, though it mentions what the convergence test reads");
    const tm_json_value *value = tm_json_member(r->object, "value");
    if ((batch || benchmark) && !value) return stop(arena, r, "a value is missing");
    if (batch) { /* what a later line says counts: no number is no problem yet */
        run->has_batch = true;
        run->batch = tm_json_is_number(value) ? value->number : (double)NAN;
    }
    if (benchmark) run->benchmark = value->kind == TM_JSON_TEXT ? value->text : NULL;
    if (evaluation) {
        const char *problem = scan_evaluation(r, arena, run, seen);
        if (problem) return problem;
    }
    if (!tm_json_is_text(tm_json_member(r->object, "key"), "run_stop")) return NULL;
    const tm_json_value *status = tm_json_member(tm_json_member(r->object, "metadata"), "status");
    if (!status) return stop(arena, r, "run_stop has no 'status' in its metadata");
    run->converged = tm_json_is_text(status, "success");
    if (run->converged && isnan(*seen)) return stop(arena, r, "run_stop says success before any evaluation");
    run->samples = run->converged ? *seen : TM_RCP_INFINITE;
    return NULL;
}

tm_rcp_run tm_rcp_scan(const tm_mllog *log, tm_arena *arena)
{
    size_t                 n;
    const tm_mllog_record *records = tm_mllog_records(log, &n);
    tm_rcp_run             run = { .samples = TM_RCP_INFINITE };
    double                 seen = (double)NAN;
    for (size_t i = 0; i < n && !run.problem; i++) run.problem = scan_record(&records[i], arena, &run, &seen);
    if (!run.problem && run.has_batch && isnan(run.batch)) run.problem = "global_batch_size has no number as its value";
    if (run.problem) {
        run.converged = false;
        run.samples = TM_RCP_INFINITE;
    }
    return run;
}

/* --- the result --------------------------------------------------------------------------------------------------- */

static double trimmed_mean(const tm_rcp_run *runs, size_t n)
{
    double *samples = tm_alloc(n * sizeof *samples);
    for (size_t i = 0; i < n; i++) samples[i] = runs[i].samples;
    tm_stats_sort(samples, (int64_t)n);
    double mean = tm_numpy_sum(samples + 1, n - 2) / (double)(n - 2);
    free(samples);
    return mean;
}

/* Batch and benchmark that all runs share; false with the message if they do not. (The public checker lets the logs
 * that it happens to read first lack them.) */
static bool agree(const tm_rcp_run *runs, size_t n, tm_arena *arena, tm_rcp_verdict *v)
{
    double batch = runs[0].has_batch ? runs[0].batch : -1;
    v->benchmark = runs[0].benchmark;
    for (size_t i = 1; i < n; i++) {
        double b = runs[i].has_batch ? runs[i].batch : -1;
        if (!(b >= batch && b <= batch)) return v->message = "Batch sizes in files do not match.", false;
        if (!v->benchmark != !runs[i].benchmark || (v->benchmark && strcmp(v->benchmark, runs[i].benchmark) != 0))
            return v->message = "Benchmark names in files do not match.", false;
    }
    if (batch < 0) return v->message = "Could not detect global_batch_size", false;
    if (!(batch >= 1 && batch <= 1e15) || floor(batch) < batch) {
        char number[32];
        v->message = tm_arena_format(arena, "global_batch_size is %s, not a whole number above 0",
                                     tm_python_float(number, batch));
        return false;
    }
    v->batch = (int64_t)batch;
    return true;
}

static bool enough(const tm_rcp_run *runs, size_t n, tm_rcp_verdict *v)
{
    size_t infinite = 0;
    for (size_t i = 0; i < n; i++) infinite += !runs[i].converged;
    if (infinite > 1) return v->message = "Insufficient convergence", false;
    if (n < 3) v->message = "Too few runs: at least 3 are needed to drop the fastest and the slowest";
    return n >= 3;
}

static void evaluate(const tm_rcp_run *runs, size_t n, const tm_reference *reference, tm_arena *arena,
                     tm_rcp_verdict *v)
{
    v->choice = tm_reference_choose(reference, v->batch, v->full, &v->record);
    v->judged = v->choice != TM_REFERENCE_NONE && v->choice != TM_REFERENCE_MISSING;
    if (v->judged) {
        v->samples = trimmed_mean(runs, n);
        v->passed = v->samples >= v->record.mean / v->record.max_speedup;
        v->factor = v->passed && v->samples < v->record.mean ? v->record.mean / v->samples : 1;
    }
    if (v->choice == TM_REFERENCE_NONE)
        v->message = "Cannot find any RCPs";
    else if (v->choice == TM_REFERENCE_FOUND)
        v->message = "RCP found";
    else if (v->choice == TM_REFERENCE_INTERPOLATED)
        v->message = "RCP Interpolation";
    else if (v->passed)
        v->message = "RCP not found but slower convergence on smaller batch size";
    else
        v->message = tm_arena_format(arena, "Missing RCP, please submit RCP with BS = %lld", (long long)v->batch);
}

tm_status tm_rcp_judge(const tm_rcp_run *runs, size_t n, const tm_reference *given, tm_ruleset ruleset, bool full,
                       tm_arena *arena, tm_rcp_verdict *out, tm_error *err)
{
    TM_ASSERT(n > 0);
    *out = (tm_rcp_verdict){ .full = full, .factor = 1 };
    for (size_t i = 0; i < n; i++)
        if (runs[i].problem) {
            out->message = "A log cannot be read for the convergence test";
            out->remark = "the public checker stops with an exception here";
            return TM_OK;
        }
    if (!agree(runs, n, arena, out) || !enough(runs, n, out)) return TM_OK;
    if (!out->benchmark) {
        out->message = "Could not detect submission_benchmark";
        return TM_OK;
    }
    if (given && strcmp(given->kind->name, out->benchmark) != 0)
        return tm_fail(err, TM_INVALID,
                       "the reference records are of '%s', the logs of '%.200s'; give records of the same",
                       given->kind->name, out->benchmark);
    const tm_reference *reference = given ? given : tm_reference_built_in(out->benchmark, ruleset, arena);
    const tm_reference  none = { 0 };
    evaluate(runs, n, reference ? reference : &none, arena, out);
    if (!reference)
        out->remark = "no reference records of this benchmark and round are built in; --reference FILE reads your own";
    return TM_OK;
}

bool tm_rcp_scales(const tm_rcp_verdict *verdict)
{
    return verdict->judged && verdict->passed && verdict->samples < verdict->record.mean;
}

/* --- printing ----------------------------------------------------------------------------------------------------- */

static void print_record(const tm_rcp_verdict *v, tm_text *out)
{
    const tm_reference_record *r = &v->record;
    char                       a[32], b[32], c[32], d[32];
    tm_text_printf(out, "RCP Record: {'Benchmark': '%s', 'BS': %lld, 'Hyperparams': %s, 'Epochs to converge': [",
                   v->benchmark, (long long)r->batch, r->hyper);
    for (size_t i = 0; i < r->n; i++) {
        if (i > 0) tm_text_add(out, ", ");
        if (r->whole)
            tm_text_printf(out, "%.0f", r->samples[i]);
        else
            tm_text_add(out, tm_python_float(a, r->samples[i]));
    }
    tm_text_printf(out, "], 'RCP Mean': %s, 'RCP Stdev': %s, 'Max Speedup': %s, 'Min Epochs': %s}\n",
                   tm_python_float(a, r->mean), tm_python_float(b, r->deviation), tm_python_float(c, r->max_speedup),
                   tm_python_float(d, r->minimum));
}

void tm_rcp_print(const tm_rcp_verdict *v, tm_text *out)
{
    char a[32], b[32], c[32];
    tm_text_printf(out, "Running RCP Checker, pass: %s\n", v->full ? "full_rcps" : "pruned_rcps");
    if (v->judged) {
        print_record(v, out);
        tm_text_printf(out, "Submission mean epochs: %.4f\n", v->samples);
    }
    if (tm_rcp_scales(v))
        tm_text_printf(out,
                       "Submission mean epochs faster than RCP mean but within max speedup range. Score should be "
                       "normalized by factor of %s / %s = %s\n",
                       tm_python_float(a, v->record.mean), tm_python_float(b, v->samples),
                       tm_python_float(c, v->factor));
    tm_text_printf(out, "%s, RCP test %s\n", v->message, v->passed ? "PASSED" : "FAILED");
    if (v->remark) tm_text_printf(out, "(%s)\n", v->remark);
}
