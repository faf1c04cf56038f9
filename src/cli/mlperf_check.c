/* SPDX-License-Identifier: Apache-2.0 */
/* cli/mlperf_check.c - `trainmark mlperf check FILE|DIR`: check logs against the rules */
#include "cli/cli.h"
#include "cli/mlperf.h"
#include "apps/mlperf/check.h"

#include <sys/stat.h>

typedef struct {
    const tm_mlperf_options *o;
    tm_text                  out;
    tm_json                  json;
    size_t                   files, failed;
} checking;

static tm_status check_file(checking *c, const char *path, const char *name, tm_error *err)
{
    tm_mllog       *log;
    tm_check_report report;
    TM_TRY(tm_mllog_read(path, &log, err));
    tm_check_log(log, c->o->ruleset, c->o->werror, &report);
    c->files++;
    c->failed += !report.passed;
    if (c->o->json)
        tm_check_json(&report, name, &c->json);
    else
        tm_check_print(&report, name, &c->out);
    tm_check_report_fini(&report);
    tm_mllog_free(log);
    return TM_OK;
}

static tm_status check_folder(checking *c, const char *path, tm_error *err)
{
    tm_mllog_folder folder;
    tm_status       st = tm_mllog_folder_list(path, &folder, err);
    if (st == TM_OK && folder.n == 0)
        st = tm_fail(err, TM_INVALID, "'%s' has no result_*.txt or result_*.txt.gz; name a directory that has", path);
    for (size_t i = 0; st == TM_OK && i < folder.n; i++)
        st = check_file(c, folder.files[i].path, folder.files[i].name, err);
    tm_mllog_folder_fini(&folder);
    return st;
}

static tm_status check_subject(checking *c, tm_error *err)
{
    struct stat info;
    if (stat(c->o->folders[0], &info) == 0 && S_ISDIR(info.st_mode)) return check_folder(c, c->o->folders[0], err);
    return check_file(c, c->o->folders[0], c->o->folders[0], err);
}

static tm_status check(const tm_mlperf_options *o, tm_error *err)
{
    checking c = { .o = o };
    c.json = (tm_json){ .out = &c.out, .indent = true };
    if (o->json) {
        tm_json_open(&c.json, NULL, '{');
        tm_json_string(&c.json, "ruleset", tm_ruleset_name(o->ruleset));
        tm_json_bool(&c.json, "warnings_are_errors", o->werror);
        tm_json_bool(&c.json, "verified_by_mlcommons", false);
        tm_json_open(&c.json, "files", '[');
    }
    tm_status st = check_subject(&c, err);
    if (o->json) {
        tm_json_close(&c.json, ']');
        tm_json_string(&c.json, "verdict", c.failed ? "FAILED" : "SUCCESS");
        tm_json_close(&c.json, '}');
        tm_text_add(&c.out, "\n");
    } else {
        tm_text_printf(&c.out, "%zu of %zu logs comply with ruleset %s. Not verified by MLCommons Association.\n",
                       c.files - c.failed, c.files, tm_ruleset_name(o->ruleset));
    }
    if (st == TM_OK) st = tm_mlperf_print(&c.out, err);
    tm_text_fini(&c.out);
    if (st == TM_OK && c.failed)
        st = tm_fail(err, TM_NEGATIVE, "%zu of %zu logs do not comply with ruleset %s", c.failed, c.files,
                     tm_ruleset_name(o->ruleset));
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
    { "werror", 0, TM_OPTION_FLAG, offsetof(tm_mlperf_options, werror),
      .help = "a warning (a key repeated with the same value) is an error" },
    TM_OPTION_JSON(tm_mlperf_options),
};

const tm_cli_command tm_mlperf_command_check = {
    .name = "check",
    .summary = "check logs against the rules",
    .words = "FILE|DIR",
    .least = 1,
    .most = 1,
    .about =
        "Checks an MLPerf-style log, or the result_*.txt[.gz] of a directory, against the compliance rules of MLPerf "
        "Training, and prints each violation with the line of the file.\n\n"
        "Exit code 0: every log complies; 5: not every one.",
    TM_CLI_OPTIONS(rows, tm_mlperf_options),
    .run = run,
};
