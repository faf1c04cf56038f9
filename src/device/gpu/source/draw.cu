/* SPDX-License-Identifier: Apache-2.0 */
/* Initial values: random numbers with the bits of base/random.c, whose formulas these are. Y: their format. */

/* Philox-4x32-10. */
DEVICE void philox(u64 key, u64 stream, u64 index, u32 *r)
{
    u32 k0 = (u32)key, k1 = (u32)(key >> 32), c0 = (u32)index, c1 = (u32)(index >> 32), c2 = (u32)stream,
        c3 = (u32)(stream >> 32);
    UNROLL for (int round = 0; round < 10; round++) {
        u64 p0 = (u64)0xd2511f53u * c0, p1 = (u64)0xcd9e8d57u * c2;
        c0 = (u32)(p1 >> 32) ^ c1 ^ k0;
        c2 = (u32)(p0 >> 32) ^ c3 ^ k1;
        c1 = (u32)p1;
        c3 = (u32)p0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    r[0] = c0;
    r[1] = c1;
    r[2] = c2;
    r[3] = c3;
}

/* sqrt(-2 ln u), u = (k + 1/2) / 2^24 of the word's upper 24 bits k. */
DEVICE float radius_of(u32 word)
{
    int    odd = (int)(word >> 8) * 2 + 1, e = (int)(bits_of((float)odd) + (0x3f800000u - 0x3f3504f3u)) >> 23;
    double m = (double)odd * (double)float_of((u32)(254 - e) << 23), s = (m - 1.0) / (m + 1.0), z = s * s, sum = 1.0 / 15.0;
    UNROLL for (int n = 13; n > 1; n -= 2) sum = sum * z + 1.0 / (double)n;
    double logarithm = (double)(e - 152) * 0x1.62e42fefa39efp-1 + 2.0 * (s + s * z * sum);
    return square_root((float)(-2.0 * logarithm));
}

/* Cosine (or sine) of k / 2^24 turns. */
DEVICE float turn_of(u32 word, bool sine)
{
    int    k = (int)(word >> 8), quarter = (k + (1 << 21)) >> 22;
    double x = (double)(k - quarter * (1 << 22)) * 0x1.921fb54442d18p-22, z = x * x;
    double s = 1.0 / 6227020800.0, c = 1.0 / 479001600.0;
    s = s * z - 1.0 / 39916800.0;
    s = s * z + 1.0 / 362880.0;
    s = s * z - 1.0 / 5040.0;
    s = s * z + 1.0 / 120.0;
    s = s * z - 1.0 / 6.0;
    c = c * z - 1.0 / 3628800.0;
    c = c * z + 1.0 / 40320.0;
    c = c * z - 1.0 / 720.0;
    c = c * z + 1.0 / 24.0;
    c = c * z - 0.5;
    float of_x = (float)(x + x * z * s), of_quarter = (float)(1.0 + z * c);
    float value = ((quarter & 1) != 0) != sine ? of_x : of_quarter;
    return ((quarter + (sine ? 0 : 1)) & 2) != 0 ? -value : value;
}

DEVICE double normal(u64 key, u64 stream, u64 number)
{
    u32 r[4], lane = (u32)number % 4u;
    philox(key, stream, number >> 2, r);
    return (double)(radius_of(lane < 2u ? r[0] : r[2]) * turn_of(lane < 2u ? r[1] : r[3], lane == 1u || lane == 3u));
}

/* In [-1, 1): a multiple of 2^-52. */
DEVICE double uniform(u64 key, u64 stream, u64 number)
{
    u32 r[4];
    philox(key, stream, number, r);
    int high = (int)(r[1] >> 1), low = (int)((r[1] & 1u) << 21 | r[0] >> 11); /* 31 bits and 22 */
    return 2.0 * ((double)high * 0x1p-31 + (double)low * 0x1p-53) - 1.0;
}

enum { NONE, NORMAL, UNIFORM };

/* Elements from .. from + n - 1 of rows: element i is number first + i / columns * ld + i % columns. cut > 0: normal ones
 * beyond it are drawn again. */
KERNEL(draw)
(Y *RESTRICT y, i64 key, i64 stream, i64 first, i64 columns, i64 ld, i64 from, i64 n, double mean, double spread, double cut,
 int law)
{
    EACH (k, n) {
        u64    i = (u64)(from + k), row = i / (u64)columns, number = (u64)first + row * (u64)ld + (i - row * (u64)columns);
        u64    of = (u64)stream;
        double off = 0.0;
        if (law == UNIFORM) off = spread * uniform((u64)key, of, number);
        if (law == NORMAL) {
            off = spread * normal((u64)key, of, number);
            ROLLED while (cut > 0.0 && (off > cut || off < -cut))
            {
                of += 0x9e3779b97f4a7c15ull;
                off = spread * normal((u64)key, of, number);
            }
        }
        put(y, k, (float)(mean + off));
    }
}
