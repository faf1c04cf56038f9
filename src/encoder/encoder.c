/* SPDX-License-Identifier: Apache-2.0 */
/* encoder/encoder.c - opens an encoder: its folder is read, its program built, planned and loaded; then runs it. */
#include "encoder/encoder.h"

#include "base/text.h"
#include "encoder/kind.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_SEQUENCES = 1 << 16 };

/* NULL: not there yet. */
static const tm_frozen_row *const rows[TM_FROZEN_KINDS] = {
    [TM_FROZEN_VAE_ENCODE] = &tm_frozen_vae_encode,
    [TM_FROZEN_VAE_DECODE] = &tm_frozen_vae_decode,
    [TM_FROZEN_CLIP] = &tm_frozen_clip,
    [TM_FROZEN_T5] = &tm_frozen_t5,
};
static const char *const names[TM_FROZEN_KINDS] = { "VAE encoder", "VAE decoder", "CLIP text encoder",
                                                    "T5 text encoder" };

struct tm_frozen {
    tm_device           *device;
    tm_frozen_kind       kind;
    const tm_frozen_row *row;
    tm_frozen_size       size;
    tm_frozen_facts      facts;
    tm_precision         precision;
    void                *config; /* as the row's keys fill it */
    tm_frozen_program    built;
    tm_forward           forward;
    int32_t             *marks;   /* (batch): the second field of text */
    float               *latents; /* that are decoded, as the program takes them */
};

