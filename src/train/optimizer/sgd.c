/* SPDX-License-Identifier: Apache-2.0 */
/* train/optimizer/sgd.c - stochastic gradient descent with momentum; the formula is op/sgd.c's. Without momentum
 * there is no buffer. */
#include "train/optimizer/optimizer.h"

static int states(const tm_hyper *hyper, tm_shape parameter, tm_optimizer_state out[TM_MAX_STATES])
{
    if (!(hyper->momentum > 0)) return 0;
    out[0] = (tm_optimizer_state){ .name = "momentum_buffer", .shape = parameter };
    return 1;
}

static void emit(tm_graph *graph, const tm_hyper *h, const tm_update *u)
{
    tm_sgd_attr  attr = { .momentum = h->momentum,
                          .weight_decay = h->weight_decay,
                          .nesterov = h->nesterov,
                          .rounding = u->rounding,
                          .first = u->first };
    tm_tensor_id in[TM_MAX_IN] = { u->parameter, u->gradient, u->states[0], u->scalars, u->clip };
    tm_tensor_id out[TM_MAX_OUT] = { u->parameter, u->states[0] };
    tm_graph_add(graph, TM_OP_sgd, &attr, sizeof attr, in, out, 0);
}

static void scalars(const tm_hyper *hyper, int64_t t, double rate, double row[TM_SCALAR_COUNT])
{
    (void)hyper, (void)t, (void)rate, (void)row; /* the learning rate is all that changes */
}

const tm_optimizer tm_optimizer_sgd = {
    .name = "SGD",
    .log_name = "sgd",
    .keys = "momentum,nesterov,bf16_stochastic_round",
    .formula = TM_FORMULA_SGD,
    .weight_decay = "0",
    .elementwise = true,
    .states = states,
    .emit = emit,
    .scalars = scalars,
};
