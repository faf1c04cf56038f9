/* SPDX-License-Identifier: Apache-2.0 */
/* train/run/loop.c - the steps of a run: each timed, told and watched, until there is a reason to stop. */
#include "train/run/run_state.h"

#include "base/clock.h"
#include "base/cpu.h"

#include "train/parallel/agree.h"

#include <math.h>
#include <string.h>

/* Between gradients and update: computed twice, certified, an element's update foretold, what is not finite named. */
static tm_status look_at_gradients(run *r, int64_t step, const tm_micro_batch *fed, tm_error *err)
{
    TM_TRY(run_replay(r, step, fed, err));
    if (r->progress.done == 0) TM_TRY(run_certify(r, fed, err));
    TM_TRY(run_watch_update(r, step, err));
    return run_locate(r, step, fed, err);
}

static tm_status look_at_update(run *r, const tm_step_result *result, tm_error *err)
{
    TM_TRY(run_judge_update(r, result, err));
    if (r->progress.done == 0) run_check_loss(r, result);
    return TM_OK;
}

/* *targets: of all ranks, which the loss counts. */
static tm_status train_one_step(run *r, int64_t step, tm_step_result *result, int64_t *targets, tm_error *err)
{
    const tm_run_options *o = r->options;
    tm_batch              batch;
    int64_t               begin = tm_now_ns(), waited;
    tm_ledger_add(&r->timing.ledger, "logging", (double)(begin - r->timing.begin_ns - r->timing.between_ns) * 1e-9);
    tm_loader_next(r->loader, &batch);
    TM_TRY(run_all_targets(r, run_check_batch(&batch, err), batch.target_tokens, targets, &waited, err));
    if (run_world(r)) tm_ledger_add(&r->timing.ledger, "communication", (double)(r->timing.between_ns + waited) * 1e-9);
    double rate = o->learning_rate * tm_schedule_factor(&o->schedule, step - 1);
    TM_TRY(tm_trainer_begin(r->trainer, step, rate, o->max_norm, *targets, err));
    tm_ledger_add(&r->timing.ledger, "data", (double)(tm_now_ns() - begin - waited) * 1e-9);
    r->progress.own_targets += batch.target_tokens;
    tm_micro_batch fed = run_micro_batch(&batch);
    TM_TRY(run_look(r, step, &batch, err));
    TM_TRY(run_keep_states(r, err));
    TM_TRY(run_replay_begin(r, step, err));

    TM_TRY(tm_trainer_gradients(r->trainer, &fed, &r->timing.ledger, err));
    TM_TRY(look_at_gradients(r, step, &fed, err));
    TM_TRY(tm_trainer_update(r->trainer, result, &r->timing.ledger, err));
    TM_TRY(look_at_update(r, result, err));
    run_fed(r, &batch);
    if (!isfinite(result->loss) || !isfinite(result->grad_norm))
        TM_TRY(run_tell_nonfinite(r, step, &batch, *targets, err));
    return TM_OK;
}

static void report_step(run *r, int64_t step, const tm_step_result *result, int64_t targets, double seconds)
{
    double accounted = 0;
    for (size_t i = 0; i < r->timing.ledger.count; i++) {
        r->timing.phases[i] = r->timing.ledger.lines[i];
        accounted += r->timing.ledger.lines[i].value;
    }
    r->timing.phases[r->timing.ledger.count] = (tm_named_f64){ "unaccounted", seconds - accounted };
    const tm_run_options   *o = r->options;
    int64_t                 tokens = run_global_batch(o) * o->step.seq;
    const tm_source_traits *traits = tm_source_traits_of(o->source.name);
    bool                    all = traits->images || traits->pairs; /* whose loss does not count tokens */
    tm_event                event = { .kind = TM_EVENT_STEP_DONE };
    event.step_done = (tm_step_done){ .step = step,
                                      .loss = result->loss,
                                      .grad_norm = result->grad_norm,
                                      .learning_rate = o->learning_rate * tm_schedule_factor(&o->schedule, step - 1),
                                      .tokens = tokens / run_ranks(o),
                                      .target_tokens = (all ? tokens : targets) / run_ranks(o),
                                      .seconds = seconds,
                                      .phases = r->timing.phases,
                                      .n_phases = r->timing.ledger.count + 1,
                                      .measures = result->measures,
                                      .n_measures = result->n_measures,
                                      .used_bytes = (int64_t)tm_trainer_step_of(r->trainer)->plan->arena_bytes,
                                      .resident_bytes = tm_resident_bytes() };
    tm_validity_gpu(r->timing.validity, &event.step_done.gpu_clock_mhz, &event.step_done.gpu_temperature_c);
    tm_event_emit(r->bus, &event);
}

