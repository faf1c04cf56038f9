/* SPDX-License-Identifier: Apache-2.0 */
#include "train/run.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "base/log.h"
#include "device/ceilings.h"
#include "stats/sampling.h"
#include "system/validity.h"
#include "train/generate.h"
#include "train/trainer.h"
#include "train/turn.h"
#include "train/verdict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double sample_seconds = 20; /* at most, for the text at the end */

/* One run from its first step to its end. */
typedef struct {
    const tm_run_options *options;
    tm_device            *device;
    const tm_source      *source;
    const tm_event_bus   *bus;
    tm_trainer           *trainer;
    tm_loader            *loader;
    tm_ledger             ledger;
    tm_named_f64          phases[TM_LEDGER_LINES + 1];
    double               *step_seconds, *losses;
    int64_t              *step_end_ns;
    tm_validity          *validity;   /* samples of the machine, once the steps begin */
    tm_sampling          *sampling;   /* of step times; NULL: all steps are done */
    const char           *stopped;    /* why no more steps were done */
    tm_sample_summary     rate;       /* of all steps, and what disturbed the machine in them: once they are done */
    tm_validity_report    machine;
    int64_t               done;       /* steps of this process */
    int64_t               first_step; /* number of the first one */
    bool                  finite;
    double                validation, validation_error, first_loss, first_step_seconds;
    int64_t               evaluated_step; /* of `validation` */
    tm_loss_head          head; /* of the steps before this process */
    int64_t               saved_step;
    int64_t               begin_ns; /* of the step under way: the end of the one before */
    tm_turn              *turn;     /* NULL: the machine is this run's alone */
} run;

static int64_t global_batch(const tm_run_options *o)
{
    return o->step.micro_batch * o->step.accumulation;
}

/* --- evaluation --------------------------------------------------------------------------------------------------- */

/* Batches of one evaluation: what was asked for; else all of a text (at most 64 batches), or 32,768 tokens of an
 * endless source. */
static int64_t validation_batches(const run *r)
{
    const tm_source_facts *facts = tm_source_describe(r->source);
    int64_t                rows = r->options->step.micro_batch, most = INT64_MAX;
    if (facts->validation_samples != INT64_MAX) most = (facts->validation_samples + rows - 1) / rows;
    int64_t batches = r->options->validation_steps;
    if (batches < 0)
        batches = facts->validation_samples != INT64_MAX
                      ? 64
                      : (32768 + rows * r->options->step.seq - 1) / (rows * r->options->step.seq);
    return batches < most ? batches : most;
}

/* Was the data of the batch read? */
static tm_status check_batch(const tm_batch *batch, tm_error *err)
{
    return batch->error ? tm_fail(err, batch->error->status, "%s", batch->error->text) : TM_OK;
}

/* By the last evaluation; never while there was none. */
static bool target_reached(const run *r)
{
    double floor = tm_source_describe(r->source)->floor;
    if (r->validation <= r->options->target_loss) return true; /* never with a NaN */
    return r->options->stop_at_target && !isnan(floor) && r->validation <= floor + r->options->target_gap;
}

static tm_micro_batch micro_batch_of(const tm_batch *batch)
{
    tm_micro_batch fed = { .target_tokens = batch->target_tokens };
    for (int f = 0; f < TM_MAX_FIELDS; f++) fed.field[f] = batch->field[f];
    return fed;
}

