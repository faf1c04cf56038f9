/* SPDX-License-Identifier: Apache-2.0 */
#include "base/gguf.h"

#include "base/arena.h"
#include "base/map.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The names of keys as the published reader has them; alignments beyond a page bring nothing. */
enum { MAX_NAME = 65535, MAX_ALIGNMENT = 1 << 16, SMALLEST_VALUE = 13, SMALLEST_TENSOR = 24 };

struct tm_gguf {
    tm_arena       *arena;
    tm_map          map;
    const char     *name;
    const uint8_t  *bytes;
    size_t          size, at; /* at: what is read next, of the head */
    tm_gguf_value  *values;
    size_t          n_values, values_room;
    tm_gguf_tensor *tensors;
    size_t          n_tensors, tensors_room;
};

/* --- pieces of the head ------------------------------------------------------------------------------------------- */

static size_t left(const tm_gguf *g)
{
    return g->size - g->at;
}

static uint64_t little(const uint8_t *bytes, size_t n)
{
    uint64_t value = 0;
    for (size_t i = n; i > 0; i--) value = value << 8 | bytes[i - 1];
    return value;
}

static tm_status ends(const tm_gguf *g, const char *where, tm_error *err)
{
    return tm_fail(err, TM_FORMAT, "'%s' ends at byte %zu, within %.200s; the file is damaged or was truncated",
                   g->name, g->size, where);
}

static tm_status read_number(tm_gguf *g, size_t bytes, const char *where, uint64_t *out, tm_error *err)
{
    *out = 0;
    if (left(g) < bytes) return ends(g, where, err);
    *out = little(g->bytes + g->at, bytes);
    g->at += bytes;
    return TM_OK;
}

static tm_status read_text(tm_gguf *g, const char *where, const char **out, size_t *n, tm_error *err)
{
    uint64_t length;
    TM_TRY(read_number(g, 8, where, &length, err));
    if (length > left(g)) return ends(g, where, err);
    *out = (const char *)g->bytes + g->at;
    *n = (size_t)length;
    g->at += (size_t)length;
    return TM_OK;
}

/* A key or the name of a tensor, as text of the arena. */
static tm_status read_name(tm_gguf *g, const char *where, const char **out, tm_error *err)
{
    const char *text;
    size_t      n;
    TM_TRY(read_text(g, where, &text, &n, err));
    if (n == 0 || n > MAX_NAME || memchr(text, 0, n))
        return tm_fail(err, TM_FORMAT, "'%s': the name at byte %zu, of %s, %s", g->name, g->at - n, where,
                       n == 0         ? "is empty"
                       : n > MAX_NAME ? "is too long"
                                      : "has a NUL in it");
    *out = tm_arena_text_n(g->arena, text, n);
    return TM_OK;
}

/* --- values ------------------------------------------------------------------------------------------------------- */

/* Bytes of an element; 0: it has no fixed size, or is no type. */
static size_t size_of(uint64_t type)
{
    static const uint8_t sizes[TM_GGUF_TYPES] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };
    return type < TM_GGUF_TYPES ? sizes[type] : 0;
}

static tm_status check_bools(const tm_gguf *g, const tm_gguf_value *v, tm_error *err)
{
    for (uint64_t i = 0; v->type == TM_GGUF_BOOL && i < v->count; i++)
        if (v->bytes[i] > 1)
            return tm_fail(err, TM_FORMAT, "'%s': '%.200s' is neither true nor false but %d", g->name, v->key,
                           v->bytes[i]);
    return TM_OK;
}

/* v->count elements of v->type from g->at on. */
static tm_status read_elements(tm_gguf *g, tm_gguf_value *v, tm_error *err)
{
    size_t      size = size_of(v->type), n;
    const char *text;
    v->bytes = g->bytes + g->at;
    if (size && v->count > left(g) / size) return ends(g, v->key, err);
    if (size) {
        g->at += (size_t)v->count * size;
        return check_bools(g, v, err);
    }
    if (v->type != TM_GGUF_TEXT)
        return tm_fail(err, v->type == TM_GGUF_ARRAY ? TM_UNSUPPORTED : TM_FORMAT, "'%s': '%.200s' %s", g->name, v->key,
                       v->type == TM_GGUF_ARRAY ? "is an array of arrays, which is not read"
                                                : "has a type that GGUF does not know");
    if (v->count > left(g) / 8) return ends(g, v->key, err);
    for (uint64_t i = 0; i < v->count; i++) TM_TRY(read_text(g, v->key, &text, &n, err));
    return TM_OK;
}

