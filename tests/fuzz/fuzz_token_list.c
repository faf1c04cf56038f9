/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of token ids: JSON and numpy arrays. Every id of what is accepted is in the vocabulary. */
#include "fuzz.h"

#include "data/token_list.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int32_t  *ids;
    int64_t   n;
    tm_error  err = { 0 };
    tm_status st = tm_token_list_parse("x.npy", data, size, 1000, &ids, &n, &err);
    fuzz_told(st, &err, "x.npy");
    if (st != TM_OK) return 0;
    for (int64_t i = 0; i < n; i++) TM_ASSERT(ids[i] >= 0 && ids[i] < 1000);
    free(ids);
    return 0;
}
