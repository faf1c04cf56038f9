/* SPDX-License-Identifier: Apache-2.0 */
/* cli/generate.c - `trainmark generate`: a model goes on with a prompt. */
#include "base/clock.h"
#include "base/json.h"
#include "base/random.h"
#include "cli/cli.h"
#include "data/token_list.h"
#include "hf/source.h"
#include "token/token.h"
#include "train/generate/decode.h"
#include "train/generate/sample.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *prompt_ids, *prompt, *tokenizer, *device, *isa, *dtype, *adapter;
    int64_t     threads, max_tokens, top_k, seed, step;
    double      temperature, top_p;
    bool        json;
} generate_options;

typedef struct {
    const char             *path, *dtype;
    const generate_options *o;
    int64_t                 most; /* tokens that are added */
    tm_sampler              sampler;
    tm_hf_source            source;
    tm_device              *opened;
    tm_decoder             *decoder;
    int32_t                *ids; /* prompt and continuation */
    int64_t                 n_prompt, n;
    double                  prompt_seconds, seconds;
    tm_tokenizer           *tokenizer; /* NULL: ids in, ids out */
    int32_t                 end;       /* the tokenizer's token that ends a text, -1: none */
} job;

/* What a model that was trained with the tokenizer learned to end with: the folder's eos_token; where nothing says
 * which one that is, and the model names none either, the one that is called so. */
static int32_t taught_end(const tm_tokenizer *tokenizer, bool model_says)
{
    const tm_tokenizer_facts *f = tm_tokenizer_describe(tokenizer);
    bool                      guessed = !f->eos_from || strcmp(f->eos_from, "name") == 0;
    return guessed && model_says ? -1 : f->eos;
}

/* The text's ids, with what stands in front of a text and without what stands behind it. */
static tm_status encode(job *j, int32_t **ids, int64_t *n, tm_error *err)
{
    const char *path = j->o->tokenizer ? j->o->tokenizer : tm_hf_source_tokenizer(&j->source);
    if (!path)
        return tm_fail(err, TM_INVALID,
                       "'%.200s' was trained on data.source %.40s, whose tokens stand for no text; give --prompt-ids "
                       "FILE, or --tokenizer FILE",
                       j->path, tm_config_text(j->source.config, "data.source"));
    TM_TRY(tm_tokenizer_open(path, NULL, &j->tokenizer, err));
    tm_encoder *encoder = tm_encoder_create(j->tokenizer);
    tm_ids      out = { 0 };
    tm_status   st = tm_encoder_encode(encoder, j->o->prompt, strlen(j->o->prompt), TM_ENCODE_SPECIAL, &out, err);
    int32_t     end = tm_tokenizer_describe(j->tokenizer)->eos;
    tm_encoder_destroy(encoder);
    j->end = taught_end(j->tokenizer, j->source.n_ends > 0);
    if (out.count && end >= 0 && out.data[out.count - 1] == end) out.count--;
    for (size_t i = 0; st == TM_OK && i < out.count; i++)
        if (out.data[i] >= j->source.shape.vocab_size)
            st =
                tm_fail(err, TM_INVALID, "the tokenizer '%s' gives the id %d, the model has %lld; give the model's own",
                        path, (int)out.data[i], (long long)j->source.shape.vocab_size);
    if (st != TM_OK) free(out.data);
    *ids = out.data;
    *n = (int64_t)out.count;
    return st;
}

static tm_status read_prompt(job *j, tm_error *err)
{
    const tm_model_shape *s = &j->source.shape;
    int32_t              *prompt = NULL;
    const char           *what = j->o->prompt ? "--prompt" : j->o->prompt_ids;
    TM_TRY(j->o->prompt ? encode(j, &prompt, &j->n_prompt, err)
                        : tm_token_list_read(j->o->prompt_ids, s->vocab_size, &prompt, &j->n_prompt, err));
    j->most = j->o->max_tokens;
    int64_t room = tm_model_max_length(s) - j->n_prompt;
    if (j->most > room) j->most = room;
    if (j->n_prompt < 1 || j->most < 1) {
        free(prompt);
        char most[80] = "";
        if (tm_model_max_length(s) < INT64_MAX)
            snprintf(most, sizeof most, ", and fewer than the model's %lld positions",
                     (long long)tm_model_max_length(s));
        return tm_fail(err, TM_INVALID, "'%s' has %lld tokens; a prompt has one at least%s", what,
                       (long long)j->n_prompt, most);
    }
    j->ids = tm_realloc(prompt, (size_t)(j->n_prompt + j->most) * sizeof *prompt);
    j->n = j->n_prompt;
    return TM_OK;
}

