/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/ab_report.c - what a session says, for people and for programs. */
#include "apps/bench/ab.h"

#include <math.h>
#include <stdio.h>

static const char *const ends[] = { "the budget ended", "the half-width reached the target", "interrupted" };

static void time_text(char out[40], double seconds)
{
    if (seconds >= 1)
        snprintf(out, 40, "%.4g s", seconds);
    else
        snprintf(out, 40, "%.4g ms", seconds * 1e3);
}

static void print_side(tm_text *out, const char *name, const char *text, const char *build, double step_seconds,
                       double rate)
{
    char time[40], grouped[40];
    time_text(time, step_seconds);
    tm_text_printf(out, "%-10s %12s per step", name, time);
    if (isfinite(rate)) tm_text_printf(out, ", %s tokens/s", tm_format_grouped(grouped, llround(rate)));
    tm_text_printf(out, "   %s\n", text);
    if (build) tm_text_printf(out, "%-10s %s\n", "", build);
}

static void print_ratio(tm_text *out, const char *name, const tm_paired_estimate *e, const char *remark)
{
    if (isnan(e->lo))
        tm_text_printf(out, "%-10s %12.4f   no interval: too few rounds\n", name, e->ratio);
    else
        tm_text_printf(out, "%-10s %12.4f   [%.4f, %.4f]   %s\n", name, e->ratio, e->lo, e->hi, remark);
}

static void print_verdict(tm_text *out, const tm_ab_session *session, const tm_ab_figures *f)
{
    const tm_paired_result *r = &f->paired;
    double                  percent = 100 * (r->b.ratio - 1);
    const char             *unit = f->tokens ? "time per token" : "time per step";
    if (r->verdict == TM_PAIRED_TOO_SHORT) {
        double needed = tm_ab_budget_needed(session);
        char   way_out[48] = "raise --budget";
        if (session->end == TM_AB_END_INTERRUPTED)
            snprintf(way_out, sizeof way_out, "it was interrupted");
        else if (isfinite(needed))
            snprintf(way_out, sizeof way_out, "give --budget %.0f", ceil(needed));
        tm_text_printf(out,
                       "verdict    inconclusive: %lld of the %d rounds needed to estimate start-to-start "
                       "variation; %s\n",
                       (long long)r->rounds, TM_PAIRED_UNITS, way_out);
    } else if (r->verdict == TM_PAIRED_NO_DIFFERENCE) {
        tm_text_printf(out, "verdict    no difference seen (one of %.2f %% would have been detected)\n",
                       100 * r->detectable);
    } else {
        tm_text_printf(out, "verdict    B is %s: %+.2f %% %s\n", tm_paired_verdict_name(r->verdict), percent, unit);
    }
}

void tm_ab_print_text(const tm_ab_session *session, tm_text *out)
{
    tm_ab_figures           f = tm_ab_figures_of(session);
    const tm_paired_result *r = &f.paired;
    print_side(out, "A", session->a, session->a_build, f.step_seconds[0], f.tokens_per_second[0]);
    print_side(out, "B", session->b, session->b_build, f.step_seconds[1], f.tokens_per_second[1]);
    print_ratio(out, "B / A", &r->b,
                f.tokens ? "time per token, pseudomedian of the rounds, 95 % interval"
                         : "time per step, pseudomedian of the rounds, 95 % interval");
    print_ratio(out, "A / A", &r->control, "the same of two copies of A");
    if (isfinite(r->floor))
        tm_text_printf(
            out,
            "floor      %10.2f %%   smaller differences do not count; detected in about 4 of 5 sessions: %.2f %%\n",
            100 * r->floor, 100 * r->detectable);
    tm_text_printf(
        out,
        "samples    %lld pairs in %lld round(s); %lld turns of %s with %lld steps count; besides these, %lld "
        "warm-up turns with %lld steps and %lld cut steps do not\n",
        (long long)r->pairs, (long long)r->rounds, (long long)f.turns,
        session->whole_runs ? "a whole run" : "live processes", (long long)f.steps, (long long)f.warmup_turns,
        (long long)f.warmup_steps, (long long)f.cut_steps);
    tm_text_printf(out, "ended      after %.1f s: %s\n", session->seconds, ends[session->end]);
    print_verdict(out, session, &f);
}

static void json_estimate(tm_json *json, const char *key, const tm_paired_estimate *e)
{
    tm_json_open(json, key, '{');
    tm_json_f64(json, "ratio", e->ratio);
    tm_json_f64(json, "lo", e->lo);
    tm_json_f64(json, "hi", e->hi);
    tm_json_close(json, '}');
}

static void json_side(tm_json *json, const char *key, const char *text, const char *build, double step_seconds,
                      double rate)
{
    tm_json_open(json, key, '{');
    tm_json_string(json, "command", text);
    tm_json_string(json, "build", build);
    tm_json_f64(json, "step_seconds", step_seconds);
    tm_json_f64(json, "tokens_per_second", rate);
    tm_json_close(json, '}');
}

void tm_ab_print_json(const tm_ab_session *session, tm_text *out)
{
    static const char *const end_names[] = { "budget", "target", "interrupted" };
    tm_ab_figures            f = tm_ab_figures_of(session);
    const tm_paired_result  *r = &f.paired;
    tm_json                  json = { .out = out, .indent = true };
    tm_json_open(&json, NULL, '{');
    tm_json_string(&json, "format", "trainmark.ab-result/1");
    tm_json_string(&json, "verdict", tm_paired_verdict_name(r->verdict));
    json_side(&json, "a", session->a, session->a_build, f.step_seconds[0], f.tokens_per_second[0]);
    json_side(&json, "b", session->b, session->b_build, f.step_seconds[1], f.tokens_per_second[1]);
    tm_json_string(&json, "unit", f.tokens ? "seconds per token" : "seconds per step");
    json_estimate(&json, "b_over_a", &r->b);
    json_estimate(&json, "a_over_a", &r->control);
    tm_json_f64(&json, "half_width", r->half_width);
    tm_json_f64(&json, "floor", r->floor);
    tm_json_f64(&json, "detectable", r->detectable);
    tm_json_i64(&json, "pairs", r->pairs);
    tm_json_i64(&json, "rounds", r->rounds);
    tm_json_i64(&json, "turns", f.turns);
    tm_json_i64(&json, "steps", f.steps);
    tm_json_i64(&json, "warmup_turns", f.warmup_turns);
    tm_json_i64(&json, "warmup_steps", f.warmup_steps);
    tm_json_i64(&json, "cut_steps", f.cut_steps);
    tm_json_bool(&json, "whole_runs", session->whole_runs);
    tm_json_string(&json, "ended_by", end_names[session->end]);
    tm_json_f64(&json, "seconds", session->seconds);
    tm_json_f64(&json, "budget_needed_seconds",
                r->verdict == TM_PAIRED_TOO_SHORT ? tm_ab_budget_needed(session) : (double)NAN);
    tm_json_i64(&json, "seed", (int64_t)session->seed);
    tm_json_close(&json, '}');
    tm_text_add(out, "\n");
}
