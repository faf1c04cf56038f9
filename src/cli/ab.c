/* SPDX-License-Identifier: Apache-2.0 */
/* cli/ab.c - `trainmark ab`: two programs take turns; is one of them slower? (docs/ab.md) */
#include "apps/bench/ab.h"

#include "base/arena.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/program.h"
#include "base/words.h"
#include "cli/cli.h"
#include "train/run/interleave.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    const char *args, *binary, *command;
} side_words;

typedef struct {
    side_words  side[2];
    const char *pattern, *turn, *out, *from;
    double      budget, target, least, gate;
    int64_t     least_pairs, seed;
    bool        json;
} ab_options;

/* The command line, and what has to be given back. */
typedef struct {
    const tm_cli_line *line;
    const ab_options  *given;
    tm_arena          *arena;
    tm_ab_options      options;
    tm_ab_session      session;
    tm_scratch         temporary; /* folder of the runs without --out */
} job;

/* --- command line ------------------------------------------------------------------------------------------------- */

#define SIDE(which, member) offsetof(ab_options, side) + (which) * sizeof(side_words) + offsetof(side_words, member)

static const tm_option rows[] = {
    { "a", 0, TM_OPTION_TEXT, SIDE(0, args), .value = "ARGS", .may_be_empty = true,
      .help = "arguments of `trainmark run` for A; \"\" trains the built-in model" },
    { "b", 0, TM_OPTION_TEXT, SIDE(1, args), .value = "ARGS", .may_be_empty = true,
      .help = "the same for B; if left out, those of the other side" },
    { "a-binary", 0, TM_OPTION_TEXT, SIDE(0, binary), .value = "FILE",
      .help = "another build of trainmark that runs A (requirements: docs/ab.md)" },
    { "b-binary", 0, TM_OPTION_TEXT, SIDE(1, binary), .value = "FILE",
      .help = "another build of trainmark that runs B" },
    { "a-command", 0, TM_OPTION_TEXT, SIDE(0, command), .value = "COMMAND", .may_be_empty = true,
      .help = "any command that prints a line per step; quoted as in a shell" },
    { "b-command", 0, TM_OPTION_TEXT, SIDE(1, command), .value = "COMMAND", .may_be_empty = true,
      .help = "the same for B" },
    { "step-pattern", 0, TM_OPTION_TEXT, offsetof(ab_options, pattern), .value = "REGEX",
      .help = "lines of the commands that are steps (extended regular expression); default: all" },
    { "turn", 0, TM_OPTION_TEXT, offsetof(ab_options, turn), .value = "SECONDS|run",
      .help = "length of a turn (0.2; less below --budget 32); `run`: a whole run" },
    { "budget", 0, TM_OPTION_F64, offsetof(ab_options, budget), .value = "SECONDS", .fallback = "120", .lo = 1,
      .hi = 1e7, .help = "time for the whole session" },
    { "target", 0, TM_OPTION_F64, offsetof(ab_options, target), .value = "PERCENT", .fallback = "1", .lo = 0,
      .hi = 1000, .help = "end when half of the interval's width is at most this; 0: use the whole budget" },
    { "min-pairs", 0, TM_OPTION_I64, offsetof(ab_options, least_pairs), .value = "N", .fallback = "12",
      .lo = TM_PAIRED_UNITS, .hi = 1e6, .help = "pairs that are measured before --target may end the session" },
    { "least-difference", 0, TM_OPTION_F64, offsetof(ab_options, least), .value = "PERCENT", .fallback = "0.5", .lo = 0,
      .hi = 1000, .help = "a smaller difference counts as no difference, however certain it is" },
    { "seed", 0, TM_OPTION_I64, offsetof(ab_options, seed), .value = "N", .fallback = "1", .lo = 0, .hi = 9e15,
      .help = "seed of the order of turns" },
    { "out", 'o', TM_OPTION_TEXT, offsetof(ab_options, out), .value = "DIR",
      .help = "keep every step in DIR/session.jsonl and the result in DIR/result.json" },
    { "from", 0, TM_OPTION_TEXT, offsetof(ab_options, from), .value = "FILE",
      .help = "evaluate a recorded session.jsonl again" },
    { "fail-if-slower", 0, TM_OPTION_F64, offsetof(ab_options, gate), .value = "PERCENT", .lo = 0, .hi = 1e6,
      .help = "exit code 5 if B is slower by at least this, 3 if the session is too short" },
    TM_OPTION_JSON(ab_options),
};

