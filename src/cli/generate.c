/* SPDX-License-Identifier: Apache-2.0 */
/* cli/generate.c - `trainmark generate`: a model goes on with a prompt. */
#include "base/clock.h"
#include "base/json.h"
#include "base/random.h"
#include "cli/cli.h"
#include "data/token_list.h"
#include "hf/source.h"
#include "token/token.h"
#include "train/decode.h"
#include "train/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: trainmark generate FOLDER|RUN --prompt TEXT | --prompt-ids FILE [--max_tokens N] [--temperature T]\n"
    "                          [--top_k K] [--top_p P] [--seed S] [--tokenizer FILE] [--json] [--device NAME]\n"
    "                          [--isa NAME] [--dtype NAME] [--threads N] [--step N]\n\n"
    "Continues a prompt with a Hugging Face folder or the newest checkpoint of a run; keys and values of earlier "
    "tokens\n"
    "are kept, not computed again.\n\n"
    "  --prompt TEXT       by the tokenizer in FOLDER, with the tokens that it puts in front of a text\n"
    "  --tokenizer FILE    another tokenizer file or folder\n"
    "  --prompt-ids FILE   token ids: a JSON array or a .npy\n"
    "  --max_tokens N      that are added (default 64); fewer where the model's positions or eos_token_id end it\n"
    "  --temperature T     0 (default): always the most likely token; else logits are divided by T\n"
    "  --top_k K           draws from the K most likely tokens; 0 (default): from all\n"
    "  --top_p P           draws from the most likely tokens that have the share P together (default 1)\n"
    "  --seed S            of the draws (default 0)\n"
    "  --dtype NAME        of weights and products: float32 (default), bfloat16, float64 (--device reference)\n"
    "  --json              one JSON object: prompt, tokens, tokens per second of prompt and of continuation\n";

typedef struct {
    const char   *path, *prompt, *text, *tokenizer_path, *device, *isa, *dtype;
    const char   *threads, *max_tokens, *temperature, *top_k, *top_p, *seed, *step; /* as given */
    bool          json;
    int64_t       most; /* tokens that are added */
    tm_sampler    sampler;
    tm_hf_source  source;
    tm_device    *opened;
    tm_decoder   *decoder;
    int32_t      *ids; /* prompt and continuation */
    int64_t       n_prompt, n;
    double        prompt_seconds, seconds;
    tm_tokenizer *tokenizer; /* NULL: ids in, ids out */
} job;

static tm_status number(const char *name, const char *text, double lo, double hi, double *out, tm_error *err)
{
    char *end;
    *out = strtod(text, &end);
    if (*end || end == text || !(*out >= lo && *out <= hi))
        return tm_fail(err, TM_USAGE, "%s is '%.100s', wanted a number from %g to %g", name, text, lo, hi);
    return TM_OK;
}

static tm_status read_numbers(job *j, double *threads, double *step, tm_error *err)
{
    double most, k, seed;
    TM_TRY(number("--max_tokens", j->max_tokens, 1, 1e7, &most, err));
    TM_TRY(number("--temperature", j->temperature, 0, 1e3, &j->sampler.temperature, err));
    TM_TRY(number("--top_k", j->top_k, 0, 1e9, &k, err));
    TM_TRY(number("--top_p", j->top_p, 1e-9, 1, &j->sampler.top_p, err));
    TM_TRY(number("--seed", j->seed, 0, 9e15, &seed, err));
    TM_TRY(number("--threads", j->threads, 0, 4096, threads, err));
    TM_TRY(number("--step", j->step, -1, 1e15, step, err));
    j->most = (int64_t)most;
    j->sampler.top_k = (int64_t)k;
    j->sampler.seed = (uint64_t)seed;
    return TM_OK;
}

/* The text's ids, with what stands in front of a text and without what stands behind it. */
static tm_status encode(job *j, int32_t **ids, int64_t *n, tm_error *err)
{
    const char *path = j->tokenizer_path ? j->tokenizer_path : j->path;
    TM_TRY(tm_tokenizer_open(path, NULL, &j->tokenizer, err));
    tm_encoder *encoder = tm_encoder_create(j->tokenizer);
    tm_ids      out = { 0 };
    tm_status   st = tm_encoder_encode(encoder, j->text, strlen(j->text), TM_ENCODE_SPECIAL, &out, err);
    int32_t     end = tm_tokenizer_describe(j->tokenizer)->eos;
    tm_encoder_destroy(encoder);
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
    const char           *what = j->text ? "--prompt" : j->prompt;
    TM_TRY(j->text ? encode(j, &prompt, &j->n_prompt, err)
                   : tm_token_list_read(j->prompt, s->vocab_size, &prompt, &j->n_prompt, err));
    int64_t room = tm_model_max_length(s) - j->n_prompt;
    if (j->most > room) j->most = room;
    if (j->n_prompt < 1 || j->most < 1) {
        free(prompt);
        return tm_fail(err, TM_INVALID,
                       "'%s' has %lld tokens; a prompt has one at least, and fewer than the model's %lld "
                       "positions",
                       what, (long long)j->n_prompt, (long long)tm_model_max_length(s));
    }
    j->ids = tm_realloc(prompt, (size_t)(j->n_prompt + j->most) * sizeof *prompt);
    j->n = j->n_prompt;
    return TM_OK;
}

