/* SPDX-License-Identifier: Apache-2.0 */
/* data/pictures_source.c - pictures and captions as they are, encoded each time they are used (docs/flux.md). Who
 * encodes is told by the options: this room knows no encoders. One sample is encoded at a time. */
#include "base/arena.h"
#include "data/flow.h"
#include "data/pictures.h"
#include "data/source_kind.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    tm_pictures    *lists[2]; /* by tm_split */
    pthread_mutex_t one;
    tm_text         bytes; /* of a picture as it is stored; read under the lock, as all below */
    float          *pixels, *mean, *logvar, *empty_text, *empty_pooled;
} album;

static int64_t sample_at(const tm_source *source, tm_split split, int64_t index)
{
    return tm_flow_order(&source->options, split, index,
                         tm_pictures_count(((const album *)source->state)->lists[split]));
}

/* x0 (tokens, channels) of a use of a picture. */
static tm_status encode_picture(const tm_source *source, tm_split split, int64_t index, int64_t sample, float *x0,
                                tm_error *err)
{
    album                    *a = source->state;
    const tm_flow_options    *f = &source->options.flow;
    const tm_picture_encoder *e = f->encoder;
    const tm_image_fit        fit = { .size = { (int)(16 * f->tokens / f->rows), (int)(16 * f->rows) },
                                      .filter = TM_IMAGE_LANCZOS };
    tm_error                  why = { 0 };
    tm_status                 st = tm_pictures_values(a->lists[split], sample, &fit, &a->bytes, a->pixels, &why);
    if (st != TM_OK)
        return tm_fail(err, st, "%s; `trainmark data encode --skip-broken` leaves such pictures out", why.text);
    TM_TRY(e->picture(e->context, a->pixels, a->mean, a->logvar, err));
    tm_flow_draw(&source->options, split, index, a->mean, a->logvar, e->scaling_factor, e->shift_factor, x0);
    return TM_OK;
}

/* What a text encoder gives of the empty text, once. */
static tm_status encode_empty(const tm_source *source, tm_error *err)
{
    album                    *a = source->state;
    const tm_flow_options    *f = &source->options.flow;
    const tm_picture_encoder *e = f->encoder;
    a->empty_text = tm_alloc((size_t)(f->text_len * f->text_dim) * sizeof *a->empty_text);
    a->empty_pooled = tm_alloc((size_t)f->vector_dim * sizeof *a->empty_pooled);
    return e->text(e->context, "", a->empty_text, a->empty_pooled, err);
}

static tm_status encode_texts(const tm_source *source, tm_split split, int64_t index, int64_t sample, float *text,
                              float *pooled, tm_error *err)
{
    const album              *a = source->state;
    const tm_flow_options    *f = &source->options.flow;
    const tm_picture_encoder *e = f->encoder;
    bool                      no_text, no_pooled;
    tm_flow_dropped(&source->options, split, index, &no_text, &no_pooled);
    if (!no_text || !no_pooled)
        TM_TRY(e->text(e->context, tm_pictures_at(a->lists[split], sample).caption, text, pooled, err));
    if (no_text) memcpy(text, a->empty_text, (size_t)(f->text_len * f->text_dim) * sizeof *text);
    if (no_pooled) memcpy(pooled, a->empty_pooled, (size_t)f->vector_dim * sizeof *pooled);
    return TM_OK;
}

static tm_status pictures_row(const tm_source *source, tm_split split, int64_t index, int32_t *scratch,
                              void *const *fields, int64_t *weight, tm_error *err)
{
    album  *a = source->state;
    int64_t sample = sample_at(source, split, index);
    (void)scratch;
    pthread_mutex_lock(&a->one);
    tm_status st = encode_picture(source, split, index, sample, fields[1], err);
    if (st == TM_OK) st = encode_texts(source, split, index, sample, fields[3], fields[4], err);
    pthread_mutex_unlock(&a->one);
    tm_flow_mix(&source->options, split, index, fields[0], fields[1], fields[2]);
    *weight = source->options.flow.tokens * source->options.flow.channels;
    return st;
}

static const char *pictures_caption(const tm_source *source, tm_split split, int64_t index)
{
    return tm_pictures_at(((const album *)source->state)->lists[split], sample_at(source, split, index)).caption;
}

