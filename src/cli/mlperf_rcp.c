/* SPDX-License-Identifier: Apache-2.0 */
/* cli/mlperf_rcp.c - `trainmark mlperf rcp DIR`: the convergence test of one result. */
#include "cli/cli.h"
#include "cli/mlperf.h"
#include "apps/mlperf/score.h"

#include <math.h>

static void print_runs(const tm_submission *s, tm_text *out)
{
    char number[32];
    for (size_t i = 0; i < s->n; i++) {
        const tm_rcp_run *run = &s->runs[i].rcp;
        tm_text_printf(out, "%-16s ", s->runs[i].name);
        if (run->problem)
            tm_text_printf(out, "%s\n", run->problem);
        else if (run->converged)
            tm_text_printf(out, "%s samples\n", tm_format_double(number, run->samples));
        else
            tm_text_add(out, "Run incomplete or did not converge. Marking as infinite.\n");
    }
}

void tm_mlperf_rcp_json(const tm_rcp_verdict *v, tm_json *json)
{
    tm_json_open(json, "rcp", '{');
    tm_json_string(json, "pass", v->full ? "full_rcps" : "pruned_rcps");
    tm_json_string(json, "verdict", v->passed ? "PASSED" : "FAILED");
    tm_json_string(json, "message", v->message);
    tm_json_string(json, "remark", v->remark);
    tm_json_string(json, "benchmark", v->benchmark);
    tm_json_i64(json, "global_batch_size", v->batch);
    tm_json_f64(json, "samples_to_converge", v->judged ? v->samples : (double)NAN);
    tm_json_f64(json, "scaling_factor", v->factor);
    if (v->judged) {
        const tm_reference_record *r = &v->record;
        tm_json_open(json, "record", '{');
        tm_json_i64(json, "batch_size", r->batch);
        tm_json_bool(json, "interpolated", r->n == 0);
        tm_json_open(json, "samples_to_converge", '[');
        for (size_t i = 0; i < r->n; i++) tm_json_f64(json, NULL, r->samples[i]);
        tm_json_close(json, ']');
        tm_json_f64(json, "mean", r->mean);
        tm_json_f64(json, "deviation", r->deviation);
        tm_json_f64(json, "max_speedup", r->max_speedup);
        tm_json_f64(json, "min_samples", r->minimum);
        tm_json_close(json, '}');
    }
    tm_json_close(json, '}');
}

static void print_json(const tm_submission *s, const tm_rcp_verdict *v, tm_text *out)
{
    tm_json json = { .out = out, .indent = true };
    tm_json_open(&json, NULL, '{');
    tm_json_bool(&json, "verified_by_mlcommons", false);
    tm_mlperf_rcp_json(v, &json);
    tm_json_open(&json, "runs", '[');
    for (size_t i = 0; i < s->n; i++) {
        const tm_rcp_run *run = &s->runs[i].rcp;
        tm_json_open(&json, NULL, '{');
        tm_json_string(&json, "file", s->runs[i].name);
        tm_json_bool(&json, "converged", run->converged);
        tm_json_f64(&json, "samples", run->converged ? run->samples : (double)NAN);
        tm_json_string(&json, "problem", run->problem);
        tm_json_close(&json, '}');
    }
    tm_json_close(&json, ']');
    tm_json_close(&json, '}');
    tm_text_add(out, "\n");
}

static tm_status test(const tm_mlperf_options *o, tm_error *err)
{
    tm_submission *s;
    tm_rcp_verdict v;
    tm_text        out = { 0 };
    TM_TRY(tm_submission_open(o->folders[0], o->ruleset, &s, err));
    tm_status st = tm_submission_judge(s, o->reference, o->full, &v, err);
    if (st == TM_OK && o->json) {
        print_json(s, &v, &out);
    } else if (st == TM_OK) {
        print_runs(s, &out);
        tm_rcp_print(&v, &out);
        tm_text_add(&out, TM_MLPERF_NOT_VERIFIED "\n");
    }
    if (st == TM_OK) st = tm_mlperf_print(&out, err);
    if (st == TM_OK && !v.passed) st = tm_fail(err, TM_NEGATIVE, "the convergence test failed: %s", v.message);
    tm_text_fini(&out);
    tm_submission_close(s);
    return st;
}

static tm_status run(tm_cli_line *line, tm_error *err)
{
    const tm_mlperf_options *o;
    TM_TRY(tm_mlperf_read_options(line, &o, err));
    return test(o, err);
}

static const tm_option rows[] = {
    { "full", 0, TM_OPTION_FLAG, offsetof(tm_mlperf_options, full),
      .help = "use all reference records, also those above the line between their neighbors" },
    TM_MLPERF_REFERENCE(tm_mlperf_options),
    TM_MLPERF_RULESET(tm_mlperf_options),
    TM_OPTION_JSON(tm_mlperf_options),
};

const tm_cli_command tm_mlperf_command_rcp = {
    .name = "rcp",
    .summary = "convergence test: did the runs need as many samples as MLPerf's reference runs?",
    .words = "DIR",
    .least = 1,
    .most = 1,
    .about = "Compares the samples that the runs of a result (result_*.txt[.gz]) needed with the reference convergence "
             "point. Prints "
             "the reference record, the mean and, where the score has to be scaled, the factor.\n\n"
             "Exit code 0: PASSED, 5: FAILED.",
    TM_CLI_OPTIONS(rows, tm_mlperf_options),
    .run = run,
};
