/* SPDX-License-Identifier: Apache-2.0 */
/* record/console.c - the step lines, the panel below them (record/panel.h), and the report at the end. */
#include "base/log.h"
#include "base/file.h"
#include "base/plain.h"
#include "base/text.h"
#include "record/panel.h"
#include "record/record.h"
#include "record/report.h"
#include "record/sink.h"
#include "record/sink_kind.h"
#include "stats/sampling.h"
#include "stats/stragglers.h"
#include "record/step_line.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    tm_sink            head;
    tm_console_options options;
    run_record         run;
    tm_text            text, plain; /* reused: as put together, and as printed */
    double             tokens;      /* since the last line */
    double             seconds;
    int64_t            steps;
    double             later_tokens, later_seconds; /* from the third step of this process on */
    int64_t            later_steps, nan_steps;
    tm_panel          *panel;  /* NULL: there is none */
    bool               unread; /* the pipe that is written to has no reader */
    bool               above;  /* lines go to the terminal that the panel is on, with its frames */
} console_sink;

enum { AVERAGE_SKIPS = 2 };

/* --- lines ----------------------------------------------------------------------------------- */

static void print_text(console_sink *self)
{
    self->plain.length = 0;
    tm_plain_add(&self->plain, self->text.data, TM_PLAIN_LINES | (self->options.colour ? TM_PLAIN_COLOURS : 0));
    if (self->above) tm_panel_above(self->panel, self->plain.data);
    bool failed =
        !self->above && fwrite(self->plain.data, 1, self->plain.length, self->options.out) != self->plain.length;
    failed |= fflush(self->options.out) != 0;
    if (failed && errno == EPIPE) { /* `| head` has seen enough */
        if (!self->unread) tm_note("nobody reads the output any more; the run goes on");
        self->unread = true;
    } else if (failed)
        (void)tm_fail(&self->head.error, TM_IO, "cannot write to the output: %s", strerror(errno));
    if (!self->options.closes) { /* log.file has these lines, too: once is enough */
        self->plain.length = 0;
        tm_plain_add(&self->plain, self->text.data, TM_PLAIN_LINES);
        tm_log_record(TM_LOG_INFO, self->plain.data);
    }
    self->text.length = 0;
}

static line_figures figures_of(const console_sink *self, const tm_step_done *step)
{
    double                none = (double)NAN;
    const tm_run_started *start = &self->run.start;
    line_figures          f = {
                 .step = step->step,
                 .steps = start->steps,
                 .loss = step->loss,
                 .grad_norm = step->grad_norm,
                 .learning_rate = step->learning_rate,
                 .used_bytes = step->used_bytes,
                 .limit_bytes = start->memory_limit_bytes,
                 .tokens_per_second = self->seconds > 0 ? self->tokens / self->seconds : none,
                 .flops_per_token = start->n_flops_per_token > 0 ? start->flops_per_token[0].value : 0,
                 .peak_flops = start->peak_flops,
                 .step_seconds = self->steps > 0 ? self->seconds / (double)self->steps : none,
                 .sequences = start->recipe.global_batch,
                 .samples = start->first_sample + (step->step - start->first_step + 1) * start->recipe.global_batch,
                 .nan_steps = self->nan_steps,
    };
    bool later = self->later_steps > 0;
    f.tokens_per_second_average = later ? self->later_tokens / self->later_seconds : f.tokens_per_second;
    f.step_seconds_average = later ? self->later_seconds / (double)self->later_steps : f.step_seconds;
    time_t    now = time(NULL);
    struct tm local;
    localtime_r(&now, &local);
    strftime(f.date, sizeof f.date, "%Y-%m-%d %H:%M:%S", &local);
    return f;
}

static void on_start(console_sink *self)
{
    if (self->options.quiet) return;
    line_peak(&self->text, self->run.start.peak_flops);
    print_text(self);
}

