/* SPDX-License-Identifier: Apache-2.0 */
/* train/run/proof.c - was it training? Before the steps: what the weights are. In the first one: the certificate of its
 * gradients. After them: did what is trained move, and nothing else; did a gradient reach everything; were the samples
 * different ones; do the times add up (docs/certificate.md). */
#include "train/run/run_state.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "graph/value.h"
#include "train/parallel/agree.h"
#include "train/certify/certificate.h"
#include "train/run/curve.h"
#include "train/certify/dead_attention.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- before, and in the first step -------------------------------------------------------------------------------- */

/* This rank's samples of a step. */
static tm_status read_batch(const run *r, int64_t first_sample, void *memory[TM_MAX_FIELDS], tm_micro_batch *out,
                            tm_error *err)
{
    const tm_step_options *o = &r->options->step;
    int32_t               *scratch = tm_alloc((size_t)(o->seq + 1) * sizeof *scratch);
    const int64_t          rows = o->micro_batch * o->accumulation;
    const int64_t          first = first_sample + rows * tm_layout_data_rank(&o->layout);
    tm_status              st = TM_OK;
    for (int f = 0; f < o->n_fields; f++)
        memory[f] = tm_alloc((size_t)rows * tm_tensor_bytes(o->fields[f].shape, o->fields[f].dtype));
    *out = (tm_micro_batch){ 0 };
    for (int64_t row = 0; row < rows && st == TM_OK; row++) {
        void   *at[TM_MAX_FIELDS];
        int64_t weight = 0;
        for (int f = 0; f < o->n_fields; f++)
            at[f] = (char *)memory[f] + (size_t)row * tm_tensor_bytes(o->fields[f].shape, o->fields[f].dtype);
        st = tm_source_row(r->source, TM_SPLIT_TRAIN, first + row, scratch, at, &weight, err);
        out->target_tokens += weight;
    }
    for (int f = 0; f < o->n_fields; f++) out->field[f] = memory[f];
    free(scratch);
    return st;
}

static bool possible(const run *r)
{
    return !r->options->turn_fd && r->options->step.n_fields > 0 && tm_device_describe(r->device)->computes;
}

/* Steps before a checkpoint count in the verdict, so they do here. */
bool run_certifies(const run *r)
{
    const tm_run_options *o = r->options;
    return o->certify && possible(r) && (o->steps >= TM_JUDGED_STEPS || o->stop_at_target);
}

bool run_is_unproven(const run *r)
{
    const tm_certificate *c = &r->certified.first;
    bool                  images = tm_source_traits_of(r->options->source.name)->images;
    return !c->done && c->reason[0] && !images && tm_source_describe(r->source)->train_samples == INT64_MAX;
}

tm_step_options run_step_options(const run *r)
{
    tm_step_options step = r->options->step;
    bool            looks = run_certifies(r) || (r->options->certify_after && possible(r));
    if (looks && step.precision->compute == TM_BF16 && !step.quantize.on) step.exact = &tm_precision_f32;
    return step;
}

tm_status run_remember(run *r, tm_error *err)
{
    const tm_step *step = tm_trainer_step_of(r->trainer);
    if (r->options->turn_fd) return TM_OK;
    r->certified.hashes = tm_alloc(step->graph->n_tensors * sizeof *r->certified.hashes);
    return tm_trainer_hashes(r->trainer, r->certified.hashes, err);
}

tm_status run_certify(run *r, const tm_micro_batch *batch, tm_error *err)
{
    if (!run_certifies(r)) return TM_OK;
    TM_TRY(tm_certify(r->trainer, batch, r->options->seed, &r->certified.first, err));
    r->timing.begin_ns += (int64_t)(r->certified.first.seconds * 1e9); /* that time belongs to no step */
    r->certified.done_ns = tm_now_ns();
    return TM_OK;
}

void run_check_loss(run *r, const tm_step_result *result)
{
    const tm_certificate *c = &r->certified.first;
    if (!c->evaluated || fabs(result->loss - c->of_targets) <= c->loss_band) return;
    snprintf(r->certified.not_training, sizeof r->certified.not_training,
             "the first step reports a loss of %.9g, and that of its batch is %.9g (band %.2g)", result->loss,
             c->of_targets, c->loss_band);
}

/* --- after -------------------------------------------------------------------------------------------------------- */

