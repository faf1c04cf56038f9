/* SPDX-License-Identifier: Apache-2.0 */
/* graph/tensor.h - number formats, shapes, roles, spaces.
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

/* X(id, name, bits of an element, kind). Checkpoints store the number of a format: appended to, never renumbered.
 * FLOAT: graph/value.h reads and writes it. INT: whole numbers. */
/* clang-format off: it does not come to rest here */
#define TM_DTYPE_LIST(X)                                                                                               \
    X(F64, "float64", 64, FLOAT)                                                                                       \
    X(F32, "float32", 32, FLOAT)                                                                                       \
    X(BF16, "bfloat16", 16, FLOAT)                                                                                     \
    X(I32, "int32", 32, INT)                                                                                           \
    X(F16, "float16", 16, FLOAT)                                                                                       \
    X(E4M3, "float8_e4m3", 8, FLOAT)         /* OCP: no infinity, largest 448 */                                       \
    X(E5M2, "float8_e5m2", 8, FLOAT)         /* OCP: as IEEE */                                                        \
    X(E4M3FNUZ, "float8_e4m3fnuz", 8, FLOAT) /* bias one higher, no infinity, no -0: 0x80 is NaN; largest 240 */       \
    X(E5M2FNUZ, "float8_e5m2fnuz", 8, FLOAT)                                                                           \
    X(E8M0, "float8_e8m0", 8, FLOAT) /* powers of two, 2^-127 .. 2^127: scales of MX blocks */                         \
    X(E2M1, "float4_e2m1", 4, FLOAT) /* 0, 0.5, 1, 1.5, 2, 3, 4, 6: MXFP4, NVFP4 */                                    \
    X(NF4, "nf4", 4, FLOAT)          /* sixteen quantiles of a normal distribution in [-1, 1] */                       \
    X(I64, "int64", 64, INT)                                                                                           \
    X(U8, "uint8", 8, INT)                                                                                             \
    X(NF4_BLOCKS, "nf4_blocks", 4, FLOAT)          /* NF4 with the scales of its blocks (graph/nf4.h), read only */    \
    X(E4M3_BLOCKS, "float8_e4m3_blocks", 8, FLOAT) /* E4M3 with scales of blocks (graph/blocks.h), read only */        \
    X(E3M2, "float6_e3m2", 8, FLOAT)               /* MXFP6: 6 bits, here in the low bits of a byte; largest 28 */     \
    X(E2M3, "float6_e2m3", 8, FLOAT)               /* likewise; largest 7.5 */                                         \
    X(NF4_SCALED, "nf4_scaled", 4, FLOAT)          /* a part of NF4_BLOCKS (graph/blocks.h), read only */
/* clang-format on */
typedef enum { TM_KIND_FLOAT, TM_KIND_INT } tm_dtype_kind;
typedef enum {
#define X(id, name, bits, kind) TM_##id,
    TM_DTYPE_LIST(X)
#undef X
        TM_DTYPE_COUNT
} tm_dtype;

const char *tm_dtype_name(tm_dtype dtype);
int         tm_dtype_bits(tm_dtype dtype);
size_t      tm_dtype_bytes(tm_dtype dtype); /* of formats of whole bytes; 4-bit formats are a bug here */
bool        tm_dtype_floating(tm_dtype dtype);
bool        tm_dtype_small(tm_dtype dtype); /* float16, 8 bits and fewer: weights are held in them, not computed with */

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

/* Bytes of a dense tensor, the last one filled up where elements are smaller than a byte. */
size_t tm_tensor_bytes(tm_shape shape, tm_dtype dtype);

/* A named part of a sample: what a data source gives and a model takes. shape: of one sample; the inputs of a program
 * have those of a micro-batch one after the other along the first axis. */
typedef struct {
    const char *name; /* "tokens" */
    tm_dtype    dtype;
    tm_shape    shape;
    double      empty; /* every element of a sample that is not there */
} tm_field;
enum { TM_MAX_FIELDS = 8 };

/* What a tensor is for. The role decides its number format (tm_precision), its memory class and whether it outlives a
 * program. X(id, memory class, persistent) */
