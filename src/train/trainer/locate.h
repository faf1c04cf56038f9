/* SPDX-License-Identifier: Apache-2.0 */
/* train/trainer/locate.h - the first value of a step that is not finite: which instruction wrote it, and where. Every
 * instruction runs alone, and its operands are copied to the host and scanned.
 */
#ifndef TM_TRAIN_TRAINER_LOCATE_H
#define TM_TRAIN_TRAINER_LOCATE_H

#include "base/json.h"
#include "comm/comm.h"
#include "train/trainer/trainer.h"

/* tm_nonfinite.cause. */
#define TM_CAUSE_WEIGHT "weight"     /* a weight was not finite before the step */
#define TM_CAUSE_STATE "state"       /* nor was a moment, or another number that steps hand on */
#define TM_CAUSE_INPUT "input"       /* the batch holds it */
#define TM_CAUSE_RECEIVED "received" /* a collective gave it: another rank had it, or the sum overflowed */
#define TM_CAUSE_OVERFLOW                                                                                              \
    "overflow" /* operands are finite, and the square of the largest is beyond the output's format */
#define TM_CAUSE_COMPUTED                                                                                              \
    "computed" /* operands are finite and not so large: a quotient by 0, the root of less than 0 */

typedef struct tm_locator tm_locator;

/* Looks at what the trainer runs from here on, until it is closed. One at a time. */
tm_locator *tm_locator_open(tm_trainer *trainer);
/* Ends looking; NULL is fine. */
void tm_locator_close(tm_locator *locator);
/* The first value that was not finite; NULL: there was none. Step and rank are the caller's. */
const tm_nonfinite *tm_locator_found(const tm_locator *locator);

/* *found of all ranks becomes the one that is told: not received from others before received, then the earliest in the
 * order of a step, then the lowest rank. *any: does this rank have one, then: has any. Every rank calls it. */
TM_MUST_USE tm_status tm_locate_agree(tm_comm *world, tm_nonfinite *found, bool *any, tm_error *err);

/* What is known of it in one line: "step 7, layers.0.attention.linear (linear, layer 0, forward, ...): ...". */
void tm_nonfinite_print(const tm_nonfinite *found, tm_text *out);
/* A member of an open object (docs/result-json.md); NULL becomes null. */
void tm_nonfinite_json(const tm_nonfinite *found, const char *key, tm_json *json);

#endif
