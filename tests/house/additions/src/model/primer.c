/* SPDX-License-Identifier: Apache-2.0 */
/* model/primer.c - GPT-2's blocks with a squared ReLU (So et al. 2021): x = x + Wo attention(Wqkv LN(x));
 * x = x + W2 relu(W1 LN(x))^2. Weights and their names are gpt's. */
#include "model/blocks.h"

static tm_tensor_id block(tm_graph *graph, const tm_model *model, int layer, tm_tensor_id x)
{
    const tm_block_weights *w = (const tm_block_weights *)model->own + layer;
    tm_norm_attr            norm = { .eps = model->shape->norm_eps };
    graph->layer = layer;
    graph->module = tm_arena_format(graph->arena, "h.%d", layer);
    tm_tensor_id a = tm_emit(graph, TM_OP_layernorm, &norm, sizeof norm, x, w->norm1_w, w->norm1_b, TM_NONE);
    tm_tensor_id qkv = tm_emit(graph, TM_OP_linear, NULL, 0, a, w->qkv_w, w->qkv_b, TM_NONE);
    x = tm_emit(graph, TM_OP_linear, NULL, 0, tm_attend(graph, model, layer, qkv, TM_NONE), w->out_w, w->out_b, x);
    tm_tensor_id b = tm_emit(graph, TM_OP_layernorm, &norm, sizeof norm, x, w->norm2_w, w->norm2_b, TM_NONE);
    tm_tensor_id up = tm_emit(graph, TM_OP_linear, NULL, 0, b, w->up_w, w->up_b, TM_NONE);
    tm_tensor_id h = tm_emit(graph, TM_OP_relu2, NULL, 0, up, TM_NONE, TM_NONE, TM_NONE);
    return tm_emit(graph, TM_OP_linear, NULL, 0, h, w->down_w, w->down_b, x);
}

static tm_tensor_id hidden(tm_graph *graph, const tm_model *model, tm_tensor_id tokens)
{
    tm_norm_attr      norm = { .eps = model->shape->norm_eps };
    tm_embedding_attr embedding = { .seq = model->seq };
    graph->layer = -1;
    graph->module = "wte";
    tm_tensor_id x = tm_emit(graph, TM_OP_embedding, &embedding, sizeof embedding, tokens, model->embedding,
                             model->positions, TM_NONE);
    for (int layer = 0; layer < model->shape->n_layers; layer++) x = block(graph, model, layer, x);
    graph->layer = -1;
    graph->module = "ln_f";
    return tm_emit(graph, TM_OP_layernorm, &norm, sizeof norm, x, model->norm_w, model->norm_b, TM_NONE);
}

static int64_t ffn_dim(int64_t dim)
{
    return 4 * dim;
}

static int products(const tm_model_shape *s, tm_model_product out[TM_MAX_PRODUCTS])
{
    out[0] = (tm_model_product){ "up", s->ffn_dim, s->dim };
    out[1] = (tm_model_product){ "down", s->dim, s->ffn_dim };
    return 2;
}

const tm_family tm_family_primer = {
    .name = "primer",
    .fields = tm_language_fields,
    .tied = true,
    .bias = TM_BIAS_ALL,
    .init = TM_INIT_GPT2,
    .init_tied = TM_INIT_GPT2,
    .ffn_dim = ffn_dim,
    .ends = true,
    .declare = tm_gpt_declare,
    .hidden = hidden,
    .loss = tm_language_loss,
    .products = products,
};
