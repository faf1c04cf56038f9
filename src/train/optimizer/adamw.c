/* SPDX-License-Identifier: Apache-2.0 */
/* train/optimizer/adamw.c - Adam with decoupled weight decay; the formula is op/adamw.c's. */
#include "train/optimizer/optimizer.h"

#include <math.h>

static int states(const tm_hyper *hyper, tm_shape parameter, tm_optimizer_state out[TM_MAX_STATES])
{
    tm_state_format moments = hyper->bf16_moments ? TM_STATE_BF16 : TM_STATE_MOMENT;
    out[0] = (tm_optimizer_state){ .name = "exp_avg", .shape = parameter, .format = moments };
    out[1] = (tm_optimizer_state){ .name = "exp_avg_sq", .shape = parameter, .format = moments };
    out[2] = (tm_optimizer_state){ .name = "kahan_comp", .shape = parameter, .format = TM_STATE_PARAMETER };
    return hyper->kahan ? 3 : 2;
}

static void emit(tm_graph *graph, const tm_hyper *h, const tm_update *u)
{
    tm_adamw_attr attr = { .beta1 = h->beta1,
                           .beta2 = h->beta2,
                           .eps = h->eps,
                           .weight_decay = h->weight_decay,
                           .rounding = u->rounding,
                           .first = u->first };
    tm_tensor_id  in[TM_MAX_IN] = { u->parameter, u->gradient, u->states[0], u->states[1],
                                    u->scalars,   u->clip,     u->states[2] };
    tm_tensor_id  out[TM_MAX_OUT] = { u->parameter, u->states[0], u->states[1], u->states[2], TM_NONE };
    tm_graph_add(graph, TM_OP_adamw, &attr, sizeof attr, in, out, 0);
}

void tm_adamw_scalars(const tm_hyper *hyper, int64_t t, double rate, double row[TM_SCALAR_COUNT])
{
    (void)rate;
    row[TM_SCALAR_CORRECTION1] = 1 - pow(hyper->beta1, (double)t);
    row[TM_SCALAR_CORRECTION2] = 1 - pow(hyper->beta2, (double)t);
}

const tm_optimizer tm_optimizer_adamw = {
    .name = "AdamW",
    .log_name = "adamw", /* MLPerf-style logs then have rows of its own */
    .keys = "beta1,beta2,eps,kahan_sum,bf16_stochastic_round",
    .formula = TM_FORMULA_ADAMW,
    .weight_decay = "0.1",
    .elementwise = true,
    .states = states,
    .emit = emit,
    .scalars = tm_adamw_scalars,
};
