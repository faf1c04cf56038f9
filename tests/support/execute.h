/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/execute.h - the plainest way to run ops and segments: the reference kernels, every tensor in memory of
 * its own (so that the sanitizer sees its ends), everything not yet written holding NaN. */
#ifndef TM_TESTS_EXECUTE_H
#define TM_TESTS_EXECUTE_H

#include "graph/graph.h"
#include "op/fused.h"
#include "op/op.h"

/* ---- one op ---- */

/* Examples of more than 30000 input values are there for the blocks and threads of kernels: what a reference or a
 * gradient rule owes does not depend on the size. */
bool tm_example_is_for_kernels(const tm_example *example);
/* Views over values that the caller owns. */
tm_view tm_view_f64(tm_shape shape, const double *values);
tm_view tm_view_i32(tm_shape shape, const int32_t *values);
tm_view tm_view_absent(void);

/* Causal attention of T tokens to themselves; heads of D elements. */
tm_attention_attr tm_self_attention(int64_t T, int64_t H, int64_t J, int64_t D, double scale);

/* ---- a graph ---- */

typedef struct {
    const tm_graph *graph;
    void          **data; /* per tensor; NULL for tensors made after tm_memory_init */
    size_t          n;
} tm_memory;

/* Memory for all tensors that the graph (of precision float64) has now. */
void     tm_memory_init(tm_memory *memory, const tm_graph *graph);
void     tm_memory_fini(tm_memory *memory);
double  *tm_memory_f64(const tm_memory *memory, tm_tensor_id id);
int32_t *tm_memory_i32(const tm_memory *memory, tm_tensor_id id);
int64_t  tm_memory_count(const tm_memory *memory, tm_tensor_id id); /* elements */
/* offset + scale * normal. */
void tm_memory_random(const tm_memory *memory, tm_tensor_id id, uint64_t seed, double offset, double scale);
void tm_segment_execute(const tm_memory *memory, const tm_segment *segment);

#endif