static void on_step(console_sink *self, const tm_step_done *step)
{
    self->tokens += (double)step->tokens;
    self->seconds += step->seconds;
    self->steps++;
    self->nan_steps += !isfinite(step->loss) || !isfinite(step->grad_norm);
    if (self->run.steps > AVERAGE_SKIPS) {
        self->later_tokens += (double)step->tokens;
        self->later_seconds += step->seconds;
        self->later_steps++;
    }
    bool told = self->run.steps == 1 || step->step % self->options.log_freq == 0 || step->step == self->run.start.steps;
    if (told && !self->options.quiet) {
        line_figures figures = figures_of(self, step);
        if (self->options.style == TM_LOG_STYLE_MEGATRON)
            line_megatron(&self->text, &figures);
        else
            line_torchtitan(&self->text, &figures, self->options.colour);
        print_text(self);
        self->tokens = self->seconds = 0;
        self->steps = 0;
    }
}

static void on_evaluation(console_sink *self, const tm_evaluation *evaluation)
{
    if (self->options.quiet) return;
    line_figures figures = figures_of(self, &self->run.last);
    figures.step = evaluation->step;
    figures.loss = evaluation->loss;
    figures.tokens_per_second =
        evaluation->seconds > 0 ? (double)evaluation->tokens / evaluation->seconds : (double)NAN;
    line_validation(&self->text, &figures, self->options.colour);
    print_text(self);
}

/* A rank whose processor does other work is no fault of the machine. */
static void on_straggler(const tm_straggler *straggler)
{
    char text[TM_STRAGGLER_TEXT];
    tm_straggler_text(straggler, text);
    if (straggler->disturbed)
        tm_note("%s", text);
    else
        tm_warn("%s", text);
}

/* The report follows, and is all that stays. */
static void end_panel(console_sink *self)
{
    if (!self->panel) return;
    tm_log_set_outlet(NULL, NULL);
    tm_panel_destroy(self->panel);
    self->panel = NULL;
    self->above = false;
}

static void on_end(console_sink *self, const tm_run_ended *end)
{
    end_panel(self);
    report_print(&self->text, &self->run, end, self->options.verbose, self->options.colour);
    if (end->verdict != TM_VERDICT_INVALID && !end->interrupted && isfinite(end->speed->median_rate))
        line_performance(&self->text, end->speed->median_rate * self->run.start.devices, "tokens_per_second");
    print_text(self);
}

static void handle(tm_sink *sink, const tm_event *event)
{
    console_sink *self = (console_sink *)sink;
    run_record_add(&self->run, event);
    if (self->panel) tm_panel_take(self->panel, event);
    switch (event->kind) {
    case TM_EVENT_RUN_STARTED:
        on_start(self);
        break;
    case TM_EVENT_STEP_DONE:
        on_step(self, &event->step_done);
        break;
    case TM_EVENT_EVALUATION:
        on_evaluation(self, &event->evaluation);
        if (self->panel) tm_panel_draw(self->panel, true);
        break;
    case TM_EVENT_BETWEEN_STEPS:
        if (self->panel) tm_panel_draw(self->panel, false);
        break;
    case TM_EVENT_EVALUATION_STARTED:
        if (self->panel) tm_panel_draw(self->panel, true); /* what comes takes long */
        break;
    case TM_EVENT_PICTURE:
    case TM_EVENT_CHECKPOINT:
    case TM_EVENT_LOOK:
    case TM_EVENT_QUANTIZED:
    case TM_EVENT_REPLAYED: /* a difference is a warning at once, and in the verdict */
        break;
    case TM_EVENT_STRAGGLER:
        on_straggler(&event->straggler);
        break;
    case TM_EVENT_RUN_ENDED:
        on_end(self, &event->run_ended);
        break;
    }
}

static void finish(tm_sink *head)
{
    console_sink *self = (console_sink *)head;
    end_panel(self);
    if (self->options.closes && fclose(self->options.out) != 0)
        (void)tm_fail(&self->head.error, TM_IO, "cannot write log.file: %s", strerror(errno));
    run_record_fini(&self->run);
    tm_text_fini(&self->text);
    tm_text_fini(&self->plain);
}

