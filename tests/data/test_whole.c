/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of every source by rules, and what the commands on data say of files whose content is known. */
#include "base/arena.h"
#include "base/file.h"
#include "base/log.h"
#include "data/indexed.h"
#include "data/inspect.h"
#include "data/pack.h"
#include "data/packed.h"
#include "data/safetensors.h"
#include "data/source.h"
#include "data/tokenize.h"
#include "data/verify.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/source_files.h"
#include "support/whole.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/test.h"

enum { T = TEST_SOURCE_T };

/* Tests run in the folder of their files, for short names. */
static char *back;

#define FLOW .flow = TEST_SOURCE_FLOW

/* ---- sources ---- */

static const tm_source_options sets[] = {
    { .name = "Synthetic", .vocab = 64, .seq = T, .seed = 8 },
    { .name = "synthetic", .vocab = 8, .seq = 5, .seed = 1 },
    { .name = "mock", .vocab = 100, .seq = T, .seed = 8 },
    { .name = "mock", .vocab = 2, .seq = T, .seed = 8 },
    { .name = "text", .path = "text.txt", .seq = T, .seed = 8, .validation_fraction = 0.2 },
    { .name = "text", .path = "docs", .seq = 5, .vocab = 300, .seed = 8, .validation_fraction = 0.4, .separate = true },
    { .name = "text", .path = "docs", .seq = 5, .seed = 9 },
    { .name = "reports", .vocab = 64, .seq = 4 * T, .seed = 8 },
    { .name = "reports", .vocab = 64, .seq = 4 * T, .seed = 8, .plain_answers = true },
    { .name = "govreport", .path = "gov", .vocab = 50, .seq = T, .seed = 3, .pad_token = 9 },
    { .name = "govreport",
      .path = "train.npy",
      .validation_path = "train.npy",
      .vocab = 60,
      .seq = T,
      .seed = 3,
      .mask = TM_MASK_TARGET },
    { .name = "megatron", .path = "set", .vocab = 50, .seq = T, .seed = 3, .samples = 8 },
    { .name = "megatron",
      .path = "set.idx",
      .validation_path = "set.bin",
      .vocab = 50,
      .seq = 50,
      .seed = 4,
      .samples = 30,
      .separate = true },
    { .name = "sft", .path = "rows.jsonl", .seq = T, .vocab = 257, .seed = 3, .validation_fraction = 0.2 },
    { .name = "sft",
      .path = "rows.jsonl",
      .seq = T,
      .vocab = 257,
      .seed = 3,
      .sft.packed = true,
      .validation_path = "rows.jsonl" },
    { .name = "sft",
      .path = "rows.jsonl",
      .seq = 6,
      .vocab = 257,
      .seed = 3,
      .sft.overlong = TM_OVERLONG_SPLIT,
      .sft.train_on_input = true },
    { .name = "sft", .path = "rows.jsonl", .seq = 8, .vocab = 257, .seed = 3, .sft.overlong = TM_OVERLONG_DROP },
    { .name = "preference",
      .path = "pairs.jsonl",
      .seq = 2 * T,
      .seed = 3,
      .sft.packed = true,
      .validation_fraction = 0.2 },
    { .name = "preference", .path = "pairs.jsonl", .seq = 14, .seed = 3 },
    { .name = "sft", .path = "rows.jsonl", .seq = 6, .vocab = 257, .seed = 3 },
    { .name = "sft", .path = "rows.jsonl", .seq = 5, .vocab = 257, .seed = 3, .sft.overlong = TM_OVERLONG_SPLIT },
    { .name = "sft",
      .path = "talks.jsonl",
      .seq = 3 * T,
      .vocab = 257,
      .seed = 3,
      .sft = { .packed = true, .chat_template = "talks.jinja" } },
    { .name = "sft",
      .path = "letters.jsonl",
      .validation_path = "letters.jsonl",
      .seq = T,
      .seed = 3,
      .sft.tokenizer = "letters" },
    { .name = "gaussians", .seq = 18, .seed = 7, FLOW },
    { .name = "latents", .path = "images", .seq = 18, .seed = 7, FLOW },
    { .name = "latents", .path = "images", .validation_path = "moments", .seq = 18, .seed = 7, FLOW },
};

/* Of files of moments: the second image. */
#define MEAN 0.5
#define LOGVAR 1.2

