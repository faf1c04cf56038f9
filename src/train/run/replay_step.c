/* SPDX-License-Identifier: Apache-2.0 */
#include "train/run/replay_step.h"

#include "base/arena.h"
#include "base/hash.h"
#include "graph/value.h"
#include "train/parallel/agree.h"
#include "train/run/run_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 20 };

/* --- where it begins ---------------------------------------------------------------------------------------------- */

tm_status tm_step_replay_from(const char *folder, int64_t step, int64_t *from, tm_error *err)
{
    *from = 0;
    return folder && tm_checkpoint_present(folder) ? tm_checkpoint_before(folder, step, from, err) : TM_OK;
}

static tm_status choose_checkpoint(const tm_run_options *given, const tm_step_replay *replay, tm_run_options *own,
                                   tm_error *err)
{
    int64_t   from = 0;
    tm_comm  *world = given->ranks ? given->ranks->world : NULL;
    tm_status st = TM_OK;
    if (run_rank(given) == 0) st = tm_step_replay_from(given->checkpoint_folder, replay->step, &from, err);
    TM_TRY(agree_status(world, "looking for a checkpoint", st, err));
    TM_TRY(agree_bytes(world, "the checkpoint to begin with", &from, sizeof from, err));
    own->checkpoint = from > 0;
    own->checkpoint_load_step = from;
    return TM_OK;
}

/* --- a step ------------------------------------------------------------------------------------------------------- */

/* What a step is fed, by a loader or from a file. */
typedef struct {
    tm_micro_batch batch;
    int64_t        targets;
    void          *own[TM_MAX_FIELDS]; /* of a file: to be freed */
} meal;

static tm_status next_meal(run *r, meal *m, tm_error *err)
{
    tm_batch batch;
    int64_t  waited;
    tm_loader_next(r->loader, &batch);
    TM_TRY(run_all_targets(r, run_check_batch(&batch, err), batch.target_tokens, &m->targets, &waited, err));
    m->batch = run_micro_batch(&batch);
    return TM_OK;
}

static tm_status saved_meal(const run *r, const tm_step_replay *replay, meal *m, tm_error *err)
{
    const tm_step_options *o = &r->options->step;
    const int64_t          rows = o->micro_batch * o->accumulation;
    for (int f = 0; f < TM_MAX_FIELDS; f++) {
        size_t bytes = f < o->n_fields
                           ? (size_t)tm_shape_elements(o->fields[f].shape) * tm_dtype_bytes(o->fields[f].dtype)
                       : o->n_fields == 0 && f < 2 ? (size_t)o->seq * sizeof(int32_t)
                                                   : 0;
        m->own[f] = bytes > 0 ? tm_alloc((size_t)rows * bytes) : NULL;
        m->batch.field[f] = m->own[f];
    }
    return run_load_batch(r, replay->batch, replay->step, m->own, &m->targets, err);
}

static tm_status do_step(run *r, int64_t step, const meal *m, tm_step_result *result, tm_error *err)
{
    const tm_run_options *o = r->options;
    double                rate = o->learning_rate * tm_schedule_factor(&o->schedule, step - 1);
    TM_TRY(tm_trainer_begin(r->trainer, step, rate, o->max_norm, m->targets, err));
    return tm_trainer_step(r->trainer, &m->batch, result, NULL, err);
}

/* --- what is left behind ------------------------------------------------------------------------------------------ */

typedef struct {
    uint64_t hash;
    double   squares, largest;
} looked;

/* The bytes of a tensor, all of them, as every rank of its group reads them. */
static tm_status look_at(const tm_trainer *trainer, tm_tensor_id id, char *chunk, looked *out, tm_error *err)
{
    const tm_tensor *tensor = tm_graph_at(tm_trainer_step_of(trainer)->graph, id);
    const size_t     bytes = tm_tensor_bytes(tensor->shape, tensor->dtype), size = tm_dtype_bytes(tensor->dtype);
    tm_hasher       *hasher = tm_hasher_create();
    tm_status        st = TM_OK;
    *out = (looked){ 0 };
    for (size_t at = 0; at < bytes && st == TM_OK; at += CHUNK) {
        size_t n = bytes - at < CHUNK ? bytes - at : CHUNK;
        st = tm_trainer_read(trainer, id, at, chunk, n, err);
        if (st != TM_OK) break;
        tm_hasher_add(hasher, chunk, n);
        for (size_t i = 0; i < n / size; i++) {
            double value = tm_value_get(chunk, tensor->dtype, (int64_t)i);
            out->squares += value * value;
            if (!(fabs(value) <= out->largest)) out->largest = fabs(value); /* NAN stays */
        }
    }
    out->hash = tm_hasher_value(hasher);
    tm_hasher_destroy(hasher);
    return st;
}

