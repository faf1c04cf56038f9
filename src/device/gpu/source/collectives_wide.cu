/* SPDX-License-Identifier: Apache-2.0 */
/* The same in float64 (collectives.cu): sums of squares. */

KERNEL(add_wide)(f64 *y, const f64 *x, i64 n)
{
    EACH (i, n) y[i] += x[i];
}
