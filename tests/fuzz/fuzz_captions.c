/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes metadata.csv and metadata.jsonl: rows have a file name, and texts are UTF-8; errors name the file. */
#include "base/status.h"
#include "base/text.h"
#include "data/captions.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *text)
{
    for (size_t n; *text; text += n) {
        n = tm_utf8_length((const unsigned char *)text);
        TM_ASSERT(n > 0);
    }
}

static void read_as(const uint8_t *data, size_t size, bool csv, const char *caption)
{
    tm_arena   *arena = tm_arena_create();
    tm_captions rows = { 0 };
    tm_error    err = { 0 };
    tm_status   st = tm_captions_parse("x.meta", (const char *)data, size, csv, NULL, caption, arena, &rows, &err);
    TM_ASSERT((st == TM_OK) == (err.status == TM_OK) && (st != TM_OK || rows.count > 0));
    TM_ASSERT(st == TM_OK || (tm_status_exit_code(st) == 4 && strstr(err.text, "'x.meta'")));
    for (size_t i = 0; i < rows.count; i++) {
        TM_ASSERT(*rows.rows[i].file && rows.rows[i].line > (i ? rows.rows[i - 1].line : 0));
        check_text(rows.rows[i].file);
        check_text(rows.rows[i].caption);
    }
    free(rows.rows);
    tm_arena_destroy(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_as(data, size, true, NULL);
    read_as(data, size, true, "id");
    read_as(data, size, false, NULL);
    return 0;
}

#ifdef TM_FUZZ_STANDALONE
static const char *const captions_words[] = { "file_name", "text", "caption", ",",       "\"",      "\"\"", "\r\n",
                                              "{",         "}",    ":",       "\\u0000", "\\ud83d", "null", "[" };
#define FUZZ_WORDS captions_words
#include "standalone.h"
#endif