static double moment_mean(int i)
{
    return (i * 37 % 97) / 50.0 - 1;
}

typedef struct {
    void   *at[TM_MAX_FIELDS];
    int64_t weight;
} row;

static row read_row(const tm_source *source, const tm_field *fields, int n, tm_split split, int64_t index)
{
    int32_t  scratch[512];
    row      r = { .weight = -1 };
    tm_error err = { 0 };
    for (int f = 0; f < n; f++) r.at[f] = tm_alloc(tm_tensor_bytes(fields[f].shape, fields[f].dtype));
    if (tm_source_row(source, split, index, scratch, r.at, &r.weight, &err) != TM_OK) fail_msg("%s", err.text);
    return r;
}

static void free_row(row *r)
{
    for (int f = 0; f < TM_MAX_FIELDS; f++) free(r->at[f]);
}

/* Targets are the next tokens of the same document; as many count as are told, in pairs two answers each. */
static void check_language(const tm_source *source, const tm_source_options *o, int n_fields, const row *r)
{
    const int32_t *tokens = r->at[0], *targets = r->at[1];
    const int32_t *positions = n_fields > 2 ? r->at[2] : NULL, *first = n_fields > 3 ? r->at[3] : NULL;
    const int64_t  vocabulary = o->vocab > 0 ? o->vocab : tm_source_describe(source)->vocab_needed;
    int64_t        counted = 0, answers = 0;
    for (int64_t t = 0; t < o->seq; t++) {
        const bool counts = targets[t] >= 0, last = t + 1 == o->seq;
        const bool ends = last || (positions && positions[t + 1] == 0);
        assert_in_range(tokens[t], 0, vocabulary - 1);
        assert_true(counts ? targets[t] < vocabulary : targets[t] == -100);
        if (counts && !ends && targets[t + 1] >= 0) assert_int_equal(targets[t], tokens[t + 1]);
        if (positions)
            assert_true(t == 0 || positions[t] == 0 ? positions[t] == 0 : positions[t] == positions[t - 1] + 1);
        if (first) assert_int_equal(first[t], t - positions[t]);
        counted += counts;
        answers += counts && (last || targets[t + 1] < 0);
    }
    assert_int_equal(r->weight, n_fields > 4 ? answers / 2 : counted);
}

/* Losses lie between the floor and that of a model that knows nothing but how frequent tokens are. */
static void check_facts(const tm_source *source, const tm_source_options *o)
{
    const tm_source_facts  *f = tm_source_describe(source);
    const tm_source_traits *traits = tm_source_traits_of(o->name);
    const double            compressed = tm_source_compressed(source);
    if (traits->images) return;
    assert_true(f->vocab_needed > 0 && (o->vocab == 0 || f->vocab_needed <= o->vocab));
    if (traits->needs_path) return;
    assert_true(f->floor > 0 && f->floor <= f->unigram_entropy + 1e-9);
    assert_true(f->unigram_entropy <= log((double)f->vocab_needed) + 1e-9);
    assert_true(compressed > 0.99 * f->validation_floor);
}

TEST(rows_keep_the_rules_of_their_source)
{
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        const tm_source_options *o = &sets[i];
        tm_field                 fields[TM_MAX_FIELDS];
        int                      n = 0;
        tm_error                 err = { 0 };
        tm_source               *source = NULL, *again = NULL;
        if (tm_source_open(o, &source, &err) != TM_OK || tm_source_open(o, &again, &err) != TM_OK ||
            tm_source_fields(o, fields, &n, &err) != TM_OK)
            fail_msg("%zu: %s", i, err.text);
        const tm_source_facts *f = tm_source_describe(source);
        assert_true(f->content == tm_source_describe(again)->content);
        check_facts(source, o);
        for (int64_t k = 0; k < 24; k++) {
            const tm_split split = k % 2 && f->validation_samples > 0 ? TM_SPLIT_VALIDATION : TM_SPLIT_TRAIN;
            const int64_t  index = split == TM_SPLIT_TRAIN ? 3 * k : k % f->validation_samples;
            row r = read_row(source, fields, n, split, index), same = read_row(again, fields, n, split, index);
            for (int m = 0; m < n; m++)
                assert_memory_equal(r.at[m], same.at[m], tm_tensor_bytes(fields[m].shape, fields[m].dtype));
            if (!tm_source_traits_of(o->name)->images) check_language(source, o, n, &r);
            free_row(&r), free_row(&same);
        }
        tm_source_close(source), tm_source_close(again);
    }
}

