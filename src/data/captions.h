/* SPDX-License-Identifier: Apache-2.0 */
/* data/captions.h - metadata.csv and metadata.jsonl: which caption belongs to which picture; private to this room. */
#ifndef TM_DATA_CAPTIONS_H
#define TM_DATA_CAPTIONS_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    const char *file;    /* as it is written, not empty */
    const char *caption; /* "": the row has none */
    int64_t     line;    /* where the row begins, from 1 */
} tm_caption;

typedef struct {
    tm_caption *rows;
    size_t      count, capacity;
} tm_captions;

/* Appends the rows of metadata.csv (RFC 4180 with a line of names) or, where `csv` is false, of metadata.jsonl (an
 * object in each line); `name` is for messages. `file` is the column of file names, NULL: file_name. `caption` is that
 * of the captions, NULL: text or caption, whichever is there. Texts live in `arena`. TM_INVALID: no such column, or
 * both text and caption; TM_FORMAT with the line: out of form, not UTF-8, no file name, no text. Free out->rows in any
 * case. */
TM_MUST_USE tm_status tm_captions_parse(const char *name, const char *bytes, size_t size, bool csv, const char *file,
                                        const char *caption, tm_arena *arena, tm_captions *out, tm_error *err);

/* Which of the n columns has the captions: `wanted`, or text or caption where that is NULL. `name` is of the file.
 * TM_INVALID names those that are there. */
TM_MUST_USE tm_status tm_caption_column(const char *name, const char *const *columns, size_t n, const char *wanted,
                                        size_t *out, tm_error *err);
/* The column of this name, with the same message. `what` says what it would hold ("file names"). */
TM_MUST_USE tm_status tm_named_column(const char *name, const char *const *columns, size_t n, const char *wanted,
                                      const char *what, size_t *out, tm_error *err);

#endif
