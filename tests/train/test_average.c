/* SPDX-License-Identifier: Apache-2.0 */
/* Averages of weights (ema_decay): they follow the recursion in float64, change no weight, leave frozen parameters
 * alone, and are the same offloaded, behind a checkpoint and on several ranks. */
#include "support/test.h"
#include "ranks_fixture.h"

#include "train/checkpoint/view.h"

enum { STEPS = 5 };
static const double decay = 0.9;

static void begin_averages(tm_trainer *trainer)
{
    tm_error          err = { 0 };
    const tm_program *program = tm_trainer_step_of(trainer)->average;
    assert_non_null(program);
    if (tm_trainer_run(trainer, program, &err) != TM_OK) fail_msg("%s", err.text);
}

static bool is_average(const tm_tensor *tensor)
{
    size_t length = strlen(tensor->name), end = strlen(".ema");
    return tensor->role == TM_ROLE_MOMENT && length > end && strcmp(tensor->name + length - end, ".ema") == 0;
}

/* The weight that an average is of. */
static tm_tensor_id weight_of(const tm_graph *graph, const tm_tensor *average)
{
    size_t length = strlen(average->name) - strlen(".ema");
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *t = &graph->tensors[i];
        if (t->role == TM_ROLE_PARAMETER && strlen(t->name) == length && strncmp(t->name, average->name, length) == 0)
            return (tm_tensor_id)i;
    }
    fail_msg("'%s' is of no weight", average->name);
    return TM_NONE;
}

static void do_step(tm_trainer *trainer, int64_t t)
{
    const tm_step_options *o = &tm_trainer_step_of(trainer)->options;
    test_batch batch = test_batch_random(o->micro_batch * o->accumulation, o->seq, o->shape.vocab_size, (uint64_t)t);
    test_step(trainer, t, 1e-2, 1, &batch);
    test_batch_fini(&batch);
}

typedef struct {
    tm_tensor_id average, weight;
    double      *wanted;
} follower;

/* One more step of the recursion; first: the average is a copy. */
static void follow(const tm_trainer *trainer, follower *f, bool first)
{
    const tm_tensor *t = tm_graph_at(tm_trainer_step_of(trainer)->graph, f->average);
    double          *weight = test_values_read(trainer, f->weight), *average = test_values_read(trainer, f->average);
    for (int64_t i = 0; i < tm_shape_elements(t->shape); i++) {
        f->wanted[i] = first ? weight[i] : decay * f->wanted[i] + (1 - decay) * weight[i];
        if (!(fabs(average[i] - f->wanted[i]) <= (first ? 0 : 5e-7 * (0.1 + fabs(f->wanted[i])))))
            fail_msg("%s, element %lld: %.9g, wanted %.9g", t->name, (long long)i, average[i], f->wanted[i]);
    }
    free(weight);
    free(average);
}

/* Every trained parameter has one. */
static void follow_run(tm_step_options o)
{
    tm_device      *device = test_device_open("cpu", 2);
    tm_trainer     *trainer = test_trainer_open(device, &o, 7);
    const tm_step  *step = tm_trainer_step_of(trainer);
    const tm_graph *graph = step->graph;
    follower       *all = malloc(graph->n_tensors * sizeof *all);
    size_t          n = 0, trained = 0;
    assert_non_null(all);
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *t = &graph->tensors[i];
        trained += t->role == TM_ROLE_PARAMETER && t->gradient != TM_NONE;
        if (!is_average(t)) continue;
        assert_int_equal(t->dtype, TM_F32);
        all[n] = (follower){ (tm_tensor_id)i, weight_of(graph, t), NULL };
        all[n++].wanted = calloc((size_t)tm_shape_elements(t->shape), sizeof(double));
    }
    assert_true(n > 0 && n == trained);
    begin_averages(trainer);
    for (size_t i = 0; i < n; i++) follow(trainer, &all[i], true);
    for (int64_t t = 1; t <= STEPS; t++) {
        do_step(trainer, t);
        for (size_t i = 0; i < n; i++) follow(trainer, &all[i], false);
    }
    assert_int_equal(tm_device_used_bytes(device, tm_trainer_arena(trainer), step->plan->arena_bytes),
                     step->plan->arena_bytes);
    uint64_t with = test_weights_hash(trainer);
    tm_trainer_close(trainer);
    o.hyper.ema_decay = 0;
    trainer = test_trainer_open(device, &o, 7);
    assert_null(tm_trainer_step_of(trainer)->average);
    for (int64_t t = 1; t <= STEPS; t++) do_step(trainer, t);
    assert_true(test_weights_hash(trainer) == with);
    tm_trainer_close(trainer);
    tm_device_close(device);
    for (size_t i = 0; i < n; i++) free(all[i].wanted);
    free(all);
}

