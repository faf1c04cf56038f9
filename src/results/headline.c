/* SPDX-License-Identifier: Apache-2.0 */
#include "results/headline.h"

#include "results/chart.h"
#include "results/internal.h"
#include "results/report_figures.h"
#include "stats/sampling.h"

#include <math.h>
#include <string.h>

enum { SPEED, STEP, LOSS, MEMORY, ARITHMETIC, CARDS };

/* A figure, what stands below it, and how good it is: the interval of what it may be, NAN where it is not compared. */
typedef struct {
    const char *value, *below;
    double      lo, hi;
} card;

static const struct {
    const char *name;
    bool        more; /* is more better? */
} cards[CARDS] = { { "tokens/s per device", true },
                   { "step time, median", false },
                   { "loss", false },
                   { "peak memory", false },
                   { "arithmetic per device", true } };

static double number(const report_runs *r, size_t run, const char *path)
{
    return tm_result_number(r->runs[run], path);
}

static card speed_of(const report_runs *r, size_t run)
{
    double median = number(r, run, "tokens_per_second_per_device/median");
    double lo = number(r, run, "tokens_per_second_per_device/lo"),
           hi = number(r, run, "tokens_per_second_per_device/hi");
    bool known = isfinite(lo) && isfinite(hi);
    return (card){ .value = report_amount(r->arena, FIGURE_COUNT, median),
                   .below =
                       known ? tm_arena_format(r->arena, "95 %%: %s to %s", report_amount(r->arena, FIGURE_COUNT, lo),
                                               report_amount(r->arena, FIGURE_COUNT, hi))
                             : "no interval is known",
                   .lo = known ? lo : (double)NAN,
                   .hi = known ? hi : (double)NAN };
}

static card step_of(const report_runs *r, size_t run)
{
    double      median = number(r, run, "step_time/median"), p95 = number(r, run, "step_time/p95");
    bool        many = number(r, run, "tokens_per_second_per_device/n") >= TM_TAIL_SAMPLES;
    const char *slow = many ? report_amount(r->arena, FIGURE_SECONDS, p95) : "";
    return (card){ .value = report_amount(r->arena, FIGURE_SECONDS, median),
                   .below = *slow ? tm_arena_format(r->arena, "p95 %s", slow) : "",
                   .lo = (double)NAN,
                   .hi = (double)NAN };
}

static card loss_of(const report_runs *r, size_t run)
{
    double  validation = number(r, run, "loss/validation"), last = number(r, run, "loss/last");
    double  floor = number(r, run, "loss/floor"), gap = number(r, run, "judged/target_gap");
    double  value = isfinite(validation) ? validation : last;
    tm_text below = { 0 };
    tm_text_add(&below, isfinite(validation) ? "held out" : isfinite(last) ? "last step" : "");
    if (isfinite(floor))
        tm_text_printf(&below, "; %s %s", report_floor_name(r, run), report_amount(r->arena, FIGURE_LOSS, floor));
    if (isfinite(floor) && isfinite(gap) && tm_result_true(r->runs[run], "judged/must_reach_target"))
        tm_text_printf(&below, ", target %s", report_amount(r->arena, FIGURE_LOSS, floor + gap));
    card out = { .value = report_amount(r->arena, FIGURE_LOSS, value),
                 .below = tm_arena_text(r->arena, below.data),
                 .lo = value,
                 .hi = value };
    tm_text_fini(&below);
    return out;
}

static card memory_of(const report_runs *r, size_t run)
{
    double      used = number(r, run, "memory/used_bytes"), limit = number(r, run, "memory/limit_bytes");
    const char *most = report_amount(r->arena, FIGURE_BYTES, limit);
    return (card){ .value = report_amount(r->arena, FIGURE_BYTES, used),
                   .below = *most ? tm_arena_format(r->arena, "of %s, for each device", most) : "for each device",
                   .lo = used,
                   .hi = used };
}

/* Of the convention "titan", beside the peak that is known; as uncertain as the tokens/s that it is of. */
static card arithmetic_of(const report_runs *r, size_t run)
{
    report_roof roof = report_roof_of(r, run);
    double      flops = (double)NAN, mfu = (double)NAN;
    size_t      i;
    json_t     *one;
    json_array_foreach(results_member(results_tree(r->runs[run]), "flops"), i, one)
    {
        const char *name = json_string_value(json_object_get(one, "convention"));
        json_t     *rate = json_object_get(one, "per_second_per_device"), *part = json_object_get(one, "mfu_percent");
        if (!name || strcmp(name, "titan") != 0) continue;
        if (json_is_number(rate)) flops = json_number_value(rate);
        if (json_is_number(part)) mfu = json_number_value(part);
    }
    double per_token = flops / number(r, run, "tokens_per_second_per_device/median");
    card   speed = speed_of(r, run);
    card   out = { .value = report_rate(r->arena, flops, "FLOP/s"),
                   .below = "",
                   .lo = per_token * speed.lo,
                   .hi = per_token * speed.hi };
    if (isfinite(mfu))
        out.below = tm_arena_format(r->arena, "MFU %s", report_amount(r->arena, FIGURE_PERCENT, mfu));
    else if (isfinite(flops) && roof.flops_known)
        out.below = tm_arena_format(r->arena, "%s of the peak, %s",
                                    report_amount(r->arena, FIGURE_PERCENT, 100 * flops / roof.flops),
                                    report_rate(r->arena, roof.flops, "FLOP/s"));
    else if (isfinite(flops))
        out.below = "the device's peak is not known";
    return out;
}

