/* SPDX-License-Identifier: Apache-2.0 */
#include "results/baseline.h"

#include "results/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *member, *unit;
} rates[] = { { "images_per_second_per_device/median", "images/s" },
              { "tokens_per_second_per_device/median", "tokens/s" } };

/* What counts of a side. */
typedef struct {
    tm_start *start; /* (n) */
    size_t    n, noisy, invalid, without;
} starts;

/* Seconds since the first of March of year 0; NAN: not a time such as "2026-01-31T12:00:00Z". */
static double seconds_of(const char *finished)
{
    int year, month, day, hour, minute, second;
    if (!finished || sscanf(finished, "%4d-%2d-%2dT%2d:%2d:%2dZ", &year, &month, &day, &hour, &minute, &second) != 6)
        return (double)NAN;
    int  of_march = (month + 9) % 12, y = year - of_march / 10;
    long days = 365L * y + y / 4 - y / 100 + y / 400 + (of_march * 306 + 5) / 10 + day - 1;
    return 86400.0 * (double)days + 3600.0 * hour + 60.0 * minute + second;
}

static bool verdict_is(const tm_result *run, const char *name)
{
    const char *verdict = tm_result_string(run, "verdict");
    return verdict && strcmp(verdict, name) == 0;
}

static tm_status check_alike(const tm_baseline_side *side, const tm_result *run, tm_error *err)
{
    static const char *const members[] = { "model",   "precision",  "device",      "devices",
                                           "threads", "parameters", "batch_tokens" };
    if (tm_result_kind_of(run) != TM_RESULT_RUN)
        return tm_fail(err, TM_INVALID, "'%s' is %s; --baseline judges runs", tm_result_name(run), tm_result_what(run));
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        json_t *a = results_member(results_tree(side->runs[0]), members[i]);
        json_t *b = results_member(results_tree(run), members[i]);
        if (a == b || (a && b && json_equal(a, b))) continue;
        return tm_fail(err, TM_INVALID,
                       "'%s' and '%s' of %s differ in %s (%.60s, %.60s); the starts of a side are of one "
                       "configuration",
                       tm_result_name(side->runs[0]), tm_result_name(run), side->name, members[i],
                       tm_result_shown(side->runs[0], members[i]), tm_result_shown(run, members[i]));
    }
    return TM_OK;
}

/* Two results of one start would make the spread look smaller than it is. */
static tm_status check_other(const tm_baseline_side *side, size_t i, tm_error *err)
{
    static const char *const members[] = { "finished", "step_seconds" };
    for (size_t k = 0; k < i; k++) {
        size_t same = 0;
        for (int m = 0; m < 2; m++) {
            json_t *a = results_member(results_tree(side->runs[k]), members[m]);
            json_t *b = results_member(results_tree(side->runs[i]), members[m]);
            same += a && b && json_equal(a, b);
        }
        if (same == 2)
            return tm_fail(err, TM_INVALID, "'%s' and '%s' of %s are the same run; a start counts once",
                           tm_result_name(side->runs[k]), tm_result_name(side->runs[i]), side->name);
    }
    return TM_OK;
}

static tm_status gather(const tm_baseline_side *side, const char *member, starts *out, tm_error *err)
{
    out->start = tm_alloc(side->n * sizeof *out->start);
    for (size_t i = 0; i < side->n; i++) {
        const tm_result *run = side->runs[i];
        TM_TRY(check_alike(side, run, err));
        TM_TRY(check_other(side, i, err));
        double speed = tm_result_number(run, member);
        if (verdict_is(run, "invalid")) {
            out->invalid++;
        } else if (verdict_is(run, "noisy")) {
            out->noisy++;
        } else if (!(speed > 0)) {
            out->without++;
        } else {
            out->start[out->n++] = (tm_start){ speed, seconds_of(tm_result_string(run, "finished")) };
        }
    }
    if (out->without == side->n)
        return tm_fail(err, TM_INVALID, "'%s' has no rate to compare with its baseline", tm_result_name(side->runs[0]));
    return TM_OK;
}

static double geometric_mean(const starts *s)
{
    double sum = 0;
    for (size_t i = 0; i < s->n; i++) sum += log(s->start[i].speed);
    return s->n ? exp(sum / (double)s->n) : (double)NAN;
}

