/* SPDX-License-Identifier: Apache-2.0 */
/* What `data inspect`, `pack` and `verify` say of files whose content is known. */
#include "base/log.h"
#include "data/indexed.h"
#include "data/inspect.h"
#include "data/pack.h"
#include "data/packed.h"
#include "data/verify.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/source_files.h"

#include "support/test.h"

enum { T = TEST_SOURCE_T };

/* Cells of these columns, rows separated by commas; "-": an empty one. */
static void cells_are(const char *what, const tm_table *table, const char *columns, const char *wanted)
{
    tm_text is = { 0 };
    tm_text_add(&is, "");
    for (size_t r = 0; r < tm_table_n_rows(table); r++) {
        char list[200], *rest = list;
        snprintf(list, sizeof list, "%s", columns);
        for (char *column; (column = strsep(&rest, " "));) {
            const tm_cell *cell = tm_table_cell(table, r, (size_t)tm_table_find(table, column));
            tm_text_add(&is, column != list ? " " : r ? ", " : "");
            if (cell->kind == TM_CELL_EMPTY) tm_text_add(&is, "-");
            if (cell->kind == TM_CELL_TEXT) tm_text_add(&is, cell->text);
            if (cell->kind == TM_CELL_I64) tm_text_printf(&is, "%lld", (long long)cell->i64);
            if (cell->kind == TM_CELL_F64) tm_text_printf(&is, "%.9g", cell->f64);
        }
    }
    if (strcmp(is.data, wanted) != 0) fail_msg("%s: '%s', wanted '%s'", what, is.data, wanted);
    tm_text_fini(&is);
}

/* Refused with these words, or not at all. */
static void refused_with(const char *what, tm_status st, const tm_error *err, const char *words)
{
    if ((st != TM_OK) != (words != NULL) || (words && !strstr(err->text, words)))
        fail_msg("%s: '%s', wanted '%s'", what, err->text, words ? words : "");
}

static void is_inspected(const char *path, const char *wanted, const char *note, const char *refused)
{
    static const char figures[] = "format type rows documents tokens length_min length_max id_min id_max counted";
    tm_table         *table = tm_data_inspect_table();
    tm_error          err = { 0 };
    refused_with(path, tm_data_inspect(path, table, &err), &err, refused);
    cells_are(path, table, figures, wanted);
    assert_int_equal(tm_table_n_notes(table), note != NULL);
    if (note) assert_string_equal(tm_table_note_at(table, 0), note);
    tm_table_destroy(table);
}

