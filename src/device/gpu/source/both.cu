/* SPDX-License-Identifier: Apache-2.0 */
/* Codes of a factor as it lies and transposed, of one look at it (op/quantize_both.c); where scales are those of lines or
 * of the tensor, of one more for the largest magnitudes of both. Arithmetic, formats and definitions are those of
 * quantize.cu. With MAKER the factor is made on the way, of the inputs of another op (op/quantize_made.c, made.cu); then
 * one of the two codes may be all that is asked for.
 *
 * A block has a tile of TILE rows by TILE columns; a thread has RUN elements of each of DEEP rows below each other. Where
 * blocks have scales, their largest magnitudes are found first, and the tile comes once more, from a cache. Codes of the
 * transposed matrix pass through shared memory: a word has those of a column in the DEEP rows of a thread, and of 16 columns
 * words stand 4 apart from those of the next 16, so that no two lanes of a store meet in a bank. */
#define BOTH 1
#include "quantize.cu"

#ifndef MAKER
#define MAKER 0
#define WAYS 3
#endif
/* The numbers of op/quantize.h. */
#define SWIGLU 1
#define SWIGLU_GRAD 2
#define GELU 3
#define GELU_GRAD 4
#define GEGLU 5

/* HALVES: tiles of a block: of the gradient of a gate, which has two parts, one of each. */
enum { TILE = WIDTH, DEEP = 4, DEPTHS = TILE / DEEP, MOST_BLOCKS = TILE / RUN, HALVES = MAKER == SWIGLU_GRAD ? 2 : 1 };
/* WAYS: which codes are asked for. */
enum { LIES = WAYS & 1, TURNS = WAYS >> 1 };

#include "made.cu"

/* c: of the codes as they lie. Workspace, for scales of lines: part_rows (column tiles, lines), part_columns (row tiles,
 * columns), and the largest of all: of_rows, of_columns. second, width: see made.cu. */
struct both {
    call c;
    Y   *turned;
    f32 *turned_scales, *part_rows, *part_columns, *of_rows, *of_columns;
    i64  all_rows, all_columns, tiles;
    const X *second;
    int      turned_row, turned_whole, turned_wide, rows_apart, width;
};

/* A tile: its part, as it lies and transposed; number: among all tiles; row, column: its first ones, in the part. */
struct spot {
    place of, turned;
    int   number, first, tiles, row, column;
    bool  found;
};

DEVICE int cut(int n)
{
    return (n + TILE - 1) / TILE;
}

/* Of tile number `at`, or of cell number `at`. */
DEVICE spot spot_of(const call &c, int at, bool of_cell)
{
    spot s = {};
    i64  rows = 0, columns = 0;
    int  cell = 0;
    for (int group = 0; group < c.groups; group++)
        for (int number = 0; number < c.parts; number++, cell++) {
            part p = part_of(c, group, number);
            int  wide = cut(p.length), n = cut(p.lines) * wide, own = at - s.first;
            s.found = of_cell ? at == cell : own < n;
            if (s.found) {
                p.first = rows;
                s.of.p = s.turned.p = p;
                s.of.cell = s.turned.cell = cell;
                s.turned.p.first = columns;
                s.turned.p.lines = p.length;
                s.turned.p.length = p.lines;
                s.number = at, s.tiles = n;
                if (!of_cell) s.row = own / wide * TILE, s.column = own % wide * TILE;
                return s;
            }
            s.first += n;
            rows += p.lines;
            columns += p.length;
        }
    return s;
}

/* Of the call, for what the transposed codes have. */
DEVICE call turned_call(const both &b)
{
    call t = b.c;
    t.down = 1;
    t.scales = b.turned_scales;
    t.whole = b.turned_whole;
    return t;
}

/* The thread's rows and columns within the tile. */
DEVICE int depth_in(void)
{
    return thread_id() / RUNS;
}
DEVICE int across_in(void)
{
    return thread_id() % RUNS * RUN;
}

/* The block's tiles. */
DEVICE void find_spots(spot (&s)[HALVES], const both &b)
{
    UNROLL for (int h = 0; h < HALVES; h++) s[h] = spot_of(b.c, block_id(0) + h * blocks(0), false);
}

