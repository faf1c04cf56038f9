/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/nf4.h"

#include "base/arena.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = TM_NF4_GROUP / TM_NF4_BLOCK, AT_ONCE = 64 /* groups that are quantized side by side */ };

static const float codes[16] = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

size_t tm_nf4_bytes(int64_t n)
{
    int64_t groups = (n + TM_NF4_GROUP - 1) / TM_NF4_GROUP;
    return (size_t)(groups * TM_NF4_HEAD + (n + 1) / 2);
}

void tm_nf4_codes(float out[16])
{
    memcpy(out, codes, sizeof codes);
}

/* Bound i of 2^e equal parts of [0.1, 1]: counted from the nearer end, so that both ends are exact. */
static float bound(int e, int i)
{
    int   parts = 1 << e;
    float step = (1.0f - 0.1f) / (float)parts;
    return i < (parts + 1) / 2 ? fmaf(step, (float)i, 0.1f) : fmaf(-step, (float)(parts - i), 1.0f);
}

/* Entry q of 256 numbers that share 7 bits between a decimal exponent and a fraction (Dettmers 2015, "8-bit
 * approximations for parallelism in deep learning"): for each exponent e = 0 .. 6 the middles of 2^e equal parts of
 * [0.1, 1], times 10^(e - 6), of both signs; 0 and 1. */
static float map_entry(int q)
{
    static const float tens[7] = { 1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1 };
    if (q == 127) return 0;
    if (q == 255) return 1;
    int rank = q < 127 ? 127 - q : q - 127, e = 0; /* 1 .. 127 from the smallest magnitude */
    while (rank >= 1 << (e + 1)) e++;
    int   i = rank - (1 << e);
    float value = tens[e] * ((bound(e, i) + bound(e, i + 1)) / 2);
    return q < 127 ? -value : value;
}

void tm_nf4_map(float out[256])
{
    for (int q = 0; q < 256; q++) out[q] = map_entry(q);
}

static float group_scale(const unsigned char *group, int64_t block)
{
    float mean, scale;
    memcpy(&mean, group, sizeof mean);
    memcpy(&scale, group + 4, sizeof scale);
    float product = map_entry(group[8 + block]) * scale;
    return product + mean;
}

float tm_nf4_scale(const void *data, int64_t i)
{
    const unsigned char *group = (const unsigned char *)data + (size_t)(i / TM_NF4_GROUP) * TM_NF4_GROUP_BYTES;
    return group_scale(group, i % TM_NF4_GROUP / TM_NF4_BLOCK);
}

float tm_nf4_value(const void *data, int64_t i)
{
    const unsigned char *group = (const unsigned char *)data + (size_t)(i / TM_NF4_GROUP) * TM_NF4_GROUP_BYTES;
    int64_t              at = i % TM_NF4_GROUP;
    unsigned             byte = group[TM_NF4_HEAD + at / 2];
    return codes[at % 2 ? byte & 15 : byte >> 4] * group_scale(group, at / TM_NF4_BLOCK);
}

void tm_nf4_pack(float mean, float scale, const uint8_t *q, const uint8_t *codes_, int64_t n, void *out)
{
    unsigned char *group = out;
    size_t         blocks = (size_t)((n + TM_NF4_BLOCK - 1) / TM_NF4_BLOCK);
    memset(group, 0, TM_NF4_HEAD);
    memcpy(group, &mean, sizeof mean);
    memcpy(group + 4, &scale, sizeof scale);
    memcpy(group + 8, q, blocks);
    memcpy(group + TM_NF4_HEAD, codes_, (size_t)((n + 1) / 2));
}

/* --- quantizing --------------------------------------------------------------------------------------------------- */

/* Index of the nearest of n ascending values. */
static unsigned nearest(const float *values, unsigned n, float x)
{
    unsigned low = 0, high = n - 1;
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        if (values[middle] <= x)
            low = middle;
        else
            high = middle;
    }
    return fabsf(x - values[low]) <= fabsf(values[high] - x) ? low : high;
}

static float largest(const float *values, int64_t n)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(values[i]) <= most)) most = fabsf(values[i]); /* a NaN stays */
    return most;
}

