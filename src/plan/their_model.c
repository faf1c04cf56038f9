/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/their_model.h"

#include <math.h>

bool tm_their_gated(const tm_model_shape *s)
{
    return s->family != TM_FAMILY_GPT;
}

static double key_width(const tm_model_shape *s)
{
    return (double)(s->mla.kv_rank > 0 ? s->mla.nope + s->mla.rope : s->head_dim);
}

static double value_width(const tm_model_shape *s)
{
    return (double)(s->mla.kv_rank > 0 ? s->mla.v : s->head_dim);
}

static double key_heads(const tm_model_shape *s)
{
    return (double)(s->mla.kv_rank > 0 ? s->n_heads : s->n_kv_heads);
}

static void add(tm_their_layer *l, double in, double out)
{
    l->linear[l->n++] = (tm_their_linear){ in, out };
}

tm_their_layer tm_their_layer_of(const tm_model_shape *s, bool with_experts, int tp)
{
    double         d = (double)s->dim, inner = (double)s->ffn_dim;
    tm_their_layer l = { .heads = (double)s->n_heads / tp, .key_width = key_width(s), .value_width = value_width(s) };
    l.key_heads = fmax(1, key_heads(s) / tp);
    if (s->mla.kv_rank > 0) {
        double q = (double)s->mla.q_rank, kv = (double)s->mla.kv_rank;
        add(&l, d, q + kv + (double)s->mla.rope + (q > 0 ? 0 : l.heads * l.key_width));
        if (q > 0) add(&l, q, l.heads * l.key_width);
        add(&l, kv, l.heads * ((double)s->mla.nope + l.value_width));
    } else {
        add(&l, d, l.heads * l.key_width + l.key_heads * (l.key_width + l.value_width));
    }
    add(&l, l.heads * l.value_width, d);
    if (with_experts) inner = (double)(s->moe.shared * s->moe.ffn_dim);
    if (inner > 0) {
        add(&l, d, inner * (tm_their_gated(s) ? 2 : 1) / tp);
        add(&l, inner / tp, d);
    }
    l.inner = inner / tp;
    return l;
}

double tm_their_expert_layers(const tm_model_shape *s)
{
    const char *pattern = s->moe.pattern;
    double      with = 0, n = 0;
    if (s->moe.experts == 0) return 0;
    if (!*pattern) return (double)(s->n_layers - s->moe.dense_layers);
    for (; pattern[(int)n]; n++) with += pattern[(int)n] == '1';
    return (double)s->n_layers * with / n;
}

static double layer_parameters(const tm_model_shape *s, bool with_experts)
{
    tm_their_layer l = tm_their_layer_of(s, with_experts, 1);
    double         sum = 0;
    for (int i = 0; i < l.n; i++) sum += l.linear[i].in * l.linear[i].out;
    return sum;
}

double tm_their_dense_parameters(const tm_model_shape *s)
{
    double with = tm_their_expert_layers(s);
    return with * layer_parameters(s, true) + ((double)s->n_layers - with) * layer_parameters(s, false) +
           (s->tied ? 1 : 2) * (double)s->vocab_size * (double)s->dim;
}

double tm_their_expert_parameters(const tm_model_shape *s)
{
    return tm_their_expert_layers(s) * (double)s->moe.experts * (tm_their_gated(s) ? 3 : 2) * (double)s->dim *
           (double)s->moe.ffn_dim;
}

double tm_their_layer_parameters(const tm_model_shape *s)
{
    return fmax(layer_parameters(s, false) * (tm_their_expert_layers(s) < (double)s->n_layers),
                layer_parameters(s, true) * (s->moe.experts > 0));
}

/* Half of all pairs of a causal mask; a window in some of the layers. */
double tm_their_keys(const tm_model_shape *s, double seq)
{
    double all = (seq + 1) / 2, w = (double)s->window;
    if (w <= 0 || w >= seq) return all;
    double windowed = (w * (w + 1) / 2 + (seq - w) * w) / seq;
    double part = s->window_every > 1 ? 1 / (double)s->window_every : 1;
    return part * windowed + (1 - part) * all;
}
