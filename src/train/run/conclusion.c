/* SPDX-License-Identifier: Apache-2.0 */
/* train/run/conclusion.c - the end of a run: summed up, checked against what the machine can do, judged, told. */
#include "train/run/run_state.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "device/ceilings.h"
#include "train/parallel/agree.h"
#include "train/generate/generate.h"
#include "train/trainer/preference.h"

#include <math.h>
#include <stdlib.h>

static const double sample_seconds = 20; /* at most, for the text at the end */

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
    bool        judged = r->progress.first_step - 1 + r->progress.done >= TM_JUDGED_STEPS;
    if (peaks.flops > 0) return tm_guard_seconds(&peaks, flops, 0, seconds, what, err);
    if (!judged || !tm_device_describe(r->device)->computes) return TM_OK;
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
    if (r->progress.done == 0) return TM_OK;
    double flops = tm_schedule_flops(&step->training), least = r->timing.step_seconds[0];
    for (int64_t i = 1; i < r->progress.done; i++) least = fmin(least, r->timing.step_seconds[i]);
    return check_step(r, flops, least, err);
}

/* The steps are done: sums them up, and the samples of the machine since the end of the warm-up. */
static void stop_watching(run *r)
{
    double per_step = (double)(run_global_batch(r->options) * r->options->step.seq) / run_ranks(r->options);
    r->timing.speed = tm_stats_summarize(r->timing.step_seconds, NULL, per_step, r->progress.done);
    int64_t from_ns =
        r->timing.speed.warmup > 0 ? r->timing.step_end_ns[r->timing.speed.warmup - 1] : r->certified.done_ns;
    tm_validity_stop(r->timing.validity, from_ns, &r->timing.machine);
}

/* What the verdict is by. `impossible`: tm_evidence.impossible. */
static tm_evidence gather(const run *r, bool interrupted, const char *impossible)
{
    const tm_source_facts  *facts = tm_source_describe(r->source), *held_out = tm_source_describe(r->held_out);
    const tm_source_traits *traits = tm_source_traits_of(r->options->source.name);
    return (tm_evidence){ .gate = traits->gate,
                          .losses = r->progress.losses,
                          .n_losses = r->progress.done,
                          .total_steps = r->progress.first_step - 1 + r->progress.done,
                          .finite = r->progress.finite,
                          .nonfinite = r->nonfinite.any ? r->nonfinite.place : NULL,
                          .validation = r->evaluation.loss,
                          .validation_error = r->evaluation.error,
                          .floor = facts->floor,
                          .validation_floor = held_out->validation_floor,
                          .images = traits->images,
                          .unigram_entropy = held_out->unigram_entropy,
                          .compressed = run_compressed(r),
                          .target_gap = r->options->target_gap,
                          .must_reach_target = r->options->stop_at_target,
                          .first_loss = r->progress.first_loss,
                          .start =
                              r->certified.reference ? tm_preference_start(&r->options->step.preference) : (double)NAN,
                          .step_variation = r->timing.speed.variation,
                          .steady = &r->timing.speed.steady,
                          .machine = r->timing.machine.verdict,
                          .machine_reason = r->timing.machine.reason,
                          .impossible = impossible,
                          .not_training = r->certified.not_training[0] ? r->certified.not_training : NULL,
                          .unrepeatable = r->replay.reason[0] ? r->replay.reason : NULL,
                          .unproven = run_is_unproven(r),
                          .head = r->progress.before,
                          .interrupted = interrupted,
                          .slowdown_pct = r->options->slowdown_pct };
}