static unsigned char code_of(float value, float scale)
{
    return scale > 0 ? (unsigned char)nearest(codes, 16, value / scale) : 7;
}

/* A group of n values with the largest magnitudes of its blocks. */
static void quantize_group(const float *values, int64_t n, const float *most, float mean, unsigned char *out)
{
    uint8_t q[BLOCKS] = { 0 }, packed[TM_NF4_GROUP / 2] = { 0 };
    float   apart[BLOCKS], map[256];
    int64_t blocks = (n + TM_NF4_BLOCK - 1) / TM_NF4_BLOCK;
    tm_nf4_map(map);
    for (int64_t b = 0; b < blocks; b++) apart[b] = most[b] - mean;
    float scale = largest(apart, blocks);
    for (int64_t b = 0; b < blocks; b++) q[b] = scale > 0 ? (uint8_t)nearest(map, 256, apart[b] / scale) : 127;
    for (int64_t i = 0; i < n; i++)
        packed[i / 2] |= (uint8_t)(code_of(values[i], most[i / TM_NF4_BLOCK]) << (i % 2 ? 0 : 4));
    tm_nf4_pack(mean, scale, q, packed, n, out);
}

typedef struct {
    const tm_nf4_io *io;
    int64_t          n;
    float           *values, *most; /* of AT_ONCE groups; of all blocks */
} quantizer;

static void find_largest(const quantizer *z)
{
    for (int64_t first = 0; first < z->n; first += (int64_t)AT_ONCE * TM_NF4_GROUP) {
        int64_t left = z->n - first,
                n = left < (int64_t)AT_ONCE * TM_NF4_GROUP ? left : (int64_t)AT_ONCE * TM_NF4_GROUP;
        z->io->values(z->io->context, first, n, z->values);
#pragma omp parallel for schedule(static) num_threads(z->io->threads)
        for (int64_t b = 0; b < n; b += TM_NF4_BLOCK)
            z->most[(first + b) / TM_NF4_BLOCK] = largest(z->values + b, n - b < TM_NF4_BLOCK ? n - b : TM_NF4_BLOCK);
    }
}

static tm_status quantize(const quantizer *z, float mean, unsigned char *out, tm_error *err)
{
    for (int64_t first = 0; first < z->n; first += (int64_t)AT_ONCE * TM_NF4_GROUP) {
        int64_t left = z->n - first,
                n = left < (int64_t)AT_ONCE * TM_NF4_GROUP ? left : (int64_t)AT_ONCE * TM_NF4_GROUP;
        z->io->values(z->io->context, first, n, z->values);
#pragma omp parallel for schedule(static) num_threads(z->io->threads)
        for (int64_t g = 0; g < n; g += TM_NF4_GROUP)
            quantize_group(z->values + g, n - g < TM_NF4_GROUP ? n - g : TM_NF4_GROUP,
                           z->most + (first + g) / TM_NF4_BLOCK, mean,
                           out + (size_t)(g / TM_NF4_GROUP) * TM_NF4_GROUP_BYTES);
        size_t at = (size_t)(first / TM_NF4_GROUP) * TM_NF4_GROUP_BYTES;
        TM_TRY(z->io->write(z->io->context, at, out, tm_nf4_bytes(n), err));
    }
    return TM_OK;
}

tm_status tm_nf4_store(const tm_nf4_io *io, int64_t n, tm_error *err)
{
    int64_t        blocks = (n + TM_NF4_BLOCK - 1) / TM_NF4_BLOCK;
    quantizer      z = { .io = io, .n = n };
    unsigned char *out = tm_alloc((size_t)AT_ONCE * TM_NF4_GROUP_BYTES);
    double         sum = 0;
    z.values = tm_alloc((size_t)AT_ONCE * TM_NF4_GROUP * sizeof *z.values);
    z.most = tm_alloc((size_t)(blocks + 1) * sizeof *z.most);
    find_largest(&z);
    for (int64_t b = 0; b < blocks; b++) sum += (double)z.most[b];
    tm_status st = quantize(&z, (float)(sum / (double)blocks), out, err);
    free(z.values);
    free(z.most);
    free(out);
    return st;
}
