/* SPDX-License-Identifier: Apache-2.0 */
/* What sources are and give, and what the commands on data say of files, to the letter. After a change that is meant:
 *     TM_RECORD=1 build/release/tests/data/test_whole; git diff tests/data/whole*.txt
 */
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
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/test.h"

enum { T = TEST_SOURCE_T };

/* Tests run in the folder of their files, for short names; records lie where the program was started. */
static char *back;

static void is_recorded(const char *name, tm_text *text)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", back, name);
    whole_is(path, text);
}

#define FLOW .flow = TEST_SOURCE_FLOW

/* ---- sources ---- */

static const struct {
    const char       *what;
    tm_source_options options;
} sets[] = {
    { "synthetic", { .name = "Synthetic", .vocab = 64, .seq = T, .seed = 8 } },
    { "synthetic, few symbols", { .name = "synthetic", .vocab = 8, .seq = 5, .seed = 1 } },
    { "mock", { .name = "mock", .vocab = 100, .seq = T, .seed = 8 } },
    { "text", { .name = "text", .path = "text.txt", .seq = T, .seed = 8, .validation_fraction = 0.2 } },
    { "text, documents",
      { .name = "text",
        .path = "docs",
        .seq = 5,
        .vocab = 300,
        .seed = 8,
        .validation_fraction = 0.4,
        .separate = true } },
    { "text, nothing held out", { .name = "text", .path = "docs", .seq = 5, .seed = 9 } },
    { "reports", { .name = "reports", .vocab = 64, .seq = 4 * T, .seed = 8 } },
    { "reports, plain", { .name = "reports", .vocab = 64, .seq = 4 * T, .seed = 8, .plain_answers = true } },
    { "govreport", { .name = "govreport", .path = "gov", .vocab = 50, .seq = T, .seed = 3, .pad_token = 9 } },
    { "govreport, targets",
      { .name = "govreport",
        .path = "train.npy",
        .validation_path = "train.npy",
        .vocab = 60,
        .seq = T,
        .seed = 3,
        .mask = TM_MASK_TARGET } },
    { "megatron", { .name = "megatron", .path = "set", .vocab = 50, .seq = T, .seed = 3, .samples = 8 } },
    { "megatron, documents",
      { .name = "megatron",
        .path = "set.idx",
        .validation_path = "set.bin",
        .vocab = 50,
        .seq = 50,
        .seed = 4,
        .samples = 30,
        .separate = true } },
    { "sft", { .name = "sft", .path = "rows.jsonl", .seq = T, .vocab = 257, .seed = 3, .validation_fraction = 0.2 } },
    { "sft, packed",
      { .name = "sft",
        .path = "rows.jsonl",
        .seq = T,
        .vocab = 257,
        .seed = 3,
        .sft.packed = true,
        .validation_path = "rows.jsonl" } },
    { "sft, split",
      { .name = "sft",
        .path = "rows.jsonl",
        .seq = 6,
        .vocab = 257,
        .seed = 3,
        .sft.overlong = TM_OVERLONG_SPLIT,
        .sft.train_on_input = true } },
    { "sft, dropped",
      { .name = "sft", .path = "rows.jsonl", .seq = 8, .vocab = 257, .seed = 3, .sft.overlong = TM_OVERLONG_DROP } },
    { "preference",
      { .name = "preference",
        .path = "pairs.jsonl",
        .seq = 2 * T,
        .seed = 3,
        .sft.packed = true,
        .validation_fraction = 0.2 } },
    { "preference, cut", { .name = "preference", .path = "pairs.jsonl", .seq = 14, .seed = 3 } },
    { "sft, cut", { .name = "sft", .path = "rows.jsonl", .seq = 6, .vocab = 257, .seed = 3 } },
    { "sft, answers split",
      { .name = "sft", .path = "rows.jsonl", .seq = 5, .vocab = 257, .seed = 3, .sft.overlong = TM_OVERLONG_SPLIT } },
    { "sft, talks",
      { .name = "sft",
        .path = "talks.jsonl",
        .seq = 3 * T,
        .vocab = 257,
        .seed = 3,
        .sft = { .packed = true, .chat_template = "talks.jinja" } } },
    { "sft, the tokens of a file",
      { .name = "sft",
        .path = "letters.jsonl",
        .validation_path = "letters.jsonl",
        .seq = T,
        .seed = 3,
        .sft.tokenizer = "letters" } },
    { "gaussians", { .name = "gaussians", .seq = 18, .seed = 7, FLOW } },
    { "latents", { .name = "latents", .path = "images", .seq = 18, .seed = 7, FLOW } },
    { "latents, moments",
      { .name = "latents", .path = "images", .validation_path = "moments", .seq = 18, .seed = 7, FLOW } },
    /* what is refused */
    { "unknown", { .name = "nemo", .seq = 1 } },
    { "no tokens", { .name = "mock", .vocab = 8, .seq = 0 } },
    { "one symbol", { .name = "mock", .vocab = 1, .seq = 4 } },
    { "seven symbols", { .name = "synthetic", .vocab = 7, .seq = 4 } },
    { "reports, too short", { .name = "reports", .vocab = 64, .seq = 3 } },
    { "text, a small vocabulary", { .name = "text", .path = "text.txt", .vocab = 256, .seq = 4 } },
    { "text, too long", { .name = "text", .path = "docs", .seq = 500 } },
    { "text, nothing left to train on", { .name = "text", .path = "docs", .seq = 40, .validation_fraction = 0.9 } },
    { "text, without a path", { .name = "text", .seq = 4 } },
    { "text, rows", { .name = "text", .path = "rows.jsonl", .seq = 4, .plain_text = true } },
    { "govreport, without a path", { .name = "govreport", .vocab = 50, .seq = T } },
    { "govreport, a small vocabulary", { .name = "govreport", .path = "train.npy", .vocab = 49, .seq = T } },
    { "govreport, the end beyond it",
      { .name = "govreport", .path = "train.npy", .vocab = 50, .seq = T, .pad_token = 50 } },
    { "govreport, another length", { .name = "govreport", .path = "train.npy", .vocab = 50, .seq = T - 1 } },
    { "megatron, without a path", { .name = "megatron", .vocab = 50, .seq = T } },
    { "megatron, longer than all", { .name = "megatron", .path = "set", .vocab = 50, .seq = 433, .samples = 1 } },
    { "megatron, held out too short",
      { .name = "megatron", .path = "set", .validation_path = "short", .vocab = 50, .seq = 3, .samples = 1 } },
    { "sft, without a path", { .name = "sft", .vocab = 257, .seq = T } },
    { "sft, too long",
      { .name = "sft", .path = "rows.jsonl", .vocab = 257, .seq = 6, .sft.overlong = TM_OVERLONG_ERROR } },
    { "sft, a small vocabulary", { .name = "sft", .path = "rows.jsonl", .vocab = 256, .seq = T } },
    { "preference, odd", { .name = "preference", .path = "pairs.jsonl", .seq = 7 } },
    { "preference, of other rows", { .name = "preference", .path = "rows.jsonl", .seq = 8 } },
    { "sft, talks without a template", { .name = "sft", .path = "talks.jsonl", .vocab = 257, .seq = T } },
    { "sft, a template that is not there",
      { .name = "sft", .path = "talks.jsonl", .vocab = 257, .seq = T, .sft.chat_template = "none.jinja" } },
    { "sft, a role that is a number",
      { .name = "sft", .path = "number.jsonl", .vocab = 257, .seq = T, .sft.chat_template = "talks.jinja" } },
    { "sft, a row without messages",
      { .name = "sft", .path = "missing.jsonl", .vocab = 257, .seq = T, .sft.chat_template = "talks.jinja" } },
    { "sft, tokens without an end",
      { .name = "sft", .path = "letters.jsonl", .seq = T, .sft = { .tokenizer = "endless" } } },
    { "preference, split",
      { .name = "preference", .path = "pairs.jsonl", .seq = 14, .sft.overlong = TM_OVERLONG_SPLIT } },
    { "preference, one token", { .name = "preference", .path = "pairs.jsonl", .seq = 1 } },
    { "latents, without a path", { .name = "latents", .seq = 18, FLOW } },
    { "latents, of nothing", { .name = "latents", .path = "docs", .seq = 18, FLOW } },
    { "latents, another length", { .name = "latents", .path = "images", .seq = 17, FLOW } },
    { "documents that are not known", { .name = "mock", .vocab = 64, .seq = T, .separate = true } },
};

