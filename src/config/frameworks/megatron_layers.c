/* SPDX-License-Identifier: Apache-2.0 */
/* config/frameworks/megatron_layers.c - moe_layer_freq: which layers have experts. */
#include "config/frameworks/megatron_values.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS_MAX = 255 }; /* digits of model.moe_pattern */

/* A reader of sums like ([0]*3+[1]*58): Python's lists of 0 and 1, repeated and joined. */
typedef struct {
    const char *at;
    char        layers[LAYERS_MAX + 1];
    int         n;
    int         depth;
} reader;

static bool next_is(reader *r, char c)
{
    while (isspace((unsigned char)*r->at)) r->at++;
    if (*r->at != c) return false;
    r->at++;
    return true;
}

static bool read_number(reader *r, long *out)
{
    char *end;
    while (isspace((unsigned char)*r->at)) r->at++;
    if (!isdigit((unsigned char)*r->at)) return false;
    *out = strtol(r->at, &end, 10);
    r->at = end;
    return true;
}

/* 0, 1, ... up to the bracket. */
static bool read_items(reader *r, char close)
{
    long item;
    do {
        if (!read_number(r, &item) || item > 1 || r->n >= LAYERS_MAX) return false;
        r->layers[r->n++] = (char)('0' + item);
    } while (next_is(r, ','));
    return close == '\0' || next_is(r, close);
}

/* What was read since `from`, so many times. */
static bool repeat(reader *r, int from, long times)
{
    int n = r->n - from;
    if (times > LAYERS_MAX || from + n * times > LAYERS_MAX) return false;
    r->n = from;
    for (long i = 0; i < times; i++, r->n += n)
        if (i > 0) memcpy(r->layers + r->n, r->layers + from, (size_t)n);
    return true;
}

static bool read_sum(reader *r) /* NOLINT(misc-no-recursion): parentheses, 8 deep */
{
    do {
        int  from = r->n;
        long times = 1, more;
        if (read_number(r, &times) && !next_is(r, '*')) return false;
        if (next_is(r, '(')) {
            if (++r->depth > 8 || !read_sum(r) || !next_is(r, ')')) return false;
            r->depth--;
        } else if (!next_is(r, '[') || !read_items(r, ']')) {
            return false;
        }
        if (!repeat(r, from, times)) return false;
        while (next_is(r, '*'))
            if (!read_number(r, &more) || !repeat(r, from, more)) return false;
    } while (next_is(r, '+'));
    return true;
}

/* Every n-th layer, the first of them. */
static const char *every(const tm_config *config, long n)
{
    if (n == 1) return "0,null";
    if (n < 1 || n > LAYERS_MAX) return NULL;
    char pattern[LAYERS_MAX + 1] = { '1' };
    memset(pattern + 1, '0', (size_t)n - 1);
    return tm_arena_format(config->arena, "0,%s", pattern);
}

const char *tm_megatron_expert_layers(const tm_config *config, const char *value)
{
    reader r = { .at = value };
    char  *end;
    long   n = strtol(value, &end, 10);
    if (end != value && !*end) return every(config, n);
    bool ok = isdigit((unsigned char)*value) && strchr(value, ',') ? read_items(&r, '\0') : read_sum(&r);
    while (isspace((unsigned char)*r.at)) r.at++;
    const char *layers = tm_foreign_text(config, "num_layers");
    if (!ok || *r.at || (layers && strtol(layers, NULL, 10) != r.n)) return NULL;
    int dense = (int)strspn(r.layers, "0");
    if (dense == r.n) return NULL;
    if ((int)strspn(r.layers + dense, "1") == r.n - dense) return tm_arena_format(config->arena, "%d,null", dense);
    return tm_arena_format(config->arena, "0,%s", r.layers);
}