static tm_status open_decoder(job *j, int threads, tm_error *err)
{
    static const tm_precision *const formats[] = { &tm_precision_f32, &tm_precision_bf16, &tm_precision_f64 };
    const tm_precision              *precision = NULL;
    TM_TRY(tm_device_open(j->o->device, threads, &j->opened, err));
    if (j->o->isa) TM_TRY(tm_device_limit_isa(j->opened, j->o->isa, err));
    bool wide = tm_device_describe(j->opened)->float64_only;
    j->dtype = j->o->dtype ? j->o->dtype : wide ? "float64" : "float32";
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (strcmp(formats[i]->name, j->dtype) == 0) precision = formats[i];
    if (!precision || wide != (precision == &tm_precision_f64) || !tm_device_describe(j->opened)->computes)
        return tm_fail(err, TM_USAGE,
                       "--dtype %.100s is not computed on --device %.100s; wanted float32 or bfloat16 on cpu, "
                       "float64 on reference",
                       j->dtype, j->o->device);
    int64_t length = j->n_prompt + j->most;
    return tm_decoder_open(j->opened, &j->source.shape, precision, length < 2 ? 2 : length, j->n_prompt, &j->decoder,
                           err);
}

static tm_status decoder_write(const tm_hf_memory *memory, tm_tensor_id id, size_t offset, const void *from,
                               size_t bytes, tm_error *err)
{
    return tm_decoder_write(memory->context, id, offset, from, bytes, err);
}

static tm_status load(job *j, tm_error *err)
{
    tm_hf_report report;
    tm_hf_memory memory = { .graph = tm_decoder_graph(j->decoder),
                            .shape = &j->source.shape,
                            .form = j->source.form,
                            .context = j->decoder,
                            .write = decoder_write };
    return tm_hf_source_load(&j->source, &memory, tm_device_describe(j->opened)->threads, &report, err);
}

static tm_status go_on(job *j, tm_error *err)
{
    int64_t vocab = j->source.shape.vocab_size, begin = tm_now_ns();
    double *logits = tm_alloc((size_t)vocab * sizeof *logits);
    tm_cli_heed_stop();
    tm_status st = tm_decoder_feed(j->decoder, j->ids, j->n_prompt, logits, err);
    j->prompt_seconds = (double)(tm_now_ns() - begin) * 1e-9;
    begin = tm_now_ns();
    while (st == TM_OK && !tm_cli_stop) {
        int32_t next = tm_sample(&j->sampler, logits, vocab, j->n);
        j->ids[j->n++] = next;
        if (j->n == j->n_prompt + j->most || next == j->end || tm_hf_source_ends(&j->source, next)) break;
        st = tm_decoder_feed(j->decoder, &next, 1, logits, err);
    }
    j->seconds = (double)(tm_now_ns() - begin) * 1e-9;
    free(logits);
    return st;
}

static void json_ids(tm_json *json, const char *key, const int32_t *ids, int64_t n)
{
    tm_json_open(json, key, '[');
    for (int64_t i = 0; i < n; i++) tm_json_i64(json, NULL, ids[i]);
    tm_json_close(json, ']');
}

static void print(const job *j, tm_text *out)
{
    int64_t added = j->n - j->n_prompt;
    double  prompt_rate = (double)j->n_prompt / j->prompt_seconds; /* the first token needs no call of its own */
    double  rate = added > 1 ? (double)(added - 1) / j->seconds : (double)NAN;
    if (j->o->json) {
        tm_json json = { .out = out };
        tm_json_open(&json, NULL, '{');
        json_ids(&json, "prompt", j->ids, j->n_prompt);
        json_ids(&json, "tokens", j->ids + j->n_prompt, added);
        if (j->tokenizer) {
            tm_text text = { 0 };
            tm_tokenizer_decode(j->tokenizer, j->ids + j->n_prompt, (size_t)added, false, &text);
            tm_text_add(&text, "");
            tm_json_string(&json, "text", text.data);
            tm_text_fini(&text);
        }
        tm_json_f64(&json, "prompt_tokens_per_second", prompt_rate);
        tm_json_f64(&json, "tokens_per_second", rate);
        tm_json_close(&json, '}');
        tm_text_add(out, "\n");
        return;
    }
    tm_text_add(out, "prompt      ");
    for (int64_t i = 0; i < j->n && !j->tokenizer; i++)
        tm_text_printf(out, "%s%d", i == j->n_prompt ? "\ncontinues   " : i ? " " : "", (int)j->ids[i]);
    if (j->tokenizer) {
        tm_text_printf(out, "%s\ncontinues   ", j->o->prompt);
        tm_tokenizer_decode(j->tokenizer, j->ids + j->n_prompt, (size_t)added, false, out);
    }
    tm_text_printf(out, "\n%lld tokens read at %.1f tokens/s, ", (long long)j->n_prompt, prompt_rate);
    if (added > 1)
        tm_text_printf(out, "%lld written at %.1f tokens/s\n", (long long)added, rate);
    else
        tm_text_printf(out, "%lld written\n", (long long)added);
}

