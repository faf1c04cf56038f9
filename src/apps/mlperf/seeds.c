/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/mlperf/seeds.h"

#include "apps/mlperf/python.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_SEEDS = 1000 }; /* of a log that are looked at: all pairs are compared */

typedef struct {
    const char          *run;
    const tm_json_value *file, *line;
    const char          *number;
} seed;

typedef struct {
    const tm_submission *submission;
    tm_seeds_report      report;
    seed                *seeds;
    size_t               room;
} checking;

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
                    tm_python_int(r->value, arena) };
    if (!s.number) {
        tm_notes_add(&c->report.errors, arena, "Result file %s, line %lld: seed %s is not an integer.", run,
                     (long long)r->line, shown(r->value, arena));
        return;
    }
    if (!s.file || !s.line) {
        tm_notes_add(&c->report.errors, arena,
                     "Result file %s, line %lld: the metadata of the seed lacks 'file' or 'lineno'.", run,
                     (long long)r->line);
        return;
    }
    for (size_t i = 0; i < c->report.n; i++) {
        const seed *other = &c->seeds[i];
        if (strcmp(other->number, s.number) != 0 || !tm_json_equal(other->file, s.file) ||
            !tm_json_equal(other->line, s.line))
            continue;
        tm_notes_add(
            &c->report.errors, arena,
            "Result file %s logs seed %s on %s:%s. However, result file %s already logs the same seed on the same "
            "line.",
            run, s.number, shown(s.file, arena), shown(s.line, arena), other->run);
        return;
    }
    c->seeds = tm_grow(c->seeds, &c->room, c->report.n, sizeof *c->seeds);
    c->seeds[c->report.n++] = s;
}

static void check_run(checking *c, const tm_submission_run *run)
{
    tm_arena              *arena = c->submission->arena;
    size_t                 n, found = 0, broken = 0;
    const tm_mllog_record *records = tm_mllog_records(run->log, &n);
    for (size_t i = 0; i < n; i++) {
        broken += records[i].state != TM_MLLOG_GOOD;
        if (strcmp(records[i].key, "seed") != 0) continue;
        if (found++ < MAX_SEEDS) check_seed(c, run->name, &records[i]);
    }
    if (broken > 0) tm_notes_add(&c->report.errors, arena, "Result file %s cannot be parsed.", run->name);
    if (found == 0) tm_notes_add(&c->report.errors, arena, "Result file %s logs no seed.", run->name);
    if (found > 1) tm_notes_add(&c->report.warnings, arena, "Result file %s logs more than one seed.", run->name);
}

tm_seeds_report tm_seeds_check(const tm_submission *submission)
{
    checking c = { .submission = submission };
    for (size_t i = 0; i < submission->n; i++) check_run(&c, &submission->runs[i]);
    c.report.passed = c.report.errors.n == 0;
    free(c.seeds);
    return c.report;
}
