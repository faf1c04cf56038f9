/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes parquet files with pictures inside: captions are UTF-8, pictures are bytes that may be read, in any order;
 * errors name the file. */
#include "fuzz.h"

#include "data/pictures_list.h"

static void read_some(tm_pictures *p, const char *path)
{
    tm_text bytes = { 0 };
    for (int64_t k = 0; k < 12 && p->count > 0; k++) {
        tm_error  err = { 0 };
        int64_t   i = k * 7919 % (int64_t)p->count;
        tm_status st = tm_pictures_read(p, i, &bytes, &err);
        fuzz_told(st, &err, path);
        TM_ASSERT(st != TM_OK || strlen(bytes.data) <= bytes.length);
    }
    tm_text_fini(&bytes);
}

static void read_as(const char *path, tm_picture_options options)
{
    tm_pictures p = { .arena = tm_arena_create(), .options = options };
    tm_error    err = { 0 };
    tm_status   st = tm_pictures_add_parquet(&p, path, "x", &err);
    fuzz_told(st, &err, path);
    for (size_t i = 0; i < p.count; i++) fuzz_utf8(p.items[i].caption);
    if (st == TM_OK) read_some(&p, path);
    tm_picture_rows_close(p.rows);
    free(p.items);
    tm_arena_destroy(p.arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = fuzz_file("x.parquet", data, size);
    read_as(path, (tm_picture_options){ 0 });
    read_as(path, (tm_picture_options){ .otherwise = "a" });
    read_as(path, (tm_picture_options){ .file = "text", .caption = "text" });
    return 0;
}
