/* SPDX-License-Identifier: Apache-2.0 */
#include "train/trainer/trainer.h"

#include "base/arena.h"
#include "base/cpu.h"
#include "base/random.h"
#include "train/step/sequence.h"
#include "train/trainer/init.h"
#include "train/trainer/shards.h"
#include "train/trainer/expert_balance.h"
#include "train/trainer/preference.h"

#include <stdlib.h>
#include <string.h>

struct tm_trainer {
    tm_device            *device;
    tm_step              *step;
    tm_arenas             memory;
    tm_loaded            *loaded;
    tm_checkpoint_memory  copies; /* how a checkpoint reaches the tensors */
    tm_checkpoint_tensor *tensors;
    size_t                n_tensors;
    uint64_t              seed;
    int64_t               t;                         /* number of the step that was begun last */
    double  scalars[TM_MAX_GROUPS][TM_SCALAR_COUNT]; /* as written to the device: they stay until the update */
    double *expert_counts;                           /* as read from the device */
    double *first_rows; /* of each micro-batch of the step (tm_step.first_row): they stay until the update, too */
    double *numbers;    /* of each micro-batch in the step (tm_quantized.number): 1, 2, ... */
    size_t  normed;     /* instructions of the update that tm_trainer_norm has run; 0: none */
    bool    outdated;   /* weights were written from outside: their copies (tm_step.copies) are not theirs */
    const tm_trainer_observer *observer; /* NULL: nobody looks */
};

/* --- memory ------------------------------------------------------------------------------------------------------- */

static tm_status read_now(tm_device *device, tm_address from, void *to, size_t bytes, tm_error *err)
{
    TM_TRY(tm_device_read(device, to, from, bytes, err));
    return tm_device_wait(device, err);
}

static tm_status write_now(tm_device *device, tm_address to, const void *from, size_t bytes, tm_error *err)
{
    TM_TRY(tm_device_write(device, to, from, bytes, err));
    return tm_device_wait(device, err);
}

static tm_status checkpoint_read(const tm_checkpoint_memory *memory, tm_address from, void *to, size_t bytes,
                                 tm_error *err)
{
    return read_now(((const tm_trainer *)memory->context)->device, from, to, bytes, err);
}

static tm_status checkpoint_write(const tm_checkpoint_memory *memory, tm_address to, const void *from, size_t bytes,
                                  tm_error *err)
{
    tm_trainer *trainer = memory->context;
    trainer->outdated = true; /* what is loaded may be weights */
    return write_now(trainer->device, to, from, bytes, err);
}

/* Queues the program that makes copies of weights, if they are not those of the weights: in front of every program. */
static tm_status renew_copies(tm_trainer *trainer, tm_error *err)
{
    const tm_program *copies = trainer->step->copies;
    if (!copies || !trainer->outdated) return TM_OK;
    trainer->outdated = false;
    return tm_device_run(trainer->device, copies, NULL, err);
}

static tm_address address_at(const tm_trainer *trainer, tm_tensor_id id, size_t offset, size_t bytes)
{
    TM_ASSERT(offset + bytes <= tm_plan_place(trainer->step->plan, id).bytes);
    return tm_address_add(tm_plan_address(trainer->step->plan, &trainer->memory, id), offset);
}

/* A tensor that ranks share: every rank of the group reads, each gives what it has. */
static tm_status read_shared(const tm_trainer *trainer, tm_tensor_id id, size_t offset, char *to, size_t bytes,
                             tm_error *err)
{
    const tm_tensor *tensor = tm_graph_at(trainer->step->graph, id);
    const tm_shared *shared = tensor->shared;
    tm_comm         *comm = tm_device_group(trainer->device, shared->axes);
    int64_t          from, at;
    TM_ASSERT(comm);
    for (int rank = 0; rank < shared->ranks; rank++) {
        int64_t count = tm_held_bytes(shared, tensor->dtype, rank, (int64_t)offset, (int64_t)bytes, &from, &at);
        if (count <= 0) continue;
        char         *part = to + ((size_t)from - offset);
        tm_collective call = { .kind = TM_COMM_BROADCAST,
                               .format = TM_COMM_BYTES,
                               .send = part,
                               .receive = part,
                               .count = (size_t)count,
                               .peer = rank,
                               .what = tensor->name,
                               .step = -1 };
        if (rank == shared->rank)
            TM_TRY(read_now(trainer->device, address_at(trainer, shared->flat, (size_t)at, (size_t)count), part,
                            (size_t)count, err));
        TM_TRY(tm_comm_run(comm, &call, err));
    }
    return TM_OK;
}