/* The figures are those of what write_all and support/source_files.c write. */
TEST(files_are_described)
{
    static const struct {
        const char *path, *figures, *note, *refused;
    } files[] = {
        { "set", "megatron uint16 9 9 432 20 76 0 49 -", NULL, NULL },
        { "set.idx", "megatron uint16 9 9 432 20 76 0 49 -", NULL, NULL },
        { "set.bin", "megatron uint16 9 9 432 20 76 0 49 -", NULL, NULL },
        { "train.npy", "govreport int32 7 - 168 24 24 0 49 0.797619048", NULL, NULL },
        { "gov", "govreport int32 3 - 72 24 24 0 49 0.666666667, govreport int32 2 - 48 24 24 0 47 0.666666667", NULL,
          NULL },
        { "text.txt", "text uint8 1 1 12155 12155 12155 10 256 -", NULL, NULL },
        { "docs", "text uint8 10 10 207 8 33 32 256 -",
          "docs: left out 1 hidden names, 1 empty files, 0 reached a second time", NULL },
        { "rows.parquet", "", NULL, "'rows.parquet' holds rows, not tokens" },
        { "nothing", "", NULL, "cannot reach 'nothing': No such file or directory" },
        { "short", "megatron int32 2 2 3 1 2 3 49 -", NULL, NULL },
        { "empty", "text uint8 0 0 0 0 0 - - -", NULL, NULL },
        { ".npy", "text uint8 1 1 2 2 2 120 256 -", NULL, NULL },
        { "images", "", NULL, "'images/a.safetensors' is a binary file, wanted text" },
        { "floats", "megatron float32 1 1 4 4 4 2 10 -", "floats: 2 tokens are not integers of 32 bits", NULL },
    };
    static const tm_pack_options packs[] = {
        { .path = "docs", .out = "packed", .format = "megatron" },
        { .path = "docs", .out = "packed.npy", .format = "govreport", .seq = 7 },
        { .path = "docs", .out = "answers.npy", .format = "govreport", .seq = 5, .answer = "a" },
        { .path = "docs", .out = "much.npy", .format = "govreport", .seq = 1000 },
        { .path = "empty", .out = "none", .format = "megatron" },
        { .path = "docs", .out = "no/such", .format = "megatron" },
    };
    static const char *const packed[][2] = {
        /* as they are inspected, or why not */
        { "megatron uint16 10 10 207 8 33 32 256 -", NULL },
        { "govreport int32 29 - 203 7 7 32 256 1", NULL },
        { "govreport int32 41 - 205 5 5 32 256 0.809756098", NULL },
        { NULL, "'docs' has 207 tokens, that are 0 rows of 1000" },
        { NULL, "no text in 'empty'" },
        { NULL, "cannot create 'no/such.bin': directory 'no': No such file or directory" },
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        is_inspected(files[i].path, files[i].figures, files[i].note, files[i].refused);
    for (size_t i = 0; i < sizeof packs / sizeof packs[0]; i++) {
        int64_t  rows = -1;
        tm_error err = { 0 };
        refused_with(packs[i].out, tm_data_pack(&packs[i], &rows, &err), &err, packed[i][1]);
        if (packed[i][1]) continue;
        assert_int_equal(rows, atoi(strstr(packed[i][0], "t16 ") ? strstr(packed[i][0], "t16 ") + 4
                                                                 : strstr(packed[i][0], "t32 ") + 4));
        is_inspected(packs[i].out, packed[i][0], NULL, NULL);
    }
}

TEST(files_are_verified)
{
#define MD5 "0cc175b9c0f1b6a831c399e269772661" /* of "a" */
    static const struct {
        const char *path, *given, *checks;
        bool        passed;
        const char *refused;
    } all[] = {
        { "docs", NULL, "", true, "nothing is known of 'docs' to compare with" },
        { "gov", NULL, "bytes FAILED, bytes FAILED, directory md5 FAILED", false, NULL },
        { "train.npy", NULL, "bytes FAILED", false, NULL },
        { "lists", NULL, "md5 ok, md5 FAILED, md5 FAILED, md5 ok", false, NULL },
        { "lists/a.md5", NULL, "md5 ok, md5 FAILED, md5 FAILED", false, NULL },
        { "lists/x", NULL, "md5 ok", true, NULL },
        { "lists/x", MD5, "md5 ok, md5 ok", true, NULL },
        { "lists", MD5, "md5 ok, md5 FAILED, md5 FAILED, md5 ok, directory md5 FAILED", false, NULL },
        { "set", NULL, "", true, "nothing is known of 'set' to compare with" },
        { "set", MD5, "", false, "--expect is for one file or a directory" },
        { "nothing", NULL, "", false, "cannot open 'nothing': No such file or directory" },
        { "c4-validation-91205-samples.en_text_document", NULL, "bytes FAILED, bytes FAILED", false, NULL },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        tm_table *table = tm_data_verify_table();
        tm_error  err = { 0 };
        bool      passed = false;
        refused_with(all[i].path, tm_data_verify(all[i].path, all[i].given, table, &passed, &err), &err,
                     all[i].refused);
        cells_are(all[i].path, table, "check verdict", all[i].checks);
        assert_int_equal(passed, all[i].passed);
        for (size_t r = 0; r < tm_table_n_rows(table); r++) { /* equal is what passes */
            const char *is = tm_table_cell(table, r, (size_t)tm_table_find(table, "found"))->text;
            const char *wanted = tm_table_cell(table, r, (size_t)tm_table_find(table, "wanted"))->text;
            const char *verdict = tm_table_cell(table, r, (size_t)tm_table_find(table, "verdict"))->text;
            assert_int_equal(strcmp(is, wanted) == 0, strcmp(verdict, "ok") == 0);
            if (strcmp(verdict, "ok") == 0) assert_string_equal(is, MD5);
        }
        tm_table_destroy(table);
    }
}

/* ---- the files ---- */

static void write_short(void)
{
    tm_indexed_writer writer;
    const int32_t     tokens[] = { 7, 49, 3 };
    assert_ok(tm_indexed_begin("short", true, &writer, err));
    tm_indexed_add(&writer, tokens, 2);
    tm_indexed_end_document(&writer);
    tm_indexed_add(&writer, tokens + 2, 1);
    tm_indexed_end_document(&writer);
    assert_ok(tm_indexed_finish(&writer, err));
}

/* The tokens 2 and 10 as numbers with a point; between them one and a half, and one without end. */
static void write_floats(void)
{
    tm_indexed_writer writer;
    const int32_t     bits[] = { 0x40000000, 0x3FC00000, 0x7F800000, 0x41200000 };
    assert_ok(tm_indexed_begin("floats", true, &writer, err));
    tm_indexed_add(&writer, bits, 4);
    tm_indexed_end_document(&writer);
    assert_ok(tm_indexed_finish(&writer, err));
    FILE *f = fopen("floats.idx", "r+b");
    assert_true(f && fseek(f, 17, SEEK_SET) == 0 && fputc(7, f) == 7); /* the code of float32 */
    fclose(f);
}

static int write_all(void **state)
{
    tm_error err = { 0 };
    (void)state;
    tm_log_set_level(TM_LOG_ERROR);
    test_source_files_write();
    test_folder_enter();
    for (size_t i = 0; i < 5; i++)
        if (mkdir((const char *[]){ "docs", "gov", "empty", "lists", "docs/.hidden" }[i], 0700) != 0) return -1;
    for (int i = 0; i < 9; i++) {
        char name[16], text[64];
        snprintf(name, sizeof name, "%d", i);
        snprintf(text, sizeof text, "%.*s and %d", 3 * i + 1, "what a document says is this or that", i * i);
        test_file_write("docs", name, text);
    }
    test_file_write("docs", "same", "what a document and 1");
    test_file_write("docs", "none", "");
    for (int k = 0; k < 2; k++) {
        int32_t ids[3 * T];
        uint8_t masks[3 * T];
        for (int i = 0; i < 3 * T; i++) ids[i] = (i * i + k) % 50, masks[i] = i % 3 != k;
        if (tm_packed_write(k ? "gov/validation.npy" : "gov/train.npy", 3 - k, T, ids, masks, &err) != TM_OK) return -1;
    }
    write_short();
    write_floats();
    test_file_write(".", "rows.parquet", "PAR1");
    test_file_write(".", ".npy", "x");
    test_file_write("lists", "x", "a");
    test_file_write("lists", "a.md5",
                    "0cc175b9c0f1b6a831c399e269772661  x\n0cc175b9c0f1b6a831c399e269772662 *x\n"
                    "0cc175b9c0f1b6a831c399e269772661  y\n");
    test_file_write("lists", "x.md5", "0cc175b9c0f1b6a831c399e269772661  x\n");
    test_file_write(".", "c4-validation-91205-samples.en_text_document.idx", "x");
    test_file_write(".", "c4-validation-91205-samples.en_text_document.bin", "xy");
    return 0;
}

TEST_FIXTURE(write_all, test_folder_teardown)
