/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of parquet files: errors name the file, texts lie in memory that may be read. */
#include "fuzz.h"

#include "data/parquet.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tm_parquet *p;
    tm_error    err = { 0 };
    const char *text;
    size_t      n;
    bool        more = true;
    unsigned    sum = 0;
    tm_status   st = tm_parquet_parse("x.parquet", data, (int64_t)size, "text", &p, &err);
    if (st == TM_OK) {
        for (int i = 0; st == TM_OK && more && i < 100000; i++) {
            st = tm_parquet_next(p, &text, &n, &more, &err);
            for (size_t k = 0; st == TM_OK && more && k < n; k++) sum += (uint8_t)text[k];
        }
        tm_parquet_close(p);
    }
    fuzz_told(st, &err, "x.parquet");
    TM_ASSERT(sum < UINT32_MAX);
    return 0;
}
