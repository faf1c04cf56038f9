/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/bench/slices.h"

#include "base/arena.h"
#include "base/clock.h"
#include "stats/summary.h"
#include "system/validity.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct {
    const tm_slices_options *options;
    tm_slices               *out;
    const tm_part           *part[TM_SLICES_MOST];
    tm_live_part            *live[TM_SLICES_MOST]; /* that are open */
    int64_t                  opening_ns;           /* of this round */
    int64_t                  whole_layers;
} rounds;

static bool stopped(const tm_slices_options *o)
{
    return o->stop && *o->stop;
}

static int badness(tm_verdict verdict)
{
    return verdict == TM_VERDICT_INVALID ? 3 : verdict == TM_VERDICT_NOISY ? 2 : verdict == TM_VERDICT_VALID ? 1 : 0;
}

/* Was the machine undisturbed during this turn's steps? */
static void judge(rounds *r, int at, tm_validity *validity)
{
    tm_validity_report report;
    tm_validity_stop(validity, 0, &report);
    tm_validity_destroy(validity);
    if (badness(report.verdict) <= badness(r->out->verdict[at])) return;
    r->out->verdict[at] = report.verdict;
    snprintf(r->out->reason[at], sizeof r->out->reason[at], "%s", report.reason);
}

/* Opens the part. Its first step, which touches the memory for the first time, does not count. */
static tm_status open_part(rounds *r, int at, tm_error *err)
{
    double  uncounted;
    int64_t begin = tm_now_ns();
    TM_TRY(tm_part_open(r->part[at], r->options->device, &r->live[at], err));
    r->out->openings++;
    tm_status st = tm_part_step(r->live[at], &uncounted, err);
    r->opening_ns += tm_now_ns() - begin;
    return st;
}

static void close_part(rounds *r, int at)
{
    tm_part_close(r->live[at]);
    r->live[at] = NULL;
}

/* Steps of one live part for `turn_seconds`, at least one: their mean. */
static tm_status take_steps(rounds *r, int at, double *value, tm_error *err)
{
    double    sum = 0, seconds;
    int64_t   n = 0;
    tm_status st = TM_OK;
    while (st == TM_OK && (n == 0 || sum < r->options->turn_seconds) && !stopped(r->options)) {
        st = tm_part_step(r->live[at], &seconds, err);
        if (st != TM_OK) break;
        sum += seconds;
        n++;
    }
    if (n > 0) *value = sum / (double)n;
    r->out->steps += n;
    return st;
}

static tm_status take_turn(rounds *r, int at, double *value, tm_error *err)
{
    if (!r->live[at]) TM_TRY(open_part(r, at, err));
    tm_validity *validity = tm_validity_start("");
    tm_status    st = take_steps(r, at, value, err);
    judge(r, at, validity);
    if (!r->options->together) close_part(r, at);
    return st;
}

static tm_status take_round(rounds *r, tm_error *err)
{
    tm_slices *o = r->out;
    int        n = o->parts;
    while (o->capacity < (o->rounds + 1) * n) {
        o->capacity = o->capacity ? 2 * o->capacity : 8 * n;
        o->seconds = tm_realloc(o->seconds, (size_t)o->capacity * sizeof *o->seconds);
    }
    for (int k = 0; k < n; k++) {
        int at = o->rounds % 2 ? n - 1 - k : k;
        TM_TRY(take_turn(r, at, &o->seconds[o->rounds * n + at], err));
        if (stopped(r->options)) return tm_fail(err, TM_INTERRUPTED, "stopped in round %lld", (long long)o->rounds + 1);
    }
    o->rounds++;
    return TM_OK;
}

static void fit(rounds *r)
{
    tm_slices *o = r->out;
    double     x[TM_LINE_POINTS], *y = tm_alloc((size_t)(o->rounds * o->slices) * sizeof *y);
    for (int k = 0; k < o->slices; k++) {
        x[k] = (double)r->part[k]->layers;
        for (int64_t i = 0; i < o->rounds; i++) y[i * o->slices + k] = o->seconds[i * o->parts + k];
    }
    o->line = tm_stats_line(x, o->slices, y, o->rounds, (double)r->whole_layers, 1);
    free(y);
}

/* Why no further round is begun, or TM_STOP_NO. */
static tm_stop enough(const rounds *r, int64_t round_ns)
{
    enum { FEWEST = 6 }; /* an interval from fewer rounds is narrow by chance too often */
    const tm_slices_options *o = r->options;
    const tm_line           *line = &r->out->line;
    double                   half = (line->interval.hi - line->interval.lo) / 2;
    if (r->out->rounds >= FEWEST && half <= o->half_width * line->value) return TM_STOP_PRECISE;
    if (r->out->rounds >= o->max_rounds) return TM_STOP_SAMPLES;
    if (tm_now_ns() + round_ns > o->end_ns) return TM_STOP_SECONDS;
    return TM_STOP_NO;
}

static tm_status take_rounds(rounds *r, tm_error *err)
{
    tm_stop stop = TM_STOP_NO;
    while (stop == TM_STOP_NO) {
        int64_t begin = tm_now_ns();
        r->opening_ns = 0;
        if (r->out->rounds == 0 && begin >= r->options->end_ns) return TM_OK;
        TM_TRY(take_round(r, err));
        fit(r);
        stop = enough(r, tm_now_ns() - begin - (r->options->together ? r->opening_ns : 0));
    }
    r->out->stop = stop;
    return TM_OK;
}

tm_status tm_slices_measure(const tm_slices_options *options, const tm_part *parts, int slices, const tm_part *whole,
                            int64_t layers, tm_slices *out, tm_error *err)
{
    TM_ASSERT(slices >= 2 && slices <= TM_LINE_POINTS && options->max_rounds >= 1);
    *out = (tm_slices){ .slices = slices, .parts = slices + (whole ? 1 : 0), .stop = TM_STOP_SECONDS };
    for (int k = 0; k < out->parts; k++) out->verdict[k] = TM_VERDICT_NOT_JUDGED;
    rounds r = { .options = options, .out = out, .whole_layers = layers };
    for (int k = 0; k < slices; k++) r.part[k] = &parts[k];
    if (whole) r.part[slices] = whole;
    tm_status st = take_rounds(&r, err);
    for (int k = 0; k < out->parts; k++) close_part(&r, k);
    return st;
}

void tm_slices_fini(tm_slices *slices)
{
    free(slices->seconds);
    *slices = (tm_slices){ 0 };
}

bool tm_slices_are_noise(const tm_slices *slices, double flops, const tm_peaks *peaks)
{
    tm_error       why = { 0 };
    const tm_line *line = &slices->line;
    if (slices->rounds >= TM_LINE_ROUNDS_FOR_INTERVAL) return false;
    if (!(line->b > 0) || !(line->value > 0)) return true;
    return tm_guard_flops(peaks, flops / line->value, "slices", &why) != TM_OK;
}
