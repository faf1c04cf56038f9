/* SPDX-License-Identifier: Apache-2.0 */
/* cli/tokenizer.c - `trainmark tokenizer COMMAND`: text to ids and back, and what is in a tokenizer file. */
#include "base/arena.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/tokenizer_speed.h"
#include "cli/tokenizer_train.h"
#include "token/token.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    const char *command, *tokenizer, *pattern, *file, *threads, *rounds;
    bool        json, special;
} arguments;

static void add_patterns(tm_text *text)
{
    for (int i = 0; tm_tokenizer_pattern(i); i++) tm_text_printf(text, "%s%s", i ? ", " : "", tm_tokenizer_pattern(i));
}

static tm_status print_help(tm_error *err)
{
    tm_text text = { 0 };
    tm_text_add(&text,
                "usage: trainmark tokenizer encode|decode|info|speed --tokenizer FILE [--special] [--json] [FILE|-]\n"
                "       trainmark tokenizer train FILE... -o tokenizer.json --vocab_size N [options]\n\n"
                "Text to token ids and back, by a tokenizer file: tokenizer.json, SentencePiece .model, tiktoken, "
                "tekken, or a\n"
                "folder with one of them (docs/tokenizers.md).\n\n"
                "  encode            the ids of the whole input as a JSON array; --json: with their texts\n"
                "  decode            the text of ids: numbers with anything between them\n"
                "  info              what is in the file\n"
                "  speed             how fast the input is encoded, as JSON: [--threads N] [--rounds N] (1 and 5)\n"
                "  train             learns a byte-level BPE of text: files, folders and patterns as `trainmark data "
                "tokenize` takes\n"
                "                    them, also [--input KIND] [--field NAME]; [--pattern NAME] cuts words (llama3); "
                "[--special TEXT]\n"
                "                    a special token, may be given often (<|endoftext|>); [--least N] times a pair must "
                "occur (2)\n\n"
                "  --special         encode: add the tokens that the file puts around a text (<s>, ...); decode: print "
                "special\n"
                "                    tokens, too\n"
                "  --pattern NAME    how a tiktoken file of unknown size cuts words: ");
    add_patterns(&text);
    tm_text_add(&text, "\n\nThe input is FILE, or standard input without one.\n");
    tm_status st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    return st;
}

static tm_status read_arguments(int argc, char **argv, arguments *out, tm_error *err)
{
    *out = (arguments){ .command = argv[1] };
    for (int i = 2; i < argc; i++) {
        const struct {
            const char  *name;
            const char **value;
        } options[] = { { "--tokenizer", &out->tokenizer },
                        { "--pattern", &out->pattern },
                        { "--threads", &out->threads },
                        { "--rounds", &out->rounds } };
        const char **value = NULL;
        for (size_t k = 0; k < sizeof options / sizeof options[0]; k++)
            if (strcmp(argv[i], options[k].name) == 0) value = options[k].value;
        if (value && i + 1 >= argc) return tm_fail(err, TM_USAGE, "option '%s' needs a value", argv[i]);
        if (value)
            *value = argv[++i];
        else if (strcmp(argv[i], "--json") == 0)
            out->json = true;
        else if (strcmp(argv[i], "--special") == 0)
            out->special = true;
        else if ((argv[i][0] == '-' && argv[i][1]) || out->file)
            return tm_fail(err, TM_USAGE, "unexpected '%.200s'; `trainmark tokenizer --help` tells what it takes",
                           argv[i]);
        else
            out->file = argv[i];
    }
    if (!out->tokenizer || !*out->tokenizer)
        return tm_fail(err, TM_USAGE, "--tokenizer FILE is missing: the tokenizer's file");
    return TM_OK;
}

/* The whole of a file, or of standard input. */
static tm_status read_input(const char *path, tm_text *out, tm_error *err)
{
    bool    standard = !path || strcmp(path, "-") == 0;
    int     fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    char   *part = tm_alloc(1 << 16);
    ssize_t n = -1;
    tm_text_add_n(out, "", 0);
    while (fd >= 0 && (n = read(fd, part, 1 << 16)) != 0) {
        if (n > 0) tm_text_add_n(out, part, (size_t)n);
        if (n < 0 && errno != EINTR) break;
    }
    free(part);
    int cause = errno;
    if (fd > STDIN_FILENO) close(fd);
    return n == 0
               ? TM_OK
               : tm_fail(err, TM_INVALID, "cannot read '%s': %s", standard ? "standard input" : path, strerror(cause));
}

