/* SPDX-License-Identifier: Apache-2.0 */
#include "stats/silent.h"

#include <math.h>

static const double hour = 3600;

double tm_silent_excluded(double device_seconds, double confidence)
{
    return device_seconds > 0 ? -log1p(-confidence) * hour / device_seconds : (double)INFINITY;
}

double tm_silent_confidence(double per_hour, double device_seconds)
{
    return -expm1(-per_hour / hour * device_seconds);
}
