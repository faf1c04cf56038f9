/* SPDX-License-Identifier: Apache-2.0 */
/* Codes of a factor, and the scales beside them, as the library that multiplies them has both (op/codes.h). A part of
 * quantize.cu, whose types and numbers these are. */

/* Kinds of scales: the numbers of op/codes.h. */
enum { SCALES_PLAIN = 1, SCALES_OF_RUNS, SCALES_OF_SQUARES, SCALES_IN_TILES, SCALES_IN_ROWS };

/* Of a number of the format: of 8 bits, or of 4; with the exponent 0 for those below the least normal one. */
DEVICE u32 code_of(float x, const recipe &q)
{
    u32 size = bits_of(x) & 0x7fffffffu, sign = CODES == 3 ? bits_of(x) >> 28 & 8u : bits_of(x) >> 24 & 0x80u;
    u32 away = 23u - (u32)q.mantissa;
    u32 code = (size >> away) - ((u32)(126 + q.least_exponent) << q.mantissa);
    int below = 127 + q.least_exponent - (int)(size >> 23);
    if (size > 0x7f800000u) return CODES == 3 ? sign | 7u : CODES == 2 ? 0x80u : sign | 0x7fu;
    if (below > 0) code = ((size & 0x7fffffu) | 0x800000u) >> (below > 8 ? 31u : away + (u32)below);
    return CODES == 2 && size == 0 ? 0u : sign | code;
}

struct alignas(8) pairs {
    u32 of[2];
};

/* Where lines run down, y is transposed. wide: 16 codes can be written at once
 * where the first one is at a multiple of 16, as those of experts' rows may not be. Of codes of 4 bits two share a byte, the
 * first one in its low half; a line has room for a multiple of 32. */
DEVICE void store(const float (&v)[RUN], const call &c, const part &p, int line, int k, const recipe &q)
{
    int   n = line < p.lines ? p.length - k : 0;
    i64   at = c.down ? p.turned + (p.column + line) * c.room + k : (p.row + line) * c.columns + p.column + k;
    words w = {};
    u32   code[RUN];
    UNROLL for (int i = 0; i < RUN; i++) code[i] = code_of(v[i], q);
#if CODES == 3
    UNROLL for (int i = 0; i < RUN; i++) w.of[i / 8] |= code[i] << 4 * (i % 8);
    if (n > 0) *(pairs *)(void *)(c.y + (u64)at / 2) = pairs{ { w.of[0], w.of[1] } };
#else
    UNROLL for (int i = 0; i < RUN; i++) w.of[i / 4] |= code[i] << 8 * (i % 4);
    if (c.wide && n >= RUN && at % RUN == 0) {
        *(words *)(void *)(c.y + at) = w;
    } else {
        UNROLL for (int i = 0; i < RUN; i++)
            if (i < n) c.y[at + i] = (Y)code[i];
    }
#endif
}

/* --- scales */

/* A matrix of lines with scales of blocks: of all parts, where no block ends with a part, or of one; first: where its
 * scales begin. 32 bits count the scales of any matrix. */
struct matrix {
    u32 lines, length, first;
};

/* Blocks of a line, with those that fill up. */
DEVICE u32 blocks_of(int kind, u32 length, u32 block)
{
    u32 n = (length + block - 1) / block;
    return kind == SCALES_OF_SQUARES || kind == SCALES_IN_TILES ? (n + 3) / 4 * 4 : n;
}

DEVICE u32 scales_of(int kind, u32 lines, u32 length, u32 block)
{
    u32 squares = (lines + 127) / 128;
    u32 high = kind == SCALES_OF_SQUARES ? squares : kind == SCALES_IN_TILES ? squares * 128 : lines;
    return high * blocks_of(kind, length, block);
}