static tm_status generate(job *j, tm_text *out, tm_error *err)
{
    j->sampler = (tm_sampler){
        .temperature = j->o->temperature, .top_k = j->o->top_k, .top_p = j->o->top_p, .seed = (uint64_t)j->o->seed
    };
    TM_TRY(tm_hf_source_open(j->path, j->o->step, tm_cli_config(), &j->source, err));
    if (j->o->adapter) TM_TRY(tm_hf_source_adapt(&j->source, j->o->adapter, err));
    if (tm_model_images(&j->source.shape))
        return tm_fail(err, TM_UNSUPPORTED, "'%.300s' is a model of images; only texts are continued", j->path);
    TM_TRY(read_prompt(j, err));
    TM_TRY(open_decoder(j, (int)j->o->threads, err));
    TM_TRY(load(j, err));
    TM_TRY(go_on(j, err));
    print(j, out);
    return TM_OK;
}

static void release(job *j)
{
    tm_decoder_close(j->decoder);
    tm_device_close(j->opened);
    tm_hf_source_close(&j->source);
    tm_tokenizer_close(j->tokenizer);
    free(j->ids);
}

static tm_status run(tm_cli_line *line, tm_error *err)
{
    generate_options *o = line->options;
    job               j = { .path = line->words[0], .o = o, .end = -1 };
    tm_text           out = { 0 };
    TM_TRY(tm_cli_find_model(line, &j.path, &o->adapter, err));
    TM_TRY(tm_cli_find_hub(line, TM_HUB_MODEL, &o->tokenizer, err));
    if (!j.o->prompt == !j.o->prompt_ids)
        return tm_fail(err, TM_USAGE, "give --prompt TEXT or --prompt-ids FILE (a JSON array of token ids, or a .npy)");
    tm_status st = generate(&j, &out, err);
    if (st == TM_OK) st = tm_cli_print(&out, err);
    release(&j);
    tm_text_fini(&out);
    return st;
}

static const tm_option rows[] = {
    { "prompt", 0, TM_OPTION_TEXT, offsetof(generate_options, prompt), .value = "TEXT", .may_be_empty = true,
      .help = "text to continue, encoded by the tokenizer of DIR or RUN" },
    { "prompt-ids", 0, TM_OPTION_TEXT, offsetof(generate_options, prompt_ids), .value = "FILE",
      .help = "token ids: a JSON array or a .npy" },
    { "tokenizer", 0, TM_OPTION_TEXT, offsetof(generate_options, tokenizer), .value = "FILE",
      .help = "another tokenizer file or directory" },
    { "adapter", 0, TM_OPTION_TEXT, offsetof(generate_options, adapter), .value = "DIR",
      .help = "add the PEFT adapter in this directory to the weights" },
    { "max-tokens", 0, TM_OPTION_I64, offsetof(generate_options, max_tokens), .value = "N", .fallback = "64", .lo = 1,
      .hi = 1e7, .help = "number of tokens to add; fewer if the text ends or positions run out" },
    { "temperature", 0, TM_OPTION_F64, offsetof(generate_options, temperature), .value = "T", .fallback = "0", .lo = 0,
      .hi = 1e3, .help = "0: always the most likely token; else logits are divided by T" },
    { "top-k", 0, TM_OPTION_I64, offsetof(generate_options, top_k), .value = "K", .fallback = "0", .lo = 0, .hi = 1e9,
      .help = "draw from the K most likely tokens; 0: from all" },
    { "top-p", 0, TM_OPTION_F64, offsetof(generate_options, top_p), .value = "P", .fallback = "1", .lo = 1e-9, .hi = 1,
      .help = "draw from the most likely tokens whose probabilities add up to P" },
    { "seed", 0, TM_OPTION_I64, offsetof(generate_options, seed), .value = "S", .fallback = "0", .lo = 0, .hi = 9e15,
      .help = "seed of the sampling" },
    { "dtype", 0, TM_OPTION_CHOICE, offsetof(generate_options, dtype), .value = "NAME",
      .choices = "float32|bfloat16|float64",
      .help = "format of weights and products; float64: with --device reference" },
    { "step", 0, TM_OPTION_I64, offsetof(generate_options, step), .value = "N", .fallback = "-1", .lo = -1, .hi = 1e15,
      .help = "for a run: the checkpoint of step N; -1: the newest" },
    TM_OPTION_DEVICE(generate_options),
    TM_OPTION_JSON(generate_options),
};

const tm_cli_command tm_command_generate = {
    .name = "generate",
    .summary = "continue a prompt with a Hugging Face directory or a trained model",
    .words = "DIR|RUN",
    .least = 1,
    .most = 1,
    .about = "Continues a prompt with a Hugging Face directory or the newest checkpoint of a run; keys and values of "
             "earlier "
             "tokens are cached.",
    TM_CLI_OPTIONS(rows, generate_options),
    .run = run,
};
