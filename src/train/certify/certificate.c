/* SPDX-License-Identifier: Apache-2.0 */
#include "train/certify/certificate.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "op/attrs.h"
#include "train/certify/losses.h"
#include "train/step/data_parallel.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- what is put back --------------------------------------------------------------------------------------------- */

/* Roles of what forward passes write and a step reads later; of what backward passes write beside gradients. */
static const unsigned forward_roles = 1u << TM_ROLE_SCALAR, backward_roles = 1u << TM_ROLE_SCALAR | 1u << TM_ROLE_STATE;

static bool is_kept(const tm_tensor *tensor, unsigned roles)
{
    return tensor->base == TM_NONE && (roles >> tensor->role & 1u);
}

static void free_kept(const tm_step *step, char **kept)
{
    for (size_t i = 0; kept && i < step->graph->n_tensors; i++) free(kept[i]);
    free(kept);
}

/* The caller puts them back. */
static tm_status keep(tm_trainer *trainer, unsigned roles, char ***out, tm_error *err)
{
    const tm_step *step = tm_trainer_step_of(trainer);
    char         **kept = *out = tm_alloc(step->graph->n_tensors * sizeof *kept);
    for (size_t i = 0; i < step->graph->n_tensors; i++) {
        size_t bytes = step->plan->places[i].bytes;
        if (!is_kept(&step->graph->tensors[i], roles)) continue;
        kept[i] = tm_alloc(bytes);
        TM_TRY(tm_trainer_read(trainer, (tm_tensor_id)i, 0, kept[i], bytes, err));
    }
    return TM_OK;
}

/* And frees them. */
static tm_status put_back(tm_trainer *trainer, char **kept, tm_status st, tm_error *err)
{
    const tm_step *step = tm_trainer_step_of(trainer);
    for (size_t i = 0; kept && i < step->graph->n_tensors && st == TM_OK; i++)
        if (kept[i]) st = tm_trainer_write(trainer, (tm_tensor_id)i, 0, kept[i], step->plan->places[i].bytes, err);
    free_kept(step, kept);
    return st;
}

/* Micro-batches that are worked on one by one; of a pipeline all of a step at a time. */
static int64_t fewest(const tm_certifier *c)
{
    return c->step->first ? 1 : c->step->options.accumulation;
}

/* Gradients of the first micro-batch (of a pipeline of all) without targets, in the place of the step's. */
static tm_status check_alone(tm_certifier *c, const tm_micro_batch *empty, tm_certificate *alone, tm_error *err)
{
    tm_certifier own = *c;
    own.batch = empty;
    own.micro_batches = fewest(c);
    own.alone = own.motion.alone = true;
    own.motion.reduced = !data_parallel_overlaps(c->step); /* by the first program of several: not yet */
    if (c->step->first)
        TM_TRY(tm_trainer_accumulate(c->trainer, 0, empty, NULL, err));
    else
        TM_TRY(tm_trainer_gradients(c->trainer, empty, NULL, err));
    TM_TRY(tm_certifier_evaluate(&own, err));
    TM_TRY(tm_motion_measure(&own.motion, err));
    own.scale = fabs(own.loss);
    return tm_certifier_compare(&own, alone, err);
}

/* What the model adds to the loss, without the targets: of its gradient little may be left in that of the whole. (In
 * coarse formats some token always changes its experts.) */
static tm_status check_balance(tm_certifier *c, tm_certificate *out, tm_error *err)
{
    const tm_step_options *o = &c->step->options;
    tm_micro_batch         empty = *c->batch;
    tm_certificate         alone = { .done = true };
    int                    targets = 0;
    char                 **kept = NULL;
    if (c->step->model.balance_loss == TM_NONE || !out->gradients || c->coarse) return TM_OK;
    while (targets < o->n_fields && strcmp(o->fields[targets].name, "targets") != 0) targets++;
    TM_ASSERT(targets < o->n_fields); /* every model with experts reads them */
    size_t   n = (size_t)(fewest(c) * o->micro_batch * o->seq);
    int32_t *none = tm_alloc(n * sizeof *none);
    for (size_t i = 0; i < n; i++) none[i] = TM_IGNORED_TARGET;
    empty.field[targets] = none;
    tm_status st = keep(c->trainer, backward_roles | 1u << TM_ROLE_GRADIENT, &kept, err);
    if (st == TM_OK) st = check_alone(c, &empty, &alone, err);
    st = put_back(c->trainer, kept, st, err);
    free(none);
    if (st != TM_OK || !alone.done || alone.gradients) return st;
    out->gradients = false;
    snprintf(out->reason, sizeof out->reason, "of the loss that balances experts: %.900s", alone.reason);
    return TM_OK;
}

