/* SPDX-License-Identifier: Apache-2.0 */
#include "stats/guard.h"

#include <math.h>
#include <stdbool.h>

static const double frequency_step = 0.03;

double tm_guard_tolerance(double spread)
{
    return frequency_step + (spread > 0 ? spread : 0);
}

static double seconds_at(double work, double peak)
{
    return peak > 0 && work > 0 ? work / peak : 0;
}

double tm_guard_least_seconds(const tm_peaks *peaks, double flops, double bytes)
{
    return fmax(seconds_at(flops, peaks->flops), seconds_at(bytes, peaks->bytes));
}

static tm_status rate(double value, double peak, double spread, const char *unit, const char *of, const char *what,
                      tm_error *err)
{
    if (!(peak > 0) || !(value > peak * (1 + tm_guard_tolerance(spread)))) return TM_OK;
    return tm_fail(
        err, TM_NUMBERS,
        "%s: %.4g %s is more than the %.4g that %s can do, as measured (%.3g times as much): the time or the "
        "count of work is wrong, and this is not a result",
        what, value, unit, peak, of, value / peak);
}

tm_status tm_guard_flops(const tm_peaks *peaks, double flops_per_second, const char *what, tm_error *err)
{
    return rate(flops_per_second, peaks->flops, peaks->flops_spread, "FLOP/s", "the arithmetic units", what, err);
}

tm_status tm_guard_bytes(const tm_peaks *peaks, double bytes_per_second, const char *what, tm_error *err)
{
    return rate(bytes_per_second, peaks->bytes, peaks->bytes_spread, "bytes/s", "the memory", what, err);
}

tm_status tm_guard_seconds(const tm_peaks *peaks, double flops, double bytes, double seconds, const char *what,
                           tm_error *err)
{
    double compute = seconds_at(flops, peaks->flops) / (1 + tm_guard_tolerance(peaks->flops_spread));
    double memory = seconds_at(bytes, peaks->bytes) / (1 + tm_guard_tolerance(peaks->bytes_spread));
    if (!(seconds < fmax(compute, memory))) return TM_OK;
    bool by_compute = compute >= memory;
    return tm_fail(err, TM_NUMBERS,
                   "%s took %.4g s, but %.4g %s cannot be done in less than %.4g s at the measured %.4g %s/s: the time "
                   "or the count of work is wrong, and this is not a result",
                   what, seconds, by_compute ? flops : bytes, by_compute ? "FLOP" : "bytes",
                   tm_guard_least_seconds(peaks, by_compute ? flops : 0, by_compute ? 0 : bytes),
                   by_compute ? peaks->flops : peaks->bytes, by_compute ? "FLOP" : "bytes");
}
