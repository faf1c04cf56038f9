/* SPDX-License-Identifier: Apache-2.0 */
/* gpu/dnn_graph.h - attention as a graph of cuDNN's operations: matrix products, reductions, and functions of elements.
 * The library recognises the graph as a whole, so order and formats of the operations are those it knows (NVIDIA's
 * cudnn-frontend composes the same). Private to gpu/dnn.c, and for tests of what a library takes without a GPU. */
#ifndef TM_GPU_DNN_GRAPH_H
#define TM_GPU_DNN_GRAPH_H

#include "gpu/dnn.h"

/* X(member, result, arguments, cuDNN's name) */
#define DNN_CALLS(X)                                                                                                   \
    X(version, size_t, (void), "cudnnGetVersion")                                                                      \
    X(words, const char *, (int status), "cudnnGetErrorString")                                                        \
    X(last_words, void, (char *text, size_t bytes), "cudnnGetLastErrorString")                                         \
    X(create, int, (void **handle), "cudnnCreate")                                                                     \
    X(destroy, int, (void *handle), "cudnnDestroy")                                                                    \
    X(set_stream, int, (void *handle, void *stream), "cudnnSetStream")                                                 \
    X(make, int, (int kind, void **descriptor), "cudnnBackendCreateDescriptor")                                        \
    X(drop, int, (void *descriptor), "cudnnBackendDestroyDescriptor")                                                  \
    X(set, int, (void *descriptor, int which, int type, int64_t n, const void *values), "cudnnBackendSetAttribute")    \
    X(get, int, (void *descriptor, int which, int type, int64_t wanted, int64_t *n, void *values),                     \
      "cudnnBackendGetAttribute")                                                                                      \
    X(finish, int, (void *descriptor), "cudnnBackendFinalize")                                                         \
    X(execute, int, (void *handle, void *plan, void *values), "cudnnBackendExecute")

typedef struct {
#define X(member, result, arguments, name) result(*member) arguments;
    DNN_CALLS(X)
#undef X
} tm_dnn_calls;

/* Tensors that an execution gives addresses of; of the last four, addresses of numbers on the host. */
typedef enum {
    TM_DNN_Q = 1,
    TM_DNN_K,
    TM_DNN_V,
    TM_DNN_O,
    TM_DNN_STATISTICS,
    TM_DNN_D_O,
    TM_DNN_DQ,
    TM_DNN_DK,
    TM_DNN_DV,
    TM_DNN_SCALE,
    TM_DNN_ONE,
    TM_DNN_HIDDEN, /* the score of a key that is not seen */
    TM_DNN_WINDOW, /* whole */
    TM_DNN_TENSORS
} tm_dnn_tensor;

enum { TM_DNN_MOST_MADE = 128, TM_DNN_MOST_OPERATIONS = 32 };

/* What is made of calls: `status` is that of the first one that failed, `failed` its name. */
typedef struct {
    const tm_dnn_calls *call;
    int                 status;
    const char         *failed;
    void               *made[TM_DNN_MOST_MADE]; /* descriptors, to be dropped */
    int                 n_made;
    void               *operations[TM_DNN_MOST_OPERATIONS];
    int                 n_operations;
    int64_t             inner; /* of tensors that exist between operations only: the last number */
} tm_dnn_graph;

/* Kinds of descriptors, and numbers of attributes, types and values: cudnn_graph.h of cuDNN 9. */
enum {
    TM_DNN_POINTWISE = 0,
    TM_DNN_ENGINE_CONFIG = 3,
    TM_DNN_HEURISTICS = 4,
    TM_DNN_PLAN = 5,
    TM_DNN_OF_POINTWISE = 13,
    TM_DNN_GRAPH = 15,
    TM_DNN_PACK = 16,
    TM_DNN_OF_TENSOR = 17,
    TM_DNN_MATMUL = 18,
    TM_DNN_OF_MATMUL = 19,
    TM_DNN_REDUCTION = 21,
    TM_DNN_OF_REDUCTION = 22,
    TM_DNN_OF_RESHAPE = 31,
    TM_DNN_PROPERTIES = 38
};
enum {
    TM_DNN_T_HANDLE = 0,
    TM_DNN_T_FORMAT = 1,
    TM_DNN_T_BOOL = 2,
    TM_DNN_T_I64 = 3,
    TM_DNN_T_ADDRESS = 6,
    TM_DNN_T_HEURISTIC = 8,
    TM_DNN_T_FUNCTION = 14,
    TM_DNN_T_DESCRIPTOR = 15,
    TM_DNN_T_REDUCTION = 18,
    TM_DNN_T_CHAR = 24
};

/* A descriptor, which the graph has to drop. NULL after a failure: the calls below then do nothing. */
void *tm_dnn_make(tm_dnn_graph *g, int kind);
void  tm_dnn_set(tm_dnn_graph *g, void *descriptor, int which, int type, int64_t n, const void *values);
void  tm_dnn_finish(tm_dnn_graph *g, void *descriptor);
void  tm_dnn_get(tm_dnn_graph *g, void *descriptor, int which, int type, int64_t wanted, int64_t *n, void *values);

/* The operations of a shape, for g with `call` set and zeros else. Returns the descriptor of the graph, without a
 * handle: not finished. */
void *tm_dnn_attention(tm_dnn_graph *g, const tm_gpu_attention_shape *shape);
/* Has the graph of a shape this tensor? */
bool tm_dnn_has(const tm_gpu_attention_shape *shape, tm_dnn_tensor id);
void tm_dnn_drop(tm_dnn_graph *g);

#endif
