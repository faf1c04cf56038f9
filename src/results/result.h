/* SPDX-License-Identifier: Apache-2.0 */
/* results/result.h - a result that was written earlier, read again: a run (result.json with metrics.jsonl beside it) or
 * a benchmark (the table of `trainmark bench`) or a certificate of nodes (`trainmark certify`), from a folder, a file
 * or the store.
 */
#ifndef TM_RESULTS_RESULT_H
#define TM_RESULTS_RESULT_H

#include "base/status.h"
#include "results/store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tm_result tm_result;

typedef enum { TM_RESULT_RUN, TM_RESULT_BENCH, TM_RESULT_CERTIFICATE } tm_result_kind;

/* What metrics.jsonl says of a step; NAN where it does not. */
typedef struct {
    int64_t step;
    double  loss, grad_norm, learning_rate, tokens, seconds, used_bytes, resident_bytes;
} tm_result_step;

typedef struct {
    int64_t step;
    double  loss, tokens, seconds, bits_per_byte;
} tm_result_evaluation;

/* What the model drew after a step. */
typedef struct {
    int64_t     step;
    const char *file;    /* in the run's directory */
    const char *caption; /* NULL: not known */
} tm_result_picture;

/* reference: a run directory, a result.json, a table of `bench --output-file F.json`, a file of `certify --out`, or a
 * stored result: its number,
 * "last", "last~1" (`store`: the file, NULL: none is to be used). TM_INVALID, TM_FORMAT naming file and member. The
 * caller destroys it. */
TM_MUST_USE tm_status tm_result_load(const char *reference, const char *store, tm_result **out, tm_error *err);
/* The same from the text of a result and, where there are, of metrics and configuration (NULL: none); `name` is for
 * messages. */
TM_MUST_USE tm_status tm_result_parse(const char *name, const tm_text *result, const tm_text *metrics,
                                      const tm_text *configuration, tm_result **out, tm_error *err);
void                  tm_result_destroy(tm_result *result); /* NULL is fine */

tm_result_kind tm_result_kind_of(const tm_result *result);
const char    *tm_result_what(const tm_result *result); /* "a run", "a benchmark", "a certificate" */
const char    *tm_result_name(const tm_result *result); /* as it was asked for */
const char    *tm_result_path(const tm_result *result); /* of the file that it was read from; NULL: from the store */

/* A member by its path, "environment/cpu/model": NAN or NULL if it is not there or of another type. */
double      tm_result_number(const tm_result *result, const char *path);
const char *tm_result_string(const tm_result *result, const char *path);
bool        tm_result_true(const tm_result *result, const char *path);
/* A member as text, whatever it is: numbers in their shortest form, null as "". Valid with the result. */
const char *tm_result_shown(const tm_result *result, const char *path);

/* The numbers of an array; *n = 0: there is none. Valid with the result. */
const double *tm_result_numbers(const tm_result *result, const char *path, size_t *n);
/* FLOPs of a token by a convention (docs/flops.md) as the run counted them; NAN: not by this one. */
double tm_result_flops(const tm_result *result, const char *convention);
/* The members of an object that are numbers, in the order of the file: name and value of each. */
typedef struct {
    const char *name;
    double      value;
} tm_result_member;
const tm_result_member *tm_result_members(const tm_result *result, const char *path, size_t *n);

const tm_result_step       *tm_result_steps(const tm_result *result, size_t *n);
const tm_result_evaluation *tm_result_evaluations(const tm_result *result, size_t *n);
const tm_result_picture    *tm_result_pictures(const tm_result *result, size_t *n);
/* Text of a document, or NULL. */
const tm_text *tm_result_document(const tm_result *result, tm_document document);

/* The columns by which it is stored; strings live with the result. */
void tm_result_describe(const tm_result *result, tm_stored *row);

#endif
