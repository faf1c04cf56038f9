/* SPDX-License-Identifier: Apache-2.0 */
/* graph/graph.h - tensors, nodes, segments.
 *
 * A graph holds the tensors of one training step and several segments: flat lists of nodes that run from first to last
 * ("first", "further", "update", "evaluate"). Segments share the persistent tensors (weights, gradients, moments,
 * scalars); everything else lives within one segment, or in a slot from segment to segment of one micro-batch. A model
 * builder appends forward nodes; passes append and rewrite.
 */
#ifndef TM_GRAPH_GRAPH_H
#define TM_GRAPH_GRAPH_H

#include "base/arena.h"
#include "base/status.h"
#include "op/attrs.h"
#include "op/op.h"

typedef int32_t tm_tensor_id;
enum { TM_NONE = -1 };

/* A named run of rows of a parameter: fused matrices (qkv, gate and up) keep the names of their parts. */
typedef struct {
    const char *name;      /* "layers.0.attention.wq.weight" */
    int64_t     row, rows; /* rows of the last axis, counted through all others; of a vector elements */
    double      mean, std; /* initial value: mean + std * normal; std == 0: constant */
    double      cut;       /* > 0: redrawn beyond mean +- cut (truncated normal); 0: never */
    bool        uniform;   /* evenly distributed with that mean and deviation, not normal */
    /* Of a cut parameter. `begin`: the row of the whole parameter that `row` is. first, whole: the first row here,
     * counted in the piece, and the piece's rows in all; whole 0: all of them are here. Runs of a piece that are apart
     * from each other in the whole are pieces of one name. */
    int64_t begin, first, whole;
} tm_piece;

/* Elements of a row as pieces count them. */
static inline int64_t tm_piece_row(tm_shape shape)
{
    return shape.rank > 1 ? shape.n[shape.rank - 1] : 1;
}

/* Value of element i of a constant tensor (rotary tables). */
typedef double tm_constant_fill(const void *context, int64_t i);

/* What stands beside a frozen matrix w (M, K) and is trained in its place (graph/passes/passes.h, tm_adapt_pass). */
typedef struct tm_adapter {
    tm_tensor_id a, b; /* (P r, K), (R, r): for each of the P adapted runs of rows of w r rows of a; its rows of b */
    tm_tensor_id m;    /* (R) lengths of the adapted rows, which are trained, too (op/rescale.c); TM_NONE: none */
    tm_low_rank_attr         attr;    /* which runs, rank, scale */
    tm_dropout_attr          dropout; /* of what a is multiplied with, while training; rate 0: none */
    const struct tm_adapter *next;    /* of other rows of the same matrix, with another rank or scale; NULL: none */
} tm_adapter;

/* The part of a parameter that this rank has, where the ranks of a group divide it for good (tensor and expert
 * parallel): some rows of each piece (tm_piece.first), and of each row some columns. The values, names and checksums of
 * a whole parameter do not depend on how it is cut. */
typedef struct {
    unsigned axes; /* of the mesh: the group */
    int      rank, ranks;
    tm_shape whole;
    int64_t  column; /* the first one that is here; of a vector 0 */
} tm_cut;

/* A tensor that ranks share (passes/units.h). Of a whole one that has no memory here (`flat` is not TM_NONE): its
 * element i is element `first` + i of the unit, of which every rank has `share` elements, those from number
 * (rank x share) on, in its tensor `flat`. Of one that is a rank's part of a whole that exists nowhere else (moments of
 * a shard; `flat` TM_NONE): it holds elements `first` ... of a tensor like `like`. */
typedef struct {
    tm_tensor_id flat, like;
    int64_t      first, share;
    unsigned     axes; /* of the group */
    int          rank, ranks;
} tm_shared;

typedef struct {
    const char       *name;
    tm_role           role;
    tm_dtype          dtype;
    tm_shape          shape;
    int               layer;  /* -1: outside the blocks */
    const tm_piece   *pieces; /* parameters only */
    int               n_pieces;
    bool              trained;         /* parameters: has a gradient and is updated */
    bool              as_stored;       /* parameters: read in the format they are stored in: routers */
    bool              head;            /* parameters: logits are products with it: the output layer */
    bool              fixed;           /* activations: nothing trained made it, so it gets no gradient */
    const tm_adapter *adapter;         /* parameters: trained beside it; NULL: none */
    tm_tensor_id      adapts;          /* parameters of an adapter: the matrix that it stands beside; else TM_NONE */
    tm_tensor_id      gradient;        /* parameters: TM_NONE until the gradient pass makes it */
    tm_tensor_id      lookup_gradient; /* parameters: of look-ups alone, see tm_lookup_pass; TM_NONE: not apart */
    tm_constant_fill *fill;            /* constants only */
    const void       *fill_context;
    tm_tensor_id      base;   /* a view of columns of another tensor; TM_NONE: has memory of its own */
    int64_t           offset; /* views: elements from the base's first element to the view's */
    int64_t           ld;     /* views: elements from row to row; 0: dense */
    tm_space          space;  /* of a view: its base's */
    const tm_shared  *shared; /* NULL: all of it is here */
    const tm_cut     *cut;    /* parameters, and their gradients and moments; NULL: not cut */
    bool twin;     /* parameters, and their moments: another stage of a pipeline has the same, and it is that one
                    * that counts (norms, checkpoints, checksums) */
    unsigned sums; /* parameters: axes of the mesh over whose ranks the gradient is a sum still to be taken, beside
                    * those that have other tokens (a norm between matrices that are divided, by rows) */
} tm_tensor;