/* --- opening -------------------------------------------------------------------------------------------------------
 */

static void pictures_close(tm_source *source)
{
    album *a = source->state;
    for (int k = 0; k < 2; k++) tm_pictures_close(a->lists[k]);
    pthread_mutex_destroy(&a->one);
    tm_text_fini(&a->bytes);
    free(a->pixels);
    free(a->mean);
    free(a->logvar);
    free(a->empty_text);
    free(a->empty_pooled);
    free(a);
}

static tm_status open_lists(tm_source *source, tm_error *err)
{
    const tm_source_options *o = &source->options;
    album                   *a = source->state;
    for (int k = 0; k < 2; k++) {
        tm_picture_options list = { .split = (tm_split)k };
        bool               other = k && o->validation_path && *o->validation_path;
        if (other) list.split = TM_SPLIT_TRAIN; /* all of that path */
        TM_TRY(tm_pictures_open(other ? o->validation_path : o->path, &list, &a->lists[k], err));
    }
    source->facts.train_samples = tm_pictures_count(a->lists[0]);
    source->facts.validation_samples = tm_pictures_count(a->lists[1]);
    source->facts.content = tm_pictures_hash(a->lists[0]) ^ 3 * tm_pictures_hash(a->lists[1]);
    return TM_OK;
}

/* The loss of a model that always says zero: 1 + the mean square of the latents, of some held-out samples. */
static tm_status loss_of_zero(tm_source *source, tm_error *err)
{
    enum { SOME = 8 };
    const int64_t elements = source->options.flow.tokens * source->options.flow.channels;
    int64_t       n = source->facts.validation_samples < SOME ? source->facts.validation_samples : SOME;
    float        *x0 = tm_alloc((size_t)elements * sizeof *x0);
    double        sum = 0;
    tm_status     st = TM_OK;
    for (int64_t i = 0; i < n && st == TM_OK; i++) {
        st = encode_picture(source, TM_SPLIT_VALIDATION, i, i, x0, err);
        for (int64_t k = 0; k < elements && st == TM_OK; k++) sum += (double)x0[k] * (double)x0[k];
    }
    free(x0);
    source->facts.unigram_entropy = n > 0 ? 1 + sum / (double)(n * elements) : (double)NAN;
    return st;
}

static tm_status open_album(tm_source *source, tm_error *err)
{
    const tm_flow_options *f = &source->options.flow;
    album                 *a = source->state;
    size_t                 latents = (size_t)(f->tokens * f->channels) * sizeof(float);
    TM_TRY(open_lists(source, err));
    a->pixels = tm_alloc((size_t)(3 * 256 * f->tokens) * sizeof(float));
    a->mean = tm_alloc(latents);
    a->logvar = tm_alloc(latents);
    if (tm_flow_dropout(&source->options) > 0) TM_TRY(encode_empty(source, err));
    return loss_of_zero(source, err);
}

static tm_status pictures_open(tm_source *source, tm_error *err)
{
    const tm_source_options *o = &source->options;
    TM_TRY(tm_flow_check(o, err));
    if (!o->path || !*o->path)
        return tm_fail(err, TM_INVALID,
                       "data.source pictures needs a directory of pictures with captions, or a parquet file; set "
                       "data.path");
    if (!o->flow.encoder)
        return tm_fail(err, TM_INVALID,
                       "data.source pictures needs data.encoders, a directory of FLUX.1's encoders, while it trains; "
                       "`trainmark data encode` encodes them once");
    album *a = source->state = tm_alloc(sizeof *a);
    *a = (album){ 0 };
    pthread_mutex_init(&a->one, NULL);
    tm_status st = open_album(source, err);
    if (st != TM_OK) pictures_close(source);
    return st;
}

const tm_source_kind tm_source_pictures = {
    .traits = { .name = "pictures",
                .gate = TM_GATE_HELD_OUT,
                .needs_path = true,
                .takes_validation_path = true,
                .images = true,
                .encoders = "inside" },
    .open = pictures_open,
    .close = pictures_close,
    .fields = tm_flow_fields,
    .row = pictures_row,
    .unit = sample_at,
    .caption = pictures_caption,
};
