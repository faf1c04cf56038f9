/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF files as containers: what was put is found again, and files that lie are refused by file and key. */
#include "base/gguf.h"
#include "base/file.h"
#include "support/folder.h"
#include "support/refusal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* --- files that were written -------------------------------------------------------------------------------------- */

static tm_text written(const char *path)
{
    tm_gguf_head    h = { .count = 0 };
    tm_gguf_writer *writer;
    tm_error        err = { 0 };
    tm_text         all = { 0 };
    const float     values[6] = { 1, -2, 3, 4, 5, 6 };
    const uint16_t  half[33] = { 7 };
    tm_gguf_tensor  tensors[] = { { .name = "b", .rank = 2, .n = { 2, 3 }, .format = TM_GGUF_FORMAT_F32 },
                                  { .name = "a", .rank = 1, .n = { 33 }, .format = TM_GGUF_FORMAT_BF16 } };
    tm_gguf_put_u32(&h, "x.count", 4000000000u);
    tm_gguf_put_f32(&h, "x.eps", 1e-5f);
    tm_gguf_put_bool(&h, "x.yes", true);
    tm_gguf_put_text(&h, "x.name", "a\0b", 3);
    tm_gguf_put_array(&h, "x.list", TM_GGUF_TEXT, 3);
    tm_gguf_add_text(&h, "one", 3);
    tm_gguf_add_text(&h, "", 0);
    tm_gguf_add_text(&h, "three", 5);
    tm_gguf_put_array(&h, "x.ids", TM_GGUF_I32, 2);
    tm_gguf_add_number(&h, TM_GGUF_I32, -7);
    tm_gguf_add_number(&h, TM_GGUF_I32, 8);
    if (tm_gguf_create(path, &h, tensors, 2, &writer, &err) != TM_OK ||
        tm_gguf_write(writer, values, sizeof values, &err) != TM_OK ||
        tm_gguf_write(writer, half, sizeof half, &err) != TM_OK || tm_gguf_finish(writer, &err) != TM_OK)
        fail_msg("%s", err.text);
    tm_text_fini(&h.bytes);
    assert_int_equal(tm_file_read(path, 1 << 20, &all, &err), TM_OK);
    return all;
}

TEST(what_was_written_is_read)
{
    tm_gguf    *g;
    tm_error    err = { 0 };
    size_t      n;
    int64_t     whole;
    const char *path = test_in_folder("x.gguf");
    tm_text     all = written(path);
    if (tm_gguf_open(path, &g, &err) != TM_OK) fail_msg("%s", err.text);
    assert_true(tm_is_gguf(path));
    assert_false(tm_is_gguf(test_folder()));
    assert_true(tm_gguf_whole(g, "x.count", &whole) && whole == 4000000000);
    assert_false(tm_gguf_whole(g, "x.eps", &whole));
    assert_false(tm_gguf_whole(g, "x.none", &whole));
    assert_true(tm_gguf_number(tm_gguf_find(g, "x.eps"), 0) == (double)1e-5f);
    assert_true(tm_gguf_number(tm_gguf_find(g, "x.yes"), 0) == 1);
    assert_memory_equal(tm_gguf_text(g, "x.name", &n), "a\0b", 3);
    assert_int_equal(n, 3);
    const tm_gguf_value *list = tm_gguf_array(g, "x.list", TM_GGUF_TEXT);
    assert_true(list && list->count == 3);
    const uint8_t *at = list->bytes;
    assert_memory_equal(tm_gguf_next_text(&at, &n), "one", 3);
    tm_gguf_next_text(&at, &n);
    assert_int_equal(n, 0);
    assert_memory_equal(tm_gguf_next_text(&at, &n), "three", 5);
    const tm_gguf_value *ids = tm_gguf_array(g, "x.ids", TM_GGUF_I32);
    assert_true(ids && tm_gguf_number(ids, 0) == -7 && tm_gguf_number(ids, 1) == 8);
    assert_null(tm_gguf_array(g, "x.ids", TM_GGUF_F32));
    const tm_gguf_tensor *b = tm_gguf_find_tensor(g, "b"), *a = tm_gguf_find_tensor(g, "a");
    assert_true(b && b->rank == 2 && b->n[0] == 2 && b->n[1] == 3 && b->bytes == 24 && b->offset % 32 == 0);
    assert_true(a && a->rank == 1 && a->n[0] == 33 && a->bytes == 66 && a->offset % 32 == 0);
    assert_true(a->data[0] == 7 && b->data[2] == 0x80 && b->data[3] == 0x3f); /* 7; 1.0f */
    tm_gguf_close(g);
    tm_text_fini(&all);
    test_folder_remove();
}

/* However short: refused, never read beyond its end. */
TEST(every_beginning_of_a_file_is_refused)
{
    tm_text all = written(test_in_folder("x.gguf"));
    for (size_t n = 0; n < all.length - 30; n++) { /* behind the last tensor there is padding */
        tm_gguf *g;
        tm_error err = { 0 };
        uint8_t *part = malloc(n + 1); /* of its own, for the sanitizer */
        assert_non_null(part);
        memcpy(part, all.data, n);
        if (tm_gguf_parse("x.gguf", part, n, &g, &err) == TM_OK) fail_msg("%zu bytes", n);
        free(part);
    }
    tm_text_fini(&all);
    test_folder_remove();
}

TESTS_IN_ORDER
