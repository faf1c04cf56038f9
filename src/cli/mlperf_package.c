/* SPDX-License-Identifier: Apache-2.0 */
/* cli/mlperf_package.c - `trainmark mlperf package DIR`: everything about one submitter's folder. */
#include "apps/mlperf/package.h"

#include "cli/cli.h"
#include "cli/mlperf.h"
#include "apps/mlperf/python.h"

#include <math.h>
#include <string.h>

static const char *scaling_text(const tm_package_result *r, bool wrote)
{
    if (r->scaling == TM_SCALING_WRITE) return wrote ? "scaling.json written" : "scaling.json would be written";
    if (r->scaling == TM_SCALING_REMOVE)
        return wrote ? "old scaling.json removed" : "old scaling.json would be removed";
    return NULL;
}

static void print_result(const tm_package_result *r, bool wrote, tm_text *out)
{
    tm_text_printf(out, "results/%s/%s: %zu logs, %zu do not comply\n", r->system, r->benchmark, r->files, r->failing);
    tm_mlperf_notes_print("  notice", &r->notices, out);
    if (r->looked_at && r->desc->closed) {
        tm_text_printf(out, "  seed check %s\n", r->seeds.passed ? "PASSED" : "FAILED");
        tm_text_printf(out, "  RCP test %s: %s\n", r->score.rcp.passed ? "PASSED" : "FAILED", r->score.rcp.message);
        const char *scaling = scaling_text(r, wrote);
        char        number[32];
        if (scaling) tm_text_printf(out, "  %s: factor %s\n", scaling, tm_python_float(number, r->score.factor));
    }
    tm_mlperf_notes_print("  warning", &r->warnings, out);
    tm_mlperf_notes_print("  error", &r->errors, out);
}

static void print_summary(const tm_package *p, tm_text *out)
{
    char a[32], b[32];
    tm_text_printf(out, "\nMLPerf-style scores, in scaled minutes\n");
    for (size_t i = 0; i < p->n; i++) {
        const tm_package_result *r = &p->results[i];
        tm_text_printf(out, "%s %s: ", r->system, r->benchmark);
        if (!r->looked_at || r->score.problem) {
            tm_text_printf(out, "none%s%s\n", r->looked_at ? ": " : "", r->looked_at ? r->score.problem : "");
            continue;
        }
        tm_text_printf(out, "%s", tm_python_float(a, r->score.scaled));
        if (r->desc->closed)
            tm_text_printf(out, ", batch %lld, %s samples to converge, RCP %s", (long long)r->score.rcp.batch,
                           r->score.rcp.judged ? tm_python_float(b, r->score.rcp.samples) : "no", r->score.rcp_word);
        tm_text_printf(out, "%s\n", r->score.valid || r->bypassed ? "" : "   not valid");
    }
    tm_text_add(out, TM_MLPERF_NOT_VERIFIED "\n");
}

