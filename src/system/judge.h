/* SPDX-License-Identifier: Apache-2.0 */
/* system/judge.h - private to the room: samples through a measurement and the verdict on them (system/validity.h). */
#ifndef TM_SYSTEM_JUDGE_H
#define TM_SYSTEM_JUDGE_H

#include "system/sample.h"
#include "system/validity.h"

enum { VALIDITY_ROOM = 256 };

struct tm_validity {
    sampler source;
    sample  samples[VALIDITY_ROOM];
    int     count;
    int64_t next_ns; /* no sample before */
    int64_t gap_ns;  /* least time between two */
};

/* n >= 2 samples in time order; thermal: throttle events between the ends of the run, NAN = unknown. */
void judge_samples(const sample *s, int n, int processors, double thermal, tm_validity_report *out);

#endif
