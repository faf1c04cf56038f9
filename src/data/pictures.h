/* SPDX-License-Identifier: Apache-2.0 */
/* data/pictures.h - pictures with captions: a folder, or parquet files or tar archives with the pictures inside
 * (docs/pictures.md). */
#ifndef TM_DATA_PICTURES_H
#define TM_DATA_PICTURES_H

#include "base/status.h"
#include "base/text.h"
#include "data/source.h"
#include "image/resize.h"

#include <stddef.h>
#include <stdint.h>

typedef struct {
    tm_split    split;     /* which part of the pictures the list has */
    const char *file;      /* the column of file names, or of pictures (parquet); NULL: file_name, or image. Of tar the
                            * ending of pictures; NULL: png, jpg, jpeg, webp */
    const char *caption;   /* the column of captions; NULL: text or caption. Of tar a member of .json; NULL: .txt, or
                            * text or caption of .json */
    const char *otherwise; /* the caption of pictures that have none; NULL: that is an error */
    int64_t     held_out;  /* so many pictures, spread evenly over the list, are the part for validation; 0: the path
                            * says which are, or none */
} tm_picture_options;

typedef struct tm_pictures tm_pictures;

typedef struct {
    const char *name;    /* below the path: "cats/1.png"; of parquet "data/train-0.parquet, row 7", from 1; of tar
                          * "train-0.tar, 000.jpg" */
    const char *caption; /* UTF-8 without white space at its ends, not empty */
} tm_picture;

/* Makes the list, in the order of the names' bytes; no picture is read. `path` is a folder, a parquet file or a tar
 * archive. A folder holds, at any depth, pictures (.png, .jpg, .jpeg, .webp) with metadata.csv or metadata.jsonl, or
 * with name.txt beside name.png; or parquet files; or tar archives of WebDataset. What has train/ in it, or
 * train*.parquet or train*.tar, is in parts: validation is the other one. TM_INVALID, TM_FORMAT, TM_UNSUPPORTED: what
 * is missing, double or out of form, with file, line and the way out. Options are copied. */
TM_MUST_USE tm_status tm_pictures_open(const char *path, const tm_picture_options *options, tm_pictures **out,
                                       tm_error *err);
void                  tm_pictures_close(tm_pictures *pictures); /* NULL is fine */

int64_t tm_pictures_count(const tm_pictures *pictures); /* at least 1 of TM_SPLIT_TRAIN; 0: no part for validation */
/* Both texts live as long as the list. */
tm_picture tm_pictures_at(const tm_pictures *pictures, int64_t i);
/* Files that are neither pictures nor captions, hidden ones, and those of the part "test". */
int64_t tm_pictures_ignored(const tm_pictures *pictures);
/* Of names, sizes and captions in their order, of parquet files also what is in them (tm_fingerprint). The same on
 * every machine; it tells apart what was encoded before. */
uint64_t tm_pictures_hash(const tm_pictures *pictures);

/* The bytes of picture i, in place of what *out had: as they are stored, not decoded (image/image.h). The list can be
 * used on after a failure, so that broken pictures can be counted. TM_INVALID: it cannot be read, or was changed since;
 * TM_FORMAT: damaged parquet, or a row without a picture; TM_UNSUPPORTED: a row with a path only. Of parquet one group
 * of rows is unpacked again for each step backwards. One thread a list. */
TM_MUST_USE tm_status tm_pictures_read(tm_pictures *pictures, int64_t i, tm_text *out, tm_error *err);
/* The same, decoded and made as large as `fit` says (image/resize.h): out (height, width, 3), red, green, blue in [-1,
 * 1]. `scratch`: for its bytes, used again. Also what decoding can fail with. */
TM_MUST_USE tm_status tm_pictures_values(tm_pictures *pictures, int64_t i, const tm_image_fit *fit, tm_text *scratch,
                                         float *out, tm_error *err);

#endif
