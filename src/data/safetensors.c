/* SPDX-License-Identifier: Apache-2.0 */
#include "data/safetensors.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/text.h"
#include "base/map.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of the header: as the published reader has it. Of an index: ten times the longest one published. */
enum { MAX_HEADER = 100000000, MAX_INDEX = 64 << 20, MAX_NAME = 1024 };

static const struct {
    const char *name;
    int         bits;
    tm_dtype    ours;
} dtypes[] = {
#define X(text, width, format) { text, width, format },
    TM_SAFETENSORS_DTYPES(X)
#undef X
};
enum { DTYPES = sizeof dtypes / sizeof dtypes[0] };

typedef struct {
    const char    *name; /* for messages */
    tm_map         map;
    const uint8_t *bytes;
    size_t         size, data; /* data: where the tensors begin */
    json_t        *header;
} shard;

struct tm_safetensors {
    tm_arena         *arena;
    shard           **shards;
    size_t            n_shards, shards_capacity;
    tm_stored_tensor *tensors;
    size_t            n, capacity;
    void             *owner; /* of tensors of another kind of file; NULL: the shards are */
    void (*release)(void *owner);
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const tm_stored_tensor *)a)->name, ((const tm_stored_tensor *)b)->name);
}

static int by_place(const void *a, const void *b)
{
    const tm_stored_tensor *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; /* empty ones first */
}

char *tm_stored_shape_text(char out[192], const tm_stored_tensor *tensor)
{
    size_t at = (size_t)snprintf(out, 192, "[");
    for (int i = 0; i < tensor->rank; i++)
        at += (size_t)snprintf(out + at, 192 - at, "%s%lld", i ? ", " : "", (long long)tensor->n[i]);
    snprintf(out + at, 192 - at, "]");
    return out;
}

/* --- the header --------------------------------------------------------------------------------------------------- */

/* A whole number >= 0 of JSON. */
static bool count_of(const json_t *value, int64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    *out = json_integer_value(value);
    return true;
}

static tm_status read_dtype(const shard *s, const json_t *row, tm_stored_tensor *t, int *bits, tm_error *err)
{
    const char *name = json_string_value(json_object_get(row, "dtype"));
    if (!name) return tm_fail(err, TM_FORMAT, "'%s': tensor '%.200s' has no dtype", s->name, t->name);
    for (int i = 0; i < DTYPES; i++) {
        if (strcmp(dtypes[i].name, name) != 0) continue;
        t->dtype_name = dtypes[i].name;
        t->dtype = dtypes[i].ours;
        *bits = dtypes[i].bits;
        return TM_OK;
    }
    return tm_fail(err, TM_FORMAT, "'%s': tensor '%.200s' has the unknown dtype '%.40s'", s->name, t->name, name);
}

/* Shape and bytes that follow from it. */
static tm_status read_shape(const shard *s, const json_t *row, int bits, tm_stored_tensor *t, int64_t *bytes,
                            tm_error *err)
{
    const json_t *shape = json_object_get(row, "shape");
    if (!json_is_array(shape))
        return tm_fail(err, TM_FORMAT, "'%s': tensor '%.200s' has no list 'shape'", s->name, t->name);
    if (json_array_size(shape) > TM_SAFETENSORS_MAX_RANK)
        return tm_fail(err, TM_FORMAT, "'%s': tensor '%.200s' has %zu axes, %d are the most that can be read", s->name,
                       t->name, json_array_size(shape), TM_SAFETENSORS_MAX_RANK);
    t->rank = (int)json_array_size(shape);
    int64_t total = bits;
    for (int i = 0; i < t->rank; i++) {
        if (!count_of(json_array_get(shape, (size_t)i), &t->n[i]))
            return tm_fail(err, TM_FORMAT, "'%s': tensor '%.200s': axis %d of its shape is not a whole number >= 0",
                           s->name, t->name, i);
        if (__builtin_mul_overflow(total, t->n[i], &total))
            return tm_fail(err, TM_FORMAT, "'%s': the shape of tensor '%.200s' is larger than any memory", s->name,
                           t->name);
    }
    if (total % 8)
        return tm_fail(err, TM_FORMAT, "'%s': tensor '%.200s' ends within a byte (%s)", s->name, t->name,
                       t->dtype_name);
    *bytes = total / 8;
    return TM_OK;
}

