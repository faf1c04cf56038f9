/* SPDX-License-Identifier: Apache-2.0 */
/* base/progress.h - what takes long says how far it is: nothing in the first ten seconds, then a note every ten
 * seconds. Of one thread. */
#ifndef TM_BASE_PROGRESS_H
#define TM_BASE_PROGRESS_H

#include <stdint.h>

typedef struct {
    const char *what;        /* "initial values"; static */
    double      total, done; /* bytes */
    int64_t     begin, told; /* moments of tm_now_ns */
} tm_progress;

tm_progress tm_progress_begin(const char *what, int64_t total_bytes);
/* So many bytes more are done. The note: "initial values: 35.20 GiB of 131.50 GiB after 20 s, about 54 s left". */
void tm_progress_add(tm_progress *progress, int64_t bytes);

#endif
