/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"
#include "base/file.h"
#include "base/gguf.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 32, VERSION = 3 };

struct tm_gguf_writer {
    tm_file_draft   draft;
    tm_gguf_tensor *tensors;
    size_t          n, next;
};

/* --- values ------------------------------------------------------------------------------------------------------- */

static void add(tm_text *out, uint64_t value, size_t bytes)
{
    char little[8];
    for (size_t i = 0; i < bytes; i++) little[i] = (char)(value >> 8 * i);
    tm_text_add_n(out, little, bytes);
}

static void add_text(tm_text *out, const char *text, size_t n)
{
    add(out, n, 8);
    tm_text_add_n(out, text, n);
}

static void begin(tm_gguf_head *head, const char *key, tm_gguf_type type)
{
    add_text(&head->bytes, key, strlen(key));
    add(&head->bytes, type, 4);
    head->count++;
}

void tm_gguf_add_number(tm_gguf_head *head, tm_gguf_type type, double value)
{
    float    narrow = (float)value;
    uint32_t bits;
    TM_ASSERT(type == TM_GGUF_I32 || type == TM_GGUF_F32);
    memcpy(&bits, &narrow, sizeof bits);
    add(&head->bytes, type == TM_GGUF_F32 ? bits : (uint32_t)(int32_t)value, 4);
}

void tm_gguf_put_u32(tm_gguf_head *head, const char *key, uint32_t value)
{
    begin(head, key, TM_GGUF_U32);
    add(&head->bytes, value, 4);
}

void tm_gguf_put_f32(tm_gguf_head *head, const char *key, float value)
{
    begin(head, key, TM_GGUF_F32);
    tm_gguf_add_number(head, TM_GGUF_F32, (double)value);
}

void tm_gguf_put_bool(tm_gguf_head *head, const char *key, bool value)
{
    begin(head, key, TM_GGUF_BOOL);
    add(&head->bytes, value, 1);
}

void tm_gguf_put_text(tm_gguf_head *head, const char *key, const char *text, size_t n)
{
    begin(head, key, TM_GGUF_TEXT);
    add_text(&head->bytes, text, n);
}

void tm_gguf_put_array(tm_gguf_head *head, const char *key, tm_gguf_type type, uint64_t count)
{
    begin(head, key, TM_GGUF_ARRAY);
    add(&head->bytes, type, 4);
    add(&head->bytes, count, 8);
}

void tm_gguf_add_text(tm_gguf_head *head, const char *text, size_t n)
{
    add_text(&head->bytes, text, n);
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

static size_t padding(size_t bytes)
{
    return (ALIGNMENT - bytes % ALIGNMENT) % ALIGNMENT;
}

static void add_tensor(tm_text *out, tm_gguf_tensor *t, size_t *at)
{
    int64_t elements = 1;
    add_text(out, t->name, strlen(t->name));
    add(out, (uint64_t)t->rank, 4);
    for (int i = t->rank - 1; i >= 0; i--) {
        add(out, (uint64_t)t->n[i], 8);
        elements *= t->n[i];
    }
    add(out, t->format, 4);
    add(out, *at, 8);
    t->bytes = tm_gguf_bytes(t->format, elements);
    *at += t->bytes + padding(t->bytes);
}

tm_status tm_gguf_create(const char *path, const tm_gguf_head *head, const tm_gguf_tensor *tensors, size_t n,
                         tm_gguf_writer **out, tm_error *err)
{
    tm_gguf_writer *w = tm_alloc(sizeof *w);
    tm_text         text = { 0 };
    size_t          at = 0;
    *w = (tm_gguf_writer){ .tensors = tm_alloc((n + 1) * sizeof *tensors), .n = n };
    if (n) memcpy(w->tensors, tensors, n * sizeof *tensors);
    tm_text_add(&text, "GGUF");
    add(&text, VERSION, 4);
    add(&text, n, 8);
    add(&text, head->count, 8);
    if (head->bytes.length) tm_text_add_n(&text, head->bytes.data, head->bytes.length);
    for (size_t i = 0; i < n; i++) add_tensor(&text, &w->tensors[i], &at);
    static const char zeros[ALIGNMENT];
    tm_text_add_n(&text, zeros, padding(text.length));
    tm_status st = tm_file_draft_open(path, &w->draft, err);
    if (st == TM_OK) {
        st = tm_file_draft_add(&w->draft, text.data, text.length, err);
        if (st != TM_OK) tm_file_draft_discard(&w->draft);
    }
    tm_text_fini(&text);
    if (st == TM_OK) {
        *out = w;
        return TM_OK;
    }
    free(w->tensors);
    free(w);
    return st;
}

tm_status tm_gguf_write(tm_gguf_writer *writer, const void *bytes, size_t n, tm_error *err)
{
    static const char zeros[ALIGNMENT];
    TM_ASSERT(writer->next < writer->n && writer->tensors[writer->next].bytes == n);
    writer->next++;
    TM_TRY(tm_file_draft_add(&writer->draft, bytes, n, err));
    return padding(n) ? tm_file_draft_add(&writer->draft, zeros, padding(n), err) : TM_OK;
}

tm_status tm_gguf_finish(tm_gguf_writer *writer, tm_error *err)
{
    TM_ASSERT(writer->next == writer->n);
    tm_status st = tm_file_draft_publish(&writer->draft, NULL, err);
    free(writer->tensors);
    free(writer);
    return st;
}

void tm_gguf_abandon(tm_gguf_writer *writer)
{
    if (!writer) return;
    tm_file_draft_discard(&writer->draft);
    free(writer->tensors);
    free(writer);
}
