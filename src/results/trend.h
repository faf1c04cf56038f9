/* SPDX-License-Identifier: Apache-2.0 */
/* results/trend.h - does the loss of a run fall? Private to the room. */
#ifndef TM_RESULTS_TREND_H
#define TM_RESULTS_TREND_H

#include "results/result.h"

/* Least-squares slope, nats per step, of the loss at every 10th step and at the steps 100, 500, 1000 and 5000 (every
 * step where the run has fewer than 20). NAN where that is less than two points. */
double tm_results_loss_slope(const tm_result *run);

#endif
