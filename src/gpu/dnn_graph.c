/* SPDX-License-Identifier: Apache-2.0 */
/* gpu/dnn_graph.c - attention and its gradients as graphs of cuDNN's operations. With S the scores and P the
 * probabilities of a head (op/attention.c):
 *   S = scale q k^T, hidden where nothing is seen; m = max S, e = e^(S - m), l = sum e; o = (e / l) v, statistics m +
 * ln l P = e^(S - statistics); dv = P^T do; dS = scale (do v^T - sum(do o)) P; dk = dS^T q; dq = dS k
 */
#include "gpu/dnn_graph.h"

#include <string.h>

enum { NO_AXIS = -1, QUERIES = 2, KEYS = 3, DIMS = 4, ALIGN = 16 };

/* --- descriptors ----------------------------------------------------------------------------------------------------
 */

static void note(tm_dnn_graph *g, int status, const char *name)
{
    if (g->status != 0 || status == 0) return;
    g->status = status;
    g->failed = name;
}

void *tm_dnn_make(tm_dnn_graph *g, int kind)
{
    void *made = NULL;
    if (g->status != 0) return NULL;
    if (g->n_made == TM_DNN_MOST_MADE) {
        note(g, -1, "cudnnBackendCreateDescriptor: too many");
        return NULL;
    }
    note(g, g->call->make(kind, &made), "cudnnBackendCreateDescriptor");
    if (g->status == 0) g->made[g->n_made++] = made;
    return g->status == 0 ? made : NULL;
}

void tm_dnn_set(tm_dnn_graph *g, void *descriptor, int which, int type, int64_t n, const void *values)
{
    if (g->status == 0) note(g, g->call->set(descriptor, which, type, n, values), "cudnnBackendSetAttribute");
}

void tm_dnn_finish(tm_dnn_graph *g, void *descriptor)
{
    if (g->status == 0) note(g, g->call->finish(descriptor), "cudnnBackendFinalize");
}

void tm_dnn_get(tm_dnn_graph *g, void *descriptor, int which, int type, int64_t wanted, int64_t *n, void *values)
{
    if (g->status == 0) note(g, g->call->get(descriptor, which, type, wanted, n, values), "cudnnBackendGetAttribute");
}

void tm_dnn_drop(tm_dnn_graph *g)
{
    while (g->n_made > 0) g->call->drop(g->made[--g->n_made]);
}

static void set_descriptor(tm_dnn_graph *g, void *descriptor, int which, void *value)
{
    tm_dnn_set(g, descriptor, which, TM_DNN_T_DESCRIPTOR, 1, &value);
}

static void set_format(tm_dnn_graph *g, void *descriptor, int which, int format)
{
    tm_dnn_set(g, descriptor, which, TM_DNN_T_FORMAT, 1, &format);
}

/* --- tensors --------------------------------------------------------------------------------------------------------
 */

typedef struct {
    int64_t n[DIMS], stride[DIMS];
} layout;

/* id 0: one that exists between operations only. */
static void *tensor(tm_dnn_graph *g, tm_dnn_tensor id, int format, layout l)
{
    void   *t = tm_dnn_make(g, TM_DNN_OF_TENSOR);
    bool    inner = id == 0, by_value = id >= TM_DNN_SCALE;
    int64_t align = ALIGN, number = inner ? TM_DNN_TENSORS + g->inner++ : id;
    set_format(g, t, TM_DNN_A_FORMAT, format);
    tm_dnn_set(g, t, TM_DNN_A_EXTENTS, TM_DNN_T_I64, DIMS, l.n);
    tm_dnn_set(g, t, TM_DNN_A_STRIDES, TM_DNN_T_I64, DIMS, l.stride);
    tm_dnn_set(g, t, TM_DNN_A_UNIQUE, TM_DNN_T_I64, 1, &number);
    tm_dnn_set(g, t, TM_DNN_A_ALIGNMENT, TM_DNN_T_I64, 1, &align);
    tm_dnn_set(g, t, TM_DNN_A_VIRTUAL, TM_DNN_T_BOOL, 1, &inner);
    if (by_value) tm_dnn_set(g, t, TM_DNN_A_BY_VALUE, TM_DNN_T_BOOL, 1, &by_value);
    tm_dnn_finish(g, t);
    return t;
}

static layout transposed(layout l)
{
    return (layout){ { l.n[0], l.n[1], l.n[3], l.n[2] }, { l.stride[0], l.stride[1], l.stride[3], l.stride[2] } };
}

