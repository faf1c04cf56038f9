/* SPDX-License-Identifier: Apache-2.0 */
/* Cross entropy of rows of logits. Z: their format. */

/* The loss of each row, 0 where its target is ignored; where scalars are given, the gradient in the place of the
 * logits. A block for each row. */
KERNEL(cross_entropy)
(Z *z, f32 *RESTRICT losses, const int *RESTRICT targets, const f64 *RESTRICT scalars, i64 columns, int ignored)
{
    SHARED float room[BLOCK], sums[BLOCK / WAVE], aim;
    int          thread = thread_id(), target = targets[block_id(0)];
    i64          row = (i64)block_id(0) * columns;
    float        largest = MINUS_INFINITY, sum = 0.0f;
    if (target == ignored) {
        if (thread == 0) losses[block_id(0)] = 0.0f;
        for (i64 i = thread; scalars && i < columns; i += BLOCK) put(z, row + i, 0.0f);
        return;
    }
    for (i64 i = thread; i < columns; i += BLOCK) largest = larger(largest, get(z, row + i));
    largest = block_largest(largest, room);
    for (i64 i = thread; i < columns; i += BLOCK) sum += exponential(get(z, row + i) - largest);
    if (thread == 0) aim = get(z, row + target); /* kept: behind the barrier others write it */
    sum = block_sum(sum, sums);
    if (thread == 0) losses[block_id(0)] = logarithm(sum) + largest - aim;
    if (!scalars) return;
    float scale = (float)scalars[0];
    for (i64 i = thread; i < columns; i += BLOCK) {
        float p = exponential(get(z, row + i) - largest) / sum;
        put(z, row + i, scale * (i == target ? p - 1.0f : p));
    }
}

/* The sum of all rows' losses, in double: one block. adds: to what is there. */
KERNEL(loss_sum)(f64 *loss, const f32 *RESTRICT losses, i64 n, int adds)
{
    SHARED double room[BLOCK];
    double        sum = 0.0;
    for (i64 i = thread_id(); i < n; i += BLOCK) sum += (double)losses[i];
    sum = block_sum(sum, room);
    if (thread_id() == 0) *loss = adds ? *loss + sum : sum;
}

/* Losses apart, as they are kept. */
KERNEL(losses_out)(f64 *out, const f32 *RESTRICT losses, i64 n, int adds)
{
    ROLLED EACH(i, n) out[i] = adds ? out[i] + (double)losses[i] : (double)losses[i];
}
