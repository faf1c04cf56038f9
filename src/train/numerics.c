/* SPDX-License-Identifier: Apache-2.0 */
/* train/numerics.c - what a run tells of its numbers beside the loss: the microscope, the factors of products in low
 * precision. Neither is part of a step: the time that it takes is left out of the step's. */
#include "train/run_state.h"

#include "base/clock.h"
#include "graph/value.h"

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

tm_status run_tell_factors(run *r, int64_t step, tm_error *err)
{
    const tm_step      *of = tm_trainer_step_of(r->trainer);
    const tm_quantized *q = &of->quantized;
    int64_t             every = r->options->quantize_freq, begin = tm_now_ns();
    if (q->record == TM_NONE || every == 0 || step % every != 0) return TM_OK;
    tm_dtype dtype = tm_graph_at(of->graph, q->record)->dtype;
    size_t   bytes = q->n_rows * TM_QUANTIZE_RECORD * tm_dtype_bytes(dtype);
    if (!r->factors) r->factors = tm_alloc(q->n_rows * sizeof *r->factors);
    if (!r->factor_record) r->factor_record = tm_alloc(bytes);
    TM_TRY(tm_trainer_read(r->trainer, q->record, 0, r->factor_record, bytes, err));
    for (size_t i = 0; i < q->n_rows; i++) {
        double row[TM_QUANTIZE_RECORD];
        for (int k = 0; k < TM_QUANTIZE_RECORD; k++)
            row[k] = tm_value_get(r->factor_record, dtype, (int64_t)i * TM_QUANTIZE_RECORD + k);
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
