/* SPDX-License-Identifier: Apache-2.0 */
#include "execute.h"

#include "support/test.h"

#include "base/random.h"

bool tm_example_is_for_kernels(const tm_example *example)
{
    int64_t values = 0;
    for (int k = 0; k < TM_MAX_IN; k++)
        if (example->in[k].rank >= 0) values += tm_shape_elements(example->in[k]);
    return values > 30000;
}

tm_view tm_view_f64(tm_shape shape, const double *values)
{
    return (tm_view){ .dtype = TM_F64, .shape = shape, .data = (void *)(uintptr_t)values };
}

tm_view tm_view_i32(tm_shape shape, const int32_t *values)
{
    return (tm_view){ .dtype = TM_I32, .shape = shape, .data = (void *)(uintptr_t)values };
}

tm_view tm_view_absent(void)
{
    return (tm_view){ .shape = { .rank = -1 } };
}

tm_attention_attr tm_self_attention(int64_t T, int64_t H, int64_t J, int64_t D, double scale)
{
    return (tm_attention_attr){
        .seq_q = T, .seq_k = T, .heads = H, .kv_heads = J, .dim_qk = D, .dim_v = D, .scale = scale, .causal = 1
    };
}

void tm_memory_init(tm_memory *memory, const tm_graph *graph)
{
    *memory = (tm_memory){ .graph = graph, .n = graph->n_tensors };
    memory->data = calloc(graph->n_tensors, sizeof *memory->data);
    TM_ASSERT(memory->data);
    for (size_t i = 0; i < graph->n_tensors; i++)
        if (graph->tensors[i].base == TM_NONE)
            memory->data[i] = tm_undefined_values(graph->tensors[i].dtype, graph->tensors[i].shape);
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *view = &graph->tensors[i];
        if (view->base != TM_NONE)
            memory->data[i] = (char *)memory->data[view->base] + (size_t)view->offset * tm_dtype_bytes(view->dtype);
    }
}

void tm_memory_fini(tm_memory *memory)
{
    for (size_t i = 0; i < memory->n; i++)
        if (memory->graph->tensors[i].base == TM_NONE) free(memory->data[i]);
    free(memory->data);
}

static void *data_of(const tm_memory *memory, tm_tensor_id id, tm_dtype dtype)
{
    TM_ASSERT(id >= 0 && (size_t)id < memory->n && memory->graph->tensors[id].dtype == dtype);
    return memory->data[id];
}

double *tm_memory_f64(const tm_memory *memory, tm_tensor_id id)
{
    return data_of(memory, id, TM_F64);
}

int32_t *tm_memory_i32(const tm_memory *memory, tm_tensor_id id)
{
    return data_of(memory, id, TM_I32);
}

int64_t tm_memory_count(const tm_memory *memory, tm_tensor_id id)
{
    return tm_shape_elements(tm_graph_at(memory->graph, id)->shape);
}

void tm_memory_random(const tm_memory *memory, tm_tensor_id id, uint64_t seed, double offset, double scale)
{
    double *values = tm_memory_f64(memory, id);
    for (int64_t i = 0; i < tm_memory_count(memory, id); i++)
        values[i] = offset + scale * tm_random_normal(seed, (uint64_t)id, (uint64_t)i);
}

void tm_segment_execute(const tm_memory *memory, const tm_segment *segment)
{
    for (size_t x = 0; x < segment->n_nodes; x++) {
        const tm_node *node = &segment->nodes[x];
        const tm_op   *op = tm_op_get(node->op);
        tm_call        call;
        tm_node_call(memory->graph, node, &call);
        for (int k = 0; k < op->n_in; k++)
            if (node->in[k] != TM_NONE) call.in[k].data = memory->data[node->in[k]];
        for (int k = 0; k < op->n_out; k++)
            if (node->out[k] != TM_NONE) call.out[k].data = memory->data[node->out[k]];
        op->reference(&call);
    }
}
