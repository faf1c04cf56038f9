/* SPDX-License-Identifier: Apache-2.0 */
/* base/file.h - whole files, and the only place that opens any for writing (tests/base/test_one_writer.sh).
 *
 * Writing is atomic: a temporary file of a random name, made anew in the open folder (O_EXCL, O_NOFOLLOW), fsync,
 * rename, fsync of the folder. A reader sees the old file or the new one, never a part; and whatever somebody has put
 * into the folder, links above all, is replaced and not written through.
 */
#ifndef TM_BASE_FILE_H
#define TM_BASE_FILE_H

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Replaces `path`. TM_INVALID for a path that cannot be written, TM_IO with the cause (disk full, file-size limit,
 * permission); nothing is left behind then. */
TM_MUST_USE tm_status tm_file_write(const char *path, const void *data, size_t bytes, tm_error *err);

/* A file that is written in pieces and gets its name when it is complete. */
typedef struct {
    int   fd;             /* of the file, -1: there is none */
    int   folder;         /* that it will be in */
    char *path;           /* whole */
    char  temporary[288]; /* its name in the folder until then */
} tm_file_draft;

/* TM_IO; nothing to discard then. The caller writes to draft->fd. */
TM_MUST_USE tm_status tm_file_draft_open(const char *path, tm_file_draft *draft, tm_error *err);
/* All of `data` behind what was written. TM_IO. */
TM_MUST_USE tm_status tm_file_draft_add(tm_file_draft *draft, const void *data, size_t bytes, tm_error *err);
/* Flushes to the disk and gives the name. After TM_IO the draft is discarded, an earlier file is as it was. `appends`:
 * NULL, or takes the descriptor, for lines to be added behind (closed by the caller). */
TM_MUST_USE tm_status tm_file_draft_publish(tm_file_draft *draft, int *appends, tm_error *err);
void                  tm_file_draft_discard(tm_file_draft *draft); /* one that is published or zeroed: nothing */

/* *fd: `path`, which may be there, open for adding lines behind its end. TM_IO naming path and cause; a symbolic link
 * is refused: a folder prepared by somebody else must not lead to another file. */
TM_MUST_USE tm_status tm_file_open_append(const char *path, int *fd, tm_error *err);
/* A new file NAME.tmp.RANDOM in an open folder, for reading and writing, locked; its name into `out`. Others of this
 * NAME that nobody has locked are removed: their processes were killed. -1 and errno. */
int tm_file_open_random(int folder, const char *name, mode_t mode, char *out, size_t size);
/* Removes such files of any NAME in a folder, and nothing of living processes. */
void tm_file_remove_left(const char *folder);
/* A file that is not there yet in a folder that is no symbolic link, for writing; -1 and errno. */
int tm_file_open_new(const char *path);
/* A file to lock, made if need be, whatever is in it stays; never through a link. -1 and errno. */
int tm_file_open_lock(const char *path);
/* A new file of `folder` that has lost its name already: it is gone when it is closed. -1 and errno. */
int tm_file_open_nameless(const char *folder);

/* Appends a NUL-free text file to *out, at most `limit` bytes; not a regular file, unreadable or longer: TM_INVALID. */
TM_MUST_USE tm_status tm_file_read(const char *path, size_t limit, tm_text *out, tm_error *err);
/* TM_INVALID: the bytes are what Git LFS keeps in place of a file that was not fetched. All who read files ask. */
TM_MUST_USE tm_status tm_file_check_fetched(const char *path, const void *bytes, size_t n, tm_error *err);
/* Like tm_file_read for /proc and /sys: the first `size` - 1 bytes, trailing white space cut; false if unreadable. */
bool tm_file_read_line(const char *path, char *out, size_t size);
/* mkdir -p. */
TM_MUST_USE tm_status tm_folder_make(const char *path, tm_error *err);
bool                  tm_file_exists(const char *path);
/* Better now than after hours: can a file be made, or added to, at `path`? TM_IO naming the option or key that gave it.
 */
TM_MUST_USE tm_status tm_file_check_writable(const char *path, const char *key, tm_error *err);

#endif
