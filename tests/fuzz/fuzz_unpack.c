/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the readers of packed text: .gz and .zst, whole and in small parts, which must give the same bytes; what comes
 * out goes into the reader of JSON lines. The first byte of an input says which; the rest is the file. */
#include "fuzz.h"

#include "data/corpus.h"
#include "data/unpack.h"

enum { MOST = 1 << 20 }; /* a small file may unpack to very much */

/* At most MOST bytes, `part` at a time. */
static tm_status unpack(const char *file, size_t part, tm_text *out)
{
    tm_unpack *u;
    tm_error   err = { 0 };
    char      *room = malloc(part);
    size_t     got = 1;
    tm_status  st = tm_unpack_open(file, &u, &err);
    while (st == TM_OK && got > 0 && out->length < MOST) {
        st = tm_unpack_read(u, room, part, &got, &err);
        TM_ASSERT(got <= part);
        if (st == TM_OK) tm_text_add_n(out, room, got);
    }
    fuzz_told(st, &err, file);
    tm_unpack_close(u);
    free(room);
    return st;
}

static tm_status take(void *context, const char *text, size_t n, bool begins, bool ends, tm_error *err)
{
    size_t *sum = context;
    (void)err;
    TM_ASSERT(begins && ends);
    for (size_t i = 0; i < n; i++) *sum += (unsigned char)text[i];
    return TM_OK;
}

static void read_lines(const tm_text *text)
{
    size_t        sum = 0;
    tm_error      err = { 0 };
    tm_text_batch batch = { .text = *text };
    const tm_part part = {
        .length = text->length, .begins = true, .ends = true, .lines = true, .line = 1, .file = "x"
    };
    tm_status st = tm_part_documents(&batch, &part, "text", take, &sum, &err);
    fuzz_told(st, &err, "'x', line ");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = { "x.gz", "x.zst", "x.jsonl" };
    if (size == 0) return 0;
    const char *file = fuzz_file(names[data[0] % 3], data + 1, size - 1);
    tm_text     whole = { 0 }, parts = { 0 };
    tm_text_add(&whole, "");
    tm_status a = unpack(file, 1 << 16, &whole), b = unpack(file, 7, &parts);
    if (whole.length < MOST) TM_ASSERT(a == b);
    if (a == TM_OK && whole.length < MOST)
        TM_ASSERT(whole.length == parts.length &&
                  (whole.length == 0 || memcmp(whole.data, parts.data, whole.length) == 0));
    if (a == TM_OK) read_lines(&whole);
    tm_text_fini(&whole);
    tm_text_fini(&parts);
    return 0;
}
