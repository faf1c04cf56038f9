/* SPDX-License-Identifier: Apache-2.0 */
/* Every kernel of a device, "cuda" or "hip", by its op's examples. */
#ifndef TESTS_GPU_TRIALS_H
#define TESTS_GPU_TRIALS_H

#include <stdbool.h>

/* TM_TEST_OP, TM_TEST_KERNEL: of this op; kernels with this in their names. embedded: by the code that the program has
 * inside, without a compiler; examples that take other code are left out. */
void kernels_are_right(const char *name, bool embedded);

#endif
