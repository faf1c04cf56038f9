/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/gemm.c - the matrix product of device/cpu/gemm.h: how it is cut up, and who computes what.
 *
 * C is cut into blocks of `mc` x `nc` panels and K into stages of `depth` (a multiple of TM_GEMM_BLOCK, or all of K). A
 * step packs what it needs of A and B, unless the step before left it there, and computes one block of C for one stage;
 * its tiles are handed out dynamically. None of this is visible in the result: every element of C gets its block
 * sums in ascending order, whoever adds them.
 * A product with one row reads weights as they are stored (gemm_row.h), one with few rows or columns its large operand
 * (gemm_narrow.h).
 * Where all of the smaller operand fits in packed form, it is packed once; of the larger one every thread packs what it
 * multiplies, a few panels of one block of K at a time, which stay in its cache, and asks for the next ones meanwhile
 * (gemm_fetch.h): no thread waits for another one or for memory.
 * A C of 16 bits is summed in float32 scratch: in a strip, one block of C large, with the stages as the innermost loop;
 * or, where there is one stage only, in a tile of each thread, which stays near its core.
 */
#include "device/cpu/gemm.h"

#include "base/status.h"
#include "device/cpu/simd/gemm_narrow.h"
#include "device/cpu/simd/gemm_plan.h"
#include "device/cpu/simd/gemm_row.h"
#include "device/cpu/simd/simd.h"

#include <omp.h>

#if TM_PAIRS
typedef block_tables tables;
#else
typedef int tables; /* no format is decoded on the way */
#endif

/* One step: a block of C, a stage of K. */
typedef struct {
    const tm_gemm *gemm;
    const tables  *tables;
    float         *a, *b; /* packed: [block of K][panel][k][MR or NR], or as gemm_pairs.h says */
    float         *sums;  /* float32 sums of the block: C itself, or the strip; or the tiles of the threads */
    bool           tiles;
    bool           by_panel; /* with tiles: all of K for a panel of A, then the next panel */
    int64_t        tile_floats;
    int64_t        ld_sums;
    int64_t        row, column, m, n; /* the block of C, in elements */
    int64_t        panels_m, panels_n;
    int64_t        k0, k;
    bool           add, last;      /* sums hold something already; this stage completes them */
    int64_t        tile_m, tile_n; /* panels */
    fetch         *later;          /* what the thread packs next */
} step;

#if TM_PAIRS
/* Products of other operands are left to the kernels of avx512. */
static TM_PLANNED bool is_own(const tm_gemm *g)
{
    return g->a.dtype == TM_BF16 && (g->narrow_b || g->b.dtype == TM_BF16);
}
#endif

/* Of a product that is packed, however its operands are stored; others take no more. */
static TM_PLANNED size_t packed_bytes(const tm_gemm *gemm)
{
    passing few = passing_make(gemm);
    if (few.use) return passing_bytes(&few, gemm->threads);
    plan   p = plan_make(gemm);
    size_t bytes = (size_t)(p.a_floats + p.b_floats + p.strip_floats) * sizeof(float) + 64;
    TM_ASSERT(bytes <= TM_GEMM_WORKSPACE_MAX);
    return bytes;
}

TM_PLANNED size_t TM_K(tm_gemm_workspace)(const tm_gemm *gemm)
{
#if TM_PAIRS
    if (!is_own(gemm)) return tm_gemm_workspace_avx512(gemm);
#endif
    if (gemm->m == 0 || gemm->n == 0) return 0;
    return packed_bytes(gemm);
}

/* Blocks are no larger than the operands, stages no deeper than 16 blocks of K. */
TM_PLANNED size_t TM_K(tm_gemm_workspace_most)(const tm_gemm *gemm)
{
#if TM_PAIRS
    if (!is_own(gemm)) return tm_gemm_workspace_most_avx512(gemm);
#endif
    return most_bytes(gemm);
}

/* Tasks of about TILE_ROWS x TILE_COLUMNS, wider where few k leave room near the core, smaller where that leaves a
 * thread without work. */
