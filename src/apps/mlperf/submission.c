/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/mlperf/submission.h"

#include <stdlib.h>
#include <string.h>

/* The value of the first line with this key, if it is a text. */
static const char *first_text(const tm_mllog *log, const char *key)
{
    size_t                 n;
    const tm_mllog_record *records = tm_mllog_records(log, &n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(records[i].key, key) == 0)
            return records[i].value->kind == TM_JSON_TEXT ? records[i].value->text : NULL;
    return NULL;
}

tm_submission *tm_submission_create(const char *path, tm_ruleset ruleset)
{
    tm_arena      *arena = tm_arena_create();
    tm_submission *s = tm_arena_take(arena, sizeof *s);
    *s = (tm_submission){ .path = tm_arena_text(arena, path), .ruleset = ruleset, .arena = arena };
    return s;
}

void tm_submission_add(tm_submission *s, const char *name, tm_mllog *log)
{
    s->runs = tm_grow(s->runs, &s->room, s->n, sizeof *s->runs);
    tm_submission_run *run = &s->runs[s->n++];
    *run = (tm_submission_run){ .name = tm_arena_text(s->arena, name), .log = log };
    tm_check_log(run->log, s->ruleset, false, &run->report);
    run->rcp = tm_rcp_scan(run->log, s->arena);
    if (!s->benchmark) s->benchmark = first_text(run->log, "submission_benchmark");
    if (!s->division) s->division = first_text(run->log, "submission_division");
}

static tm_status add_file(tm_submission *s, const tm_mllog_file *file, tm_error *err)
{
    tm_mllog *log;
    TM_TRY(tm_mllog_read(file->path, &log, err));
    tm_submission_add(s, file->name, log);
    return TM_OK;
}

tm_status tm_submission_open(const char *path, tm_ruleset ruleset, tm_submission **out, tm_error *err)
{
    tm_mllog_folder folder;
    tm_submission  *s = tm_submission_create(path, ruleset);
    tm_status       st = tm_mllog_folder_list(path, &folder, err);
    if (st == TM_OK && folder.n == 0)
        st = tm_fail(err, TM_INVALID, "'%s' has no result_*.txt or result_*.txt.gz; name a directory that has", path);
    for (size_t i = 0; st == TM_OK && i < folder.n; i++) st = add_file(s, &folder.files[i], err);
    tm_mllog_folder_fini(&folder);
    if (st == TM_OK)
        *out = s;
    else
        tm_submission_close(s);
    return st;
}

void tm_submission_close(tm_submission *s)
{
    if (!s) return;
    for (size_t i = 0; i < s->n; i++) {
        tm_check_report_fini(&s->runs[i].report);
        tm_mllog_free(s->runs[i].log);
    }
    free(s->runs);
    tm_arena_destroy(s->arena);
}

tm_status tm_submission_judge(const tm_submission *s, const tm_reference *given, bool full, tm_rcp_verdict *out,
                              tm_error *err)
{
    tm_rcp_run *runs = tm_arena_take(s->arena, s->n * sizeof *runs);
    for (size_t i = 0; i < s->n; i++) runs[i] = s->runs[i].rcp;
    return tm_rcp_judge(runs, s->n, given, s->ruleset, full, s->arena, out, err);
}
