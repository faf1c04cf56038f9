/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/embedding.c - rows of a table by token, and the sum of gradients back into them.
 *
 *   y_r = table[token_r] [+ positions[t_r]],  t_r = place_r, or r mod T
 *   dtable[v] [+]= sum over rows r with token_r = v, ascending;  dpositions[t] [+]= sum over rows r with t_r = t,
 * ascending
 *
 * Tables are read in the format they are stored in. A table row's sum is formed in float32, starting from the old
 * value, and rounded once. The rows of a token are found through a chain (first row of each token, next row of each
 * row) in the workspace; threads share the columns, so that a frequent token does not leave one of them behind. A token
 * outside the table is a bug of the caller.
 */
#include "base/status.h"
#include "device/cpu/simd/elementwise.h"
#include "device/cpu/simd/kernels.h"
#include "op/attrs.h"

/* Does this rank add the position of row r? */
TM_INLINE bool has_position(const tm_embedding_attr *attr, int64_t r)
{
    return attr->rows == 0 || (r >= attr->from && r < attr->from + attr->rows);
}

/* ---- forward ---- */

TM_INLINE void embedding_rows(const tm_call *call, tm_dtype stored, tm_dtype format, int64_t begin, int64_t end)
{
    const tm_embedding_attr *attr = call->attr;
    const int32_t           *tokens = call->in[0].data, *places = call->in[3].data;
    const void              *table = call->in[1].data, *positions = call->in[2].data;
    int64_t                  columns = tm_view_columns(&call->in[1]), vocabulary = tm_view_rows(&call->in[1]);
    for (int64_t r = begin; r < end; r++) {
        int64_t token = tokens[r] - attr->first, from = token * columns;
        bool    here = token >= 0 && token < vocabulary, adds = positions && has_position(attr, r);
        int64_t place = adds ? (places ? places[r] : r % attr->seq) * columns : 0;
        TM_ASSERT(here || attr->part);
        TM_ASSERT(!places || (places[r] >= 0 && places[r] < tm_view_rows(&call->in[2])));
        for (int64_t j = 0; j < columns; j += TM_LANES) {
            int64_t n = tm_lanes(j, columns);
            v16     v = here ? v16_get(table, stored, from + j, n) : v16_zero();
            if (adds) v = v16_add(v, v16_get(positions, stored, place + j, n));
            v16_put(call->out[0].data, format, r * columns + j, v, n);
        }
    }
}
TM_PART_2(embedding_rows, in[1], out[0])

static void embedding_run(const tm_call *call)
{
    tm_parallel(call, embedding_rows_part, tm_view_elements(&call->in[0]), 1, tm_view_elements(&call->out[0]));
}
static TM_PLANNED const char *embedding_refuse(const tm_call *call)
{
    const char *why = call->in[0].dtype == TM_I32 ? NULL : "needs int32 tokens";
    if (!why) why = tm_refuse_format(&call->in[1]);
    if (!why) why = tm_refuse_mixed(&call->in[1], &call->in[2]);
    if (!why && tm_view_present(&call->in[3]) && call->in[3].dtype != TM_I32) why = "needs int32 places";
    return why ? why : tm_refuse_format(&call->out[0]);
}

/* ---- gradient ---- */

/* The chain of the rows of each token (k = 0) or place (k = 1), ascending: first[v], then next[r], ended by -1. */
static int32_t *chain_first(const tm_call *call, int k)
{
    int64_t rows = tm_view_rows(&call->in[0]);
    bool    second = k == 1 && tm_view_present(&call->out[0]);
    return (int32_t *)call->workspace + (second ? tm_view_rows(&call->out[0]) + rows : 0);
}
static int32_t *chain_next(const tm_call *call, int k)
{
    return chain_first(call, k) + tm_view_rows(&call->out[k]);
}
static void build_chain(const tm_call *call, int k)
{
    const tm_embedding_attr *attr = call->attr;
    const int32_t           *keys = call->in[1 + k].data;
    int32_t                 *first = chain_first(call, k), *next = chain_next(call, k);
    int64_t                  n = tm_view_rows(&call->out[k]), least = k == 0 ? attr->first : 0;
    for (int64_t v = 0; v < n; v++) first[v] = -1;
    for (int64_t r = tm_view_rows(&call->in[0]) - 1; r >= 0; r--) {
        int64_t key = keys[r] - least;
        bool    here = key >= 0 && key < n;
        TM_ASSERT(here || (k == 0 && attr->part));
        if (!here || (k == 1 && !has_position(attr, r))) continue;
        next[r] = first[key];
        first[key] = (int32_t)r;
    }
}

/* Columns begin..end-1 of all rows of table k. */
TM_INLINE void chained_columns(const tm_call *call, int k, tm_dtype format, tm_dtype stored, int64_t begin, int64_t end)
{
    const int32_t *first = chain_first(call, k), *next = chain_next(call, k);
    const tm_view *out = &call->out[k];
    int64_t        columns = tm_view_columns(out), n_keys = tm_view_rows(out);
    bool           accumulate = call->accumulate >> k & 1u;
    for (int64_t v = 0; v < n_keys; v++) {
        if (accumulate && first[v] < 0) continue;
        for (int64_t j = begin; j < end; j += TM_LANES) {
            int64_t n = tm_lanes(j, end);
            v16     sum = accumulate ? v16_get(out->data, stored, v * columns + j, n) : v16_zero();
            for (int64_t r = first[v]; r >= 0; r = next[r])
                sum = v16_add(sum, v16_get(call->in[0].data, format, r * columns + j, n));
            v16_put(out->data, stored, v * columns + j, sum, n);
        }
    }
}
TM_INLINE void table_columns(const tm_call *call, tm_dtype format, tm_dtype stored, int64_t begin, int64_t end)
{
    chained_columns(call, 0, format, stored, begin, end);
}
TM_PART_2(table_columns, in[0], out[0])
TM_INLINE void place_columns(const tm_call *call, tm_dtype format, tm_dtype stored, int64_t begin, int64_t end)
{
    chained_columns(call, 1, format, stored, begin, end);
}
TM_PART_2(place_columns, in[0], out[1])

