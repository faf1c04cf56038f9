/* SPDX-License-Identifier: Apache-2.0 */
/* train/run/saved_batch.c - what a step was fed, kept in the format of checkpoints: a tensor (samples, ...) for each
 * field, of which every rank that reads data writes its rows. */
#include "train/run/run_state.h"

#include "base/arena.h"
#include "train/parallel/agree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const scalar_names[] = { "targets" };

static tm_status from_host(const tm_checkpoint_memory *memory, tm_address from, void *to, size_t bytes, tm_error *err)
{
    (void)memory, (void)err;
    memcpy(to, (const void *)from.at, bytes); // NOLINT(performance-no-int-to-ptr)
    return TM_OK;
}

static tm_status to_host(const tm_checkpoint_memory *memory, tm_address to, const void *from, size_t bytes,
                         tm_error *err)
{
    (void)memory, (void)err;
    memcpy((void *)to.at, from, bytes); // NOLINT(performance-no-int-to-ptr)
    return TM_OK;
}

/* Fields of a language are tokens and targets where the options name none. */
static int fields_of(const tm_step_options *o, tm_field out[TM_MAX_FIELDS])
{
    if (o->n_fields > 0) {
        memcpy(out, o->fields, sizeof o->fields);
        return o->n_fields;
    }
    out[0] = (tm_field){ .name = "tokens", .dtype = TM_I32, .shape = tm_shape_1(o->seq) };
    out[1] = (tm_field){ .name = "targets", .dtype = TM_I32, .shape = tm_shape_1(o->seq) };
    return 2;
}

/* This rank's rows of the fields. *n: how many there are. */
static void list(const run *r, const tm_field *fields, int n, void *const *data, const tm_checkpoint_memory *memory,
                 bool elsewhere, tm_checkpoint_tensor *out)
{
    const int64_t rows = run_global_batch(r->options) / run_part(r->options).ranks, all = run_global_batch(r->options);
    for (int f = 0; f < n; f++) {
        const tm_shape shape = fields[f].shape;
        size_t         row = (size_t)tm_shape_elements(shape) * tm_dtype_bytes(fields[f].dtype);
        size_t         part = row * (size_t)rows, whole = row * (size_t)all;
        out[f] = (tm_checkpoint_tensor){ .name = fields[f].name,
                                         .dtype = (int)fields[f].dtype,
                                         .rank = 2,
                                         .n = { all, tm_shape_elements(shape) },
                                         .bytes = part,
                                         .at = { (uintptr_t)data[f] },
                                         .memory = memory,
                                         .elsewhere = elsewhere };
        if (part < whole)
            out[f].part = (tm_checkpoint_part){ .whole_bytes = whole,
                                                .row_bytes = whole,
                                                .rows = 1,
                                                .first_byte = part * (size_t)run_part(r->options).rank,
                                                .row_part = part };
    }
}

/* Has a rank below this one the same rows? */
static tm_status find_elsewhere(const run *r, bool *elsewhere, tm_error *err)
{
    const int ranks = run_ranks(r->options);
    int64_t   own = run_part(r->options).rank, *all = tm_alloc((size_t)ranks * sizeof *all);
    tm_status st = agree_gather(run_world(r), "who has which rows of a batch", &own, sizeof own, all, err);
    *elsewhere = false;
    for (int k = 0; k < run_rank(r->options) && st == TM_OK; k++) *elsewhere = *elsewhere || all[k] == own;
    free(all);
    return st;
}

tm_status run_save_batch(const run *r, const char *folder, int64_t step, const void *const *fields, int64_t targets,
                         tm_error *err)
{
    const tm_run_options      *o = r->options;
    const tm_checkpoint_memory memory = { from_host, to_host, NULL };
    const tm_checkpoint_target target = { .world = run_world(r), .folder = folder, .keep_latest = 1 };
    tm_checkpoint_state        state = { .step = step, .seed = o->seed, .config_hash = o->config_hash };
    tm_checkpoint_tensor       tensors[TM_MAX_FIELDS];
    tm_field                   named[TM_MAX_FIELDS];
    tm_checkpoint_saving      *saving;
    void                      *data[TM_MAX_FIELDS];
    bool                       elsewhere;
    const int                  n = fields_of(&o->step, named);
    for (int f = 0; f < n; f++) data[f] = (void *)(uintptr_t)fields[f]; // NOLINT(performance-no-int-to-ptr)
    tm_checkpoint_add_scalar(&state, scalar_names[0], (double)targets);
    snprintf(state.model, sizeof state.model, "%s", o->model_name);
    TM_TRY(find_elsewhere(r, &elsewhere, err));
    list(r, named, n, data, &memory, elsewhere, tensors);
    TM_TRY(tm_checkpoint_begin(&target, &state, tensors, (size_t)n, &saving, err));
    return tm_checkpoint_commit(saving, err);
}

tm_status run_load_batch(const run *r, const char *folder, int64_t step, void *const *fields, int64_t *targets,
                         tm_error *err)
{
    const tm_checkpoint_memory memory = { from_host, to_host, NULL };
    tm_checkpoint_state        state;
    tm_checkpoint_report       report = { 0 };
    tm_checkpoint_tensor       tensors[TM_MAX_FIELDS];
    tm_field                   named[TM_MAX_FIELDS];
    double                     counted;
    const int                  n = fields_of(&r->options->step, named);
    list(r, named, n, fields, &memory, false, tensors);
    TM_TRY(tm_checkpoint_load_together(run_world(r), folder, step, &state, tensors, (size_t)n, &report, err));
    TM_TRY(tm_checkpoint_scalars(&state, scalar_names, &counted, 1, err));
    *targets = (int64_t)counted;
    return TM_OK;
}
