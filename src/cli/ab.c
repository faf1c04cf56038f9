/* SPDX-License-Identifier: Apache-2.0 */
/* cli/ab.c - `trainmark ab`: two programs take turns; is one of them slower? (docs/ab.md) */
#include "bench/ab.h"

#include "base/arena.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/words.h"
#include "cli/cli.h"
#include "train/turn.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char help[] =
    "usage: trainmark ab --a \"ARGS\" --b \"ARGS\" [options]\n\n"
    "Two programs take turns on this machine: is B slower than A? A third process runs A again and shows what the "
    "machine\n"
    "makes of two copies of the same thing. ARGS are arguments of `trainmark run`.\n\n"
    "  --a ARGS, --b ARGS          arguments of `trainmark run` (\"\" trains the built-in model)\n"
    "  --a-binary F, --b-binary F  another trainmark that runs them (what it must be able to do: docs/ab.md);\n"
    "                              ARGS that are left out are the other side's\n"
    "  --a-command C, --b-command C\n"
    "                              any command that prints a line per step; quotes and backslashes as in a shell, "
    "nothing\n"
    "                              is expanded\n"
    "  --step-pattern RE           which lines of the commands are steps (extended regular expression; default: all)\n"
    "  --turn SECONDS|run          length of a turn, at least 0.05 (default 0.2); run: a turn is a whole run\n"
    "  --budget SECONDS            of the whole session (default 120)\n"
    "  --target PERCENT            end when the interval's half-width is that small (default 1; 0: use up the budget)\n"
    "  --min-pairs N               but not before N pairs (default 12)\n"
    "  --least-difference PERCENT  a smaller one is none, however sure (default 0.5)\n"
    "  --seed N                    of the order of turns (default 1)\n"
    "  --out DIR                   keep every step in DIR/session.jsonl, the result in DIR/result.json\n"
    "  --from F                    judge a recorded session.jsonl again\n"
    "  --fail-if-slower PERCENT    exit code 5 if B is slower by at least that much\n"
    "  --json\n";

typedef struct {
    const char *args, *binary, *command;
} side_words;

/* The command line, and what has to be given back. */
typedef struct {
    side_words  side[2];
    const char *pattern, *turn, *budget, *target, *least_pairs, *least, *seed, *out, *from, *gate;
    bool        json;
    double      gate_percent;

    tm_arena     *arena;
    tm_ab_options options;
    tm_ab_session session;
    tm_scratch    temporary; /* folder of the runs without --out */
} job;

/* --- command line ------------------------------------------------------------------------------------------------- */

static tm_status read_words(job *j, int argc, char **argv, tm_error *err)
{
    const struct {
        const char  *flag;
        const char **field;
    } rows[] = { { "--a", &j->side[0].args },
                 { "--b", &j->side[1].args },
                 { "--a-binary", &j->side[0].binary },
                 { "--b-binary", &j->side[1].binary },
                 { "--a-command", &j->side[0].command },
                 { "--b-command", &j->side[1].command },
                 { "--step-pattern", &j->pattern },
                 { "--turn", &j->turn },
                 { "--budget", &j->budget },
                 { "--target", &j->target },
                 { "--min-pairs", &j->least_pairs },
                 { "--least-difference", &j->least },
                 { "--seed", &j->seed },
                 { "--out", &j->out },
                 { "--from", &j->from },
                 { "--fail-if-slower", &j->gate } };
    for (int i = 1; i < argc; i++) {
        size_t k = 0, n = strcspn(argv[i], "=");
        if (strcmp(argv[i], "--json") == 0) {
            j->json = true;
            continue;
        }
        while (k < sizeof rows / sizeof rows[0] && (strncmp(argv[i], rows[k].flag, n) != 0 || rows[k].flag[n])) k++;
        if (k == sizeof rows / sizeof rows[0])
            return tm_fail(err, TM_USAGE, "unknown option '%.200s'; `trainmark ab --help` lists all", argv[i]);
        if (!argv[i][n] && i + 1 == argc) return tm_fail(err, TM_USAGE, "option '%s' needs a value", rows[k].flag);
        if (*rows[k].field) return tm_fail(err, TM_USAGE, "option '%s' is given twice", rows[k].flag);
        *rows[k].field = argv[i][n] ? argv[i] + n + 1 : argv[++i];
    }
    return TM_OK;
}

