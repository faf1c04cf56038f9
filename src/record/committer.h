/* SPDX-License-Identifier: Apache-2.0 */
/* record/committer.h - private to the room: brings what was added to a file to the disk once a second, on a thread of
 * its own, so that no step waits for the disk (docs/result-json.md, "How durable"). */
#ifndef TM_RECORD_COMMITTER_H
#define TM_RECORD_COMMITTER_H

typedef struct record_committer record_committer;

enum { RECORD_COMMIT_MS = 1000 };

/* For the file `fd`, of the name `path`; both stay the caller's. `sync`: fdatasync, or what a test puts in its place.
 * NULL when no thread can be started. */
record_committer *record_committer_start(const char *path, int fd, int interval_ms, int (*sync)(int fd));
/* Something was added: it is on the disk after the interval, at most. */
void record_committer_note(record_committer *committer);
/* What went wrong so far, without waiting: 0, or the errno of the first flush that failed (ENOENT: the name is no
 * longer that of the file). */
int record_committer_cause(record_committer *committer);
/* All that was added before is on the disk when this returns. As record_committer_cause. */
int record_committer_flush(record_committer *committer);
/* Flushes, then ends the thread. As record_committer_flush. NULL: 0. */
int record_committer_stop(record_committer *committer);

#endif
