/* SPDX-License-Identifier: Apache-2.0 */
/* train/trainer/preference.c - what a run that learns from pairs reports. */
#include "train/trainer/preference.h"

#include "base/arena.h"
#include "graph/value.h"
#include "op/preference.h"
#include "train/trainer/trainer.h"

#include <math.h>
#include <stdlib.h>

void tm_preference_measure(const double record[TM_PREFERRED_COUNT], tm_named_f64 out[TM_PREFERENCE_MEASURES])
{
    const double n = record[TM_PREFERRED_PAIRS], chosen = record[TM_PREFERRED_CHOSEN],
                 rejected = record[TM_PREFERRED_REJECTED];
    out[0] = (tm_named_f64){ "rewards/chosen", chosen / n };
    out[1] = (tm_named_f64){ "rewards/rejected", rejected / n };
    out[2] = (tm_named_f64){ "rewards/accuracies", record[TM_PREFERRED_RIGHT] / n };
    out[3] = (tm_named_f64){ "rewards/margins", (chosen - rejected) / n };
    out[4] = (tm_named_f64){ "logps/chosen", record[TM_PREFERRED_LOGPS_CHOSEN] / n };
    out[5] = (tm_named_f64){ "logps/rejected", record[TM_PREFERRED_LOGPS_REJECTED] / n };
}

double tm_preference_start(const tm_preference_attr *attr)
{
    const double e = attr->label_smoothing, b = attr->beta;
    switch (attr->kind) {
    case TM_PREFERENCE_HINGE:
    case TM_PREFERENCE_APO_ZERO:
    case TM_PREFERENCE_APO_DOWN:
        return 1;
    case TM_PREFERENCE_IPO:
        return 0.25 / (b * b);
    case TM_PREFERENCE_SPPO:
        return 0.5 / (b * b);
    case TM_PREFERENCE_EXO:
        return -log(2) - 0.5 * (log1p(-e) + log(e));
    case TM_PREFERENCE_NCA:
    case TM_PREFERENCE_BCO:
        return 2 * log(2);
    default:
        return log(2);
    }
}

tm_status tm_trainer_token_losses(tm_trainer *trainer, const tm_micro_batch *batch, bool held_out, float *losses,
                                  tm_error *err)
{
    const tm_step         *step = tm_trainer_step_of(trainer);
    const tm_step_options *o = &step->options;
    bool                   own = held_out && step->validation.n > 0;
    tm_tensor_id           id = own ? step->validation_losses : step->losses;
    int64_t                n = own ? o->validation_batch * o->validation_seq : o->micro_batch * o->seq;
    double                 sum;
    TM_TRY(own ? tm_trainer_validate(trainer, batch, &sum, err) : tm_trainer_evaluate(trainer, batch, &sum, err));
    const tm_division  context = step->model.parallel.context;
    tm_preference_attr order = { .seq = own ? o->validation_seq : o->seq };
    if (tm_divided(context)) order.ranks = context.ranks, order.chunk = tm_chunk_length(context, order.seq);
    for (int64_t i = 0; i < n; i++) losses[i] = 0;
    if (id == TM_NONE) return TM_OK;
    size_t    bytes = step->plan->places[id].bytes;
    void     *values = tm_alloc(bytes);
    tm_status st = tm_trainer_read(trainer, id, 0, values, bytes, err);
    for (int64_t i = 0; i < n && st == TM_OK; i++)
        losses[i] = (float)tm_value_get(values, tm_graph_at(step->graph, id)->dtype, tm_preference_row(&order, n, i));
    free(values);
    return st;
}

tm_status tm_trainer_preferred(const tm_trainer *trainer, double record[TM_PREFERRED_COUNT], tm_error *err)
{
    TM_ASSERT(tm_trainer_step_of(trainer)->model.preferred != TM_NONE);
    return tm_trainer_read(trainer, tm_trainer_step_of(trainer)->model.preferred, 0, record,
                           TM_PREFERRED_COUNT * sizeof *record, err);
}
