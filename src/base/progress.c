/* SPDX-License-Identifier: Apache-2.0 */
#include "base/progress.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

enum { INTERVAL_S = 10 };

tm_progress tm_progress_begin(const char *what, int64_t total_bytes)
{
    int64_t now = tm_now_ns();
    return (tm_progress){ .what = what, .total = (double)total_bytes, .begin = now, .told = now };
}

void tm_progress_add(tm_progress *p, int64_t bytes)
{
    char    done[32], total[32];
    int64_t now = tm_now_ns();
    p->done += (double)bytes;
    if (now - p->told < (int64_t)INTERVAL_S * 1000000000 || p->done >= p->total || p->done <= 0) return;
    p->told = now;
    double seconds = 1e-9 * (double)(now - p->begin);
    tm_note("%s: %s of %s after %.0f s, about %.0f s left", p->what, tm_format_bytes(done, p->done),
            tm_format_bytes(total, p->total), seconds, seconds * (p->total / p->done - 1));
}