static tm_status read_turn(job *j, tm_error *err)
{
    tm_ab_options *o = &j->options;
    const char    *text = j->given->turn;
    char          *end;
    o->turn_seconds = tm_ab_usual_turn(j->given->budget);
    o->whole_runs = text && strcmp(text, "run") == 0;
    if (!text || o->whole_runs) return TM_OK;
    o->turn_seconds = strtod(text, &end);
    if (end != text && !*end && o->turn_seconds >= 0.05 && o->turn_seconds <= 1e6) return TM_OK;
    return tm_fail(err, TM_USAGE, "option '--turn' must be a number from 0.05 to 1e6, or run; found '%.100s'", text);
}

static tm_status read_options(job *j, tm_error *err)
{
    tm_ab_options *o = &j->options;
    TM_TRY(read_turn(j, err));
    o->budget_seconds = j->given->budget;
    o->target = j->given->target / 100;
    o->least_pairs = j->given->least_pairs;
    o->least_difference = j->given->least / 100;
    o->seed = (uint64_t)j->given->seed;
    return TM_OK;
}

/* --- programs ----------------------------------------------------------------------------------------------------- */

/* Which trainmark it is; where two of them meet, the report says it. */
static tm_status name_build(job *j, const char *binary, const char *flag, const char **out, tm_error *err)
{
    tm_text   build = { 0 };
    tm_status st = tm_ab_build_read(binary, flag, &tm_cli_stop, &build, err);
    if (st == TM_OK) *out = tm_arena_text(j->arena, build.data);
    tm_text_fini(&build);
    return st;
}

/* Bytes that one process of these arguments plans, after all that can be wrong with them was told. */
static tm_status plan_bytes(job *j, int argc, char **argv, int64_t *bytes, tm_error *err)
{
    static const tm_option      side_rows[] = { TM_CLI_CONFIGURATION_ROWS };
    static const tm_cli_command side = { .name = "run",
                                         .keys = tm_cli_keys,
                                         TM_CLI_OPTIONS(side_rows, tm_cli_options) };
    tm_cli_options              options = { 0 };
    tm_cli_line                 line = {
                        .command = &side, .name = "run", .options = &options, .argc = argc, .argv = argv, .arena = j->arena
    };
    tm_config     *config;
    tm_run_options run;
    tm_device     *device = NULL;
    tm_status      st = tm_cli_configure(&line, "tiny-llama", false, &config, err);
    if (st == TM_OK) st = tm_run_options_read(config, &run, err);
    if (st == TM_OK) st = tm_cli_open_device(&options, &run, false, &device, err);
    if (st == TM_OK) {
        tm_chooser chooser = tm_device_chooser(device);
        tm_step   *step = NULL;
        st = tm_step_create(&run.step, &chooser, &step, err);
        if (st == TM_OK) *bytes = (int64_t)step->plan->arena_bytes;
        tm_step_destroy(step);
    }
    if (device) tm_device_close(device);
    tm_config_destroy(config);
    return st;
}

static tm_status own_program(job *j, int side, tm_ab_program *out, int64_t *bytes, tm_error *err)
{
    const side_words *words = &j->given->side[side], *other = &j->given->side[1 - side];
    const char       *text = words->args ? words->args : other->args, *build = NULL;
    char            **args, **argv, *path = NULL;
    int               n;
    if (!text) return tm_fail(err, TM_USAGE, "give --a or --b, the arguments of `trainmark run`");
    TM_TRY(tm_words_split(text, side ? "--b" : "--a", j->arena, &args, &n, err));
    argv = tm_arena_take(j->arena, ((size_t)n + 3) * sizeof *argv);
    argv[0] = tm_arena_text(j->arena, "ab");
    memcpy(argv + 1, args, ((size_t)n + 1) * sizeof *args);
    *bytes = 0;
    if (!words->binary) {
        TM_TRY(plan_bytes(j, n + 1, argv, bytes, err)); /* another binary may know other keys */
        char self[TM_PROGRAM_PATH];
        TM_TRY(tm_program_path(self, err));
        path = tm_arena_text(j->arena, self);
    }
    memmove(argv + 2, argv + 1, ((size_t)n + 1) * sizeof *argv);
    argv[0] = words->binary ? tm_arena_text(j->arena, words->binary) : path;
    argv[1] = tm_arena_text(j->arena, "run");
    if (words->binary || other->binary) TM_TRY(name_build(j, argv[0], side ? "--b-binary" : "--a-binary", &build, err));
    *out = (tm_ab_program){ .argv = argv,
                            .turns = true,
                            .build = build,
                            .text = tm_arena_format(j->arena, "%s run%s%s", words->binary ? words->binary : "trainmark",
                                                    *text ? " " : "", text) };
    return TM_OK;
}

