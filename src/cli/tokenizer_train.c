/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/tokenizer_train.h"

#include "base/arena.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/cli.h"
#include "data/vocabulary.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    tm_vocabulary_options vocabulary;
    const char           *size, *least;
    bool                  json;
    const char          **paths, **special;
} train_options;

static tm_status number(const char *option, const char *text, int64_t low, int64_t high, int64_t *out, tm_error *err)
{
    char *end;
    *out = strtoll(text, &end, 10);
    if (*text && !*end && *out >= low && *out <= high) return TM_OK;
    return tm_fail(err, TM_USAGE, "%s is '%.100s', wanted %lld to %lld", option, text, (long long)low, (long long)high);
}

static tm_status read_options(int argc, char **argv, train_options *o, tm_error *err)
{
    tm_vocabulary_options *v = &o->vocabulary;
    const char            *special = NULL;
    const tm_cli_option    options[] = {
           { "-o", &v->out, NULL },
           { "--out", &v->out, NULL },
           { "--vocab_size", &o->size, NULL },
           { "--pattern", &v->pattern, NULL },
           { "--field", &v->field, NULL },
           { "--input", &v->input, NULL },
           { "--least", &o->least, NULL },
           { "--special", &special, NULL },
           { "--json", NULL, &o->json },
           { NULL, NULL, NULL },
    };
    for (int i = 1; i < argc; i++) {
        const tm_cli_option *option = options;
        while (option->name && strcmp(option->name, argv[i]) != 0) option++;
        if (!option->name && argv[i][0] == '-')
            return tm_fail(err, TM_USAGE, "unexpected '%.200s'; `trainmark tokenizer --help` tells what it takes",
                           argv[i]);
        if (!option->name) {
            o->paths[v->n_paths++] = argv[i];
        } else if (option->flag) {
            *option->flag = true;
        } else {
            if (i + 1 >= argc) return tm_fail(err, TM_USAGE, "option '%s' needs a value", argv[i]);
            *option->value = argv[++i];
            if (option->value == &special) o->special[v->goal.n_special++] = special;
        }
    }
    if (v->n_paths == 0) return tm_fail(err, TM_USAGE, "which files? `trainmark tokenizer --help` tells what it takes");
    if (!v->out || !*v->out) return tm_fail(err, TM_USAGE, "-o FILE is missing: the tokenizer.json that is written");
    if (!o->size) return tm_fail(err, TM_USAGE, "--vocab_size N is missing: tokens in all");
    if (v->input && strcmp(v->input, "text") != 0 && strcmp(v->input, "jsonl") != 0 && strcmp(v->input, "parquet") != 0)
        return tm_fail(err, TM_USAGE, "--input is '%.100s', wanted text, jsonl or parquet", v->input);
    for (int i = 0; i < v->goal.n_special; i++)
        for (int k = 0; k <= i; k++)
            if (!*o->special[i] || (k < i && strcmp(o->special[i], o->special[k]) == 0))
                return tm_fail(err, TM_USAGE, "--special '%.100s' is %s", o->special[i],
                               *o->special[i] ? "given twice" : "empty");
    TM_TRY(number("--vocab_size", o->size, 257, 1 << 24, &v->goal.vocab, err));
    v->goal.least = 2;
    return o->least ? number("--least", o->least, 1, INT64_MAX, &v->goal.least, err) : TM_OK;
}

static void print(const train_options *o, const tm_tokenize_result *files, const tm_bpe_result *r, tm_text *text)
{
    char    grouped[3][40];
    tm_json j = { .out = text, .indent = true };
    if (!o->json) {
        tm_text_printf(text, "%s: %s tokens from %s words (%s different) of %lld files\n", o->vocabulary.out,
                       tm_format_grouped(grouped[0], r->vocab), tm_format_grouped(grouped[1], r->words),
                       tm_format_grouped(grouped[2], r->different), (long long)files->files);
        return;
    }
    tm_json_open(&j, NULL, '{');
    tm_json_string(&j, "out", o->vocabulary.out);
    tm_json_i64(&j, "vocab", r->vocab);
    tm_json_i64(&j, "files", files->files);
    tm_json_i64(&j, "bytes", r->bytes);
    tm_json_i64(&j, "words", r->words);
    tm_json_i64(&j, "different_words", r->different);
    tm_json_close(&j, '}');
    tm_text_add(text, "\n");
}

tm_status tm_cli_tokenizer_train(int argc, char **argv, tm_error *err)
{
    train_options      o = { .paths = tm_alloc((size_t)argc * sizeof *o.paths),
                             .special = tm_alloc(((size_t)argc + 1) * sizeof *o.special),
                             .vocabulary = { .pattern = "llama3", .stop = &tm_cli_stop } };
    tm_tokenize_result files = { 0 };
    tm_bpe_result      result = { 0 };
    tm_text            text = { 0 };
    o.vocabulary.paths = o.paths;
    o.vocabulary.goal.special = o.special;
    tm_status st = read_options(argc, argv, &o, err);
    if (st == TM_OK && o.vocabulary.goal.n_special == 0) o.special[o.vocabulary.goal.n_special++] = "<|endoftext|>";
    if (st == TM_OK) st = tm_data_vocabulary(&o.vocabulary, &files, &result, err);
    if (st == TM_OK && result.vocab < o.vocabulary.goal.vocab)
        tm_note("no pair occurs %lld times any more: %lld tokens instead of %lld", (long long)o.vocabulary.goal.least,
                (long long)result.vocab, (long long)o.vocabulary.goal.vocab);
    if (st == TM_OK) {
        print(&o, &files, &result, &text);
        st = tm_cli_print(&text, err);
    }
    tm_text_fini(&text);
    free(o.paths);
    free(o.special);
    return st;
}