static tm_status read_value(tm_gguf *g, tm_error *err)
{
    tm_gguf_value v = { .count = 1 };
    uint64_t      type;
    TM_TRY(read_name(g, "its keys", &v.key, err));
    TM_TRY(read_number(g, 4, v.key, &type, err));
    v.array = type == TM_GGUF_ARRAY;
    if (v.array) {
        TM_TRY(read_number(g, 4, v.key, &type, err));
        TM_TRY(read_number(g, 8, v.key, &v.count, err));
    }
    v.type = type < TM_GGUF_TYPES ? (tm_gguf_type)type : TM_GGUF_TYPES;
    TM_TRY(read_elements(g, &v, err));
    g->values = tm_grow(g->values, &g->values_room, g->n_values, sizeof *g->values);
    g->values[g->n_values++] = v;
    return TM_OK;
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

static tm_status read_axes(tm_gguf *g, tm_gguf_tensor *t, int64_t *elements, tm_error *err)
{
    uint64_t rank, n;
    TM_TRY(read_number(g, 4, t->name, &rank, err));
    if (rank < 1 || rank > TM_GGUF_MAX_AXES)
        return tm_fail(err, TM_FORMAT, "'%s': tensor '%.200s' has %llu axes, wanted 1 to %d", g->name, t->name,
                       (unsigned long long)rank, TM_GGUF_MAX_AXES);
    t->rank = (int)rank;
    *elements = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        TM_TRY(read_number(g, 8, t->name, &n, err));
        t->n[i] = n <= INT64_MAX ? (int64_t)n : -1;
        if (t->n[i] < 1)
            return tm_fail(err, TM_FORMAT, "'%s': an axis of tensor '%.200s' has no possible length: %llu", g->name,
                           t->name, (unsigned long long)n);
        if (__builtin_mul_overflow(*elements, t->n[i], elements) || *elements > INT64_MAX / 8)
            return tm_fail(err, TM_FORMAT, "'%s': the shape of tensor '%.200s' is larger than any memory", g->name,
                           t->name);
    }
    return TM_OK;
}

static const struct {
    const char *name;
    uint32_t    format;
    int         elements, bytes; /* of a block; 0: not read */
} formats[] = {
    { "f32", TM_GGUF_FORMAT_F32, 1, 4 },
    { "f16", TM_GGUF_FORMAT_F16, 1, 2 },
    { "bf16", TM_GGUF_FORMAT_BF16, 1, 2 },
    { "q8_0", TM_GGUF_FORMAT_Q8_0, TM_Q8_0_ELEMENTS, TM_Q8_0_BYTES },
    { "q4_0", 2, 0, 0 },
    { "q4_1", 3, 0, 0 },
    { "q5_0", 6, 0, 0 },
    { "q5_1", 7, 0, 0 },
    { "q8_1", 9, 0, 0 },
    { "q2_K", 10, 0, 0 },
    { "q3_K", 11, 0, 0 },
    { "q4_K", 12, 0, 0 },
    { "q5_K", 13, 0, 0 },
    { "q6_K", 14, 0, 0 },
    { "q8_K", 15, 0, 0 },
    { "iq2_xxs", 16, 0, 0 },
    { "iq2_xs", 17, 0, 0 },
    { "iq3_xxs", 18, 0, 0 },
    { "iq1_s", 19, 0, 0 },
    { "iq4_nl", 20, 0, 0 },
    { "iq3_s", 21, 0, 0 },
    { "iq2_s", 22, 0, 0 },
    { "iq4_xs", 23, 0, 0 },
    { "iq1_m", 29, 0, 0 },
    { "tq1_0", 34, 0, 0 },
    { "tq2_0", 35, 0, 0 },
    { "mxfp4", 39, 0, 0 },
    { "nvfp4", 40, 0, 0 },
};
enum { FORMATS = sizeof formats / sizeof formats[0] };