static tm_status read_program(job *j, int side, tm_ab_program *out, int64_t *bytes, tm_error *err)
{
    const side_words *words = &j->given->side[side];
    const char       *flag = side ? "--b-command" : "--a-command";
    char            **argv;
    int               n;
    if (!words->command && !words->args && !words->binary)
        return tm_fail(err, TM_USAGE, "give %s: %s, %s or %s (`trainmark ab --help`)", side ? "B" : "A",
                       side ? "--b" : "--a", side ? "--b-binary" : "--a-binary", flag);
    if (!words->command) return own_program(j, side, out, bytes, err);
    if (words->args || words->binary)
        return tm_fail(err, TM_USAGE, "%s cannot be given with %s or %s-binary; give one", flag, side ? "--b" : "--a",
                       side ? "--b" : "--a");
    TM_TRY(tm_words_split(words->command, flag, j->arena, &argv, &n, err));
    if (n == 0) return tm_fail(err, TM_USAGE, "%s is empty; give a program and its arguments", flag);
    *bytes = 0; /* unknown */
    *out = (tm_ab_program){ .text = words->command, .argv = argv, .pattern = j->given->pattern };
    return TM_OK;
}

/* Three processes at a time, or one. */
static tm_status choose_turns(job *j, int64_t a_bytes, int64_t b_bytes, tm_error *err)
{
    enum { OUTSIDE_ARENA = 64 << 20 }; /* of one process; docs/memory.md */
    char    need_text[32], have_text[32];
    int64_t processes = 2 * (a_bytes > 0) + (b_bytes > 0), have = tm_memory_available_bytes("");
    int64_t need = 2 * a_bytes + b_bytes + processes * OUTSIDE_ARENA;
    if (j->options.whole_runs || have == 0 || need <= have) return TM_OK;
    tm_format_bytes(need_text, (double)need);
    tm_format_bytes(have_text, (double)have);
    if (j->given->turn)
        return tm_fail(err, TM_NOMEM, "A, B and A again need %s at a time, %s are free; use --turn run", need_text,
                       have_text);
    tm_note("A, B and A again need %s at a time, %s are free: a turn is a whole run", need_text, have_text);
    j->options.whole_runs = true;
    return TM_OK;
}

/* --- folders and results ------------------------------------------------------------------------------------------ */

static tm_status make_folder(job *j, tm_error *err)
{
    if (j->given->out) {
        j->options.folder = j->given->out;
        return tm_folder_make(j->given->out, err);
    }
    TM_TRY(tm_scratch_make("trainmark-ab", &j->temporary, err));
    j->options.folder = j->temporary.path;
    return TM_OK;
}

static tm_status write_file(const job *j, const char *name, const tm_text *text, tm_error *err)
{
    tm_text path = { 0 };
    tm_text_printf(&path, "%s/%s", j->given->out, name);
    tm_status st = tm_file_write(path.data, text->data, text->length, err);
    tm_text_fini(&path);
    return st;
}

static tm_status keep(const job *j, tm_error *err)
{
    tm_text session = { 0 }, result = { 0 };
    tm_ab_session_print(&j->session, &session);
    tm_ab_print_json(&j->session, &result);
    tm_status st = write_file(j, "session.jsonl", &session, err);
    if (st == TM_OK) st = write_file(j, "result.json", &result, err);
    tm_text_fini(&session);
    tm_text_fini(&result);
    return st;
}

