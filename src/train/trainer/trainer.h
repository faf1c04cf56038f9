/* SPDX-License-Identifier: Apache-2.0 */
/* train/trainer/trainer.h - a step with memory: weights, optimizer state and the arena on a device. Knows no data
 * source, no schedule of a whole run and no file but checkpoints; train/run/loop.c drives it.
 */
#ifndef TM_TRAIN_TRAINER_H
#define TM_TRAIN_TRAINER_H

#include "device/device.h"
#include "train/checkpoint/checkpoint.h"
#include "train/step/step.h"

typedef struct tm_trainer tm_trainer;

enum { TM_MAX_MEASURES = 16 };
typedef struct {
    double       loss;      /* mean over the target tokens of the global batch; may be NaN: the caller judges */
    double       grad_norm; /* before clipping */
    tm_named_f64 measures[TM_MAX_MEASURES]; /* what else the model tells: the load of experts
                                             * (train/trainer/expert_balance.h), rewards (train/trainer/preference.h) */
    size_t n_measures;
} tm_step_result;

/* Micro-batches one after the other: the fields of the step's options, in their order; of a language tokens and targets
 * (micro_batch, T), target -100 = ignored. They stay as they are until the update, or until tm_trainer_evaluate
 * returns. */
typedef struct {
    const void *field[TM_MAX_FIELDS];
    int64_t     target_tokens;
} tm_micro_batch;

/* Plans, takes the arena and sets the initial weights from `seed` (f(seed, name, index): neither threads nor order
 * matter). The device must outlive the trainer. TM_NOMEM when the plan does not fit. Here and below, TM_DEVICE: the
 * device failed (device/device.h); nothing is left but to close. */
TM_MUST_USE tm_status tm_trainer_open(tm_device *device, const tm_step_options *options, uint64_t seed,
                                      tm_trainer **out, tm_error *err);
void                  tm_trainer_close(tm_trainer *trainer);

/* The step that runs, its arena, where it runs: the first two belong to the trainer. */
const tm_step *tm_trainer_step_of(const tm_trainer *trainer);
tm_address     tm_trainer_arena(const tm_trainer *trainer);
tm_device     *tm_trainer_device(const tm_trainer *trainer);
/* Copies `bytes` bytes from byte `offset` of a tensor on; done when they return. A transient tensor holds what it did
 * at the end of its program until the next program. */
TM_MUST_USE tm_status tm_trainer_read(const tm_trainer *trainer, tm_tensor_id id, size_t offset, void *to, size_t bytes,
                                      tm_error *err);
TM_MUST_USE tm_status tm_trainer_write(tm_trainer *trainer, tm_tensor_id id, size_t offset, const void *from,
                                       size_t bytes, tm_error *err);

/* Sets the changing scalars of step `t` (from 1). total_targets: of the whole step, all micro-batches. */
TM_MUST_USE tm_status tm_trainer_begin(tm_trainer *trainer, int64_t t, double learning_rate, double max_norm,
                                       int64_t total_targets, tm_error *err);
/* All gradients of a step: its schedule up to the update. `batch`: all micro-batches one after the other. May return
 * before it is done. */
TM_MUST_USE tm_status tm_trainer_gradients(tm_trainer *trainer, const tm_micro_batch *batch, tm_ledger *ledger,
                                           tm_error *err);
/* Runs micro-batch `index` of the step (0: first). May return before it is done. */
TM_MUST_USE tm_status tm_trainer_accumulate(tm_trainer *trainer, int64_t index, const tm_micro_batch *batch,
                                            tm_ledger *ledger, tm_error *err);
/* Instructions of the program "update" up to the norm: behind them loss and norm are known, and no weight or moment was
 * written. 0: this step has no such place. */
size_t tm_trainer_norm_end(const tm_trainer *trainer);
/* Runs those (norm_end > 0) behind tm_trainer_gradients; waits. tm_trainer_update then goes on behind them, with the
 * same bits as alone. */
TM_MUST_USE tm_status tm_trainer_norm(tm_trainer *trainer, size_t norm_end, double *loss, double *norm,
                                      tm_ledger *ledger, tm_error *err);
/* Norm, clip, optimizer; waits and fills *result. */
TM_MUST_USE tm_status tm_trainer_update(tm_trainer *trainer, tm_step_result *result, tm_ledger *ledger, tm_error *err);
/* Both: a whole step behind tm_trainer_begin. */
TM_MUST_USE tm_status tm_trainer_step(tm_trainer *trainer, const tm_micro_batch *batch, tm_step_result *result,
                                      tm_ledger *ledger, tm_error *err);
/* Who looks at each instruction of a step, before and behind it; all that was queued is done then. `micro_batch`: that
 * it belongs to, -1: to none. What the calls return ends the step if it is not TM_OK. */
typedef struct {
    void *context;
    tm_status (*before)(void *context, const tm_program *program, size_t at, int64_t micro_batch, tm_error *err);
    tm_status (*behind)(void *context, const tm_program *program, size_t at, int64_t micro_batch, tm_error *err);
} tm_trainer_observer;
/* From here on instructions of steps run one by one, with the same bits; NULL: nobody looks. It outlives the steps. */
void tm_trainer_observe(tm_trainer *trainer, const tm_trainer_observer *observer);

