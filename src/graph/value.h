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

/* IEEE binary16. Exact: whole numbers of 2^-24 below 2^-14, else the exponent is moved; infinity and NaN stay. */
static inline float tm_f16_value(uint16_t bits)
{
    uint32_t size = bits & 0x7fffu, sign = (uint32_t)(bits & 0x8000u) << 16;
    uint32_t wide = (size << 13) + (size >= 0x7c00u ? 0x70000000u : 0x38000000u), low;
    float    tiny = (float)(int32_t)size * 0x1p-24f, value;
    memcpy(&low, &tiny, sizeof low);
    wide = (size < 0x400u ? low : wide) | sign;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* To the nearest binary16, ties to even; from 65520 on: infinity; NaN stays (quiet) NaN. */
static inline uint16_t tm_f16_round(double value)
{
    uint64_t bits, size;
    memcpy(&bits, &value, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 48 & 0x8000);
    size = bits & INT64_MAX;
    memcpy(&value, &size, sizeof value);
    if (value != value) return sign | 0x7e00;
    if (value >= 65520) return sign | 0x7c00;
    if (value < 0x1p-14) { /* the sum counts units of 2^-24, and rounds */
        double units = value + 0x1p28;
        memcpy(&bits, &units, sizeof bits);
        return (uint16_t)(sign | (bits & 0x7ff));
    }
    size += 0x1ffffffffff + (size >> 42 & 1);
    return (uint16_t)(sign | ((size >> 42) - ((1023 - 15) << 10)));
}

/* Element i of a dense array of one of the small formats, integers of 1 and 8 bytes included. Two 4-bit elements share
 * a byte: of E2M1 the first lies in its low half (as OCP MX files have it), of NF4 in its high half (as bitsandbytes
 * has it). Values of scaled formats (E8M0, E2M1, NF4) are those of the code alone. NF4_BLOCKS is read here and written
 * as a whole (graph/nf4.h). */
double tm_value_get_small(const void *data, tm_dtype dtype, int64_t i);
void   tm_value_set_small(void *data, tm_dtype dtype, int64_t i, double value);

/* Element i of a dense array. Exact for every format (int64 beyond 2^53: to the nearest double). */
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
    default:
        return tm_value_get_small(data, dtype, i);
    }
}

/* Rounds to the format: to nearest, ties to even (bfloat16 by way of float32); integers toward zero (the value must be
 * in range). Beyond the largest number: infinity where the format has one, else the largest number. NaN stays NaN, but
 * in the formats of 4 and 6 bits, which have none, it becomes the largest number. */
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
    default:
        tm_value_set_small(data, dtype, i, value);
    }
}

/* How a number between two of a format is rounded. Nearest: ties to the even code, or to the larger magnitude. */
typedef enum { TM_ROUND_EVEN, TM_ROUND_AWAY, TM_ROUND_ZERO, TM_ROUND_STOCHASTIC } tm_round;

/* The code of a number in float16, an 8-bit format of two parts, E3M2, E2M3 or E2M1. Beyond the largest number: that,
 * if it saturates, else infinity, else NaN, as the format has it (those of 6 and 4 bits have neither: the largest). NaN
 * stays NaN (there: the largest). chance, in [0, 1): stochastic rounding goes up where it is below the remainder. */
unsigned tm_value_encode(tm_dtype dtype, double value, tm_round how, bool saturate, double chance);
/* What a code of these formats is. */
double tm_value_decode(tm_dtype dtype, unsigned code);

#endif
