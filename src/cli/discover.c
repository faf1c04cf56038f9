/* SPDX-License-Identifier: Apache-2.0 */
/* cli/discover.c - `trainmark discover`: the models that are built in as a catalogue with tags. */
#include "cli/cli.h"
#include "cli/habits.h"
#include "model/presets.h"

#include "base/arena.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: trainmark discover [--tags TAG ...] [--json]\n\n"
    "Lists the entries of the catalogue, one for each model that is built in: `trainmark run --tags NAME` measures\n"
    "it on random tokens. A TAG is the name of an entry, in any of the forms pyt_train_MODEL,\n"
    "primus_pyt_train_MODEL, pyt_megatron_lm_train_MODEL and jax_maxtext_train_MODEL, or the name of a family.\n";

typedef struct {
    bool         json;
    const char **tags; /* (n) */
    int          n;
} selection;

/* "llama3.1_8B" is of the family "llama". */
static bool is_selected(const tm_config *config, const selection *s, const char *preset)
{
    for (int i = 0; i < s->n; i++) {
        const char *named = tm_habit_preset(config, s->tags[i]);
        if ((named && strcmp(named, preset) == 0) || strncmp(preset, s->tags[i], strlen(s->tags[i])) == 0) return true;
    }
    return s->n == 0;
}

static tm_status list(const selection *s, tm_text *out, tm_error *err)
{
    size_t           n, found = 0;
    const tm_preset *presets = tm_model_presets(&n);
    tm_config       *config = tm_cli_config();
    tm_arena        *arena = tm_arena_create();
    tm_json          json = { .out = out, .indent = true };
    if (s->json) tm_json_open(&json, NULL, '[');
    for (size_t i = 0; i < n; i++) {
        if (!is_selected(config, s, presets[i].name)) continue;
        const char *name = tm_habit_tag(arena, presets[i].name);
        found++;
        if (!s->json) tm_text_printf(out, "%-32s %s\n", name, presets[i].name);
        if (!s->json) continue;
        tm_json_open(&json, NULL, '{');
        tm_json_string(&json, "name", name);
        tm_json_string(&json, "model", presets[i].name);
        tm_json_string(&json, "n_gpus", "1");
        tm_json_close(&json, '}');
    }
    if (s->json) tm_json_close(&json, ']');
    if (s->json) tm_text_add(out, "\n");
    tm_arena_destroy(arena);
    tm_config_destroy(config);
    return found
               ? TM_OK
               : tm_fail(err, TM_INVALID, "no entry has the tag '%.100s'; `trainmark discover` lists all", s->tags[0]);
}

tm_status tm_command_discover(int argc, char **argv, tm_error *err)
{
    if (tm_cli_wants_help(argc, argv)) return tm_cli_print_help(help, err);
    selection s = { .tags = tm_alloc((size_t)argc * sizeof *s.tags) };
    tm_text   out = { 0 };
    tm_status st = TM_OK;
    bool      tags = false;
    for (int i = 1; i < argc && st == TM_OK; i++) {
        if (strcmp(argv[i], "--json") == 0)
            s.json = true;
        else if (strcmp(argv[i], "--tags") == 0)
            tags = true;
        else if (tags && argv[i][0] != '-')
            s.tags[s.n++] = argv[i];
        else
            st = tm_fail(err, TM_USAGE, "unexpected '%.200s'; usage: trainmark discover [--tags TAG ...] [--json]",
                         argv[i]);
    }
    if (st == TM_OK && tags && s.n == 0) st = tm_fail(err, TM_USAGE, "option '--tags' needs a value: --tags NAME");
    if (st == TM_OK) st = list(&s, &out, err);
    if (st == TM_OK) st = tm_cli_print(&out, err);
    tm_text_fini(&out);
    free(s.tags);
    return st;
}
