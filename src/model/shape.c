/* SPDX-License-Identifier: Apache-2.0 */
#include "model/shape.h"

#include <string.h>

static tm_status required(const tm_config *config, const char *key, int64_t *out, tm_error *err)
{
    if (!tm_config_text(config, key))
        return tm_fail(err, TM_INVALID, "'%s' is not given; name a preset (trainmark models) or set --%s", key, key);
    *out = tm_config_i64(config, key);
    return TM_OK;
}

static int64_t i64_or(const tm_config *config, const char *key, int64_t fallback)
{
    return tm_config_text(config, key) ? tm_config_i64(config, key) : fallback;
}

static bool is(const tm_config *config, const char *key, const char *value)
{
    const char *text = tm_config_text(config, key);
    return text && strcmp(text, value) == 0;
}

static void read_rope(const tm_config *config, tm_model_shape *s)
{
    s->rope_theta = tm_config_f64(config, "model.rope_theta");
    s->rope_scaled = is(config, "model.rope_scaling", "llama3");
    s->rope_scaling_factor = tm_config_f64(config, "model.rope_scaling_factor");
    s->rope_low_freq_factor = tm_config_f64(config, "model.rope_low_freq_factor");
    s->rope_high_freq_factor = tm_config_f64(config, "model.rope_high_freq_factor");
    s->rope_original_max_seq_len = tm_config_i64(config, "model.rope_original_max_seq_len");
    s->rope_interleaved = is(config, "model.rope_layout", "interleaved");
}

static void read_choices(const tm_config *config, tm_model_shape *s)
{
    bool gpt = s->family == TM_FAMILY_GPT;
    s->tied = tm_config_text(config, "model.tied") ? tm_config_bool(config, "model.tied") : gpt;
    s->bias = is(config, "model.bias", "mi350x_table") ? TM_BIAS_MI350X_TABLE
              : is(config, "model.bias", "all")        ? TM_BIAS_ALL
              : is(config, "model.bias", "none")       ? TM_BIAS_NONE
              : gpt                                    ? TM_BIAS_ALL
                                                       : TM_BIAS_NONE;
    s->init = is(config, "model.init", "hf")           ? TM_INIT_HF
              : is(config, "model.init", "gpt2")       ? TM_INIT_GPT2
              : is(config, "model.init", "torchtitan") ? TM_INIT_TORCHTITAN
              : gpt                                    ? TM_INIT_GPT2
              : s->tied                                ? TM_INIT_HF /* as the public tied models; no token predicts itself */
                                                       : TM_INIT_TORCHTITAN;
}

static tm_status check(const tm_config *config, const tm_model_shape *s, tm_error *err)
{
    if (!tm_config_text(config, "model.head_dim") && s->dim % s->n_heads)
        return tm_fail(err, TM_INVALID,
                       "model.dim %lld (%s) is not a multiple of model.n_heads %lld (%s); change one or "
                       "give model.head_dim",
                       (long long)s->dim, tm_config_place(config, "model.dim"), (long long)s->n_heads,
                       tm_config_place(config, "model.n_heads"));
    if (s->family == TM_FAMILY_LLAMA && s->head_dim % 2)
        return tm_fail(err, TM_INVALID,
                       "head width %lld (model.head_dim, or model.dim / model.n_heads) is odd; rotary "
                       "positions turn pairs: make it even",
                       (long long)s->head_dim);
    if (s->n_heads % s->n_kv_heads)
        return tm_fail(err, TM_INVALID,
                       "model.n_heads %lld is not a multiple of model.n_kv_heads %lld (%s); each key head "
                       "serves the same number of query heads",
                       (long long)s->n_heads, (long long)s->n_kv_heads, tm_config_place(config, "model.n_kv_heads"));
    if (s->head_dim < 1)
        return tm_fail(err, TM_INVALID, "model.n_heads %lld exceeds model.dim %lld; heads need a width of at least 1",
                       (long long)s->n_heads, (long long)s->dim);
    if (s->family == TM_FAMILY_LLAMA && s->bias != TM_BIAS_NONE)
        return tm_fail(err, TM_UNSUPPORTED,
                       "model.bias (%s): biases are not built for the llama family; set it to none",
                       tm_config_place(config, "model.bias"));
    if (s->rope_scaled && !(s->rope_low_freq_factor < s->rope_high_freq_factor))
        return tm_fail(err, TM_INVALID, "model.rope_low_freq_factor %g must be below model.rope_high_freq_factor %g",
                       s->rope_low_freq_factor, s->rope_high_freq_factor);
    return TM_OK;
}

