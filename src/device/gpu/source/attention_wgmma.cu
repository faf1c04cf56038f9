/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of attention of bfloat16 by the products of Hopper's warpgroups (wgmma, sm_90a); attention_matrix.cu has the
 * formulas, and says what is rounded. A block's two warpgroups have 64 rows each, queries or keys, of which both factors stay
 * in shared memory; tiles of 64 keys or queries go by, one on its way while another is used.
 *
 *   queries   S = Q K^T, dP = dO V^T, dQ += dS K       keys   S = K Q^T, dP = V dO^T, dV += P dO, dK += dS Q
 *
 * S and dP have both factors in shared memory, read along their rows. P and dS never leave the registers: rounded sums are the
 * left factor of the next product as they are, whose right factor is the tile read across its rows.
 *
 * DIM: size of a head, 64 or 128, of queries, keys and values. A tile is one box (warpgroup.cu) for each 64 columns.
 */
#include "warpgroup.cu"

enum { THREADS = 256, ROWS = 64, BLOCK_ROWS = 2 * ROWS, BOX = ROWS * 128, TILE = ROWS * DIM * 2 };
enum { CHUNKS = DIM / 8, FIRST = 0, SECOND = 1 };

/* s = 64 own rows times the 64 of a tile. */
DEVICE void scores(float (&s)[32], u32 own, u32 tile)
{
    asm volatile(WGMMA("64") "{" NAMES_32 "}, %32, %33, 0, 1, 1, 0, 0;"
                 : FLOATS_32(s)
                 : "l"(descriptor(own, 16)), "l"(descriptor(tile, 16)));
    UNROLL for (int k = 1; k < DIM / 16; k++) {
        u32 at = k / 4 * BOX + k % 4 * 32;
        asm volatile(WGMMA("64") "{" NAMES_32 "}, %32, %33, 1, 1, 1, 0, 0;"
                     : FLOATS_32(s)
                     : "l"(descriptor(own + at, 16)), "l"(descriptor(tile + at, 16)));
    }
}
/* out += p, 64 own rows and 64 columns, times the rows of a tile: 16 of them are 2,048 bytes of each box. */
DEVICE void add_product(float (&out)[32], const u32 (&p)[16], u32 tile)
{
    UNROLL for (int k = 0; k < ROWS / 16; k++)
        asm volatile(WGMMA("64") "{" NAMES_32 "}, {%32,%33,%34,%35}, %36, 1, 1, 1, 1;"
                     : FLOATS_32(out)
                     : "r"(p[4 * k]), "r"(p[4 * k + 1]), "r"(p[4 * k + 2]), "r"(p[4 * k + 3]),
                       "l"(descriptor(tile + k * 2048, BOX)));
}
DEVICE void add_product(float (&out)[64], const u32 (&p)[16], u32 tile)
{
    UNROLL for (int k = 0; k < ROWS / 16; k++)
        asm volatile(WGMMA("128") "{" NAMES_64 "}, {%64,%65,%66,%67}, %68, 1, 1, 1, 1;"
                     : FLOATS_64(out)
                     : "r"(p[4 * k]), "r"(p[4 * k + 1]), "r"(p[4 * k + 2]), "r"(p[4 * k + 3]),
                       "l"(descriptor(tile + k * 2048, BOX)));
}

