/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/gemm_plan.h - how a product of gemm.c is cut up: blocks and stages, or the panels of one operand at a
 * time, by what stays near the cores and what goes through memory. Part of gemm.c.
 */
#ifndef TM_DEVICE_CPU_GEMM_PLAN_H
#define TM_DEVICE_CPU_GEMM_PLAN_H

#include "device/cpu/gemm.h"
#include "device/cpu/simd/simd.h"
#if TM_PAIRS
#include "device/cpu/simd/gemm_pairs.h"
#else
#include "device/cpu/simd/gemm_pack.h"
#endif

#if TM_PAIRS && defined(__AMX_BF16__)
/* Tile registers are so fast that what comes from beyond the core's own cache decides: larger tiles, sums over 2048 k
 * at once; a tile's part of B is at most NEAR_SLOTS, and A passes by. */
enum {
    PACK_FLOATS = 4 << 20,
    BLOCK = 4 * TM_GEMM_BLOCK,
    TILE_ROWS = 448,
    NEAR_SLOTS = 1 << 18, /* 1 MiB */
    FEW_ROWS = 1024,
    NEAR_FLOATS = 1 << 18,
    NEAR_WHOLE = 0,
};
#else
enum {
    PACK_FLOATS = 5 << 20, /* most floats of packed operands: 20 MiB */
    BLOCK = TM_GEMM_BLOCK,
    TILE_ROWS = 224, /* tile of one task: its part of A and B for one block, 458 KB + 512 KB, stays near the core */
    NEAR_SLOTS = 0,
    FEW_ROWS = 288,        /* most rows of A of a product that packs B as it goes and writes C once */
    NEAR_FLOATS = 1 << 16, /* of the other one at a time, in each thread: 256 KiB */
    NEAR_WHOLE = 1 << 17,  /* with all of K */
};
#endif
/* FEW_FLOATS: of the operand that is packed once, packed. ALWAYS: any product packs the other one as it goes, not only
 * one with few rows or columns, where the innermost tile brings near what comes next. */
#if defined(__AVX512F__) && !defined(__AMX_BF16__)
enum { FEW_FLOATS = 5 << 20, ALWAYS = 1 };
#else
enum { FEW_FLOATS = 1 << 21, ALWAYS = 0 };
#endif
enum {
    STRIP_PACK_FLOATS = 3 << 20, /* beside a strip */
    STRIP_FLOATS = 5 << 19,      /* 10 MiB */
    STRIP_SIDE = 1536,
    TILE_COLUMNS = 256,
    MOST_COLUMNS = 1024,
    TILE_GAP = 16,        /* floats between rows of sums: an odd number of cache lines */
    MOST_TILES = 16,      /* threads with a tile of their own, 3.7 MiB, or 7.4; or that all read one packed operand */
    PACK_GROUP = 4,       /* panels packed by one task */
    ROW_COLUMNS = 64,     /* of a task of a product with one row */
    DEEP = 256,           /* least k of a product that goes by its operands and not by its result */
    FEW = 288,            /* most rows (or columns) of other products that pack as they go */
    SMALL_FLOPS = 1000000 /* below: one thread, about 10 us of work */
};

typedef struct {
    int64_t depth, stages;
    int64_t panels_m, panels_n; /* of all of A and B */
    int64_t mc, nc;             /* panels of a block */
    int64_t blocks_m, blocks_n;
    bool    a_outer;                                       /* blocks of A change least often, otherwise those of B */
    bool    strip, tiles;                                  /* tiles: scratch of the threads instead of a strip */
    int64_t a_floats, b_floats, strip_floats, tile_floats; /* tile_floats: of one thread */
} plan;

/* Bytes moved beside the products themselves, roughly: packing (read, write-allocate, write), sums of C between stages,
 * and two barriers per step at the price of 100 KB. */
