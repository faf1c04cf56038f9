/* SPDX-License-Identifier: Apache-2.0 */
/* op/dynamic.h - the dynamic map of 8 bits (Dettmers, "8-bit approximations for parallelism in deep learning", 2016;
 * block-wise: Dettmers et al. 2022): 256 values in [-1, 1] or [0, 1] that lie the denser the smaller they are, as
 * bitsandbytes and torchao make them, and how numbers become codes of it.
 *
 *   for i = 0 .. 6: 10^(i - 6) times the middles of 2^i (signed: of both signs) or 2^(i + 1) equal cells of [0.1, 1];
 *   0 and 1 besides. There is no -1.
 */
#ifndef TM_OP_DYNAMIC_H
#define TM_OP_DYNAMIC_H

#include <stdbool.h>

enum { TM_DYNAMIC_CODES = 256 };

/* The values in ascending order. (What the libraries make of them in float32 differs by a unit of the last place, and
 * from one processor to another.) */
void tm_dynamic_map(bool is_signed, float map[TM_DYNAMIC_CODES]);
/* least[c]: the smallest float32 whose code is above c; the code of x is the count of those that are at most x. What
 * lies half way between two values of the map goes up (torchao's search) or down (the nearest, the first of two). */
void tm_dynamic_bounds(const float map[TM_DYNAMIC_CODES], bool ties_up, float least[TM_DYNAMIC_CODES - 1]);

#endif
