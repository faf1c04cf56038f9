/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes rows of data for fine-tuning: a file in every format, with and without a map of columns. Rows become tokens,
 * or an error that names the place. */
#include "fuzz.h"

#include "data/rows.h"
#include "data/sft_tokens.h"

static void check_tokens(const tm_ids *ids)
{
    for (size_t i = 0; i < ids->count; i++)
        if (tm_sft_id(ids->data[i]) < 0 || tm_sft_id(ids->data[i]) > 256) abort();
}

static void read_as(const uint8_t *data, size_t size, tm_sft_format format, const char *map)
{
    tm_sft_options     o = { .format = format, .column_map = map };
    tm_sft_form       *form = NULL;
    tm_sft_coder      *coder = NULL;
    tm_rows           *rows = NULL;
    tm_sft_row         row = { 0 };
    tm_ids             ids[2] = { { 0 } };
    tm_error           err = { 0 };
    size_t             n;
    json_t            *given = NULL;
    const char *const *columns;
    if (tm_sft_form_open(format, map, &form, &err) != TM_OK || tm_sft_coder_open(&o, &coder, &err) != TM_OK) abort();
    columns = tm_sft_form_columns(form, &n);
    tm_status st = tm_rows_parse("x", data, size, columns, n, &rows, &err);
    for (int left = 1000; st == TM_OK && left > 0; left--) {
        st = tm_rows_next(rows, &given, &err);
        if (!given) break;
        const char *place = tm_rows_place(rows);
        st = tm_sft_form_read(form, given, place, &row, &err);
        json_decref(given);
        if (st != TM_OK) break;
        if (!row.messages && !row.nothing) st = tm_sft_encode(coder, &row, place, ids, &err);
        for (int k = 0; k < 2; k++) check_tokens(&ids[k]);
    }
    fuzz_told(st, &err, "'x'");
    tm_rows_close(rows);
    tm_sft_row_fini(&row);
    tm_sft_coder_close(coder);
    tm_sft_form_close(form);
    for (int k = 0; k < 2; k++) free(ids[k].data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_as(data, size, TM_SFT_AUTO, NULL);
    read_as(data, size, TM_SFT_COMPLETION, "prompt=a,completion=b");
    read_as(data, size, TM_SFT_MESSAGES, NULL);
    read_as(data, size, TM_SFT_PREFERENCE, NULL);
    return 0;
}
