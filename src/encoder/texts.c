/* SPDX-License-Identifier: Apache-2.0 */
#include "encoder/texts.h"

#include "token/token.h"

#include <stdlib.h>
#include <string.h>

/* One text encoder and its tokenizer. */
typedef struct {
    tm_tokenizer     *tokenizer;
    tm_token_encoder *ids_of;
    tm_frozen        *model;
    int64_t           tokens;
    int32_t          *ids; /* (tokens) */
} reader;

struct tm_texts {
    reader clip, t5;
};

static tm_status open_tokenizer(reader *r, const char *folder, const char *name, tm_error *err)
{
    tm_text path = { 0 };
    tm_text_printf(&path, "%s/%s", folder, name);
    tm_status st = tm_tokenizer_open(path.data, NULL, &r->tokenizer, err);
    tm_text_fini(&path);
    if (st == TM_OK) r->ids_of = tm_token_encoder_create(r->tokenizer);
    return st;
}

static tm_status open_model(reader *r, tm_device *device, const char *folder, const char *name, tm_frozen_kind kind,
                            int64_t tokens, tm_dtype compute, tm_error *err)
{
    tm_text        path = { 0 };
    tm_frozen_size size = { .batch = 1, .tokens = tokens };
    tm_text_printf(&path, "%s/%s", folder, name);
    tm_status st = tm_frozen_open(device, path.data, kind, &size, compute, &r->model, err);
    tm_text_fini(&path);
    r->tokens = tokens;
    r->ids = tm_alloc((size_t)tokens * sizeof *r->ids);
    return st;
}

static void close_reader(reader *r)
{
    tm_frozen_close(r->model);
    tm_token_encoder_destroy(r->ids_of);
    tm_tokenizer_close(r->tokenizer);
    free(r->ids);
}

enum { CLIP_TOKENS = 77 }; /* what CLIP was trained with, and pads to */

tm_status tm_texts_open(tm_device *device, const char *folder, int64_t text_len, tm_dtype compute, tm_texts **out,
                        tm_error *err)
{
    tm_texts *t = tm_alloc(sizeof *t);
    *t = (tm_texts){ 0 };
    tm_status st = open_tokenizer(&t->clip, folder, "tokenizer", err);
    if (st == TM_OK) st = open_tokenizer(&t->t5, folder, "tokenizer_2", err);
    if (st == TM_OK)
        st = open_model(&t->clip, device, folder, "text_encoder", TM_FROZEN_CLIP, CLIP_TOKENS, compute, err);
    if (st == TM_OK) st = open_model(&t->t5, device, folder, "text_encoder_2", TM_FROZEN_T5, text_len, compute, err);
    if (st == TM_OK)
        *out = t;
    else
        tm_texts_close(t);
    return st;
}

void tm_texts_close(tm_texts *t)
{
    if (!t) return;
    close_reader(&t->clip);
    close_reader(&t->t5);
    free(t);
}

int64_t tm_texts_width(const tm_texts *t)
{
    return tm_frozen_facts_of(t->t5.model)->width;
}

int64_t tm_texts_pooled_width(const tm_texts *t)
{
    return tm_frozen_facts_of(t->clip.model)->width;
}

size_t tm_texts_bytes(const tm_texts *t)
{
    return tm_frozen_bytes(t->clip.model) + tm_frozen_bytes(t->t5.model);
}

static tm_status encode(reader *r, const char *caption, float *out, int64_t *cut, tm_error *err)
{
    size_t dropped;
    TM_TRY(tm_token_encoder_encode_fixed(r->ids_of, caption, strlen(caption), (size_t)r->tokens, r->ids, NULL, &dropped,
                                         err));
    if (cut) *cut = (int64_t)dropped;
    return tm_frozen_text(r->model, r->ids, out, err);
}

tm_status tm_texts_encode(tm_texts *t, const char *caption, float *text, float *pooled, int64_t *cut, tm_error *err)
{
    TM_TRY(encode(&t->clip, caption, pooled, NULL, err));
    return encode(&t->t5, caption, text, cut, err);
}
