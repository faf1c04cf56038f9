/* SPDX-License-Identifier: Apache-2.0 */
/* cli/mlperf_reference.c - `trainmark mlperf reference`: how many samples a benchmark needs, from runs of its own. */
#include "base/file.h"
#include "cli/cli.h"
#include "cli/mlperf.h"
#include "cli/mlperf_repeat.h"
#include "apps/mlperf/python.h"
#include "apps/mlperf/submission.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* What the record is known by: the first value of a key in the first log. */
static void add_hyper(tm_json *json, const tm_mllog *log, const char *key)
{
    size_t                 n;
    const tm_mllog_record *records = tm_mllog_records(log, &n);
    for (size_t i = 0; i < n; i++)
        if (records[i].state == TM_MLLOG_GOOD && strcmp(records[i].key, key) == 0 &&
            tm_json_is_number(records[i].value)) {
            tm_json_f64(json, key, records[i].value->number);
            return;
        }
}

static tm_status check_runs(const tm_submission *s, tm_error *err)
{
    for (size_t i = 0; i < s->n; i++) {
        const tm_rcp_run *run = &s->runs[i].rcp;
        if (run->problem || !run->converged || !run->has_batch)
            return tm_fail(err, TM_NEGATIVE, "%s: %s; every run of a reference must reach the target", s->runs[i].name,
                           run->problem ? run->problem : "it did not reach the target");
        if (run->batch < s->runs[0].rcp.batch || run->batch > s->runs[0].rcp.batch)
            return tm_fail(err, TM_INVALID, "%s: another batch size than in %s", s->runs[i].name, s->runs[0].name);
    }
    return s->benchmark ? TM_OK : tm_fail(err, TM_INVALID, "no log of '%s' names its benchmark", s->path);
}

static void print_record(const tm_submission *s, tm_text *out)
{
    static const char *const hyper[] = { "opt_base_learning_rate", "opt_learning_rate_warmup_steps",
                                         "gradient_accumulation_steps" };
    char                     day[32], name[96];
    time_t                   now = time(NULL);
    struct tm                parts;
    strftime(day, sizeof day, "%Y-%m-%d", gmtime_r(&now, &parts));
    snprintf(name, sizeof name, "%s_ref_%.0f", s->benchmark, s->runs[0].rcp.batch);
    tm_json json = { .out = out, .indent = true };
    tm_json_open(&json, NULL, '{');
    tm_json_open(&json, name, '{');
    tm_json_string(&json, "Benchmark", s->benchmark);
    tm_json_string(&json, "Creator", "trainmark mlperf reference");
    tm_json_string(&json, "When", day);
    tm_json_i64(&json, "BS", (int64_t)s->runs[0].rcp.batch);
    tm_json_open(&json, "Hyperparams", '{');
    for (size_t i = 0; i < sizeof hyper / sizeof *hyper; i++) add_hyper(&json, s->runs[0].log, hyper[i]);
    tm_json_close(&json, '}');
    tm_json_open(&json, "samples to converge", '[');
    for (size_t i = 0; i < s->n; i++) tm_json_i64(&json, NULL, (int64_t)s->runs[i].rcp.samples);
    tm_json_close(&json, ']');
    tm_json_close(&json, '}');
    tm_json_close(&json, '}');
    tm_text_add(out, "\n");
}

/* Reads back what was written: what the convergence test will see. */
static tm_status print_summary(const char *path, tm_arena *arena, tm_error *err)
{
    char                a[32], b[32], c[32], d[32];
    const tm_reference *reference;
    tm_text             out = { 0 };
    TM_TRY(tm_reference_read(path, arena, &reference, err));
    const tm_reference_record *record = &reference->records[0];
    tm_text_printf(&out,
                   "\nreference of %s, batch %lld, %zu runs: mean %s samples, deviation %s, fewest that pass %s, "
                   "greatest speedup %s\nwritten: %s\n",
                   reference->kind->name, (long long)record->batch, record->n, tm_python_float(a, record->mean),
                   tm_python_float(b, record->deviation), tm_python_float(c, record->minimum),
                   tm_python_float(d, record->max_speedup), path);
    tm_status st = tm_cli_print(&out, err);
    tm_text_fini(&out);
    return st;
}

static tm_status reference(const tm_repeat *r, tm_arena *arena, tm_error *err)
{
    tm_submission *s;
    TM_TRY(tm_repeat_run(r, err));
    TM_TRY(tm_submission_open(r->folder, r->ruleset, &s, err));
    tm_text   out = { 0 };
    tm_status st = check_runs(s, err);
    if (st == TM_OK) print_record(s, &out);
    if (st == TM_OK) st = tm_file_write(r->output, out.data, out.length, err);
    if (st == TM_OK) st = r->json ? tm_cli_print(&out, err) : print_summary(r->output, arena, err);
    tm_text_fini(&out);
    tm_submission_close(s);
    return st;
}

static tm_status run(tm_cli_line *line, tm_error *err)
{
    tm_repeat *r;
    TM_TRY(tm_repeat_read(line, &r, err));
    if (r->dry_run) return tm_repeat_plan(r, line->arena, err);
    if (r->runs < TM_REFERENCE_MIN_VALUES)
        return tm_fail(err, TM_USAGE,
                       "option '--runs' is %lld: a reference needs at least %d, and twice those of a result are usual",
                       (long long)r->runs, (int)TM_REFERENCE_MIN_VALUES);
    return reference(r, line->arena, err);
}

static const tm_option rows[] = {
    TM_REPEAT_ROWS("20"),
    { "output", 0, TM_OPTION_TEXT, offsetof(tm_repeat, output), .value = "FILE", .required = true,
      .help = "the record that is written (JSON)" },
};

const tm_cli_command tm_mlperf_command_reference = {
    .name = "reference",
    .summary = "make a reference record for the convergence test from your own runs",
    .words = "FILE.yaml --mlperf.submission_org NAME",
    .most = -1,
    .about = "Trains N times with N seeds, as `trainmark mlperf run` does, and writes a reference record for the "
             "convergence test in the public format: the samples that each run needed. `mlperf rcp`, `score` and `run` "
             "read it with --reference. Every run has to reach the target.",
    TM_CLI_OPTIONS(rows, tm_repeat),
    .passes = true,
    .run = run,
};
