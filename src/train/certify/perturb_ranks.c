/* SPDX-License-Identifier: Apache-2.0 */
/* train/certify/perturb_ranks.c - what the motion of weights (train/certify/perturb.h) has to do with other ranks:
 * which sums over them gradients lack before an update (train/step/data_parallel.c, train/step/stages.c), and what each
 * adds to numbers of the whole model. */
#include "train/certify/perturb.h"

#include "base/arena.h"
#include "base/random.h"
#include "train/step/stages.h"

#include <stdlib.h>
#include <string.h>

static const unsigned pipeline_axes = 1U << TM_AXIS_PP;
enum { WORD = 64, NAME = sizeof((tm_motion_group *)0)->name };

static const tm_layout *layout_of(const tm_motion *motion)
{
    return &motion->step->options.layout;
}

/* --- what there is ------------------------------------------------------------------------------------------------ */

/* The rank of the group of stages that has the other copy of a table which is looked up and multiplied with, too. */
static int other_stage(const tm_step *step, tm_tensor_id id)
{
    const tm_model *m = &step->model;
    if (!stages_cut(step) || !m->shape->tied || id != m->embedding || tm_parallel_piece(&m->parallel)) return -1;
    return tm_parallel_begins(&m->parallel) ? tm_layout_size(&step->options.layout, pipeline_axes) - 1 : 0;
}

void tm_motion_join(const tm_motion *motion, tm_motion_member *m)
{
    const tm_step   *step = motion->step;
    const tm_tensor *tensor = tm_graph_at(step->graph, m->id);
    bool             divided = tensor->cut && tensor->cut->axes != 0; /* not among stages */
    double           parts = tm_layout_size(layout_of(motion), pipeline_axes) * (divided ? tensor->cut->ranks : 1);
    m->other = other_stage(step, m->id);
    m->earlier = TM_NONE;
    m->part = tensor->twin ? 0 : parts / tm_layout_size(layout_of(motion), TM_AXES_WORLD);
    for (size_t u = 0; u < step->units.n_units; u++) {
        const tm_unit *unit = &step->units.units[u];
        for (size_t k = 0; k < unit->n_members; k++) {
            if (unit->members[k].parameter != m->id) continue;
            m->apart = unit->group.data | (unit->sharing == TM_SHARE_OPTIMIZER ? unit->group.axes : 0);
            m->sums = unit->sharing < TM_SHARE_GRADIENTS ? tensor->sums : 0;
            m->late = unit->reduced;
            if (step->part_gradients) m->earlier = step->part_gradients[u];
            m->earlier_first = unit->members[k].first - unit->gradients_first;
            if (unit->gathered != unit->dtype) m->used = unit->gathered;
        }
    }
}

tm_status tm_motion_agree(tm_motion *motion, tm_error *err)
{
    const int stages = tm_layout_size(layout_of(motion), pipeline_axes);
    if (stages == 1) return TM_OK;
    const int        own = tm_mesh_group_rank(&layout_of(motion)->mesh, layout_of(motion)->rank, pipeline_axes);
    double          *counts = tm_alloc((size_t)stages * sizeof *counts), *names;
    size_t           all = 0, first = 0, n = motion->n_groups;
    tm_motion_group *groups = motion->groups;
    counts[own] = (double)n;
    tm_status st = tm_trainer_sum(motion->trainer, pipeline_axes, counts, (size_t)stages, err);
    for (int s = 0; s < stages; s++) {
        if (s == own) first = all;
        all += (size_t)counts[s];
    }
    names = tm_alloc(all * NAME * sizeof *names); /* a character each */
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < NAME; k++) names[(first + i) * NAME + k] = (unsigned char)groups[i].name[k];
    if (st == TM_OK) st = tm_trainer_sum(motion->trainer, pipeline_axes, names, all * NAME, err);
    if (st == TM_OK) {
        motion->groups = NULL;
        motion->n_groups = motion->groups_capacity = 0;
        for (size_t i = 0; i < all; i++) {
            char name[NAME];
            for (size_t k = 0; k < NAME; k++) name[k] = (char)names[i * NAME + k];
            tm_motion_group_named(motion, name);
        }
        for (size_t k = 0; k < motion->n_members; k++)
            motion->members[k].group = tm_motion_group_named(motion, groups[motion->members[k].group].name);
        free(groups);
    }
    free(names);
    free(counts);
    return st;
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

