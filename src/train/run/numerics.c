/* SPDX-License-Identifier: Apache-2.0 */
/* train/run/numerics.c - what a run tells of its numbers beside the loss: the microscope, the factors of products in
 * low precision. Neither is part of a step: the time that it takes is left out of the step's. */
#include "train/run/run_state.h"

#include "base/arena.h"
#include "base/clock.h"
#include "graph/value.h"
#include "train/parallel/agree.h"

#include <stdlib.h>
#include <string.h>

tm_status run_look(run *r, int64_t step, const tm_batch *batch, tm_error *err)
{
    int64_t every = r->options->microscope, begin = tm_now_ns();
    if (every == 0 || step % every != 0) return TM_OK;
    tm_micro_batch first = run_micro_batch(batch);
    first.target_tokens = 0;
    for (int64_t row = 0; row < r->options->step.micro_batch; row++) first.target_tokens += batch->weight[row];
    TM_TRY(tm_looked_take(&r->microscope.look, r->trainer, &first, step, r->options->microscope_bound, err));
    tm_event event = { .kind = TM_EVENT_LOOK, .look = r->microscope.look.look };
    tm_event_emit(r->bus, &event);
    r->timing.begin_ns += tm_now_ns() - begin;
    return TM_OK;
}

/* Rows of all ranks: the largest magnitudes and shares, the smallest scales. None is negative, so their bits are in the
 * order of the numbers, NaN last. Of rows that are not `here` the others' values count. */
static tm_status join_records(const run *r, double *values, const bool *here, size_t n, tm_error *err)
{
    if (!run_world(r)) return TM_OK;
    int64_t *bits = tm_alloc(n * sizeof *bits);
    memcpy(bits, values, n * sizeof *bits);
    for (size_t i = 1; i < n; i += TM_QUANTIZE_RECORD) bits[i] = -bits[i];
    for (size_t i = 0; i < n; i++)
        if (!here[i / TM_QUANTIZE_RECORD]) bits[i] = INT64_MIN;
    tm_status st = agree_max(run_world(r), "what low precision does", bits, n, err);
    for (size_t i = 1; i < n; i += TM_QUANTIZE_RECORD) bits[i] = -bits[i];
    memcpy(values, bits, n * sizeof *bits);
    free(bits);
    return st;
}

/* The record of the whole model, of which this rank may have some rows. */
static tm_status read_records(const run *r, double *values, size_t rows, tm_error *err)
{
    const tm_step      *of = tm_trainer_step_of(r->trainer);
    const tm_quantized *q = &of->quantized;
    const tm_dtype      dtype = q->record == TM_NONE ? TM_F32 : tm_graph_at(of->graph, q->record)->dtype;
    const size_t        bytes = q->n_rows * TM_QUANTIZE_RECORD * tm_dtype_bytes(dtype);
    void               *stored = tm_alloc(bytes);
    bool               *here = tm_alloc(rows);
    tm_status           st = bytes > 0 ? tm_trainer_read(r->trainer, q->record, 0, stored, bytes, err) : TM_OK;
    for (size_t i = 0; i < q->n_rows && st == TM_OK; i++) {
        size_t place = q->all ? q->places[i] : i;
        here[place] = !q->rows[i].elsewhere;
        for (size_t k = 0; k < TM_QUANTIZE_RECORD; k++)
            values[place * TM_QUANTIZE_RECORD + k] = tm_value_get(stored, dtype, (int64_t)(i * TM_QUANTIZE_RECORD + k));
    }
    if (st == TM_OK) st = join_records(r, values, here, rows * TM_QUANTIZE_RECORD, err);
    free(here);
    free(stored);
    return st;
}

tm_status run_tell_factors(run *r, int64_t step, tm_error *err)
{
    int64_t                 every = r->options->quantize_freq, begin = tm_now_ns();
    size_t                  n;
    const tm_quantized_row *rows = tm_quantized_all(&tm_trainer_step_of(r->trainer)->quantized, &n);
    if (n == 0 || every == 0 || step % every != 0) return TM_OK;
    if (!r->microscope.factors) r->microscope.factors = tm_alloc(n * sizeof *r->microscope.factors);
    if (!r->microscope.factor_record)
        r->microscope.factor_record = tm_alloc(n * TM_QUANTIZE_RECORD * sizeof *r->microscope.factor_record);
    TM_TRY(read_records(r, r->microscope.factor_record, n, err));
    for (size_t i = 0; i < n; i++) {
        const double *row = r->microscope.factor_record + i * TM_QUANTIZE_RECORD;
        r->microscope.factors[i] = (tm_quantized_factor){ .linear = rows[i].name,
                                                          .factor = tm_factor_name(rows[i].factor),
                                                          .amax = row[0],
                                                          .scale = row[1],
                                                          .saturated = row[2],
                                                          .flushed = row[3] };
    }
    tm_event event = { .kind = TM_EVENT_QUANTIZED };
    event.quantized = (tm_quantized_step){ .step = step, .factors = r->microscope.factors, .n_factors = n };
    tm_event_emit(r->bus, &event);
    r->timing.begin_ns += tm_now_ns() - begin;
    return TM_OK;
}
