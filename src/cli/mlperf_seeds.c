/* SPDX-License-Identifier: Apache-2.0 */
/* cli/mlperf_seeds.c - `trainmark mlperf seeds DIR`: check that every run has its own seed */
#include "cli/cli.h"
#include "cli/mlperf.h"
#include "apps/mlperf/seeds.h"

void tm_mlperf_notes_json(const char *key, const tm_notes *notes, tm_json *json)
{
    tm_json_open(json, key, '[');
    for (size_t i = 0; i < notes->n; i++) tm_json_string(json, NULL, notes->items[i]);
    tm_json_close(json, ']');
}

void tm_mlperf_notes_print(const char *word, const tm_notes *notes, tm_text *out)
{
    for (size_t i = 0; i < notes->n; i++) tm_text_printf(out, "%s: %s\n", word, notes->items[i]);
}

void tm_mlperf_seeds_json(const tm_seeds_report *r, tm_json *json)
{
    tm_json_open(json, "seeds", '{');
    tm_json_string(json, "verdict", r->passed ? "PASSED" : "FAILED");
    tm_json_i64(json, "n", (int64_t)r->n);
    tm_mlperf_notes_json("errors", &r->errors, json);
    tm_mlperf_notes_json("warnings", &r->warnings, json);
    tm_json_close(json, '}');
}

static tm_status check(const tm_mlperf_options *o, tm_error *err)
{
    tm_submission *s;
    tm_text        out = { 0 };
    TM_TRY(tm_submission_open(o->folders[0], o->ruleset, &s, err));
    tm_seeds_report r = tm_seeds_check(s);
    if (o->json) {
        tm_json json = { .out = &out, .indent = true };
        tm_json_open(&json, NULL, '{');
        tm_mlperf_seeds_json(&r, &json);
        tm_json_close(&json, '}');
        tm_text_add(&out, "\n");
    } else {
        tm_mlperf_notes_print("warning", &r.warnings, &out);
        tm_mlperf_notes_print("error", &r.errors, &out);
        tm_text_printf(&out, "%zu seeds in %zu logs: seed check %s\n", r.n, s->n, r.passed ? "PASSED" : "FAILED");
    }
    tm_status st = tm_mlperf_print(&out, err);
    if (st == TM_OK && !r.passed) st = tm_fail(err, TM_NEGATIVE, "the seed check failed: %s", r.errors.items[0]);
    tm_text_fini(&out);
    tm_submission_close(s);
    return st;
}

static tm_status run(tm_cli_line *line, tm_error *err)
{
    const tm_mlperf_options *o;
    TM_TRY(tm_mlperf_read_options(line, &o, err));
    return check(o, err);
}

static const tm_option rows[] = {
    TM_MLPERF_RULESET(tm_mlperf_options),
    TM_OPTION_JSON(tm_mlperf_options),
};

const tm_cli_command tm_mlperf_command_seeds = {
    .name = "seeds",
    .summary = "check that every run has its own seed",
    .words = "DIR",
    .least = 1,
    .most = 1,
    .about = "Checks the seeds of the runs of a result (result_*.txt[.gz]): every log has one, and no two logs have "
             "the same "
             "from the same source line.\n\n"
             "Exit code 0: PASSED, 5: FAILED.",
    TM_CLI_OPTIONS(rows, tm_mlperf_options),
    .run = run,
};
