/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes files of published figures: any bytes give a table or a message. */
#include "fuzz.h"

#include "apps/bench/published.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tm_published *reference;
    tm_error      err = { 0 };
    tm_status     st = tm_published_read(fuzz_file("x.csv", data, size), &reference, &err);
    fuzz_told(st, &err, "");
    if (st != TM_OK) return 0;
    tm_table *table = tm_published_list(reference, NULL);
    TM_ASSERT(tm_table_n_rows(table) > 0);
    tm_table_destroy(tm_published_compare(reference, table));
    tm_table_destroy(table);
    tm_published_destroy(reference);
    return 0;
}
