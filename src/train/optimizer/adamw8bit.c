/* SPDX-License-Identifier: Apache-2.0 */
/* train/optimizer/adamw8bit.c - AdamW with moments of 8 bits; the formula is op/adamw8.c's. Small tensors keep their
 * moments whole: bitsandbytes those below 4096 elements, in float32; torchao also those that blocks of 256 do not fill,
 * in the format of the weight. */
#include "train/optimizer/optimizer.h"

enum { LEAST = 4096 };

static bool is_coded(const tm_hyper *hyper, tm_shape parameter)
{
    int64_t elements = tm_shape_elements(parameter);
    return elements >= LEAST && (hyper->definition == TM_DEFINED_BITSANDBYTES || elements % TM_DYNAMIC_BLOCK == 0);
}

static int states(const tm_hyper *hyper, tm_shape parameter, tm_optimizer_state out[TM_MAX_STATES])
{
    if (!is_coded(hyper, parameter)) {
        tm_state_format whole = hyper->definition == TM_DEFINED_BITSANDBYTES ? TM_STATE_WIDE : TM_STATE_PARAMETER;
        out[0] = (tm_optimizer_state){ .name = "exp_avg", .shape = parameter, .format = whole };
        out[1] = (tm_optimizer_state){ .name = "exp_avg_sq", .shape = parameter, .format = whole };
        return 2;
    }
    tm_shape blocks = tm_shape_1((tm_shape_elements(parameter) + TM_DYNAMIC_BLOCK - 1) / TM_DYNAMIC_BLOCK);
    out[0] = (tm_optimizer_state){ .name = "exp_avg", .shape = parameter, .format = TM_STATE_BYTE };
    out[1] = (tm_optimizer_state){ .name = "exp_avg_sq", .shape = parameter, .format = TM_STATE_BYTE };
    out[2] = (tm_optimizer_state){ .name = "exp_avg_absmax", .shape = blocks, .format = TM_STATE_WIDE };
    out[3] = (tm_optimizer_state){ .name = "exp_avg_sq_absmax", .shape = blocks, .format = TM_STATE_WIDE };
    return 4;
}

static void emit(tm_graph *graph, const tm_hyper *h, const tm_update *u)
{
    if (u->states[2] == TM_NONE) {
        tm_optimizer_adamw.emit(graph, h, u);
        return;
    }
    tm_adamw8_attr attr = { .beta1 = h->beta1,
                            .beta2 = h->beta2,
                            .eps = h->eps,
                            .weight_decay = h->weight_decay,
                            .rounding = u->rounding,
                            .definition =
                                h->definition == TM_DEFINED_BITSANDBYTES ? TM_ADAMW8_BITSANDBYTES : TM_ADAMW8_TORCHAO };
    tm_tensor_id   in[TM_MAX_IN] = { u->parameter, u->gradient,  u->states[0], u->states[1],
                                     u->states[2], u->states[3], u->scalars,   u->clip };
    tm_tensor_id   out[TM_MAX_OUT] = { u->parameter, u->states[0], u->states[1], u->states[2], u->states[3] };
    tm_graph_add(graph, TM_OP_adamw8, &attr, sizeof attr, in, out, 0);
}

const tm_optimizer tm_optimizer_adamw8bit = {
    .name = "AdamW8bit",
    .log_name = "adamw8bit",
    .keys = "beta1,beta2,eps,bf16_stochastic_round,definition",
    .definitions = "torchao|bitsandbytes",
    .formula = TM_FORMULA_CODED,
    .weight_decay = "0.1",
    .states = states,
    .emit = emit,
    .scalars = tm_adamw_scalars,
};
