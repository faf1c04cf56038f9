/* SPDX-License-Identifier: Apache-2.0 */
/* graph/passes/quantize_tables.h - private to the pass for products in low precision (graph/passes/quantize.h). */
#ifndef TM_GRAPH_PASSES_QUANTIZE_TABLES_H
#define TM_GRAPH_PASSES_QUANTIZE_TABLES_H

#include "graph/passes/quantize.h"

/* The rows of *made are there: their tables. */
void quantize_make_tables(tm_graph *graph, const tm_quantize *policy, tm_quantized *made);
/* Appends: the counters go on. */
void quantize_tick(tm_graph *graph, const tm_quantized *made, tm_tick_attr attr);

#endif
