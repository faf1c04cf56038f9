/* SPDX-License-Identifier: Apache-2.0 */
#include "results/result.h"

#include "base/file.h"
#include "results/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { RESULT_LIMIT = 256 << 20 };
static const size_t metrics_limit = (size_t)8 << 30; /* ten million steps */

struct tm_result {
    tm_arena             *arena;
    const char           *name, *path;
    tm_result_kind        kind;
    json_t               *tree;
    tm_text               documents[TM_DOCUMENT_COUNT];
    bool                  has[TM_DOCUMENT_COUNT];
    tm_result_step       *steps;
    tm_result_evaluation *evaluations;
    tm_result_picture    *pictures;
    size_t                n_steps, n_evaluations, n_pictures, steps_room, evaluations_room, pictures_room;
};

/* --- members ------------------------------------------------------------------------------------------------------ */

json_t *results_tree(const tm_result *result)
{
    return result->tree;
}

tm_arena *results_arena(const tm_result *result)
{
    return result->arena;
}

json_t *results_member(json_t *tree, const char *path)
{
    char part[128];
    while (tree && *path) {
        size_t n = strcspn(path, "/");
        if (n >= sizeof part) return NULL;
        memcpy(part, path, n);
        part[n] = '\0';
        tree = json_object_get(tree, part);
        path += n + (path[n] == '/');
    }
    return tree;
}

static double value_of(const json_t *member)
{
    return json_is_number(member) ? json_number_value(member) : (double)NAN;
}

double tm_result_number(const tm_result *result, const char *path)
{
    return value_of(results_member(result->tree, path));
}

const char *tm_result_string(const tm_result *result, const char *path)
{
    return json_string_value(results_member(result->tree, path));
}

bool tm_result_true(const tm_result *result, const char *path)
{
    return json_is_true(results_member(result->tree, path));
}

const char *tm_result_shown(const tm_result *result, const char *path)
{
    const json_t *member = results_member(result->tree, path);
    char          text[32];
    if (json_is_string(member)) return json_string_value(member);
    if (json_is_integer(member)) return tm_arena_format(result->arena, "%lld", (long long)json_integer_value(member));
    if (json_is_real(member)) return tm_arena_text(result->arena, tm_format_double(text, json_real_value(member)));
    if (json_is_boolean(member)) return json_is_true(member) ? "true" : "false";
    return "";
}

const double *tm_result_numbers(const tm_result *result, const char *path, size_t *n)
{
    json_t *array = results_member(result->tree, path);
    *n = json_array_size(array);
    double *values = tm_arena_take(result->arena, (*n + 1) * sizeof *values);
    for (size_t i = 0; i < *n; i++) values[i] = value_of(json_array_get(array, i));
    return values;
}

double tm_result_flops(const tm_result *result, const char *convention)
{
    size_t  i;
    json_t *one;
    json_array_foreach(results_member(result->tree, "flops"), i, one)
    {
        const char *name = json_string_value(json_object_get(one, "convention"));
        if (name && strcmp(name, convention) == 0) return value_of(json_object_get(one, "per_token"));
    }
    return (double)NAN;
}

