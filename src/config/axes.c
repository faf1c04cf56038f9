/* SPDX-License-Identifier: Apache-2.0 */
/* config/axes.c - lists where single values belong: the axes of a sweep. */
#include "config/foreign.h"

#include <string.h>

void tm_config_allow_axes(tm_config *config, bool allow)
{
    config->allow_axes = allow;
}

const tm_config_axis *tm_config_axes(const tm_config *config, size_t *n)
{
    *n = config->n_axes;
    return config->axes;
}

void tm_axes_drop(tm_config *config, tm_layer layer, const char *path)
{
    const tm_entry *entry = config->n_axes ? tm_config_target(config, path) : NULL;
    size_t          kept = 0;
    for (size_t i = 0; i < config->n_axes; i++) {
        bool same = entry && strcmp(entry->key.name, config->axes[i].row) == 0;
        if (same && layer >= config->axis_layers[i]) continue;
        config->axes[kept] = config->axes[i];
        config->axis_layers[kept++] = config->axis_layers[i];
    }
    config->n_axes = kept;
}

/* A canonical form, if the text is a value of the key at all: what is wrong is told when its turn comes. */
static const char *value_of(tm_config *config, const tm_entry *entry, const char *text, const char *origin)
{
    const tm_given given = { .text = text, .origin = origin };
    const char    *value;
    return tm_value_coerce(config->arena, &entry->key, &given, &value, NULL) == TM_OK && value ? value : text;
}

/* Does a layer above give the key a value, or a list? A file may be read behind the command line (EXP). */
static bool is_given_above(const tm_config *config, tm_layer layer, const tm_entry *entry)
{
    for (size_t i = 0; i < config->n_axes; i++)
        if (strcmp(config->axes[i].row, entry->key.name) == 0 && config->axis_layers[i] > layer) return true;
    for (tm_layer above = layer + 1; above < LAYER_PROGRAM; above++) {
        if (entry->layers[above].present) return true;
        for (size_t i = 0; i < config->n_foreign; i++)
            if (config->foreign[i].layers[above].present && tm_config_target(config, config->foreign[i].path) == entry)
                return true;
    }
    return false;
}

void tm_axes_add(tm_config *config, tm_layer layer, const char *path, const char *list, const char *origin)
{
    const tm_entry *entry = tm_config_target(config, path);
    size_t          n = 1, i = 0;
    if (is_given_above(config, layer, entry)) return;
    for (const char *c = list; *c; c++) n += *c == ',';
    const char **values = tm_arena_take(config->arena, n * sizeof *values);
    bool         translated = config->framework && config->framework->sweeps && tm_config_translates(config, path);
    for (const char *at = list; i < n; i++) {
        size_t length = strcspn(at, ",");
        values[i] = tm_arena_text_n(config->arena, at, length);
        if (!translated) values[i] = value_of(config, entry, values[i], origin); /* else a word of the other program */
        at += length + (at[length] == ',');
    }
    if (config->n_axes == config->axes_capacity) {
        config->axes_capacity = config->axes_capacity ? 2 * config->axes_capacity : 8;
        config->axes = tm_realloc(config->axes, config->axes_capacity * sizeof *config->axes);
        config->axis_layers = tm_realloc(config->axis_layers, config->axes_capacity * sizeof *config->axis_layers);
    }
    config->axis_layers[config->n_axes] = layer;
    config->axes[config->n_axes++] = (tm_config_axis){ .key = tm_arena_text(config->arena, path),
                                                       .row = entry->key.name,
                                                       .values = values,
                                                       .n = n,
                                                       .place = tm_arena_text(config->arena, tm_place(origin)) };
}
