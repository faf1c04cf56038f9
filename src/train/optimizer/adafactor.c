/* SPDX-License-Identifier: Apache-2.0 */
/* train/optimizer/adafactor.c - Adafactor: the second moment of a matrix is the product of a column and a row; the
 * formula is op/adafactor.c's. */
#include "train/optimizer/optimizer.h"

#include <float.h>
#include <math.h>

static int states(const tm_hyper *hyper, tm_shape parameter, tm_optimizer_state out[TM_MAX_STATES])
{
    (void)hyper;
    tm_shape row = parameter, column = parameter;
    int      last = parameter.rank - 1;
    if (parameter.rank < 2) {
        out[0] = (tm_optimizer_state){ .name = "variance", .shape = parameter, .format = TM_STATE_WIDE };
        return 1;
    }
    row.rank--;
    column.n[last - 1] = parameter.n[last];
    column.rank--;
    out[0] = (tm_optimizer_state){ .name = "row_var", .shape = row, .format = TM_STATE_WIDE };
    out[1] = (tm_optimizer_state){ .name = "col_var", .shape = column, .format = TM_STATE_WIDE };
    return 2;
}

/* From 1 to the next number: what eps1 is unless it is given (torch.finfo(dtype).eps). */
static double distance_from_one(tm_dtype dtype)
{
    return dtype == TM_BF16 ? 0x1p-7 : dtype == TM_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
}

static void emit(tm_graph *graph, const tm_hyper *h, const tm_update *u)
{
    double            eps1 = isnan(h->eps1) ? distance_from_one(tm_graph_at(graph, u->parameter)->dtype) : h->eps1;
    tm_adafactor_attr attr = { .eps1 = eps1,
                               .eps2 = h->eps2,
                               .clip_threshold = h->clip_threshold,
                               .weight_decay = h->weight_decay,
                               .rounding = u->rounding };
    tm_tensor_id      in[TM_MAX_IN] = { u->parameter, u->gradient, u->states[0], u->states[1], u->scalars, u->clip };
    tm_tensor_id      out[TM_MAX_OUT] = { u->parameter, u->states[0], u->states[1] };
    tm_graph_add(graph, TM_OP_adafactor, &attr, sizeof attr, in, out, 0);
}

static void scalars(const tm_hyper *hyper, int64_t t, double rate, double row[TM_SCALAR_COUNT])
{
    row[TM_SCALAR_SHARE] = pow((double)t, hyper->beta2_decay);
    row[TM_SCALAR_RELATIVE_STEP] = fmin(rate, 1 / sqrt((double)t));
}

const tm_optimizer tm_optimizer_adafactor = {
    .name = "Adafactor",
    .log_name = "adafactor",
    .keys = "beta2_decay,eps1,eps2,clip_threshold,bf16_stochastic_round",
    .formula = TM_FORMULA_ADAFACTOR,
    .weight_decay = "0",
    .states = states,
    .emit = emit,
    .scalars = scalars,
};
