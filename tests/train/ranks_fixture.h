/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as threads of a world, each with a device of one thread, a step and a trainer of its own: what they train, and
 * what one rank alone makes of the same samples. */
#ifndef TM_TESTS_RANKS_FIXTURE_H
#define TM_TESTS_RANKS_FIXTURE_H

#include "support/test.h"

#include "base/random.h"
#include "support/golden.h"
#include "support/training.h"
#include "train/parallel/ranks.h"

#include "../comm/world.h"

enum { MOST_RANKS = 8, MOST_STEPS = 50 };

/* A device of a test's own. */
typedef struct tm_backend_of_test {
    tm_status (*open)(const struct tm_backend_of_test *backend, int rank, tm_device **out, tm_error *err);
    void (*begin)(const struct tm_backend_of_test *backend, tm_trainer *trainer,
                  int rank); /* weights are there; or NULL */
    const void *context;
} tm_backend_of_test;

typedef struct job {
    tm_step_options o; /* accumulation: of one rank */
    int             replicate, shard, steps;
    int             context; /* ranks that share each sequence; 0: 1 */
    int             tensor;  /* ranks that divide the matrices; 0: 1 */
    int             stages;  /* parts of a pipeline; 0: none */
    int             experts; /* ranks that divide the experts; 0: 1 */
    const char     *device;  /* NULL: "cpu" */
    double          rate, max_norm;
    int64_t         whole; /* > 0: one rank alone with so many times the micro-batches */
    void (*change)(const struct job *j, tm_trainer *trainer); /* every rank, before the first step; NULL: nobody */
    const tm_backend_of_test *backend;                        /* how the device is opened; NULL: by its name */
    void                     *taken;                          /* what `change` makes of it */
    /* found */
    double   loss[MOST_STEPS], norm[MOST_STEPS];
    double   losses[MOST_RANKS], evaluation[MOST_RANKS]; /* of the last step, and of the same batch behind it */
    uint64_t weights[MOST_RANKS];
    size_t   arena[MOST_RANKS]; /* bytes of the plan */
} job;

static inline int ranks_of(const job *j)
{
    return j->replicate * j->shard * (j->context ? j->context : 1) * (j->tensor ? j->tensor : 1) *
           (j->stages ? j->stages : 1);
}

/* Field f of micro-batch m of step t, numbered over all ranks. Free it. */
static inline void *field_values(const tm_step_options *o, int f, int64_t t, int64_t m)
{
    int64_t  n = tm_shape_elements(o->fields[f].shape) * o->micro_batch;
    uint64_t key = (uint64_t)(t * 1000 + m);
    float   *values = malloc((size_t)n * sizeof *values);
    CHECK(o->fields[f].dtype == TM_F32);
    for (int64_t i = 0; i < n; i++) values[i] = (float)tm_random_normal(key, (uint64_t)f, (uint64_t)i);
    return values;
}

/* Of a language every fifth target of every third micro-batch is ignored, so that counts differ. */
static inline int64_t make_batch(const tm_step_options *o, int64_t t, int64_t m, void *field[TM_MAX_FIELDS])
{
    if (tm_model_images(&o->shape)) {
        for (int f = 0; f < o->n_fields; f++) field[f] = field_values(o, f, t, m);
        return o->micro_batch * o->seq;
    }
    test_batch batch = test_batch_random(o->micro_batch, o->seq, o->shape.vocab_size, (uint64_t)(t * 1000 + m));
    for (int64_t i = 0; i < batch.rows && m % 3 == 1; i += 5) {
        batch.targets[i] = TM_IGNORED_TARGET;
        batch.target_tokens--;
    }
    field[0] = batch.tokens;
    field[1] = batch.targets;
    return batch.target_tokens;
}

static inline void free_batch(const tm_step_options *o, void *field[TM_MAX_FIELDS])
{
    for (int f = 0; f < (o->n_fields > 2 ? o->n_fields : 2); f++) free(field[f]);
}

static inline int64_t count_targets(const tm_step_options *o, int64_t t, int64_t all)
{
    int64_t targets = 0;
    for (int64_t m = 0; m < all; m++) {
        void *field[TM_MAX_FIELDS];
        targets += make_batch(o, t, m, field);
        free_batch(o, field);
    }
    return targets;
}

/* All micro-batches of a step one after the other. */
static inline tm_micro_batch join_batches(const tm_step_options *o, void *field[][TM_MAX_FIELDS])
{
    tm_micro_batch all = { 0 };
    for (int f = 0; f < (o->n_fields > 2 ? o->n_fields : 2); f++) {
        int64_t n = o->n_fields > 2 ? tm_shape_elements(o->fields[f].shape) : o->seq;
        size_t  bytes = (size_t)(o->micro_batch * n) * sizeof(int32_t); /* or float */
        char   *values = malloc(bytes * (size_t)o->accumulation);
        for (int64_t m = 0; m < o->accumulation; m++) memcpy(values + (size_t)m * bytes, field[m][f], bytes);
        all.field[f] = values;
    }
    return all;
}

