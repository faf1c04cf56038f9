/* SPDX-License-Identifier: Apache-2.0 */
#include "train/look.h"

#include "base/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Ranks along some axes have tokens, or parts of tensors, of their own: sums and counts are those of all, magnitudes
 * the largest. */
static tm_status join_ranks(const tm_trainer *trainer, unsigned axes, double *record, size_t n, tm_error *err)
{
    static const int most[2] = { TM_COMPARED_OWN_MOST, TM_COMPARED_MOST };
    const tm_layout *layout = &tm_trainer_step_of(trainer)->options.layout;
    size_t           ranks = (size_t)tm_layout_size(layout, axes), own = 0;
    if (ranks == 1) return TM_OK;
    own = (size_t)tm_mesh_group_rank(&layout->mesh, layout->rank, axes);
    double *largest = tm_alloc((ranks * n * 2 + 1) * sizeof *largest);
    memset(largest, 0, ranks * n * 2 * sizeof *largest);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < 2; k++) largest[(own * n + i) * 2 + k] = record[i * TM_COMPARED + (size_t)most[k]];
    tm_status st = tm_trainer_sum(trainer, axes, largest, ranks * n * 2, err);
    if (st == TM_OK) st = tm_trainer_sum(trainer, axes, record, n * TM_COMPARED, err);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < 2; k++) {
            double *to = &record[i * TM_COMPARED + (size_t)most[k]];
            *to = 0;
            for (size_t r = 0; r < ranks; r++) *to = fmax(*to, largest[(r * n + i) * 2 + k]);
        }
    free(largest);
    return st;
}

/* A row of the record as figures; `ranks`: that have such a tensor each. */
static tm_look_tensor figures(const tm_graph *graph, const tm_look_row *row, const double *record, int ranks,
                              double bound)
{
    const tm_tensor *own = tm_graph_at(graph, row->own);
    double           error = record[TM_COMPARED_ERROR], a = record[TM_COMPARED_OWN], b = record[TM_COMPARED_REFERENCE];
    int64_t          elements = tm_shape_elements(own->shape) * ranks;
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
    const tm_layout     *layout = &of->options.layout;
    const int            ranks = tm_layout_sum_ranks(layout) * tm_layout_size(layout, 1U << TM_AXIS_TP);
    size_t               n = microscope->n_rows;
    double               losses[2];
    int64_t              begin = tm_now_ns();
    if (!out->record) out->record = tm_alloc((n + 1) * TM_COMPARED * sizeof *out->record);
    if (!out->tensors) out->tensors = tm_alloc((n + 1) * sizeof *out->tensors);
    TM_TRY(tm_trainer_look(trainer, batch, out->record, losses, err));
    TM_TRY(join_ranks(trainer, TM_AXES_LOSS, out->record, n, err));
    TM_TRY(join_ranks(trainer, 1U << TM_AXIS_TP, out->record, n, err));
    if (tm_layout_sum_ranks(layout) > 1) TM_TRY(tm_trainer_sum(trainer, TM_AXES_LOSS, losses, 2, err));
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
        *tensor = figures(of->graph, &microscope->rows[i], out->record + i * TM_COMPARED, ranks, bound);
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