static tm_status evaluate(run *r, int64_t step, tm_error *err)
{
    int64_t batches = r->options->validate ? validation_batches(r) : 0;
    if (batches == 0) return TM_OK;
    tm_event started = { .kind = TM_EVENT_EVALUATION_STARTED };
    started.evaluation_started = (tm_evaluation_started){ .step = step, .samples = step * global_batch(r->options) };
    tm_event_emit(r->bus, &started);
    int64_t    begin = tm_now_ns();
    tm_loader *loader = tm_loader_open(r->source, TM_SPLIT_VALIDATION, r->options->step.micro_batch, 0, 2);
    TM_ASSERT(loader);
    double    sum = 0, means = 0, squares = 0;
    int64_t   tokens = 0, counted = 0;
    tm_status st = TM_OK;
    for (int64_t i = 0; i < batches && st == TM_OK; i++) {
        tm_batch batch;
        tm_loader_next(loader, &batch);
        st = check_batch(&batch, err);
        if (st != TM_OK || batch.target_tokens == 0) continue; /* of a sequence without answer there is no loss */
        tm_micro_batch fed = micro_batch_of(&batch);
        double         nats = tm_trainer_evaluate(r->trainer, &fed);
        double mean = nats / (double)batch.target_tokens;
        sum += nats;
        means += mean;
        squares += mean * mean;
        tokens += batch.target_tokens;
        counted++;
    }
    tm_loader_close(loader);
    TM_TRY(st);
    r->validation = r->options->average_sequences ? means / (double)counted : sum / (double)tokens;
    double spread = squares / (double)counted - r->validation * r->validation;
    r->validation_error = counted > 1 && spread > 0 ? sqrt(spread / (double)(counted - 1)) : (double)NAN;
    double   bytes_per_token = tm_source_describe(r->source)->bytes_per_token;
    tm_event event = { .kind = TM_EVENT_EVALUATION };
    r->evaluated_step = step;
    event.evaluation = (tm_evaluation){ .step = step,
                                        .samples = started.evaluation_started.samples,
                                        .loss = r->validation,
                                        .bits_per_byte = r->validation / log(2) / bytes_per_token,
                                        .tokens = tokens,
                                        .seconds = (double)(tm_now_ns() - begin) * 1e-9,
                                        .last = target_reached(r) || r->stopped };
    tm_event_emit(r->bus, &event);
    return TM_OK;
}

/* --- checkpoints -------------------------------------------------------------------------------------------------- */

static tm_status save_checkpoint(run *r, int64_t step, tm_error *err)
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

/* Sets first_step and the loader's first sample from the newest valid checkpoint, if there is one. */
static tm_status resume(run *r, int64_t *first_sample, tm_error *err)
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

/* --- steps -------------------------------------------------------------------------------------------------------- */

static tm_status train_one_step(run *r, int64_t step, tm_step_result *result, int64_t *tokens, tm_error *err)
{
    const tm_run_options *o = r->options;
    tm_batch              batch;
    int64_t               begin = tm_now_ns();
    tm_ledger_add(&r->ledger, "logging", (double)(begin - r->begin_ns) * 1e-9);
    tm_loader_next(r->loader, &batch);
    TM_TRY(check_batch(&batch, err));
    *tokens = batch.target_tokens;
    double rate = o->learning_rate * tm_schedule_factor(&o->schedule, step - 1);
    tm_trainer_begin(r->trainer, step, rate, o->max_norm, batch.target_tokens);
    tm_ledger_add(&r->ledger, "data", (double)(tm_now_ns() - begin) * 1e-9);
    tm_micro_batch fed = micro_batch_of(&batch);
    tm_trainer_step(r->trainer, &fed, result, &r->ledger);
    return TM_OK;
}

static void report_step(run *r, int64_t step, const tm_step_result *result, int64_t tokens, double seconds)
{
    double accounted = 0;
    for (size_t i = 0; i < r->ledger.count; i++) {
        r->phases[i] = r->ledger.lines[i];
        accounted += r->ledger.lines[i].value;
    }
    r->phases[r->ledger.count] = (tm_named_f64){ "unaccounted", seconds - accounted };
    const tm_run_options *o = r->options;
    tm_event              event = { .kind = TM_EVENT_STEP_DONE };
    event.step_done = (tm_step_done){ .step = step,
                                      .loss = result->loss,
                                      .grad_norm = result->grad_norm,
                                      .learning_rate = o->learning_rate * tm_schedule_factor(&o->schedule, step - 1),
                                      .tokens = tokens,
                                      .seconds = seconds,
                                      .phases = r->phases,
                                      .n_phases = r->ledger.count + 1,
                                      .used_bytes = (int64_t)tm_trainer_step_of(r->trainer)->plan->arena_bytes,
                                      .resident_bytes = tm_resident_bytes() };
    tm_event_emit(r->bus, &event);
}