static void choose_tiles(step *s, int threads)
{
    int64_t m = tm_min(s->panels_m, TILE_ROWS / MR), n = tm_min(s->panels_n, most_columns(s->k) / NR);
    int64_t wanted = threads > 1 ? 4 * (int64_t)threads : 1;
    while (tm_ceil_div(s->panels_m, m) * tm_ceil_div(s->panels_n, n) < wanted && m * n > 1) {
        if (m > 1 && (m * MR >= n * NR || n == 1))
            m = tm_ceil_div(m, 2);
        else
            n = tm_ceil_div(n, 2);
    }
    s->tile_m = tm_ceil_div(s->panels_m, tm_ceil_div(s->panels_m, m));
    s->tile_n = tm_ceil_div(s->panels_n, tm_ceil_div(s->panels_n, n));
}

/* Step `t` of the product. The loops from outer to inner: outer blocks, stages, inner blocks; with a strip the stages
 * are innermost. */
static step step_at(const tm_gemm *g, const plan *p, float *workspace, int64_t t, int threads)
{
    int64_t inner = p->a_outer ? p->blocks_n : p->blocks_m, i, o, stage;
    if (p->strip) {
        stage = t % p->stages;
        i = t / p->stages % inner;
    } else {
        i = t % inner;
        stage = t / inner % p->stages;
    }
    o = t / (inner * p->stages);
    int64_t bm = p->a_outer ? o : i, bn = p->a_outer ? i : o;
    step    s = { .gemm = g, .a = workspace, .b = workspace + p->a_floats };
    s.row = bm * p->mc * MR;
    s.column = bn * p->nc * NR;
    s.panels_m = tm_min(p->mc, p->panels_m - bm * p->mc);
    s.panels_n = tm_min(p->nc, p->panels_n - bn * p->nc);
    s.m = tm_min(s.panels_m * MR, g->m - s.row);
    s.n = tm_min(s.panels_n * NR, g->n - s.column);
    s.k0 = stage * p->depth;
    s.k = tm_min(p->depth, g->k - s.k0);
    s.sums = p->strip ? s.b + p->b_floats : (float *)g->c + s.row * g->ldc + s.column;
    s.ld_sums = p->strip ? p->nc * NR : g->ldc;
    s.tiles = p->tiles;
    s.tile_floats = p->tile_floats;
    s.add = stage > 0 || (g->accumulate && !p->strip);
    s.last = stage == p->stages - 1;
    choose_tiles(&s, threads);
    return s;
}

static void init_tables(const tm_gemm *g, tables *out)
{
#if TM_PAIRS
    if (tm_dtype_blocked(g->b.dtype)) block_tables_init(out, g->b.dtype);
#else
    (void)g, (void)out;
#endif
}

/* `panels` panels of B from column `column` on, k elements from k0 on. */
static void pack_right(const step *s, float *dst, int64_t panels, int64_t column, int64_t limit, int64_t k0, int64_t k)
{
    const tm_gemm_matrix *b = &s->gemm->b;
#if TM_PAIRS
    if (tm_dtype_blocked(b->dtype)) {
        pack_blocks(dst, s->tables, b->data, b->ld, b->transposed, panels, column, limit, k0, k);
        return;
    }
#endif
    pack_panels(dst, b->data, b->ld, b->dtype, b->transposed, true, panels, column, limit, k0, k);
}

/* Packs the step's blocks of A and of B; shared among the threads of the region. */
static void pack(const step *s, bool pack_a, bool pack_b, int threads)
{
    int64_t blocks = tm_ceil_div(s->k, BLOCK), pa = pack_a ? s->panels_m : 0, pb = pack_b ? s->panels_n : 0;
    int64_t group = blocks * (pa + pb) >= 4 * PACK_GROUP * (int64_t)threads ? PACK_GROUP : 1;
    int64_t ga = tm_ceil_div(pa, group), gb = tm_ceil_div(pb, group);
#pragma omp for schedule(dynamic, 1)
    for (int64_t t = 0; t < blocks * (ga + gb); t++) {
        int64_t block = t / (ga + gb), q = t % (ga + gb), from = block * BLOCK;
        int64_t k = tm_min(BLOCK, s->k - from);
        if (q < ga) {
            const tm_gemm_matrix *a = &s->gemm->a;
            int64_t               first = q * group, panels = tm_min(group, pa - first);
            pack_panels(s->a + (packed_columns(from) * pa + first * packed_columns(k)) * MR, a->data, a->ld, a->dtype,
                        !a->transposed, false, panels, s->row + first * MR, s->row + s->m, s->k0 + from, k);
        } else {
            int64_t first = (q - ga) * group, panels = tm_min(group, pb - first);
            pack_right(s, s->b + (packed_columns(from) * pb + first * packed_columns(k)) * NR, panels,
                       s->column + first * NR, s->column + s->n, s->k0 + from, k);
        }
    }
}

