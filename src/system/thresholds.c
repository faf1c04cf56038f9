/* SPDX-License-Identifier: Apache-2.0 */
#include "system/thresholds.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"

#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES = 4 << 20 };

/* --- names ----------------------------------------------------------------------------------- */

static const char *const kind_names[] = { "min", "max", "info" };

/* clang-format off */
static const struct {
    const char  *name;
    tm_gate_kind kind;
} metrics_known[] = {
    { "training.tflops_per_sec_per_gpu", TM_GATE_MIN }, { "training.tokens_per_sec_per_gpu", TM_GATE_MIN },
    { "training.tokens_per_sec_total", TM_GATE_MIN },   { "training.throughput_per_gpu", TM_GATE_MIN },
    { "training.tokens_per_gpu", TM_GATE_MIN },         { "training.elapsed_time_per_iteration", TM_GATE_MAX },
    { "training.step_time_seconds", TM_GATE_MAX },      { "training.step_time_mean_ms", TM_GATE_MAX },
    { "training.step_time_p50_ms", TM_GATE_MAX },       { "training.step_time_p95_ms", TM_GATE_MAX },
    { "training.scaling_efficiency_pct", TM_GATE_MIN }, { "training.mem_usage", TM_GATE_MAX },
    { "training.loss", TM_GATE_INFO },                  { "training.final_loss", TM_GATE_INFO },
    { "training.loss_decreased", TM_GATE_MIN },         { "training.eval_loss", TM_GATE_INFO },
    { "training.steps_to_target", TM_GATE_MAX },        { "training.time_to_target_seconds", TM_GATE_MAX },
    { "gemm.gflops_per_sec", TM_GATE_MIN },             { "stream.copy_gb_per_sec", TM_GATE_MIN },
    { "stream.mul_gb_per_sec", TM_GATE_MIN },           { "stream.add_gb_per_sec", TM_GATE_MIN },
    { "stream.triad_gb_per_sec", TM_GATE_MIN },         { "stream.dot_gb_per_sec", TM_GATE_MIN },
};
/* clang-format on */
enum { METRICS = sizeof metrics_known / sizeof metrics_known[0] };

const char *tm_gate_kind_name(tm_gate_kind kind)
{
    return kind_names[kind];
}

const char *tm_metric_name(size_t index)
{
    return index < METRICS ? metrics_known[index].name : NULL;
}

tm_gate_kind tm_metric_kind(size_t index)
{
    TM_ASSERT(index < METRICS);
    return metrics_known[index].kind;
}

static int find_metric(const char *name)
{
    for (int i = 0; i < METRICS; i++)
        if (strcmp(name, metrics_known[i].name) == 0) return i;
    return -1;
}

/* --- cell keys ------------------------------------------------------------------------------- */

/* Does `key` consist of the names, each with `=value`, with commas between? Values are positive whole numbers, that of
 * PRECISION a word. */
static bool key_has_form(const char *key, const char *const *names)
{
    for (int i = 0; names[i]; i++) {
        size_t n = strlen(names[i]);
        bool   word = strcmp(names[i], "PRECISION") == 0;
        if (i > 0 && *key++ != ',') return false;
        if (strncmp(key, names[i], n) != 0 || key[n] != '=') return false;
        key += n + 1;
        if (!word && !(*key >= '1' && *key <= '9')) return false;
        size_t length = 0;
        while (word ? isalnum((unsigned char)key[length]) || key[length] == '_' : isdigit((unsigned char)key[length]))
            length++;
        if (length == 0 || length > 18) return false;
        key += length;
    }
    return *key == '\0';
}

static tm_status check_key(const char *file, const char *key, tm_error *err)
{
    static const char *const brief[] = { "MBS", "GBS", "PRECISION", NULL };
    static const char *const full[] = { "NNODES", "STEPS", "PRECISION", "BATCH", "GBS", "SEQLEN", NULL };
    if (key_has_form(key, brief) || key_has_form(key, full)) return TM_OK;
    return tm_fail(err, TM_INVALID,
                   "'%s': unknown cell '%.200s'; a key is MBS=n,GBS=n,PRECISION=word or NNODES=n,"
                   "STEPS=n,PRECISION=word,BATCH=n,GBS=n,SEQLEN=n",
                   file, key);
}