/* debug.slowdown_pct: spins for that share of the step's time so far. */
static void slow_down(run *r)
{
    if (!(r->options->slowdown_pct > 0)) return;
    int64_t begin = tm_now_ns();
    int64_t until = begin + (int64_t)((double)(begin - r->begin_ns) * r->options->slowdown_pct / 100);
    while (tm_now_ns() < until) {
    }
    tm_ledger_add(&r->ledger, "planted slowdown", (double)(tm_now_ns() - begin) * 1e-9);
}

/* A step's time runs from the end of the step before, so that reporting that one (the line "logging") is in it. */
static tm_status step_and_report(run *r, int64_t step, int64_t *tokens, tm_error *err)
{
    tm_step_result result;
    tm_ledger_reset(&r->ledger);
    TM_TRY(train_one_step(r, step, &result, tokens, err));
    slow_down(r);
    int64_t end = tm_now_ns();
    double  seconds = (double)(end - r->begin_ns) * 1e-9;
    r->begin_ns = end;
    if (r->done == 0) r->first_step_seconds = (double)tm_process_age_ns() * 1e-9;
    if (step == 1) r->first_loss = result.loss;
    r->step_seconds[r->done] = seconds;
    r->step_end_ns[r->done] = end;
    r->losses[r->done] = result.loss;
    r->done++;
    r->finite = r->finite && isfinite(result.loss) && isfinite(result.grad_norm);
    report_step(r, step, &result, *tokens, seconds);
    tm_validity_sample(r->validity);
    return TM_OK;
}

/* Ends the turn if it is over, and waits for the next one: that time belongs to no step. */
static tm_status take_turns(run *r, int64_t step, int64_t tokens, const volatile sig_atomic_t *stop, tm_error *err)
{
    bool waited = false;
    if (r->turn) TM_TRY(tm_turn_step(r->turn, step, r->step_seconds[r->done - 1], tokens, stop, &waited, err));
    if (waited) r->begin_ns = tm_now_ns();
    return TM_OK;
}

/* With a target for the interval: are the steps so far precise enough? */
static bool precise(run *r)
{
    if (!r->sampling) return false;
    double tokens = (double)(global_batch(r->options) * r->options->step.seq);
    bool   enough = tm_sampling_add(r->sampling, r->step_seconds[r->done - 1], tokens) == TM_STOP_PRECISE;
    r->begin_ns = tm_now_ns(); /* looking is not part of a step */
    return enough;
}

/* Why this step is the last one; NULL if it is not. */
static const char *reason_to_stop(run *r, int64_t step, const volatile sig_atomic_t *stop)
{
    if (step == r->options->steps) return "all steps done";
    if (*stop) return "interrupted";
    if (!r->finite) return "a loss or gradient norm is not finite";
    return precise(r) ? tm_stop_text(TM_STOP_PRECISE) : NULL;
}

static tm_status train(run *r, const volatile sig_atomic_t *stop, tm_error *err)
{
    const tm_run_options *o = r->options;
    if (r->turn) TM_TRY(tm_turn_begin(r->turn, stop, err));
    r->begin_ns = tm_now_ns();
    for (int64_t step = r->first_step; step <= o->steps; step++) {
        int64_t tokens;
        TM_TRY(step_and_report(r, step, &tokens, err));
        TM_TRY(take_turns(r, step, tokens, stop, err));
        r->stopped = reason_to_stop(r, step, stop);
        if (r->stopped) break;
        bool evaluates = o->validation_freq > 0 && step % o->validation_freq == 0 && step >= o->validation_first;
        bool saves = o->checkpoint && o->checkpoint_folder && step % o->checkpoint_interval == 0;
        if (evaluates) TM_TRY(evaluate(r, step, err));
        if (evaluates && target_reached(r)) {
            r->stopped = "target loss reached";
            break;
        }
        if (saves) TM_TRY(save_checkpoint(r, step, err));
        if (evaluates || saves) r->begin_ns = tm_now_ns(); /* neither is part of a step */
    }
    return TM_OK;
}

