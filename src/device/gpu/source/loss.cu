/* SPDX-License-Identifier: Apache-2.0 */
/* Cross entropy of rows of logits. Z: their format. */
#include "softmax.cu"

/* The loss of each row, 0 where its target is ignored; where scalars are given, the gradient in the place of the
 * logits. A block for each row. */
KERNEL(cross_entropy)
(Z *z, f32 *RESTRICT losses, const int *RESTRICT targets, const f64 *RESTRICT scalars, i64 columns, int ignored, int wide)
{
    SHARED float room[BLOCK], sums[BLOCK / WAVE];
    int          thread = thread_id(), target = targets[block_id(0)];
    i64          row = (i64)block_id(0) * columns;
    if (target == ignored) {
        if (thread == 0) losses[block_id(0)] = 0.0f;
        if (scalars) put_zeros(z, row, columns, wide);
        return;
    }
    float   aim = get(z, row + target); /* behind the barriers others write it */
    softmax s = softmax_of(z, row, columns, wide, room, sums);
    if (thread == 0) losses[block_id(0)] = logarithm(s.sum) + s.largest - aim;
    if (scalars) put_gradient(z, z, row, columns, wide, s, (float)scalars[0], target);
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
