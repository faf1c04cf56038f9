/* SPDX-License-Identifier: Apache-2.0 */
/* Every byte of small files changed in several ways: a reader refuses, with a message that names the file, or it
 * reads no more than there is; each kind of file notices most of them. */
#include "base/arena.h"
#include "data/indexed.h"
#include "data/packed.h"
#include "data/parquet.h"
#include "data/rows.h"
#include "data/token_list.h"
#include "support/fake_run.h"
#include "support/folder.h"

#include <jansson.h>

#include "support/test.h"

/* Appends what a reader has read. */
typedef tm_status (*reader)(const uint8_t *bytes, size_t size, tm_text *out, tm_error *err);

static tm_status read_packed(const uint8_t *bytes, size_t size, tm_text *out, tm_error *err)
{
    tm_packed packed;
    TM_TRY(tm_packed_parse("x", bytes, size, &packed, err));
    tm_text_printf(out, "%lld %lld", (long long)packed.rows, (long long)packed.width);
    for (int64_t r = 0; r < packed.rows; r++)
        for (int64_t t = 0; t < packed.width; t++)
            tm_text_printf(out, " %d/%d", tm_packed_id(&packed.row[r], t),
                           packed.masks[packed.row[r].mask + (size_t)t]);
    tm_packed_close(&packed);
    return TM_OK;
}

static tm_status read_texts(const uint8_t *bytes, size_t size, tm_text *out, tm_error *err)
{
    tm_parquet *p;
    const char *text;
    size_t      n;
    bool        more = true;
    tm_status   st = tm_parquet_parse("x", bytes, (int64_t)size, "text", &p, err);
    if (st != TM_OK) return st;
    while (st == TM_OK && more) {
        st = tm_parquet_next(p, &text, &n, &more, err);
        if (st == TM_OK && more) tm_text_printf(out, "%zu:%.*s ", n, (int)n, text);
    }
    tm_text_printf(out, "%lld", (long long)tm_parquet_place(p));
    tm_parquet_close(p);
    return st;
}

static tm_status read_lists(const uint8_t *bytes, size_t size, tm_text *out, tm_error *err)
{
    static const char *const wanted[] = { "messages", "conversations", "data", "text", "prompt", "tags" };
    tm_rows                 *rows;
    json_t                  *row = NULL;
    tm_status                st = tm_rows_parse("x", bytes, size, wanted, 6, &rows, err);
    if (st != TM_OK) return st;
    while ((st = tm_rows_next(rows, &row, err)) == TM_OK && row) {
        char *text = json_dumps(row, JSON_COMPACT | JSON_SORT_KEYS);
        tm_text_printf(out, "%lld %s ", (long long)tm_rows_number(rows), text);
        free(text);
        json_decref(row);
    }
    tm_rows_close(rows);
    return st;
}

static tm_status read_index(const uint8_t *bytes, size_t size, tm_text *out, tm_error *err)
{
    uint8_t    tokens[200];
    tm_indexed set;
    int32_t    id;
    for (size_t i = 0; i < sizeof tokens; i++) tokens[i] = (uint8_t)(i * i);
    TM_TRY(tm_indexed_parse("x", bytes, (int64_t)size, "y", tokens, 50, &set, err));
    set.bin.bytes = tokens;
    tm_text_printf(out, "%s %lld %lld %lld %d %d", tm_indexed_type(&set), (long long)set.sequences,
                   (long long)set.documents, (long long)set.tokens, set.token_bytes, set.modes);
    for (int64_t i = 0; i < set.sequences; i++)
        tm_text_printf(out, " %lld@%lld", (long long)tm_indexed_length(&set, i),
                       (long long)tm_indexed_first_token(&set, i));
    for (int64_t i = 0; i < set.tokens; i++) {
        bool known = tm_indexed_token(&set, i, &id);
        tm_text_printf(out, known ? " %d" : " none", known ? id : 0);
    }
    return TM_OK;
}

static tm_status read_ids(const uint8_t *bytes, size_t size, tm_text *out, tm_error *err)
{
    int32_t *ids;
    int64_t  n;
    TM_TRY(tm_token_list_parse("x", bytes, size, 50000, &ids, &n, err));
    for (int64_t i = 0; i < n; i++) tm_text_printf(out, "%d ", ids[i]);
    free(ids);
    return TM_OK;
}

/* --- all of them ---------------------------------------------------------------------------------- */

