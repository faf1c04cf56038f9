/* SPDX-License-Identifier: Apache-2.0 */
/* results/internal.h - private to the room: the tree of a result. */
#ifndef TM_RESULTS_INTERNAL_H
#define TM_RESULTS_INTERNAL_H

#include "results/result.h"

#include <jansson.h>

json_t *results_tree(const tm_result *result);
/* What is taken from it lives as long as the result. */
tm_arena *results_arena(const tm_result *result);
/* By a path with '/' between; NULL: not there. */
json_t *results_member(json_t *tree, const char *path);

#endif