#define TM_ROLE_LIST(X)                                                                                                \
    X(PARAMETER, "weights", true)                                                                                      \
    X(WEIGHT_COPY, "weights", false) /* a parameter cast to the compute format, for a moment */                        \
    X(GRADIENT, "gradients", true)   /* of a parameter; accumulates over micro-batches */                              \
    X(MOMENT, "optimizer", true)                                                                                       \
    X(CONSTANT, "constants", true)      /* filled once: rotary tables */                                               \
    X(INPUT, "inputs", true)            /* fields of a batch, in the format that its source declares; default int32 */ \
    X(SCALAR, "scalars", true)          /* changing scalars and accumulators, float64 */                               \
    X(ACTIVATION, "activations", false) /* and gradients of activations */                                             \
    X(STATISTIC, "activations", false)  /* row statistics of norms and softmax: float32 or better */                   \
    X(LOGITS, "logits", false)          /* one chunk, float32 or better */                                             \
    X(WORKSPACE, "workspace", false)                                                                                   \
    X(INDEX, "activations", false) /* int32 that an op computes: routes, orders, offsets; has no gradient */           \
    X(STATE, "state", true)        /* what ops marked `state` carry from step to step: amax history, counters; in      \
                                    * checkpoints, never made twice by a pass, not written by evaluation */            \
    X(PARTIAL, "gradients", false) /* a whole gradient for a moment, before it is reduced into its shard */            \
    X(UNIT, "weights", true)       /* parameters one after the other, or this rank's part of them: passes/units.h */   \
    X(STAGED, "staging", false)    /* on the device for a moment: what has its place in another space */               \
    X(COPY, "copies", true)        /* of a weight, in the compute format, from step to step: passes/resident.c */
typedef enum {
#define X(id, memory, persistent) TM_ROLE_##id,
    TM_ROLE_LIST(X)
#undef X
        TM_ROLE_COUNT
} tm_role;

const char *tm_role_memory_class(tm_role role);
bool        tm_role_persistent(tm_role role);

/* The memory that a tensor lies in. Kernels compute on the device; `fetch` and `store` copy from and to the others.
 * Disk memory is a file mapped as shared. X(id, name) */
#define TM_SPACE_LIST(X) X(DEVICE, "device") X(HOST, "host") X(DISK, "disk")
typedef enum {
#define X(id, name) TM_SPACE_##id,
    TM_SPACE_LIST(X)
#undef X
        TM_SPACE_COUNT
} tm_space;

const char *tm_space_name(tm_space space);

/* Which number format each role is stored in. */
typedef struct {
    const char *name;                                       /* "float32", "bfloat16", "bfloat16-pure", "float64" */
    tm_dtype    parameter, compute, gradient, moment, wide; /* wide: statistics and logits */
} tm_precision;

extern const tm_precision tm_precision_f64; /* the reference device */
extern const tm_precision tm_precision_f32;
extern const tm_precision tm_precision_bf16;      /* regime A: float32 master, bfloat16 compute, float32 gradient */
extern const tm_precision tm_precision_bf16_pure; /* regime C: everything bfloat16 */

tm_dtype tm_precision_of(const tm_precision *precision, tm_role role);

/* A tensor as a kernel sees it: row-major. data is NULL at plan time and for an absent optional input.
 * ld: elements from one row (run of the last axis) to the next; 0: dense. Only operands that an op names in
 * `strided_in` / `strided_out` are ever anything but dense. */
typedef struct {
    tm_dtype dtype;
    tm_shape shape;
    void    *data;
    int64_t  ld;
} tm_view;

static inline int64_t tm_view_ld(const tm_view *view)
{
    return view->ld ? view->ld : view->shape.rank > 0 ? view->shape.n[view->shape.rank - 1] : 1;
}
static inline bool tm_view_dense(const tm_view *view)
{
    return view->ld == 0 || view->shape.rank < 1 || view->ld == view->shape.n[view->shape.rank - 1];
}
/* Columns column .. column + columns - 1 of a matrix, its rows apart as they are. */
static inline tm_view tm_view_cut(tm_view of, int64_t column, int64_t columns)
{
    tm_view view = { of.dtype, tm_shape_2(of.shape.n[0], columns), of.data, tm_view_ld(&of) };
    if (of.data) view.data = (char *)of.data + (size_t)column * tm_dtype_bytes(of.dtype);
    return view;
}

/* Where bytes lie on a device: for the calls of device/device.h, which copy from and to it. What it holds is the
 * device's affair. {0}: nowhere. */
typedef struct {
    uintptr_t at;
} tm_address;

static inline tm_address tm_address_add(tm_address address, size_t bytes)
{
    return (tm_address){ address.at + bytes };
}

#endif
