/* SPDX-License-Identifier: Apache-2.0 */
/* graph/waits.h - what an instruction of one stream has to wait for on the others (private to graph/). */
#ifndef TM_GRAPH_WAITS_H
#define TM_GRAPH_WAITS_H

#include "graph/plan.h"

/* Fills in the waits of a program whose buffers are placed. In n log n; a program of one stream has none. */
void tm_waits_find(const tm_plan *plan, tm_program *program);

#endif
