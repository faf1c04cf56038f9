/* SPDX-License-Identifier: Apache-2.0 */
/* data/safetensors_write.c - the writer of data/safetensors.h. */
#include "base/arena.h"
#include "base/json.h"
#include "data/output.h"
#include "data/safetensors.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

struct tm_safetensors_writer {
    tm_output out;
    size_t    left; /* bytes of tensors that are still to come */
};

const char *tm_safetensors_dtype_name(tm_dtype dtype)
{
    static const struct {
        const char *name;
        tm_dtype    ours;
    } names[] = {
#define X(text, width, format) { text, format },
        TM_SAFETENSORS_DTYPES(X)
#undef X
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].ours == dtype && dtype != TM_DTYPE_COUNT) return names[i].name;
    return NULL;
}

static const char *name_of(tm_dtype dtype)
{
    const char *name = tm_safetensors_dtype_name(dtype);
    if (!name) tm_assert_failed("a number format without a name in safetensors", __FILE__, __LINE__);
    return name;
}

static size_t bytes_of(const tm_tensor_heading *t)
{
    int64_t bits = tm_dtype_bits(t->dtype);
    for (int i = 0; i < t->rank; i++) bits *= t->n[i];
    TM_ASSERT(bits % 8 == 0);
    return (size_t)bits / 8;
}

static void add_metadata(tm_json *json, const char *const (*metadata)[2])
{
    if (!metadata) return;
    tm_json_open(json, "__metadata__", '{');
    for (; (*metadata)[0]; metadata++) tm_json_string(json, (*metadata)[0], (*metadata)[1]);
    tm_json_close(json, '}');
}

size_t tm_safetensors_header(tm_text *text, const tm_tensor_heading *tensors, size_t n,
                             const char *const (*metadata)[2])
{
    tm_json json = { .out = text };
    size_t  at = 0;
    tm_json_open(&json, NULL, '{');
    add_metadata(&json, metadata);
    for (size_t i = 0; i < n; i++) {
        size_t bytes = bytes_of(&tensors[i]);
        tm_json_open(&json, tensors[i].name, '{');
        tm_json_string(&json, "dtype", name_of(tensors[i].dtype));
        tm_json_open(&json, "shape", '[');
        for (int k = 0; k < tensors[i].rank; k++) tm_json_i64(&json, NULL, tensors[i].n[k]);
        tm_json_close(&json, ']');
        tm_json_open(&json, "data_offsets", '[');
        tm_json_i64(&json, NULL, (int64_t)at);
        tm_json_i64(&json, NULL, (int64_t)(at += bytes));
        tm_json_close(&json, ']');
        tm_json_close(&json, '}');
    }
    tm_json_close(&json, '}');
    while ((8 + text->length) % ALIGNMENT) tm_text_add(text, " ");
    return at;
}

tm_status tm_safetensors_create(const char *path, const tm_tensor_heading *tensors, size_t n,
                                const char *const (*metadata)[2], tm_safetensors_writer **out, tm_error *err)
{
    tm_safetensors_writer *writer = tm_alloc(sizeof *writer);
    tm_text                header = { 0 };
    tm_status              st = tm_output_open(path, &writer->out, err);
    if (st != TM_OK) {
        free(writer);
        return st;
    }
    writer->left = tm_safetensors_header(&header, tensors, n, metadata);
    tm_output_number(&writer->out, header.length, 8);
    tm_output_bytes(&writer->out, header.data, header.length);
    tm_text_fini(&header);
    *out = writer;
    return TM_OK;
}

void tm_safetensors_write(tm_safetensors_writer *writer, const void *bytes, size_t n)
{
    TM_ASSERT(n <= writer->left);
    writer->left -= n;
    tm_output_bytes(&writer->out, bytes, n);
}

tm_status tm_safetensors_finish(tm_safetensors_writer *writer, tm_error *err)
{
    TM_ASSERT(writer->left == 0);
    tm_status st = tm_output_close(&writer->out, err);
    free(writer);
    return st;
}

void tm_safetensors_abandon(tm_safetensors_writer *writer)
{
    if (!writer) return;
    tm_output_abandon(&writer->out);
    free(writer);
}
