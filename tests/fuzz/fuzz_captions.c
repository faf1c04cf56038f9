/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes metadata.csv and metadata.jsonl: rows have a file name, and texts are UTF-8; errors name the file. */
#include "fuzz.h"

#include "data/captions.h"

static void read_as(const uint8_t *data, size_t size, bool csv, const char *caption)
{
    tm_arena   *arena = tm_arena_create();
    tm_captions rows = { 0 };
    tm_error    err = { 0 };
    tm_status   st = tm_captions_parse("x.meta", (const char *)data, size, csv, NULL, caption, arena, &rows, &err);
    fuzz_told(st, &err, "'x.meta'");
    TM_ASSERT(st != TM_OK || rows.count > 0);
    for (size_t i = 0; i < rows.count; i++) {
        TM_ASSERT(*rows.rows[i].file && rows.rows[i].line > (i ? rows.rows[i - 1].line : 0));
        fuzz_utf8(rows.rows[i].file);
        fuzz_utf8(rows.rows[i].caption);
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
