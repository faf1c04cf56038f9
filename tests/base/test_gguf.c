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

typedef struct {
    tm_text text;
} bytes;

static void number(bytes *b, uint64_t value, int n)
{
    for (int i = 0; i < n; i++) tm_text_add_n(&b->text, (const char[]){ (char)(value >> 8 * i) }, 1);
}

static void text(bytes *b, const char *string)
{
    number(b, strlen(string), 8);
    tm_text_add(&b->text, string);
}

static bytes head(uint64_t version, uint64_t tensors, uint64_t values)
{
    bytes b = { .text = { 0 } };
    tm_text_add(&b.text, "GGUF");
    number(&b, version, 4);
    number(&b, tensors, 8);
    number(&b, values, 8);
    return b;
}

static void tensor(bytes *b, const char *name, uint64_t rows, uint64_t columns, uint64_t format, uint64_t offset)
{
    text(b, name);
    number(b, 2, 4);
    number(b, columns, 8);
    number(b, rows, 8);
    number(b, format, 4);
    number(b, offset, 8);
}

/* Zeros up to a multiple of 32, and `n` more. */
static void data(bytes *b, size_t n)
{
    while (b->text.length % 32) number(b, 0, 1);
    for (size_t i = 0; i < n; i++) number(b, 0, 1);
}

static void refuse(bytes *b, tm_status wanted, const char *part)
{
    tm_gguf  *gguf = NULL;
    tm_error  err = { 0 };
    tm_status st = tm_gguf_parse("bad.gguf", (const uint8_t *)b->text.data, b->text.length, &gguf, &err);
    refusal_is_sound(&err);
    if (st != wanted || !strstr(err.text, part) || !strstr(err.text, "'bad.gguf'"))
        fail_msg("status %d, '%s', wanted '%s'", (int)st, err.text, part);
    tm_text_fini(&b->text);
}

static bytes with_value(const char *key, uint64_t type)
{
    bytes b = head(3, 0, 1);
    text(&b, key);
    number(&b, type, 4);
    return b;
}

TEST(heads_that_lie_are_refused)
{
    bytes b = { .text = { 0 } };
    tm_text_add(&b.text, "GGML tensors and more");
    refuse(&b, TM_FORMAT, "not a GGUF file");
    b = head(1, 0, 0);
    refuse(&b, TM_UNSUPPORTED, "of version 1");
    b = head(0x03000000, 0, 0);
    refuse(&b, TM_UNSUPPORTED, "big-endian");
    b = head(3, UINT64_MAX, 0);
    refuse(&b, TM_FORMAT, "18446744073709551615 tensors");
    b = head(3, 0, 1ull << 60);
    refuse(&b, TM_FORMAT, "1152921504606846976 values");
    b = head(3, 0, 0);
    b.text.length = 20;
    refuse(&b, TM_FORMAT, "ends at byte 20");
}

TEST(values_that_lie_are_refused)
{
    bytes b = with_value("a.key", 77);
    refuse(&b, TM_FORMAT, "'a.key' has a type that GGUF does not know");
    b = with_value("a.key", TM_GGUF_TEXT);
    number(&b, UINT64_MAX, 8);
    refuse(&b, TM_FORMAT, "within a.key");
    b = with_value("a.key", TM_GGUF_BOOL);
    number(&b, 2, 1);
    refuse(&b, TM_FORMAT, "neither true nor false but 2");
    b = with_value("a.key", TM_GGUF_ARRAY);
    number(&b, TM_GGUF_ARRAY, 4);
    number(&b, 1, 8);
    refuse(&b, TM_UNSUPPORTED, "array of arrays");
    b = with_value("a.key", TM_GGUF_ARRAY);
    number(&b, TM_GGUF_F64, 4);
    number(&b, (UINT64_MAX >> 3) + 2, 8); /* times 8 it is 8 */
    number(&b, 0, 8);
    refuse(&b, TM_FORMAT, "within a.key");
    b = with_value("a.key", TM_GGUF_ARRAY);
    number(&b, TM_GGUF_TEXT, 4);
    number(&b, 1ull << 61, 8);
    number(&b, 0, 8);
    refuse(&b, TM_FORMAT, "within a.key");
    b = with_value("", TM_GGUF_U8);
    number(&b, 0, 8);
    refuse(&b, TM_FORMAT, "is empty");
    b = head(3, 0, 2);
    for (int i = 0; i < 2; i++) {
        text(&b, "twice");
        number(&b, TM_GGUF_U8, 4);
        number(&b, 0, 1);
    }
    refuse(&b, TM_FORMAT, "the key 'twice' twice");
    b = with_value("general.alignment", TM_GGUF_U32);
    number(&b, 24, 4);
    refuse(&b, TM_FORMAT, "general.alignment is no power of two");
    b = with_value("general.alignment", TM_GGUF_U32);
    number(&b, 0, 4);
    refuse(&b, TM_FORMAT, "general.alignment is no power of two");
}

static bytes with_tensor(uint64_t rows, uint64_t columns, uint64_t format, uint64_t offset)
{
    bytes b = head(3, 1, 0);
    tensor(&b, "a.weight", rows, columns, format, offset);
    data(&b, 64);
    return b;
}

TEST(tensors_that_lie_are_refused)
{
    bytes b = with_tensor(4, 4, 0, 32);
    refuse(&b, TM_FORMAT, "'a.weight' is at bytes 32 to 96 of the data, which has 64");
    b = with_tensor(4, 4, 0, 8);
    refuse(&b, TM_FORMAT, "no multiple of 32");
    b = with_tensor(4, 4, 0, UINT64_MAX - 31);
    refuse(&b, TM_FORMAT, "begins beyond every file");
    b = with_tensor(1ull << 40, 1ull << 40, 0, 0);
    refuse(&b, TM_FORMAT, "larger than any memory");
    b = with_tensor(1ull << 30, 1ull << 30, 0, 0);
    refuse(&b, TM_FORMAT, "larger than any memory");
    b = with_tensor(UINT64_MAX, 1, 0, 0);
    refuse(&b, TM_FORMAT, "no possible length");
    b = with_tensor(0, 4, 0, 0);
    refuse(&b, TM_FORMAT, "no possible length: 0");
    b = with_tensor(1, 33, 8, 0);
    refuse(&b, TM_FORMAT, "no whole blocks of q8_0");
    b = head(3, 1, 0);
    text(&b, "a.weight");
    number(&b, 5, 4);
    data(&b, 64);
    refuse(&b, TM_FORMAT, "has 5 axes");
    b = head(3, 2, 0);
    tensor(&b, "a", 4, 4, 0, 0);
    tensor(&b, "b", 4, 4, 0, 32);
    data(&b, 128);
    refuse(&b, TM_FORMAT, "'b' begins within another");
    b = head(3, 2, 0);
    tensor(&b, "a", 4, 2, 0, 0);
    tensor(&b, "a", 4, 2, 0, 32);
    data(&b, 128);
    refuse(&b, TM_FORMAT, "the tensor 'a' twice");
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