const char *tm_frozen_kind_name(tm_frozen_kind kind)
{
    return names[kind];
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static tm_status choose_precision(const tm_device *device, tm_dtype compute, tm_precision *out, tm_error *err)
{
    if (compute != TM_F32 && compute != TM_BF16)
        return tm_fail(err, TM_UNSUPPORTED, "an encoder computes in float32 or bfloat16, not in %s",
                       tm_dtype_name(compute));
    *out = compute == TM_BF16 ? tm_precision_bf16 : tm_precision_f32;
    out->parameter = compute; /* no weight needs a copy */
    if (tm_device_describe(device)->float64_only) *out = tm_precision_f64;
    return TM_OK;
}

static tm_status read_config(tm_frozen *e, const char *folder, tm_error *err)
{
    tm_text path = { 0 };
    tm_text_printf(&path, "%s/config.json", folder);
    tm_status st = tm_frozen_config_read(path.data, e->row->class_name, e->row->keys, e->config, err);
    if (st == TM_OK && (e->size.batch < 1 || e->size.batch > MOST_SEQUENCES))
        st = tm_fail(err, TM_INVALID, "%s: a batch of %lld, wanted 1 to %d", names[e->kind], (long long)e->size.batch,
                     MOST_SEQUENCES);
    if (st == TM_OK) st = e->row->check(path.data, e->config, &e->size, &e->facts, err);
    tm_text_fini(&path);
    return st;
}

/* The files are looked at before there is memory: of a configuration that is not theirs it may be far too much. */
static tm_status read_weights(tm_frozen *e, const char *folder, tm_error *err)
{
    tm_frozen_files *files;
    tm_status        st = tm_frozen_files_open(folder, e->row, &e->built, &files, err);
    if (st == TM_OK) st = tm_forward_open(e->device, e->built.graph, e->built.out, &e->forward, err);
    if (st == TM_OK) st = tm_frozen_load(&e->forward, files, &e->built, err);
    tm_frozen_files_close(files);
    return st;
}

tm_status tm_frozen_open(tm_device *device, const char *folder, tm_frozen_kind kind, const tm_frozen_size *size,
                         tm_dtype compute, tm_frozen **out, tm_error *err)
{
    *out = NULL;
    if (!rows[kind]) return tm_fail(err, TM_UNSUPPORTED, "the %s is not supported", names[kind]);
    tm_frozen *e = tm_alloc(sizeof *e);
    *e = (tm_frozen){ .device = device, .kind = kind, .row = rows[kind], .size = *size };
    e->config = tm_alloc(e->row->config_bytes);
    tm_status st = choose_precision(device, compute, &e->precision, err);
    if (st == TM_OK) st = read_config(e, folder, err);
    if (st == TM_OK) {
        e->built = (tm_frozen_program){ .config = e->config, .size = &e->size };
        for (int i = 0; i < TM_FROZEN_FIELDS; i++) e->built.field[i] = TM_NONE;
        e->built.graph = tm_graph_create(&e->precision);
        tm_graph_segment(e->built.graph, "encode");
        e->row->build(&e->built);
        e->marks = tm_alloc((size_t)size->batch * sizeof *e->marks);
        if (kind == TM_FROZEN_VAE_DECODE)
            e->latents = tm_alloc(tm_tensor_bytes(tm_graph_at(e->built.graph, e->built.field[0])->shape, TM_F32));
        st = read_weights(e, folder, err);
    }
    if (st == TM_OK)
        *out = e;
    else
        tm_frozen_close(e);
    return st;
}

void tm_frozen_close(tm_frozen *e)
{
    if (!e) return;
    tm_forward_close(&e->forward);
    tm_graph_destroy(e->built.graph);
    free(e->built.weights);
    free(e->marks);
    free(e->latents);
    free(e->config);
    free(e);
}

const tm_graph *tm_frozen_graph(const tm_frozen *encoder)
{
    return encoder->built.graph;
}

size_t tm_frozen_bytes(const tm_frozen *encoder)
{
    return encoder->forward.plan->arena_bytes;
}

const tm_frozen_facts *tm_frozen_facts_of(const tm_frozen *encoder)
{
    return &encoder->facts;
}

/* --- running ------------------------------------------------------------------------------------------------------ */

/* from[i]: the values of field i, in the format of that field. */
static tm_status run(tm_frozen *e, const void *const from[TM_FROZEN_FIELDS], tm_error *err)
{
    for (int i = 0; i < TM_FROZEN_FIELDS; i++)
        if (e->built.field[i] != TM_NONE) TM_TRY(tm_forward_put(&e->forward, e->built.field[i], from[i], err));
    TM_TRY(tm_device_run(e->device, tm_plan_program(e->forward.plan, "encode"), NULL, err));
    return tm_forward_read(&e->forward, err);
}

/* The result as it is, in float32. */
static void take(const tm_frozen *e, float *out)
{
    const int64_t n = tm_shape_elements(tm_graph_at(e->built.graph, e->built.out)->shape);
    for (int64_t i = 0; i < n; i++) out[i] = (float)tm_forward_value(&e->forward, i);
}

static tm_status check_ids(const tm_frozen *e, const int32_t *ids, tm_error *err)
{
    for (int64_t i = 0; i < e->size.batch * e->size.tokens; i++)
        if (ids[i] < 0 || ids[i] >= e->facts.vocabulary)
            return tm_fail(err, TM_INVALID,
                           "%s: id %d (sequence %lld, token %lld) is not below its vocabulary of %lld; take the "
                           "tokenizer of its own folder",
                           names[e->kind], (int)ids[i], (long long)(i / e->size.tokens),
                           (long long)(i % e->size.tokens), (long long)e->facts.vocabulary);
    return TM_OK;
}

tm_status tm_frozen_text(tm_frozen *e, const int32_t *ids, float *out, tm_error *err)
{
    if (e->facts.vocabulary == 0) return tm_fail(err, TM_INVALID, "the %s takes no text", names[e->kind]);
    TM_TRY(check_ids(e, ids, err));
    if (e->row->mark) e->row->mark(e->config, &e->size, ids, e->marks);
    TM_TRY(run(e, (const void *const[TM_FROZEN_FIELDS]){ ids, e->marks }, err));
    take(e, out);
    return TM_OK;
}

/* --- pictures ----------------------------------------------------------------------------------------------------- */

/* Latents of the files are (batch, channels, positions), those of programs rows of positions of `ld` channels. */
static int64_t place_of(const tm_frozen *e, int64_t i, int64_t ld)
{
    int64_t positions = e->size.height / e->facts.factor * (e->size.width / e->facts.factor);
    return (i / positions / e->facts.channels * positions + i % positions) * ld + i / positions % e->facts.channels;
}

static int64_t latents_of(const tm_frozen *e)
{
    return e->size.batch * e->facts.channels * (e->size.height / e->facts.factor) * (e->size.width / e->facts.factor);
}

tm_status tm_frozen_encode(tm_frozen *e, const float *pixels, float *mean, float *logvar, tm_error *err)
{
    if (e->kind != TM_FROZEN_VAE_ENCODE) return tm_fail(err, TM_INVALID, "the %s takes no pixels", names[e->kind]);
    TM_TRY(run(e, (const void *const[TM_FROZEN_FIELDS]){ pixels }, err));
    for (int64_t i = 0; i < latents_of(e); i++) {
        int64_t at = place_of(e, i, 2 * e->facts.channels);
        mean[i] = (float)tm_forward_value(&e->forward, at);
        logvar[i] = (float)fmin(20, fmax(-30, tm_forward_value(&e->forward, at + e->facts.channels)));
    }
    return TM_OK;
}

tm_status tm_frozen_decode(tm_frozen *e, const float *latents, float *pixels, tm_error *err)
{
    if (e->kind != TM_FROZEN_VAE_DECODE) return tm_fail(err, TM_INVALID, "the %s takes no latents", names[e->kind]);
    for (int64_t i = 0; i < latents_of(e); i++) e->latents[place_of(e, i, e->facts.channels)] = latents[i];
    TM_TRY(run(e, (const void *const[TM_FROZEN_FIELDS]){ e->latents }, err));
    take(e, pixels);
    return TM_OK;
}
