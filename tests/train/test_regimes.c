/* SPDX-License-Identifier: Apache-2.0 */
/* Regimes: in which formats weights, gradients and moments are kept, and how they are rounded. Each is another
 * training, and a parameter takes the bytes that are said. */
#include "support/test.h"
#include "support/training.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
    const char         *name;
    const tm_precision *precision;
    const tm_optimizer *optimizer;
    tm_hyper            hyper;
    double              bytes; /* of a parameter: weight, gradient and moments */
} regime;

#define ADAM .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1
static const regime regimes[] = {
    { "float32", &tm_precision_f32, &tm_optimizer_adamw, { ADAM }, 16 },
    { "master", &tm_precision_bf16, &tm_optimizer_adamw, { ADAM }, 16 },
    { "moments", &tm_precision_bf16, &tm_optimizer_adamw, { ADAM, .bf16_moments = true }, 12 },
    { "moments by chance",
      &tm_precision_f32,
      &tm_optimizer_adamw,
      { ADAM, .bf16_moments = true, .stochastic = true },
      12 },
    { "pure", &tm_precision_bf16_pure, &tm_optimizer_adamw, { ADAM }, 8 },
    { "pure by chance", &tm_precision_bf16_pure, &tm_optimizer_adamw, { ADAM, .stochastic = true }, 8 },
    { "pure, compensated", &tm_precision_bf16_pure, &tm_optimizer_adamw, { ADAM, .kahan = true }, 10 },
    { "8 bits", &tm_precision_bf16, &tm_optimizer_adamw8bit, { ADAM }, 10 },
    { "pure, 8 bits", &tm_precision_bf16_pure, &tm_optimizer_adamw8bit, { ADAM, .stochastic = true }, 6 },
    { "pure, 8 bits, bitsandbytes",
      &tm_precision_bf16_pure,
      &tm_optimizer_adamw8bit,
      { ADAM, .definition = TM_DEFINED_BITSANDBYTES },
      6 },
    { "SGD by chance", &tm_precision_bf16_pure, &tm_optimizer_sgd, { .stochastic = true }, 4 },
    { "momentum by chance", &tm_precision_bf16_pure, &tm_optimizer_sgd, { .momentum = 0.9, .stochastic = true }, 6 },
    { "Muon",
      &tm_precision_f32,
      &tm_optimizer_muon,
      { ADAM, .momentum = 0.95, .nesterov = true, .definition = TM_DEFINED_TORCH },
      13.2 },
    { "Muon, Megatron's, by chance",
      &tm_precision_bf16_pure,
      &tm_optimizer_muon,
      { ADAM, .momentum = 0.9, .definition = TM_DEFINED_MEGATRON, .scale = TM_MUON_SPECTRAL, .stochastic = true },
      6.6 },
    { "Adafactor by chance",
      &tm_precision_bf16_pure,
      &tm_optimizer_adafactor,
      { .beta2_decay = -0.8, .eps1 = 1e-7, .eps2 = 1e-3, .clip_threshold = 1, .stochastic = true },
      4 },
};
enum { REGIMES = sizeof regimes / sizeof regimes[0], STEPS = 4 };

static tm_step_options options_of(const regime *r)
{
    tm_step_options o = test_gpt_options();
    o.shape.vocab_size = 320; /* embeddings of 80 blocks of 256 */
    o.precision = r->precision;
    o.optimizer = r->optimizer;
    o.hyper = r->hyper;
    return o;
}

static void train(tm_trainer *trainer, const test_batch *batch, int from, int to)
{
    for (int t = from; t <= to; t++) {
        tm_step_result result = test_step(trainer, t, 1e-2, 1, batch);
        assert_true(result.loss > 0 && result.grad_norm > 0);
    }
}

/* No two regimes are the same; what rounds by chance depends on the seed, and nothing else does. (Threads and what goes
 * on: tests/differential.) */
TEST(chance_goes_by_the_seed)
{
    test_batch batch = test_batch_random(2, 32, 320, 6);
    uint64_t   seen[REGIMES];
    for (int r = 0; r < REGIMES; r++) {
        tm_step_options o = options_of(&regimes[r]);
        tm_device      *device = test_device_open("cpu", 2);
        tm_trainer     *one = test_trainer_open(device, &o, 22), *other = test_trainer_open(device, &o, 23);
        const tm_graph *graph = tm_trainer_step_of(one)->graph;
        size_t          held, tensors = 0;
        for (size_t i = 0; i < graph->n_tensors; i++) { /* what a checkpoint holds */
            if (graph->tensors[i].role != TM_ROLE_PARAMETER && graph->tensors[i].role != TM_ROLE_MOMENT) continue;
            void *values = test_tensor_read(one, (tm_tensor_id)i);
            test_tensor_write(other, (tm_tensor_id)i, values);
            free(values);
            tensors++;
        }
        tm_trainer_tensors(one, &held);
        assert_int_equal(held, tensors);
        train(one, &batch, 1, STEPS);
        train(other, &batch, 1, STEPS);
        seen[r] = test_state_hash(one);
        if ((seen[r] != test_state_hash(other)) != regimes[r].hyper.stochastic)
            fail_msg("%s: the seed decides the rounding if, and only if, it is by chance", regimes[r].name);
        for (int k = 0; k < r; k++)
            if (seen[r] == seen[k]) fail_msg("%s is the same as %s", regimes[r].name, regimes[k].name);
        tm_trainer_close(one);
        tm_trainer_close(other);
        tm_device_close(device);
    }
    test_batch_fini(&batch);
}

/* Vectors below 4096 elements keep their moments whole; scales are 4 bytes for 256. */
TEST(a_parameter_takes_what_is_said)
{
    for (int r = 0; r < REGIMES; r++) {
        tm_step_options o = options_of(&regimes[r]);
        tm_device      *device = test_device_open("cpu", 2);
        tm_chooser      chooser = tm_device_chooser(device);
        tm_step        *step = test_step_plan(&o, &chooser);
        double          bytes = 0, parameters = (double)tm_model_parameters(&o.shape);
        for (size_t i = 0; i < step->graph->n_tensors; i++) {
            const tm_tensor *t = &step->graph->tensors[i];
            if (t->role == TM_ROLE_PARAMETER || t->role == TM_ROLE_GRADIENT || t->role == TM_ROLE_MOMENT)
                bytes += (double)tm_tensor_bytes(t->shape, t->dtype);
        }
        if (!(fabs(bytes / parameters / regimes[r].bytes - 1) < 0.08))
            fail_msg("%s: %.3f bytes per parameter, not %g", regimes[r].name, bytes / parameters, regimes[r].bytes);
        tm_step_destroy(step);
        tm_device_close(device);
    }
}

/* Moments of 8 bits: which tensors are coded, by the definition. */
TEST(small_tensors_keep_their_moments_whole)
{
    static const struct {
        int64_t elements;
        int     torchao, bitsandbytes; /* states */
    } cases[] = { { 256, 2, 2 }, { 4095, 2, 2 }, { 4096, 4, 4 }, { 4100, 2, 4 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_optimizer_state out[TM_MAX_STATES];
        tm_hyper           torchao = { ADAM }, bitsandbytes = { ADAM, .definition = TM_DEFINED_BITSANDBYTES };
        tm_shape           shape = tm_shape_1(cases[i].elements);
        assert_int_equal(tm_optimizer_adamw8bit.states(&torchao, shape, out), cases[i].torchao);
        assert_int_equal(tm_optimizer_adamw8bit.states(&bitsandbytes, shape, out), cases[i].bitsandbytes);
    }
}
