/* SPDX-License-Identifier: Apache-2.0 */
/* Parquet files made by hand, a column of texts in a page: names of all lengths; what a footer says of the column, one
 * thing after the other left out or wrong. */
#include "base/text.h"
#include "data/parquet.h"
#include "data/parquet_footer.h"

#include <stdio.h>
#include <string.h>

#include "support/test.h"

/* --- to write ------------------------------------------------------------------------------------------------------
 */

static void byte(tm_text *out, int value)
{
    char c = (char)value;
    tm_text_add_n(out, &c, 1);
}

static void varint(tm_text *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7) byte(out, (int)(value & 0x7F) | 0x80);
    byte(out, (int)value);
}

/* Of a struct whose last field was *last. */
static void field(tm_text *out, int *last, int number, int kind)
{
    byte(out, (number - *last) << 4 | kind);
    *last = number;
}

static void number(tm_text *out, int *last, int which, int kind, int64_t value)
{
    field(out, last, which, kind);
    varint(out, (uint64_t)value << 1 ^ (uint64_t)(value >> 63));
}

static void word(tm_text *out, int *last, int which, const char *text)
{
    field(out, last, which, TM_THRIFT_BINARY);
    varint(out, strlen(text));
    tm_text_add(out, text);
}

static void four(tm_text *out, size_t value)
{
    for (int i = 0; i < 4; i++) byte(out, (int)(value >> 8 * i & 0xFF));
}

/* What the footer says of the column. */
enum { LEFT_OUT = -1000 };
typedef struct {
    int64_t     codec, values, bytes, first, dictionary;
    const char *file;
} said;

/* The texts "first" and "second" in a page of their own. */
static void add_page(tm_text *out)
{
    int last = 0, inner = 0;
    number(out, &last, 1, TM_THRIFT_I32, 0);
    number(out, &last, 2, TM_THRIFT_I32, 19);
    number(out, &last, 3, TM_THRIFT_I32, 19);
    field(out, &last, 5, TM_THRIFT_STRUCT);
    number(out, &inner, 1, TM_THRIFT_I32, 2);
    number(out, &inner, 2, TM_THRIFT_I32, 0);
    byte(out, 0), byte(out, 0);
    four(out, 5), tm_text_add(out, "first");
    four(out, 6), tm_text_add(out, "second");
}

static void add_schema(tm_text *out, const char *name)
{
    int root = 0, leaf = 0;
    byte(out, 2 << 4 | TM_THRIFT_STRUCT);
    word(out, &root, 4, "schema");
    number(out, &root, 5, TM_THRIFT_I32, 1);
    byte(out, 0);
    number(out, &leaf, 1, TM_THRIFT_I32, 6);
    number(out, &leaf, 3, TM_THRIFT_I32, 0);
    word(out, &leaf, 4, name);
    byte(out, 0);
}

static void add_column(tm_text *out, const said *s)
{
    static const int which[] = { 4, 5, 7, 9, 11 };
    const int64_t    values[] = { s->codec, s->values, s->bytes, s->first, s->dictionary };
    int              group = 0, column = 0, meta = 0;
    field(out, &group, 1, TM_THRIFT_LIST);
    byte(out, 1 << 4 | TM_THRIFT_STRUCT);
    if (s->file) word(out, &column, 1, s->file);
    number(out, &column, 2, TM_THRIFT_I64, 4);
    field(out, &column, 3, TM_THRIFT_STRUCT);
    number(out, &meta, 1, TM_THRIFT_I32, 6);
    for (int i = 0; i < 5; i++)
        if (values[i] != LEFT_OUT) number(out, &meta, which[i], i == 0 ? TM_THRIFT_I32 : TM_THRIFT_I64, values[i]);
    byte(out, 0), byte(out, 0);
    number(out, &group, 2, TM_THRIFT_I64, 19);
    number(out, &group, 3, TM_THRIFT_I64, 2);
    byte(out, 0);
}

static tm_text make_file(const char *name, const said *s)
{
    tm_text out = { 0 };
    int     last = 0;
    tm_text_add(&out, "PAR1");
    add_page(&out);
    size_t begin = out.length;
    number(&out, &last, 1, TM_THRIFT_I32, 1);
    field(&out, &last, 2, TM_THRIFT_LIST);
    add_schema(&out, name);
    number(&out, &last, 3, TM_THRIFT_I64, 2);
    field(&out, &last, 4, TM_THRIFT_LIST);
    byte(&out, 1 << 4 | TM_THRIFT_STRUCT);
    add_column(&out, s);
    byte(&out, 0);
    four(&out, out.length - begin);
    tm_text_add(&out, "PAR1");
    return out;
}

static tm_status read_texts(const tm_text *file, const char *column, tm_text *out, tm_error *err)
{
    tm_parquet *p;
    const char *text;
    size_t      n;
    bool        more = true;
    *err = (tm_error){ 0 };
    tm_status st = tm_parquet_parse("x", (const uint8_t *)file->data, (int64_t)file->length, column, &p, err);
    if (st != TM_OK) return st;
    while (st == TM_OK && more) {
        st = tm_parquet_next(p, &text, &n, &more, err);
        if (st == TM_OK && more) tm_text_printf(out, "%.*s,", (int)n, text);
    }
    tm_parquet_close(p);
    return st;
}

