/* SPDX-License-Identifier: Apache-2.0 */
/* The command line is a promise: every command with its words, every option with its letter, value, default and range,
 * as tests/cli/expected/options.txt has them. EXPECTED=write writes the file anew. */
#include "base/file.h"
#include "cli/cli.h"
#include "cli/command.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

static const char file[] = "tests/cli/expected/options.txt";

static void add_option(const tm_option *o, tm_text *out)
{
    static const char *const kinds[] = { "flag", "text", "choice", "list", "integer", "number", "bytes" };
    tm_text_printf(out, "  --%s %c %s %s", o->name, o->letter ? o->letter : '-', kinds[o->kind],
                   o->value ? o->value : "-");
    if (o->choices) tm_text_printf(out, " {%s}", o->choices);
    if (o->fallback) tm_text_printf(out, " = '%s'", o->fallback);
    if (o->lo < o->hi || o->lo > o->hi) tm_text_printf(out, " [%.17g, %.17g]", o->lo, o->hi);
    tm_text_printf(out, "%s%s\n", o->required ? " required" : "", o->may_be_empty ? " may be empty" : "");
}

static void add_command(const tm_cli_command *c, const char *name, tm_text *out)
{
    tm_text synopsis = { 0 };
    tm_cli_synopsis(c, &synopsis);
    tm_text_printf(out, "%s: %d to %d words%s%s%s%s\n  %s\n", name, c->least, c->most, c->run ? "" : ", only commands",
                   c->passes ? ", passes" : "", c->reads ? ", reads" : "", c->keys ? ", keys" : "",
                   synopsis.data ? synopsis.data : "");
    tm_text_fini(&synopsis);
    for (size_t i = 0; i < c->n_options; i++) {
        const char *help = c->options[i].help;
        assert_true(c->options[i].at < c->size);
        if (!help || strlen(help) > 80)
            fail_msg("%s --%s: a line of help has 80 characters: '%s'", name, c->options[i].name, help);
        add_option(&c->options[i], out);
    }
}

static void add_all(const tm_cli_command *parent, const char *path, tm_text *out)
{
    tm_cli_command        storage;
    const tm_cli_command *c;
    char                  name[TM_CLI_NAME];
    for (size_t i = 0; (c = tm_cli_nested(parent, i, &storage)); i++) {
        tm_cli_join(path, c->name, name);
        add_command(c, name, out);
        add_all(c, name, out);
    }
}

TEST(every_option)
{
    tm_text     found = { 0 }, wanted = { 0 };
    tm_error    err = { 0 };
    const char *mode = getenv("EXPECTED");
    add_all(NULL, "", &found);
    if (mode && strcmp(mode, "write") == 0)
        assert_int_equal(tm_file_write(file, found.data, found.length, &err), TM_OK);
    assert_int_equal(tm_file_read(file, 1 << 20, &wanted, &err), TM_OK);
    const char *a = found.data, *b = wanted.data;
    for (int line = 1; *a || *b; line++) {
        size_t n = strcspn(a, "\n"), m = strcspn(b, "\n");
        if (n != m || strncmp(a, b, n) != 0) fail_msg("%s:%d: '%.*s', found '%.*s'", file, line, (int)m, b, (int)n, a);
        a += n + (a[n] == '\n');
        b += m + (b[m] == '\n');
    }
    tm_text_fini(&found);
    tm_text_fini(&wanted);
}

/* What help says of an option's value. */
TEST(in_words)
{
    static const struct {
        tm_option   o;
        const char *words;
    } rows[] = {
        { { .name = "a", .kind = TM_OPTION_FLAG, .help = "do it" }, "do it" },
        { { .name = "a", .kind = TM_OPTION_TEXT, .fallback = "x", .help = "a text" }, "a text (default x)" },
        { { .name = "a", .kind = TM_OPTION_I64, .lo = 2, .hi = 9, .help = "a number" }, "a number (2 to 9)" },
        { { .name = "a", .kind = TM_OPTION_F64, .lo = 0.5, .hi = 9, .fallback = "3", .help = "a number" },
          "a number (0.5 to 9; default 3)" },
        { { .name = "a", .kind = TM_OPTION_I64, .lo = 2, .hi = 999999, .help = "n" }, "n (2 to 999999)" },
        { { .name = "a", .kind = TM_OPTION_I64, .lo = 2, .hi = 1000000, .fallback = "5", .help = "n" },
          "n (default 5)" },
        { { .name = "a", .kind = TM_OPTION_I64, .lo = 2, .hi = 2, .help = "n" }, "n" },
        { { .name = "a", .kind = TM_OPTION_TEXT, .lo = 2, .hi = 9, .help = "n" }, "n" },
        { { .name = "a", .kind = TM_OPTION_CHOICE, .choices = "x", .help = "a word" }, "a word (x)" },
        { { .name = "a", .kind = TM_OPTION_CHOICE, .choices = "x|y", .fallback = "y", .help = "a word" },
          "a word (x, y; default y)" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_text out = { 0 };
        tm_cli_describe(&rows[i].o, &out);
        assert_string_equal(out.data, rows[i].words);
        tm_text_fini(&out);
    }
}
