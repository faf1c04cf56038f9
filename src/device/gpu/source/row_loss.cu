/* SPDX-License-Identifier: Apache-2.0 */
/* Cross entropy of each row of logits by itself: a block for a row. Z: format of the logits, L: of the losses, C: of
 * the cotangents. Rows without a target have loss and gradient 0. */

DEVICE float get(const f64 *x, i64 i)
{
    return (float)x[i];
}

/* ln of the sum of exponentials is largest + ln sum. */
struct softmax {
    float largest, sum;
};
DEVICE softmax softmax_of(const Z *z, i64 columns, float *room, float *sums)
{
    float largest = MINUS_INFINITY, sum = 0.0f;
    for (i64 i = thread_id(); i < columns; i += BLOCK) largest = larger(largest, get(z, i));
    largest = block_largest(largest, room);
    for (i64 i = thread_id(); i < columns; i += BLOCK) sum += exponential(get(z, i) - largest);
    return softmax{ largest, block_sum(sum, sums) };
}

KERNEL(row_loss)(L *RESTRICT losses, const Z *RESTRICT z, const int *RESTRICT targets, i64 columns, int ignored)
{
    SHARED float room[BLOCK], sums[BLOCK / WAVE];
    int          row = block_id(0), target = targets[row];
    if (target == ignored) {
        if (thread_id() == 0) put(losses, row, 0.0f);
        return;
    }
    softmax s = softmax_of(z + row * columns, columns, room, sums);
    if (thread_id() == 0) put(losses, row, logarithm(s.sum) + s.largest - get(z, row * columns + target));
}

/* dz = cotangent (softmax(z) - onehot(target)); dz may be z. The cotangent of row r is number r each: 1, or 0 for one
 * of all. */
KERNEL(row_loss_grad)
(Z *dz, const Z *z, const int *RESTRICT targets, const C *RESTRICT cotangents, int each, i64 columns, int ignored)
{
    SHARED float room[BLOCK], sums[BLOCK / WAVE];
    int          row = block_id(0), target = targets[row];
    const Z     *from = z + row * columns;
    Z           *to = dz + row * columns;
    if (target == ignored) {
        for (i64 i = thread_id(); i < columns; i += BLOCK) put(to, i, 0.0f);
        return;
    }
    float   scale = get(cotangents, row * each);
    softmax s = softmax_of(from, columns, room, sums);
    for (i64 i = thread_id(); i < columns; i += BLOCK) {
        float p = exponential(get(from, i) - s.largest) / s.sum;
        put(to, i, scale * (i == target ? p - 1.0f : p));
    }
}