static tm_status number(const char *flag, const char *text, double lo, double hi, double fallback, double *out,
                        tm_error *err)
{
    char *end;
    *out = fallback;
    if (!text) return TM_OK;
    *out = strtod(text, &end);
    if (end != text && !*end && *out >= lo && *out <= hi) return TM_OK;
    return tm_fail(err, TM_USAGE, "option '%s' must be a number from %g to %g, found '%.100s'", flag, lo, hi, text);
}

static tm_status read_numbers(job *j, tm_error *err)
{
    tm_ab_options *o = &j->options;
    double         percent, least_pairs, least, seed;
    o->whole_runs = j->turn && strcmp(j->turn, "run") == 0;
    TM_TRY(number("--turn", o->whole_runs ? NULL : j->turn, 0.05, 1e6, 0.2, &o->turn_seconds, err));
    TM_TRY(number("--budget", j->budget, 1, 1e7, 120, &o->budget_seconds, err));
    TM_TRY(number("--target", j->target, 0, 1000, 1, &percent, err));
    TM_TRY(number("--min-pairs", j->least_pairs, TM_PAIRED_UNITS, 1e6, 12, &least_pairs, err));
    TM_TRY(number("--least-difference", j->least, 0, 1000, 0.5, &least, err));
    TM_TRY(number("--seed", j->seed, 0, 9e15, 1, &seed, err));
    TM_TRY(number("--fail-if-slower", j->gate, 0, 1e6, 0, &j->gate_percent, err));
    o->target = percent / 100;
    o->least_pairs = (int64_t)least_pairs;
    o->least_difference = least / 100;
    o->seed = (uint64_t)seed;
    return TM_OK;
}

/* --- programs ----------------------------------------------------------------------------------------------------- */

/* This very program, also if its name has gone. */
static tm_status own_path(job *j, char **out, tm_error *err)
{
    char    path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0) return tm_fail(err, TM_INTERNAL, "cannot find this program's own file: %s", strerror(errno));
    *out = tm_arena_text_n(j->arena, path, (size_t)n);
    return TM_OK;
}

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
static tm_status plan_bytes(int argc, char **argv, int64_t *bytes, tm_error *err)
{
    tm_cli_options options;
    tm_config     *config;
    tm_run_options run;
    tm_device     *device = NULL;
    tm_status      st = tm_cli_configure(argc, argv, "tiny-llama", TM_CLI_DEVICE | TM_CLI_ISA, &options, &config, err);
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
    const side_words *words = &j->side[side], *other = &j->side[1 - side];
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
        TM_TRY(plan_bytes(n + 1, argv, bytes, err)); /* another binary may know other keys */
        TM_TRY(own_path(j, &path, err));
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
    const side_words *words = &j->side[side];
    const char       *flag = side ? "--b-command" : "--a-command";
    char            **argv;
    int               n;
    if (!words->command && !words->args && !words->binary)
        return tm_fail(err, TM_USAGE, "give %s: %s, %s or %s (`trainmark ab --help`)", side ? "B" : "A",
                       side ? "--b" : "--a", side ? "--b-binary" : "--a-binary", flag);
    if (!words->command) return own_program(j, side, out, bytes, err);
    if (words->args || words->binary)
        return tm_fail(err, TM_USAGE, "%s goes with neither %s nor %s-binary; give one", flag, side ? "--b" : "--a",
                       side ? "--b" : "--a");
    TM_TRY(tm_words_split(words->command, flag, j->arena, &argv, &n, err));
    if (n == 0) return tm_fail(err, TM_USAGE, "%s is empty; give a program and its arguments", flag);
    *bytes = 0; /* unknown */
    *out = (tm_ab_program){ .text = words->command, .argv = argv, .pattern = j->pattern };
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
    if (j->turn)
        return tm_fail(err, TM_NOMEM, "A, B and A again need %s at a time, %s are free; use --turn run", need_text,
                       have_text);
    tm_note("A, B and A again need %s at a time, %s are free: a turn is a whole run", need_text, have_text);
    j->options.whole_runs = true;
    return TM_OK;
}

