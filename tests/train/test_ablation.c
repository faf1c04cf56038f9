/* SPDX-License-Identifier: Apache-2.0 */
/* The gate of the synthetic language needs attention and positions: the same model, samples and steps pass it whole,
 * and fail it when attention is zeroed or positions are removed (docs/synthetic-language.md). */
#include "support/test.h"
#include "data/source.h"
#include "model/blocks.h"
#include "support/training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum { WHOLE, ATTENTION_ZEROED, POSITIONS_REMOVED, ABLATIONS } ablation;

enum { VOCAB = 16, SEQ = 64, BATCH = 16, STEPS = 400, WARMUP = 20, VALIDATION_BATCHES = 16 };

static const double gate_nats = 0.05; /* training.target_loss_gap */

/* With output weights of zero, attention adds nothing to the residual stream: done before the first step and after
 * each. */
static void zero_attention(tm_trainer *trainer)
{
    const tm_step *step = tm_trainer_step_of(trainer);
    for (int64_t layer = 0; layer < step->options.shape.n_layers; layer++) {
        tm_tensor_id w = ((const tm_block_weights *)step->model.own)[layer].out_w;
        void        *zeros = calloc(1, step->plan->places[w].bytes);
        assert_non_null(zeros);
        test_tensor_write(trainer, w, zeros);
        free(zeros);
    }
}

/* Every position is turned by an angle of zero: cos = 1, sin = 0. */
static void remove_positions(tm_trainer *trainer)
{
    const tm_step *step = tm_trainer_step_of(trainer);
    int64_t        width = step->options.shape.head_dim;
    float         *table = test_tensor_read(trainer, step->model.rope_table);
    for (int64_t i = 0; i < step->options.seq * width; i++) table[i] = i % width < width / 2 ? 1 : 0;
    test_tensor_write(trainer, step->model.rope_table, table);
    free(table);
}

static double validation_loss(tm_trainer *trainer, const tm_source *source)
{
    tm_loader *loader = tm_loader_open(source, TM_SPLIT_VALIDATION, BATCH, 0, 1);
    double     sum = 0;
    assert_non_null(loader);
    for (int i = 0; i < VALIDATION_BATCHES; i++) {
        tm_batch batch;
        tm_loader_next(loader, &batch);
        sum += test_evaluate(trainer, batch.field[0], batch.field[1]);
    }
    tm_loader_close(loader);
    return sum / (VALIDATION_BATCHES * BATCH * SEQ);
}

/* Validation loss after STEPS steps. */
static double trained(tm_device *device, const tm_source *source, ablation what)
{
    tm_step_options o = test_llama_options();
    o.shape.vocab_size = VOCAB;
    o.seq = SEQ;
    o.micro_batch = BATCH;
    tm_trainer *trainer = test_trainer_open(device, &o, 1);
    tm_loader  *loader = tm_loader_open(source, TM_SPLIT_TRAIN, BATCH, 0, 1);
    assert_non_null(loader);
    if (what == ATTENTION_ZEROED) zero_attention(trainer);
    if (what == POSITIONS_REMOVED) remove_positions(trainer);
    for (int64_t t = 1; t <= STEPS; t++) {
        tm_batch batch;
        double   rate = 3e-3 * (t <= WARMUP ? (double)t / WARMUP : (double)(STEPS - t) / (STEPS - WARMUP));
        tm_loader_next(loader, &batch);
        test_step(trainer, t, rate, 1,
                  &(test_batch){ batch.field[0], batch.field[1], BATCH * SEQ, batch.target_tokens });
        if (what == ATTENTION_ZEROED) zero_attention(trainer);
    }
    double loss = validation_loss(trainer, source);
    tm_loader_close(loader);
    tm_trainer_close(trainer);
    return loss;
}

FULL_TEST(the_gate_needs_attention_and_positions)
{
    tm_source_options options = { .name = "synthetic", .vocab = VOCAB, .seq = SEQ, .seed = 1 };
    tm_source        *source = NULL;
    tm_error          err = { 0 };
    double            gap[ABLATIONS];
    if (tm_source_open(&options, &source, &err) != TM_OK) fail_msg("%s", err.text);
    double     floor = tm_source_describe(source)->floor;
    tm_device *device = test_device_open("cpu", 2);
    for (int what = 0; what < ABLATIONS; what++) gap[what] = trained(device, source, (ablation)what) - floor;
    print_message("# nats above the floor of %.4f: whole %.4f, attention zeroed %.4f, positions removed %.4f\n", floor,
                  gap[WHOLE], gap[ATTENTION_ZEROED], gap[POSITIONS_REMOVED]);
    assert_true(gap[WHOLE] <= gate_nats);
    assert_true(gap[ATTENTION_ZEROED] > 0.5);
    assert_true(gap[POSITIONS_REMOVED] > 0.5);
    tm_device_close(device);
    tm_source_close(source);
}
