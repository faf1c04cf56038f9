/* SPDX-License-Identifier: Apache-2.0 */
/* config/give.c - a value finds its row; unknown keys; presets. */
#include "config/foreign.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Distance of two key names: the whole of them, or the last parts if one has no section. */
static int key_distance(const char *a, const char *b)
{
    int         best = tm_edit_distance(a, b);
    const char *tail_a = strrchr(a, '.'), *tail_b = strrchr(b, '.');
    tail_a = tail_a ? tail_a + 1 : a;
    tail_b = tail_b ? tail_b + 1 : b;
    int tails = tm_edit_distance(tail_a, tail_b) + 1; /* the section is wrong or missing */
    return tails < best ? tails : best;
}

/* A number is no spelling: 17B is not meant to be 16B. Have two names the same digits, in whatever order? */
static bool same_digits(const char *a, const char *b)
{
    int count[10] = { 0 };
    for (; *a; a++)
        if (*a >= '0' && *a <= '9') count[*a - '0']++;
    for (; *b; b++)
        if (*b >= '0' && *b <= '9') count[*b - '0']--;
    for (int i = 0; i < 10; i++)
        if (count[i]) return false;
    return true;
}

const char *tm_nearest(const char *name, const char *const *names, size_t n)
{
    bool        numbered = strpbrk(name, "0123456789") != NULL;
    const char *near = NULL;
    const char *tail = strrchr(name, '.');
    size_t      length = strlen(tail ? tail + 1 : name);
    int         best = length < 6 ? 3 : (int)(length / 2) + 1; /* farther is no help */
    for (size_t i = 0; i < n; i++) {
        int distance = key_distance(name, names[i]);
        if (distance < best && (!numbered || same_digits(name, names[i]))) {
            best = distance;
            near = names[i];
        }
    }
    return near;
}

/* Are the letters and digits of `name` in `other`, in order, its numbers being numbers there: is "llama-8b" a short
 * form of "llama3.1_8B", but not of "llama3.1_80B"? */
static bool is_short_for(const char *name, const char *other)
{
    size_t n, seen = 0;
    for (; *other; other += n) {
        while (*name && !isalnum((unsigned char)*name)) name++;
        n = isdigit((unsigned char)*other) ? strspn(other, "0123456789") : 1;
        if (!*name || strncasecmp(name, other, n) != 0) continue;
        name += n;
        seen += n;
    }
    return !name[strspn(name, "-_. ")] && seen >= 3;
}

/* "did you mean 'a' or 'b'? ": the model that is nearest, then those that the name is a short form of, the shortest
 * first; three at most, or nothing. */
static void add_meant(const tm_config *config, const char *name, tm_text *out)
{
    enum { MOST = 3 };
    const char *meant[MOST], **names = tm_alloc((config->n_presets + 1) * sizeof *names);
    size_t      n = 0;
    for (size_t i = 0; i < config->n_presets; i++) names[i] = config->presets[i].name;
    const char *near = tm_nearest(name, names, config->n_presets);
    if (near && same_digits(name, near)) meant[n++] = near; /* else another model */
    for (bool found = true; found && n < MOST;) {
        const char *best = NULL;
        for (size_t i = 0; i < config->n_presets; i++) {
            bool known = !is_short_for(name, names[i]);
            for (size_t k = 0; k < n; k++) known |= meant[k] == names[i];
            if (!known && (!best || strlen(names[i]) < strlen(best))) best = names[i];
        }
        found = best != NULL;
        if (found) meant[n++] = best;
    }
    for (size_t i = 0; i < n; i++)
        tm_text_printf(out, "%s'%s'", i == 0 ? "did you mean " : i + 1 == n ? " or " : ", ", meant[i]);
    tm_text_add(out, n ? "? " : "");
    free(names);
}

/* Is `name` in the same section as `path`? */
static bool same_section(const char *path, const char *name)
{
    const char *a = strrchr(path, '.'), *b = strrchr(name, '.');
    size_t      n = a ? (size_t)(a - path) : 0;
    char        left[160], right[160];
    if ((b ? (size_t)(b - name) : 0) != n || n >= sizeof left) return false;
    snprintf(left, sizeof left, "%.*s", (int)n, path);
    snprintf(right, sizeof right, "%.*s", (int)n, name);
    return tm_names_equal(left, right);
}

