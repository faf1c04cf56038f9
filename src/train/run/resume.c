/* SPDX-License-Identifier: Apache-2.0 */
/* train/run/resume.c - a run into a checkpoint and out of it. */
#include "train/run/run_state.h"

#include "base/clock.h"
#include "base/log.h"
#include "train/parallel/agree.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/description.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What a run keeps beside its tensors (docs/checkpoints.md), and the range of each: no run writes others, and nothing
 * else is gone on with. */
enum { FIRST_LOSS, HEAD_MEAN, HEAD_DEVIATION, HEAD_COUNT, SCALARS };
static const char *const scalar_names[SCALARS] = { [FIRST_LOSS] = "first_loss",
                                                   [HEAD_MEAN] = "head_loss_mean",
                                                   [HEAD_DEVIATION] = "head_loss_deviation",
                                                   [HEAD_COUNT] = "head_loss_count" };
static const double      largest_loss = 1e6;

static tm_status check_scalars(const tm_checkpoint_state *state, const double values[SCALARS], tm_error *err)
{
    for (int i = 0; i < SCALARS; i++) {
        double most = i == HEAD_COUNT ? (double)state->step : largest_loss;
        if (!(values[i] >= 0 && values[i] <= most)) /* so that a NaN is none */
            return tm_fail(err, TM_FORMAT, "scalar '%s' is %g, wanted 0 to %g", scalar_names[i], values[i], most);
    }
    if (floor(values[HEAD_COUNT]) < values[HEAD_COUNT])
        return tm_fail(err, TM_FORMAT, "scalar '%s' is %g, wanted an integer", scalar_names[HEAD_COUNT],
                       values[HEAD_COUNT]);
    return TM_OK;
}

/* The loss of the first step, and those with which the run began. */
static tm_status read_scalars(run *r, const tm_checkpoint_state *state, tm_error *err)
{
    double   values[SCALARS];
    tm_error why = { 0 };
    if (tm_checkpoint_scalars(state, scalar_names, values, SCALARS, &why) != TM_OK)
        return tm_fail(err, why.status,
                       "the checkpoint of step %lld in '%s' was made by another version of this program: %s; continue "
                       "with that version, or give another checkpoint.folder",
                       (long long)state->step, r->options->checkpoint_folder, why.text);
    if (check_scalars(state, values, &why) != TM_OK)
        return tm_fail(err, why.status,
                       "the checkpoint of step %lld in '%s' is not one that a run wrote: %s; give another "
                       "checkpoint.folder or checkpoint.load_step",
                       (long long)state->step, r->options->checkpoint_folder, why.text);
    r->progress.first_loss = values[FIRST_LOSS];
    r->progress.so_far = (tm_loss_head){ .mean = values[HEAD_MEAN],
                                         .deviation = values[HEAD_DEVIATION],
                                         .n = (int64_t)values[HEAD_COUNT] };
    r->progress.before = r->progress.so_far;
    return TM_OK;
}

static tm_status check_data(const run *r, const tm_checkpoint_state *state, tm_error *err)
{
    const tm_run_options *o = r->options;
    if (!r->source || state->content == 0 || state->content == tm_source_describe(r->source)->content) return TM_OK;
    if (o->allow_changed_data) {
        tm_warn("the data is not what the checkpoint was trained on: the run continues "
                "(checkpoint.allow_changed_data), but "
                "is not the same run");
        return TM_OK;
    }
    return tm_fail(
        err, TM_INVALID,
        "the data (data.source %s%s%s) is not what the checkpoint in '%s' was trained on; give the same data, "
        "another checkpoint.folder, or checkpoint.allow_changed_data true",
        o->source.name, o->source.path ? ", " : "", o->source.path ? o->source.path : "", o->checkpoint_folder);
}

/* The line of a description that says in which order its products were summed; "" if there is none. */
static const char  sums_line[] = "sums ";
static const char *sums_of(const char *description)
{
    const char *at = strstr(description, sums_line);
    return at && (at == description || at[-1] == '\n') ? at : "";
}
static const char *own_sums(const run *r)
{
    return tm_device_describe(r->device)->sums[r->options->step.precision->compute == TM_BF16];
}

/* Another machine may have other kernels: the run goes on, and says so. */
static void check_sums(const run *r, const char *line)
{
    size_t      length = strcspn(line, "\n"), prefix = sizeof sums_line - 1;
    const char *own = length > prefix ? own_sums(r) : NULL; /* a checkpoint that does not say needs no comparison */
    if (!own) return;
    if (length - prefix == strlen(own) && memcmp(line + prefix, own, length - prefix) == 0) return;
    tm_warn("the checkpoint in '%s' was trained with products summed in the order '%.*s', this run's (%s kernels) is "
            "'%s': the run continues, but not with the bits of a run that never stopped; --isa names other kernels",
            r->options->checkpoint_folder, (int)(length - prefix), line + prefix,
            tm_device_describe(r->device)->kernels, own);
}

/* The model, and with adapters what they are and what they stand beside. */
static void describe(const run *r, tm_text *out)
{
    const tm_adapters *a = &r->options->step.adapters;
    tm_description_print(&r->options->step.shape, out);
    if (r->certified.reference)
        tm_text_printf(out, "dpo.reference %016llx\n", (unsigned long long)r->certified.reference);
    if (a->rank == 0) return;
    tm_adapters_print(a, out);
    tm_text_printf(out, "lora.base %016llx\n", (unsigned long long)r->certified.base);
}