static tm_status open_decoder(job *j, int threads, tm_error *err)
{
    static const tm_precision *const formats[] = { &tm_precision_f32, &tm_precision_bf16, &tm_precision_f64 };
    const tm_precision              *precision = NULL;
    TM_TRY(tm_device_open(j->device, threads, &j->opened, err));
    if (j->isa) TM_TRY(tm_device_limit_isa(j->opened, j->isa, err));
    bool wide = tm_device_describe(j->opened)->float64_only;
    if (!j->dtype) j->dtype = wide ? "float64" : "float32";
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (strcmp(formats[i]->name, j->dtype) == 0) precision = formats[i];
    if (!precision || wide != (precision == &tm_precision_f64) || !tm_device_describe(j->opened)->computes)
        return tm_fail(err, TM_USAGE,
                       "--dtype %.100s is not computed on --device %.100s; wanted float32 or bfloat16 on cpu, "
                       "float64 on reference",
                       j->dtype, j->device);
    int64_t length = j->n_prompt + j->most;
    return tm_decoder_open(j->opened, &j->source.shape, precision, length < 2 ? 2 : length, &j->decoder, err);
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
    int64_t   vocab = j->source.shape.vocab_size, begin = tm_now_ns();
    double   *logits = tm_alloc((size_t)vocab * sizeof *logits);
    tm_status st = tm_decoder_feed(j->decoder, j->ids, j->n_prompt, logits, err);
    j->prompt_seconds = (double)(tm_now_ns() - begin) * 1e-9;
    begin = tm_now_ns();
    while (st == TM_OK && !tm_cli_stop) {
        int32_t next = tm_sample(&j->sampler, logits, vocab, j->n);
        j->ids[j->n++] = next;
        if (j->n == j->n_prompt + j->most || tm_hf_source_ends(&j->source, next)) break;
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
    if (j->json) {
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
        tm_text_printf(out, "%s\ncontinues   ", j->text);
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
    double threads, step;
    TM_TRY(read_numbers(j, &threads, &step, err));
    TM_TRY(tm_hf_source_open(j->path, (int64_t)step, tm_cli_config(), &j->source, err));
    if (tm_model_images(&j->source.shape))
        return tm_fail(err, TM_UNSUPPORTED, "'%.300s' is a model of images; only texts are continued", j->path);
    TM_TRY(read_prompt(j, err));
    TM_TRY(open_decoder(j, (int)threads, err));
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

tm_status tm_command_generate(int argc, char **argv, tm_error *err)
{
    job                 j = { .device = "cpu",
                              .threads = "0",
                              .max_tokens = "64",
                              .temperature = "0",
                              .top_k = "0",
                              .top_p = "1",
                              .seed = "0",
                              .step = "-1" };
    tm_text             out = { 0 };
    const tm_cli_option options[] = { { "--prompt", &j.text, NULL },
                                      { "--tokenizer", &j.tokenizer_path, NULL },
                                      { "--prompt-ids", &j.prompt, NULL },
                                      { "--max_tokens", &j.max_tokens, NULL },
                                      { "--temperature", &j.temperature, NULL },
                                      { "--top_k", &j.top_k, NULL },
                                      { "--top_p", &j.top_p, NULL },
                                      { "--seed", &j.seed, NULL },
                                      { "--device", &j.device, NULL },
                                      { "--isa", &j.isa, NULL },
                                      { "--dtype", &j.dtype, NULL },
                                      { "--threads", &j.threads, NULL },
                                      { "--step", &j.step, NULL },
                                      { "--json", NULL, &j.json },
                                      { NULL, NULL, NULL } };
    if (tm_cli_wants_help(argc, argv)) return tm_cli_print_help(help, err);
    TM_TRY(tm_cli_arguments(argc, argv, argv[0], options, &j.path, err));
    if (!j.prompt == !j.text)
        return tm_fail(err, TM_USAGE, "give --prompt TEXT or --prompt-ids FILE (a JSON array of token ids, or a .npy)");
    tm_status st = generate(&j, &out, err);
    if (st == TM_OK) st = tm_cli_print(&out, err);
    release(&j);
    tm_text_fini(&out);
    return st;
}