/* *loss: the summed loss of micro-batch `index` of the step behind tm_trainer_begin as training computes it, with what
 * it drops, of the weights as they are. Gradients, moments and state stay; counts of experts are those of this pass. */
TM_MUST_USE tm_status tm_trainer_forward(tm_trainer *trainer, const tm_micro_batch *batch, int64_t index, double *loss,
                                         tm_error *err);
/* The same by the program "exact". Only where step->exact has it. */
TM_MUST_USE tm_status tm_trainer_exact(tm_trainer *trainer, const tm_micro_batch *batch, int64_t index, double *loss,
                                       tm_error *err);
/* One of both, of the first micro-batch, with what dropout leaves out in the second one, or in the first one of the
 * next step. */
TM_MUST_USE tm_status tm_trainer_forward_as(tm_trainer *trainer, const tm_micro_batch *batch, bool next, bool exact,
                                            double *loss, tm_error *err);
/* *loss: the summed loss of a micro-batch, without training on it. */
TM_MUST_USE tm_status tm_trainer_evaluate(tm_trainer *trainer, const tm_micro_batch *batch, double *loss,
                                          tm_error *err);
/* The same of a batch of held-out samples: (validation_batch, validation_seq) where the step's options say so. */
TM_MUST_USE tm_status tm_trainer_validate(tm_trainer *trainer, const tm_micro_batch *batch, double *loss,
                                          tm_error *err);

/* The losses of the targets of a batch, (batch, T), without training on it; 0 where there is none. held_out: a batch as
 * of tm_trainer_validate. Only with options.preference; of stages the last one has them, the others 0. */
TM_MUST_USE tm_status tm_trainer_token_losses(tm_trainer *trainer, const tm_micro_batch *batch, bool held_out,
                                              float *losses, tm_error *err);
/* What the loss of pairs left in its record: of the micro-batches of a step, or of the batch evaluated last. Only with
 * options.preference. */
TM_MUST_USE tm_status tm_trainer_preferred(const tm_trainer *trainer, double record[TM_PREFERRED_COUNT], tm_error *err);

/* Looks at the first micro-batch of a step behind tm_trainer_begin, before tm_trainer_step, which comes to the same
 * bits as without: fills record (microscope.n_rows, TM_COMPARED) and losses, its summed loss in the step's format and
 * in the other; of stages the last one has them, the others 0. Only with options.compared. */
TM_MUST_USE tm_status tm_trainer_look(tm_trainer *trainer, const tm_micro_batch *batch, double *record,
                                      double losses[2], tm_error *err);

/* The number that the first row of micro-batch m of the step has in the run: what is dropped goes by it. */
double tm_trainer_first_row(const tm_trainer *trainer, int64_t m);

/* Runs another program of the step; may return before it is done. */
TM_MUST_USE tm_status tm_trainer_run(tm_trainer *trainer, const tm_program *program, tm_error *err);

/* Adds up values[n] over the ranks of a group along axes of the mesh; alone, nothing. Every rank of it calls. What runs
 * on the device is done before. */
TM_MUST_USE tm_status tm_trainer_sum(const tm_trainer *trainer, unsigned axes, double *values, size_t n, tm_error *err);

/* Runs the program "sample" of images, whose step was made with `sample`: v (tokens, channels) is the velocity at x
 * (tokens, channels) and `time`; text (text_len, text_dim), pooled (vector_dim). All ranks call it with the same. */
TM_MUST_USE tm_status tm_trainer_velocity(tm_trainer *trainer, const float *x, float time, const float *text,
                                          const float *pooled, float *v, tm_error *err);

/* Runs the program "sample" on tokens (T): *logits (V), of what follows token `row`, of all ranks that have parts of
 * the output layer. Every rank calls. */
TM_MUST_USE tm_status tm_trainer_logits(tm_trainer *trainer, const int32_t *tokens, int32_t row, double *logits,
                                        tm_error *err);

/* Weights and moments by name, as a checkpoint holds them; valid while the trainer is open. Of a step with adapters
 * without the frozen weights. */
const tm_checkpoint_tensor *tm_trainer_tensors(const tm_trainer *trainer, size_t *count);

/* Of all weights: equal names and bits, equal number, whatever the order of the tensors and where they lie. The sum
 * (modulo 2^64) over the weights of XXH3-64 of the two numbers XXH3-64 of the name, XXH3-64 of the bytes. */
/* The same in two steps: hashes[id] of each weight (others are left alone); their sum. */
TM_MUST_USE tm_status tm_trainer_hashes(const tm_trainer *trainer, uint64_t *hashes, tm_error *err);
uint64_t              tm_trainer_weights_sum(const tm_trainer *trainer, const uint64_t *hashes);
/* Of the parts of this sum that the stages of a pipeline have, the sum of all: every rank calls it. */
TM_MUST_USE tm_status tm_trainer_sum_stages(const tm_trainer *trainer, uint64_t *sum, tm_error *err);
/* The same of the frozen weights that adapters stand beside. */
TM_MUST_USE tm_status tm_trainer_base_hash(const tm_trainer *trainer, uint64_t *out, tm_error *err);
TM_MUST_USE tm_status tm_trainer_weights_hash(const tm_trainer *trainer, uint64_t *out, tm_error *err);

#endif
