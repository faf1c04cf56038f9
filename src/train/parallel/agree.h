/* SPDX-License-Identifier: Apache-2.0 */
/* train/parallel/agree.h - ranks that go on together or fail together. Private to the room. `world` NULL: one rank,
 * nothing to agree on. Every rank of the world makes the same calls in the same order. */
#ifndef TM_TRAIN_PARALLEL_AGREE_H
#define TM_TRAIN_PARALLEL_AGREE_H

#include "comm/comm.h"

int agree_rank(const tm_comm *world);  /* NULL: 0 */
int agree_ranks(const tm_comm *world); /* NULL: 1 */

/* TM_OK if `st` is TM_OK on all ranks. Else the status of the first rank where it is not; there *err stays, the others
 * get its text, behind "rank 3: ". `what`: for messages of waits that take too long. */
TM_MUST_USE tm_status agree_status(tm_comm *world, const char *what, tm_status st, tm_error *err);

/* data[n] of rank 0 becomes that of all. */
TM_MUST_USE tm_status agree_bytes(tm_comm *world, const char *what, void *data, size_t n, tm_error *err);

/* values[i] becomes the largest, or the sum, of all ranks. */
TM_MUST_USE tm_status agree_max(tm_comm *world, const char *what, int64_t *values, size_t n, tm_error *err);
TM_MUST_USE tm_status agree_sum(tm_comm *world, const char *what, int64_t *values, size_t n, tm_error *err);

/* all[r * n ...] = values[n] of rank r. */
TM_MUST_USE tm_status agree_gather(tm_comm *world, const char *what, const void *values, size_t bytes, void *all,
                                   tm_error *err);

#endif