/* --- to read -------------------------------------------------------------------------------------------------------
 */

static const said good = { 0, 2, 32, 4, LEFT_OUT, NULL };

/* A name is compared as a whole; the C library sees it when the end of one is written behind its memory. */
TEST(names_of_all_lengths)
{
    char name[130] = "";
    for (size_t n = 1; n < 130; n++) {
        tm_text           file, got = { 0 };
        tm_parquet_leaves leaves = { 0 };
        tm_error          err;
        char              wanted[200];
        name[n - 1] = (char)('a' + n % 26);
        file = make_file(name, &good);
        if (read_texts(&file, name, &got, &err) != TM_OK) fail_msg("%zu: %s", n, err.text);
        assert_string_equal(got.data, "first,second,");
        tm_text_fini(&got);
        name[n - 1] = '-'; /* another one of the same length */
        assert_int_equal(read_texts(&file, name, &got, &err), TM_INVALID);
        name[n - 1] = (char)('a' + n % 26);
        snprintf(wanted, sizeof wanted, "; it has %.60s", name);
        assert_string_equal(strstr(err.text, "; it has"), wanted);
        assert_int_equal(tm_parquet_read_leaves("x", (const uint8_t *)file.data, (int64_t)file.length, &leaves, &err),
                         TM_OK);
        assert_int_equal(leaves.count, 1);
        assert_string_equal(leaves.data[0].column, name);
        assert_string_equal(leaves.data[0].member, "");
        assert_true(leaves.data[0].flat && leaves.data[0].text && leaves.data[0].index == 0);
        tm_parquet_leaves_fini(&leaves);
        tm_text_fini(&file);
    }
}

TEST(what_is_said_of_a_column)
{
    static const char outside[] = "'x' is not a parquet file, or damaged: a column lies outside of it";
    static const struct {
        const char *what, *words; /* NULL: its texts are read */
        said        s;
    } rows[] = {
        { "as it is", NULL, { 0, 2, 32, 4, LEFT_OUT, NULL } },
        { "no codec", "'x': codec -1 of parquet is not supported", { LEFT_OUT, 2, 32, 4, LEFT_OUT, NULL } },
        { "Hadoop's",
          "'x': the column is compressed with LZ4 of Hadoop (codec 5), which is not read",
          { 5, 2, 32, 4, LEFT_OUT, NULL } },
        { "a codec to come", "'x': codec 8 of parquet is not supported", { 8, 2, 32, 4, LEFT_OUT, NULL } },
        { "LZO",
          "'x': the column is compressed with LZO (codec 3), which is not read",
          { 3, 2, 32, 4, LEFT_OUT, NULL } },
        { "another",
          "'x': the column is compressed with LZ4_RAW (codec 7), which is not read",
          { 7, 2, 32, 4, LEFT_OUT, NULL } },
        { "below all", "'x': codec -2 of parquet is not supported", { -2, 2, 32, 4, LEFT_OUT, NULL } },
        { "no page", outside, { 0, 2, 32, LEFT_OUT, LEFT_OUT, NULL } },
        { "in the beginning of the file", outside, { 0, 2, 32, 3, LEFT_OUT, NULL } },
        { "less than nothing", outside, { 0, 2, -1, 4, LEFT_OUT, NULL } },
        { "less than no texts", outside, { 0, -1, 32, 4, LEFT_OUT, NULL } },
        { "longer than the file", outside, { 0, 2, 1 << 20, 4, LEFT_OUT, NULL } },
        { "behind the file", outside, { 0, 2, 0, 1 << 20, LEFT_OUT, NULL } },
        { "as long as numbers are", outside, { 0, 2, INT64_MAX, 4, LEFT_OUT, NULL } },
        { "a dictionary at 0 is none", NULL, { 0, 2, 32, 4, 0, NULL } },
        { "one behind the texts is none", NULL, { 0, 2, 32, 4, 40, NULL } },
        { "one before the file", outside, { 0, 2, 32, 4, 1, NULL } },
        { "a file of its own",
          "'x': a column in another file, field 1 of parquet is not supported",
          { 0, 2, 32, 4, LEFT_OUT, "y" } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_text   file = make_file("text", &rows[i].s), got = { 0 };
        tm_error  err;
        tm_status st = read_texts(&file, "text", &got, &err);
        if (rows[i].words ? st == TM_OK || strncmp(err.text, rows[i].words, strlen(rows[i].words)) != 0
                          : st != TM_OK || strcmp(got.data, "first,second,") != 0)
            fail_msg("%s: %d %s %s", rows[i].what, st, err.text, got.data ? got.data : "");
        tm_text_fini(&got);
        tm_text_fini(&file);
    }
}
