/* SPDX-License-Identifier: Apache-2.0 */
/* apps/mlperf/writer.h - writes MLPerf-style log lines, to the byte as the public logging package does:
 *
 *     :::MLLOG {"namespace": "", "time_ms": 1, "event_type": "POINT_IN_TIME", "key": "seed", "value": 7, "metadata":
 * {...}}
 *
 * Numbers print as Python prints them: 1.0, 8e-05, 1e+16, NaN. docs/mlperf.md.
 */
#ifndef TM_MLPERF_WRITER_H
#define TM_MLPERF_WRITER_H

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    TM_MLLOG_NONE, /* null */
    TM_MLLOG_BOOL,
    TM_MLLOG_I64,
    TM_MLLOG_F64,
    TM_MLLOG_TEXT, /* UTF-8 */
    TM_MLLOG_FIELDS,
} tm_mllog_kind;

typedef struct tm_mllog_field tm_mllog_field;

/* What a value or a member of metadata is. Text and fields are borrowed. */
typedef struct {
    tm_mllog_kind kind;
    union {
        bool        boolean;
        int64_t     i64;
        double      f64;
        const char *text;
        struct {
            const tm_mllog_field *fields;
            size_t                n_fields;
        };
    };
} tm_mllog_value;

struct tm_mllog_field {
    const char    *name;
    tm_mllog_value value;
};

static inline tm_mllog_value tm_mllog_null(void)
{
    return (tm_mllog_value){ .kind = TM_MLLOG_NONE };
}
static inline tm_mllog_value tm_mllog_bool(bool value)
{
    return (tm_mllog_value){ .kind = TM_MLLOG_BOOL, .boolean = value };
}
static inline tm_mllog_value tm_mllog_i64(int64_t value)
{
    return (tm_mllog_value){ .kind = TM_MLLOG_I64, .i64 = value };
}
static inline tm_mllog_value tm_mllog_f64(double value)
{
    return (tm_mllog_value){ .kind = TM_MLLOG_F64, .f64 = value };
}
static inline tm_mllog_value tm_mllog_text(const char *value)
{
    return (tm_mllog_value){ .kind = TM_MLLOG_TEXT, .text = value };
}
static inline tm_mllog_value tm_mllog_fields(const tm_mllog_field *fields, size_t n)
{
    return (tm_mllog_value){ .kind = TM_MLLOG_FIELDS, .fields = fields, .n_fields = n };
}

/* One event. */
typedef struct {
    int64_t               time_ms; /* since 1970 */
    const char           *key;     /* what ends in _start or _stop begins or ends an interval */
    tm_mllog_value        value;
    const char           *file; /* where it was logged */
    int                   lineno;
    const tm_mllog_field *metadata; /* behind file and lineno; one of these names replaces it, in its place */
    size_t                n_metadata;
} tm_mllog_event;

/* Appends the line, with its line feed. */
void tm_mllog_print(const tm_mllog_event *event, tm_text *out);
/* Appends a double as Python's repr does: the shortest decimal that reads back the same; fixed notation from 1e-4 to
 * below 1e16, with a digit behind the point; NaN, Infinity. */
void tm_mllog_print_f64(double value, tm_text *out);

#endif