/* Elements of a row of the thread. */
DEVICE void load_row(float (&v)[HALVES][RUN], const both &b, const spot (&s)[HALVES], int row)
{
    const part &p = s[0].of.p;
    int         line = s[0].row + depth_in() * DEEP + row, k = s[0].column + across_in();
#if MAKER
    make(v, b.c.x, b.second, p.row + line, p.column + k, b.width, line < p.lines ? p.length - k : 0, b.c.vectors);
#else
    load(v[0], b.c, p, line, k, 0);
#endif
}

/* The largest of a tile: of runs of rows, into runs (HALVES, TILE, RUNS), of the thread's columns and of all that it has. */
struct looked {
    float columns[RUN], all;
};
DEVICE void look(looked (&most)[HALVES], float *runs, const both &b, const spot (&s)[HALVES])
{
    ROLLED for (int r = 0; r < DEEP; r++) {
        float v[HALVES][RUN];
        load_row(v, b, s, r);
        UNROLL for (int h = 0; h < HALVES; h++) {
            float row = largest_in(v[h]);
            runs[h * TILE * RUNS + (depth_in() * DEEP + r) * RUNS + thread_id() % RUNS] = row;
            most[h].all = larger(most[h].all, row);
            UNROLL for (int i = 0; i < RUN; i++) most[h].columns[i] = larger(most[h].columns[i], magnitude(v[h][i]));
        }
    }
}

/* Of columns of the thread's rows, into columns (DEPTHS, TILE). */
DEVICE void show_columns(float *columns, const looked &most)
{
    UNROLL for (int i = 0; i < RUN; i++) columns[depth_in() * TILE + across_in() + i] = most.columns[i];
}

DEVICE float largest_of_runs(const float *runs, int row, int first, int n)
{
    float most = 0.0f;
    for (int i = first; i < first + n; i++) most = larger(most, runs[row * RUNS + i]);
    return most;
}
DEVICE float largest_of_column(const float *columns, int column, int first, int n)
{
    float most = 0.0f;
    for (int d = first; d < first + n; d++) most = larger(most, columns[d * TILE + column]);
    return most;
}

/* The larger of its own and of those of threads whose numbers differ in the bits of `mask`. */
DEVICE float shared_with(float most, float *room, int mask)
{
    room[thread_id()] = most;
    barrier();
    most = larger(most, room[thread_id() ^ mask]);
    barrier();
    return most;
}

/* --- what is largest: of tiles, then of cells and lines */

KERNEL(largest_of_both)(both b)
{
    SHARED float columns[DEPTHS * TILE], runs[HALVES * TILE * RUNS];
    looked       most[HALVES] = {};
    spot         s[HALVES];
    int          own = thread_id();
    find_spots(s, b);
    if (!s[0].found) return;
    look(most, runs, b, s);
    barrier();
    UNROLL for (int h = 0; h < HALVES; h++) {
        const place &of = s[h].of, &turned = s[h].turned;
        float       *of_half = runs + h * TILE * RUNS;
        if (b.c.keeps_lines) {
            if (h > 0) barrier();
            show_columns(columns, most[h]);
            barrier();
            if (own < TILE && s[h].row + own < of.p.lines)
                b.part_rows[s[h].column / TILE * b.all_rows + of.p.first + s[h].row + own] =
                    largest_of_runs(of_half, own, 0, RUNS);
            if (own < TILE && s[h].column + own < of.p.length)
                b.part_columns[s[h].row / TILE * b.all_columns + turned.p.first + s[h].column + own] =
                    largest_of_column(columns, own, 0, DEPTHS);
        } else {
            float all = block_largest(most[h].all, of_half);
            if (own == 0) b.c.tile_largest[s[h].number] = all;
        }
    }
}

