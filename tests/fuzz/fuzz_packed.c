/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of packed sequences: whatever it accepts has as many rows as the header says, all of one width, ids
 * within the file and masks of 0 and 1. */
#include "fuzz.h"

#include "data/packed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tm_packed packed;
    tm_error  err = { 0 };
    tm_status st = tm_packed_parse("x.npy", data, size, &packed, &err);
    fuzz_told(st, &err, "x.npy");
    if (st != TM_OK) return 0;
    int64_t sum = 0;
    for (int64_t r = 0; r < packed.rows; r++)
        for (int64_t t = 0; t < packed.width; t++) {
            TM_ASSERT(packed.masks[packed.row[r].mask + (size_t)t] <= 1);
            sum += tm_packed_id(&packed.row[r], t);
        }
    TM_ASSERT(sum >= packed.rows * packed.width * INT32_MIN);
    tm_packed_close(&packed);
    return 0;
}
