/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TM_BASE_CLOCK_H
#define TM_BASE_CLOCK_H

#include <stdint.h>

int64_t tm_now_ns(void);            /* monotonic */
int64_t tm_thread_delayed_ns(void); /* that this thread has waited for a processor, ready to run; 0 where unknown */
int64_t tm_wall_ms(void);           /* since 1970 */
int64_t tm_process_age_ns(void);    /* since exec of this process, from /proc; -1 where unknown */
char   *tm_wall_text(char out[32]); /* "2026-01-31T12:00:00Z" */

#endif