static tm_status write_shared(tm_trainer *trainer, tm_tensor_id id, size_t offset, const char *values, size_t bytes,
                              tm_error *err)
{
    const tm_tensor *tensor = tm_graph_at(trainer->step->graph, id);
    const tm_shared *shared = tensor->shared;
    int64_t          from, at;
    int64_t count = tm_held_bytes(shared, tensor->dtype, shared->rank, (int64_t)offset, (int64_t)bytes, &from, &at);
    if (count <= 0) return TM_OK;
    return write_now(trainer->device, address_at(trainer, shared->flat, (size_t)at, (size_t)count),
                     values + ((size_t)from - offset), (size_t)count, err);
}

static bool elsewhere(const tm_trainer *trainer, tm_tensor_id id)
{
    return tm_graph_elsewhere(tm_graph_at(trainer->step->graph, id));
}

tm_status tm_trainer_read(const tm_trainer *trainer, tm_tensor_id id, size_t offset, void *to, size_t bytes,
                          tm_error *err)
{
    if (elsewhere(trainer, id)) return read_shared(trainer, id, offset, to, bytes, err);
    return read_now(trainer->device, address_at(trainer, id, offset, bytes), to, bytes, err);
}

tm_status tm_trainer_write(tm_trainer *trainer, tm_tensor_id id, size_t offset, const void *from, size_t bytes,
                           tm_error *err)
{
    tm_role role = tm_graph_at(trainer->step->graph, tm_graph_base(trainer->step->graph, id))->role;
    if (role == TM_ROLE_PARAMETER || role == TM_ROLE_UNIT) trainer->outdated = true;
    if (elsewhere(trainer, id)) return write_shared(trainer, id, offset, from, bytes, err);
    return write_now(trainer->device, address_at(trainer, id, offset, bytes), from, bytes, err);
}

/* --- opening and closing ------------------------------------------------------------------------------------------ */

static void release_memory(tm_trainer *trainer)
{
    const tm_space_plan *spaces = trainer->step->plan->spaces;
    tm_device_unshare(trainer->device);
    tm_device_release(trainer->device, trainer->memory.base[TM_SPACE_DEVICE], spaces[TM_SPACE_DEVICE].arena_bytes);
    tm_device_release_near(trainer->device, trainer->memory.base[TM_SPACE_HOST], spaces[TM_SPACE_HOST].arena_bytes);
    tm_device_unmap_file(trainer->device, trainer->memory.base[TM_SPACE_DISK], spaces[TM_SPACE_DISK].arena_bytes);
}

/* No smaller batch helps where what outlives a step does not fit. */
static tm_status check_weights_fit(const tm_plan *plan, const tm_device_info *device, tm_error *err)
{
    char    need[32], have[32];
    int64_t available = device->own_memory ? device->memory_bytes : tm_memory_available_bytes("");
    if (available <= 0 || plan->persistent_bytes <= (size_t)available) return TM_OK;
    return tm_fail(
        err, TM_NOMEM,
        "weights, gradients and the optimizer's state alone need %s and %s are available; take a smaller model or "
        "fewer model.n_layers, or set training.offload: all",
        tm_format_bytes(need, (double)plan->persistent_bytes), tm_format_bytes(have, (double)available));
}

