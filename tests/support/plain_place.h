/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/plain_place.h - the placement of graph/place.h in its plainest form: first-fit looks at every buffer
 * placed before, O(n^2), and nothing limits orders and repairs. What the fast form is compared with. */
#ifndef TM_TESTS_PLAIN_PLACE_H
#define TM_TESTS_PLAIN_PLACE_H

#include "graph/place.h"

size_t plain_place(tm_interval *items, size_t n, int32_t n_instructions);

#endif
