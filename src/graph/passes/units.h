/* SPDX-License-Identifier: Apache-2.0 */
/* graph/passes/units.h - data parallel training: parameters in units that ranks reduce, gather and share as a whole.
 *
 * A unit is what torchtitan's fully_shard wraps: the parameters before the blocks, each block, those behind them, one
 * after the other in one flat tensor whose length divides by the ranks (filled up with zeros), `share` elements for
 * each. A unit has one format and one group that shares it; parameters of other formats make further units of the
 * layer, and so do experts that are divided among ranks (expert parallel), which fewer ranks have in common, and
 * weights that are not trained, which have no gradients. Formats of blocks (graph/blocks.h) are cut between groups of
 * blocks only.
 *
 * Who has what (tm_sharing):
 *   copies     weights and gradients whole on every rank; the gradients of a unit are one all-reduce
 *   optimizer  the same, but a rank updates its share of a unit only: the gradients are reduced into it, the weights
 *              gathered from all ranks after the update (ZeRO-1; Rajbhandari et al. 2020)
 *   gradients  gradients are whole for a moment only: reduced into the share after the backward pass of the unit
 * (ZeRO-2) all        weights, too: gathered in front of the uses of a unit and let go behind them (ZeRO-3, FSDP);
 *              weights that are not trained are in units here only, elsewhere every rank has them whole
 *
 * What is held in float32 and used in the compute format only is gathered in that: each rank casts its share first (the
 * parameters of a unit whose uses differ are two units). The same bits move on as if they were cast behind.
 *
 * All passes run on finished segments, in front of the plan: what builders and other passes see is whole.
 */
#ifndef TM_GRAPH_PASSES_UNITS_H
#define TM_GRAPH_PASSES_UNITS_H

#include "comm/mesh/mesh.h"
#include "graph/graph.h"

typedef enum { TM_SHARE_COPIES, TM_SHARE_OPTIMIZER, TM_SHARE_GRADIENTS, TM_SHARE_ALL } tm_sharing;

typedef struct {
    tm_tensor_id parameter, gradient;
    int64_t      first, count; /* elements of the unit */
    int          owner;        /* rank of the group that updates all of it, where tensors are dealt out whole
                                * (train/step/owner_update.h); -1:                 each rank its part */
} tm_unit_member;

/* The ranks that train a parameter together. */
typedef struct {
    unsigned axes;        /* of the mesh: the group that shares its units */
    int      rank, ranks; /* this one's number in it; ranks 1: nothing is shared */
    unsigned data;        /* axes whose ranks have other tokens, beside `axes`: gradients are a sum over them, too */
} tm_unit_group;

/* Members of a unit, one after the other, whose gradients are sums over the ranks of the same axes `sums`
 * (tm_tensor.sums), and that are cut over the same axes. The last run ends with the unit. */
typedef struct {
    unsigned sums, cut;
    int64_t  first, count; /* elements of the unit */
    bool     twin;         /* tm_tensor.twin: counts elsewhere */
} tm_unit_run;

typedef struct {
    const char     *name; /* "layer 3": for messages */
    int             layer;
    tm_sharing      sharing; /* copies where the group is one rank */
    tm_unit_group   group;
    tm_dtype        dtype, gradient_dtype; /* gradient_dtype TM_DTYPE_COUNT: not trained */
    tm_dtype        gathered;              /* `all`: the format in which weights travel */
    tm_unit_member *members;
    size_t          n_members, capacity;
    tm_unit_run    *runs; /* of all members, in their order */
    size_t          n_runs;
    int64_t         used, elements; /* of the members; filled up */
    int64_t         share;          /* elements of a rank */
    /* Flat tensors, and the element of the unit that is the first in them. weights: TM_NONE where only gradients are in
     * units; gradients: TM_NONE where nothing is trained. */
    tm_tensor_id weights, gradients;
    int64_t      weights_first, gradients_first;
    bool         reduced; /* copies: its gradients are reduced in the last program of micro-batches */
} tm_unit;

