/* SPDX-License-Identifier: Apache-2.0 */
/* graph/passes/fusing.h - what passes have in common that make one node of neighbours in the current segment (private
 * to graph/passes/): who makes and who reads a tensor, whether the device has a kernel, and nodes that are taken out.
 */
#ifndef TM_GRAPH_FUSING_H
#define TM_GRAPH_FUSING_H

#include "graph/passes/passes.h"

enum { FUSING_NOBODY = -1, FUSING_SEVERAL = -2 };

/* By tensor that was there when the pass began. */
typedef struct {
    tm_graph         *graph;
    const tm_chooser *chooser;
    size_t            n;     /* such tensors */
    int32_t          *maker; /* of one with memory of its own: the node that makes it whole, or one of the two above */
    int32_t          *reads; /* how many operands it is, itself */
    int32_t          *views; /* of one with memory of its own: how many operands its views are */
    bool             *gone;  /* (nodes) the pass has no use for it any more */
} fusing;

void fusing_open(fusing *f, tm_graph *graph, const tm_chooser *chooser);
/* Takes out the nodes that are gone. */
void fusing_close(fusing *f);
/* Has the device a kernel for it? */
bool fusing_takes(const fusing *f, const tm_node *node);

#endif
