/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes parquet files with pictures inside: captions are UTF-8, pictures are bytes that may be read, in any order;
 * errors name the file. It lies in memory, under a name in /proc. */
#include "base/status.h"
#include "data/pictures_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_some(tm_pictures *p, const char *path)
{
    tm_text bytes = { 0 };
    for (int64_t k = 0; k < 12 && p->count > 0; k++) {
        tm_error  err = { 0 };
        int64_t   i = k * 7919 % (int64_t)p->count;
        tm_status st = tm_pictures_read(p, i, &bytes, &err);
        TM_ASSERT((st == TM_OK) == (err.status == TM_OK));
        TM_ASSERT(st == TM_OK || (tm_status_exit_code(st) == 4 && strstr(err.text, path)));
        TM_ASSERT(st != TM_OK || strlen(bytes.data) <= bytes.length);
    }
    tm_text_fini(&bytes);
}

static void read_as(const char *path, tm_picture_options options)
{
    tm_pictures p = { .arena = tm_arena_create(), .options = options };
    tm_error    err = { 0 };
    tm_status   st = tm_pictures_add_parquet(&p, path, "x", &err);
    TM_ASSERT((st == TM_OK) == (err.status == TM_OK));
    TM_ASSERT(st == TM_OK || (tm_status_exit_code(st) == 4 && strstr(err.text, path)));
    for (size_t i = 0; i < p.count; i++)
        for (const char *c = p.items[i].caption; *c;) {
            size_t n = tm_utf8_length((const unsigned char *)c);
            TM_ASSERT(n > 0);
            c += n;
        }
    if (st == TM_OK) read_some(&p, path);
    tm_picture_rows_close(p.rows);
    free(p.items);
    tm_arena_destroy(p.arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    int  fd = memfd_create("fuzz", MFD_CLOEXEC);
    TM_ASSERT(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    read_as(path, (tm_picture_options){ 0 });
    read_as(path, (tm_picture_options){ .otherwise = "a" });
    read_as(path, (tm_picture_options){ .file = "text", .caption = "text" });
    close(fd);
    return 0;
}

#ifdef TM_FUZZ_STANDALONE
#include "standalone.h"
#endif
