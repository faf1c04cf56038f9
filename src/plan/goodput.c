/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/goodput.h"

#include <math.h>

double tm_checkpoint_interval(const tm_failures *f)
{
    if (f->save >= 2 * f->between) return f->between;
    double x = f->save / (2 * f->between);
    return sqrt(2 * f->save * f->between) * (1 + sqrt(x) / 3 + x / 9) - f->save;
}

double tm_goodput(const tm_failures *f, double interval)
{
    return 1 / (1 + f->save / interval + (interval / 2 + f->restart) / f->between);
}