static tm_step_options averaged(void)
{
    tm_step_options o = test_llama_options();
    o.hyper.ema_decay = decay;
    return o;
}

static void averages_follow_the_recursion(void **state)
{
    static const tm_precision *const precisions[] = { &tm_precision_f32, &tm_precision_bf16, &tm_precision_bf16_pure };
    static const tm_optimizer *const optimizers[] = { &tm_optimizer_adamw, &tm_optimizer_sgd, &tm_optimizer_muon };
    (void)state;
    for (int p = 0; p < 3; p++)
        for (int k = 0; k < 3; k++) {
            tm_step_options o = averaged();
            o.precision = precisions[p];
            o.optimizer = optimizers[k];
            follow_run(o);
        }
}

/* Adapters have averages, what they stand beside has none. */
static void frozen_parameters_have_none(void **state)
{
    tm_step_options o = averaged();
    (void)state;
    o.adapters = (tm_adapters){ .rank = 2, .alpha = 2, .base = TM_DTYPE_COUNT, .targets = "all-linear" };
    follow_run(o);
}

static void offload_changes_no_bit(void **state)
{
    char    *folder = test_tree_make();
    uint64_t hash[2][2];
    (void)state;
    for (int k = 0; k < 2; k++)
        for (int away = 0; away < 2; away++) {
            tm_step_options o = averaged();
            o.optimizer = k ? &tm_optimizer_sgd : &tm_optimizer_adamw; /* which has no moments of its own */
            o.offload = (tm_offload){ .optimizer = away, .space = TM_SPACE_DISK, .folder = folder };
            tm_device  *device = test_device_open("cpu", 2);
            tm_trainer *trainer = test_trainer_open(device, &o, 7);
            begin_averages(trainer);
            for (int64_t t = 1; t <= STEPS; t++) do_step(trainer, t);
            hash[k][away] = test_state_hash(trainer);
            tm_trainer_close(trainer);
            tm_device_close(device);
        }
    assert_true(hash[0][0] == hash[0][1]);
    assert_true(hash[1][0] == hash[1][1]);
    test_tree_remove(folder);
}

/* --- checkpoints and ranks ---------------------------------------------------------------------------------------- */

static void begin_rank(const job *j, tm_trainer *trainer)
{
    const tm_program *program = tm_trainer_step_of(trainer)->average;
    CHECK(program);
    if (j->begin == 0) CHECK_OK(tm_trainer_run(trainer, program, err));
}

/* Steps [begin, steps) of four micro-batches on some ranks; the averages are in the checkpoint `save`. */
static void run_from(job j, int begin, int steps, const char *load, const char *save)
{
    j.o.accumulation = 4 / (j.shard * j.replicate);
    j.begin = begin, j.steps = steps, j.load = load, j.save = save;
    j.change = begin_rank;
    run_job(&j);
}

static float *read_average(tm_checkpoint_view *view, const char *name, size_t *n)
{
    int      dtype;
    tm_error err = { 0 };
    size_t   bytes;
    if (tm_checkpoint_view_find(view, name, &dtype, &bytes, &err) != TM_OK) fail_msg("%s", err.text);
    assert_int_equal(dtype, TM_F32);
    float *values = malloc(bytes);
    if (tm_checkpoint_view_read(view, name, 0, values, bytes, &err) != TM_OK) fail_msg("%s", err.text);
    *n = bytes / sizeof *values;
    return values;
}