const char *tm_gguf_format_name(uint32_t format, char room[32])
{
    for (int i = 0; i < FORMATS; i++)
        if (formats[i].format == format) return formats[i].name;
    snprintf(room, 32, "number %u", format);
    return room;
}

size_t tm_gguf_bytes(uint32_t format, int64_t n)
{
    for (int i = 0; i < FORMATS; i++)
        if (formats[i].format == format && formats[i].elements > 0)
            return (size_t)(n / formats[i].elements * formats[i].bytes);
    return 0;
}

static tm_status read_tensor(tm_gguf *g, tm_error *err)
{
    tm_gguf_tensor t = { .rank = 0 };
    uint64_t       format, offset;
    int64_t        elements = 0;
    TM_TRY(read_name(g, "its tensors", &t.name, err));
    TM_TRY(read_axes(g, &t, &elements, err));
    TM_TRY(read_number(g, 4, t.name, &format, err));
    TM_TRY(read_number(g, 8, t.name, &offset, err));
    t.format = (uint32_t)format;
    if (t.format == TM_GGUF_FORMAT_Q8_0 && t.n[t.rank - 1] % TM_Q8_0_ELEMENTS)
        return tm_fail(err, TM_FORMAT, "'%s': rows of %lld elements of tensor '%.200s' are no whole blocks of q8_0",
                       g->name, (long long)t.n[t.rank - 1], t.name);
    t.bytes = tm_gguf_bytes(t.format, elements);
    t.offset = offset <= INT64_MAX ? (int64_t)offset : -1; /* of the data so far */
    if (t.offset < 0) return tm_fail(err, TM_FORMAT, "'%s': tensor '%.200s' begins beyond every file", g->name, t.name);
    g->tensors = tm_grow(g->tensors, &g->tensors_room, g->n_tensors, sizeof *g->tensors);
    g->tensors[g->n_tensors++] = t;
    return TM_OK;
}

static tm_status read_alignment(const tm_gguf *g, size_t *out, tm_error *err)
{
    int64_t alignment = 32;
    if (tm_gguf_find(g, "general.alignment") && (!tm_gguf_whole(g, "general.alignment", &alignment) || alignment < 8 ||
                                                 alignment > MAX_ALIGNMENT || (alignment & (alignment - 1))))
        return tm_fail(err, TM_FORMAT, "'%s': general.alignment is no power of two from 8 to %d", g->name,
                       MAX_ALIGNMENT);
    *out = (size_t)alignment;
    return TM_OK;
}

static int by_place(const void *a, const void *b)
{
    const tm_gguf_tensor *x = a, *y = b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Tensors are within the data, aligned, and apart from each other. */
static tm_status place_tensors(tm_gguf *g, tm_error *err)
{
    size_t alignment = 32;
    TM_TRY(read_alignment(g, &alignment, err));
    size_t  data = (g->at + alignment - 1) / alignment * alignment;
    int64_t room = data < g->size ? (int64_t)(g->size - data) : 0, end = 0;
    if (g->n_tensors) qsort(g->tensors, g->n_tensors, sizeof *g->tensors, by_place);
    for (size_t i = 0; i < g->n_tensors; i++) {
        tm_gguf_tensor *t = &g->tensors[i];
        if ((size_t)t->offset % alignment)
            return tm_fail(err, TM_FORMAT, "'%s': tensor '%.200s' begins at byte %lld of the data, no multiple of %zu",
                           g->name, t->name, (long long)t->offset, alignment);
        if (t->offset > room || (int64_t)t->bytes > room - t->offset)
            return tm_fail(err, TM_FORMAT,
                           "'%s': tensor '%.200s' is at bytes %lld to %lld of the data, which has %lld; the file is "
                           "damaged or was truncated",
                           g->name, t->name, (long long)t->offset, (long long)t->offset + (long long)t->bytes,
                           (long long)room);
        if (t->offset < end)
            return tm_fail(err, TM_FORMAT, "'%s': tensor '%.200s' begins within another, at byte %lld of the data",
                           g->name, t->name, (long long)t->offset);
        end = t->offset + (int64_t)t->bytes;
        t->offset += (int64_t)data;
        t->data = t->bytes ? g->bytes + t->offset : NULL;
    }
    return TM_OK;
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

static int by_key(const void *a, const void *b)
{
    return strcmp(((const tm_gguf_value *)a)->key, ((const tm_gguf_value *)b)->key);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const tm_gguf_tensor *)a)->name, ((const tm_gguf_tensor *)b)->name);
}

