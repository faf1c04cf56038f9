/* SPDX-License-Identifier: Apache-2.0 */
/* data/first_fit.h - samples of different lengths in rows of one; private to this room. */
#ifndef TM_DATA_FIRST_FIT_H
#define TM_DATA_FIRST_FIT_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    int64_t  rows, width;
    int64_t *first;   /* (rows + 1) where in `samples` each row begins */
    int64_t *samples; /* (n) the samples of row 0, of row 1, ... */
} tm_first_fit;

/* First-fit, longest first: samples in the order of their lengths (equal ones in their own) go each into the first row
 * that has room, so the result follows from the lengths alone. lengths (n), 1 to width each. n log n.
 * (Johnson 1973, "Near-optimal bin packing algorithms": at most 11/9 of the least number of rows, and one.) */
tm_first_fit tm_first_fit_make(const int32_t *lengths, int64_t n, int64_t width);
/* A row for each sample, in their order. */
tm_first_fit tm_first_fit_apart(int64_t n, int64_t width);
void         tm_first_fit_free(tm_first_fit *packing); /* a zeroed one is fine */

#endif