/* May a key of another section be meant? Where no section was given; where it is only misspelt; or where the key itself
 * is right, and its section is one that there is. */
static bool may_be_elsewhere(const tm_config *config, const char *path, const char *other)
{
    const char *tail = strrchr(path, '.'), *its_tail = strrchr(other, '.');
    if (!tail) return key_distance(path, other) <= 2;
    if (tm_edit_distance(path, other) <= 2) return true;
    char section[160];
    snprintf(section, sizeof section, "%.*s", (int)(tail - path), path);
    return tm_names_equal(tail + 1, its_tail ? its_tail + 1 : other) && tm_config_is_section(config, section);
}

/* The nearest key: of the same section first; one of another section only if it is hardly another word. */
static const char *nearest_key(const tm_config *config, const char *path)
{
    size_t       foreign = config->framework ? config->framework->n : 0, n = 0, elsewhere = 0;
    const char **names = tm_alloc((config->n_entries + foreign + 1) * 2 * sizeof *names);
    const char **others = names + config->n_entries + foreign + 1;
    for (size_t i = 0; i < config->n_entries + foreign; i++) {
        const char *name =
            i < config->n_entries ? config->entries[i].key.name : config->framework->keys[i - config->n_entries].name;
        if (strchr(name, '*')) continue;
        if (same_section(path, name))
            names[n++] = name;
        else
            others[elsewhere++] = name;
    }
    const char *near = tm_nearest(path, names, n), *other = near ? NULL : tm_nearest(path, others, elsewhere);
    if (other && may_be_elsewhere(config, path, other)) near = other;
    free(names);
    return near;
}

tm_status tm_config_unknown(tm_config *config, const char *path, const char *place, tm_error *err)
{
    if (config->allow_unknown) {
        tm_text_printf(&config->unknown, "%s%s (%s)", config->unknown.length ? ", " : "", path, place);
        return TM_OK;
    }
    if (tm_config_is_section(config, path))
        return tm_fail(err, TM_INVALID, "'%.200s' (%s) is a section of keys; give one of its keys, %.200s.NAME", path,
                       place, path);
    const char *near = nearest_key(config, path);
    if (near) tm_config_spoil(config, near);
    if (near) return tm_fail(err, TM_INVALID, "unknown key '%.200s' (%s); did you mean '%s'?", path, place, near);
    if (config->help)
        return tm_fail(err, TM_INVALID, "unknown key '%.200s' (%s); `%s` lists them", path, place, config->help);
    if (config->framework)
        return tm_fail(err, TM_INVALID,
                       "unknown key '%.200s' (%s); `trainmark keys --framework %s` lists them, --allow-unknown-keys "
                       "skips it",
                       path, place, config->framework->name);
    return tm_fail(err, TM_INVALID,
                   "unknown key '%.200s' (%s); docs/configuration.md lists the keys, --allow-unknown-keys skips it",
                   path, place);
}

static bool is_below(const char *name, const char *path, size_t n)
{
    return strncmp(name, path, n) == 0 && name[n] == '.';
}

bool tm_config_is_section(const tm_config *config, const char *path)
{
    size_t n = strlen(path);
    for (size_t i = 0; i < config->n_entries; i++)
        if (is_below(config->entries[i].key.name, path, n)) return true;
    for (size_t i = 0; config->framework && i < config->framework->n; i++)
        if (is_below(config->framework->keys[i].name, path, n)) return true;
    return false;
}

static tm_status store(tm_config *config, tm_layer layer, tm_entry *entry, const char *path, const tm_given *given,
                       tm_error *err)
{
    tm_value   *value = &entry->layers[layer];
    const char *text;
    tm_status   st = tm_value_coerce(config->arena, &entry->key, given, &text, err);
    if (st != TM_OK) tm_config_spoil(config, entry->key.name);
    TM_TRY(st);
    bool same_file = value->present && value->source && given->source && strcmp(value->source, given->source) == 0;
    if (same_file)
        return tm_fail(err, TM_INVALID, "'%s' (%s) is given twice, as '%.200s' and before in %s; remove one",
                       entry->key.name, tm_place(given->origin), path, tm_place(value->origin));
    *value = (tm_value){ .text = text,
                         .origin = tm_arena_text(config->arena, given->origin),
                         .source = given->source ? tm_arena_text(config->arena, given->source) : NULL,
                         .present = true,
                         .secret = given->secret,
                         .came_along = given->came_along };
    return TM_OK;
}

