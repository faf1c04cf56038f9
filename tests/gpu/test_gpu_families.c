/* SPDX-License-Identifier: Apache-2.0 */
/* Dense models of every family of languages on the devices cuda and hip, whose kernels run as machine code, beside a
 * CPU: losses and norms of every step, evaluation and the logits of a sample within rounding; bound or launched one by
 * one the same bits, and so does a second run. Beside the steps: documents in one row, recomputed blocks, the
 * microscope, gradients computed twice, and the first value that is not finite. */
#include "gpu/emulated.h"
#include "op/describe.h"
#include "support/training.h"
#include "train/trainer/locate.h"
#include "train/trainer/microscope.h"
#include "train/trainer/replay.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

enum { STEPS = 20, FEW_STEPS = 2, SEQ = 14, VOCAB = 50, DOCUMENT = 5 };

/* --- models */

#define TINY                                                                                                           \
    "--model.dim=32 --model.n_layers=2 --model.n_heads=2 --model.ffn_dim=48 --model.vocab_size=50 "                    \
    "--model.max_seq_len=64 --training.seq_len=14 "
#define LATENT                                                                                                         \
    TINY "--model.n_dense_layers=2 --model.kv_lora_rank=24 --model.qk_nope_head_dim=12 --model.qk_rope_head_dim=4 "    \
         "--model.v_head_dim=20 "

typedef struct {
    const char *name, *preset, *keys;
    bool        documents;  /* of DOCUMENT tokens each in one sequence */
    int64_t     recomputed; /* > 0: every so many-th block */
} model;

static const model models[] = {
    { "llama", "llama3_debugmodel", TINY "--model.n_kv_heads=1 --model.rope_layout=interleaved", false, 1 },
    { "gpt", "gpt2-124M", TINY, true, 0 },
    { "mistral", "mistral_7B", TINY "--model.n_kv_heads=1 --model.sliding_window=9", false, 0 },
    { "qwen2", "qwen2.5_0.5B", TINY "--model.n_kv_heads=1", true, 2 },
    { "qwen3", "qwen3_debugmodel", TINY "--model.n_kv_heads=1 --model.head_dim=24", true, 0 },
    { "deepseek", "deepseek_v2_lite", LATENT, false, 0 },
    { "deepseek with low-rank queries", "deepseek_v3", LATENT "--model.q_lora_rank=16", true, 1 },
    { "llama with the parts of gpt_oss", "llama3_debugmodel",
      TINY "--model.n_kv_heads=1 --model.sinks=true --model.activation=swiglu_clamped --model.bias=all "
           "--model.sliding_window=9 --model.sliding_window_every=2 --model.rope_scaling=yarn",
      false, 0 },
};

static tm_step_options options_of(const model *m, const tm_precision *precision)
{
    static const char *const names[] = { "tokens", "targets", "positions", "first_key" };
    tm_step_options          o = test_llama_options();
    o.shape = test_shape_preset(m->preset, m->keys);
    assert_int_equal(o.shape.vocab_size, VOCAB);
    o.precision = precision;
    o.seq = SEQ;
    o.micro_batch = 1;
    o.accumulation = 2;
    o.sample = true;
    o.recompute = (tm_recompute){ .cheap = true, .every_n = m->recomputed };
    if (!m->documents) return o;
    for (int f = 0; f < 4; f++) o.fields[f] = (tm_field){ .name = names[f], .dtype = TM_I32, .shape = tm_shape_1(SEQ) };
    o.n_fields = 4;
    return o;
}

/* --- trainings */

typedef enum { BOUND, ONE_BY_ONE } way;

typedef struct {
    double   loss[STEPS], norm[STEPS], evaluation, logits[VOCAB];
    uint64_t state;
} outcome;

/* All micro-batches of a step; the caller frees places[0] and places[1]. */
static tm_micro_batch fields_of(const test_batch *batch, int32_t *places[2])
{
    for (int k = 0; k < 2; k++) places[k] = malloc((size_t)batch->rows * sizeof *places[k]);
    for (int64_t i = 0; i < batch->rows; i++) {
        int64_t t = i % SEQ;
        places[0][i] = (int32_t)(t % DOCUMENT);
        places[1][i] = (int32_t)(t - t % DOCUMENT);
    }
    return (tm_micro_batch){ .field = { batch->tokens, batch->targets, places[0], places[1] },
                             .target_tokens = batch->target_tokens };
}

