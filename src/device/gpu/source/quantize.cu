/* SPDX-License-Identifier: Apache-2.0 */
/* Factors of products as a recipe of low precision leaves them (op/quantize.h), the largest magnitudes that scales follow
 * from, and what goes on from step to step. The arithmetic is that of op/quantize.h, operation by operation: the same bits.
 *
 * A block has tiles of HEIGHT lines by WIDTH elements, one after the other along its lines; a thread has RUN elements of a
 * line. Neighbours in memory are neighbouring threads: runs of a row, or columns where lines run down. Maxima, least
 * scales and counts do not depend on their order.
 *
 * X, Y: formats of the factor and of what it becomes. CODES: it becomes codes (1: of OCP's formats, 2: of FNUZ's, 3: of 4
 * bits), line after line, and Y is not given. WIDE_TICKS: counters are float64, else float32. ROUNDS: of 32 lines in a tile, as many as
 * a square asks for. BOTH: other kernels than those here (both.cu). */

#if CODES
typedef unsigned char Y;
#endif
#ifndef BOTH
#define BOTH 0
#endif

enum { RUN = 16, RUNS = 8, WIDTH = RUN * RUNS, LINES = BLOCK / RUNS, HEIGHT = LINES * ROUNDS, PARTS = 8 };

/* What shares a scale, rules, rotations: the numbers of op/quantize.h. */
enum { AS_IS, TENSOR, DELAYED, LINE, RUN_OF_LINE, SQUARE };
enum { RATIO, RATIO_POW2, FLOOR, CEIL, EVEN, UP, TWO_LEVEL };
enum { ROTATE_SIGNED = 2 };

#if WIDE_TICKS
typedef f64 T;
#else
typedef f32 T;
#endif

/* A recipe and its format; finds: what is largest has to be found before; given: it is an input. */
struct recipe {
    int   scaled, rule, rotation, stochastic, empty_one, finds, given, block, mantissa, least_exponent, top;
    float least, largest;
};

/* What a tile has, of a split of its lines; least: the least scale, 0: none. */
struct found {
    float largest, least;
    int   saturated, flushed;
};

/* Operands and shape of a call (device/gpu/quantize.c has the same). Workspace: tile_record (tiles, splits), tile_largest
 * (tiles, splits), cell_largest (cells), line_largest (splits, lines). */
struct call {
    Y         *y;
    f32       *record;
    const X   *x;
    const T   *ticks;
    const f32 *scale;
    const int *offsets;
    const f32 *given;
    f32       *scales;
    found     *tile_record;
    f32       *tile_largest, *cell_largest, *line_largest;
    u64        key, first_row;
    double     switch_step;
    i64        rows, ld, lines, room; /* room: codes of a line that runs down */
    int        groups, parts, columns, whole_columns, row;
    int        switches, down, cut_columns, vectors, adds, always, keeps_lines, wide, kind, whole;
    int        begins; /* 0, or of what lengths the lines of experts begin at multiples (op/codes.h) */
    int        end[PARTS], shift[PARTS];
    recipe     of[2];
};

/* --- parts of x, and tiles of their lines */

/* What is quantized by itself; first: the number of its first line among all lines; turned: where codes of its first row
 * begin, less the column's, where lines run down. */
struct part {
    i64 row, first, turned;
    int number, column, lines, length;
};

/* Element `at` of a few, without an address for them. */
DEVICE int element_of(const int (&all)[PARTS], int at)
{
    int found = 0;
    UNROLL for (int i = 0; i < PARTS; i++) found = at == i ? all[i] : found;
    return found;
}

/* Where the codes of an expert whose first row is `row` begin in a line that runs down. */
DEVICE i64 begin_of(i64 row, int expert, int begins)
{
    return begins > 0 ? ((u32)row / (u32)begins + (u32)expert) * (u32)begins : row;
}

DEVICE part part_of(const call &c, int group, int number)
{
    i64  row = group * c.rows, rows = c.rows;
    int  begin = number > 0 ? element_of(c.end, number - 1) : 0, n = element_of(c.end, number) - begin;
    part p = { 0, 0, 0, number, 0, 0, 0 };
    if (c.offsets) row = c.offsets[group], rows = c.offsets[group + 1] - c.offsets[group];
    p.row = row + (c.cut_columns ? 0 : begin);
    p.turned = c.offsets ? begin_of(row, group, c.begins) : row * c.columns + (c.cut_columns ? 0 : begin);
    p.column = c.cut_columns ? begin : 0;
    int high = c.cut_columns || c.offsets ? (int)rows : n, wide = c.cut_columns ? n : c.columns;
    p.lines = c.down ? wide : high;
    p.length = c.down ? high : wide;
    return p;
}