/* A wildcard row keeps only whether, and where, something was given that is not false, zero or empty. */
static tm_status store_wildcard(tm_config *config, tm_layer layer, tm_entry *entry, const char *path,
                                const tm_given *given)
{
    static const char *const harmless[] = { "", "false", "False", "0", "none", "None" };
    bool                     off = !given->text;
    for (size_t i = 0; !off && i < sizeof harmless / sizeof harmless[0]; i++)
        off = strcmp(given->text, harmless[i]) == 0;
    if (off && entry->key.state == TM_KEY_UNBUILT) return TM_OK;
    entry->layers[layer] = (tm_value){ .text = tm_arena_text(config->arena, path),
                                       .origin = tm_arena_text(config->arena, given->origin),
                                       .present = true };
    return TM_OK;
}

tm_status tm_config_give_own(tm_config *config, tm_layer layer, const char *path, const tm_given *given, tm_error *err)
{
    if (tm_names_equal(path, "model") && !tm_entry_find(config, "model")) {
        if (!given->text || given->secret)
            return tm_fail(err, TM_INVALID, "'model' (%s) must name a preset, found %s", tm_place(given->origin),
                           given->text ? "a secret" : "null");
        return tm_config_apply_preset(config, given->text, err);
    }
    tm_entry *entry = tm_entry_find(config, path);
    if (!entry) return tm_config_unknown(config, path, tm_place(given->origin), err);
    if (tm_entry_is_wildcard(entry)) return store_wildcard(config, layer, entry, path, given);
    return store(config, layer, entry, path, given, err);
}

/* The table that a key is looked up in: the one of the file; else, for what is no key of ours, all of them. */
static const tm_foreign_key *find_foreign(const tm_config *config, const char *path, const tm_framework **framework)
{
    *framework = config->framework;
    if (*framework) return tm_foreign_row(*framework, path);
    if (config->help || tm_entry_find(config, path) || tm_names_equal(path, "model")) return NULL;
    for (size_t i = 0; (*framework = tm_framework_at(i)); i++) {
        const tm_foreign_key *row = tm_foreign_row(*framework, path);
        const char           *star = row ? strchr(row->name, '*') : NULL;
        bool                  broad = star && star > row->name && star[-1] != '.' && row->kind < TM_FOREIGN_EQUAL;
        if (row && !broad) return row; /* a broad pattern would take what is only misspelt */
    }
    return NULL;
}

/* The first of our keys in a row's values: "key", "key=*;..." or "value:key=...|...". */
static tm_entry *first_target(const tm_config *config, const char *values)
{
    for (; *values; values += strcspn(values, "|") + (values[strcspn(values, "|")] == '|')) {
        char        name[160];
        const char *colon = memchr(values, ':', strcspn(values, "|")), *from = colon ? colon + 1 : values;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(from, "=;|"), from);
        tm_entry *entry = *name ? tm_entry_find(config, name) : NULL;
        if (entry) return entry;
    }
    return NULL;
}

tm_entry *tm_config_target(const tm_config *config, const char *path)
{
    const tm_framework   *framework;
    const tm_foreign_key *row = find_foreign(config, path, &framework);
    if (!row) return tm_entry_find(config, path);
    if (row->kind != TM_FOREIGN_MAPPED || !row->values) return NULL;
    if (framework->sweeps) return first_target(config, row->values);
    return !row->convert ? tm_entry_find(config, row->values) : NULL;
}

/* "auto" for a key that can be searched for: in a sweep. */
static bool is_searched(const tm_config *config, const char *path, const tm_given *given)
{
    if (!config->allow_axes || !given->text || !tm_names_equal(given->text, "auto")) return false;
    const tm_entry *entry = tm_config_target(config, path);
    return entry && entry->key.kind == TM_KEY_I64 && entry->key.choices && strcmp(entry->key.choices, "auto") == 0;
}