static card (*const card_of[CARDS])(const report_runs *r, size_t run) = { speed_of, step_of, loss_of, memory_of,
                                                                          arithmetic_of };

static void add_verdict(const report_runs *r, size_t run, tm_text *out)
{
    const char *verdict = tm_result_shown(r->runs[run], "verdict");
    tm_text_add(out, "<span class=\"verdict ");
    chart_escape(out, verdict);
    tm_text_add(out, "\">");
    chart_escape(out, verdict);
    tm_text_add(out, "</span> ");
    chart_escape(out, tm_result_shown(r->runs[run], "reason"));
}

/* Runs are compared if all have this in common. */
static const struct {
    const char *name, *path;
} alike[] = { { "model", "model" },
              { "sequence length", "configuration/training.seq_len" },
              { "tokens of a step", "batch_tokens" } };

/* What the runs differ in, so that nothing of them is compared; NULL: in nothing. */
static const char *difference(const report_runs *r)
{
    for (size_t i = 1; i < r->n; i++) {
        for (size_t k = 0; k < sizeof alike / sizeof alike[0]; k++)
            if (strcmp(tm_result_shown(r->runs[0], alike[k].path), tm_result_shown(r->runs[i], alike[k].path)) != 0)
                return alike[k].name;
        if (strcmp(report_loss_unit(r, 0), report_loss_unit(r, i)) != 0) return "unit of the loss";
    }
    return NULL;
}

/* Has the run a figure that is compared? */
static bool counts(const report_runs *r, size_t run, const card *one)
{
    return isfinite(one->lo) && strcmp(tm_result_shown(r->runs[run], "verdict"), "invalid") != 0;
}

/* Is no other run better for certain, and was it compared with one? Losses are compared only of the same data. */
static bool is_best(const report_runs *r, size_t run, int c, const card *all)
{
    const card *mine = &all[run * CARDS + (size_t)c];
    const char *data = tm_result_shown(r->runs[run], "data_source");
    size_t      others = 0;
    if (!counts(r, run, mine)) return false;
    for (size_t i = 0; i < r->n; i++) {
        const card *other = &all[i * CARDS + (size_t)c];
        if (c == LOSS && strcmp(data, tm_result_shown(r->runs[i], "data_source")) != 0) return false;
        if (i == run || !counts(r, i, other)) continue;
        others++;
        if (cards[c].more ? other->lo > mine->hi : other->hi < mine->lo) return false;
    }
    return others > 0;
}

static void add_cards(const report_runs *r, tm_text *out)
{
    tm_text_add(out, "<p class=\"run\"><b>");
    chart_escape(out, r->names[0]);
    tm_text_add(out, "</b> ");
    add_verdict(r, 0, out);
    tm_text_add(out, "</p>\n<div id=\"headline\" class=\"cards\">");
    for (int c = 0; c < CARDS; c++) {
        card one = card_of[c](r, 0);
        if (!*one.value) continue;
        tm_text_printf(out, "<div class=\"card\"><span class=\"what\">%s</span><b>", cards[c].name);
        chart_escape(out, one.value);
        tm_text_add(out, "</b><span class=\"soft\">");
        chart_escape(out, one.below);
        tm_text_add(out, "</span></div>");
    }
    tm_text_add(out, "</div>\n");
}

static void add_row(const report_runs *r, size_t run, const card *all, bool compared, tm_text *out)
{
    tm_text_add(out, "<tr><th>");
    chart_escape(out, r->names[run]);
    tm_text_add(out, "</th><td>");
    add_verdict(r, run, out);
    tm_text_add(out, "</td>");
    for (int c = 0; c < CARDS; c++) {
        const card *one = &all[run * CARDS + (size_t)c];
        bool        best = compared && is_best(r, run, c, all);
        tm_text_add(out, best ? "<td class=\"best\"><b>★ " : "<td><b>");
        chart_escape(out, *one->value ? one->value : "–");
        tm_text_add(out, "</b><span class=\"soft\">");
        chart_escape(out, one->below);
        tm_text_add(out, "</span></td>");
    }
    tm_text_add(out, "</tr>\n");
}

void report_headline(const report_runs *r, tm_text *out)
{
    if (r->n == 1) {
        add_cards(r, out);
        return;
    }
    card       *all = tm_arena_take(r->arena, r->n * CARDS * sizeof *all);
    const char *differ = difference(r);
    for (size_t i = 0; i < r->n; i++)
        for (int c = 0; c < CARDS; c++) all[i * CARDS + (size_t)c] = card_of[c](r, i);
    tm_text_add(out, "<div class=\"wide\"><table id=\"headline\"><tr><th>run</th><th>verdict</th>");
    for (int c = 0; c < CARDS; c++) tm_text_printf(out, "<th>%s</th>", cards[c].name);
    tm_text_add(out, "</tr>\n");
    for (size_t i = 0; i < r->n; i++) add_row(r, i, all, !differ, out);
    tm_text_add(out, "</table></div>\n<p class=\"note\">");
    if (differ)
        tm_text_printf(out, "No run is marked as the best: the runs differ in %s.", differ);
    else
        tm_text_add(out,
                    "★ the best; several where their intervals overlap. Invalid runs are not compared, speeds only "
                    "with an interval, losses only of the same data.");
    tm_text_add(out, "</p>\n");
}
