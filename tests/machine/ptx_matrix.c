/* SPDX-License-Identifier: Apache-2.0 */
/* PTX: products of matrices by a warp (mma.sync) and by a warpgroup (wgmma), and loads of their operands.
 *
 * Layouts of mma.sync, with g = lane / 4, t = lane % 4 and E elements in a register (2 of 16 bits, 4 of 8):
 *   A, register r, element e:  row g + 8 (r % 2), column 4 E (r / 2) + E t + e
 *   B, register r, element e:  row 4 E r + E t + e, column g
 *   C, register r:             row g + 8 (r / 2), column 2 t + r % 2
 * A warp of a warpgroup has 16 rows of wgmma's 64, laid out as these; its columns go on by 8 every 4 registers.
 */
#include "machine/ptx.h"

#include <math.h>
#include <string.h>

enum { ROWS = 16, MOST_K = 32, MOST_COLUMNS = 256, BLOCK = 32, CHUNK = 16, MOST_CHUNKS = 2 * ROWS + 2 * MOST_COLUMNS };

typedef float element(u32 word, int e);
typedef float eight __attribute__((vector_size(32)));

static float float_of(u32 bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static float bf16_of(u32 word, int e)
{
    return float_of(word >> (16 * e) << 16);
}

static float e4m3_of(u32 word, int e)
{
    int v = (int)(word >> (8 * e) & 0xff), exponent = v >> 3 & 15, fraction = v & 7;
    if ((v & 0x7f) == 0x7f) return NAN;
    float size = exponent ? ldexpf((float)(8 + fraction), exponent - 10) : ldexpf((float)fraction, -9);
    return v & 0x80 ? -size : size;
}

static float e5m2_of(u32 word, int e)
{
    return ptx_from_f16((word >> (8 * e) & 0xff) << 8);
}

static const int *places(const ptx_block *b, const ptx_operand *o)
{
    return b->module->list + o->first;
}

/* In line: a function of its own for each format. */
static inline __attribute__((always_inline)) void multiply(ptx_block *b, ptx_warp *w, const ptx_instruction *x,
                                                           int each, element *of_a, element *of_b)
{
    float      left[ROWS][MOST_K];
    eight      right[MOST_K], sums[ROWS];
    const int *d = places(b, &x->o[0]), *p = places(b, &x->o[1]), *q = places(b, &x->o[2]), *c = places(b, &x->o[3]);
    for (int r = 0; r < 4; r++)
        for (int i = 0; i < LANES; i++) {
            int g = i / 4, t = i % 4;
            for (int e = 0; e < each; e++)
                left[g + 8 * (r % 2)][4 * each * (r / 2) + each * t + e] = of_a(w->file[p[r] + i], e);
            for (int e = 0; e < each && r < 2; e++) right[4 * each * r + each * t + e][g] = of_b(w->file[q[r] + i], e);
            sums[g + 8 * (r / 2)][2 * t + r % 2] = float_of(w->file[c[r] + i]);
        }
    for (int m = 0; m < ROWS; m += 4) {
        eight s0 = sums[m], s1 = sums[m + 1], s2 = sums[m + 2], s3 = sums[m + 3];
        for (int k = 0; k < 8 * each; k++) {
            s0 += left[m][k] * right[k];
            s1 += left[m + 1][k] * right[k];
            s2 += left[m + 2][k] * right[k];
            s3 += left[m + 3][k] * right[k];
        }
        sums[m] = s0, sums[m + 1] = s1, sums[m + 2] = s2, sums[m + 3] = s3;
    }
    for (int r = 0; r < 4; r++)
        for (int i = 0; i < LANES; i++) ((f32 *)&w->file[d[r]])[i] = sums[i / 4 + 8 * (r / 2)][2 * (i % 4) + r % 2];
    if (b->counted) b->counts->matrix_flops += 2 * ROWS * 8 * 8 * (uint64_t)each;
}

#define MMA_OF(name, each, of_a, of_b)                                                                                 \
    PTX_HANDLER(name)                                                                                                  \
    {                                                                                                                  \
        multiply(b, w, x, each, of_a, of_b);                                                                           \
    }
MMA_OF(mma_bf16, 2, bf16_of, bf16_of)
MMA_OF(mma_e4m3, 4, e4m3_of, e4m3_of)
MMA_OF(mma_e5m2, 4, e5m2_of, e5m2_of)
MMA_OF(mma_e4m3_e5m2, 4, e4m3_of, e5m2_of)
MMA_OF(mma_e5m2_e4m3, 4, e5m2_of, e4m3_of)

/* Matrices of 8 rows of 16 bytes; lane 8 k + r says where row r of matrix k is. Lane i gets elements 2 (i % 4) and the
 * next of row i / 4; transposed, of column i / 4. */
PTX_HANDLER(ldmatrix)
{
    u64 at[LANES];
    ptx_addresses(w, &x->o[1], at);
    for (int k = 0; k < x->o[0].count; k++) {
        uint16_t v[8][8];
        u32     *d = w->file + places(b, &x->o[0])[k];
        for (int row = 0; row < 8; row++) {
            int            lane = 8 * k + row;
            const uint8_t *p = ptx_shared(b, w, x, lane, (uint32_t)at[lane], CHUNK, MACHINE_READ);
            if (!p) return;
            memcpy(v[row], p, CHUNK);
        }
        for (int i = 0; i < LANES; i++) {
            int r = i / 4, c = 2 * (i % 4);
            d[i] = x->picks[0] ? v[c][r] | (u32)v[c + 1][r] << 16 : v[r][c] | (u32)v[r][c + 1] << 16;
        }
    }
    if (b->counted) ptx_count_shared(b, at, on & (u32)(((u64)1 << (8 * x->o[0].count)) - 1), CHUNK);
}

/* --- wgmma */

/* An operand in shared memory, as its descriptor says: rows of 128, 64 or 32 bytes, swizzled by the address bits above.
 */
typedef struct layout {
    uint32_t start, lead, stride, row, mask;
} layout;

static bool layout_of(ptx_block *b, const ptx_warp *w, const ptx_instruction *x, u64 d, layout *l)
{
    static const uint32_t rows[4] = { 0, 128, 64, 32 }, masks[4] = { 0, 7, 3, 1 };
    if (d & 0x3fffc000c000c000u)
        return ptx_fail(b, w, x, "bits of the descriptor 0x%llx are not modelled", (unsigned long long)d);
    *l = (layout){ (uint32_t)(d & 0x3fff) << 4, (uint32_t)(d >> 16 & 0x3fff) << 4, (uint32_t)(d >> 32 & 0x3fff) << 4,
                   rows[d >> 62], masks[d >> 62] };
    return l->row || ptx_fail(b, w, x, "a descriptor without swizzle is not modelled");
}

/* Where 8 elements are: k of 8 steps from `k` on in a row; or, `across`, 8 rows from `row` on in column k. */
static uint32_t chunk_at(const layout *l, bool across, uint32_t row, uint32_t k)
{
    uint32_t wide = l->row / 2, at;
    if (across)
        at = l->start + row / wide * l->lead + row % wide * 2 + k / 8 * l->stride + k % 8 * l->row;
    else
        at = l->start + row / 8 * l->stride + row % 8 * l->row + k * 2;
    return at ^ (at >> 7 & l->mask) << 4;
}

/* The operands of a product: the last ones are transposed or not; A may lie in registers. */
static bool in_registers(const ptx_instruction *x)
{
    return x->n == 7;
}

static int columns_of(const ptx_instruction *x)
{
    static const int columns[] = { 64, 128 };
    return columns[x->picks[0]];
}

/* The addresses of the chunks that a warp reads: of A (its 16 rows), then of B. Returns how many; -1: failed. */
static int chunks_of(ptx_block *b, ptx_warp *w, const ptx_product *p, uint32_t at[MOST_CHUNKS], int *of_a)
{
    const ptx_instruction *x = p->x;
    layout                 l = { 0 };
    int                    n = 0;
    uint32_t               first = (uint32_t)(w->number % 4) * ROWS;
    if (!in_registers(x)) {
        bool across = x->o[6].offset != 0;
        if (!layout_of(b, w, x, p->a, &l)) return -1;
        for (uint32_t i = 0; i < 2 * ROWS; i++)
            at[n++] =
                across ? chunk_at(&l, true, first + i % 2 * 8, i / 2) : chunk_at(&l, false, first + i / 2, i % 2 * 8);
    }
    *of_a = n;
    bool across = x->o[x->n - 1].offset != 0;
    if (!layout_of(b, w, x, p->b, &l)) return -1;
    uint32_t columns = (uint32_t)columns_of(x);
    for (uint32_t i = 0; i < 2 * columns; i++)
        at[n++] = across ? chunk_at(&l, true, i % (columns / 8) * 8, i / (columns / 8))
                         : chunk_at(&l, false, i / 2, i % 2 * 8);
    return n;
}

/* Reads or gives back what a product reads in shared memory. `step`: +1 when it begins, -1 when it is done. */
static bool lend(ptx_block *b, ptx_warp *w, const ptx_product *p, int step)
{
    uint32_t at[MOST_CHUNKS];
    int      of_a, n = chunks_of(b, w, p, at, &of_a), unit = b->kernel->unit;
    for (int i = 0; i < n; i++) {
        if (!ptx_shared_async(b, w, p->x, 0, at[i], CHUNK, (uint32_t)(b->threads + w->number), b->time.now,
                              MACHINE_READ))
            return false;
        for (uint32_t u = 0; u < (uint32_t)(CHUNK >> unit); u++)
            b->lent[(at[i] >> unit) + u] = (uint8_t)(b->lent[(at[i] >> unit) + u] + step);
    }
    if (n > 0) b->n_lent += (uint32_t)(step * n);
    return n >= 0;
}

static void unpack(const ptx_block *b, const uint32_t *at, int n, bool across, int rows, float *to, int pitch)
{
    for (int i = 0; i < n; i++) {
        uint16_t v[8];
        memcpy(v, b->shared + at[i], CHUNK);
        int row = across ? i % (rows / 8) * 8 : i / 2, k = across ? i / (rows / 8) : i % 2 * 8;
        for (int e = 0; e < 8; e++)
            to[across ? k * pitch + row + e : (k + e) * pitch + row] = float_of((u32)v[e] << 16);
    }
}

/* This warp's 16 rows of a product. */
static void compute(ptx_block *b, ptx_warp *w, const ptx_product *p)
{
    const ptx_instruction *x = p->x;
    const int             *d = places(b, &x->o[0]);
    uint32_t               at[MOST_CHUNKS];
    float                  left[16][ROWS], right[16][MOST_COLUMNS], sums[ROWS][MOST_COLUMNS];
    int                    columns = columns_of(x), of_a, n = chunks_of(b, w, p, at, &of_a);
    if (in_registers(x)) {
        const int *a = places(b, &x->o[1]);
        for (int i = 0; i < LANES * 8; i++) {
            int lane = i / 8, r = i / 2 % 4, e = i % 2;
            left[8 * (r / 2) + 2 * (lane % 4) + e][lane / 4 + 8 * (r % 2)] = bf16_of(w->file[a[r] + lane], e);
        }
    } else
        unpack(b, at, of_a, x->o[6].offset != 0, ROWS, &left[0][0], ROWS);
    unpack(b, at + of_a, n - of_a, x->o[x->n - 1].offset != 0, columns, &right[0][0], MOST_COLUMNS);
    for (int e = 0; e < columns / 2; e++)
        for (int i = 0; i < LANES; i++)
            sums[i / 4 + 8 * (e / 2 % 2)][8 * (e / 4) + 2 * (i % 4) + e % 2] = p->add ? float_of(w->file[d[e] + i]) : 0;
    for (int m = 0; m < ROWS; m++) {
        for (int from = 0; from < columns; from += BLOCK) {
            float s[BLOCK];
            memcpy(s, &sums[m][from], sizeof s);
            for (int k = 0; k < 16; k++)
                for (int c = 0; c < BLOCK; c++) s[c] += left[k][m] * right[k][from + c];
            memcpy(&sums[m][from], s, sizeof s);
        }
    }
    for (int e = 0; e < columns / 2; e++)
        for (int i = 0; i < LANES; i++)
            memcpy(&w->file[d[e] + i], &sums[i / 4 + 8 * (e / 2 % 2)][8 * (e / 4) + 2 * (i % 4) + e % 2], 4);
}

static void mark(const ptx_block *b, uint8_t *of, const ptx_operand *o, int step)
{
    for (int e = 0; e < o->count; e++) {
        uint8_t *at = &of[places(b, o)[e] / LANES];
        *at = (uint8_t)(*at + step);
    }
}

static bool dirty(const ptx_block *b, const ptx_warp *w, const ptx_operand *o)
{
    for (int e = 0; e < o->count; e++)
        if (w->dirty[places(b, o)[e] / LANES]) return true;
    return false;
}

PTX_HANDLER(wgmma)
{
    bool               from_registers = in_registers(x);
    const ptx_operand *d = &x->o[0];
    ptx_product        p = { .x = x, .group = w->product_group, .add = w->file[x->o[3].at] & 1 };
    if (!from_registers) p.a = *(const u64 *)ptx_place(w, x->o[1].at);
    p.b = *(const u64 *)ptx_place(w, x->o[2].at);
    if (b->threads % (4 * LANES))
        ptx_fail(b, w, x, "the block is not made of whole warpgroups");
    else if (2 * d->count != columns_of(x) || x->o[4].offset != 1 || x->o[5].offset != 1)
        ptx_fail(b, w, x, "operands that are not modelled");
    else if (!w->fenced)
        ptx_fail(b, w, x, "there is no wgmma.fence before the first wgmma");
    else if ((p.add && dirty(b, w, d)) || (from_registers && dirty(b, w, &x->o[1])))
        ptx_fail(b, w, x, "a register of it was written after the last wgmma.fence");
    else if (w->n_products == MOST_PRODUCTS)
        ptx_fail(b, w, x, "too many wgmma are in flight");
    if (b->failed || !lend(b, w, &p, 1)) return;
    if (b->order->eager) compute(b, w, &p);
    mark(b, w->owed, d, 1);
    if (from_registers) mark(b, w->lent, &x->o[1], 1);
    w->products[w->n_products++] = p;
    w->done_products++;
    if (b->counted) b->counts->matrix_flops += 2 * ROWS * 16 * (uint64_t)columns_of(x);
}

PTX_HANDLER(wgmma_fence)
{
    memset(w->dirty, 0, (size_t)b->kernel->words / LANES);
    w->fenced = true;
}

PTX_HANDLER(wgmma_commit)
{
    w->product_group++;
}

PTX_HANDLER(wgmma_wait)
{
    int kept = 0;
    for (int i = 0; i < w->n_products && !b->failed; i++) {
        ptx_product *p = &w->products[i];
        if (p->group + x->o[0].offset >= w->product_group) {
            w->products[kept++] = *p;
            continue;
        }
        if (!b->order->eager) compute(b, w, p);
        lend(b, w, p, -1);
        mark(b, w->owed, &p->x->o[0], -1);
        if (in_registers(p->x)) mark(b, w->lent, &p->x->o[1], -1);
    }
    w->n_products = kept;
    for (int i = 0; i < LANES && b->time.on; i++)
        b->time.known[(size_t)(w->number * LANES + i) * b->time.agents + (size_t)(b->threads + w->number)] =
            b->time.now;
    b->time.now++;
}

#define TENSOR(...) { __VA_ARGS__ },
const ptx_row ptx_matrix_rows[] = {
#include "machine/ptx.def"
    { 0 }
};