static void print_text(const tm_package *p, bool wrote, tm_text *out)
{
    for (size_t i = 0; i < p->n_systems; i++) {
        const tm_system_desc *desc = &p->systems[i];
        tm_text_printf(out, "systems/%s.json: %s\n", desc->name, desc->errors.n == 0 ? "SUCCESS" : "FAILED");
        tm_mlperf_notes_print("  warning", &desc->warnings, out);
        tm_mlperf_notes_print("  error", &desc->errors, out);
    }
    for (size_t i = 0; i < p->n; i++) print_result(&p->results[i], wrote, out);
    tm_mlperf_notes_print("warning", &p->warnings, out);
    tm_mlperf_notes_print("error", &p->errors, out);
    tm_text_add(out, p->passed ? "PACKAGE CHECKER FOUND NO ERRORS, SUCCESS !\n"
                               : "PACKAGE CHECKER FOUND ERRORS, LOOK INTO ERROR LINES AND FIX THEM.\n");
    print_summary(p, out);
    tm_text_add(out, "\n");
    tm_mlperf_notes_print("repository error", &p->repository, out);
    tm_text_printf(out, "repository check %s\n", p->repository.n == 0 ? "PASSED" : "FAILED");
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

/* What the public summary says of a system. */
static void system_json(const tm_system_desc *d, tm_arena *arena, tm_json *json)
{
    static const char *const members[] = {
        "division", "status", "submitter", "system_name", "host_processor_model_name", "accelerator_model_name",
        "framework"
    };
    tm_text     notes = { 0 };
    const char *hw = tm_system_desc_text(d, "hw_notes"), *sw = tm_system_desc_text(d, "sw_notes");
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        tm_json_string(json, strcmp(members[i], "status") == 0 ? "availability" : members[i],
                       tm_system_desc_text(d, members[i]));
    const tm_json_value *nodes = tm_json_member(d->object, "number_of_nodes");
    tm_json_string(json, "number_of_nodes", nodes ? tm_python_int(nodes, arena) : NULL);
    tm_json_i64(json, "host_processors_count",
                tm_system_desc_product(d, "host_processors_per_node", "number_of_nodes", arena));
    tm_json_i64(json, "accelerators_count",
                tm_system_desc_product(d, "accelerators_per_node", "number_of_nodes", arena));
    tm_text_printf(&notes, "%s%s%s", hw, *hw && *sw ? ";" : "", sw);
    tm_json_string(json, "notes", notes.data);
    tm_text_fini(&notes);
}

static void result_json(const tm_package_result *r, bool wrote, tm_arena *arena, tm_json *json)
{
    tm_json_open(json, NULL, '{');
    tm_json_string(json, "system", r->system);
    tm_json_string(json, "folder", r->benchmark);
    if (r->desc) system_json(r->desc, arena, json);
    tm_json_i64(json, "files", (int64_t)r->files);
    tm_json_i64(json, "files_that_do_not_comply", (int64_t)r->failing);
    tm_mlperf_notes_json("errors", &r->errors, json);
    tm_mlperf_notes_json("warnings", &r->warnings, json);
    tm_mlperf_notes_json("notices", &r->notices, json);
    tm_json_bool(json, "bypassed", r->bypassed);
    tm_json_string(json, "scaling_json", scaling_text(r, wrote));
    if (r->desc && r->looked_at && r->desc->closed) tm_mlperf_seeds_json(&r->seeds, json);
    if (r->looked_at) {
        tm_json_open(json, "score", '{');
        tm_mlperf_score_json(r->submission, &r->score, json);
        tm_json_close(json, '}');
    }
    tm_json_close(json, '}');
}

static void print_json(const tm_package *p, bool wrote, tm_text *out)
{
    tm_json json = { .out = out, .indent = true };
    tm_json_open(&json, NULL, '{');
    tm_json_bool(&json, "verified_by_mlcommons", false);
    tm_json_string(&json, "package_check", p->passed ? "PASSED" : "FAILED");
    tm_json_string(&json, "repository_check", p->repository.n == 0 ? "PASSED" : "FAILED");
    tm_json_open(&json, "systems", '[');
    for (size_t i = 0; i < p->n_systems; i++) {
        tm_json_open(&json, NULL, '{');
        tm_json_string(&json, "system", p->systems[i].name);
        tm_mlperf_notes_json("errors", &p->systems[i].errors, &json);
        tm_mlperf_notes_json("warnings", &p->systems[i].warnings, &json);
        tm_json_close(&json, '}');
    }
    tm_json_close(&json, ']');
    tm_json_open(&json, "results", '[');
    for (size_t i = 0; i < p->n; i++) result_json(&p->results[i], wrote, p->arena, &json);
    tm_json_close(&json, ']');
    tm_mlperf_notes_json("errors", &p->errors, &json);
    tm_mlperf_notes_json("warnings", &p->warnings, &json);
    tm_mlperf_notes_json("repository_errors", &p->repository, &json);
    tm_json_close(&json, '}');
    tm_text_add(out, "\n");
}

static tm_status check(const tm_mlperf_options *o, tm_error *err)
{
    tm_package *p;
    tm_text     out = { 0 };
    TM_TRY(tm_package_check(o->folders[0], o->ruleset, o->reference, !o->no_write, &p, err));
    if (o->json)
        print_json(p, !o->no_write, &out);
    else
        print_text(p, !o->no_write, &out);
    tm_status st = tm_mlperf_print(&out, err);
    if (st == TM_OK && !(p->passed && p->repository.n == 0))
        st = tm_fail(err, TM_NEGATIVE, "the %s check of '%s' found errors", p->passed ? "repository" : "package",
                     p->path);
    tm_text_fini(&out);
    tm_package_free(p);
    return st;
}

static tm_status run(tm_cli_line *line, tm_error *err)
{
    const tm_mlperf_options *o;
    TM_TRY(tm_mlperf_read_options(line, &o, err));
    return check(o, err);
}

static const tm_option rows[] = {
    { "no-write", 0, TM_OPTION_FLAG, offsetof(tm_mlperf_options, no_write),
      .help = "do not write or remove scaling.json" },
    TM_MLPERF_REFERENCE(tm_mlperf_options),
    TM_MLPERF_RULESET(tm_mlperf_options),
    TM_OPTION_JSON(tm_mlperf_options),
};

const tm_cli_command tm_mlperf_command_package = {
    .name = "package",
    .summary = "check a submission: layout, systems, logs, seeds, convergence, scores, repository",
    .words = "DIR",
    .least = 1,
    .most = 1,
    .about = "Checks the directory of one submitter in three steps: the package (systems/*.json, number of logs, "
             "compliance, "
             "seeds, convergence), the summary of scores, the repository (names, sizes, links). Writes nothing but "
             "results/SYSTEM/BENCHMARK/scaling.json, follows no link out of DIR.\n\n"
             "Exit code 0: no errors, 5: errors.",
    TM_CLI_OPTIONS(rows, tm_mlperf_options),
    .run = run,
};