static tm_status read_place(const shard *s, const json_t *row, int64_t wanted, tm_stored_tensor *t, tm_error *err)
{
    const json_t *place = json_object_get(row, "data_offsets");
    int64_t       begin, end, room = (int64_t)(s->size - s->data);
    char          shape[192];
    if (!json_is_array(place) || json_array_size(place) != 2 || !count_of(json_array_get(place, 0), &begin) ||
        !count_of(json_array_get(place, 1), &end))
        return tm_fail(err, TM_FORMAT, "'%s': tensor '%.200s' has no data_offsets [begin, end]", s->name, t->name);
    if (begin > end || end > room)
        return tm_fail(
            err, TM_FORMAT,
            "'%s': tensor '%.200s' is at bytes %lld to %lld of the data, which has %lld; the file is damaged "
            "or was truncated",
            s->name, t->name, (long long)begin, (long long)end, (long long)room);
    if (end - begin != wanted)
        return tm_fail(err, TM_FORMAT,
                       "'%s': tensor '%.200s' at offset %lld has %lld bytes, but %s of shape %s takes %lld", s->name,
                       t->name, (long long)begin, (long long)(end - begin), t->dtype_name,
                       tm_stored_shape_text(shape, t), (long long)wanted);
    t->bytes = (size_t)wanted;
    t->offset = (int64_t)s->data + begin;
    t->data = wanted > 0 ? s->bytes + s->data + begin : NULL;
    return TM_OK;
}

static tm_status read_row(tm_safetensors *set, shard *s, const char *name, const json_t *row, tm_error *err)
{
    tm_stored_tensor t = { .name = name, .file = s->name };
    int              bits = 0;
    int64_t          bytes = 0;
    if (!*name || strlen(name) > MAX_NAME)
        return tm_fail(err, TM_FORMAT, "'%s': the name of a tensor is %s", s->name, *name ? "too long" : "empty");
    if (!json_is_object(row))
        return tm_fail(err, TM_FORMAT, "'%s': tensor '%.200s' is not described by an object", s->name, name);
    TM_TRY(read_dtype(s, row, &t, &bits, err));
    TM_TRY(read_shape(s, row, bits, &t, &bytes, err));
    TM_TRY(read_place(s, row, bytes, &t, err));
    set->tensors = tm_grow(set->tensors, &set->capacity, set->n, sizeof *set->tensors);
    set->tensors[set->n++] = t;
    return TM_OK;
}

/* One behind the other, from the first byte to the last. */
static tm_status check_gaps(const shard *s, tm_stored_tensor *tensors, size_t n, tm_error *err)
{
    int64_t at = (int64_t)s->data;
    if (n > 0) qsort(tensors, n, sizeof *tensors, by_place);
    for (size_t i = 0; i < n; i++) {
        if (tensors[i].offset != at)
            return tm_fail(
                err, TM_FORMAT,
                "'%s': tensor '%.200s' begins at byte %lld of the file, %s byte %lld where the one before it ends",
                s->name, tensors[i].name, (long long)tensors[i].offset,
                tensors[i].offset < at ? "within another: before" : "after a gap: after", (long long)at);
        at += (int64_t)tensors[i].bytes;
    }
    if ((size_t)at != s->size)
        return tm_fail(err, TM_FORMAT, "'%s' has %zu bytes, its tensors end at byte %lld; the file is damaged", s->name,
                       s->size, (long long)at);
    return TM_OK;
}

static tm_status check_metadata(const shard *s, const json_t *metadata, tm_error *err)
{
    const char *key;
    json_t     *value;
    if (!json_is_object(metadata)) return tm_fail(err, TM_FORMAT, "'%s': __metadata__ is not an object", s->name);
    json_object_foreach((json_t *)metadata, key, value) if (!json_is_string(value)) return tm_fail(
        err, TM_FORMAT, "'%s': '%.100s' of __metadata__ is not a text", s->name, key);
    return TM_OK;
}