typedef enum { TM_PHASE_FORWARD, TM_PHASE_BACKWARD, TM_PHASE_UPDATE } tm_phase;

/* What becomes of a node's results between the forward and the backward pass (tm_recompute_pass): what the policy says;
 * made anew for the backward pass; made anew for every node there that reads them, so that none of them is held. */
typedef enum { TM_KEEP_BY_POLICY, TM_KEEP_NOT, TM_KEEP_NEVER } tm_keep;

typedef struct tm_node {
    tm_op_id     op;
    const void  *attr;
    size_t       attr_bytes;
    tm_tensor_id in[TM_MAX_IN], out[TM_MAX_OUT]; /* TM_NONE: absent */
    unsigned     accumulate;
    unsigned     rounded; /* bit i: in[i] counts as rounded to the compute format (tm_call.rounded) */
    tm_phase     phase;
    int          layer;
    const char  *module;     /* "layers.3.attention" */
    bool         recomputed; /* a copy of a forward node, made for the backward pass */
    tm_keep      keep;
    tm_stream    stream; /* its place in the list says how long its buffers are held, its waits when it starts */
} tm_node;

typedef struct {
    const char *name;
    tm_node    *nodes;
    size_t      n_nodes, capacity;
} tm_segment;

typedef struct tm_graph {
    tm_arena           *arena; /* names, attributes, pieces: everything small */
    const tm_precision *precision;
    tm_tensor          *tensors;
    size_t              n_tensors, tensors_capacity;
    tm_segment        **segments; /* each keeps its address */
    size_t              n_segments, segments_capacity;
    /* where tm_graph_add appends and what it notes down */
    tm_segment *segment;
    tm_phase    phase;
    int         layer;
    const char *module;
    tm_keep     keep;
    int         slots; /* micro-batches between two of their segments at a time: so many places have the
                        * transient tensors that cross segments; 0: none may */
} tm_graph;

/* The caller destroys it; everything that hangs on a graph lives in its arena. `precision` must outlive it. */
tm_graph   *tm_graph_create(const tm_precision *precision);
void        tm_graph_destroy(tm_graph *graph);
tm_segment *tm_graph_segment(tm_graph *graph, const char *name); /* appends one and makes it current */

/* Tensors. The format follows from the role and the graph's precision, or is given. Names are copied. */
tm_tensor_id tm_graph_tensor(tm_graph *graph, const char *name, tm_role role, tm_shape shape);
tm_tensor_id tm_graph_tensor_as(tm_graph *graph, const char *name, tm_role role, tm_shape shape, tm_dtype dtype);
/* Columns [column, column + columns) of a matrix (rows, C), as a tensor of its own (rows, columns) without memory of
 * its own: same role and format, the base's rows apart. `base` may itself be a view. */
tm_tensor_id tm_graph_view(tm_graph *graph, const char *name, tm_tensor_id base, int64_t column, int64_t columns);
/* The view of `base` that is to it what `view` is to its own base. */
tm_tensor_id tm_graph_view_like(tm_graph *graph, const tm_tensor *view, tm_tensor_id base);
/* Row `row` of a dense matrix (rows, C) as a tensor (C) without memory of its own. */
tm_tensor_id tm_graph_row(tm_graph *graph, const char *name, tm_tensor_id base, int64_t row);
/* Elements [first, ...) of a dense tensor as a dense one of another shape, without memory of its own. */
tm_tensor_id tm_graph_run(tm_graph *graph, const char *name, tm_tensor_id base, int64_t first, tm_shape shape);
/* Has no memory in this rank's plan. */
bool tm_graph_elsewhere(const tm_tensor *tensor);
/* The tensor whose memory this one is in: itself, if it is not a view. */
tm_tensor_id tm_graph_base(const tm_graph *graph, tm_tensor_id id);
tm_tensor_id tm_graph_parameter(tm_graph *graph, const char *name, tm_shape shape, const tm_piece *pieces,
                                int n_pieces);
/* The parameter is a part: `cut` is copied. Its pieces say which rows it has; so do its gradient and moments. */
void         tm_graph_cut(tm_graph *graph, tm_tensor_id id, const tm_cut *cut);
tm_tensor_id tm_graph_constant(tm_graph *graph, const char *name, tm_shape shape, tm_constant_fill *fill,
                               const void *context, size_t context_bytes);
tm_tensor   *tm_graph_at(const tm_graph *graph, tm_tensor_id id);

/* Blocks of NF4 (graph/nf4.h): what begins at element `begin` of a parameter, at a whole group, is quantized by itself
 * up to the element that is returned: pieces that are whole groups are, as if they were matrices of their own. */
int64_t tm_nf4_run_end(const tm_tensor *tensor, int64_t begin);

/* Appends a node. in[0 .. op.n_in-1]; TM_NONE for an absent optional input. out[0 .. op.n_out-1]: a tensor given by the
 * caller, or TM_NONE: then a tensor of the inferred shape is made and its id stored. A shape that does not fit is a bug
 * in a builder or pass (assert): what a user can get wrong is checked before. */
tm_node *tm_graph_add(tm_graph *graph, tm_op_id op, const void *attr, size_t attr_bytes, const tm_tensor_id *in,
                      tm_tensor_id *out, unsigned accumulate);

/* The call of a node with data == NULL everywhere: for costs, refusals and workspaces. */
void tm_node_call(const tm_graph *graph, const tm_node *node, tm_call *call);

#endif