static double sum_of(const float *values, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)values[i] * (double)(i % 7 + 1);
    return sum;
}

static void add_row(tm_text *out, const tm_source *source, const tm_field *fields, int n, tm_split split, int64_t index)
{
    void    *at[TM_MAX_FIELDS] = { NULL };
    int32_t  scratch[4096];
    int64_t  weight = -1;
    tm_error err = { 0 };
    for (int f = 0; f < n; f++) at[f] = tm_alloc(tm_tensor_bytes(fields[f].shape, fields[f].dtype) + 8);
    tm_status st = tm_source_row(source, split, index, scratch, at, &weight, &err);
    tm_text_printf(out, "  %s %lld: weight %lld%s%s\n", split == TM_SPLIT_TRAIN ? "train" : "held", (long long)index,
                   (long long)weight, st == TM_OK ? "" : ", ", err.text);
    for (int f = 0; f < n && st == TM_OK; f++) {
        int64_t elements = tm_shape_elements(fields[f].shape);
        tm_text_printf(out, "    %s:", fields[f].name);
        if (fields[f].dtype == TM_I32)
            for (int64_t i = 0; i < elements; i++) tm_text_printf(out, " %d", ((int32_t *)at[f])[i]);
        else
            tm_text_printf(out, " %.5g .. %.5g, sum %.5g", (double)((float *)at[f])[0],
                           (double)((float *)at[f])[elements - 1], sum_of(at[f], elements));
        tm_text_add(out, "\n");
    }
    for (int f = 0; f < n; f++) free(at[f]);
}

