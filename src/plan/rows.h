/* SPDX-License-Identifier: Apache-2.0 */
/* plan/rows.h - published figures of trainings, from a CSV file, and what is predicted for them.
 *
 * Columns, in any order: id, source, date, model, hardware, gpus, precision, dp, tp, pp, vp, cp, ep, micro_batch,
 * global_batch, seq, recompute, metric, unit, convention, value, notes. An empty cell is not published.
 */
#ifndef TM_PLAN_ROWS_H
#define TM_PLAN_ROWS_H

#include "plan/theirs.h"

/* Of a row: tokens a second of a device; bytes of the fullest device; sequences of the largest micro-batch. */
typedef enum { TM_ROW_SPEED, TM_ROW_MEMORY, TM_ROW_BATCH } tm_row_kind;
/* Of a row of memory: all of it; weights, gradients and the optimizer's state; what is kept for the backward pass. */
typedef enum { TM_ROW_ALL, TM_ROW_STATE, TM_ROW_KEPT } tm_row_part;

typedef struct {
    const char  *id, *source, *date, *model, *hardware, *precision, *notes;
    int          line;
    tm_row_kind  kind;
    tm_row_part  part;
    tm_hardware  device;
    tm_their_job job; /* job.device is set by tm_rows_read's caller's rows: &device */
    double       published;
    bool         interleaved; /* the stages of a rank are published */
    bool         sized;       /* the micro-batch is published */
    bool         largest;     /* TM_ROW_BATCH: one sequence more did not fit */
    const char  *refused;     /* why it is not predicted; NULL: it is */
} tm_published_row;

typedef struct {
    tm_published_row *row; /* (n), in the arena */
    size_t            n;
} tm_published_rows;

/* Reads a file. TM_FORMAT: with the line: a column that is missing or unknown, a cell that is no number. A row that
 * cannot be expressed (a model, hardware or unit that is not known) is there with the reason. */
TM_MUST_USE tm_status tm_rows_read(tm_arena *arena, const char *path, tm_published_rows *out, tm_error *err);

/* The shape of a model by the name that pages give it: a preset whatever the signs between its letters
 * ("Llama-3.1-8B"), or one of the sizes that papers used (GPT-175B, MPT-7b). False: not known. */
bool tm_published_model(const char *name, tm_model_shape *out, int64_t *seq);

/* In the unit of row->published. */
double tm_row_predict(const tm_published_row *row, const tm_parameters *p);

/* What a row says of what fits: a training that ran did; of a largest micro-batch one sequence more did not. One that
 * was recommended did. right[i]: the prediction says the same. Returns how many it says, at most 2; none where the
 * layout, the micro-batch or what is computed again is not published. */
int tm_row_verdicts(const tm_published_row *row, const tm_parameters *p, bool right[2]);

#endif
