/* SPDX-License-Identifier: Apache-2.0 */
/* plan/goodput.h - what failures leave of a training's speed, and how often to save. */
#ifndef TM_PLAN_GOODPUT_H
#define TM_PLAN_GOODPUT_H

/* All in seconds. */
typedef struct {
    double between; /* failures of the job, on average */
    double save;    /* for which a checkpoint stops the training */
    double restart; /* from a failure until steps run again: detection, start, loading, warm-up */
} tm_failures;

/* The interval between checkpoints that loses least: Daly 2006, equation 37; `between` where saving takes twice that.
 */
double tm_checkpoint_interval(const tm_failures *failures);
/* The share of the time in which steps run that count: 1 / (1 + save / interval + (interval / 2 + restart) / between).
 */
double tm_goodput(const tm_failures *failures, double interval);

#endif
