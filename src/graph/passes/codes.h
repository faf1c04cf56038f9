/* SPDX-License-Identifier: Apache-2.0 */
/* graph/passes/codes.h - products of codes where a device has them: `quantize` and the product behind it become
 * `quantize` that gives codes with scales beside them, and `scaled_mm`. What the device does not take stays as the
 * quantize pass left it: values that codes stand for. The codes are the same ones. */
#ifndef TM_GRAPH_PASSES_CODES_H
#define TM_GRAPH_PASSES_CODES_H

#include "graph/graph.h"
#include "graph/plan.h"

enum { TM_MAX_REASONS = 4 };

/* Why products are not computed in a better way: the first reasons that were met. */
typedef struct {
    struct {
        const char *why; /* of the graph's arena */
        int         products;
    } of[TM_MAX_REASONS];
    int n;
} tm_reasons;

/* Of a device that has products of codes, or could have them; of others zeros. */
typedef struct {
    int        products, own, emulated; /* with quantized factors: of codes; of these by own kernels; of values */
    tm_reasons no_library, no_codes;    /* of own ones; of those of values */
} tm_codes;

/* On the current segment, behind the precision pass. `chooser`: who will choose the kernels. A library of products and
 * kernels of the device are asked, no reference. out: is added to; NULL: nobody counts. */
void tm_codes_pass(tm_graph *graph, const tm_chooser *chooser, tm_codes *out);

/* Where the device wants it (tm_chooser.fuses) and has a kernel for it: codes of one factor along its rows and down its
 * columns, in one phase, of one look at it. Behind the codes pass. */
void tm_both_pass(tm_graph *graph, const tm_chooser *chooser);

/* Likewise: what an activation function or its gradient makes for such codes alone is made where they are, and never in
 * memory. Behind the both pass. What other programs read stays. */
void tm_made_pass(tm_graph *graph, const tm_chooser *chooser);

#endif
