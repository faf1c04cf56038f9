/* SPDX-License-Identifier: Apache-2.0 */
/* cli/mlperf_seeds.c - `trainmark mlperf seeds DIR`: has every run a seed of its own? */
#include "cli/cli.h"
#include "cli/mlperf.h"
#include "mlperf/seeds.h"

static const char help[] = "usage: trainmark mlperf seeds DIR [--ruleset R] [--json]\n\n"
                           "Checks the seeds of a result's runs (result_*.txt[.gz]): every log has one, and no two "
                           "logs have the same from the\n"
                           "same source line. Exit code 0: PASSED, 5: FAILED.\n";

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

tm_status tm_mlperf_command_seeds(int argc, char **argv, tm_error *err)
{
    tm_mlperf_options o;
    if (tm_cli_wants_help(argc, argv)) return tm_cli_print_help(help, err);
    tm_arena *arena = tm_arena_create();
    tm_status st = tm_mlperf_read_options(argc, argv, 0, arena, &o, err);
    if (st == TM_OK) st = check(&o, err);
    tm_arena_destroy(arena);
    return st;
}
