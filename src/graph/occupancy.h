/* SPDX-License-Identifier: Apache-2.0 */
/* graph/occupancy.h - which bytes are taken when (private to graph/).
 *
 * A binary tree over the instructions. Each of its nodes spans a power of two of them and knows two sets of bytes: what
 * is taken by buffers that live from end to end of it (and not of the node above), and what is taken at some time by
 * buffers that begin in it. A buffer is written to, and a question is asked of, O(log instructions) nodes. A set is a
 * sorted list of blocks that do not touch: buffers that lie side by side melt into one, so that the lists of a training
 * step stay short, however many buffers it has. A list of more than 128 blocks forgets its smallest hole: what counts
 * as taken is never too little, and may be too much where lifetimes have no structure at all.
 */
#ifndef TM_GRAPH_OCCUPANCY_H
#define TM_GRAPH_OCCUPANCY_H

#include <stddef.h>
#include <stdint.h>

typedef struct tm_occupancy tm_occupancy;

/* For the instructions 0 .. n_instructions - 1; nothing is taken. The caller destroys it. */
tm_occupancy *tm_occupancy_create(int32_t n_instructions);
void          tm_occupancy_destroy(tm_occupancy *occupancy);
/* Frees all bytes again, and keeps the memory of the lists. */
void tm_occupancy_clear(tm_occupancy *occupancy);

/* Lowest offset from which on `bytes` bytes count as free during the instructions first .. last. */
size_t tm_occupancy_lowest(tm_occupancy *occupancy, int32_t first, int32_t last, size_t bytes);
/* From now on the bytes from `from` up to `to` are taken during the instructions first .. last. */
void tm_occupancy_take(tm_occupancy *occupancy, int32_t first, int32_t last, size_t from, size_t to);

/* What was done since creation, in blocks looked at (about 5 ns each): a measure of time that repeats. */
uint64_t tm_occupancy_work(const tm_occupancy *occupancy);

#endif
