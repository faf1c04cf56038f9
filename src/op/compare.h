/* SPDX-License-Identifier: Apache-2.0 */
/* op/compare.h - what the op `compare` finds about a tensor beside the one that it should be: a row of numbers. */
#ifndef TM_OP_COMPARE_H
#define TM_OP_COMPARE_H

#include <stdint.h>

/* A bin of a histogram: numbers of size [2^e, 2^(e + 1)), e from TM_EXPONENT_FIRST on; the first has all smaller ones,
 * too, the last all larger ones. Zeros are counted apart. */
enum { TM_EXPONENT_BINS = 64, TM_EXPONENT_FIRST = -48 };

/* Columns of a row: sums over the elements where both numbers are finite, counts over all. */
enum {
    TM_COMPARED_ERROR,     /* (a - b)^2 */
    TM_COMPARED_OWN,       /* a^2 */
    TM_COMPARED_REFERENCE, /* b^2 */
    TM_COMPARED_DOT,       /* a b */
    TM_COMPARED_OWN_MOST,  /* largest |a| */
    TM_COMPARED_MOST,      /* largest |b| */
    TM_COMPARED_UNDERFLOW, /* a is 0, b is not */
    TM_COMPARED_OVERFLOW,  /* a is infinite or no number, b is finite */
    TM_COMPARED_BROKEN,    /* b is infinite or no number */
    TM_COMPARED_OWN_ZEROS,
    TM_COMPARED_ZEROS,
    TM_COMPARED_OWN_BINS,
    TM_COMPARED_BINS = TM_COMPARED_OWN_BINS + TM_EXPONENT_BINS,
    TM_COMPARED = TM_COMPARED_BINS + TM_EXPONENT_BINS
};

typedef struct {
    int64_t row, rows; /* which row of the record it writes, of how many */
} tm_compare_attr;

#endif
