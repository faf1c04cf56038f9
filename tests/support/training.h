/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/training.h - small models that run on the fast kernels, batches of random tokens, single steps and
 * whole runs. Whatever fails ends the test with its message. */
#ifndef TM_TESTS_TRAINING_H
#define TM_TESTS_TRAINING_H

#include "device/device.h"
#include "train/trainer/trainer.h"

/* The shape of a compiled-in preset; `more`: "--key=value" words separated by blanks, or NULL. */
tm_model_shape test_shape_preset(const char *preset, const char *more);
/* Two layers, dim 64, two heads of 32 (llama: one key/value head, rotary positions; gpt: tied, all biases), vocabulary
 * 96; batch 2 x 32, float32. */
tm_step_options test_llama_options(void);
tm_step_options test_gpt_options(void);
/* Of any family, with what sets it apart: a window, biases, head norms with heads that are not dim / n_heads wide. */
tm_step_options test_family_options(tm_model_family family);

tm_device  *test_device_open(const char *name, int threads);
tm_step    *test_step_plan(const tm_step_options *options, const tm_chooser *chooser);
tm_trainer *test_trainer_open(tm_device *device, const tm_step_options *options, uint64_t seed);
/* A step planned for one thread of the CPU; a trainer with a device of its own, which ends with it. */
tm_step    *test_step_of(const tm_step_options *options);
tm_trainer *test_trainer_on(const char *device, int threads, const tm_step_options *options, uint64_t seed);
void        test_trainer_end(tm_trainer *trainer);

/* A whole tensor, the caller's to free; and back. */
void *test_tensor_read(const tm_trainer *trainer, tm_tensor_id id);
void  test_tensor_write(tm_trainer *trainer, tm_tensor_id id, const void *values);

/* The same as numbers. */
double *test_values_read(const tm_trainer *trainer, tm_tensor_id id);
void    test_values_write(tm_trainer *trainer, tm_tensor_id id, const double *values);

/* Tokens of one optimizer step: sequences one after the other, each target the token that follows. Free with
 * test_batch_fini. */
typedef struct {
    int32_t *tokens, *targets;
    int64_t  rows, target_tokens;
} test_batch;
test_batch test_batch_random(int64_t sequences, int64_t seq, int64_t vocab, uint64_t seed);
void       test_batch_fini(test_batch *batch);

/* Loss and gradients of a batch: a whole step at learning rate 0, which leaves the weights but not the moments. Returns
 * the mean loss. */
double test_gradients(tm_trainer *trainer, const test_batch *batch);
/* Its parts. */
void           test_begin(tm_trainer *trainer, int64_t t, double rate, double max_norm, int64_t total_targets);
void           test_accumulate(tm_trainer *trainer, int64_t index, const int32_t *tokens, const int32_t *targets);
tm_step_result test_update(tm_trainer *trainer);
double         test_evaluate(tm_trainer *trainer, const int32_t *tokens, const int32_t *targets);
uint64_t       test_weights_hash(const tm_trainer *trainer);
/* A whole step. */
tm_step_result test_step(tm_trainer *trainer, int64_t t, double rate, double max_norm, const test_batch *batch);
/* Hash of all gradients, or of weights and moments. */
uint64_t test_gradients_hash(const tm_trainer *trainer);
uint64_t test_state_hash(const tm_trainer *trainer);
/* |a - b| / |b| over one tensor of two trainers of the same model (any formats). */
double test_relative_difference(const tm_trainer *a, const tm_trainer *b, tm_tensor_id in_a, tm_tensor_id in_b);

#endif