DEVICE int tiles_of(const part &p)
{
    return (p.lines + HEIGHT - 1) / HEIGHT;
}

/* Of tile number `at`, or of cell number `at`: the part, the tile's first line, the cell's first tile. */
struct place {
    part p;
    int  cell, line, first_tile;
    bool found;
};
DEVICE place place_of(const call &c, int at, bool of_cell)
{
    place w = {};
    i64   first = 0;
    for (int group = 0; group < c.groups; group++)
        for (int number = 0; number < c.parts; number++, w.cell++) {
            w.p = part_of(c, group, number);
            w.p.first = first;
            int tiles = tiles_of(w.p);
            w.found = of_cell ? at == w.cell : at < w.first_tile + tiles;
            w.line = (at - w.first_tile) * HEIGHT;
            if (w.found) return w;
            w.first_tile += tiles;
            first += w.p.lines;
        }
    w.p.first = first;
    return w;
}

/* Steps that are done, beyond those of the switch. The difference of whole numbers has their order. */
DEVICE float beyond_switch(const T *ticks, double switch_step)
{
    return (float)((double)ticks[0] - switch_step);
}

DEVICE recipe recipe_of(const call &c)
{
    bool second = c.ticks && c.switches && beyond_switch(c.ticks, c.switch_step) >= 0.0f;
    return second ? c.of[1] : c.of[0];
}

/* A counter, which is a whole number from 0 on, from its bits. */
DEVICE u64 counted(const f64 *x)
{
    u64 bits = *(const u64 *)(const void *)x;
    int e = (int)(bits >> 52) - 1023;
    return e < 0 ? 0 : ((bits & ((1ull << 52) - 1)) | 1ull << 52) >> (52 - e);
}
DEVICE u64 counted(const f32 *x)
{
    u32 bits = bits_of(*x), e = bits >> 23;
    u64 digits = bits & 0x7fffffu | 0x800000u;
    return e < 127 ? 0 : e < 150 ? digits >> (150 - e) : digits << (e - 150);
}


/* The line of this thread in a round, and its run. */
DEVICE int line_in(const call &c, int round)
{
    return LINES * round + (c.down ? thread_id() % LINES : thread_id() / RUNS);
}
DEVICE int run_in(const call &c)
{
    return c.down ? thread_id() / LINES : thread_id() % RUNS;
}

/* --- elements */

struct alignas(16) words {
    u32 of[4];
};
DEVICE void unpack(float *v, const f32 *, words w)
{
    UNROLL for (int i = 0; i < 4; i++) v[i] = float_of(w.of[i]);
}
DEVICE void unpack(float *v, const bf16 *, words w)
{
    UNROLL for (int i = 0; i < 4; i++) v[2 * i] = float_of(w.of[i] << 16), v[2 * i + 1] = float_of(w.of[i] & 0xffff0000u);
}
DEVICE words pack(const float *v, const f32 *)
{
    words w;
    UNROLL for (int i = 0; i < 4; i++) w.of[i] = bits_of(v[i]);
    return w;
}
DEVICE words pack(const float *v, const bf16 *)
{
    bf16  two[8];
    words w;
    UNROLL for (int i = 0; i < 8; i++) put(two, i, v[i]);
    UNROLL for (int i = 0; i < 4; i++) w.of[i] = (u32)two[2 * i].bits | (u32)two[2 * i + 1].bits << 16;
    return w;
}

DEVICE i64 place_in(const call &c, const part &p, int line, int k, i64 ld)
{
    return (p.row + (c.down ? k : line)) * ld + p.column + (c.down ? line : k);
}