typedef struct {
    tm_sharing    sharing;
    tm_mesh       mesh;           /* all 0: one rank */
    tm_unit_group group, experts; /* of experts that are divided (cut over ep), and of all others */
    bool          reshard;        /* `all`: weights are let go between the forward and the backward pass of a unit */
    int           prefetch;       /* `all`: units whose weights are gathered ahead of their uses */
    bool          as_held;        /* `all`: weights travel as they are held, whatever reads them */
    tm_unit      *units;
    size_t        n_units, capacity;
} tm_units;

/* Puts all parameters that have a gradient into units, and with `all` those that are not trained; `of`: the segment
 * that tells what comes before the blocks. The segments that are there tell in which formats parameters are used. The
 * caller has filled in the members before `units` of *units, and ends it with tm_units_fini. */
void tm_units_find(tm_graph *graph, const tm_segment *of, tm_units *units);
void tm_units_fini(tm_units *units);

/* Makes the flat tensors of the units. Those that are shares take the place of their members at once. */
void tm_units_place(tm_graph *graph, tm_units *units);
/* All segments are there: the members of whole flat tensors become views of them. */
void tm_units_settle(tm_graph *graph, const tm_units *units);
/* Rewrites the current segment, which computes with what is shared: puts gathers in front, reductions behind. `add`:
 * the gradients of the segment are added to what the shares hold. `summed`: where several programs of a micro-batch
 * have some of the gradients each, (units) those that one of them has put there: the next ones add. Else NULL. */
void tm_units_pass(tm_graph *graph, const tm_units *units, bool add, bool *summed);

/* In front of the precision pass, of a segment in another format than weights travel in (tm_unit.gathered): it reads
 * them as they travel, cast to that format and, where an op does not read any, to its own. */
void tm_units_round(tm_graph *graph, const tm_units *units);

/* Copies: puts the reductions of units behind the last node of the current segment that writes their gradients, so that
 * they run beside what is left of the backward pass, and marks them. Tables whose look-ups are summed apart
 * (tm_lookup_pass) are not whole before the update. */
void tm_units_reduce(tm_graph *graph, tm_units *units);

/* Elements [*begin, *end) of a member, counted in it, that lie in this rank's share; false: none. */
bool tm_units_own(const tm_unit *unit, const tm_unit_member *member, int64_t *begin, int64_t *end);
/* Is the unit trained? */
static inline bool tm_units_trained(const tm_unit *unit)
{
    return unit->gradient_dtype != TM_DTYPE_COUNT;
}
/* The format that a parameter which is read as input `i` of the node is rounded to before anything else is done with
 * it; as it is held: TM_DTYPE_COUNT. */
tm_dtype tm_units_rounds(const tm_graph *graph, const tm_node *node, int i);
/* Is the unit of experts that are divided? */
static inline bool tm_units_experts(unsigned cut)
{
    return (cut & 1U << TM_AXIS_EP) != 0;
}
/* Ranks of a group along axes; of no mesh 1. */
static inline int tm_units_size(const tm_units *units, unsigned axes)
{
    return units->mesh.degree[0] == 0 ? 1 : tm_mesh_group_size(&units->mesh, axes);
}
/* Appends the sums that members of a unit need beside those over ranks with other tokens; `whole`: their gradients, the
 * unit's elements from number `first` on. */
void tm_units_sum(tm_graph *graph, const tm_units *units, const tm_unit *unit, tm_tensor_id whole, int64_t first);

/* Puts zeros into elements [from, to) of a whole unit. */
void tm_units_clear(tm_graph *graph, tm_tensor_id whole, int64_t from, int64_t to);

/* Appends a collective to the current segment; `to` may be TM_NONE, or `from` itself. Returns its result. */
tm_tensor_id tm_units_call(tm_graph *graph, tm_op_id op, unsigned axes, int ranks, const char *what, tm_tensor_id from,
                           tm_tensor_id to, bool add);

/* Lays tensors of one format that outlive programs one after the other into the tensor `flat`: they, and the views of
 * them, become views of it. */
void tm_units_pack(tm_graph *graph, tm_tensor_id flat, const tm_tensor_id *ids, size_t n);

#endif
