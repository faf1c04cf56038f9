/* SPDX-License-Identifier: Apache-2.0 */
/* results/differences.c - what is not the same of two results, the likeliest causes of a difference first. */
#include "results/compare.h"
#include "results/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How likely a member is to change speed or loss, 0: not at all, and it is left out. The longest prefix counts. By what
 * it decides: the computation itself, then the machine, then how the program was built, then the rest. */
static const struct {
    const char *prefix;
    int         weight;
} weights[] = {
    { "model", 100 },
    { "precision", 100 },
    { "device", 100 },
    { "kernels", 97 },
    { "sums", 97 },
    { "devices", 100 },
    { "threads", 98 },
    { "data_source", 90 },
    { "seed", 40 },
    { "parameters", 99 },
    { "batch_tokens", 97 },
    { "workload", 100 },
    { "options/", 95 },
    { "options/json", 0 },
    { "options/output-file", 0 },
    { "options/compare", 0 },
    { "options/store", 0 },
    { "configuration/store.", 0 },
    { "configuration/log.", 0 },
    { "configuration/model.", 100 },
    { "configuration/training.", 96 },
    { "configuration/parallelism.", 94 },
    { "configuration/activation_checkpoint.", 93 },
    { "configuration/optimizer.", 90 },
    { "configuration/loss.", 88 },
    { "configuration/lr_scheduler.", 86 },
    { "configuration/data.", 84 },
    { "configuration/debug.", 60 },
    { "configuration/validation.", 30 },
    { "configuration/checkpoint.", 28 },
    { "configuration/", 10 },
    { "environment/cpu/model", 95 },
    { "environment/cpu/", 80 },
    { "environment/cpu/mhz", 20 },
    { "environment/build/commit", 92 },
    { "environment/build/", 82 },
    { "environment/memory/", 50 },
    { "environment/memory/available_bytes", 0 },
    { "environment/memory/free_bytes", 0 },
    { "environment/memory_modules/", 60 },
    { "environment/settings/", 75 },
    { "environment/control_group/", 74 },
    { "environment/variables/", 70 },
    { "environment/variables/TRAINMARK_STORE", 0 },
    { "environment/variables_left_out", 0 },
    { "environment/libraries/", 55 },
    { "environment/libraries_total", 0 },
    { "environment/drivers/", 58 },
    { "environment/os/host", 45 },
    { "environment/os/", 48 },
    { "environment/board/", 35 },
    { "environment/disks/", 15 },
    { "environment/process", 0 },
    { "environment/unknown", 0 },
    { "environment/", 20 },
};

typedef struct {
    const char *member, *a, *b;
    int         weight;
} difference;

typedef struct {
    tm_arena   *arena;
    difference *rows;
    size_t      n, capacity;
} differences;

static int weight_of(const char *member)
{
    size_t longest = 0;
    int    weight = 0;
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++) {
        size_t n = strlen(weights[i].prefix);
        if (n < longest || strncmp(member, weights[i].prefix, n) != 0) continue;
        char last = weights[i].prefix[n - 1];
        if (last != '/' && last != '.' && member[n] && member[n] != '/') continue;
        longest = n;
        weight = weights[i].weight;
    }
    return weight;
}

static const char *shown(tm_arena *arena, const json_t *value)
{
    char text[32];
    if (json_is_string(value)) return tm_arena_text(arena, json_string_value(value));
    if (json_is_integer(value)) return tm_arena_format(arena, "%lld", (long long)json_integer_value(value));
    if (json_is_real(value)) return tm_arena_text(arena, tm_format_double(text, json_real_value(value)));
    if (json_is_boolean(value)) return json_is_true(value) ? "true" : "false";
    return value ? "null" : "";
}

static void add(differences *d, const char *member, const json_t *a, const json_t *b)
{
    int weight = weight_of(member);
    if (weight == 0) return;
    if (json_is_array(a) || json_is_array(b)) {
        char *left = a ? json_dumps(a, JSON_COMPACT) : NULL, *right = b ? json_dumps(b, JSON_COMPACT) : NULL;
        d->rows = tm_grow(d->rows, &d->capacity, d->n, sizeof *d->rows);
        d->rows[d->n++] = (difference){ tm_arena_text(d->arena, member), tm_arena_text(d->arena, left ? left : ""),
                                        tm_arena_text(d->arena, right ? right : ""), weight };
        free(left);
        free(right);
        return;
    }
    d->rows = tm_grow(d->rows, &d->capacity, d->n, sizeof *d->rows);
    d->rows[d->n++] = (difference){ tm_arena_text(d->arena, member), shown(d->arena, a), shown(d->arena, b), weight };
}

/* Every leaf below `path` that is not equal in both, or in one only. */
static void walk(differences *d, const char *path, json_t *a, json_t *b)
{
    const char *key;
    json_t     *value;
    if (!json_is_object(a) && !json_is_object(b)) {
        if ((a || b) && !json_equal(a, b)) add(d, path, a, b);
        return;
    }
    json_object_foreach(a, key, value)
    {
        walk(d, tm_arena_format(d->arena, "%s/%s", path, key), value, json_object_get(b, key));
    }
    json_object_foreach(b, key, value)
    {
        if (!json_object_get(a, key)) walk(d, tm_arena_format(d->arena, "%s/%s", path, key), NULL, value);
    }
}

/* The heaviest first; those of the same weight in the order of the file: by insertion, the lists are short. */
static void sort(differences *d)
{
    for (size_t i = 1; i < d->n; i++) {
        difference one = d->rows[i];
        size_t     k = i;
        for (; k > 0 && d->rows[k - 1].weight < one.weight; k--) d->rows[k] = d->rows[k - 1];
        d->rows[k] = one;
    }
}

tm_table *tm_results_differences(const tm_result *a, const tm_result *b)
{
    static const char *const parts[] = { "workload",   "model",        "precision", "device",        "kernels",
                                         "sums",       "devices",      "threads",   "data_source",   "seed",
                                         "parameters", "batch_tokens", "options",   "configuration", "environment" };
    static const tm_column   columns[] = { { "rank", 0 }, { "member", 0 }, { "a", 0 }, { "b", 0 } };
    tm_table                *table = tm_table_create("differences");
    differences              d = { .arena = tm_arena_create() };
    tm_table_columns(table, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        walk(&d, parts[i], json_object_get(results_tree(a), parts[i]), json_object_get(results_tree(b), parts[i]));
    sort(&d);
    for (size_t i = 0; i < d.n; i++) {
        tm_table_row(table);
        tm_table_i64(table, "rank", (int64_t)i + 1);
        tm_table_text(table, "member", d.rows[i].member);
        tm_table_text(table, "a", d.rows[i].a);
        tm_table_text(table, "b", d.rows[i].b);
    }
    free(d.rows);
    tm_arena_destroy(d.arena);
    return table;
}
