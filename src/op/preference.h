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

/* The row of token n of `rows`, counted sample by sample. */
static inline int64_t tm_preference_row(const tm_preference_attr *attr, int64_t rows, int64_t n)
{
    if (attr->ranks <= 1) return n;
    const int64_t samples = rows / attr->seq, chunk = n % attr->seq / attr->chunk;
    const bool    first = chunk < attr->ranks;
    const int64_t rank = first ? chunk : 2 * attr->ranks - 1 - chunk;
    return rank * (rows / attr->ranks) + ((first ? 0 : samples) + n / attr->seq) * attr->chunk + n % attr->chunk;
}

/* What a rank counts of a pair. */
static inline double tm_preference_share(const tm_preference_attr *attr)
{
    return attr->ranks > 1 ? 1 / (double)attr->ranks : 1;
}

#endif
