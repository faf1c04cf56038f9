/* SPDX-License-Identifier: Apache-2.0 */
/* base/file_list.h - every regular file below a folder, in the order of the names' bytes. */
#ifndef TM_BASE_FILE_LIST_H
#define TM_BASE_FILE_LIST_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    char **paths;
    size_t count, room;
} tm_file_list;

enum { TM_FILE_LIST_MAX = 1 << 20, TM_FILE_LIST_DEPTH = 32 };

/* Follows links; hidden files count. TM_INVALID: unreadable, too deep, too many, or neither file nor folder. */
TM_MUST_USE tm_status tm_file_list_read(const char *folder, tm_file_list *out, tm_error *err);
void                  tm_file_list_free(tm_file_list *list);
/* The name behind the last '/'. */
const char *tm_file_name(const char *path);
bool        tm_is_folder(const char *path);

#endif
