/* SPDX-License-Identifier: Apache-2.0 */
/* train/numerics.c - what a run tells of its numbers beside the loss: the microscope, the factors of products in low
 * precision. Neither is part of a step: the time that it takes is left out of the step's. */
#include "train/run_state.h"

#include "base/arena.h"
#include "base/clock.h"
#include "graph/value.h"
#include "train/agree.h"

#include <stdlib.h>
#include <string.h>

tm_status run_look(run *r, int64_t step, const tm_micro_batch *batch, tm_error *err)
{
    int64_t every = r->options->microscope, begin = tm_now_ns();
    if (every == 0 || step % every != 0) return TM_OK;
    TM_TRY(tm_looked_take(&r->looked, r->trainer, batch, step, r->options->microscope_bound, err));
    tm_event event = { .kind = TM_EVENT_LOOK, .look = r->looked.look };
    tm_event_emit(r->bus, &event);
    r->begin_ns += tm_now_ns() - begin;
    return TM_OK;
}

/* Rows of all ranks: the largest magnitudes and shares, the smallest scales. None is negative, so their bits are in the
 * order of the numbers, NaN last. */
static tm_status join_records(const run *r, double *values, size_t n, tm_error *err)
{
    if (!run_world(r)) return TM_OK;
    int64_t *bits = tm_alloc((n + 1) * sizeof *bits);
    memcpy(bits, values, n * sizeof *bits);
    for (size_t i = 1; i < n; i += TM_QUANTIZE_RECORD) bits[i] = -bits[i];
    tm_status st = agree_max(run_world(r), "what low precision does", bits, n, err);
    for (size_t i = 1; i < n; i += TM_QUANTIZE_RECORD) bits[i] = -bits[i];
    memcpy(values, bits, n * sizeof *bits);
    free(bits);
    return st;
}

static tm_status read_records(const run *r, double *values, size_t n, tm_error *err)
{
    const tm_step     *of = tm_trainer_step_of(r->trainer);
    const tm_tensor_id id = of->quantized.record;
    const tm_dtype     dtype = tm_graph_at(of->graph, id)->dtype;
    const size_t       bytes = n * tm_dtype_bytes(dtype);
    void              *stored = tm_alloc(bytes + 1);
    tm_status          st = tm_trainer_read(r->trainer, id, 0, stored, bytes, err);
    for (size_t i = 0; i < n && st == TM_OK; i++) values[i] = tm_value_get(stored, dtype, (int64_t)i);
    free(stored);
    return st == TM_OK ? join_records(r, values, n, err) : st;
}

tm_status run_tell_factors(run *r, int64_t step, tm_error *err)
{
    const tm_step      *of = tm_trainer_step_of(r->trainer);
    const tm_quantized *q = &of->quantized;
    int64_t             every = r->options->quantize_freq, begin = tm_now_ns();
    if (q->record == TM_NONE || every == 0 || step % every != 0) return TM_OK;
    const size_t values = q->n_rows * TM_QUANTIZE_RECORD;
    if (!r->factors) r->factors = tm_alloc(q->n_rows * sizeof *r->factors);
    if (!r->factor_record) r->factor_record = tm_alloc(values * sizeof *r->factor_record);
    TM_TRY(read_records(r, r->factor_record, values, err));
    for (size_t i = 0; i < q->n_rows; i++) {
        const double *row = r->factor_record + i * TM_QUANTIZE_RECORD;
        r->factors[i] = (tm_quantized_factor){ .linear = q->rows[i].name,
                                               .factor = tm_factor_name(q->rows[i].factor),
                                               .amax = row[0],
                                               .scale = row[1],
                                               .saturated = row[2],
                                               .flushed = row[3] };
    }
    tm_event event = { .kind = TM_EVENT_QUANTIZED };
    event.quantized = (tm_quantized_step){ .step = step, .factors = r->factors, .n_factors = q->n_rows };
    tm_event_emit(r->bus, &event);
    r->begin_ns += tm_now_ns() - begin;
    return TM_OK;
}
