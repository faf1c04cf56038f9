/* SPDX-License-Identifier: Apache-2.0 */
/* train/run/curve.h - the losses of every step of the main job, as this program computed them when they were stored. A
 * run of the same job must repeat them: to the bit where its products are summed in the same order, in any case within
 * a band. Private to the room. */
#ifndef TM_TRAIN_RUN_CURVE_H
#define TM_TRAIN_RUN_CURVE_H

#include "train/run/run.h"

/* Appends a line for everything that decides about a loss: model, initial values, data, batch, optimizer, rates. */
void tm_curve_describe(const tm_run_options *options, tm_text *out);

/* Is this the job whose losses are stored? */
bool tm_curve_is_main(const tm_run_options *options);

/* losses[i], i < n, of step first_step + i against the stored ones; steps beyond those are not compared. `sums`: the
 * device's word for the order of summation, NULL: none. why: what is wrong, or empty.
 * Band: from the least to the largest stored loss of the steps around, a tenth before and behind, and 0.05 nat. */
void tm_curve_compare(const char *sums, const double *losses, int64_t first_step, int64_t n, tm_curve *out,
                      char why[TM_REASON_BYTES]);

#endif
