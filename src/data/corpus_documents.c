/* SPDX-License-Identifier: Apache-2.0 */
/* data/corpus_documents.c - what is in a part of a batch. */
#include "base/json_input.h"
#include "data/corpus.h"

#include <jansson.h>
#include <string.h>

static bool is_blank(const char *text, size_t n)
{
    while (n > 0 && strchr(" \t\r", *text) && *text) text++, n--;
    return n == 0;
}

static tm_status line_document(const tm_part *part, const char *field, const char *text, size_t n, int64_t number,
                               tm_document_sink sink, void *context, tm_error *err)
{
    json_error_t error;
    if (is_blank(text, n)) return TM_OK;
    json_t   *object = tm_json_input(text, n, JSON_ALLOW_NUL, &error), *value = json_object_get(object, field);
    tm_status st;
    if (!object)
        st = tm_fail(err, TM_FORMAT, "'%s', line %lld: %s", part->file, (long long)number, error.text);
    else if (!json_is_string(value))
        st = tm_fail(err, TM_INVALID, "'%s', line %lld: no text in field '%s'; name another field with --field",
                     part->file, (long long)number, field);
    else if (tm_json_text_problem(value, true))
        st = tm_fail(err, TM_FORMAT, "'%s', line %lld: '%s' %s", part->file, (long long)number, field,
                     tm_json_text_problem(value, true));
    else
        st = sink(context, json_string_value(value), json_string_length(value), true, true, err);
    json_decref(object);
    return st;
}

tm_status tm_part_documents(const tm_text_batch *batch, const tm_part *part, const char *field, tm_document_sink sink,
                            void *context, tm_error *err)
{
    const char *text = batch->text.data + part->at, *end = text + part->length;
    int64_t     number = part->line;
    if (!part->lines) return sink(context, text, part->length, part->begins, part->ends, err);
    while (text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t      n = (size_t)((stop ? stop : end) - text);
        TM_TRY(line_document(part, field, text, n, number++, sink, context, err));
        text = stop ? stop + 1 : end;
    }
    return TM_OK;
}