/* Host memory and disk first: both may fail, and begin as zeros. */
static tm_status take_memory(tm_trainer *trainer, tm_error *err)
{
    const tm_plan    *plan = trainer->step->plan;
    const tm_offload *offload = &trainer->step->options.offload;
    tm_device        *device = trainer->device;
    tm_address       *base = trainer->memory.base;
    size_t            disk = plan->spaces[TM_SPACE_DISK].arena_bytes, host = plan->spaces[TM_SPACE_HOST].arena_bytes;
    if (disk > 0 && !offload->folder)
        return tm_fail(err, TM_INVALID, "training.offload needs a directory for its file; set training.offload_path");
    TM_TRY(check_weights_fit(plan, tm_device_describe(device), err));
    if (disk > 0) TM_TRY(tm_device_map_file(device, offload->folder, disk, &base[TM_SPACE_DISK], err));
    if (host > 0) TM_TRY(tm_device_alloc_near(device, host, &base[TM_SPACE_HOST], err));
    TM_TRY(tm_device_alloc(device, plan->arena_bytes, &base[TM_SPACE_DEVICE], err));
    return tm_device_fill(device, base[TM_SPACE_DEVICE], 0, plan->persistent_bytes, err);
}

static tm_status read_adapted(void *context, tm_tensor_id id, size_t offset, void *to, size_t bytes, tm_error *err)
{
    return tm_trainer_read(context, id, offset, to, bytes, err);
}

static tm_status write_adapted(void *context, tm_tensor_id id, size_t offset, const void *from, size_t bytes,
                               tm_error *err)
{
    return tm_trainer_write(context, id, offset, from, bytes, err);
}

static tm_status sum_adapted(void *context, unsigned axes, double *values, size_t n, tm_error *err)
{
    return tm_trainer_sum(context, axes, values, n, err);
}

static tm_status open_memory(tm_trainer *trainer, uint64_t seed, int threads, tm_error *err)
{
    TM_TRY(take_memory(trainer, err));
    TM_TRY(tm_device_load(trainer->device, trainer->step->plan, &trainer->memory, &trainer->loaded, err));
    TM_TRY(tm_device_share(trainer->device, trainer->step->plan, err));
    trainer->outdated = true;
    TM_TRY(tm_init_fill(trainer->step->plan, trainer->device, &trainer->memory, seed, threads, err));
    tm_adapters_memory adapted = { read_adapted, write_adapted, sum_adapted, trainer };
    return tm_adapters_measure(trainer->step->graph, &adapted, err);
}

tm_status tm_trainer_open(tm_device *device, const tm_step_options *options, uint64_t seed, tm_trainer **out,
                          tm_error *err)
{
    tm_chooser  chooser = tm_device_chooser(device);
    tm_trainer *trainer = tm_alloc(sizeof *trainer);
    trainer->device = device;
    trainer->seed = seed;
    tm_status st = tm_step_create(options, &chooser, &trainer->step, err);
    if (st == TM_OK) st = open_memory(trainer, seed, chooser.threads, err);
    if (st != TM_OK) {
        tm_trainer_close(trainer);
        return st;
    }
    trainer->copies = (tm_checkpoint_memory){ checkpoint_read, checkpoint_write, trainer };
    trainer->tensors = tm_held_list(trainer->step, &trainer->memory, &trainer->copies, &trainer->n_tensors);
    tm_tensor_id counts = trainer->step->model.expert_counts;
    if (counts != TM_NONE)
        trainer->expert_counts =
            tm_alloc((size_t)tm_shape_elements(tm_graph_at(trainer->step->graph, counts)->shape) * sizeof(double));
    trainer->first_rows = tm_alloc((size_t)options->accumulation * sizeof *trainer->first_rows);
    trainer->numbers = tm_alloc((size_t)options->accumulation * sizeof *trainer->numbers);
    for (int64_t m = 0; m < options->accumulation; m++) trainer->numbers[m] = (double)(m + 1);
    *out = trainer;
    return TM_OK;
}

void tm_trainer_close(tm_trainer *trainer)
{
    if (!trainer) return;
    tm_device_unload(trainer->loaded);
    if (trainer->step) release_memory(trainer);
    tm_step_destroy(trainer->step);
    free(trainer->tensors);
    free(trainer->expert_counts);
    free(trainer->first_rows);
    free(trainer->numbers);
    free(trainer);
}

const tm_step *tm_trainer_step_of(const tm_trainer *trainer)
{
    return trainer->step;
}

tm_address tm_trainer_arena(const tm_trainer *trainer)
{
    return trainer->memory.base[TM_SPACE_DEVICE];
}

