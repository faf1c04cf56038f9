/* SPDX-License-Identifier: Apache-2.0 */
/* train/run/together.c - what the ranks of a run ask each other: are they one and the same run, what do they train on
 * together, who holds up the others. */
#include "base/arena.h"
#include "base/clock.h"
#include "base/program.h"
#include "base/text.h"
#include "train/parallel/agree.h"
#include "train/run/run_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the same run ------------------------------------------------------------------------------------------------- */

enum { PROGRAM, CONFIGURATION, DATA, WHATS };
static const char *const what_differs[WHATS] = { "the program", "the configuration", "the data" };

/* Ranks that do not have what most have (the first of equals), as "rank 1" or "ranks 1, 3". */
static void list_others(const uint64_t *all, int ranks, int what, tm_text *out)
{
    int most = 0, best = 0, others = 0;
    for (int r = 0; r < ranks; r++) {
        int same = 0;
        for (int k = 0; k < ranks; k++) same += all[k * WHATS + what] == all[r * WHATS + what];
        if (same > best) {
            best = same;
            most = r;
        }
    }
    tm_text_add(out, ranks - best == 1 ? "rank " : "ranks ");
    for (int r = 0; r < ranks; r++) {
        if (all[r * WHATS + what] == all[most * WHATS + what]) continue;
        if (others++ < 16) tm_text_printf(out, "%s%d", others > 1 ? ", " : "", r);
    }
    if (others > 16) tm_text_printf(out, " and %d more", others - 16);
}

tm_status run_check_same(const run *r, tm_error *err)
{
    const int               ranks = run_ranks(r->options);
    const tm_pipeline_list *list = r->options->step.layout.list; /* of a file, which may be another on another host */
    const uint64_t          own[WHATS] = { tm_program_hash(), r->options->config_hash ^ (list ? list->hash : 0),
                                           tm_source_describe(r->source)->content };
    tm_text                 text = { 0 };
    if (!run_world(r)) return TM_OK;
    uint64_t *all = tm_alloc((size_t)ranks * sizeof own);
    tm_status st = agree_gather(run_world(r), "program, configuration and data", own, sizeof own, all, err);
    for (int what = 0; what < WHATS && st == TM_OK; what++) {
        bool same = true;
        for (int k = 1; k < ranks; k++) same = same && all[k * WHATS + what] == all[what];
        if (same) continue;
        tm_text_printf(&text, "%s%s of ", text.length ? "; " : "", what_differs[what]);
        list_others(all, ranks, what, &text);
    }
    if (text.length)
        st = tm_fail(err, TM_INVALID,
                     "not all ranks are of one run: %s differs from that of the others; start all %d "
                     "with the same program, configuration and data",
                     text.data, ranks);
    tm_text_fini(&text);
    free(all);
    return st;
}

/* --- a step ------------------------------------------------------------------------------------------------------- */