static tm_status sort_values(tm_gguf *g, tm_error *err)
{
    if (g->n_values) qsort(g->values, g->n_values, sizeof *g->values, by_key);
    for (size_t i = 1; i < g->n_values; i++)
        if (strcmp(g->values[i].key, g->values[i - 1].key) == 0)
            return tm_fail(err, TM_FORMAT, "'%s' has the key '%.200s' twice", g->name, g->values[i].key);
    return TM_OK;
}

static tm_status sort_tensors(tm_gguf *g, tm_error *err)
{
    if (g->n_tensors) qsort(g->tensors, g->n_tensors, sizeof *g->tensors, by_name);
    for (size_t i = 1; i < g->n_tensors; i++)
        if (strcmp(g->tensors[i].name, g->tensors[i - 1].name) == 0)
            return tm_fail(err, TM_FORMAT, "'%s' has the tensor '%.200s' twice", g->name, g->tensors[i].name);
    return TM_OK;
}

static tm_status check_version(const tm_gguf *g, uint64_t version, tm_error *err)
{
    if (version == 2 || version == 3) return TM_OK;
    if (version > 0xffff && (version & 0xffff) == 0)
        return tm_fail(err, TM_UNSUPPORTED, "'%s' is a GGUF file of a big-endian machine; only little-endian is read",
                       g->name);
    return tm_fail(
        err, TM_UNSUPPORTED,
        "'%s' is a GGUF file of version %llu; 2 and 3 are read; convert the model anew with today's llama.cpp", g->name,
        (unsigned long long)version);
}

static tm_status read_file(tm_gguf *g, tm_error *err)
{
    uint64_t version, tensors, values;
    if (g->size < 4 || memcmp(g->bytes, "GGUF", 4) != 0)
        return tm_fail(err, TM_FORMAT, "'%s' does not begin with 'GGUF'; not a GGUF file", g->name);
    g->at = 4;
    TM_TRY(read_number(g, 4, "its head", &version, err));
    TM_TRY(check_version(g, version, err));
    TM_TRY(read_number(g, 8, "its head", &tensors, err));
    TM_TRY(read_number(g, 8, "its head", &values, err));
    if (values > left(g) / SMALLEST_VALUE || tensors > left(g) / SMALLEST_TENSOR)
        return tm_fail(err, TM_FORMAT,
                       "'%s' says that it has %llu values and %llu tensors, more than its %zu bytes can hold; it is "
                       "damaged or was truncated",
                       g->name, (unsigned long long)values, (unsigned long long)tensors, g->size);
    for (uint64_t i = 0; i < values; i++) TM_TRY(read_value(g, err));
    TM_TRY(sort_values(g, err));
    for (uint64_t i = 0; i < tensors; i++) TM_TRY(read_tensor(g, err));
    TM_TRY(place_tensors(g, err));
    return sort_tensors(g, err);
}

static tm_gguf *create(const char *name)
{
    tm_gguf *g = tm_alloc(sizeof *g);
    *g = (tm_gguf){ .arena = tm_arena_create() };
    g->name = tm_arena_text(g->arena, name);
    return g;
}

static tm_status hand_over(tm_gguf *g, tm_status st, tm_gguf **out)
{
    if (st == TM_OK)
        *out = g;
    else
        tm_gguf_close(g);
    return st;
}

tm_status tm_gguf_parse(const char *name, const uint8_t *bytes, size_t size, tm_gguf **out, tm_error *err)
{
    tm_gguf *g = create(name);
    g->bytes = bytes;
    g->size = size;
    return hand_over(g, read_file(g, err), out);
}

tm_status tm_gguf_open(const char *path, tm_gguf **out, tm_error *err)
{
    tm_gguf  *g = create(path);
    tm_status st = tm_map_open(path, &g->map, err);
    g->bytes = g->map.bytes;
    g->size = (size_t)g->map.size;
    return hand_over(g, st == TM_OK ? read_file(g, err) : st, out);
}