static TM_PLANNED double plan_cost(const plan *p, const tm_gemm *g)
{
    bool   whole = p->stages == 1;
    double repeat_outer = p->strip && !whole ? (double)(p->a_outer ? p->blocks_n : p->blocks_m) : 1;
    double repeat_inner = (double)(p->a_outer ? p->blocks_m : p->blocks_n);
    if (whole && (p->a_outer ? p->blocks_n : p->blocks_m) == 1) repeat_inner = 1;
    double m = (double)g->m, n = (double)g->n, k = (double)g->k;
    double packed = p->a_outer ? m * repeat_outer + n * repeat_inner : n * repeat_outer + m * repeat_inner;
    double steps = (double)p->blocks_m * (double)p->blocks_n * (double)p->stages;
    return 12 * k * packed + 8 * m * n * (double)p->stages + 1e5 * steps;
}

/* Most columns of a task, for sums over k. */
static TM_PLANNED int64_t most_columns(int64_t k)
{
    int64_t near = NEAR_SLOTS / packed_columns(tm_max(1, tm_min(k, BLOCK)));
    return k > BLOCK ? TILE_COLUMNS : tm_min(MOST_COLUMNS, tm_max(TILE_COLUMNS, near));
}

static TM_PLANNED plan plan_with(const tm_gemm *g, int64_t depth, bool a_outer)
{
    plan p = { .depth = depth, .a_outer = a_outer, .strip = g->c_dtype != TM_F32 };
    p.stages = tm_max(1, tm_ceil_div(g->k, depth));
    p.panels_m = tm_ceil_div(g->m, MR);
    p.panels_n = tm_ceil_div(g->n, NR);
    p.tiles = p.strip && p.stages == 1 && g->threads <= MOST_TILES;
    int64_t columns = packed_columns(depth);
    int64_t rows = (p.strip && !p.tiles ? STRIP_PACK_FLOATS : PACK_FLOATS) / columns;
    int64_t keep = a_outer ? p.panels_m * MR : p.panels_n * NR, stream = a_outer ? p.panels_n * NR : p.panels_m * MR;
    stream = tm_min(stream, tm_max(rows / 4, rows - keep));
    keep = tm_min(keep, rows - stream);
    if (p.strip && !p.tiles) {
        keep = tm_min(keep, tm_max(STRIP_SIDE, STRIP_FLOATS / stream));
        stream = tm_min(stream, STRIP_FLOATS / keep);
    }
    p.mc = tm_max(1, (a_outer ? keep : stream) / MR);
    p.nc = tm_max(1, (a_outer ? stream : keep) / NR);
    p.blocks_m = tm_ceil_div(p.panels_m, p.mc);
    p.blocks_n = tm_ceil_div(p.panels_n, p.nc);
    p.mc = tm_ceil_div(p.panels_m, p.blocks_m); /* blocks of equal size */
    p.nc = tm_ceil_div(p.panels_n, p.blocks_n);
    p.a_floats = tm_ceil_div(p.mc * MR * columns, 16) * 16;
    p.b_floats = tm_ceil_div(p.nc * NR * columns, 16) * 16;
    p.strip_floats = p.strip ? p.mc * MR * p.nc * NR : 0;
    int64_t rows_at_once = g->k > BLOCK ? tm_min(TILE_ROWS / MR, p.mc) * MR : MR;
    p.tile_floats = rows_at_once * (tm_min(most_columns(g->k), p.nc * NR) + TILE_GAP);
    p.tiles = p.tiles && g->threads * p.tile_floats < p.strip_floats;
    if (p.tiles) p.strip_floats = g->threads * p.tile_floats;
    return p;
}

