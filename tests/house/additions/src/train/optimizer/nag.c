/* SPDX-License-Identifier: Apache-2.0 */
/* train/optimizer/nag.c - Nesterov's accelerated gradient: op/sgd.c with a momentum of 0.9 that looks ahead. */
#include "train/optimizer/optimizer.h"

static int states(const tm_hyper *hyper, tm_shape parameter, tm_optimizer_state out[TM_MAX_STATES])
{
    (void)hyper;
    out[0] = (tm_optimizer_state){ .name = "momentum_buffer", .shape = parameter };
    return 1;
}

static void emit(tm_graph *graph, const tm_hyper *h, const tm_update *u)
{
    tm_sgd_attr  attr = { .momentum = 0.9, .weight_decay = h->weight_decay, .nesterov = true };
    tm_tensor_id in[TM_MAX_IN] = { u->parameter, u->gradient, u->states[0], u->scalars, u->clip };
    tm_tensor_id out[TM_MAX_OUT] = { u->parameter, u->states[0] };
    tm_graph_add(graph, TM_OP_sgd, &attr, sizeof attr, in, out, 0);
}

static void scalars(const tm_hyper *hyper, int64_t t, double rate, double row[TM_SCALAR_COUNT])
{
    (void)hyper, (void)t, (void)rate, (void)row; /* the learning rate is all that changes */
}

const tm_optimizer tm_optimizer_nag = {
    .name = "NAG",
    .log_name = "nag",
    .keys = "",
    .weight_decay = "0",
    .states = states,
    .emit = emit,
    .scalars = scalars,
};
