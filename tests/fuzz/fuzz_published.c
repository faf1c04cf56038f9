/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes files of published figures: any bytes give a table or a message. */
#include "base/arena.h"
#include "base/status.h"
#include "bench/published.h"

#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/tm_fuzz_reference_%d.csv", (int)getpid());
    FILE *f = fopen(path, "w");
    TM_ASSERT(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
    tm_published *reference;
    tm_error      err = { 0 };
    tm_status     st = tm_published_read(path, &reference, &err);
    unlink(path);
    TM_ASSERT((st == TM_OK) == (err.status == TM_OK));
    if (st != TM_OK) return 0;
    tm_table *table = tm_published_list(reference, NULL);
    TM_ASSERT(tm_table_n_rows(table) > 0);
    tm_table_destroy(tm_published_compare(reference, table));
    tm_table_destroy(table);
    tm_published_destroy(reference);
    return 0;
}

#ifdef TM_FUZZ_STANDALONE
static const char *const csv_words[] = { ",", "\"", "\n", "\r\n", "device", "all", "1", "1e999", "nan", "-1" };
#define FUZZ_WORDS csv_words
#include "standalone.h"
#endif
