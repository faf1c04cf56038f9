/* SPDX-License-Identifier: Apache-2.0 */
/* tests/cli/made_starts.h - several runs of one command whose runs are made up: how each ends is a script, what was
 * started is a list of lines. */
#ifndef TM_TESTS_CLI_MADE_STARTS_H
#define TM_TESTS_CLI_MADE_STARTS_H

#include "base/cpu.h"
#include "cli/scaling.h"
#include "cli/sweep_plan.h"
#include "support/fake_clock.h"
#include "told.h"

#include <math.h>
#include <signal.h>

/* Everything happens at one time, and no disk is waited for. */
time_t time(time_t *out)
{
    if (out) *out = FAKE_WALL_S;
    return FAKE_WALL_S;
}

int fsync(int fd)
{
    (void)fd;
    return 0;
}

/* --- runs that are made up ---------------------------------------------------------------------------------------- */

/* How a run ends; with steps it leaves a result (-1: of none). */
typedef struct {
    int         code;
    bool        nomem;
    const char *words;
    double      rate; /* tokens/s of a device */
    int         batch, steps;
    double      apart; /* of the losses, relative, from step `from` on */
    int         from;
    const char *verdict;
} made_end;

static const made_end *script; /* one after the other; after the last: the last again */
static int             n_script, started;
static int64_t         bytes_of_one; /* a plan's bytes of each sequence; 0: as run number N has N of them */
static int64_t         most_planned; /* a larger batch cannot be planned; 0: any */
static int             plans;

static inline void write_result(const char *folder, const made_end *e)
{
    tm_text  result = { 0 }, metrics = { 0 };
    tm_error err = { 0 };
    char     path[300];
    tm_text_printf(
        &result,
        "{\"format\": \"trainmark.result/1\", \"verdict\": \"%s\", \"tokens_per_second_per_device\": {\"median\": "
        "%.17g}, \"flops\": [{\"convention\": \"6n\", \"per_token\": 1}, {\"convention\": \"titan\", "
        "\"per_token\": 2e9}], \"configuration\": {\"training.global_batch_size\": %d, "
        "\"training.seq_len\": 16}, \"environment\": {\"build\": {\"commit\": \"c0ffee\"}}}\n",
        e->verdict ? e->verdict : "valid", e->rate, e->batch);
    for (int i = 1; i <= e->steps; i++)
        tm_text_printf(&metrics, "{\"step\": %d, \"loss\": %.17g, \"tokens\": %d, \"seconds\": %.17g}\n", i,
                       (4 + 1.0 / i) * (e->from && i >= e->from ? 1 + e->apart : 1), 64 + i % 3, 0.25 + i % 4 * 0.125);
    assert_int_equal(tm_folder_make(folder, &err), TM_OK);
    snprintf(path, sizeof path, "%s/result.json", folder);
    assert_int_equal(tm_file_write(path, result.data, result.length, &err), TM_OK);
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    if (e->steps > 0) assert_int_equal(tm_file_write(path, metrics.data, metrics.length, &err), TM_OK);
    snprintf(path, sizeof path, "%s/config.yaml", folder);
    assert_int_equal(tm_file_write(path, folder, strlen(folder), &err), TM_OK);
    tm_text_fini(&result);
    tm_text_fini(&metrics);
}

/* A line of what was started or planned: own words, words of this run. */
static tm_text starts;

static inline void words_of(tm_text *out, char *const *own, int n_own, char *const *more, int n)
{
    for (int i = 0; i < n_own; i++) tm_text_printf(out, "%s ", own[i]);
    for (int i = 0; i < n; i++) tm_text_printf(out, "%s%s", i || n_own ? " " : "", more[i]);
    tm_text_add(out, "\n");
}

int64_t sweep_memory(const tm_sweep_options *o)
{
    return o->memory_bytes;
}

tm_status sweep_plan_bytes(const tm_sweep_options *o, char *const *more, int n, int64_t *bytes, tm_error *err)
{
    const char *value = strchr(more[0], '=');
    int64_t     batch = value ? strtoll(value + 1, NULL, 10) : 0;
    assert_true(n > 0 && o->argc >= 0);
    plans++;
    if (bytes_of_one == 0) {
        words_of(&starts, NULL, 0, more, n);
        batch = plans;
    }
    if (most_planned > 0 && batch > most_planned)
        return tm_fail(err, TM_INVALID, "%lld are too many", (long long)batch);
    *bytes = batch * (bytes_of_one ? bytes_of_one : 1000);
    return TM_OK;
}

tm_status sweep_start(const tm_sweep_options *o, char *const *more, int n, const char *folder, const char *log,
                      child_end *end, tm_error *err)
{
    const made_end *e = &script[started < n_script ? started : n_script - 1];
    started++;
    words_of(&starts, o->argv, o->argc, more, n);
    starts.length -= 1; /* the line goes on */
    bool scratch = strstr(folder, "trainmark-batch") != NULL;
    tm_text_printf(&starts, " | %s %s\n", scratch ? "scratch" : folder, log ? log : "-");
    *end = (child_end){ .code = e->code, .nomem = e->nomem, .seconds = 1.5 * started };
    snprintf(end->words, sizeof end->words, "%s", e->words ? e->words : "");
    if (e->steps != 0) write_result(folder, e);
    return e->code == -9 ? tm_fail(err, TM_IO, "it cannot be started") : TM_OK;
}

/* --- what is asked for -------------------------------------------------------------------------------------------- */

typedef struct {
    tm_cli_options cli;
    tm_arena      *arena;
    tm_config     *config;
    char          *argv[32];
    int            argc;
} asked;

/* "--a b --c" behind `run`. */
static inline void ask(asked *a, const char *words)
{
    tm_error err = { 0 };
    *a = (asked){ .cli = { .axes = true }, .arena = tm_arena_create() };
    char *rest = tm_arena_text(a->arena, words);
    a->argv[a->argc++] = (char *)"run";
    for (char *word; (word = strsep(&rest, " "));) a->argv[a->argc++] = word;
    tm_cli_line line = { .command = &tm_command_run,
                         .name = "run",
                         .argc = a->argc,
                         .argv = a->argv,
                         .options = &a->cli,
                         .arena = a->arena };
    line.words = tm_arena_take(a->arena, 40 * sizeof *line.words);
    if (tm_cli_configure(&line, "tiny-llama", false, &a->config, &err) != TM_OK) fail_msg("%s", err.text);
}

static inline void done(asked *a)
{
    tm_config_destroy(a->config);
    tm_arena_destroy(a->arena);
}

static inline void play(const made_end *ends, int n)
{
    script = ends, n_script = n, started = plans = 0;
    starts.length = told.length = 0;
    tm_text_add(&starts, "");
    fake_clock_start(1000, 0);
}
#define PLAY(ends) play(ends, sizeof(ends) / sizeof(ends)[0])

/* The loss of a step that a run with this end wrote (write_result). */
static inline double loss_of(const made_end *e, int step)
{
    return (4 + 1.0 / step) * (e->from && step >= e->from ? 1 + e->apart : 1);
}

/* A line of `text`, from 0; the caller frees nothing. */
static inline const char *line_at(const tm_text *text, int number, char *out, size_t room)
{
    const char *at = text->data ? text->data : "";
    for (int i = 0; i < number && *at; i++) at = strchr(at, '\n') + 1;
    snprintf(out, room, "%.*s", (int)strcspn(at, "\n"), at);
    return out;
}

#endif
