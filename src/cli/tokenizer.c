/* SPDX-License-Identifier: Apache-2.0 */
/* cli/tokenizer.c - `trainmark tokenizer COMMAND`: text to ids and back, and describe a tokenizer file. */
#include "base/arena.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/tokenizer_speed.h"
#include "cli/tokenizer_chat.h"
#include "cli/tokenizer_train.h"
#include "token/token.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    const char *tokenizer, *pattern;
    int64_t     threads, rounds;
    bool        json, special;
} arguments;

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
    tm_ids            ids = { 0 };
    tm_token_encoder *encoder = tm_token_encoder_create(tokenizer);
    tm_status         st =
        tm_token_encoder_encode(encoder, input->data, input->length, a->special ? TM_ENCODE_SPECIAL : 0, &ids, err);
    if (st == TM_OK && a->json)
        print_tokens(tokenizer, &ids, input->length, out);
    else if (st == TM_OK)
        print_ids(&ids, out);
    tm_token_encoder_destroy(encoder);
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
            return tm_fail(err, TM_INVALID, "id %.*s at byte %zu is too large", (int)(end - p < 20 ? end - p : 20), p,
                           (size_t)(p - input->data));
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
    return tm_cli_tokenizer_speed(tokenizer, input, (int)a->threads, (int)a->rounds, out, err);
}

static tm_status info(const arguments *a, const tm_tokenizer *tokenizer, const tm_text *input, tm_text *out,
                      tm_error *err)
{
    (void)input;
    (void)err;
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
        tm_json_string(&j, "eos_from", f->eos_from);
        tm_json_close(&j, '}');
        tm_text_add(out, "\n");
        return TM_OK;
    }
    tm_text_printf(out, "format   %s\nmodel    %s\npattern  %s\nvocab    %lld\n", f->format, f->model,
                   f->pattern ? f->pattern : "-", (long long)f->vocab);
    tm_text_printf(out, "merges   %lld\nadded    %lld\n", (long long)f->merges, (long long)f->added);
    for (int i = 0; i < 4; i++)
        if (ids[i].id >= 0)
            tm_text_printf(out, "%-8s %d  %s%s%s%s\n", ids[i].name, ids[i].id,
                           tm_tokenizer_text(tokenizer, ids[i].id, &n), i == 1 && f->eos_from ? "  (" : "",
                           i == 1 && f->eos_from ? f->eos_from : "", i == 1 && f->eos_from ? ")" : "");
    return TM_OK;
}

typedef tm_status (*work)(const arguments *a, const tm_tokenizer *tokenizer, const tm_text *input, tm_text *out,
                          tm_error *err);

/* With the tokenizer open; all but `info` read the input. */
static tm_status with_tokenizer(tm_cli_line *line, work function, tm_error *err)
{
    arguments    *a = line->options;
    tm_tokenizer *tokenizer = NULL;
    tm_text       input = { 0 }, out = { 0 };
    TM_TRY(tm_cli_find_hub(line, TM_HUB_MODEL, &a->tokenizer, err));
    tm_status st = tm_tokenizer_open(a->tokenizer, a->pattern, &tokenizer, err);
    if (st == TM_OK && function != info) st = read_input(line->n_words ? line->words[0] : NULL, &input, err);
    if (st == TM_OK) st = function(a, tokenizer, &input, &out, err);
    if (st == TM_OK) st = tm_cli_print(&out, err);
    tm_tokenizer_close(tokenizer);
    tm_text_fini(&input);
    tm_text_fini(&out);
    return st;
}

static tm_status run_encode(tm_cli_line *line, tm_error *err)
{
    return with_tokenizer(line, encode, err);
}

static tm_status run_decode(tm_cli_line *line, tm_error *err)
{
    return with_tokenizer(line, decode, err);
}

static tm_status run_info(tm_cli_line *line, tm_error *err)
{
    return with_tokenizer(line, info, err);
}

static tm_status run_speed(tm_cli_line *line, tm_error *err)
{
    return with_tokenizer(line, speed, err);
}

#define FILE_ROWS                                                                                                      \
    { "tokenizer",                                                                                                     \
      0,                                                                                                               \
      TM_OPTION_TEXT,                                                                                                  \
      offsetof(arguments, tokenizer),                                                                                  \
      .value = "FILE",                                                                                                 \
      .required = true,                                                                                                \
      .help = "tokenizer.json, SentencePiece .model, tiktoken, tekken, or its directory" },                            \
        { "pattern",       0,                                                                                          \
          TM_OPTION_TEXT,  offsetof(arguments, pattern),                                                               \
          .value = "NAME", .help = "pattern that splits words, for a tiktoken file; a wrong name lists all" },         \
        TM_OPTION_JSON(arguments)

static const tm_option encode_rows[] = {
    FILE_ROWS,
    { "special", 0, TM_OPTION_FLAG, offsetof(arguments, special),
      .help = "add the tokens that the file puts around a text (<s>, ...)" },
};
static const tm_option decode_rows[] = {
    FILE_ROWS,
    { "special", 0, TM_OPTION_FLAG, offsetof(arguments, special), .help = "also print special tokens" },
};
static const tm_option info_rows[] = { FILE_ROWS };
static const tm_option speed_rows[] = {
    FILE_ROWS,
    { "threads", 0, TM_OPTION_I64, offsetof(arguments, threads), .value = "N", .fallback = "1", .lo = 1, .hi = 1024,
      .help = "number of threads" },
    { "rounds", 0, TM_OPTION_I64, offsetof(arguments, rounds), .value = "N", .fallback = "5", .lo = 1, .hi = 1024,
      .help = "number of times the input is encoded" },
};

static const tm_cli_command encode_command = {
    .name = "encode",
    .summary = "print the ids of the whole input as a JSON array; with --json also their texts",
    .words = "[FILE|-]",
    .most = 1,
    TM_CLI_OPTIONS(encode_rows, arguments),
    .run = run_encode,
};
static const tm_cli_command decode_command = {
    .name = "decode",
    .summary = "print the text of ids (numbers with any separators)",
    .words = "[FILE|-]",
    .most = 1,
    TM_CLI_OPTIONS(decode_rows, arguments),
    .run = run_decode,
};
static const tm_cli_command info_command = {
    .name = "info",
    .summary = "describe a tokenizer file",
    TM_CLI_OPTIONS(info_rows, arguments),
    .run = run_info,
};
static const tm_cli_command speed_command = {
    .name = "speed",
    .summary = "measure how fast the input is encoded (JSON)",
    .words = "[FILE|-]",
    .most = 1,
    TM_CLI_OPTIONS(speed_rows, arguments),
    .run = run_speed,
};

static const tm_cli_command *const commands[] = { &encode_command,
                                                  &decode_command,
                                                  &info_command,
                                                  &speed_command,
                                                  &tm_tokenizer_command_train,
                                                  &tm_tokenizer_command_chat,
                                                  NULL };

const tm_cli_command tm_command_tokenizer = {
    .name = "tokenizer",
    .summary = "encode, decode, train and describe tokenizers",
    .about =
        "Converts text to token ids and back, with a tokenizer file: tokenizer.json, SentencePiece .model, tiktoken, "
        "tekken, or a directory with one of them (docs/tokenizers.md). The input is FILE, or standard input without "
        "one.",
    .commands = commands,
};