static void add_facts(tm_text *out, const tm_source *source)
{
    const tm_source_facts *f = tm_source_describe(source);
    tm_text_printf(
        out,
        "  %lld samples, %lld held out, vocabulary %lld, floor %.9g, held out %.9g, unigram %.9g, order 3 %.9g, "
        "%.9g bytes a token, end %d, content %016llx, compressed %.6g\n",
        (long long)f->train_samples, (long long)f->validation_samples, (long long)f->vocab_needed, f->floor,
        f->validation_floor, f->unigram_entropy, f->ngram3_entropy, f->bytes_per_token, f->end_token,
        (unsigned long long)f->content, tm_source_compressed(source));
}

static void add_texts(tm_text *out, const tm_source *source, const tm_source_options *o)
{
    int32_t tokens[4096];
    if (strcasecmp(o->name, "synthetic") == 0 || strcmp(o->name, "mock") == 0) {
        tm_source_sample(source, TM_SPLIT_TRAIN, 5, tokens);
        tm_text_printf(out, "  nats of sample 5: %.9g\n", tm_source_nats(source, tokens));
        tokens[1] = tokens[0] = 7;
        tm_text_printf(out, "  nats of another: %.9g\n", tm_source_nats(source, tokens));
    }
    const int32_t some[] = { 72, 101, 256, 10, 257, 300 };
    tm_text       text = { 0 };
    const char   *decoded = tm_source_decode(source, some, 6, &text);
    if (decoded) tm_text_printf(out, "  decoded: %s\n", decoded);
    tm_text_fini(&text);
}

