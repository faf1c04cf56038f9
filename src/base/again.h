/* SPDX-License-Identifier: Apache-2.0 */
/* base/again.h - calls of the system on files that a signal may cut short: made again until they are done. All of the
 * program flushes, closes and renames by these (tests/base/test_one_writer.sh). Results and errno as of the calls.
 */
#ifndef TM_BASE_AGAIN_H
#define TM_BASE_AGAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

int tm_again_open(int folder, const char *name, int flags, mode_t mode); /* openat */
int tm_again_sync(int fd);                                               /* fsync */
int tm_again_sync_data(int fd);                                          /* fdatasync */
int tm_again_rename(int folder, const char *from, const char *to);       /* renameat, within a folder or AT_FDCWD */
/* close. Linux lets the descriptor go, whatever a signal does: it is never closed twice, and that is no failure. */
int tm_again_close(int fd);
/* All of `data`, in as many writes as it takes. false and errno (ENOSPC for a write of nothing): a part may be there.
 */
bool tm_again_write(int fd, const void *data, size_t bytes);

#endif
