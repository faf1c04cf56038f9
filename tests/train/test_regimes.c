/* SPDX-License-Identifier: Apache-2.0 */
/* Regimes: each is another training, what rounds by chance goes by the seed, and a parameter takes the bytes that are
 * said. (Updates: test_update.c; threads, and what goes on: tests/differential.) */
#include "regimes.h"

#include <math.h>
#include <stdlib.h>

/* Embeddings of 80 blocks of 256. */
#define MODEL                                                                                                          \
    "gpt-small --model.n_layers 2 --model.dim 64 --model.n_heads 2 --model.ffn_dim 256 --model.vocab_size 320 "        \
    "--model.max_seq_len 32 --training.seq_len 32 --training.local_batch_size 2 "

static void train(tm_trainer *trainer, const test_batch *batch)
{
    for (int t = 1; t <= 4; t++) {
        tm_step_result result = test_step(trainer, t, 1e-2, 1, batch);
        assert_true(result.loss > 0 && result.grad_norm > 0);
    }
}

/* Another seed, with the weights and moments of this one. */
TEST(chance_goes_by_the_seed)
{
    test_batch batch = test_batch_random(2, 32, 320, 6);
    uint64_t   seen[REGIMES];
    for (int r = 0; r < REGIMES; r++) {
        tm_step_options o = step_of(MODEL, regimes[r].words);
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
        train(one, &batch), train(other, &batch);
        seen[r] = test_state_hash(one);
        if ((seen[r] != test_state_hash(other)) != (strstr(regimes[r].words, CHANCE) != NULL))
            fail_msg("%s: the seed decides the rounding if, and only if, it is by chance", regimes[r].words);
        for (int k = 0; k < r; k++)
            if (seen[r] == seen[k]) fail_msg("%s is the same as %s", regimes[r].words, regimes[k].words);
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
        tm_step_options o = step_of(MODEL, regimes[r].words);
        tm_step        *step = test_step_of(&o);
        double          bytes = 0, parameters = (double)tm_model_parameters(&o.shape);
        for (size_t i = 0; i < step->graph->n_tensors; i++) {
            const tm_tensor *t = &step->graph->tensors[i];
            if (t->role == TM_ROLE_PARAMETER || t->role == TM_ROLE_GRADIENT || t->role == TM_ROLE_MOMENT)
                bytes += (double)tm_tensor_bytes(t->shape, t->dtype);
        }
        if (!(fabs(bytes / parameters / regimes[r].bytes - 1) < 0.08))
            fail_msg("%s: %.3f bytes per parameter, not %g", regimes[r].words, bytes / parameters, regimes[r].bytes);
        tm_step_destroy(step);
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
        tm_hyper           torchao = { .beta1 = 0.9 }, bitsandbytes = { .definition = TM_DEFINED_BITSANDBYTES };
        tm_shape           shape = tm_shape_1(cases[i].elements);
        assert_int_equal(tm_optimizer_adamw8bit.states(&torchao, shape, out), cases[i].torchao);
        assert_int_equal(tm_optimizer_adamw8bit.states(&bitsandbytes, shape, out), cases[i].bitsandbytes);
    }
}
