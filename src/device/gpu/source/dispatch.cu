/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs of row and slot in the order of their experts, by a stable counting sort of whole numbers: a block counts a chunk of
 * the pairs, one adds up over the chunks, a block puts a chunk in its places. A thread has an expert (and those BLOCK
 * further), whose pairs it meets in ascending order: nothing depends on who comes first. Also what is counted there. */

enum { PIECE = 1024, MOST_EXPERTS = 1024 };

/* ids[begin ..], at most PIECE of them, into shared memory; how many. */
DEVICE int load_piece(int *piece, const int *ids, int begin, int end)
{
    int n = end - begin < PIECE ? end - begin : PIECE;
    barrier(); /* the piece before was used */
    for (int i = thread_id(); i < n; i += BLOCK) piece[i] = ids[begin + i];
    barrier();
    return n;
}

DEVICE int end_of(int begin, int chunk, int pairs)
{
    return pairs - begin < chunk ? pairs : begin + chunk;
}

/* counts (chunks, experts) */
KERNEL(dispatch_counts)(int *RESTRICT counts, const int *RESTRICT ids, int pairs, int chunk, int experts)
{
    SHARED int piece[PIECE];
    int        begin = block_id(0) * chunk, end = end_of(begin, chunk, pairs);
    for (int first = 0; first < experts; first += BLOCK) {
        int e = first + thread_id(), count = 0;
        for (int at = begin; at < end; at += PIECE) {
            int n = load_piece(piece, ids, at, end);
            for (int i = 0; i < n; i++) count += piece[i] == e;
        }
        if (e < experts) counts[(i64)block_id(0) * experts + e] = count;
    }
}

/* bases (chunks, experts): pairs of the expert in earlier chunks. One block. */
KERNEL(dispatch_bases)
(int *RESTRICT offsets, int *RESTRICT bases, const int *RESTRICT counts, int chunks, int experts)
{
    SHARED int total[MOST_EXPERTS];
    for (int e = thread_id(); e < experts; e += BLOCK) {
        int sum = 0;
        for (int c = 0; c < chunks; c++) {
            bases[c * experts + e] = sum;
            sum += counts[c * experts + e];
        }
        total[e] = sum;
    }
    barrier();
    for (int e = thread_id(); e <= experts; e += BLOCK) {
        int sum = 0;
        for (int i = 0; i < e; i++) sum += total[i];
        offsets[e] = sum;
    }
}

KERNEL(dispatch_places)
(int *RESTRICT order, int *RESTRICT inverse, const int *RESTRICT ids, const int *RESTRICT offsets,
 const int *RESTRICT bases, int pairs, int chunk, int experts)
{
    SHARED int piece[PIECE];
    int        begin = block_id(0) * chunk, end = end_of(begin, chunk, pairs);
    for (int first = 0; first < experts; first += BLOCK) {
        int e = first + thread_id(), place = e < experts ? offsets[e] + bases[block_id(0) * experts + e] : 0;
        for (int at = begin; at < end; at += PIECE) {
            int n = load_piece(piece, ids, at, end);
            for (int i = 0; i < n; i++) {
                if (piece[i] != e) continue;
                order[place] = at + i;
                inverse[at + i] = place++;
            }
        }
    }
}

KERNEL(expert_counts)(f64 *counts, const int *RESTRICT offsets, int experts, int adds)
{
    EACH (e, experts) {
        double n = (double)(offsets[e + 1] - offsets[e]);
        counts[e] = adds ? counts[e] + n : n;
    }
}

KERNEL_OF(1, expert_span)(int *RESTRICT span, const int *RESTRICT offsets, int experts)
{
    span[0] = offsets[0];
    span[1] = offsets[experts];
}

/* One block. The mean is formed in ascending order, as on CPUs: it decides for an expert whose count is the mean. */
KERNEL(expert_bias)(f32 *result, const f64 *RESTRICT counts, const f32 *bias, int experts, double rate)
{
    SHARED double share[MOST_EXPERTS], mean;
    SHARED float  room[BLOCK / WAVE];
    double        all = (double)experts;
    float         signs = 0.0f; /* whole numbers */
    for (int e = thread_id(); e < experts; e += BLOCK) share[e] = counts[e] / all;
    barrier();
    if (thread_id() == 0) {
        double sum = 0.0;
        for (int e = 0; e < experts; e++) sum += share[e];
        mean = sum;
    }
    barrier();
    for (int e = thread_id(); e < experts; e += BLOCK) signs += (float)((counts[e] < mean) - (counts[e] > mean));
    signs = block_sum(signs, room);
    for (int e = thread_id(); e < experts; e += BLOCK) {
        double sign = (double)((counts[e] < mean) - (counts[e] > mean));
        result[e] = (float)((double)bias[e] + rate * (sign - (double)signs / all));
    }
}
