/* SPDX-License-Identifier: Apache-2.0 */
/* cli/speak.c - a model that continues texts: weights, tokenizer and decoder. */
#include "cli/speak.h"

#include <stdlib.h>
#include <string.h>

tm_status speak_open(speaker *s, const char *path, const speak_options *o, tm_error *err)
{
    *s = (speaker){ .path = path, .o = o, .end = -1 };
    s->sampler =
        (tm_sampler){ .temperature = o->temperature, .top_k = o->top_k, .top_p = o->top_p, .seed = (uint64_t)o->seed };
    TM_TRY(tm_hf_source_open(path, o->step, tm_cli_config(), &s->source, err));
    if (o->ema) TM_TRY(tm_hf_source_average(&s->source, err));
    return o->adapter ? tm_hf_source_adapt(&s->source, o->adapter, err) : TM_OK;
}

/* What a model that was trained with the tokenizer learned to end with: the folder's eos_token; where nothing says
 * which one that is, and the model names none either, the one that is called so. */
static int32_t taught_end(const tm_tokenizer *tokenizer, bool model_says)
{
    const tm_tokenizer_facts *f = tm_tokenizer_describe(tokenizer);
    bool                      guessed = !f->eos_from || strcmp(f->eos_from, "name") == 0;
    return guessed && model_says ? -1 : f->eos;
}

tm_status speak_open_tokenizer(speaker *s, tm_error *err)
{
    const char *path = s->o->tokenizer ? s->o->tokenizer : tm_hf_source_tokenizer(&s->source);
    if (!path)
        return tm_fail(err, TM_INVALID,
                       "'%.200s' was trained on data.source %.40s, whose tokens stand for no text; give --prompt-ids "
                       "FILE, or --tokenizer FILE",
                       s->path, tm_config_text(s->source.config, "data.source"));
    TM_TRY(tm_tokenizer_open(path, NULL, &s->tokenizer, err));
    s->end = taught_end(s->tokenizer, s->source.n_ends > 0);
    return TM_OK;
}

tm_status speak_encode(const speaker *s, const char *text, size_t bytes, tm_ids *out, tm_error *err)
{
    tm_token_encoder *encoder = tm_token_encoder_create(s->tokenizer);
    *out = (tm_ids){ 0 };
    tm_status st = tm_token_encoder_encode(encoder, text, bytes, TM_ENCODE_SPECIAL, out, err);
    int32_t   end = tm_tokenizer_describe(s->tokenizer)->eos;
    tm_token_encoder_destroy(encoder);
    if (out->count && end >= 0 && out->data[out->count - 1] == end) out->count--;
    for (size_t i = 0; st == TM_OK && i < out->count; i++)
        if (out->data[i] >= s->source.shape.vocab_size)
            st =
                tm_fail(err, TM_INVALID, "the tokenizer '%s' gives the id %d, the model has %lld; give the model's own",
                        s->o->tokenizer ? s->o->tokenizer : tm_hf_source_tokenizer(&s->source), (int)out->data[i],
                        (long long)s->source.shape.vocab_size);
    if (st != TM_OK) free(out->data);
    if (st != TM_OK) *out = (tm_ids){ 0 };
    return st;
}

tm_status speak_open_device(speaker *s, const tm_precision **precision, tm_error *err)
{
    static const tm_precision *const formats[] = { &tm_precision_f32, &tm_precision_bf16, &tm_precision_f64 };
    TM_TRY(tm_device_open(s->o->device, (int)s->o->threads, &s->device, err));
    if (s->o->isa) TM_TRY(tm_device_limit_isa(s->device, s->o->isa, err));
    bool        wide = tm_device_describe(s->device)->float64_only;
    const char *dtype = s->o->dtype ? s->o->dtype : wide ? "float64" : "float32";
    *precision = NULL;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (strcmp(formats[i]->name, dtype) == 0) *precision = formats[i];
    if (!tm_device_describe(s->device)->computes)
        return tm_fail(err, TM_USAGE, "--device %.100s computes nothing", s->o->device);
    if (*precision && wide == (*precision == &tm_precision_f64)) return TM_OK;
    return tm_fail(err, TM_USAGE, "--dtype %.100s is not computed on --device %.100s; wanted %s", dtype, s->o->device,
                   wide ? "float64" : "float32 or bfloat16, or --device reference for float64");
}

tm_status speak_load(speaker *s, int64_t length, int64_t prompt, tm_error *err)
{
    const tm_precision *precision;
    tm_hf_report        report;
    TM_TRY(speak_open_device(s, &precision, err));
    TM_TRY(tm_decoder_open(s->device, &s->source.shape, precision, length < 2 ? 2 : length, prompt, &s->decoder, err));
    s->logits = tm_alloc((size_t)s->source.shape.vocab_size * sizeof *s->logits);
    tm_hf_memory memory = tm_hf_forward_memory(tm_decoder_forward(s->decoder), &s->source.shape, s->source.form);
    return tm_hf_source_load(&s->source, &memory, tm_device_describe(s->device)->threads, &report, err);
}

tm_status speak_read(speaker *s, const int32_t *ids, int64_t n, tm_error *err)
{
    return tm_decoder_feed(s->decoder, ids, n, s->logits, err);
}

int32_t speak_next(const speaker *s)
{
    return tm_sample(&s->sampler, s->logits, s->source.shape.vocab_size, tm_decoder_position(s->decoder));
}

bool speak_ends(const speaker *s, int32_t token)
{
    return token == s->end || tm_hf_source_ends(&s->source, token);
}

void speak_close(speaker *s)
{
    tm_decoder_close(s->decoder);
    tm_device_close(s->device);
    tm_hf_source_close(&s->source);
    tm_tokenizer_close(s->tokenizer);
    free(s->logits);
}