/* RUN elements from element k of a line on, rotated; zeros where there are none. */
DEVICE void load(float (&v)[RUN], const call &c, const part &p, int line, int k, int rotation)
{
    const int each = 16 / (int)sizeof(X);
    int       n = line < p.lines ? p.length - k : 0;
    i64       at = place_in(c, p, line, k, c.ld), apart = c.down ? c.ld : 1;
    if (c.vectors && n >= RUN) {
        UNROLL for (int i = 0; i < RUN; i += each) unpack(v + i, c.x, *(const words *)(const void *)(c.x + at + i));
    } else {
        UNROLL for (int i = 0; i < RUN; i++) v[i] = i < n ? get(c.x, at + i * apart) : 0.0f;
    }
    if (!rotation || n < RUN) return;
    const u32 signs = 0xd7e8u; /* of the recipe NVFP4: bit i is set where element i changes its sign */
    if (rotation == ROTATE_SIGNED) {
        UNROLL for (int i = 0; i < RUN; i++) v[i] = signs >> i & 1u ? -v[i] : v[i];
    }
    UNROLL for (int half = 1; half < RUN; half *= 2) {
        UNROLL for (int i = 0; i < RUN; i++) {
            if (i & half) continue;
            float low = v[i], high = v[i + half];
            v[i] = low + high;
            v[i + half] = low - high;
        }
    }
    UNROLL for (int i = 0; i < RUN; i++) v[i] *= 0.25f;
}

/* A code q stands for q / divide, or for q first second where divide is 0. */
struct scaling {
    float encode, divide, first, second;
};

#if CODES
#include "codes.cu"
#else
DEVICE void store(const float (&v)[RUN], const call &c, const part &p, int line, int k, const recipe &)
{
    const int each = 16 / (int)sizeof(Y);
    int       n = line < p.lines ? p.length - k : 0;
    i64       at = place_in(c, p, line, k, c.columns), apart = c.down ? c.columns : 1;
    if (c.vectors && n >= RUN) {
        UNROLL for (int i = 0; i < RUN; i += each) *(words *)(void *)(c.y + at + i) = pack(v + i, c.y);
    } else {
        UNROLL for (int i = 0; i < RUN; i++)
            if (i < n) put(c.y, at + i * apart, v[i]);
    }
}
#endif

DEVICE float magnitude(float x)
{
    return float_of(bits_of(x) & 0x7fffffffu);
}
DEVICE float largest_in(const float (&v)[RUN])
{
    float most = 0.0f;
    UNROLL for (int i = 0; i < RUN; i++) most = larger(most, magnitude(v[i]));
    return most;
}

/* The larger of its own and of that of the run whose number differs in the bits of `mask`; runs are numbered line by line. */
DEVICE void share(float (&most)[ROUNDS], float *room, const call &c, int mask)
{
    int at = line_in(c, 0) * RUNS + run_in(c);
    UNROLL for (int r = 0; r < ROUNDS; r++) room[at + r * BLOCK] = most[r];
    barrier();
    UNROLL for (int r = 0; r < ROUNDS; r++) {
        int own = at + r * BLOCK;
        most[r] = larger(most[r], room[own & mask ? own - mask : own + mask]);
    }
    barrier();
}

#if !BOTH

/* --- what is largest: of tiles and lines, then of cells */

KERNEL(largest_of_tiles)(call c)
{
    SHARED float room[HEIGHT * RUNS];
    recipe       q = recipe_of(c);
    place        w = place_of(c, block_id(0), false);
    float        most[ROUNDS] = {}, all = 0.0f;
    if (!w.found || !(q.finds || c.always)) return;
    for (int k = block_id(1) * WIDTH; k < w.p.length; k += blocks(1) * WIDTH) {
        UNROLL for (int r = 0; r < ROUNDS; r++) {
            float v[RUN];
            load(v, c, w.p, w.line + line_in(c, r), k + run_in(c) * RUN, q.rotation);
            most[r] = larger(most[r], largest_in(v));
        }
    }
    UNROLL for (int r = 0; r < ROUNDS; r++) all = larger(all, most[r]);
    if (c.keeps_lines) {
        for (int mask = 1; mask < RUNS; mask *= 2) share(most, room, c, mask);
        UNROLL for (int r = 0; r < ROUNDS; r++) {
            int line = w.line + line_in(c, r);
            if (run_in(c) == 0 && line < w.p.lines) c.line_largest[block_id(1) * c.lines + w.p.first + line] = most[r];
        }
    }
    all = block_largest(all, room);
    if (thread_id() == 0) c.tile_largest[block_id(0) * blocks(1) + block_id(1)] = all;
}

/* A block for each cell. */
KERNEL(largest_of_cells)(call c, int splits)
{
    SHARED float room[BLOCK];
    recipe       q = recipe_of(c);
    place        w = place_of(c, block_id(0), true);
    float        most = 0.0f;
    if (!(q.finds || c.always)) return;
    for (int i = thread_id(); i < tiles_of(w.p) * splits; i += BLOCK)
        most = larger(most, c.tile_largest[w.first_tile * splits + i]);
    most = block_largest(most, room);
    if (thread_id() == 0) c.cell_largest[block_id(0)] = most;
}