/* `least` percent of the changes are refused: what was found, so fewer are a check that is gone. */
static void damage(const char *name, const uint8_t *bytes, size_t size, reader read, int least)
{
    static const uint8_t changes[] = { 1, 2, 4, 8, 16, 32, 64, 128, 255 };
    const int            all = (int)(size * sizeof changes);
    tm_text              whole = { 0 }, outcome = { 0 };
    int                  refused = 0, same = 0;
    tm_error             err = { 0 };
    assert_int_equal(read(bytes, size, &whole, &err), TM_OK);
    for (size_t at = 0; at < size; at++)
        for (size_t k = 0; k < sizeof changes; k++) {
            uint8_t *changed = tm_alloc(size); /* exactly: what is read behind it is seen */
            memcpy(changed, bytes, size);
            changed[at] ^= changes[k];
            err = (tm_error){ 0 };
            outcome.length = 0;
            tm_text_add(&outcome, "");
            tm_status st = read(changed, size, &outcome, &err);
            assert_int_equal(st, err.status);
            if (st == TM_OK) same += strcmp(outcome.data, whole.data) == 0;
            if (st != TM_OK) {
                refused++;
                if (tm_status_exit_code(st) != 4 || !strstr(err.text, "'x'")) fail_msg("%s: %s", name, err.text);
            }
            free(changed);
        }
    if (refused * 100 < least * all)
        fail_msg("%s: %d of %d changes are refused, %d change nothing", name, refused, all, same);
    for (size_t n = 8; n < size; n++) { /* cut off, behind what says which kind of file it is */
        uint8_t *part = tm_alloc(n + 1);
        memcpy(part, bytes, n);
        err = (tm_error){ 0 };
        outcome.length = 0;
        tm_text_add(&outcome, "");
        if (tm_status_exit_code(read(part, n, &outcome, &err)) != 4)
            fail_msg("%s: %zu of %zu bytes are enough", name, n, size);
        free(part);
    }
    tm_text_fini(&whole);
    tm_text_fini(&outcome);
}

static void damage_file(const char *path, reader read, int least)
{
    tm_text bytes = fake_read(path);
    damage(path, (const uint8_t *)bytes.data, bytes.length, read, least);
    tm_text_fini(&bytes);
}

static size_t put(uint8_t *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) out[i] = (uint8_t)(value >> 8 * i);
    return (size_t)bytes;
}

TEST(damage_is_noticed)
{
    const int32_t  ids[] = { 5, 70000, -1, 8, 9, 10, 11, 12, 300 };
    const uint8_t  masks[] = { 1, 0, 1, 0, 0, 1, 1, 1, 0 };
    static uint8_t idx[200];
    size_t         n = 9;
    assert_ok(tm_packed_write(test_in_folder("x.npy"), 3, 3, ids, masks, err));
    tm_text packed = fake_read(test_in_folder("x.npy"));
    damage("three packed rows", (const uint8_t *)packed.data, packed.length, read_packed, 93);
    tm_text_fini(&packed);
    damage_file("tests/data/parquet/required.parquet", read_texts, 51);
    damage_file("tests/data/parquet/delta.parquet", read_texts, 21);
    damage_file("tests/data/sft/lists.parquet", read_lists, 35);
    damage_file("tests/data/sft/ragged.parquet", read_lists, 52);
    memcpy(idx, "MMIDIDX\0", 9);
    n += put(idx + n, 1, 8);
    n += put(idx + n, 8, 1);
    n += put(idx + n, 3, 8);
    n += put(idx + n, 4, 8);
    n += put(idx + n, 12, 4);
    n += put(idx + n, 6, 4);
    n += put(idx + n, 7, 4);
    n += put(idx + n, 0, 8);
    n += put(idx + n, 24, 8);
    n += put(idx + n, 36, 8);
    for (uint64_t i = 0; i < 4; i++) n += put(idx + n, i, 8);
    damage("an index", idx, n, read_index, 99);
    static const char list[] = "\x93NUMPY\x01\x00\x46\x00{'descr': '<i4', 'fortran_order': False, 'shape': (4,), }"
                               "            \n\x05\0\0\0\x00\x01\0\0\x07\0\0\0\x4f\xc3\0\0";
    damage("a list of tokens", (const uint8_t *)list, sizeof list - 1, read_ids, 45);
}

TEST_FIXTURE(NULL, test_folder_teardown)