/* --- reading --------------------------------------------------------------------------------- */

typedef struct {
    const char *key;
    tm_gate    *gates;
    size_t      n;
} cell;

struct tm_thresholds {
    tm_arena   *arena;
    const char *name;
    cell       *cells;
    size_t      n;
};

static tm_status unknown_metric(const tm_thresholds *t, const char *key, const char *metric, tm_error *err)
{
    int nearest = 0;
    for (int i = 1; i < METRICS; i++)
        if (tm_edit_distance(metric, metrics_known[i].name) < tm_edit_distance(metric, metrics_known[nearest].name))
            nearest = i;
    return tm_fail(err, TM_INVALID, "'%s', cell '%s': unknown metric '%.100s'; did you mean '%s'?", t->name, key,
                   metric, metrics_known[nearest].name);
}

static tm_status read_gate(const tm_thresholds *t, const char *key, const char *metric, json_t *object, tm_gate *gate,
                           tm_error *err)
{
    int         row = find_metric(metric), kind = 0;
    const char *name, *kind_text = json_string_value(json_object_get(object, "kind"));
    json_t     *value = json_object_get(object, "value"), *member;
    if (row < 0) return unknown_metric(t, key, metric, err);
    if (!json_is_object(object))
        return tm_fail(err, TM_FORMAT, "'%s', cell '%s', %s: expected {\"kind\": ..., \"value\": ...}", t->name, key,
                       metric);
    json_object_foreach(
        object, name,
        member) if (strcmp(name, "kind") != 0 &&
                    strcmp(name, "value") !=
                        0) return tm_fail(err, TM_INVALID,
                                          "'%s', cell '%s', %s: unknown member '%.60s'; there are kind and value",
                                          t->name, key, metric, name);
    while (kind < TM_GATE_KINDS && !(kind_text && strcmp(kind_text, kind_names[kind]) == 0)) kind++;
    if (kind == TM_GATE_KINDS)
        return tm_fail(err, TM_INVALID, "'%s', cell '%s', %s: kind is '%.60s', not min, max or info", t->name, key,
                       metric, kind_text ? kind_text : "");
    if (!json_is_number(value) || !isfinite(json_number_value(value)))
        return tm_fail(err, TM_INVALID, "'%s', cell '%s', %s: value is not a finite number", t->name, key, metric);
    *gate =
        (tm_gate){ .metric = metrics_known[row].name, .kind = (tm_gate_kind)kind, .limit = json_number_value(value) };
    return TM_OK;
}

static tm_status read_cell(const tm_thresholds *t, const char *key, json_t *object, cell *out, tm_error *err)
{
    const char *metric;
    json_t     *gate;
    TM_TRY(check_key(t->name, key, err));
    if (!json_is_object(object) || json_object_size(object) == 0)
        return tm_fail(err, TM_FORMAT, "'%s', cell '%s': expected an object with at least one metric", t->name, key);
    *out = (cell){ .key = tm_arena_text(t->arena, key),
                   .gates = tm_arena_take(t->arena, json_object_size(object) * sizeof *out->gates) };
    json_object_foreach(object, metric, gate) TM_TRY(read_gate(t, out->key, metric, gate, &out->gates[out->n++], err));
    return TM_OK;
}

static tm_status read_cells(tm_thresholds *t, json_t *object, tm_error *err)
{
    const char *key;
    json_t     *value;
    if (!json_is_object(object) || json_object_size(object) == 0)
        return tm_fail(err, TM_FORMAT, "'%s': expected an object with at least one cell", t->name);
    t->cells = tm_arena_take(t->arena, json_object_size(object) * sizeof *t->cells);
    json_object_foreach(object, key, value) TM_TRY(read_cell(t, key, value, &t->cells[t->n++], err));
    return TM_OK;
}

