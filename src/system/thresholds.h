/* SPDX-License-Identifier: Apache-2.0 */
/* system/thresholds.h - files of limits for measured figures.
 *
 *     { "MBS=4,GBS=32,PRECISION=bf16": { "training.tokens_per_sec_per_gpu": {"kind": "min", "value": 8400} } }
 *
 * A cell is one experiment; its key is MBS,GBS,PRECISION or NNODES,STEPS,PRECISION,BATCH,GBS,SEQLEN in this order and
 * spelling. kind min and max are gates, info is recorded only. Whatever is not known - a key, a metric, a kind, a cell
 * that was asked for, a gate whose figure was not measured - is an error, never a pass.
 */
#ifndef TM_SYSTEM_THRESHOLDS_H
#define TM_SYSTEM_THRESHOLDS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum { TM_GATE_MIN, TM_GATE_MAX, TM_GATE_INFO, TM_GATE_KINDS } tm_gate_kind;
const char *tm_gate_kind_name(tm_gate_kind kind); /* "min", ... */

typedef struct {
    const char *name; /* "training.step_time_p50_ms" */
    double      value;
} tm_metric;

typedef struct {
    const char  *metric;
    tm_gate_kind kind;
    double       limit, measured;
    bool         passed; /* true for info; NaN never passes */
} tm_gate;

typedef struct tm_thresholds tm_thresholds;

/* TM_INVALID or TM_FORMAT, with the cell and metric that is wrong. The caller destroys. */
TM_MUST_USE tm_status tm_thresholds_read(const char *path, tm_thresholds **out, tm_error *err);
/* The same from `bytes` of text; `name` stands for the file in messages. */
TM_MUST_USE tm_status tm_thresholds_parse(const char *text, size_t bytes, const char *name, tm_thresholds **out,
                                          tm_error *err);
void                  tm_thresholds_destroy(tm_thresholds *thresholds); /* NULL is fine */

/* TM_INVALID if the cell is not there. */
TM_MUST_USE tm_status tm_thresholds_has(const tm_thresholds *thresholds, const char *cell, tm_error *err);

/* Holds the n metrics against the limits of `cell`: *gates (valid until the thresholds are destroyed), in the order of
 * the file. TM_INVALID if the cell is not there or a figure that it gates is not among the metrics; whether the gates
 * are passed is in the results. */
TM_MUST_USE tm_status tm_thresholds_judge(tm_thresholds *thresholds, const char *cell, const tm_metric *metrics,
                                          size_t n, const tm_gate **gates, size_t *n_gates, tm_error *err);

/* Writes a file of one cell, whole or not at all: x 0.90 where more is better, x 1.10 where less is, the figure itself
 * where neither is. A cell whose key is none is TM_INVALID; a metric without a name of the table is a bug; NaN is left
 * out. */
TM_MUST_USE tm_status tm_thresholds_write(const char *path, const char *cell, const tm_metric *metrics, size_t n,
                                          tm_error *err);

/* Every metric that is known, and the kind that it is written with. NULL at the end of the list. */
const char  *tm_metric_name(size_t index);
tm_gate_kind tm_metric_kind(size_t index);

#endif
