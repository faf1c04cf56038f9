/* SPDX-License-Identifier: Apache-2.0 */
/* cli/watch.c - `trainmark watch`: a run that is under way, by what it has written into metrics.jsonl. */
#include "base/clock.h"
#include "base/file.h"
#include "cli/cli.h"
#include "results/result.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    double interval;
    bool   once, json;
} watch_options;

typedef struct {
    const char *folder;
    char       *path;
    off_t       read;                              /* bytes taken in so far: whole lines */
    int64_t     step;                              /* the last one */
    double      loss, validation, tokens, seconds; /* of it; `validation` NAN: there was none */
} watched;

static double member(const json_t *record, const char *name)
{
    const json_t *value = json_object_get(record, name);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static void take(watched *w, const json_t *record)
{
    const char *event = json_string_value(json_object_get(record, "event"));
    if (event && strcmp(event, "evaluation") == 0) w->validation = member(record, "loss");
    if (event || !json_object_get(record, "step")) return;
    w->step = json_integer_value(json_object_get(record, "step"));
    w->loss = member(record, "loss");
    w->tokens = member(record, "tokens");
    w->seconds = member(record, "seconds");
}

static void print_step(const watched *w, bool json, tm_text *out)
{
    char rate[40];
    if (json) {
        tm_json j = { .out = out };
        tm_json_open(&j, NULL, '{');
        tm_json_i64(&j, "step", w->step);
        tm_json_f64(&j, "loss", w->loss);
        tm_json_f64(&j, "validation", w->validation);
        tm_json_f64(&j, "tokens_per_second", w->tokens / w->seconds);
        tm_json_close(&j, '}');
        tm_text_add(out, "\n");
        return;
    }
    tm_text_printf(out, "step %lld  loss %.5f", (long long)w->step, w->loss);
    if (isfinite(w->validation)) tm_text_printf(out, "  validation %.5f", w->validation);
    if (w->seconds > 0)
        tm_text_printf(out, "  %s tokens/s", tm_format_grouped(rate, (int64_t)(w->tokens / w->seconds)));
    tm_text_add(out, "\n");
}

/* Takes in the lines that were added; a file that got shorter is of a new run. *fresh: is there a new step? */
static tm_status take_new(watched *w, bool *fresh, tm_error *err)
{
    char    part[65536];
    int64_t before = w->step;
    int     fd = open(w->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *fresh = false;
    if (fd < 0)
        return errno == ENOENT ? TM_OK : tm_fail(err, TM_INVALID, "cannot open '%s': %s", w->path, strerror(errno));
    tm_text text = { 0 };
    if (lseek(fd, 0, SEEK_END) < w->read) w->read = 0;
    ssize_t n;
    while ((n = pread(fd, part, sizeof part, w->read + (off_t)text.length)) > 0) tm_text_add_n(&text, part, (size_t)n);
    close(fd);
    for (const char *at = text.data, *end; at && (end = strchr(at, '\n')); at = end + 1) {
        json_t *record = json_loadb(at, (size_t)(end - at), 0, NULL);
        take(w, record);
        json_decref(record);
        w->read += end + 1 - at;
    }
    tm_text_fini(&text);
    *fresh = w->step != before;
    return TM_OK;
}

/* The verdict of the run that has ended; false: it has not. */
static bool has_ended(const watched *w, tm_text *out)
{
    tm_result *result;
    tm_error   own = { 0 };
    if (tm_result_load(w->folder, NULL, &result, &own) != TM_OK) return false;
    tm_text_printf(out, "ended: %s: %s\n", tm_result_shown(result, "verdict"), tm_result_shown(result, "reason"));
    tm_result_destroy(result);
    return true;
}

static tm_status look(watched *w, const watch_options *o, bool *ended, tm_error *err)
{
    tm_text out = { 0 };
    bool    fresh;
    TM_TRY(take_new(w, &fresh, err));
    if (fresh) print_step(w, o->json, &out);
    tm_text end = { 0 };
    *ended = has_ended(w, &end);
    if (*ended && !o->json) tm_text_add(&out, end.data);
    if (o->once && !fresh && !*ended) tm_text_add(&out, o->json ? "{}\n" : "no step yet\n");
    tm_status st = tm_cli_print(&out, err);
    tm_text_fini(&end);
    tm_text_fini(&out);
    return st;
}

/* Ends early at a signal, also at one that comes before the first look at it. */
static void wait_seconds(double seconds)
{
    const int64_t slice = 50000000, end = tm_now_ns() + (int64_t)(seconds * 1e9);
    for (int64_t left; !tm_cli_stop && (left = end - tm_now_ns()) > 0;)
        nanosleep(&(struct timespec){ .tv_nsec = left < slice ? left : slice }, NULL);
}

static tm_status watch(tm_cli_line *line, tm_error *err)
{
    tm_cli_heed_stop();
    const watch_options *o = line->options;
    watched              w = { .folder = line->words[0], .validation = (double)NAN };
    bool                 ended = false;
    w.path = tm_arena_format(line->arena, "%s/metrics.jsonl", w.folder);
    if (!tm_file_exists(w.folder))
        return tm_fail(err, TM_INVALID, "there is no directory '%.300s'; name a run directory", w.folder);
    while (!ended && !tm_cli_stop) {
        TM_TRY(look(&w, o, &ended, err));
        if (o->once) return TM_OK;
        if (!ended) wait_seconds(o->interval);
    }
    return TM_OK;
}

static const tm_option rows[] = {
    { "interval", 0, TM_OPTION_F64, offsetof(watch_options, interval), .value = "SECONDS", .fallback = "1", .lo = 0.05,
      .hi = 3600, .help = "seconds between two looks" },
    { "once", 0, TM_OPTION_FLAG, offsetof(watch_options, once), .help = "print the newest step and stop" },
    { "json", 0, TM_OPTION_FLAG, offsetof(watch_options, json), .help = "print each step as a line of JSON" },
};

const tm_cli_command tm_command_watch = {
    .name = "watch",
    .summary = "follow a running run",
    .words = "DIR",
    .least = 1,
    .most = 1,
    .about = "Prints each new step of the run that writes into DIR, and its verdict when it has "
             "ended; reads metrics.jsonl, and does not touch the run.",
    TM_CLI_OPTIONS(rows, watch_options),
    .run = watch,
};
