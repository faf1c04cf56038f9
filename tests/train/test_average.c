/* SPDX-License-Identifier: Apache-2.0 */
/* Averages of weights (ema_decay): they follow the recursion in float64, change no weight, and leave frozen parameters
 * alone. Offloaded, behind a checkpoint and on several ranks: tests/differential. */
#include "support/test.h"
#include "support/training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

TEST(averages_follow_the_recursion)
{
    static const tm_precision *const precisions[] = { &tm_precision_f32, &tm_precision_bf16, &tm_precision_bf16_pure };
    static const tm_optimizer *const optimizers[] = { &tm_optimizer_adamw, &tm_optimizer_sgd, &tm_optimizer_muon };
    for (int p = 0; p < 3; p++)
        for (int k = 0; k < 3; k++) {
            tm_step_options o = averaged();
            o.precision = precisions[p];
            o.optimizer = optimizers[k];
            follow_run(o);
        }
}

/* Adapters have averages, what they stand beside has none. */
TEST(frozen_parameters_have_none)
{
    tm_step_options o = averaged();
    o.adapters = (tm_adapters){ .rank = 2, .alpha = 2, .base = TM_DTYPE_COUNT, .targets = "all-linear" };
    follow_run(o);
}
