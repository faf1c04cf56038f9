/* SPDX-License-Identifier: Apache-2.0 */
#include "results/report_figures.h"

#include "results/internal.h"
#include "train/run/verdict.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const report_figure report_figures[] = {
    { "verdict", "verdict", FIGURE_PLAIN },
    { "reason", "reason", FIGURE_PLAIN },
    { "model", "model", FIGURE_PLAIN },
    { "parameters", "parameters", FIGURE_COUNT },
    { "number format", "precision", FIGURE_PLAIN },
    { "device", "device", FIGURE_PLAIN },
    { "threads", "threads", FIGURE_COUNT },
    { "data", "data_source", FIGURE_PLAIN },
    { "steps", "steps/done", FIGURE_COUNT },
    { "stopped because", "steps/stopped", FIGURE_PLAIN },
    { "tokens per second and device (median)", "tokens_per_second_per_device/median", FIGURE_COUNT },
    { "from", "tokens_per_second_per_device/lo", FIGURE_COUNT },
    { "to", "tokens_per_second_per_device/hi", FIGURE_COUNT },
    { "over all counted steps", "tokens_per_second_per_device_overall/value", FIGURE_COUNT },
    { "step time (median)", "step_time/median", FIGURE_SECONDS },
    { "step time p95", "step_time/p95", FIGURE_SECONDS },
    { "variation of step times", "step_time/variation_percent", FIGURE_PERCENT },
    { "steady state reached", "steady_state/reached", FIGURE_PLAIN },
    { "loss, first step", "loss/first", FIGURE_LOSS },
    { "loss, last step", "loss/last", FIGURE_LOSS },
    { "loss, validation", "loss/validation", FIGURE_LOSS },
    { "loss, least possible", "loss/floor", FIGURE_LOSS },
    { "first tensor exceeding the error bound", "microscope/first_divergent_tensor", FIGURE_PLAIN },
    { "before step", "microscope/first_divergent_step", FIGURE_COUNT },
    { "memory planned", "memory/planned_bytes", FIGURE_BYTES },
    { "memory used", "memory/used_bytes", FIGURE_BYTES },
    { "memory of the whole process", "memory/resident_bytes", FIGURE_BYTES },
    { "machine", "machine/verdict", FIGURE_PLAIN },
    { "machine, reason", "machine/reason", FIGURE_PLAIN },
    { "the others waited", "waited_for", FIGURE_PLAIN },
    { "gradient check", "certificate/gradients", FIGURE_CHECK },
    { "time to first step", "first_step_seconds", FIGURE_SECONDS },
    { "total time", "seconds", FIGURE_SECONDS },
    { "finished", "finished", FIGURE_PLAIN },
    { "host", "environment/os/host", FIGURE_PLAIN },
    { "processor", "environment/cpu/model", FIGURE_PLAIN },
    { "commit", "environment/build/commit", FIGURE_PLAIN },
    { "configuration", "configuration_hash", FIGURE_PLAIN },
    { "weights", "weights_hash", FIGURE_PLAIN },
    { NULL, NULL, FIGURE_PLAIN },
};

/* With a letter of the thousands that it has: 1.18e11 -> "118 G". */
static const char *with_letter(tm_arena *arena, double value, int digits, const char *unit)
{
    static const char *const letters[] = { "", "k", "M", "G", "T", "P", "E" };
    int                      i = 0;
    for (; fabs(value) >= 1000 && i < 6; i++) value /= 1000;
    return tm_arena_format(arena, "%.*g %s%s", digits, value, letters[i], unit);
}

static const char *count(tm_arena *arena, double value)
{
    char text[40];
    if (fabs(value) >= 999999.5) return with_letter(arena, value, 4, "");
    if (fabs(value) < 1000) return tm_arena_format(arena, "%.4g", value);
    return tm_arena_text(arena, tm_format_grouped(text, (int64_t)llround(value)));
}

static const char *duration(tm_arena *arena, double value)
{
    static const struct {
        double      up_to, unit;
        const char *name;
    } units[] = { { 1e-3, 1e-6, "µs" }, { 1, 1e-3, "ms" }, { 120, 1, "s" }, { 7200, 60, "min" }, { 1e300, 3600, "h" } };
    size_t i = 0;
    while (fabs(value) >= units[i].up_to && i < 4) i++;
    return tm_arena_format(arena, "%.4g %s", value / units[i].unit, units[i].name);
}

const char *report_amount(tm_arena *arena, figure_kind kind, double value)
{
    char text[32];
    if (!isfinite(value)) return "";
    switch (kind) {
    case FIGURE_COUNT:
        return count(arena, value);
    case FIGURE_SECONDS:
        return duration(arena, value);
    case FIGURE_BYTES:
        return tm_arena_text(arena, tm_format_bytes(text, value));
    case FIGURE_PERCENT:
        return tm_arena_format(arena, "%.3g %%", value);
    case FIGURE_LOSS:
        return tm_arena_format(arena, "%.5g", value);
    case FIGURE_CHECK:
    case FIGURE_PLAIN:
        break;
    }
    return tm_arena_format(arena, "%.6g", value);
}

const char *report_rate(tm_arena *arena, double value, const char *unit)
{
    return isfinite(value) ? with_letter(arena, value, 3, unit) : "";
}

/* Why were a run's gradients not checked? */
static const char *why_not(const report_runs *r, const tm_result *run)
{
    const char *configured = tm_result_shown(run, "configuration/debug.certificate");
    double      planned = tm_result_number(run, "steps/planned");
    if (strcmp(configured, "false") == 0) return "not run: debug.certificate is false";
    if (planned < TM_JUDGED_STEPS) return tm_arena_format(r->arena, "not run: fewer than %d steps", TM_JUDGED_STEPS);
    return "not run";
}

/* What was not looked at did not fail. */
static const char *check_of(const report_runs *r, const tm_result *run, const char *path)
{
    const char *reason = tm_result_shown(run, "certificate/reason");
    bool        done = tm_result_true(run, "certificate/done");
    if (!*tm_result_shown(run, path)) return "";
    if (*reason) return tm_arena_format(r->arena, "%s: %s", done ? "failed" : "not run", reason);
    if (!done) return why_not(r, run);
    return tm_result_true(run, path) ? "passed" : "failed";
}

const char *report_shown(const report_runs *r, size_t run, const report_figure *figure)
{
    if (figure->kind == FIGURE_CHECK) return check_of(r, r->runs[run], figure->path);
    double value = tm_result_number(r->runs[run], figure->path);
    return isfinite(value) ? report_amount(r->arena, figure->kind, value) : tm_result_shown(r->runs[run], figure->path);
}

const char *report_leaf(const report_runs *r, size_t run, const char *path)
{
    static const char end[] = "_bytes";
    const json_t     *member = results_member(results_tree(r->runs[run]), path);
    size_t            n = strlen(path), m = sizeof end - 1;
    if (json_is_number(member) && n > m && strcmp(path + n - m, end) == 0)
        return report_amount(r->arena, FIGURE_BYTES, json_number_value(member));
    if (json_is_real(member)) return report_amount(r->arena, FIGURE_PLAIN, json_real_value(member));
    return tm_result_shown(r->runs[run], path);
}

bool report_is_empty(const report_runs *r, const report_figure *figure)
{
    for (size_t i = 0; i < r->n; i++)
        if (*tm_result_shown(r->runs[i], figure->path)) return false;
    return true;
}
