/* SPDX-License-Identifier: Apache-2.0 */
/* The certificate of the update on several ranks: weights that one rank lacks behind the update, or a sum that it lacks
 * in front of it, are found. (Honest updates: test_rank_events.c.) */
#include "support/test.h"
#include "ranks_fixture.h"
#include "train/certify/update.h"

static const double rate = 2e-3, most = 0.5;

typedef enum {
    NOTHING,
    NOT_GATHERED, /* rank 1 keeps the old weights of what others update */
    OTHER_COPY,   /* rank 1 has other weights in one layer */
    NOT_SUMMED,   /* rank 1 updates by a gradient that is half of what it is */
    DEFECTS
} defect;

typedef struct {
    tm_update_certificate found[MOST_RANKS];
    defect                planted;
} looked;

/* Doubles the gradients of block 0 that this rank updates by. */
static void spoil_gradients(tm_trainer *trainer)
{
    const tm_step *step = tm_trainer_step_of(trainer);
    for (size_t u = 0; u < step->units.n_units; u++) {
        tm_tensor_id id = step->units.units[u].gradients;
        if (step->units.units[u].layer != 0 || id == TM_NONE) continue;
        double *values = test_values_read(trainer, id);
        for (int64_t i = 0; i < tm_shape_elements(tm_graph_at(step->graph, id)->shape); i++) values[i] /= 2;
        test_values_write(trainer, id, values);
        free(values);
    }
}

/* Of flat weights that are whole here: what other ranks have updated, or block 0. */
static double *keep_unit(const tm_trainer *trainer, size_t u)
{
    return test_values_read(trainer, tm_trainer_step_of(trainer)->units.units[u].weights);
}

static void spoil_unit(tm_trainer *trainer, size_t u, const double *old, defect d)
{
    const tm_unit *unit = &tm_trainer_step_of(trainer)->units.units[u];
    double        *now = keep_unit(trainer, u);
    for (int64_t i = 0; i < unit->elements; i++) {
        bool own = i >= unit->group.rank * unit->share && i < (unit->group.rank + 1) * unit->share;
        if (d == NOT_GATHERED && !own) now[i] = old[i];
        if (d == OTHER_COPY && unit->layer == 0) now[i] *= 1.001;
    }
    test_values_write(trainer, unit->weights, now);
    free(now);
}

/* Copies have no flat weights. */
static void spoil_copies(tm_trainer *trainer)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *t = &graph->tensors[i];
        if (t->role != TM_ROLE_PARAMETER || t->layer != 0) continue;
        double *now = test_values_read(trainer, (tm_tensor_id)i);
        for (int64_t k = 0; k < tm_shape_elements(t->shape); k++) now[k] *= 1.001;
        test_values_write(trainer, (tm_tensor_id)i, now);
        free(now);
    }
}

static void update(tm_trainer *trainer, int rank, int step, looked *to, tm_step_result *result)
{
    tm_update_rule rule = {
        .learning_rate = rate,
        .schedule = { .kind = TM_SCHEDULE_WARMUP_STABLE_DECAY, .steps = 10, .warmup_steps = 4, .decay_ratio = -1 },
        .max_norm = most
    };
    tm_update_check *check;
    const tm_units  *units = &tm_trainer_step_of(trainer)->units;
    double          *old[32] = { NULL };
    bool             spoils = rank == 1 && to->planted != NOTHING;
    uint64_t         before = test_state_hash(trainer);
    CHECK(units->n_units <= 32);
    CHECK_OK(tm_update_watch(trainer, &rule, step, 5, &check, err));
    CHECK(before == test_state_hash(trainer));
    for (size_t u = 0; spoils && u < units->n_units; u++)
        if (units->units[u].weights != TM_NONE) old[u] = keep_unit(trainer, u);
    if (spoils && to->planted == NOT_SUMMED) spoil_gradients(trainer);
    CHECK_OK(tm_trainer_update(trainer, result, NULL, err));
    for (size_t u = 0; spoils && u < units->n_units; u++)
        if (old[u]) spoil_unit(trainer, u, old[u], to->planted);
    if (spoils && to->planted == OTHER_COPY && units->units[0].weights == TM_NONE) spoil_copies(trainer);
    CHECK_OK(tm_update_judge(check, result, &to->found[rank], err));
    for (size_t u = 0; u < 32; u++) free(old[u]);
}