/* --- begin and end ------------------------------------------------------------------------------------------------ */

static tm_recipe recipe_of(const run *r)
{
    const tm_run_options *o = r->options;
    int64_t               held_out = tm_source_describe(r->source)->validation_samples;
    int64_t               evaluated = o->validate ? validation_batches(r) * o->step.micro_batch : 0;
    return (tm_recipe){
        .optimizer = o->step.optimizer->log_name,
        .schedule = tm_schedule_words(&o->schedule),
        .global_batch = global_batch(o),
        .accumulation = o->step.accumulation,
        .sequence_length = o->step.seq,
        .eval_samples = evaluated < held_out ? evaluated : held_out, /* the last batch may be filled up */
        .warmup_steps = o->schedule.warmup_steps,
        .decay_steps = tm_schedule_decay_steps(&o->schedule),
        .learning_rate = o->learning_rate,
        .end_learning_rate = o->learning_rate * o->schedule.min_lr_factor,
        .beta1 = o->step.hyper.beta1,
        .beta2 = o->step.hyper.beta2,
        .eps = o->step.hyper.eps,
        .weight_decay = o->step.hyper.weight_decay,
        .max_norm = o->max_norm > 0 ? o->max_norm : (double)INFINITY,
    };
}

static void announce(run *r)
{
    const tm_run_options *o = r->options;
    const tm_plan        *plan = tm_trainer_step_of(r->trainer)->plan;
    const tm_device_info *info = tm_device_describe(r->device);
    tm_named_f64          flops[TM_FLOPS_COUNT];
    for (int i = 0; i < TM_FLOPS_COUNT; i++)
        flops[i] = (tm_named_f64){ tm_flops_convention_name((tm_flops_convention)i),
                                   tm_model_flops_per_token(&o->step.shape, (tm_flops_convention)i, o->step.seq) };
    tm_event event = { .kind = TM_EVENT_RUN_STARTED };
    event.run_started = (tm_run_started){
        .model = o->model_name,
        .precision = o->step.precision->name,
        .device = info->name,
        .data_source = o->source.name,
        .parameters = tm_model_parameters(&o->step.shape),
        .steps = o->steps,
        .first_step = r->first_step,
        .batch_tokens = global_batch(o) * o->step.seq,
        .devices = 1,
        .threads = info->threads,
        .seed = o->seed,
        .loss_floor = tm_source_describe(r->source)->floor,
        .peak_flops = info->peak_flops,
        .flops_per_token = flops,
        .n_flops_per_token = TM_FLOPS_COUNT,
        .memory = plan->by_class,
        .n_memory = plan->n_classes,
        .planned_bytes = (int64_t)plan->arena_bytes,
        .memory_limit_bytes = tm_memory_total_bytes(""),
        .recipe = recipe_of(r),
    };
    tm_event_emit(r->bus, &event);
}

/* The peak of this run's number format: of all threads of the device together, or of one times their number, which a
 * busy machine shows, too. */
static tm_peaks measured_peaks(const run *r, bool alone)
{
    tm_ceilings ceilings;
    tm_device_arithmetic(r->device, alone ? 1 : 0, 0.05, &ceilings);
    tm_peaks peaks = tm_ceilings_peaks(&ceilings, r->options->step.precision->compute);
    if (alone) peaks.flops *= tm_device_describe(r->device)->threads;
    return peaks;
}

/* Can a step that computes so much take so little? With a peak that is given, or measured: at the end, where it can be
 * repeated, because in a busy moment it comes out too low. */
static tm_status check_step(const run *r, double flops, double seconds, tm_error *err)
{
    enum { TRIES = 8 };
    const char *what = "the fastest step";
    tm_peaks    peaks = r->options->peaks;
    bool        judged = r->first_step - 1 + r->done >= TM_JUDGED_STEPS;
    if (peaks.flops > 0) return tm_guard_seconds(&peaks, flops, 0, seconds, what, err);
    if (!judged || strcmp(tm_device_describe(r->device)->name, "null") == 0) return TM_OK;
    for (int i = 0; i < TRIES; i++) {
        peaks = measured_peaks(r, i >= TRIES / 2);
        if (tm_guard_seconds(&peaks, flops, 0, seconds, what, NULL) == TM_OK) return TM_OK;
    }
    return tm_guard_seconds(&peaks, flops, 0, seconds, what, err);
}

