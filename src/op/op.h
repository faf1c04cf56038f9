/* SPDX-License-Identifier: Apache-2.0 */
/* op/op.h - what an op is: one row of ops.def and one `const tm_op` in its own file.
 *
 * The enum, the table, gradient checks, device comparisons, `explain` and the docs all loop over ops.def. Ops are pure
 * (outputs depend on inputs and attributes only), but for those marked `state`, and row-major. An output whose
 * `accumulate` bit is set is added to, not replaced (gradients of parameters over micro-batches; loss; sums).
 */
#ifndef TM_OP_OP_H
#define TM_OP_OP_H

#include "graph/tensor.h"

typedef enum {
#define TM_OP(name) TM_OP_##name,
#include "op/ops.def"
#undef TM_OP
    TM_OP_COUNT
} tm_op_id;

/* Queues of a device that work side by side. Within one, instructions run in order. X(id, name) */
#define TM_STREAM_ROWS(X) X(COMPUTE, "compute") X(COPY, "copy") X(COMMUNICATION, "communication")
typedef enum {
#define X(id, name) TM_ON_##id,
    TM_STREAM_ROWS(X)
#undef X
        TM_STREAMS
} tm_stream;

const char *tm_stream_label(tm_stream stream);

enum { TM_MAX_IN = 12, TM_MAX_OUT = 6, TM_MAX_ATTR = 136 };

struct tm_op;
struct tm_example;
struct tm_gradient; /* graph/gradient.h: what a gradient rule may ask and emit */
struct tm_node;     /* graph/graph.h */

/* One execution of an op: everything a kernel needs and nothing else. At plan time data pointers are NULL. */
typedef struct {
    const struct tm_op *op;
    const void         *attr;            /* the op's struct of op/attrs.h, or NULL */
    tm_view             in[TM_MAX_IN];   /* absent optional inputs: shape.rank == -1, data NULL */
    tm_view             out[TM_MAX_OUT]; /* absent optional outputs likewise */
    unsigned            accumulate;      /* bit k: out[k] += result, else out[k] = result */
    unsigned            rounded; /* bit k: in[k], a float32 weight, counts as rounded to bfloat16, to nearest even */
    void               *workspace;
    size_t              workspace_bytes;
    const void         *device; /* that runs it: what kernels of its own may look at (tm_chooser.context) */
    int                 threads;
    void               *state; /* what the kernel's `prepare` made; NULL: it has none */
    void               *queue; /* of the device: where the work goes; NULL on devices that compute at once */
} tm_call;

typedef struct {
    double flops;  /* 2 per multiply-add of matrix products that the op executes (causal attention: the visible half);
                    * other arithmetic is not counted, as everywhere in this field */
    double bytes;  /* read + written, each operand once: the least traffic the op can have */
    double vector; /* additions, multiplications, comparisons and function values outside of matrix products: what a
                    * vector unit has to do; never part of FLOPs */
    double wire;   /* bytes that leave this rank; 0: no collective */
} tm_cost;

/* How a fast kernel may round on the way to one value of an output: what the bound of its error is made from. */
typedef struct {
    double terms;  /* the most terms that are added one after the other in float32; 0: the value is formed in float64 or
                    * by one operation */
    double stores; /* times that a value is rounded to the format it is stored in: 1, or once per chunk */
    bool   narrow; /* factors that the kernel itself makes may be rounded to bfloat16 where its inputs are bfloat16 */
} tm_rounding;

