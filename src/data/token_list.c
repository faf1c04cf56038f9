/* SPDX-License-Identifier: Apache-2.0 */
#include "data/token_list.h"

#include "base/arena.h"
#include "base/map.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *name;
    int64_t     vocab;
    int32_t    *ids;
} list;

static tm_status take(const list *l, int64_t i, int64_t id, tm_error *err)
{
    if (id < 0 || id >= l->vocab)
        return tm_fail(err, TM_INVALID, "'%s': token %lld is %lld, the model has the ids 0 to %lld", l->name,
                       (long long)i, (long long)id, (long long)l->vocab - 1);
    l->ids[i] = (int32_t)id;
    return TM_OK;
}

static tm_status from_json(list *l, const json_t *array, int64_t *n, tm_error *err)
{
    if (!json_is_array(array))
        return tm_fail(err, TM_FORMAT, "'%s' is not a JSON array of token ids: [1, 2, 3]", l->name);
    *n = (int64_t)json_array_size(array);
    l->ids = tm_alloc(((size_t)*n + 1) * sizeof *l->ids);
    for (int64_t i = 0; i < *n; i++) {
        const json_t *id = json_array_get(array, (size_t)i);
        if (!json_is_integer(id))
            return tm_fail(err, TM_FORMAT, "'%s': element %lld is not a whole number", l->name, (long long)i);
        TM_TRY(take(l, i, json_integer_value(id), err));
    }
    return TM_OK;
}

/* The header is the text of a Python dictionary: {'descr': '<i4', 'fortran_order': False, 'shape': (13,), } */
static tm_status read_numpy_header(const char *name, const uint8_t *bytes, size_t size, int *width, int64_t *n,
                                   size_t *data, tm_error *err)
{
    size_t    lead = bytes[6] == 1 ? 10 : 12, length = (size_t)bytes[8] | (size_t)bytes[9] << 8;
    char      text[1024];
    long long a = 0, b = 0;
    int       used = 0;
    if (size < lead || bytes[6] < 1 || bytes[6] > 3)
        return tm_fail(err, TM_FORMAT, "'%s': a numpy file of an unknown version", name);
    if (lead == 12) length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    if (length >= sizeof text || length > size - lead)
        return tm_fail(err, TM_FORMAT, "'%s': the numpy header has %zu bytes, too many", name, length);
    memcpy(text, bytes + lead, length);
    text[length] = '\0';
    const char *format = strstr(text, "'descr': '<i"), *shape = strstr(text, "'shape': (");
    *width = format ? format[12] - '0' : 0;
    if ((*width != 4 && *width != 8) || format[13] != '\'')
        return tm_fail(err, TM_FORMAT, "'%s': the elements are not int32 or int64: '%.200s'", name, text);
    int rows = shape ? sscanf(shape + 10, "%lld,%n", &a, &used) : 0;
    if (rows == 1 && used > 0 && shape[10 + used] != ')' && sscanf(shape + 10 + used, "%lld)", &b) == 1) {
        if (a != 1) return tm_fail(err, TM_FORMAT, "'%s' has %lld rows of tokens, wanted one", name, a);
        a = b;
    }
    *data = lead + length;
    *n = a;
    if (rows != 1 || a < 0 || (uint64_t)a > (size - *data) / (size_t)*width ||
        (size_t)a * (size_t)*width != size - *data)
        return tm_fail(err, TM_FORMAT, "'%s': the shape in '%.200s' does not fit %zu bytes of data", name, text,
                       size - *data);
    return TM_OK;
}

static tm_status from_numpy(list *l, const uint8_t *bytes, size_t size, int64_t *n, tm_error *err)
{
    int    width = 0;
    size_t data = 0;
    TM_TRY(read_numpy_header(l->name, bytes, size, &width, n, &data, err));
    l->ids = tm_alloc(((size_t)*n + 1) * sizeof *l->ids);
    for (int64_t i = 0; i < *n; i++) {
        uint64_t bits = 0;
        for (int k = width - 1; k >= 0; k--) bits = bits << 8 | bytes[data + (size_t)(i * width + k)];
        TM_TRY(take(l, i, width == 4 ? (int64_t)(int32_t)(uint32_t)bits : (int64_t)bits, err));
    }
    return TM_OK;
}

tm_status tm_token_list_parse(const char *name, const uint8_t *bytes, size_t size, int64_t vocab, int32_t **out,
                              int64_t *n, tm_error *err)
{
    list      l = { .name = name, .vocab = vocab };
    tm_status st;
    *n = 0;
    if (size >= 10 && memcmp(bytes, "\x93NUMPY", 6) == 0) {
        st = from_numpy(&l, bytes, size, n, err);
    } else {
        json_error_t problem;
        json_t      *array = size ? json_loadb((const char *)bytes, size, 0, &problem) : NULL;
        st = array ? from_json(&l, array, n, err)
                   : tm_fail(err, TM_FORMAT, "'%s' is neither a JSON array of token ids nor a numpy array: %s", name,
                             size ? problem.text : "it is empty");
        json_decref(array);
    }
    if (st != TM_OK)
        free(l.ids);
    else
        *out = l.ids;
    return st;
}

tm_status tm_token_list_read(const char *path, int64_t vocab, int32_t **out, int64_t *n, tm_error *err)
{
    tm_map map;
    TM_TRY(tm_map_open(path, &map, err));
    tm_status st = tm_token_list_parse(path, map.bytes, (size_t)map.size, vocab, out, n, err);
    tm_map_close(&map);
    return st;
}
