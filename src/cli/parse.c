/* SPDX-License-Identifier: Apache-2.0 */
/* cli/parse.c - a command line finds its command and fills its options. */
#include "cli/cli.h"

#include "base/log.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = TM_CLI_NAME };

const tm_option *tm_cli_common(size_t *n)
{
    static const tm_option rows[] = {
        { "help", 'h', TM_OPTION_FLAG, 0, .help = "print this text" },
        { "quiet", 'q', TM_OPTION_FLAG, offsetof(tm_cli_line, quiet), .help = "print errors and results only" },
        { "verbose", 'v', TM_OPTION_FLAG, offsetof(tm_cli_line, verbose), .help = "print more details" },
    };
    *n = sizeof rows / sizeof rows[0];
    return rows;
}

/* --- values ------------------------------------------------------------------------------------------------------- */

static tm_status wrong(const tm_option *o, const char *text, const char *wanted, tm_error *err)
{
    return tm_fail(err, TM_USAGE, "option '--%s' must be %s, found '%.100s'", o->name, wanted, text);
}

/* "2 to 16777216" */
static const char *range_text(const tm_option *o, char out[80])
{
    char lo[32], hi[32];
    snprintf(out, 80, "%s to %s", tm_format_double(lo, o->lo), tm_format_double(hi, o->hi));
    return out;
}

static tm_status check_range(const tm_option *o, const char *text, double value, tm_error *err)
{
    char range[80];
    if (!(o->lo < o->hi) || (value >= o->lo && value <= o->hi)) return TM_OK;
    return tm_fail(err, TM_USAGE, "option '--%s' is out of range: found %.100s, wanted %s", o->name, text,
                   range_text(o, range));
}

static tm_status read_i64(const tm_option *o, const char *text, int64_t *out, tm_error *err)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || text[0] == ' ') return wrong(o, text, "a whole number", err);
    if (errno == ERANGE)
        return tm_fail(err, TM_USAGE, "option '--%s' is out of range: found %.100s, wanted an integer of 64 bits",
                       o->name, text);
    *out = value;
    return check_range(o, text, (double)value, err);
}

static tm_status read_f64(const tm_option *o, const char *text, double *out, tm_error *err)
{
    char *end;
    bool  digits = *text && strspn(text, "0123456789+-.eE") == strlen(text);
    *out = digits ? strtod(text, &end) : (double)NAN;
    if (!digits || *end || end == text || !isfinite(*out)) return wrong(o, text, "a number", err);
    return check_range(o, text, *out, err);
}

