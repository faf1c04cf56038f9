/* SPDX-License-Identifier: Apache-2.0 */
/* comm/coll/coll.h - collective calls: within a host (intra.c), between hosts from rank to rank (inter.c) or shared out
 * by hosts (hierarchical.c), and sums (sum.c); private to comm/.
 */
#ifndef TM_COMM_COLL_H
#define TM_COMM_COLL_H

#include "comm/coll/hosts.h"
#include "comm/p2p/p2p.h"

/* The calls of a group on one host, and of one on several (everything but messages to one rank). Receive and send do
 * not overlap, or are in place. */
TM_MUST_USE tm_status tm_comm_run_intra(tm_comm *comm, const tm_collective *call, tm_error *err);
TM_MUST_USE tm_status tm_comm_run_inter(tm_comm *comm, const tm_collective *call, tm_error *err);
/* A call whose hosts share it out: a share of every host between hosts, not one of every rank. After the headers of all
 * ranks have come. Does it fit: is it large enough, is it less, and is the memory of the ranks of a host in reach? The
 * same answer on all ranks. */
bool                  tm_comm_hierarchical_fits(const tm_comm_transfer *f);
TM_MUST_USE tm_status tm_comm_hierarchical_run(tm_comm_transfer *f);

/* A slice of `count` elements for each of `parts`, in whole cache lines, so that no two ranks write the same one. */
void tm_comm_slice(size_t count, size_t element, size_t part, size_t parts, size_t *first, size_t *end);

/* All-to-all with counts: comm->matrix[a * size + b] becomes the elements from a to b. */
TM_MUST_USE tm_status tm_comm_counts(tm_comm *comm, const tm_collective *call, tm_error *err);

/* out[i] = in[0][i] op in[1][i] op ..., in this order; bfloat16 in float32, rounded once. `out` may be one of `in`. */
void tm_comm_reduce(tm_comm_op op, tm_comm_format format, const void *const *in, int n, void *out, size_t count);

/* The same over ranks of which earlier ones were reduced to `before` (NULL: none were). `keeps`: others follow, and
 * `out` stays as it is accumulated. What is accumulated of bfloat16 is float32, of every other format the format
 * itself. */
void tm_comm_reduce_on(tm_comm_op op, tm_comm_format format, const void *before, const void *const *in, int n,
                       bool keeps, void *out, size_t count);

/* The sums of float32 go to each of out[0 .. n_out - 1], past the caches: for more than they hold. False: it is not
 * done, the places do not begin with a cache line or do not end with one, or this processor cannot. */
bool tm_comm_add_past(const float *const *in, int n, float *const *out, int n_out, size_t count);

#endif
