/* SPDX-License-Identifier: Apache-2.0 */
/* train/optimizer/muon.c - Muon for the matrices of blocks, each of a fused parameter's matrices for itself; AdamW, at
 * the same rate, for embeddings, the head, vectors and whatever else lies outside of blocks. The formulas are
 * op/muon.c's and op/adamw.c's. */
#include "train/optimizer/optimizer.h"

static bool is_moved(const tm_hyper *hyper, tm_shape parameter)
{
    return hyper->in_block && parameter.rank >= 2;
}

static int states(const tm_hyper *hyper, tm_shape parameter, tm_optimizer_state out[TM_MAX_STATES])
{
    if (!is_moved(hyper, parameter)) return tm_optimizer_adamw.states(hyper, parameter, out);
    out[0] = (tm_optimizer_state){ .name = "momentum_buffer", .shape = parameter };
    return 1;
}

/* The matrices of a parameter as rows that come again and again: those of its pieces, or its last two axes. */
static void list_rows(const tm_tensor *parameter, int64_t rows[TM_MUON_PARTS])
{
    int n = parameter->n_pieces;
    for (int period = 1; period <= TM_MUON_PARTS && period <= n; period++) {
        bool fits = n % period == 0;
        for (int p = period; p < n && fits; p++) fits = parameter->pieces[p].rows == parameter->pieces[p - period].rows;
        if (!fits) continue;
        for (int p = 0; p < period; p++) rows[p] = parameter->pieces[p].rows;
        return;
    }
    rows[0] = parameter->shape.n[parameter->shape.rank - 2];
}

static void emit(tm_graph *graph, const tm_hyper *h, const tm_update *u)
{
    const tm_tensor *parameter = tm_graph_at(graph, u->parameter);
    bool             megatron = h->definition == TM_DEFINED_MEGATRON;
    if (!is_moved(h, parameter->shape)) {
        tm_optimizer_adamw.emit(graph, h, u);
        return;
    }
    tm_muon_attr attr = { .momentum = h->momentum,
                          .weight_decay = h->weight_decay,
                          .eps = megatron ? 1e-15 : 1e-7,
                          .rounding = u->rounding,
                          .nesterov = h->nesterov,
                          .coefficients = megatron ? TM_MUON_QUINTIC : TM_MUON_SIMPLE,
                          .scale = h->scale };
    list_rows(parameter, attr.rows);
    tm_tensor_id in[TM_MAX_IN] = { u->parameter, u->gradient, u->states[0], u->scalars, u->clip };
    tm_tensor_id out[TM_MAX_OUT] = { u->parameter, u->states[0] };
    tm_graph_add(graph, TM_OP_muon, &attr, sizeof attr, in, out, 0);
}

const tm_optimizer tm_optimizer_muon = {
    .name = "Muon",
    .log_name = "muon",
    .keys = "beta1,beta2,eps,momentum,nesterov,bf16_stochastic_round,definition,adjust_lr_fn",
    .definitions = "torch|megatron",
    .formula = TM_FORMULA_MUON,
    .weight_decay = "0.1",
    .states = states,
    .emit = emit,
    .scalars = tm_adamw_scalars,
};
