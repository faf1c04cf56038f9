/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/mlperf_repeat.h"

#include "base/again.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/process.h"
#include "base/program.h"
#include "cli/child.h"
#include "cli/cli.h"
#include "apps/mlperf/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_RUNS = 10000, TEXT_LIMIT = 1 << 20 };

/* --- the command line ------------------------------------------------------------------------ */

static tm_status read_number(const char *name, const char *text, int64_t least, int64_t most, int64_t *out,
                             tm_error *err)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (!*text || *end || errno || value < least || value > most)
        return tm_fail(err, TM_USAGE, "%s must be a whole number from %lld to %lld, found '%.40s'", name,
                       (long long)least, (long long)most, text);
    *out = value;
    return TM_OK;
}

static tm_status read_variables(const tm_cli_line *line, tm_repeat *r, tm_error *err)
{
    const char *runs = getenv("NEXP"), *seed = getenv("SEED"), *folder = getenv("LOGDIR");
    r->seeded = tm_cli_given(line, "seed");
    if (runs && *runs && !tm_cli_given(line, "runs")) TM_TRY(read_number("NEXP", runs, 1, MOST_RUNS, &r->runs, err));
    if (seed && *seed && !r->seeded) {
        TM_TRY(read_number("SEED", seed, 0, INT32_MAX, &r->seed, err));
        r->seeded = true;
    }
    if (folder && *folder && !r->folder) r->folder = folder;
    return TM_OK;
}

/* What the runs are told by this command, and may not be told otherwise. */
static bool is_ours(const char *word)
{
    static const char *const ours[] = { "--debug.seed", "--mlperf.log", "--mlperf.enable", "--seed_" };
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (strncmp(word, ours[i], strlen(ours[i])) == 0) return true;
    return false;
}

tm_status tm_repeat_read(tm_cli_line *line, tm_repeat **out, tm_error *err)
{
    tm_repeat *r = *out = line->options;
    r->words = line->words;
    r->n = line->n_words;
    TM_TRY(tm_ruleset_find(r->ruleset_name, &r->ruleset, err));
    TM_TRY(read_variables(line, r, err));
    for (int i = 0; i < r->n; i++)
        if (is_ours(r->words[i]))
            return tm_fail(err, TM_USAGE, "'%.80s' is set by `%s` itself; leave it out", r->words[i], line->name);
    if (!r->folder && !r->dry_run)
        return tm_fail(err, TM_USAGE, "missing --out DIR (or the variable LOGDIR), the directory for the logs");
    return r->n > 0
               ? TM_OK
               : tm_fail(err, TM_USAGE, "missing FILE, the configuration to train; `trainmark %s FILE.yaml --out DIR`",
                         line->name);
}

/* --- one run --------------------------------------------------------------------------------- */

/* The last run_stop of a whole log: its metadata. NULL: the log has none. */
static const tm_json_value *run_stop_of(const tm_mllog *log)
{
    size_t                 n;
    const tm_mllog_record *records = tm_mllog_records(log, &n);
    for (size_t i = n; i-- > 0;)
        if (records[i].state == TM_MLLOG_GOOD && strcmp(records[i].key, "run_stop") == 0) return records[i].metadata;
    return NULL;
}

static int64_t seed_of(const tm_repeat *r, int64_t run)
{
    uint32_t random;
    if (r->seeded) return r->seed + run;
    TM_ASSERT(getrandom(&random, sizeof random, 0) == (ssize_t)sizeof random);
    return random >> 1;
}

tm_status tm_repeat_program(tm_arena *arena, char **out, tm_error *err)
{
    char self[TM_PROGRAM_PATH];
    TM_TRY(tm_program_path(self, err));
    *out = tm_arena_text(arena, self);
    return TM_OK;
}

static char *ranks_word(const tm_repeat *r, const char *name, tm_arena *arena)
{
    return tm_arena_format(arena, "%s=%lld", name, (long long)r->ranks);
}

