/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines of a made-up command with an option of every kind: what it gets of them, what is refused, its help, to
 * the letter: tests/golden/whole-parse.txt. */
#include "base/log.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "support/whole.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/test.h"

typedef struct {
    bool        flag, other;
    const char *text, *empty, *choice;
    tm_cli_list list;
    int64_t     whole, any, bytes;
    double      number;
} options;

static const tm_option rows[] = {
    { "flag", 'f', TM_OPTION_FLAG, offsetof(options, flag), .help = "a flag" },
    { "other-flag", 0, TM_OPTION_FLAG, offsetof(options, other), .help = "another" },
    { "text", 't', TM_OPTION_TEXT, offsetof(options, text), .value = "WORD", .required = true,
      .help = "a text that must be there; it is so long to explain that the line has to be filled up to the margin on "
              "the right, and goes on in the next one, which begins below it" },
    { "maybe-empty", 0, TM_OPTION_TEXT, offsetof(options, empty), .value = "WORD", .may_be_empty = true,
      .help = "a text that may be empty" },
    { "choice", 'c', TM_OPTION_CHOICE, offsetof(options, choice), .value = "NAME", .choices = "alpha|beta|gamma-ray",
      .fallback = "beta", .help = "one of these" },
    { "list", 'l', TM_OPTION_LIST, offsetof(options, list), .value = "ITEM", .help = "several" },
    { "whole", 'w', TM_OPTION_I64, offsetof(options, whole), .value = "N", .fallback = "7", .lo = -2, .hi = 9,
      .help = "a whole number" },
    { "any-number-that-is-whole", 0, TM_OPTION_I64, offsetof(options, any), .value = "N", .help = "any whole number" },
    { "number", 'n', TM_OPTION_F64, offsetof(options, number), .value = "X", .lo = 0.5, .hi = 1e6, .help = "a number" },
    { "bytes", 'b', TM_OPTION_BYTES, offsetof(options, bytes), .value = "SIZE", .help = "a size" },
};

/* Standard error in a file of its own, from begin to end; what was written there. */
static FILE *captured;
static int   kept;

static void begin_capture(void)
{
    captured = tmpfile();
    kept = dup(STDERR_FILENO);
    assert_true(captured && kept >= 0);
    fflush(stderr);
    dup2(fileno(captured), STDERR_FILENO);
}

static void end_capture(tm_text *out)
{
    char seen[2048];
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    rewind(captured);
    tm_text_add_n(out, seen, fread(seen, 1, sizeof seen, captured));
    fclose(captured);
}

/* A message of each level. */
static void complain(void)
{
    for (int level = TM_LOG_DEBUG; level <= TM_LOG_ERROR; level++) tm_log((tm_log_level)level, "level %d", level);
}

static tm_text *told;

static tm_status tell(tm_cli_line *line, tm_error *err)
{
    static const options none;
    const options       *o = line->command->options ? line->options : &none; /* without rows there is no room */
    char                 number[32];
    (void)err;
    tm_text_printf(told, "%s: %s%s text '%s' empty '%s' choice '%s' list", line->name, o->flag ? "flag " : "",
                   o->other ? "other " : "", o->text ? o->text : "-", o->empty ? o->empty : "-",
                   o->choice ? o->choice : "-");
    for (int i = 0; i < o->list.n; i++) tm_text_printf(told, " %s", o->list.item[i]);
    tm_text_printf(told, " whole %lld any %lld bytes %lld number %s%s%s; given", (long long)o->whole, (long long)o->any,
                   (long long)o->bytes, tm_format_double(number, o->number), line->quiet ? " quiet" : "",
                   line->verbose ? " verbose" : "");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && line->command->options; i++)
        if (tm_cli_given(line, rows[i].name)) tm_text_printf(told, " %s", rows[i].name);
    tm_text_add(told, "; words");
    for (int i = 0; i < line->n_words; i++) tm_text_printf(told, " '%s'", line->words[i]);
    tm_text_add(told, "\n");
    complain();
    return TM_OK;
}

static const tm_cli_command plain = {
    .name = "plain", .summary = "a command without options", .words = "A B", .least = 2, .most = 3, .run = tell
};
static const tm_cli_command        passing = { .name = "passing",
                                               .summary = "passes words on",
                                               .words = "[WORD...]",
                                               .most = -1,
                                               .passes = true,
                                               TM_CLI_OPTIONS(rows, options),
                                               .run = tell };
static const tm_cli_command *const below[] = { &plain, &passing, NULL };
static const tm_cli_command        nests = { .name = "nests", .summary = "only commands", .commands = below };
static const tm_cli_command        command = { .name = "whole",
                                               .summary = "a command with everything",
                                               .words = "WORD",
                                               .least = 1,
                                               .most = 2,
                                               .about = "First paragraph, that is long enough to be filled into more than one "
                                                               "line of the width that help has, as all are.\n\n  as it is:   two\n"
                                                               "Last.",
                                               TM_CLI_OPTIONS(rows, options),
                                               .run = tell };