/* Latents are drawn from their moments: the first image of the file has no spread, the second one is normal. */
TEST(latents_have_their_moments)
{
    enum { SEEDS = 40, ALL = 2 * 8 * 8 };
    double sum = 0, squares = 0;
    for (int seed = 0; seed < SEEDS; seed++) {
        const tm_source_options o = {
            .name = "latents", .path = "images", .validation_path = "moments", .seq = 18, .seed = (uint64_t)seed, FLOW
        };
        tm_source *source = NULL;
        tm_field   fields[TM_MAX_FIELDS];
        tm_error   err = { 0 };
        int        n = 0;
        assert_int_equal(tm_source_open(&o, &source, &err), TM_OK);
        assert_int_equal(tm_source_fields(&o, fields, &n, &err), TM_OK);
        for (int image = 0; image < 2; image++) {
            row          r = read_row(source, fields, n, TM_SPLIT_VALIDATION, image);
            const float *noisy = r.at[0], *velocity = r.at[1], time = *(float *)r.at[2];
            for (int i = 0; i < ALL; i++) {
                const int channel = i / 64, y = i / 8 % 8, x = i % 8;
                const int at = (y / 2 * 4 + x / 2) * 8 + channel * 4 + y % 2 * 2 + x % 2;
                double    latent = ((double)noisy[at] - (double)time * (double)velocity[at]) / 0.3611 + 0.1159;
                if (image == 0) assert_true(fabs(latent - moment_mean(i)) < 1e-5);
                if (image == 1) sum += latent - MEAN, squares += pow(latent - MEAN, 2);
            }
            free_row(&r);
        }
        tm_source_close(source);
    }
    const double draws = (double)SEEDS * ALL, variance = exp(LOGVAR); /* five standard errors */
    assert_true(fabs(sum / draws) < 5 * sqrt(variance / draws));
    assert_true(fabs(squares / draws / variance - 1) < 5 * sqrt(2 / draws));
}

/* ---- commands on files ---- */

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

/* Bytes as tokens: "a" to "e", and the end. */
static const char tokenizer[] = "{\"added_tokens\": [{\"id\": 6, \"content\": \"<|end|>\", \"special\": true}], "
                                "\"normalizer\": null, \"pre_tokenizer\": null,\n"
                                " \"decoder\": null, \"post_processor\": null, \"model\": {\"type\": \"BPE\", "
                                "\"unk_token\": \"?\", \"merges\": [[\"a\", \"b\"]],\n"
                                "  \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"d\": 3, \"?\": 4, \"ab\": 5}}}\n";

