/* SPDX-License-Identifier: Apache-2.0 */
/* cli/reproduce_row.c - a row of a page: planned by a dry run, run as a process of its own, and what it measured. */
#include "cli/reproduce.h"

#include "base/file.h"
#include "base/json_input.h"
#include "apps/bench/bench.h"
#include "cli/child.h"
#include "results/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOG_LIMIT = 64 << 20 };

/* A training that takes a second: one step of one block, on one device. */
static const char small[] =
    "--training.steps 1 --training.local_batch_size 1 --training.grad_accumulation 1 --training.global_batch_size -1 "
    "--training.seq_len 32 --model.n_layers 1 --model.dim 32 --model.n_heads 2 --model.n_kv_heads 1 --model.ffn_dim 64 "
    "--model.vocab_size 64 --launch.nnodes 1 --launch.gpus_per_node 1 --parallelism.data_parallel_replicate_degree 1 "
    "--training.mock_data true --validation.enable false --training.stop_at_target false";
/* The same where a row has sizes of its own. */
static const char small_step[] =
    "--training.steps 1 --training.local_batch_size 1 --training.grad_accumulation 1 --training.global_batch_size -1 "
    "--launch.nnodes 1 --launch.gpus_per_node 1 --training.mock_data true --validation.enable false "
    "--training.stop_at_target false";

static bool trains(const char *words)
{
    return strncmp(words, "run ", 4) == 0;
}

static bool is_mlperf(const char *words)
{
    return strncmp(words, "mlperf run ", 11) == 0;
}

/* Is there a small one? Measurements have none by themselves; a benchmark of MLPerf is trained as it is. */
static bool has_slice(const page_row *page)
{
    return trains(page->ours) || page->slice;
}

/* --- command lines ------------------------------------------------------------------------------------------------ */

typedef struct {
    char    **words;
    int       n, room;
    tm_arena *arena;
} line;

static void put(line *l, const char *word)
{
    if (l->n + 2 > l->room) {
        char **more = tm_arena_take(l->arena, (size_t)(2 * l->room + 32) * sizeof *more);
        for (int i = 0; i < l->n; i++) more[i] = l->words[i];
        l->words = more;
        l->room = 2 * l->room + 32;
    }
    l->words[l->n++] = (char *)word;
    l->words[l->n] = NULL;
}

static void put_all(line *l, const char *text)
{
    int    n;
    char **words = page_words(l->arena, text, &n);
    for (int i = 0; i < n; i++) put(l, words[i]);
}

/* configs/FILE: below the current folder, else what was installed or built with this program. */
static const char *shipped(const reproduce_options *o, tm_arena *arena, const char *word)
{
    static const char *const above[] = { "share/trainmark", "..", "." };
    const char              *slash = strrchr(o->program, '/');
    if (strncmp(word, "configs/", 8) != 0 || tm_file_exists(word) || !slash) return word;
    tm_text folder = { 0 };
    tm_text_add_n(&folder, o->program, (size_t)(slash - o->program));
    char *end = strrchr(folder.data, '/');
    if (end) *end = '\0';
    const char *found = word;
    for (size_t i = 0; end && i < sizeof above / sizeof above[0]; i++) {
        const char *path = tm_arena_format(arena, "%s/%s/%s", folder.data, above[i], word);
        if (tm_file_exists(path)) {
            found = path;
            break;
        }
    }
    tm_text_fini(&folder);
    return found;
}

static line begin(const reproduce_options *o, const char *words, tm_arena *arena)
{
    line l = { .arena = arena };
    put(&l, o->program);
    put_all(&l, words);
    for (int i = 1; i < l.n; i++) l.words[i] = (char *)shipped(o, arena, l.words[i]);
    return l;
}

/* What the caller added, for trainings; the words that make it small. */
static void put_extra(line *l, const reproduce_row *row, const reproduce_options *o, bool training)
{
    if (o->slice && training) put_all(l, row->page->slice ? small_step : small);
    if (o->slice && row->page->slice) put_all(l, row->page->slice);
    for (int i = 0; training && i < o->n_extra; i++) put(l, o->extra[i]);
}

/* --- the plan ----------------------------------------------------------------------------------------------------- */

