/* SPDX-License-Identifier: Apache-2.0 */
/* train/run/verdict.h - is this run's training real? A speed without a passing gate is not a result (docs/verdict.md).
 *
 *   invalid      a step that computed twice had other bits; a loss or gradient norm that is not finite; a validation
 *                loss below the language's entropy; no progress; a step faster than the arithmetic units can be;
 *                passed, but the machine was not there to be measured
 *   not-judged   slowed down on purpose (debug.slowdown_pct); fewer than 50 steps; interrupted before the gate passed;
 *                fewer than 5 steps since a checkpoint and no progress seen in them; a text of which nothing is held
 *                out
 *   noisy        passed, but the step times vary by more than 10 % or drift, or the machine was disturbed
 *   valid        passed
 */
#ifndef TM_TRAIN_RUN_VERDICT_H
#define TM_TRAIN_RUN_VERDICT_H

#include "base/event.h"
#include "data/source.h"
#include "stats/series.h"

#include <stdbool.h>

enum { TM_JUDGED_STEPS = 50 };

/* Mean, deviation and number of the losses that a run began with. A checkpoint keeps them, so that a run that goes on
 * is judged by all of its progress. */
typedef struct {
    double  mean, deviation;
    int64_t n; /* 0: unknown */
} tm_loss_head;

/* What the judge needs to know of a run; NAN where there is no such number. All of it is in result.json, or follows
 * from what is: whoever reads one can judge again (results/verify.h). */
typedef struct tm_evidence {
    tm_source_gate gate;   /* of the data source */
    const double  *losses; /* of every step since the start of the run, or of this process */
    int64_t        n_losses, total_steps;
    bool           finite;           /* every loss and gradient norm */
    const char    *nonfinite;        /* where the first value was that is not, in words; NULL: not known */
    double         validation;       /* last validation loss */
    double         validation_error; /* standard error of it */
    double         floor, validation_floor, unigram_entropy, target_gap;
    double         compressed; /* of held-out text: what a compressor needs (tm_source_compressed); NAN: unknown */
    bool   images; /* the floor is the least mean square error, not an entropy; validation_floor counts for them */
    bool   must_reach_target;
    double first_loss, start;        /* pairs: of the first step; where it must be: reference and model are one. NAN */
    double step_variation;           /* coefficient of variation of the step times */
    const tm_steady *steady;         /* of the step times; NULL: not looked at */
    tm_verdict       machine;        /* was it left alone? (system/validity.h) */
    const char      *machine_reason; /* NULL: not looked at */
    const char      *impossible;     /* the step is faster than the machine can be: how; NULL: it is not */
    const char      *not_training;   /* nothing was trained, or not by the gradient: why; NULL: it was */
    const char      *unrepeatable;   /* a step computed twice had other bits: where; NULL: none had */
    bool             unproven;       /* no certificate of gradients could be made, and no sample comes twice */
    tm_loss_head     head;           /* of the steps before this process; n 0: there were none */
    bool             interrupted;    /* a signal ended the run before its last step */
    double           slowdown_pct;   /* debug.slowdown_pct: burnt in every step on purpose */
} tm_evidence;

/* The head with one more loss. What comes out depends on the losses only, bit for bit, and not on how often the head
 * was kept and read again between them. */
tm_loss_head tm_loss_head_add(tm_loss_head head, double loss);
/* Losses that the head of a run of `steps` steps takes in: a tenth, 5 to 100. */
int64_t tm_loss_head_limit(int64_t steps);

/* Does it show that the run was no training? Then its reason is why (tm_evidence.not_training). */
bool tm_certificate_fails(const tm_certificate *certificate);
/* Of a certificate whose gradients agree: can the two changes of the loss differ as they do? */
bool tm_certificate_agrees(const tm_certificate *certificate);
/* Do the phases of `steps` steps together take longer than the steps, which they are parts of? Seconds. */
bool tm_phases_exceed(double phases, double all, int64_t steps);

/* Fills `reason`. A pure function. */
tm_verdict tm_verdict_of(const tm_evidence *evidence, char reason[TM_REASON_BYTES]);

#endif
