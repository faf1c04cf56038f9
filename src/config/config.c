/* SPDX-License-Identifier: Apache-2.0 */
/* config/config.c - rows, layers and the reading of values. */
#include "config/config.h"

#include "config/foreign.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

tm_config *tm_config_create_options(const char *help)
{
    tm_config *config = tm_alloc(sizeof *config);
    config->arena = tm_arena_create();
    config->environment = environ;
    config->help = help;
    return config;
}

tm_config *tm_config_create(void)
{
    tm_config    *config = tm_config_create_options(NULL);
    size_t        n;
    const tm_key *keys = tm_config_keys(&n);
    tm_config_add_keys(config, keys, n);
    return config;
}

tm_arena *tm_config_arena(const tm_config *config)
{
    return config->arena;
}

void tm_config_destroy(tm_config *config)
{
    if (!config) return;
    tm_arena_destroy(config->arena);
    free(config->entries);
    free(config->presets);
    free(config->rules);
    free(config->checks);
    free(config->foreign);
    free(config->axes);
    free(config->axis_layers);
    tm_text_fini(&config->accepted);
    tm_text_fini(&config->model_keys);
    tm_text_fini(&config->family_keys);
    tm_text_fini(&config->spoiled);
    tm_text_fini(&config->unknown);
    tm_text_fini(&config->notes);
    tm_text_fini(&config->unbuilt);
    free(config);
}

bool tm_entry_is_wildcard(const tm_entry *entry)
{
    size_t n = entry->length;
    return n > 2 && strcmp(entry->key.name + n - 2, ".*") == 0;
}

/* Is `name`, of so many characters, one of the comma-separated names in `list`? */
static bool listed(const char *list, const char *name, size_t length)
{
    char word[160];
    while (list && *list) {
        size_t n = strcspn(list, ",");
        TM_ASSERT(n < sizeof word);
        if (n == length) {
            memcpy(word, list, n);
            word[n] = '\0';
            if (tm_names_equal(word, name)) return true;
        }
        list += n + (list[n] == ',');
    }
    return false;
}

static bool below_wildcard(const tm_entry *entry, const char *name)
{
    char   head[160];
    size_t n = entry->length - 1; /* with the dot */
    if (strlen(name) <= n || n >= sizeof head) return false;
    memcpy(head, name, n);
    head[n] = '\0';
    char prefix[160];
    memcpy(prefix, entry->key.name, n);
    prefix[n] = '\0';
    return tm_names_equal(head, prefix);
}

tm_entry *tm_entry_find(const tm_config *config, const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < config->n_entries; i++)
        if (config->entries[i].length == length && tm_names_equal(config->entries[i].key.name, name))
            return &config->entries[i];
    for (size_t i = 0; i < config->n_entries; i++)
        if (listed(config->entries[i].key.synonyms, name, length)) return &config->entries[i];
    for (size_t i = 0; i < config->n_entries; i++)
        if (tm_entry_is_wildcard(&config->entries[i]) && below_wildcard(&config->entries[i], name))
            return &config->entries[i];
    return NULL;
}

void tm_config_add_keys(tm_config *config, const tm_key *keys, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const tm_key *key = &keys[i];
        TM_ASSERT(key->name && key->help && (key->kind != TM_KEY_CHOICE || key->choices));
        TM_ASSERT(key->state != TM_KEY_UNBUILT || key->feature);
        const tm_entry *other = tm_entry_find(config, key->name);
        TM_ASSERT(!other || tm_entry_is_wildcard(other)); /* a name or synonym of another row */
        config->entries = tm_grow(config->entries, &config->entries_capacity, config->n_entries, sizeof(tm_entry));
        tm_entry *entry = &config->entries[config->n_entries++];
        *entry = (tm_entry){ .key = *key, .length = strlen(key->name) };
        entry->layers[LAYER_DEFAULT] = (tm_value){ .origin = "default", .present = true };
        if (!key->fallback) continue;
        tm_given  given = { .text = key->fallback, .origin = "default" };
        tm_error  ignored = { 0 };
        tm_status st = tm_value_coerce(config->arena, key, &given, &entry->layers[LAYER_DEFAULT].text, &ignored);
        TM_ASSERT(st == TM_OK); /* the default of a row has the row's kind */
    }
}

