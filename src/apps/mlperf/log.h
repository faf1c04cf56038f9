/* SPDX-License-Identifier: Apache-2.0 */
/* apps/mlperf/log.h - reading MLPerf-style logs: files of lines, some of which hold `:::MLLOG {...}` (docs/mlperf.md).
 *
 * The rules of reading are those of the public checker: bytes are Latin-1; \n, \r and \r\n end a line; what counts is
 * behind the LAST token of a line, white space at both ends cut, and must be one JSON object with `time_ms`, `key`,
 * `value` and `metadata`.
 */
#ifndef TM_MLPERF_LOG_H
#define TM_MLPERF_LOG_H

#include "base/status.h"
#include "apps/mlperf/value.h"

#include <stddef.h>
#include <stdint.h>

#define TM_MLLOG_TOKEN ":::MLLOG "

enum { TM_MLLOG_MAX_LINE = 1 << 20, TM_MLLOG_MAX_BYTES = 1 << 28, TM_MLLOG_MAX_FILES = 10000 };

typedef enum {
    TM_MLLOG_GOOD,
    TM_MLLOG_BROKEN,     /* no JSON, or a time that is no number: "Log lines had parsing errors." */
    TM_MLLOG_INCOMPLETE, /* a member is missing or of a kind that makes the public checker stop with an exception */
} tm_mllog_state;

typedef struct {
    int64_t              line;  /* of the file, from 1 */
    int64_t              index; /* among the lines with a token, from 0: the line number of the public checker */
    tm_mllog_state       state;
    const char          *problem;  /* what is wrong, in words; NULL when good */
    double               time_ms;  /* 0 when not good */
    const char          *key;      /* "" when not good */
    const tm_json_value *value;    /* this and the next: NULL when not good */
    const tm_json_value *metadata; /* mostly, but not always, an object */
    const tm_json_value *object;   /* the whole line; NULL when it is not JSON */
    const char          *text;     /* behind the token, stripped; not NUL-terminated */
    size_t               text_bytes;
} tm_mllog_record;

typedef struct tm_mllog tm_mllog;

/* Reads a file; one whose name ends in ".gz" is unpacked. TM_INVALID: no such file, not a regular file, more than 256
 * MiB, a line with a token of more than 1 MiB; TM_FORMAT: not gzip, cut short. Lines that are no good are no failure.
 */
TM_MUST_USE tm_status tm_mllog_read(const char *path, tm_mllog **out, tm_error *err);
/* The same from memory, which is copied; `name` is for messages. */
TM_MUST_USE tm_status tm_mllog_parse(const char *name, const char *bytes, size_t n, tm_mllog **out, tm_error *err);
void                  tm_mllog_free(tm_mllog *log); /* NULL is fine */

/* Every line with a token, in the order of the file, good or not; they live as long as the log. */
const tm_mllog_record *tm_mllog_records(const tm_mllog *log, size_t *n);
/* Do the bytes behind the token hold `word` anywhere? */
bool tm_mllog_mentions(const tm_mllog_record *record, const char *word);

/* --- folders ------------------------------------------------------------------------------------------------------ */

typedef struct {
    char   *path;   /* FOLDER/result_3.txt.gz */
    char   *name;   /* "result_3.txt": without .gz, as the public tools know it */
    int64_t number; /* 3; -1 where result_*.txt has something else than a number */
} tm_mllog_file;

typedef struct {
    tm_mllog_file *files; /* by number, then the others by name */
    size_t         n;
} tm_mllog_folder;

/* Lists result_*.txt and result_*.txt.gz; both for one name: TM_INVALID. None is no failure: n is 0. TM_INVALID for
 * what is no folder or cannot be read. */
TM_MUST_USE tm_status tm_mllog_folder_list(const char *path, tm_mllog_folder *out, tm_error *err);
void                  tm_mllog_folder_fini(tm_mllog_folder *folder); /* also after a failure */

#endif
