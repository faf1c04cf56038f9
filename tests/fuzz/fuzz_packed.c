/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of packed sequences: whatever it accepts has as many rows as the header says, all of one width, ids
 * within the file and masks of 0 and 1. */
#include "base/status.h"
#include "data/packed.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tm_packed packed;
    tm_error  err = { 0 };
    tm_status st = tm_packed_parse("x.npy", data, size, &packed, &err);
    TM_ASSERT((st == TM_OK) == (err.status == TM_OK));
    TM_ASSERT(st == TM_OK || (st == TM_FORMAT && strstr(err.text, "x.npy")));
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

#ifdef TM_FUZZ_STANDALONE
static const char *const packed_words[] = {
    "cnumpy.core.multiarray\n_reconstruct\n",
    "cnumpy\nndarray\n",
    "cnumpy\ndtype\n",
    "cos\nsystem\n",
    "q\x05",
    "h\x07",
    "r\x01\x01",
    "K\x01",
    "(",
    "t",
    "R",
    "b",
    "e",
    "u",
    "]",
    "}",
    ".",
    "\x85",
    "\x87",
    "\x88",
    "\x89",
    "N",
    "(2,)",
    "X\x02\x01\x01\x01i4",
    "C\x01"
    "b",
    "input_ids",
    "loss_mask",
    "M\x01\x01",
    "J\xff\xff\xff\xff",
    "a",
    "\x80\x03",
};
#define FUZZ_WORDS packed_words
#include "standalone.h"
#endif
