/* SPDX-License-Identifier: Apache-2.0 */
/* op/preference.h - the kinds of the loss of two answers beyond the first three of tm_preference_kind (op/attrs.h), by
 * their names in TRL. The formulas: op/preference_loss.c. */
#ifndef TM_OP_PREFERENCE_H
#define TM_OP_PREFERENCE_H

#include "op/attrs.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    TM_PREFERENCE_ROBUST = TM_PREFERENCE_IPO + 1,
    TM_PREFERENCE_EXO,
    TM_PREFERENCE_NCA,
    TM_PREFERENCE_BCO,
    TM_PREFERENCE_SPPO,
    TM_PREFERENCE_APO_ZERO,
    TM_PREFERENCE_APO_DOWN,
    TM_PREFERENCE_SIGMOID_NORM,
    TM_PREFERENCE_KINDS
};

/* The kind that TRL calls so; -1: none. */
int64_t tm_preference_named(const char *name);
/* Has the kind smoothed labels? */
bool tm_preference_smooths(int64_t kind);

#endif