static void add_source(tm_text *out, const tm_source_options *o)
{
    tm_field   fields[TM_MAX_FIELDS];
    int        n = 0;
    int64_t    vocabulary = -1;
    tm_error   err = { 0 }, of_fields = { 0 }, of_vocabulary = { 0 };
    tm_source *source = NULL;
    tm_status  st = tm_source_open(o, &source, &err);
    if (tm_source_fields(o, fields, &n, &of_fields) != TM_OK) tm_text_printf(out, "  fields: %s\n", of_fields.text);
    if (tm_source_vocabulary(o, &vocabulary, &of_vocabulary) != TM_OK)
        tm_text_printf(out, "  vocabulary: %s\n", of_vocabulary.text);
    else
        tm_text_printf(out, "  made with %lld ids\n", (long long)vocabulary);
    if (tm_source_has_outline(o->name)) {
        tm_error of_outline = { 0 };
        if (tm_source_outline(o, out, &of_outline) != TM_OK) tm_text_printf(out, "  outline: %s\n", of_outline.text);
    }
    if (st != TM_OK) {
        tm_text_printf(out, "  exit %d: %s\n", tm_status_exit_code(st), err.text);
        return;
    }
    for (int f = 0; f < n; f++) {
        char shape[96];
        tm_text_printf(out, "  field %s %s %s, empty %g\n", fields[f].name, tm_dtype_name(fields[f].dtype),
                       tm_shape_text(shape, fields[f].shape), fields[f].empty);
    }
    add_facts(out, source);
    add_texts(out, source, o);
    const tm_source_facts *f = tm_source_describe(source);
    int64_t                beyond = f->train_samples == INT64_MAX ? 1000 : f->train_samples;
    for (int64_t i = 0; i < 2; i++) add_row(out, source, fields, n, TM_SPLIT_TRAIN, i);
    add_row(out, source, fields, n, TM_SPLIT_TRAIN, beyond + 1);
    if (f->validation_samples > 0) add_row(out, source, fields, n, TM_SPLIT_VALIDATION, 0);
    if (f->validation_samples > 0)
        add_row(out, source, fields, n, TM_SPLIT_VALIDATION, f->validation_samples < 9 ? f->validation_samples - 1 : 8);
    tm_source_close(source);
}

static void sources_are_as_recorded(void **state)
{
    tm_text out = { 0 };
    (void)state;
    for (int i = 0; tm_source_name(i); i++) {
        const tm_source_traits *t = tm_source_traits_of(tm_source_name(i));
        tm_text_printf(&out, "%s: gate %d, path %d, held-out path %d, decodes %d, images %d, documents %d, pairs %d\n",
                       t->name, t->gate, t->needs_path, t->takes_validation_path, t->decodes, t->images, t->documents,
                       t->pairs);
    }
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        tm_text_printf(&out, "\n%s\n", sets[i].what);
        add_source(&out, &sets[i].options);
        whole_log_take(&out);
    }
    is_recorded("tests/data/whole-sources.txt", &out);
}

/* ---- commands on files ---- */

static void add_table(tm_text *out, const tm_table *table)
{
    for (size_t r = 0; r < tm_table_n_rows(table); r++) {
        for (size_t c = 0; c < tm_table_n_columns(table); c++) {
            const tm_cell *cell = tm_table_cell(table, r, c);
            if (cell->kind == TM_CELL_EMPTY) continue;
            tm_text_printf(out, " %s=", tm_table_column_at(table, c)->name);
            if (cell->kind == TM_CELL_TEXT) tm_text_add(out, cell->text);
            if (cell->kind == TM_CELL_I64) tm_text_printf(out, "%lld", (long long)cell->i64);
            if (cell->kind == TM_CELL_F64) tm_text_printf(out, "%.9g", cell->f64);
            if (cell->kind == TM_CELL_BOOL) tm_text_add(out, cell->truth ? "true" : "false");
        }
        tm_text_add(out, "\n");
    }
    for (size_t i = 0; i < tm_table_n_notes(table); i++) tm_text_printf(out, " note: %s\n", tm_table_note_at(table, i));
}

