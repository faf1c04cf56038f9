/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines of a made-up command with an option of every kind: what it gets of them, what is refused, its help. */
#include "base/log.h"
#include "cli/cli.h"
#include "cli/command.h"

#include <signal.h>

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

static tm_text *told;

/* The options that were given, with their values, and the words. */
static tm_status tell(tm_cli_line *line, tm_error *err)
{
    const options *o = line->command->options ? line->options : NULL; /* without rows there is no room */
    char           number[32];
    (void)err;
    for (size_t i = 0; o && i < sizeof rows / sizeof rows[0]; i++) {
        const char *at = (const char *)o + rows[i].at;
        if (!tm_cli_given(line, rows[i].name)) continue;
        tm_text_printf(told, "%.*s", (int)strcspn(rows[i].name, "-"), rows[i].name);
        switch (rows[i].kind) {
        case TM_OPTION_FLAG:
            assert_true(*(const bool *)at);
            break;
        case TM_OPTION_LIST:
            for (int k = 0; k < o->list.n; k++) tm_text_printf(told, " %s", o->list.item[k]);
            break;
        case TM_OPTION_I64:
        case TM_OPTION_BYTES:
            tm_text_printf(told, " %lld", (long long)*(const int64_t *)at);
            break;
        case TM_OPTION_F64:
            tm_text_printf(told, " %s", tm_format_double(number, o->number));
            break;
        default:
            tm_text_printf(told, " %s", *(const char *const *)at);
        }
        tm_text_add(told, ", ");
    }
    if (o && !tm_cli_given(line, "whole")) assert_int_equal(o->whole, 7);
    if (o && !tm_cli_given(line, "choice")) assert_string_equal(o->choice, "beta");
    if (o && !tm_cli_given(line, "flag")) assert_false(o->flag);
    if (o && !tm_cli_given(line, "maybe-empty")) assert_null(o->empty);
    tm_text_printf(told, "%s%swords", line->quiet ? "quiet, " : "", line->verbose ? "verbose, " : "");
    for (int i = 0; i < line->n_words; i++) tm_text_printf(told, " '%s'", line->words[i]);
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

/* A line, its words between blanks ('' is an empty one), and what comes of it; behind "!" the parts of a refusal. */
typedef struct {
    const char *words, *wanted;
} parsed;

static void call(const tm_cli_command *c, const parsed *row)
{
    char     copy[2048], *argv[80], *rest = copy;
    int      argc = 0;
    tm_error err = { 0 };
    tm_text  out = { 0 };
    snprintf(copy, sizeof copy, "%s %s", c->name, row->words);
    for (char *word; argc < 79 && (word = strsep(&rest, " "));) {
        if (!*word) continue;
        argv[argc++] = strcmp(word, "''") == 0 ? word + 2 : word;
    }
    argv[argc] = NULL;
    told = &out;
    tm_status st = tm_cli_call(c, c->name, argc, argv, &err);
    tm_log_set_level(TM_LOG_INFO);
    if (row->wanted[0] != '!') {
        if (st != TM_OK || strcmp(out.data, row->wanted) != 0)
            fail_msg("%s: %s%s, wanted %s", row->words, st == TM_OK ? out.data : "", err.text, row->wanted);
    } else {
        char parts[512], *next = parts;
        snprintf(parts, sizeof parts, "%s", row->wanted + 1);
        if (st != TM_USAGE) fail_msg("%s is accepted", row->words);
        for (char *part; (part = strsep(&next, "/"));)
            if (!strstr(err.text, part)) fail_msg("%s: '%s' is not in: %s", row->words, part, err.text);
    }
    tm_text_fini(&out);
}

TEST(command_lines_are_read)
{
    static const parsed whole[] = {
        { "", "!missing WORD/missing -t or --text" },
        { "a", "!missing -t or --text WORD" },
        { "a -t", "!option '--text' needs a value: --text WORD" },
        { "a -t x", "text x, words 'a'" },
        { "a -t x b c", "!unexpected 'c'" },
        { "'' -t x", "!an argument is empty; wanted WORD" },
        { "a --text=x", "text x, words 'a'" },
        { "a -t=x", "!unknown option '-t=x'/missing -t or --text" },
        { "a -tx", "!unknown option '-tx'; did you mean '--text'?" },
        { "--text x a", "text x, words 'a'" },
        { "-t x -- a", "text x, words 'a'" },
        { "-t x -f", "!missing WORD" },
        { "-t -f a", "!option '--text' needs a value: --text WORD" },
        { "-t -- a", "text --, words 'a'" },
        { "-t x -", "text x, words '-'" },
        { "a -t x --maybe-empty=", "text x, maybe , words 'a'" },
        { "a -t x --maybe-empty ''", "text x, maybe , words 'a'" },
        { "a -t x -f -f", "flag, text x, words 'a'" },
        { "a -t x --flag=1", "!option '--flag' takes no value; leave out '=1'" },
        { "a -t x --other-flag", "other, text x, words 'a'" },
        { "a -t x -t y", "!option '--text' is given twice" },
        { "a -t x --quiet --verbose", "text x, quiet, verbose, words 'a'" },
        { "a -t x -qv", "!unknown option '-qv'" },
        { "a -t x -c alpha", "text x, choice alpha, words 'a'" },
        { "a -t x -c BETA", "text x, choice beta, words 'a'" },
        { "a -t x -c gama-ray",
          "!option '--choice' must be one of alpha, beta, gamma-ray; found 'gama-ray'; did you mean 'gamma-ray'?" },
        { "a -t x -c delta",
          "!option '--choice' must be one of alpha, beta, gamma-ray; found 'delta'; did you mean 'beta'?" },
        { "a -t x -l 1 --list 2 --list=3", "text x, list 1 2 3, words 'a'" },
        { "a -t x -l 1 -l 2 -l 3 -l 4 -l 5 -l 6 -l 7 -l 8 -l 9 -l 10 -l 11 -l 12 -l 13 -l 14 -l 15 -l 16",
          "text x, list 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16, words 'a'" },
        { "a -t x -l 1 -l 2 -l 3 -l 4 -l 5 -l 6 -l 7 -l 8 -l 9 -l 10 -l 11 -l 12 -l 13 -l 14 -l 15 -l 16 -l 17",
          "!more than 16 '--list'" },
        { "a -t x -w -2", "text x, whole -2, words 'a'" },
        { "a -t x -w 10", "!option '--whole' is out of range: found 10, wanted -2 to 9" },
        { "a -t x -w 3x", "!option '--whole' must be a whole number, found '3x'" },
        { "a -t x -w 99999999999999999999",
          "!option '--whole' is out of range: found 99999999999999999999, wanted an integer of 64 bits" },
        { "a -t x -w -99999999999999999999",
          "!option '--whole' is out of range: found -99999999999999999999, wanted an integer of 64 bits" },
        { "a -t x --any-number-that-is-whole 9223372036854775807", "text x, any 9223372036854775807, words 'a'" },
        { "a -t x --any-number-that-is-whole -9223372036854775808", "text x, any -9223372036854775808, words 'a'" },
        { "a -t x --any-number-that-is-whole 9223372036854775808",
          "!option '--any-number-that-is-whole' is out of range: found 9223372036854775808, wanted an integer of 64 "
          "bits" },
        { "a -t x -n 0.5", "text x, number 0.5, words 'a'" },
        { "a -t x -n 0.49", "!option '--number' is out of range: found 0.49, wanted 0.5 to 1000000" },
        { "a -t x -n 1e6", "text x, number 1000000, words 'a'" },
        { "a -t x -n 1000001", "!option '--number' is out of range: found 1000001, wanted 0.5 to 1000000" },
        { "a -t x -n nan", "!option '--number' must be a number, found 'nan'" },
        { "a -t x -n 0x10", "!option '--number' must be a number, found '0x10'" },
        { "a -t x --fla", "!unknown option '--fla'; did you mean '--flag'?" },
        { "a -t x -x", "!unknown option '-x'" },
        { "a -t x --=", "!unknown option '--='" },
        { "a --nubmer 3 --chioce 4", "!unknown option '--nubmer'; did you mean '--number'?/unknown option '--chioce'; "
                                     "did you mean '--choice'?/missing -t or --text" },
        { "a b c d --whole x --number y", "!option '--whole' must be a whole number, found 'x'/option '--number' must "
                                          "be a number, found 'y'/missing -t or --text" },
        { "a -t x --help", "text x, words 'a'" },
    };
    static const parsed passes[] = {
        { "", "!missing -t or --text WORD" },
        { "-t x", "text x, words" },
        { "-t x --unknown 3 -z '' --", "text x, words '--unknown' '3' '-z' '' '--'" },
        { "-t x -- -f --flag", "flag, text x, words '--'" },
        { "-t x --whole --b", "!option '--whole' needs a value: --whole N" },
        { "-t x -w 3 a -w", "!option '--whole' is given twice" },
    };
    static const parsed two[] = {
        { "", "!missing A B" },           { "a", "!1 of 2 arguments (A B)" }, { "a b", "words 'a' 'b'" },
        { "a b c", "words 'a' 'b' 'c'" }, { "a b c d", "!unexpected 'd'" },   { "a b -- -x", "words 'a' 'b' '-x'" },
    };
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) call(&command, &whole[i]);
    for (size_t i = 0; i < sizeof passes / sizeof passes[0]; i++) call(&passing, &passes[i]);
    for (size_t i = 0; i < sizeof two / sizeof two[0]; i++) call(&plain, &two[i]);
}