tm_status tm_model_shape_read(const tm_config *config, tm_model_shape *shape, tm_error *err)
{
    tm_model_shape s = { .family = is(config, "model.family", "gpt") ? TM_FAMILY_GPT : TM_FAMILY_LLAMA };
    TM_TRY(required(config, "model.dim", &s.dim, err));
    TM_TRY(required(config, "model.n_layers", &s.n_layers, err));
    TM_TRY(required(config, "model.n_heads", &s.n_heads, err));
    TM_TRY(required(config, "model.vocab_size", &s.vocab_size, err));
    s.n_kv_heads = i64_or(config, "model.n_kv_heads", s.n_heads);
    TM_ASSERT(s.n_heads > 0 && s.n_kv_heads > 0); /* tm_config_finish has checked the ranges */
    s.head_dim = i64_or(config, "model.head_dim", s.dim / s.n_heads);
    s.ffn_dim =
        i64_or(config, "model.ffn_dim", s.family == TM_FAMILY_GPT ? 4 * s.dim : (8 * s.dim / 3 + 255) / 256 * 256);
    s.max_seq_len = tm_config_i64(config, "model.max_seq_len");
    s.norm_eps = tm_config_f64(config, "model.norm_eps");
    read_rope(config, &s);
    read_choices(config, &s);
    TM_TRY(check(config, &s, err));
    *shape = s;
    return TM_OK;
}

/* Weights of a block's linears. */
static int64_t layer_matmul(const tm_model_shape *s)
{
    int64_t attention = s->dim * s->head_dim * (2 * s->n_heads + 2 * s->n_kv_heads); /* q, o; k, v */
    return attention + (s->family == TM_FAMILY_GPT ? 2 : 3) * s->dim * s->ffn_dim;
}

static int64_t layer_biases(const tm_model_shape *s)
{
    if (s->bias == TM_BIAS_NONE) return 0;
    if (s->bias == TM_BIAS_MI350X_TABLE) return s->dim;                          /* attention output */
    int64_t attention = s->head_dim * (s->n_heads + 2 * s->n_kv_heads) + s->dim; /* q, k, v, o */
    return attention + s->ffn_dim + s->dim;
}

static int64_t norm_size(const tm_model_shape *s)
{
    return s->family == TM_FAMILY_GPT ? 2 * s->dim : s->dim;
}

int64_t tm_model_parameters_layer(const tm_model_shape *shape)
{
    return layer_matmul(shape) + layer_biases(shape) + 2 * norm_size(shape);
}

int64_t tm_model_parameters(const tm_model_shape *shape)
{
    int64_t tables = shape->vocab_size * shape->dim * (shape->tied ? 1 : 2);
    if (shape->family == TM_FAMILY_GPT) tables += shape->max_seq_len * shape->dim;
    return shape->n_layers * tm_model_parameters_layer(shape) + tables + norm_size(shape);
}

int64_t tm_model_parameters_embedding(const tm_model_shape *shape)
{
    int64_t positions = shape->family == TM_FAMILY_GPT ? shape->max_seq_len * shape->dim : 0;
    return positions + (shape->tied ? 0 : shape->vocab_size * shape->dim);
}

int64_t tm_model_parameters_matmul(const tm_model_shape *shape)
{
    return shape->n_layers * layer_matmul(shape) + shape->vocab_size * shape->dim;
}

const char *tm_flops_convention_name(tm_flops_convention convention)
{
    static const char *const names[] = {
#define X(id, name) name,
        TM_FLOPS_LIST(X)
#undef X
    };
    TM_ASSERT(convention < TM_FLOPS_COUNT);
    return names[convention];
}

double tm_model_flops_per_token(const tm_model_shape *s, tm_flops_convention convention, int64_t seq)
{
    double  n = (double)tm_model_parameters(s), matmul = (double)tm_model_parameters_matmul(s), t = (double)seq;
    double  attention = 12.0 * (double)s->n_layers * (double)(s->n_heads * s->head_dim); /* x visible keys */
    double  width = (double)s->n_layers * (double)s->dim * t;
    int64_t padded = (s->vocab_size + 127) / 128 * 128;
    double  padding = (double)((padded - s->vocab_size) * s->dim);
    switch (convention) {
    case TM_FLOPS_TITAN:
        return 6 * (n - (double)tm_model_parameters_embedding(s)) + attention * t;
    case TM_FLOPS_MATMUL:
        return 6 * matmul + attention * t;
    case TM_FLOPS_MEGATRON:
        return 6 * (matmul + padding) + attention * t / 2;
    case TM_FLOPS_6N:
        return 6 * n;
    case TM_FLOPS_LLMC:
        return 6 * n + 6 * width;
    case TM_FLOPS_NANOGPT:
        return 6 * n + 12 * width;
    case TM_FLOPS_EXACT_CAUSAL:
        return 6 * matmul + attention * (t + 1) / 2;
    case TM_FLOPS_COUNT:
        break;
    }
    tm_assert_failed("unknown convention", __FILE__, __LINE__);
}