/* `evidence` and `reason` are pointed to. */
static tm_run_ended sum_up(const run *r, const tm_evidence *evidence, uint64_t weights_hash,
                           char reason[TM_REASON_BYTES])
{
    const tm_source_facts *held_out = tm_source_describe(r->held_out);
    const tm_plan         *plan = tm_trainer_step_of(r->trainer)->plan;
    int64_t                used = tm_device_used_bytes(r->device, tm_trainer_arena(r->trainer), plan->arena_bytes);
    tm_device_beside       beside = tm_device_look_beside(r->device);
    return (tm_run_ended){
        .verdict = tm_verdict_of(evidence, reason),
        .reason = reason,
        .stopped = r->progress.stopped,
        .interrupted = evidence->interrupted,
        .machine = { .verdict = r->timing.machine.verdict,
                     .reason = r->timing.machine.reason,
                     .seconds = r->timing.machine.seconds,
                     .samples = r->timing.machine.samples,
                     .processors = r->timing.machine.processors,
                     .facts = r->timing.machine.facts,
                     .n_facts = (size_t)r->timing.machine.n_facts },
        .steps = r->progress.done,
        .samples = run_samples(r),
        .speed = &r->timing.speed,
        .evidence = evidence,
        .image_tokens = tm_model_length(&r->options->step.shape),
        .loss_first = r->progress.first_loss,
        .loss_last = r->progress.done ? r->progress.losses[r->progress.done - 1] : (double)NAN,
        .loss_validation = r->evaluation.loss,
        .loss_floor = held_out->validation_floor,
        .bits_per_byte = run_bits_per_byte(r),
        .measures = r->evaluation.measures,
        .n_measures = r->evaluation.n_measures,
        .planned_bytes = (int64_t)plan->arena_bytes,
        .used_bytes = used,
        .disk_bytes = (int64_t)plan->spaces[TM_SPACE_DISK].arena_bytes,
        .outside_arena_bytes = tm_resident_anonymous_bytes() - (used - tm_device_shared_bytes(r->device)),
        .pinned_bytes = beside.pinned,
        .device_other_bytes = beside.in_use < 0 ? -1 : beside.in_use - used,
        .weights_hash = weights_hash,
        .certificate = r->certified.first,
        .certificate_after = r->certified.after,
        .data = r->certified.data,
        .update = r->certified.update,
        .curve = r->certified.curve,
        .nonfinite = r->nonfinite.any ? &r->nonfinite.found : NULL,

        .replay = run_replay_told(r),
        .step_seconds = r->timing.step_seconds,
        .first_step_seconds = r->timing.first_step_seconds,
        .seconds = (double)tm_process_age_ns() * 1e-9,
    };
}

tm_status run_finish(run *r, const volatile sig_atomic_t *stop, tm_error *err)
{
    const tm_run_options *o = r->options;
    int64_t               step = r->progress.first_step - 1 + r->progress.done, told_to_stop = *stop != 0;
    TM_TRY(agree_max(run_world(r), "whether the run was stopped", &told_to_stop, 1, err));
    bool interrupted = told_to_stop && step < o->steps;
    stop_watching(r);
    if (r->progress.finite && !interrupted && r->evaluation.step != step) TM_TRY(run_evaluate(r, step, err));
    interrupted = interrupted || r->evaluation.cut;
    bool wanted = interrupted || (o->checkpoint && !o->checkpoint_not_last);
    if (r->progress.finite && o->checkpoint_folder && wanted && r->saved.step != step) TM_TRY(run_save(r, step, err));
    TM_TRY(run_saved(r, err));
    char         reason[TM_REASON_BYTES], *decoded = NULL;
    uint64_t     hash;
    tm_run_ended ended;
    tm_text      sample = { 0 };
    tm_status    st = TM_OK;
    TM_TRY(run_check_proof(r, &hash, err));
    tm_error      why = { 0 };
    bool          possible = check_physics(r, &why) == TM_OK;
    tm_evidence   evidence = gather(r, interrupted, possible ? NULL : why.text);
    tm_rank_told *ranks = tm_alloc((size_t)run_ranks(o) * sizeof *ranks);
    ended = sum_up(r, &evidence, hash, reason);
    ended.ranks = ranks;
    ended.n_stragglers = run_stragglers_found(r);
    ended.stragglers = r->stragglers.named;
    st = run_compare_ranks(r, ranks, &ended.n_ranks, err);
    if (st == TM_OK && o->step.sample && !tm_model_images(&o->step.shape) && r->progress.finite && !interrupted)
        st = tm_generate(r->trainer, r->source, o->seed, o->sample_tokens, sample_seconds, &sample, &decoded, err);
    if (st != TM_OK) {
        tm_text_fini(&sample);
        free(ranks);
        return st;
    }
    ended.sample = decoded;
    tm_event event = { .kind = TM_EVENT_RUN_ENDED };
    event.run_ended = ended;
    tm_event_emit(r->bus, &event);
    tm_text_fini(&sample);
    free(ranks);
    if (ended.verdict == TM_VERDICT_INVALID && run_rank(o) == 0) st = tm_fail(err, TM_NUMBERS, "%s", reason);
    TM_TRY(agree_status(run_world(r), "the verdict", st, err)); /* that of rank 0, which has seen all */
    if (interrupted && step == o->steps)
        return tm_fail(err, TM_INTERRUPTED, "stopped in the validation after the last step, %lld", (long long)step);
    if (interrupted)
        return tm_fail(err, TM_INTERRUPTED, "stopped after step %lld of %lld", (long long)step, (long long)o->steps);
    return TM_OK;
}
