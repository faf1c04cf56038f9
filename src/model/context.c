/* SPDX-License-Identifier: Apache-2.0 */
/* model/context.c - sequences whose tokens ranks have in parts (context parallel): of each of them two chunks
 * (tm_chunk_of), first those of all sequences in front, then the others.
 *
 * All but attention goes by rows. For attention the keys and values of all ranks are gathered and put into the order of
 * the tokens; the queries of a chunk stand at the chunk's place among them, so each of the two chunks is a call of its
 * own. What flows back to keys and values is summed into the rank that has them (the transpose of gathering). Or they
 * go from rank to rank (op/ring_attention.c), so that no rank has them all.
 */
#include "model/blocks.h"

#include <string.h>

/* --- positions ---------------------------------------------------------------------------------------------------- */

typedef struct {
    int64_t first[TM_CHUNKS], rows,
        length; /* of each chunk: where it begins; rows of a chunk of all sequences, of one */
} places;

static double place_of(const void *context, int64_t i)
{
    const places *p = context;
    return (double)(p->first[i / p->rows] + i % p->length);
}

tm_tensor_id tm_context_places(tm_graph *graph, const tm_model *model, int64_t rows)
{
    tm_division own = model->parallel.context;
    int64_t     length = tm_chunk_length(own, model->seq);
    const char *name = tm_arena_format(graph->arena, "places.%lld.%lld", (long long)model->seq, (long long)rows);
    for (size_t i = 0; i < graph->n_tensors; i++) /* of an earlier segment */
        if (graph->tensors[i].role == TM_ROLE_CONSTANT && strcmp(graph->tensors[i].name, name) == 0)
            return (tm_tensor_id)i;
    places       at = { .first = { tm_chunk_of(own, 0) * length, tm_chunk_of(own, 1) * length },
                        .rows = rows / TM_CHUNKS,
                        .length = length };
    int          layer = graph->layer;
    tm_tensor_id made;
    graph->layer = -1;
    made = tm_graph_constant(graph, name, tm_shape_1(rows), place_of, &at, sizeof at);
    tm_graph_at(graph, made)->dtype = TM_I32;
    graph->layer = layer;
    return made;
}

/* --- attention ---------------------------------------------------------------------------------------------------- */

static tm_tensor_id named_view(tm_graph *graph, const char *name, tm_tensor_id base, int64_t column, int64_t columns)
{
    return tm_graph_view(graph, tm_arena_format(graph->arena, "%s.%s", graph->module, name), base, column, columns);
}

/* Queries, and keys with values, of fused rows. */
static void split_columns(tm_graph *graph, const tm_attention_attr *attr, tm_tensor_id qkv,
                          tm_tensor_id out[TM_MAX_OUT])
{
    tm_join_attr parts = { .first = attr->heads * attr->dim_qk,
                           .second = attr->kv_heads * (attr->dim_qk + attr->dim_v) };
    for (int k = 0; k < TM_MAX_OUT; k++) out[k] = TM_NONE;
    tm_graph_add(graph, TM_OP_split, &parts, sizeof parts, (tm_tensor_id[TM_MAX_IN]){ qkv }, out, 0);
}

/* Keys and values of whole sequences, of those of this rank's rows. */
static void all_keys(tm_graph *graph, const tm_model *model, const tm_attention_attr *attr, tm_tensor_id kv,
                     tm_sequence_attr order, tm_tensor_id *keys, tm_tensor_id *values)
{
    int64_t      k = attr->kv_heads * attr->dim_qk, v = attr->kv_heads * attr->dim_v;
    tm_tensor_id all = tm_emit_gather(graph, model->parallel.context, "keys and values", kv);
    all = tm_emit(graph, TM_OP_sequence_order, &order, sizeof order, all, TM_NONE, TM_NONE, TM_NONE);
    *keys = named_view(graph, "k", all, 0, k);
    *values = named_view(graph, "v", all, k, v);
}

