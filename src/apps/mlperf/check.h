/* SPDX-License-Identifier: Apache-2.0 */
/* apps/mlperf/check.h - does a log comply with the rules? Verdicts and messages are those of the public checker in
 * substance; where that one stops with an exception, the verdict is FAILED and a message says why (docs/mlperf.md). */
#ifndef TM_MLPERF_CHECK_H
#define TM_MLPERF_CHECK_H

#include "base/json.h"
#include "apps/mlperf/log.h"

#include <stdbool.h>

typedef enum { TM_RULESET_5_1_0, TM_RULESET_6_0_0, TM_RULESET_6_1_0, TM_RULESET_COUNT } tm_ruleset;

const char *tm_ruleset_name(tm_ruleset ruleset); /* "5.1.0" */
/* TM_USAGE with the names there are. */
TM_MUST_USE tm_status tm_ruleset_find(const char *name, tm_ruleset *out, tm_error *err);

typedef struct {
    const char *set;   /* "closed_common"; NULL: of the log as a whole */
    const char *key;   /* NULL: of the log as a whole */
    int64_t     line;  /* of the file, from 1; 0: of no line */
    int64_t     index; /* the public checker's line number, from 0; -1: of no line */
    const char *text;  /* "CHECK for 'max_steps' failed: ..." */
    bool        fixed; /* a later rule set cannot replace it */
} tm_check_message;

typedef struct {
    tm_check_message *messages;
    size_t            n, room;
} tm_check_list;

enum { TM_CHECK_SETS = 3 };

typedef struct {
    bool          passed;
    bool          exception;           /* the public checker would stop with an exception */
    const char   *sets[TM_CHECK_SETS]; /* that were run, in their order */
    size_t        n_sets;
    const char   *benchmark; /* value of submission_benchmark that chose the rules; NULL: none did */
    tm_check_list messages;  /* none: passed */
    tm_check_list warnings;  /* with `werror` they are messages instead */
    tm_arena     *arena;     /* of the texts */
} tm_check_report;

/* The log must outlive the report. */
void tm_check_log(const tm_mllog *log, tm_ruleset ruleset, bool werror, tm_check_report *out);
void tm_check_report_fini(tm_check_report *report);

/* Appends "NAME: SUCCESS" or "NAME: FAILED", and a line per message and warning. */
void tm_check_print(const tm_check_report *report, const char *name, tm_text *out);
/* The same as a member of an open JSON array. */
void tm_check_json(const tm_check_report *report, const char *name, tm_json *json);

#endif