void tm_config_add_preset(tm_config *config, const char *name, const char *alias, const char *const *pairs)
{
    TM_ASSERT(!tm_preset_find(config, name) && !(alias && tm_preset_find(config, alias)));
    config->presets = tm_grow(config->presets, &config->presets_capacity, config->n_presets, sizeof *config->presets);
    config->presets[config->n_presets++] = (tm_config_preset_row){ name, alias, pairs };
}

void tm_config_add_rule(tm_config *config, tm_config_rule rule)
{
    config->rules = tm_grow(config->rules, &config->rules_capacity, config->n_rules, sizeof *config->rules);
    config->rules[config->n_rules++] = rule;
}

void tm_config_add_check(tm_config *config, tm_config_rule check)
{
    config->checks = tm_grow(config->checks, &config->checks_capacity, config->n_checks, sizeof *config->checks);
    config->checks[config->n_checks++] = check;
}

void tm_config_allow_unknown(tm_config *config, bool allow)
{
    config->allow_unknown = allow;
}

void tm_config_keep_notes(tm_config *config)
{
    config->keeps_notes = true;
}

void tm_config_allow_unbuilt(tm_config *config, bool allow)
{
    config->allow_unbuilt = allow;
}

void tm_config_add_path(tm_config *config, const char *path)
{
    TM_ASSERT(config->n_paths < (int)(sizeof config->paths / sizeof config->paths[0]));
    config->paths[config->n_paths++] = tm_arena_text(config->arena, path);
}

bool tm_config_plans(const tm_config *config)
{
    return config->allow_unbuilt;
}

void tm_config_leave_out(tm_config *config, const char *format, ...)
{
    char    line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    tm_text_printf(&config->unbuilt, "%s\n", line);
}

const char *tm_config_accepted(const tm_config *config)
{
    return config->accepted.data ? config->accepted.data : "";
}

const char *tm_config_framework(const tm_config *config)
{
    return config->framework ? config->framework->name : NULL;
}

void tm_config_use_environment(tm_config *config, char *const *environ_like)
{
    config->environment = environ_like;
}

void tm_config_clear_layer(tm_config *config, tm_layer layer)
{
    for (size_t i = 0; i < config->n_entries; i++) config->entries[i].layers[layer] = (tm_value){ 0 };
    tm_foreign_clear_layer(config, layer);
}

const tm_value *tm_entry_value(const tm_entry *entry)
{
    const tm_value *least = &entry->layers[LAYER_DEFAULT];
    for (int layer = LAYER_COUNT - 1; layer > LAYER_DEFAULT; layer--)
        if (entry->layers[layer].present) /* null is the default, also where a rule makes it */
            return entry->layers[layer].text || !least->text ? &entry->layers[layer] : least;
    return least;
}

const char *tm_place(const char *origin)
{
    return strncmp(origin, "file ", 5) == 0 ? origin + 5 : origin;
}

/* The row of a key that the program itself names: exact. */
static const tm_entry *entry_of(const tm_config *config, const char *key)
{
    size_t length = strlen(key);
    for (size_t i = 0; i < config->n_entries; i++)
        if (config->entries[i].length == length && strcmp(config->entries[i].key.name, key) == 0)
            return &config->entries[i];
    tm_assert_failed(key, "configuration key has no row", 0);
}

bool tm_config_bool(const tm_config *config, const char *key)
{
    const tm_entry *entry = entry_of(config, key);
    TM_ASSERT(entry->key.kind == TM_KEY_BOOL);
    const char *text = tm_entry_value(entry)->text;
    return text && strcmp(text, "true") == 0;
}

int64_t tm_config_i64(const tm_config *config, const char *key)
{
    const tm_entry *entry = entry_of(config, key);
    TM_ASSERT(entry->key.kind == TM_KEY_I64);
    const char *text = tm_entry_value(entry)->text;
    if (!text) tm_assert_failed(key, "null read as an integer", 0);
    return strtoll(text, NULL, 10);
}

double tm_config_f64(const tm_config *config, const char *key)
{
    const tm_entry *entry = entry_of(config, key);
    TM_ASSERT(entry->key.kind == TM_KEY_F64 || entry->key.kind == TM_KEY_I64);
    const char *text = tm_entry_value(entry)->text;
    return text ? strtod(text, NULL) : (double)NAN;
}