static tm_status is_zero(const run *r, tm_tensor_id id, int64_t first, int64_t n, bool *zero, tm_error *err)
{
    enum { PIECE = 1 << 18 };
    const tm_dtype dtype = tm_graph_at(tm_trainer_step_of(r->trainer)->graph, id)->dtype;
    const size_t   element = tm_dtype_bytes(dtype);
    char          *part = tm_alloc(PIECE * element);
    tm_status      st = TM_OK;
    *zero = true;
    for (int64_t at = 0; at < n && *zero && st == TM_OK; at += PIECE) {
        int64_t count = n - at < PIECE ? n - at : PIECE;
        st = tm_trainer_read(r->trainer, id, (size_t)(first + at) * element, part, (size_t)count * element, err);
        for (int64_t i = 0; i < count && *zero && st == TM_OK; i++) {
            double g = tm_value_get(part, dtype, i);
            *zero = !(g < 0 || g > 0);
        }
    }
    free(part);
    return st;
}

/* The same of what all ranks have that divide the tensor. */
static tm_status is_dead(const run *r, const tm_tensor *t, const tm_piece *piece, bool *dead, tm_error *err)
{
    int64_t columns = tm_shape_elements(t->shape) / t->shape.n[0];
    TM_TRY(is_zero(r, t->gradient, piece->row * columns, piece->rows * columns, dead, err));
    double alive = *dead ? 0 : 1;
    if (t->cut) TM_TRY(tm_trainer_sum(r->trainer, t->cut->axes, &alive, 1, err));
    *dead = !(alive > 0);
    return TM_OK;
}

/* The first named part of a trained matrix or vector that no gradient reached in the last step: nothing in the loss
 * depends on it. (Experts have no rows now and then.) NULL: none. */
static tm_status find_dead(const run *r, const char **name, tm_error *err)
{
    const tm_graph *graph = tm_trainer_step_of(r->trainer)->graph;
    *name = NULL;
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *t = &graph->tensors[i];
        if (t->role != TM_ROLE_PARAMETER || t->gradient == TM_NONE || t->shape.rank > 2) continue;
        for (int p = 0; p < t->n_pieces; p++) {
            bool dead;
            TM_TRY(is_dead(r, t, &t->pieces[p], &dead, err));
            if (dead) *name = t->pieces[p].name;
            if (dead) return TM_OK;
        }
    }
    return TM_OK;
}

/* What no gradient reaches: a part of its own, or the choice of attention. All ranks say the same of that. */
static tm_status check_reached(run *r, tm_error *err)
{
    const char *dead = NULL;
    tm_text     layers = { 0 };
    tm_status   st = find_dead(r, &dead, err);
    if (st == TM_OK) st = dead_attention_find(r->trainer, &r->options->step.shape, run_world(r), &layers, err);
    if (dead)
        snprintf(r->certified.not_training, sizeof r->certified.not_training, "no gradient reaches %.120s", dead);
    else if (layers.length > 0)
        snprintf(r->certified.not_training, sizeof r->certified.not_training,
                 "the attention of layers %.600s is dead: the gradients of its wq and wk are nothing but rounding, as "
                 "where a token sees only itself (model.sliding_window 1)",
                 layers.data);
    tm_text_fini(&layers);
    return st;
}

/* Coarse formats round small updates away: of those no tensor needs to move, but one of all. */
static void check_moved(run *r, const uint64_t *now)
{
    const tm_graph *graph = tm_trainer_step_of(r->trainer)->graph;
    const char     *still = NULL, *stray = NULL;
    bool            moved = false;
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *t = &graph->tensors[i];
        if (t->role != TM_ROLE_PARAMETER) continue;
        bool same = now[i] == r->certified.hashes[i], trained = t->gradient != TM_NONE;
        moved = moved || (trained && !same);
        if (trained && same && t->shape.rank <= 2 && (t->dtype == TM_F32 || t->dtype == TM_F64)) still = t->name;
        if (!trained && !same) stray = t->name;
    }
    if (!moved)
        snprintf(r->certified.not_training, sizeof r->certified.not_training,
                 "no weight has moved in the %lld steps of this run", (long long)r->progress.done);
    else if (stray)
        snprintf(r->certified.not_training, sizeof r->certified.not_training, "%.120s is frozen, but has moved", stray);
    else if (still)
        snprintf(r->certified.not_training, sizeof r->certified.not_training, "%.120s is trained, but has not moved",
                 still);
}