tm_status run_all_targets(const run *r, tm_status st, int64_t own, int64_t *all, int64_t *waited_ns, tm_error *err)
{
    *all = own;
    *waited_ns = 0;
    if (!run_world(r)) return st;
    int64_t begin = tm_now_ns();
    TM_TRY(agree_status(run_world(r), "reading samples", st, err));
    TM_TRY(agree_sum(r->options->ranks->batch, "the targets of a step", all, 1, err));
    *waited_ns = tm_now_ns() - begin;
    return TM_OK;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

static int compare_f64(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts them. */
static double median(double *values, int64_t n)
{
    if (n == 0) return (double)NAN;
    qsort(values, (size_t)n, sizeof *values, compare_f64);
    return n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

/* What a rank tells the others. */
typedef struct {
    double  step, busy, wait;
    int64_t targets, used_bytes, data_rank;

    tm_gpu_neighbours near;
} told;

static told tell(const run *r, int64_t warmup)
{
    int64_t n = r->progress.done - warmup;
    double *values = tm_alloc((size_t)n * sizeof *values);
    told    own = { .targets = r->progress.own_targets,
                    .data_rank = run_part(r->options).rank,
                    .near = tm_device_describe(r->device)->near };
    memcpy(values, r->timing.step_seconds + warmup, (size_t)n * sizeof *values);
    own.step = median(values, n);
    memcpy(values, r->timing.busy_seconds + warmup, (size_t)n * sizeof *values);
    own.busy = median(values, n);
    for (int64_t i = 0; i < n; i++) values[i] = r->timing.step_seconds[warmup + i] - r->timing.busy_seconds[warmup + i];
    own.wait = median(values, n);
    own.used_bytes = tm_device_used_bytes(r->device, tm_trainer_arena(r->trainer),
                                          tm_trainer_step_of(r->trainer)->plan->arena_bytes);
    free(values);
    return own;
}

/* Beside the others of its part of a pipeline, for parts are not alike. */
static void compare(const tm_mesh *mesh, tm_rank_told *ranks, int n)
{
    double *others = tm_alloc((size_t)n * sizeof *others);
    for (int r = 0; r < n; r++) {
        int64_t count = 0;
        for (int k = 0; k < n; k++)
            if (k != r && tm_mesh_at(mesh, k, TM_AXIS_PP) == tm_mesh_at(mesh, r, TM_AXIS_PP))
                others[count++] = ranks[k].busy_seconds;
        ranks[r].behind = ranks[r].busy_seconds / median(others, count) - 1;
    }
    free(others);
}

tm_status run_compare_ranks(const run *r, tm_rank_told *out, size_t *n, tm_error *err)
{
    tm_comm  *world = run_world(r);
    const int ranks = run_ranks(r->options);
    *n = 0;
    if (!world) return TM_OK;
    int64_t warmup = r->timing.speed.warmup < r->progress.done ? r->timing.speed.warmup : 0;
    TM_TRY(agree_bytes(world, "the steps that count", &warmup, sizeof warmup, err));
    told      own = tell(r, warmup);
    told     *all = tm_alloc((size_t)ranks * sizeof *all);
    tm_status st = agree_gather(world, "times of ranks", &own, sizeof own, all, err);
    for (int k = 0; k < ranks && st == TM_OK; k++) {
        const tm_gpu_neighbours *near = &all[k].near;
        tm_rank_told            *rank = &out[(*n)++];
        *rank = (tm_rank_told){ .rank = k,
                                .data_rank = (int)all[k].data_rank,
                                .host = tm_comm_place_of(world, k).host_name,
                                .step_seconds = all[k].step,
                                .busy_seconds = all[k].busy,
                                .wait_seconds = all[k].wait,
                                .target_tokens = all[k].targets,
                                .used_bytes = all[k].used_bytes,
                                .numa_node = near->bus[0] ? near->numa_node : -1 };
        memcpy(rank->gpu, near->bus, sizeof rank->gpu);
        memcpy(rank->nic, near->nic, sizeof rank->nic);
    }
    free(all);
    compare(&r->options->ranks->mesh, out, (int)*n);
    return st;
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

tm_status run_count_samples(const run *r, int64_t *seen, int64_t *unique, tm_error *err)
{
    const tm_ranks *ranks = r->options->ranks;
    uint64_t       *own = tm_alloc(TM_LOADER_WATCHED * sizeof *own), *all = NULL;
    const size_t    bytes = TM_LOADER_WATCHED * sizeof *own;
    uint64_t        before = 0; /* that of no sample: such come first */
    tm_status       st = TM_OK;
    tm_loader_unique(r->loader, seen, unique, own);
    if (ranks && ranks->batch) { /* the same sample on two ranks counts once */
        size_t n = (size_t)ranks->data_ranks * TM_LOADER_WATCHED;
        all = tm_alloc(n * sizeof *all);
        st = agree_sum(ranks->batch, "samples that were read", seen, 1, err);
        if (st == TM_OK) st = agree_gather(ranks->batch, "hashes of samples", own, bytes, all, err);
        qsort(all, n, sizeof *all, compare_u64);
        *unique = 0;
        for (size_t i = 0; i < n; before = all[i++]) *unique += all[i] != before;
    }
    free(all);
    free(own);
    return st;
}
