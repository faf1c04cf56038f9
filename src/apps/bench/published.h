/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/published.h - published figures (configs/reference/, compiled in) and measured ones beside them.
 *
 * A row of a file is one published value: what was run (workload, row, dtype, batch, seq), on what (device, devices),
 * the value with its unit and FLOP convention, whether it stands for one device or for all, and where it comes from.
 * The workload and row say which measured row it belongs to; `column` is the name of the measured column that counts in
 * the same unit and by the same convention, so that a comparison never mixes two ways of counting.
 */
#ifndef TM_BENCH_PUBLISHED_H
#define TM_BENCH_PUBLISHED_H

#include "base/status.h"
#include "base/table.h"

typedef struct tm_published tm_published;

/* `path` NULL or "reference": the rows that are compiled in; otherwise a CSV file with the same header. The caller
 * destroys it. TM_FORMAT, naming the line, for a file that is not such a table. */
TM_MUST_USE tm_status tm_published_read(const char *path, tm_published **out, tm_error *err);
void                  tm_published_destroy(tm_published *reference); /* NULL is fine */

/* One published value. Texts are those of the file, "" where it has none; they live with the reference. `value` is of
 * all devices where `scope` is "all". */
typedef struct {
    const char *workload, *row, *device, *scope, *dtype, *batch, *seq, *column, *unit, *convention, *source, *date,
        *note;
    double  value;
    int64_t devices;
} tm_figure;
/* The i-th; false behind the last. */
bool tm_published_at(const tm_published *reference, size_t i, tm_figure *out);

/* All rows, or those of one workload ("gemm"; NULL: all), as a table. The caller destroys it. */
tm_table *tm_published_list(const tm_published *reference, const char *workload);

/* Every published value for which `measured` (of the workload that is its name) has a row with the same text in the
 * column "case" and a number in the column that the value names: both, their ratio, the conversion, the source. Values
 * of several devices are divided by their number; `measured` is per device. The caller destroys it. */
tm_table *tm_published_compare(const tm_published *reference, const tm_table *measured);

#endif
