/* SPDX-License-Identifier: Apache-2.0 */
/* op/relative.h - classes of distances between a query and a key (Raffel et al. 2020, section 2.1). */
#ifndef TM_OP_RELATIVE_H
#define TM_OP_RELATIVE_H

#include <stdint.h>

/* The class, below `buckets` (even), of a key that stands `distance` behind the query: the upper half is of keys behind
 * it. Half of each half are single distances, the rest grow with their logarithm up to `max_distance`; the last one is
 * of all that are farther away. */
int64_t tm_relative_bucket(int64_t distance, int64_t buckets, int64_t max_distance);

#endif