/* Whoever shows something to a person does it here. The clock is not read where nobody does. */
static void between_steps(run *r)
{
    const tm_event event = { .kind = TM_EVENT_BETWEEN_STEPS };
    for (size_t i = 0; i < r->bus->count; i++) {
        tm_sink *sink = r->bus->sinks[i];
        if (!sink->between) continue;
        int64_t begin = tm_now_ns();
        sink->handle(sink, &event);
        r->timing.begin_ns += tm_now_ns() - begin;
    }
}

/* debug.slowdown_pct: spins for that share of the step's time so far. */
static void slow_down(run *r)
{
    if (!(r->options->slowdown_pct > 0)) return;
    int64_t begin = tm_now_ns();
    int64_t until = begin + (int64_t)((double)(begin - r->timing.begin_ns) * r->options->slowdown_pct / 100);
    while (tm_now_ns() < until) {
    }
    tm_ledger_add(&r->timing.ledger, "injected slowdown", (double)(tm_now_ns() - begin) * 1e-9);
}

/* What a step communicated, or waited for others to: all of its ledger that says so. */
static double communication(const tm_ledger *ledger)
{
    double seconds = 0;
    for (size_t i = 0; i < ledger->count; i++)
        if (strstr(ledger->lines[i].name, "communication")) seconds += ledger->lines[i].value;
    return seconds;
}

/* Room for what is kept of one step more: few runs make as many steps as they may. */
static void make_room(run *r)
{
    enum { FIRST = 16 };
    size_t done = (size_t)r->progress.done, room = r->timing.steps_room;
    if (done < room) return;
    room = room ? 2 * room : FIRST;
    r->timing.steps_room = room;
    r->timing.step_seconds = tm_realloc(r->timing.step_seconds, room * sizeof *r->timing.step_seconds);
    r->timing.busy_seconds = tm_realloc(r->timing.busy_seconds, room * sizeof *r->timing.busy_seconds);
    r->timing.step_end_ns = tm_realloc(r->timing.step_end_ns, room * sizeof *r->timing.step_end_ns);
    r->progress.losses = tm_realloc(r->progress.losses, room * sizeof *r->progress.losses);
}

/* A step's time runs from the end of the step before, so that reporting that one (the line "logging") is in it. */
static tm_status step_and_report(run *r, int64_t step, tm_error *err)
{
    tm_step_result result;
    int64_t        targets;
    tm_ledger_reset(&r->timing.ledger);
    TM_TRY(train_one_step(r, step, &result, &targets, err));
    slow_down(r);
    int64_t end = tm_now_ns();
    double  seconds = (double)(end - r->timing.begin_ns) * 1e-9;
    r->timing.begin_ns = end;
    if (r->progress.done == 0) r->timing.first_step_seconds = (double)tm_process_age_ns() * 1e-9;
    if (step == 1) r->progress.first_loss = result.loss;
    make_room(r);
    r->timing.step_seconds[r->progress.done] = seconds;
    r->timing.step_end_ns[r->progress.done] = end;
    r->progress.losses[r->progress.done] = result.loss;
    r->progress.last_norm = result.grad_norm;
    r->timing.busy_seconds[r->progress.done] = seconds - communication(&r->timing.ledger);
    r->timing.all_seconds += seconds;
    run_stragglers_add(r, seconds);
    for (size_t i = 0; i < r->timing.ledger.count; i++) r->timing.accounted_seconds += r->timing.ledger.lines[i].value;
    if (r->progress.so_far.n == step - 1 && r->progress.so_far.n < tm_loss_head_limit(r->options->steps))
        r->progress.so_far = tm_loss_head_add(r->progress.so_far, result.loss);
    r->progress.done++;
    r->progress.finite = isfinite(result.loss) && isfinite(result.grad_norm); /* if not, this step is the last one */
    if (r->evaluation.step == 0 && r->options->step.preference.beta > 0)
        for (r->evaluation.n_measures = 0; r->evaluation.n_measures < result.n_measures; r->evaluation.n_measures++)
            r->evaluation.measures[r->evaluation.n_measures] = result.measures[r->evaluation.n_measures];
    report_step(r, step, &result, targets, seconds);
    tm_validity_sample(r->timing.validity);
    between_steps(r);
    return TM_OK;
}

