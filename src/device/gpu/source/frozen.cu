/* SPDX-License-Identifier: Apache-2.0 */
/* Frozen weights in blocks of 64 with scales (graph/nf4.h, graph/blocks.h), decoded: the values of the CPU, bit for bit. Y:
 * format of the result. HEAD, GROUP_BYTES: bytes of a group's scales, and of a whole group. One of these is 1: NF4, where a
 * code has 4 bits; else it is E4M3's of 8. MAPPED: of NF4, where scales are numbers of a map. */

enum { GROUP_OF = 16384, BLOCK_OF = 64, RUN = 8 };

struct alignas(16) wide {
    Y of[16 / sizeof(Y)];
};

/* Code i of NF4. */
DEVICE float quantile(int i)
{
    float x = -1.0f;
#define IS(n, value)                                                                                                   \
    if (i == n) x = value;
    IS(1, -0.6961928009986877f)
    IS(2, -0.5250730514526367f)
    IS(3, -0.39491748809814453f)
    IS(4, -0.28444138169288635f)
    IS(5, -0.18477343022823334f)
    IS(6, -0.09105003625154495f)
    IS(7, 0.0f)
    IS(8, 0.07958029955625534f)
    IS(9, 0.16093020141124725f)
    IS(10, 0.24611230194568634f)
    IS(11, 0.33791524171829224f)
    IS(12, 0.44070982933044434f)
    IS(13, 0.5626170039176941f)
    IS(14, 0.7229568362236023f)
    IS(15, 1.0f)
#undef IS
    return x;
}

/* Bound i of 2^e equal parts of [0.1, 1], counted from the nearer end. */
DEVICE float bound(int e, int i)
{
    int   parts = 1 << e;
    float step = (1.0f - 0.1f) * float_of((u32)(127 - e) << 23);
    return i < (parts + 1) / 2 ? multiply_add(step, (float)i, 0.1f) : multiply_add(-step, (float)(parts - i), 1.0f);
}

/* Entry q of the map of scales: middles of the parts, times 10^(e - 6). */
DEVICE float map_entry(int q)
{
    int   apart = q - 127, rank = apart < 0 ? -apart : apart, e = 0;
    float ten = 1e-6f;
    if (q == 127) return 0.0f;
    if (q == 255) return 1.0f;
    if (rank >= 2) e = 1, ten = 1e-5f;
    if (rank >= 4) e = 2, ten = 1e-4f;
    if (rank >= 8) e = 3, ten = 1e-3f;
    if (rank >= 16) e = 4, ten = 1e-2f;
    if (rank >= 32) e = 5, ten = 1e-1f;
    if (rank >= 64) e = 6, ten = 1.0f;
    int   i = rank - (1 << e);
    float value = ten * ((bound(e, i) + bound(e, i + 1)) * 0.5f);
    return q < 127 ? -value : value;
}

/* E4M3: no infinity, and one NaN of either sign. */
DEVICE float e4m3(u32 code)
{
    u32   exponent = code >> 3 & 15u, fraction = code & 7u;
    float x = float_of((exponent ? exponent : 1u) + 120u << 23 | fraction << 20);
    if (exponent == 0) x -= 0x1p-6f;
    if ((code & 127u) == 127u) x = float_of(0x7fc00000u);
    return float_of(bits_of(x) | (code & 128u) << 24);
}

/* Eight elements a thread at a time: of one block. whole: y begins where 16 bytes can be stored at once. */
KERNEL(cast_blocks)(Y *RESTRICT y, const unsigned char *RESTRICT data, i64 n, int whole)
{
    SHARED float codes[16], map[256];
    int          thread = thread_id();
    if (NF4 && thread < 16) codes[thread] = quantile(thread);
    if (MAPPED) map[thread] = map_entry(thread);
    if (NF4) barrier();
    for (i64 i = ((i64)block_id(0) * BLOCK + thread) * RUN; i < n; i += (i64)blocks(0) * BLOCK * RUN) {
        const unsigned char *group = data + (u64)i / GROUP_OF * GROUP_BYTES;
        int                  at = (int)((u64)i % GROUP_OF), block = at / BLOCK_OF, left = n - i < RUN ? (int)(n - i) : RUN;
        const unsigned char *from = group + HEAD + (NF4 ? at / 2 : at);
        u32                  word[2] = {};
        float                scale, values[RUN];
        wide                 out[RUN * sizeof(Y) / 16];
        if (MAPPED) {
            const f32 *head = (const f32 *)group;
            scale = map[group[8 + block]] * head[1] + head[0];
        } else {
            scale = ((const f32 *)group)[block];
        }
        UNROLL for (int k = 0; k < (NF4 ? 1 : 2); k++) {
            if (left == RUN) {
                word[k] = ((const u32 *)from)[k];
                continue;
            }
            UNROLL for (int b = 0; b < 4; b++)
                if (4 * k + b < (NF4 ? (left + 1) / 2 : left)) word[k] |= (u32)from[4 * k + b] << 8 * b;
        }
        UNROLL for (int k = 0; k < RUN; k++)
            values[k] = scale * (NF4 ? codes[word[0] >> (4 * (k ^ 1)) & 15u] : e4m3(word[k / 4] >> 8 * (k % 4) & 255u));
        if (left < RUN || !whole) {
            UNROLL for (int k = 0; k < RUN; k++)
                if (k < left) put(y, i + k, values[k]);
            continue;
        }
        UNROLL for (int k = 0; k < RUN; k++) put((Y *)out, k, values[k]);
        UNROLL for (int k = 0; k < (int)(RUN * sizeof(Y) / 16); k++) ((wide *)(y + i))[k] = out[k];
    }
}
