/* SPDX-License-Identifier: Apache-2.0 */
/* cli/discover.c - `trainmark discover`: the models that are built in as a catalogue with tags. */
#include "cli/cli.h"
#include "cli/habits.h"
#include "model/presets.h"

#include "base/arena.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    tm_cli_list tags;
    bool        json;
} discover_options;

typedef struct {
    bool         json;
    const char **tags; /* (n) */
    int          n;
} selection;

static bool is_selected(const tm_config *config, const selection *s, const char *preset)
{
    for (int i = 0; i < s->n; i++)
        if (tm_habit_selects(config, s->tags[i], preset)) return true;
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

static tm_status discover(tm_cli_line *line, tm_error *err)
{
    const discover_options *o = line->options;
    selection               s = { .json = o->json };
    tm_text                 out = { 0 };
    s.tags = tm_arena_take(line->arena, (size_t)(o->tags.n + line->n_words + 1) * sizeof *s.tags);
    for (int i = 0; i < o->tags.n; i++) s.tags[s.n++] = o->tags.item[i];
    for (int i = 0; i < line->n_words; i++) s.tags[s.n++] = line->words[i];
    tm_status st = list(&s, &out, err);
    if (st == TM_OK) st = tm_cli_print(&out, err);
    tm_text_fini(&out);
    return st;
}

static const tm_option rows[] = {
    { "tags", 0, TM_OPTION_LIST, offsetof(discover_options, tags), .value = "TAG",
      .help = "the name of an entry or of a family; may be followed by more" },
    TM_OPTION_JSON(discover_options),
};

const tm_cli_command tm_command_discover = {
    .name = "discover",
    .summary = "list the models as a catalogue with tags, for `run --tags`",
    .words = "[TAG...]",
    .most = -1,
    .about =
        "Lists the entries of the catalogue, one for each built-in model: `trainmark run --tags NAME` measures it "
        "on random tokens. A TAG is the name of an entry, in any of the forms pyt_train_MODEL, "
        "primus_pyt_train_MODEL, pyt_megatron_lm_train_MODEL and jax_maxtext_train_MODEL, or the name of a family.",
    TM_CLI_OPTIONS(rows, discover_options),
    .run = discover,
};