static inline void train(job *j, tm_trainer *trainer, int64_t first, int64_t all, int rank)
{
    const tm_step_options *o = &tm_trainer_step_of(trainer)->options;
    tm_step_result         result = { 0 };
    for (int t = 1; t <= j->steps; t++) {
        void *field[64][TM_MAX_FIELDS];
        CHECK(o->accumulation <= 64);
        CHECK_OK(tm_trainer_begin(trainer, t, j->rate, j->max_norm, count_targets(o, t, all), err));
        for (int64_t m = 0; m < o->accumulation; m++) make_batch(o, t, first + m, field[m]);
        tm_micro_batch joined = join_batches(o, field); /* which a device may read until the update is done */
        CHECK_OK(tm_trainer_gradients(trainer, &joined, NULL, err));
        CHECK_OK(tm_trainer_update(trainer, &result, NULL, err));
        for (int f = 0; f < TM_MAX_FIELDS; f++) free((void *)joined.field[f]);
        for (int64_t m = 0; m < o->accumulation; m++) free_batch(o, field[m]);
        if (rank == 0) j->loss[t - 1] = result.loss, j->norm[t - 1] = result.grad_norm;
    }
    void          *field[1][TM_MAX_FIELDS];
    tm_micro_batch micro = { 0 };
    double         again;
    make_batch(o, 1, 0, field[0]);
    for (int f = 0; f < (o->n_fields > 2 ? o->n_fields : 2); f++) micro.field[f] = field[0][f];
    CHECK_OK(tm_trainer_evaluate(trainer, &micro, &j->evaluation[rank], err));
    CHECK_OK(tm_trainer_evaluate(trainer, &micro, &again, err));
    if (!(again == j->evaluation[rank])) j->evaluation[rank] = (double)NAN; /* equal to none */
    free_batch(o, field[0]);
    j->losses[rank] = result.loss;
    CHECK_OK(tm_trainer_weights_hash(trainer, &j->weights[rank], err));
}

static inline size_t state_bytes(const tm_step *step)
{
    size_t bytes = 0;
    for (size_t i = 0; i < step->graph->n_tensors; i++) {
        const tm_tensor *t = &step->graph->tensors[i];
        bool ours = t->role == TM_ROLE_PARAMETER || t->role == TM_ROLE_UNIT || t->role == TM_ROLE_GRADIENT ||
                    t->role == TM_ROLE_MOMENT;
        if (ours && t->base == TM_NONE) bytes += step->plan->places[i].bytes;
    }
    return bytes;
}

/* What collectives read and write is in reach of the ranks of a host, and what is used is what was planned. */
static inline void check_memory(const tm_trainer *trainer, tm_device *device, const tm_comm *comm)
{
    const tm_plan *plan = tm_trainer_step_of(trainer)->plan;
    if (tm_comm_size(comm) == 1 || tm_device_describe(device)->own_memory) return;
    CHECK(comm->world->n_windows == 1);
    for (size_t p = 0; p < plan->n_programs; p++)
        for (size_t x = 0; x < plan->programs[p].count; x++) {
            const tm_instruction *i = &plan->programs[p].instructions[x];
            for (int k = 0; k <= TM_MAX_IN + TM_MAX_OUT && i->stream == TM_ON_COMMUNICATION; k++) {
                bool           space = k == TM_MAX_IN + TM_MAX_OUT;
                const tm_view *view = k < TM_MAX_IN ? &i->call.in[k] : &i->call.out[space ? 0 : k - TM_MAX_IN];
                uintptr_t      begin = (uintptr_t)(space ? i->call.workspace : view->data);
                size_t         bytes = space                   ? i->call.workspace_bytes
                                       : tm_view_present(view) ? tm_tensor_bytes(view->shape, view->dtype)
                                                               : 0;
                bool           reached = bytes == 0;
                for (int w = 0; w < comm->world->window[0]->n_parts; w++) {
                    const tm_comm_part *part = &comm->world->window[0]->parts[w];
                    reached = reached || (begin >= part->begin && begin + bytes <= part->begin + part->bytes);
                }
                CHECK(reached);
            }
        }
    CHECK(tm_device_used_bytes(device, tm_trainer_arena(trainer), plan->arena_bytes) == (int64_t)plan->arena_bytes);
}

