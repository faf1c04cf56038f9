/* SPDX-License-Identifier: Apache-2.0 */
#include "base/random.h"

#include "base/status.h"

#include <math.h>
#include <string.h>

__extension__ typedef unsigned __int128 u128;

static uint64_t mix64(uint64_t x) /* finaliser of splitmix64 */
{
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

uint64_t tm_random_key(uint64_t seed)
{
    return mix64(seed + 0x9E3779B97F4A7C15u);
}

static inline void rounds(uint64_t key, uint64_t stream, uint64_t index, uint32_t out[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

static void philox(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4])
{
    rounds(tm_random_key(seed), stream, index, out);
}

uint64_t tm_random_u64(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t r[4];
    philox(seed, stream, index, r);
    return (uint64_t)r[1] << 32 | r[0];
}

double tm_random_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    return (double)(tm_random_u64(seed, stream, index) >> 11) * 0x1p-53;
}

double tm_random_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t r[4];
    philox(seed, stream, index, r);
    double u = ((double)((((uint64_t)r[1] << 32) | r[0]) >> 11) + 1) * 0x1p-53; /* (0, 1] */
    double v = (double)((((uint64_t)r[3] << 32) | r[2]) >> 11) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* sqrt(-2 ln u), u = (k + 1/2) / 2^24 of the word's upper 24 bits k. 2 k + 1 = 2^e m, m about sqrt(1/2) .. sqrt(2);
 * ln m = 2 artanh(s). */
static inline float radius_of(uint32_t word)
{
    int32_t odd = (int32_t)(word >> 8) * 2 + 1, e;
    float   rounded = (float)odd, scale;
    memcpy(&e, &rounded, sizeof e);
    e = (e + (0x3f800000 - 0x3f3504f3)) >> 23;
    uint32_t inverse = (uint32_t)(254 - e) << 23;
    memcpy(&scale, &inverse, sizeof scale);
    double m = (double)odd * (double)scale, s = (m - 1) / (m + 1), z = s * s, sum = 1.0 / 15;
    sum = sum * z + 1.0 / 13;
    sum = sum * z + 1.0 / 11;
    sum = sum * z + 1.0 / 9;
    sum = sum * z + 1.0 / 7;
    sum = sum * z + 1.0 / 5;
    sum = sum * z + 1.0 / 3;
    double logarithm = (double)(e - 152) * 0x1.62e42fefa39efp-1 + 2 * (s + s * z * sum);
    return sqrtf((float)(-2 * logarithm));
}

/* Cosine and sine of k / 2^24 turns: of at most an eighth of a turn to the nearest quarter, whose number chooses. */
static inline void turn_of(uint32_t word, float *cosine, float *sine)
{
    int32_t k = (int32_t)(word >> 8), quarter = (k + (1 << 21)) >> 22;
    double  x = (double)(k - quarter * (1 << 22)) * 0x1.921fb54442d18p-22, z = x * x;
    double  s = 1.0 / 6227020800, c = 1.0 / 479001600;
    s = s * z - 1.0 / 39916800;
    s = s * z + 1.0 / 362880;
    s = s * z - 1.0 / 5040;
    s = s * z + 1.0 / 120;
    s = s * z - 1.0 / 6;
    c = c * z - 1.0 / 3628800;
    c = c * z + 1.0 / 40320;
    c = c * z - 1.0 / 720;
    c = c * z + 1.0 / 24;
    c = c * z - 0.5;
    float of_x = (float)(x + x * z * s), of_quarter = (float)(1 + z * c);
    float a = quarter & 1 ? of_x : of_quarter, b = quarter & 1 ? of_quarter : of_x;
    *cosine = (quarter + 1) & 2 ? -a : a;
    *sine = quarter & 2 ? -b : b;
}

/* The normals of n counters. A loop that compilers make vectors of. */
static void normals_of(uint64_t key, uint64_t stream, uint64_t counter, int n, float *restrict out)
{
    for (int i = 0; i < n; i++) {
        uint32_t r[4];
        float    cosine, sine;
        rounds(key, stream, counter + (uint64_t)i, r);
        float radius = radius_of(r[0]);
        turn_of(r[1], &cosine, &sine);
        out[4 * i] = radius * cosine;
        out[4 * i + 1] = radius * sine;
        radius = radius_of(r[2]);
        turn_of(r[3], &cosine, &sine);
        out[4 * i + 2] = radius * cosine;
        out[4 * i + 3] = radius * sine;
    }
}

void tm_random_normals(uint64_t seed, uint64_t stream, uint64_t first, int64_t n, float *out)
{
    enum { COUNTERS = 64 };
    uint64_t key = tm_random_key(seed);
    float    made[4 * COUNTERS];
    for (int64_t i = 0, count; i < n; i += count) {
        int skipped = (int)((first + (uint64_t)i) % 4);
        count = n - i < 4 * COUNTERS - skipped ? n - i : 4 * COUNTERS - skipped;
        normals_of(key, stream, (first + (uint64_t)i) / 4, (int)(skipped + count + 3) / 4, made);
        memcpy(out + i, made + skipped, (size_t)count * sizeof *out);
    }
}

/* Numbers of one row. */
static void make_run(const tm_random_rows *rows, uint64_t first, int64_t n, float *out)
{
    if (!(rows->std > 0)) {
        for (int64_t i = 0; i < n; i++) out[i] = (float)rows->mean;
        return;
    }
    if (rows->uniform) {
        double most = rows->std * sqrt(3);
        for (int64_t i = 0; i < n; i++)
            out[i] =
                (float)(rows->mean + most * (2 * tm_random_uniform(rows->seed, rows->stream, first + (uint64_t)i) - 1));
        return;
    }
    tm_random_normals(rows->seed, rows->stream, first, n, out);
    for (int64_t i = 0; i < n; i++) {
        uint64_t stream = rows->stream;
        double   off = rows->std * (double)out[i];
        while (rows->cut > 0 && fabs(off) > rows->cut) {
            float again;
            stream += 0x9E3779B97F4A7C15u;
            tm_random_normals(rows->seed, stream, first + (uint64_t)i, 1, &again);
            off = rows->std * (double)again;
        }
        out[i] = (float)(rows->mean + off);
    }
}

void tm_random_make(const tm_random_rows *rows, int64_t from, int64_t n, float *out)
{
    for (int64_t i = 0, count; i < n; i += count) {
        int64_t row = (from + i) / rows->columns, column = (from + i) % rows->columns;
        count = n - i < rows->columns - column ? n - i : rows->columns - column;
        make_run(rows, (uint64_t)(rows->first + row * rows->ld + column), count, out + i);
    }
}

uint64_t tm_random_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n)
{
    TM_ASSERT(n > 0);
    return (uint64_t)(((u128)tm_random_u64(seed, stream, index) * n) >> 64);
}

uint64_t tm_random_stream(const char *name)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (const unsigned char *s = (const unsigned char *)name; *s; s++) h = (h ^ *s) * 0x100000001B3u;
    return h;
}

uint64_t tm_random_permute(uint64_t seed, uint64_t stream, uint64_t i, uint64_t n)
{
    TM_ASSERT(i < n);
    int half = 1;
    while (half < 32 && (uint64_t)1 << (2 * half) < n) half++;
    uint64_t mask = ((uint64_t)1 << half) - 1, key = mix64(seed ^ mix64(stream));
    do { /* a permutation of 0 .. 4^half - 1; values beyond n walk on along their cycle */
        uint64_t left = i >> half, right = i & mask;
        for (uint64_t round = 0; round < 6; round++) {
            uint64_t next = left ^ (mix64(right + mix64(key + round)) & mask);
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}
