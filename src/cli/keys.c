/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

typedef struct {
    const char *framework;
    bool        markdown;
} keys_options;

static tm_status keys(tm_cli_line *line, tm_error *err)
{
    const keys_options *o = line->options;
    const char         *section = line->n_words ? line->words[0] : NULL;
    tm_config          *config = tm_cli_config();
    tm_text             out = { 0 };
    tm_status           st = o->framework ? tm_config_print_framework(o->framework, &out, err) : TM_OK;
    if (st == TM_OK && !o->framework && o->markdown)
        tm_config_print_reference(config, &out);
    else if (st == TM_OK && !o->framework)
        tm_config_print_help(config, section, &out);
    if (st == TM_OK && !out.length)
        st = tm_fail(err, TM_USAGE, "no key begins with '%.100s.'; `trainmark keys` lists all", section);
    if (st == TM_OK) st = tm_cli_print(&out, err);
    tm_text_fini(&out);
    tm_config_destroy(config);
    return st;
}

static const tm_option rows[] = {
    { "framework", 0, TM_OPTION_TEXT, offsetof(keys_options, framework), .value = "NAME",
      .help = "the keys of that program's files, and what becomes of each: mapped to ours, harmless, performance only, "
              "must equal, not built; torchtitan, megatron, torchtune or pytorch-training-benchmark" },
    { "markdown", 0, TM_OPTION_FLAG, offsetof(keys_options, markdown),
      .help = "print the tables of docs/configuration.md" },
};

const tm_cli_command tm_command_keys = {
    .name = "keys",
    .summary = "list the configuration keys",
    .words = "[SECTION]",
    .most = 1,
    .about = "Lists the configuration keys with type, default, range and meaning: those of a section "
             "(`trainmark keys training`), or all.",
    TM_CLI_OPTIONS(rows, keys_options),
    .run = keys,
};
