/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/mlperf/score.h"

#include "stats/summary.h"

#include <stdlib.h>
#include <string.h>

static tm_score_run time_run(const tm_submission_run *run)
{
    size_t                 n;
    const tm_mllog_record *records = tm_mllog_records(run->log, &n);
    tm_score_run           out = { .name = run->name };
    bool                   started = false;
    for (size_t i = 0; i < n && !out.timed; i++) {
        if (strcmp(records[i].key, "run_start") == 0) {
            started = true;
            out.start_ms = records[i].time_ms;
        } else if (strcmp(records[i].key, "run_stop") == 0) {
            if (!started) break;
            out.timed = true;
            out.stop_ms = records[i].time_ms;
        }
    }
    if (out.timed) out.minutes = (out.stop_ms - out.start_ms) / 60 / 1000;
    if (!run->report.passed)
        out.problem = "does not comply";
    else if (!out.timed)
        out.problem = "has no run_stop after a run_start";
    return out;
}

/* Summed from the fastest up, as the public summarizer does. */
static void average(tm_score *s)
{
    size_t  good = 0;
    double *minutes = tm_alloc((s->n + 1) * sizeof *minutes), sum = 0;
    for (size_t i = 0; i < s->n; i++)
        if (!s->runs[i].problem) minutes[good++] = s->runs[i].minutes;
    tm_stats_sort(minutes, (int64_t)good);
    size_t last = s->bad > 0 ? good : good - (good > 0); /* a bad run already counts as the slowest */
    for (size_t i = 1; i < last; i++) sum += minutes[i];
    free(minutes);
    if (s->bad > 1)
        s->problem = "too many runs that do not count: one at most";
    else if (last < 2)
        s->problem = "too few runs: none remains without the fastest and the slowest (at least 3 are needed)";
    else
        s->minutes = sum / (double)(last - 1);
}

static const char *word_of(const tm_rcp_verdict *v)
{
    if (v->passed) return "Pass";
    if (v->judged && v->choice == TM_REFERENCE_FOUND) return "Fail";
    if (v->judged && v->choice == TM_REFERENCE_INTERPOLATED) return "Interp. Fail";
    if (strncmp(v->message, "Missing RCP", 11) == 0) return "Missing";
    if (strncmp(v->message, "Cannot find any", 15) == 0) return "No RCP";
    return "Unknown state";
}

tm_status tm_score_compute(const tm_submission *submission, const tm_reference *given, tm_score *out, tm_error *err)
{
    *out = (tm_score){ .n = submission->n, .factor = 1, .rcp_word = "" };
    out->runs = tm_arena_take(submission->arena, out->n * sizeof *out->runs);
    for (size_t i = 0; i < out->n; i++) {
        out->runs[i] = time_run(&submission->runs[i]);
        out->bad += out->runs[i].problem != NULL;
    }
    const tm_reference_kind *kind = submission->benchmark ? tm_reference_kind_find(submission->benchmark) : NULL;
    out->wanted = kind ? kind->runs : 0;
    out->closed = submission->division && strcmp(submission->division, "closed") == 0;
    average(out);
    if (out->closed) {
        TM_TRY(tm_submission_judge(submission, given, false, &out->rcp, err));
        out->rcp_word = word_of(&out->rcp);
        out->factor = out->rcp.factor;
    }
    out->scaled = out->minutes * out->factor;
    out->valid =
        !out->problem && (out->wanted == 0 || out->n == (size_t)out->wanted) && (!out->closed || out->rcp.passed);
    return TM_OK;
}
