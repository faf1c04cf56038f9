/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks compute that divide matrices or sequences. X, Y: formats of an input and of the result. */

/* Of each row of logits, a block: exponentials against its largest, which, their sum, and the target's logit are the
 * parts. e may lie where z lies. */
KERNEL(vocabulary_parts)
(f32 *e, const f32 *z, f32 *RESTRICT parts, const int *RESTRICT targets, i64 rows, i64 columns, i64 first)
{
    SHARED float room[BLOCK], sums[BLOCK / WAVE];
    int          thread = thread_id();
    i64          n = block_id(0), row = n * columns, hit = (i64)targets[n] - first;
    float        largest = MINUS_INFINITY, sum = 0.0f;
    if (thread == 0) parts[2 * rows + n] = hit >= 0 && hit < columns ? z[row + hit] : 0.0f; /* behind the barrier others write */
    for (i64 i = thread; i < columns; i += BLOCK) largest = larger(largest, z[row + i]);
    largest = block_largest(largest, room);
    for (i64 i = thread; i < columns; i += BLOCK) {
        float x = exponential(z[row + i] - largest);
        e[row + i] = x;
        sum += x;
    }
    sum = block_sum(sum, sums);
    if (thread != 0) return;
    parts[n] = largest;
    parts[rows + n] = sum;
}

/* Of row n over all ranks, in their order: the largest logit, the sum of exponentials against it, the target's logit. */
struct joined {
    float largest, sum, hit;
};
DEVICE joined join_parts(const f32 *RESTRICT parts, i64 rows, int ranks, i64 n)
{
    joined j = { parts[n], 0.0f, 0.0f };
    ROLLED for (int r = 1; r < ranks; r++) j.largest = larger(j.largest, parts[3 * r * rows + n]);
    int r = 0;
    ROLLED do {
        j.sum += parts[(3 * r + 1) * rows + n] * exponential(parts[3 * r * rows + n] - j.largest);
        j.hit += parts[(3 * r + 2) * rows + n];
    } while (++r < ranks);
    return j;
}

KERNEL(vocabulary_losses)
(f32 *RESTRICT losses, const f32 *RESTRICT parts, const int *RESTRICT targets, i64 rows, int ranks, int ignored)
{
    EACH (n, rows) {
        joined j = join_parts(parts, rows, ranks, n);
        losses[n] = targets[n] == ignored ? 0.0f : logarithm(j.sum) + j.largest - j.hit;
    }
}

/* A block for each row. dlosses: of each row, where they are given; else all rows have the scale of the scalars. dz may
 * lie where e lies. */
KERNEL(vocabulary_loss_grad)
(f32 *dz, const f32 *e, const int *RESTRICT targets, const f32 *RESTRICT parts, const f64 *RESTRICT scalars,
 const f32 *RESTRICT dlosses, i64 rows, i64 columns, i64 first, int rank, int ranks, int ignored)
{
    i64 n = block_id(0), row = n * columns, hit = (i64)targets[n] - first;
    if (targets[n] == ignored) {
        for (i64 i = thread_id(); i < columns; i += BLOCK) dz[row + i] = 0.0f;
        return;
    }
    joined j = join_parts(parts, rows, ranks, n);
    float  scale = dlosses ? dlosses[n] : (float)scalars[0];
    float  factor = scale * exponential(parts[3 * rank * rows + n] - j.largest) / j.sum;
    for (i64 i = thread_id(); i < columns; i += BLOCK) {
        float d = e[row + i] * factor;
        dz[row + i] = i == hit ? d - scale : d;
    }
}

/* Rows of chunks in the order of ranks to that of tokens, or back. S: rows of a chunk, of `samples` sequences. */
KERNEL(sequence_order)
(Y *RESTRICT y, const X *RESTRICT x, i64 rows, int columns, int S, int samples, int ranks, int chunks, int inverse)
{
    EACH_OF_ROWS (row, c, rows, columns) {
        int n = ranks * chunks, to = (int)((u32)row / (u32)S), from;
        if (inverse) {
            int b = to % samples, place = to / samples, of_rank = place / chunks;
            from = b * n + (place % chunks ? 2 * ranks - 1 - of_rank : of_rank);
        } else {
            int b = to / n, k = to % n, second = k >= ranks, of_rank = second ? 2 * ranks - 1 - k : k;
            from = (of_rank * chunks + second) * samples + b;
        }
        put(y, row * columns + c, get(x, ((i64)from * S + (u32)row % (u32)S) * columns + c));
    }
}

/* Attention over two sets of keys from that over each: first the results, then their logarithms, which may lie where those
 * of a set lie. o may lie where oa lies. No key of a set was seen: its logarithm is -infinity. */
KERNEL(merge_attention)
(Y *o, const Y *oa, const f32 *RESTRICT la, const Y *RESTRICT ob, const f32 *RESTRICT lb, i64 rows, int seq, int heads,
 int width)
{
    int columns = heads * width;
    EACH_OF_ROWS (row, c, rows, columns) {
        i64   i = row * columns + c, at = ((i64)((u32)row / (u32)seq) * heads + c / width) * seq + (u32)row % (u32)seq;
        float largest = larger(la[at], lb[at]);
        bool  none = largest == MINUS_INFINITY;
        float a = none ? 0.0f : exponential(la[at] - largest), b = none ? 0.0f : exponential(lb[at] - largest);
        put(o, i, none ? 0.0f : (a * get(oa, i) + b * get(ob, i)) / (a + b));
    }
}

KERNEL(merge_logarithms)(f32 *lse, const f32 *la, const f32 *lb, i64 n)
{
    EACH (i, n) {
        float a = la[i], b = lb[i], largest = larger(a, b);
        lse[i] = largest == MINUS_INFINITY
                     ? largest
                     : largest + logarithm(exponential(a - largest) + exponential(b - largest));
    }
}