static tm_status start(const tm_repeat *r, const char *model, int64_t seed, const char *folder, const char *log,
                       tm_arena *arena, tm_process **out, tm_error *err)
{
    char **argv = tm_arena_take(arena, (size_t)(r->n + 13) * sizeof *argv);
    int    n = 0;
    TM_TRY(tm_repeat_program(arena, &argv[n++], err));
    argv[n++] = tm_arena_text(arena, "run");
    for (int i = 0; i < r->n; i++) argv[n++] = r->words[i];
    if (r->ranks > 1) argv[n++] = ranks_word(r, "--ranks", arena);
    if (model) argv[n++] = tm_arena_format(arena, "--model.hf_assets_path=%s", model);
    argv[n++] = tm_arena_format(arena, "--debug.seed=%lld", (long long)seed);
    argv[n++] = tm_arena_text(arena, "--mlperf.enable=true");
    argv[n++] = tm_arena_format(arena, "--mlperf.log=%s", log);
    argv[n++] = tm_arena_text(arena, "--out");
    argv[n++] = tm_arena_text(arena, folder);
    tm_cli_heed_stop();
    return tm_process_start(&(tm_process_options){ .argv = argv }, out, err);
}

tm_status tm_repeat_tell(const tm_repeat *r, const tm_text *line, tm_error *err)
{
    if (!r->json) return tm_cli_print(line, err);
    fputs(line->data, stderr);
    return TM_OK;
}

tm_status tm_repeat_status(int exit_code)
{
    return exit_code == 2 ? TM_USAGE : exit_code == 4 ? TM_INVALID : exit_code == 130 ? TM_INTERRUPTED : TM_INTERNAL;
}

static tm_status take_result(const char *log, const char *result, tm_text *line, bool *whole, tm_error *err)
{
    tm_mllog *read;
    TM_TRY(tm_mllog_read(log, &read, err));
    const tm_json_value *stop = run_stop_of(read);
    *whole = stop != NULL;
    if (stop) {
        const tm_json_value *state = tm_json_member(stop, "status"), *samples = tm_json_member(stop, "samples_count");
        tm_text_printf(line, "%s", state && state->kind == TM_JSON_TEXT ? state->text : "no status");
        if (samples && samples->kind == TM_JSON_NUMBER) tm_text_printf(line, ", %.0f samples", samples->number);
    }
    tm_mllog_free(read);
    if (*whole && tm_again_rename(AT_FDCWD, log, result) != 0)
        return tm_fail(err, TM_IO, "cannot rename '%s' to '%s': %s", log, result, strerror(errno));
    return TM_OK;
}

static tm_status train(const tm_repeat *r, const char *model, int64_t run, const char *result, tm_arena *arena,
                       tm_error *err)
{
    const char *folder = tm_arena_format(arena, "%s/runs/run_%lld", r->folder, (long long)run);
    char       *absolute = realpath(r->folder, NULL);
    if (!absolute) return tm_fail(err, TM_IO, "cannot find '%s': %s", r->folder, strerror(errno));
    const char *log = tm_arena_format(arena, "%s/runs/run_%lld.txt", absolute, (long long)run);
    free(absolute);
    tm_process *process;
    int         status = 0;
    int64_t     seed = seed_of(r, run), begin = tm_now_ns();
    TM_TRY(start(r, model, seed, folder, log, arena, &process, err));
    tm_status st = child_wait(process, &status, err);
    tm_text   line = { 0 };
    bool      whole = false;
    int       code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    tm_text_printf(&line, "run %lld of %lld: seed %lld, ", (long long)run + 1, (long long)r->runs, (long long)seed);
    if (st == TM_OK && (code == 0 || code == 3 || code == 5)) st = take_result(log, result, &line, &whole, err);
    if (st == TM_OK && !whole) {
        char text[64];
        st = tm_fail(err, tm_repeat_status(code), "run %lld ended with %s:\n%s", (long long)run + 1,
                     tm_process_status_text(status, text), tm_process_last_words(process));
    }
    tm_text_printf(&line, ", %.1f s in all\n", (double)(tm_now_ns() - begin) * 1e-9);
    tm_process_close(process, 10);
    if (st == TM_OK) st = tm_repeat_tell(r, &line, err);
    tm_text_fini(&line);
    return st;
}

tm_status tm_repeat_plan(const tm_repeat *r, tm_arena *arena, tm_error *err)
{
    char **argv = tm_arena_take(arena, (size_t)(r->n + 6) * sizeof *argv);
    int    n = 0;
    argv[n++] = tm_arena_text(arena, "run");
    for (int i = 0; i < r->n; i++) argv[n++] = r->words[i];
    if (r->ranks > 1) argv[n++] = ranks_word(r, "--parallelism.ranks", arena);
    argv[n++] = tm_arena_text(arena, "--mlperf.enable=true");
    argv[n++] = tm_arena_text(arena, "--dry-run");
    if (r->json) argv[n++] = tm_arena_text(arena, "--json");
    argv[n] = NULL;
    return tm_cli_call(&tm_command_run, "run", n, argv, err);
}