#if TM_PAIRS
/* n sums -> bfloat16, nothing added. */
static void store_row(uint16_t *c, const float *sums, int64_t n)
{
    int64_t i = 0;
    for (; i + 32 <= n; i += 32)
        _mm512_storeu_si512(c + i,
                            (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(sums + i + 16), _mm512_loadu_ps(sums + i)));
    for (; i < n; i += 16)
        _mm256_mask_storeu_epi16(c + i, first_lanes(n - i),
                                 (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(first_lanes(n - i), sums + i)));
}
#endif

/* v16_get and v16_put of C, which may be float16. */
TM_INLINE v16 get_c(const tm_gemm *g, int64_t i, int64_t n)
{
    uint16_t lanes[TM_LANES] = { 0 };
    if (g->c_dtype != TM_F16) return v16_get(g->c, g->c_dtype, i, n);
    memcpy(lanes, (const uint16_t *)g->c + i, (size_t)tm_min(n, TM_LANES) * sizeof *lanes);
    return v16_load_f16(lanes);
}
TM_INLINE void put_c(const tm_gemm *g, int64_t i, v16 x, int64_t n)
{
    uint16_t lanes[TM_LANES];
    if (g->c_dtype != TM_F16) {
        v16_put(g->c, g->c_dtype, i, x, n);
        return;
    }
    v16_store_f16(lanes, x);
    memcpy((uint16_t *)g->c + i, lanes, (size_t)tm_min(n, TM_LANES) * sizeof *lanes);
}

/* n finished sums of row `row` from column `column` on: old value, bias and residual are added, the result
 * is stored. */
static void finish_row(const tm_gemm *g, const float *sums, int64_t row, int64_t column, int64_t n)
{
#if TM_PAIRS
    if (g->c_dtype == TM_BF16 && !g->accumulate && !g->bias && !g->residual) {
        store_row((uint16_t *)g->c + row * g->ldc + column, sums, n);
        return;
    }
#endif
    for (int64_t i = 0; i < n; i += TM_LANES) {
        int64_t left = n - i, at = column + i;
        v16     x = v16_get(sums, TM_F32, i, left);
        if (g->accumulate && g->c_dtype != TM_F32) x = v16_add(x, get_c(g, row * g->ldc + at, left));
        if (g->bias) x = v16_add(x, v16_get(g->bias, g->bias_dtype, at, left));
        if (g->residual) x = v16_add(x, v16_get(g->residual, g->residual_dtype, row * g->ld_residual + at, left));
        put_c(g, row * g->ldc + at, x, left);
    }
}

/* Panel i of A, packed, in a block of K. */
static const float *panel_of_a(const step *s, int64_t block, int64_t i)
{
    int64_t k = packed_columns(tm_min(BLOCK, s->k - block * BLOCK));
    return s->a + (packed_columns(block * BLOCK) * s->panels_m + i * k) * MR;
}

