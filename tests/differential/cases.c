/* SPDX-License-Identifier: Apache-2.0 */
/* The table of dimensions is in rows.c; here cases are drawn from it, written, read and made simpler. */
#include "cases.h"

#include "base/random.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_WORK = 64 };

static int text_length(const char *value)
{
    const char *colon = strstr(value, ": ");
    return colon ? (int)(colon - value) : (int)strlen(value);
}

static size_t row_of(const char *name, size_t length)
{
    size_t r = 0;
    while (r < n_dimensions && (strlen(dimensions[r].name) != length || strncmp(dimensions[r].name, name, length) != 0))
        r++;
    return r;
}

static size_t value_count(const dimension *r)
{
    size_t n = 0;
    while (n < MOST_VALUES && r->values[n]) n++;
    return n;
}

const char *value_of(const setting *s, const char *name, int *length)
{
    size_t r = row_of(name, strlen(name));
    TM_ASSERT(r < n_dimensions);
    if (s->value[r] == 0) return NULL;
    const char *value = dimensions[r].values[s->value[r] - 1];
    *length = text_length(value);
    return value;
}

bool is_set(const setting *s, const char *name)
{
    int length;
    return value_of(s, name, &length) != NULL;
}

int64_t number_of(const setting *s, const char *name, int64_t fallback)
{
    int         length;
    const char *text = value_of(s, name, &length);
    return text ? strtoll(text, NULL, 10) : fallback;
}

int data_ranks_of_case(const setting *s)
{
    return (int)(number_of(s, "parallelism.data_parallel_replicate_degree", 1) *
                 number_of(s, "parallelism.data_parallel_shard_degree", 1));
}

int ranks_of_case(const setting *s, unsigned effects)
{
    static const char *const degrees[] = {
        "parallelism.data_parallel_replicate_degree", "parallelism.data_parallel_shard_degree",
        "parallelism.context_parallel_degree",        "parallelism.tensor_parallel_degree",
        "parallelism.pipeline_parallel_degree",
    };
    int ranks = 1;
    for (size_t i = 0; i < sizeof degrees / sizeof degrees[0]; i++)
        if (effects & (1U << dimensions[row_of(degrees[i], strlen(degrees[i]))].effect))
            ranks *= (int)number_of(s, degrees[i], 1);
    return ranks;
}

/* One word of a condition. */
static bool word_holds(const setting *s, const char *word, size_t length)
{
    if (length == 7 && strncmp(word, "ranks>1", 7) == 0) return ranks_of_case(s, LAYOUT_KEYS) > 1;
    if (length == 8 && strncmp(word, "shared>1", 8) == 0)
        return ranks_of_case(s, LAYOUT_KEYS) > number_of(s, "parallelism.pipeline_parallel_degree", 1) *
                                                   number_of(s, "parallelism.data_parallel_replicate_degree", 1);
    bool        negated = *word == '!';
    const char *name = word + negated, *end = word + length, *equals = memchr(word, '=', length);
    size_t      r = row_of(name, (size_t)((equals ? equals : end) - name));
    TM_ASSERT(r < n_dimensions); /* a condition is about a row */
    if (s->value[r] == 0) return negated;
    if (!equals) return !negated;
    const char *value = dimensions[r].values[s->value[r] - 1];
    size_t      n = (size_t)text_length(value);
    for (const char *at = equals + 1; at < end; at += strcspn(at, ", ") + 1)
        if (strcspn(at, ", ") == n && strncmp(at, value, n) == 0) return !negated;
    return negated;
}

static bool holds(const setting *s, const char *when)
{
    for (const char *word = when; word && *word; word += strspn(word, " ")) {
        size_t n = strcspn(word, " ");
        if (!word_holds(s, word, n)) return false;
        word += n;
    }
    return true;
}

/* Of the comparisons two, which keeps a case short. */
static void keep_few(setting *s, uint64_t seed, uint64_t number)
{
    size_t made[MOST_ROWS], n = 0;
    for (size_t r = 0; r < n_dimensions; r++)
        if (dimensions[r].effect == COMPARED && s->value[r]) made[n++] = r;
    for (uint64_t i = 0; n > 2; i++) {
        size_t out = tm_random_below(seed, ~number, i, n);
        s->value[made[out]] = 0;
        made[out] = made[--n];
    }
}

