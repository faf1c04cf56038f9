/* SPDX-License-Identifier: Apache-2.0 */
/* train/generate/head.c - what an adapter makes of logits that the host computes. */
#include "graph/value.h"
#include "train/trainer/trainer.h"

#include <math.h>
#include <stdlib.h>

enum { CHUNK_ROWS = 8 }; /* of the output layer, read at a time */

/* n values of a parameter from element `first` on, in the format that products read them in. */
static tm_status read_some(const tm_trainer *trainer, tm_tensor_id id, int64_t first, int64_t n, double *values,
                           tm_error *err)
{
    const tm_graph  *graph = tm_trainer_step_of(trainer)->graph;
    const tm_tensor *tensor = tm_graph_at(graph, id);
    tm_dtype         computed = graph->precision->compute;
    size_t           size = tm_dtype_bytes(tensor->dtype);
    void            *stored = tm_alloc((size_t)n * size);
    tm_status        st = tm_trainer_read(trainer, id, (size_t)first * size, stored, (size_t)n * size, err);
    for (int64_t i = 0; st == TM_OK && i < n; i++) {
        double rounded;
        tm_value_set(&rounded, computed, 0, tm_value_get(stored, tensor->dtype, i));
        values[i] = tm_value_get(&rounded, computed, 0);
    }
    free(stored);
    return st;
}

static tm_status read_all(const tm_trainer *trainer, tm_tensor_id id, double **out, tm_error *err)
{
    int64_t n = tm_shape_elements(tm_graph_at(tm_trainer_step_of(trainer)->graph, id)->shape);
    *out = tm_alloc((size_t)n * sizeof **out);
    return read_some(trainer, id, 0, n, *out, err);
}

static const tm_adapter *adapter_of(const tm_step *step)
{
    return step->model.head == TM_NONE ? NULL : tm_graph_at(step->graph, step->model.head)->adapter;
}

/* The lengths of rows first .. first + n - 1 of the head with the product of its adapter added (op/rescale.c). */
static tm_status add_norms(const tm_trainer *trainer, const double *a, const double *b, int64_t first, int64_t n,
                           double *norms, tm_error *err)
{
    const tm_step    *step = tm_trainer_step_of(trainer);
    const tm_adapter *adapter = adapter_of(step);
    int64_t           rank = adapter->attr.rank, width = tm_graph_at(step->graph, step->model.head)->shape.n[1];
    double           *w = tm_alloc((size_t)(n * width) * sizeof *w);
    tm_status         st = read_some(trainer, step->model.head, first * width, n * width, w, err);
    for (int64_t v = 0; st == TM_OK && v < n; v++) {
        double squares = 0;
        for (int64_t c = 0; c < width; c++) {
            double sum = 0;
            for (int64_t r = 0; r < rank; r++) sum += b[(first + v) * rank + r] * a[r * width + c];
            sum = w[v * width + c] + adapter->attr.scale * sum;
            squares += sum * sum;
        }
        norms[first + v] = sqrt(squares);
    }
    free(w);
    return st;
}

/* m / n of each row, n of a row of zeros being 1. */
static tm_status make_turns(const tm_trainer *trainer, int64_t rows, double *turns, tm_error *err)
{
    const tm_step    *step = tm_trainer_step_of(trainer);
    const tm_adapter *adapter = adapter_of(step);
    const tm_tensor  *m = tm_graph_at(step->graph, adapter->m);
    size_t            bytes = tm_tensor_bytes(m->shape, m->dtype);
    void             *lengths = tm_alloc(bytes);
    double           *a = NULL, *b = NULL;
    tm_status         st = tm_trainer_read(trainer, adapter->m, 0, lengths, bytes, err);
    if (st == TM_OK) st = read_all(trainer, adapter->a, &a, err);
    if (st == TM_OK) st = read_all(trainer, adapter->b, &b, err);
    for (int64_t v = 0; st == TM_OK && v < rows; v += CHUNK_ROWS)
        st = add_norms(trainer, a, b, v, rows - v < CHUNK_ROWS ? rows - v : CHUNK_ROWS, turns, err);
    for (int64_t v = 0; st == TM_OK && v < rows; v++)
        turns[v] = tm_value_get(lengths, m->dtype, v) / (turns[v] > 0 ? turns[v] : 1);
    free(lengths), free(a), free(b);
    return st;
}

tm_status tm_trainer_head_turns(const tm_trainer *trainer, double **out, tm_error *err)
{
    const tm_step    *step = tm_trainer_step_of(trainer);
    const tm_adapter *adapter = adapter_of(step);
    *out = NULL;
    if (!adapter || adapter->m == TM_NONE) return TM_OK;
    int64_t   rows = tm_graph_at(step->graph, step->model.head)->shape.n[0];
    double   *turns = tm_alloc((size_t)rows * sizeof *turns);
    tm_status st = make_turns(trainer, rows, turns, err);
    if (st == TM_OK)
        *out = turns;
    else
        free(turns);
    return st;
}

tm_status tm_trainer_adapt_logits(const tm_trainer *trainer, const double *state, double factor, const double *turns,
                                  double *logits, tm_error *err)
{
    const tm_step    *step = tm_trainer_step_of(trainer);
    const tm_adapter *adapter = adapter_of(step);
    if (!adapter) return TM_OK;
    tm_shape  head = tm_graph_at(step->graph, step->model.head)->shape;
    int64_t   rank = adapter->attr.rank, width = head.n[1];
    double   *a = NULL, *b = NULL, *u = tm_alloc((size_t)rank * sizeof *u);
    tm_status st = read_all(trainer, adapter->a, &a, err);
    if (st == TM_OK) st = read_all(trainer, adapter->b, &b, err);
    for (int64_t r = 0; st == TM_OK && r < rank; r++) {
        u[r] = 0;
        for (int64_t c = 0; c < width; c++) u[r] += a[r * width + c] * state[c];
    }
    for (int64_t v = 0; st == TM_OK && v < head.n[0]; v++) {
        for (int64_t r = 0; r < rank; r++) logits[v] += factor * adapter->attr.scale * b[v * rank + r] * u[r];
        if (turns) logits[v] *= turns[v];
    }
    free(a), free(b), free(u);
    return st;
}
