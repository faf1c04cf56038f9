/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/rows.c - put_rows: copies. */
#include "base/status.h"
#include "device/cpu/simd/elementwise.h"
#include "device/cpu/simd/kernels.h"

static void put_rows_run(const tm_call *call)
{
    const tm_view *table = &call->in[0], *x = &call->in[1];
    const int32_t *row = call->in[2].data;
    size_t         size = tm_dtype_bytes(table->dtype), bytes = (size_t)tm_view_columns(table) * size;
    char          *y = call->out[0].data;
    if (y != table->data) memcpy(y, table->data, (size_t)tm_view_elements(table) * size);
    for (int64_t n = 0; n < tm_view_rows(x); n++) {
        TM_ASSERT(row[n] >= 0 && row[n] < tm_view_rows(table));
        memcpy(y + (size_t)row[n] * bytes, (const char *)x->data + (size_t)(n * tm_view_ld(x)) * size, bytes);
    }
}
static TM_PLANNED const char *put_rows_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->in[1]);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->out[0]);
    return why || call->in[2].dtype == TM_I32 ? why : "needs int32 rows";
}

const tm_kernel TM_K(tm_cpu_rows)[] = {
    TM_KERNEL(put_rows, "put_rows/", put_rows_refuse, NULL, put_rows_run),
    { .name = NULL },
};