/* What a device needs most, of a dry run's JSON. */
static double bytes_of(const json_t *plan)
{
    double        most = json_number_value(json_object_get(json_object_get(plan, "memory"), "plan_bytes"));
    const json_t *ranks = json_object_get(plan, "ranks");
    for (size_t i = 0; i < json_array_size(ranks); i++) {
        double bytes = json_number_value(json_object_get(json_array_get(ranks, i), "plan_bytes"));
        if (bytes > most) most = bytes;
    }
    return most;
}

/* The message of a process, without the program's name. */
static const char *message_of(const char *words)
{
    static const char ours[] = "trainmark: ";
    return strncmp(words, ours, sizeof ours - 1) == 0 ? words + sizeof ours - 1 : words;
}

/* A dry run; *plan NULL: it cannot be planned, and *why says so. */
static tm_status dry_run(line *l, json_t **plan, int *code, const char **why, tm_error *err)
{
    tm_text      output = { 0 };
    child_end    end;
    json_error_t cause;
    put(l, "--dry-run");
    put(l, "--json");
    put(l, "-q");
    *plan = NULL;
    tm_status st = child_run(l->words, &output, &end, err);
    if (st == TM_OK && output.length) *plan = tm_json_input(output.data, output.length, 0, &cause);
    *code = end.code;
    if (st == TM_OK && !*plan) *why = tm_arena_format(l->arena, "cannot be planned: %s", message_of(end.words));
    tm_text_fini(&output);
    return st;
}

static tm_status plan_memory(reproduce_row *row, const reproduce_options *o, tm_arena *arena, tm_error *err)
{
    const page_row *page = row->page;
    bool            changed = o->slice ? has_slice(page) : o->n_extra > 0;
    for (int own = 1; own >= 0; own--) { /* the page's own; and that of the run, where that is another */
        json_t *plan;
        if (!own && !changed) break;
        line l = begin(o, page->plan, arena);
        /* as its command does; whoever submits is no matter of a plan */
        if (!own && is_mlperf(page->ours)) put_all(&l, "--mlperf.enable true --mlperf.submission_org plan");
        if (!own) put_extra(&l, row, o, true);
        const char *platform = !own && o->slice     ? NULL
                               : o->platform        ? o->platform
                               : page->platform.gpu ? page->hardware
                                                    : NULL;
        if (platform) put(&l, "--platform");
        if (platform) put(&l, platform);
        if (o->any_gpu && o->machine.device && platform && !o->platform)
            put(&l, tm_arena_format(arena, "--memory=%lld", (long long)o->machine.memory_bytes));
        TM_TRY(dry_run(&l, &plan, &row->code, &row->why, err));
        if (!plan) {
            row->state = ROW_FAILED;
            return TM_OK;
        }
        row->plan_bytes = bytes_of(plan);
        row->available = json_number_value(json_object_get(plan, "available_bytes"));
        row->fits = json_is_true(json_object_get(plan, "fits"));
        row->code = 0;
        if (own) row->configuration = json_incref(json_object_get(plan, "configuration"));
        json_decref(plan);
    }
    return TM_OK;
}

/* Does its command get a GPU of this machine? */
static bool takes_gpu(const reproduce_row *row, const reproduce_options *o)
{
    return row->page->platform.gpu && o->machine.device && !(o->slice && !o->any_gpu);
}

/* The benchmark of a command that does not run on GPUs; NULL: it does, or is none. */
static const tm_workload *only_on_cpus(const char *words)
{
    char               name[32];
    const tm_workload *workload = sscanf(words, "bench %31s", name) == 1 ? tm_workload_find(name) : NULL;
    return workload && !workload->gpus ? workload : NULL;
}

