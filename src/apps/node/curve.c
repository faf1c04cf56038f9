/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/curve.c - rate, clock, power and temperature while all places multiply, and whether the rate falls. */
#include "apps/node/change.h"
#include "apps/node/checks.h"
#include "apps/node/load.h"
#include "apps/node/watch.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/text.h"
#include "stats/summary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_SAMPLE 0.5 /* seconds */
#define LEAST_SAMPLE 0.02

/* Places whose rates are one series: all cores, or a GPU. */
typedef struct {
    size_t         from, to;
    char           name[TM_NODE_PLACE];
    tm_node_watch *watch;
} group;

typedef struct {
    tm_node_places  places;
    tm_node_load  **load; /* (places); NULL: nothing runs there */
    tm_node_product product[2];
    uint64_t        seed;
    double          sample_s;
    double         *now;              /* (places) FLOP/s of this sample */
    double         *had;              /* (places) part of the time in which it had its processor */
    char (*wrong)[TM_NODE_TEXT];      /* (places) */
    double         *rates, *at, *own; /* (samples, places); (samples) seconds; the same part, mean of the cores */
    tm_node_sensed *sensed;           /* (samples, groups) */
    size_t          samples, room[4];
    group          *groups;
    size_t          n_groups;
} checker;

static bool is_gpu(const checker *c, size_t place)
{
    return tm_device_describe(c->places.items[place].device)->kind == TM_DEVICE_GPU;
}

/* --- measuring ---------------------------------------------------------------------------------------------------- */

/* The square in bfloat16, else the one in float32. */
static tm_status prepare(size_t place, void *context, tm_error *err)
{
    checker        *c = context;
    tm_node_product products[TM_NODE_PRODUCTS];
    const bool      gpu = is_gpu(c, place);
    double          seconds;
    if (!gpu && c->places.items[place].processor < 0) return TM_OK; /* the CPU: its cores work */
    tm_node_products(gpu, products);
    for (int i = 0; i < 2 && !c->load[place]; i++) {
        const tm_node_product *p = &products[i == 0 ? TM_NODE_PRODUCTS / 2 : 0];
        tm_error               why = { 0 };
        tm_status              st = tm_node_load_open(c->places.items[place].device, p, c->seed, &c->load[place], &why);
        if (st == TM_UNSUPPORTED) continue;
        if (st != TM_OK) return tm_fail(err, st, "%s", why.text);
        if (place == 0 || gpu) c->product[gpu] = *p;
    }
    return c->load[place] ? tm_node_load_run(c->load[place], 2, &seconds, err) : TM_OK;
}

/* Calls for the time of a sample. */
static tm_status measure(size_t place, void *context, tm_error *err)
{
    checker      *c = context;
    const int64_t begun_ns = tm_now_ns(), end_ns = begun_ns + (int64_t)(c->sample_s * 1e9);
    const double  begun = tm_node_thread_seconds();
    double        seconds = 0, calls = 0;
    char          wrong[TM_NODE_TEXT];
    if (!c->load[place]) return TM_OK;
    do {
        enum { CALLS = 4 };
        double more;
        TM_TRY(tm_node_load_run(c->load[place], CALLS, &more, err));
        seconds += more, calls += CALLS;
    } while (tm_now_ns() < end_ns);
    c->had[place] = (tm_node_thread_seconds() - begun) / (1e-9 * (double)(tm_now_ns() - begun_ns));
    c->now[place] = seconds > 0 ? c->product[is_gpu(c, place)].flops * calls / seconds : 0;
    TM_TRY(tm_node_load_verify(c->load[place], wrong, err));
    if (wrong[0] && !c->wrong[place][0]) memcpy(c->wrong[place], wrong, sizeof wrong);
    return TM_OK;
}

static void keep_sample(checker *c)
{
    c->rates = tm_grow(c->rates, &c->room[0], c->samples, c->places.n * sizeof *c->rates);
    c->at = tm_grow(c->at, &c->room[1], c->samples, sizeof *c->at);
    c->sensed = tm_grow(c->sensed, &c->room[2], c->samples, c->n_groups * sizeof *c->sensed);
    memcpy(c->rates + c->samples * c->places.n, c->now, c->places.n * sizeof *c->rates);
    c->at[c->samples] = c->places.spent_s;
    c->own = tm_grow(c->own, &c->room[3], c->samples, sizeof *c->own);
    c->own[c->samples] = c->places.cores > 0 ? tm_stats_mean(c->had, (int64_t)c->places.cores) : 1;
    for (size_t g = 0; g < c->n_groups; g++) {
        tm_node_sensed *to = &c->sensed[c->samples * c->n_groups + g];
        const double    nan = (double)NAN;
        *to = (tm_node_sensed){ nan, nan, nan, nan, nan };
        if (c->groups[g].watch) tm_node_watch_read(c->groups[g].watch, c->places.spent_s, to);
    }
    c->samples++;
}

