/* SPDX-License-Identifier: Apache-2.0 */
/* model/rope.c - rotary positions: frequencies, their scalings, the table of cosines and sines. */
#include "model/blocks.h"

#include <math.h>

static const double two_pi = 2 * 3.14159265358979323846;

int64_t tm_rope_dim(const tm_model_shape *s)
{
    return s->mla.kv_rank > 0 ? s->mla.rope : s->head_dim;
}

/* Llama 3.1: long wavelengths are stretched, short ones kept, a linear blend between (as published with it). */
static double llama3(const tm_model_shape *shape, double f)
{
    double wavelength = two_pi / f, original = (double)shape->rope_original_max_seq_len;
    if (wavelength < original / shape->rope_high_freq_factor) return f;
    if (wavelength > original / shape->rope_low_freq_factor) return f / shape->rope_scaling_factor;
    double s = (original / wavelength - shape->rope_low_freq_factor) /
               (shape->rope_high_freq_factor - shape->rope_low_freq_factor);
    return (1 - s) * f / shape->rope_scaling_factor + s * f;
}

/* Of a sequence of `length` tokens: beyond max_seq_len the base grows with it ("NTK-aware", dynamic). */
static double base_of(const tm_model_shape *s, int64_t length)
{
    if (s->rope_dynamic_from == 0 || length <= s->rope_dynamic_from) return s->rope_theta;
    double dim = (double)tm_rope_dim(s), longer = (double)length / (double)s->rope_dynamic_from;
    double stretch = s->rope_scaling_factor * longer - (s->rope_scaling_factor - 1);
    return s->rope_theta * pow(stretch, dim / (dim - 2));
}

/* The pair that turns n times within the original length. */
static double pair_that_turns(const tm_model_shape *s, double n)
{
    return (double)tm_rope_dim(s) * log((double)s->rope_original_max_seq_len / (n * two_pi)) / (2 * log(s->rope_theta));
}

/* YaRN (Peng et al. 2023): pairs that turn often are kept, those that hardly turn are stretched, a ramp between. */
static double yarn(const tm_model_shape *s, double f, int64_t i)
{
    double low = pair_that_turns(s, s->yarn.beta_fast), high = pair_that_turns(s, s->yarn.beta_slow);
    if (s->yarn.truncate) low = floor(low), high = ceil(high);
    low = fmax(low, 0), high = fmin(high, (double)tm_rope_dim(s) - 1);
    if (low == high) high += 0.001;
    double ramp = fmin(fmax(((double)i - low) / (high - low), 0), 1);
    return f / s->rope_scaling_factor * ramp + f * (1 - ramp);
}

/* 0.1 m ln(factor) + 1: how much sharper attention gets where positions are stretched. */
static double sharpness(const tm_model_shape *s, double m)
{
    return s->rope_scaling_factor > 1 ? 0.1 * m * log(s->rope_scaling_factor) + 1 : 1;
}

/* Of cosines and sines. */
static double amplitude(const tm_model_shape *s)
{
    if (!s->yarn.on) return 1;
    if (s->yarn.attention_factor > 0) return s->yarn.attention_factor;
    if (s->yarn.mscale > 0 && s->yarn.mscale_all_dim > 0)
        return sharpness(s, s->yarn.mscale) / sharpness(s, s->yarn.mscale_all_dim);
    return sharpness(s, 1);
}

double tm_attention_scale(const tm_model_shape *s)
{
    if (s->mla.kv_rank == 0) return 1 / sqrt((double)s->head_dim);
    double all = s->yarn.on && s->yarn.mscale_all_dim > 0 ? sharpness(s, s->yarn.mscale_all_dim) : 1;
    return all * all / sqrt((double)(s->mla.nope + s->mla.rope));
}

double tm_model_rope_frequency(const tm_model_shape *shape, int64_t i, int64_t length)
{
    double f = pow(base_of(shape, length), -2.0 * (double)i / (double)tm_rope_dim(shape));
    if (shape->rope_linear) return f / shape->rope_scaling_factor;
    return shape->rope_scaled ? llama3(shape, f) : shape->yarn.on ? yarn(shape, f, i) : f;
}

typedef struct {
    tm_model_shape shape;
    int64_t        at_once; /* tokens that are computed together; those behind them come one by one */
} rope_table;

/* Element i of the table (T, D): cos in the first D/2 columns, sin in the others. */
static double rope_value(const void *context, int64_t i)
{
    const rope_table     *table = context;
    const tm_model_shape *shape = &table->shape;
    int64_t               dim = tm_rope_dim(shape), half = dim / 2, position = i / dim, column = i % dim;
    int64_t               length = position < table->at_once ? table->at_once : position + 1;
    double                angle = (double)position * tm_model_rope_frequency(shape, column % half, length);
    return amplitude(shape) * (column < half ? cos(angle) : sin(angle));
}

tm_tensor_id tm_declare_rope(tm_graph *graph, const char *name, const tm_model_shape *s, int64_t seq)
{
    rope_table table = { .shape = *s, .at_once = seq };
    return tm_graph_constant(graph, name, tm_shape_2(seq, tm_rope_dim(s)), rope_value, &table, sizeof table);
}

void tm_model_grow(tm_graph *graph, const tm_model *model, int64_t at_once)
{
    if (model->rope_table == TM_NONE || model->shape->rope_dynamic_from == 0) return;
    tm_tensor  *tensor = tm_graph_at(graph, model->rope_table);
    rope_table *table = tm_arena_take(graph->arena, sizeof *table);
    *table = (rope_table){ .shape = *model->shape, .at_once = at_once };
    tensor->fill_context = table;
}
