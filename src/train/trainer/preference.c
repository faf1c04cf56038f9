/* SPDX-License-Identifier: Apache-2.0 */
/* train/trainer/preference.c - what a run that learns from pairs reports. */
#include "train/trainer/preference.h"

#include "op/preference.h"

#include <math.h>

void tm_preference_measure(const double record[TM_PREFERRED_COUNT], tm_named_f64 out[TM_PREFERENCE_MEASURES])
{
    const double n = record[TM_PREFERRED_PAIRS], chosen = record[TM_PREFERRED_CHOSEN],
                 rejected = record[TM_PREFERRED_REJECTED];
    out[0] = (tm_named_f64){ "rewards/chosen", chosen / n };
    out[1] = (tm_named_f64){ "rewards/rejected", rejected / n };
    out[2] = (tm_named_f64){ "rewards/accuracies", record[TM_PREFERRED_RIGHT] / n };
    out[3] = (tm_named_f64){ "rewards/margins", (chosen - rejected) / n };
    out[4] = (tm_named_f64){ "logps/chosen", record[TM_PREFERRED_LOGPS_CHOSEN] / n };
    out[5] = (tm_named_f64){ "logps/rejected", record[TM_PREFERRED_LOGPS_REJECTED] / n };
}

double tm_preference_start(const tm_preference_attr *attr)
{
    const double e = attr->label_smoothing, b = attr->beta;
    switch (attr->kind) {
    case TM_PREFERENCE_HINGE:
    case TM_PREFERENCE_APO_ZERO:
    case TM_PREFERENCE_APO_DOWN:
        return 1;
    case TM_PREFERENCE_IPO:
        return 0.25 / (b * b);
    case TM_PREFERENCE_SPPO:
        return 0.5 / (b * b);
    case TM_PREFERENCE_EXO:
        return -log(2) - 0.5 * (log1p(-e) + log(e));
    case TM_PREFERENCE_NCA:
    case TM_PREFERENCE_BCO:
        return 2 * log(2);
    default:
        return log(2);
    }
}