/* What a rank says of its probe; the first one that found a leak is told. */
typedef struct {
    double leak, before, after; /* the row, from 1; 0: none */
    double context, looks;      /* are there rows that must see what was replaced; do any */
} probe_found;
enum { PROBE_VALUES = sizeof(probe_found) / sizeof(double) };

static tm_status find_leak(const tm_certifier *c, probe_found *out, tm_error *err)
{
    probe_found *all = tm_alloc((size_t)c->ranks * sizeof *all), *own = &all[c->rank];
    int64_t      leak = tm_probe_leak(&c->probe, c->rows, c->others);
    if (leak >= 0) *own = (probe_found){ .leak = (double)leak + 1, .before = c->rows[leak], .after = c->others[leak] };
    own->context = c->probe.context ? 1 : 0;
    own->looks = tm_probe_looks(&c->probe, c->rows, c->others) ? 1 : 0;
    tm_status st = tm_certifier_join(c, TM_AXES_BATCH, (double *)all, (size_t)c->ranks * PROBE_VALUES, err);
    *out = (probe_found){ 0 };
    for (int r = c->ranks - 1; r >= 0; r--) {
        probe_found sum = { .context = out->context + all[r].context, .looks = out->looks + all[r].looks };
        if (all[r].leak > 0) sum.leak = all[r].leak, sum.before = all[r].before, sum.after = all[r].after;
        if (!(all[r].leak > 0)) sum.leak = out->leak, sum.before = out->before, sum.after = out->after;
        *out = sum;
    }
    free(all);
    return st;
}

