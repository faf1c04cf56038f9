/* SPDX-License-Identifier: Apache-2.0 */
/* record/perf.c - perf.csv, the result table that benchmark runners read. */
#include "base/again.h"
#include "base/csv.h"
#include "base/file.h"
#include "base/log.h"
#include "base/secret.h"
#include "base/text.h"
#include "record/record.h"
#include "record/sink.h"
#include "record/sink_kind.h"
#include "stats/sampling.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* X(column): the header, in its order. */
/* clang-format off */
#define PERF_COLUMNS(X)                                                                                                \
    X(model) X(n_gpus) X(nnodes) X(gpus_per_node) X(training_precision) X(pipeline) X(args) X(tags) X(docker_file)     \
    X(base_docker) X(docker_sha) X(docker_image) X(git_commit) X(machine_name) X(deployment_type) X(launcher)          \
    X(gpu_architecture) X(performance) X(metric) X(relative_change) X(status) X(build_duration) X(test_duration)       \
    X(dataname) X(data_provider_type) X(data_size) X(data_download_duration) X(build_number)                           \
    X(additional_docker_run_options)
/* clang-format on */

enum {
#define X(column) COLUMN_##column,
    PERF_COLUMNS(X)
#undef X
        COLUMNS
};

static const char *const column_names[COLUMNS] = {
#define X(column) #column,
    PERF_COLUMNS(X)
#undef X
};

enum { FILE_LIMIT = 256 << 20 };

typedef struct {
    tm_sink         head;
    tm_perf_options options;
    run_record      run;
} perf_sink;

static void add_header(tm_text *out)
{
    for (int i = 0; i < COLUMNS; i++) tm_csv_add(out, column_names[i], i == 0);
    tm_text_add_n(out, "\n", 1);
}

/* An existing file must start with our header, byte for byte (a carriage return before the line feed is let pass). */
static tm_status check_header(const char *path, const char *text, tm_error *err)
{
    tm_text wanted = { 0 };
    add_header(&wanted);
    size_t n = strcspn(text, "\r\n");
    bool   same = n == wanted.length - 1 && strncmp(text, wanted.data, n) == 0;
    wanted.data[wanted.length - 1] = '\0';
    tm_status status = TM_OK;
    if (!same)
        status = tm_fail(err, TM_INVALID, "cannot append to '%s': header is \"%.*s\", wanted \"%s\"; name another file",
                         path, n > 300 ? 300 : (int)n, text, wanted.data);
    tm_text_fini(&wanted);
    return status;
}

/* Bytes of whole rows. One behind them was being written when its process was killed: it lacks cells, or the end of a
 * quoted one, which may hold line breaks. A last row that lacks its line end alone is whole. */
static size_t whole_rows(const char *text)
{
    size_t at = 0, whole = 0;
    int    cells = 1;
    bool   quoted = false;
    for (; text[at]; at++) {
        if (text[at] == '"') quoted = !quoted; /* a quote in a cell stands twice */
        if (quoted) continue;
        cells += text[at] == ',';
        if (text[at] != '\n') continue;
        whole = at + 1;
        cells = 1;
    }
    return !quoted && cells == COLUMNS ? at : whole;
}

/* The rows of an earlier run that are whole; of a half header nothing. *cut: how many bytes of a half row follow. */
static tm_status read_old(const char *path, tm_text *out, size_t *cut, tm_error *err)
{
    struct stat info;
    tm_text     header = { 0 };
    *cut = 0;
    if (stat(path, &info) != 0 && errno == ENOENT) return TM_OK;
    TM_TRY(tm_file_read(path, FILE_LIMIT, out, err));
    add_header(&header);
    bool torn = out->length > 0 && out->length < header.length && strncmp(header.data, out->data, out->length) == 0;
    tm_text_fini(&header);
    if (out->length > 0 && !torn) TM_TRY(check_header(path, out->data, err));
    size_t whole = out->length > 0 ? whole_rows(out->data) : 0;
    *cut = out->length - whole;
    out->length = whole;
    if (out->data) out->data[whole] = '\0';
    return TM_OK;
}

/* Performance of the first row with the same key and a result; NAN if there is none. */
static double baseline(const char *text, char *const row[COLUMNS])
{
    static const int key[] = { COLUMN_model, COLUMN_n_gpus, COLUMN_gpu_architecture, COLUMN_training_precision,
                               COLUMN_args,  COLUMN_metric };
    tm_text          storage = { 0 };
    size_t           offsets[COLUMNS];
    const char      *cursor = text ? text : "";
    double           found = (double)NAN;
    tm_csv_read(&cursor, &storage, offsets, COLUMNS); /* the header */
    for (size_t n; isnan(found) && (n = tm_csv_read(&cursor, &storage, offsets, COLUMNS)) > 0;) {
        bool same = n == COLUMNS && strcmp(storage.data + offsets[COLUMN_status], "SUCCESS") == 0;
        for (size_t k = 0; same && k < sizeof key / sizeof key[0]; k++)
            same = strcmp(storage.data + offsets[key[k]], row[key[k]]) == 0;
        char  *end;
        double value = same ? strtod(storage.data + offsets[COLUMN_performance], &end) : 0;
        if (value > 0) found = value;
    }
    tm_text_fini(&storage);
    return found;
}

