/* SPDX-License-Identifier: Apache-2.0 */
/* train/step/supported.h - what cannot be combined in a step: the table that every step is checked by, and that
 * `trainmark keys --combinations` prints. Ranges of a key, and what it needs, are rows of settings/keys.c; keys that
 * contradict each other are refused by settings/rules.c and parallel/parallelism.c, with both names. */
#ifndef TM_TRAIN_STEP_SUPPORTED_H
#define TM_TRAIN_STEP_SUPPORTED_H

#include "train/step/step.h"

typedef struct {
    const char *what,
        *with;       /* each with its key in brackets; what a user asks for, and what it cannot be combined with */
    const char *why; /* NULL: nothing stands against it but the work */
    const char *way; /* what to do, as an order */
    bool (*asked)(const tm_step *step); /* for both? `declared`: of a step whose tensors are declared */
    bool        declared;
    const char *base, *more; /* an example: words of a command line that are planned, and more, which make both */
} tm_not_together;

extern const tm_not_together tm_not_together_rows[];
extern const size_t          tm_n_not_together;

/* TM_UNSUPPORTED: the first row that is asked for, of those that are `declared` or of the others. */
TM_MUST_USE tm_status tm_supported(const tm_step *step, bool declared, tm_error *err);

#endif