/* The same, but what is there before comes last (attr->apart). */
TM_INLINE void table_columns_apart(const tm_call *call, tm_dtype format, tm_dtype stored, int64_t begin, int64_t end)
{
    const int32_t *first = chain_first(call, 0), *next = chain_next(call, 0);
    int64_t        columns = tm_view_columns(&call->out[0]), vocabulary = tm_view_rows(&call->out[0]);
    for (int64_t v = 0; v < vocabulary; v++) {
        if (first[v] < 0) continue;
        for (int64_t j = begin; j < end; j += TM_LANES) {
            int64_t n = end - j < TM_LANES ? end - j : TM_LANES;
            v16     sum = v16_zero();
            for (int64_t r = first[v]; r >= 0; r = next[r])
                sum = v16_add(sum, v16_get(call->in[0].data, format, r * columns + j, n));
            sum = v16_add(v16_get(call->out[0].data, stored, v * columns + j, n), sum);
            v16_put(call->out[0].data, stored, v * columns + j, sum, n);
        }
    }
}
TM_PART_2(table_columns_apart, in[0], out[0])

/* Rows begin..end-1 of the table of positions. */
TM_INLINE void position_rows(const tm_call *call, tm_dtype format, tm_dtype stored, int64_t begin, int64_t end)
{
    const tm_embedding_attr *attr = call->attr;
    int64_t                  columns = tm_view_columns(&call->out[1]), rows = tm_view_elements(&call->in[1]);
    bool                     accumulate = call->accumulate & 2u;
    for (int64_t p = begin; p < end; p++)
        for (int64_t j = 0; j < columns; j += TM_LANES) {
            int64_t n = tm_lanes(j, columns);
            v16     sum = accumulate ? v16_get(call->out[1].data, stored, p * columns + j, n) : v16_zero();
            for (int64_t r = p < attr->seq ? p : rows; r < rows; r += attr->seq)
                if (has_position(attr, r)) sum = v16_add(sum, v16_get(call->in[0].data, format, r * columns + j, n));
            v16_put(call->out[1].data, stored, p * columns + j, sum, n);
        }
}
TM_PART_2(position_rows, in[0], out[1])

static TM_PLANNED size_t embedding_grad_workspace(const tm_call *call)
{
    int64_t chains = 0, rows = tm_view_rows(&call->in[0]);
    for (int k = 0; k < 2; k++) /* positions in order need none */
        if (tm_view_present(&call->out[k]) && tm_view_present(&call->in[1 + k]))
            chains += tm_view_rows(&call->out[k]) + rows;
    return (size_t)chains * sizeof(int32_t);
}
static void embedding_grad_run(const tm_call *call)
{
    const tm_embedding_attr *attr = call->attr;
    int64_t                  columns = tm_view_columns(&call->in[0]);
    if (tm_view_present(&call->out[0])) {
        int64_t elements = tm_view_elements(&call->in[0]);
        build_chain(call, 0);
        if (!(call->accumulate & 1u)) elements += tm_view_elements(&call->out[0]);
        bool apart = attr->apart && (call->accumulate & 1u);
        tm_parallel(call, apart ? table_columns_apart_part : table_columns_part, columns, TM_LANES, elements);
    }
    if (tm_view_present(&call->out[1]) && tm_view_present(&call->in[2])) {
        build_chain(call, 1);
        tm_parallel(call, place_columns_part, columns, TM_LANES,
                    tm_view_elements(&call->in[0]) + tm_view_elements(&call->out[1]));
    } else if (tm_view_present(&call->out[1]))
        tm_parallel(call, position_rows_part, tm_view_rows(&call->out[1]), 1, tm_view_elements(&call->in[0]));
}
static TM_PLANNED const char *embedding_grad_refuse(const tm_call *call)
{
    const char *why = call->in[1].dtype == TM_I32 ? NULL : "needs int32 tokens";
    if (!why && tm_view_present(&call->in[2]) && call->in[2].dtype != TM_I32) why = "needs int32 places";
    if (!why) why = tm_refuse_format(&call->in[0]);
    if (!why) why = tm_refuse_format(&call->out[0]);
    if (!why) why = tm_refuse_format(&call->out[1]);
    if (!why && tm_view_elements(&call->in[1]) > INT32_MAX) why = "more than 2^31 - 1 rows";
    return why;
}

const tm_kernel TM_K(tm_cpu_embedding)[] = {
    TM_KERNEL(embedding, "embedding/", embedding_refuse, NULL, embedding_run),
    TM_KERNEL(embedding_grad, "embedding_grad/", embedding_grad_refuse, embedding_grad_workspace, embedding_grad_run),
    { .name = NULL },
};