/* --- a step ------------------------------------------------------------------------------------------------------- */

/* The number that the first row of micro-batch m of step t has in the run. */
static double first_row_of(const tm_trainer *trainer, int64_t t, int64_t m)
{
    const tm_step_options *o = &trainer->step->options;
    const int64_t          ranks = tm_layout_data_ranks(&o->layout), rank = tm_layout_data_rank(&o->layout);
    const int64_t          first = ((t - 1) * ranks + rank) * o->accumulation; /* micro-batch of the run */
    return (double)(first + m) * (double)(o->micro_batch * o->seq);
}

double tm_trainer_first_row(const tm_trainer *trainer, int64_t m)
{
    return trainer->first_rows[m];
}

tm_status tm_trainer_begin(tm_trainer *trainer, int64_t t, double learning_rate, double max_norm, int64_t total_targets,
                           tm_error *err)
{
    const uint64_t         rounding = tm_random_stream("rounding");
    const tm_step_options *o = &trainer->step->options;
    trainer->t = t;
    for (int64_t m = 0; m < o->accumulation; m++) trainer->first_rows[m] = first_row_of(trainer, t, m);
    for (int g = 0; g < o->n_groups; g++) {
        double    *s = trainer->scalars[g], rate = learning_rate * o->groups[g].lr_scale;
        tm_address to = address_at(trainer, trainer->step->group_scalars[g], 0, sizeof trainer->scalars[g]);
        s[TM_SCALAR_LOSS_SCALE] = total_targets > 0 ? 1 / (double)total_targets : 0;
        s[TM_SCALAR_LEARNING_RATE] = rate;
        s[TM_SCALAR_MAX_NORM] = max_norm;
        s[TM_SCALAR_ROUNDING] = (double)(tm_random_u64(trainer->seed, rounding, (uint64_t)t) >> 11);
        o->optimizer->scalars(&o->groups[g].hyper, t, rate, s);
        TM_TRY(tm_device_write(trainer->device, to, s, sizeof trainer->scalars[g], err));
    }
    return TM_OK;
}

/* Queues batch `index` of `batch` into inputs. */
static tm_status feed_into(tm_trainer *trainer, const tm_tensor_id *inputs, const tm_micro_batch *batch, int64_t index,
                           tm_error *err)
{
    const tm_step_options *o = &trainer->step->options;
    const bool             held_out = inputs == trainer->step->validation_inputs;
    const tm_field        *fields = held_out ? o->validation_fields : o->fields;
    const int64_t          samples = held_out ? o->validation_batch : o->micro_batch;
    const int              parts = tm_layout_size(&o->layout, 1U << TM_AXIS_CP);
    for (int f = 0; f < o->n_fields; f++) {
        if (inputs[f] == TM_NONE) continue;
        size_t      bytes = trainer->step->plan->places[inputs[f]].bytes;
        tm_address  to = address_at(trainer, inputs[f], 0, bytes);
        bool        cut = sequence_cuts(o, &fields[f], held_out ? o->validation_seq : o->seq);
        const char *from = (const char *)batch->field[f] + (size_t)index * bytes * (size_t)(cut ? parts : 1);
        if (cut)
            TM_TRY(sequence_feed(trainer->device, o, to, bytes, samples, from, err));
        else
            TM_TRY(tm_device_write(trainer->device, to, from, bytes, err));
    }
    return TM_OK;
}

static tm_status feed(tm_trainer *trainer, const tm_micro_batch *batch, int64_t index, tm_error *err)
{
    return feed_into(trainer, trainer->step->inputs, batch, index, err);
}

static tm_status write_number(tm_trainer *trainer, tm_tensor_id id, const double *value, tm_error *err)
{
    if (id == TM_NONE) return TM_OK;
    return tm_device_write(trainer->device, address_at(trainer, id, 0, sizeof *value), value, sizeof *value, err);
}

/* What dropout depends on: micro-batch `index` of the step begins with that row of the run; and in stages random
 * rounding: its number. */
static tm_status number_rows(tm_trainer *trainer, int64_t index, tm_error *err)
{
    TM_TRY(write_number(trainer, trainer->step->first_row, &trainer->first_rows[index], err));
    return write_number(trainer, trainer->step->quantized.number, &trainer->numbers[index], err);
}

