/* SPDX-License-Identifier: Apache-2.0 */
/* train/trainer/logits.c - what the model says of the token that follows, or of the way from noise to an image. */
#include "graph/value.h"
#include "train/trainer/trainer.h"

#include <stdlib.h>
#include <string.h>

/* Of the rows of the output layer that are here; the others are zeros. */
static tm_status read_here(const tm_trainer *trainer, double *logits, tm_error *err)
{
    const tm_step   *step = tm_trainer_step_of(trainer);
    const tm_tensor *stored = tm_graph_at(step->graph, step->sample_logits),
                    *head = tm_graph_at(step->graph, step->model.head);
    const int64_t n = stored->shape.n[1], first = head->cut ? head->pieces[0].begin : 0;
    const size_t  bytes = tm_tensor_bytes(stored->shape, stored->dtype);
    void         *values = tm_alloc(bytes);
    tm_status     st = tm_trainer_read(trainer, step->sample_logits, 0, values, bytes, err);
    for (int64_t v = 0; st == TM_OK && v < n; v++) logits[first + v] = tm_value_get(values, stored->dtype, v);
    free(values);
    return st;
}

tm_status tm_trainer_logits(tm_trainer *trainer, const int32_t *tokens, int32_t row, double *logits, tm_error *err)
{
    const tm_step *step = tm_trainer_step_of(trainer);
    const int64_t  vocab = step->options.shape.vocab_size, seq = step->options.seq;
    TM_ASSERT(step->sampling.n > 0 && row >= 0 && row < seq);
    TM_TRY(tm_trainer_write(trainer, step->sample_tokens, 0, tokens, (size_t)seq * sizeof *tokens, err));
    TM_TRY(tm_trainer_write(trainer, step->sample_row, 0, &row, sizeof row, err));
    for (size_t i = 0; i < step->sampling.n; i++) TM_TRY(tm_trainer_run(trainer, step->sampling.work[i].program, err));
    memset(logits, 0, (size_t)vocab * sizeof *logits);
    if (step->sample_logits != TM_NONE) {
        const tm_cut *cut = tm_graph_at(step->graph, step->model.head)->cut;
        TM_TRY(read_here(trainer, logits, err));
        if (cut) TM_TRY(tm_trainer_sum(trainer, cut->axes, logits, (size_t)vocab, err));
    }
    return tm_trainer_sum(trainer, 1U << TM_AXIS_PP, logits, (size_t)vocab, err);
}

tm_status tm_trainer_velocity(tm_trainer *trainer, const float *x, float time, const float *text, const float *pooled,
                              float *v, tm_error *err)
{
    const tm_step *step = tm_trainer_step_of(trainer);
    const void    *from[TM_SAMPLE_FIELDS] = { x, &time, text, pooled };
    TM_ASSERT(step->sampling.n == 1 && step->sample_velocity != TM_NONE);
    const tm_tensor *stored = tm_graph_at(step->graph, step->sample_velocity);
    const size_t     bytes = tm_tensor_bytes(stored->shape, stored->dtype);
    for (int i = 0; i < TM_SAMPLE_FIELDS; i++) {
        size_t size = tm_tensor_bytes(tm_graph_at(step->graph, step->sample_fields[i])->shape, TM_F32);
        TM_TRY(tm_trainer_write(trainer, step->sample_fields[i], 0, from[i], size, err));
    }
    TM_TRY(tm_trainer_run(trainer, step->sampling.work[0].program, err));
    void     *values = tm_alloc(bytes);
    tm_status st = tm_trainer_read(trainer, step->sample_velocity, 0, values, bytes, err);
    for (int64_t i = 0; st == TM_OK && i < tm_shape_elements(stored->shape); i++)
        v[i] = (float)tm_value_get(values, stored->dtype, i);
    free(values);
    return st;
}