/* Heads beside each other in rows that lie ld elements apart. */
static layout rows(const tm_gpu_attention_shape *s, int64_t heads, int64_t length, int64_t dim, int64_t ld)
{
    return (layout){ { s->sequences, heads, length, dim }, { length * ld, dim, ld, 1 } };
}

/* Heads one after the other. */
static layout packed(const tm_gpu_attention_shape *s, int64_t heads, int64_t length, int64_t dim)
{
    return (layout){ { s->sequences, heads, length, dim }, { heads * length * dim, length * dim, dim, 1 } };
}

static layout scores(const tm_gpu_attention_shape *s)
{
    return packed(s, s->heads, s->queries, s->keys);
}

static layout statistics(const tm_gpu_attention_shape *s)
{
    return (layout){ { s->sequences, s->heads, s->queries, 1 }, { s->heads_of_all * s->queries, s->queries, 1, 1 } };
}

static layout query(const tm_gpu_attention_shape *s)
{
    return rows(s, s->heads, s->queries, s->dim_qk, s->ld_q);
}

static layout key(const tm_gpu_attention_shape *s)
{
    return rows(s, s->kv_heads, s->keys, s->dim_qk, s->ld_k);
}

static layout value(const tm_gpu_attention_shape *s)
{
    return rows(s, s->kv_heads, s->keys, s->dim_v, s->ld_v);
}

static layout result(const tm_gpu_attention_shape *s)
{
    return rows(s, s->heads, s->queries, s->dim_v, s->ld_o);
}

static void *number(tm_dnn_graph *g, tm_dnn_tensor id)
{
    return tensor(g, id, id == TM_DNN_WINDOW ? TM_DNN_I32 : TM_DNN_F32, (layout){ { 1, 1, 1, 1 }, { 1, 1, 1, 1 } });
}

static void *of_scores(tm_dnn_graph *g, const tm_gpu_attention_shape *s, int format)
{
    return tensor(g, 0, format, scores(s));
}

static void *of_queries(tm_dnn_graph *g, const tm_gpu_attention_shape *s)
{
    return tensor(g, 0, TM_DNN_F32, packed(s, s->heads, s->queries, 1));
}

/* --- operations -----------------------------------------------------------------------------------------------------
 */

static void add_operation(tm_dnn_graph *g, void *operation)
{
    tm_dnn_finish(g, operation);
    if (g->status == 0 && g->n_operations == TM_DNN_MOST_OPERATIONS) note(g, -1, "a graph with too many operations");
    if (g->status == 0) g->operations[g->n_operations++] = operation;
}

typedef struct {
    int   function, axis; /* axis: of TM_DNN_INDEX */
    void *x, *b, *where;  /* NULL: has none */
    int   computed;       /* in this format */
} pointwise;

static void *apply(tm_dnn_graph *g, pointwise p, void *y)
{
    void *how = tm_dnn_make(g, TM_DNN_POINTWISE), *operation;
    tm_dnn_set(g, how, TM_DNN_A_HOW_FUNCTION, TM_DNN_T_FUNCTION, 1, &p.function);
    set_format(g, how, TM_DNN_A_HOW_COMPUTED, p.computed);
    if (p.function == TM_DNN_INDEX) {
        int64_t axis = p.axis;
        tm_dnn_set(g, how, TM_DNN_A_HOW_AXIS, TM_DNN_T_I64, 1, &axis);
    }
    tm_dnn_finish(g, how);
    operation = tm_dnn_make(g, TM_DNN_OF_POINTWISE);
    set_descriptor(g, operation, TM_DNN_A_APPLIED, how);
    set_descriptor(g, operation, TM_DNN_A_APPLIED_X, p.x);
    if (p.b) set_descriptor(g, operation, TM_DNN_A_APPLIED_B, p.b);
    if (p.where) set_descriptor(g, operation, TM_DNN_A_APPLIED_T, p.where);
    set_descriptor(g, operation, TM_DNN_A_APPLIED_Y, y);
    add_operation(g, operation);
    return y;
}

/* b NULL: of one argument. */
static void *function(tm_dnn_graph *g, int which, void *x, void *b, void *y)
{
    return apply(g, (pointwise){ .function = which, .x = x, .b = b, .computed = TM_DNN_F32 }, y);
}

static void *reduce(tm_dnn_graph *g, int which, void *x, void *y)
{
    void *how = tm_dnn_make(g, TM_DNN_REDUCTION), *operation;
    tm_dnn_set(g, how, TM_DNN_A_REDUCED_BY, TM_DNN_T_REDUCTION, 1, &which);
    set_format(g, how, TM_DNN_A_REDUCED_COMPUTED, TM_DNN_F32);
    tm_dnn_finish(g, how);
    operation = tm_dnn_make(g, TM_DNN_OF_REDUCTION);
    set_descriptor(g, operation, TM_DNN_A_REDUCED, how);
    set_descriptor(g, operation, TM_DNN_A_REDUCED_X, x);
    set_descriptor(g, operation, TM_DNN_A_REDUCED_Y, y);
    add_operation(g, operation);
    return y;
}