/* The cheapest of: stages of 1, 2, 4, 8, 16 blocks or all of K; blocks of A or blocks of B changing least often. */
static TM_PLANNED plan plan_make(const tm_gemm *g)
{
    plan   best = { 0 };
    double best_cost = 0;
    for (int64_t blocks = 1; blocks <= 16; blocks *= 2) {
        int64_t depth = tm_max(1, tm_min(g->k, blocks * BLOCK));
        for (int a_outer = 0; a_outer < 2; a_outer++) {
            plan   p = plan_with(g, depth, a_outer);
            double cost = plan_cost(&p, g);
            if (best.depth == 0 || cost < best_cost) best = p, best_cost = cost;
        }
        if (depth >= g->k) break;
    }
    return best;
}

/* Packing as it goes: the small operand is packed once for all, tasks are `group` panels of the large one. */
typedef struct {
    bool    use, few_rows;             /* the small operand is A, otherwise B */
    bool    whole;                     /* tasks pack all of K at once, otherwise block by block */
    bool    tiles;                     /* room for the sums of one panel of A: they are whole before the next one's */
    int64_t panels, large, group;      /* panels of the small operand, of the large one, of a task */
    int64_t small_floats, near_floats; /* packed: the small operand; the large one in a thread at a time */
    int64_t ld_sums, thread_floats;    /* sums of a C of 16 bits; all of a thread */
} passing;

static TM_PLANNED size_t most_bytes(const tm_gemm *gemm)
{
    int64_t rows = tm_round_up(gemm->m, MR), columns = tm_round_up(gemm->n, NR);
    int64_t floats = (rows + columns) * packed_columns(tm_max(1, tm_min(gemm->k, 16 * BLOCK))) + 32;
    if (gemm->c_dtype != TM_F32) floats += rows * columns;
    size_t bytes = (size_t)floats * sizeof(float) + 64;
    return bytes < TM_GEMM_WORKSPACE_MAX ? bytes : TM_GEMM_WORKSPACE_MAX;
}

static TM_PLANNED size_t passing_bytes(const passing *p, int threads)
{
    return (size_t)(p->small_floats + threads * p->thread_floats) * sizeof(float) + 64;
}

static TM_PLANNED passing passing_make(const tm_gemm *g)
{
    passing p = { .few_rows = g->m <= g->n };
    int64_t pm = tm_ceil_div(g->m, MR), pn = tm_ceil_div(g->n, NR),
            block = packed_columns(tm_max(1, tm_min(g->k, BLOCK)));
    int64_t width = p.few_rows ? NR : MR, few = p.few_rows ? pm * MR : pn * NR;
    p.panels = p.few_rows ? pm : pn;
    p.large = p.few_rows ? pn : pm;
    p.small_floats = tm_round_up(few * packed_columns(tm_max(1, g->k)), 16);
    p.group = tm_max(1, tm_min(NEAR_FLOATS / (width * block), p.large / (4 * (int64_t)g->threads)));
    p.whole = g->c_dtype != TM_F32 && p.few_rows && p.group * width * packed_columns(g->k) <= NEAR_WHOLE;
    if (p.whole) block = packed_columns(tm_max(1, g->k));
    p.near_floats = tm_round_up(p.group * width * block, 16);
    p.ld_sums = (p.few_rows ? p.group * NR : few) + TILE_GAP;
    p.thread_floats = p.near_floats;
    p.tiles = g->k <= BLOCK || p.whole;
    if (g->c_dtype != TM_F32) p.thread_floats += (p.tiles ? MR : p.few_rows ? few : p.group * MR) * p.ld_sums;
    bool once = g->c_dtype != TM_F32 || (p.tiles && !g->accumulate); /* C in memory is written once, and not read */
    bool is_small = few <= (once && p.few_rows ? FEW_ROWS : FEW) && p.large * width >= 2 * few;
    bool is_shared = ALWAYS && g->k >= DEEP && g->threads <= MOST_TILES && p.large >= 4 * (int64_t)g->threads;
    p.use = (is_small || is_shared) && p.small_floats <= FEW_FLOATS && passing_bytes(&p, g->threads) <= most_bytes(g);
    return p;
}

#endif