static tm_status read_header(tm_safetensors *set, shard *s, tm_error *err)
{
    uint64_t length = 0;
    if (s->size < 8)
        return tm_fail(err, TM_FORMAT, "'%s' has %zu bytes, too few for a safetensors file", s->name, s->size);
    for (int i = 7; i >= 0; i--) length = length << 8 | s->bytes[i];
    if (length > MAX_HEADER || length > s->size - 8)
        return tm_fail(
            err, TM_FORMAT,
            "'%s': the header should have %llu bytes, the file has %zu (100 MB are the most); it is damaged or "
            "not a safetensors file",
            s->name, (unsigned long long)length, s->size);
    if (length == 0 || s->bytes[8] != '{')
        return tm_fail(err, TM_FORMAT, "'%s': the header does not begin with '{'; not a safetensors file", s->name);
    json_error_t problem;
    s->data = 8 + (size_t)length;
    s->header = json_loadb((const char *)s->bytes + 8, (size_t)length, JSON_REJECT_DUPLICATES, &problem);
    if (!s->header)
        return tm_fail(err, TM_FORMAT, "'%s': the header is not JSON: %s, at byte %d", s->name, problem.text,
                       problem.position + 8);
    size_t      first = set->n;
    const char *name;
    json_t     *row;
    json_object_foreach(s->header, name, row)
    {
        if (strcmp(name, "__metadata__") == 0)
            TM_TRY(check_metadata(s, row, err));
        else
            TM_TRY(read_row(set, s, name, row, err));
    }
    return check_gaps(s, set->tensors + first, set->n - first, err);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static shard *add_shard(tm_safetensors *set, const char *name)
{
    shard *s = tm_arena_take(set->arena, sizeof *s);
    s->name = tm_arena_text(set->arena, name);
    set->shards = tm_grow(set->shards, &set->shards_capacity, set->n_shards, sizeof *set->shards);
    set->shards[set->n_shards++] = s;
    return s;
}

static tm_status open_shard(tm_safetensors *set, const char *path, tm_error *err)
{
    shard *s = add_shard(set, path);
    TM_TRY(tm_map_open(path, &s->map, err));
    s->bytes = s->map.bytes;
    s->size = (size_t)s->map.size;
    return read_header(set, s, err);
}

static tm_status sort(tm_safetensors *set, tm_error *err)
{
    if (set->n) qsort(set->tensors, set->n, sizeof *set->tensors, by_name);
    for (size_t i = 1; i < set->n; i++)
        if (strcmp(set->tensors[i].name, set->tensors[i - 1].name) == 0)
            return tm_fail(err, TM_FORMAT, "tensor '%.200s' is in '%s' and in '%s'", set->tensors[i].name,
                           set->tensors[i - 1].file, set->tensors[i].file);
    return TM_OK;
}

static tm_safetensors *create(void)
{
    tm_safetensors *set = tm_alloc(sizeof *set);
    set->arena = tm_arena_create();
    return set;
}

static tm_status hand_over(tm_safetensors *set, tm_status st, tm_safetensors **out, tm_error *err)
{
    if (st == TM_OK) st = sort(set, err);
    if (st != TM_OK) {
        tm_safetensors_close(set);
        return st;
    }
    *out = set;
    return TM_OK;
}

tm_status tm_safetensors_parse(const char *name, const uint8_t *bytes, size_t size, tm_safetensors **out, tm_error *err)
{
    tm_safetensors *set = create();
    shard          *s = add_shard(set, name);
    s->bytes = bytes;
    s->size = size;
    return hand_over(set, read_header(set, s, err), out, err);
}

tm_status tm_safetensors_of(const tm_stored_tensor *tensors, size_t n, void *owner, void (*release)(void *owner),
                            tm_safetensors **out, tm_error *err)
{
    tm_safetensors *set = create();
    set->owner = owner;
    set->release = release;
    set->tensors = tm_alloc((n + 1) * sizeof *tensors);
    set->n = n;
    if (n) memcpy(set->tensors, tensors, n * sizeof *tensors);
    return hand_over(set, TM_OK, out, err);
}

/* --- the index ---------------------------------------------------------------------------------------------------- */

/* A file beside the index, and no other. */
static bool plain_name(const char *name)
{
    return *name && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static tm_status open_named(tm_safetensors *set, const char *index, const char *file, tm_error *err)
{
    if (!plain_name(file))
        return tm_fail(err, TM_FORMAT, "'%s': '%.200s' is not the name of a file beside the index", index, file);
    const char *slash = strrchr(index, '/');
    char       *path = tm_arena_format(set->arena, "%.*s%s", slash ? (int)(slash - index + 1) : 0, index, file);
    for (size_t i = 0; i < set->n_shards; i++)
        if (strcmp(set->shards[i]->name, path) == 0) return TM_OK;
    if (set->n_shards == TM_SAFETENSORS_MAX_FILES)
        return tm_fail(err, TM_FORMAT, "'%s' names more than %d files", index, TM_SAFETENSORS_MAX_FILES);
    return open_shard(set, path, err);
}

/* What the index says and what the files hold are the same. */
static tm_status check_index(const tm_safetensors *set, const char *index, json_t *files, tm_error *err)
{
    for (size_t i = 0; i < set->n; i++) {
        const tm_stored_tensor *t = &set->tensors[i];
        const char *file = json_string_value(json_object_get(files, t->name)), *slash = strrchr(t->file, '/');
        if (!file)
            return tm_fail(err, TM_FORMAT, "'%s': tensor '%.200s' is not in the index '%s'", t->file, t->name, index);
        if (strcmp(file, slash ? slash + 1 : t->file) != 0)
            return tm_fail(err, TM_FORMAT, "'%s' says that tensor '%.200s' is in '%.200s', it is in '%s'", index,
                           t->name, file, t->file);
    }
    const char *name;
    json_t     *file;
    json_object_foreach(files, name, file) if (!tm_safetensors_find(set, name)) return tm_fail(
        err, TM_FORMAT, "'%s' says that tensor '%.200s' is in '%.200s', where it is not", index, name,
        json_string_value(file));
    return TM_OK;
}

static tm_status open_index(tm_safetensors *set, const char *path, json_t *root, tm_error *err)
{
    json_t *files = json_object_get(root, "weight_map"), *file;
    if (!json_is_object(files) || json_object_size(files) == 0)
        return tm_fail(err, TM_FORMAT, "'%s' has no object 'weight_map' with the files of the tensors", path);
    const char *name;
    json_object_foreach(files, name, file)
    {
        if (!json_is_string(file))
            return tm_fail(err, TM_FORMAT, "'%s': weight_map says no file for tensor '%.200s'", path, name);
        TM_TRY(open_named(set, path, json_string_value(file), err));
    }
    TM_TRY(sort(set, err));
    return check_index(set, path, files, err);
}

static tm_status read_index(tm_safetensors *set, const char *path, tm_error *err)
{
    tm_text      text = { 0 };
    json_error_t problem;
    tm_status    st = tm_file_read(path, MAX_INDEX, &text, err);
    if (st != TM_OK) {
        tm_text_fini(&text);
        return st;
    }
    json_t *root = json_loadb(text.data, text.length, JSON_REJECT_DUPLICATES, &problem);
    if (!root)
        st = tm_fail(err, TM_FORMAT, "'%s':%d: not JSON: %s", path, problem.line, problem.text);
    else
        st = open_index(set, path, root, err);
    json_decref(root);
    tm_text_fini(&text);
    return st;
}

tm_status tm_safetensors_open(const char *path, tm_safetensors **out, tm_error *err)
{
    tm_safetensors *set = create();
    size_t          n = strlen(path);
    bool            index = n > 5 && strcmp(path + n - 5, ".json") == 0;
    return hand_over(set, index ? read_index(set, path, err) : open_shard(set, path, err), out, err);
}

void tm_safetensors_close(tm_safetensors *set)
{
    if (!set) return;
    for (size_t i = 0; i < set->n_shards; i++) {
        tm_map_close(&set->shards[i]->map);
        json_decref(set->shards[i]->header);
    }
    if (set->release) set->release(set->owner);
    free(set->shards);
    free(set->tensors);
    tm_arena_destroy(set->arena);
    free(set);
}

/* --- asking ------------------------------------------------------------------------------------------------------- */

const tm_stored_tensor *tm_safetensors_list(const tm_safetensors *set, size_t *n)
{
    *n = set->n;
    return set->tensors;
}

const tm_stored_tensor *tm_safetensors_find(const tm_safetensors *set, const char *name)
{
    tm_stored_tensor key = { .name = name };
    return set->n ? bsearch(&key, set->tensors, set->n, sizeof key, by_name) : NULL;
}

const char *tm_safetensors_metadata(const tm_safetensors *set, const char *key)
{
    for (size_t i = 0; i < set->n_shards; i++) {
        const json_t *value = json_object_get(json_object_get(set->shards[i]->header, "__metadata__"), key);
        if (value) return json_string_value(value);
    }
    return NULL;
}

tm_status tm_safetensors_check(const tm_safetensors *set, tm_error *err)
{
    for (size_t i = 0; i < set->n_shards; i++)
        if (set->shards[i]->map.path) TM_TRY(tm_map_check(&set->shards[i]->map, err));
    return TM_OK;
}

void tm_name_list_add(tm_name_list *list, const char *name)
{
    enum { NAMED = 5 };
    if (list->n < NAMED) tm_text_printf(&list->text, "%s%s", list->n ? ", " : "", name);
    if (list->n == NAMED) tm_text_add(&list->text, ", ...");
    list->n++;
}