/* --- all runs -------------------------------------------------------------------------------- */

/* The folder belongs to one command: runs of another would be counted as the same result. */
static tm_status claim(const tm_repeat *r, tm_arena *arena, tm_error *err)
{
    tm_text     words = { 0 }, there = { 0 };
    const char *path = tm_arena_format(arena, "%s/runs/command.txt", r->folder);
    for (int i = 0; i < r->n; i++) tm_text_printf(&words, "%s\n", r->words[i]);
    if (r->ranks > 1) tm_text_printf(&words, "%s\n", ranks_word(r, "--ranks", arena));
    TM_TRY(tm_folder_make(r->folder, err));
    tm_status st = tm_folder_make(tm_arena_format(arena, "%s/runs", r->folder), err);
    if (st == TM_OK && !tm_file_exists(path)) {
        st = tm_file_write(path, words.data, words.length, err);
    } else if (st == TM_OK) {
        st = tm_file_read(path, TEXT_LIMIT, &there, err);
        if (st == TM_OK && (there.length != words.length || memcmp(there.data, words.data, words.length) != 0))
            st = tm_fail(err, TM_INVALID, "'%s' holds runs of another command (%s); name another directory", r->folder,
                         path);
    }
    tm_text_fini(&words);
    tm_text_fini(&there);
    return st;
}

static bool is_done(const tm_mllog_folder *folder, int64_t run)
{
    for (size_t i = 0; i < folder->n; i++)
        if (folder->files[i].number == run) return true;
    return false;
}

/* What the program of a run complained of, without its name and the kind, as if it were said here: lines behind the
 * first are indented once. */
static tm_status take_words(int code, const char *said, tm_error *err)
{
    const char *kind = strstr(said, "trainmark: "), *words = kind ? strstr(kind + 11, ": ") : NULL;
    tm_text     text = { 0 };
    for (words = words ? words + 2 : said; *words; words++) {
        tm_text_add_n(&text, words, 1);
        if (strncmp(words, "\n  ", 3) == 0) words += 2;
    }
    tm_status st = tm_fail(err, tm_repeat_status(code), "%s", text.data);
    tm_text_fini(&text);
    return st;
}

/* Before anything is written: is the command one that `run` takes? */
static tm_status try_words(const tm_repeat *r, tm_arena *arena, tm_error *err)
{
    char    **argv = tm_arena_take(arena, (size_t)(r->n + 6) * sizeof *argv);
    tm_text   output = { 0 };
    child_end end;
    int       n = 0;
    TM_TRY(tm_repeat_program(arena, &argv[n++], err));
    argv[n++] = tm_arena_text(arena, "run");
    for (int i = 0; i < r->n; i++) argv[n++] = r->words[i];
    argv[n++] = tm_arena_text(arena, "--mlperf.enable=true");
    argv[n++] = tm_arena_text(arena, "--print-config");
    argv[n] = NULL;
    tm_status st = child_run(argv, &output, &end, err);
    tm_text_fini(&output);
    if (st == TM_OK && end.code != 0) st = take_words(end.code, end.words, err);
    return st;
}

tm_status tm_repeat_run(const tm_repeat *r, tm_error *err)
{
    tm_arena   *arena = tm_arena_create();
    const char *model = NULL;
    tm_status   st = tm_file_exists(r->folder) ? TM_OK : try_words(r, arena, err);
    if (st == TM_OK) st = claim(r, arena, err);
    if (st == TM_OK) st = tm_repeat_make_base(r, arena, &model, err);
    for (int64_t run = 0; st == TM_OK && run < r->runs; run++) {
        tm_mllog_folder folder;
        st = tm_mllog_folder_list(r->folder, &folder, err);
        bool done = st == TM_OK && is_done(&folder, run);
        tm_mllog_folder_fini(&folder);
        if (done) {
            tm_text line = { 0 };
            tm_text_printf(&line, "run %lld of %lld: done already\n", (long long)run + 1, (long long)r->runs);
            st = tm_repeat_tell(r, &line, err);
            tm_text_fini(&line);
            continue;
        }
        if (st == TM_OK)
            st = train(r, model, run, tm_arena_format(arena, "%s/result_%lld.txt", r->folder, (long long)run), arena,
                       err);
    }
    tm_arena_destroy(arena);
    return st;
}
