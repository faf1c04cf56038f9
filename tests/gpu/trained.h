/* SPDX-License-Identifier: Apache-2.0 */
/* Trainings on two devices, compared: losses, norms, rows of experts, evaluation, logits; or all bits. */
#ifndef TESTS_GPU_TRAINED_H
#define TESTS_GPU_TRAINED_H

#include "support/training.h"

enum { TRAINED_MOST = 20, TRAINED_COUNTS = 128 };

typedef enum { BOUND, ONE_BY_ONE, WITH_LEDGER, TRAINED_WAYS } trained_way;

typedef struct {
    double   loss[TRAINED_MOST], norm[TRAINED_MOST], evaluation;
    double   counts[TRAINED_MOST][TRAINED_COUNTS]; /* rows of each expert */
    double   logits[TRAINED_COUNTS];               /* of options with `sample` */
    int64_t  n_counts;
    uint64_t state;
} trained;

/* So many steps on batches that depend on the step alone. Documents (fields positions, first_key) have five tokens;
 * adapters and FLUX's modulations begin with numbers other than 0. */
trained train(tm_device *device, const tm_step_options *options, int steps, trained_way way);
/* Within rounding of the format. Rows of experts: all where it is float32, else nearly all of the first step. */
void compare_trained(const trained *found, const trained *wanted, const tm_step_options *options, int steps,
                     const char *what);

#endif
