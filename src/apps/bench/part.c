/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/bench/part.h"

#include "base/arena.h"
#include "base/clock.h"
#include "train/trainer/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct tm_live_part {
    const tm_part *part;
    tm_trainer    *trainer;
    tm_source     *source;
    tm_loader     *loader;
    int64_t        steps; /* done */
    double         first_loss, last_loss;
};

tm_status tm_part_plan(const tm_run_options *run, int64_t layers, tm_device *device, tm_part *out, tm_error *err)
{
    *out = (tm_part){ .run = run, .step = run->step, .layers = layers };
    out->step.shape.n_layers = layers;
    out->judged = tm_device_describe(device)->computes;
    tm_chooser chooser = tm_device_chooser(device);
    tm_step   *step;
    TM_TRY(tm_step_create(&out->step, &chooser, &step, err));
    out->parameters = tm_model_parameters(&out->step.shape);
    out->arena_bytes = step->plan->arena_bytes;
    out->flops = tm_schedule_flops(&step->training);
    tm_step_destroy(step);
    return TM_OK;
}

static tm_status open_data(tm_live_part *live, tm_error *err)
{
    const tm_run_options *run = live->part->run;
    tm_source_options     source = run->source;
    int64_t               batch = run->step.micro_batch * run->step.accumulation;
    source.name = "mock";
    TM_TRY(tm_source_open(&source, &live->source, err));
    live->loader = tm_loader_open(live->source, TM_SPLIT_TRAIN, batch, 0, run->prefetch);
    return live->loader ? TM_OK : tm_fail(err, TM_INTERNAL, "cannot start the thread that reads data");
}

tm_status tm_part_open(const tm_part *part, tm_device *device, tm_live_part **out, tm_error *err)
{
    tm_live_part *live = tm_alloc(sizeof *live);
    live->part = part;
    live->first_loss = live->last_loss = (double)NAN;
    tm_status st = tm_trainer_open(device, &part->step, part->run->seed, &live->trainer, err);
    if (st == TM_OK) st = open_data(live, err);
    if (st != TM_OK) {
        tm_part_close(live);
        return st;
    }
    *out = live;
    return TM_OK;
}

void tm_part_close(tm_live_part *live)
{
    if (!live) return;
    tm_loader_close(live->loader);
    tm_source_close(live->source);
    tm_trainer_close(live->trainer);
    free(live);
}

static tm_status judge(const tm_live_part *live, const tm_step_result *result, tm_error *err)
{
    const tm_part *part = live->part;
    double         ignorant = log((double)part->step.shape.vocab_size);
    if (!isfinite(result->loss) || !isfinite(result->grad_norm))
        return tm_fail(err, TM_NUMBERS, "%s with %lld layers: step %lld has loss %g and gradient norm %g",
                       part->run->model_name, (long long)part->layers, (long long)live->steps, result->loss,
                       result->grad_norm);
    if (live->steps > 1 || (result->loss >= 0.9 * ignorant && result->loss <= 1.5 * ignorant)) return TM_OK;
    return tm_fail(err, TM_NUMBERS, "%s with %lld layers: the first loss is %g, wanted 0.9 to 1.5 times %g (ln %lld)",
                   part->run->model_name, (long long)part->layers, result->loss, ignorant,
                   (long long)part->step.shape.vocab_size);
}

tm_status tm_part_step(tm_live_part *live, double *seconds, tm_error *err)
{
    const tm_run_options *run = live->part->run;
    int64_t               begin = tm_now_ns();
    double                rate = run->learning_rate * tm_schedule_factor(&run->schedule, live->steps);
    tm_batch              batch;
    tm_step_result        result;
    tm_loader_next(live->loader, &batch);
    TM_TRY(tm_trainer_begin(live->trainer, ++live->steps, rate, run->max_norm, batch.target_tokens, err));
    tm_micro_batch all = { .target_tokens = batch.target_tokens };
    for (int f = 0; f < TM_MAX_FIELDS; f++) all.field[f] = batch.field[f];
    TM_TRY(tm_trainer_step(live->trainer, &all, &result, NULL, err));
    *seconds = (double)(tm_now_ns() - begin) * 1e-9;
    live->last_loss = result.loss;
    if (live->steps == 1) live->first_loss = result.loss;
    return live->part->judged ? judge(live, &result, err) : TM_OK;
}

/* --- instruction by instruction -------------------------------------------------------------- */

const tm_step *tm_part_step_of(const tm_live_part *live)
{
    return tm_trainer_step_of(live->trainer);
}

static double seconds_now(const tm_live_part *live)
{
    const tm_device_info *device = tm_device_describe(tm_trainer_device(live->trainer));
    struct timespec       t;
    if (device->kind == TM_DEVICE_GPU || device->threads != 1) return (double)tm_now_ns() * 1e-9;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static tm_status feed(const tm_live_part *live, const tm_batch *batch, tm_error *err)
{
    const tm_step *step = tm_part_step_of(live);
    for (int f = 0; f < step->options.n_fields; f++) {
        tm_tensor_id id = step->inputs[f];
        if (id == TM_NONE) continue;
        TM_TRY(tm_trainer_write(live->trainer, id, 0, batch->field[f], step->plan->places[id].bytes, err));
    }
    return TM_OK;
}

/* The waits are those of a list that is executed in its order. */
static tm_status run_alone(const tm_live_part *live, const tm_program *program, size_t i, double *seconds,
                           tm_error *err)
{
    tm_instruction one = program->instructions[i];
    tm_program     alone = { .name = program->name, .instructions = &one, .count = 1, .streams = 1U << one.stream };
    for (int s = 0; s < TM_STREAMS; s++) one.waits[s] = -1;
    one.awaited = false;
    double begin = seconds_now(live);
    TM_TRY(tm_trainer_run(live->trainer, &alone, err));
    TM_TRY(tm_device_wait(tm_trainer_device(live->trainer), err));
    *seconds = seconds_now(live) - begin;
    return TM_OK;
}

tm_status tm_part_step_apart(tm_live_part *live, double *seconds, tm_error *err)
{
    const tm_run_options   *run = live->part->run;
    const tm_step_schedule *schedule = &tm_part_step_of(live)->training;
    double                  rate = run->learning_rate * tm_schedule_factor(&run->schedule, live->steps);
    tm_batch                batch;
    tm_loader_next(live->loader, &batch);
    TM_TRY(tm_trainer_begin(live->trainer, ++live->steps, rate, run->max_norm, batch.target_tokens, err));
    TM_TRY(feed(live, &batch, err));
    for (size_t w = 0; w < schedule->n; w++) {
        const tm_program *program = schedule->work[w].program;
        for (size_t i = 0; i < program->count; i++) TM_TRY(run_alone(live, program, i, seconds++, err));
    }
    return TM_OK;
}

void tm_part_losses(const tm_live_part *live, double *first, double *last)
{
    *first = live->first_loss;
    *last = live->last_loss;
}