/* Why the row's hardware is not here; NULL: it is. */
static const char *lacks(const reproduce_row *row, const reproduce_options *o, tm_arena *arena)
{
    const tm_platform       *p = &row->page->platform;
    const reproduce_machine *m = &o->machine;
    const tm_workload       *bound = only_on_cpus(row->page->ours);
    if (o->platform) return tm_arena_format(arena, "planned for %s: --platform", o->platform);
    if (bound && takes_gpu(row, o)) return tm_arena_format(arena, "bench %s does not run on GPUs", bound->name);
    if (o->slice || !p->gpu) return NULL;
    if (p->nodes > 1) return tm_arena_format(arena, "needs %d nodes; start it by one of its lines below", p->nodes);
    if (!m->device) return tm_arena_format(arena, "needs %d x %s; there is no GPU here", p->gpus, p->gpu->name);
    if (!o->any_gpu && !tm_gpu_sheet_names(p->gpu, m->name))
        return tm_arena_format(arena, "needs %d x %s; here are %d x %s (--any-gpu runs it there)", p->gpus,
                               p->gpu->name, m->count, m->name);
    if (m->count < p->gpus)
        return tm_arena_format(arena, "needs %d x %s; here are %d x %s", p->gpus, p->gpu->name, m->count, m->name);
    return NULL;
}

/* How a row of several nodes is started: once by srun, or by torchrun on each node. Its ranks are the launcher's. */
static void set_launch(reproduce_row *row, const reproduce_options *o, tm_arena *arena)
{
    const tm_platform *p = &row->page->platform;
    tm_text            words = { 0 };
    if (p->nodes < 2 || o->slice || o->platform) return;
    tm_text_printf(&words, "trainmark %s --device %s", row->page->ours,
                   strcmp(p->gpu->maker, "AMD") == 0 ? "hip" : "cuda");
    for (int i = 0; i < o->n_extra; i++) {
        const char *quote = strpbrk(o->extra[i], " \"$*?[]{};&|<>()#~!\\") ? "'" : "";
        tm_text_printf(&words, " %s%s%s", quote, o->extra[i], quote);
    }
    tm_text_printf(&words, " --out %s/%s", o->folder, row->page->name);
    row->srun = tm_arena_format(arena, "srun -N %d --ntasks-per-node %d --mpi=pmix %s", p->nodes, p->gpus, words.data);
    row->torchrun = tm_arena_format(arena,
                                    "torchrun --nnodes %d --node-rank NODE --nproc-per-node %d --master-addr FIRST "
                                    "--master-port 29500 --no-python %s",
                                    p->nodes, p->gpus, words.data);
    tm_text_fini(&words);
}

tm_status row_plan(reproduce_row *row, const reproduce_options *o, tm_arena *arena, tm_error *err)
{
    row->plan_bytes = row->minutes = (double)NAN;
    row->fits = -1;
    row->state = ROW_PLANNED;
    set_launch(row, o, arena);
    if (row->page->plan) TM_TRY(plan_memory(row, o, arena, err));
    if (row->state == ROW_FAILED) return TM_OK;
    row->why = lacks(row, o, arena);
    if (!row->why && o->slice && !has_slice(row->page))
        row->why = is_mlperf(row->page->ours) ? "no slice: a benchmark of MLPerf is trained as it is; small ones are "
                                                "configs/experiments/mlperf/trainmark_tiny*.yaml"
                                              : "no slice: --slice makes trainings small, and this row has none";
    if (row->why && !o->dry_run)
        row->state = ROW_NO_HARDWARE; /* a dry run plans all; why tells what a run would lack */
    if (row->fits == 0 && !(o->slice && !trains(row->page->ours))) {
        row->state = ROW_NO_ROOM;
        char need[32], have[32];
        row->why = tm_arena_format(arena, "needs %s of a device, %s are available",
                                   tm_format_bytes(need, row->plan_bytes), tm_format_bytes(have, row->available));
    }
    return TM_OK;
}

/* --- the run ------------------------------------------------------------------------------------------------------ */

static const char *path_of(const reproduce_row *row, const reproduce_options *o, tm_arena *arena, const char *end)
{
    return tm_arena_format(arena, "%s/%s%s", o->folder, row->page->name, end);
}

static line command_of(const reproduce_row *row, const reproduce_options *o, tm_arena *arena)
{
    const page_row *page = row->page;
    bool            training = trains(page->ours) || is_mlperf(page->ours);
    line            l = begin(o, page->ours, arena);
    if (takes_gpu(row, o)) {
        put(&l, "--device");
        put(&l, o->machine.device);
    }
    if (training && page->platform.gpu && !o->slice) {
        put(&l, "--launch.gpus_per_node");
        put(&l, tm_arena_format(arena, "%d", page->platform.gpus));
    }
    put_extra(&l, row, o, training);
    if (training) {
        put(&l, "--out");
        put(&l, path_of(row, o, arena, ""));
    } else {
        put(&l, tm_arena_format(arena, "--output-file=%s", path_of(row, o, arena, "/table.json")));
    }
    if (is_mlperf(page->ours)) put(&l, "--json");
    return l;
}

