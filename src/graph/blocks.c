/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/blocks.h"

#include "base/arena.h"
#include "graph/value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t tm_blocked_bytes(tm_dtype dtype, int64_t n)
{
    if (dtype == TM_NF4_BLOCKS) return tm_nf4_bytes(n);
    int64_t groups = (n + TM_E4M3_GROUP - 1) / TM_E4M3_GROUP;
    return (size_t)(groups * TM_E4M3_HEAD + (dtype == TM_NF4_SCALED ? (n + 1) / 2 : n));
}

static size_t group_bytes(tm_dtype dtype)
{
    return dtype == TM_NF4_BLOCKS   ? TM_NF4_GROUP_BYTES
           : dtype == TM_NF4_SCALED ? TM_SCALED_GROUP_BYTES
                                    : TM_E4M3_GROUP_BYTES;
}

static float scale_of(const unsigned char *group, int64_t at)
{
    float scale;
    memcpy(&scale, group + at / TM_E4M3_BLOCK * (int64_t)sizeof scale, sizeof scale);
    return scale;
}

float tm_blocked_value(tm_dtype dtype, const void *data, int64_t i)
{
    if (dtype == TM_NF4_BLOCKS) return tm_nf4_value(data, i);
    const unsigned char *group = (const unsigned char *)data + (size_t)(i / TM_E4M3_GROUP) * group_bytes(dtype);
    int64_t              at = i % TM_E4M3_GROUP;
    float                scale = scale_of(group, at);
    if (dtype == TM_E4M3_BLOCKS) return (float)tm_value_get_small(group + TM_E4M3_HEAD, TM_E4M3, at) * scale;
    return (float)tm_value_get_small(group + TM_SCALED_HEAD, TM_NF4, at) * scale;
}

void tm_blocked_copy(tm_dtype from, const void *data, int64_t i, tm_dtype to, void *out, int64_t j, int64_t n)
{
    const int64_t bits = tm_dtype_bits(to);
    TM_ASSERT(bits == tm_dtype_bits(from) && (to == from ? to != TM_NF4_BLOCKS : to == TM_NF4_SCALED));
    TM_ASSERT(i % TM_NF4_BLOCK == 0 && j % TM_NF4_BLOCK == 0);
    for (int64_t k = 0; k < n; k += TM_NF4_BLOCK) {
        const unsigned char *a = (const unsigned char *)data + (size_t)((i + k) / TM_NF4_GROUP) * group_bytes(from);
        unsigned char       *b = (unsigned char *)out + (size_t)((j + k) / TM_NF4_GROUP) * group_bytes(to);
        int64_t              p = (i + k) % TM_NF4_GROUP, q = (j + k) % TM_NF4_GROUP;
        int64_t              bytes = ((n - k < TM_NF4_BLOCK ? n - k : TM_NF4_BLOCK) * bits + 7) / 8;
        float                scale = from == TM_NF4_BLOCKS ? tm_nf4_scale(data, i + k) : scale_of(a, p);
        memcpy(b + q / TM_NF4_BLOCK * (int64_t)sizeof scale, &scale, sizeof scale);
        memcpy(b + TM_E4M3_HEAD + q * bits / 8,
               a + (from == TM_NF4_BLOCKS ? (int64_t)TM_NF4_HEAD : (int64_t)TM_E4M3_HEAD) + p * bits / 8,
               (size_t)bytes);
    }
}

uint8_t tm_e4m3_code(float value)
{
    enum { LARGEST = 0x7E, NOT_A_NUMBER = 0x7F };
    float    size = fabsf(value);
    uint32_t bits, sign = signbit(value) ? 0x80 : 0;
    if (isnan(value)) return NOT_A_NUMBER;
    if (size < 0x1p-6f) return (uint8_t)(sign | (uint32_t)rintf(size * 512)); /* 8: the least normal number */
    if (size >= 448) return (uint8_t)(sign | LARGEST);
    memcpy(&bits, &size, sizeof bits);
    bits += 0x7FFFF + (bits >> 20 & 1); /* three bits of the fraction stay */
    uint32_t code = (bits >> 20) - ((127 - 7) << 3);
    return (uint8_t)(sign | (code < LARGEST ? code : LARGEST));
}

static void quantize_block(const float *values, int64_t n, float *scale, uint8_t *codes)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(values[i]) <= most)) most = fabsf(values[i]); /* a NaN stays */
    *scale = most / 448;
    for (int64_t i = 0; i < n; i++) codes[i] = most > 0 ? tm_e4m3_code(values[i] / *scale) : 0;
}

/* A group of n values. */
static void quantize_group(const float *values, int64_t n, unsigned char *out)
{
    memset(out, 0, TM_E4M3_HEAD);
    for (int64_t b = 0; b < n; b += TM_E4M3_BLOCK) {
        float scale;
        quantize_block(values + b, n - b < TM_E4M3_BLOCK ? n - b : TM_E4M3_BLOCK, &scale, out + TM_E4M3_HEAD + b);
        memcpy(out + b / TM_E4M3_BLOCK * (int64_t)sizeof scale, &scale, sizeof scale);
    }
}

tm_status tm_blocked_store(tm_dtype dtype, const tm_nf4_io *io, int64_t n, tm_error *err)
{
    enum { AT_ONCE = 64 }; /* groups that are quantized side by side */
    if (dtype == TM_NF4_BLOCKS) return tm_nf4_store(io, n, err);
    TM_ASSERT(dtype == TM_E4M3_BLOCKS);
    float         *values = tm_alloc((size_t)AT_ONCE * TM_E4M3_GROUP * sizeof *values);
    unsigned char *out = tm_alloc((size_t)AT_ONCE * TM_E4M3_GROUP_BYTES);
    tm_status      st = TM_OK;
    for (int64_t first = 0; first < n && st == TM_OK; first += (int64_t)AT_ONCE * TM_E4M3_GROUP) {
        int64_t left = n - first,
                part = (int64_t)AT_ONCE * TM_E4M3_GROUP < left ? (int64_t)AT_ONCE * TM_E4M3_GROUP : left;
        io->values(io->context, first, part, values);
#pragma omp parallel for schedule(static) num_threads(io->threads)
        for (int64_t g = 0; g < part; g += TM_E4M3_GROUP)
            quantize_group(values + g, part - g < TM_E4M3_GROUP ? part - g : TM_E4M3_GROUP,
                           out + (size_t)(g / TM_E4M3_GROUP) * TM_E4M3_GROUP_BYTES);
        st = io->write(io->context, (size_t)(first / TM_E4M3_GROUP) * TM_E4M3_GROUP_BYTES, out,
                       tm_blocked_bytes(dtype, part), err);
    }
    free(values);
    free(out);
    return st;
}
