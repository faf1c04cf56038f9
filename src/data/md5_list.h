/* SPDX-License-Identifier: Apache-2.0 */
/* data/md5_list.h - a list of checksums as md5sum writes it: 32 hexadecimal digits, a space, a space or '*', a name; a
 * line that begins with '\' has \\ and \n escaped in its name. Private to this room. */
#ifndef TM_DATA_MD5_LIST_H
#define TM_DATA_MD5_LIST_H

#include "base/md5.h"

typedef struct {
    char  md5[TM_MD5_HEX]; /* lower case */
    char *name;
} tm_md5_line;

typedef struct {
    tm_md5_line *lines;
    size_t       count, room;
} tm_md5_list;

enum { TM_MD5_MAX_LINES = 1 << 20 };

/* TM_FORMAT names the line; an empty list is one, too. `name` is for messages. */
TM_MUST_USE tm_status tm_md5_list_parse(const char *name, const char *text, size_t n, tm_md5_list *out, tm_error *err);
void                  tm_md5_list_free(tm_md5_list *list); /* a zeroed one is fine */

#endif
