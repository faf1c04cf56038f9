/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/shapes.h - examples beside the ops' own, of the lengths that kernels of GPUs meet: loops go on to a second
 * round and to the rounds that compilers write out four at a time; tiles are full, and end in the middle; attention has
 * several of them, with windows, documents, sinks and rows apart. */
#ifndef TESTS_GPU_SHAPES_H
#define TESTS_GPU_SHAPES_H

#include "op/op.h"

typedef struct {
    tm_example example;
    int64_t    gap;   /* elements between rows of operands that may be views */
    bool       quick; /* short enough for the quick suite */
    bool       f32;   /* in float32 only */
} gpu_shape;

/* Number k of an op; false: it has no more. */
bool gpu_shape_of(const tm_op *op, int k, gpu_shape *out);
/* Those of mixtures of experts (expert_shapes.c). */
bool gpu_expert_shape_of(const tm_op *op, int k, gpu_shape *out);
/* Attention, or its gradients, by heads of `size` elements; false: another op. */
bool gpu_usual_heads(const tm_op *op, int64_t size, gpu_shape *out);

#endif