/* A row that does not fit is taken back. */
static tm_status append_row(int fd, const char *path, const tm_text *row, tm_error *err)
{
    off_t before = lseek(fd, 0, SEEK_END);
    if (tm_again_write(fd, row->data, row->length) && tm_again_sync(fd) == 0) return TM_OK;
    tm_fail(err, TM_IO, "cannot append to '%s': %s", path, strerror(errno));
    if (before >= 0 && ftruncate(fd, before) != 0)
        return tm_fail(err, TM_IO, "cannot remove an incomplete row of '%s': %s", path, strerror(errno));
    return TM_IO;
}

static void set(char *row[COLUMNS], int column, const char *value)
{
    free(row[column]);
    row[column] = tm_alloc(strlen(value ? value : "") + 1);
    strcpy(row[column], value ? value : "");
}

static void set_number(char *row[COLUMNS], int column, double value)
{
    char text[32];
    if (!isfinite(value))
        text[0] = '\0';
    else
        tm_format_double(text, value);
    set(row, column, text);
}

static void fill_row(char *row[COLUMNS], const perf_sink *self, const tm_run_ended *end)
{
    const tm_perf_options *o = &self->options;
    const tm_run_started  *start = &self->run.start;
    tm_text                model = { 0 };
    int                    nodes = o->nodes > 0 ? o->nodes : 1;
    bool good = end && end->verdict != TM_VERDICT_INVALID && !end->interrupted && isfinite(end->speed->median_rate);
    for (int i = 0; i < COLUMNS; i++) set(row, i, "");
    tm_text_printf(&model, o->entry ? "%s_%s" : "%s%s", o->entry ? o->entry : "", start->model);
    set(row, COLUMN_model, model.data);
    tm_text_fini(&model);
    set_number(row, COLUMN_n_gpus, start->gpus);
    set_number(row, COLUMN_nnodes, nodes);
    set_number(row, COLUMN_gpus_per_node, start->gpus / nodes);
    set(row, COLUMN_training_precision, start->precision);
    set(row, COLUMN_pipeline, o->pipeline);
    set(row, COLUMN_args, o->args);
    set(row, COLUMN_tags, o->tags);
    set(row, COLUMN_git_commit, o->git_commit);
    set(row, COLUMN_machine_name, o->machine_name);
    set(row, COLUMN_deployment_type, o->deployment_type);
    set(row, COLUMN_launcher, o->launcher);
    set(row, COLUMN_gpu_architecture, o->architecture);
    set(row, COLUMN_data_provider_type, o->data_provider_type);
    set(row, COLUMN_build_number, o->build_number);
    if (start->gpus > 0) set(row, COLUMN_additional_docker_run_options, o->container_options);
    set(row, COLUMN_dataname, start->data_source);
    set(row, COLUMN_metric, "tokens_per_second");
    set(row, COLUMN_status, good ? "SUCCESS" : "FAILURE");
    if (good) set_number(row, COLUMN_performance, end->speed->median_rate * start->devices);
    if (end) set_number(row, COLUMN_test_duration, end->seconds);
}

static void set_relative_change(char *row[COLUMNS], const char *old)
{
    double before = baseline(old, row), now = strtod(row[COLUMN_performance], NULL);
    char   text[32];
    if (isnan(before) || !(now > 0)) return;
    snprintf(text, sizeof text, "%.2f", 100 * (now / before - 1));
    set(row, COLUMN_relative_change, text);
}

static void add_row(tm_text *out, char *const row[COLUMNS])
{
    for (int i = 0; i < COLUMNS; i++) tm_csv_add(out, row[i], i == 0);
    tm_text_add_n(out, "\n", 1);
}

/* What a process that was killed has left of its row. */
static tm_status cut_off(int fd, const char *path, off_t whole, size_t cut, tm_error *err)
{
    if (cut == 0) return TM_OK;
    if (ftruncate(fd, whole) != 0)
        return tm_fail(err, TM_IO, "cannot remove an incomplete row of '%s': %s", path, strerror(errno));
    tm_warn("'%s' ended with %zu bytes of a row whose run was killed: they are removed", path, cut);
    return TM_OK;
}

