/* SPDX-License-Identifier: Apache-2.0 */
/* model/count.c - parameters, counted on the tensors that a family declares, and FLOPs by formula. */
#include "model/family.h"

typedef struct {
    int64_t all, layer, input, matmul; /* layer: the first one; input: looked up only; matmul: factors of products */
} counts;

static counts count(const tm_model_shape *shape)
{
    tm_graph *graph = tm_graph_create(&tm_precision_f32);
    tm_model  model;
    counts    n = { 0 };
    tm_model_declare(graph, shape, 1, &model);
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *tensor = &graph->tensors[i];
        tm_tensor_id     id = (tm_tensor_id)i;
        if (tensor->role != TM_ROLE_PARAMETER) continue;
        int64_t elements = tm_shape_elements(tensor->shape);
        bool    input = id == model.positions || (id == model.embedding && id != model.head);
        n.all += elements;
        if (tensor->layer == 0) n.layer += elements;
        if (input) n.input += elements;
        if (!input && tensor->shape.rank >= 2) n.matmul += elements;
    }
    tm_graph_destroy(graph);
    return n;
}

int64_t tm_model_parameters(const tm_model_shape *shape)
{
    return count(shape).all;
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

/* Keys that a token sees, on average over a sequence: all before it and itself, or a window of them. */
static double visible_keys(const tm_model_shape *s, double t)
{
    double w = s->window > 0 && (double)s->window < t ? (double)s->window : t;
    return (w * (w + 1) / 2 + (t - w) * w) / t;
}

double tm_model_flops_per_token(const tm_model_shape *s, tm_flops_convention convention, int64_t seq)
{
    counts  of = count(s);
    const tm_family *family = tm_family_of(s);
    if (family->flops) return family->flops(s, (double)of.all, convention, seq);
    double  n = (double)of.all, matmul = (double)of.matmul, t = (double)seq;
    double  attention = 12.0 * (double)s->n_layers * (double)(s->n_heads * s->head_dim); /* x visible keys */
    double  width = (double)s->n_layers * (double)s->dim * t;
    int64_t padded = (s->vocab_size + 127) / 128 * 128;
    double  padding = (double)((padded - s->vocab_size) * s->dim);
    switch (convention) {
    case TM_FLOPS_TITAN:
        return 6 * (n - (double)of.input) + attention * t;
    case TM_FLOPS_MATMUL:
        return 6 * matmul + attention * (s->window > 0 && s->window < seq ? (double)s->window : t);
    case TM_FLOPS_MEGATRON:
        return 6 * (matmul + padding) + attention * t / 2;
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
