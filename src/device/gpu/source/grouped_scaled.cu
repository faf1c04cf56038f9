/* SPDX-License-Identifier: Apache-2.0 */
/* Products of codes of experts by matrix units (fragments.cu): rows offsets[e] .. offsets[e + 1] - 1 are those of expert e,
 * whose scales are its own. C: format of the result; A_E5M2, B_E5M2: which codes are e5m2. CUT: what has parts with scales
 * of their own: 0 rows of a, 1 rows of b, 2 what is summed over. WEIGHTS: the gradient of the weights. */
#define CODES 1
#define A_ACROSS 0
#define B_ACROSS 0
#include "fragments.cu"

enum { PARTS = 8 };
enum { OF_ROWS, OF_COLUMNS, OF_DEPTH };

/* Where each part ends. */
struct parts {
    int n, end[PARTS];
};

DEVICE int end_of(const parts &p, int number)
{
    int end = 0;
    UNROLL for (int i = 0; i < PARTS; i++) end = i == number ? p.end[i] : end;
    return end;
}
DEVICE int part_at(const parts &p, int i)
{
    int number = 0;
    UNROLL for (int k = 0; k + 1 < PARTS; k++) number += k + 1 < p.n && i >= p.end[k];
    return number;
}

/* The scales of one factor in an expert, of part `part` where the depth has parts. lines: they are those of lines. */
struct side {
    const f32 *scales;
    int        lines, divided; /* divided: parts are runs of its lines */
    METHOD float of(const parts &p, i64 line) const
    {
        return scales[lines ? line : divided ? part_at(p, (int)line) : 0];
    }
};
/* first: the number of an expert's first line among those of all, n: how many it has. */
DEVICE side side_of(const f32 *scales, int lines, bool divided, const parts &p, int expert, i64 first, i64 n, int part)
{
    bool through = CUT == OF_DEPTH;
    i64  own = through || divided ? p.n : 1;
    i64  at = !lines ? expert * own + (through ? part : 0) : through ? first * own + part * n : first;
    return side{ scales + at, lines, divided };
}

#if WEIGHTS

/* dw_e = a_e b_e^T: c (experts, rows, columns), a (rows, all), b (columns, all). The grid's third dimension: experts. */
KERNEL(grouped_scaled_weights)
(C *c, const element *RESTRICT a, const element *RESTRICT b, const f32 *RESTRICT scale_a, const f32 *RESTRICT scale_b,
 const int *RESTRICT offsets, i64 rows, i64 columns, i64 all, int lines_a, int lines_b, int adds, parts p)
{
    alignas(16) SHARED byte as[TILE], bs[TILE];
    int     expert = block_id(2);
    i64     row0 = (i64)block_id(1) * SIDE, column0 = (i64)block_id(0) * SIDE;
    side    of_a = side_of(scale_a, lines_a, CUT == OF_ROWS, p, expert, expert * rows, rows, 0);
    side    of_b = side_of(scale_b, lines_b, CUT == OF_COLUMNS, p, expert, expert * columns, columns, 0);
    results sum;
    clear(&sum);
    product_of(&sum, { a, b, rows, columns, offsets[expert], offsets[expert + 1], all, all, row0, column0 }, as, bs,
               as_it_is());
    EACH_RESULT (sum, row, column, value) {
        i64 m = row0 + row, n = column0 + column, at = (expert * rows + m) * columns + n;
        if (m >= rows || n >= columns) continue;
        float v = value * (of_a.of(p, m) * of_b.of(p, n));
        put(c, at, adds ? v + get(c, at) : v);
    }
}

#else

#include "expert_tiles.cu"

/* Of rows and columns of a tile; beyond them what the last ones have. */
struct of_part {
    enum { PARTS = 1 };
    side         a, b;
    const parts &p;
    i64          row0, column0, rows, columns;
    METHOD float of(int row, int column, i64) const
    {
        i64 m = row0 + row, n = column0 + column;
        return a.of(p, m < rows ? m : rows - 1) * b.of(p, n < columns ? n : columns - 1);
    }
};

/* c_r = a_r b_e^T + bias_e + residual_r, + c_r where it adds: c (rows, columns), a (rows, depth), b_e (columns, depth). Rows of
 * nobody are 0. */
KERNEL(grouped_scaled_rows)
(C *c, const element *RESTRICT a, const element *RESTRICT b, const f32 *RESTRICT scale_a, const f32 *RESTRICT scale_b,
 const int *RESTRICT offsets, const C *RESTRICT bias, const C *residual, int experts, int rows, i64 columns, i64 depth,
 int lines_a, int lines_b, int adds, parts p)
{
    alignas(16) SHARED byte as[TILE], bs[TILE];
    tile_rows t = tile_of(block_id(1), offsets, experts, rows);
    if (t.expert > experts || (t.expert == experts && adds)) return;
    i64       begin = t.expert < experts ? offsets[t.expert] : 0, n_rows = t.end - begin;
    i64       own = t.end - t.first, row0 = t.first - begin, column0 = (i64)block_id(0) * SIDE;
    results   sum;
    factors   f = { a + (i64)t.first * depth, b + (i64)t.expert * columns * depth, own, columns, 0, depth, depth, depth, 0,
                    column0 };
    side      of_a = side_of(scale_a, lines_a, false, p, t.expert, begin, n_rows, 0);
    side      of_b = side_of(scale_b, lines_b, CUT == OF_COLUMNS, p, t.expert, t.expert * columns, columns, 0);
    clear(&sum);
#if CUT == 2
    ROLLED for (int part = 0; part < p.n && t.expert < experts; part++) {
        f.from = part > 0 ? end_of(p, part - 1) : 0;
        f.depth = end_of(p, part);
        of_a = side_of(scale_a, lines_a, false, p, t.expert, begin, n_rows, part);
        of_b = side_of(scale_b, lines_b, false, p, t.expert, t.expert * columns, columns, part);
        product_of(&sum, f, as, bs, of_part{ of_a, of_b, p, row0, column0, n_rows, columns });
    }
#else
    if (t.expert < experts) product_of(&sum, f, as, bs, as_it_is());
#endif
    if (t.expert == experts) bias = 0, residual = 0;
    EACH_RESULT (sum, row, column, value) {
        i64 n = column0 + column, at = ((i64)t.first + row) * columns + n;
        if (row >= own || n >= columns) continue;
        float v = value;
        if (CUT != 2 && t.expert < experts) v *= of_a.of(p, row0 + row) * of_b.of(p, n);
        if (bias) v += get(bias, t.expert * columns + n);
        if (residual) v += get(residual, at);
        put(c, at, adds ? v + get(c, at) : v);
    }
}

#endif