void tm_trainer_observe(tm_trainer *trainer, const tm_trainer_observer *observer)
{
    trainer->observer = observer;
}

/* Instructions from .. to - 1 of a program of the step. */
static tm_status run_part(tm_trainer *trainer, const tm_program *program, size_t from, size_t to, int64_t micro_batch,
                          tm_ledger *ledger, tm_error *err)
{
    const tm_trainer_observer *observer = trainer->observer;
    TM_TRY(renew_copies(trainer, err));
    if (!observer && from == 0 && to == program->count) return tm_device_run(trainer->device, program, ledger, err);
    if (!observer) return tm_device_run_part(trainer->device, program, from, to, ledger, err);
    for (size_t x = from; x < to; x++) {
        TM_TRY(observer->before(observer->context, program, x, micro_batch, err));
        TM_TRY(tm_device_run_part(trainer->device, program, x, x + 1, ledger, err));
        TM_TRY(tm_device_wait(trainer->device, err));
        TM_TRY(observer->behind(observer->context, program, x, micro_batch, err));
    }
    return TM_OK;
}

static tm_status run_program(tm_trainer *trainer, const tm_program *program, int64_t micro_batch, tm_ledger *ledger,
                             tm_error *err)
{
    return run_part(trainer, program, 0, program->count, micro_batch, ledger, err);
}

tm_status tm_trainer_accumulate(tm_trainer *trainer, int64_t index, const tm_micro_batch *batch, tm_ledger *ledger,
                                tm_error *err)
{
    const tm_step_schedule *schedule = &trainer->step->training;
    TM_ASSERT(trainer->step->first); /* stages work on several micro-batches at a time */
    TM_TRY(feed(trainer, batch, 0, err));
    TM_TRY(number_rows(trainer, index, err));
    for (size_t i = 0; i < schedule->n; i++) {
        const tm_work *work = &schedule->work[i];
        if (work->micro_batch < 0 || index < work->micro_batch || index >= work->micro_batch + work->count) continue;
        TM_TRY(run_program(trainer, work->program, index, ledger, err));
        bool last = index + 1 == work->micro_batch + work->count && i + 1 < schedule->n;
        if (last && work[1].micro_batch == TM_BEHIND_MICRO_BATCH)
            TM_TRY(run_program(trainer, work[1].program, index, ledger, err));
    }
    return TM_OK;
}

/* What a step leaves on the device for its report. */
typedef struct {
    double loss, clip[2], balance, preferred[TM_PREFERRED_COUNT];
} remains;

/* Queues the reading of a value that is there after the next wait. */
static tm_status queue_read(tm_trainer *trainer, tm_tensor_id id, double *to, size_t n, tm_error *err)
{
    if (id == TM_NONE) return TM_OK;
    return tm_device_read(trainer->device, to, address_at(trainer, id, 0, n * sizeof *to), n * sizeof *to, err);
}

static size_t count_of(const tm_trainer *trainer, tm_tensor_id id)
{
    return id == TM_NONE ? 0 : (size_t)tm_shape_elements(tm_graph_at(trainer->step->graph, id)->shape);
}

/* What the micro-batches of the step left about experts. */
static void measure_load(const tm_trainer *trainer, const remains *r, tm_step_result *result)
{
    const tm_step      *step = trainer->step;
    const tm_moe_shape *moe = &step->options.shape.moe;
    tm_tensor_id        counts = step->model.expert_counts;
    result->n_measures = 0;
    if (counts == TM_NONE) return;
    int64_t mixtures = tm_graph_at(step->graph, counts)->shape.n[0];
    double  pairs = (double)(step->options.micro_batch * step->options.seq * step->options.accumulation * moe->top_k) *
                   tm_layout_data_ranks(&step->options.layout);
    tm_load_measure(trainer->expert_counts, mixtures, moe->experts, pairs, result->measures);
    result->n_measures = TM_LOAD_MEASURES;
    if (step->model.balance_loss == TM_NONE) return;
    result->measures[result->n_measures++] =
        (tm_named_f64){ "moe_balance_loss", r->balance * trainer->scalars[0][TM_SCALAR_LOSS_SCALE] };
}

