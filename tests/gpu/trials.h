/* SPDX-License-Identifier: Apache-2.0 */
/* Every kernel of a device, "cuda" or "hip", by its op's examples. */
#ifndef TESTS_GPU_TRIALS_H
#define TESTS_GPU_TRIALS_H

#include "device/device.h"
#include "gpu/shapes.h"
#include "op/kernel.h"

#include <stdbool.h>

typedef enum {
    CODE_COMPILED, /* as a user's machine would compile it */
    CODE_NONE,     /* nothing is compiled */
    CODE_INSIDE,   /* what the program has inside, without a compiler; examples that take other code are left out */
} trials_code;

/* TM_TEST_OP, TM_TEST_KERNEL: of this op; kernels with this in their names. */
void kernels_are_right(const char *name, trials_code code);
/* The same of every `parts`-th op, from number `part` on. judged: NULL, or is called with the device once all of them
 * were found right by the full suite. */
void part_of_kernels_is_right(const char *name, trials_code code, int part, int parts,
                              void (*judged)(tm_device *device));

/* --- one by one */

typedef struct {
    const tm_op     *op;
    const tm_kernel *kernel;
    int              number, precision;
    gpu_shape        shape; /* or an example of the op, without a gap */
    double           cost;  /* operations, and elements of the inputs */
} trial_of;

/* Skips the test where what the code needs is not there. */
tm_device *trials_open(const char *name, trials_code code);
/* Number `i` of an op's kernels that are judged by its examples; NULL: there are no more. */
const tm_kernel *trials_kernel(const tm_device *device, int id, int i);
/* Calls `found` with each short trial of a kernel, and its call before it is prepared. */
void trials_each(tm_device *device, const tm_op *op, const tm_kernel *kernel, void *out,
                 void (*found)(void *out, const trial_of *trial, const tm_call *call));
/* Fails where it is wrong. */
void trials_try(tm_device *device, const trial_of *trial);

#endif