static void print_ids(const tm_ids *ids, tm_text *out)
{
    tm_text_add(out, "[");
    for (size_t i = 0; i < ids->count; i++) {
        char digits[16], *at = digits + sizeof digits;
        for (uint32_t id = (uint32_t)ids->data[i];; id /= 10) {
            *--at = (char)('0' + id % 10);
            if (id < 10) break;
        }
        if (i > 0) tm_text_add_n(out, ", ", 2);
        tm_text_add_n(out, at, (size_t)(digits + sizeof digits - at));
    }
    tm_text_add(out, "]\n");
}

static void print_tokens(const tm_tokenizer *tokenizer, const tm_ids *ids, size_t bytes, tm_text *out)
{
    tm_json j = { .out = out };
    size_t  n;
    tm_json_open(&j, NULL, '{');
    tm_json_i64(&j, "bytes", (int64_t)bytes);
    tm_json_i64(&j, "count", (int64_t)ids->count);
    tm_json_open(&j, "ids", '[');
    for (size_t i = 0; i < ids->count; i++) tm_json_i64(&j, NULL, ids->data[i]);
    tm_json_close(&j, ']');
    tm_json_open(&j, "tokens", '[');
    for (size_t i = 0; i < ids->count; i++) tm_json_string(&j, NULL, tm_tokenizer_text(tokenizer, ids->data[i], &n));
    tm_json_close(&j, ']');
    tm_json_close(&j, '}');
    tm_text_add(out, "\n");
}

static tm_status encode(const arguments *a, const tm_tokenizer *tokenizer, const tm_text *input, tm_text *out,
                        tm_error *err)
{
    tm_ids      ids = { 0 };
    tm_encoder *encoder = tm_encoder_create(tokenizer);
    tm_status   st =
        tm_encoder_encode(encoder, input->data, input->length, a->special ? TM_ENCODE_SPECIAL : 0, &ids, err);
    if (st == TM_OK && a->json)
        print_tokens(tokenizer, &ids, input->length, out);
    else if (st == TM_OK)
        print_ids(&ids, out);
    tm_encoder_destroy(encoder);
    free(ids.data);
    return st;
}

static tm_status read_ids(const tm_text *input, tm_ids *ids, tm_error *err)
{
    for (const char *p = input->data; *p;) {
        if (*p < '0' || *p > '9') {
            if (!strchr(" \t\r\n,;[]", *p))
                return tm_fail(err, TM_INVALID, "the ids have '%c' at byte %zu; wanted numbers: [1, 2, 3]", *p,
                               (size_t)(p - input->data));
            p++;
            continue;
        }
        char     *end;
        long long id = strtoll(p, &end, 10);
        if (id > INT32_MAX)
            return tm_fail(err, TM_INVALID, "id %.20s at byte %zu is too large", p, (size_t)(p - input->data));
        if (ids->count == ids->capacity) ids->data = tm_grow(ids->data, &ids->capacity, ids->count, sizeof *ids->data);
        ids->data[ids->count++] = (int32_t)id;
        p = end;
    }
    return TM_OK;
}

static tm_status decode(const arguments *a, const tm_tokenizer *tokenizer, const tm_text *input, tm_text *out,
                        tm_error *err)
{
    tm_ids    ids = { 0 };
    tm_status st = read_ids(input, &ids, err);
    if (st == TM_OK) tm_tokenizer_decode(tokenizer, ids.data, ids.count, a->special, out);
    free(ids.data);
    if (st != TM_OK || !a->json) return st;
    tm_text text = *out;
    *out = (tm_text){ 0 };
    tm_json j = { .out = out };
    tm_json_open(&j, NULL, '{');
    tm_json_string(&j, "text", text.data);
    tm_json_close(&j, '}');
    tm_text_add(out, "\n");
    tm_text_fini(&text);
    return TM_OK;
}

