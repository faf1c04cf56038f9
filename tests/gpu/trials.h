/* SPDX-License-Identifier: Apache-2.0 */
/* Every kernel of a device, "cuda" or "hip", by its op's examples. */
#ifndef TESTS_GPU_TRIALS_H
#define TESTS_GPU_TRIALS_H

#include <stdbool.h>

typedef enum {
    CODE_COMPILED, /* as a user's machine would compile it */
    CODE_INSIDE,   /* what the program has inside, without a compiler; examples that take other code are left out */
    CODE_OPENCL,   /* by PoCL (machine/opencl.h), of "cuda" without matrix units */
} trials_code;

/* TM_TEST_OP, TM_TEST_KERNEL: of this op; kernels with this in their names. */
void kernels_are_right(const char *name, trials_code code);
/* The same of every `parts`-th op, from number `part` on. */
void part_of_kernels_is_right(const char *name, trials_code code, int part, int parts);

#endif
