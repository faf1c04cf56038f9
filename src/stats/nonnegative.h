/* SPDX-License-Identifier: Apache-2.0 */
/* stats/nonnegative.h - least squares whose coefficients are not negative: times that add up. */
#ifndef TM_STATS_NONNEGATIVE_H
#define TM_STATS_NONNEGATIVE_H

#include <stdint.h>

enum { TM_NONNEGATIVE_TERMS = 4 };

/* out[t] >= 0, t < terms, with the least sum of weight[i] * (value[i] - sum over t of row[i * terms + t] * out[t])^2.
 * rows: (n, terms), entries >= 0; weights > 0. The exact solution: every set of terms is tried. A term that is 0 in all
 * rows gets 0. */
void tm_stats_nonnegative(const double *rows, const double *values, const double *weights, int64_t n, int terms,
                          double *out);

#endif
