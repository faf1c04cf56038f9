/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF files as containers: files that lie are refused by file and key. What is written: tests/hf/test_gguf.c. */
#include "base/gguf.h"
#include "support/folder.h"
#include "support/refusal.h"

#include "support/test.h"

/* --- files made by hand ------------------------------------------------------------------------------------------- */

static void number(tm_text *b, uint64_t value, int n)
{
    for (int i = 0; i < n; i++) tm_text_add_n(b, (const char[]){ (char)(value >> 8 * i) }, 1);
}

static void text(tm_text *b, const char *string)
{
    number(b, strlen(string), 8);
    tm_text_add(b, string);
}

/* "GGUF" and what the recipe says: "V,T,N": the head; "uN=V": a number of N bytes; "t=WORD": a text;
 * "n=NAME,ROWS,COLUMNS, FORMAT,OFFSET": a tensor of two axes; "d=N": zeros up to a multiple of 32, and N more. */
static tm_text built(const char *recipe)
{
    tm_text b = { 0 };
    char    words[256], *rest = NULL;
    tm_text_add(&b, "GGUF");
    snprintf(words, sizeof words, "%s", recipe);
    for (char *w = strtok_r(words, " ", &rest); w; w = strtok_r(NULL, " ", &rest)) {
        char              *value = strchr(w, '=') ? strchr(w, '=') + 1 : w;
        unsigned long long v[4];
        if (w == value && sscanf(w, "%llu,%llu,%llu", v, v + 1, v + 2) == 3) {
            number(&b, v[0], 4);
            number(&b, v[1], 8);
            number(&b, v[2], 8);
        } else if (*w == 'u') {
            number(&b, strtoull(value, NULL, 0), w[1] - '0');
        } else if (*w == 't') {
            text(&b, value);
        } else if (*w == 'n') {
            char *numbers = strchr(value, ',');
            *numbers++ = '\0';
            assert_int_equal(sscanf(numbers, "%llu,%llu,%llu,%llu", v, v + 1, v + 2, v + 3), 4);
            text(&b, value);
            number(&b, 2, 4);
            number(&b, v[1], 8);
            number(&b, v[0], 8);
            number(&b, v[2], 4);
            number(&b, v[3], 8);
        } else {
            while (b.length % 32) number(&b, 0, 1);
            for (int i = atoi(value); i > 0; i--) number(&b, 0, 1);
        }
    }
    return b;
}

