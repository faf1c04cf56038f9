/* SPDX-License-Identifier: Apache-2.0 */
/* The loss that keeps experts evenly loaded, and its gradient (op/balance_loss.c). Of sequence b, run r has `rows` rows, from
 * row (r sequences + b) rows on. S: format of scores and of their gradient. Sums are float64. */

enum { PIECE = 1024 };

/* counts (sequences, parts, experts): pairs of an expert in a part of a sequence's `pairs`, which lie in runs of `run`. */
KERNEL(balance_counts)
(int *RESTRICT counts, const int *RESTRICT ids, int pairs, int run, int sequences, int part, int experts)
{
    SHARED int piece[PIECE];
    int        b = block_id(1), begin = block_id(0) * part, end = pairs - begin < part ? pairs : begin + part;
    for (int first = 0; first < experts; first += BLOCK) {
        int e = first + thread_id(), count = 0;
        for (int at = begin; at < end; at += PIECE) {
            int n = end - at < PIECE ? end - at : PIECE;
            barrier(); /* the piece before was used */
            for (int i = thread_id(); i < n; i += BLOCK) {
                int q = at + i, r = (int)((u32)q / (u32)run);
                piece[i] = ids[((i64)r * sequences + b) * run + (q - r * run)];
            }
            barrier();
            for (int i = 0; i < n; i++) count += piece[i] == e;
        }
        if (e < experts) counts[((i64)b * blocks(0) + block_id(0)) * experts + e] = count;
    }
}

/* alpha f_e: shares (sequences, experts) */
KERNEL(balance_shares)
(f64 *RESTRICT shares, const int *RESTRICT counts, int pairs, int sequences, int parts, int experts, double alpha)
{
    EACH (i, (i64)sequences * experts) {
        int b = (int)((u32)i / (u32)experts), e = (int)i - b * experts, count = 0;
        for (int p = 0; p < parts; p++) count += counts[((i64)b * parts + p) * experts + e];
        shares[i] = alpha * (double)count * (double)experts / (double)pairs;
    }
}

/* The sum over a part of a sequence's elements, of which there are `elements`. */
KERNEL(balance_parts)
(f64 *RESTRICT sums, const f64 *RESTRICT shares, const S *RESTRICT scores, i64 elements, int rows, int sequences, i64 part,
 int experts)
{
    SHARED double room[BLOCK];
    int           b = block_id(1);
    i64           begin = (i64)block_id(0) * part, end = elements - begin < part ? elements : begin + part;
    double        sum = 0.0;
    for (i64 at = begin + thread_id(); at < end; at += BLOCK) {
        u32 n = (u32)at / (u32)experts, e = (u32)at - n * (u32)experts, r = n / (u32)rows;
        i64 row = ((i64)r * sequences + b) * rows + (n - r * (u32)rows);
        sum += shares[(i64)b * experts + e] * (double)get(scores, row * experts + e);
    }
    sum = block_sum(sum, room);
    if (thread_id() == 0) sums[(i64)b * blocks(0) + block_id(0)] = sum;
}

/* One block. adds: to what is there. */
KERNEL(balance_total)(f64 *loss, const f64 *RESTRICT sums, int n, int adds)
{
    SHARED double room[BLOCK];
    double        sum = 0.0;
    for (int i = thread_id(); i < n; i += BLOCK) sum += sums[i];
    sum = block_sum(sum, room);
    if (thread_id() == 0) *loss = adds ? *loss + sum : sum;
}

KERNEL(balance_spread)
(S *RESTRICT dscores, const f64 *RESTRICT shares, const f64 *RESTRICT scale, i64 elements, int rows, int sequences, int experts)
{
    EACH (i, elements) {
        u32 n = (u32)i / (u32)experts, e = (u32)i - n * (u32)experts, b = n / (u32)rows % (u32)sequences;
        put(dscores, i, (float)(*scale * shares[(i64)b * experts + e]));
    }
}