static inline void rank_body(tm_comm *comm, void *context)
{
    job            *j = context;
    int             rank = comm ? tm_comm_rank(comm) : 0;
    tm_step_options o = j->o;
    tm_device      *device;
    tm_trainer     *trainer;
    tm_ranks        ranks = { 0 };
    if (comm) {
        o.layout.mesh = tm_mesh_one();
        o.layout.mesh.degree[TM_AXIS_REPLICATE] = j->replicate;
        o.layout.mesh.degree[TM_AXIS_SHARD] = j->shard;
        o.layout.mesh.degree[TM_AXIS_CP] = j->context ? j->context : 1;
        o.layout.mesh.degree[TM_AXIS_TP] = j->tensor ? j->tensor : 1;
        o.layout.mesh.degree[TM_AXIS_PP] = j->stages ? j->stages : 1;
        o.layout.mesh.degree[TM_AXIS_EP] = j->experts ? j->experts : 1;
        CHECK_OK(tm_mesh_fill(&o.layout.mesh, tm_comm_size(comm), err));
        o.layout.rank = rank;
        CHECK_OK(tm_ranks_open(&o.layout.mesh, comm, &ranks, err));
    }
    if (j->whole > 0) o.accumulation *= j->whole;
    if (j->backend)
        CHECK_OK(j->backend->open(j->backend, rank, &device, err));
    else
        CHECK_OK(tm_device_open(j->device ? j->device : "cpu", 1, &device, err));
    if (comm) tm_device_join(device, &ranks.groups);
    CHECK_OK(tm_trainer_open(device, &o, 7, &trainer, err));
    if (comm) check_memory(trainer, device, comm);
    j->arena[rank] = tm_trainer_step_of(trainer)->plan->arena_bytes;
    int64_t data_rank = comm ? ranks.data_rank : 0, data_ranks = comm ? ranks.data_ranks : 1;
    if (j->change) j->change(j, trainer);
    if (j->backend && j->backend->begin) j->backend->begin(j->backend, trainer, rank);
    train(j, trainer, data_rank * o.accumulation, data_ranks * o.accumulation, rank);
    tm_trainer_close(trainer);
    tm_device_close(device);
    if (comm) tm_ranks_close(&ranks);
}

static inline job ranks_job(tm_step_options o, int replicate, int shard, tm_sharing sharing, int steps)
{
    job j = { .o = o, .replicate = replicate, .shard = shard, .steps = steps, .rate = 2e-3, .max_norm = 1 };
    j.o.layout.sharing = sharing;
    return j;
}

/* The ranks of a job; all come to the same. */
static inline void run_job(job *j)
{
    run_world(ranks_of(j), NULL, 120, false, rank_body, j);
    for (int r = 1; r < ranks_of(j); r++) {
        assert_true(j->losses[r] == j->losses[0]);
        assert_true(j->evaluation[r] == j->evaluation[0]);
        if (j->weights[r] != j->weights[0]) fail_msg("rank %d has other weights than rank 0", r);
    }
}

/* The largest relative difference of losses and norms. */
static inline double apart(const job *a, const job *b)
{
    double most = 0;
    for (int t = 0; t < a->steps; t++) {
        double loss = fabs(a->loss[t] - b->loss[t]) / fabs(b->loss[t]);
        most = fmax(most, loss); /* never NaN: see below */
        if (!isfinite(a->loss[t]) || !isfinite(b->loss[t]) || !isfinite(a->norm[t])) return INFINITY;
    }
    return most;
}

/* --- models ------------------------------------------------------------------------------------------------------- */

enum { MODELS = 4 };
static inline tm_step_options model_options(int k)
{
    tm_step_options o = k == 1   ? test_gpt_options()
                        : k == 3 ? golden_flux_options(&tm_precision_f32)
                                 : test_llama_options();
    if (k == 2)
        o.shape.moe = (tm_moe_shape){ .experts = 4,
                                      .top_k = 2,
                                      .ffn_dim = 64,
                                      .normalise = true,
                                      .scale = 1,
                                      .groups = 1,
                                      .aux_loss = 0.01,
                                      .biased = true,
                                      .bias_rate = 0.01 };
    if (k == 3) o.optimizer = &tm_optimizer_adamw, o.hyper = test_llama_options().hyper;
    if (k != 3) o.shape.dim = 32, o.shape.ffn_dim = 64, o.shape.head_dim = 16, o.micro_batch = 1, o.seq = 16;
    return o;
}

#define TINY_MIXTURE                                                                                                   \
    "--model.dim=32 --model.n_heads=2 --model.vocab_size=96 --model.max_seq_len=64 --training.seq_len=16 "

enum { MIXTRAL, DEEPSEEK };
/* A balance loss and a bias that balances; shared experts, dense layers, groups and sigmoid scores. */
static inline tm_step_options mixture_options(int kind)
{
    tm_step_options o = model_options(2);
    if (kind == DEEPSEEK)
        o.shape = test_shape_preset("deepseek_v3",
                                    TINY_MIXTURE "--model.n_layers=3 --model.ffn_dim=64 --model.kv_lora_rank=16 "
                                                 "--model.q_lora_rank=16 --model.qk_nope_head_dim=8 "
                                                 "--model.qk_rope_head_dim=8 --model.v_head_dim=8 --model.n_experts=8 "
                                                 "--model.n_experts_per_token=2 --model.moe_ffn_dim=16 "
                                                 "--model.n_dense_layers=1 --model.n_expert_groups=4 "
                                                 "--model.n_limited_groups=2");
    return o;
}

#endif
