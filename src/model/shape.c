/* SPDX-License-Identifier: Apache-2.0 */
#include "model/family.h"
#include "model/moe.h"

#include <string.h>

static const tm_family *const families[TM_FAMILY_COUNT] = {
#define TM_FAMILY(id, name, what) [TM_FAMILY_##id] = &tm_family_##name,
#include "model/families.def"
#undef TM_FAMILY
};

const tm_family *tm_family_of(const tm_model_shape *shape)
{
    TM_ASSERT((unsigned)shape->family < TM_FAMILY_COUNT);
    return families[shape->family];
}

/* The key's choices are the names: there is one. */
static tm_model_family family_named(const char *name)
{
    int i = 0;
    while (i < TM_FAMILY_COUNT && strcmp(families[i]->name, name) != 0) i++;
    TM_ASSERT(i < TM_FAMILY_COUNT);
    return (tm_model_family)i;
}

const char *tm_model_family_name(const tm_model_shape *shape)
{
    return tm_family_of(shape)->name;
}

int64_t tm_model_max_length(const tm_model_shape *shape)
{
    return tm_family_of(shape)->ends ? shape->max_seq_len : INT64_MAX;
}

int64_t tm_model_length(const tm_model_shape *shape)
{
    const tm_family *family = tm_family_of(shape);
    return family->length ? family->length(shape) : 0;
}

int64_t tm_model_blocks(const tm_model_shape *shape)
{
    return shape->n_layers + shape->flux.n_single;
}

/* What there is no model without. */
static tm_status check_required(const tm_config *config, const tm_family *family, tm_error *err)
{
    static const char *const keys[] = { "model.dim", "model.n_layers", "model.n_heads", "model.vocab_size" };
    tm_status                st = TM_OK;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] - family->images; i++)
        if (!tm_config_text(config, keys[i]))
            st = tm_also(err, TM_INVALID, "'%s' is not given; name a preset (trainmark models) or set --%s", keys[i],
                         keys[i]);
    return st;
}

static int64_t i64_or(const tm_config *config, const char *key, int64_t fallback)
{
    return tm_config_text(config, key) ? tm_config_i64(config, key) : fallback;
}

static bool bool_or(const tm_config *config, const char *key, bool fallback)
{
    return tm_config_text(config, key) ? tm_config_bool(config, key) : fallback;
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
    s->yarn = (tm_yarn_shape){ .on = is(config, "model.rope_scaling", "yarn"),
                               .truncate = tm_config_bool(config, "model.rope_truncate"),
                               .beta_fast = tm_config_f64(config, "model.rope_beta_fast"),
                               .beta_slow = tm_config_f64(config, "model.rope_beta_slow"),
                               .mscale = tm_config_f64(config, "model.rope_mscale"),
                               .mscale_all_dim = tm_config_f64(config, "model.rope_mscale_all_dim"),
                               .attention_factor = tm_config_text(config, "model.rope_attention_factor")
                                                       ? tm_config_f64(config, "model.rope_attention_factor")
                                                       : 0 };
    s->rope_linear = is(config, "model.rope_scaling", "linear");
    s->rope_dynamic_from = is(config, "model.rope_scaling", "dynamic") ? s->max_seq_len : 0;
    s->rope_interleaved = is(config, "model.rope_layout", "interleaved");
}

static void read_latent(const tm_config *config, tm_model_shape *s)
{
    if (!tm_config_text(config, "model.kv_lora_rank")) return;
    s->mla = (tm_mla_shape){ .kv_rank = tm_config_i64(config, "model.kv_lora_rank"),
                             .q_rank = i64_or(config, "model.q_lora_rank", 0),
                             .nope = tm_config_i64(config, "model.qk_nope_head_dim"),
                             .rope = tm_config_i64(config, "model.qk_rope_head_dim"),
                             .v = tm_config_i64(config, "model.v_head_dim") };
    s->head_dim = s->mla.nope + s->mla.rope;
}

static void read_choices(const tm_config *config, tm_model_shape *s)
{
    const tm_family *family = tm_family_of(s);
    s->window = i64_or(config, "model.sliding_window", 0);
    s->window_every = tm_config_i64(config, "model.sliding_window_every");
    s->sinks = bool_or(config, "model.sinks", family->sinks);
    s->clamped =
        tm_config_text(config, "model.activation") ? is(config, "model.activation", "swiglu_clamped") : family->clamped;
    s->qk_norm = bool_or(config, "model.qk_norm", family->qk_norm);
    s->tied = bool_or(config, "model.tied", family->tied);
    s->bias = is(config, "model.bias", "mi350x_table") ? TM_BIAS_MI350X_TABLE
              : is(config, "model.bias", "qkv")        ? TM_BIAS_QKV
              : is(config, "model.bias", "all")        ? TM_BIAS_ALL
              : is(config, "model.bias", "none")       ? TM_BIAS_NONE
                                                       : family->bias;
    s->init_std = tm_config_f64(config, "model.init_std");
    s->init = is(config, "model.init", "hf")           ? TM_INIT_HF
              : is(config, "model.init", "gpt2")       ? TM_INIT_GPT2
              : is(config, "model.init", "torchtitan") ? TM_INIT_TORCHTITAN
              : s->tied                                ? family->init_tied
                                                       : family->init;
}