static void *multiply(tm_dnn_graph *g, void *a, void *b, void *c)
{
    void *how = tm_dnn_make(g, TM_DNN_MATMUL), *operation;
    set_format(g, how, TM_DNN_A_PRODUCT_COMPUTED, TM_DNN_F32);
    tm_dnn_finish(g, how);
    operation = tm_dnn_make(g, TM_DNN_OF_MATMUL);
    set_descriptor(g, operation, TM_DNN_A_PRODUCT, how);
    set_descriptor(g, operation, TM_DNN_A_PRODUCT_A, a);
    set_descriptor(g, operation, TM_DNN_A_PRODUCT_B, b);
    set_descriptor(g, operation, TM_DNN_A_PRODUCT_C, c);
    add_operation(g, operation);
    return c;
}

static void *reshape(tm_dnn_graph *g, void *x, void *y)
{
    void *operation = tm_dnn_make(g, TM_DNN_OF_RESHAPE);
    set_descriptor(g, operation, TM_DNN_A_RESHAPED_X, x);
    set_descriptor(g, operation, TM_DNN_A_RESHAPED_Y, y);
    add_operation(g, operation);
    return y;
}

static void *index_of(tm_dnn_graph *g, const tm_gpu_attention_shape *s, void *x, int axis)
{
    return apply(g, (pointwise){ .function = TM_DNN_INDEX, .axis = axis, .x = x, .computed = TM_DNN_F32 },
                 of_scores(g, s, TM_DNN_I32));
}

/* The score where a compares with b so, else the hidden one. */
static void *hide(tm_dnn_graph *g, const tm_gpu_attention_shape *s, void *x, void *hidden, int how, void *a, void *b)
{
    void *seen = apply(g, (pointwise){ .function = how, .x = a, .b = b, .computed = TM_DNN_BOOLEAN },
                       of_scores(g, s, TM_DNN_BOOLEAN));
    return apply(g,
                 (pointwise){ .function = TM_DNN_SELECT, .x = x, .b = hidden, .where = seen, .computed = TM_DNN_F32 },
                 of_scores(g, s, TM_DNN_F32));
}

static void *mask(tm_dnn_graph *g, const tm_gpu_attention_shape *s, void *x)
{
    void *i, *j, *hidden;
    if (!s->causal) return x;
    hidden = number(g, TM_DNN_HIDDEN);
    i = index_of(g, s, x, QUERIES);
    j = index_of(g, s, x, KEYS);
    x = hide(g, s, x, hidden, TM_DNN_NOT_LESS, i, j);
    if (s->window <= 0) return x;
    i = index_of(g, s, x, QUERIES);
    j = index_of(g, s, x, KEYS);
    j = apply(g, (pointwise){ .function = TM_DNN_ADD, .x = j, .b = number(g, TM_DNN_WINDOW), .computed = TM_DNN_I32 },
              of_scores(g, s, TM_DNN_I32));
    return hide(g, s, x, hidden, TM_DNN_GREATER, j, i);
}

static void *scaled_scores(tm_dnn_graph *g, const tm_gpu_attention_shape *s, void *q, void *k, void *scale)
{
    void *x = multiply(g, q, k, of_scores(g, s, TM_DNN_F32));
    return function(g, TM_DNN_MUL, x, scale, of_scores(g, s, TM_DNN_F32));
}

static void forward(tm_dnn_graph *g, const tm_gpu_attention_shape *s)
{
    void *q = tensor(g, TM_DNN_Q, TM_DNN_BF16, query(s)), *k = tensor(g, TM_DNN_K, TM_DNN_BF16, transposed(key(s)));
    void *v = tensor(g, TM_DNN_V, TM_DNN_BF16, value(s)), *o = tensor(g, TM_DNN_O, TM_DNN_BF16, result(s));
    void *kept = tensor(g, TM_DNN_STATISTICS, TM_DNN_F32, statistics(s));
    void *x = mask(g, s, scaled_scores(g, s, q, k, number(g, TM_DNN_SCALE)));
    void *most = reduce(g, TM_DNN_LARGEST, x, of_queries(g, s));
    void *e = function(g, TM_DNN_SUB, x, most, of_scores(g, s, TM_DNN_F32));
    e = function(g, TM_DNN_EXP, e, NULL, of_scores(g, s, TM_DNN_F32));
    void *sum = reduce(g, TM_DNN_SUM, e, of_queries(g, s));
    void *ln = function(g, TM_DNN_LOG, sum, NULL, of_queries(g, s));
    function(g, TM_DNN_ADD, most, ln, kept);
    multiply(g, function(g, TM_DNN_DIV, e, sum, of_scores(g, s, TM_DNN_BF16)), v, o);
}