/* FOLDER/ROW.ended: the exit code, then the words of the command, one a line. */
static void ended_text(const line *l, int code, tm_text *out)
{
    tm_text_printf(out, "%d\n", code);
    for (int i = 1; i < l->n; i++) tm_text_printf(out, "%s\n", l->words[i]);
}

/* Has an earlier call run it, with the same words and success? */
static bool was_run(const reproduce_row *row, const reproduce_options *o, const line *l, tm_arena *arena)
{
    tm_text     there = { 0 }, wanted = { 0 };
    tm_error    ignored = { 0 };
    const char *path = path_of(row, o, arena, ".ended");
    ended_text(l, 0, &wanted);
    bool done = tm_file_exists(path) && tm_file_read(path, LOG_LIMIT, &there, &ignored) == TM_OK && there.data &&
                strcmp(there.data, wanted.data) == 0;
    tm_text_fini(&there);
    tm_text_fini(&wanted);
    return done;
}

/* What `mlperf run --json` printed: the score is the last of its verdicts. */
static void read_score(reproduce_row *row, const char *path, tm_arena *arena)
{
    json_error_t cause;
    json_t      *all = tm_json_input_file(path, 0, &cause);
    json_t      *score = json_array_get(all, json_array_size(all) - 1);
    json_t      *minutes = json_object_get(score, "scaled_minutes");
    if (json_is_number(minutes)) row->minutes = json_number_value(minutes);
    if (!json_is_number(minutes)) {
        row->state = ROW_INVALID;
        const char *problem = json_string_value(json_object_get(score, "problem"));
        row->why = tm_arena_format(arena, "no valid score: %s", problem ? problem : "see the log");
    }
    json_decref(all);
}

static tm_status read_result(reproduce_row *row, const reproduce_options *o, tm_arena *arena, tm_error *err)
{
    tm_error own = { 0 };
    (void)err;
    row->state = row->code == 3 ? ROW_INVALID : ROW_RAN;
    row->why = row->code == 3 ? "its numbers are invalid" : NULL;
    if (is_mlperf(row->page->ours)) {
        read_score(row, path_of(row, o, arena, ".log"), arena);
        return TM_OK;
    }
    const char *path = path_of(row, o, arena, trains(row->page->ours) ? "" : "/table.json");
    if (tm_result_load(path, NULL, &row->result, &own) != TM_OK) {
        row->state = ROW_FAILED;
        row->code = 4;
        row->why = tm_arena_text(arena, own.text);
    }
    return TM_OK;
}

/* Ended with another code than 0 and 3. */
static void set_failed(reproduce_row *row, const child_end *end, tm_arena *arena)
{
    row->state = ROW_FAILED;
    row->why = tm_arena_format(arena, "ended with exit code %d: %s", end->code, message_of(end->words));
}

tm_status row_run(reproduce_row *row, const reproduce_options *o, tm_arena *arena, tm_error *err)
{
    line      l = command_of(row, o, arena);
    tm_text   output = { 0 }, ended = { 0 };
    child_end end = { .code = 0 };
    row->code = 0;
    row->gpu = o->machine.device ? o->machine.name : NULL;
    row->earlier = was_run(row, o, &l, arena);
    if (row->earlier) return read_result(row, o, arena, err);
    TM_TRY(tm_folder_make(path_of(row, o, arena, ""), err));
    tm_status st = child_run(l.words, &output, &end, err);
    if (st == TM_OK && end.code == 130)
        st = tm_fail(err, TM_INTERRUPTED, "interrupted; the same command continues from here");
    if (st == TM_OK && !is_mlperf(row->page->ours)) tm_text_add(&output, end.said);
    if (st == TM_OK && output.length)
        st = tm_file_write(path_of(row, o, arena, ".log"), output.data, output.length, err);
    row->code = end.code;
    if (st == TM_OK && (end.code == 0 || end.code == 3 || (end.code == 5 && is_mlperf(row->page->ours))))
        st = read_result(row, o, arena, err);
    else if (st == TM_OK)
        set_failed(row, &end, arena);
    ended_text(&l, end.code, &ended);
    if (st == TM_OK) st = tm_file_write(path_of(row, o, arena, ".ended"), ended.data, ended.length, err);
    tm_text_fini(&output);
    tm_text_fini(&ended);
    return st;
}