const char *tm_config_text(const tm_config *config, const char *key)
{
    return tm_entry_value(entry_of(config, key))->text;
}

const char *tm_config_shown(const tm_config *config, const char *key)
{
    const tm_value *value = tm_entry_value(entry_of(config, key));
    return value->text && value->secret ? "***" : value->text;
}

bool tm_config_is_set(const tm_config *config, const char *key)
{
    const tm_entry *entry = entry_of(config, key);
    const tm_value *program = &entry->layers[LAYER_PROGRAM];
    if (program->present && strncmp(program->origin, "derived", 7) != 0) return true;
    for (int layer = LAYER_FILE; layer < LAYER_PROGRAM; layer++)
        if (entry->layers[layer].present) return true;
    return false;
}

bool tm_config_is_changed(const tm_config *config, const char *key)
{
    const tm_entry *entry = entry_of(config, key);
    const char     *value = tm_entry_value(entry)->text, *fallback = entry->layers[LAYER_DEFAULT].text;
    bool            same = value && fallback ? strcmp(value, fallback) == 0 : value == fallback;
    return tm_config_is_set(config, key) && !same;
}

int tm_config_rank(const tm_config *config, const char *key)
{
    const tm_entry *entry = entry_of(config, key);
    return (int)(tm_entry_value(entry) - entry->layers);
}

const char *tm_config_origin(const tm_config *config, const char *key)
{
    return tm_entry_value(entry_of(config, key))->origin;
}

const char *tm_config_place(const tm_config *config, const char *key)
{
    return tm_place(tm_config_origin(config, key));
}

void tm_config_set(tm_config *config, const char *key, const char *value, const char *origin)
{
    tm_entry   *entry = (tm_entry *)entry_of(config, key);
    tm_given    given = { .text = value, .origin = origin };
    const char *text = NULL;
    tm_error    err = { 0 };
    bool        lowest = strncmp(origin, "default", 7) == 0;
    if (value && tm_value_coerce(config->arena, &entry->key, &given, &text, &err) != TM_OK)
        tm_assert_failed(err.text, "value set by the program", 0);
    entry->layers[lowest ? LAYER_DEFAULT : LAYER_PROGRAM] = (tm_value){
        .text = text, .origin = tm_arena_text(config->arena, origin), .present = true, .follows = LAYER_PROGRAM
    };
}

void tm_config_derive(tm_config *config, const char *key, const char *value, const char *from)
{
    tm_layer follows = tm_entry_decider(entry_of(config, from));
    char     origin[320];
    snprintf(origin, sizeof origin, "derived from %s (%.200s)", from, tm_config_place(config, from));
    tm_config_set(config, key, value, origin);
    ((tm_entry *)entry_of(config, key))->layers[LAYER_PROGRAM].follows = follows;
}

tm_status tm_config_find_hub(tm_config *config, const char *key, tm_hub_kind kind, tm_error *err)
{
    tm_value    *value = (tm_value *)tm_entry_value(entry_of(config, key));
    tm_hub_place place;
    tm_error     own = { 0 };
    if (!value->text || value->secret) return TM_OK;
    tm_status st = tm_hub_find(kind, value->text, &place, &own);
    if (st != TM_OK) {
        st = tm_fail(err, st, "%s (%s): %s", key, tm_config_place(config, key), own.text);
    } else if (place.found.data) {
        tm_config_note(config, "%s: %s", key, place.found.data);
        value->origin = tm_arena_format(config->arena, "%s as %s", value->origin, value->text);
        value->text = tm_arena_text(config->arena, place.path.data);
    }
    tm_hub_place_fini(&place);
    return st;
}

const char *tm_config_preset(const tm_config *config)
{
    return config->preset;
}

const char *tm_config_file(const tm_config *config)
{
    return config->file;
}

const char *tm_config_module(const tm_config *config)
{
    return config->module;
}

bool tm_config_from_file(const tm_config *config)
{
    return config->file_loaded;
}

void tm_config_note(tm_config *config, const char *format, ...)
{
    char    line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    tm_text_printf(&config->notes, "%s\n", line);
}

const char *tm_config_unbuilt(const tm_config *config)
{
    return config->unbuilt.data ? config->unbuilt.data : "";
}

const char *tm_config_notes(const tm_config *config)
{
    return config->notes.data ? config->notes.data : "";
}