void tm_gguf_close(tm_gguf *gguf)
{
    if (!gguf) return;
    tm_map_close(&gguf->map);
    free(gguf->values);
    free(gguf->tensors);
    tm_arena_destroy(gguf->arena);
    free(gguf);
}

bool tm_is_gguf(const char *path)
{
    char        begin[4] = { 0 };
    size_t      n = strlen(path);
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) return false;
    if (n > 5 && strcmp(path + n - 5, ".gguf") == 0) return true;
    int     file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : read(file, begin, sizeof begin);
    if (file >= 0) close(file);
    return got == sizeof begin && memcmp(begin, "GGUF", 4) == 0;
}

/* --- asking ------------------------------------------------------------------------------------------------------- */

const char *tm_gguf_name(const tm_gguf *gguf)
{
    return gguf->name;
}

const tm_gguf_value *tm_gguf_values(const tm_gguf *gguf, size_t *n)
{
    *n = gguf->n_values;
    return gguf->values;
}

const tm_gguf_tensor *tm_gguf_tensors(const tm_gguf *gguf, size_t *n)
{
    *n = gguf->n_tensors;
    return gguf->tensors;
}

const tm_gguf_value *tm_gguf_find(const tm_gguf *gguf, const char *key)
{
    tm_gguf_value wanted = { .key = key };
    return gguf->n_values ? bsearch(&wanted, gguf->values, gguf->n_values, sizeof wanted, by_key) : NULL;
}

const tm_gguf_tensor *tm_gguf_find_tensor(const tm_gguf *gguf, const char *name)
{
    tm_gguf_tensor wanted = { .name = name };
    return gguf->n_tensors ? bsearch(&wanted, gguf->tensors, gguf->n_tensors, sizeof wanted, by_name) : NULL;
}

const char *tm_gguf_next_text(const uint8_t **at, size_t *n)
{
    const char *text = (const char *)*at + 8;
    *n = (size_t)little(*at, 8);
    *at += 8 + *n;
    return text;
}

const char *tm_gguf_text(const tm_gguf *gguf, const char *key, size_t *n)
{
    const tm_gguf_value *v = tm_gguf_find(gguf, key);
    if (!v || v->array || v->type != TM_GGUF_TEXT) return NULL;
    const uint8_t *at = v->bytes;
    return tm_gguf_next_text(&at, n);
}

/* An element's bits, extended by its sign. */
static int64_t whole(const tm_gguf_value *v, uint64_t i)
{
    size_t   size = size_of(v->type);
    uint64_t bits = little(v->bytes + i * size, size);
    bool     sign = v->type == TM_GGUF_I8 || v->type == TM_GGUF_I16 || v->type == TM_GGUF_I32;
    if (sign && bits >> (8 * size - 1)) bits |= ~UINT64_C(0) << 8 * size;
    return (int64_t)bits;
}

static bool is_float(tm_gguf_type type)
{
    return type == TM_GGUF_F32 || type == TM_GGUF_F64;
}

bool tm_gguf_whole(const tm_gguf *gguf, const char *key, int64_t *out)
{
    const tm_gguf_value *v = tm_gguf_find(gguf, key);
    if (!v || v->array || v->type == TM_GGUF_TEXT || is_float(v->type)) return false;
    *out = whole(v, 0);
    return v->type != TM_GGUF_U64 || *out >= 0;
}

double tm_gguf_number(const tm_gguf_value *value, uint64_t i)
{
    float  narrow;
    double wide;
    if (value->type == TM_GGUF_F32) {
        memcpy(&narrow, value->bytes + 4 * i, sizeof narrow);
        return (double)narrow;
    }
    if (value->type == TM_GGUF_F64) {
        memcpy(&wide, value->bytes + 8 * i, sizeof wide);
        return wide;
    }
    int64_t bits = whole(value, i);
    return value->type == TM_GGUF_U64 ? (double)(uint64_t)bits : (double)bits;
}

const tm_gguf_value *tm_gguf_array(const tm_gguf *gguf, const char *key, tm_gguf_type type)
{
    const tm_gguf_value *v = tm_gguf_find(gguf, key);
    return v && v->array && v->type == type ? v : NULL;
}