tm_tensor_id tm_context_attend_all(tm_graph *graph, const tm_model *model, const tm_attention_attr *own,
                                   tm_tensor_id qkv, int64_t samples)
{
    tm_sequence_attr  order = { .samples = samples, .ranks = model->parallel.context.ranks, .chunks = 1 };
    tm_attention_attr attr = *own;
    tm_tensor_id      apart[TM_MAX_OUT], keys, values;
    split_columns(graph, &attr, qkv, apart);
    all_keys(graph, model, &attr, apart[1], order, &keys, &values);
    attr.seq_k *= order.ranks;
    return tm_emit(graph, TM_OP_attention, &attr, sizeof attr, apart[0], keys, values, TM_NONE);
}

tm_tensor_id tm_context_attend(tm_graph *graph, const tm_model *model, const tm_attention_attr *whole, tm_tensor_id qkv,
                               tm_tensor_id sinks)
{
    tm_tensor_id apart[TM_MAX_OUT];
    split_columns(graph, whole, qkv, apart);
    return tm_context_attend_parts(graph, model, whole, apart[0], apart[1], sinks);
}

/* Without gathering them. */
static tm_tensor_id attend_in_a_ring(tm_graph *graph, const tm_model *model, const tm_attention_attr *whole,
                                     tm_tensor_id q, tm_tensor_id kv, tm_tensor_id sinks)
{
    tm_division  context = model->parallel.context;
    tm_ring_attr attr = { .axes = context.axes, .ranks = context.ranks, .rank = context.rank, .attention = *whole };
    attr.attention.seq_q = attr.attention.seq_k = tm_chunk_length(context, model->seq);
    tm_tensor_id in[TM_MAX_IN] = { q, kv, model->first_key, sinks }, out[TM_MAX_OUT] = { TM_NONE, TM_NONE };
    tm_graph_add(graph, TM_OP_ring_attention, &attr, sizeof attr, in, out, 0);
    return out[0];
}

tm_tensor_id tm_context_attend_parts(tm_graph *graph, const tm_model *model, const tm_attention_attr *whole,
                                     tm_tensor_id q, tm_tensor_id kv, tm_tensor_id sinks)
{
    if (model->parallel.ring) return attend_in_a_ring(graph, model, whole, q, kv, sinks);
    tm_division  context = model->parallel.context;
    int64_t      length = tm_chunk_length(context, model->seq), rows = tm_graph_at(graph, q)->shape.n[0] / TM_CHUNKS;
    tm_join_attr halves = { .samples = 1, .first = rows, .second = rows };
    tm_sequence_attr  order = { .samples = rows / length, .ranks = context.ranks, .chunks = TM_CHUNKS };
    tm_attention_attr attr = *whole;
    tm_tensor_id      chunks[TM_MAX_OUT] = { TM_NONE, TM_NONE }, o[TM_CHUNKS], keys, values;
    tm_graph_add(graph, TM_OP_split, &halves, sizeof halves, (tm_tensor_id[TM_MAX_IN]){ q }, chunks, 0);
    all_keys(graph, model, whole, kv, order, &keys, &values);
    attr.seq_q = length;
    attr.seq_k = model->seq;
    for (int h = 0; h < TM_CHUNKS; h++) {
        tm_tensor_id in[TM_MAX_IN] = { chunks[h], keys, values, TM_NONE, sinks };
        tm_tensor_id out[TM_MAX_OUT] = { TM_NONE, TM_NONE };
        attr.q_offset = tm_chunk_of(context, h) * length;
        if (model->first_key != TM_NONE)
            in[3] = tm_graph_run(graph, tm_arena_format(graph->arena, "%s.first_key.%d", graph->module, h),
                                 model->first_key, h * rows, tm_shape_1(rows));
        tm_graph_add(graph, TM_OP_attention, &attr, sizeof attr, in, out, 0);
        o[h] = out[0];
    }
    return tm_emit(graph, TM_OP_join, &halves, sizeof halves, o[0], o[1], TM_NONE, TM_NONE);
}
