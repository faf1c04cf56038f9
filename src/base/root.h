/* SPDX-License-Identifier: Apache-2.0 */
/* base/root.h - files below another root: a folder that holds copies of /proc, /sys and /etc.
 *
 * `sysroot` is "" for the running system or that folder. Below a sysroot a path means what it would mean after a
 * chroot: an absolute symbolic link starts at the sysroot, ".." ends there. Nothing outside can be reached. `path` is
 * absolute. Files are opened without blocking, so a fifo cannot hang the caller.
 */
#ifndef TM_BASE_ROOT_H
#define TM_BASE_ROOT_H

#include "base/arena.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>

/* Like open(); `flags` without O_CREAT. -1 with errno. O_CLOEXEC and O_NONBLOCK are added. */
int tm_root_open(const char *sysroot, const char *path, int flags);
/* The same without openat2, which kernels before 5.6 and some sandboxes lack. For tests. */
int tm_root_open_by_hand(const char *sysroot, const char *path, int flags);

/* Appends the whole of a regular file to *out, which is NUL-terminated then; more than `limit` bytes: EFBIG. False with
 * errno. Zero bytes in the file stay. */
bool tm_root_read(const char *sysroot, const char *path, size_t limit, tm_text *out);
/* The first `size` - 1 bytes of a regular file, trailing white space cut; false with errno, and "" in out. */
bool tm_root_read_line(const char *sysroot, const char *path, char *out, size_t size);
/* Can `path` be opened for a look (no permission to read is needed)? */
bool tm_root_exists(const char *sysroot, const char *path);
/* What the symbolic link at `path` holds, "" if it is none or cannot be read. */
void tm_root_link(const char *sysroot, const char *path, char *out, size_t size);
/* The names in a folder but "." and "..", numbers in the order of their value ("cpu2" before "cpu10"), at most
 * `limit`; from the arena. NULL with *n = 0 if it cannot be read. */
const char **tm_root_list(const char *sysroot, const char *path, size_t limit, tm_arena *arena, size_t *n);
/* Replaces the content of a file that is there, in one write, as /proc and /sys want it. False with errno. */
bool tm_root_write(const char *sysroot, const char *path, const char *content);

#endif