static test_batch batch_of(const tm_step_options *o, uint64_t seed)
{
    return test_batch_random(o->micro_batch * o->accumulation, o->seq, o->shape.vocab_size, seed);
}

static void step(tm_trainer *trainer, int t, outcome *out)
{
    const tm_step_options *o = &tm_trainer_step_of(trainer)->options;
    test_batch             batch = batch_of(o, (uint64_t)t);
    int32_t               *places[2];
    tm_micro_batch         fields = fields_of(&batch, places);
    tm_step_result         result;
    tm_error               err = { 0 };
    test_begin(trainer, t, 1e-3, 1, batch.target_tokens);
    if (tm_trainer_step(trainer, &fields, &result, NULL, &err) != TM_OK) fail_msg("step %d: %s", t, err.text);
    out->loss[t - 1] = result.loss, out->norm[t - 1] = result.grad_norm;
    for (int k = 0; k < 2; k++) free(places[k]);
    test_batch_fini(&batch);
}

static outcome train(tm_device *device, const tm_step_options *o, int steps, way how)
{
    tm_trainer *trainer = test_trainer_open(device, o, 7);
    outcome     out = { .evaluation = 0 };
    tm_error    err = { 0 };
    test_batch  batch = test_batch_random(o->micro_batch, o->seq, o->shape.vocab_size, 99);
    tm_device_one_by_one(device, how == ONE_BY_ONE);
    for (int t = 1; t <= steps; t++) step(trainer, t, &out);
    if (o->n_fields == 0) out.evaluation = test_evaluate(trainer, batch.tokens, batch.targets);
    if (tm_trainer_logits(trainer, batch.tokens, SEQ - 3, out.logits, &err) != TM_OK) fail_msg("%s", err.text);
    out.state = test_state_hash(trainer);
    test_batch_fini(&batch);
    tm_trainer_close(trainer);
    return out;
}

static tm_device *opened(const char *name)
{
    tm_device *device;
    tm_error   err = { 0 };
    if (tm_device_open(name, 2, &device, &err) != TM_OK) fail_msg("%s: %s", name, err.text);
    return device;
}

static void compare(const outcome *a, const outcome *b, int steps, double bound, const char *what)
{
    for (int t = 0; t < steps; t++)
        if (!(fabs(a->loss[t] - b->loss[t]) <= bound && fabs(a->norm[t] - b->norm[t]) <= 4 * bound * b->norm[t]))
            fail_msg("%s, step %d: loss %.9g, norm %.9g; on the CPU %.9g, %.9g", what, t + 1, a->loss[t], a->norm[t],
                     b->loss[t], b->norm[t]);
    if (!(fabs(a->evaluation - b->evaluation) <= bound * fabs(b->evaluation)))
        fail_msg("%s: evaluation %.9g, on the CPU %.9g", what, a->evaluation, b->evaluation);
    for (int v = 0; v < VOCAB; v++)
        if (!(fabs(a->logits[v] - b->logits[v]) <= 4 * bound))
            fail_msg("%s: logit %d is %.9g, on the CPU %.9g", what, v, a->logits[v], b->logits[v]);
}

/* quick: the first model in one format in both ways, the others in one of the formats by turns. */
static void trains_as_a_cpu(const char *name, int first)
{
    static const tm_precision *const precisions[] = { &tm_precision_f32, &tm_precision_bf16 };
    if (!emulated_device(name)) skip();
    tm_device *cpu = opened("cpu"), *gpu = opened(name);
    for (int m = 0; m < TM_COUNT_OF(models); m++)
        for (int p = 0; p < 2; p++) {
            char what[160];
            if (!test_is_full() && (m + first) % 2 != p) continue;
            tm_step_options o = options_of(&models[m], precisions[p]);
            int             steps = test_is_full() ? STEPS : FEW_STEPS;
            snprintf(what, sizeof what, "%s on %s, %s", models[m].name, name, precisions[p]->name);
            outcome wanted = train(cpu, &o, steps, BOUND), found = train(gpu, &o, steps, BOUND);
            compare(&found, &wanted, steps, p ? 1e-2 : 1e-4, what);
            assert_true(found.loss[0] > 1 && found.norm[0] > 0);
            if (!test_is_full() && m != 4 + first) continue;
            outcome few = test_is_full() ? train(gpu, &o, FEW_STEPS, BOUND) : found;
            outcome single = train(gpu, &o, FEW_STEPS, ONE_BY_ONE), again = train(gpu, &o, FEW_STEPS, BOUND);
            if (memcmp(&single, &few, sizeof single) != 0) fail_msg("%s, one by one: other bits", what);
            if (memcmp(&again, &few, sizeof again) != 0) fail_msg("%s, a second time: other bits", what);
        }
    tm_device_close(gpu);
    tm_device_close(cpu);
}

