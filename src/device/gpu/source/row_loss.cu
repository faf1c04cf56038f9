/* SPDX-License-Identifier: Apache-2.0 */
/* Cross entropy of each row of logits by itself: a block for a row. Z: format of the logits, L: of the losses, C: of
 * the cotangents. Rows without a target have loss and gradient 0. */
#include "softmax.cu"

DEVICE float get(const f64 *x, i64 i)
{
    return (float)x[i];
}

KERNEL(row_loss)
(L *RESTRICT losses, const Z *RESTRICT z, const int *RESTRICT targets, i64 columns, int ignored, int wide)
{
    SHARED float room[BLOCK], sums[BLOCK / WAVE];
    int          row = block_id(0), target = targets[row];
    if (target == ignored) {
        if (thread_id() == 0) put(losses, row, 0.0f);
        return;
    }
    softmax s = softmax_of(z, row * columns, columns, wide, room, sums);
    if (thread_id() == 0) put(losses, row, logarithm(s.sum) + s.largest - get(z, row * columns + target));
}

/* dz = cotangent (softmax(z) - onehot(target)); dz may be z. The cotangent of row r is number r each: 1, or 0 for one
 * of all. */
KERNEL(row_loss_grad)
(Z *dz, const Z *z, const int *RESTRICT targets, const C *RESTRICT cotangents, int each, i64 columns, int ignored, int wide)
{
    SHARED float room[BLOCK], sums[BLOCK / WAVE];
    int          row = block_id(0), target = targets[row];
    if (target == ignored) {
        put_zeros(dz, row * columns, columns, wide);
        return;
    }
    softmax s = softmax_of(z, row * columns, columns, wide, room, sums);
    put_gradient(dz, z, row * columns, columns, wide, s, get(cotangents, row * each), target);
}