/* The tile of panels [i0, i1) x [j0, j1) of the step's block; its sums are those at `sums`. */
static void compute_tile(const step *s, int64_t i0, int64_t i1, int64_t j0, int64_t j1, float *sums, int64_t ld)
{
    int64_t blocks = tm_max(1, tm_ceil_div(s->k, BLOCK)), rows = i1 - i0;
    bool    finish = s->last && (s->gemm->c_dtype != TM_F32 || s->gemm->bias || s->gemm->residual);
    bool    by_panel = s->tiles && (s->by_panel || blocks == 1); /* a panel's sums are stored before the next's */
    int64_t ld_panel = by_panel ? 0 : MR * ld, ahead_step = tm_ceil_div(MR, j1 - j0);
    int64_t begin =
        blocks * rows - 1 - fetch_lines(s->later) / tm_max(1, (j1 - j0) * packed_columns(tm_min(BLOCK, s->k)));
    fetch none = fetch_nothing(s->a);
    for (int64_t t = 0; t < blocks * rows; t++) {
        int64_t      block = by_panel ? t % blocks : t / rows, i = i0 + (by_panel ? t / blocks : t % rows);
        int64_t      next = tm_min(t + 1, blocks * rows - 1), m = tm_min(MR, s->m - i * MR);
        int64_t      k = packed_columns(tm_min(BLOCK, s->k - block * BLOCK));
        const float *a = panel_of_a(s, block, i), *b = s->b + packed_columns(block * BLOCK) * s->panels_n * NR;
        const float *ahead = by_panel ? panel_of_a(s, next % blocks, i0 + next / blocks)
                                      : panel_of_a(s, next / rows, i0 + next % rows); /* fetched by and by */
        fetch       *later = t >= begin ? s->later : &none; /* not so early that it is gone again when it is packed */
        for (int64_t j = j0; j < j1; j++) {
            int64_t n = tm_min(NR, s->n - j * NR);
            float  *c = sums + (i - i0) * ld_panel + (j - j0) * NR;
            bool    add = s->add || block > 0;
            if (m == MR && n == NR && TM_PAIRS && i == i0) /* the next panel of B is not near yet, either */
                micro(k, a, b + j * k * NR, c, ld, add, b + tm_min(j + 1, j1 - 1) * k * NR, NR, later);
            else if (m == MR && n == NR)
                micro(k, a, b + j * k * NR, c, ld, add, ahead + (j - j0) * k * ahead_step, ahead_step, later);
            else
                micro_edge(k, a, b + j * k * NR, c, ld, add, m, n, later);
        }
        if (!finish || block < blocks - 1) continue;
        for (int64_t r = i * MR; r < i * MR + m; r++)
            finish_row(s->gemm, sums + (i - i0) * ld_panel + (r - i * MR) * ld, s->row + r, s->column + j0 * NR,
                       tm_min(s->n, j1 * NR) - j0 * NR);
    }
}

/* Neighbouring tasks share columns: their part of B stays in the cache. No barrier at the end. */
static void compute(const step *all)
{
    step  own = *all, *s = &own;
    fetch none = fetch_nothing(all->a);
    own.later = &none;
    int64_t tiles_m = tm_ceil_div(s->panels_m, s->tile_m), tiles_n = tm_ceil_div(s->panels_n, s->tile_n);
#pragma omp for schedule(dynamic, 1) nowait
    for (int64_t t = 0; t < tiles_m * tiles_n; t++) {
        int64_t i = t % tiles_m * s->tile_m, j = t / tiles_m * s->tile_n;
        float  *sums =
            s->tiles ? s->sums + omp_get_thread_num() * s->tile_floats : s->sums + i * MR * s->ld_sums + j * NR;
        compute_tile(s, i, tm_min(s->panels_m, i + s->tile_m), j, tm_min(s->panels_n, j + s->tile_n), sums,
                     s->tiles ? s->tile_n * NR + TILE_GAP : s->ld_sums);
    }
}

/* Panels of the group that begins with panel `first`: fewer towards the end, so that no thread waits long for another.
 */
static int64_t group_at(const tm_gemm *g, const passing *p, int64_t first)
{
    int64_t left = p->large - first;
    return tm_min(p->group, tm_max(tm_min(left, 1), left / (2 * (int64_t)g->threads)));
}

