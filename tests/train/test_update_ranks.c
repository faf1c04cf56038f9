/* SPDX-License-Identifier: Apache-2.0 */
/* The certificate of the update on several ranks: weights that one rank lacks behind the update, or a sum that it lacks
 * in front of it, are found. (More honest updates: tests/differential.) */
#include "support/test.h"
#include "ranks_fixture.h"
#include "train/certify/update.h"

static const double rate = 2e-3, most = 0.5;

typedef enum {
    NOTHING,
    MUON,         /* nothing, whole tensors are dealt out */
    NOT_GATHERED, /* rank 1 keeps the old weights of what others update */
    OTHER_COPY,   /* rank 1 has other weights in one layer */
    NOT_SUMMED,   /* rank 1 updates by a gradient that is half of what it is */
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

/* Whole flat weights: what others have updated is as it was. */
static void spoil_unit(tm_trainer *trainer, const tm_unit *unit, const double *old)
{
    double *now = test_values_read(trainer, unit->weights);
    for (int64_t i = 0; i < unit->elements; i++)
        if (i < unit->group.rank * unit->share || i >= (unit->group.rank + 1) * unit->share) now[i] = old[i];
    test_values_write(trainer, unit->weights, now);
    free(now);
}

static void spoil_copy(tm_trainer *trainer)
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
    const defect     planted = rank == 1 ? to->planted : NOTHING;
    uint64_t         before = test_state_hash(trainer);
    CHECK(units->n_units <= 32);
    CHECK_OK(tm_update_watch(trainer, &rule, step, 5, &check, err));
    CHECK(before == test_state_hash(trainer));
    for (size_t u = 0; planted == NOT_GATHERED && u < units->n_units; u++)
        old[u] = test_values_read(trainer, units->units[u].weights);
    if (planted == NOT_SUMMED) spoil_gradients(trainer);
    CHECK_OK(tm_trainer_update(trainer, result, NULL, err));
    for (size_t u = 0; planted == NOT_GATHERED && u < units->n_units; u++) {
        spoil_unit(trainer, &units->units[u], old[u]);
        free(old[u]);
    }
    if (planted == OTHER_COPY) spoil_copy(trainer);
    CHECK_OK(tm_update_judge(check, result, &to->found[rank], err));
}

/* Ranks give each other the gradients and weights of a layer in its name. */
static void check_layers(const tm_step *step)
{
    for (size_t u = 0; u < step->units.n_units; u++)
        for (size_t x = 0; x < step->update->count; x++) {
            const tm_unit        *unit = &step->units.units[u];
            const tm_instruction *i = &step->update->instructions[x];
            tm_tensor_id base = i->node->out[0] == TM_NONE ? TM_NONE : tm_graph_base(step->graph, i->node->out[0]);
            if (i->stream != TM_ON_COMMUNICATION || base == TM_NONE) continue;
            if (base != unit->weights && base != unit->gradients) continue;
            CHECK(i->node->layer == (unit->layer < INT32_MAX ? unit->layer : -1));
        }
}

/* Two steps of their own; both are looked at. */
static void look(const job *j, tm_trainer *trainer)
{
    const tm_step_options *o = &tm_trainer_step_of(trainer)->options;
    looked                *to = j->taken;
    to->found[o->layout.rank] = (tm_update_certificate){ .agrees = true };
    check_layers(tm_trainer_step_of(trainer));
    for (int step = 1; step <= 2; step++) {
        void          *field[TM_MAX_FIELDS];
        tm_step_result result;
        make_batch(o, step, tm_layout_data_rank(&o->layout), field);
        tm_micro_batch batch = { .field = { field[0], field[1] } };
        CHECK_OK(tm_trainer_begin(trainer, step, rate * step / 4, most,
                                  count_targets(o, step, tm_layout_data_ranks(&o->layout)), err));
        CHECK_OK(tm_trainer_gradients(trainer, &batch, NULL, err));
        update(trainer, o->layout.rank, step, to, &result);
        free_batch(o, field);
    }
}

TEST(one_rank_is_enough)
{
    static const struct {
        defect     is;
        int        replicate, shard, tensor;
        tm_sharing sharing;
    } rows[] = { { NOT_GATHERED, 1, 2, 1, TM_SHARE_OPTIMIZER }, { NOT_GATHERED, 2, 2, 1, TM_SHARE_OPTIMIZER },
                 { NOT_GATHERED, 1, 3, 1, TM_SHARE_GRADIENTS }, { OTHER_COPY, 2, 1, 1, TM_SHARE_COPIES },
                 { OTHER_COPY, 2, 2, 1, TM_SHARE_OPTIMIZER },   { NOT_SUMMED, 2, 1, 1, TM_SHARE_COPIES },
                 { NOT_SUMMED, 1, 3, 1, TM_SHARE_GRADIENTS },   { NOT_SUMMED, 1, 4, 1, TM_SHARE_ALL },
                 { NOT_SUMMED, 1, 1, 2, TM_SHARE_COPIES },      { NOTHING, 1, 2, 2, TM_SHARE_OPTIMIZER },
                 { MUON, 1, 2, 1, TM_SHARE_OPTIMIZER } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        looked to = { .planted = rows[i].is };
        job    j = ranks_job(model_options(0), rows[i].replicate, rows[i].shard, rows[i].sharing, 0);
        int    seen = 0;
        j.tensor = rows[i].tensor;
        j.o.shape.n_heads = j.o.shape.n_kv_heads = 2;
        j.o.layout.reshard = true;
        if (rows[i].is == MUON) j.o.optimizer = &tm_optimizer_muon;
        j.taken = &to;
        j.change = look;
        run_world(ranks_of(&j), NULL, 120, false, rank_body, &j);
        for (int r = 0; r < ranks_of(&j); r++) seen += !to.found[r].agrees;
        if ((seen > 0) != (rows[i].is > MUON)) fail_msg("row %zu: %d ranks see something", i, seen);
    }
}
