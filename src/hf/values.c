/* SPDX-License-Identifier: Apache-2.0 */
#include "hf/values.h"

#include "base/arena.h"
#include "base/cpu.h"
#include "graph/value.h"
#include "hf/convert.h"
#include "hf/merge.h"

#include <stdlib.h>

bool tm_hf_values_wider(const tm_hf_values *x)
{
    for (size_t i = 0; i < x->layout->n; i++) {
        const tm_hf_entry *e = &x->layout->entries[i];
        if (e->row->wide) continue;
        if (x->found && x->found[i]->dtype != TM_BF16) return true;
        for (size_t k = 0; !x->found && k < e->n_slices; k++)
            if (tm_graph_at(x->graph, e->slices[k].parameter)->dtype != TM_BF16) return true;
    }
    return false;
}

/* Rows of a piece from a checkpoint to their places. */
static tm_status fill_slice(const tm_hf_values *x, const tm_hf_slice *s, tm_dtype dtype, void *out, tm_error *err)
{
    const tm_tensor *tensor = tm_graph_at(x->graph, s->parameter);
    int64_t          bits = tm_dtype_bits(tensor->dtype), n = s->rows * s->columns;
    TM_ASSERT(s->first * bits % 8 == 0);
    size_t    bytes = (size_t)((n * bits + 7) / 8);
    void     *values = tm_alloc(bytes);
    tm_status st =
        tm_checkpoint_view_read(x->source->checkpoint, tensor->name, (size_t)(s->first * bits / 8), values, bytes, err);
    for (int64_t r = 0; st == TM_OK && r < s->rows; r++)
        for (int64_t c = 0; c < s->columns; c++)
            tm_value_set(out, dtype, s->start + tm_hf_row(s, r) * s->row_step + c * s->column_step,
                         tm_value_get(values, tensor->dtype, r * s->columns + c));
    free(values);
    return st;
}

tm_status tm_hf_values_fill(const tm_hf_values *x, size_t entry, tm_dtype dtype, void *out, tm_error *err)
{
    const tm_hf_entry      *e = &x->layout->entries[entry];
    const tm_hf_adapter    *adapter = &x->source->adapter;
    const tm_stored_tensor *parts[TM_HF_PARTS] = { NULL };
    if (adapter->weights) TM_TRY(tm_hf_merge_finds(adapter, x->source->form, e, parts, err));
    if (parts[0]) {
        float *merged = tm_alloc((size_t)e->elements * sizeof *merged);
        tm_hf_merge(adapter, x->source->form, e, x->found[entry], parts, tm_cpu_threads_allowed(), merged);
        for (int64_t i = 0; i < e->elements; i++) tm_value_set(out, dtype, i, (double)merged[i]);
        free(merged);
        return TM_OK;
    }
    if (x->found) tm_stored_convert(x->found[entry], 0, 1, e->elements, dtype, out, 0);
    for (size_t k = 0; !x->found && k < e->n_slices; k++) TM_TRY(fill_slice(x, &e->slices[k], dtype, out, err));
    return TM_OK;
}

/* The parameters have the formats of the checkpoint. */
static tm_status check_checkpoint(tm_hf_values *x, tm_error *err)
{
    for (size_t i = 0; i < x->graph->n_tensors; i++) {
        tm_tensor *tensor = &x->graph->tensors[i];
        int        dtype;
        size_t     bytes;
        if (!tm_hf_holds(x->source->form, tensor)) continue;
        TM_TRY(tm_checkpoint_view_find(x->source->checkpoint, tensor->name, &dtype, &bytes, err));
        if (dtype < 0 || dtype >= TM_DTYPE_COUNT || bytes != tm_tensor_bytes(tensor->shape, (tm_dtype)dtype))
            return tm_fail(err, TM_FORMAT,
                           "the checkpoint holds '%s' with %zu bytes, which is not what config.yaml says", tensor->name,
                           bytes);
        tensor->dtype = (tm_dtype)dtype;
    }
    return TM_OK;
}

tm_status tm_hf_values_open(const tm_hf_source *s, tm_hf_values *x, tm_hf_report *report, tm_error *err)
{
    *x = (tm_hf_values){ .source = s };
    tm_model model;
    x->graph = tm_graph_create(&tm_precision_f32);
    tm_model_declare(x->graph, &s->shape, 1, NULL, &model);
    TM_TRY(tm_hf_layout_create(x->graph, &s->shape, s->form, &x->layout, err));
    if (s->checkpoint) return check_checkpoint(x, err);
    tm_hf_memory memory = { .graph = x->graph, .shape = &s->shape, .form = s->form };
    x->found = tm_alloc((x->layout->n + 1) * sizeof *x->found);
    return tm_hf_check(&memory, x->layout, s->weights, x->found, report, err);
}

void tm_hf_values_close(tm_hf_values *values)
{
    free(values->found);
    tm_hf_layout_destroy(values->layout);
    tm_graph_destroy(values->graph);
    *values = (tm_hf_values){ 0 };
}
