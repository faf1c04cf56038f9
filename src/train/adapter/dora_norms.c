/* SPDX-License-Identifier: Apache-2.0 */
/* train/adapter/dora_norms.c - the first values of the lengths of adapted rows (DoRA). */
#include "base/cpu.h"
#include "graph/blocks.h"
#include "graph/cut.h"
#include "graph/value.h"
#include "train/adapter/adapters.h"

#include <math.h>
#include <stdlib.h>

/* Elements that are read at a time: whole groups of the formats in blocks. */
enum { RUN = 16 * TM_NF4_GROUP };

static size_t offset_of(tm_dtype dtype, int64_t element)
{
    return tm_dtype_blocked(dtype) ? tm_blocked_bytes(dtype, element) : (size_t)element * tm_dtype_bytes(dtype);
}

/* Element i, as a cast for a product makes it of a format that is not computed with. */
static double value_of(const void *values, tm_dtype stored, tm_dtype computed, int64_t i)
{
    double value = tm_value_get(values, stored, i), rounded;
    if (!tm_dtype_small(stored)) return value;
    tm_value_set(&rounded, computed, 0, value);
    return tm_value_get(&rounded, computed, 0);
}

/* Adds the squares of elements first .. first + n - 1 of a matrix to those of their rows. */
static void add_squares(const void *values, tm_dtype stored, tm_dtype computed, int64_t first, int64_t n, int64_t width,
                        double *squares)
{
    int threads = n < RUN ? 1 : tm_cpu_threads_allowed();
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t row = first / width; row <= (first + n - 1) / width; row++) {
        int64_t begin = row * width > first ? row * width : first;
        int64_t end = (row + 1) * width < first + n ? (row + 1) * width : first + n;
        for (int64_t i = begin; i < end; i++) {
            double value = value_of(values, stored, computed, i - first);
            squares[row] += value * value;
        }
    }
}

static tm_status measure(const tm_graph *graph, const tm_adapters_memory *memory, tm_tensor_id id, double *squares,
                         void *values, tm_error *err)
{
    const tm_tensor *matrix = tm_graph_at(graph, id);
    int64_t          all = tm_shape_elements(matrix->shape);
    for (int64_t first = 0; first < all; first += RUN) {
        int64_t n = all - first < RUN ? all - first : RUN;
        size_t  from = offset_of(matrix->dtype, first), bytes = offset_of(matrix->dtype, n);
        TM_TRY(memory->read(memory->context, id, from, values, bytes, err));
        add_squares(values, matrix->dtype, graph->precision->compute, first, n, matrix->shape.n[1], squares);
    }
    return TM_OK;
}

/* Columns of a matrix that are here are parameters of one name; the other ranks have the rest. */
static tm_status measure_parts(const tm_graph *graph, const tm_adapters_memory *memory, tm_tensor_id id,
                               double *squares, void *values, tm_error *err)
{
    const tm_tensor *matrix = tm_graph_at(graph, id);
    tm_tensor_id     m = matrix->adapter->m;
    for (size_t i = 0; i < graph->n_tensors; i++)
        if (graph->tensors[i].adapter && graph->tensors[i].adapter->m == m)
            TM_TRY(measure(graph, memory, (tm_tensor_id)i, squares, values, err));
    if (!tm_cut_by_columns(matrix)) return TM_OK;
    return memory->sum(memory->context, matrix->cut->axes, squares, (size_t)matrix->shape.n[0], err);
}

static tm_status write_lengths(const tm_graph *graph, const tm_adapters_memory *memory, const tm_adapter *adapter,
                               const double *squares, tm_error *err)
{
    const tm_tensor *m = tm_graph_at(graph, adapter->m);
    size_t           bytes = tm_tensor_bytes(m->shape, m->dtype);
    void            *lengths = tm_alloc(bytes);
    for (int64_t p = 0, row = 0; p < adapter->attr.parts; p++)
        for (int64_t i = 0; i < adapter->attr.part[p].rows; i++, row++)
            tm_value_set(lengths, m->dtype, row, sqrt(squares[adapter->attr.part[p].column + i]));
    tm_status st = memory->write(memory->context, adapter->m, 0, lengths, bytes, err);
    free(lengths);
    return st;
}

tm_status tm_adapters_measure(const tm_graph *graph, const tm_adapters_memory *memory, tm_error *err)
{
    tm_status st = TM_OK;
    for (size_t i = 0; i < graph->n_tensors && st == TM_OK; i++) {
        const tm_tensor *matrix = &graph->tensors[i];
        if (!matrix->adapter || matrix->adapter->m == TM_NONE) continue;
        if (tm_graph_at(graph, matrix->adapter->m)->adapts != (tm_tensor_id)i) continue; /* with the first part */
        int64_t rows = matrix->shape.n[0];
        double *squares = tm_alloc((size_t)rows * sizeof *squares);
        void   *values = tm_alloc(offset_of(matrix->dtype, RUN));
        for (int64_t r = 0; r < rows; r++) squares[r] = 0;
        st = measure_parts(graph, memory, (tm_tensor_id)i, squares, values, err);
        for (const tm_adapter *one = matrix->adapter; one && st == TM_OK; one = one->next)
            st = write_lengths(graph, memory, one, squares, err);
        free(squares);
        free(values);
    }
    return st;
}
