/* SPDX-License-Identifier: Apache-2.0 */
/* Part of other texts: float32 to bfloat16 by chance, with the bits of CPUs (device/cpu/simd/rounding.h). */

DEVICE u64 mix64(u64 x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ x >> 31;
}
DEVICE u32 mix32(u32 x)
{
    x ^= x >> 16;
    x *= 0x85ebca6bu;
    x ^= x >> 13;
    x *= 0xc2b2ae35u;
    return x ^ x >> 16;
}

/* Random words of a tensor's elements in a step. stream 0: there are none, everything is rounded to the nearest. */
struct chances {
    u32  low, high;
    bool on;

    /* which: independent ones of the same elements */
    METHOD u32 word(i64 i, u32 which) const
    {
        return mix32(mix32((u32)i ^ low) + mix32((u32)((u64)i >> 32) + high + which * 0x9e3779b9u));
    }
};

/* A whole number from 0 to 2^53 - 1. */
DEVICE u64 whole_of(const f64 *RESTRICT x)
{
    u64 bits = *(const u64 *)x;
    return bits == 0 ? 0 : (bits & 0xfffffffffffffull | 1ull << 52) >> (int)(1075 - (bits >> 52));
}

/* The key is word 0 of tm_random_u64(seed, stream, 0): Philox-4x32-10. */
DEVICE chances chances_of(i64 stream, const f64 *RESTRICT scalars)
{
    chances of = { 0, 0, stream != 0 };
    if (!of.on) return of;
    u64 key = mix64(whole_of(scalars + 5) + 0x9e3779b97f4a7c15ull);
    u32 k0 = (u32)key, k1 = (u32)(key >> 32), c0 = 0, c1 = 0, c2 = (u32)stream, c3 = (u32)((u64)stream >> 32);
    ROLLED for (int round = 0; round < 10; round++) {
        u64 p0 = (u64)0xd2511f53u * c0, p1 = (u64)0xcd9e8d57u * c2;
        c0 = (u32)(p1 >> 32) ^ c1 ^ k0;
        c2 = (u32)(p0 >> 32) ^ c3 ^ k1;
        c1 = (u32)p1;
        c3 = (u32)p0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    of.low = c0;
    of.high = c1;
    return of;
}

/* With the 16 bits of `word` from `shift` on. Infinity and NaN stay what they are. */
DEVICE void put_by_chance(f32 *y, i64 i, float value, u32 word, int shift)
{
    y[i] = value;
}
DEVICE void put_by_chance(bf16 *y, i64 i, float value, u32 word, int shift)
{
    u32  bits = bits_of(value);
    bool number = (bits & 0x7f800000u) != 0x7f800000u;
    if (number) bits += word >> shift & 0xffffu;
    if (number)
        y[i].bits = (unsigned short)(bits >> 16);
    else
        put(y, i, value);
}

/* By chance if that is on, else to the nearest. */
DEVICE void put_rounded(const chances &of, f32 *y, i64 i, float value, int shift)
{
    y[i] = value;
}
DEVICE void put_rounded(const chances &of, bf16 *y, i64 i, float value, int shift)
{
    if (of.on)
        put_by_chance(y, i, value, of.word(i, 0), shift);
    else
        put(y, i, value);
}