/* p^T x, of the heads of queries; summed over those that read the same keys. */
static void grouped(tm_dnn_graph *g, const tm_gpu_attention_shape *s, void *p, void *x, void *to, int64_t dim)
{
    void *turned = reshape(g, p, tensor(g, 0, TM_DNN_BF16, transposed(scores(s))));
    if (s->heads == s->kv_heads) {
        multiply(g, turned, x, to);
        return;
    }
    reduce(g, TM_DNN_SUM, multiply(g, turned, x, tensor(g, 0, TM_DNN_F32, packed(s, s->heads, s->keys, dim))), to);
}

static void backward(tm_dnn_graph *g, const tm_gpu_attention_shape *s)
{
    void *q = tensor(g, TM_DNN_Q, TM_DNN_BF16, query(s)), *k = tensor(g, TM_DNN_K, TM_DNN_BF16, transposed(key(s)));
    void *v = tensor(g, TM_DNN_V, TM_DNN_BF16, transposed(value(s))), *o = tensor(g, TM_DNN_O, TM_DNN_BF16, result(s));
    void *d_o = tensor(g, TM_DNN_D_O, TM_DNN_BF16, result(s)),
         *kept = tensor(g, TM_DNN_STATISTICS, TM_DNN_F32, statistics(s));
    void  *dq = tensor(g, TM_DNN_DQ, TM_DNN_BF16, rows(s, s->heads, s->queries, s->dim_qk, s->ld_dq));
    void  *dk = tensor(g, TM_DNN_DK, TM_DNN_BF16, rows(s, s->kv_heads, s->keys, s->dim_qk, s->ld_dk));
    void  *dv = tensor(g, TM_DNN_DV, TM_DNN_BF16, rows(s, s->kv_heads, s->keys, s->dim_v, s->ld_dv));
    void  *scale = number(g, TM_DNN_SCALE);
    layout of_result = rows(s, s->heads, s->queries, s->dim_v, s->heads * s->dim_v);
    void  *delta =
        reduce(g, TM_DNN_SUM, function(g, TM_DNN_MUL, d_o, o, tensor(g, 0, TM_DNN_F32, of_result)), of_queries(g, s));
    delta = function(g, TM_DNN_MUL, delta, number(g, TM_DNN_ONE), of_queries(g, s));
    void *x = scaled_scores(g, s, q, k, scale);
    x = mask(g, s, function(g, TM_DNN_SUB, x, kept, of_scores(g, s, TM_DNN_F32)));
    void *p = function(g, TM_DNN_EXP, x, NULL, of_scores(g, s, TM_DNN_F32));
    grouped(g, s, p, d_o, dv, s->dim_v);
    void *dx =
        function(g, TM_DNN_SUB, multiply(g, d_o, v, of_scores(g, s, TM_DNN_F32)), delta, of_scores(g, s, TM_DNN_F32));
    dx = function(g, TM_DNN_MUL, dx, p, of_scores(g, s, TM_DNN_F32));
    dx = function(g, TM_DNN_MUL, dx, scale, of_scores(g, s, TM_DNN_BF16));
    grouped(g, s, dx, q, dk, s->dim_qk);
    multiply(g, dx, reshape(g, k, tensor(g, 0, TM_DNN_BF16, key(s))), dq);
}

bool tm_dnn_has(const tm_gpu_attention_shape *shape, tm_dnn_tensor id)
{
    switch (id) {
    case TM_DNN_D_O:
    case TM_DNN_DQ:
    case TM_DNN_DK:
    case TM_DNN_DV:
    case TM_DNN_ONE:
        return shape->gradients;
    case TM_DNN_HIDDEN:
        return shape->causal;
    case TM_DNN_WINDOW:
        return shape->causal && shape->window > 0;
    default:
        return true;
    }
}

void *tm_dnn_attention(tm_dnn_graph *g, const tm_gpu_attention_shape *shape)
{
    void *graph;
    if (shape->gradients)
        backward(g, shape);
    else
        forward(g, shape);
    graph = tm_dnn_make(g, TM_DNN_GRAPH);
    tm_dnn_set(g, graph, TM_DNN_A_GRAPH_OPERATIONS, TM_DNN_T_DESCRIPTOR, g->n_operations, g->operations);
    return graph;
}
