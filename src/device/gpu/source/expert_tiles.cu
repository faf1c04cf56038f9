/* SPDX-License-Identifier: Apache-2.0 */
/* A part of texts: whose rows a block's tile of SIDE rows has, read from the experts' offsets. */
#if defined(__HIP__)
DEVICE int exchanged(int x, int mask)
{
    return __builtin_bit_cast(int, other_lane(__builtin_bit_cast(float, x), mask));
}
DEVICE int uniform(int x)
{
    return __builtin_amdgcn_readfirstlane(x);
}
#else
DEVICE int exchanged(int x, int mask)
{
#if WAVE > 1
    x = __shfl_xor_sync(0xffffffffu, x, mask);
#endif
    return x;
}
DEVICE int uniform(int x)
{
    return x;
}
#endif

struct tile_rows {
    int expert, first, end; /* `experts`: rows of nobody; more: there is no such tile */
};

/* Tiles of SIDE rows are numbered expert after expert, then those of nobody's rows. Every wave finds its block's: a lane has
 * an expert, and sums of tiles over the lanes before it come by halves. */
DEVICE tile_rows tile_of(int tile, const int *offsets, int experts, int rows)
{
    int found = 0, from = 0, before = 0, lane = thread_id() % WAVE;
    for (int e0 = 0; e0 <= experts && before <= tile; e0 += WAVE) {
        int e = e0 + lane, begin = e <= experts ? offsets[e] : rows, end = e < experts ? offsets[e + 1] : rows;
        int tiles = (end - begin + SIDE - 1) / SIDE, upto = tiles, all = tiles;
        for (int m = 1; m < WAVE; m <<= 1) {
            int other = exchanged(all, m);
            upto += lane & m ? other : 0;
            all += other;
        }
        int first = before + upto - tiles;
        if (tile >= first && tile < first + tiles) found = e + 1, from = first;
        before += all;
    }
    for (int m = WAVE / 2; m > 0; m >>= 1) found += exchanged(found, m), from += exchanged(from, m);
    found = uniform(found), from = uniform(from);
    if (found == 0) return { experts + 1, 0, 0 };
    int expert = found - 1;
    return { expert, offsets[expert] + (tile - from) * SIDE, expert < experts ? offsets[expert + 1] : rows };
}
