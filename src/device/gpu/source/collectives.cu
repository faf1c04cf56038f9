/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks of a group have computed together is added to what is there. X, Y: formats of the sum and of the
 * result. */

KERNEL(add_to)(Y *y, const X *x, i64 n)
{
    EACH (i, n) put(y, i, get(y, i) + get(x, i));
}