TEST(sizes_are_read)
{
    /* What is behind a '=' are the bytes, otherwise it is refused. */
    char  cases[] = "1=1|1.9=1|7B=7|2KiB=2048|3MiB=3145728|4GiB=4294967296|5TiB=5497558138880|6KB=6000|7MB=7000000|"
                    "8GB=8000000000|9TB=9000000000000|0.5KB=500|1.5 GiB=1610612736|1  MB=1000000|1e3=1000|"
                    "8.9e18=8900000000000000000|8TiB=8796093022208|1 =1|1kib=1024|2 gb=2000000000|0|0.9|-1|9e18|"
                    "8388608TiB|KiB||1PiB|nan|inf|1Ki|1K|x|1x";
    char *rest = cases;
    for (char *size; (size = strsep(&rest, "|"));) {
        const char *text = strsep(&size, "=");
        int64_t     bytes = -5;
        tm_error    err = { 0 };
        tm_status   st = tm_cli_read_bytes(text, "memory", &bytes, &err);
        if (bytes != (size ? strtoll(size, NULL, 10) : -5) || (st == TM_OK) != (bytes != -5))
            fail_msg("'%s': %lld", text, (long long)bytes);
        if (st != TM_OK && !strstr(err.text, "'--memory' must be a size")) fail_msg("%s", err.text);
    }
}

