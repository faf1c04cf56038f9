/* SPDX-License-Identifier: Apache-2.0 */
/* model/count.c - parameters, counted on the tensors that a family declares, and FLOPs by formula. */
#include "model/family.h"

#include "model/moe.h"

typedef struct {
    int64_t all, layer, input; /* layer: the first one; input: looked up only */
    int64_t idle;              /* of experts: what a token does not use */
    int64_t matmul;            /* factors of a token's products */
} counts;

static counts count(const tm_model_shape *shape)
{
    tm_graph *graph = tm_graph_create(&tm_precision_f32);
    tm_model  model;
    counts    n = { 0 };
    tm_model_declare(graph, shape, 1, NULL, &model);
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *tensor = &graph->tensors[i];
        tm_tensor_id     id = (tm_tensor_id)i;
        if (tensor->role != TM_ROLE_PARAMETER) continue;
        int64_t elements = tm_shape_elements(tensor->shape);
        bool    input = id == model.positions || (id == model.embedding && id != model.head);
        n.all += elements;
        if (tensor->layer == 0) n.layer += elements;
        if (input) n.input += elements;
        int64_t idle = tm_moe_has_experts(tensor) ? elements - elements / shape->moe.experts * shape->moe.top_k : 0;
        n.idle += idle;
        if (!input && tensor->shape.rank >= 2) n.matmul += elements - idle;
    }
    tm_graph_destroy(graph);
    return n;
}

int64_t tm_model_parameters(const tm_model_shape *shape)
{
    return count(shape).all;
}

int64_t tm_model_parameters_active(const tm_model_shape *shape)
{
    counts n = count(shape);
    return n.all - n.idle;
}

int64_t tm_model_parameters_layer(const tm_model_shape *shape)
{
    return count(shape).layer;
}

int64_t tm_model_parameters_embedding(const tm_model_shape *shape)
{
    return count(shape).input;
}

int64_t tm_model_parameters_matmul(const tm_model_shape *shape)
{
    return count(shape).matmul;
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

/* Layers with a window, of all. */
static double windowed(const tm_model_shape *s)
{
    if (s->window <= 0) return 0;
    if (s->window_every <= 1) return 1;
    return (double)((s->n_layers + s->window_every - 1) / s->window_every) / (double)s->n_layers;
}

/* Keys of a sequence of t that a token can see at most, and sees on average: all before it and itself, or a window of
 * them; means over the layers. */
static double most_keys(const tm_model_shape *s, double t)
{
    double w = (double)s->window < t ? (double)s->window : t;
    return windowed(s) * w + (1 - windowed(s)) * t;
}
static double visible_keys(const tm_model_shape *s, double t)
{
    double w = (double)s->window < t ? (double)s->window : t;
    return windowed(s) * (w * (w + 1) / 2 + (t - w) * w) / t + (1 - windowed(s)) * (t + 1) / 2;
}

/* L H (d_qk + d_v). */
static double head_widths(const tm_model_shape *s)
{
    int64_t widths = s->mla.kv_rank > 0 ? s->mla.nope + s->mla.rope + s->mla.v : 2 * s->head_dim;
    return (double)s->n_layers * (double)(s->n_heads * widths);
}

double tm_model_flops_per_token(const tm_model_shape *s, tm_flops_convention convention, int64_t seq)
{
    counts           of = count(s);
    const tm_family *family = tm_family_of(s);
    if (family->flops) return family->flops(s, (double)of.all, convention, seq);
    double  n = (double)(of.all - of.idle), matmul = (double)of.matmul, t = (double)seq;
    double  attention = 6 * head_widths(s); /* x visible keys */
    double  width = (double)s->n_layers * (double)s->dim * t;
    int64_t padded = (s->vocab_size + 127) / 128 * 128;
    double  padding = (double)((padded - s->vocab_size) * s->dim);
    double  routers = (double)(tm_moe_layers_below(s, s->n_layers) * s->moe.experts * s->dim);
    switch (convention) {
    case TM_FLOPS_TITAN:
        return 6 * (n - (double)of.input) + attention * t;
    case TM_FLOPS_MATMUL:
        return 6 * matmul + attention * most_keys(s, t);
    case TM_FLOPS_MEGATRON:
        return 6 * (matmul - routers + padding) + attention * t / 2;
    case TM_FLOPS_6N:
        return 6 * n;
    case TM_FLOPS_LLMC:
        return 6 * n + 6 * width;
    case TM_FLOPS_NANOGPT:
        return 6 * n + 12 * width;
    case TM_FLOPS_EXACT_CAUSAL:
        return 6 * matmul + attention * visible_keys(s, t);
    case TM_FLOPS_COUNT:
        break;
    }
    tm_assert_failed("unknown convention", __FILE__, __LINE__);
}
