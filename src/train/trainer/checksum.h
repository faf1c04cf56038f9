/* SPDX-License-Identifier: Apache-2.0 */
/* train/trainer/checksum.h - is what a kernel left the product of its factors? Sums of its rows in float64, beside what
 * the factors say of them (Huang and Abraham 1984): of C = A B the sum of row r over some columns is
 * sum_k A[r, k] (sum of these columns of B[k]). Columns are taken 64 at a time.
 *
 * The two may differ by the rounding of the kernel: of each element, in any order of its sum of K products,
 * (K + 3) 2^-24 sum |a| |b|, and half a unit of the format that it is stored in. A sum that is farther off is wrong. */
#ifndef TM_TRAIN_TRAINER_CHECKSUM_H
#define TM_TRAIN_TRAINER_CHECKSUM_H

#include "device/device.h"

enum { TM_CHECKSUM_COLUMNS = 64 };

/* The first sum of a product that is off. */
typedef struct {
    int64_t row, column;          /* of C; the first of the columns that were added up */
    double  found, wanted, bound; /* |found - wanted| <= bound does not hold */
} tm_checksum_wrong;

/* Room for one product at a time. */
typedef struct tm_checksum tm_checksum;
/* Linear layers and their gradients, in float32 and bfloat16. */
bool         tm_checksum_can(const tm_call *call);
tm_checksum *tm_checksum_create(tm_device *device);
void         tm_checksum_destroy(tm_checksum *checksum); /* NULL is fine */
/* Right before it: its factors may be gone afterwards. */
TM_MUST_USE tm_status tm_checksum_before(tm_checksum *checksum, const tm_call *call, tm_error *err);
/* Right behind it. *wrong: is a sum off? */
TM_MUST_USE tm_status tm_checksum_after(tm_checksum *checksum, const tm_call *call, bool *wrong, tm_checksum_wrong *how,
                                        tm_error *err);

#endif