static tm_status look_at_all(const tm_trainer *trainer, tm_step_replayed *out, tm_error *err)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    char           *chunk = tm_alloc(CHUNK);
    tm_status       st = TM_OK;
    out->tensors = tm_arena_take(out->arena, (graph->n_tensors + 1) * sizeof *out->tensors);
    out->n_tensors = 0;
    for (size_t t = 0; t < graph->n_tensors && st == TM_OK; t++) {
        const tm_tensor *tensor = &graph->tensors[t];
        looked           weight, gradient;
        if (tensor->role != TM_ROLE_PARAMETER || tensor->gradient == TM_NONE || tensor->twin) continue;
        st = look_at(trainer, (tm_tensor_id)t, chunk, &weight, err);
        if (st == TM_OK) st = look_at(trainer, tensor->gradient, chunk, &gradient, err);
        out->tensors[out->n_tensors++] = (tm_step_replayed_tensor){ .name = tm_arena_text(out->arena, tensor->name),
                                                                    .layer = tensor->layer,
                                                                    .weight = weight.hash,
                                                                    .gradient = gradient.hash,
                                                                    .weight_norm = sqrt(weight.squares),
                                                                    .gradient_norm = sqrt(gradient.squares),
                                                                    .weight_largest = weight.largest,
                                                                    .gradient_largest = gradient.largest };
    }
    free(chunk);
    return st;
}

/* --- twice -------------------------------------------------------------------------------------------------------- */

/* All that a checkpoint would hold of this rank, one tensor behind the other. */
static tm_status move_all(const tm_trainer *trainer, char *at, bool back, tm_error *err)
{
    size_t                      n;
    const tm_checkpoint_tensor *tensors = tm_trainer_tensors(trainer, &n);
    for (size_t i = 0; i < n; i++)
        for (size_t done = 0; done < tensors[i].bytes;) {
            const tm_checkpoint_memory *memory = tensors[i].memory;
            tm_address                  place = tm_address_add(tensors[i].at, done);
            size_t                      part = tensors[i].bytes - done < CHUNK ? tensors[i].bytes - done : CHUNK;
            TM_TRY(back ? memory->write(memory, place, at, part, err) : memory->read(memory, place, at, part, err));
            at += part;
            done += part;
        }
    return TM_OK;
}

static size_t bytes_of_all(const tm_trainer *trainer)
{
    size_t                      n, bytes = 0;
    const tm_checkpoint_tensor *tensors = tm_trainer_tensors(trainer, &n);
    for (size_t i = 0; i < n; i++) bytes += tensors[i].bytes;
    return bytes;
}

/* The first tensor that is not the same in two copies of all; NULL: none. */
static const char *first_different(const tm_trainer *trainer, const char *a, const char *b)
{
    size_t                      n, at = 0;
    const tm_checkpoint_tensor *tensors = tm_trainer_tensors(trainer, &n);
    for (size_t i = 0; i < n; at += tensors[i++].bytes)
        if (memcmp(a + at, b + at, tensors[i].bytes) != 0) return tensors[i].name;
    return NULL;
}

static bool same_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

/* What differs between the first time (`out`, `after`) and now. */
static tm_status compare_times(run *r, tm_step_replayed *out, const tm_step_result *again, const char *after, char *now,
                               tm_error *err)
{
    tm_step_replayed second = { .arena = out->arena };
    const char      *differs = !same_bits(again->loss, out->loss)             ? "loss"
                               : !same_bits(again->grad_norm, out->grad_norm) ? "gradient norm"
                                                                              : NULL;
    TM_TRY(look_at_all(r->trainer, &second, err));
    for (size_t i = 0; i < second.n_tensors && !differs; i++)
        if (second.tensors[i].gradient != out->tensors[i].gradient)
            differs = tm_arena_format(out->arena, "gradient of %s", out->tensors[i].name);
    TM_TRY(move_all(r->trainer, now, false, err));
    if (!differs) differs = first_different(r->trainer, after, now);
    out->same = differs == NULL;
    snprintf(out->differs, sizeof out->differs, "%s", differs ? differs : "");
    return TM_OK;
}

