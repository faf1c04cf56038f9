/* SPDX-License-Identifier: Apache-2.0 */
/* Cross entropy of rows of logits. Z: their format. */

/* The loss of each row, 0 where its target is ignored; where scalars are given, the gradient in the place of the
 * logits. A block of a power of two threads for each row. */
KERNEL(cross_entropy)
(Z *z, f32 *RESTRICT losses, const int *RESTRICT targets, const f64 *RESTRICT scalars, i64 columns, int ignored)
{
    SHARED float room[1024];
    int          thread = thread_id(), target = targets[block_id(0)];
    i64          row = (i64)block_id(0) * columns;
    float        largest = MINUS_INFINITY, sum = 0.0f;
    if (target == ignored) {
        if (thread == 0) losses[block_id(0)] = 0.0f;
        for (i64 i = thread; scalars && i < columns; i += block_threads()) put(z, row + i, 0.0f);
        return;
    }
    for (i64 i = thread; i < columns; i += block_threads()) largest = larger(largest, get(z, row + i));
    largest = block_largest(largest, room);
    for (i64 i = thread; i < columns; i += block_threads()) sum += exponential(get(z, row + i) - largest);
    barrier(); /* the largest was read from the room */
    sum = block_sum(sum, room);
    if (thread == 0) losses[block_id(0)] = logarithm(sum) + largest - get(z, row + target);
    if (!scalars) return;
    barrier(); /* thread 0 has read the target's logit */
    float scale = (float)scalars[0];
    for (i64 i = thread; i < columns; i += block_threads()) {
        float p = exponential(get(z, row + i) - largest) / sum;
        put(z, row + i, scale * (i == target ? p - 1.0f : p));
    }
}

/* The sum of all rows' losses, in double: one block of 256. adds: to what is there. */
KERNEL_OF(256, loss_sum)(f64 *loss, const f32 *RESTRICT losses, i64 n, int adds)
{
    SHARED double room[256];
    double        sum = 0.0;
    for (i64 i = thread_id(); i < n; i += 256) sum += (double)losses[i];
    sum = block_sum(sum, room);
    if (thread_id() == 0) *loss = adds ? *loss + sum : sum;
}

/* Losses apart, as they are kept. */
KERNEL(losses_out)(f64 *out, const f32 *RESTRICT losses, i64 n, int adds)
{
    EACH(i, n) out[i] = adds ? out[i] + (double)losses[i] : (double)losses[i];
}