/* A block for each cell and, of lines, for each BLOCK of them, those of rows before those of columns. */
KERNEL(largest_of_parts)(both b)
{
    SHARED float room[BLOCK];
    spot         s = spot_of(b.c, block_id(0), true);
    float        most = 0.0f;
    if (b.c.keeps_lines) {
        bool columns = block_id(1) >= b.rows_apart;
        int  line = (block_id(1) - (columns ? b.rows_apart : 0)) * BLOCK + thread_id();
        if (line >= (columns ? s.of.p.length : s.of.p.lines)) return;
        int        n = cut(columns ? s.of.p.lines : s.of.p.length);
        i64        apart = columns ? b.all_columns : b.all_rows, at = (columns ? s.turned.p.first : s.of.p.first) + line;
        const f32 *parts = columns ? b.part_columns : b.part_rows;
        for (int i = 0; i < n; i++) most = larger(most, parts[i * apart + at]);
        (columns ? b.of_columns : b.of_rows)[at] = most;
    } else {
        for (int i = thread_id(); i < s.tiles; i += BLOCK) most = larger(most, b.c.tile_largest[s.first + i]);
        most = block_largest(most, room);
        if (thread_id() == 0) b.c.cell_largest[block_id(0)] = most;
    }
}

/* --- scales and codes */

/* The code of x by: narrow and code_of of quantize.cu in one. Units of the last place are a whole number behind 2^23; with
 * the exponent above the least one that is the code, as a number that is rounded up to the next exponent has that code, too. */
DEVICE u32 encoded(float x, float by, const recipe &q, found &sum)
{
    float scaled = x * by, size = magnitude(scaled), most = size > q.largest ? q.largest : size;
    u32   least = (u32)(127 + q.least_exponent) << 23, e = bits_of(most) & 0x7f800000u, sign = bits_of(scaled) >> 24 & 0x80u;
    if (e < least) e = least;
    float units = multiply_add(most, float_of(((u32)(254 + q.mantissa) << 23) - e), 8388608.0f);
    u32   code = ((e - least) >> (23 - q.mantissa)) + (bits_of(units) - 0x4b000000u);
    sum.saturated += size > q.largest;
    sum.flushed += code == 0 && x != 0.0f;
    if (bits_of(size) > 0x7f800000u) return CODES == 2 ? 0x80u : sign | 0x7fu;
    return CODES == 2 && code == 0 ? 0u : sign | code;
}

DEVICE void note_scale(found &sum, float encode)
{
    if (encode > 0.0f && (sum.least == 0.0f || encode < sum.least)) sum.least = encode;
}

/* RUN codes of a line, n of which there are. */
DEVICE void store_codes(Y *y, i64 at, words w, int n, bool wide)
{
    if (wide && n >= RUN && at % RUN == 0) {
        *(words *)(void *)(y + at) = w;
    } else if (WAYS == 3) {
        UNROLL for (int i = 0; i < RUN; i++)
            if (i < n) y[at + i] = (Y)(w.of[i / 4] >> 8 * (i % 4));
    } else { /* so many conditions would take scalars that a wave has not */
        UNROLL for (int j = 0; j < RUN / 4; j++) {
            u32 of = w.of[j];
            ROLLED for (int i = 4 * j; i < 4 * j + 4 && i < n; i++, of >>= 8) y[at + i] = (Y)of;
        }
    }
}

/* The scale of a cell, where it has one: of the tensor, or of earlier steps. */
DEVICE scaling scaling_of_cell(const both &b, const recipe &q, int cell, int row)
{
    if (q.scaled == DELAYED) {
        float of = b.c.scale ? b.c.scale[row + cell] : 0.0f;
        float s = of > 0.0f ? of : 1.0f;
        return scaling{ s, s, 0.0f, 0.0f };
    }
    return scaling_of(q.scaled != TENSOR ? 0.0f : q.given ? b.c.given[cell] : b.c.cell_largest[cell], 0.0f, q);
}

/* Of columns and their blocks: what they are multiplied by, into scales (blocks of a column, TILE). */
DEVICE void scale_columns(float *scales, const float *columns, const both &b, const call &t, const spot &s, const recipe &q)
{
    int block = q.scaled == LINE ? TILE : q.block;
    for (int at = thread_id(); at < TILE / block * TILE; at += BLOCK) {
        int   column = at % TILE, k = at / TILE * block, line = s.column + column;
        float most = 0.0f;
        if (q.scaled != LINE)
            most = largest_of_column(columns, column, k / DEEP, block / DEEP);
        else if (line < s.turned.p.lines)
            most = b.of_columns[s.turned.p.first + line];
        scaling of = scaling_of(most, 0.0f, q);
        scales[at] = of.encode;
        if (line < s.turned.p.lines && s.row + k < s.turned.p.length) store_scale(t, s.turned, line, s.row + k, q, of);
    }
}

