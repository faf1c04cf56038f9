/* SPDX-License-Identifier: Apache-2.0 */
#include "results/trend.h"

#include <math.h>

static bool is_sampled(int64_t step, bool few)
{
    return few || step % 10 == 0 || step == 100 || step == 500 || step == 1000 || step == 5000;
}

double tm_results_loss_slope(const tm_result *run)
{
    enum { FEW = 20 };
    size_t                n, points = 0;
    const tm_result_step *steps = tm_result_steps(run, &n);
    double                x = 0, y = 0, xx = 0, xy = 0;
    for (size_t i = 0; i < n; i++) {
        if (!is_sampled(steps[i].step, n < FEW) || !isfinite(steps[i].loss)) continue;
        double at = (double)steps[i].step;
        points++;
        x += at;
        y += steps[i].loss;
        xx += at * at;
        xy += at * steps[i].loss;
    }
    double count = (double)points, spread = count * xx - x * x;
    return points > 1 && spread > 0 ? (count * xy - x * y) / spread : (double)NAN;
}