/* Shared memory: own rows of the first and the second tensor, by warpgroup; two stages of a tile of each of the others. */
struct room {
    u32 at;
    METHOD u32 own(int tensor, int group) const
    {
        return at + (2 * tensor + group) * TILE;
    }
    METHOD u32 tile(int stage, int tensor) const
    {
        return at + (4 + 2 * stage + tensor) * TILE;
    }
};
/* Asked for at the launch: 8 tiles, and 1,024 bytes so that they can begin at a multiple of that. */
DEVICE room room_of(const void *bytes)
{
    return room{ ((u32)__cvta_generic_to_shared(bytes) + 1023) & ~1023u };
}
/* 64 rows of a tensor, by all threads. */
DEVICE void copy(u32 to, const rows_of &x, int first)
{
    int thread = thread_again();
    UNROLL for (int c = 0; c < ROWS * CHUNKS; c += THREADS) {
        int  i = c + thread, r = i / CHUNKS, chunk = i % CHUNKS, row = first + r;
        bool some = row >= x.from && row < x.end;
        u32  place = chunk / 8 * BOX + r * 128 + (chunk ^ r) % 8 * 16;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to + place),
                     "l"(x.x + (some ? row * x.ld + 8 * chunk : 0)), "r"(some ? 16 : 0)
                     : "memory");
    }
}
DEVICE void copy_own(const room &t, const rows_of &a, const rows_of &b, int first)
{
    UNROLL for (int group = 0; group < 2; group++) {
        copy(t.own(FIRST, group), a, first + group * ROWS);
        copy(t.own(SECOND, group), b, first + group * ROWS);
    }
}
DEVICE void fetch(const room &t, int stage, const rows_of &a, const rows_of &b, int first)
{
    copy(t.tile(stage, FIRST), a, first);
    copy(t.tile(stage, SECOND), b, first);
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* What was fetched is there, for the products of every warpgroup; and all have left the other stage. */
DEVICE void arrive(void)
{
    asm volatile("cp.async.wait_group 0;\nfence.proxy.async;" ::: "memory");
    barrier();
}

KERNEL_OF(THREADS, attention_wgmma_queries)
(bf16 *RESTRICT dq, const bf16 *RESTRICT d_o, const bf16 *RESTRICT q, const bf16 *RESTRICT k, const bf16 *RESTRICT v,
 const f32 *RESTRICT lse, const f32 *RESTRICT delta, const int *RESTRICT first_key, int ld_dq, SHAPE)
{
    extern SHARED unsigned char bytes[];
    SHARED range                ranges[BLOCK_ROWS];
    SHARED reach                reaches[THREADS / WAVE];
    rule rules = { first_key, seq_q, seq_k, q_offset, causal, window, key0 };
    spot at = spot_of(heads, heads / kv_heads);
    int  query0 = (blocks(0) - 1 - at.tile) * BLOCK_ROWS, group = group_id(), own = group * ROWS, first = query0 + own;
    int  h = at.head, j = h / (heads / kv_heads), batch = block_id(2);
    if (thread_id() < BLOCK_ROWS) ranges[thread_id()] = seen_by(rules, batch, query0 + thread_id());
    barrier();
    see(reaches, reach_of(ranges, own, ROWS, first, seq_q));
    range   all = reach_of(ranges, 0, BLOCK_ROWS, query0, seq_q).some;
    i64     row0 = (i64)batch * seq_q, line = ((i64)batch * heads + h) * seq_q;
    int     ld_o = heads * DIM;
    rows_of qs = { q + row0 * ld_q + h * DIM, ld_q, 0, seq_q, DIM };
    rows_of gs = { d_o + row0 * ld_o + h * DIM, ld_o, 0, seq_q, DIM };
    rows_of ks = { k + (i64)batch * seq_k * ld_k + j * DIM, ld_k, all.from, all.end, DIM };
    rows_of vs = { v + (i64)batch * seq_k * ld_v + j * DIM, ld_v, all.from, all.end, DIM };
    float   s[32], d[32], out[DIM / 2], c = scale * LOG2_E, L[SLOTS], less[SLOTS];
    u32     ds[16];
    room    t = room_of(bytes);
    UNROLL for (int e = 0; e < DIM / 2; e++) out[e] = 0.0f;
    int from = all.from / ROWS * ROWS;
    if (from < all.end) {
        copy_own(t, qs, gs, query0);
        fetch(t, from / ROWS % 2, ks, vs, from);
    }
    UNROLL for (int i = 0; i < SLOTS; i++) {
        int query = first + group_row(i);
        L[i] = query < seq_q ? lse[line + query] * LOG2_E : NOTHING;
        less[i] = query < seq_q ? delta[line + query] : 0.0f;
    }
    for (int key = from; key < all.end; key += ROWS) {
        int stage = key / ROWS % 2;
        arrive();
        if (key + ROWS < all.end) fetch(t, stage ^ 1, ks, vs, key + ROWS);
        reach mine = seen(reaches);
        if (key >= mine.some.end || key + ROWS <= mine.some.from) continue; /* a whole warpgroup */
        begin_products();
        scores(s, t.own(FIRST, group), t.tile(stage, FIRST));
        end_products();
        scores(d, t.own(SECOND, group), t.tile(stage, SECOND));
        end_products();
        wait_products<1>();
        arrived(s);
        UNROLL for (int e = 0; e < 32; e++) s[e] = power_of_2(multiply_add(s[e], c, -L[slot_of(e)]));
        wait_products<0>();
        arrived(d);
        UNROLL for (int e = 0; e < 32; e++) d[e] = s[e] * (d[e] - less[slot_of(e)]);
        if (key < mine.all.from || key + ROWS > mine.all.end)
            UNROLL for (int e = 0; e < 32; e++) {
                range r = ranges[own + group_row(slot_of(e))];
                int   at = key + column_of(e);
                d[e] = ((at < r.from) | (at >= r.end)) ? 0.0f : d[e];
            }
        round_all(ds, d);
        begin_products();
        add_product(out, ds, t.tile(stage, FIRST));
        end_products();
        wait_products<0>();
        arrived(out);
    }
    store_rows(dq + row0 * ld_dq + h * DIM, ld_dq, out, scale, first, seq_q);
}

/* Of a tile of keys, over all queries of all heads of the group, in ascending order. */
KERNEL_OF(THREADS, attention_wgmma_keys)
(bf16 *RESTRICT dk, bf16 *RESTRICT dv, const bf16 *RESTRICT d_o, const bf16 *RESTRICT q, const bf16 *RESTRICT k,
 const bf16 *RESTRICT v, const f32 *RESTRICT lse, const f32 *RESTRICT delta, const int *RESTRICT first_key, int ld_dk,
 int ld_dv, SHAPE)
{
    extern SHARED unsigned char bytes[];
    alignas(16) SHARED float    numbers[2][2][ROWS]; /* of queries of a stage: L, delta */
    SHARED int                  firsts[2][ROWS];     /* and their documents' first keys */
    rule  rules = { first_key, seq_q, seq_k, q_offset, causal, window, key0 };
    int   shared_by = heads / kv_heads;
    spot  at = spot_of(kv_heads, 1);
    int   thread = thread_id(), key_0 = at.tile * BLOCK_ROWS, group = group_id();
    int   first = key_0 + group * ROWS, last = first + ROWS - 1; /* the warpgroup's */
    int   j = at.head, batch = block_id(2), ld_o = heads * DIM;
    range all = seen_from<THREADS>(rules, batch, key_0, smaller(key_0 + BLOCK_ROWS, seq_k) - 1);
    int   from = all.from / ROWS * ROWS;
    i64   row0 = (i64)batch * seq_q;
    float s[32], d[32], out_k[DIM / 2], out_v[DIM / 2], c = scale * LOG2_E, next = 0.0f;
    u32   p[16], ds[16];
    int   next_first = 0, h = from < all.end ? j * shared_by : (j + 1) * shared_by;
    room  t = room_of(bytes);
    auto  fetch_queries = [&](int stage, int head, int tile) {
        rows_of qs = { q + row0 * ld_q + head * DIM, ld_q, 0, seq_q, DIM };
        rows_of gs = { d_o + row0 * ld_o + head * DIM, ld_o, 0, seq_q, DIM };
        int     which = thread / ROWS, query = tile + thread % ROWS;
        fetch(t, stage, qs, gs, tile);
        if (which > 1) return;
        next = which ? 0.0f : NOTHING / LOG2_E;
        if (query >= seq_q) return;
        next = (which ? delta : lse)[((i64)batch * heads + head) * seq_q + query];
        if (first_key && which == 0) next_first = first_key[row0 + query] - key0;
    };
    UNROLL for (int e = 0; e < DIM / 2; e++) out_k[e] = out_v[e] = 0.0f;
    if (from < all.end) {
        rows_of ks = { k + (i64)batch * seq_k * ld_k + j * DIM, ld_k, 0, seq_k, DIM };
        rows_of vs = { v + (i64)batch * seq_k * ld_v + j * DIM, ld_v, 0, seq_k, DIM };
        copy_own(t, ks, vs, key_0);
        fetch_queries(0, h, from);
    }
    for (int tile = from, stage = 0; h < (j + 1) * shared_by; stage ^= 1) {
        int now = tile, place = now + q_offset; /* of the first query */
        if (thread < 2 * ROWS) numbers[stage][0][thread] = thread < ROWS ? next * LOG2_E : next;
        if (thread < ROWS) firsts[stage][thread] = next_first;
        arrive();
        tile += ROWS;
        if (tile >= all.end) {
            tile = from;
            h++;
        }
        if (h < (j + 1) * shared_by) fetch_queries(stage ^ 1, h, tile);
        if (first >= seq_k || (causal && place + ROWS - 1 < first) || (window > 0 && place - window >= last))
            continue; /* a whole warpgroup */
        begin_products();
        scores(s, t.own(FIRST, group), t.tile(stage, FIRST));
        end_products();
        scores(d, t.own(SECOND, group), t.tile(stage, SECOND));
        end_products();
        wait_products<1>();
        arrived(s);
        UNROLL for (int e = 0; e < 32; e++) s[e] = power_of_2(multiply_add(s[e], c, -numbers[stage][0][column_of(e)]));
        if (first_key || (causal && place < last) || (window > 0 && place + ROWS - 1 - window >= first))
            UNROLL for (int e = 0; e < 32; e++) {
                int  column = column_of(e), key = first + group_row(slot_of(e));
                bool seen = (key >= firsts[stage][column]) & (!causal | (key <= place + column)) &
                            ((window == 0) | (key > place + column - window));
                s[e] = seen ? s[e] : 0.0f;
            }
        round_all(p, s);
        begin_products();
        add_product(out_v, p, t.tile(stage, SECOND));
        end_products();
        wait_products<1>();
        arrived(d);
        UNROLL for (int e = 0; e < 32; e++) {
            float weight = e % 2 ? high_of(p[e / 2]) : low_of(p[e / 2]);
            d[e] = weight * (d[e] - numbers[stage][1][column_of(e)]);
            d[e] = weight == 0.0f ? 0.0f : d[e]; /* whatever a value that is not seen is */
        }
        round_all(ds, d);
        begin_products();
        add_product(out_k, ds, t.tile(stage, FIRST));
        end_products();
        wait_products<0>();
        arrived(out_k);
        arrived(out_v);
    }
    store_rows(dk + (i64)batch * seq_k * ld_dk + j * DIM, ld_dk, out_k, scale, first, seq_k);
    store_rows(dv + (i64)batch * seq_k * ld_dv + j * DIM, ld_dv, out_v, 1.0f, first, seq_k);
}
