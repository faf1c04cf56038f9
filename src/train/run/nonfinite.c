/* SPDX-License-Identifier: Apache-2.0 */
/* train/run/nonfinite.c - a step whose loss or gradient norm is not finite: which instruction wrote the first such
 * value. The norm is known before the update destroys the weights, so the step is run again there, looked at. This
 * needs a device that computes at once in the host's memory: others are not made to wait in every step, and `trainmark
 * replay` finds the place for them. */
#include "train/run/run_state.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "train/parallel/agree.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The next tensor that steps hand on, from `t`; TM_NONE: there is no other. */
static tm_tensor_id next_state(const tm_graph *graph, size_t t)
{
    for (; t < graph->n_tensors; t++)
        if (graph->tensors[t].role == TM_ROLE_STATE && graph->tensors[t].base == TM_NONE) return (tm_tensor_id)t;
    return TM_NONE;
}

/* Once: can steps be looked at before their update, on all ranks? */
static tm_status ask(run *r, tm_error *err)
{
    nonfinite_state      *n = &r->nonfinite;
    const tm_device_info *info = tm_device_describe(r->device);
    const tm_step        *step = tm_trainer_step_of(r->trainer);
    const tm_graph       *graph = step->graph;
    int64_t               not_here = 0;
    n->asked = true;
    if (!info->own_memory && info->computes) n->norm_end = tm_trainer_norm_end(r->trainer);
    for (tm_tensor_id t = next_state(graph, 0); t != TM_NONE; t = next_state(graph, (size_t)t + 1)) {
        if (tm_graph_elsewhere(tm_graph_at(graph, t))) n->norm_end = 0;
        n->states_bytes += tm_plan_place(step->plan, t).bytes;
    }
    not_here = n->norm_end == 0;
    TM_TRY(agree_max(run_world(r), "whether steps can be looked at", &not_here, 1, err));
    if (not_here) n->norm_end = 0;
    if (n->states_bytes > 0) n->states = tm_alloc(n->states_bytes);
    return TM_OK;
}

/* Between the device and the copy. */
static tm_status move_states(run *r, bool back, tm_error *err)
{
    const tm_step  *step = tm_trainer_step_of(r->trainer);
    const tm_graph *graph = step->graph;
    char           *at = r->nonfinite.states;
    for (tm_tensor_id t = next_state(graph, 0); t != TM_NONE; t = next_state(graph, (size_t)t + 1)) {
        const size_t bytes = tm_plan_place(step->plan, t).bytes;
        TM_TRY(back ? tm_trainer_write(r->trainer, t, 0, at, bytes, err)
                    : tm_trainer_read(r->trainer, t, 0, at, bytes, err));
        at += bytes;
    }
    return TM_OK;
}

tm_status run_keep_states(run *r, tm_error *err)
{
    if (!r->nonfinite.asked) TM_TRY(ask(r, err));
    return r->nonfinite.norm_end > 0 ? move_states(r, false, err) : TM_OK;
}

static bool same_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

/* The step again, up to its norm, looked at. */
static tm_status look(run *r, const tm_micro_batch *batch, double loss, double norm, tm_error *err)
{
    nonfinite_state *n = &r->nonfinite;
    double           again[2] = { 0 };
    TM_TRY(move_states(r, true, err));
    tm_locator *locator = tm_locator_open(r->trainer);
    tm_status   st = tm_trainer_gradients(r->trainer, batch, NULL, err);
    if (st == TM_OK) st = tm_trainer_norm(r->trainer, n->norm_end, &again[0], &again[1], NULL, err);
    n->any = st == TM_OK && tm_locator_found(locator) != NULL;
    if (n->any) n->found = *tm_locator_found(locator);
    tm_locator_close(locator);
    n->found.rank = run_rank(r->options);
    n->found.ranks = run_ranks(r->options);
    n->found.repeated = same_bits(again[0], loss) && same_bits(again[1], norm);
    return st;
}

tm_status run_locate(run *r, int64_t step, const tm_micro_batch *batch, tm_error *err)
{
    nonfinite_state *n = &r->nonfinite;
    double           loss, norm;
    if (n->norm_end == 0) return TM_OK;
    TM_TRY(tm_trainer_norm(r->trainer, n->norm_end, &loss, &norm, &r->timing.ledger, err));
    if (isfinite(loss) && isfinite(norm)) return TM_OK;
    int64_t begin = tm_now_ns();
    TM_TRY(look(r, batch, loss, norm, err));
    TM_TRY(tm_locate_agree(run_world(r), &n->found, &n->any, err));
    n->found.step = step;
    r->timing.begin_ns += tm_now_ns() - begin; /* no part of the step */
    return TM_OK;
}

tm_status run_tell_nonfinite(run *r, int64_t step, const tm_batch *batch, int64_t targets, tm_error *err)
{
    const tm_run_options *o = r->options;
    nonfinite_state      *n = &r->nonfinite;
    tm_text               text = { 0 }, folder = { 0 };
    tm_error              why = { 0 };
    if (!n->any) n->found = (tm_nonfinite){ .step = step, .ranks = run_ranks(o) };
    n->any = true;
    tm_nonfinite_print(&n->found, &text);
    snprintf(n->place, sizeof n->place, "%s", text.data);
    tm_warn("the loss or gradient norm is not finite: %s", text.data);
    if (n->found.located && !n->found.repeated)
        tm_warn("step %lld did not come to the same loss and norm again: the machine computes wrongly, or not always "
                "the same; `trainmark replay --twice` compares all bits",
                (long long)step);
    tm_status st = TM_OK;
    if (o->folder) {
        tm_text_printf(&folder, "%s/" TM_RUN_BATCH_FOLDER, o->folder);
        st = run_save_batch(r, folder.data, step, (const void *const *)batch->field, targets, &why);
        if (st == TM_OK)
            tm_note("its batch is in '%s'; `trainmark replay %s --step %lld` computes the step again", folder.data,
                    o->folder, (long long)step);
        else
            tm_warn("the batch of the step could not be kept: %s", why.text);
    }
    tm_text_fini(&text);
    tm_text_fini(&folder);
    return st == TM_DEVICE ? tm_fail(err, st, "%s", why.text) : TM_OK;
}
