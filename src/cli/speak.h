/* SPDX-License-Identifier: Apache-2.0 */
/* cli/speak.h - private to the room: a model that continues texts, for `generate` and `chat`. */
#ifndef TM_CLI_SPEAK_H
#define TM_CLI_SPEAK_H

#include "cli/cli.h"
#include "hf/source.h"
#include "token/token.h"
#include "train/generate/decode.h"
#include "train/generate/sample.h"

typedef struct {
    const char *tokenizer, *device, *isa, *dtype, *adapter;
    int64_t     threads, max_tokens, top_k, seed, step;
    double      temperature, top_p;
    bool        ema;
} speak_options;

/* Options of both commands, whose struct begins with speak_options. */
#define SPEAK_ROWS(struct_, most_tokens, temperature_)                                                                 \
    { "tokenizer",     0,                                                                                              \
      TM_OPTION_TEXT,  offsetof(struct_, speak.tokenizer),                                                             \
      .value = "FILE", .help = "another tokenizer file or directory; byte: bytes are tokens" },                        \
        { "adapter",      0,                                                                                           \
          TM_OPTION_TEXT, offsetof(struct_, speak.adapter),                                                            \
          .value = "DIR", .help = "add the PEFT adapter in this directory to the weights" },                           \
        { "ema", 0, TM_OPTION_FLAG, offsetof(struct_, speak.ema),                                                      \
          .help = "of a run: the averages of its weights (training.ema_decay)" },                                      \
        { "max-tokens",                                                                                                \
          0,                                                                                                           \
          TM_OPTION_I64,                                                                                               \
          offsetof(struct_, speak.max_tokens),                                                                         \
          .value = "N",                                                                                                \
          .fallback = most_tokens,                                                                                     \
          .lo = 1,                                                                                                     \
          .hi = 1e7,                                                                                                   \
          .help = "number of tokens to add; fewer if the text ends or positions run out" },                            \
        { "temperature",                                                                                               \
          0,                                                                                                           \
          TM_OPTION_F64,                                                                                               \
          offsetof(struct_, speak.temperature),                                                                        \
          .value = "T",                                                                                                \
          .fallback = temperature_,                                                                                    \
          .lo = 0,                                                                                                     \
          .hi = 1e3,                                                                                                   \
          .help = "0: always the most likely token; else logits are divided by T" },                                   \
        { "top-k",                                                                                                     \
          0,                                                                                                           \
          TM_OPTION_I64,                                                                                               \
          offsetof(struct_, speak.top_k),                                                                              \
          .value = "K",                                                                                                \
          .fallback = "0",                                                                                             \
          .lo = 0,                                                                                                     \
          .hi = 1e9,                                                                                                   \
          .help = "draw from the K most likely tokens; 0: from all" },                                                 \
        { "top-p",                                                                                                     \
          0,                                                                                                           \
          TM_OPTION_F64,                                                                                               \
          offsetof(struct_, speak.top_p),                                                                              \
          .value = "P",                                                                                                \
          .fallback = "1",                                                                                             \
          .lo = 1e-9,                                                                                                  \
          .hi = 1,                                                                                                     \
          .help = "draw from the most likely tokens whose probabilities add up to P" },                                \
        { "seed",          0,       TM_OPTION_I64, offsetof(struct_, speak.seed), .value = "S",                        \
          .fallback = "0", .lo = 0, .hi = 9e15,    .help = "seed of the sampling" },                                   \
        { "dtype",                                                                                                     \
          0,                                                                                                           \
          TM_OPTION_CHOICE,                                                                                            \
          offsetof(struct_, speak.dtype),                                                                              \
          .value = "NAME",                                                                                             \
          .choices = "float32|bfloat16|float64",                                                                       \
          .help = "format of weights and products; float64: with --device reference" },                                \
    {                                                                                                                  \
        "step", 0, TM_OPTION_I64, offsetof(struct_, speak.step),                                                       \
            .value = "N", .fallback = "-1", .lo = -1, .hi = 1e15,                                                      \
            .help = "for a run: the checkpoint of step N; -1: the newest"                                              \
    }

typedef struct {
    const char          *path;
    const speak_options *o;
    tm_sampler           sampler;
    tm_hf_source         source;
    tm_device           *device;
    tm_decoder          *decoder;
    tm_tokenizer        *tokenizer;
    int32_t              end;    /* the tokenizer's token that ends a text, -1: none */
    double              *logits; /* of what follows the last token that was fed */
} speaker;

/* Opens the model: a directory, a GGUF file or a run; it may be one of images. Close it, also after a failure. */
TM_MUST_USE tm_status speak_open(speaker *s, const char *path, const speak_options *o, tm_error *err);
/* Its tokenizer, or the one that was given. TM_INVALID: its tokens stand for no text. */
TM_MUST_USE tm_status speak_open_tokenizer(speaker *s, tm_error *err);
/* Ids of a text, which the caller frees. TM_INVALID: the model has no such ids. */
TM_MUST_USE tm_status speak_encode(const speaker *s, const char *text, size_t bytes, tm_ids *out, tm_error *err);
/* The device that the options name, and the formats to compute in there. TM_USAGE: it has no such formats. */
TM_MUST_USE tm_status speak_open_device(speaker *s, const tm_precision **precision, tm_error *err);
/* The same, with weights and room for `length` tokens, of which `prompt` are there from the start. */
TM_MUST_USE tm_status speak_load(speaker *s, int64_t length, int64_t prompt, tm_error *err);
/* Reads tokens. */
TM_MUST_USE tm_status speak_read(speaker *s, const int32_t *ids, int64_t n, tm_error *err);
/* The token that follows, of those read so far. */
int32_t speak_next(const speaker *s);
/* Does it end the text? */
bool speak_ends(const speaker *s, int32_t token);
void speak_close(speaker *s);

#endif