static void files_are_described_as_recorded(void **state)
{
    static const char *const paths[] = {
        "set",          "set.idx", "set.bin", "train.npy", "gov",  "text.txt", "docs",
        "rows.parquet", "nothing", "short",   "empty",     ".npy", "images",   "floats"
    };
    static const char *const verified[][2] = { { "docs", NULL },
                                               { "gov", NULL },
                                               { "train.npy", NULL },
                                               { "lists", NULL },
                                               { "lists/a.md5", NULL },
                                               { "lists/x", NULL },
                                               { "lists/x", "0cc175b9c0f1b6a831c399e269772661" },
                                               { "lists", "0cc175b9c0f1b6a831c399e269772661" },
                                               { "set", NULL },
                                               { "set", "0cc175b9c0f1b6a831c399e269772661" },
                                               { "nothing", NULL },
                                               { "c4-validation-91205-samples.en_text_document", NULL } };
    tm_text                  out = { 0 };
    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        tm_table *table = tm_data_inspect_table();
        tm_error  err = { 0 };
        tm_status st = tm_data_inspect(paths[i], table, &err);
        tm_text_printf(&out, "inspect %s: %d %s\n", paths[i], st == TM_OK ? 0 : tm_status_exit_code(st), err.text);
        add_table(&out, table);
        tm_table_destroy(table);
    }
    for (size_t i = 0; i < sizeof verified / sizeof verified[0]; i++) {
        tm_table *table = tm_data_verify_table();
        tm_error  err = { 0 };
        bool      passed = false;
        tm_status st = tm_data_verify(verified[i][0], verified[i][1], table, &passed, &err);
        tm_text_printf(&out, "verify %s %s: %d, passed %d %s\n", verified[i][0], verified[i][1] ? verified[i][1] : "",
                       st == TM_OK ? 0 : tm_status_exit_code(st), passed, err.text);
        add_table(&out, table);
        tm_table_destroy(table);
    }
    static const tm_pack_options packs[] = {
        { .path = "docs", .out = "packed", .format = "megatron" },
        { .path = "docs", .out = "packed.npy", .format = "govreport", .seq = 7 },
        { .path = "docs", .out = "answers.npy", .format = "govreport", .seq = 5, .answer = "a" },
        { .path = "docs", .out = "much.npy", .format = "govreport", .seq = 1000 },
        { .path = "empty", .out = "none", .format = "megatron" },
        { .path = "docs", .out = "no/such", .format = "megatron" },
    };
    for (size_t i = 0; i < sizeof packs / sizeof packs[0]; i++) {
        int64_t   rows = -1;
        tm_error  err = { 0 };
        tm_status st = tm_data_pack(&packs[i], &rows, &err);
        tm_text_printf(&out, "pack %s: %d, %lld rows %s\n", packs[i].out, st == TM_OK ? 0 : tm_status_exit_code(st),
                       (long long)rows, err.text);
        tm_table *table = tm_data_inspect_table();
        if (st == TM_OK && tm_data_inspect(packs[i].out, table, &err) != TM_OK) tm_text_printf(&out, "%s\n", err.text);
        add_table(&out, table);
        tm_table_destroy(table);
    }
    is_recorded("tests/data/whole-files.txt", &out);
}

/* Bytes as tokens: "a" to "e", and the end. */
static const char tokenizer[] = "{\"added_tokens\": [{\"id\": 6, \"content\": \"<|end|>\", \"special\": true}], "
                                "\"normalizer\": null, \"pre_tokenizer\": null,\n"
                                " \"decoder\": null, \"post_processor\": null, \"model\": {\"type\": \"BPE\", "
                                "\"unk_token\": \"?\", \"merges\": [[\"a\", \"b\"]],\n"
                                "  \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"d\": 3, \"?\": 4, \"ab\": 5}}}\n";