void row_fini(reproduce_row *row)
{
    json_decref(row->configuration);
    tm_result_destroy(row->result);
}

/* --- what it measured --------------------------------------------------------------------------------------------- */

static double cell(const tm_table *table, size_t row, const char *column)
{
    int at = tm_table_find(table, column);
    if (at < 0) return (double)NAN;
    const tm_cell *c = tm_table_cell(table, row, (size_t)at);
    return c->kind == TM_CELL_F64 ? c->f64 : c->kind == TM_CELL_I64 ? (double)c->i64 : (double)NAN;
}

/* The row of a benchmark's table that a figure is of; behind the last: none. */
static size_t find_case(const tm_table *table, const tm_figure *figure)
{
    int at = tm_table_find(table, "case");
    for (size_t i = 0; i < tm_table_n_rows(table); i++) {
        const tm_cell *c = at < 0 ? NULL : tm_table_cell(table, i, (size_t)at);
        if (c && c->kind == TM_CELL_TEXT && tm_names_equal(c->text, figure->row)) return i;
    }
    return tm_table_n_rows(table);
}

/* The ends of a run's interval as parts of its rate: of the median where that has one, else of the whole. */
static void interval_of(const tm_result *run, double *lo, double *hi)
{
    double median = tm_result_number(run, "tokens_per_second_per_device/median");
    *lo = tm_result_number(run, "tokens_per_second_per_device/lo") / median;
    *hi = tm_result_number(run, "tokens_per_second_per_device/hi") / median;
    if (isfinite(*lo) && isfinite(*hi)) return;
    double half = tm_result_number(run, "tokens_per_second_per_device_overall/half_width_percent") / 100;
    *lo = 1 - half;
    *hi = 1 + half;
}

static row_measured of_run(const tm_result *r, const tm_table *table, const char *column)
{
    double lo, hi, value;
    interval_of(r, &lo, &hi);
    if (strcmp(column, "memory_gb") == 0)
        return (row_measured){ tm_result_number(r, "memory/used_bytes") / 1e9, (double)NAN, (double)NAN };
    if (strcmp(column, "step_ms") == 0) {
        value = tm_result_number(r, "step_time/median") * 1e3;
        return (row_measured){ value, value / hi, value / lo };
    }
    bool images = strcmp(column, "images_per_second") == 0;
    value = images ? tm_result_number(r, "images_per_second_per_device/median") : cell(table, 0, column);
    return (row_measured){ value, value * lo, value * hi };
}

static row_measured of_bench(const tm_table *table, const tm_figure *f)
{
    row_measured m = { (double)NAN, (double)NAN, (double)NAN };
    size_t       at = find_case(table, f);
    if (at == tm_table_n_rows(table)) return m;
    double half = cell(table, at, "half_width_pct") / 100;
    m.value = cell(table, at, f->column);
    m.lo = m.value * (1 - half);
    m.hi = m.value * (1 + half);
    return m;
}

row_measured row_measure(const reproduce_row *row, const tm_figure *f)
{
    row_measured none = { (double)NAN, (double)NAN, (double)NAN };
    if (is_mlperf(row->page->ours)) {
        if (strcmp(f->column, "minutes") == 0) none.value = row->minutes;
        return none;
    }
    if (!row->result) return none;
    bool         run = tm_result_kind_of(row->result) == TM_RESULT_RUN;
    tm_table    *table = tm_results_measured(row->result);
    row_measured m = run ? of_run(row->result, table, f->column) : of_bench(table, f);
    tm_table_destroy(table);
    return m;
}

double row_published(const tm_figure *f)
{
    bool rate = strstr(f->unit, "/s") != NULL;
    return rate && strcmp(f->scope, "all") == 0 ? f->value / (double)f->devices : f->value;
}
