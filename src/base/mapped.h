/* SPDX-License-Identifier: Apache-2.0 */
/* base/mapped.h - files in memory that may change under us. Reading a page of a mapped file that was cut short, or that
 * the disk cannot give, is SIGBUS: then the program ends with exit code 4 and a message that names the file.
 *
 * The list is global, because a signal's handler has no other way to know. */
#ifndef TM_BASE_MAPPED_H
#define TM_BASE_MAPPED_H

#include <stddef.h>

/* `path` stays valid until the removal. Any thread. */
void tm_mapped_add(const void *at, size_t bytes, const char *path);
void tm_mapped_remove(const void *at); /* one that is not there: nothing */

#endif