const tm_result_member *tm_result_members(const tm_result *result, const char *path, size_t *n)
{
    json_t           *object = results_member(result->tree, path), *value;
    tm_result_member *members = tm_arena_take(result->arena, (json_object_size(object) + 1) * sizeof *members);
    const char       *key;
    *n = 0;
    json_object_foreach(object, key, value)
    {
        if (json_is_number(value)) members[(*n)++] = (tm_result_member){ key, value_of(value) };
    }
    return members;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static tm_status parse_tree(tm_result *r, tm_error *err)
{
    json_error_t cause;
    tm_text     *text = &r->documents[TM_DOCUMENT_RESULT];
    const char  *format;
    r->tree = json_loadb(text->data, text->length, JSON_REJECT_DUPLICATES, &cause);
    if (!r->tree) return tm_fail(err, TM_FORMAT, "'%s' is not JSON: line %d: %s", r->name, cause.line, cause.text);
    format = json_string_value(json_object_get(r->tree, "format"));
    if (format && strcmp(format, "trainmark.result/1") == 0) {
        r->kind = TM_RESULT_RUN;
        return TM_OK;
    }
    if (format && strcmp(format, "trainmark.certificate/1") == 0) {
        r->kind = TM_RESULT_CERTIFICATE;
        return TM_OK;
    }
    r->kind = TM_RESULT_BENCH;
    if (format && strcmp(format, "trainmark.bench/1") == 0) return TM_OK;
    if (!format && json_is_array(json_object_get(r->tree, "rows")) && json_object_get(r->tree, "name")) {
        json_t *whole = json_pack("{s:o}", "table", r->tree);
        r->tree = whole;
        return TM_OK;
    }
    return tm_fail(
        err, TM_FORMAT,
        "'%s' is not a result: member \"format\" is '%.60s'; wanted trainmark.result/1 (result.json of a run), "
        "trainmark.bench/1, trainmark.certificate/1, or a table of `trainmark bench --output-file F.json`",
        r->name, format ? format : "");
}

static double member_number(const json_t *record, const char *name)
{
    return value_of(json_object_get(record, name));
}

static void take_picture(tm_result *r, const json_t *record, json_int_t step)
{
    const char *file = json_string_value(json_object_get(record, "file"));
    const char *caption = json_string_value(json_object_get(record, "caption"));
    if (!file) return;
    r->pictures = tm_grow(r->pictures, &r->pictures_room, r->n_pictures, sizeof *r->pictures);
    r->pictures[r->n_pictures++] = (tm_result_picture){ .step = step,
                                                        .file = tm_arena_text(r->arena, file),
                                                        .caption = caption ? tm_arena_text(r->arena, caption) : NULL };
}

static void take_record(tm_result *r, const json_t *record)
{
    const char *event = json_string_value(json_object_get(record, "event"));
    json_int_t  step = json_integer_value(json_object_get(record, "step"));
    if (event && strcmp(event, "evaluation") == 0) {
        r->evaluations = tm_grow(r->evaluations, &r->evaluations_room, r->n_evaluations, sizeof *r->evaluations);
        r->evaluations[r->n_evaluations++] =
            (tm_result_evaluation){ .step = step,
                                    .loss = member_number(record, "loss"),
                                    .tokens = member_number(record, "tokens"),
                                    .seconds = member_number(record, "seconds"),
                                    .bits_per_byte = member_number(record, "bits_per_byte") };
    }
    if (event && strcmp(event, "picture") == 0) take_picture(r, record, step);
    if (event) return;
    r->steps = tm_grow(r->steps, &r->steps_room, r->n_steps, sizeof *r->steps);
    r->steps[r->n_steps++] = (tm_result_step){ .step = step,
                                               .loss = member_number(record, "loss"),
                                               .grad_norm = member_number(record, "grad_norm"),
                                               .learning_rate = member_number(record, "learning_rate"),
                                               .tokens = member_number(record, "tokens"),
                                               .seconds = member_number(record, "seconds"),
                                               .used_bytes = member_number(record, "used_bytes"),
                                               .resident_bytes = member_number(record, "resident_bytes") };
}

/* Lines that are whole; the last one of a process that was killed may not be. */
static tm_status parse_metrics(tm_result *r, tm_error *err)
{
    const tm_text *text = &r->documents[TM_DOCUMENT_METRICS];
    size_t         line = 1;
    for (const char *at = text->data, *end; at && (end = strchr(at, '\n')); at = end + 1, line++) {
        json_error_t cause;
        json_t      *record = json_loadb(at, (size_t)(end - at), 0, &cause);
        if (!json_is_object(record)) {
            json_decref(record);
            return tm_fail(err, TM_FORMAT, "'%s': line %zu of metrics.jsonl is not a JSON object: %s", r->name, line,
                           cause.text);
        }
        take_record(r, record);
        json_decref(record);
    }
    return TM_OK;
}

static tm_result *create(const char *name)
{
    tm_result *r = tm_alloc(sizeof *r);
    *r = (tm_result){ .arena = tm_arena_create() };
    r->name = tm_arena_text(r->arena, name);
    return r;
}

static tm_status parse(tm_result *r, tm_error *err)
{
    TM_TRY(parse_tree(r, err));
    return r->has[TM_DOCUMENT_METRICS] ? parse_metrics(r, err) : TM_OK;
}

static void take_document(tm_result *r, tm_document document, const tm_text *text)
{
    if (!text) return;
    tm_text_add_n(&r->documents[document], text->data ? text->data : "", text->length);
    tm_text_add(&r->documents[document], "");
    r->has[document] = true;
}

static tm_status hand_out(tm_result *r, tm_status st, tm_result **out)
{
    if (st == TM_OK)
        *out = r;
    else
        tm_result_destroy(r);
    return st;
}

tm_status tm_result_parse(const char *name, const tm_text *result, const tm_text *metrics, const tm_text *configuration,
                          tm_result **out, tm_error *err)
{
    tm_result *r = create(name);
    take_document(r, TM_DOCUMENT_RESULT, result);
    take_document(r, TM_DOCUMENT_METRICS, metrics);
    take_document(r, TM_DOCUMENT_CONFIGURATION, configuration);
    return hand_out(r, parse(r, err), out);
}

/* Files beside a result.json, where they are. */
static tm_status read_beside(tm_result *r, tm_error *err)
{
    const char *slash = strrchr(r->path, '/');
    int         folder = slash ? (int)(slash - r->path) + 1 : 0;
    for (int i = TM_DOCUMENT_METRICS; i < TM_DOCUMENT_COUNT; i++) {
        const char *path = tm_arena_format(r->arena, "%.*s%s", folder, r->path, tm_document_file((tm_document)i));
        if (!tm_file_exists(path)) continue;
        TM_TRY(tm_file_read(path, metrics_limit, &r->documents[i], err));
        r->has[i] = true;
    }
    return TM_OK;
}

static tm_status read_files(tm_result *r, bool folder, tm_error *err)
{
    r->path = folder ? tm_arena_format(r->arena, "%s/result.json", r->name) : r->name;
    if (folder && !tm_file_exists(r->path))
        return tm_fail(err, TM_INVALID,
                       "'%s' holds no result.json: no run has finished there; `trainmark watch` shows one that "
                       "is running",
                       r->name);
    TM_TRY(tm_file_read(r->path, RESULT_LIMIT, &r->documents[TM_DOCUMENT_RESULT], err));
    r->has[TM_DOCUMENT_RESULT] = true;
    const char *slash = strrchr(r->path, '/');
    bool        run = strcmp(slash ? slash + 1 : r->path, "result.json") == 0;
    return run ? read_beside(r, err) : TM_OK;
}

static tm_status read_stored(tm_result *r, const char *path, tm_error *err)
{
    tm_store *store;
    tm_stored row;
    TM_TRY(tm_store_open(path, false, &store, err));
    tm_status st = tm_store_find(store, r->name, r->arena, &row, err);
    for (int i = 0; st == TM_OK && i < TM_DOCUMENT_COUNT; i++)
        st = tm_store_document(store, row.id, (tm_document)i, &r->documents[i], &r->has[i], err);
    if (st == TM_OK && !r->has[TM_DOCUMENT_RESULT])
        st = tm_fail(err, TM_FORMAT, "'%s': result %lld has no document", path, (long long)row.id);
    tm_store_close(store);
    return st;
}

tm_status tm_result_load(const char *reference, const char *store, tm_result **out, tm_error *err)
{
    tm_result  *r = create(reference);
    struct stat info;
    bool        there = stat(reference, &info) == 0,
         stored = reference[0] == '#' || strspn(reference, "0123456789") > 0 || strncmp(reference, "last", 4) == 0;
    tm_status st;
    if (there)
        st = read_files(r, S_ISDIR(info.st_mode), err);
    else if (stored && store)
        st = read_stored(r, store, err);
    else
        st = tm_fail(err, TM_INVALID,
                     "there is no file or directory '%.300s'; name a run directory, a result.json, or a stored result "
                     "(`trainmark results` lists them)",
                     reference);
    if (st == TM_OK) st = parse(r, err);
    return hand_out(r, st, out);
}

void tm_result_destroy(tm_result *r)
{
    if (!r) return;
    json_decref(r->tree);
    for (int i = 0; i < TM_DOCUMENT_COUNT; i++) tm_text_fini(&r->documents[i]);
    free(r->steps);
    free(r->evaluations);
    free(r->pictures);
    tm_arena_destroy(r->arena);
    free(r);
}

/* --- what it is --------------------------------------------------------------------------------------------------- */

tm_result_kind tm_result_kind_of(const tm_result *r)
{
    return r->kind;
}

const char *tm_result_what(const tm_result *r)
{
    static const char *const names[] = { "a run", "a benchmark", "a certificate" };
    return names[r->kind];
}

const char *tm_result_name(const tm_result *r)
{
    return r->name;
}

const char *tm_result_path(const tm_result *r)
{
    return r->path;
}

const tm_result_step *tm_result_steps(const tm_result *r, size_t *n)
{
    *n = r->n_steps;
    return r->steps;
}

const tm_result_evaluation *tm_result_evaluations(const tm_result *r, size_t *n)
{
    *n = r->n_evaluations;
    return r->evaluations;
}

const tm_result_picture *tm_result_pictures(const tm_result *r, size_t *n)
{
    *n = r->n_pictures;
    return r->pictures;
}

const tm_text *tm_result_document(const tm_result *r, tm_document document)
{
    return r->has[document] ? &r->documents[document] : NULL;
}

static const char *first_of(const char *a, const char *b)
{
    return a ? a : b;
}

void tm_result_describe(const tm_result *r, tm_stored *row)
{
    static const char *const kinds[] = { "run", "bench", "certificate" };
    bool                     run = r->kind == TM_RESULT_RUN;
    *row = (tm_stored){ .kind = kinds[r->kind],
                        .name = run ? tm_result_string(r, "model")
                                    : first_of(tm_result_string(r, "workload"), tm_result_string(r, "table/name")),
                        .finished = tm_result_string(r, "finished"),
                        .host = tm_result_string(r, "environment/os/host"),
                        .device = tm_result_string(r, "device"),
                        .precision = tm_result_string(r, "precision"),
                        .verdict = tm_result_string(r, "verdict"),
                        .hash = tm_result_string(r, "configuration_hash"),
                        .build = tm_result_string(r, "environment/build/commit"),
                        .command = tm_result_string(r, "environment/process/command_line"),
                        .rate = tm_result_number(r, "tokens_per_second_per_device/median"),
                        .lo = tm_result_number(r, "tokens_per_second_per_device/lo"),
                        .hi = tm_result_number(r, "tokens_per_second_per_device/hi"),
                        .loss = tm_result_number(r, "loss/last"),
                        .steps = tm_result_number(r, "steps/done"),
                        .seconds = tm_result_number(r, "seconds") };
    if (r->kind == TM_RESULT_CERTIFICATE) row->name = tm_result_string(r, "name");
    if (!row->name) row->name = "unnamed";
    if (!row->finished) row->finished = "";
}
