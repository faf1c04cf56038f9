/* SPDX-License-Identifier: Apache-2.0 */
/* tests/bench/ab_rules.h - rules of every A/B session: its turns follow the design, and the report for people has the
 * figures of the one for programs, which are those of the record. */
#ifndef TM_TESTS_BENCH_AB_RULES_H
#define TM_TESTS_BENCH_AB_RULES_H

#include "apps/bench/ab.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* --- the report --------------------------------------------------------------------------------------------------- */

static inline json_t *report_member(json_t *report, const char *path)
{
    char name[64];
    for (const char *slash; (slash = strchr(path, '/')); path = slash + 1) {
        snprintf(name, sizeof name, "%.*s", (int)(slash - path), path);
        report = json_object_get(report, name);
    }
    json_t *member = json_object_get(report, path);
    if (!member) fail_msg("the report has no '%s'", path);
    return member;
}

static inline double report_number(json_t *report, const char *path)
{
    json_t *member = report_member(report, path);
    return json_is_number(member) ? json_number_value(member) : (double)NAN;
}

/* The line that begins with `label`. */
static inline const char *report_line(const char *text, const char *label)
{
    for (const char *at = text; at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
        if (strncmp(at, label, strlen(label)) == 0) return at + strlen(label);
    fail_msg("no line '%s'", label);
    return "";
}

/* The next number of a line and half of its last digit; false: none is left. Times are in seconds. */
static inline bool report_next(const char **at, double *value, double *half)
{
    const char *end = *at + strcspn(*at, "\n"), *s = *at;
    char        digits[48];
    size_t      n = 0, places = 0;
    bool        point = false;
    while (s < end && !(*s >= '0' && *s <= '9')) s++;
    if (s == end) return false;
    if (s[-1] == '-') digits[n++] = '-';
    for (; s < end && n < sizeof digits - 1 && strchr("0123456789.,", *s); s++) {
        bool comma = *s == ',';
        if (comma && !(s[1] >= '0' && s[1] <= '9')) break;
        if (*s == '.' && !(s[1] >= '0' && s[1] <= '9')) break;
        if (!comma) digits[n++] = *s;
        places += point;
        point = point || *s == '.';
    }
    digits[n] = '\0';
    *half = 0.501 * pow(10, -(double)places);
    *value = strtod(digits, NULL);
    if (strncmp(s, " ms per", 7) == 0 || strncmp(s, " s per", 6) == 0) *half = 6e-4 * *value; /* four digits */
    if (strncmp(s, " ms", 3) == 0) *value *= 1e-3, *half *= 1e-3;
    *at = s;
    return true;
}

static inline void report_line_has(const char *text, const char *label, const double *wanted, size_t n)
{
    const char *at = report_line(text, label);
    double      value, half;
    for (size_t i = 0; i < n; i++) {
        if (!report_next(&at, &value, &half)) fail_msg("'%s': %zu of %zu figures", label, i, n);
        if (!(fabs(value - wanted[i]) <= half + 1e-9 * fabs(value)))
            fail_msg("'%s': figure %zu is %.9g, wanted %.9g", label, i + 1, value, wanted[i]);
    }
    if (report_next(&at, &value, &half)) fail_msg("'%s': a figure too many, %g", label, value);
}
#define REPORT_LINE(text, label, ...)                                                                                  \
    report_line_has(text, label, (const double[]){ __VA_ARGS__ }, sizeof(double[]){ __VA_ARGS__ } / sizeof(double))

static inline void report_words(const char *text, const char *label, const char *words)
{
    const char *line = report_line(text, label);
    char        whole[512];
    snprintf(whole, sizeof whole, "%.*s", (int)strcspn(line, "\n"), line);
    if (!strstr(whole, words)) fail_msg("'%s' has no '%s'", whole, words);
}

/* The members are the figures, by name. */
static inline void report_has_figures(json_t *report, const tm_ab_session *s, const tm_ab_figures *f)
{
    static const char *const ends[] = { "budget", "target", "interrupted" };
    bool                     short_one = f->paired.verdict == TM_PAIRED_TOO_SHORT;
    const struct {
        const char *path;
        double      value;
    } numbers[] = {
        { "a/step_seconds", f->step_seconds[0] },
        { "b/step_seconds", f->step_seconds[1] },
        { "a/tokens_per_second", f->tokens_per_second[0] },
        { "b/tokens_per_second", f->tokens_per_second[1] },
        { "b_over_a/ratio", f->paired.b.ratio },
        { "b_over_a/lo", f->paired.b.lo },
        { "b_over_a/hi", f->paired.b.hi },
        { "a_over_a/ratio", f->paired.control.ratio },
        { "a_over_a/lo", f->paired.control.lo },
        { "a_over_a/hi", f->paired.control.hi },
        { "half_width", f->paired.half_width },
        { "floor", f->paired.floor },
        { "detectable", f->paired.detectable },
        { "pairs", (double)f->paired.pairs },
        { "rounds", (double)f->paired.rounds },
        { "turns", (double)f->turns },
        { "steps", (double)f->steps },
        { "warmup_turns", (double)f->warmup_turns },
        { "warmup_steps", (double)f->warmup_steps },
        { "cut_steps", (double)f->cut_steps },
        { "seconds", s->seconds },
        { "seed", (double)s->seed },
        { "budget_needed_seconds", short_one ? tm_ab_budget_needed(s) : (double)NAN },
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        double value = report_number(report, numbers[i].path);
        bool   none = !isfinite(value) && !isfinite(numbers[i].value);
        if (!none && !(fabs(value - numbers[i].value) <= 1e-15 * fabs(value)))
            fail_msg("%s is %.17g, wanted %.17g", numbers[i].path, value, numbers[i].value);
    }
    assert_string_equal(json_string_value(report_member(report, "verdict")), tm_paired_verdict_name(f->paired.verdict));
    assert_string_equal(json_string_value(report_member(report, "ended_by")), ends[s->end]);
    assert_int_equal(json_is_true(report_member(report, "whole_runs")), s->whole_runs);
}

/* What is printed of a session: every figure for people is that for programs, and that is the record's. */
static inline void report_is_right(const tm_ab_session *s)
{
    tm_text       text = { 0 }, json = { 0 };
    tm_ab_figures f = tm_ab_figures_of(s);
    tm_ab_print_text(s, &text);
    tm_ab_print_json(s, &json);
    json_t *report = json_loads(json.data, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(report);
    report_has_figures(report, s, &f);
    for (int side = 0; side < 2; side++) {
        const char *label = side ? "B    " : "A    ";
        report_words(text.data, label, side ? s->b : s->a);
        if (isnan(f.step_seconds[side])) continue;
        if (isfinite(f.tokens_per_second[side]))
            REPORT_LINE(text.data, label, f.step_seconds[side], f.tokens_per_second[side]);
        else
            REPORT_LINE(text.data, label, f.step_seconds[side]);
    }
    if (isfinite(f.paired.b.lo)) REPORT_LINE(text.data, "B / A", f.paired.b.ratio, f.paired.b.lo, f.paired.b.hi, 95);
    if (isfinite(f.paired.control.lo))
        REPORT_LINE(text.data, "A / A", f.paired.control.ratio, f.paired.control.lo, f.paired.control.hi);
    if (isfinite(f.paired.floor))
        REPORT_LINE(text.data, "floor", 100 * f.paired.floor, 4, 5, 100 * f.paired.detectable);
    REPORT_LINE(text.data, "samples", (double)f.paired.pairs, (double)f.paired.rounds, (double)f.turns, (double)f.steps,
                (double)f.warmup_turns, (double)f.warmup_steps, (double)f.cut_steps);
    REPORT_LINE(text.data, "ended", s->seconds);
    static const char *const verdicts[] = { [TM_PAIRED_TOO_SHORT] = "inconclusive:",
                                            [TM_PAIRED_NO_DIFFERENCE] = "no difference seen",
                                            [TM_PAIRED_FASTER] = "B is faster: -",
                                            [TM_PAIRED_SLOWER] = "B is slower: +" };
    report_words(text.data, "verdict", verdicts[f.paired.verdict]);
    if (f.paired.verdict == TM_PAIRED_FASTER || f.paired.verdict == TM_PAIRED_SLOWER)
        REPORT_LINE(text.data, "verdict", 100 * (f.paired.b.ratio - 1));
    if (f.turns && (strstr(text.data, "nan") || strstr(text.data, "inf "))) fail_msg("%s", text.data);
    json_decref(report);
    tm_text_fini(&text);
    tm_text_fini(&json);
}

/* --- turns -------------------------------------------------------------------------------------------------------- */

/* What the programs of a session do: steps of a turn or a run, the first of a process takes five times as long. */
typedef struct {
    double  seconds[2]; /* a step of A, of B */
    int64_t steps, tokens[2];
} ab_play;

/* One turn of `n` steps from `first` on; `share` (NULL: 1) of the usual time of step k. */
static inline void turn_is(const tm_ab_turn *t, const ab_play *play, int64_t first, int64_t n, double (*share)(int64_t))
{
    int    b = t->side == TM_AB_B;
    double sum = 0;
    assert_int_equal(t->first_step, first);
    assert_int_equal(t->n, n);
    assert_int_equal(t->cut, 0);
    assert_true(t->work == (double)(n * play->tokens[b])); /* exact: whole numbers */
    for (int64_t k = 0; k < n; k++) {
        double part = first + k == 1 ? 5 : share ? share(first + k) : 1;
        sum += t->seconds[k];
        if (fabs(t->seconds[k] - part * play->seconds[b]) > 1e-12)
            fail_msg("step %lld takes %g s, wanted %g", (long long)(first + k), t->seconds[k], part * play->seconds[b]);
    }
    assert_true(sum > 0);
}

/* The sides of six turns, or fewer where a session was stopped: a block is mirrored. */
static inline void block_is_mirrored(const int *sides, int n)
{
    for (int i = 0; i < n && i < 3; i++)
        for (int k = 0; k < i; k++) assert_int_not_equal(sides[i], sides[k]);
    for (int i = 3; i < n; i++) assert_int_equal(sides[i], sides[5 - i]);
}

/* Live sessions: a round starts three processes, each warmed up by two turns, then plays blocks. Whole runs: every turn
 * is a process, whose first step is warm-up. `stopped`: the last block is not complete. */
static inline void turns_are_regular(const tm_ab_session *s, const ab_play *play, double (*share)(int64_t),
                                     bool stopped)
{
    int64_t next[TM_AB_SIDES] = { 1, 1, 1 }, round = -1, block = -1, warmups = 0;
    int     sides[6], n = 0;
    for (int64_t i = 0; i < s->n_turns; i++) {
        const tm_ab_turn *t = &s->turns[i];
        bool              warm = t->kind == TM_AB_WARMUP;
        assert_int_equal(warm, t->block < 0);
        if (s->whole_runs) {
            assert_int_equal(warm, i % 2 == 0);
            turn_is(t, play, warm ? 1 : 2, warm ? 1 : play->steps - 1, share);
            if (warm) continue;
            assert_int_equal(t->side, t[-1].side);
            assert_int_equal(t->round, i / 12);
            assert_int_equal(t[-1].round, t->round);
            assert_int_equal(t->block, i / 12);
        } else {
            if (t->round != round) { /* new processes */
                assert_int_equal(t->round, round + 1);
                assert_int_equal(n % 6, 0);
                next[0] = next[1] = next[2] = 1;
                warmups = 0, round++;
            }
            turn_is(t, play, next[t->side], play->steps, share);
            next[t->side] += play->steps;
            if (warm) {
                assert_int_equal(n % 6, 0);
                if (warmups++ % 2) assert_int_equal(t->side, t[-1].side);
                if (warmups % 2) assert_int_equal(t->first_step, 1);
                continue;
            }
            assert_int_equal(warmups, 6);
            assert_int_equal(t->block, block + (n % 6 == 0));
        }
        block = t->block;
        if (n == 6) n = 0;
        sides[n++] = (int)t->side;
        block_is_mirrored(sides, n);
    }
    if (!stopped) assert_int_equal(n % 6, 0);
}

#endif
