/* SPDX-License-Identifier: Apache-2.0 */
#include "train/trainer.h"

#include "base/hash.h"
#include "train/init.h"

#include <stdlib.h>
#include <string.h>

struct tm_trainer {
    tm_device            *device;
    tm_step              *step;
    tm_arenas             memory;
    tm_checkpoint_tensor *tensors;
    size_t                n_tensors;
};

static void list_tensors(tm_trainer *trainer)
{
    const tm_graph *graph = trainer->step->graph;
    trainer->tensors = tm_alloc(graph->n_tensors * sizeof *trainer->tensors);
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *tensor = &graph->tensors[i];
        if (tensor->role != TM_ROLE_PARAMETER && tensor->role != TM_ROLE_MOMENT) continue;
        tm_checkpoint_tensor *row = &trainer->tensors[trainer->n_tensors++];
        *row = (tm_checkpoint_tensor){ .name = tensor->name, .dtype = (int)tensor->dtype, .rank = tensor->shape.rank,
                                       .data = tm_trainer_address(trainer, (tm_tensor_id)i),
                                       .bytes = trainer->step->plan->places[i].bytes };
        for (int k = 0; k < tensor->shape.rank; k++) row->n[k] = tensor->shape.n[k];
    }
}

static void release_memory(tm_trainer *trainer)
{
    for (int s = 0; s < TM_SPACE_COUNT; s++)
        tm_device_release(trainer->device, trainer->memory.base[s], trainer->step->plan->spaces[s].arena_bytes);
}

/* The file first: it fails at once. */
static tm_status take_memory(tm_trainer *trainer, tm_error *err)
{
    const tm_plan    *plan = trainer->step->plan;
    const tm_offload *offload = &trainer->step->options.offload;
    void            **base = trainer->memory.base;
    size_t            disk = plan->spaces[TM_SPACE_DISK].arena_bytes;
    TM_ASSERT(plan->spaces[TM_SPACE_HOST].arena_bytes == 0);
    if (disk > 0 && !offload->folder)
        return tm_fail(err, TM_INVALID, "training.offload needs a folder for its file; set training.offload_path");
    if (disk > 0) TM_TRY(tm_device_map_file(trainer->device, offload->folder, disk, &base[TM_SPACE_DISK], err));
    return tm_device_alloc(trainer->device, plan->arena_bytes, &base[TM_SPACE_DEVICE], err);
}

tm_status tm_trainer_open(tm_device *device, const tm_step_options *options, uint64_t seed, tm_trainer **out,
                          tm_error *err)
{
    tm_chooser  chooser = tm_device_chooser(device);
    tm_trainer *trainer = tm_alloc(sizeof *trainer);
    trainer->device = device;
    tm_status st = tm_step_create(options, &chooser, &trainer->step, err);
    if (st == TM_OK) st = take_memory(trainer, err);
    if (st != TM_OK) {
        if (trainer->step) release_memory(trainer);
        tm_step_destroy(trainer->step);
        free(trainer);
        return st;
    }
    tm_plan_bind(trainer->step->plan, &trainer->memory);
    tm_init_fill(trainer->step->plan, &trainer->memory, seed, chooser.threads);
    list_tensors(trainer);
    *out = trainer;
    return TM_OK;
}

void tm_trainer_close(tm_trainer *trainer)
{
    if (!trainer) return;
    release_memory(trainer);
    tm_step_destroy(trainer->step);
    free(trainer->tensors);
    free(trainer);
}

const tm_step *tm_trainer_step_of(const tm_trainer *trainer)
{
    return trainer->step;
}

void *tm_trainer_arena(const tm_trainer *trainer)
{
    return trainer->memory.base[TM_SPACE_DEVICE];
}

void *tm_trainer_address(const tm_trainer *trainer, tm_tensor_id id)
{
    return tm_plan_address(trainer->step->plan, &trainer->memory, id);
}