static tm_status read_choice(const tm_option *o, const char *text, tm_arena *arena, const char **out, tm_error *err)
{
    tm_text     wanted = { 0 };
    const char *near = NULL;
    int         best = 3;
    for (const char *p = o->choices; *p;) {
        size_t n = strcspn(p, "|");
        char  *choice = tm_arena_text_n(arena, p, n);
        if (tm_names_equal(choice, text)) {
            *out = choice;
            tm_text_fini(&wanted);
            return TM_OK;
        }
        tm_text_printf(&wanted, "%s%s", wanted.length ? ", " : "", choice);
        int distance = tm_edit_distance(choice, text);
        if (distance < best) near = choice;
        if (distance < best) best = distance;
        p += n + (p[n] == '|');
    }
    tm_status st = tm_fail(err, TM_USAGE, "option '--%s' must be one of %s; found '%.100s'%s%s%s", o->name, wanted.data,
                           text, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    tm_text_fini(&wanted);
    return st;
}

static tm_status store(const tm_option *o, const char *text, void *options, tm_arena *arena, tm_error *err)
{
    void *at = (char *)options + o->at;
    switch (o->kind) {
    case TM_OPTION_FLAG:
        *(bool *)at = true;
        return TM_OK;
    case TM_OPTION_TEXT:
        *(const char **)at = text;
        return TM_OK;
    case TM_OPTION_CHOICE:
        return read_choice(o, text, arena, at, err);
    case TM_OPTION_LIST: {
        tm_cli_list *list = at;
        int          room = (int)(sizeof list->item / sizeof list->item[0]);
        if (list->n == room) return tm_fail(err, TM_USAGE, "more than %d '--%s'", room, o->name);
        list->item[list->n++] = text;
        return TM_OK;
    }
    case TM_OPTION_I64:
        return read_i64(o, text, at, err);
    case TM_OPTION_F64:
        return read_f64(o, text, at, err);
    case TM_OPTION_BYTES:
        return tm_cli_read_bytes(text, o->name, at, err);
    }
    TM_ASSERT(!"unknown kind of option");
    return TM_INTERNAL;
}

tm_status tm_cli_read_size(const char *text, const char *option, int64_t *width, int64_t *height, tm_error *err)
{
    enum { TOKEN = 16, MOST = 16384 };
    char *end;
    *width = *height = strtoll(text, &end, 10);
    if (*end == 'x' && end != text) *height = strtoll(end + 1, &end, 10);
    bool fits = *width >= TOKEN && *height >= TOKEN && *width <= MOST && *height <= MOST;
    if (fits && !*end && *width % TOKEN == 0 && *height % TOKEN == 0) return TM_OK;
    return tm_fail(err, TM_USAGE, "%s %.60s: wanted N or WIDTHxHEIGHT in pixels, multiples of 16 from 16 to 16384",
                   option, text);
}

tm_status tm_cli_read_bytes(const char *text, const char *option, int64_t *bytes, tm_error *err)
{
    static const struct {
        const char *name;
        double      bytes;
    } units[] = { { "", 1 },         { "B", 1 },    { "KiB", 0x1p10 }, { "MiB", 0x1p20 }, { "GiB", 0x1p30 },
                  { "TiB", 0x1p40 }, { "KB", 1e3 }, { "MB", 1e6 },     { "GB", 1e9 },     { "TB", 1e12 } };
    char  *unit;
    double number = strtod(text, &unit);
    while (unit > text && *unit == ' ') unit++;
    for (size_t i = 0; unit > text && i < sizeof units / sizeof units[0]; i++) {
        double all = number * units[i].bytes;
        if (!tm_names_equal(unit, units[i].name) || !(all >= 1 && all < 9e18)) continue;
        *bytes = (int64_t)all;
        return TM_OK;
    }
    return tm_fail(err, TM_USAGE, "option '--%s' must be a size, a number and a unit such as 192GiB; found '%.60s'",
                   option, text);
}

/* --- options ------------------------------------------------------------------------------------------------------ */

/* Is `word` this option ("--name", "--name=value", "-n")? *inline_value: what stands behind '=', or NULL. */
static bool is_option(const tm_option *o, const char *word, const char **inline_value)
{
    char   name[NAME];
    size_t n;
    *inline_value = NULL;
    if (word[0] != '-') return false;
    if (word[1] != '-') return o->letter && word[1] == o->letter && !word[2];
    n = strcspn(word + 2, "=");
    if (n == 0 || n >= NAME) return false;
    memcpy(name, word + 2, n);
    name[n] = '\0';
    if (word[2 + n] == '=') *inline_value = word + 3 + n;
    return tm_names_equal(o->name, name);
}

/* The row that `word` names among the command's and the common ones. */
static const tm_option *find_option(const tm_cli_command *command, const char *word, const char **inline_value,
                                    bool *common)
{
    size_t           n;
    const tm_option *rows = tm_cli_common(&n);
    *common = false;
    for (size_t i = 0; i < command->n_options; i++)
        if (is_option(&command->options[i], word, inline_value)) return &command->options[i];
    *common = true;
    for (size_t i = 0; i < n; i++)
        if (is_option(&rows[i], word, inline_value)) return &rows[i];
    return NULL;
}

/* May the next word be the option's value? Another option may not, nor anything like one where any word can be a key.
 */
static bool is_value(const tm_cli_command *command, const char *word)
{
    const char *value;
    bool        common;
    if (!word) return false;
    if (strncmp(word, "--", 2) == 0 && word[2] && (command->keys || command->passes)) return false;
    return !find_option(command, word, &value, &common);
}

tm_status tm_cli_take(tm_cli_line *line, int argc, char **argv, int i, int *used, tm_error *err)
{
    const char      *value;
    bool             common;
    const tm_option *o = find_option(line->command, argv[i], &value, &common);
    *used = 0;
    if (!o) return TM_OK;
    *used = 1;
    uint64_t bit = common ? 0 : (uint64_t)1 << (o - line->command->options);
    bool     repeats = o->kind == TM_OPTION_LIST || o->kind == TM_OPTION_FLAG || line->command->keys; /* like a key */
    if (line->given & bit && !repeats) return tm_fail(err, TM_USAGE, "option '--%s' is given twice", o->name);
    if (o->kind == TM_OPTION_FLAG && value)
        return tm_fail(err, TM_USAGE, "option '--%s' takes no value; leave out '=%.60s'", o->name, value);
    if (o->kind != TM_OPTION_FLAG && !value) {
        const char *next = i + 1 < argc ? argv[i + 1] : NULL;
        if (!is_value(line->command, next))
            return tm_fail(err, TM_USAGE, "option '--%s' needs a value: --%s %s", o->name, o->name, o->value);
        value = next;
        *used = 2;
    }
    if (o->kind != TM_OPTION_FLAG && !*value && !o->may_be_empty)
        return tm_fail(err, TM_USAGE, "option '--%s' needs a value: --%s %s", o->name, o->name, o->value);
    line->given |= bit;
    if (common && o->letter == 'h') return TM_OK; /* dispatch has seen it */
    return store(o, value, common ? (void *)line : line->options, line->arena, err);
}

tm_status tm_cli_take_common(tm_cli_line *line, tm_error *err)
{
    tm_status st = TM_OK;
    bool      open = true;
    for (int i = 1, used; i < line->argc; i += used) {
        tm_error own = { 0 };
        used = 0;
        if (strcmp(line->argv[i], "--") == 0) open = false;
        if (open && tm_also_of(err, tm_cli_take(line, line->argc, line->argv, i, &used, &own), &own) != TM_OK)
            st = TM_USAGE;
        if (used > 0) continue;
        line->words[line->n_words++] = line->argv[i];
        used = 1;
    }
    tm_cli_set_loudness(line);
    return st;
}

static const tm_option *row_of(const tm_cli_command *command, const char *name)
{
    for (size_t i = 0; i < command->n_options; i++)
        if (strcmp(command->options[i].name, name) == 0) return &command->options[i];
    TM_ASSERT(!"no such option");
    return NULL;
}

bool tm_cli_given(const tm_cli_line *line, const char *option)
{
    return line->given >> (row_of(line->command, option) - line->command->options) & 1;
}

void tm_cli_defaults(tm_cli_line *line)
{
    const tm_cli_command *command = line->command;
    TM_ASSERT(command->n_options <= 64);
    for (size_t i = 0; i < command->n_options; i++) {
        const tm_option *o = &command->options[i];
        tm_error         own = { 0 };
        if (!o->fallback) continue;
        tm_status st = store(o, o->fallback, line->options, line->arena, &own);
        TM_ASSERT(st == TM_OK); /* the default of a row is a value of the row */
    }
}

tm_status tm_cli_complete(const tm_cli_line *line, tm_error *err)
{
    tm_status st = TM_OK;
    for (size_t i = 0; i < line->command->n_options; i++) {
        const tm_option *o = &line->command->options[i];
        char             letter[8] = "", quoted[NAME + 8];
        snprintf(quoted, sizeof quoted, "'--%s'", o->name);
        if (!o->required || line->given >> i & 1 || strstr(err->text, quoted)) continue; /* told with its value */
        if (o->letter) snprintf(letter, sizeof letter, "-%c or ", o->letter);
        st = tm_also(err, TM_USAGE, "missing %s--%s %s: %s", letter, o->name, o->value, o->help);
    }
    return st;
}

/* --- words -------------------------------------------------------------------------------------------------------- */

/* The option whose name is like that of `word`, or NULL. */
static const char *near_option(const tm_cli_command *command, const char *word)
{
    char             name[NAME];
    const char      *near = NULL, *bare = word + strspn(word, "-");
    size_t           n, own = command->n_options, length = strcspn(bare, "=");
    int              best = length < 6 ? 3 : 4;
    const tm_option *common = tm_cli_common(&n);
    snprintf(name, sizeof name, "%.*s", (int)length, bare);
    for (size_t i = 0; i < own + n; i++) {
        const tm_option *o = i < own ? &command->options[i] : &common[i - own];
        int              distance = tm_edit_distance(o->name, name);
        if (distance < best) near = o->name;
        if (distance < best) best = distance;
    }
    return near;
}

bool tm_cli_resembles(const tm_cli_line *line, const char *word)
{
    return word[0] == '-' && word[1] == '-' && word[2] && near_option(line->command, word);
}

tm_status tm_cli_unknown_option(const tm_cli_line *line, const char *word, tm_error *err)
{
    const char *near = near_option(line->command, word);
    return tm_fail(err, TM_USAGE, "unknown option '%.200s'; %s%s%s`trainmark %s --help` lists all", word,
                   near ? "did you mean '--" : "", near ? near : "", near ? "'? " : "", line->name);
}

static tm_status check_words(const tm_cli_line *line, tm_error *err)
{
    const tm_cli_command *c = line->command;
    if (line->n_words < c->least && line->n_words == 0)
        return tm_fail(err, TM_USAGE, "missing %s; `trainmark %s --help` shows the usage", c->words, line->name);
    if (line->n_words < c->least)
        return tm_fail(err, TM_USAGE, "%d of %d arguments (%s); `trainmark %s --help` shows the usage", line->n_words,
                       c->least, c->words, line->name);
    if (c->most >= 0 && line->n_words > c->most)
        return tm_fail(err, TM_USAGE, "unexpected '%.200s'; `trainmark %s --help` shows the usage",
                       line->words[c->most], line->name);
    for (int i = 0; i < line->n_words; i++)
        if (!*line->words[i] && !c->passes) return tm_fail(err, TM_USAGE, "an argument is empty; wanted %s", c->words);
    return TM_OK;
}

/* A word of the line, *used with its value. */
static tm_status read_word(tm_cli_line *line, int i, bool *open, int *used, tm_error *err)
{
    const tm_cli_command *c = line->command;
    char                 *word = line->argv[i];
    *used = 0;
    if (*open && !c->passes && strcmp(word, "--") == 0) {
        *open = false;
        *used = 1;
        return TM_OK;
    }
    if (*open) TM_TRY(tm_cli_take(line, line->argc, line->argv, i, used, err));
    if (*used > 0) return TM_OK;
    *used = 1;
    if (*open && !c->passes && word[0] == '-' && word[1]) return tm_cli_unknown_option(line, word, err);
    line->words[line->n_words++] = word;
    return TM_OK;
}

/* All that is wrong. How many words there should be says nothing where one may be the value of an unknown option. */
static tm_status read_line(tm_cli_line *line, tm_error *err)
{
    tm_status st = TM_OK;
    bool      open = true; /* options may follow: no "--" yet */
    tm_cli_defaults(line);
    for (int i = 1, used; i < line->argc; i += used) {
        tm_error own = { 0 };
        if (tm_also_of(err, read_word(line, i, &open, &used, &own), &own) != TM_OK) st = TM_USAGE;
        if (used == 0) used = 1;
    }
    if (st == TM_OK) st = check_words(line, err);
    if (tm_cli_complete(line, err) != TM_OK) st = TM_USAGE;
    return st;
}

/* --- commands ----------------------------------------------------------------------------------------------------- */

void tm_cli_join(const char *above, const char *name, char out[TM_CLI_NAME])
{
    snprintf(out, TM_CLI_NAME, "%.30s%s%.30s", above, *above ? " " : "", name);
}

#define TM_COMMAND(name) extern const tm_cli_command tm_command_##name;
#include "cli/commands.def"
#undef TM_COMMAND

const tm_cli_command *tm_cli_nested(const tm_cli_command *parent, size_t i, tm_cli_command *storage)
{
    static const tm_cli_command *const commands[] = {
#define TM_COMMAND(name) &tm_command_##name,
#include "cli/commands.def"
#undef TM_COMMAND
        NULL,
    };
    if (parent && parent->nested) return parent->nested(i, storage);
    const tm_cli_command *const *list = parent ? parent->commands : commands;
    if (!list) return NULL;
    for (size_t k = 0; k < i && list[k]; k++)
        if (!list[k + 1]) return NULL;
    return list[i];
}

tm_status tm_cli_find(const tm_cli_command *parent, const char *path, const char *name, tm_cli_command *storage,
                      const tm_cli_command **out, tm_error *err)
{
    char near[NAME] = "";
    int  best = 3; /* farther is no help */
    if (name[0] == '-')
        return tm_fail(err, TM_USAGE,
                       "'%.100s' stands where a command should; options follow it: trainmark %s%sCOMMAND %.100s", name,
                       path, *path ? " " : "", name);
    for (size_t i = 0; (*out = tm_cli_nested(parent, i, storage)); i++) {
        if (tm_names_equal((*out)->name, name)) return TM_OK;
        int distance = tm_edit_distance(name, (*out)->name);
        if (distance >= best) continue;
        best = distance;
        snprintf(near, sizeof near, "%s", (*out)->name);
    }
    return tm_fail(err, TM_USAGE, "unknown command '%s%s%.200s'; %s%s%s`trainmark %s` lists all", path,
                   *path ? " " : "", name, *near ? "did you mean '" : "", near, *near ? "'? " : "",
                   *path ? path : "help");
}

/* -h or --help in front of "--". */
static bool wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}