/* Scales of the transposed matrix that are those of its squares, or of the cell. */
DEVICE void store_turned_scales(const call &t, const spot &s, const recipe &q, scaling of)
{
    int k = s.row + depth_in() * DEEP, line = s.column + across_in();
    if (k >= s.turned.p.length) return;
    ROLLED for (int i = 0; i < RUN; i++)
        if (line + i < s.turned.p.lines) store_scale(t, s.turned, line + i, k, q, of);
}

/* Where the word of a column is for the rows of one thread. */
DEVICE int place_of_word(int column, int depth)
{
    return column * DEPTHS + (depth ^ (column / RUN * 4));
}

/* Words of the thread's columns pass through room (TILE, DEPTHS). */
DEVICE void turn(u32 *room, const u32 (&word)[RUN], const both &b, const spot &s)
{
    UNROLL for (int i = 0; i < RUN; i++) room[place_of_word(across_in() + i, depth_in())] = word[i];
    barrier();
    const part &p = s.turned.p;
    int         k = s.row + across_in();
    ROLLED for (int i = 0; i < TILE; i += BLOCK / RUNS) {
        int column = i + depth_in(), line = s.column + column;
        if (line >= p.lines || k >= p.length) continue;
        words w = *(const words *)(const void *)(room + place_of_word(column, across_in() / DEEP));
        store_codes(b.turned, p.turned + (p.column + line) * b.c.room + k, w, p.length - k, b.turned_wide);
    }
}

/* Where the scales of a row are found: largest of runs of the tile's rows, scales of columns. */
struct ruler {
    scaling      along, down;
    const float *runs, *scales;
    bool         own, apart; /* columns have scales of their own; the transposed codes are other ones */
};

/* Codes of a row of the thread; those of the transposed matrix go into words. */
DEVICE void quantize_row(u32 (&word)[RUN], found (&sum)[2], const float (&v)[RUN], const both &b, const spot &s,
                         const ruler &by, int r)
{
    const recipe &q = b.c.of[0];
    const part   &p = s.of.p;
    int           depth = depth_in() * DEEP + r, line = s.row + depth, k = s.column + across_in();
    sum[0].largest = larger(sum[0].largest, largest_in(v));
    if (LIES) {
        scaling of = by.along;
        words   w = {};
        if (q.scaled == LINE) of = scaling_of(b.of_rows[p.first + line], 0.0f, q);
        if (q.scaled == RUN_OF_LINE) {
            int n = q.block / RUN;
            of = scaling_of(largest_of_runs(by.runs, depth, thread_id() % RUNS / n * n, n), 0.0f, q);
        }
        store_scale(b.c, s.of, line, k, q, of);
        note_scale(sum[0], of.encode);
        UNROLL for (int i = 0; i < RUN; i++) {
            u32 code = encoded(v[i], of.encode, q, sum[0]);
            w.of[i / 4] |= code << 8 * (i % 4);
            if (!by.apart) word[i] |= code << 8 * r;
        }
        store_codes(b.c.y, (p.row + line) * b.c.columns + p.column + k, w, p.length - k, b.c.wide);
    }
    if (!by.apart) return;
    const float *columns = by.scales + (q.scaled == LINE ? 0 : depth / q.block * TILE) + across_in();
    UNROLL for (int i = 0; i < RUN; i++) {
        float scale = by.own ? columns[i] : by.down.encode;
        if (k + i < p.length) note_scale(sum[1], scale);
        word[i] |= encoded(v[i], scale, q, sum[1]) << 8 * r;
    }
}