tm_status tm_config_give(tm_config *config, tm_layer layer, const char *path, const tm_given *given, tm_error *err)
{
    tm_axes_drop(config, layer, path);
    if (is_searched(config, path, given)) {
        const tm_given first = { .text = "1", .origin = given->origin, .source = given->source };
        TM_TRY(tm_config_give(config, layer, path, &first, err));
        tm_axes_add(config, layer, path, "auto", given->origin);
        return TM_OK;
    }
    const tm_framework   *framework;
    const tm_foreign_key *row = find_foreign(config, path, &framework);
    const tm_entry       *own = row && layer == LAYER_COMMAND ? tm_entry_find(config, path) : NULL;
    bool                  passes = row && (row->kind == TM_FOREIGN_HARMLESS || row->kind == TM_FOREIGN_SPEED);
    if (passes && own && own->key.state == TM_KEY_USED) row = NULL; /* who types it means ours */
    if (!row) return tm_config_give_own(config, layer, path, given, err);
    tm_foreign_give(config, layer, framework, row, path, given);
    return TM_OK;
}

bool tm_config_translates(const tm_config *config, const char *path)
{
    const tm_framework *framework;
    return find_foreign(config, path, &framework) != NULL;
}

bool tm_config_is_row(const tm_config *config, const char *key)
{
    return tm_entry_find(config, key) != NULL;
}

bool tm_config_knows(const tm_config *config, const char *path)
{
    const tm_framework *framework;
    return find_foreign(config, path, &framework) || tm_entry_find(config, path);
}

bool tm_config_has(const tm_config *config, const char *name)
{
    return tm_config_knows(config, name) || tm_config_is_section(config, name) || tm_names_equal(name, "model");
}

void tm_stem_of(const char *name, char out[128])
{
    const char *slash = strrchr(name, '/');
    snprintf(out, 128, "%s", slash ? slash + 1 : name);
    size_t                   n = strlen(out);
    static const char *const suffixes[] = { ".yaml", ".yml", ".toml", ".json" };
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        const char *suffix = suffixes[i];
        size_t      s = strlen(suffix);
        if (n > s && strcmp(out + n - s, suffix) == 0) {
            out[n - s] = '\0';
            return;
        }
    }
}

const tm_config_preset_row *tm_preset_find(const tm_config *config, const char *name)
{
    char stem[128];
    tm_stem_of(name, stem);
    for (size_t i = 0; i < config->n_presets; i++)
        if (tm_names_equal(config->presets[i].name, stem) ||
            (config->presets[i].alias && tm_names_equal(config->presets[i].alias, stem)))
            return &config->presets[i];
    return NULL;
}

const char *tm_config_find_preset(const tm_config *config, const char *name)
{
    const tm_config_preset_row *preset = tm_preset_find(config, name);
    return preset ? preset->name : NULL;
}

tm_status tm_preset_fill(tm_config *config, const tm_config_preset_row *preset, tm_layer layer, tm_error *err)
{
    char *origin = tm_arena_format(config->arena, "preset %s", preset->name);
    for (const char *const *pair = preset->pairs; *pair; pair++) {
        const char *equals = strchr(*pair, '=');
        TM_ASSERT(equals);
        char    *path = tm_arena_text_n(config->arena, *pair, (size_t)(equals - *pair));
        tm_given given = { .text = equals + 1, .origin = origin };
        TM_TRY(tm_config_give_own(config, layer, path, &given, err));
    }
    return TM_OK;
}

tm_status tm_config_apply_preset(tm_config *config, const char *name, tm_error *err)
{
    const tm_config_preset_row *preset = tm_preset_find(config, name);
    if (!preset) {
        char    stem[128];
        tm_text meant = { 0 };
        tm_stem_of(name, stem);
        add_meant(config, stem, &meant);
        tm_fail(err, TM_INVALID, "unknown model '%.200s'; %s`trainmark models` lists them", name, meant.data);
        tm_text_fini(&meant);
        return TM_INVALID;
    }
    tm_config_clear_layer(config, LAYER_PRESET);
    tm_config_clear_layer(config, LAYER_MODEL_FILE);
    config->preset = preset->name;
    return tm_preset_fill(config, preset, LAYER_PRESET, err);
}

tm_status tm_config_describe(tm_config *config, const char *key, const char *value, const char *origin, tm_error *err)
{
    const tm_given given = { .text = value, .origin = origin };
    return tm_config_give(config, LAYER_MODEL_FILE, key, &given, err);
}

tm_status tm_config_give_resolved(tm_config *config, const char *key, const char *text, const char *file, tm_error *err)
{
    tm_given given = { .text = text, .origin = tm_arena_format(config->arena, "file %s", file) };
    return tm_config_give_own(config, LAYER_FILE, key, &given, err);
}