static tm_status load(job *j, tm_error *err)
{
    enum { LIMIT = 1 << 30 };
    struct stat info;
    tm_text     path = { 0 }, text = { 0 };
    bool        folder = stat(j->given->from, &info) == 0 && S_ISDIR(info.st_mode);
    tm_text_printf(&path, "%s%s", j->given->from, folder ? "/session.jsonl" : "");
    tm_status st = tm_file_read(path.data, LIMIT, &text, err);
    if (st == TM_OK) st = tm_ab_session_parse(text.data, path.data, &j->session, err);
    tm_text_fini(&path);
    tm_text_fini(&text);
    return st;
}

static tm_status report(const job *j, tm_error *err)
{
    tm_text out = { 0 };
    (j->given->json ? tm_ab_print_json : tm_ab_print_text)(&j->session, &out);
    tm_status st = tm_cli_print(&out, err);
    tm_text_fini(&out);
    if (st != TM_OK || !tm_cli_given(j->line, "fail-if-slower")) return st;
    tm_paired_result r = tm_ab_figures_of(&j->session).paired;
    double           slower = 100 * (r.b.ratio - 1);
    if (r.verdict == TM_PAIRED_SLOWER && slower >= j->given->gate)
        return tm_fail(err, TM_NEGATIVE, "B is slower by %.2f %%, the limit (--fail-if-slower) is %g %%", slower,
                       j->given->gate);
    if (r.verdict == TM_PAIRED_TOO_SHORT)
        return tm_fail(err, TM_UNDECIDED, "%lld of %d rounds are too few for --fail-if-slower; give --budget %.0f",
                       (long long)r.rounds, TM_PAIRED_UNITS, ceil(tm_ab_budget_needed(&j->session)));
    return TM_OK;
}

static tm_status play(job *j, tm_error *err)
{
    int64_t bytes[2] = { 0 };
    TM_TRY(read_program(j, 0, &j->options.a, &bytes[0], err));
    TM_TRY(read_program(j, 1, &j->options.b, &bytes[1], err));
    if (j->given->pattern && j->options.a.turns && j->options.b.turns)
        return tm_fail(err, TM_USAGE, "--step-pattern is for --a-command and --b-command");
    TM_TRY(choose_turns(j, bytes[0], bytes[1], err));
    TM_TRY(make_folder(j, err));
    j->options.stop = &tm_cli_stop;
    j->options.progress = isatty(STDERR_FILENO) ? stderr : NULL;
    tm_status st = tm_ab_run(&j->options, &j->session, err);
    tm_scratch_remove(&j->temporary);
    if (j->given->out && (st == TM_OK || st == TM_INTERRUPTED)) {
        tm_status kept = keep(j, err);
        if (st == TM_OK) st = kept;
    }
    return st;
}

/* A recorded session is judged as it was measured. */
static tm_status check_from(const job *j, tm_error *err)
{
    uint64_t judging = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].name, "from") == 0 || strcmp(rows[i].name, "fail-if-slower") == 0 ||
            strcmp(rows[i].name, "json") == 0)
            judging |= (uint64_t)1 << i;
    if (!j->given->from || !(j->line->given & ~judging)) return TM_OK;
    return tm_fail(err, TM_USAGE,
                   "--from evaluates a recorded session; only --json and --fail-if-slower may be given with it");
}

static tm_status ab(tm_cli_line *line, tm_error *err)
{
    tm_cli_heed_stop();
    job       j = { .line = line, .given = line->options, .arena = line->arena };
    tm_status st = read_options(&j, err);
    if (st == TM_OK) st = check_from(&j, err);
    if (st == TM_OK) st = j.given->from ? load(&j, err) : play(&j, err);
    if (st == TM_OK) st = report(&j, err);
    tm_ab_session_fini(&j.session);
    return st;
}

const tm_cli_command tm_command_ab = {
    .name = "ab",
    .summary = "alternate two configurations, binaries or commands and test whether B is slower",
    .about = "Alternates two programs on this machine and tests whether B is slower than A. A third process runs A "
             "again and shows what "
             "difference the machine makes between two copies of the same program. A and B are given as arguments of "
             "`trainmark run`, as "
             "other binaries of trainmark, or as commands (docs/ab.md).",
    TM_CLI_OPTIONS(rows, ab_options),
    .run = ab,
};