/* The first panel of the next group that no thread has taken; p->large or more: there is none. */
static int64_t take(const tm_gemm *g, const passing *p, int64_t *taken)
{
    int64_t first = __atomic_load_n(taken, __ATOMIC_RELAXED);
    while (first < p->large && !__atomic_compare_exchange_n(taken, &first, first + group_at(g, p, first), true,
                                                            __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
    return first;
}

/* The part of the large operand that is packed for the group from panel `first` on and `depth` of K from k0 on. */
static fetch part_of(const tm_gemm *g, const passing *p, int64_t first, int64_t k0, int64_t depth)
{
    const tm_gemm_matrix *x = p->few_rows ? &g->b : &g->a;
    int64_t               width = p->few_rows ? NR : MR, all = p->few_rows ? g->n : g->m;
    int64_t r0 = first * width, rows = tm_min(group_at(g, p, first) * width, all - r0), k = tm_min(depth, g->k - k0);
    if (rows < 1 || tm_dtype_blocked(x->dtype)) return fetch_nothing(p);
    int64_t     size = (int64_t)tm_dtype_bytes(x->dtype);
    bool        along_k = p->few_rows ? x->transposed : !x->transposed;
    const char *from = (const char *)x->data + (along_k ? r0 * x->ld + k0 : k0 * x->ld + r0) * size;
    return fetch_rows(from, along_k ? rows : k, (along_k ? k : rows) * size, x->ld * size);
}

/* The step's panels of the large operand, one block of K. */
static void pack_group(const step *s, const passing *p, float *dst, int64_t k0, int64_t k)
{
    const tm_gemm_matrix *a = &s->gemm->a;
    if (p->few_rows)
        pack_right(s, dst, s->panels_n, s->column, s->column + s->n, k0, k);
    else
        pack_panels(dst, a->data, a->ld, a->dtype, !a->transposed, false, s->panels_m, s->row, s->row + s->m, k0, k);
}

/* Panels `first` ... of the large operand by all of the small one; this thread's next ones begin at `after`. */
static void pass(const step *all, const passing *p, int64_t first, int64_t after, float *near)
{
    const tm_gemm *g = all->gemm;
    step           s = *all;
    int64_t        panels = group_at(g, p, first), depth = p->whole ? tm_max(1, g->k) : BLOCK;
    if (p->few_rows) {
        s.b = near, s.panels_n = panels, s.column = first * NR;
        s.n = tm_min(panels * NR, g->n - s.column);
    } else {
        s.a = near, s.panels_m = panels, s.row = first * MR;
        s.m = tm_min(panels * MR, g->m - s.row);
    }
    bool wide = g->c_dtype == TM_F32;
    s.tiles = p->tiles && !wide;
    s.by_panel = p->whole;
    float  *sums = wide ? (float *)g->c + s.row * g->ldc + s.column : near + p->near_floats;
    int64_t ld = wide ? g->ldc : p->ld_sums;
    for (s.k0 = 0; s.k0 == 0 || s.k0 < g->k; s.k0 += depth) {
        s.k = tm_min(depth, g->k - s.k0);
        s.add = s.k0 > 0 || (g->accumulate && wide);
        s.last = s.k0 + s.k == g->k;
        for (int64_t from = 0; from == 0 || from < s.k; from += BLOCK)
            pack_group(&s, p, near + packed_columns(from) * panels * (p->few_rows ? NR : MR), s.k0 + from,
                       tm_min(BLOCK, s.k - from));
        if (p->few_rows)
            s.a = all->a + packed_columns(s.k0) * p->panels * MR;
        else
            s.b = all->b + packed_columns(s.k0) * p->panels * NR;
        fetch later = part_of(g, p, s.last ? after : first, s.last ? 0 : s.k0 + depth, depth);
        s.later = &later;
        compute_tile(&s, 0, s.panels_m, 0, s.panels_n, sums, ld);
    }
}

static void pass_all(const tm_gemm *g, const passing *p, float *workspace, int threads)
{
    step    all = { .gemm = g, .a = workspace, .b = workspace, .m = g->m, .n = g->n, .k = g->k };
    tables  decoded;
    int64_t taken = 0;
    init_tables(g, &decoded);
    all.tables = &decoded;
    all.panels_m = tm_ceil_div(g->m, MR);
    all.panels_n = tm_ceil_div(g->n, NR);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        float *near = workspace + p->small_floats + omp_get_thread_num() * p->thread_floats;
        gemm_begin();
        pack(&all, p->few_rows, !p->few_rows, threads);
        for (int64_t first = take(g, p, &taken), after; first < p->large; first = after) {
            after = take(g, p, &taken);
            pass(&all, p, first, after, near);
        }
        gemm_end();
    }
}

static void run_row(const tm_gemm *g, int threads)
{
    bool finish = g->c_dtype != TM_F32 || g->bias || g->residual;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1)
    for (int64_t first = 0; first < g->n; first += ROW_COLUMNS)
        for (int64_t column = first; column < tm_min(g->n, first + ROW_COLUMNS); column += 16) {
            int64_t n = tm_min(16, g->n - column);
            float   sums[16];
            row_sums(g, column, sums);
            if (finish)
                finish_row(g, sums, 0, column, n);
            else
                memcpy((float *)g->c + column, sums, (size_t)n * sizeof *sums);
        }
}

