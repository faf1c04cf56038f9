/* SPDX-License-Identifier: Apache-2.0 */
/* Which queries see which keys, for the attention by matrix units: the rule of a call, what rows of a block see of the others.
 * Causal or not, with windows, and documents by the first key of each query (op/attention.c has the formulas). */
#include "units.cu"

#define NOTHING 1.0e30f /* L of a query that does not exist: 2^(x - 1e30) = 0 */

#define SHAPE                                                                                                          \
    int seq_q, int seq_k, int q_offset, int heads, int kv_heads, int causal, int window, int key0, int ld_q, int ld_k, \
        int ld_v, float scale

/* Keys that a query sees: from .. end - 1. */
struct range {
    int from, end;
};
struct rule {
    const int *first_key;
    int        seq_q, seq_k, q_offset, causal, window, key0;
};
DEVICE range seen_by(const rule &r, int batch, int query)
{
    int p = r.q_offset + query, from = r.window > 0 && p >= r.window ? p - r.window + 1 : 0;
    if (query >= r.seq_q) return range{ 0, 0 };
    if (r.first_key) from = greater(from, r.first_key[(i64)batch * r.seq_q + query] - r.key0);
    return range{ from, r.causal ? smaller(p + 1, r.seq_k) : r.seq_k };
}

/* Keys that some of several queries see, and those that all of them see. */
struct reach {
    range some, all;
};
DEVICE reach join(reach a, reach b)
{
    return reach{ { smaller(a.some.from, b.some.from), greater(a.some.end, b.some.end) },
                  { greater(a.all.from, b.all.from), smaller(a.all.end, b.all.end) } };
}
#define NO_REACH reach{ { 0x7fffffff, 0 }, { 0, 0x7fffffff } }

/* Of `rows` queries from `first` on, which `ranges` has from row `at` on, by all lanes of a wave. */
DEVICE reach reach_of(const range *ranges, int at, int rows, int first, int seq_q)
{
    reach sum = NO_REACH;
    for (int i = lane_id(); i < rows && first + i < seq_q; i += WAVE) {
        range r = ranges[at + i];
        sum = join(sum, reach{ r.from < r.end ? r : NO_REACH.some, r });
    }
    return reach{ { wave_least(sum.some.from), wave_most(sum.some.end) },
                  { wave_most(sum.all.from), wave_least(sum.all.end) } };
}

/* Kept in shared memory: registers are few. */
DEVICE void see(reach *reaches, reach of)
{
    if (lane_id() == 0) reaches[wave_id()] = of;
}
DEVICE reach seen(const reach *reaches)
{
    reach of = reaches[wave_id()];
    return reach{ { uniform(of.some.from), uniform(of.some.end) }, { uniform(of.all.from), uniform(of.all.end) } };
}

/* Queries that see any of the keys first .. last, by all threads of a block. */
template <int THREADS>
DEVICE range seen_from(const rule &r, int batch, int first, int last)
{
    SHARED int least[THREADS / WAVE], most[THREADS / WAVE];
    /* before the causal diagonal and behind the window there are none; documents say it by query */
    int begin = r.causal ? greater(first - r.q_offset, 0) : 0;
    int end = r.window > 0 ? smaller(r.seq_q, last + r.window - r.q_offset) : r.seq_q;
    int from = 0x7fffffff, to = 0;
    if (!r.first_key) return range{ begin, end };
    for (int i = begin + thread_id(); i < end; i += THREADS)
        if (r.first_key[(i64)batch * r.seq_q + i] - r.key0 <= last) {
            from = smaller(from, i);
            to = i + 1;
        }
    from = wave_least(from);
    to = wave_most(to);
    if (lane_id() == 0) {
        least[wave_id()] = from;
        most[wave_id()] = to;
    }
    barrier();
    UNROLL for (int i = 0; i < THREADS / WAVE; i++) {
        from = smaller(from, least[i]);
        to = greater(to, most[i]);
    }
    return range{ uniform(from), uniform(to) };
}

/* Which tile of which head a block has. Tiles come in the grid's order, the first ones of all heads of a section first, so that
 * blocks with much work begin early. A section has the heads of so many heads of keys that these stay in the L2 cache; on AMD's
 * GPUs, which give blocks to eight parts in turns, each of these then has its own. */
struct spot {
    int tile, head;
};
DEVICE spot spot_of(int heads, int shared_by)
{
    enum { SECTION = 8 };
    int tiles = blocks(0), at = block_id(0) + tiles * block_id(1), section = smaller(heads, SECTION * shared_by);
    int begin = at / (tiles * section) * section, size = smaller(section, heads - begin), rest = at - begin * tiles;
    return spot{ rest / size, begin + rest % size };
}
