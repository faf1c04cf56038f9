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

/* X(name, value, cuDNN's expression): kinds of descriptors; types (T), names (A) and values of attributes; statuses
 * that begin a range. `make judge-headers` compares them, and the calls, with cudnn_graph.h. */
#define DNN_NUMBERS(X)                                                                                                 \
    X(TM_DNN_POINTWISE, 0, "CUDNN_BACKEND_POINTWISE_DESCRIPTOR")                                                       \
    X(TM_DNN_ENGINE, 2, "CUDNN_BACKEND_ENGINE_DESCRIPTOR")                                                             \
    X(TM_DNN_ENGINE_CONFIG, 3, "CUDNN_BACKEND_ENGINECFG_DESCRIPTOR")                                                   \
    X(TM_DNN_HEURISTICS, 4, "CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR")                                                     \
    X(TM_DNN_PLAN, 5, "CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR")                                                       \
    X(TM_DNN_OF_POINTWISE, 13, "CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR")                                         \
    X(TM_DNN_GRAPH, 15, "CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR")                                                     \
    X(TM_DNN_PACK, 16, "CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR")                                                        \
    X(TM_DNN_OF_TENSOR, 17, "CUDNN_BACKEND_TENSOR_DESCRIPTOR")                                                         \
    X(TM_DNN_MATMUL, 18, "CUDNN_BACKEND_MATMUL_DESCRIPTOR")                                                            \
    X(TM_DNN_OF_MATMUL, 19, "CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR")                                               \
    X(TM_DNN_REDUCTION, 21, "CUDNN_BACKEND_REDUCTION_DESCRIPTOR")                                                      \
    X(TM_DNN_OF_REDUCTION, 22, "CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR")                                         \
    X(TM_DNN_OF_RESHAPE, 31, "CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR")                                             \
    X(TM_DNN_T_HANDLE, 0, "CUDNN_TYPE_HANDLE")                                                                         \
    X(TM_DNN_T_FORMAT, 1, "CUDNN_TYPE_DATA_TYPE")                                                                      \
    X(TM_DNN_T_BOOL, 2, "CUDNN_TYPE_BOOLEAN")                                                                          \
    X(TM_DNN_T_I64, 3, "CUDNN_TYPE_INT64")                                                                             \
    X(TM_DNN_T_ADDRESS, 6, "CUDNN_TYPE_VOID_PTR")                                                                      \
    X(TM_DNN_T_HEURISTIC, 8, "CUDNN_TYPE_HEUR_MODE")                                                                   \
    X(TM_DNN_T_NOTE, 11, "CUDNN_TYPE_NUMERICAL_NOTE")                                                                  \
    X(TM_DNN_T_FUNCTION, 14, "CUDNN_TYPE_POINTWISE_MODE")                                                              \
    X(TM_DNN_T_DESCRIPTOR, 15, "CUDNN_TYPE_BACKEND_DESCRIPTOR")                                                        \
    X(TM_DNN_T_REDUCTION, 18, "CUDNN_TYPE_REDUCTION_OPERATOR_TYPE")                                                    \
    X(TM_DNN_T_CHAR, 24, "CUDNN_TYPE_CHAR")                                                                            \
    X(TM_DNN_A_HOW_FUNCTION, 0, "CUDNN_ATTR_POINTWISE_MODE")                                                           \
    X(TM_DNN_A_HOW_COMPUTED, 1, "CUDNN_ATTR_POINTWISE_MATH_PREC")                                                      \
    X(TM_DNN_A_HOW_AXIS, 9, "CUDNN_ATTR_POINTWISE_AXIS")                                                               \
    X(TM_DNN_A_HEURISTIC_MODE, 200, "CUDNN_ATTR_ENGINEHEUR_MODE")                                                      \
    X(TM_DNN_A_HEURISTIC_GRAPH, 201, "CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH")                                          \
    X(TM_DNN_A_HEURISTIC_RESULTS, 202, "CUDNN_ATTR_ENGINEHEUR_RESULTS")                                                \
    X(TM_DNN_A_CONFIG_ENGINE, 300, "CUDNN_ATTR_ENGINECFG_ENGINE")                                                      \
    X(TM_DNN_A_PLAN_HANDLE, 400, "CUDNN_ATTR_EXECUTION_PLAN_HANDLE")                                                   \
    X(TM_DNN_A_PLAN_CONFIG, 401, "CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG")                                            \
    X(TM_DNN_A_PLAN_WORKSPACE, 402, "CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE")                                        \
    X(TM_DNN_A_PLAN_TEXT, 405, "CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION")                                        \
    X(TM_DNN_A_APPLIED, 750, "CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR")                                           \
    X(TM_DNN_A_APPLIED_X, 751, "CUDNN_ATTR_OPERATION_POINTWISE_XDESC")                                                 \
    X(TM_DNN_A_APPLIED_B, 752, "CUDNN_ATTR_OPERATION_POINTWISE_BDESC")                                                 \
    X(TM_DNN_A_APPLIED_Y, 753, "CUDNN_ATTR_OPERATION_POINTWISE_YDESC")                                                 \
    X(TM_DNN_A_APPLIED_T, 758, "CUDNN_ATTR_OPERATION_POINTWISE_TDESC")                                                 \
    X(TM_DNN_A_GRAPH_HANDLE, 800, "CUDNN_ATTR_OPERATIONGRAPH_HANDLE")                                                  \
    X(TM_DNN_A_GRAPH_OPERATIONS, 801, "CUDNN_ATTR_OPERATIONGRAPH_OPS")                                                 \
    X(TM_DNN_A_ALIGNMENT, 900, "CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT")                                                     \
    X(TM_DNN_A_FORMAT, 901, "CUDNN_ATTR_TENSOR_DATA_TYPE")                                                             \
    X(TM_DNN_A_EXTENTS, 902, "CUDNN_ATTR_TENSOR_DIMENSIONS")                                                           \
    X(TM_DNN_A_STRIDES, 903, "CUDNN_ATTR_TENSOR_STRIDES")                                                              \
    X(TM_DNN_A_UNIQUE, 906, "CUDNN_ATTR_TENSOR_UNIQUE_ID")                                                             \
    X(TM_DNN_A_VIRTUAL, 907, "CUDNN_ATTR_TENSOR_IS_VIRTUAL")                                                           \
    X(TM_DNN_A_BY_VALUE, 908, "CUDNN_ATTR_TENSOR_IS_BY_VALUE")                                                         \
    X(TM_DNN_A_PACK_IDS, 1000, "CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS")                                                   \
    X(TM_DNN_A_PACK_ADDRESSES, 1001, "CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS")                                          \
    X(TM_DNN_A_PACK_WORKSPACE, 1003, "CUDNN_ATTR_VARIANT_PACK_WORKSPACE")                                              \
    X(TM_DNN_A_ENGINE_NOTES, 1303, "CUDNN_ATTR_ENGINE_NUMERICAL_NOTE")                                                 \
    X(TM_DNN_A_PRODUCT_COMPUTED, 1500, "CUDNN_ATTR_MATMUL_COMP_TYPE")                                                  \
    X(TM_DNN_A_PRODUCT_A, 1520, "CUDNN_ATTR_OPERATION_MATMUL_ADESC")                                                   \
    X(TM_DNN_A_PRODUCT_B, 1521, "CUDNN_ATTR_OPERATION_MATMUL_BDESC")                                                   \
    X(TM_DNN_A_PRODUCT_C, 1522, "CUDNN_ATTR_OPERATION_MATMUL_CDESC")                                                   \
    X(TM_DNN_A_PRODUCT, 1523, "CUDNN_ATTR_OPERATION_MATMUL_DESC")                                                      \
    X(TM_DNN_A_REDUCED_BY, 1600, "CUDNN_ATTR_REDUCTION_OPERATOR")                                                      \
    X(TM_DNN_A_REDUCED_COMPUTED, 1601, "CUDNN_ATTR_REDUCTION_COMP_TYPE")                                               \
    X(TM_DNN_A_REDUCED_X, 1610, "CUDNN_ATTR_OPERATION_REDUCTION_XDESC")                                                \
    X(TM_DNN_A_REDUCED_Y, 1611, "CUDNN_ATTR_OPERATION_REDUCTION_YDESC")                                                \
    X(TM_DNN_A_REDUCED, 1612, "CUDNN_ATTR_OPERATION_REDUCTION_DESC")                                                   \
    X(TM_DNN_A_RESHAPED_X, 2200, "CUDNN_ATTR_OPERATION_RESHAPE_XDESC")                                                 \
    X(TM_DNN_A_RESHAPED_Y, 2201, "CUDNN_ATTR_OPERATION_RESHAPE_YDESC")                                                 \
    X(TM_DNN_F32, 0, "CUDNN_DATA_FLOAT")                                                                               \
    X(TM_DNN_I32, 4, "CUDNN_DATA_INT32")                                                                               \
    X(TM_DNN_BF16, 9, "CUDNN_DATA_BFLOAT16")                                                                           \
    X(TM_DNN_BOOLEAN, 11, "CUDNN_DATA_BOOLEAN")                                                                        \
    X(TM_DNN_ADD, 0, "CUDNN_POINTWISE_ADD")                                                                            \
    X(TM_DNN_MUL, 1, "CUDNN_POINTWISE_MUL")                                                                            \
    X(TM_DNN_DIV, 6, "CUDNN_POINTWISE_DIV")                                                                            \
    X(TM_DNN_SUB, 9, "CUDNN_POINTWISE_SUB")                                                                            \
    X(TM_DNN_EXP, 13, "CUDNN_POINTWISE_EXP")                                                                           \
    X(TM_DNN_LOG, 15, "CUDNN_POINTWISE_LOG")                                                                           \
    X(TM_DNN_GREATER, 302, "CUDNN_POINTWISE_CMP_GT")                                                                   \
    X(TM_DNN_NOT_LESS, 303, "CUDNN_POINTWISE_CMP_GE")                                                                  \
    X(TM_DNN_INDEX, 501, "CUDNN_POINTWISE_GEN_INDEX")                                                                  \
    X(TM_DNN_SELECT, 601, "CUDNN_POINTWISE_BINARY_SELECT")                                                             \
    X(TM_DNN_SUM, 0, "CUDNN_REDUCE_TENSOR_ADD")                                                                        \
    X(TM_DNN_LARGEST, 3, "CUDNN_REDUCE_TENSOR_MAX")                                                                    \
    X(TM_DNN_NOTE_DIFFERS, 4, "CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC")                                                 \
    X(TM_DNN_MODE_A, 3, "CUDNN_HEUR_MODE_A")                                                                           \
    X(TM_DNN_UNSUPPORTED, 3000, "CUDNN_STATUS_NOT_SUPPORTED")                                                          \
    X(TM_DNN_INTERNAL, 4000, "CUDNN_STATUS_INTERNAL_ERROR")

enum {
#define X(name, value, cudnn) name = (value),
    DNN_NUMBERS(X)
#undef X
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
