/* SPDX-License-Identifier: Apache-2.0 */
/* train/head.c - what an adapter adds to logits that the host computes. */
#include "graph/value.h"
#include "train/trainer.h"

#include <stdlib.h>

/* All values of a parameter, in the format that products read them in. */
static tm_status read_all(const tm_trainer *trainer, tm_tensor_id id, double **out, tm_error *err)
{
    const tm_graph  *graph = tm_trainer_step_of(trainer)->graph;
    const tm_tensor *tensor = tm_graph_at(graph, id);
    tm_dtype         computed = graph->precision->compute;
    int64_t          n = tm_shape_elements(tensor->shape);
    size_t           bytes = tm_tensor_bytes(tensor->shape, tensor->dtype);
    void            *stored = tm_alloc(bytes);
    double          *values = tm_alloc((size_t)n * sizeof *values);
    tm_status        st = tm_trainer_read(trainer, id, 0, stored, bytes, err);
    for (int64_t i = 0; st == TM_OK && i < n; i++) {
        double rounded;
        tm_value_set(&rounded, computed, 0, tm_value_get(stored, tensor->dtype, i));
        values[i] = tm_value_get(&rounded, computed, 0);
    }
    free(stored);
    *out = values;
    return st;
}

tm_status tm_trainer_adapt_logits(const tm_trainer *trainer, const double *state, double factor, double *logits,
                                  tm_error *err)
{
    const tm_step *step = tm_trainer_step_of(trainer);
    if (step->model.head == TM_NONE || !tm_graph_at(step->graph, step->model.head)->adapter) return TM_OK;
    tm_shape          head = tm_graph_at(step->graph, step->model.head)->shape;
    const tm_adapter *adapter = tm_graph_at(step->graph, step->model.head)->adapter;
    int64_t           rank = adapter->attr.rank, width = head.n[1];
    double           *a = NULL, *b = NULL, *u = tm_alloc((size_t)rank * sizeof *u);
    tm_status         st = read_all(trainer, adapter->a, &a, err);
    if (st == TM_OK) st = read_all(trainer, adapter->b, &b, err);
    for (int64_t r = 0; st == TM_OK && r < rank; r++) {
        u[r] = 0;
        for (int64_t c = 0; c < width; c++) u[r] += a[r * width + c] * state[c];
    }
    for (int64_t v = 0; st == TM_OK && v < head.n[0]; v++)
        for (int64_t r = 0; r < rank; r++) logits[v] += factor * adapter->attr.scale * b[v * rank + r] * u[r];
    free(a), free(b), free(u);
    return st;
}