/* Of experts all rows are one matrix, and each has a weight. */
DEVICE matrix matrix_of(const call &c, const place &w, u32 block)
{
    matrix m = { (u32)(c.down ? c.columns : (int)c.rows), (u32)(c.down ? (int)c.room : c.columns), 0 };
    if (c.whole) {
        if (!c.offsets) m.first = (u32)w.cell / (u32)c.parts * scales_of(c.kind, m.lines, m.length, block);
        return m;
    }
    for (int i = 0; i < w.p.number; i++) {
        part before = part_of(c, 0, i);
        m.first += scales_of(c.kind, (u32)before.lines, (u32)before.length, block);
    }
    m.lines = (u32)w.p.lines;
    m.length = (u32)w.p.length;
    return m;
}

DEVICE u32 place_of_scale(int kind, const matrix &m, u32 line, u32 b, u32 block)
{
    u32 n = blocks_of(kind, m.length, block);
    if (kind == SCALES_OF_RUNS) return m.first + b * m.lines + line;
    if (kind == SCALES_OF_SQUARES) return m.first + line / 128 * n + b;
    if (kind == SCALES_IN_TILES)
        return m.first + (line / 128 * n + b / 4 * 4) * 128 + line % 32 * 16 + line % 128 / 32 * 4 + b % 4;
    return m.first + line * n + b;
}

/* What the codes of element k and its neighbours are multiplied with; the first run of a block writes it. The number in
 * e8m0 is the exponent of that in float32; 0 is 2^-127. */
DEVICE void store_scale(const call &c, const place &w, int line, int k, const recipe &q, const scaling &s)
{
    float number = s.divide != 0.0f ? 1.0f / s.divide : s.first * s.second;
    u32   block = (u32)q.block;
    if (!c.scales) return;
    if (c.kind == SCALES_PLAIN) {
        if (k == 0 && (q.scaled == LINE || line == 0)) c.scales[q.scaled == LINE ? w.p.first + line : w.cell] = number;
        return;
    }
    if ((u32)k % block != 0 || (c.kind == SCALES_OF_SQUARES && (u32)line % block != 0)) return;
    matrix m = matrix_of(c, w, block);
    u32    l = (u32)line, at = (u32)k, row = (u32)(c.offsets && c.down ? w.p.turned : w.p.row);
    if (!c.offsets) row -= (u32)w.cell / (u32)c.parts * (u32)c.rows;
    if (c.whole) l += c.down ? (u32)w.p.column : row, at += c.down ? row : (u32)w.p.column;
    u32 to = place_of_scale(c.kind, m, l, at / block, block);
    if (c.kind == SCALES_IN_TILES || c.kind == SCALES_IN_ROWS)
        ((unsigned char *)(void *)c.scales)[to] = (unsigned char)(bits_of(number) >> 23);
    else
        c.scales[to] = number;
}

/* What fills a layout up is 0; before scales are written. bytes: behind n words. */
KERNEL(clear_scales)(u32 *scales, i64 n, int bytes)
{
    EACH(i, n) scales[i] = 0u;
    if (block_id(0) == 0 && thread_id() < bytes) ((unsigned char *)(void *)(scales + n))[thread_id()] = 0;
}

/* Codes of lines that run down, behind the rows of expert block_id(0): 0 up to where the next one begins, before codes are
 * written. */
KERNEL(clear_gaps)(Y *y, const int *offsets, i64 room, int experts, int lines, int begins)
{
    enum { WIDE = 64, IN_BYTE = CODES == 3 ? 2 : 1 };
    int e = block_id(0);
    i64 from = begin_of(offsets[e], e, begins) + offsets[e + 1] - offsets[e];
    i64 end = e + 1 < experts ? begin_of(offsets[e + 1], e + 1, begins) : room;
    for (int line = block_id(1) * (BLOCK / WIDE) + thread_id() / WIDE; line < lines; line += blocks(1) * (BLOCK / WIDE))
        for (u32 at = (u32)from / IN_BYTE + (u32)thread_id() % WIDE; at < (u32)end / IN_BYTE; at += WIDE)
            y[line * (i64)((u32)room / IN_BYTE) + at] = 0;
}