void tm_trainer_begin(tm_trainer *trainer, int64_t t, double learning_rate, double max_norm, int64_t total_targets)
{
    const tm_step_options *o = &trainer->step->options;
    for (int g = 0; g < o->n_groups; g++) {
        double *s = tm_trainer_address(trainer, trainer->step->group_scalars[g]);
        double  rate = learning_rate * o->groups[g].lr_scale;
        s[TM_SCALAR_LOSS_SCALE] = total_targets > 0 ? 1 / (double)total_targets : 0;
        s[TM_SCALAR_LEARNING_RATE] = rate;
        s[TM_SCALAR_MAX_NORM] = max_norm;
        o->optimizer->scalars(&o->groups[g].hyper, t, rate, s);
    }
}

/* Copies micro-batch `index` of `batch` into the inputs. */
static void feed(tm_trainer *trainer, const tm_micro_batch *batch, int64_t index)
{
    const tm_step *step = trainer->step;
    for (int f = 0; f < step->options.n_fields; f++) {
        if (step->inputs[f] == TM_NONE) continue;
        size_t bytes = step->plan->places[step->inputs[f]].bytes;
        memcpy(tm_trainer_address(trainer, step->inputs[f]), (const char *)batch->field[f] + (size_t)index * bytes,
               bytes);
    }
}

void tm_trainer_accumulate(tm_trainer *trainer, int64_t index, const tm_micro_batch *batch, tm_ledger *ledger)
{
    const tm_step_schedule *schedule = &trainer->step->training;
    feed(trainer, batch, 0);
    for (size_t i = 0; i < schedule->n; i++) {
        const tm_work *work = &schedule->work[i];
        if (work->micro_batch < 0 || index < work->micro_batch || index >= work->micro_batch + work->count) continue;
        tm_device_run(trainer->device, work->program, ledger);
    }
}

static void read_result(const tm_trainer *trainer, tm_step_result *result)
{
    const double *scalars = tm_trainer_address(trainer, trainer->step->scalars);
    const double *clip = tm_trainer_address(trainer, trainer->step->clip);
    const double *loss = tm_trainer_address(trainer, trainer->step->loss);
    result->loss = *loss * scalars[TM_SCALAR_LOSS_SCALE];
    result->grad_norm = clip[0];
}

void tm_trainer_step(tm_trainer *trainer, const tm_micro_batch *batch, tm_step_result *result, tm_ledger *ledger)
{
    const tm_step_schedule *schedule = &trainer->step->training;
    for (size_t i = 0; i < schedule->n; i++) {
        const tm_work *work = &schedule->work[i];
        for (int64_t k = 0; k < work->count; k++) {
            if (work->micro_batch >= 0) feed(trainer, batch, work->micro_batch + k);
            tm_device_run(trainer->device, work->program, ledger);
        }
    }
    read_result(trainer, result);
}

void tm_trainer_update(tm_trainer *trainer, tm_step_result *result, tm_ledger *ledger)
{
    const tm_step_schedule *schedule = &trainer->step->training;
    for (size_t i = 0; i < schedule->n; i++)
        if (schedule->work[i].micro_batch < 0) tm_device_run(trainer->device, schedule->work[i].program, ledger);
    read_result(trainer, result);
}

double tm_trainer_evaluate(tm_trainer *trainer, const tm_micro_batch *batch)
{
    const tm_step_schedule *schedule = &trainer->step->evaluation;
    feed(trainer, batch, 0);
    for (size_t i = 0; i < schedule->n; i++) tm_device_run(trainer->device, schedule->work[i].program, NULL);
    return *(const double *)tm_trainer_address(trainer, trainer->step->evaluation_loss);
}

void tm_trainer_run(tm_trainer *trainer, const tm_program *program)
{
    tm_device_run(trainer->device, program, NULL);
}

const tm_checkpoint_tensor *tm_trainer_tensors(const tm_trainer *trainer, size_t *count)
{
    *count = trainer->n_tensors;
    return trainer->tensors;
}

uint64_t tm_trainer_weights_hash(const tm_trainer *trainer)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < trainer->step->graph->n_tensors; i++) {
        const tm_tensor *tensor = &trainer->step->graph->tensors[i];
        if (tensor->role != TM_ROLE_PARAMETER) continue;
        const uint64_t both[2] = { tm_hash(tensor->name, strlen(tensor->name)),
                                   tm_hash(tm_trainer_address(trainer, (tm_tensor_id)i),
                                           trainer->step->plan->places[i].bytes) };
        sum += tm_hash(both, sizeof both);
    }
    return sum;
}