/* Of a line, from those of its splits. */
DEVICE float largest_of_line(const call &c, i64 line, int splits)
{
    float most = 0.0f;
    for (int s = 0; s < splits; s++) most = larger(most, c.line_largest[s * c.lines + line]);
    return most;
}

/* Of rows that no expert has 0. */
KERNEL(largest_of_lines)(f32 *largest, call c, int splits)
{
    i64 used = place_of(c, 0x7fffffff, true).p.first;
    EACH(i, c.lines) largest[i] = i < used ? largest_of_line(c, i, splits) : 0.0f;
}

#endif

/* --- scales and codes */

DEVICE float power(int e)
{
    return float_of((u32)(e + 127) << 23);
}

/* The number of a format nearest to x, ties to even, saturated; or one of the two around it, the upper one if `chance` is
 * below the remainder. chance < 0: to nearest. */
DEVICE float narrow(float x, float largest, int mantissa, int least, float chance)
{
    const float most_finite = float_of(0x7f7fffffu);
    float       size = magnitude(x), most = size > largest ? largest : size;
    int         e = (int)(bits_of(most) >> 23);
    if (e < 127 + least) e = 127 + least;
    if (e == 255) e = 160; /* NaN: all else is below */
    float units = most * float_of((u32)(254 - e + mantissa) << 23), whole = (units + 8388608.0f) - 8388608.0f;
    if (chance >= 0.0f && size <= most_finite) {
        if (whole > units) whole -= 1.0f;
        if (chance < units - whole) whole += 1.0f;
    }
    return float_of(bits_of(whole * float_of((u32)(e - mantissa) << 23)) | (bits_of(x) & 0x80000000u));
}

DEVICE int exponent_of(float amax, const recipe &q)
{
    if (amax == 0.0f) return q.empty_one ? 0 : -127;
    u32 bits = bits_of(q.rule == UP ? amax / q.largest : amax);
    if (q.rule == EVEN) bits += 1u << (22 - q.mantissa);
    int e = (int)(bits >> 23) - 127;
    if ((q.rule == CEIL || q.rule == UP) && (bits & 0x7fffffu)) e++;
    if (q.rule != UP) e -= q.top;
    return e < -127 ? -127 : e > 127 ? 127 : e;
}

DEVICE float finite(float x)
{
    const float most = float_of(0x7f7fffffu);
    return x > most ? most : x;
}

/* Of numbers whose largest is amax, and is `whole` in all of the tensor. */
DEVICE scaling scaling_of(float amax, float whole, const recipe &q)
{
    if (q.rule == RATIO || q.rule == RATIO_POW2) {
        if (q.least > 0.0f && amax < q.least) amax = q.least;
        bool  none = amax == 0.0f || !(amax <= float_of(0x7f7fffffu));
        float s = none ? 1.0f : finite(q.largest / amax);
        if (q.rule == RATIO_POW2) s = float_of(bits_of(s) & 0xff800000u);
        return scaling{ s, s, 0.0f, 0.0f };
    }
    if (!BOTH && q.rule == TWO_LEVEL) { /* has no codes */
        float most = 448.0f * q.largest, global = whole > 0.0f ? finite(most / whole) : 1.0f;
        float block = narrow(amax / q.largest * global, 448.0f, 3, -6, -1.0f);
        float encode = block > 0.0f ? finite(1.0f / (block * (1.0f / global))) : 0.0f;
        return scaling{ encode, 0.0f, block, whole > 0.0f ? whole / most : 1.0f };
    }
    int e = exponent_of(amax, q), half = e >> 1;
    return scaling{ -e < -126 ? power(-126) : power(-e), 0.0f, power(half), power(e - half) };
}

/* The upper 24 bits of the random number of an element, in [0, 1): Philox-4x32-10 as in base/random.c; the key is the
 * seed's, the stream the pass. */
