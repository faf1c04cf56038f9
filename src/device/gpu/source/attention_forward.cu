/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of bfloat16 by the products of Hopper's warpgroups (wgmma, sm_90a); attention_matrix.cu has the formulas, and says
 * what is rounded. A block has 128 queries of a head and three warpgroups: one thread of the first brings tiles of 128 keys and
 * their values by TMA, the others have 64 queries each. Every tile in shared memory has two mbarriers: `full` counts TMA's
 * bytes, `empty` the eight warps that have used it.
 *
 *   S = Q K^T of tile i is begun, then O += P V of tile i - 1, P in registers. Softmax of S runs beside the second product.
 *
 * Tiles that none of the block's queries sees are not loaded. Rows of a tile that none of them sees may hold anything: their
 * scores are left out, their values are zeros, which TMA puts behind the last key, and clean() where keys are not seen.
 *
 * DIM: size of a head, 64 or 128, of queries, keys and values. S: format of the sinks. A tile has a box (warpgroup.cu) for each
 * 64 columns.
 */
#include "warpgroup.cu"

enum { THREADS = 384, USERS = THREADS - GROUP, ROWS = 128, OWN = 64, BOX = ROWS * 128, TILE = ROWS * DIM * 2 };
enum { STAGES = DIM == 64 ? 4 : 2, QUERIES = 0, FULL = 1, EMPTY = FULL + 2 * STAGES, BARRIERS = EMPTY + 2 * STAGES };
enum { KEYS = 0, VALUES = 1, PARTS = DIM / 64 };

#define LEAST (-3.0e38f)

/* What the driver says of a tensor for TMA: columns, rows of a sequence, sequences; boxes of 64 columns and 128 rows. */
struct alignas(64) tensor {
    unsigned char of[128];
};

/* Shared memory: tiles from a multiple of 1,024 bytes on, the queries', then keys' and values' by stage; mbarriers. */
struct room {
    u32 at, barriers;
    METHOD u32 tile(int which, int stage) const
    {
        return at + (1 + 2 * stage + which) * TILE;
    }
    METHOD u32 full(int which, int stage) const
    {
        return barriers + 8 * (FULL + 2 * stage + which);
    }
    METHOD u32 empty(int which, int stage) const
    {
        return barriers + 8 * (EMPTY + 2 * stage + which);
    }
};

DEVICE void open_barrier(u32 barrier, u32 arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
DEVICE void arrive(u32 barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/* Until phase `turn` of a barrier, counted from 0, is over. */
DEVICE void await(u32 barrier, int turn)
{
    u32 done = 0;
    while (!done)
        asm volatile("{\n.reg .pred done;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, done;\n}"
                     : "=r"(done)
                     : "r"(barrier), "r"((u32)turn & 1)
                     : "memory");
}
/* 128 rows of a tensor, which come by themselves, and are told to a barrier. */
DEVICE void load_tile(u32 to, const tensor *from, u32 barrier, int column, int row, int sequence)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"((u32)TILE) : "memory");
    UNROLL for (int part = 0; part < PARTS; part++)
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to + part * BOX),
                     "l"(from), "r"(barrier), "r"(column + 64 * part), "r"(row), "r"(sequence)
                     : "memory");
}

/* s = 64 queries times the keys of a tile. */
DEVICE void scores(float (&s)[64], u32 queries, u32 keys)
{
    asm volatile(WGMMA("128") "{" NAMES_64 "}, %64, %65, 0, 1, 1, 0, 0;"
                 : FLOATS_64(s)
                 : "l"(descriptor(queries, 16)), "l"(descriptor(keys, 16)));
    UNROLL for (int k = 1; k < DIM / 16; k++) {
        u32 at = k / 4 * BOX + k % 4 * 32;
        asm volatile(WGMMA("128") "{" NAMES_64 "}, %64, %65, 1, 1, 1, 0, 0;"
                     : FLOATS_64(s)
                     : "l"(descriptor(queries + at, 16)), "l"(descriptor(keys + at, 16)));
    }
}
/* out += p times the values of a tile: 16 of them are 2,048 bytes of each box. */
DEVICE void add_values(float (&out)[64], const u32 (&p)[32], u32 values)
{
    UNROLL for (int k = 0; k < ROWS / 16; k++)
        asm volatile(WGMMA("128") "{" NAMES_64 "}, {%64,%65,%66,%67}, %68, 1, 1, 1, 1;"
                     : FLOATS_64(out)
                     : "r"(p[4 * k]), "r"(p[4 * k + 1]), "r"(p[4 * k + 2]), "r"(p[4 * k + 3]),
                       "l"(descriptor(values + k * 2048, BOX)));
}
DEVICE void add_values(float (&out)[32], const u32 (&p)[32], u32 values)
{
    UNROLL for (int k = 0; k < ROWS / 16; k++)
        asm volatile(WGMMA("64") "{" NAMES_32 "}, {%32,%33,%34,%35}, %36, 1, 1, 1, 1;"
                     : FLOATS_32(out)
                     : "r"(p[4 * k]), "r"(p[4 * k + 1]), "r"(p[4 * k + 2]), "r"(p[4 * k + 3]),
                       "l"(descriptor(values + k * 2048, BOX)));
}

