/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/tokenizer_train.h"

#include "base/arena.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/cli.h"
#include "data/vocabulary.h"

#include <string.h>

typedef struct {
    const char *out, *pattern, *field, *input;
    tm_cli_list special;
    int64_t     vocab, least;
    bool        json;
} train_options;

static tm_status check_special(const tm_cli_list *special, tm_error *err)
{
    for (int i = 0; i < special->n; i++)
        for (int k = 0; k < i; k++)
            if (strcmp(special->item[i], special->item[k]) == 0)
                return tm_fail(err, TM_USAGE, "--special '%.100s' is given twice", special->item[i]);
    return TM_OK;
}

static void print(const train_options *o, const tm_tokenize_result *files, const tm_bpe_result *r, tm_text *text)
{
    char    grouped[3][40];
    tm_json j = { .out = text, .indent = true };
    if (!o->json) {
        tm_text_printf(text, "%s: %s tokens from %s words (%s different) of %lld files\n", o->out,
                       tm_format_grouped(grouped[0], r->vocab), tm_format_grouped(grouped[1], r->words),
                       tm_format_grouped(grouped[2], r->different), (long long)files->files);
        return;
    }
    tm_json_open(&j, NULL, '{');
    tm_json_string(&j, "out", o->out);
    tm_json_i64(&j, "vocab", r->vocab);
    tm_json_i64(&j, "files", files->files);
    tm_json_i64(&j, "bytes", r->bytes);
    tm_json_i64(&j, "words", r->words);
    tm_json_i64(&j, "different_words", r->different);
    tm_json_close(&j, '}');
    tm_text_add(text, "\n");
}

static tm_status train(tm_cli_line *line, tm_error *err)
{
    static const char *const end[] = { "<|endoftext|>" };
    const train_options     *o = line->options;
    tm_tokenize_result       files = { 0 };
    tm_bpe_result            result = { 0 };
    tm_text                  text = { 0 };
    tm_vocabulary_options    v = { .paths = (const char *const *)line->words,
                                   .n_paths = line->n_words,
                                   .out = o->out,
                                   .pattern = o->pattern,
                                   .field = o->field,
                                   .input = o->input,
                                   .stop = &tm_cli_stop };
    tm_cli_heed_stop();
    TM_TRY(check_special(&o->special, err));
    v.goal.vocab = o->vocab;
    v.goal.least = o->least;
    v.goal.special = o->special.n ? o->special.item : end;
    v.goal.n_special = o->special.n ? o->special.n : 1;
    TM_TRY(tm_data_vocabulary(&v, &files, &result, err));
    if (result.vocab < o->vocab)
        tm_note("no remaining pair occurs %lld times: %lld tokens instead of %lld", (long long)o->least,
                (long long)result.vocab, (long long)o->vocab);
    print(o, &files, &result, &text);
    tm_status st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    return st;
}

static const tm_option rows[] = {
    { "out", 'o', TM_OPTION_TEXT, offsetof(train_options, out), .value = "FILE", .required = true,
      .help = "the tokenizer.json that is written" },
    { "vocab-size", 0, TM_OPTION_I64, offsetof(train_options, vocab), .value = "N", .required = true, .lo = 257,
      .hi = 1 << 24, .help = "number of tokens" },
    { "input", 0, TM_OPTION_CHOICE, offsetof(train_options, input), .value = "KIND", .choices = "text|jsonl|parquet",
      .help = "format of the files; default: by their names" },
    { "field", 0, TM_OPTION_TEXT, offsetof(train_options, field), .value = "NAME",
      .help = "name of the field with the text, of JSON lines and parquet" },
    { "pattern", 0, TM_OPTION_TEXT, offsetof(train_options, pattern), .value = "NAME", .fallback = "llama3",
      .help = "pattern that splits words; a wrong name lists all" },
    { "special", 0, TM_OPTION_LIST, offsetof(train_options, special), .value = "TEXT",
      .help = "a special token, may be repeated; default: <|endoftext|>" },
    { "least", 0, TM_OPTION_I64, offsetof(train_options, least), .value = "N", .fallback = "2", .lo = 1, .hi = 9e15,
      .help = "least number of times that a pair must occur" },
    TM_OPTION_JSON(train_options),
};

const tm_cli_command tm_tokenizer_command_train = {
    .name = "train",
    .summary = "train a byte-level BPE on text",
    .words = "FILE...",
    .least = 1,
    .most = -1,
    .about = "FILE is a file, a directory or a pattern, as `trainmark data tokenize` takes them (docs/tokenizers.md).",
    TM_CLI_OPTIONS(rows, train_options),
    .run = train,
};