#if defined(__AVX512F__) && !defined(__AMX_BF16__)
/* A run of rows of C that the large operand's rows are: those of tile (12, width), from row `row` on. */
static void narrow_rows(const narrow *w, const tm_gemm *g, const float *small, int64_t row, bool finish)
{
    int64_t from = tm_min(row, g->m - NARROW_ROWS), end = tm_min(g->m, row + NARROW_ROWS);
    bool    add = g->accumulate && g->c_dtype == TM_F32;
    float   tile[NARROW_ROWS * NARROW_MOST] = { 0 }; /* rows before `row` are the last task's */
    for (int64_t r = row; add && r < end; r++)
        memcpy(tile + (r - from) * w->width, (float *)g->c + r * g->ldc, (size_t)w->few * sizeof *tile);
    for (int64_t k0 = 0; k0 < g->k; k0 += BLOCK, add = true)
        narrow_along_any(w, &g->a, small, from, k0, tm_min(BLOCK, g->k - k0), add, tile);
    for (int64_t r = row; r < end; r++) {
        const float *sums = tile + (r - from) * w->width;
        if (finish)
            finish_row(g, sums, r, 0, w->few);
        else
            memcpy((float *)g->c + r * g->ldc, sums, (size_t)w->few * sizeof *sums);
    }
}

/* Tiles of a large operand across k, of columns of C or rows of it. */
typedef struct {
    int64_t first, run, tiles; /* the first one's first element, elements of one */
    float   part[NARROW_TILES][NARROW_MOST * NARROW_COLUMNS], total[NARROW_TILES][NARROW_MOST * NARROW_COLUMNS];
} narrow_tiles;

/* A block of K: a run of its rows after the other, of each tile; then added to what blocks before it came to. */
static void narrow_block(const narrow *w, const tm_gemm *g, const float *small, narrow_tiles *t, int64_t k0, bool add)
{
    int64_t k = tm_min(BLOCK, g->k - k0), n = w->width * NARROW_COLUMNS;
    for (int64_t q = 0; q < k; q += NARROW_RUN)
        for (int64_t i = 0; i < t->tiles; i++)
            narrow_across_any(w, w->few_rows ? &g->b : &g->a, small, t->first + i * t->run, k0 + q,
                              tm_min(NARROW_RUN, k - q), q > 0, t->part[i]);
    for (int64_t i = 0; i < t->tiles; i++)
        for (int64_t j = 0; j < n; j += 16) {
            __m512 sum = _mm512_loadu_ps(t->part[i] + j);
            _mm512_storeu_ps(t->total[i] + j, add ? _mm512_add_ps(sum, _mm512_loadu_ps(t->total[i] + j)) : sum);
        }
}

/* The old values of a tile of C, or its new ones. */
static void narrow_copy(const narrow *w, const tm_gemm *g, float *tile, int64_t at, int64_t there, bool out)
{
    int64_t down = w->few_rows ? g->ldc : 1, right = w->few_rows ? 1 : g->ldc; /* of C, in the tile's directions */
    float  *c = (float *)g->c + at * right;
    for (int64_t i = 0; i < w->few; i++)
        for (int64_t j = 0; j < there; j++)
            *(out ? &c[i * down + j * right] : &tile[i * NARROW_COLUMNS + j]) =
                out ? tile[i * NARROW_COLUMNS + j] : c[i * down + j * right];
}

static void narrow_finish(const narrow *w, const tm_gemm *g, const float *tile, int64_t at, int64_t there)
{
    float row[NARROW_MOST];
    for (int64_t i = 0; w->few_rows && i < w->few; i++) finish_row(g, tile + i * NARROW_COLUMNS, i, at, there);
    for (int64_t j = 0; !w->few_rows && j < there; j++) {
        for (int64_t i = 0; i < w->few; i++) row[i] = tile[i * NARROW_COLUMNS + j];
        finish_row(g, row, at + j, 0, w->few);
    }
}

static void narrow_columns(const narrow *w, const tm_gemm *g, const float *small, int64_t first, int64_t end,
                           bool finish)
{
    narrow_tiles t = { .first = first, .run = w->width == 8 ? 32 : 16 };
    bool         add = g->accumulate && g->c_dtype == TM_F32;
    t.tiles = tm_ceil_div(end - first, t.run);
    for (int64_t at = first; add && at < end; at += t.run)
        narrow_copy(w, g, t.total[(at - first) / t.run], at, tm_min(t.run, end - at), false);
    for (int64_t k0 = 0; k0 < g->k; k0 += BLOCK, add = true) narrow_block(w, g, small, &t, k0, add);
    for (int64_t at = first; at < end; at += t.run) {
        float *tile = t.total[(at - first) / t.run];
        if (finish)
            narrow_finish(w, g, tile, at, tm_min(t.run, end - at));
        else
            narrow_copy(w, g, tile, at, tm_min(t.run, end - at), true);
    }
}