DEVICE float chance_of(u64 key, u64 pass, u64 element)
{
    u32 k0 = (u32)key, k1 = (u32)(key >> 32);
    u32 c0 = (u32)element, c1 = (u32)(element >> 32), c2 = (u32)pass, c3 = (u32)(pass >> 32);
    ROLLED for (int round = 0; round < 10; round++) {
        u64 p0 = (u64)0xd2511f53u * c0, p1 = (u64)0xcd9e8d57u * c2;
        c0 = (u32)(p1 >> 32) ^ c1 ^ k0;
        c2 = (u32)(p0 >> 32) ^ c3 ^ k1;
        c1 = (u32)p1;
        c3 = (u32)p0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return (float)(c1 >> 8) * 5.9604644775390625e-8f;
}

/* A run becomes what its codes stand for. element: the number of the first in the whole tensor, `apart` to the next. */
DEVICE void quantize_run(float (&v)[RUN], const recipe &q, scaling s, u64 key, u64 pass, u64 element, u64 apart,
                         found &sum)
{
    UNROLL for (int i = 0; i < RUN; i++) {
        float scaled = v[i] * s.encode;
        float chance = q.stochastic ? chance_of(key, pass, element + (u64)i * apart) : -1.0f;
        float code = narrow(scaled, q.largest, q.mantissa, q.least_exponent, chance);
        sum.saturated += magnitude(scaled) > q.largest;
        sum.flushed += code == 0.0f && v[i] != 0.0f;
        v[i] = CODES ? code : s.divide != 0.0f ? code / s.divide : code * s.first * s.second;
    }
    if (s.encode > 0.0f && (sum.least == 0.0f || s.encode < sum.least)) sum.least = s.encode;
}

DEVICE void add_found(found &a, const found &b)
{
    a.largest = larger(a.largest, b.largest);
    if (b.least > 0.0f && (a.least == 0.0f || b.least < a.least)) a.least = b.least;
    a.saturated += b.saturated;
    a.flushed += b.flushed;
}

/* Of all threads, in thread 0. */
DEVICE found found_by_block(found sum, found *room)
{
    int thread = thread_id();
    room[thread] = sum;
    barrier();
    ROLLED for (int m = BLOCK / 2; m > 0; m >>= 1) {
        if (thread < m) add_found(room[thread], room[thread + m]);
        barrier();
    }
    return room[0];
}

/* Of a block: the row of a cell in the record, from what its n tiles found. An expert without rows has the scale 1 and no
 * shares. No scale is 0: such a row is one of zeros, which nothing was added to. */
DEVICE void record_cell(float *row, const call &c, const recipe &q, const part &p, int cell, const found *of, int n, found *all,
                        double *counts)
{
    found  sum = { 0.0f, 0.0f, 0, 0 };
    double saturated = 0.0, flushed = 0.0;
    bool   empty = p.lines == 0 || p.length == 0;
    for (int i = thread_id(); i < n && !empty; i += BLOCK) {
        found tile = of[i];
        saturated += (double)tile.saturated;
        flushed += (double)tile.flushed;
        add_found(sum, tile);
    }
    sum = found_by_block(sum, all);
    saturated = block_sum(saturated, counts);
    barrier();
    flushed = block_sum(flushed, counts);
    if (thread_id() != 0) return;
    double elements = empty ? 1.0 : (double)p.lines * (double)p.length;
    float  fresh[4] = { q.given ? c.given[cell] : sum.largest, empty || q.scaled == AS_IS ? 1.0f : sum.least,
                        (float)(saturated / elements), (float)(flushed / elements) };
    bool   adds = c.adds && !(row[1] <= 0.0f);
    UNROLL for (int i = 0; i < 4; i++) {
        bool keep = adds && (empty || (i == 1 ? row[i] < fresh[i] : row[i] > fresh[i]));
        if (!keep) row[i] = fresh[i];
    }
}

#if !BOTH

/* The largest of a run's group, from those of its runs. */
DEVICE void share_group(float (&most)[ROUNDS], float *room, const call &c, const recipe &q)
{
    if (q.scaled != RUN_OF_LINE && q.scaled != SQUARE) return;
    for (int mask = 1; mask < q.block / RUN; mask *= 2) share(most, room, c, mask);
    if (q.scaled != SQUARE) return;
    for (int mask = RUNS; mask < RUNS * q.block; mask *= 2) share(most, room, c, mask);
}

KERNEL(quantize)(call c, int splits)
{
    SHARED float room[HEIGHT * RUNS];
    SHARED found all[BLOCK];
    recipe       q = recipe_of(c);
    place        w = place_of(c, block_id(0), false);
    found        sum = { 0.0f, 0.0f, 0, 0 };
    float        of_line[ROUNDS] = {}, whole = 0.0f;
    if (!w.found) return;
    if (q.given)
        whole = c.given[w.cell];
    else if (q.finds)
        whole = c.cell_largest[w.cell];
    UNROLL for (int r = 0; r < ROUNDS; r++) {
        int line = w.line + line_in(c, r);
        if (q.scaled != LINE || line >= w.p.lines) continue;
        of_line[r] = q.given ? c.given[c.groups * c.parts + w.p.first + line] : largest_of_line(c, w.p.first + line, splits);
    }
    float delayed = q.scaled == DELAYED && c.scale ? c.scale[c.row + w.cell] : 0.0f;
    u64   pass = q.stochastic && c.ticks ? counted(c.ticks + 1) : 0, columns = (u64)(c.whole_columns > 0 ? c.whole_columns : c.columns);
    for (int k0 = block_id(1) * WIDTH; k0 < w.p.length; k0 += blocks(1) * WIDTH) {
        float v[ROUNDS][RUN], most[ROUNDS];
        int   k = k0 + run_in(c) * RUN;
        UNROLL for (int r = 0; r < ROUNDS; r++) {
            load(v[r], c, w.p, w.line + line_in(c, r), k, q.rotation);
            most[r] = largest_in(v[r]);
            sum.largest = larger(sum.largest, most[r]);
        }
        share_group(most, room, c, q);
        UNROLL for (int r = 0; r < ROUNDS; r++) {
            int line = w.line + line_in(c, r);
            i64 row = w.p.row + (c.down ? k : line);
            int column = w.p.column + (c.down ? line : k);
            if (line >= w.p.lines || k >= w.p.length) continue;
            u64 element = ((u64)row + c.first_row) * columns + (u64)(i64)(column + element_of(c.shift, w.p.number));
            float   amax = q.scaled == TENSOR ? whole : q.scaled == LINE ? of_line[r] : most[r];
            scaling s = scaling_of(amax, whole, q);
            if (q.scaled == DELAYED) s.encode = s.divide = delayed > 0.0f ? delayed : 1.0f;
#if CODES
            store_scale(c, w, line, k, q, s);
#endif
            if (q.scaled != AS_IS) quantize_run(v[r], q, s, c.key, pass, element, c.down ? columns : 1, sum);
            store(v[r], c, w.p, line, k, q);
        }
    }
    if (!c.record) return;
    sum = found_by_block(sum, all);
    if (thread_id() == 0) c.tile_record[(i64)block_id(0) * blocks(1) + block_id(1)] = sum;
}

/* A block for each cell: its row of the record. */
KERNEL(quantize_record)(call c, int splits)
{
    SHARED found  all[BLOCK];
    SHARED double counts[BLOCK];
    place         w = place_of(c, block_id(0), true);
    record_cell(c.record + 4 * (i64)(c.row + block_id(0)), c, recipe_of(c), w.p, block_id(0),
                c.tile_record + (i64)w.first_tile * splits, tiles_of(w.p) * splits, all, counts);
}

/* --- what goes on from step to step */

/* A block for each row. history (rows, length), the newest first, may be the old one. */
KERNEL(scale_history)
(f32 *history, f32 *scale, const T *ticks, const f32 *record, const f32 *old_history, const f32 *largest,
 const f32 *old_scale, int length, double switch_step, float margin, int switches, int before, int recent, int frozen)
{
    SHARED float room[BLOCK];
    float        beyond = switches ? beyond_switch(ticks, switch_step) : 1.0f;
    bool         begins = beyond == 0.0f || (!before && beyond < 0.0f);
    i64          row = block_id(0);
    float        amax = record[4 * row], most = amax;
    int          chunks = (length + BLOCK - 1) / BLOCK;
    ROLLED for (int chunk = chunks - 1; chunk >= 0; chunk--) {
        int   i = chunk * BLOCK + thread_id();
        float was = 0.0f;
        if (i < length) was = begins ? 0.0f : i == 0 ? amax : old_history[row * length + i - 1];
        if (!recent && i > 0 && was > most) most = was;
        room[thread_id()] = was; /* it has come, before another one takes its place */
        barrier();
        if (i < length) history[row * length + i] = room[thread_id()];
    }
    float earlier = block_largest(most > amax ? most : 0.0f, room);
    if (earlier > amax) most = earlier;
    if (thread_id() != 0) return;
    float next = old_scale[row];
    bool  usable = most > 0.0f && most <= float_of(0x7f7fffffu);
    if (usable && !(frozen && (float)ticks[0] > 1.0f)) next = finite(largest[row] / most) * margin;
    scale[row] = begins ? 1.0f : next;
}

KERNEL_OF(1, tick)(T *out, const T *ticks, const f64 *number, double steps, double passes)
{
    double first = (double)ticks[0] + steps, second = (double)ticks[1] + passes + (number ? *number : 0.0);
    out[0] = (T)first;
    out[1] = (T)second;
}

#endif