TEST(files_that_lie_are_refused)
{
    static const struct {
        const char *recipe, *part;
    } rows[] = {
        { "1,0,0", "of version 1" },
        { "50331648,0,0", "big-endian" },
        { "3,18446744073709551615,0", "18446744073709551615 tensors" },
        { "3,0,1152921504606846976", "1152921504606846976 values" },
        { "u4=3 u8=0 u4=0", "ends at byte 20" },
        { "3,0,1 t=a.key u4=77", "'a.key' has a type that GGUF does not know" },
        { "3,0,1 t=a.key u4=8 u8=0xffffffffffffffff", "within a.key" },
        { "3,0,1 t=a.key u4=7 u1=2", "neither true nor false but 2" },
        { "3,0,1 t=a.key u4=9 u4=9 u8=1", "array of arrays" },
        { "3,0,1 t=a.key u4=9 u4=12 u8=0x2000000000000001 u8=0", "within a.key" }, /* times 8 it is 8 */
        { "3,0,1 t=a.key u4=9 u4=8 u8=0x2000000000000000 u8=0", "within a.key" },
        { "3,0,1 t= u4=0 u8=0", "is empty" },
        { "3,0,2 t=twice u4=0 u1=0 t=twice u4=0 u1=0", "the key 'twice' twice" },
        { "3,0,1 t=general.alignment u4=4 u4=24", "general.alignment is no power of two" },
        { "3,0,1 t=general.alignment u4=4 u4=0", "general.alignment is no power of two" },
        { "3,1,0 n=a.weight,4,4,0,32 d=64", "'a.weight' is at bytes 32 to 96 of the data, which has 64" },
        { "3,1,0 n=a.weight,4,4,0,8 d=64", "no multiple of 32" },
        { "3,1,0 n=a.weight,4,4,0,18446744073709551584 d=64", "begins beyond every file" },
        { "3,1,0 n=a.weight,1099511627776,1099511627776,0,0 d=64", "larger than any memory" },
        { "3,1,0 n=a.weight,1073741824,1073741824,0,0 d=64", "larger than any memory" },
        { "3,1,0 n=a.weight,18446744073709551615,1,0,0 d=64", "no possible length" },
        { "3,1,0 n=a.weight,0,4,0,0 d=64", "no possible length: 0" },
        { "3,1,0 n=a.weight,1,33,8,0 d=64", "no whole blocks of q8_0" },
        { "3,1,0 t=a.weight u4=5 d=64", "has 5 axes" },
        { "3,2,0 n=a,4,4,0,0 n=b,4,4,0,32 d=128", "'b' begins within another" },
        { "3,2,0 n=a,4,2,0,0 n=a,4,2,0,32 d=128", "the tensor 'a' twice" },
        { "", "not a GGUF file" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_gguf *gguf = NULL;
        tm_error err = { 0 };
        tm_text  b = built(rows[i].recipe);
        if (!*rows[i].recipe) tm_text_add(&b, "!"), b.data[3] = 'L';
        bool      unsupported = i < 2 || i == 8; /* not wrong, but of another kind */
        tm_status st = tm_gguf_parse("bad.gguf", (const uint8_t *)b.data, b.length, &gguf, &err);
        refusal_is_sound(&err);
        if (st != (unsupported ? TM_UNSUPPORTED : TM_FORMAT) || !strstr(err.text, rows[i].part) ||
            !strstr(err.text, "'bad.gguf'"))
            fail_msg("%s: status %d, '%s', wanted '%s'", rows[i].recipe, (int)st, err.text, rows[i].part);
        tm_text_fini(&b);
    }
}

/* However short: refused, never read beyond its end. */
TEST(every_beginning_of_a_file_is_refused)
{
    tm_text all = built("3,1,2 t=x.name u4=8 t=word t=x.ids u4=9 u4=5 u8=2 u4=7 u4=8 n=a.weight,4,4,0,0 d=64");
    for (size_t n = 0; n <= all.length; n++) {
        tm_gguf *g = NULL;
        tm_error err = { 0 };
        uint8_t *part = malloc(n + 1); /* of its own, for the sanitizer */
        assert_non_null(part);
        memcpy(part, all.data, n);
        tm_status st = tm_gguf_parse("x.gguf", part, n, &g, &err);
        if ((st == TM_OK) != (n == all.length)) fail_msg("%zu bytes: %s", n, err.text);
        tm_gguf_close(g);
        free(part);
    }
    tm_text_fini(&all);
}

/* Each tensor begins behind the one before, at a multiple of 32 bytes, and has its own. */
TEST(what_is_written_reads_back)
{
    static const tm_gguf_tensor written[] = {
        { .name = "a", .rank = 2, .n = { 3, 5 }, .format = TM_GGUF_FORMAT_F32 },
        { .name = "b", .rank = 1, .n = { 7 }, .format = TM_GGUF_FORMAT_BF16 },
        { .name = "c", .rank = 2, .n = { 2, 64 }, .format = TM_GGUF_FORMAT_Q8_0 }
    };
    static const size_t bytes[] = { 3 * 5 * 4, 7 * 2, 2 * 2 * TM_Q8_0_BYTES };
    const char         *path = test_in_folder("x.gguf");
    tm_gguf_head        head = { .count = 0 };
    tm_gguf_writer     *writer;
    tm_gguf            *back;
    char                data[200];
    int64_t             at = 0, whole;
    size_t              n;
    tm_gguf_put_u32(&head, "a.number", 77);
    assert_ok(tm_gguf_create(path, &head, written, 3, &writer, err));
    for (int i = 0; i < 3; i++) {
        memset(data, 'x' + i, sizeof data);
        assert_ok(tm_gguf_write(writer, data, bytes[i], err));
    }
    assert_ok(tm_gguf_finish(writer, err));
    assert_ok(tm_gguf_open(path, &back, err));
    const tm_gguf_tensor *read = tm_gguf_tensors(back, &n);
    assert_true(n == 3 && tm_gguf_whole(back, "a.number", &whole) && whole == 77);
    for (int i = 0; i < 3; i++) {
        assert_true(read[i].bytes == bytes[i] && read[i].format == written[i].format);
        assert_memory_equal(read[i].n, written[i].n, (size_t)written[i].rank * sizeof(int64_t));
        assert_int_equal(read[i].offset - read[0].offset, at);
        for (size_t b = 0; b < bytes[i]; b++) assert_int_equal(read[i].data[b], 'x' + i);
        at += (int64_t)(bytes[i] + 31) / 32 * 32;
    }
    tm_gguf_close(back);
    tm_text_fini(&head.bytes);
}

TEST_FIXTURE(NULL, test_folder_teardown)