typedef struct tm_op {
    const char *name;
    const char *formula; /* for the docs page and explain */
    const char *group;   /* of the ledger: linear, attention, norm, elementwise, embedding, loss, optimizer, clip,
                          * copies, experts */
    tm_stream stream;    /* where its nodes run, unless a pass says otherwise */
    int       n_in, n_out;
    unsigned  optional_in, optional_out; /* bit masks */
    tm_role   out_role[TM_MAX_OUT];
    /* Shapes of the outputs from those of the inputs, or why they do not fit (static text, lower case).
     * Absent optional inputs have rank -1; an optional output that this call does not have gets rank -1. */
    const char *(*infer)(const tm_shape *in, const void *attr, tm_shape *out);
    /* Floating-point views are float64, integers int32. To be read, and to judge. Ignores `threads`, `workspace`. */
    void (*reference)(const tm_call *call);
    /* Emits the nodes that compute the gradients of the inputs; NULL: the op cannot be differentiated (it is itself a
     * gradient, an optimizer op, ...). */
    void (*gradient)(struct tm_gradient *gradient, const struct tm_node *node);
    tm_cost (*cost)(const tm_call *call);
    double vector; /* tm_cost.vector per element of in[0], counted in the formula; ops that differ fill in their cost */
    unsigned inplace;      /* bit k: out[0] may share the memory of in[k] when in[k] dies here (same shape and dtype) */
    unsigned any_dtype_in; /* bit k: in[k] is read in its stored format: no cast is inserted for it */
    bool     cheap;        /* recomputing costs far less than a matrix product: never kept for the backward pass */
    bool     state;        /* writes STATE tensors: no pass makes it twice, evaluation leaves it out */
    int      copy; /* > 0: optional output `copy` is out[0], rounded to nearest in another format (passes/resident.c) */
    unsigned strided_in, strided_out; /* bit k: that operand may be a view with a leading dimension of its own */
    unsigned byte_in, byte_out;       /* bit k: that operand is uint8, whatever the precision */
    /* Fills case `k` that tests and benches sweep; returns false past the last one. Ugly shapes included. */
    bool (*example)(int k, struct tm_example *example);
    /* How output k is rounded; NULL: few operations per element, none of them a sum. */
    tm_rounding (*rounding)(const tm_call *call, int k);
    const char *no_fast_kernel; /* why no device but the reference computes it; NULL: one that does not is an error */
    /* For people: "w (M, K)", in the letters of graph/tensor.h; (...): any shape, that of the others with dots;
     * optional ones in brackets. Fields of the op's struct in op/attrs.h, or NULL. */
    const char *in_name[TM_MAX_IN], *out_name[TM_MAX_OUT], *attributes;
} tm_op;

/* Whole numbers of an example (roles INPUT, INDEX). */
typedef enum {
    TM_WHOLE_ANY,     /* random in [0, limit) */
    TM_WHOLE_OFFSETS, /* rising from 0 to limit; with fewer rows than experts squared the first ones have none */
    TM_WHOLE_ORDER,   /* every number below the tensor's elements once */
    TM_WHOLE_INVERSE, /* inverse[order[p]] = p, of as many elements */
    TM_WHOLE_ONE      /* 0, and behind the middle the limit: offsets of which one expert has all rows */
} tm_whole;

typedef struct tm_example {
    tm_shape in[TM_MAX_IN];     /* rank -1: absent */
    tm_shape out[TM_MAX_OUT];   /* outputs that the caller gives; rank -1: `infer` says (or absent, if optional) */
    tm_role  role[TM_MAX_IN];   /* PARAMETER for weights, ACTIVATION, STATISTIC, INPUT (int32), SCALAR, ... */
    int64_t  limit[TM_MAX_IN];  /* INPUT, INDEX: values are in [0, limit) */
    double   scale[TM_MAX_IN];  /* standard deviation of random values; 0 means 1 */
    double   offset[TM_MAX_IN]; /* mean of random values */
    tm_whole whole[TM_MAX_IN];  /* INPUT, INDEX: which numbers */
    /* Formats of 8 bits, whatever the precision; random values are rounded to them. TM_F64 (0): by role. */
    tm_dtype dtype[TM_MAX_IN], out_dtype[TM_MAX_OUT];
    int64_t  ignored_every;     /* > 0: every such INPUT value (the last of each run) is TM_IGNORED_TARGET */
    char     attr[TM_MAX_ATTR]; /* the op's attributes */
    size_t   attr_bytes;
} tm_example;

#define TM_OP(name) extern const tm_op tm_op_##name;
#include "op/ops.def"
#undef TM_OP

const tm_op *tm_op_get(tm_op_id id);
tm_op_id     tm_op_id_of(const tm_op *op);
/* Value of element `i` of input `k` of an example: normal numbers, or integers below the limit. */
double tm_example_value(const tm_example *example, int k, int64_t i, uint64_t seed);
/* The call of an example as a training step of this precision makes it, without data: formats by role, parameters as
 * copies in the compute format unless the op reads any. For choosers. */
tm_call tm_example_call(const tm_op *op, const tm_example *example, const tm_precision *precision);
/* The call of an example for the reference: float64 inputs filled by tm_example_value, outputs of the inferred shapes
 * holding NaN (whole numbers: INT32_MIN), in memory that tm_call_free frees. Optional outputs exist when the example
 * gives them. `example` must outlive the call. */
void tm_call_make(tm_call *call, const tm_op *op, const tm_example *example, uint64_t seed);
void tm_call_free(tm_call *call);
/* Exactly the bytes of a float64 or int32 tensor, holding NaN or a number that is no token; for free(). */
void *tm_undefined_values(tm_dtype dtype, tm_shape shape);

static inline bool tm_view_present(const tm_view *view)
{
    return view->shape.rank >= 0;
}

#endif