static tm_table *table_of_sides(const tm_baseline_side *const sides[2], const starts s[2], const char *unit,
                                const double spread[2])
{
    static const tm_column columns[] = { { "side", 0 }, { "starts", 0 }, { "counted", 0 },       { "left_out", 0 },
                                         { "rate", 6 }, { "unit", 0 },   { "spread_percent", 3 } };
    tm_table              *table = tm_table_create("sides");
    tm_table_columns(table, columns, sizeof columns / sizeof columns[0]);
    for (int i = 0; i < 2; i++) {
        const struct {
            size_t      n;
            const char *what;
        } left[] = { { s[i].noisy, "noisy" }, { s[i].invalid, "invalid" }, { s[i].without, "without a rate" } };
        tm_text why = { 0 };
        for (int k = 0; k < 3; k++)
            if (left[k].n) tm_text_printf(&why, "%s%zu %s", why.length ? ", " : "", left[k].n, left[k].what);
        tm_table_row(table);
        tm_table_text(table, "side", sides[i]->name);
        tm_table_i64(table, "starts", (int64_t)sides[i]->n);
        tm_table_i64(table, "counted", (int64_t)s[i].n);
        tm_table_text(table, "left_out", why.length ? why.data : NULL);
        tm_table_f64(table, "rate", geometric_mean(&s[i]));
        tm_table_text(table, "unit", unit);
        tm_table_f64(table, "spread_percent", 100 * spread[i]);
        tm_text_fini(&why);
    }
    return table;
}

static tm_table *table_of_verdict(const tm_baseline_result *r, double accepted)
{
    static const char *const names[] = { "not slower", "slower", "no verdict: too few starts",
                                         "no verdict: too much spread", "no verdict: not in turns" };
    static const tm_column   columns[] = { { "slowdown_percent", 3 }, { "slowdown_lo", 3 }, { "slowdown_hi", 3 },
                                           { "accepted_percent", 3 }, { "in_turns", 0 },    { "starts_needed", 0 },
                                           { "verdict", 0 } };
    const tm_starts_result  *j = &r->judged;
    tm_table                *table = tm_table_create("verdict");
    tm_table_columns(table, columns, sizeof columns / sizeof columns[0]);
    tm_table_row(table);
    tm_table_f64(table, "slowdown_percent", 100 * j->slowdown);
    tm_table_f64(table, "slowdown_lo", 100 * j->lo);
    tm_table_f64(table, "slowdown_hi", 100 * j->hi);
    tm_table_f64(table, "accepted_percent", 100 * accepted);
    tm_table_bool(table, "in_turns", j->in_turns);
    tm_table_i64(table, "starts_needed", j->needed);
    tm_table_text(table, "verdict", names[j->verdict]);
    if (!j->in_turns && j->verdict == TM_STARTS_KEPT)
        tm_table_note(table, "the starts of the two sides did not take turns: a machine that changed in between looks "
                             "like a difference, or hides one");
    return table;
}

tm_status tm_results_baseline(const tm_baseline_side *a, const tm_baseline_side *base, double accepted,
                              tm_baseline_result *out, tm_error *err)
{
    const tm_baseline_side *sides[2] = { a, base };
    starts                  s[2] = { { 0 }, { 0 } };
    size_t                  which = isfinite(tm_result_number(a->runs[0], rates[0].member)) ? 0 : 1;
    tm_status               st = TM_OK;
    *out = (tm_baseline_result){ 0 };
    for (int i = 0; i < 2 && st == TM_OK; i++) st = gather(sides[i], rates[which].member, &s[i], err);
    if (st == TM_OK) {
        out->judged = tm_starts_judge(s[0].start, (int64_t)s[0].n, s[1].start, (int64_t)s[1].n, accepted);
        for (int i = 0; i < 2; i++) out->counted[i] = s[i].n;
        out->sides = table_of_sides(sides, s, rates[which].unit, out->judged.spread);
        out->verdict = table_of_verdict(out, accepted);
    }
    for (int i = 0; i < 2; i++) free(s[i].start);
    return st;
}