TEST(texts_are_tokenized)
{
    static const char *const folder[] = { "corpus" }, *const named[] = { "corpus/b.txt", "corpus/a*.txt" },
                             *const lines[] = { "corpus/rows.jsonl" }, *const binary[] = { "corpus/binary" },
                             *const gone[] = { "gone" }, *const none[] = { "empty" };
    static const tm_tokenize_options all[] = {
        { .paths = folder, .n_paths = 1, .out = "t0", .end = 6, .threads = 2 },
        { .paths = folder, .n_paths = 1, .out = "t1", .end = 6, .threads = 1, .input = "text", .batch_bytes = 4 },
        { .paths = named, .n_paths = 2, .out = "t2", .end = -2, .threads = 3, .batch_bytes = 3 },
        { .paths = lines, .n_paths = 1, .out = "t3", .end = 6, .threads = 2, .field = "text" },
        { .paths = lines, .n_paths = 1, .out = "t4", .end = 6, .threads = 2 },
        { .paths = lines, .n_paths = 1, .out = "t5", .end = 6, .threads = 2, .input = "text" },
        { .paths = lines, .n_paths = 1, .out = "t6", .end = 6, .threads = 2, .field = "nothing" },
        { .paths = binary, .n_paths = 1, .out = "t7", .end = 6, .threads = 2 },
        { .paths = gone, .n_paths = 1, .out = "t8", .end = 6, .threads = 2 },
        { .paths = none, .n_paths = 1, .out = "t9", .end = 6, .threads = 2 },
        { .paths = named, .n_paths = 2, .out = "t10", .end = 7, .threads = 2 },
        { .paths = named, .n_paths = 2, .out = "t11", .end = -1, .threads = 2 },
        { .paths = named, .n_paths = 2, .out = "no/such", .end = 6, .threads = 2 },
    };
    static const struct {
        const char *found, *left_out,
            *refused; /* files, documents, tokens, bytes; binary, the same, unreadable, empty */
    } wanted[] = {
        { "4 0 0 0", "1 1 1 1", "'corpus/rows.jsonl' has fields" },
        { "4 0 0 0", "1 1 1 1", "'corpus/rows.jsonl' is JSON lines, not text" },
        { "3 3 20 25", "0 1 0 0", NULL },
        { "1 3 6 57", "0 0 0 0", NULL },
        { "1 0 0 0", "0 0 0 0", "'corpus/rows.jsonl' has fields" },
        { "1 0 0 0", "0 0 0 0", "'corpus/rows.jsonl' is JSON lines, not text" },
        { "1 0 0 0", "0 0 0 0", "'corpus/rows.jsonl', line 1: no text in field 'nothing'" },
        { "1 0 0 0", "0 0 0 0", "'corpus/binary' is a binary file, wanted text" },
        { "0 0 0 0", "0 0 0 0", "cannot reach 'gone': No such file or directory" },
        { "0 0 0 0", "0 0 0 0", "no text in 'empty'" },
        { "0 0 0 0", "0 0 0 0", "--end is 7, but 'tokenizer.json' has ids below 7" },
        { "0 0 0 0", "0 0 0 0", "the end-of-text token of 'tokenizer.json' is not known" },
        { "3 0 0 0", "0 1 0 0", "cannot create 'no/such.bin.part': No such file or directory" },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        tm_tokenize_options o = all[i];
        tm_tokenize_result  r;
        tm_error            err = { 0 };
        tm_text             told = { 0 };
        char                found[80], left_out[80];
        int                 warnings = 0;
        o.tokenizer = "tokenizer.json";
        refused_with(o.out, tm_data_tokenize(&o, &r, &err), &err, wanted[i].refused);
        snprintf(found, sizeof found, "%lld %lld %lld %lld", (long long)r.files, (long long)r.documents,
                 (long long)r.tokens, (long long)r.bytes);
        snprintf(left_out, sizeof left_out, "%lld %lld %lld %lld", (long long)r.binary, (long long)r.duplicate,
                 (long long)r.unreadable, (long long)r.empty);
        assert_string_equal(found, wanted[i].found);
        assert_string_equal(left_out, wanted[i].left_out);
        assert_true(r.resumed_tokens == 0 && !r.wide);
        whole_log_take(&told); /* each that has something, by its name */
        for (const char *at = told.data; at && (at = strstr(at, "  warning: 'corpus/")); at++) warnings++;
        assert_int_equal(warnings, r.binary + r.duplicate + r.unreadable);
        tm_text_fini(&told);
    }
    is_inspected("t2", "megatron uint16 3 3 20 3 10 0 5 -", NULL, NULL);
    is_inspected("t3", "megatron uint16 3 3 6 1 3 2 6 -", NULL, NULL);
}

/* ---- the files ---- */

static void write_moments(const char *path)
{
    const tm_tensor_heading headings[] = {
        { .name = "clip_encodings", .dtype = TM_F32, .rank = 2, .n = { 2, 5 } },
        { .name = "logvar", .dtype = TM_F32, .rank = 4, .n = { 2, 2, 8, 8 } },
        { .name = "mean", .dtype = TM_F32, .rank = 4, .n = { 2, 2, 8, 8 } },
        { .name = "t5_encodings", .dtype = TM_F32, .rank = 3, .n = { 2, 2, 6 } },
    };
    tm_safetensors_writer *writer;
    tm_error               err = { 0 };
    assert_int_equal(tm_safetensors_create(path, headings, 4, NULL, &writer, &err), TM_OK);
    for (int i = 0; i < 10; i++) tm_safetensors_write(writer, &(float){ (float)i }, 4);
    for (int i = 0; i < 256; i++) tm_safetensors_write(writer, &(float){ i < 128 ? -60 : (float)LOGVAR }, 4);
    for (int i = 0; i < 256; i++) tm_safetensors_write(writer, &(float){ (float)(i < 128 ? moment_mean(i) : MEAN) }, 4);
    for (int i = 0; i < 24; i++) tm_safetensors_write(writer, &(float){ (float)i }, 4);
    assert_int_equal(tm_safetensors_finish(writer, &err), TM_OK);
}