/* The largest distance of averages in two checkpoints, and of the averages from their weights. */
static double distance(tm_step_options o, const char *a, const char *b, double *moved)
{
    tm_device          *device = test_device_open("cpu", 1);
    tm_chooser          chooser = tm_device_chooser(device);
    tm_step            *step = test_step_plan(&o, &chooser); /* for the names */
    tm_checkpoint_view *view[2];
    tm_error            err = { 0 };
    double              far = 0;
    *moved = 0;
    for (int k = 0; k < 2; k++)
        if (tm_checkpoint_view_open(k ? b : a, -1, &view[k], &err) != TM_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < step->graph->n_tensors; i++) {
        const tm_tensor *t = &step->graph->tensors[i];
        size_t           n, same, count;
        if (!is_average(t)) continue;
        float *x = read_average(view[0], t->name, &n), *y = read_average(view[1], t->name, &same);
        float *w = read_average(view[0], tm_graph_at(step->graph, weight_of(step->graph, t))->name, &count);
        assert_true(n == same && n == count && n == (size_t)tm_shape_elements(t->shape));
        for (size_t e = 0; e < n; e++) {
            far = fmax(far, fabs((double)x[e] - (double)y[e]));
            *moved = fmax(*moved, fabs((double)x[e] - (double)w[e]));
        }
        free(x);
        free(y);
        free(w);
    }
    for (int k = 0; k < 2; k++) tm_checkpoint_view_close(view[k]);
    tm_step_destroy(step);
    tm_device_close(device);
    return far;
}

typedef struct {
    const char         *name;
    const tm_optimizer *optimizer;
    int                 replicate, shard, tensor, stages;
    tm_sharing          sharing;
} layout;

static job job_of(const layout *l)
{
    tm_step_options o = averaged();
    o.optimizer = l->optimizer;
    o.shape.n_kv_heads = 2;
    job j = ranks_job(o, l->replicate, l->shard, l->sharing, STEPS);
    j.tensor = l->tensor;
    j.stages = l->stages;
    return j;
}

/* Without a break; broken off and gone on with, on the same ranks and on one. */
static void ranks_have_the_averages_of_one(void **state)
{
    static const layout layouts[] = {
        { "two shards", &tm_optimizer_adamw, 1, 2, 0, 0, TM_SHARE_ALL },
        { "two shards of gradients", &tm_optimizer_adamw, 1, 2, 0, 0, TM_SHARE_GRADIENTS },
        { "two shards of moments", &tm_optimizer_adamw, 1, 2, 0, 0, TM_SHARE_OPTIMIZER },
        { "two copies", &tm_optimizer_adamw, 2, 1, 0, 0, TM_SHARE_COPIES },
        { "owners of shards", &tm_optimizer_muon, 1, 2, 0, 0, TM_SHARE_ALL },
        { "owners of gradients", &tm_optimizer_muon, 1, 2, 0, 0, TM_SHARE_GRADIENTS },
        { "divided matrices", &tm_optimizer_sgd, 1, 1, 2, 0, TM_SHARE_ALL },
        { "two stages", &tm_optimizer_adamw, 1, 1, 0, 2, TM_SHARE_ALL },
    };
    (void)state;
    for (size_t k = 0; k < sizeof layouts / sizeof layouts[0]; k++) {
        const layout *l = &layouts[k];
        layout        one = { l->name, l->optimizer, 1, 1, 0, 0, TM_SHARE_ALL };
        char *alone = test_tree_make(), *whole = test_tree_make(), *half = test_tree_make(), *again = test_tree_make(),
             *other = test_tree_make();
        double moved;
        run_from(job_of(&one), 0, STEPS, NULL, alone);
        run_from(job_of(l), 0, STEPS, NULL, whole);
        run_from(job_of(l), 0, 2, NULL, half);
        run_from(job_of(l), 2, STEPS, half, again);
        run_from(job_of(&one), 2, STEPS, half, other);
        double far = distance(job_of(&one).o, alone, whole, &moved);
        print_message("# %s: %.3g apart, %.3g from the weights\n", l->name, far, moved);
        assert_true(moved > 1e-3 && far < 2e-5);
        assert_true(distance(job_of(&one).o, whole, again, &moved) <= 0);
        assert_true(distance(job_of(&one).o, alone, other, &moved) < 2e-5);
        char *const folders[] = { alone, whole, half, again, other };
        for (int f = 0; f < 5; f++) test_tree_remove(folders[f]);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(averages_follow_the_recursion),
    cmocka_unit_test(frozen_parameters_have_none),
    cmocka_unit_test(offload_changes_no_bit),
    cmocka_unit_test(ranks_have_the_averages_of_one),
};

TM_TESTS(tests, NULL, NULL)