/* `before`: all of the state in front of the step. */
static tm_status do_again(run *r, const meal *m, const char *before, tm_step_replayed *out, tm_error *err)
{
    const size_t   bytes = bytes_of_all(r->trainer);
    char          *after = tm_alloc(bytes), *now = tm_alloc(bytes);
    tm_step_result again;
    int64_t        apart;
    out->twice = true;
    tm_status st = move_all(r->trainer, after, false, err);
    if (st == TM_OK) st = move_all(r->trainer, (char *)(uintptr_t)before, true, err);
    if (st == TM_OK) st = do_step(r, out->step, m, &again, err);
    if (st == TM_OK) st = compare_times(r, out, &again, after, now, err);
    apart = st == TM_OK && !out->same;
    if (st == TM_OK) st = agree_max(run_world(r), "whether both times were the same", &apart, 1, err);
    if (st == TM_OK && apart && out->same) snprintf(out->differs, sizeof out->differs, "tensors of another rank");
    out->same = !apart;
    free(after);
    free(now);
    return st;
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

/* The step that it is about, looked at. */
static tm_status look_at_step(run *r, const meal *m, tm_step_replayed *out, tm_error *err)
{
    tm_step_result result = { 0 };
    tm_locator    *locator = tm_locator_open(r->trainer);
    tm_status      st = do_step(r, out->step, m, &result, err);
    out->any = st == TM_OK && tm_locator_found(locator) != NULL;
    if (out->any) out->found = *tm_locator_found(locator);
    tm_locator_close(locator);
    TM_TRY(st);
    out->found.rank = run_rank(r->options);
    out->found.ranks = run_ranks(r->options);
    out->found.repeated = true;
    TM_TRY(tm_locate_agree(run_world(r), &out->found, &out->any, err));
    out->found.step = out->step;
    out->loss = result.loss;
    out->grad_norm = result.grad_norm;
    out->learning_rate = r->options->learning_rate * tm_schedule_factor(&r->options->schedule, out->step - 1);
    TM_TRY(tm_trainer_weights_hash(r->trainer, &out->weights, err));
    return look_at_all(r->trainer, out, err);
}

static tm_status replay_step(run *r, const tm_step_replay *replay, meal *m, tm_step_replayed *out, tm_error *err)
{
    char     *before = NULL;
    tm_status st = replay->batch ? saved_meal(r, replay, m, err) : next_meal(r, m, err);
    if (st == TM_OK) st = tm_trainer_weights_hash(r->trainer, &out->weights_before, err);
    if (st == TM_OK && replay->twice) {
        before = tm_alloc(bytes_of_all(r->trainer));
        st = move_all(r->trainer, before, false, err);
    }
    if (st == TM_OK) st = look_at_step(r, m, out, err);
    if (st == TM_OK && replay->twice) st = do_again(r, m, before, out, err);
    free(before);
    for (int f = 0; f < TM_MAX_FIELDS; f++) free(m->own[f]);
    return st;
}

static tm_status go_there(run *r, const tm_step_replay *replay, tm_step_replayed *out, tm_error *err)
{
    meal           m = { 0 };
    tm_step_result result;
    const int64_t  first = r->progress.first_step;
    out->from = first - 1;
    if (!r->source && (first < replay->step || !replay->batch))
        return tm_fail(
            err, TM_INVALID,
            "step %lld of the run needs its data from step %lld on, and the data is not here; bring it back, "
            "or give --batch and the checkpoint of step %lld",
            (long long)replay->step, (long long)first, (long long)replay->step - 1);
    if (r->source) {
        r->loader = tm_loader_open_part(r->source, TM_SPLIT_TRAIN, run_global_batch(r->options), run_part(r->options),
                                        r->progress.first_sample, r->options->prefetch);
        if (!r->loader) return tm_fail(err, TM_INTERNAL, "cannot start the thread that reads data");
    }
    for (int64_t step = first; step < replay->step; step++) {
        int64_t stopped = *r->stop != 0;
        TM_TRY(agree_max(run_world(r), "whether to go on", &stopped, 1, err));
        if (stopped) return tm_fail(err, TM_INTERRUPTED, "stopped before step %lld", (long long)step);
        TM_TRY(next_meal(r, &m, err));
        TM_TRY(do_step(r, step, &m, &result, err));
    }
    return replay_step(r, replay, &m, out, err);
}

tm_status tm_run_replay(const tm_run_options *options, tm_device *device, const tm_source *source,
                        const tm_step_replay *replay, const volatile sig_atomic_t *stop, tm_step_replayed *out,
                        tm_error *err)
{
    tm_event_bus   nobody = { 0 };
    tm_run_options own = *options;
    *out = (tm_step_replayed){ .step = replay->step, .arena = tm_arena_create() };
    if (replay->step < 1 || replay->step > options->steps)
        return tm_fail(err, TM_INVALID, "--step must be one of the run's steps, 1 to %lld, found %lld",
                       (long long)options->steps, (long long)replay->step);
    TM_TRY(choose_checkpoint(options, replay, &own, err));
    run r = run_new(&own, device, source, &nobody);
    r.stop = stop;
    tm_step_options step = run_step_options(&r);
    tm_status       st = tm_trainer_open(device, &step, own.seed, &r.trainer, err);
    if (st == TM_OK && source) st = run_check_same(&r, err);
    if (st == TM_OK) st = run_begin(&r, err);
    if (st == TM_OK) st = go_there(&r, replay, out, err);
    tm_loader_close(r.loader);
    tm_trainer_close(r.trainer);
    return st;
}

void tm_step_replayed_fini(tm_step_replayed *replayed)
{
    tm_arena_destroy(replayed->arena);
}
