/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tokenize.h"

#include "base/arena.h"
#include "base/cpu.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/data.h"

#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: trainmark data tokenize FILE... -o PREFIX --tokenizer FILE [options]\n\n"
    "Makes PREFIX.bin and PREFIX.idx (data.source megatron) of text, by a tokenizer's file (docs/tokenizers.md). FILE: "
    "a text\n"
    "file, JSON lines (.jsonl), parquet, each also .gz or .zst but parquet, a folder of them, or a 'pattern*'. A text "
    "file, a\n"
    "line of JSON, a row of parquet is a document. Stopped or killed, the same command goes on where it was.\n\n"
    "  -o PREFIX           what is written\n"
    "  --tokenizer FILE    tokenizer.json, SentencePiece .model, tiktoken, tekken, or a folder with one\n"
    "  --pattern NAME      how a tiktoken file of unknown size cuts words\n"
    "  --field NAME        the field with the text, of JSON lines and parquet\n"
    "  --input KIND        text, jsonl or parquet, whatever the names of the files say\n"
    "  --end ID|none       token behind each document (default: the tokenizer's end of text)\n"
    "  --special           what the tokenizer puts around a text (<s>, ...), around each document\n"
    "  --threads N         that encode (default: those of this machine); the result is the same for any number\n"
    "  --batch BYTES       text that is encoded at once (default 1048576)\n"
    "  --save SECONDS      at most so much work is lost when the program is killed (default 5)\n"
    "  --json              the counts as JSON\n";

static tm_status number(const char *option, const char *text, long long low, long long high, long long *out,
                        tm_error *err)
{
    char *end;
    *out = strtoll(text, &end, 10);
    if (*text && !*end && *out >= low && *out <= high) return TM_OK;
    return tm_fail(err, TM_USAGE, "%s is '%.100s', wanted %lld to %lld", option, text, low, high);
}

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

typedef struct {
    const char *end, *threads, *batch, *save;
    bool        json;
} words;

static tm_status read_words(int argc, char **argv, tm_tokenize_options *o, const char **paths, words *w, tm_error *err)
{
    const tm_cli_option options[] = {
        { "-o", &o->out, NULL },
        { "--out", &o->out, NULL },
        { "--tokenizer", &o->tokenizer, NULL },
        { "--pattern", &o->pattern, NULL },
        { "--field", &o->field, NULL },
        { "--input", &o->input, NULL },
        { "--end", &w->end, NULL },
        { "--threads", &w->threads, NULL },
        { "--batch", &w->batch, NULL },
        { "--save", &w->save, NULL },
        { "--special", NULL, &o->special },
        { "--json", NULL, &w->json },
        { NULL, NULL, NULL },
    };
    for (int i = 1; i < argc; i++) {
        const tm_cli_option *option = options;
        while (option->name && strcmp(option->name, argv[i]) != 0) option++;
        if (!option->name && argv[i][0] == '-')
            return tm_fail(err, TM_USAGE, "unexpected '%.200s'; `trainmark data tokenize --help` tells what it takes",
                           argv[i]);
        if (!option->name) {
            paths[o->n_paths++] = argv[i];
        } else if (option->flag) {
            *option->flag = true;
        } else {
            if (i + 1 >= argc) return tm_fail(err, TM_USAGE, "option '%s' needs a value", argv[i]);
            *option->value = argv[++i];
        }
    }
    if (o->n_paths == 0)
        return tm_fail(err, TM_USAGE, "which files? `trainmark data tokenize --help` tells what it takes");
    if (!o->out || !*o->out) return tm_fail(err, TM_USAGE, "-o PREFIX is missing: the name of what is written");
    if (!o->tokenizer || !*o->tokenizer)
        return tm_fail(err, TM_USAGE, "--tokenizer FILE is missing: the tokenizer's file");
    if (o->input && strcmp(o->input, "text") != 0 && strcmp(o->input, "jsonl") != 0 && strcmp(o->input, "parquet") != 0)
        return tm_fail(err, TM_USAGE, "--input is '%.100s', wanted text, jsonl or parquet", o->input);
    return TM_OK;
}

tm_status tm_data_command_tokenize(int argc, char **argv, tm_error *err)
{
    const char        **paths = tm_alloc((size_t)argc * sizeof *paths);
    tm_tokenize_options o = { .paths = paths, .end = -1, .stop = &tm_cli_stop };
    tm_tokenize_result  r;
    words               w = { 0 };
    long long           threads = tm_cpu_threads_allowed(), end = -1, batch = 0;
    tm_text             text = { 0 };
    if (tm_cli_wants_help(argc, argv)) {
        free(paths);
        return tm_cli_print_help(help, err);
    }
    tm_status st = read_words(argc, argv, &o, paths, &w, err);
    if (st == TM_OK && w.threads) st = number("--threads", w.threads, 1, 1024, &threads, err);
    if (st == TM_OK && w.batch) st = number("--batch", w.batch, 1, 1 << 28, &batch, err);
    if (st == TM_OK && w.save) {
        char *rest;
        o.save_seconds = strtod(w.save, &rest);
        if (rest == w.save || *rest || !(o.save_seconds > 0))
            st = tm_fail(err, TM_USAGE, "--save is '%.100s', wanted seconds above 0", w.save);
    }
    if (st == TM_OK && w.end && strcmp(w.end, "none") == 0) end = -2;
    if (st == TM_OK && w.end && end == -1) st = number("--end", w.end, 0, 1 << 24, &end, err);
    o.threads = (int)threads;
    o.end = (int32_t)end;
    o.batch_bytes = batch;
    if (st == TM_OK) st = tm_data_tokenize(&o, &r, err);
    if (st == TM_OK) {
        (w.json ? print_json : print_text)(&o, &r, &text);
        st = tm_cli_print(&text, err);
    }
    tm_text_fini(&text);
    free(paths);
    return st;
}
