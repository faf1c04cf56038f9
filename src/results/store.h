/* SPDX-License-Identifier: Apache-2.0 */
/* results/store.h - the store: one SQLite file that keeps every run and benchmark of a user, so that they can be
 * listed, compared and exported after their folders are gone (docs/results.md).
 *
 * Any number of processes may write at a time; a result is in the file, and on the disk, when tm_store_add returns, and
 * not at all before. One thread per open store.
 */
#ifndef TM_RESULTS_STORE_H
#define TM_RESULTS_STORE_H

#include "base/arena.h"
#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tm_store tm_store;

/* The columns of a result: what is listed and filtered. Strings may be NULL, numbers NAN, where there is none. */
typedef struct {
    int64_t     id;       /* given by the store, from 1, never used twice */
    const char *kind;     /* "run", "bench" or "certificate" */
    const char *name;     /* of the model or the workload */
    const char *finished; /* "2026-01-31T12:00:00Z" */
    const char *host, *device, *precision, *verdict;
    const char *hash;         /* of the configuration */
    const char *build;        /* commit of the program */
    const char *folder;       /* run directory, absolute */
    const char *command;      /* arguments, secrets masked */
    const char *label;        /* --label, or what a sweep or a job file calls it */
    double      rate, lo, hi; /* tokens per second and device: median and its 95 % interval; runs only */
    double      loss;         /* of the last step */
    double      steps, seconds;
} tm_stored;

typedef enum { TM_DOCUMENT_RESULT, TM_DOCUMENT_METRICS, TM_DOCUMENT_CONFIGURATION, TM_DOCUMENT_COUNT } tm_document;
const char *tm_document_file(tm_document document); /* "result.json", ... */

/* The file that is meant: `given` (an option or key), else TRAINMARK_STORE, else trainmark/results.db in XDG_DATA_HOME
 * or ~/.local/share. NULL: none is to be used ("none"), or there is no home. *chosen: somebody named it. */
const char *tm_store_path(tm_arena *arena, const char *given, bool *chosen);

/* Opens the store, brought to this program's format. With `make` it is made if it is not there; without, a file that is
 * not there is TM_INVALID. TM_FORMAT: damaged, another program's, or written by a newer trainmark, with the way out;
 * TM_IO: cannot be opened or written. Never through a link. */
TM_MUST_USE tm_status tm_store_open(const char *path, bool make, tm_store **out, tm_error *err);
void                  tm_store_close(tm_store *store); /* NULL is fine */

/* Adds a result; row->id is not looked at, the new one is *id. documents: NULL, or text of any length, by
 * tm_document. */
TM_MUST_USE tm_status tm_store_add(tm_store *store, const tm_stored *row,
                                   const tm_text *const documents[TM_DOCUMENT_COUNT], int64_t *id, tm_error *err);

/* What is listed. NULL and 0: any. Texts are compared without letter case, `name` and `label` as patterns with * and ?.
 */
typedef struct {
    const char *kind, *name, *host, *device, *precision, *verdict, *hash, *label;
    const char *since, *until; /* "2026-01-31" or a whole time */
    int64_t     limit;         /* the newest so many; 0: all */
    int64_t     before;        /* ids below this only; 0: all */
} tm_store_filter;

/* *rows: newest first, taken from the arena. */
TM_MUST_USE tm_status tm_store_list(tm_store *store, const tm_store_filter *filter, tm_arena *arena, tm_stored **rows,
                                    size_t *n, tm_error *err);
/* "17", "#17", "last", "last~2" (two before the last one): *row. TM_INVALID: there is none. */
TM_MUST_USE tm_status tm_store_find(tm_store *store, const char *reference, tm_arena *arena, tm_stored *row,
                                    tm_error *err);
/* Appends a document; *there: was it kept? */
TM_MUST_USE tm_status tm_store_document(tm_store *store, int64_t id, tm_document document, tm_text *out, bool *there,
                                        tm_error *err);
/* All or none. TM_INVALID naming an id that is not there. */
TM_MUST_USE tm_status tm_store_delete(tm_store *store, const int64_t *ids, size_t n, tm_error *err);

#endif
