/* SPDX-License-Identifier: Apache-2.0 */
/* data/pictures_list.h - what a list of pictures is made of; private to this room. */
#ifndef TM_DATA_PICTURES_LIST_H
#define TM_DATA_PICTURES_LIST_H

#include "base/arena.h"
#include "base/file_list.h"
#include "base/map.h"
#include "data/pictures.h"

#include <stdbool.h>

typedef struct {
    const char *name, *caption;
    const char *path;  /* of its file; the same pointer for all rows of one */
    int64_t     bytes; /* of the picture; -1: it is a row */
    int64_t     at;    /* in a tar archive; 0: it is the file */
    int64_t     row;   /* of parquet, from 0 */
} tm_picture_item;

typedef struct tm_picture_rows tm_picture_rows;

struct tm_pictures {
    tm_arena          *arena;
    tm_picture_options options;
    tm_picture_item   *items;
    size_t             count, capacity;
    int64_t            ignored;
    uint64_t           content; /* of parquet files (tm_fingerprint) */
    tm_picture_rows   *rows;    /* the parquet file that was read last */
    tm_map             tar;     /* the archive */
};

/* Appends a picture; `item` has its name and path, which live as long as the list. White space around the caption is
 * taken away; of one that tm_pictures_lack it is that of the options. */
void tm_pictures_add(tm_pictures *p, tm_picture_item item, const char *caption);
/* Is there no caption, NULL or white space, and none of the options for those? */
bool tm_pictures_lack(const tm_pictures *p, const char *caption);
/* TM_INVALID of such a picture; `where` names it. */
TM_MUST_USE tm_status tm_pictures_refuse(const char *where, tm_error *err);

/* The pictures among n files below `root`, and their captions. */
TM_MUST_USE tm_status tm_pictures_add_files(tm_pictures *p, const char *root, char *const *files, size_t n,
                                            tm_error *err);
/* The rows of a parquet file; `name` is it in the names of the rows. */
TM_MUST_USE tm_status tm_pictures_add_parquet(tm_pictures *p, const char *path, const char *name, tm_error *err);
TM_MUST_USE tm_status tm_pictures_read_row(tm_pictures *p, const tm_picture_item *item, tm_text *out, tm_error *err);
void                  tm_picture_rows_close(tm_picture_rows *rows); /* NULL is fine */

/* The samples of a tar archive, likewise. */
TM_MUST_USE tm_status tm_pictures_add_tar(tm_pictures *p, const char *path, const char *name, tm_error *err);
TM_MUST_USE tm_status tm_pictures_read_member(tm_pictures *p, const tm_picture_item *item, tm_text *out, tm_error *err);

/* By the ending of a name, in small or capital letters. */
bool tm_is_picture_name(const char *path);
bool tm_is_parquet_name(const char *path);
bool tm_is_tar_name(const char *path);
/* Is the file metadata.csv or metadata.jsonl? */
bool tm_is_metadata_name(const char *path);

#endif