/* Waits, once. */
static tm_status read_result(tm_trainer *trainer, tm_step_result *result, tm_error *err)
{
    const tm_step *step = trainer->step;
    remains        r;
    TM_TRY(queue_read(trainer, step->loss, &r.loss, 1, err));
    TM_TRY(queue_read(trainer, step->clip, r.clip, 2, err));
    TM_TRY(queue_read(trainer, step->model.expert_counts, trainer->expert_counts,
                      count_of(trainer, step->model.expert_counts), err));
    TM_TRY(queue_read(trainer, step->model.balance_loss, &r.balance, 1, err));
    TM_TRY(queue_read(trainer, step->model.preferred, r.preferred, TM_PREFERRED_COUNT, err));
    TM_TRY(tm_device_wait(trainer->device, err));
    result->loss = r.loss * trainer->scalars[0][TM_SCALAR_LOSS_SCALE];
    result->grad_norm = r.clip[0];
    measure_load(trainer, &r, result);
    if (step->model.preferred == TM_NONE) return TM_OK;
    tm_preference_measure(r.preferred, result->measures + result->n_measures);
    result->n_measures += TM_PREFERENCE_MEASURES;
    return TM_OK;
}

tm_status tm_trainer_gradients(tm_trainer *trainer, const tm_micro_batch *batch, tm_ledger *ledger, tm_error *err)
{
    const tm_step_schedule *schedule = &trainer->step->training;
    trainer->normed = 0;
    for (size_t i = 0; i < schedule->n; i++) {
        const tm_work *work = &schedule->work[i];
        for (int64_t k = 0; k < work->count && work->micro_batch >= 0; k++) {
            TM_TRY(feed(trainer, batch, work->micro_batch + k, err));
            TM_TRY(number_rows(trainer, work->micro_batch + k, err));
            TM_TRY(run_program(trainer, work->program, work->micro_batch + k, ledger, err));
        }
        if (work->micro_batch == TM_BEHIND_MICRO_BATCH) TM_TRY(run_program(trainer, work->program, -1, ledger, err));
    }
    return TM_OK;
}

tm_status tm_trainer_norm(tm_trainer *trainer, size_t norm_end, double *loss, double *norm, tm_ledger *ledger,
                          tm_error *err)
{
    double clip[2];
    TM_TRY(run_part(trainer, trainer->step->update, 0, norm_end, -1, ledger, err));
    TM_TRY(queue_read(trainer, trainer->step->loss, loss, 1, err));
    TM_TRY(queue_read(trainer, trainer->step->clip, clip, 2, err));
    TM_TRY(tm_device_wait(trainer->device, err));
    trainer->normed = norm_end;
    *loss *= trainer->scalars[0][TM_SCALAR_LOSS_SCALE];
    *norm = clip[0];
    return TM_OK;
}

tm_status tm_trainer_update(tm_trainer *trainer, tm_step_result *result, tm_ledger *ledger, tm_error *err)
{
    const tm_step_schedule *schedule = &trainer->step->training;
    for (size_t i = 0; i < schedule->n; i++) {
        const tm_program *program = schedule->work[i].program;
        size_t            from = program == trainer->step->update ? trainer->normed : 0;
        if (schedule->work[i].micro_batch == TM_NO_MICRO_BATCH)
            TM_TRY(run_part(trainer, program, from, program->count, -1, ledger, err));
    }
    trainer->normed = 0;
    return read_result(trainer, result, err);
}

tm_status tm_trainer_step(tm_trainer *trainer, const tm_micro_batch *batch, tm_step_result *result, tm_ledger *ledger,
                          tm_error *err)
{
    TM_TRY(tm_trainer_gradients(trainer, batch, ledger, err));
    return tm_trainer_update(trainer, result, ledger, err);
}

/* Those of a schedule whose inputs are there. */
static tm_status run_programs(tm_trainer *trainer, const tm_step_schedule *schedule, tm_error *err)
{
    for (size_t i = 0; i < schedule->n; i++) TM_TRY(tm_trainer_run(trainer, schedule->work[i].program, err));
    return TM_OK;
}