/* The program's own count of FLOPs against the device's peak, for the fastest step. */
static tm_status check_physics(const run *r, tm_error *err)
{
    const tm_step *step = tm_trainer_step_of(r->trainer);
    double         flops = tm_schedule_flops(&step->training), least = r->step_seconds[0];
    for (int64_t i = 1; i < r->done; i++) least = fmin(least, r->step_seconds[i]);
    return check_step(r, flops, least, err);
}

/* The steps are done: sums them up, and the samples of the machine since the end of the warm-up. */
static void stop_watching(run *r)
{
    double per_step = (double)(global_batch(r->options) * r->options->step.seq);
    r->rate = tm_stats_summarize(r->step_seconds, NULL, per_step, r->done);
    tm_validity_stop(r->validity, r->rate.warmup > 0 ? r->step_end_ns[r->rate.warmup - 1] : 0, &r->machine);
}

static tm_verdict conclude(run *r, bool interrupted, tm_run_ended *ended, char reason[256])
{
    const tm_source_facts *facts = tm_source_describe(r->source);
    tm_error               impossible = { 0 };
    bool                   possible = check_physics(r, &impossible) == TM_OK;
    tm_evidence            evidence = { .source = r->options->source.name,
                                        .losses = r->losses,
                                        .n_losses = r->done,
                                        .total_steps = r->first_step - 1 + r->done,
                                        .finite = r->finite,
                                        .validation = r->validation,
                                        .validation_error = r->validation_error,
                                        .floor = facts->floor,
                                        .unigram_entropy = facts->unigram_entropy,
                                        .target_gap = r->options->target_gap,
                                        .must_reach_target = r->options->stop_at_target,
                                        .step_variation = r->rate.variation,
                                        .steady = &r->rate.steady,
                                        .machine = r->machine.verdict,
                                        .machine_reason = r->machine.reason,
                                        .impossible = possible ? NULL : impossible.text,
                                        .head = r->head,
                                        .interrupted = interrupted,
                                        .slowdown_pct = r->options->slowdown_pct };
    tm_verdict             verdict = tm_verdict_of(&evidence, reason);
    const tm_plan         *plan = tm_trainer_step_of(r->trainer)->plan;
    int64_t        used = tm_device_used_bytes(r->device, tm_trainer_arena(r->trainer), plan->arena_bytes);
    *ended = (tm_run_ended){
        .verdict = verdict,
        .reason = reason,
        .stopped = r->stopped,
        .machine = { .verdict = r->machine.verdict,
                     .reason = r->machine.reason,
                     .seconds = r->machine.seconds,
                     .samples = r->machine.samples,
                     .processors = r->machine.processors,
                     .facts = r->machine.facts,
                     .n_facts = TM_MACHINE_COUNT },
        .steps = r->done,
        .samples = (r->first_step - 1 + r->done) * global_batch(r->options),
        .warmup_steps = r->rate.warmup,
        .tokens_per_second_median = r->rate.median_rate,
        .tokens_per_second_lo = r->rate.median_rate_lo,
        .tokens_per_second_hi = r->rate.median_rate_hi,
        .tokens_per_second_n = r->rate.n,
        .loss_first = r->first_loss,
        .loss_last = r->done ? r->losses[r->done - 1] : (double)NAN,
        .loss_validation = r->validation,
        .loss_floor = facts->floor,
        .bits_per_byte = r->validation / log(2) / facts->bytes_per_token,
        .planned_bytes = (int64_t)plan->arena_bytes,
        .used_bytes = used,
        .outside_arena_bytes = tm_resident_anonymous_bytes() - used,
        .weights_hash = tm_trainer_weights_hash(r->trainer),
        .step_seconds = r->step_seconds,
        .first_step_seconds = r->first_step_seconds,
        .seconds = (double)tm_process_age_ns() * 1e-9,
    };
    return verdict;
}