/* --- folders and results ------------------------------------------------------------------------------------------ */

static tm_status make_folder(job *j, tm_error *err)
{
    if (j->out) {
        j->options.folder = j->out;
        return tm_folder_make(j->out, err);
    }
    TM_TRY(tm_scratch_make("trainmark-ab", &j->temporary, err));
    j->options.folder = j->temporary.path;
    return TM_OK;
}

static tm_status write_file(const job *j, const char *name, const tm_text *text, tm_error *err)
{
    tm_text path = { 0 };
    tm_text_printf(&path, "%s/%s", j->out, name);
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
    bool        folder = stat(j->from, &info) == 0 && S_ISDIR(info.st_mode);
    tm_text_printf(&path, "%s%s", j->from, folder ? "/session.jsonl" : "");
    tm_status st = tm_file_read(path.data, LIMIT, &text, err);
    if (st == TM_OK) st = tm_ab_session_parse(text.data, path.data, &j->session, err);
    tm_text_fini(&path);
    tm_text_fini(&text);
    return st;
}

static tm_status report(const job *j, tm_error *err)
{
    tm_text out = { 0 };
    (j->json ? tm_ab_print_json : tm_ab_print_text)(&j->session, &out);
    tm_status st = tm_cli_print(&out, err);
    tm_text_fini(&out);
    if (st != TM_OK || !j->gate) return st;
    tm_paired_result r = tm_ab_figures_of(&j->session).paired;
    double           slower = 100 * (r.b.ratio - 1);
    if (r.verdict == TM_PAIRED_SLOWER && slower >= j->gate_percent)
        return tm_fail(err, TM_NEGATIVE, "B is slower by %.2f %%, the limit (--fail-if-slower) is %g %%", slower,
                       j->gate_percent);
    return TM_OK;
}

static tm_status play(job *j, tm_error *err)
{
    int64_t bytes[2] = { 0 };
    TM_TRY(read_program(j, 0, &j->options.a, &bytes[0], err));
    TM_TRY(read_program(j, 1, &j->options.b, &bytes[1], err));
    if (j->pattern && j->options.a.turns && j->options.b.turns)
        return tm_fail(err, TM_USAGE, "--step-pattern is for --a-command and --b-command");
    TM_TRY(choose_turns(j, bytes[0], bytes[1], err));
    TM_TRY(make_folder(j, err));
    j->options.stop = &tm_cli_stop;
    j->options.progress = isatty(STDERR_FILENO) ? stderr : NULL;
    tm_status st = tm_ab_run(&j->options, &j->session, err);
    tm_scratch_remove(&j->temporary);
    if (j->out && (st == TM_OK || st == TM_INTERRUPTED)) {
        tm_status kept = keep(j, err);
        if (st == TM_OK) st = kept;
    }
    return st;
}

/* Is an option given that only a live session heeds? */
static bool plays(const job *j)
{
    bool any = j->pattern || j->turn || j->budget || j->target || j->least_pairs || j->least || j->seed || j->out;
    for (int side = 0; side < 2; side++)
        any = any || j->side[side].args || j->side[side].binary || j->side[side].command;
    return any;
}

tm_status tm_command_ab(int argc, char **argv, tm_error *err)
{
    if (tm_cli_wants_help(argc, argv)) return tm_cli_print_help(help, err);
    job       j = { .arena = tm_arena_create() };
    tm_status st = read_words(&j, argc, argv, err);
    if (st == TM_OK) st = read_numbers(&j, err);
    if (st == TM_OK && j.from && plays(&j))
        st = tm_fail(err, TM_USAGE, "--from judges a recorded session; it goes with --json and --fail-if-slower only");
    if (st == TM_OK) st = j.from ? load(&j, err) : play(&j, err);
    if (st == TM_OK) st = report(&j, err);
    tm_ab_session_fini(&j.session);
    tm_arena_destroy(j.arena);
    return st;
}