/* Of words between blanks; '' is an empty one. */
static void call(const tm_cli_command *c, const char *words, tm_text *out)
{
    char     copy[2048], *argv[80], *rest = copy;
    int      argc = 0;
    tm_error err = { 0 };
    snprintf(copy, sizeof copy, "%s %s", c->name, words);
    for (char *word; argc < 79 && (word = strsep(&rest, " "));) {
        if (!*word) continue;
        argv[argc++] = strcmp(word, "''") == 0 ? word + 2 : word;
    }
    argv[argc] = NULL;
    told = out;
    tm_text_printf(out, "> %s\n", words);
    begin_capture();
    tm_status st = tm_cli_call(c, c->name, argc, argv, &err);
    end_capture(out);
    if (st != TM_OK) tm_text_printf(out, "%s: %s\n", tm_status_text(st), err.text);
    tm_log_set_level(TM_LOG_INFO);
}

static void lines(tm_text *out)
{
    static const char *const all[] = {
        "",
        "a",
        "a -t",
        "a -t x",
        "a -t x b",
        "a -t x b c",
        "'' -t x",
        "a --text x",
        "a --text=x",
        "a --text=",
        "a --text ''",
        "a -t=x",
        "a -tx",
        "a --te xt x",
        "--text x a",
        "-t x -- a",
        "-t x -- -f",
        "-t x -- --",
        "-t x -f",
        "-t -f a",
        "-t -- a",
        "-t - a",
        "-t x -",
        "a -t x --maybe-empty=",
        "a -t x --maybe-empty ''",
        "a -t x --maybe_empty y",
        "a -t x -f -f",
        "a -t x --flag",
        "a -t x --flag=1",
        "a -t x --other-flag",
        "a -t x --other_flag",
        "a -t x --OTHER-FLAG",
        "a -t x -t y",
        "a -t x -q",
        "a -t x -v",
        "a -t x --quiet --verbose",
        "a -t x -qv",
        "a -t x -c alpha",
        "a -t x -c BETA",
        "a -t x -c gamma_ray",
        "a -t x -c gama-ray",
        "a -t x -c delta",
        "a -t x -c a",
        "a -t x -l 1",
        "a -t x -l 1 --list 2 --list=3",
        "a -t x -l 1 -l 2 -l 3 -l 4 -l 5 -l 6 -l 7 -l 8 -l 9 -l 10 -l 11 -l 12 -l 13 -l 14 -l 15 -l 16",
        "a -t x -l 1 -l 2 -l 3 -l 4 -l 5 -l 6 -l 7 -l 8 -l 9 -l 10 -l 11 -l 12 -l 13 -l 14 -l 15 -l 16 -l 17",
        "a -t x -w -2",
        "a -t x -w 9",
        "a -t x -w -3",
        "a -t x -w 10",
        "a -t x -w 1.5",
        "a -t x --lisxy",
        "a -t x --lixyz",
        "a -t x --numxyz=lixyz",
        "a -t x --nuwxyz",
        "a -t x --wholxyz",
        "a -t x --whoxyzw",
        "a -t x -w ''",
        "a -t x -w +3",
        "a -t x -w 3x",
        "a -t x -w 99999999999999999999",
        "a -t x -w -99999999999999999999",
        "a -t x --any-number-that-is-whole 9223372036854775807",
        "a -t x --any-number-that-is-whole -9223372036854775808",
        "a -t x --any-number-that-is-whole 9223372036854775808",
        "a -t x -n 0.5",
        "a -t x -n 0.49",
        "a -t x -n 1e6",
        "a -t x -n 1000001",
        "a -t x -n nan",
        "a -t x -n inf",
        "a -t x -n 1e999",
        "a -t x -n 0x10",
        "a -t x -n 1e",
        "a -t x -n +2.5",
        "a -t x -n .75",
        "a -t x -n -",
        "a --tex x",
        "a -t x --teext y",
        "a -t x --fla",
        "a -t x --flagged",
        "a -t x --lisst",
        "a -t x --lists=3",
        "a -t x --choices b",
        "a -t x --wohle 3",
        "a -t x --wole 3",
        "a -t x --xxxx",
        "a -t x -x",
        "a -t x --mabyempty",
        "a -t x --any-numbers-is-whole 3",
        "a -t x ---",
        "a -t x --=",
        "a --nubmer 3 --chioce 4",
        "a b c d --whole x --number y",
        "--whole 99",
        "a --texts x",
        "a -t x --quite",
        "a -t x --help",
        "a -t x -h",
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) call(&command, all[i], out);
    tm_text_add(out, "== passes\n");
    static const char *const passed[] = { "",
                                          "-t x",
                                          "-t x --unknown 3 -z '' --",
                                          "-t x -- -f --flag",
                                          "a -t --b",
                                          "-t x --whole --b",
                                          "-t x --text y",
                                          "-t x -w 3 a -w" };
    for (size_t i = 0; i < sizeof passed / sizeof passed[0]; i++) call(&passing, passed[i], out);
    tm_text_add(out, "== plain\n");
    static const char *const two[] = {
        "", "a", "a b", "a b c", "a b c d", "a b -q", "a b --text", "a b -- -x", "a ''"
    };
    for (size_t i = 0; i < sizeof two / sizeof two[0]; i++) call(&plain, two[i], out);
}

