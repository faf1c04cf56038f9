/* SPDX-License-Identifier: Apache-2.0 */
/* A user's own reference records, in the format of the public ones: an object of records. */
#include "base/file.h"
#include "apps/mlperf/python.h"
#include "apps/mlperf/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1 << 24, MAX_BATCH = 1 << 30 };

/* The list of samples; the public files have it under two names. */
static const tm_json_value *samples_of(const tm_json_value *record)
{
    const tm_json_value *a = tm_json_member(record, "samples to converge");
    const tm_json_value *b = tm_json_member(record, "Epochs to converge");
    const tm_json_value *list = a ? a : b;
    return (a && b) || !list || list->kind != TM_JSON_LIST ? NULL : list;
}

static tm_status read_samples(const tm_json_value *list, const char *file, const char *name, tm_arena *arena,
                              tm_reference_record *r, tm_error *err)
{
    for (const tm_json_value *v = list->first; v; v = v->next) r->n++;
    if (r->n < TM_REFERENCE_MIN_VALUES || r->n > TM_REFERENCE_MAX_VALUES)
        return tm_fail(err, TM_FORMAT, "'%s': record '%.80s' has %zu samples to converge; give %d to %d", file, name,
                       r->n, TM_REFERENCE_MIN_VALUES, TM_REFERENCE_MAX_VALUES);
    r->samples = tm_arena_take(arena, r->n * sizeof *r->samples);
    r->whole = true;
    size_t i = 0;
    for (const tm_json_value *v = list->first; v; v = v->next, i++) {
        if (v->kind != TM_JSON_NUMBER || !(v->number > 0 && v->number <= 1e15))
            return tm_fail(
                err, TM_FORMAT,
                "'%s': record '%.80s': value %zu of the samples to converge is not a number above 0 and up to 1e15",
                file, name, i + 1);
        r->samples[i] = v->number;
        r->whole = r->whole && v->integer;
    }
    return TM_OK;
}

static tm_status read_record(const tm_json_value *v, const char *file, tm_arena *arena, tm_reference *out,
                             tm_error *err)
{
    const char          *name = v->name;
    const tm_json_value *benchmark = tm_json_member(v, "Benchmark"), *batch = tm_json_member(v, "BS");
    const tm_json_value *hyper = tm_json_member(v, "Hyperparams"), *samples = samples_of(v);
    tm_reference_record *r = &out->records[out->n];
    if (!benchmark || benchmark->kind != TM_JSON_TEXT)
        return tm_fail(err, TM_FORMAT, "'%s': record '%.80s' has no text 'Benchmark'", file, name);
    if (!batch || batch->kind != TM_JSON_NUMBER || !(batch->number >= 1 && batch->number <= MAX_BATCH) ||
        floor(batch->number) < batch->number)
        return tm_fail(err, TM_FORMAT, "'%s': record '%.80s' has no 'BS' that is a whole number above 0", file, name);
    if (!hyper || hyper->kind != TM_JSON_OBJECT)
        return tm_fail(err, TM_FORMAT, "'%s': record '%.80s' has no object 'Hyperparams'; write {} if there are none",
                       file, name);
    if (!samples)
        return tm_fail(
            err, TM_FORMAT,
            "'%s': record '%.80s' needs a list 'samples to converge' or 'Epochs to converge', one of the two", file,
            name);
    const tm_reference_kind *row = tm_reference_kind_find(benchmark->text);
    if (!row)
        return tm_fail(err, TM_UNSUPPORTED,
                       "'%s': record '%.80s' is of benchmark '%.80s', whose number of runs is not known", file, name,
                       benchmark->text);
    if (out->kind && out->kind != row)
        return tm_fail(err, TM_FORMAT, "'%s' has records of '%s' and of '%s'; keep one benchmark per file", file,
                       out->kind->name, row->name);
    out->kind = row;
    r->batch = (int64_t)batch->number;
    for (size_t i = 0; i < out->n; i++)
        if (out->records[i].batch == r->batch)
            return tm_fail(err, TM_FORMAT, "'%s' has two records of batch %lld; keep one", file, (long long)r->batch);
    tm_text text = { 0 };
    tm_python_print(hyper, &text);
    r->hyper = tm_arena_text(arena, text.data);
    tm_text_fini(&text);
    TM_TRY(read_samples(samples, file, name, arena, r, err));
    out->n++;
    return TM_OK;
}

tm_status tm_reference_parse(const char *file, const char *bytes, size_t length, tm_arena *arena,
                             const tm_reference **out, tm_error *err)
{
    const char          *problem;
    size_t               where, n = 0;
    tm_reference        *reference = tm_arena_take(arena, sizeof *reference);
    const tm_json_value *root = tm_json_parse(arena, bytes, length, &problem, &where);
    if (!root) return tm_fail(err, TM_FORMAT, "'%s' is not JSON: byte %zu: %s", file, where, problem);
    if (root->kind != TM_JSON_OBJECT)
        return tm_fail(err, TM_FORMAT,
                       "'%s' is not an object of records; wanted: {\"name\": {\"Benchmark\": ...}, ...}", file);
    for (const tm_json_value *v = root->first; v; v = v->next) n++;
    if (n == 0 || n > TM_REFERENCE_MAX_RECORDS)
        return tm_fail(err, TM_FORMAT, "'%s' has %zu records; wanted: 1 to %d", file, n, TM_REFERENCE_MAX_RECORDS);
    reference->records = tm_arena_take(arena, n * sizeof *reference->records);
    for (const tm_json_value *v = root->first; v; v = v->next) TM_TRY(read_record(v, file, arena, reference, err));
    tm_reference_finish(reference);
    *out = reference;
    return TM_OK;
}

tm_status tm_reference_read(const char *path, tm_arena *arena, const tm_reference **out, tm_error *err)
{
    tm_text   text = { 0 };
    tm_status st = tm_file_read(path, MAX_BYTES, &text, err);
    if (st == TM_OK) st = tm_reference_parse(path, text.data, text.length, arena, out, err);
    tm_text_fini(&text);
    return st;
}
