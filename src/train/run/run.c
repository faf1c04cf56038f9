/* SPDX-License-Identifier: Apache-2.0 */
/* train/run/run.c - the story of a run. Its chapters: resume.c, announcement.c, loop.c (evaluation.c), conclusion.c. */
#include "train/run/run_state.h"

#include "base/log.h"
#include "train/parallel/agree.h"

#include <math.h>
#include <stdlib.h>

/* The first weights: by the seed, of a model's directory, or of a checkpoint. */
static tm_status begin_with_weights(run *r, tm_error *err)
{
    bool adapters = r->options->step.adapters.rank > 0;            /* checkpoints lack what they stand beside */
    bool first = adapters || r->options->step.preference.beta > 0; /* the weights that the run began with are of use */
    if (r->options->load_weights && first) TM_TRY(r->options->load_weights(r->options->load_context, r->trainer, err));
    if (adapters) TM_TRY(tm_trainer_base_hash(r->trainer, &r->certified.base, err));
    TM_TRY(run_reference(r, err));
    TM_TRY(run_resume(r, err));
    bool resumed = r->saved.step >= 0;
    if (r->options->load_weights && !resumed && !first)
        TM_TRY(r->options->load_weights(r->options->load_context, r->trainer, err));
    return TM_OK;
}

/* Averages begin with the first weights; those of a checkpoint go on. */
static tm_status begin_averages(run *r, tm_error *err)
{
    const tm_program *average = tm_trainer_step_of(r->trainer)->average;
    return average && r->saved.step < 0 ? tm_trainer_run(r->trainer, average, err) : TM_OK;
}

tm_status run_begin(run *r, tm_error *err)
{
    TM_TRY(agree_status(run_world(r), "beginning a run", begin_with_weights(r, err), err));
    return begin_averages(r, err);
}

/* A GPU's clock, power and temperature are sampled beside the machine. */
static void watch_gpu(run *r)
{
    tm_text why = { 0 };
    r->timing.gpu = tm_device_sensors(r->device, &why);
    if (r->timing.gpu) tm_validity_watch(r->timing.validity, r->timing.gpu);
    if (why.length) tm_note("clock, power and temperature of the GPU are unknown: %s", why.data);
    tm_text_fini(&why);
}

static tm_status run_with_trainer(run *r, const volatile sig_atomic_t *stop, tm_error *err)
{
    TM_TRY(run_check_same(r, err));
    TM_TRY(run_begin(r, err));
    bool trained = r->progress.first_step > r->options->steps;
    if (trained)
        tm_note("%s: the checkpoint is at step %lld, training.steps is %lld",
                r->options->concluded ? "nothing to do" : "all steps were done before, only the result is missing",
                (long long)r->progress.first_step - 1, (long long)r->options->steps);
    if (trained && r->options->concluded) return TM_OK;
    if (r->options->target_half_width > 0)
        r->timing.sampling = tm_sampling_create(
            &(tm_sampling_options){ .half_width = r->options->target_half_width, .min_samples = TM_JUDGED_STEPS });
    if (r->options->slowdown_pct > 0)
        tm_warn("every step is slowed down by %g %% on purpose (debug.slowdown_pct): its times are not a result",
                r->options->slowdown_pct);
    if (r->options->turn_fd && run_world(r))
        return tm_fail(err, TM_UNSUPPORTED, "a run of several ranks takes no turns; unset " TM_TURN_VARIABLE);
    if (r->options->turn_fd) TM_TRY(tm_turn_open(r->options->turn_fd, &r->turn, err));
    run_announce(r); /* before any training data is touched: whoever keeps the time starts the clock here */
    TM_TRY(tm_event_failure(r->bus, err));
    r->loader = tm_loader_open_part(r->source, TM_SPLIT_TRAIN, run_global_batch(r->options), run_part(r->options),
                                    r->progress.first_sample, r->options->prefetch);
    if (!r->loader) return tm_fail(err, TM_INTERNAL, "cannot start the thread that reads data");
    if (!trained) TM_TRY(run_remember(r, err));
    if (!trained) run_replay_open(r);
    r->timing.validity = tm_validity_start("");
    watch_gpu(r);
    run_stragglers_open(r);
    tm_status st = run_train(r, stop, err);
    if (st == TM_OK) st = run_finish(r, stop, err);
    return st;
}

