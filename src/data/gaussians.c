/* SPDX-License-Identifier: Apache-2.0 */
/* data/gaussians.c - encoded images from a Gaussian mixture whose component the texts tell: the least loss of a
 * rectified-flow model is known in closed form, and only one that reads both texts and the time can reach it.
 *
 *   mean_c = (a_k,c + sum_j b_(s_j),c / sqrt(J)) / sqrt(2),  x0_pc = mean_c + s z_pc          p tokens, c channels
 *   pooled = code of the class k;  text token j = code of the symbol s_j, J of them
 *
 * Given the texts, x0 is normal with variance s^2; of all that a model can know, x_t = (1 - t) x0 + t noise leaves of
 * the velocity noise - x0 the variance
 *
 *   least(t) = 1 + s^2 - (t - (1 - t) s^2)^2 / v,  v = (1 - t)^2 s^2 + t^2,   which is s^2 / v
 *
 * for each element: the mean over uniform times is pi s / 2, over the eight of an evaluation a sum. Training samples
 * whose texts are left out have more; evaluated ones always have theirs. docs/flux.md derives it.
 */
#include "base/arena.h"
#include "base/random.h"
#include "data/flow.h"
#include "data/source_kind.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CLASSES = 8, SYMBOLS = 8 };

typedef struct {
    float *class_mean, *symbol_mean; /* (8, channels) */
    float *class_code, *symbol_code; /* (8, vector_dim), (8, text_dim) */
} mixture;

static float *normal_table(const tm_source_options *o, const char *name, int64_t rows, int64_t columns)
{
    float   *table = tm_alloc((size_t)(rows * columns) * sizeof *table);
    uint64_t stream = tm_random_stream(name);
    for (int64_t i = 0; i < rows * columns; i++) table[i] = (float)tm_random_normal(o->seed, stream, (uint64_t)i);
    return table;
}

static double least_at(double t, const void *context)
{
    double s = *(const double *)context, v = (1 - t) * (1 - t) * s * s + t * t;
    return s * s / v;
}

static tm_status gaussians_open(tm_source *source, tm_error *err)
{
    const tm_source_options *o = &source->options;
    TM_TRY(tm_flow_check(o, err));
    mixture *m = source->state = tm_alloc(sizeof *m);
    m->class_mean = normal_table(o, "gaussians.class.mean", CLASSES, o->flow.channels);
    m->symbol_mean = normal_table(o, "gaussians.symbol.mean", SYMBOLS, o->flow.channels);
    m->class_code = normal_table(o, "gaussians.class.code", CLASSES, o->flow.vector_dim);
    m->symbol_code = normal_table(o, "gaussians.symbol.code", SYMBOLS, o->flow.text_dim);
    source->facts.floor = tm_flow_mean(&o->flow, least_at, &o->flow.spread);
    source->facts.validation_floor = 0;
    for (int i = 0; i < TM_FLOW_EVALUATION_TIMES; i++) /* of the times as float32 tells them */
        source->facts.validation_floor +=
            least_at((double)(float)tm_flow_evaluation_time(o->flow.protocol, i), &o->flow.spread) /
            TM_FLOW_EVALUATION_TIMES;
    return TM_OK;
}

static void gaussians_close(tm_source *source)
{
    mixture *m = source->state;
    free(m->class_mean);
    free(m->symbol_mean);
    free(m->class_code);
    free(m->symbol_code);
    free(m);
}

/* The codes of the texts, or zeros for one that is left out; mean (channels). */
static void tell(const tm_source *source, tm_split split, int64_t index, float *text, float *pooled, float *mean)
{
    const tm_source_options *o = &source->options;
    const mixture           *m = source->state;
    uint64_t stream = tm_random_stream(split == TM_SPLIT_TRAIN ? "gaussians.train" : "gaussians.validation");
    uint64_t k = tm_random_below(o->seed, stream + (uint64_t)index, 0, CLASSES);
    bool     no_text, no_pooled;
    tm_flow_dropped(o, split, index, &no_text, &no_pooled);
    for (int64_t c = 0; c < o->flow.channels; c++) mean[c] = m->class_mean[(int64_t)k * o->flow.channels + c];
    for (int64_t i = 0; i < o->flow.vector_dim; i++)
        pooled[i] = no_pooled ? 0 : m->class_code[(int64_t)k * o->flow.vector_dim + i];
    float share = (float)(1 / sqrt((double)o->flow.text_len));
    for (int64_t j = 0; j < o->flow.text_len; j++) {
        int64_t s = (int64_t)tm_random_below(o->seed, stream + (uint64_t)index, (uint64_t)j + 1, SYMBOLS);
        for (int64_t i = 0; i < o->flow.text_dim; i++)
            text[j * o->flow.text_dim + i] = no_text ? 0 : m->symbol_code[s * o->flow.text_dim + i];
        for (int64_t c = 0; c < o->flow.channels; c++) mean[c] += share * m->symbol_mean[s * o->flow.channels + c];
    }
    for (int64_t c = 0; c < o->flow.channels; c++) mean[c] *= (float)sqrt(0.5);
}

static tm_status gaussians_row(const tm_source *source, tm_split split, int64_t index, int32_t *scratch,
                               void *const *fields, int64_t *weight, tm_error *err)
{
    const tm_source_options *o = &source->options;
    float                   *noisy = fields[0], *x0 = fields[1];
    int64_t                  elements = o->flow.tokens * o->flow.channels;
    uint64_t                 stream =
        tm_random_stream(split == TM_SPLIT_TRAIN ? "gaussians.image.train" : "gaussians.image.validation");
    (void)scratch;
    (void)err;
    tell(source, split, index, fields[3], fields[4], noisy); /* the means, for a moment */
    tm_random_normals(o->seed, stream + (uint64_t)index, 0, elements, x0);
    for (int64_t i = 0; i < elements; i++)
        x0[i] = noisy[i % o->flow.channels] + (float)(o->flow.spread * (double)x0[i]);
    tm_flow_mix(o, split, index, noisy, x0, fields[2]);
    *weight = elements;
    return TM_OK;
}

const tm_source_kind tm_source_gaussians = {
    .traits = { .name = "gaussians", .gate = TM_GATE_FLOOR, .images = true },
    .open = gaussians_open,
    .close = gaussians_close,
    .fields = tm_flow_fields,
    .row = gaussians_row,
};
