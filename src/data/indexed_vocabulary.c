/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"
#include "base/json.h"
#include "data/indexed.h"

#include <jansson.h>
#include <string.h>

static const char ending[] = ".vocabulary.json";
enum { MAX_BYTES = 1 << 16, MAX_SIZE = 1 << 24 };

static void name_of(const char *prefix, tm_text *out)
{
    size_t n = strlen(prefix);
    if (n > 4 && (strcmp(prefix + n - 4, ".idx") == 0 || strcmp(prefix + n - 4, ".bin") == 0)) n -= 4;
    tm_text_printf(out, "%.*s%s", (int)n, prefix, ending);
}

tm_status tm_indexed_vocabulary_write(const char *prefix, int64_t size, const char *tokenizer, tm_error *err)
{
    tm_text name = { 0 }, text = { 0 };
    tm_json json = { .out = &text, .indent = true };
    name_of(prefix, &name);
    tm_json_open(&json, NULL, '{');
    tm_json_i64(&json, "vocabulary_size", size);
    tm_json_string(&json, "tokenizer", tokenizer);
    tm_json_close(&json, '}');
    tm_text_add(&text, "\n");
    tm_status st = tm_file_write(name.data, text.data, text.length, err);
    tm_text_fini(&text);
    tm_text_fini(&name);
    return st;
}

static tm_status read_size(const char *name, const char *bytes, size_t n, int64_t *size, tm_error *err)
{
    json_error_t why;
    json_t      *root = json_loadb(bytes, n, JSON_REJECT_DUPLICATES, &why);
    json_t      *member = json_object_get(root, "vocabulary_size");
    tm_status    st = TM_OK;
    if (!root)
        st = tm_fail(err, TM_FORMAT, "'%s', line %d: %s; remove it, or make the set again", name, why.line, why.text);
    else if (!json_is_integer(member) || json_integer_value(member) < 1 || json_integer_value(member) > MAX_SIZE)
        st = tm_fail(err, TM_FORMAT, "'%s': vocabulary_size is not a whole number from 1 to %d", name, MAX_SIZE);
    else
        *size = json_integer_value(member);
    json_decref(root);
    return st;
}

tm_status tm_indexed_vocabulary_read(const char *prefix, int64_t *size, tm_error *err)
{
    tm_text   name = { 0 }, text = { 0 };
    tm_status st = TM_OK;
    *size = 0;
    name_of(prefix, &name);
    if (tm_file_exists(name.data)) {
        st = tm_file_read(name.data, MAX_BYTES, &text, err);
        if (st == TM_OK) st = read_size(name.data, text.data ? text.data : "", text.length, size, err);
    }
    tm_text_fini(&text);
    tm_text_fini(&name);
    return st;
}