static tm_status print_help(const tm_cli_command *command, const char *name, tm_error *err)
{
    tm_text text = { 0 };
    tm_cli_help(command, name, tm_cli_width(TM_CLI_HELP_WIDTH), &text);
    tm_status st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    return st;
}

void tm_cli_set_loudness(const tm_cli_line *line)
{
    if (line->verbose) tm_log_set_level(TM_LOG_DEBUG);
    if (line->quiet) tm_log_set_level(TM_LOG_ERROR);
}

tm_status tm_cli_call(const tm_cli_command *command, const char *name, int argc, char **argv, tm_error *err)
{
    tm_arena   *arena = tm_arena_create();
    tm_cli_line line = { .command = command, .name = name, .argc = argc, .argv = argv, .arena = arena };
    line.words = tm_arena_take(arena, ((size_t)argc + 1) * sizeof *line.words);
    line.options = tm_arena_take(arena, command->size + 1);
    tm_status st = command->reads ? TM_OK : read_line(&line, err);
    tm_cli_set_loudness(&line);
    if (st == TM_OK) st = command->run(&line, err);
    tm_arena_destroy(arena);
    return st;
}

/* argv[0] is the name of `command`, whose whole name is `name`. */
static tm_status dispatch(const tm_cli_command *command, const char *name, int argc, char **argv, tm_error *err)
{
    bool nests = command->commands || command->nested;
    bool word = argc > 1 && argv[1][0] != '-';
    if (nests && (word || (argc > 1 && !wants_help(argc, argv) && !command->run))) {
        char                  whole[NAME];
        tm_cli_command        storage;
        const tm_cli_command *below;
        TM_TRY(tm_cli_find(command, name, argv[1], &storage, &below, err));
        tm_cli_join(name, below->name, whole);
        return dispatch(below, whole, argc - 1, argv + 1, err);
    }
    if (wants_help(argc, argv) || (nests && argc == 1 && !command->run)) return print_help(command, name, err);
    return tm_cli_call(command, name, argc, argv, err);
}

tm_status tm_cli_dispatch(int argc, char **argv, tm_error *err)
{
    tm_cli_command        storage;
    const tm_cli_command *command;
    TM_TRY(tm_cli_find(NULL, "", argv[1], &storage, &command, err));
    return dispatch(command, command->name, argc - 1, argv + 1, err);
}
