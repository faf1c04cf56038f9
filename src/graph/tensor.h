/* SPDX-License-Identifier: Apache-2.0 */
/* graph/tensor.h - number formats, shapes, roles.
 *
 * Dimension letters, the same everywhere: B batch, T tokens of a sequence, N = B T rows, C channels (model width),
 * H query heads, J key/value heads, D head size, F feed-forward width, V vocabulary, L layers.
 * int64_t counts elements, size_t counts bytes.
 */
#ifndef TM_GRAPH_TENSOR_H
#define TM_GRAPH_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(id, name, bytes of an element) */
#define TM_DTYPE_LIST(X)                                                                                               \
    X(F64, "float64", 8) X(F32, "float32", 4) X(BF16, "bfloat16", 2) X(I32, "int32", 4)
typedef enum {
#define X(id, name, bytes) TM_##id,
    TM_DTYPE_LIST(X)
#undef X
        TM_DTYPE_COUNT
} tm_dtype;

const char *tm_dtype_name(tm_dtype dtype);
size_t      tm_dtype_bytes(tm_dtype dtype);

enum { TM_MAX_RANK = 4 };

typedef struct {
    int     rank; /* -1: absent (an optional input that is not there); 0: a scalar */
    int64_t n[TM_MAX_RANK];
} tm_shape;

static inline tm_shape tm_shape_1(int64_t a)
{
    return (tm_shape){ .rank = 1, .n = { a } };
}
static inline tm_shape tm_shape_2(int64_t a, int64_t b)
{
    return (tm_shape){ .rank = 2, .n = { a, b } };
}
static inline tm_shape tm_shape_3(int64_t a, int64_t b, int64_t c)
{
    return (tm_shape){ .rank = 3, .n = { a, b, c } };
}
int64_t tm_shape_elements(tm_shape shape); /* checked: an overflow is a bug */
bool    tm_shape_equal(tm_shape a, tm_shape b);
char   *tm_shape_text(char out[96], tm_shape shape); /* "(2048, 768)" */

/* What a tensor is for. The role decides its number format (tm_precision), its memory class and whether it outlives a
 * program. X(id, memory class, persistent) */
#define TM_ROLE_LIST(X)                                                                                                \
    X(PARAMETER, "weights", true)                                                                                      \
    X(WEIGHT_COPY, "weights", false) /* a parameter cast to the compute format, for a moment */                        \
    X(GRADIENT, "gradients", true)   /* of a parameter; accumulates over micro-batches */                              \
    X(MOMENT, "optimizer", true)                                                                                       \
    X(CONSTANT, "constants", true)   /* filled once: rotary tables */                                                  \
    X(INPUT, "inputs", true)         /* tokens, targets: int32 */                                                      \
    X(SCALAR, "scalars", true)       /* changing scalars and accumulators, float64 */                                  \
    X(ACTIVATION, "activations", false) /* and gradients of activations */                                             \
    X(STATISTIC, "activations", false)  /* row statistics of norms and softmax: float32 or better */                   \
    X(LOGITS, "logits", false)          /* one chunk, float32 or better */                                             \
    X(WORKSPACE, "workspace", false)
typedef enum {
#define X(id, memory, persistent) TM_ROLE_##id,
    TM_ROLE_LIST(X)
#undef X
        TM_ROLE_COUNT
} tm_role;

const char *tm_role_memory_class(tm_role role);
bool        tm_role_persistent(tm_role role);

/* Which number format each role is stored in. */
typedef struct {
    const char *name;                                       /* "float32", "bfloat16", "bfloat16-pure", "float64" */
    tm_dtype    parameter, compute, gradient, moment, wide; /* wide: statistics and logits */
} tm_precision;

extern const tm_precision tm_precision_f64;       /* the reference device */
extern const tm_precision tm_precision_f32;
extern const tm_precision tm_precision_bf16;      /* regime A: float32 master, bfloat16 compute, float32 gradient */
extern const tm_precision tm_precision_bf16_pure; /* regime C: everything bfloat16 */

tm_dtype tm_precision_of(const tm_precision *precision, tm_role role);

/* A tensor as a kernel sees it: dense, row-major. data is NULL at plan time and for an absent optional input. */
typedef struct {
    tm_dtype dtype;
    tm_shape shape;
    void    *data;
} tm_view;

#endif
