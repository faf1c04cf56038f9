/* SPDX-License-Identifier: Apache-2.0 */
/* apps/check/tune.h - settings of the host for record runs, and the way back.
 *
 * The old values go to a state file, flushed to disk, before the first of them is changed. The file is locked as long
 * as the process that made it lives; one without a lock was left behind by a crash, and its values are put back by the
 * next tuning or by tm_tune_restore. Only settings of the table in check_tune.c are ever written, whatever the file
 * says.
 */
#ifndef TM_SYSTEM_CHECK_TUNE_H
#define TM_SYSTEM_CHECK_TUNE_H

#include "base/status.h"
#include "base/text.h"

#include <stddef.h>

#define TM_TUNE_STATE_FOLDER "/run"
#define TM_TUNE_STATE_NAME "trainmark-tuned.json"

typedef struct tm_tuning tm_tuning;

typedef enum { TM_TUNE_NONE, TM_TUNE_LIVE, TM_TUNE_LEFT } tm_tune_state;

/* Is there a state file below the sysroot, and does its maker live? */
tm_tune_state tm_tune_state_read(const char *sysroot);

typedef struct {
    const char *sysroot;
    /* For tests: called before the change number `index` (from 0; the state file is there then). */
    void (*before_change)(void *context, size_t index);
    void *context;
} tm_tune_options;

/* Puts back what an earlier tuning left behind, records the values of now, and sets: caches dropped, C2 and deeper off,
 * governor performance, nmi_watchdog 0, numa_balancing 0, randomize_va_space 0, transparent huge pages enabled and
 * defrag always. Adds a line to `notes` for each group: how many were changed, were so already, are not there, or could
 * not be written, and why. TM_INVALID if the state file cannot be made (not root) or another tuning is at work; nothing
 * is changed then. */
TM_MUST_USE tm_status tm_tune_begin(const tm_tune_options *options, tm_tuning **out, tm_text *notes, tm_error *err);
/* Puts everything back, removes the state file and frees. TM_IO if a value could not be put back; the file stays then.
 */
TM_MUST_USE tm_status tm_tune_end(tm_tuning *tuning, tm_text *notes, tm_error *err);

/* Puts back what a dead process left. Nothing there: TM_OK with a note. One that lives: TM_INVALID. A file that cannot
 * be understood: TM_FORMAT, and it stays. */
TM_MUST_USE tm_status tm_tune_restore(const char *sysroot, tm_text *notes, tm_error *err);

#endif
