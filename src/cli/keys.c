/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include "base/json.h"
#include "train/step/supported.h"

#include <string.h>

typedef struct {
    const char *framework;
    bool        markdown, json, combinations;
} keys_options;

static void print_json(const tm_config *config, const char *section, tm_text *out)
{
    static const char *const states[] = { "used", "used", "ignored", "not supported" };
    tm_json                  json = { .out = out, .indent = true };
    size_t                   n = section ? strlen(section) : 0;
    for (size_t i = 0; i < tm_config_n_keys(config); i++) {
        const tm_key *key = tm_config_key_at(config, i);
        bool          inside = !section || (strncmp(key->name, section, n) == 0 && key->name[n] == '.');
        if (!inside) continue;
        if (!out->length) tm_json_open(&json, NULL, '[');
        tm_json_open(&json, NULL, '{');
        tm_json_string(&json, "name", key->name);
        tm_json_string(&json, "state", states[key->state]);
        tm_json_string(&json, "default", key->fallback);
        tm_json_string(&json, "help", key->help);
        tm_json_close(&json, '}');
    }
    if (!out->length) return; /* no such section */
    tm_json_close(&json, ']');
    tm_text_add(out, "\n");
}

static void print_combinations_json(tm_text *out)
{
    tm_json json = { .out = out, .indent = true };
    tm_json_open(&json, NULL, '[');
    for (size_t i = 0; i < tm_n_not_together; i++) {
        const tm_not_together *row = &tm_not_together_rows[i];
        tm_json_open(&json, NULL, '{');
        tm_json_string(&json, "what", row->what);
        tm_json_string(&json, "with", row->with);
        if (row->why) tm_json_string(&json, "why", row->why);
        tm_json_string(&json, "way", row->way);
        tm_json_close(&json, '}');
    }
    tm_json_close(&json, ']');
    tm_text_add(out, "\n");
}

/* As docs/parallelism.md has it. */
static void print_combinations(tm_text *out)
{
    tm_text_add(out, "| this | cannot be combined with | why | way out |\n|---|---|---|---|\n");
    for (size_t i = 0; i < tm_n_not_together; i++) {
        const tm_not_together *row = &tm_not_together_rows[i];
        tm_text_printf(out, "| %s | %s | %s | %s |\n", row->what, row->with, row->why ? row->why : "", row->way);
    }
}

static tm_status keys(tm_cli_line *line, tm_error *err)
{
    const keys_options *o = line->options;
    const char         *section = line->n_words ? line->words[0] : NULL;
    tm_config          *config = tm_cli_config();
    tm_text             out = { 0 };
    tm_status           st = TM_OK;
    if (o->combinations && (section || o->framework || o->markdown))
        st = tm_fail(err, TM_USAGE, "--combinations prints a table of its own; leave out %s",
                     section        ? section
                     : o->framework ? "--framework"
                                    : "--markdown");
    else if (o->combinations)
        (o->json ? print_combinations_json : print_combinations)(&out);
    else if (o->markdown && (o->framework || o->json))
        st = tm_fail(err, TM_USAGE, "--markdown prints the tables of docs/configuration.md; leave out --%s",
                     o->framework ? "framework" : "json");
    else if (o->framework)
        st = (o->json ? tm_config_framework_json : tm_config_print_framework)(o->framework, &out, err);
    else if (o->json)
        print_json(config, section, &out);
    else if (o->markdown)
        tm_config_print_reference(config, &out);
    else
        tm_config_print_help(config, section, tm_cli_width(120), &out);
    if (st == TM_OK && !out.length)
        st = tm_fail(err, TM_USAGE, "no key begins with '%.100s.'; `trainmark keys` lists all", section);
    if (st == TM_OK) st = tm_cli_print(&out, err);
    tm_text_fini(&out);
    tm_config_destroy(config);
    return st;
}

static const tm_option rows[] = {
    { "framework", 0, TM_OPTION_TEXT, offsetof(keys_options, framework), .value = "NAME",
      .help = "list the keys of that program's files, and what happens to each" },
    { "markdown", 0, TM_OPTION_FLAG, offsetof(keys_options, markdown),
      .help = "print the tables of docs/configuration.md" },
    { "combinations", 0, TM_OPTION_FLAG, offsetof(keys_options, combinations),
      .help = "list what cannot be combined, and the way out" },
    TM_OPTION_JSON(keys_options),
};

const tm_cli_command tm_command_keys = {
    .name = "keys",
    .summary = "list the configuration keys",
    .words = "[SECTION]",
    .most = 1,
    .about = "Lists the configuration keys with type, default, range and meaning: those of a section "
             "(`trainmark keys training`), or all. --framework is torchtitan, megatron, torchtune or "
             "pytorch-training-benchmark; their keys are mapped to ours, harmless, performance only, must equal, or "
             "not supported.",
    TM_CLI_OPTIONS(rows, keys_options),
    .run = keys,
};
