/* SPDX-License-Identifier: Apache-2.0 */
#include "mlperf/seeds.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char          *run;
    const tm_json_value *file, *line;
    const char          *number;
} seed;

typedef struct {
    const tm_submission *submission;
    tm_seeds_report      report;
    seed                *seeds;
    size_t               seeds_room, errors_room, warnings_room;
} checking;

/* Digits without what Python ignores: white space around, '+', single '_' between digits, leading zeros. */
static const char *digits_of(const char *text, tm_arena *arena)
{
    size_t n = strlen(text), out = 0;
    while (n > 0 && isspace((unsigned char)*text)) text++, n--;
    while (n > 0 && isspace((unsigned char)text[n - 1])) n--;
    bool  negative = n > 0 && *text == '-';
    char *digits = tm_arena_take(arena, n + 2);
    if (n > 0 && (*text == '-' || *text == '+')) text++, n--;
    for (size_t i = 0; i < n; i++) {
        bool between = i > 0 && i + 1 < n && isdigit((unsigned char)text[i - 1]) && isdigit((unsigned char)text[i + 1]);
        if (isdigit((unsigned char)text[i]))
            digits[1 + out++] = text[i];
        else if (text[i] != '_' || !between)
            return NULL;
    }
    if (out == 0) return NULL;
    char *first = digits + 1;
    while (first[0] == '0' && first[1]) first++;
    if (negative && strcmp(first, "0") != 0) *--first = '-';
    return first;
}

const char *tm_seed_number(const tm_json_value *value, tm_arena *arena)
{
    if (value->kind == TM_JSON_BOOL) return value->boolean ? "1" : "0";
    if (value->kind == TM_JSON_TEXT) return digits_of(value->text, arena);
    if (value->kind != TM_JSON_NUMBER) return NULL;
    if (value->integer) return digits_of(value->text, arena);
    if (!isfinite(value->number)) return NULL;
    double whole = trunc(value->number);
    return tm_arena_format(arena, "%.0f", whole == 0 ? 0.0 : whole);
}

static void say(char ***list, size_t *room, size_t *n, char *text)
{
    *list = tm_grow(*list, room, *n, sizeof **list);
    (*list)[(*n)++] = text;
}

#define COMPLAIN(c, ...)                                                                                               \
    say(&(c)->report.errors, &(c)->errors_room, &(c)->report.n_errors,                                                 \
        tm_arena_format((c)->submission->arena, __VA_ARGS__))

/* A JSON value for a message: no line breaks, no control characters. */
static const char *shown(const tm_json_value *value, tm_arena *arena)
{
    tm_text     text = { 0 };
    const char *copy;
    tm_json_print(value, &text);
    copy = tm_arena_text(arena, text.data);
    tm_text_fini(&text);
    return copy;
}

static void check_seed(checking *c, const char *run, const tm_mllog_record *r)
{
    tm_arena *arena = c->submission->arena;
    seed      s = { run, tm_json_member(r->metadata, "file"), tm_json_member(r->metadata, "lineno"),
                    tm_seed_number(r->value, arena) };
    if (!s.number) {
        COMPLAIN(c, "Result file %s, line %lld: seed %s is no integer.", run, (long long)r->line,
                 shown(r->value, arena));
        return;
    }
    if (!s.file || !s.line) {
        COMPLAIN(c, "Result file %s, line %lld: the metadata of the seed lacks 'file' or 'lineno'.", run,
                 (long long)r->line);
        return;
    }
    for (size_t i = 0; i < c->report.n; i++) {
        const seed *other = &c->seeds[i];
        if (strcmp(other->number, s.number) != 0 || !tm_json_equal(other->file, s.file) ||
            !tm_json_equal(other->line, s.line))
            continue;
        COMPLAIN(c,
                 "Result file %s logs seed %s on %s:%s. However, result file %s already logs the same seed on the same "
                 "line.",
                 run, s.number, shown(s.file, arena), shown(s.line, arena), other->run);
        return;
    }
    c->seeds = tm_grow(c->seeds, &c->seeds_room, c->report.n, sizeof *c->seeds);
    c->seeds[c->report.n++] = s;
}

static void check_run(checking *c, const tm_submission_run *run)
{
    size_t                 n, found = 0, broken = 0;
    const tm_mllog_record *records = tm_mllog_records(run->log, &n);
    for (size_t i = 0; i < n; i++) {
        broken += records[i].state != TM_MLLOG_GOOD;
        if (strcmp(records[i].key, "seed") != 0) continue;
        found++;
        check_seed(c, run->name, &records[i]);
    }
    if (broken > 0) COMPLAIN(c, "Result file %s cannot be parsed.", run->name);
    if (found == 0) COMPLAIN(c, "Result file %s logs no seed.", run->name);
    if (found > 1)
        say(&c->report.warnings, &c->warnings_room, &c->report.n_warnings,
            tm_arena_format(c->submission->arena, "Result file %s logs more than one seed.", run->name));
}

/* Moves a list to the arena. */
static char **keep(char **list, size_t n, tm_arena *arena)
{
    char **copy = tm_arena_take(arena, n * sizeof *copy);
    if (n > 0) memcpy(copy, list, n * sizeof *copy);
    free(list);
    return copy;
}

tm_seeds_report tm_seeds_check(const tm_submission *submission)
{
    checking c = { .submission = submission };
    for (size_t i = 0; i < submission->n; i++) check_run(&c, &submission->runs[i]);
    c.report.errors = keep(c.report.errors, c.report.n_errors, submission->arena);
    c.report.warnings = keep(c.report.warnings, c.report.n_warnings, submission->arena);
    c.report.passed = c.report.n_errors == 0;
    free(c.seeds);
    return c.report;
}
