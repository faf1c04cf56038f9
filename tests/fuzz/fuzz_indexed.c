/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of indexed data sets. The first two bytes are the length of the index, the rest of the input the
 * tokens. Whatever is accepted can be read to its last token, and its samples can be put in order. */
#include "fuzz.h"

#include "data/indexed.h"
#include "data/order.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tm_indexed    set;
    tm_order_plan plan;
    tm_order      order;
    tm_error      err = { 0 };
    if (size < 2) return 0;
    size_t n = (size_t)data[0] | (size_t)data[1] << 8;
    if (n > size - 2) n = size - 2;
    uint8_t *idx = malloc(n + 1), *bin = malloc(size); /* so that reading beyond the end is seen */
    TM_ASSERT(idx && bin);
    memcpy(idx, data + 2, n);
    uint8_t *exact = realloc(idx, n ? n : 1);
    TM_ASSERT(exact);
    memcpy(bin, data + 2 + n, size - 2 - n);
    tm_status st = tm_indexed_parse("x.idx", exact, (int64_t)n, "x.bin", bin, (int64_t)(size - 2 - n), &set, &err);
    fuzz_told(st, &err, "x.idx");
    if (st == TM_OK) {
        int64_t sum = 0;
        for (int64_t i = 0; i < set.sequences; i++) {
            TM_ASSERT(tm_indexed_first_token(&set, i) == sum);
            sum += tm_indexed_length(&set, i);
        }
        TM_ASSERT(sum == set.tokens);
        for (int64_t i = 0; i <= set.documents; i++) TM_ASSERT(tm_indexed_document(&set, i) <= set.sequences);
        for (int64_t i = 0; i < set.tokens; i++) {
            int32_t id;
            (void)!tm_indexed_token(&set, i, &id);
        }
        if (tm_order_plan_make(set.sequences, set.tokens, 3, 9, &plan, &err) == TM_OK &&
            plan.document_bytes < 1 << 20) {
            TM_ASSERT(tm_order_build(&plan, set.lengths, 1, &order, &err) == TM_OK);
            tm_order_free(&order);
        }
    }
    free(exact);
    free(bin);
    return 0;
}