static tm_status finish(run *r, const volatile sig_atomic_t *stop, tm_error *err)
{
    const tm_run_options *o = r->options;
    int64_t               step = r->first_step - 1 + r->done;
    bool                  interrupted = *stop && step < o->steps;
    stop_watching(r);
    if (r->finite && !interrupted && r->evaluated_step != step) TM_TRY(evaluate(r, step, err));
    if (r->finite && o->checkpoint_folder && (o->checkpoint || interrupted) && r->saved_step != step && r->done > 0)
        TM_TRY(save_checkpoint(r, step, err));
    char         reason[256];
    tm_run_ended ended;
    tm_verdict   verdict = conclude(r, interrupted, &ended, reason);
    tm_text      sample = { 0 };
    if (o->step.sample && r->finite && !interrupted)
        ended.sample = tm_generate(r->trainer, r->source, o->seed, o->sample_tokens, sample_seconds, &sample);
    tm_event event = { .kind = TM_EVENT_RUN_ENDED };
    event.run_ended = ended;
    tm_event_emit(r->bus, &event);
    tm_text_fini(&sample);
    if (verdict == TM_VERDICT_INVALID) return tm_fail(err, TM_NUMBERS, "%s", reason);
    if (interrupted)
        return tm_fail(err, TM_INTERRUPTED, "stopped after step %lld of %lld", (long long)step, (long long)o->steps);
    return TM_OK;
}

static tm_status run_with_trainer(run *r, const volatile sig_atomic_t *stop, tm_error *err)
{
    int64_t first_sample = 0;
    TM_TRY(resume(r, &first_sample, err));
    if (r->first_step > r->options->steps) {
        tm_note("nothing to do: the checkpoint is at step %lld, training.steps is %lld", (long long)r->first_step - 1,
                (long long)r->options->steps);
        return TM_OK;
    }
    size_t room = (size_t)(r->options->steps - r->first_step + 1);
    r->step_seconds = tm_alloc(room * sizeof *r->step_seconds);
    r->losses = tm_alloc(room * sizeof *r->losses);
    r->step_end_ns = tm_alloc(room * sizeof *r->step_end_ns);
    if (r->options->target_half_width > 0)
        r->sampling = tm_sampling_create(&(tm_sampling_options){ .half_width = r->options->target_half_width,
                                                                 .min_samples = TM_JUDGED_STEPS });
    if (r->options->slowdown_pct > 0)
        tm_warn("every step is slowed down by %g %% on purpose (debug.slowdown_pct): its times are no result",
                r->options->slowdown_pct);
    if (r->options->turn_fd) TM_TRY(tm_turn_open(r->options->turn_fd, &r->turn, err));
    announce(r); /* before any training data is touched: whoever keeps the time starts the clock here */
    r->loader = tm_loader_open(r->source, TM_SPLIT_TRAIN, global_batch(r->options), first_sample, r->options->prefetch);
    if (!r->loader) return tm_fail(err, TM_INTERNAL, "cannot start the thread that fetches data");
    r->validity = tm_validity_start("");
    tm_status st = train(r, stop, err);
    if (st == TM_OK) st = finish(r, stop, err);
    return st;
}

tm_status tm_run(const tm_run_options *options, tm_device *device, const tm_source *source, const tm_event_bus *bus,
                 const volatile sig_atomic_t *stop, tm_error *err)
{
    run r = { .options = options, .device = device, .source = source, .bus = bus, .first_step = 1, .finite = true,
              .validation = (double)NAN, .validation_error = (double)NAN, .first_loss = (double)NAN, .saved_step = -1 };
    TM_TRY(tm_trainer_open(device, &options->step, options->seed, &r.trainer, err));
    tm_status st = run_with_trainer(&r, stop, err);
    tm_turn_close(r.turn);
    tm_loader_close(r.loader);
    tm_trainer_close(r.trainer);
    free(r.step_seconds);
    free(r.losses);
    free(r.step_end_ns);
    tm_validity_destroy(r.validity);
    tm_sampling_destroy(r.sampling);
    return st;
}
