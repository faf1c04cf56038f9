/* SPDX-License-Identifier: Apache-2.0 */
/* The dialect of the shipped kernels, and what kernels here need besides. All pointers of a kernel that do not overlap
 * are RESTRICT. */
#ifndef TESTS_MACHINE_KERNELS_DIALECT_H
#define TESTS_MACHINE_KERNELS_DIALECT_H

#include "../../../src/device/gpu/source/dialect.cu"

typedef unsigned short f16; /* storage only, as the next one */
typedef unsigned char  fp8;

#define LOG2_E 1.4426950408889634f
#define LN_2 0.69314718055994531f

#endif
