/* SPDX-License-Identifier: Apache-2.0 */
/* train/resume.c - a run into a checkpoint and out of it. */
#include "train/run_state.h"

#include "base/clock.h"
#include "base/log.h"
#include "train/checkpoint.h"

#include <string.h>

tm_status run_save(run *r, int64_t step, tm_error *err)
{
    size_t                      n;
    const tm_checkpoint_tensor *tensors = tm_trainer_tensors(r->trainer, &n);
    tm_loss_head                head = r->head.n > 0 ? r->head : tm_loss_head_of(r->losses, r->done);
    tm_checkpoint_state         state = { .step = step,
                                          .samples_consumed = tm_loader_consumed(r->loader),
                                          .seed = r->options->seed,
                                          .config_hash = r->options->config_hash,
                                          .trainer_scalars = { r->first_loss, head.mean, head.deviation, (double)head.n } };
    strncpy(state.model, r->options->model_name, sizeof state.model - 1);
    int64_t begin = tm_now_ns();
    TM_TRY(tm_checkpoint_save(r->options->checkpoint_folder, &state, tensors, n, r->options->checkpoint_keep, err));
    r->saved_step = step;
    tm_event event = { .kind = TM_EVENT_CHECKPOINT };
    event.checkpoint = (tm_checkpoint_saved){ .step = step,
                                              .path = r->options->checkpoint_folder,
                                              .seconds = (double)(tm_now_ns() - begin) * 1e-9 };
    for (size_t i = 0; i < n; i++) event.checkpoint.bytes += (int64_t)tensors[i].bytes;
    tm_event_emit(r->bus, &event);
    return TM_OK;
}

tm_status run_resume(run *r, int64_t *first_sample, tm_error *err)
{
    const tm_run_options *o = r->options;
    if (!o->checkpoint || !o->checkpoint_folder) return TM_OK;
    if (o->checkpoint_load_step < 0 && !tm_checkpoint_present(o->checkpoint_folder)) return TM_OK;
    size_t                      n;
    const tm_checkpoint_tensor *tensors = tm_trainer_tensors(r->trainer, &n);
    tm_checkpoint_state         state;
    tm_checkpoint_report        report = { 0 };
    TM_TRY(tm_checkpoint_load_newest(o->checkpoint_folder, o->checkpoint_load_step, &state, tensors, n, &report, err));
    if (report.text[0]) tm_warn("%s", report.text);
    if (state.seed != o->seed)
        return tm_fail(err, TM_INVALID,
                       "the checkpoint in '%s' was made with debug.seed %llu, this run has %llu; give the same seed or "
                       "another checkpoint.folder",
                       o->checkpoint_folder, (unsigned long long)state.seed, (unsigned long long)o->seed);
    if (state.config_hash != o->config_hash)
        tm_note("the configuration differs from the one that made the checkpoint: the run continues, but is not the "
                "same run");
    r->first_step = state.step + 1;
    r->first_loss = state.trainer_scalars[0];
    r->head = (tm_loss_head){ .mean = state.trainer_scalars[1], .deviation = state.trainer_scalars[2], .n = (int64_t)state.trainer_scalars[3] };
    r->saved_step = state.step;
    *first_sample = state.samples_consumed;
    tm_note("resumed from step %lld in '%s'", (long long)state.step, o->checkpoint_folder);
    return TM_OK;
}
