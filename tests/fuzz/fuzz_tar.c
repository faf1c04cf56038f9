/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes tar archives of samples, with their sums as they are and made right: captions are UTF-8, pictures are bytes
 * that may be read; errors name the file. */
#include "fuzz.h"

#include "base/arena.h"
#include "data/pictures_list.h"

static void check(tm_pictures *p, const char *path)
{
    tm_text bytes = { 0 };
    for (int64_t i = 0; i < (int64_t)p->count; i++) {
        tm_error err = { 0 };
        TM_ASSERT(tm_pictures_read(p, i, &bytes, &err) == TM_OK);
        TM_ASSERT((int64_t)bytes.length == p->items[i].bytes && strcmp(p->items[i].path, path) == 0);
        fuzz_utf8(p->items[i].caption);
    }
    tm_text_fini(&bytes);
}

static void read_as(const uint8_t *data, size_t size, tm_picture_options options)
{
    const char *path = fuzz_file("x.tar", data, size);
    tm_pictures p = { .arena = tm_arena_create(), .options = options };
    tm_error    err = { 0 };
    tm_status   st = tm_pictures_add_tar(&p, path, "x", &err);
    fuzz_told(st, &err, path);
    if (st == TM_OK) check(&p, path);
    tm_map_close(&p.tar);
    free(p.items);
    tm_arena_destroy(p.arena);
}

/* The sum of every header, where the sizes lead. */
static void mend(uint8_t *tar, size_t size)
{
    for (size_t at = 0; at + 512 <= size;) {
        uint8_t *h = tar + at;
        unsigned sum = 8 * ' ';
        for (int i = 0; i < 512; i++) sum += i >= 148 && i < 156 ? 0 : h[i];
        if (sum == 8 * ' ') return;
        snprintf((char *)h + 148, 8, "%06o", sum);
        at += 512 + ((size_t)strtoull((char *)h + 124, NULL, 8) % (1u << 24) + 511) / 512 * 512;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *tar = tm_alloc(size + 1);
    memcpy(tar, data, size);
    read_as(tar, size, (tm_picture_options){ 0 });
    mend(tar, size);
    read_as(tar, size, (tm_picture_options){ .otherwise = "a" });
    free(tar);
    return 0;
}
