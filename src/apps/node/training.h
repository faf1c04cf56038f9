/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/training.h - private to the room: small trainings that reach the kernels of every family, and all that they
 * leave behind, for comparison bit by bit.
 */
#ifndef TM_NODE_TRAINING_H
#define TM_NODE_TRAINING_H

#include "device/device.h"
#include "graph/passes/quantize.h"

/* A number format of training: "float32", "bfloat16", or the name of a recipe of low precision on top of bfloat16. */
typedef struct {
    const char               *name;
    const tm_precision       *precision;
    const tm_quantize_recipe *recipe; /* NULL: none */
    int                       models; /* trainings that it has: numbers 0 .. models - 1 */
} tm_node_format;
/* False behind the last one. float32, bfloat16, then the recipes in the order of their table. */
bool tm_node_format_at(int i, tm_node_format *out);

/* A tensor as it was after a step. */
typedef struct {
    char     name[96]; /* "layers.0.attention.wq.weight gradient" */
    int      step;     /* from 1 */
    size_t   offset, bytes;
    uint64_t hash;
} tm_node_part;

/* Gradients, moments, weights and states of all steps of a training, and the losses. Free with tm_node_trace_fini. */
typedef struct {
    unsigned char *data;
    tm_node_part  *parts;
    size_t         bytes, n, data_room, parts_room;
    double         flops; /* of the products and all else, as planned */
} tm_node_trace;
void     tm_node_trace_add(tm_node_trace *trace, const char *name, int step, const void *data, size_t bytes);
void     tm_node_trace_fini(tm_node_trace *trace);
uint64_t tm_node_trace_hash(const tm_node_trace *trace);

/* Where two traces of one training differ first, in the order of the steps, gradients first. */
typedef struct {
    const tm_node_part *part;
    size_t              bits;      /* of it that differ */
    size_t              different; /* tensors of that step that differ, of `of` */
    size_t              of;
} tm_node_difference;
bool tm_node_trace_differs(const tm_node_trace *a, const tm_node_trace *b, tm_node_difference *out);

/* Trains model `model` of a format for a few steps with AdamW, weights and batches drawn from `seed`, and leaves the
 * trace in a zeroed *out. TM_UNSUPPORTED: the device has no kernel for it. */
TM_MUST_USE tm_status tm_node_train(tm_device *device, const tm_node_format *format, int model, uint64_t seed,
                                    tm_node_trace *out, tm_error *err);
const char           *tm_node_model_name(int model); /* "llama" */

#endif
