/* SPDX-License-Identifier: Apache-2.0 */
/* A part of texts with fragments.cu: scales of blocks of 128 k, in float32, as op/codes.h lays them. */
enum { SCALES_OF_RUNS = 2, SCALES_OF_SQUARES }; /* the numbers of op/codes.h */

/* Of one factor, whose scales 32 bits count: of runs (blocks, lines), of squares of 128 lines (squares, blocks and what fills
 * up). */
struct run_scales {
    const f32 *scales;
    int        kind;
    u32        first, lines, blocks;
    METHOD float of(int row, u32 block) const
    {
        u32 line = first + (u32)row;
        if (kind == SCALES_OF_SQUARES) return scales[line / 128 * blocks + block];
        return scales[block * lines + (line < lines ? line : lines - 1)];
    }
};
struct of_block {
    enum { PARTS = 1 };
    run_scales a, b;
    METHOD float of(int row, int column, i64 k) const
    {
        return a.of(row, (u32)k / PROMOTED) * b.of(column, (u32)k / PROMOTED);
    }
};

/* Blocks of a line of squares, with what fills up. */
DEVICE u32 squares_of(u32 depth)
{
    return ((depth + 127) / 128 + 3) / 4 * 4;
}
