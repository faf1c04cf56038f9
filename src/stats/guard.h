/* SPDX-License-Identifier: Apache-2.0 */
/* stats/guard.h - physics: nothing computes faster than the arithmetic units or reads faster than the memory. A figure
 * that does is an error of measurement (a clock, a count of work, a result that was never computed), not a result.
 */
#ifndef TM_STATS_GUARD_H
#define TM_STATS_GUARD_H

#include "base/status.h"

/* What a machine can do at most, as measured. */
typedef struct {
    double flops, bytes; /* per second; 0 = unknown: nothing is refused for it */
    double flops_spread,
        bytes_spread; /* of their measurements: (best - median) / best of its samples; 0 if not known */
} tm_peaks;

/* How much better than the peak a result may look: the peak is the best of several samples, so its error is about their
 * spread; besides, the clock frequency of a busy core moves by one step (100 MHz of 3 to 5 GHz): 0.03 + spread. */
double tm_guard_tolerance(double spread);

/* The least time that so much work takes: the longer of flops / peak and bytes / bandwidth; 0 where neither is known.
 * bytes: what must cross between processor and memory, not what caches can serve. */
double tm_guard_least_seconds(const tm_peaks *peaks, double flops, double bytes);

/* TM_NUMBERS, with both figures, if a rate is above its peak or a time below its least by more than the tolerance.
 * `what` begins the message: "gemm 512 x 512 x 512". NAN passes: no figure is not a wrong figure. */
TM_MUST_USE tm_status tm_guard_flops(const tm_peaks *peaks, double flops_per_second, const char *what, tm_error *err);
TM_MUST_USE tm_status tm_guard_bytes(const tm_peaks *peaks, double bytes_per_second, const char *what, tm_error *err);
TM_MUST_USE tm_status tm_guard_seconds(const tm_peaks *peaks, double flops, double bytes, double seconds,
                                       const char *what, tm_error *err);

#endif
