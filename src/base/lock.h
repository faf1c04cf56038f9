/* SPDX-License-Identifier: Apache-2.0 */
/* base/lock.h - a folder that one process at a time works in, and folders for the length of a process. */
#ifndef TM_BASE_LOCK_H
#define TM_BASE_LOCK_H

#include "base/status.h"

#include <stdbool.h>
#include <sys/types.h>

/* Held by flock of FOLDER/run.lock, which names the owner while it lives: whoever is killed leaves the name, but not
 * the lock. The folder is remembered, too: it may be removed under its owner. */
typedef struct {
    int   fd, folder; /* -1: none */
    char *path;       /* of the folder */
} tm_folder_lock;

/* TM_INVALID naming the process and host that has it. On a network file system locks may hold on one host only, so that
 * a run of another host that did not end well keeps it, too, until its file is removed; a file system without any locks
 * is a warning in the log. */
TM_MUST_USE tm_status tm_folder_lock_take(const char *folder, tm_folder_lock *out, tm_error *err);
/* The same with this host's name and whether the folder lies on a network. */
TM_MUST_USE tm_status tm_folder_lock_take_as(const char *folder, const char *host, bool network, tm_folder_lock *out,
                                             tm_error *err);
/* TM_IO if the folder has been removed, renamed or put in another's place since. */
TM_MUST_USE tm_status tm_folder_lock_check(const tm_folder_lock *lock, tm_error *err);
void                  tm_folder_lock_release(tm_folder_lock *lock); /* zeroed or released: nothing */

/* Opens a file as tm_file_open_lock does and locks it as long as it is open. 1: locked; 0: this file system has no
 * locks, or *fd is -1 and it could not be opened (*cause); -1: another process has it (close *fd). */
int tm_file_lock(const char *path, int *fd, int *cause);

/* Does it lie on a network file system, as far as its kind tells? */
bool tm_folder_on_network(const char *folder);

/* A fresh folder below TMPDIR or /tmp, PREFIX-XXXXXX. First removes those of the same prefix and user whose processes
 * are gone: a process that is killed cannot do it itself. */
typedef struct {
    char path[4096]; /* "": none */
    int  lock;
} tm_scratch;

TM_MUST_USE tm_status tm_scratch_make(const char *prefix, tm_scratch *out, tm_error *err);
/* The same below `base`. */
TM_MUST_USE tm_status tm_scratch_make_in(const char *base, const char *prefix, tm_scratch *out, tm_error *err);
void                  tm_scratch_remove(tm_scratch *scratch); /* with all that is in it; "": nothing */
/* A folder with all that is in it; links are removed, not followed. */
void tm_folder_remove(const char *path);

#endif