static tm_status measure_all(checker *c, double seconds, tm_error *err)
{
    double last_s = 0;
    TM_TRY(tm_node_at_places(&c->places, prepare, c, err));
    while (c->samples < TM_NODE_LEAST_SAMPLES || seconds - c->places.spent_s > last_s) {
        const double before = c->places.spent_s;
        TM_TRY(tm_node_at_places(&c->places, measure, c, err));
        last_s = c->places.spent_s - before;
        keep_sample(c);
    }
    return TM_OK;
}

/* --- what it says ------------------------------------------------------------------------------------------------- */

static void tell(tm_node_outcome *out, const char *place, const char *name, const char *unit, double value)
{
    const double   nan = (double)NAN;
    tm_node_figure f = { .value = value, .low = nan, .high = nan, .floor = nan };
    if (!isfinite(value)) return;
    snprintf(f.place, sizeof f.place, "%s", place);
    snprintf(f.name, sizeof f.name, "%s", name);
    snprintf(f.unit, sizeof f.unit, "%s", unit);
    tm_node_figure_add(out, &f);
}

/* " (clock 3000 to 2500 MHz, hottest 97 C, 12 throttlings)". */
static void describe(const tm_node_cause *cause, char text[96])
{
    char *end = text + 96, *to = text;
    *to = '\0';
    if (isfinite(cause->clock[1]))
        to += snprintf(to, (size_t)(end - to), "clock %.0f to %.0f MHz, ", cause->clock[0], cause->clock[1]);
    if (isfinite(cause->hottest_c)) to += snprintf(to, (size_t)(end - to), "hottest %.0f C, ", cause->hottest_c);
    if (isfinite(cause->throttles)) to += snprintf(to, (size_t)(end - to), "%.0f throttlings, ", cause->throttles);
    if (isfinite(cause->held)) to += snprintf(to, (size_t)(end - to), "%.2g s held by heat, ", cause->held);
    if (to > text) to[-2] = '\0';
}

/* Did other work take the processors when the rate fell? */
static bool other_work(const checker *c, size_t at)
{
    const double more = 0.05; /* of the time */
    const size_t n = c->samples;
    if (at == 0 || at >= n) return false;
    return tm_stats_median(c->own + at, (int64_t)(n - at)) < tm_stats_median(c->own, (int64_t)at) - more;
}

static const char *why_undecided(const checker *c, const tm_node_cause *cause, size_t at)
{
    if (other_work(c, at)) return "other work took the processors from then on";
    return cause->known ? "no sensor says why" : "there are no sensors of clock and temperature";
}

/* The verdict on one series. What is below two floors of its places is no fall: other work does as much. */
static void judge(const checker *c, size_t which, const double *series, double floor, tm_node_outcome *out)
{
    const group       *g = &c->groups[which];
    const size_t       n = c->samples;
    tm_node_sensed    *sensed = tm_alloc(n * sizeof *sensed);
    const tm_node_fall fall = tm_node_fall_find(series, n, c->seed);
    const double       part = 1 - fall.late / fall.early;
    const bool         fell = fall.fell && part >= 2 * floor;
    char               words[96];
    for (size_t i = 0; i < n; i++) sensed[i] = c->sensed[i * c->n_groups + which];
    const tm_node_cause cause = tm_node_cause_find(sensed, n, part);
    free(sensed);
    tell(out, g->name, "early rate", "GFLOP/s", 1e-9 * tm_stats_median(series, (int64_t)(n / 4)));
    tell(out, g->name, "late rate", "GFLOP/s", 1e-9 * tm_stats_median(series + n - n / 4, (int64_t)(n / 4)));
    tell(out, g->name, "clock under load", "MHz", cause.clock[1]);
    tell(out, g->name, "hottest", "C", cause.hottest_c);
    tell(out, g->name, "power", "W", cause.watts);
    describe(&cause, words);
    if (fell && cause.agrees)
        tm_node_find(out, -1, g->name,
                     "the rate falls by %.1f %% after %.3g s, from %.4g to %.4g GFLOP/s (%s); expected: a steady one. "
                     "Look at cooling and power limits",
                     100 * part, c->at[fall.at], 1e-9 * fall.early, 1e-9 * fall.late, words);
    else if (fell)
        tm_node_undecided(out, "%s: the rate falls by %.1f %% after %.3g s, and %s; repeat it without other work",
                          g->name, 100 * part, c->at[fall.at], why_undecided(c, &cause, fall.at));
    else if (cause.throttles > 0 || cause.held > 0.01)
        tm_node_tell(out, -1, g->name, "heat throttles it, and the rate does not fall yet (%s)", words);
}