TEST(commands_are_found)
{
    static const parsed cases[] = { { "plain", "plain" },
                                    { "PLAIN", "plain" },
                                    { "plian", "!did you mean 'plain'?" },
                                    { "plaiin", "!did you mean 'plain'?" },
                                    { "pln", "!did you mean 'plain'?" },
                                    { "pssing", "!did you mean 'passing'?" },
                                    { "nothing", "!nothing'; `trainmark " },
                                    { "-x", "!'-x' stands where a command should; options follow it: trainmark " },
                                    { "", "!'; `trainmark " } };
    tm_cli_command      storage;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int path = 0; path < 2; path++) {
            const tm_cli_command *found = NULL;
            tm_error              err = { 0 };
            tm_status             st = tm_cli_find(&nests, path ? "nests" : "", cases[i].words, &storage, &found, &err);
            if (st == TM_OK ? strcmp(found->name, cases[i].wanted) != 0 : !strstr(err.text, cases[i].wanted + 1))
                fail_msg("'%s': %s", cases[i].words, st == TM_OK ? found->name : err.text);
            if (st != TM_OK)
                assert_int_equal(strstr(err.text, path ? "nests" : "help") != NULL || *cases[i].words == '-', 1);
        }
    assert_string_equal(tm_cli_nested(&nests, 1, &storage)->name, "passing");
    assert_null(tm_cli_nested(&nests, 2, &storage));
    assert_null(tm_cli_nested(&plain, 0, &storage));
    char name[TM_CLI_NAME];
    tm_cli_join("", "one", name);
    assert_string_equal(name, "one");
    tm_cli_join("one", "two", name);
    assert_string_equal(name, "one two");
    tm_cli_join("a-name-that-is-longer-than-thirty-letters", "another-that-is-longer-than-thirty-letters", name);
    assert_string_equal(name, "a-name-that-is-longer-than-thi another-that-is-longer-than-th");
    tm_cli_line line = { .command = &command };
    assert_true(tm_cli_resembles(&line, "--fla") && tm_cli_resembles(&line, "--flags"));
    static const char *const unlike[] = { "--", "-f", "--xyzzy", "fla", "--w", "-wh" };
    for (size_t i = 0; i < sizeof unlike / sizeof unlike[0]; i++) assert_false(tm_cli_resembles(&line, unlike[i]));
}
