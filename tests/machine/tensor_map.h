/* SPDX-License-Identifier: Apache-2.0 */
/* The 128 bytes that describe a tensor to TMA, as the interpreter of PTX reads them. Hardware's encoding is not public:
 * a stand-in of cuTensorMapEncodeTiled writes these. */
#ifndef TESTS_MACHINE_TENSOR_MAP_H
#define TESTS_MACHINE_TENSOR_MAP_H

#include <stdbool.h>
#include <stdint.h>

enum { MACHINE_TENSOR_MAP_BYTES = 128, MACHINE_TENSOR_RANK = 5 };

/* Numbers as cuda.h has them: CUtensorMapDataType (uint8 0, float16 6, float32 7, bfloat16 9), CUtensorMapSwizzle (none
 * 0, 32 bytes 1, 64 bytes 2, 128 bytes 3), CUtensorMapFloatOOBfill (zeros 0). Dimensions begin with the innermost,
 * whose stride is not told: strides[0] is that of dimension 1, in bytes. */
typedef struct machine_tensor {
    int      type, rank;
    uint64_t address;
    uint64_t dims[MACHINE_TENSOR_RANK], strides[MACHINE_TENSOR_RANK - 1];
    uint32_t box[MACHINE_TENSOR_RANK], element_strides[MACHINE_TENSOR_RANK];
    int      swizzle, fill;
} machine_tensor;

/* Encodes a tensor. Returns what is wrong with it, as words; NULL: nothing. */
const char *machine_tensor_map(uint8_t map[MACHINE_TENSOR_MAP_BYTES], const machine_tensor *tensor);

#endif
