/* SPDX-License-Identifier: Apache-2.0 */
#include "base/version.h"
#include "cli/cli.h"
#include "system/environment.h"

typedef struct {
    bool json;
} version_options;

static const char *built(const tm_environment *environment, const char *item)
{
    const char *text = tm_environment_text(environment, "build", NULL, item);
    return text ? text : "unknown";
}

static tm_status version(tm_cli_line *line, tm_error *err)
{
    const version_options *o = line->options;
    tm_text                out = { 0 };
    tm_environment        *environment = tm_environment_read("");
    tm_json                json = { .out = &out, .indent = true };
    if (o->json) {
        tm_json_open(&json, NULL, '{');
        tm_json_string(&json, "version", TM_VERSION);
        tm_environment_print_json(environment, &json, "environment");
        tm_json_close(&json, '}');
        tm_text_add(&out, "\n");
    } else {
        tm_text_printf(&out, "trainmark " TM_VERSION " (commit %s, %s)\n", built(environment, "commit"),
                       built(environment, "compiler"));
    }
    if (line->verbose && !o->json) {
        tm_environment_print_json(environment, &json, NULL);
        tm_text_add(&out, "\n");
    }
    tm_environment_destroy(environment);
    tm_status st = tm_cli_print(&out, err);
    tm_text_fini(&out);
    return st;
}

static const tm_option rows[] = { TM_OPTION_JSON(version_options) };

const tm_cli_command tm_command_version = {
    .name = "version",
    .summary = "print the version; with --verbose also build, libraries and machine",
    TM_CLI_OPTIONS(rows, version_options),
    .run = version,
};