static tm_status check_heads(const tm_config *config, const tm_model_shape *s, tm_error *err)
{
    if (s->head_dim < 1)
        return tm_fail(err, TM_INVALID, "model.n_heads %lld exceeds model.dim %lld; heads need a width of at least 1",
                       (long long)s->n_heads, (long long)s->dim);
    if (!tm_config_text(config, "model.head_dim") && s->mla.kv_rank == 0 && s->dim % s->n_heads)
        return tm_fail(err, TM_INVALID,
                       "model.dim %lld (%s) is not a multiple of model.n_heads %lld (%s); change one or "
                       "give model.head_dim",
                       (long long)s->dim, tm_config_place(config, "model.dim"), (long long)s->n_heads,
                       tm_config_place(config, "model.n_heads"));
    return TM_OK;
}

static tm_status check(const tm_config *config, const tm_model_shape *s, tm_error *err)
{
    tm_status st = TM_OK;
    if (s->n_heads % s->n_kv_heads)
        st = tm_also(err, TM_INVALID,
                     "model.n_heads %lld is not a multiple of model.n_kv_heads %lld (%s); each key head "
                     "serves the same number of query heads",
                     (long long)s->n_heads, (long long)s->n_kv_heads, tm_config_place(config, "model.n_kv_heads"));
    if (s->rope_scaled && !(s->rope_low_freq_factor < s->rope_high_freq_factor))
        st = tm_also(err, TM_INVALID, "model.rope_low_freq_factor %g must be below model.rope_high_freq_factor %g",
                     s->rope_low_freq_factor, s->rope_high_freq_factor);
    if (s->rope_dynamic_from > 0 && (s->mla.kv_rank > 0 ? s->mla.rope : s->head_dim) <= 2)
        st = tm_also(err, TM_INVALID,
                     "model.rope_scaling dynamic (%s) needs heads whose rotated part is wider than 2; choose another",
                     tm_config_place(config, "model.rope_scaling"));
    return st;
}

static void keep(tm_status *st, tm_error *err, tm_status its, tm_error *own)
{
    if (tm_also_of(err, its, own) != TM_OK) *st = its;
}

/* All that is wrong: heads that are have no width for those who ask later. */
static tm_status complete(const tm_config *config, tm_model_shape *s, tm_error *err)
{
    const tm_family *family = tm_family_of(s);
    tm_error         own = { 0 };
    tm_status        st = TM_OK;
    keep(&st, err, check_heads(config, s, &own), &own);
    if (st != TM_OK) s->head_dim = 0;
    keep(&st, err, check(config, s, &own), &own);
    keep(&st, err, tm_moe_read(config, s, &own), &own);
    if (family->read) keep(&st, err, family->read(config, s, &own), &own);
    if (family->check) keep(&st, err, family->check(config, s, &own), &own);
    return st;
}

tm_status tm_model_shape_read(const tm_config *config, tm_model_shape *shape, tm_error *err)
{
    tm_model_shape   s = { .family = family_named(tm_config_text(config, "model.family")) };
    const tm_family *family = tm_family_of(&s);
    TM_TRY(check_required(config, family, err));
    s.dim = tm_config_i64(config, "model.dim");
    s.n_layers = tm_config_i64(config, "model.n_layers");
    s.n_heads = tm_config_i64(config, "model.n_heads");
    if (!family->images) s.vocab_size = tm_config_i64(config, "model.vocab_size");
    s.n_kv_heads = i64_or(config, "model.n_kv_heads", s.n_heads);
    TM_ASSERT(s.n_heads > 0 && s.n_kv_heads > 0); /* tm_config_finish has checked the ranges */
    s.head_dim = i64_or(config, "model.head_dim", s.dim / s.n_heads);
    s.ffn_dim = i64_or(config, "model.ffn_dim", family->ffn_dim(s.dim));
    s.max_seq_len = tm_config_i64(config, "model.max_seq_len");
    s.norm_eps = tm_config_f64(config, "model.norm_eps");
    read_rope(config, &s);
    read_latent(config, &s);
    read_choices(config, &s);
    TM_TRY(complete(config, &s, err));
    *shape = s;
    return TM_OK;
}