/* Two stages have a table, and each its term of the gradient: they give them to each other. */
static tm_status exchange(tm_motion *motion, int other, int64_t n, tm_error *err)
{
    tm_comm      *stages = tm_device_group(tm_trainer_device(motion->trainer), pipeline_axes);
    double       *term = (double *)motion->piece[0];
    tm_collective call = { .kind = TM_COMM_SEND,
                           .format = TM_COMM_FLOAT64,
                           .send = motion->gradient,
                           .receive = term,
                           .count = (size_t)n,
                           .peer = other,
                           .buffered = true,
                           .what = "gradients of the table",
                           .step = -1 };
    TM_TRY(tm_comm_run(stages, &call, err));
    call.kind = TM_COMM_RECEIVE;
    call.buffered = false;
    TM_TRY(tm_comm_run(stages, &call, err));
    for (int64_t i = 0; i < n; i++) motion->gradient[i] += term[i];
    return TM_OK;
}

tm_status tm_motion_complete(tm_motion *motion, const tm_motion_member *m, int64_t n, tm_error *err)
{
    const tm_tensor_id gradient = tm_graph_at(motion->step->graph, m->id)->gradient;
    const bool         taken = motion->reduced && m->late;
    const unsigned     apart = tm_motion_shared(motion, gradient) | (taken ? 0 : m->apart);
    if (m->other >= 0) TM_TRY(exchange(motion, m->other, n, err));
    if (!taken) TM_TRY(tm_trainer_sum(motion->trainer, m->sums, motion->gradient, (size_t)n, err));
    return tm_trainer_sum(motion->trainer, apart, motion->gradient, (size_t)n, err);
}

/* Copies of some rows of a table go with it: the first stage has the sums of all of it, and gives them to the others.
 */
static tm_status take_table(tm_motion *motion, bool whole, double values[2], tm_error *err)
{
    const bool begins = tm_parallel_begins(&motion->step->model.parallel);
    if (whole || !begins) {
        memcpy(motion->table, whole ? values : (double[2]){ 0, 0 }, sizeof motion->table);
        TM_TRY(tm_trainer_sum(motion->trainer, pipeline_axes, motion->table, 2, err));
    }
    memcpy(values, motion->table, sizeof motion->table);
    return TM_OK;
}

tm_status tm_motion_sum_parts(tm_motion *motion, const tm_motion_member *m, double values[2], tm_error *err)
{
    const tm_cut   *cut = tm_graph_at(motion->step->graph, m->id)->cut;
    const tm_model *model = &motion->step->model;
    const bool      divided = tm_parallel_piece(&model->parallel) != NULL;
    if (divided && model->shape->tied && (m->id == model->embedding || m->id == model->head))
        return take_table(motion, m->id == model->embedding, values, err);
    if (divided && m->id == model->head) return tm_trainer_sum(motion->trainer, pipeline_axes, values, 2, err);
    return cut ? tm_trainer_sum(motion->trainer, cut->axes, values, 2, err) : TM_OK;
}

tm_status tm_motion_sum_groups(tm_motion *motion, tm_error *err)
{
    double *values = tm_alloc(3 * motion->n_groups * sizeof *values);
    for (size_t i = 0; i < motion->n_groups; i++) {
        const tm_motion_group *g = &motion->groups[i];
        memcpy(values + 3 * i, (double[]){ g->norm, g->size, g->spread }, 3 * sizeof *values);
    }
    tm_status st = tm_trainer_sum(motion->trainer, TM_AXES_WORLD, values, 3 * motion->n_groups, err);
    for (size_t i = 0; i < motion->n_groups && st == TM_OK; i++) {
        tm_motion_group *g = &motion->groups[i];
        g->norm = values[3 * i], g->size = values[3 * i + 1], g->spread = values[3 * i + 2];
    }
    free(values);
    return st;
}

/* --- places ------------------------------------------------------------------------------------------------------- */

/* Where element i is in the whole tensor, and in *run how many from there on follow one another there as here. */
static int64_t place_of(const tm_tensor *t, int64_t i, int64_t *run)
{
    *run = INT64_MAX;
    if (!t->cut) return i;
    int64_t         columns = tm_piece_row(t->shape), all = tm_piece_row(t->cut->whole), row = i / columns;
    const tm_piece *piece = t->pieces;
    while (row >= piece->row + piece->rows) piece++;
    *run = columns == all ? (piece->row + piece->rows) * columns - i : columns - i % columns;
    return (piece->begin + row - piece->row) * all + t->cut->column + i % columns;
}

uint64_t tm_motion_signs(const tm_tensor *tensor, uint64_t seed, uint64_t stream, int64_t first, int64_t n)
{
    uint64_t signs = 0;
    for (int64_t done = 0, run; done < n; done += run) {
        int64_t place = place_of(tensor, first + done, &run), at = place % WORD;
        if (run > WORD - at) run = WORD - at;
        if (run > n - done) run = n - done;
        uint64_t bits = tm_random_u64(seed, stream, (uint64_t)(place / WORD)) >> at;
        if (run < WORD) bits &= (1ULL << run) - 1;
        signs |= bits << done;
    }
    return signs;
}