/* What the losses of moved weights depend on. */
static tm_status judge_probe(const tm_certifier *c, tm_certificate *out, tm_error *err)
{
    const tm_step_options *o = &c->step->options;
    probe_found            found;
    out->rows = o->micro_batch > 1;
    if (!c->probed) return TM_OK;
    bool silent = out->reason[0] && out->done;
    TM_TRY(find_leak(c, &found, err));
    int64_t leak = (int64_t)found.leak - 1;
    out->looked_ahead = true;
    out->causal = leak < 0;
    out->context = !(found.context > 0) || found.looks > 0;
    if (!out->causal && !silent)
        snprintf(out->reason, sizeof out->reason,
                 "tokens that the model must not see change the loss of target %lld of row %lld, from %.9g to %.9g: "
                 "later tokens%s leak",
                 (long long)(leak % o->seq), (long long)(leak / o->seq), found.before, found.after,
                 out->rows ? " or other rows" : "");
    else if (!out->context && !silent)
        snprintf(out->reason, sizeof out->reason,
                 "no token changes the loss of any target behind it: the model uses no context");
    return TM_OK;
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

/* No memory for the copies, or nothing that computes: said, not failed. `trained`: of all ranks. */
static bool possible(const tm_certifier *c, bool trained, tm_certificate *out)
{
    bool   balance = c->step->model.balance_loss != TM_NONE && !c->coarse;
    int    ranks = tm_layout_size(&c->step->options.layout, TM_AXES_WORLD); /* maybe all on this host */
    double need = tm_motion_bytes(&c->motion) * (balance ? 2 : 1) * ranks;
    double have = (double)tm_memory_available_bytes("");
    if (!trained)
        snprintf(out->reason, sizeof out->reason, "nothing is trained");
    else if (c->step->options.quantize.on)
        snprintf(out->reason, sizeof out->reason,
                 "factors are quantized: gradients are straight-through estimates, not derivatives of the loss");
    else if (c->step->options.tf32)
        snprintf(out->reason, sizeof out->reason,
                 "products are rounded to TF32: differences of losses are not exact enough to judge gradients by");
    else if (c->step->options.adapters.rank > 0 && c->step->options.adapters.dora)
        snprintf(
            out->reason, sizeof out->reason,
            "DoRA takes the lengths that it divides by for constants: its gradients are not derivatives of the loss");
    else if (balance && !c->step->first && c->step->options.layout.parts > 1)
        snprintf(out->reason, sizeof out->reason,
                 "the parts of a step (training.separate_sums) of stages are not added before the update");
    else if (!(c->targets > 0))
        snprintf(out->reason, sizeof out->reason, "the first step has no targets");
    else if (have > 0 && need > 0.5 * have)
        snprintf(out->reason, sizeof out->reason, "copies of the weights would take %.1f GB", need * 1e-9);
    for (size_t k = 0; k < c->motion.n_members; k++)
        if (tm_dtype_bits(c->motion.members[k].dtype) % 8 != 0 && !out->reason[0])
            snprintf(out->reason, sizeof out->reason, "weights of %s are trained",
                     tm_dtype_name(c->motion.members[k].dtype));
    return !out->reason[0];
}

static tm_status certify(tm_certifier *c, tm_certificate *out, tm_error *err)
{
    TM_TRY(tm_motion_keep(&c->motion, err));
    TM_TRY(tm_motion_measure(&c->motion, err));
    out->done = true;
    out->groups = (int)c->motion.n_groups;
    TM_TRY(tm_certifier_compare(c, out, err));
    TM_TRY(check_balance(c, out, err));
    if (c->same_drops && out->gradients) {
        out->gradients = false;
        snprintf(out->reason, sizeof out->reason,
                 "lora.dropout leaves out the same elements in different micro-batches or steps");
    }
    bool lost = c->motion.lost != NULL;
    TM_TRY(tm_certifier_join_any(c, &lost, err)); /* of a stage */
    if (lost && out->gradients) {
        out->gradients = false;
        snprintf(out->reason, sizeof out->reason, "%.120s is trained, but nothing computes its gradient",
                 c->motion.lost ? c->motion.lost : "a weight of another stage");
    }
    return judge_probe(c, out, err);
}

static double unit_of(tm_dtype compute)
{
    return compute == TM_F64 ? 0x1p-53 : compute == TM_F32 ? 0x1p-24 : 0x1p-9;
}

/* Is the loss that of this batch? On CPUs the two have differed in the last bits of a double, as losses are added up in
 * another order; where other kernels compute the logits they may round all rows alike, and more in low precision. */
static tm_status check_loss(tm_certifier *c, tm_certificate *out, tm_error *err)
{
    double unit = unit_of(c->step->options.precision->compute);
    if (c->step->options.quantize.on || c->step->options.tf32) unit = fmax(unit, unit_of(TM_BF16));
    TM_TRY(tm_certifier_evaluate(c, err));
    c->scale = 1 + fabs(c->loss);
    out->evaluated = true;
    out->step_loss = c->said;
    out->evaluated_loss = c->loss;
    out->of_targets = c->of_targets;
    out->loss_band = fmax(tm_certifier_rounding(c, unit), TM_COARSE_UNIT * c->scale);
    out->loss_agrees = fabs(c->said - c->loss) <= out->loss_band; /* so that a NaN does not */
    if (out->loss_agrees) return TM_OK;
    out->done = true;
    snprintf(out->reason, sizeof out->reason,
             "the step's loss, %.9g, is not that of its batch: the same weights and samples give %.9g (band %.2g)",
             c->said, c->loss, out->loss_band);
    return TM_OK;
}

/* Ranks that cannot, cannot together; a stage may have nothing to train. */
static tm_status all_possible(const tm_certifier *c, tm_certificate *out, bool *all, tm_error *err)
{
    bool trained = c->motion.n_members > 0;
    TM_TRY(tm_certifier_join_any(c, &trained, err));
    bool lacks = !possible(c, trained, out);
    TM_TRY(tm_certifier_join_any(c, &lacks, err));
    if (lacks && !out->reason[0]) snprintf(out->reason, sizeof out->reason, "another rank lacks memory for copies");
    *all = !lacks;
    return TM_OK;
}

/* The probe is of whole sequences, on every rank that has other samples; the last stage of a pipeline has the losses.
 */
static tm_status choose_probe(tm_certifier *c, tm_error *err)
{
    bool   cut = tm_layout_size(&c->step->options.layout, 1U << TM_AXIS_CP) > 1;
    double have = c->step->row_losses != TM_NONE;
    TM_TRY(tm_certifier_join(c, 1U << TM_AXIS_PP, &have, 1, err));
    bool not = !c->probe.possible || !(have > 0) || cut;
    TM_TRY(tm_certifier_join_any(c, &not, err));
    c->probe.possible = !not ;
    return TM_OK;
}

/* Where products are coarse, losses in float32 if all ranks can (and were asked to). */
static tm_status choose_losses(tm_certifier *c, tm_certificate *out, tm_error *err)
{
    const tm_step *step = c->step;
    bool           lacks = step->exact.n == 0;
    c->unit = unit_of(step->options.precision->compute);
    c->coarse = c->unit > TM_COARSE_UNIT;
    out->losses = tm_dtype_name(step->options.precision->compute);
    if (!c->coarse) return TM_OK;
    TM_TRY(tm_certifier_join_any(c, &lacks, err));
    c->exact = !lacks;
    if (lacks) {
        const char *why = step->exact.n > 0 ? "another rank cannot" : step->inexact; /* empty: nobody asked for it */
        snprintf(out->inexact, sizeof out->inexact, "%s", why);
        return TM_OK;
    }
    c->unit = unit_of(TM_F32);
    out->losses = tm_dtype_name(step->options.exact->compute);
    return TM_OK;
}

static void take_room(tm_certifier *c)
{
    tm_tensor_id counts = c->step->model.expert_counts;
    if (counts != TM_NONE) c->n_counts = (size_t)tm_shape_elements(tm_graph_at(c->step->graph, counts)->shape);
    c->counts = tm_alloc(c->n_counts * sizeof *c->counts);
    c->now = tm_alloc(c->n_counts * sizeof *c->now);
    c->rows = tm_alloc((size_t)c->probe.rows * sizeof *c->rows);
    c->others = tm_alloc((size_t)c->probe.rows * sizeof *c->others);
}

/* Of the step, on all ranks. */
static tm_status all_targets(const tm_trainer *trainer, const tm_micro_batch *batch, double *out, tm_error *err)
{
    *out = (double)batch->target_tokens;
    return tm_trainer_sum(trainer, TM_AXES_BATCH, out, 1, err);
}

/* Begins a certificate; true: it says why there is none. */
static bool cannot(const tm_trainer *trainer, tm_certificate *result)
{
    *result = (tm_certificate){ 0 };
    if (!tm_trainer_step_of(trainer)->options.early_updates) return false;
    snprintf(result->reason, sizeof result->reason,
             "weights are updated within the backward pass, before all gradients are known");
    return true;
}

tm_status tm_certify(tm_trainer *trainer, const tm_micro_batch *batch, uint64_t seed, tm_certificate *result,
                     tm_error *err)
{
    tm_certifier c = { .trainer = trainer, .step = tm_trainer_step_of(trainer), .batch = batch, .seed = seed };
    char       **kept = NULL;
    bool         all = false;
    if (cannot(trainer, result)) return TM_OK;
    c.micro_batches = c.step->options.accumulation;
    c.ranks = tm_layout_data_ranks(&c.step->options.layout);
    c.rank = tm_layout_data_rank(&c.step->options.layout);
    TM_TRY(all_targets(trainer, batch, &c.targets, err));
    TM_TRY(choose_losses(&c, result, err));
    tm_status st =
        keep(trainer, forward_roles, &kept, err); /* waits for the gradients: from here on time is the certificate's */
    int64_t begin = tm_now_ns();
    tm_motion_open(trainer, c.exact, &c.motion);
    tm_probe_make(&c.step->options, batch, seed, &c.probe);
    take_room(&c);
    if (st == TM_OK) st = choose_probe(&c, err);
    if (st == TM_OK && c.targets > 0) st = check_loss(&c, result, err);
    if (st == TM_OK && !result->reason[0]) st = tm_certifier_check_scales(&c, result, err);
    if (st == TM_OK && !result->reason[0]) st = all_possible(&c, result, &all, err);
    if (st == TM_OK && all) st = certify(&c, result, err);
    st = put_back(trainer, kept, st, err);
    tm_motion_fini(&c.motion);
    tm_probe_fini(&c.probe);
    free(c.counts);
    free(c.now);
    free(c.rows);
    free(c.others);
    result->seconds = (double)(tm_now_ns() - begin) * 1e-9;
    return st;
}

tm_status tm_certify_anew(tm_trainer *trainer, const tm_micro_batch *batch, uint64_t seed, tm_certificate *result,
                          tm_error *err)
{
    char  **kept = NULL;
    int64_t begin = tm_now_ns();
    double  targets = 0;
    if (cannot(trainer, result)) return TM_OK;
    TM_TRY(all_targets(trainer, batch, &targets, err));
    tm_status st = keep(trainer, backward_roles, &kept, err);
    if (st == TM_OK) st = tm_trainer_begin(trainer, 1, 0, 0, (int64_t)targets, err);
    if (st == TM_OK) st = tm_trainer_gradients(trainer, batch, NULL, err);
    if (st == TM_OK) st = tm_certify(trainer, batch, seed, result, err);
    st = put_back(trainer, kept, st, err);
    result->seconds = (double)(tm_now_ns() - begin) * 1e-9;
    return st;
}