/* Of the two rows of a thread: the keys that they see; the largest score in powers of two, or less by up to 8, as in
 * attention_matrix.cu; the thread's part of the sum; and what sums of before are multiplied with. */
struct softmax {
    range sees[SLOTS];
    float most[SLOTS], sum[SLOTS], less[SLOTS];
};

/* Scores of the tile from `key` on become probabilities over 2^most. Returns whether sums of before have to be scaled. */
DEVICE bool weigh(softmax *now, float (&s)[64], float c, int key, bool edge)
{
    float peak[SLOTS] = { MINUS_INFINITY, MINUS_INFINITY };
    bool  grows = false;
    if (edge)
        UNROLL for (int e = 0; e < 64; e++) {
            int at = key + column_of(e);
            s[e] = (at < now->sees[slot_of(e)].from) | (at >= now->sees[slot_of(e)].end) ? MINUS_INFINITY : s[e];
        }
    UNROLL for (int e = 0; e < 64; e++) peak[slot_of(e)] = larger(peak[slot_of(e)], s[e]);
    UNROLL for (int i = 0; i < SLOTS; i++) grows |= peak[i] * c > now->most[i] + 8.0f;
    grows = any(grows);
    if (grows)
        UNROLL for (int i = 0; i < SLOTS; i++) {
            float most = larger(now->most[i], row_largest(peak[i]) * c);
            now->less[i] = power_of_2(now->most[i] - most);
            now->most[i] = most;
            now->sum[i] *= now->less[i];
        }
    UNROLL for (int e = 0; e < 64; e++) {
        s[e] = power_of_2(multiply_add(s[e], c, -now->most[slot_of(e)]));
        now->sum[slot_of(e)] += s[e];
    }
    return grows;
}

/* Values of a tile that no query of the block sees become zeros, for the products of both warpgroups: half a row each thread. */
DEVICE void clean(u32 tile, range seen)
{
    int thread = thread_id() - GROUP, row = thread / 2;
    if (row < seen.from || row >= seen.end)
        UNROLL for (int part = 0; part < PARTS; part++)
            UNROLL for (int chunk = 0; chunk < 4; chunk++)
                asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(tile + part * BOX + row * 128 +
                                                                               (thread % 2 * 4 + chunk) * 16),
                             "r"(0)
                             : "memory");
    asm volatile("fence.proxy.async;\nbar.sync 1, %0;" ::"n"((int)USERS) : "memory");
}

/* The thread that brings tiles: queries, then keys and values of each stage as soon as the ones before were used. */
DEVICE void bring(const room &t, const tensor *queries, const tensor *keys, const tensor *values, int query0, int head, int kv_head,
                  int from, int tiles)
{
    int batch = block_id(2);
    load_tile(t.at, queries, t.barriers, head * DIM, query0, batch);
    ROLLED for (int i = 0; i < tiles; i++) {
        int stage = i % STAGES, turn = i / STAGES - 1;
        await(t.empty(KEYS, stage), turn);
        load_tile(t.tile(KEYS, stage), keys, t.full(KEYS, stage), kv_head * DIM, from + i * ROWS, batch);
        await(t.empty(VALUES, stage), turn);
        load_tile(t.tile(VALUES, stage), values, t.full(VALUES, stage), kv_head * DIM, from + i * ROWS, batch);
    }
}