/* Of one rank with all samples, by the references, in units of a step of one layer: a case shall take no seconds. */
static double work_of(const setting *s)
{
    if (is_set(s, "size")) return 0; /* runs on the fast kernels only */
    double width = (double)number_of(s, "model.dim", 32) / 32, rows = (double)number_of(s, "training.seq_len", 16) / 16;
    double work = (double)number_of(s, "model.n_layers", 2) * width * width * rows *
                  (double)number_of(s, "training.local_batch_size", 2) *
                  (double)number_of(s, "training.grad_accumulation", 1) * data_ranks_of_case(s);
    if (is_set(s, "quantize.recipe") || is_set(s, "quantize.experts_recipe")) work *= 3;
    return is_set(s, "quantize.output_recipe") ? work * 2 : work;
}

setting draw(uint64_t seed, uint64_t number)
{
    TM_ASSERT(n_dimensions <= MOST_ROWS);
    for (uint64_t again = 0;; again++) {
        setting s = { 0 };
        for (size_t r = 0; r < n_dimensions; r++) {
            uint64_t stream = number * 1000 + again, index = r * 2;
            if (tm_random_below(seed, stream, index, (uint64_t)dimensions[r].odds) != 0 ||
                !holds(&s, dimensions[r].when))
                continue;
            s.value[r] = (unsigned char)(1 + tm_random_below(seed, stream, index + 1, value_count(&dimensions[r])));
        }
        keep_few(&s, seed, number);
        if (ranks_of_case(&s, LAYOUT_KEYS) <= MOST_DEGREE && work_of(&s) <= MOST_WORK) return s;
    }
}

void words_of(const setting *s, unsigned effects, tm_text *out)
{
    for (size_t r = 0; r < n_dimensions; r++) {
        if (s->value[r] == 0 || !(effects & (1U << dimensions[r].effect))) continue;
        const char *value = dimensions[r].values[s->value[r] - 1], *colon = strstr(value, ": ");
        if (out->length) tm_text_add(out, " ");
        if (colon)
            tm_text_printf(out, "%s", colon + 2);
        else
            tm_text_printf(out, "--%s %s", dimensions[r].name, value);
    }
    int ranks = ranks_of_case(s, effects);
    if (ranks > 1) tm_text_printf(out, " --parallelism.ranks %d", ranks);
}

void name_of(const setting *s, tm_text *out)
{
    for (size_t r = 0; r < n_dimensions; r++) {
        if (s->value[r] == 0) continue;
        const char *value = dimensions[r].values[s->value[r] - 1];
        tm_text_printf(out, "%s%s=%.*s", out->length ? " " : "", dimensions[r].name, text_length(value), value);
    }
}

bool setting_of(const char *name, setting *out)
{
    *out = (setting){ 0 };
    for (const char *word = name; *word; word += strspn(word, " ")) {
        size_t length = strcspn(word, "= "), n = strcspn(word, " "), r = row_of(word, length), v = 0;
        if (r == n_dimensions || length == n) return false;
        const char *text = word + length + 1;
        while (v < value_count(&dimensions[r]) && ((size_t)text_length(dimensions[r].values[v]) != n - length - 1 ||
                                                   strncmp(dimensions[r].values[v], text, n - length - 1) != 0))
            v++;
        if (v == value_count(&dimensions[r])) return false;
        out->value[r] = (unsigned char)(v + 1);
        word += n;
    }
    return out->value[0] != 0;
}

bool simpler(const setting *s, size_t *at, setting *out)
{
    for (; *at < n_dimensions * MOST_VALUES; (*at)++) {
        size_t r = *at / MOST_VALUES, v = *at % MOST_VALUES; /* v 0: not set; the first row always is */
        if (v >= s->value[r] || (r == 0 && v == 0)) continue;
        *out = *s;
        out->value[r] = (unsigned char)v;
        for (size_t k = 0; k < n_dimensions; k++)
            if (!holds(out, dimensions[k].when)) out->value[k] = 0;
        (*at)++;
        return true;
    }
    return false;
}