static void write_short(void)
{
    tm_indexed_writer writer;
    tm_error          err = { 0 };
    const int32_t     tokens[] = { 7, 49, 3 };
    assert_int_equal(tm_indexed_begin("short", true, &writer, &err), TM_OK);
    tm_indexed_add(&writer, tokens, 2);
    tm_indexed_end_document(&writer);
    tm_indexed_add(&writer, tokens + 2, 1);
    tm_indexed_end_document(&writer);
    assert_int_equal(tm_indexed_finish(&writer, &err), TM_OK);
}

/* The tokens 2 and 10 as numbers with a point; between them one and a half, and one without end. */
static void write_floats(void)
{
    tm_indexed_writer writer;
    tm_error          err = { 0 };
    const int32_t     bits[] = { 0x40000000, 0x3FC00000, 0x7F800000, 0x41200000 };
    assert_int_equal(tm_indexed_begin("floats", true, &writer, &err), TM_OK);
    tm_indexed_add(&writer, bits, 4);
    tm_indexed_end_document(&writer);
    assert_int_equal(tm_indexed_finish(&writer, &err), TM_OK);
    FILE *f = fopen("floats.idx", "r+b");
    assert_true(f && fseek(f, 17, SEEK_SET) == 0 && fputc(7, f) == 7); /* the code of float32 */
    fclose(f);
}

/* Rows of messages; a folder with a tokenizer whose first token is a letter. */
static void write_talks(void)
{
    static const char letters[] =
        "{\"added_tokens\": [{\"id\": 4, \"content\": \"</s>\", \"special\": true}], \"normalizer\": null, "
        "\"pre_tokenizer\": null, \"decoder\": null, \"post_processor\": null, \"model\": {\"type\": \"BPE\", "
        "\"merges\": [[\"a\", \"b\"]], \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"ab\": 3}}}";
    test_file_write(".", "talks.jinja",
                    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
                    "{% if add_generation_prompt %}<assistant>{% endif %}");
    test_file_write(".", "talks.jsonl",
                    "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": "
                    "\"a\"}, {\"role\": \"assistant\", \"content\": \"bc\"}]}\n"
                    "{\"messages\": [{\"role\": \"user\", \"content\": \"\"}, {\"role\": \"assistant\", "
                    "\"content\": \"d\"}, {\"role\": \"user\", \"content\": \"e\"}]}\n");
    test_file_write(".", "letters.jsonl",
                    "{\"prompt\": \"cb\", \"completion\": \"aabcaa\"}\n{\"prompt\": \"a\", \"completion\": \"ba\"}\n");
    test_file_write("letters", "tokenizer.json", letters);
}

static int write_all(void **state)
{
    tm_error err = { 0 };
    (void)state;
    tm_log_set_level(TM_LOG_ERROR);
    test_source_files_write();
    back = getcwd(NULL, 0);
    if (chdir(test_folder()) != 0) return -1;
    for (size_t i = 0; i < 8; i++)
        if (mkdir(
                (const char *[]){ "docs", "gov", "moments", "empty", "lists", "corpus", "docs/.hidden", "letters" }[i],
                0700) != 0)
            return -1;
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
    whole_log_open();
    write_moments("moments/m.safetensors");
    write_short();
    write_talks();
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
    test_file_write(".", "tokenizer.json", tokenizer);
    test_file_write("corpus", "a1.txt", "abcd dcba ab");
    test_file_write("corpus", "a2.txt", "ababab");
    test_file_write("corpus", "a3.txt", "abcd dcba ab");
    test_file_write("corpus", "b.txt", "d\nc\nb\na");
    test_file_write("corpus", "none.txt", "");
    test_file_write("corpus", ".hidden", "dddd");
    test_file_write("corpus", "rows.jsonl",
                    "{\"text\": \"ab\"}\n\n{\"text\": \"cd\", \"other\": \"x\"}\n{\"text\": \"\"}");
    if (tm_file_write("corpus/binary", "a\0b\1c", 5, &err) != TM_OK) return -1;
    if (symlink("gone", "corpus/dangling") != 0) return -1;
    return 0;
}

static int go_back(void **state)
{
    whole_log_close();
    if (chdir(back) != 0) return -1;
    free(back);
    return test_folder_teardown(state);
}

TEST_FIXTURE(write_all, go_back)
