/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of parquet files that another implementation wrote (tools/make_parquet_fixtures.py), in every codec,
 * encoding and page version; and what is refused. */
#include "support/refusal.h"
#include "base/file.h"
#include "data/parquet.h"

#include "support/test.h"

#define FIXTURES "tests/data/parquet/"

static tm_text read_whole(const char *name)
{
    char    path[256];
    tm_text text = { 0 };
    snprintf(path, sizeof path, FIXTURES "%s", name);
    assert_ok(tm_file_read(path, 1 << 20, &text, err));
    return text;
}

TEST(texts_of_every_form)
{
    static const char *const files[] = { "none-1", "none-2", "snappy-1", "snappy-2", "gzip-1",       "gzip-2", "zstd-1",
                                         "zstd-2", "plain",  "delta",    "required", "empty_groups", "mixed" };
    tm_text                  wanted = read_whole("texts.txt");
    for (size_t f = 0; f < sizeof files / sizeof files[0]; f++) {
        char        path[256];
        tm_text     got = { 0 };
        tm_parquet *p;
        const char *text;
        size_t      n;
        bool        more = true;
        snprintf(path, sizeof path, FIXTURES "%s.parquet", files[f]);
        assert_ok(tm_parquet_open(path, "text", &p, err));
        while (more) {
            assert_ok(tm_parquet_next(p, &text, &n, &more, err));
            if (!more) break;
            tm_text_add_n(&got, text, n);
            tm_text_add(&got, "\n");
        }
        assert_int_equal(got.length, wanted.length);
        assert_memory_equal(got.data, wanted.data, wanted.length);
        tm_parquet_close(p);
        tm_text_fini(&got);
    }
    tm_text_fini(&wanted);
}

/* All texts of bytes that may be damaged: the first failure, or TM_OK. */
static tm_status read_all(const uint8_t *bytes, size_t size, const char *column, tm_error *err)
{
    tm_parquet *p;
    const char *text;
    size_t      n;
    bool        more = true;
    tm_status   st = tm_parquet_parse("x.parquet", bytes, (int64_t)size, column, &p, err);
    if (st != TM_OK) return st;
    while (st == TM_OK && more) st = tm_parquet_next(p, &text, &n, &more, err);
    tm_parquet_close(p);
    return st;
}

/* The dictionary of the column with another length when unpacked. */
TEST(a_page_that_fills_the_memory_is_refused)
{
    static const char begins[] = { 0x15, 4, 0x15 }; /* tag, type of a dictionary, tag of the length */
    static const struct {
        uint64_t    length;
        const char *words;
    } pages[] = { { 200 << 20, "packed more than 1,000 times" },
                  { (uint64_t)3 << 29, "a page is truncated" },
                  { 40 << 20, "cannot be unpacked" } };
    tm_text file = read_whole("zstd-1.parquet");
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
        tm_text  other = { 0 };
        uint64_t zigzag = 2 * pages[i].length;
        size_t   rest = 4; /* behind "PAR1"; the column is not the first one */
        for (int k = 0; k < 2; k++) {
            const char *found = memmem(file.data + rest, file.length - rest, begins, sizeof begins);
            assert_non_null(found);
            rest = (size_t)(found - file.data) + sizeof begins;
        }
        tm_text_add_n(&other, file.data, rest);
        for (; zigzag >= 128; zigzag >>= 7) tm_text_add_n(&other, &(char){ (char)(zigzag | 128) }, 1);
        tm_text_add_n(&other, &(char){ (char)zigzag }, 1);
        while (file.data[rest++] & 0x80) {
        }
        tm_text_add_n(&other, file.data + rest, file.length - rest);
        assert_refused(read_all((const uint8_t *)other.data, other.length, "text", err), TM_FORMAT, pages[i].words);
        tm_text_fini(&other);
    }
    tm_text_fini(&file);
}

TEST(what_is_refused_is_named)
{
    static const struct {
        const char *file, *column, *named;
        tm_status   status;
    } bad[] = { { "brotli.parquet", "text", "compressed with Brotli (codec 4), which is not read", TM_UNSUPPORTED },
                { "lz4_raw.parquet", "text", "compressed with LZ4_RAW (codec 7), which is not read", TM_UNSUPPORTED },
                { "delta_byte.parquet", "text", "encoded as DELTA_BYTE_ARRAY (encoding 7)", TM_UNSUPPORTED },
                { "none-1.parquet", "words", "no column 'words'; it has id, text, meta, tags", TM_INVALID },
                { "none-1.parquet", "id", "'id' holds no texts", TM_INVALID },
                { "none-1.parquet", "meta", "'meta' holds no texts", TM_INVALID },
                { "none-1.parquet", "a", "no column 'a'", TM_INVALID },
                { "texts.txt", "text", "no PAR1", TM_FORMAT } };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tm_text  bytes = read_whole(bad[i].file);
        tm_error err = { 0 };
        assert_int_equal(read_all((const uint8_t *)bytes.data, bytes.length, bad[i].column, &err), bad[i].status);
        refusal_is_sound(&err);
        if (!strstr(err.text, bad[i].named)) fail_msg("%s: %s", bad[i].file, err.text);
        tm_text_fini(&bytes);
    }
}

TESTS_IN_ORDER
