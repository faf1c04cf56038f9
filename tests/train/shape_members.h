/* SPDX-License-Identifier: Apache-2.0 */
/* tests/train/shape_members.h - the members of a model's shape by their names. */
#ifndef TM_TESTS_SHAPE_MEMBERS_H
#define TM_TESTS_SHAPE_MEMBERS_H

#include "model/shape.h"

#include <string.h>

/* Every member of a shape by its name, but words. */
typedef struct {
    const char *name;
    double      value;
} member;

static inline size_t members_of(const tm_model_shape *s, member *out)
{
    /* clang-format off */
#define M(name) { #name, (double)s->name }
    const member all[] = {
        M(vocab_size), M(dim), M(n_layers), M(n_heads), M(n_kv_heads), M(head_dim), M(ffn_dim), M(norm_eps),
        M(rope_theta), M(rope_scaled), M(rope_scaling_factor), M(rope_low_freq_factor), M(rope_high_freq_factor),
        M(rope_original_max_seq_len), M(rope_linear), M(rope_dynamic_from), M(rope_interleaved), M(tied), M(window),
        M(qk_norm), M(bias), M(window_every), M(sinks), M(clamped), M(mla.q_rank), M(mla.kv_rank), M(mla.nope),
        M(mla.rope), M(mla.v), M(yarn.on), M(yarn.truncate), M(yarn.beta_fast), M(yarn.beta_slow), M(yarn.mscale),
        M(yarn.mscale_all_dim), M(yarn.attention_factor), M(moe.experts), M(moe.top_k), M(moe.ffn_dim),
        M(moe.shared), M(moe.dense_layers), M(moe.sigmoid), M(moe.normalise), M(moe.uniform), M(moe.scale),
        M(moe.groups), M(moe.top_groups), M(moe.group_best), M(moe.biased), M(flux.n_single), M(flux.text_len),
        M(flux.rows), M(flux.columns), M(flux.text_dim), M(flux.vector_dim), M(flux.channels), M(flux.time_dim),
        M(flux.axes[0]), M(flux.axes[1]), M(flux.guidance), M(flux.guidance_scale),
    };
#undef M
    /* clang-format on */
    memcpy(out, all, sizeof all);
    return sizeof all / sizeof all[0];
}

#endif