/* Ends the turn if it is over, and waits for the next one: that time belongs to no step. */
static tm_status take_turns(run *r, int64_t step, const volatile sig_atomic_t *stop, tm_error *err)
{
    bool    waited = false;
    int64_t tokens = run_global_batch(r->options) * r->options->step.seq;
    if (r->turn)
        TM_TRY(tm_turn_step(r->turn, step, r->timing.step_seconds[r->progress.done - 1], tokens, stop, &waited, err));
    if (waited) r->timing.begin_ns = tm_now_ns();
    return TM_OK;
}

/* With a target for the interval: are the steps so far precise enough? */
static bool precise(run *r)
{
    if (!r->timing.sampling) return false;
    int64_t begin = tm_now_ns();
    double  tokens = (double)(run_global_batch(r->options) * r->options->step.seq);
    bool    enough =
        tm_sampling_add(r->timing.sampling, r->timing.step_seconds[r->progress.done - 1], tokens) == TM_STOP_PRECISE;
    r->timing.begin_ns += tm_now_ns() - begin; /* looking is not part of a step; telling of it, before, is */
    return enough;
}

/* Why this step is the last one; NULL if it is not. Of several ranks each may be told to stop, rank 0 knows the rate
 * well enough, and all must have written their part of a checkpoint before there is one. */
static tm_status find_reason(run *r, int64_t step, const volatile sig_atomic_t *stop, tm_error *err)
{
    enum { STOP, PRECISE, WRITING, TOLD, SAID };
    const bool last = step == r->options->steps;
    int64_t    said[SAID] = { [STOP] = *stop != 0, [TOLD] = run_stragglers_due(r) };
    if (run_rank(r->options) == 0) said[PRECISE] = precise(r);
    said[WRITING] = r->saved.pending && !tm_checkpoint_written(r->saved.pending);
    TM_TRY(agree_max(run_world(r), "whether to go on", said, SAID, err));
    r->progress.stopped = last                  ? "all steps done"
                          : said[STOP]          ? "interrupted"
                          : !r->progress.finite ? "a loss or gradient norm is not finite"
                          : said[PRECISE]       ? tm_stop_text(TM_STOP_PRECISE)
                                                : NULL;
    if (said[TOLD]) TM_TRY(run_stragglers_tell(r, step, err));
    if (!r->saved.pending || said[WRITING]) return TM_OK;
    int64_t begin = tm_now_ns();
    TM_TRY(run_saved(r, err));
    r->timing.begin_ns += tm_now_ns() - begin; /* saving is not part of a step */
    return TM_OK;
}

static void begin_step(run *r)
{
    r->timing.begin_ns = tm_now_ns();
    r->timing.between_ns = 0;
    run_stragglers_skip(r);
}

tm_status run_train(run *r, const volatile sig_atomic_t *stop, tm_error *err)
{
    const tm_run_options *o = r->options;
    if (r->turn) TM_TRY(tm_turn_begin(r->turn, stop, err));
    begin_step(r);
    if (r->progress.first_step > o->steps) r->progress.stopped = "all steps done";
    for (int64_t step = r->progress.first_step; step <= o->steps; step++) {
        TM_TRY(step_and_report(r, step, err));
        TM_TRY(run_tell_factors(r, step, err));
        int64_t between = tm_now_ns(), own = r->timing.begin_ns;
        TM_TRY(agree_status(run_world(r), "the records of a step", tm_event_failure(r->bus, err), err));
        TM_TRY(take_turns(r, step, stop, err));
        TM_TRY(find_reason(r, step, stop, err));
        r->timing.between_ns = run_world(r) ? tm_now_ns() - between - (r->timing.begin_ns - own) : 0;
        if (r->progress.stopped) break;
        bool evaluates =
            o->validate && o->validation_freq > 0 && step % o->validation_freq == 0 && step >= o->validation_first;
        bool saves = o->checkpoint && o->checkpoint_folder && step % o->checkpoint_interval == 0;
        if (evaluates) TM_TRY(run_evaluate(r, step, err));
        if (r->evaluation.cut) break;
        if (evaluates && run_target_reached(r)) {
            r->progress.stopped = "target loss reached";
            break;
        }
        if (saves) TM_TRY(run_save(r, step, err));
        if (evaluates || saves) begin_step(r); /* neither is part of a step */
    }
    return TM_OK;
}
