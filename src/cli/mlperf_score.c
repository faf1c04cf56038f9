/* SPDX-License-Identifier: Apache-2.0 */
/* cli/mlperf_score.c - `trainmark mlperf score DIR`: the scaled minutes of one result. */
#include "cli/cli.h"
#include "cli/mlperf.h"
#include "apps/mlperf/python.h"
#include "apps/mlperf/score.h"

#include <math.h>
#include <stdio.h>

/* Why a score is not valid: one line each. */
static void print_reasons(const tm_score *s, tm_text *out)
{
    if (s->problem) tm_text_printf(out, "invalid: %s (%zu of %zu do not count)\n", s->problem, s->bad, s->n);
    if (s->wanted > 0 && s->n != (size_t)s->wanted)
        tm_text_printf(out, "invalid: %zu runs, the rules ask for %d\n", s->n, s->wanted);
    if (s->closed && !s->rcp.passed) tm_text_printf(out, "invalid: convergence test: %s\n", s->rcp.message);
}

static void print_text(const tm_submission *sub, const tm_score *s, tm_text *out)
{
    char                     a[32];
    const tm_reference_kind *known = sub->benchmark ? tm_reference_kind_find(sub->benchmark) : NULL;
    for (size_t i = 0; i < s->n; i++) {
        const tm_score_run *run = &s->runs[i];
        tm_text_printf(out, "%-16s ", run->name);
        if (run->timed) snprintf(a, sizeof a, "%.4f", run->minutes);
        tm_text_printf(out, "%12s minutes", run->timed ? a : "no");
        tm_text_printf(out, "%s%s\n", run->problem ? "   does not count: " : "", run->problem ? run->problem : "");
    }
    tm_text_printf(out, "\nbenchmark            %s, division %s\n", known ? known->name : "not one that is known here",
                   s->closed ? "closed" : "open or not known: no convergence test");
    if (s->closed) {
        tm_text_printf(out, "global batch size    %lld\n", (long long)s->rcp.batch);
        if (s->rcp.judged) tm_text_printf(out, "samples to converge  %s\n", tm_python_float(a, s->rcp.samples));
        tm_text_printf(out, "convergence test     %s (%s)\n", s->rcp_word, s->rcp.message);
    }
    if (!s->problem)
        tm_text_printf(out, "MLPerf-style score   %.4f scaled minutes = %.4f minutes x %.6f (--json: all digits)\n",
                       s->scaled, s->minutes, s->factor);
    print_reasons(s, out);
    tm_text_add(out, TM_MLPERF_NOT_VERIFIED "\n");
}

void tm_mlperf_score_json(const tm_submission *sub, const tm_score *s, tm_json *json)
{
    bool scored = !s->problem;
    tm_json_string(json, "benchmark", sub->benchmark);
    tm_json_string(json, "division", sub->division);
    tm_json_string(json, "ruleset", tm_ruleset_name(sub->ruleset));
    tm_json_bool(json, "valid", s->valid);
    tm_json_string(json, "problem", s->problem);
    tm_json_f64(json, "scaled_minutes", scored ? s->scaled : (double)NAN);
    tm_json_f64(json, "minutes", scored ? s->minutes : (double)NAN);
    tm_json_f64(json, "rcp_scaling_factor", s->factor);
    tm_json_string(json, "rcp_summary", s->closed ? s->rcp_word : NULL);
    tm_json_bool(json, "verified_by_mlcommons", false);
    if (s->closed) tm_mlperf_rcp_json(&s->rcp, json);
    tm_json_i64(json, "runs_wanted", s->wanted);
    tm_json_open(json, "runs", '[');
    for (size_t i = 0; i < s->n; i++) {
        tm_json_open(json, NULL, '{');
        tm_json_string(json, "file", s->runs[i].name);
        tm_json_bool(json, "counts", !s->runs[i].problem);
        tm_json_string(json, "problem", s->runs[i].problem);
        tm_json_f64(json, "minutes", s->runs[i].timed ? s->runs[i].minutes : (double)NAN);
        tm_json_close(json, '}');
    }
    tm_json_close(json, ']');
}

static tm_status score(const tm_mlperf_options *o, tm_error *err)
{
    tm_submission *sub;
    tm_score       s;
    tm_text        out = { 0 };
    TM_TRY(tm_submission_open(o->folders[0], o->ruleset, &sub, err));
    tm_status st = tm_score_compute(sub, o->reference, &s, err);
    if (st == TM_OK && o->json) {
        tm_json json = { .out = &out, .indent = true };
        tm_json_open(&json, NULL, '{');
        tm_mlperf_score_json(sub, &s, &json);
        tm_json_close(&json, '}');
        tm_text_add(&out, "\n");
    } else if (st == TM_OK) {
        print_text(sub, &s, &out);
    }
    if (st == TM_OK) st = tm_mlperf_print(&out, err);
    if (st == TM_OK && !s.valid)
        st = tm_fail(err, TM_NEGATIVE, "no valid score: %s",
                     s.problem                   ? s.problem
                     : s.closed && !s.rcp.passed ? s.rcp.message
                                                 : "the number of runs is wrong");
    tm_text_fini(&out);
    tm_submission_close(sub);
    return st;
}

static tm_status run(tm_cli_line *line, tm_error *err)
{
    const tm_mlperf_options *o;
    TM_TRY(tm_mlperf_read_options(line, &o, err));
    return score(o, err);
}

static const tm_option rows[] = {
    TM_MLPERF_REFERENCE(tm_mlperf_options),
    TM_MLPERF_RULESET(tm_mlperf_options),
    TM_OPTION_JSON(tm_mlperf_options),
};

const tm_cli_command tm_mlperf_command_score = {
    .name = "score",
    .summary = "compute the MLPerf-style score of a result, in scaled minutes",
    .words = "DIR",
    .least = 1,
    .most = 1,
    .about =
        "Computes the MLPerf-style score of a result (result_*.txt[.gz]) in scaled minutes: mean time to train of the "
        "compliant "
        "runs without the fastest and the slowest, times the factor of the convergence test. Nothing is written and no "
        "scaling.json is read: the factor is computed.\n\n"
        "Exit code 0: a valid score, 5: none.",
    TM_CLI_OPTIONS(rows, tm_mlperf_options),
    .run = run,
};
