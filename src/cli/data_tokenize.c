/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tokenize.h"

#include "base/cpu.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/data.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *out, *tokenizer, *pattern, *field, *input, *end;
    int64_t     threads, batch;
    double      save;
    bool        special, json;
} tokenize_options;

static void print_json(const tm_tokenize_options *o, const tm_tokenize_result *r, tm_text *text)
{
    tm_json j = { .out = text, .indent = true };
    tm_json_open(&j, NULL, '{');
    tm_json_string(&j, "out", o->out);
    tm_json_string(&j, "type", r->wide ? "int32" : "uint16");
    tm_json_i64(&j, "files", r->files);
    tm_json_i64(&j, "documents", r->documents);
    tm_json_i64(&j, "tokens", r->tokens);
    tm_json_i64(&j, "bytes", r->bytes);
    tm_json_i64(&j, "resumed_tokens", r->resumed_tokens);
    tm_json_i64(&j, "binary", r->binary);
    tm_json_i64(&j, "duplicate", r->duplicate);
    tm_json_i64(&j, "unreadable", r->unreadable);
    tm_json_i64(&j, "empty", r->empty);
    tm_json_close(&j, '}');
    tm_text_add(text, "\n");
}

static void print_text(const tm_tokenize_options *o, const tm_tokenize_result *r, tm_text *text)
{
    char    documents[40], tokens[40];
    int64_t out = r->binary + r->duplicate + r->unreadable + r->empty;
    tm_text_printf(text, "%s: %s documents, %s tokens (%s) of %lld files\n", o->out,
                   tm_format_grouped(documents, r->documents), tm_format_grouped(tokens, r->tokens),
                   r->wide ? "int32" : "uint16", (long long)r->files);
    if (out > 0)
        tm_text_printf(text, "left out: %lld binary, %lld duplicate, %lld unreadable, %lld empty\n",
                       (long long)r->binary, (long long)r->duplicate, (long long)r->unreadable, (long long)r->empty);
}

/* -1: the tokenizer's, -2: none. */
static tm_status read_end(const char *text, int32_t *end, tm_error *err)
{
    char *rest;
    *end = text ? -2 : -1;
    if (!text || strcmp(text, "none") == 0) return TM_OK;
    long id = strtol(text, &rest, 10);
    *end = (int32_t)id;
    if (rest != text && !*rest && id >= 0 && id <= 1 << 24) return TM_OK;
    return tm_fail(err, TM_USAGE, "option '--end' must be an id from 0 to %d, or none; found '%.100s'", 1 << 24, text);
}

static tm_status tokenize(tm_cli_line *line, tm_error *err)
{
    const tokenize_options *given = line->options;
    tm_tokenize_options     o = { .paths = (const char *const *)line->words,
                                  .n_paths = line->n_words,
                                  .out = given->out,
                                  .tokenizer = given->tokenizer,
                                  .pattern = given->pattern,
                                  .field = given->field,
                                  .input = given->input,
                                  .special = given->special,
                                  .threads = given->threads ? (int)given->threads : tm_cpu_threads_allowed(),
                                  .batch_bytes = given->batch,
                                  .save_seconds = given->save,
                                  .stop = &tm_cli_stop };
    tm_tokenize_result      r;
    tm_text                 text = { 0 };
    tm_cli_heed_stop();
    TM_TRY(tm_cli_find_hub(line, TM_HUB_MODEL, &o.tokenizer, err));
    for (int i = 0; i < line->n_words; i++)
        TM_TRY(tm_cli_find_hub(line, TM_HUB_DATASET, (const char **)&line->words[i], err));
    TM_TRY(read_end(given->end, &o.end, err));
    TM_TRY(tm_data_tokenize(&o, &r, err));
    (given->json ? print_json : print_text)(&o, &r, &text);
    tm_status st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    return st;
}

static const tm_option rows[] = {
    { "out", 'o', TM_OPTION_TEXT, offsetof(tokenize_options, out), .value = "PREFIX", .required = true,
      .help = "files to write: PREFIX.bin and PREFIX.idx" },
    { "tokenizer", 0, TM_OPTION_TEXT, offsetof(tokenize_options, tokenizer), .value = "FILE", .required = true,
      .help = "tokenizer.json, SentencePiece .model, tiktoken, tekken, or a directory with one" },
    { "pattern", 0, TM_OPTION_TEXT, offsetof(tokenize_options, pattern), .value = "NAME",
      .help = "pattern that splits words, for a tiktoken file of unknown size" },
    { "field", 0, TM_OPTION_TEXT, offsetof(tokenize_options, field), .value = "NAME",
      .help = "the field with the text, of JSON lines and parquet" },
    { "input", 0, TM_OPTION_CHOICE, offsetof(tokenize_options, input), .value = "KIND", .choices = "text|jsonl|parquet",
      .help = "format of the files, whatever their names say" },
    { "end", 0, TM_OPTION_TEXT, offsetof(tokenize_options, end), .value = "ID|none",
      .help = "token after each document; default: the tokenizer's end of text" },
    { "special", 0, TM_OPTION_FLAG, offsetof(tokenize_options, special),
      .help = "add the tokens that the tokenizer puts around a text (<s>, ...) to each document" },
    { "threads", 0, TM_OPTION_I64, offsetof(tokenize_options, threads), .value = "N", .lo = 1, .hi = 1024,
      .help = "number of threads; default: all; the result does not depend on it" },
    { "batch", 0, TM_OPTION_I64, offsetof(tokenize_options, batch), .value = "BYTES", .fallback = "1048576", .lo = 1,
      .hi = 1 << 28, .help = "bytes of text that are encoded at once" },
    { "save", 0, TM_OPTION_F64, offsetof(tokenize_options, save), .value = "SECONDS", .fallback = "5", .lo = 1e-9,
      .hi = 1e9, .help = "seconds of work that are lost at most when the program is killed" },
    TM_OPTION_JSON(tokenize_options),
};

const tm_cli_command tm_data_command_tokenize = {
    .name = "tokenize",
    .summary = "make a token file from text with a tokenizer",
    .words = "FILE...",
    .least = 1,
    .most = -1,
    .about =
        "Makes PREFIX.bin and PREFIX.idx (data.source megatron) from text with a tokenizer file (docs/tokenizers.md). "
        "FILE is a text file, JSON lines (.jsonl), parquet, each also .gz or .zst but parquet, a directory of them, or "
        "a 'pattern*'. A text file, a line of JSON, a row of parquet is a document. If it was stopped or killed, the "
        "same command continues where it was.",
    TM_CLI_OPTIONS(rows, tokenize_options),
    .run = tokenize,
};