FULL_TEST(cuda_trains_as_a_cpu)
{
    trains_as_a_cpu("cuda", 0);
}

FULL_TEST(hip_trains_as_a_cpu)
{
    trains_as_a_cpu("hip", 1);
}

/* --- beside the steps */

static tm_looked looked(const char *name, const tm_step_options *o, const test_batch *batch)
{
    tm_device     *device = opened(name);
    tm_trainer    *trainer = test_trainer_open(device, o, 3);
    int32_t       *places[2];
    tm_micro_batch micro = fields_of(batch, places);
    tm_looked      seen = { 0 };
    tm_error       err = { 0 };
    micro.target_tokens = o->micro_batch * o->seq;
    test_begin(trainer, 1, 1e-2, 1, batch->target_tokens);
    if (tm_looked_take(&seen, trainer, &micro, 1, 0.1, &err) != TM_OK) fail_msg("%s", err.text);
    for (int k = 0; k < 2; k++) free(places[k]);
    tm_trainer_close(trainer);
    tm_device_close(device);
    return seen;
}

static double sum(const double *x, size_t n)
{
    double all = 0;
    for (size_t i = 0; i < n; i++) all += x[i];
    return all;
}

static const tm_look_tensor *tensor_of(const tm_looked *seen, const char *name)
{
    for (size_t i = 0; i < seen->look.n_tensors; i++)
        if (strcmp(seen->look.tensors[i].name, name) == 0) return &seen->look.tensors[i];
    return NULL;
}

/* The microscope sees on a GPU what it sees on a CPU: errors of bfloat16 of the same size, the same numbers. Norms and
 * rotations of heads are one op there (graph/passes/head_rope.c). */
static void the_microscope_sees(const char *name, int m)
{
    tm_step_options o = options_of(&models[m], &tm_precision_bf16);
    o.compared = &tm_precision_f32;
    if (!emulated_device(name)) skip();
    test_batch batch = batch_of(&o, 5);
    tm_looked  found = looked(name, &o, &batch), wanted = looked("cpu", &o, &batch);
    assert_true(fabs(found.look.loss - wanted.look.loss) < 1e-2);
    assert_true(fabs(found.look.reference_loss - wanted.look.reference_loss) < 1e-4);
    size_t both = 0, fused = 0;
    for (size_t i = 0; i < found.look.n_tensors; i++) {
        const tm_look_tensor *a = &found.look.tensors[i], *b = tensor_of(&wanted, a->name);
        bool                  own = !b && (strstr(a->name, "head_rope") || strstr(a->name, "attention.linear.grad"));
        if (own) fused++;
        if (own) continue;
        if (!b) fail_msg("%s is seen on %s alone", a->name, name);
        both++;
        double counted = sum(a->exponents, found.look.n_exponents) + a->zeros * (double)a->elements;
        if (fabs(counted - (double)a->elements) > 0.5)
            fail_msg("%s: %g of %g counted", a->name, counted, (double)a->elements);
        bool near = a->error <= 1.5 * b->error + 1e-3 && b->error <= 1.5 * a->error + 1e-3;
        if (!near || fabs(a->reference_amax - b->reference_amax) > 1e-3 * b->reference_amax)
            fail_msg("%s on %s: error %g, largest %g; on the CPU %g, %g", a->name, name, a->error, a->reference_amax,
                     b->error, b->reference_amax);
    }
    assert_true(both + 4 * fused >= wanted.look.n_tensors && both + fused <= wanted.look.n_tensors);
    tm_looked_fini(&found);
    tm_looked_fini(&wanted);
    test_batch_fini(&batch);
}