KERNEL_OF(THREADS, attention_wgmma)
(const __grid_constant__ tensor q, const __grid_constant__ tensor k, const __grid_constant__ tensor v, bf16 *RESTRICT o,
 f32 *RESTRICT lse, const int *RESTRICT first_key, const S *RESTRICT sinks, int seq_q, int seq_k, int q_offset, int heads,
 int kv_heads, int causal, int window, int key0, float scale)
{
    extern SHARED unsigned char bytes[];
    alignas(8) SHARED u64       barriers[BARRIERS];
    SHARED range                ranges[ROWS];
    rule rules = { first_key, seq_q, seq_k, q_offset, causal, window, key0 };
    spot own = spot_of(heads, heads / kv_heads);
    room t = { ((u32)__cvta_generic_to_shared(bytes) + 1023) & ~1023u, (u32)__cvta_generic_to_shared(barriers) };
    int  query0 = (blocks(0) - 1 - own.tile) * ROWS, h = own.head, batch = block_id(2), thread = thread_id(), group = group_id();
    if (thread < ROWS) ranges[thread] = seen_by(rules, batch, query0 + thread);
    if (thread == 0) {
        open_barrier(t.barriers, 1);
        UNROLL for (int i = 0; i < 2 * STAGES; i++) {
            open_barrier(t.barriers + 8 * (FULL + i), 1);
            open_barrier(t.barriers + 8 * (EMPTY + i), USERS / WAVE);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    barrier();
    range all = reach_of(ranges, 0, ROWS, query0, seq_q).some;
    int   from = all.from / ROWS * ROWS, tiles = all.from < all.end ? (all.end - from + ROWS - 1) / ROWS : 0;
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (thread == 0 && tiles > 0) bring(t, &q, &k, &v, query0, h, h / (heads / kv_heads), from, tiles);
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    int     row0 = (group - 1) * OWN, first = query0 + row0;
    range   each = reach_of(ranges, row0, OWN, first, seq_q).all; /* what all rows of the warpgroup see */
    u32     queries = t.at + row0 * 128, p[32];
    bool    leads = lane_id() == 0;
    float   s[64], out[DIM / 2], c = scale * LOG2_E;
    softmax now;
    UNROLL for (int i = 0; i < SLOTS; i++) {
        now.sees[i] = ranges[row0 + group_row(i)];
        now.most[i] = sinks ? get(sinks, h) * LOG2_E : LEAST;
        now.sum[i] = sinks && column_of(0) == 0 ? 1.0f : 0.0f;
        now.less[i] = 1.0f;
    }
    UNROLL for (int e = 0; e < DIM / 2; e++) out[e] = 0.0f;
    auto weigh_tile = [&](int i) {
        int key = from + i * ROWS;
        return weigh(&now, s, c, key, key < each.from || key + ROWS > each.end);
    };
    auto add_tile = [&](int i) { /* begins out += p v */
        int  key = from + i * ROWS, stage = i % STAGES;
        bool unseen = key < all.from || (key + ROWS > all.end && all.end < seq_k);
        await(t.full(VALUES, stage), i / STAGES);
        if (unseen) clean(t.tile(VALUES, stage), range{ all.from - key, all.end - key });
        begin_products(); /* also where S was begun: ptxas serializes products without it */
        add_values(out, p, t.tile(VALUES, stage));
        end_products();
    };
    if (tiles > 0) {
        await(t.barriers, 0);
        await(t.full(KEYS, 0), 0);
        begin_products();
        scores(s, queries, t.tile(KEYS, 0));
        end_products();
        wait_products<0>();
        arrived(s);
        if (leads) arrive(t.empty(KEYS, 0));
        weigh_tile(0);
        round_all(p, s);
    }
    ROLLED for (int i = 1; i < tiles; i++) {
        int stage = i % STAGES, last = (i - 1) % STAGES;
        await(t.full(KEYS, stage), i / STAGES);
        begin_products();
        scores(s, queries, t.tile(KEYS, stage));
        end_products();
        add_tile(i - 1);
        wait_products<1>();
        arrived(s);
        if (leads) arrive(t.empty(KEYS, stage));
        bool grows = weigh_tile(i);
        wait_products<0>();
        arrived(out);
        if (leads) arrive(t.empty(VALUES, last));
        if (grows) UNROLL for (int e = 0; e < DIM / 2; e++) out[e] *= now.less[slot_of(e)];
        round_all(p, s);
    }
    if (tiles > 0) {
        add_tile(tiles - 1);
        wait_products<0>();
        arrived(out);
    }
    UNROLL for (int i = 0; i < SLOTS; i++) {
        float total = row_sum(now.sum[i]);
        int   query = first + group_row(i);
        now.less[i] = total > 0.0f ? 1.0f / total : total;
        if (column_of(0) == 0 && query < seq_q)
            lse[((i64)batch * heads + h) * seq_q + query] =
                total == 0.0f ? MINUS_INFINITY : now.most[i] * LN_2 + logarithm(total);
    }
    UNROLL for (int e = 0; e < DIM / 2; e++) out[e] *= now.less[slot_of(e)];
    store_rows(o + (i64)batch * seq_q * heads * DIM + h * DIM, heads * DIM, out, 1.0f, first, seq_q);
}