tm_console_options tm_console_options_default(void)
{
    return (tm_console_options){ .panel = tm_panel_stream(stderr),
                                 .colour = tm_terminal_colour(STDOUT_FILENO),
                                 .panel_colour = tm_terminal_colour(STDERR_FILENO),
                                 .utf8 = tm_terminal_utf8(),
                                 .log_freq = 10 };
}

static void show_message(void *context, const char *lines)
{
    tm_panel_above(context, lines);
    tm_panel_draw(context, true);
}

static void open_panel(console_sink *self)
{
    const tm_console_options *o = &self->options;
    if (!o->panel) return;
    self->panel = tm_panel_create(
        &(tm_panel_options){ .to = o->panel, .colour = o->panel_colour, .utf8 = o->utf8, .size = o->panel_size });
    self->above = o->panel == o->out || tm_terminal_same(fileno(o->panel), fileno(o->out));
    self->head.between = true;
    tm_log_set_outlet(show_message, self->panel);
}

tm_status tm_console_sink_open(const tm_console_options *options, tm_sink **out, tm_error *err)
{
    if (options->log_freq < 1)
        return tm_fail(err, TM_INVALID, "metrics.log_freq is %lld; it must be at least 1",
                       (long long)options->log_freq);
    console_sink *self = tm_alloc(sizeof *self);
    *self = (console_sink){ .head = { .handle = handle, .close = finish }, .options = *options };
    if (!self->options.out) self->options.out = stdout;
    run_record_init(&self->run);
    record_text_reserve(&self->text, 16384);
    record_text_reserve(&self->plain, 16384);
    open_panel(self);
    *out = &self->head;
    return TM_OK;
}

/* --- outputs of a run --------------------------------------------------------------------------------------------- */

static tm_console_options options_of(const tm_output_options *o)
{
    const tm_config   *c = o->config;
    tm_console_options console = tm_console_options_default();
    console.log_freq = tm_config_i64(c, "metrics.log_freq");
    if (strcmp(tm_config_text(c, "metrics.log_style"), "megatron") == 0) console.style = TM_LOG_STYLE_MEGATRON;
    if (!tm_config_bool(c, "log.color") || tm_config_bool(c, "metrics.disable_color_printing"))
        console.colour = console.panel_colour = false;
    if (!tm_config_bool(c, "log.panel")) console.panel = NULL;
    return console;
}

static tm_status open_console(const tm_output_options *o, const char *path, tm_arena *arena, tm_sink **out,
                              tm_error *err)
{
    (void)path;
    (void)arena;
    tm_console_options console = options_of(o);
    console.quiet = o->quiet;
    console.verbose = o->verbose;
    if (o->quiet) console.panel = NULL;
    return tm_console_sink_open(&console, out, err);
}

/* With --json standard output holds result.json and nothing else. */
static bool talks(const tm_output_options *o)
{
    return !o->json;
}

const record_sink_kind record_console_kind = { .wanted = talks, .open = open_console };

static bool logged(const tm_output_options *o)
{
    const char *path = tm_config_text(o->config, "log.file");
    return path && *path;
}

/* log.file: the same lines, and every table of the report. */
static tm_status open_log(const tm_output_options *o, const char *path, tm_arena *arena, tm_sink **out, tm_error *err)
{
    (void)path;
    (void)arena;
    const char        *name = tm_config_text(o->config, "log.file");
    tm_console_options console = options_of(o);
    console.panel = NULL;
    console.colour = false;
    console.closes = console.verbose = true;
    tm_error why = { 0 };
    int      fd = -1;
    if (tm_file_open_append(name, &fd, &why) != TM_OK || !(console.out = fdopen(fd, "a")))
        return tm_fail(err, TM_INVALID, "cannot append to '%s' (log.file, %s): %s; name another file", name,
                       tm_config_place(o->config, "log.file"), why.text);
    return tm_console_sink_open(&console, out, err);
}

const record_sink_kind record_log_kind = { .wanted = logged, .open = open_log };