static void sizes(tm_text *out)
{
    static const char *const all[] = { "1",          "0",       "0.9",   "1.9", "-1",   "7B",     "2KiB",
                                       "3MiB",       "4GiB",    "5TiB",  "6KB", "7MB",  "8GB",    "9TB",
                                       "0.5KB",      "1.5 GiB", "1  MB", "1e3", "9e18", "8.9e18", "8TiB",
                                       "8388608TiB", "1 ",      "KiB",   "",    "1PiB", "1kib",   "2 gb",
                                       "nan",        "inf",     "1Ki",   "1K",  "x",    "1x" };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        int64_t   bytes = -5;
        tm_error  err = { 0 };
        tm_status st = tm_cli_read_bytes(all[i], "memory", &bytes, &err);
        tm_text_printf(out, "'%s': %lld %s\n", all[i], (long long)bytes, st == TM_OK ? "" : err.text);
    }
}

static void finding(tm_text *out)
{
    static const char *const names[] = { "plain",  "PLAIN",   "plian", "plaiin", "pln",
                                         "pssing", "nothing", "-x",    "--flag", "" };
    tm_cli_command           storage;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (int path = 0; path < 2; path++) {
            const tm_cli_command *found = NULL;
            tm_error              err = { 0 };
            tm_status             st = tm_cli_find(&nests, path ? "nests" : "", names[i], &storage, &found, &err);
            tm_text_printf(out, "'%s': %s\n", names[i], st == TM_OK ? found->name : err.text);
        }
    for (size_t i = 0; i < 5; i++)
        tm_text_printf(out, "%zu %s\n", i,
                       tm_cli_nested(&nests, i, &storage) ? tm_cli_nested(&nests, i, &storage)->name : "-");
    tm_text_printf(out, "%s\n", tm_cli_nested(&plain, 0, &storage) ? "one" : "none");
    char name[TM_CLI_NAME];
    tm_cli_join("", "one", name);
    tm_text_printf(out, "'%s'", name);
    tm_cli_join("one", "two", name);
    tm_text_printf(out, " '%s'", name);
    tm_cli_join("a-name-that-is-longer-than-thirty-letters", "another-that-is-longer-than-thirty-letters", name);
    tm_text_printf(out, " '%s'\n", name);
    tm_cli_line              line = { .command = &command };
    static const char *const words[] = { "--", "-f", "--fla", "--flags", "--xyzzy", "fla", "--w", "-wh" };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        tm_text_printf(out, "%s %s\n", words[i], tm_cli_resembles(&line, words[i]) ? "is like one" : "is like none");
}

/* Which of four messages reach standard error. */
static void loudness(tm_text *out)
{
    for (int i = 0; i < 4; i++) {
        tm_cli_line line = { .quiet = i & 1, .verbose = i & 2 };
        tm_text_printf(out, "== loudness: %s %s\n", line.quiet ? "quiet" : "", line.verbose ? "verbose" : "");
        begin_capture();
        tm_log_set_level(TM_LOG_WARN);
        tm_cli_set_loudness(&line);
        complain();
        end_capture(out);
    }
    tm_log_set_level(TM_LOG_INFO);
}

/* -q and -v alone are the command's, the rest is passed on. */
static void common(tm_text *out)
{
    static const char *const all[] = { "c -q a -v b", "c a -- -q", "c --flag -t", "c --quiet=1 a",
                                       "c --verbose -- --verbose" };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        static const tm_cli_command none = { .name = "c" };
        char                        copy[256], *argv[16], *rest = copy, *words[16];
        tm_cli_line                 line = { .command = &none, .name = "c", .argv = argv, .words = words };
        tm_error                    err = { 0 };
        snprintf(copy, sizeof copy, "%s", all[i]);
        for (char *word; (word = strsep(&rest, " "));) argv[line.argc++] = word;
        tm_status st = tm_cli_take_common(&line, &err);
        tm_text_printf(out, "%s: %s%s%s:", all[i], tm_status_text(st), line.quiet ? " quiet" : "",
                       line.verbose ? " verbose" : "");
        for (int k = 0; k < line.n_words; k++) tm_text_printf(out, " %s", words[k]);
        tm_text_printf(out, " %s\n", err.text);
    }
    tm_log_set_level(TM_LOG_INFO);
}

static void command_lines_say_all(void **state)
{
    (void)state;
    tm_text out = { 0 };
    lines(&out);
    sizes(&out);
    finding(&out);
    loudness(&out);
    common(&out);
    static const tm_cli_command *const helped[] = { &command, &passing, &plain, &nests };
    for (int i = 0; i < 4; i++) {
        tm_text_printf(&out, "== help of %s\n", helped[i]->name);
        tm_cli_help(helped[i], "a name", TM_CLI_HELP_WIDTH, &out);
    }
    whole_is("tests/golden/whole-parse.txt", &out);
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(command_lines_say_all) };

TM_TESTS(tests, NULL, NULL)