/* The held-out sequences, where they have another length. */
static tm_status open_held_out(run *r, tm_source **own, tm_error *err)
{
    const tm_step_options *step = &r->options->step;
    tm_source_options      options = r->options->source;
    r->held_out = r->source;
    if (step->validation_batch == 0 || step->validation_seq == step->seq) return TM_OK;
    options.seq = step->validation_seq;
    TM_TRY(tm_source_open(&options, own, err));
    r->held_out = *own;
    return TM_OK;
}

run run_new(const tm_run_options *options, tm_device *device, const tm_source *source, const tm_event_bus *bus)
{
    return (run){ .options = options,
                  .device = device,
                  .source = source,
                  .bus = bus,
                  .progress = { .first_step = 1, .finite = true, .first_loss = (double)NAN },
                  .evaluation = { .loss = (double)NAN, .error = (double)NAN },
                  .saved = { .step = -1 } };
}

tm_status tm_run(const tm_run_options *options, tm_device *device, const tm_source *source, const tm_event_bus *bus,
                 const volatile sig_atomic_t *stop, tm_error *err)
{
    run        r = run_new(options, device, source, bus);
    tm_source *own = NULL;
    r.stop = stop;
    TM_TRY(open_held_out(&r, &own, err));
    tm_step_options step = run_step_options(&r);
    tm_status       st = tm_trainer_open(device, &step, options->seed, &r.trainer, err);
    if (st == TM_OK) st = run_with_trainer(&r, stop, err);
    tm_turn_close(r.turn);
    tm_checkpoint_abandon(r.saved.pending);
    tm_loader_close(r.loader);
    tm_replay_destroy(r.replay.of);
    tm_trainer_close(r.trainer);
    free(r.timing.step_seconds);
    free(r.progress.losses);
    free(r.timing.step_end_ns);
    free(r.timing.busy_seconds);
    free(r.certified.hashes);
    free(r.certified.fed);
    free(r.evaluation.fed);
    tm_update_free(r.certified.watched);
    tm_validity_destroy(r.timing.validity);
    tm_gpu_sensors_close(r.timing.gpu);
    tm_sampling_destroy(r.timing.sampling);
    free(r.nonfinite.states);
    tm_looked_fini(&r.microscope.look);
    free(r.microscope.factors);
    free(r.microscope.factor_record);
    run_stragglers_close(&r);
    tm_source_close(own);
    return st;
}

tm_status tm_run_evaluate(const tm_run_options *options, tm_device *device, const tm_source *source,
                          const volatile sig_atomic_t *stop, tm_run_evaluation *found, tm_error *err)
{
    tm_event_bus nobody = { 0 };
    run          r = run_new(options, device, source, &nobody);
    tm_source   *own = NULL;
    r.stop = stop;
    r.evaluates_only = true;
    *found = (tm_run_evaluation){ .loss = (double)NAN };
    TM_TRY(open_held_out(&r, &own, err));
    tm_status st = tm_trainer_open(device, &options->step, options->seed, &r.trainer, err);
    if (st == TM_OK) st = begin_with_weights(&r, err);
    if (st == TM_OK) st = run_evaluate(&r, r.progress.first_step - 1, err);
    if (st == TM_OK && r.evaluation.cut) st = tm_fail(err, TM_INTERRUPTED, "stopped by a signal");
    if (st == TM_OK && r.evaluation.targets == 0)
        st = tm_fail(err, TM_INVALID,
                     "data.source %s holds out nothing that could be evaluated; see data.validation_fraction, "
                     "data.validation_path and validation.enable",
                     options->source.name);
    if (st == TM_OK)
        *found = (tm_run_evaluation){ .loss = r.evaluation.loss,
                                      .error = r.evaluation.error,
                                      .bits_per_byte = run_bits_per_byte(&r),
                                      .targets = r.evaluation.targets };
    tm_trainer_close(r.trainer);
    tm_source_close(own);
    return st;
}
