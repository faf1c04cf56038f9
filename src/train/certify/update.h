/* SPDX-License-Identifier: Apache-2.0 */
/* train/certify/update.h - is the update of a step the one that the configuration asks for? Of every trained tensor
 * some elements, drawn by a seed, are worked out again: from weights, moments and gradients before the update, the
 * learning rate of this step by the schedule, the norm of all gradients, the decay of the tensor, by the published
 * formula and in double (train/certify/formulas.h). What the update stored must be that, within the rounding of its
 * formats (docs/certificate.md).
 *
 * Every rank looks at what it holds, all at the weights that they have, however they are shared; ranks that have the
 * same weights must have the same bits. All ranks make the same calls. */
#ifndef TM_TRAIN_CERTIFY_UPDATE_H
#define TM_TRAIN_CERTIFY_UPDATE_H

#include "base/event.h"
#include "train/optimizer/schedule.h"
#include "train/trainer/trainer.h"

/* What the configuration says of steps. */
typedef struct {
    double      learning_rate; /* the peak */
    tm_schedule schedule;
    double      max_norm; /* 0: nothing is clipped */
} tm_update_rule;

typedef struct tm_update_check tm_update_check;

/* Between tm_trainer_gradients and tm_trainer_update of step `step` (from 1): takes what the update begins with. The
 * caller hands *out to tm_update_judge or frees it. TM_DEVICE. */
TM_MUST_USE tm_status tm_update_watch(tm_trainer *trainer, const tm_update_rule *rule, int64_t step, uint64_t seed,
                                      tm_update_check **out, tm_error *err);

double tm_update_seconds(const tm_update_check *check); /* that it took so far */

/* Behind that update, which told `told`: adds what was found to *result, which begins with `agrees` true. The first
 * violation is its reason, on the ranks that see it. TM_DEVICE. */
TM_MUST_USE tm_status tm_update_judge(tm_update_check *check, const tm_step_result *told, tm_update_certificate *result,
                                      tm_error *err);
void                  tm_update_free(tm_update_check *check);

#endif
