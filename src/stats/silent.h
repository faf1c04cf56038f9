/* SPDX-License-Identifier: Apache-2.0 */
/* stats/silent.h - what a comparison without a difference excludes (docs/silent-errors.md). Errors that come at a rate
 * of X per device and hour, independently of each other, leave a time T of compared computation without one with
 * probability exp(-X T) (a Poisson process). */
#ifndef TM_STATS_SILENT_H
#define TM_STATS_SILENT_H

/* The rate per hour above which errors are excluded with this confidence (0.95), after so many device-seconds without
 * one: -ln(1 - confidence) / T. INFINITY: nothing was compared. */
double tm_silent_excluded(double device_seconds, double confidence);
/* The confidence with which rates above per_hour are excluded: 1 - exp(-X T). */
double tm_silent_confidence(double per_hour, double device_seconds);

#endif