tm_status tm_thresholds_parse(const char *text, size_t bytes, const char *name, tm_thresholds **out, tm_error *err)
{
    json_error_t problem;
    *out = NULL;
    json_t *object = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &problem);
    if (!object) return tm_fail(err, TM_FORMAT, "'%s', line %d: %.200s", name, problem.line, problem.text);
    tm_arena      *arena = tm_arena_create();
    tm_thresholds *t = tm_arena_take(arena, sizeof *t);
    *t = (tm_thresholds){ .arena = arena, .name = tm_arena_text(arena, name) };
    tm_status st = read_cells(t, object, err);
    json_decref(object);
    if (st == TM_OK)
        *out = t;
    else
        tm_thresholds_destroy(t);
    return st;
}

tm_status tm_thresholds_read(const char *path, tm_thresholds **out, tm_error *err)
{
    tm_text text = { 0 };
    *out = NULL;
    tm_status st = tm_file_read(path, FILE_BYTES, &text, err);
    if (st == TM_OK) st = tm_thresholds_parse(text.data, text.length, path, out, err);
    tm_text_fini(&text);
    return st;
}

void tm_thresholds_destroy(tm_thresholds *thresholds)
{
    if (thresholds) tm_arena_destroy(thresholds->arena);
}

/* --- judging --------------------------------------------------------------------------------- */

static cell *find_cell(const tm_thresholds *t, const char *key)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->cells[i].key, key) == 0) return &t->cells[i];
    return NULL;
}

tm_status tm_thresholds_has(const tm_thresholds *thresholds, const char *key, tm_error *err)
{
    if (find_cell(thresholds, key)) return TM_OK;
    return tm_fail(err, TM_INVALID, "'%s' has no cell '%s'; it has '%s'%s", thresholds->name, key,
                   thresholds->cells[0].key, thresholds->n > 1 ? " and others" : "");
}

tm_status tm_thresholds_judge(tm_thresholds *thresholds, const char *key, const tm_metric *metrics, size_t n,
                              const tm_gate **gates, size_t *n_gates, tm_error *err)
{
    TM_TRY(tm_thresholds_has(thresholds, key, err));
    cell *found = find_cell(thresholds, key);
    for (size_t i = 0; i < found->n; i++) {
        tm_gate *gate = &found->gates[i];
        size_t   k = 0;
        while (k < n && strcmp(metrics[k].name, gate->metric) != 0) k++;
        gate->measured = k < n ? metrics[k].value : (double)NAN;
        if (k == n && gate->kind != TM_GATE_INFO)
            return tm_fail(err, TM_INVALID, "'%s', cell '%s': '%s' was not measured here; remove it or make it info",
                           thresholds->name, key, gate->metric);
        gate->passed = gate->kind == TM_GATE_INFO || (gate->kind == TM_GATE_MIN && gate->measured >= gate->limit) ||
                       (gate->kind == TM_GATE_MAX && gate->measured <= gate->limit);
    }
    *gates = found->gates;
    *n_gates = found->n;
    return TM_OK;
}

/* --- writing --------------------------------------------------------------------------------- */

tm_status tm_thresholds_write(const char *path, const char *key, const tm_metric *metrics, size_t n, tm_error *err)
{
    static const double factor[] = { 0.90, 1.10, 1 };
    tm_text             text = { 0 };
    tm_json             json = { .out = &text, .indent = true };
    TM_TRY(check_key(path, key, err));
    tm_json_open(&json, NULL, '{');
    tm_json_open(&json, key, '{');
    for (size_t i = 0; i < n; i++) {
        int row = find_metric(metrics[i].name);
        TM_ASSERT(row >= 0);
        if (!isfinite(metrics[i].value)) continue;
        tm_gate_kind kind = metrics_known[row].kind;
        tm_json_open(&json, metrics[i].name, '{');
        tm_json_string(&json, "kind", kind_names[kind]);
        tm_json_f64(&json, "value", metrics[i].value * factor[kind]);
        tm_json_close(&json, '}');
    }
    tm_json_close(&json, '}');
    tm_json_close(&json, '}');
    tm_text_add(&text, "\n");
    tm_status st = tm_file_write(path, text.data, text.length, err);
    tm_text_fini(&text);
    return st;
}