static void texts_are_tokenized_as_recorded(void **state)
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
    tm_text out = { 0 };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        tm_tokenize_options o = all[i];
        tm_tokenize_result  r;
        tm_error            err = { 0 };
        o.tokenizer = "tokenizer.json";
        tm_status st = tm_data_tokenize(&o, &r, &err);
        tm_text_printf(
            &out,
            "%s: %d, %lld files, %lld documents, %lld tokens, %lld bytes; left out %lld binary, %lld the same, "
            "%lld unreadable, %lld empty; resumed %lld, wide %d %s\n",
            o.out, st == TM_OK ? 0 : tm_status_exit_code(st), (long long)r.files, (long long)r.documents,
            (long long)r.tokens, (long long)r.bytes, (long long)r.binary, (long long)r.duplicate,
            (long long)r.unreadable, (long long)r.empty, (long long)r.resumed_tokens, r.wide, err.text);
        tm_table *table = tm_data_inspect_table();
        if (st == TM_OK && tm_data_inspect(o.out, table, &err) != TM_OK) tm_text_printf(&out, "%s\n", err.text);
        add_table(&out, table);
        tm_table_destroy(table);
        whole_log_take(&out);
    }
    is_recorded("tests/data/whole-tokens.txt", &out);
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
    for (int i = 0; i < 10 + 2 * 256 + 24; i++) tm_safetensors_write(writer, &(float){ (float)(i % 97) / 50 - 1 }, 4);
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

/* Rows of messages, well and not; a folder with a tokenizer whose first token is a letter, and one without an end. */
static void write_talks(void)
{
    static const char letters[] =
        "{%s\"normalizer\": null, \"pre_tokenizer\": null, \"decoder\": null, \"post_processor\": null, \"model\": "
        "{\"type\": \"BPE\", \"merges\": [[\"a\", \"b\"]], \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"ab\": 3}}}";
    static const char ends[] = "\"added_tokens\": [{\"id\": 4, \"content\": \"</s>\", \"special\": true}], ";
    test_file_write(".", "talks.jinja",
                    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
                    "{% if add_generation_prompt %}<assistant>{% endif %}");
    test_file_write(".", "talks.jsonl",
                    "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": "
                    "\"a\"}, {\"role\": \"assistant\", \"content\": \"bc\"}]}\n"
                    "{\"messages\": [{\"role\": \"user\", \"content\": \"\"}, {\"role\": \"assistant\", "
                    "\"content\": \"d\"}, {\"role\": \"user\", \"content\": \"e\"}]}\n");
    test_file_write(".", "number.jsonl", "{\"messages\": [{\"role\": 5, \"content\": \"a\"}]}\n");
    test_file_write(".", "missing.jsonl",
                    "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
                    "\"content\": \"b\"}]}\n{\"talk\": 1, \"more\": 2}\n");
    test_file_write(".", "letters.jsonl",
                    "{\"prompt\": \"cb\", \"completion\": \"aabcaa\"}\n{\"prompt\": \"a\", \"completion\": \"ba\"}\n");
    for (int k = 0; k < 2; k++) {
        char text[512];
        snprintf(text, sizeof text, letters, k ? "" : ends);
        test_file_write(k ? "endless" : "letters", "tokenizer.json", text);
    }
}

static int write_all(void **state)
{
    tm_error err = { 0 };
    (void)state;
    tm_log_set_level(TM_LOG_ERROR);
    test_source_files_write();
    back = getcwd(NULL, 0);
    if (chdir(test_folder()) != 0) return -1;
    for (size_t i = 0; i < 9; i++)
        if (mkdir((const char *[]){ "docs", "gov", "moments", "empty", "lists", "corpus", "docs/.hidden", "letters",
                                    "endless" }[i],
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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(sources_are_as_recorded),
    cmocka_unit_test(files_are_described_as_recorded),
    cmocka_unit_test(texts_are_tokenized_as_recorded),
};

TM_TESTS(tests, write_all, go_back)
