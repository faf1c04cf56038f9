/* SPDX-License-Identifier: Apache-2.0 */
/* plan/bound.h - what no plan of a layout does without: the least time of a step and the least memory of a rank, from a
 * few numbers of the model, in less than a microsecond. A search leaves out layouts whose least time is longer than
 * what it has (cli/plan_search.c). plan/simulate.h tells what a layout takes.
 */
#ifndef TM_PLAN_BOUND_H
#define TM_PLAN_BOUND_H

#include "plan/rates.h"
#include "train/step/step.h"

/* Of a training, whatever its layout. */
typedef struct {
    const tm_machine_plan *machine;
    double                 parameters, tokens;          /* tokens: of a step */
    double                 weights, gradients, moments; /* bytes of all, as one rank keeps them */
    double                 layers, head;                /* forward FLOPs of a token: in blocks; in the output layer */
    double                 backward;                    /* FLOPs of a backward pass, of a forward pass */
    double                 rate;                        /* FLOP/s that nothing exceeds */
    double                 row;                         /* bytes of a token's activations between blocks */
    int64_t                n_layers, seq, experts;
} tm_bound;

/* Who shares what. */
typedef struct {
    int     tp, pp, cp, ep, replicate, shard;
    bool    shares_all;   /* weights and gradients, too; else the optimizer's state */
    bool    full;         /* blocks are recomputed */
    bool    moments_away; /* the optimizer's moments lie with the host */
    double  idle;         /* (p - 1) (f + b) of a chunk times this are lost in a pipeline */
    int64_t micro, accumulation;
} tm_sketch;

/* options: of the training, of any layout; global: sequences of a step. One rank alone is planned to see what it
 * keeps. Fails as tm_step_create. */
TM_MUST_USE tm_status tm_bound_of(const tm_step_options *options, int64_t global, const tm_machine_plan *machine,
                                  const tm_chooser *chooser, tm_bound *out, tm_error *err);
double                tm_bound_seconds(const tm_bound *bound, const tm_sketch *sketch);
double                tm_bound_bytes(const tm_bound *bound, const tm_sketch *sketch);

#endif