static tm_status check_samples(run *r, tm_error *err)
{
    int64_t seen, unique, epoch = tm_source_describe(r->source)->train_samples;
    TM_TRY(run_count_samples(r, &seen, &unique, err));
    int64_t different = seen < epoch ? seen : epoch;
    if (seen >= TM_JUDGED_STEPS && 4 * unique < 3 * different && !r->certified.not_training[0])
        snprintf(r->certified.not_training, sizeof r->certified.not_training,
                 "only %lld of the %lld training samples are distinct", (long long)unique, (long long)seen);
    return TM_OK;
}

/* Phases of a step are parts of it: together they cannot take longer. */
static void check_times(run *r)
{
    if (tm_phases_exceed(r->timing.accounted_seconds, r->timing.all_seconds, r->progress.done))
        snprintf(r->certified.not_training, sizeof r->certified.not_training,
                 "the phases of the steps take %.4g s together, the steps %.4g s", r->timing.accounted_seconds,
                 r->timing.all_seconds);
}

/* Losses that are known: another job's, or none of it, if they differ. */
static void check_curve(run *r)
{
    const char *sums = tm_device_describe(r->device)->sums[r->options->step.precision->compute == TM_BF16];
    char        why[TM_REASON_BYTES];
    if (!tm_curve_is_main(r->options) || run_world(r)) return; /* ranks add in another order */
    tm_curve_compare(sums, r->progress.losses, r->progress.first_step, r->progress.done, &r->certified.curve, why);
    snprintf(r->certified.not_training, sizeof r->certified.not_training, "%s", why);
}

/* With the weights as they are now, on the samples that would come next: the gradients of the last step are gone. */
static tm_status certify_again(run *r, tm_error *err)
{
    tm_certificate *c = &r->certified.after;
    void           *memory[TM_MAX_FIELDS] = { 0 };
    tm_micro_batch  batch;
    if (!r->options->certify_after || !possible(r)) return TM_OK;
    tm_status st = read_batch(r, run_samples(r), memory, &batch, err);
    if (st == TM_OK) st = tm_certify_anew(r->trainer, &batch, r->options->seed, c, err);
    for (int f = 0; f < TM_MAX_FIELDS; f++) free(memory[f]);
    if (st == TM_OK && tm_certificate_fails(c))
        snprintf(r->certified.not_training, sizeof r->certified.not_training, "after the last step: %.900s", c->reason);
    return st;
}

/* What ranks go on with together they all do or none. */
static tm_status any_rank(const run *r, bool *yes, tm_error *err)
{
    int64_t any = *yes;
    TM_TRY(agree_max(run_world(r), "what the steps were", &any, 1, err));
    *yes = any > 0;
    return TM_OK;
}

tm_status run_check_proof(run *r, uint64_t *weights_hash, tm_error *err)
{
    const tm_graph       *graph = tm_trainer_step_of(r->trainer)->graph;
    const tm_certificate *c = &r->certified.first;
    uint64_t             *now = tm_alloc(graph->n_tensors * sizeof *now);
    tm_status             st = tm_trainer_hashes(r->trainer, now, err);
    *weights_hash = tm_trainer_weights_sum(r->trainer, now);
    if (st == TM_OK) st = tm_trainer_sum_stages(r->trainer, weights_hash, err);
    bool computes = tm_device_describe(r->device)->computes;
    if (st == TM_OK && r->progress.finite && r->progress.done > 0 && computes && r->certified.hashes) {
        check_times(r);
        if (!r->certified.not_training[0]) check_curve(r);
        st = check_samples(r, err);
        if (st == TM_OK) st = run_check_fed(r, err);
        if (!r->certified.not_training[0]) check_moved(r, now);
        bool unreal = r->certified.not_training[0] != '\0';
        if (st == TM_OK) st = any_rank(r, &unreal, err);
        if (st == TM_OK && !unreal && c->done && r->progress.last_norm > 0) st = check_reached(r, err);
        if (r->certified.update.n_steps > 0 && !r->certified.update.agrees)
            snprintf(r->certified.not_training, sizeof r->certified.not_training, "%s", r->certified.update.reason);
        if (tm_certificate_fails(c))
            snprintf(r->certified.not_training, sizeof r->certified.not_training, "%s", c->reason);
        unreal = r->certified.not_training[0] != '\0';
        if (st == TM_OK) st = any_rank(r, &unreal, err);
        if (st == TM_OK && !unreal) st = certify_again(r, err);
    }
    free(now);
    return st;
}