/* What each place keeps, for comparison with the others. Returns the floor. */
static double add_kept(const checker *c, const group *g, tm_node_outcome *out)
{
    const size_t  places = g->to - g->from, n = c->samples;
    double       *x = tm_alloc(places * n * sizeof *x);
    tm_node_rate *kept = tm_alloc(places * sizeof *kept);
    for (size_t p = 0; p < places; p++)
        for (size_t i = 0; i < n; i++) x[p * n + i] = c->rates[i * c->places.n + g->from + p];
    const double floor = tm_node_kept(x, places, n, kept);
    for (size_t p = 0; p < places; p++) {
        tm_node_figure f = { .name = "rate kept under load", .unit = "%", .sense = TM_NODE_SPEED, .floor = floor };
        snprintf(f.place, sizeof f.place, "%s", c->places.items[g->from + p].name);
        f.value = 100 * kept[p].value, f.low = 100 * kept[p].low, f.high = 100 * kept[p].high;
        tm_node_figure_add(out, &f);
    }
    free(x);
    free(kept);
    return floor;
}

static void say_reach(const checker *c, double floor, tm_node_outcome *out)
{
    const tm_node_sensed *s = &c->sensed[(c->samples - 1) * c->n_groups];
    tm_node_reach(
        out,
        "%zu samples in %.3g s; a fall that lasts, of %.2g %% of a place and %.2g %% of all; sensors: clock %s, "
        "temperature %s, power %s, throttling %s",
        c->samples, c->places.spent_s, 100 * fmax(3 * floor, TM_NODE_LEAST_FALL),
        100 * fmax(2 * floor, TM_NODE_LEAST_FALL), isfinite(s->clock_mhz) ? "yes" : "none",
        isfinite(s->hottest_c) ? "yes" : "none", isfinite(s->watts) ? "yes" : "none",
        isfinite(s->throttles) || isfinite(s->held) ? "yes" : "none");
}

static void conclude(const checker *c, tm_node_outcome *out)
{
    double *series = tm_alloc(c->samples * sizeof *series), floor = 0;
    for (size_t g = 0; g < c->n_groups; g++) {
        double least = (double)INFINITY;
        for (size_t i = 0; i < c->samples; i++) {
            series[i] = 0;
            for (size_t p = c->groups[g].from; p < c->groups[g].to; p++) series[i] += c->rates[i * c->places.n + p];
            least = fmin(least, series[i]);
        }
        if (!(least > 0)) continue; /* no kernel, or a clock that stood */
        const double own = add_kept(c, &c->groups[g], out);
        judge(c, g, series, own, out);
        floor = fmax(floor, own);
    }
    free(series);
    for (size_t p = 0; p < c->places.n; p++)
        if (c->wrong[p][0]) tm_node_find(out, -1, c->places.items[p].name, "under load: %.230s", c->wrong[p]);
    say_reach(c, floor, out);
}

/* --- the check ---------------------------------------------------------------------------------------------------- */

static void open_groups(checker *c, const char *sysroot)
{
    c->groups = memset(tm_alloc((c->places.n + 1) * sizeof *c->groups), 0, (c->places.n + 1) * sizeof *c->groups);
    if (c->places.cores > 0) {
        int *processors = tm_alloc(c->places.cores * sizeof *processors);
        for (size_t p = 0; p < c->places.cores; p++) processors[p] = c->places.items[p].processor;
        c->groups[c->n_groups++] = (group){ .to = c->places.cores,
                                            .name = "CPU",
                                            .watch = tm_node_watch_processors(processors, c->places.cores, sysroot) };
        free(processors);
    }
    for (size_t p = 0; p < c->places.n; p++) {
        if (!is_gpu(c, p)) continue;
        group *g = &c->groups[c->n_groups++];
        *g = (group){ .from = p, .to = p + 1, .watch = tm_node_watch_gpu(c->places.items[p].device) };
        memcpy(g->name, c->places.items[p].name, sizeof g->name);
    }
}

static void *zeroed(size_t n, size_t bytes)
{
    return memset(tm_alloc(n * bytes), 0, n * bytes);
}

tm_status node_check_curve(const tm_node_task *task, tm_node_outcome *out, tm_error *err)
{
    const char *sysroot = task->options->sysroot ? task->options->sysroot : "";
    checker     c = { .seed = task->options->seed };
    c.sample_s = fmax(LEAST_SAMPLE, fmin(MOST_SAMPLE, task->seconds / (1.4 * TM_NODE_LEAST_SAMPLES)));
    TM_TRY(tm_node_places_open(task, &c.places, err));
    c.load = zeroed(c.places.n, sizeof *c.load);
    c.now = zeroed(c.places.n, sizeof *c.now);
    c.had = zeroed(c.places.n, sizeof *c.had);
    c.wrong = zeroed(c.places.n, sizeof *c.wrong);
    open_groups(&c, sysroot);
    tm_status st = measure_all(&c, task->seconds, err);
    if (st == TM_OK) conclude(&c, out);
    for (size_t p = 0; p < c.places.n; p++) tm_node_load_close(c.load[p]);
    for (size_t g = 0; g < c.n_groups; g++) tm_node_watch_close(c.groups[g].watch);
    free(c.load);
    free(c.now);
    free(c.had);
    free(c.own);
    free(c.wrong);
    free(c.rates);
    free(c.at);
    free(c.sensed);
    free(c.groups);
    tm_node_places_close(&c.places);
    return st;
}
