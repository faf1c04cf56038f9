/* SPDX-License-Identifier: Apache-2.0 */
#include "train/trainer/expert_balance.h"

#include <math.h>

void tm_load_measure(const double *counts, int64_t mixtures, int64_t experts, double pairs,
                     tm_named_f64 out[TM_LOAD_MEASURES])
{
    double largest = 0, smallest = 0, entropy = 0, sum = 0;
    for (int64_t m = 0; m < mixtures; m++) {
        const double *count = counts + m * experts;
        double        most = count[0], least = count[0], spread = 0;
        for (int64_t e = 0; e < experts; e++) {
            most = fmax(most, count[e]);
            least = fmin(least, count[e]);
            sum += count[e];
            if (count[e] > 0) spread -= count[e] / pairs * log(count[e] / pairs);
        }
        largest += most * (double)experts / pairs / (double)mixtures;
        smallest += least * (double)experts / pairs / (double)mixtures;
        entropy += (experts > 1 ? spread / log((double)experts) : 1) / (double)mixtures;
    }
    out[0] = (tm_named_f64){ "moe_load_largest", largest };
    out[1] = (tm_named_f64){ "moe_load_smallest", smallest };
    out[2] = (tm_named_f64){ "moe_load_entropy", entropy };
    out[3] = (tm_named_f64){ "moe_dropped", pairs * (double)mixtures - sum };
}