static tm_status speed(const arguments *a, const tm_tokenizer *tokenizer, const tm_text *input, tm_text *out,
                       tm_error *err)
{
    const char *texts[] = { a->threads ? a->threads : "1", a->rounds ? a->rounds : "5" };
    long        numbers[2];
    for (int i = 0; i < 2; i++) {
        char *end;
        numbers[i] = strtol(texts[i], &end, 10);
        if (*end || end == texts[i] || numbers[i] < 1 || numbers[i] > 1024)
            return tm_fail(err, TM_USAGE, "%s is '%.100s', wanted 1 to 1024", i ? "--rounds" : "--threads", texts[i]);
    }
    return tm_cli_tokenizer_speed(tokenizer, input, (int)numbers[0], (int)numbers[1], out, err);
}

static void info(const arguments *a, const tm_tokenizer *tokenizer, tm_text *out)
{
    const tm_tokenizer_facts *f = tm_tokenizer_describe(tokenizer);
    const struct {
        const char *name;
        int32_t     id;
    } ids[] = { { "bos", f->bos }, { "eos", f->eos }, { "unk", f->unk }, { "pad", f->pad } };
    size_t  n;
    tm_json j = { .out = out, .indent = true };
    if (a->json) {
        tm_json_open(&j, NULL, '{');
        tm_json_string(&j, "format", f->format);
        tm_json_string(&j, "model", f->model);
        tm_json_string(&j, "pattern", f->pattern);
        tm_json_i64(&j, "vocab", f->vocab);
        tm_json_i64(&j, "merges", f->merges);
        tm_json_i64(&j, "added", f->added);
        for (int i = 0; i < 4; i++) tm_json_i64(&j, ids[i].name, ids[i].id);
        tm_json_close(&j, '}');
        tm_text_add(out, "\n");
        return;
    }
    tm_text_printf(out, "format   %s\nmodel    %s\npattern  %s\nvocab    %lld\n", f->format, f->model,
                   f->pattern ? f->pattern : "-", (long long)f->vocab);
    tm_text_printf(out, "merges   %lld\nadded    %lld\n", (long long)f->merges, (long long)f->added);
    for (int i = 0; i < 4; i++)
        if (ids[i].id >= 0)
            tm_text_printf(out, "%-8s %d  %s\n", ids[i].name, ids[i].id, tm_tokenizer_text(tokenizer, ids[i].id, &n));
}

tm_status tm_command_tokenizer(int argc, char **argv, tm_error *err)
{
    static const char *const commands[] = { "encode", "decode", "speed", "info" };
    arguments                a;
    tm_tokenizer            *tokenizer = NULL;
    tm_text                  input = { 0 }, out = { 0 };
    int                      command = 0;
    if (tm_cli_wants_help(argc, argv)) return print_help(err);
    if (argc < 2) return tm_fail(err, TM_USAGE, "which command? `trainmark tokenizer --help` lists them");
    if (strcmp(argv[1], "train") == 0) return tm_cli_tokenizer_train(argc - 1, argv + 1, err);
    while (command < 4 && strcmp(argv[1], commands[command]) != 0) command++;
    if (command == 4)
        return tm_fail(err, TM_USAGE, "unknown command 'tokenizer %.200s'; wanted encode, decode, info, speed or train",
                       argv[1]);
    TM_TRY(read_arguments(argc, argv, &a, err));
    tm_status st = tm_tokenizer_open(a.tokenizer, a.pattern, &tokenizer, err);
    if (st == TM_OK && command < 3) st = read_input(a.file, &input, err);
    if (st == TM_OK && command == 0) st = encode(&a, tokenizer, &input, &out, err);
    if (st == TM_OK && command == 1) st = decode(&a, tokenizer, &input, &out, err);
    if (st == TM_OK && command == 2) st = speed(&a, tokenizer, &input, &out, err);
    if (st == TM_OK && command == 3) info(&a, tokenizer, &out);
    if (st == TM_OK) st = tm_cli_print(&out, err);
    tm_tokenizer_close(tokenizer);
    tm_text_fini(&input);
    tm_text_fini(&out);
    return st;
}