tm_status run_take_state(run *r, const tm_checkpoint_state *state, tm_error *err)
{
    const tm_run_options *o = r->options;
    tm_text               model = { 0 };
    tm_error              why = { 0 };
    if (state->seed != o->seed)
        return tm_fail(err, TM_INVALID,
                       "the checkpoint in '%s' was made with debug.seed %llu, this run has %llu; give the same seed or "
                       "another checkpoint.folder",
                       o->checkpoint_folder, (unsigned long long)state->seed, (unsigned long long)o->seed);
    const char *line = sums_of(state->description);
    describe(r, &model);
    tm_text_printf(&model, "%s", line);
    tm_status st = tm_description_check(state->description, model.data, &why);
    tm_text_fini(&model);
    if (st != TM_OK)
        return tm_fail(err, st,
                       "the checkpoint in '%s' does not fit: %s; give the model that made it, or another "
                       "checkpoint.folder",
                       o->checkpoint_folder, why.text);
    check_sums(r, line);
    TM_TRY(check_data(r, state, err));
    return read_scalars(r, state, err);
}

tm_status run_save(run *r, int64_t step, tm_error *err)
{
    size_t                      n;
    const tm_checkpoint_tensor *tensors = tm_trainer_tensors(r->trainer, &n);
    tm_text                     model = { 0 };
    tm_checkpoint_state         state = { .step = step,
                                          .samples_consumed = tm_loader_consumed(r->loader),
                                          .seed = r->options->seed,
                                          .config_hash = r->options->config_hash,
                                          .content = tm_source_describe(r->source)->content };
    const double                values[SCALARS] = { [FIRST_LOSS] = r->progress.first_loss,
                                                    [HEAD_MEAN] = r->progress.so_far.mean,
                                                    [HEAD_DEVIATION] = r->progress.so_far.deviation,
                                                    [HEAD_COUNT] = (double)r->progress.so_far.n };
    for (int i = 0; i < SCALARS; i++) tm_checkpoint_add_scalar(&state, scalar_names[i], values[i]);
    snprintf(state.model, sizeof state.model, "%s", r->options->model_name);
    describe(r, &model);
    if (own_sums(r)) tm_text_printf(&model, "%s%s\n", sums_line, own_sums(r));
    TM_ASSERT(model.length < sizeof state.description);
    memcpy(state.description, model.data, model.length);
    tm_text_fini(&model);
    const tm_checkpoint_target target = { .world = run_world(r),
                                          .folder = r->options->checkpoint_folder,
                                          .keep_latest = r->options->checkpoint_keep,
                                          .behind = r->options->checkpoint_behind };
    TM_TRY(run_saved(r, err)); /* the one before */
    int64_t begin = tm_now_ns(), bytes = 0;
    TM_TRY(tm_checkpoint_begin(&target, &state, tensors, n, &r->saved.pending, err));
    for (size_t i = 0; i < n; i++) bytes += tensors[i].elsewhere ? 0 : (int64_t)tensors[i].bytes;
    TM_TRY(agree_sum(run_world(r), "bytes of a checkpoint", &bytes, 1, err));
    r->saved.step = step;
    r->saved.pending_saved = (tm_checkpoint_saved){ .step = step,
                                                    .path = r->options->checkpoint_folder,
                                                    .bytes = bytes,
                                                    .seconds = (double)(tm_now_ns() - begin) * 1e-9 };
    return r->options->checkpoint_behind ? TM_OK : run_saved(r, err);
}

tm_status run_saved(run *r, tm_error *err)
{
    tm_checkpoint_saving *saving = r->saved.pending;
    if (!saving) return TM_OK;
    int64_t begin = tm_now_ns();
    r->saved.pending = NULL;
    TM_TRY(tm_checkpoint_commit(saving, err));
    tm_event event = { .kind = TM_EVENT_CHECKPOINT, .checkpoint = r->saved.pending_saved };
    event.checkpoint.seconds += (double)(tm_now_ns() - begin) * 1e-9; /* that training was held up */
    tm_event_emit(r->bus, &event);
    return TM_OK;
}

tm_status run_resume(run *r, tm_error *err)
{
    const tm_run_options *o = r->options;
    if (!o->checkpoint || !o->checkpoint_folder) return TM_OK;
    int64_t present = run_rank(o) == 0 && tm_checkpoint_present(o->checkpoint_folder); /* as rank 0 sees it */
    TM_TRY(agree_max(run_world(r), "whether there is a checkpoint", &present, 1, err));
    if (o->checkpoint_load_step < 0 && !present) return TM_OK;
    size_t                      n;
    const tm_checkpoint_tensor *tensors = tm_trainer_tensors(r->trainer, &n);
    tm_checkpoint_state         state;
    tm_checkpoint_report        report = { 0 };
    TM_TRY(tm_checkpoint_load_together(run_world(r), o->checkpoint_folder, o->checkpoint_load_step, &state, tensors, n,
                                       &report, err));
    if (report.text[0]) tm_warn("%s", report.text);
    TM_TRY(run_take_state(r, &state, err));
    if (state.config_hash != o->config_hash)
        tm_note(
            "the configuration differs from the one that made the checkpoint%s%s: the run continues, but is not the "
            "same run",
            o->config_before == state.config_hash ? ", in " : "",
            o->config_before == state.config_hash ? o->config_changes : "");
    r->progress.first_step = state.step + 1;
    r->saved.step = state.step;
    r->progress.first_sample = state.samples_consumed;
    r->certified.consumed = state.samples_consumed;
    tm_note("resumed from step %lld in '%s'", (long long)state.step, o->checkpoint_folder);
    return TM_OK;
}