FULL_TEST(the_microscope_sees_on_cuda)
{
    the_microscope_sees("cuda", 4);
}

FULL_TEST(the_microscope_sees_on_hip)
{
    the_microscope_sees("hip", 5);
}

/* Gradients computed twice have the same bits; training keeps its own. */
FULL_TEST(gradients_repeat)
{
    tm_step_options      o = options_of(&models[6], &tm_precision_f32);
    tm_replay_difference found = { 0 };
    tm_replay_compared   compared;
    tm_error             err = { 0 };
    uint64_t             hash[2];
    if (!emulated_device("hip")) skip();
    tm_device *device = opened("hip");
    for (int repeats = 0; repeats < 2; repeats++) {
        tm_trainer    *trainer = test_trainer_open(device, &o, 7);
        tm_replay     *replay = repeats ? tm_replay_create(trainer, 3, 0) : NULL;
        test_batch     batch = batch_of(&o, 1);
        int32_t       *places[2];
        tm_micro_batch fed = fields_of(&batch, places);
        test_begin(trainer, 1, 1e-3, 1, batch.target_tokens);
        if (replay && tm_replay_begin(replay, 1, &err) != TM_OK) fail_msg("%s", err.text);
        if (tm_trainer_gradients(trainer, &fed, NULL, &err) != TM_OK) fail_msg("%s", err.text);
        if (replay && tm_replay_compare(replay, &fed, &compared, &found, &err) != TM_OK) fail_msg("%s", err.text);
        if (found.differs) fail_msg("%s differs, which %s writes", found.tensor, found.op);
        if (replay) assert_true(compared.bytes == compared.of_bytes && compared.bytes > 10000);
        test_update(trainer);
        hash[repeats] = test_state_hash(trainer);
        for (int k = 0; k < 2; k++) free(places[k]);
        test_batch_fini(&batch);
        tm_replay_destroy(replay);
        tm_trainer_close(trainer);
    }
    assert_true(hash[0] == hash[1]);
    tm_device_close(device);
}

/* A weight of a norm of heads that is so large that its product overflows: the instruction is named, with its operand.
 */
FULL_TEST(what_is_not_finite_is_located)
{
    tm_step_options o = options_of(&models[4], &tm_precision_f32);
    tm_step_result  result;
    tm_error        err = { 0 };
    if (!emulated_device("cuda")) skip();
    tm_device      *device = opened("cuda");
    tm_trainer     *trainer = test_trainer_open(device, &o, 7);
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    size_t          spoilt = 0;
    for (size_t i = 0; i < graph->n_tensors && !spoilt; i++)
        if (graph->tensors[i].role == TM_ROLE_PARAMETER && strstr(graph->tensors[i].name, "layers.1.attention.qk_norm"))
            spoilt = i;
    assert_true(spoilt > 0);
    double *w = test_values_read(trainer, (tm_tensor_id)spoilt);
    for (int64_t i = 0; i < tm_shape_elements(graph->tensors[spoilt].shape); i++) w[i] = 3e38;
    test_values_write(trainer, (tm_tensor_id)spoilt, w);
    free(w);
    test_batch     batch = batch_of(&o, 1);
    int32_t       *places[2];
    tm_micro_batch fed = fields_of(&batch, places);
    test_begin(trainer, 1, 1e-3, 1, batch.target_tokens);
    tm_locator *locator = tm_locator_open(trainer);
    if (tm_trainer_step(trainer, &fed, &result, NULL, &err) != TM_OK) fail_msg("%s", err.text);
    const tm_nonfinite *found = tm_locator_found(locator);
    assert_non_null(found);
    tm_text text = { 0 };
    tm_nonfinite_print(found, &text);
    if (!strstr(text.data, "head_rope, layer 1, forward") || !strstr(text.data, "overflow")) fail_msg("%s", text.data);
    tm_text_fini(&text);
    tm_locator_close(locator);
    for (int k = 0; k < 2; k++) free(places[k]);
    test_batch_fini(&batch);
    tm_trainer_close(trainer);
    tm_device_close(device);
}
