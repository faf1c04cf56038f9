/* SPDX-License-Identifier: Apache-2.0 */
/* cli/watch.c - `trainmark watch`: a run that is under way, by what it has written into metrics.jsonl. */
#include "base/clock.h"
#include "base/file.h"
#include "cli/cli.h"
#include "config/yaml.h"
#include "record/panel.h"
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
    bool   once, json, plain;
} watch_options;

typedef struct {
    const char *folder;
    char       *path;
    off_t       read;                              /* bytes taken in so far: whole lines */
    int64_t     step;                              /* the last one */
    double      loss, validation, tokens, seconds; /* of it; `validation` NAN: there was none */
    tm_panel   *panel;                             /* NULL: lines are printed instead */
} watched;

static double member(const json_t *record, const char *name)
{
    const json_t *value = json_object_get(record, name);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

/* What the panel of the run itself would hear. */
static void show(tm_panel *panel, const char *kind, const json_t *record)
{
    enum { PHASES = 64 };
    const char  *name;
    json_t      *value, *phases = json_object_get(record, "phases");
    tm_named_f64 shares[PHASES];
    size_t       n = 0;
    tm_event     event = { .kind = TM_EVENT_CHECKPOINT, .checkpoint.seconds = member(record, "seconds") };
    int64_t      step = json_integer_value(json_object_get(record, "step"));
    json_object_foreach(phases, name, value)
    {
        if (n < PHASES) shares[n++] = (tm_named_f64){ name, json_number_value(value) };
    }
    if (kind && strcmp(kind, "evaluation") == 0)
        event = (tm_event){ .kind = TM_EVENT_EVALUATION,
                            .evaluation = {
                                .step = step, .loss = member(record, "loss"), .seconds = member(record, "seconds") } };
    if (!kind && step > 0)
        event = (tm_event){ .kind = TM_EVENT_STEP_DONE,
                            .step_done = { .step = step,
                                           .loss = member(record, "loss"),
                                           .tokens = json_integer_value(json_object_get(record, "tokens")),
                                           .seconds = member(record, "seconds"),
                                           .used_bytes = json_integer_value(json_object_get(record, "used_bytes")),
                                           .phases = shares,
                                           .n_phases = n } };
    tm_panel_take(panel, &event);
}

static void take(watched *w, const json_t *record)
{
    const char *event = json_string_value(json_object_get(record, "event"));
    if (w->panel) show(w->panel, event, record);
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
        tm_text_printf(out, "  %s tokens/s (last step)", tm_format_grouped(rate, (int64_t)(w->tokens / w->seconds)));
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

/* The last step is what stays. */
static void end_panel(watched *w, tm_text *out)
{
    if (!w->panel) return;
    tm_panel_destroy(w->panel);
    w->panel = NULL;
    if (w->step > 0) print_step(w, false, out);
}

static double configured(const tm_yaml *root, const char *section, const char *key)
{
    const tm_yaml *map = root ? tm_yaml_get(root, section) : NULL, *value = map ? tm_yaml_get(map, key) : NULL;
    char          *end;
    if (!value || value->kind != TM_YAML_SCALAR || !*value->text) return 0;
    double number = strtod(value->text, &end);
    return *end || !isfinite(number) ? 0 : number;
}

/* metrics.jsonl has no header: how long the run is, and what it is to reach, says its configuration. Without one the
 * panel has neither. */
static void open_panel(watched *w, tm_arena *arena)
{
    tm_text        text = { 0 };
    tm_error       own = { 0 };
    const tm_yaml *root = NULL;
    const char    *path = tm_arena_format(arena, "%s/config.yaml", w->folder);
    if (tm_file_read(path, TM_YAML_MAX_BYTES, &text, &own) == TM_OK &&
        tm_yaml_parse(arena, text.data, text.length, path, &root, &own) != TM_OK)
        root = NULL;
    w->panel = tm_panel_create(
        &(tm_panel_options){ .to = stdout, .colour = tm_terminal_colour(STDOUT_FILENO), .utf8 = tm_terminal_utf8() });
    tm_panel_take(w->panel, &(tm_event){ .kind = TM_EVENT_RUN_STARTED,
                                         .run_started = { .model = w->folder,
                                                          .first_step = 1,
                                                          .steps = (int64_t)configured(root, "training", "steps"),
                                                          .loss_floor = (double)NAN,
                                                          .loss_target = configured(root, "training", "target_loss"),
                                                          .devices = 1 } });
    tm_text_fini(&text);
}

static tm_status look(watched *w, const watch_options *o, bool *ended, tm_error *err)
{
    tm_text out = { 0 };
    bool    fresh;
    TM_TRY(take_new(w, &fresh, err));
    if (fresh && !w->panel) print_step(w, o->json, &out);
    tm_text end = { 0 };
    *ended = has_ended(w, &end);
    if (w->panel && !*ended) tm_panel_draw(w->panel, true);
    if (*ended) end_panel(w, &out);
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
    if (!o->once && !o->json && !o->plain && !line->quiet && tm_panel_stream(stdout)) open_panel(&w, line->arena);
    tm_status st = TM_OK;
    while (st == TM_OK && !ended && !tm_cli_stop) {
        st = look(&w, o, &ended, err);
        if (o->once) break;
        if (st == TM_OK && !ended) wait_seconds(o->interval);
    }
    tm_panel_destroy(w.panel);
    return st;
}

static const tm_option rows[] = {
    { "interval", 0, TM_OPTION_F64, offsetof(watch_options, interval), .value = "SECONDS", .fallback = "1", .lo = 0.05,
      .hi = 3600, .help = "seconds between two looks" },
    { "once", 0, TM_OPTION_FLAG, offsetof(watch_options, once), .help = "print the newest step and stop" },
    { "json", 0, TM_OPTION_FLAG, offsetof(watch_options, json), .help = "print each step as a line of JSON" },
    { "plain", 0, TM_OPTION_FLAG, offsetof(watch_options, plain), .help = "print lines on a terminal, too" },
};

const tm_cli_command tm_command_watch = {
    .name = "watch",
    .summary = "follow a running run",
    .words = "DIR",
    .least = 1,
    .most = 1,
    .about =
        "Shows the run that writes into DIR: on a terminal its curve, speed and time left, elsewhere a line for each "
        "new step. Prints its verdict when it has ended. Reads metrics.jsonl, and does not touch the run.",
    TM_CLI_OPTIONS(rows, watch_options),
    .run = watch,
};