static void run_narrow(const tm_gemm *g, const narrow *w, float *small, int threads)
{
    bool    finish = g->c_dtype != TM_F32 || g->bias || g->residual;
    int64_t run = w->along ? NARROW_ROWS : w->width == 8 ? 32 : 16;
    int64_t group = tm_max(1, tm_min(NARROW_TILES, w->large / (4 * run * (int64_t)threads))) * run;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
#pragma omp for schedule(static)
        for (int64_t k0 = 0; k0 < g->k; k0 += BLOCK) narrow_pack(w, g, small, k0, tm_min(BLOCK, g->k - k0));
#pragma omp for schedule(dynamic, 1)
        for (int64_t first = 0; first < w->large; first += group) {
            int64_t end = tm_min(w->large, first + group);
            if (!w->along) narrow_columns(w, g, small, first, end, finish);
            for (int64_t row = first; w->along && row < end; row += run) narrow_rows(w, g, small, row, finish);
        }
    }
}
#else
static void run_narrow(const tm_gemm *g, const narrow *w, float *small, int threads)
{
    (void)g, (void)w, (void)small, (void)threads;
}
#endif

static void check(const tm_gemm *g)
{
    TM_ASSERT(g->m >= 0 && g->n >= 0 && g->k >= 0 && g->threads >= 1);
    TM_ASSERT(g->a.dtype == TM_F32 || g->a.dtype == TM_BF16 || g->a.dtype == TM_F16);
    TM_ASSERT(g->b.dtype == TM_F32 || g->b.dtype == TM_BF16 ||
              (TM_PAIRS ? tm_dtype_blocked(g->b.dtype) : g->b.dtype == TM_F16));
    TM_ASSERT(!tm_dtype_blocked(g->b.dtype) || g->b.ld % TM_NF4_BLOCK == 0);
    TM_ASSERT(g->c_dtype == TM_F32 || g->c_dtype == TM_BF16 || g->c_dtype == TM_F16);
    TM_ASSERT(!g->bias || g->bias_dtype == TM_F32 || g->bias_dtype == TM_BF16);
    TM_ASSERT(!g->residual || g->residual_dtype == TM_F32 || g->residual_dtype == TM_BF16);
    TM_ASSERT(g->a.ld >= (g->a.transposed ? g->m : g->k) && g->b.ld >= (g->b.transposed ? g->k : g->n));
    TM_ASSERT(g->ldc >= g->n && (!g->residual || g->ld_residual >= g->n));
    TM_ASSERT(g->workspace);
}

void TM_K(tm_gemm_run)(const tm_gemm *gemm)
{
#if TM_PAIRS
    if (!is_own(gemm)) {
        tm_gemm_run_avx512(gemm);
        return;
    }
#endif
    if (gemm->m == 0 || gemm->n == 0) return;
    check(gemm);
    float *workspace = (float *)(((uintptr_t)gemm->workspace + 63) / 64 * 64);
    int    threads = 2. * (double)gemm->m * (double)gemm->n * (double)gemm->k < SMALL_FLOPS ? 1 : gemm->threads;
    if (row_fits(gemm)) {
        run_row(gemm, threads);
        return;
    }
    narrow own = narrow_make(gemm);
    if (own.use && narrow_bytes(&own, gemm->k) <= packed_bytes(gemm)) {
        run_narrow(gemm, &own, workspace, threads);
        return;
    }
    passing few = passing_make(gemm);
    if (few.use) {
        pass_all(gemm, &few, workspace, threads);
        return;
    }
    plan    p = plan_make(gemm);
    int64_t steps = p.blocks_m * p.blocks_n * p.stages;
    tables  decoded;
    init_tables(gemm, &decoded);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        step before = { .row = -1, .column = -1 };
        gemm_begin();
        for (int64_t t = 0; t < steps; t++) {
            step s = step_at(gemm, &p, workspace, t, threads);
            s.tables = &decoded;
            bool pack_a = s.row != before.row || s.k0 != before.k0;
            bool pack_b = s.column != before.column || s.k0 != before.k0;
            if (pack_a || pack_b) pack(&s, pack_a, pack_b, threads);
            compute(&s);
            before = s;
            if (t + 1 == steps) break; /* the end of the region is the last barrier */
#pragma omp barrier
        }
        gemm_end();
    }
}
