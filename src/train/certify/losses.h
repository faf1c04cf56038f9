/* SPDX-License-Identifier: Apache-2.0 */
/* train/certify/losses.h - what a certificate (train/certify/certificate.h) is made with: losses of the step with the
 * weights as they are (losses.c), and comparisons of them along directions (directions.c). Private to the room.
 *
 * All ranks make the same calls, get the same numbers and go on alike: what they do together would never end otherwise.
 */
#ifndef TM_TRAIN_CERTIFY_LOSSES_H
#define TM_TRAIN_CERTIFY_LOSSES_H

#include "base/event.h"
#include "train/certify/perturb.h"
#include "train/certify/leak_probe.h"

/* Formats that round by more are coarse. */
#define TM_COARSE_UNIT 0x1p-20

typedef struct {
    tm_trainer           *trainer;
    const tm_step        *step;
    const tm_micro_batch *batch;         /* all micro-batches one after the other */
    int64_t               micro_batches; /* of which the gradients are */
    bool                  alone;         /* they are no part of a step in parts */
    uint64_t              seed;
    tm_motion             motion;
    double                said;       /* the step's loss, as the programs that made the gradients say it */
    double                loss;       /* the same of the same weights and batch, by programs that only go forward */
    double                of_targets; /* that one without what the model adds to the losses of targets */
    double                scale;      /* of what is added up in it: logits, too, where they are */
    double                unit;       /* rounding of the format that the losses compared are computed in */
    bool                  coarse;     /* are the products coarser than float32? */
    bool                  exact;      /* and the losses compared in float32 all the same */
    double                small;      /* of the steps */
    double *counts, *now;             /* rows of each expert of each block: with the weights as they are; of the losses
                                       * that were computed last; NULL: no experts */
    size_t   n_counts;
    tm_probe probe;
    bool     probed;
    bool     dropped;       /* dropout was looked at (train/certify/adapters.c) */
    bool     same_drops;    /* and leaves out the same elements in another step or micro-batch */
    double   first_sum;     /* of the first micro-batch of this rank, of the weights that were moved last */
    double  *rows, *others; /* losses of the rows of a micro-batch, and with the tokens of the probe */
    int      ranks;         /* that have other samples */
    int      rank;          /* this one's number among them */
    double   targets;       /* of all of them */
} tm_certifier;

/* Sums over the ranks of axes of the mesh. */
TM_MUST_USE tm_status tm_certifier_join(const tm_certifier *c, unsigned axes, double *values, size_t n, tm_error *err);
/* Is it so on any rank? */
TM_MUST_USE tm_status tm_certifier_join_any(const tm_certifier *c, bool *any, tm_error *err);
/* What the step says of its loss and of its counts, and its loss again, in the format of the training. */
TM_MUST_USE tm_status tm_certifier_evaluate(tm_certifier *c, tm_error *err);
/* With the weights as they are: of all micro-batches of all ranks; the losses of rows are the training's also where
 * this one is in float32. *jumped: a token has other experts than it had for
 * the gradients (two that swap theirs are not seen). */
TM_MUST_USE tm_status tm_certifier_loss(tm_certifier *c, double *loss, bool *jumped, tm_error *err);
/* The batch with the tokens of the probe, once, with the weights that c->rows are of. */
TM_MUST_USE tm_status tm_certifier_probe(tm_certifier *c, tm_error *err);

/* --- adapters: train/certify/adapters.c --- */

/* Are their products multiplied by what the configuration asks for? `reason` says what is. */
TM_MUST_USE tm_status tm_certifier_check_scales(const tm_certifier *c, tm_certificate *out, tm_error *err);
/* With the weights of the last loss: the first micro-batch again, with what dropout leaves out in others. */
TM_MUST_USE tm_status tm_certifier_drop(tm_certifier *c, tm_error *err);

/* What a loss of programs with such a rounding is known to: rows round by themselves, blocks one after the other. */
double tm_certifier_rounding(const tm_certifier *c, double unit);
/* Are the gradients those of the losses? Fills in groups' worst comparison and the reason. */
TM_MUST_USE tm_status tm_certifier_compare(tm_certifier *c, tm_certificate *out, tm_error *err);

#endif
