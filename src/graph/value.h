/* SPDX-License-Identifier: Apache-2.0 */
/* graph/value.h - one number of a tensor, read and written by number format; for hosts, references and tests. Kernels
 * that must be fast have their own vector versions. */
#ifndef TM_GRAPH_VALUE_H
#define TM_GRAPH_VALUE_H

#include "base/status.h"
#include "graph/tensor.h"

#include <string.h>

/* bfloat16: the upper half of a float32. Exact. */
static inline float tm_bf16_value(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float    value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* To the nearest bfloat16, ties to even; beyond the largest: infinity; NaN stays (quiet) NaN. */
static inline uint16_t tm_bf16_round(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Element i of a dense array. Exact for every format. */
static inline double tm_value_get(const void *data, tm_dtype dtype, int64_t i)
{
    switch (dtype) {
    case TM_F64:
        return ((const double *)data)[i];
    case TM_F32:
        return (double)((const float *)data)[i];
    case TM_BF16:
        return (double)tm_bf16_value(((const uint16_t *)data)[i]);
    case TM_I32:
        return (double)((const int32_t *)data)[i];
    case TM_DTYPE_COUNT:
        break;
    }
    TM_ASSERT(!"unknown number format");
    return 0;
}

/* Rounds to the format: float32 to nearest, bfloat16 by way of float32, int32 toward zero (the value must be in range).
 */
static inline void tm_value_set(void *data, tm_dtype dtype, int64_t i, double value)
{
    switch (dtype) {
    case TM_F64:
        ((double *)data)[i] = value;
        return;
    case TM_F32:
        ((float *)data)[i] = (float)value;
        return;
    case TM_BF16:
        ((uint16_t *)data)[i] = tm_bf16_round((float)value);
        return;
    case TM_I32:
        ((int32_t *)data)[i] = (int32_t)value;
        return;
    case TM_DTYPE_COUNT:
        break;
    }
    TM_ASSERT(!"unknown number format");
}

#endif