/* Two steps of their own; both are looked at. */
static void look(const job *j, tm_trainer *trainer)
{
    const tm_step_options *o = &tm_trainer_step_of(trainer)->options;
    looked                *to = j->taken;
    int                    rank = o->layout.mesh.degree[0] == 0 ? 0 : o->layout.rank;
    int64_t                first = tm_layout_data_rank(&o->layout) * o->accumulation;
    to->found[rank] = (tm_update_certificate){ .agrees = true };
    for (int step = 1; step <= 2; step++) {
        void          *field[16][TM_MAX_FIELDS] = { { NULL } };
        tm_step_result result;
        int64_t        targets = count_targets(o, step, tm_layout_data_ranks(&o->layout) * o->accumulation);
        CHECK(o->accumulation <= 16);
        for (int64_t m = 0; m < o->accumulation; m++) make_batch(o, step, first + m, field[m]);
        tm_micro_batch joined = join_batches(o, field);
        CHECK_OK(tm_trainer_begin(trainer, step, rate * step / 4, most, targets, err));
        CHECK_OK(tm_trainer_gradients(trainer, &joined, NULL, err));
        update(trainer, rank, step, to, &result);
        for (int64_t m = 0; m < o->accumulation; m++) free_batch(o, field[m]);
        for (int f = 0; f < 2; f++) free((void *)joined.field[f]);
    }
}

typedef struct {
    int        replicate, shard, context, tensor, stages, experts;
    tm_sharing sharing;
} layout;
static const layout layouts[] = { { 2, 1, 1, 1, 0, 1, TM_SHARE_COPIES },    { 1, 2, 1, 1, 0, 1, TM_SHARE_OPTIMIZER },
                                  { 1, 3, 1, 1, 0, 1, TM_SHARE_GRADIENTS }, { 1, 4, 1, 1, 0, 1, TM_SHARE_ALL },
                                  { 2, 2, 1, 1, 0, 1, TM_SHARE_ALL },       { 2, 2, 1, 1, 0, 1, TM_SHARE_OPTIMIZER },
                                  { 2, 1, 2, 1, 0, 1, TM_SHARE_ALL },       { 1, 1, 1, 2, 0, 1, TM_SHARE_COPIES },
                                  { 1, 2, 1, 2, 0, 1, TM_SHARE_ALL },       { 1, 1, 1, 1, 2, 1, TM_SHARE_COPIES },
                                  { 1, 2, 1, 1, 2, 1, TM_SHARE_OPTIMIZER }, { 1, 2, 1, 1, 0, 2, TM_SHARE_COPIES },
                                  { 1, 4, 1, 1, 0, 2, TM_SHARE_ALL } };
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

static job job_of(const layout *l, tm_step_options o, looked *to)
{
    job j = ranks_job(o, l->replicate, l->shard, l->sharing, 2);
    j.context = l->context;
    j.tensor = l->tensor;
    j.stages = l->stages;
    j.experts = l->experts;
    j.o.shape.n_heads = j.o.shape.n_kv_heads = 2;
    if (l->stages > 0) j.o.shape.n_layers = 4;
    j.o.accumulation = 2;
    j.o.layout.reshard = true;
    j.o.layout.expert_capacity = 2;
    j.taken = to;
    j.change = look;
    return j;
}

TEST(one_rank_is_enough)
{
    static const struct {
        defect is;
        int    layout;
    } rows[] = { { NOT_GATHERED, 1 }, { NOT_GATHERED, 5 }, { NOT_GATHERED, 2 }, { OTHER_COPY, 0 },
                 { OTHER_COPY, 1 },   { OTHER_COPY, 5 },   { NOT_SUMMED, 0 },   { NOT_SUMMED, 1 },
                 { NOT_SUMMED, 2 },   { NOT_SUMMED, 3 },   { NOT_SUMMED, 5 },   { NOT_SUMMED, 7 } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        looked to = { .planted = rows[i].is };
        job    j = job_of(&layouts[rows[i].layout], model_options(0), &to);
        int    seen = 0;
        j.steps = 0;
        run_world(ranks_of(&j), NULL, 120, false, rank_body, &j);
        for (int r = 0; r < ranks_of(&j); r++) seen += !to.found[r].agrees;
        if (!seen) fail_msg("defect %d in layout %d is not seen", rows[i].is, rows[i].layout);
    }
}
