/* SPDX-License-Identifier: Apache-2.0 */
#include "train/look.h"

#include "base/clock.h"

#include <math.h>
#include <stdlib.h>

/* A row of the record as figures. */
static tm_look_tensor figures(const tm_graph *graph, const tm_look_row *row, const double *record, double bound)
{
    const tm_tensor *own = tm_graph_at(graph, row->own);
    double           error = record[TM_COMPARED_ERROR], a = record[TM_COMPARED_OWN], b = record[TM_COMPARED_REFERENCE];
    int64_t          elements = tm_shape_elements(own->shape);
    tm_look_tensor   out = { .name = row->name,
                             .kind = tm_look_kind_name(row->kind),
                             .format = tm_dtype_name(own->dtype),
                             .elements = elements,
                             .underflow = record[TM_COMPARED_UNDERFLOW] / (double)elements,
                             .overflow = record[TM_COMPARED_OVERFLOW] / (double)elements,
                             .amax = record[TM_COMPARED_OWN_MOST],
                             .reference_amax = record[TM_COMPARED_MOST],
                             .zeros = record[TM_COMPARED_OWN_ZEROS] / (double)elements,
                             .reference_zeros = record[TM_COMPARED_ZEROS] / (double)elements,
                             .exponents = record + TM_COMPARED_OWN_BINS,
                             .reference_exponents = record + TM_COMPARED_BINS };
    out.error = b > 0 ? sqrt(error / b) : error > 0 ? (double)INFINITY : 0;
    out.cosine = a > 0 && b > 0 ? record[TM_COMPARED_DOT] / sqrt(a) / sqrt(b) : a == b ? 1 : 0;
    out.diverges = record[TM_COMPARED_OVERFLOW] > 0 || !(out.error <= bound);
    return out;
}

tm_status tm_looked_take(tm_looked *out, tm_trainer *trainer, const tm_micro_batch *batch, int64_t step, double bound,
                         tm_error *err)
{
    const tm_step       *of = tm_trainer_step_of(trainer);
    const tm_microscope *microscope = &of->microscope;
    size_t               n = microscope->n_rows;
    double               losses[2];
    int64_t              begin = tm_now_ns();
    if (!out->record) out->record = tm_alloc((n + 1) * TM_COMPARED * sizeof *out->record);
    if (!out->tensors) out->tensors = tm_alloc((n + 1) * sizeof *out->tensors);
    TM_TRY(tm_trainer_look(trainer, batch, out->record, losses, err));
    out->look = (tm_look){ .step = step,
                           .format = of->options.precision->name,
                           .reference = of->options.compared->name,
                           .loss = losses[0],
                           .reference_loss = losses[1],
                           .bound = bound,
                           .tensors = out->tensors,
                           .n_tensors = n,
                           .first_exponent = TM_EXPONENT_FIRST,
                           .n_exponents = TM_EXPONENT_BINS };
    for (size_t i = 0; i < n; i++) {
        tm_look_tensor *tensor = &out->tensors[i];
        *tensor = figures(of->graph, &microscope->rows[i], out->record + i * TM_COMPARED, bound);
        if (tensor->diverges && !out->look.first) out->look.first = tensor;
        if (!out->look.worst || !(tensor->error <= out->look.worst->error)) out->look.worst = tensor;
    }
    out->look.seconds = (double)(tm_now_ns() - begin) * 1e-9;
    return TM_OK;
}

void tm_looked_fini(tm_looked *looked)
{
    free(looked->record);
    free(looked->tensors);
    *looked = (tm_looked){ 0 };
}