/* The scale of a square, from the largest of each thread's elements. */
DEVICE scaling scaling_of_square(float most, float *room, const recipe &q)
{
    for (int mask = 1; mask < q.block / RUN; mask *= 2) most = shared_with(most, room, mask);
    for (int mask = RUNS; mask < RUNS * q.block / DEEP; mask *= 2) most = shared_with(most, room, mask);
    return scaling_of(most, 0.0f, q);
}

KERNEL(quantize_both)(both b)
{
    alignas(16) SHARED u32 room[DEPTHS * TILE];
    alignas(16) SHARED float runs[HALVES * TILE * RUNS], scales[HALVES * MOST_BLOCKS * TILE];
    float                 *columns = (float *)(void *)room;
    const recipe          &q = b.c.of[0]; /* codes have one format: no switch brings another recipe */
    spot                   s[HALVES];
    ruler                  by[HALVES];
    call                   t = turned_call(b);
    found                  sum[HALVES][2] = {};
    u32                    word[HALVES][RUN] = {};
    looked                 most[HALVES] = {};
    find_spots(s, b);
    if (!s[0].found) return;
    if (q.scaled == SQUARE || q.scaled == RUN_OF_LINE) {
        look(most, runs, b, s);
        barrier();
    }
    UNROLL for (int h = 0; h < HALVES; h++) {
        ruler &m = by[h];
        m.runs = runs + h * TILE * RUNS, m.scales = scales + h * MOST_BLOCKS * TILE;
        m.own = q.scaled == LINE || q.scaled == RUN_OF_LINE;
        m.along = m.down = scaling_of_cell(b, q, s[h].of.cell, b.c.row);
        if (q.scaled == DELAYED) m.down = scaling_of_cell(b, q, s[h].of.cell, b.turned_row);
        if (q.scaled == SQUARE) m.along = m.down = scaling_of_square(most[h].all, runs + h * TILE * RUNS, q);
        m.apart = TURNS && (m.own || !LIES || bits_of(m.along.encode) != bits_of(m.down.encode));
        if (!TURNS) continue;
        if (q.scaled == RUN_OF_LINE) {
            if (h > 0) barrier();
            show_columns(columns, most[h]);
            barrier();
        }
        if (m.own)
            scale_columns(scales + h * MOST_BLOCKS * TILE, columns, b, t, s[h], q);
        else
            store_turned_scales(t, s[h], q, m.down);
    }
    if (by[0].own) barrier();
    ROLLED for (int r = 0; r < DEEP; r++) {
        float v[HALVES][RUN];
        if (s[0].row + depth_in() * DEEP + r >= s[0].of.p.lines || s[0].column + across_in() >= s[0].of.p.length) continue;
        load_row(v, b, s, r);
        UNROLL for (int h = 0; h < HALVES; h++) quantize_row(word[h], sum[h], v[h], b, s[h], by[h], r);
    }
    UNROLL for (int h = 0; h < HALVES; h++) {
        if (h > 0 || !TURNS) barrier();
        if (TURNS) turn(room, word[h], b, s[h]);
    }
    if (!b.c.record) return;
    UNROLL for (int h = 0; h < HALVES; h++) {
        if (!by[h].apart) sum[h][1] = sum[h][0];
        sum[h][1].largest = sum[h][0].largest;
        UNROLL for (int d = 0; d < 2; d++) {
            if (!(d ? TURNS : LIES)) continue;
            float *of = d ? scales + h * MOST_BLOCKS * TILE : runs + h * TILE * RUNS;
            found  tile = found_by_block(sum[h][d], (found *)(void *)of);
            if (thread_id() == 0) b.c.tile_record[d * b.tiles + s[h].number] = tile;
        }
    }
}

/* A block for each cell and direction: its row of the record. */
KERNEL(both_record)(both b)
{
    SHARED found  all[BLOCK];
    SHARED double counts[BLOCK];
    spot          s = spot_of(b.c, block_id(0), true);
    int           way = LIES ? block_id(1) : 1, row = way ? b.turned_row : b.c.row;
    record_cell(b.c.record + 4 * (i64)(row + block_id(0)), b.c, recipe_of(b.c), s.of.p, block_id(0),
                b.c.tile_record + way * b.tiles + s.first, s.tiles, all, counts);
}