/* Adds a row behind those that are whole; NULL: only removes half a one. */
static tm_status write_appended(const char *path, char **row, tm_error *err)
{
    int    fd;
    size_t cut;
    TM_TRY(tm_file_open_append(path, &fd, err));
    tm_text old = { 0 }, text = { 0 };
    while (flock(fd, LOCK_EX) != 0 && errno == EINTR) /* a file system without locks: only parallel writers collide */
        continue;
    tm_status status = read_old(path, &old, &cut, err);
    if (status == TM_OK) status = cut_off(fd, path, (off_t)old.length, cut, err);
    if (status == TM_OK && row) {
        if (old.length == 0) add_header(&text);
        if (old.length > 0 && old.data[old.length - 1] != '\n') tm_text_add_n(&text, "\n", 1);
        set_relative_change(row, old.data);
        add_row(&text, row);
        status = append_row(fd, path, &text, err);
    }
    if (tm_again_close(fd) != 0) status = tm_fail(err, TM_IO, "cannot close '%s': %s", path, strerror(errno));
    tm_text_fini(&old);
    tm_text_fini(&text);
    return status;
}

static void write_row(perf_sink *self, const tm_run_ended *end)
{
    char *row[COLUMNS] = { 0 };
    fill_row(row, self, end);
    if (self->options.append) {
        (void)write_appended(self->options.path, row, &self->head.error);
    } else {
        tm_text text = { 0 };
        add_header(&text);
        add_row(&text, row);
        record_sink_write(&self->head, self->options.path, &text);
        tm_text_fini(&text);
    }
    for (int i = 0; i < COLUMNS; i++) free(row[i]);
}

static void handle(tm_sink *sink, const tm_event *event)
{
    perf_sink *self = (perf_sink *)sink;
    run_record_add(&self->run, event);
    if (event->kind == TM_EVENT_RUN_ENDED) write_row(self, &event->run_ended);
}

static void finish(tm_sink *head)
{
    perf_sink *self = (perf_sink *)head;
    if (self->run.started && !self->run.ended) write_row(self, NULL);
    run_record_fini(&self->run);
}

tm_status tm_perf_sink_open(const tm_perf_options *options, tm_sink **out, tm_error *err)
{
    if (options->append) {
        tm_text   old = { 0 };
        size_t    cut;
        tm_status status = read_old(options->path, &old, &cut, err);
        tm_text_fini(&old);
        TM_TRY(status);
        if (cut > 0)
            TM_TRY(write_appended(options->path, NULL, err)); /* another process may be writing: under its lock */
    }
    perf_sink *self = tm_alloc(sizeof *self);
    *self = (perf_sink){ .head = { .handle = handle, .close = finish }, .options = *options };
    run_record_init(&self->run);
    *out = &self->head;
    return TM_OK;
}

/* A variable of whoever started the run: it may hold anything. */
static const char *variable(tm_arena *arena, const char *name)
{
    const char *value = getenv(name);
    tm_text     masked = { 0 };
    if (!value) return NULL;
    tm_secret_value(&masked, value);
    const char *text = tm_arena_text(arena, masked.data);
    tm_text_fini(&masked);
    return text;
}

static const char *container_options(const tm_environment *environment, tm_arena *arena)
{
    tm_text text = { 0 };
    tm_environment_print_options(environment, &text);
    const char *kept = tm_arena_text(arena, text.data ? text.data : "");
    tm_text_fini(&text);
    return kept;
}

static tm_perf_options options_of(const tm_output_options *o, tm_arena *arena)
{
    return (tm_perf_options){ .args = o->command,
                              .launcher = "trainmark",
                              .deployment_type = "local",
                              .machine_name = tm_environment_text(o->environment, "os", NULL, "host"),
                              .git_commit = tm_environment_text(o->environment, "build", NULL, "commit"),
                              .architecture = tm_environment_text(o->environment, "cpu", NULL, "model"),
                              .pipeline = variable(arena, "pipeline"),
                              .build_number = variable(arena, "BUILD_NUMBER"),
                              .container_options = container_options(o->environment, arena) };
}

static tm_status open_perf(const tm_output_options *o, const char *path, tm_arena *arena, tm_sink **out, tm_error *err)
{
    tm_perf_options options = options_of(o, arena);
    options.path = path;
    return tm_perf_sink_open(&options, out, err);
}

const record_sink_kind record_perf_kind = { .file = "perf.csv", .open = open_perf };

/* --perf-csv: the same row in a file that collects those of many runs. */
static bool collects(const tm_output_options *o)
{
    return o->perf_csv;
}

static tm_status open_collected(const tm_output_options *o, const char *path, tm_arena *arena, tm_sink **out,
                                tm_error *err)
{
    (void)path;
    tm_perf_options options = options_of(o, arena);
    options.path = o->perf_csv;
    options.append = true;
    return tm_perf_sink_open(&options, out, err);
}

const record_sink_kind record_perf_collected_kind = { .wanted = collects, .open = open_collected };