tm_status tm_trainer_evaluate(tm_trainer *trainer, const tm_micro_batch *batch, double *loss, tm_error *err)
{
    TM_TRY(feed(trainer, batch, 0, err));
    TM_TRY(run_programs(trainer, &trainer->step->evaluation, err));
    return tm_trainer_read(trainer, trainer->step->evaluation_loss, 0, loss, sizeof *loss, err);
}

/* Micro-batch `index` forward. */
static tm_status go_forward(tm_trainer *trainer, const tm_step_schedule *schedule, const tm_micro_batch *batch,
                            int64_t index, double *loss, tm_error *err)
{
    TM_TRY(feed(trainer, batch, index, err));
    TM_TRY(number_rows(trainer, index, err));
    TM_TRY(run_programs(trainer, schedule, err));
    return tm_trainer_read(trainer, trainer->step->evaluation_loss, 0, loss, sizeof *loss, err);
}

tm_status tm_trainer_forward(tm_trainer *trainer, const tm_micro_batch *batch, int64_t index, double *loss,
                             tm_error *err)
{
    return go_forward(trainer, &trainer->step->trial, batch, index, loss, err);
}

tm_status tm_trainer_exact(tm_trainer *trainer, const tm_micro_batch *batch, int64_t index, double *loss, tm_error *err)
{
    TM_ASSERT(trainer->step->exact.n > 0);
    return go_forward(trainer, &trainer->step->exact, batch, index, loss, err);
}

tm_status tm_trainer_forward_as(tm_trainer *trainer, const tm_micro_batch *batch, bool next, bool exact, double *loss,
                                tm_error *err)
{
    const double first = trainer->first_rows[0];
    trainer->first_rows[0] = next ? first_row_of(trainer, trainer->t + 1, 0) : first_row_of(trainer, trainer->t, 1);
    tm_status st =
        exact ? tm_trainer_exact(trainer, batch, 0, loss, err) : tm_trainer_forward(trainer, batch, 0, loss, err);
    trainer->first_rows[0] = first; /* the device has done with it: the loss was read */
    return st;
}

tm_status tm_trainer_validate(tm_trainer *trainer, const tm_micro_batch *batch, double *loss, tm_error *err)
{
    const tm_step          *step = trainer->step;
    const tm_step_schedule *schedule = &step->validation;
    if (schedule->n == 0) return tm_trainer_evaluate(trainer, batch, loss, err);
    TM_TRY(feed_into(trainer, step->validation_inputs, batch, 0, err));
    TM_TRY(run_programs(trainer, schedule, err));
    return tm_trainer_read(trainer, step->evaluation_loss, 0, loss, sizeof *loss, err);
}

tm_status tm_trainer_look(tm_trainer *trainer, const tm_micro_batch *batch, double *record, double losses[2],
                          tm_error *err)
{
    const tm_step       *step = trainer->step;
    const tm_microscope *microscope = &step->microscope;
    TM_ASSERT(step->look);
    TM_TRY(feed(trainer, batch, 0, err));
    TM_TRY(number_rows(trainer, 0, err));
    TM_TRY(tm_trainer_run(trainer, step->look, err));
    TM_TRY(tm_trainer_read(trainer, step->look_loss, 0, &losses[0], sizeof losses[0], err));
    TM_TRY(tm_trainer_read(trainer, step->reference_loss, 0, &losses[1], sizeof losses[1], err));
    return tm_trainer_read(trainer, microscope->record, 0, record, microscope->n_rows * TM_COMPARED * sizeof *record,
                           err);
}

tm_status tm_trainer_run(tm_trainer *trainer, const tm_program *program, tm_error *err)
{
    TM_TRY(renew_copies(trainer, err));
    return tm_device_run(trainer->device, program, NULL, err);
}

/* --- what it holds ------------------------------------------------------------------------------------------------ */

const tm_checkpoint_tensor *tm_trainer_tensors(const tm_trainer *trainer, size_t *count)
{
    *count = trainer->n_tensors;
    return trainer->tensors;
}

tm_device *tm_trainer_device(const tm_trainer *trainer)
{
    return trainer->device;
}
