/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/bound.h"

#include <math.h>

/* --- of a training ------------------------------------------------------------------------------------------------ */

/* What one rank keeps from step to step. */
static void add_kept(const tm_step *step, tm_bound *b)
{
    for (size_t i = 0; i < step->graph->n_tensors; i++) {
        const tm_tensor *t = &step->graph->tensors[i];
        double           bytes = (double)tm_tensor_bytes(t->shape, t->dtype);
        if (t->base != TM_NONE) continue;
        if (t->role == TM_ROLE_PARAMETER) b->weights += bytes;
        if (t->role == TM_ROLE_GRADIENT) b->gradients += bytes;
        if (t->role == TM_ROLE_MOMENT && t->space == TM_SPACE_DEVICE) b->moments += bytes;
    }
}

/* The fastest that any product or attention of the training can be. */
static double best_rate(const tm_step_options *o, const tm_hardware *hw)
{
    double best = tm_rate_best(hw, o->precision->compute == TM_F32 ? TM_RATE_F32 : TM_RATE_BF16);
    best = fmax(best, hw->number[TM_HARDWARE_ATTENTION_FORWARD]);
    best = fmax(best, hw->number[TM_HARDWARE_ATTENTION_BACKWARD]);
    if (o->quantize.on) best = fmax(best, fmax(tm_rate_best(hw, TM_RATE_FP8), tm_rate_best(hw, TM_RATE_FP4)));
    return best * 1e12;
}

tm_status tm_bound_of(const tm_step_options *options, int64_t global, const tm_machine_plan *machine,
                      const tm_chooser *chooser, tm_bound *out, tm_error *err)
{
    const tm_model_shape *shape = &options->shape;
    tm_step_options       alone = *options;
    tm_step              *step;
    alone.layout = (tm_layout){ 0 };
    alone.micro_batch = alone.accumulation = 1;
    alone.offload = (tm_offload){ 0 };
    *out = (tm_bound){ .machine = machine,
                       .parameters = (double)tm_model_parameters(shape),
                       .tokens = (double)(global * options->seq),
                       .backward = options->adapters.rank > 0 ? 1 : 2, /* without gradients of weights */
                       .rate = best_rate(options, &machine->device),
                       .row = (double)shape->dim * (double)tm_dtype_bytes(options->precision->compute),
                       .n_layers = shape->n_layers,
                       .seq = options->seq,
                       .experts = shape->moe.experts };
    TM_TRY(tm_step_create(&alone, chooser, &step, err));
    add_kept(step, out);
    tm_step_destroy(step);
    double forward = tm_model_flops_per_token(shape, TM_FLOPS_EXACT_CAUSAL, options->seq) / 3;
    out->head = fmin(forward, 2. * (double)shape->vocab_size * (double)shape->dim);
    out->layers = forward - out->head;
    return TM_OK;
}

/* --- of a layout -------------------------------------------------------------------------------------------------- */

/* What is gathered in front of a block's two parts, and scattered behind them, waits for them and is waited for: in the
 * forward pass, again where that is recomputed, and the scattering in the backward pass. Experts need none. */
static double tensor_seconds(const tm_bound *b, const tm_sketch *s)
{
    double moves = b->experts > 0 ? 2 : 4, whole = (double)(s->micro * b->seq / s->cp) * b->row;
    if (s->full) moves *= 2;
    tm_group_plan group = tm_group_plan_of(b->machine, s->tp, 1);
    return (double)b->n_layers / s->pp * moves * tm_time_move(&b->machine->device, TM_MOVE_ALL_GATHER, whole, group);
}

/* Weights are gathered and gradients scattered at least once a step, where all is shared for each micro-batch; at 2
 * bytes. That may go on beside all else. */
static double data_seconds(const tm_bound *b, const tm_sketch *s)
{
    bool          each = s->shares_all && s->pp == 1;
    double        divided = s->tp > s->ep ? s->tp : s->ep, bytes = 2 * b->parameters / (s->pp * divided);
    tm_group_plan group = tm_group_plan_of(b->machine, s->shard * s->cp, s->tp);
    double        once = tm_time_move(&b->machine->device, TM_MOVE_ALL_GATHER, bytes, group);
    if (b->backward < 2) return 0; /* adapters: hardly anything is trained */
    return (each ? (double)s->accumulation : 1) * once;
}

/* Moments that lie with the host come and go once a step, beside all else at best. */
static double copy_seconds(const tm_bound *b, const tm_sketch *s)
{
    double rate = b->machine->device.number[TM_HARDWARE_HOST_RATE] * 1e9;
    if (!s->moments_away || rate <= 0) return 0;
    return 2 * b->moments / ((double)s->shard * s->cp * s->tp) / s->pp / rate;
}

double tm_bound_seconds(const tm_bound *b, const tm_sketch *s)
{
    double devices = (double)s->tp * s->pp * s->cp * s->replicate * s->shard;
    double flops = b->layers * (1 + b->backward + (s->full ? 1 : 0)) + b->head * (1 + b->backward);
    double work = b->tokens / devices * flops / b->rate + (double)s->accumulation * tensor_seconds(b, s);
    double m = (double)s->accumulation;
    return fmax(fmax(work * (m + s->idle * (s->pp - 1)) / m, data_seconds(b, s)), copy_seconds(b, s));
}

double tm_bound_bytes(const tm_bound *b, const tm_sketch *s)
{
    double divided = s->tp > s->ep ? s->tp : s->ep, shares = (double)s->shard * s->cp * s->tp;
    double whole = s->shares_all ? shares : divided;
    return ((b->weights + b->gradients) / whole + (s->moments_away ? 0 : b->moments / shares)) / s->pp;
}
