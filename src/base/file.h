/* SPDX-License-Identifier: Apache-2.0 */
/* base/file.h - whole files. Writing is atomic: temporary file, fsync, rename, fsync of the folder; a reader sees the
 * old file or the new one, never a part. */
#ifndef TM_BASE_FILE_H
#define TM_BASE_FILE_H

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>

/* Replaces `path`. TM_IO with the cause (disk full, file-size limit, permission); nothing is left behind then. */
TM_MUST_USE tm_status tm_file_write(const char *path, const void *data, size_t bytes, tm_error *err);
/* Appends a NUL-free text file to *out, at most `limit` bytes; not a regular file, unreadable or longer: TM_INVALID. */
TM_MUST_USE tm_status tm_file_read(const char *path, size_t limit, tm_text *out, tm_error *err);
/* Like tm_file_read for /proc and /sys: the first `size` - 1 bytes, trailing white space cut; false if unreadable. */
bool tm_file_read_line(const char *path, char *out, size_t size);
/* mkdir -p. */
TM_MUST_USE tm_status tm_folder_make(const char *path, tm_error *err);
/* fsync of the folder that holds `path`, so that a rename survives a crash. */
TM_MUST_USE tm_status tm_folder_sync_of(const char *path, tm_error *err);
bool tm_file_exists(const char *path);
/* Better now than after hours: can a file be made, or added to, at `path`? TM_IO naming the option or key that gave it.
 */
TM_MUST_USE tm_status tm_file_check_writable(const char *path, const char *key, tm_error *err);

#endif
