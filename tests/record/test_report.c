/* SPDX-License-Identifier: Apache-2.0 */
/* The report that ends a run is read back: every figure of it, with its unit, is the one that the run told, to the
 * digits that it has. Figures stand at the limits where their units change, and anywhere between. */
#include "support/fake_run.h"

#include "record/record.h"
#include "record/sink_kind.h"
#include "stats/sampling.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

enum { MOST_LINES = 120, MOST_CELLS = 6, WIDE = 96, WORDS = 26 };

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* A line in cells, which two spaces or more divide. */
typedef struct {
    char text[240];
    char cells[MOST_CELLS][200];
    int  n;
} told_line;

typedef struct {
    told_line lines[MOST_LINES];
    int       n;
} told;

static void read_line(told_line *l, const char *text, size_t length)
{
    assert_true(length < sizeof l->text);
    snprintf(l->text, sizeof l->text, "%.*s", (int)length, text);
    l->n = 0;
    for (const char *at = l->text + strspn(l->text, " "); *at && l->n < MOST_CELLS;) {
        const char *end = strstr(at, "  ");
        size_t      n = end ? (size_t)(end - at) : strlen(at);
        assert_true(n < sizeof l->cells[0]);
        snprintf(l->cells[l->n++], sizeof l->cells[0], "%.*s", (int)n, at);
        at += n;
        at += strspn(at, " ");
    }
}

static told *read_report(const char *text)
{
    told *t = calloc(1, sizeof *t);
    assert_non_null(t);
    for (const char *end; (end = strchr(text, '\n')); text = end + 1) {
        assert_true(t->n < MOST_LINES);
        read_line(&t->lines[t->n++], text, (size_t)(end - text));
    }
    return t;
}

/* The line that begins with this cell, behind the one that begins with `heading`; NULL: there is none. */
static const told_line *find(const told *t, const char *heading, const char *label)
{
    int i = 1;
    while (i < t->n && (t->lines[i - 1].n > 0 || strcmp(t->lines[i].cells[0], heading) != 0))
        i++; /* behind an empty line */
    for (i++; i < t->n && t->lines[i].n > 0; i++)
        if (strcmp(t->lines[i].cells[0], label) == 0) return &t->lines[i];
    return NULL;
}

static double unit_of(const char *unit)
{
    static const struct {
        const char *name;
        double      is;
    } units[] = { { "", 1 },           { "%", 0.01 },       { "s", 1 },          { "ms", 1e-3 },     { "FLOP", 1 },
                  { "KFLOP", 1e3 },    { "MFLOP", 1e6 },    { "GFLOP", 1e9 },    { "TFLOP", 1e12 },  { "PFLOP", 1e15 },
                  { "EFLOP", 1e18 },   { "FLOP/s", 1 },     { "KFLOP/s", 1e3 },  { "MFLOP/s", 1e6 }, { "GFLOP/s", 1e9 },
                  { "TFLOP/s", 1e12 }, { "PFLOP/s", 1e15 }, { "EFLOP/s", 1e18 }, { "B", 1 },         { "KiB", 0x1p10 },
                  { "MiB", 0x1p20 },   { "GiB", 0x1p30 } };
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(unit, units[i].name) == 0) return units[i].is;
    fail_msg("'%s' is no unit", unit);
    return 0;
}

/* "1,234.5 KiB" is `value`, to four digits or to the last one of those that are shown; "-" and "N/A": there is none.
 * The next larger unit is for what would show as 1000 of this one. */
static void says(const char *cell, double value)
{
    char   digits[64], *end;
    size_t n = 0, decimals = 0;
    if (!isfinite(value)) {
        assert_true(strcmp(cell, "-") == 0 || strcmp(cell, "N/A") == 0);
        return;
    }
    for (const char *c = cell; *c && *c != ' ' && n < sizeof digits - 1; c++)
        if (*c != ',') digits[n++] = *c;
    digits[n] = 0;
    double is = strtod(digits, &end);
    if (*end || n == 0) fail_msg("'%s' is no number", cell);
    const char *point = strchr(digits, '.'), *space = strchr(cell, ' '), *name = space ? space + 1 : "";
    bool        bytes = strchr(name, 'B') != NULL, four = strchr(name, 'F') != NULL || strcmp(name, "ms") == 0;
    double      unit = unit_of(name);
    if (point) decimals = strspn(point + 1, "0123456789");
    double most = 0.5001 * pow(10, -(double)decimals) * unit;
    if (four || (!*name && decimals != 4 && fabs(is) < 1000)) most = 5.001e-4 * fabs(value);
    if (!(fabs(is * unit - value) <= most + 1e-12 * fabs(value))) fail_msg("'%s' is not %.17g", cell, value);
    if ((four && unit < 1e18) || bytes) assert_true(fabs(is) < (bytes ? 1024 : 1000));
}

/* A row of these figures; `n` 0: there must be none. */
static void row_says(const told *t, const char *heading, const char *label, int n, double a, double b, double c)
{
    const double     values[] = { a, b, c };
    const told_line *l = find(t, heading, label);
    if (n == 0 && l) fail_msg("there is: %s", l->text);
    if (n == 0) return;
    if (!l) fail_msg("no row '%s'", label);
    assert_true(l->n > n);
    for (int i = 0; i < n; i++) says(l->cells[i + 1], values[i]);
}

/* --- what is told ------------------------------------------------------------------------------------------------- */

static const double reported[] = { 0.00001234, 0.99994, 0.99996, 0.999951, 1,        9.996, 99.994,
                                   99.996,     100,     999.94,  999.96,   999.9999, 1000,  1023.9,
                                   1023.996,   1024,    1500.5,  999999,   1e6 };
enum { LIMITS = sizeof reported / sizeof reported[0], DRAWS = 200, PHASES = 3, RANKS = 3, FEW = 20 };

/* A run whose every figure is drawn: one of the limits, something of any size, or none. */
typedef struct {
    uint64_t          state;
    tm_named_f64      flops[4], phases[PHASES], measures[2];
    tm_rank_told      ranks[RANKS];
    tm_straggler      stragglers[RANKS];
    tm_sample_summary speed;
    double            step_seconds;
    int64_t           steps; /* all alike */
    char              reason[240], sample[160];
    tm_event          start, step, end;
} run;

static uint64_t draw(run *r)
{
    r->state = r->state * 6364136223846793005u + 1442695040888963407u;
    return r->state >> 33;
}

static double figure(run *r)
{
    double value = reported[draw(r) % LIMITS];
    return draw(r) % 3 ? value : value * (double)(draw(r) % 1000000 + 1) / 7919;
}

static double maybe(run *r)
{
    return draw(r) % 4 ? figure(r) : (double)NAN;
}

/* Words of which one may be wider than the report. */
static void say_words(run *r, char *out, size_t room)
{
    size_t n = 0;
    for (uint64_t words = draw(r) % 12; words > 0 && n + 90 < room; words--) {
        if (n) out[n++] = draw(r) % 8 ? ' ' : '\n';
        for (uint64_t k = draw(r) % (draw(r) % 5 ? 12 : 72) + 1; k > 0; k--) out[n++] = (char)('o' + draw(r) % 12);
    }
    out[n] = 0;
}

static void draw_speed(run *r)
{
    r->speed = (tm_sample_summary){
        .n = (int64_t)(draw(r) % 3 ? draw(r) % 9 : FEW - 1 + draw(r) % 3),
        .warmup = (int64_t)figure(r),
        .outliers = (int64_t)figure(r),
        .median = figure(r),
        .p5 = figure(r),
        .p95 = maybe(r),
        .variation = figure(r) / 1000,
        .rate = figure(r),
        .rate_hi = figure(r),
        .effective_n = (double)(draw(r) % 9),
        .median_rate = maybe(r),
        .median_rate_hi = figure(r),
        .steady = { .reached = draw(r) % 2, .drift = maybe(r) / 100, .drift_lo = -maybe(r) / 100 }
    };
    r->speed.rate_lo = maybe(r);
    r->speed.median_rate_lo = maybe(r);
    r->speed.steady.drift_hi = figure(r) / 100;
}

static void draw_run(run *r, uint64_t seed)
{
    static const char *const names[] = { "a", "some lines", "unaccounted" };
    *r = (run){
        .state = seed * 977 + 1, .start = fake_started(), .step = fake_step(1), .end = { .kind = TM_EVENT_RUN_ENDED }
    };
    draw_speed(r);
    for (int i = 0; i < 4; i++)
        r->flops[i] = (tm_named_f64){ i == 0   ? "6 N"
                                      : i == 1 ? "all"
                                      : i == 2 ? "more"
                                               : "none",
                                      i == 3 ? (double)NAN : figure(r) * pow(1e3, (double)(draw(r) % 6)) };
    r->step_seconds = figure(r);
    r->steps = 1 + (int64_t)(draw(r) % 3);
    for (int i = 0; i < PHASES; i++)
        r->phases[i] = (tm_named_f64){ names[i], r->step_seconds * (double)(draw(r) % 9) / 20 };
    for (int i = 0; i < RANKS; i++)
        r->ranks[i] = (tm_rank_told){ .rank = 7 + i,
                                      .host = "some-host",
                                      .step_seconds = figure(r),
                                      .busy_seconds = figure(r),
                                      .wait_seconds = figure(r),
                                      .behind = figure(r) / 1000 };
    for (int i = 0; i < RANKS; i++)
        r->stragglers[i] = (tm_straggler){ .rank = 7 + i,
                                           .host = "some-host",
                                           .disturbed = draw(r) % 2,
                                           .since = (int64_t)figure(r),
                                           .behind = figure(r) / 1000,
                                           .low = figure(r) / 1000,
                                           .high = figure(r) / 1000,
                                           .phase = names[i],
                                           .waited_seconds = figure(r) };
    r->measures[0] = (tm_named_f64){ "reward", figure(r) };
    r->measures[1] = (tm_named_f64){ "margin", -figure(r) };
    r->start.run_started.threads = (int)(draw(r) % 3);
    r->start.run_started.devices = (int)(draw(r) % 2) + 1;
    r->start.run_started.peak_flops = draw(r) % 2 ? 0 : 1e3;
    r->start.run_started.flops_per_token = r->flops;
    r->start.run_started.n_flops_per_token = draw(r) % 5 ? 4 : 0;
    r->step.step_done.seconds = r->step_seconds;
    r->step.step_done.phases = r->phases;
    r->step.step_done.n_phases = draw(r) % 5 ? PHASES : 0;
    r->step.step_done.target_tokens = draw(r) % 2 ? FAKE_TOKENS : (int64_t)(draw(r) % FAKE_TOKENS);
    r->step.step_done.resident_bytes = (int64_t)figure(r);
    say_words(r, r->reason, sizeof r->reason);
    say_words(r, r->sample, sizeof r->sample);
    r->end.run_ended = (tm_run_ended){ .verdict = (tm_verdict)(draw(r) % 4),
                                       .reason = r->reason,
                                       .stopped = "",
                                       .steps = 1,
                                       .speed = &r->speed,
                                       .image_tokens = draw(r) % 5 ? 0 : 64,
                                       .loss_first = maybe(r),
                                       .loss_last = maybe(r),
                                       .loss_validation = maybe(r),
                                       .loss_floor = maybe(r),
                                       .bits_per_byte = maybe(r),
                                       .measures = r->measures,
                                       .n_measures = draw(r) % 4 ? 0 : 2,
                                       .planned_bytes = (int64_t)figure(r),
                                       .outside_arena_bytes = (int64_t)figure(r),
                                       .step_seconds = &r->step_seconds,
                                       .first_step_seconds = figure(r),
                                       .seconds = maybe(r),
                                       .sample = draw(r) % 2 ? r->sample : NULL,
                                       .ranks = r->ranks,
                                       .n_ranks = draw(r) % 4,
                                       .stragglers = r->stragglers,
                                       .n_stragglers = draw(r) % 4,
                                       .curve = { (int64_t)(draw(r) % 3), draw(r) % 2 } };
    tm_run_ended *end = &r->end.run_ended;
    end->used_bytes = draw(r) % 2 ? end->planned_bytes : (int64_t)figure(r);
    end->certificate = (tm_certificate){ .done = draw(r) % 2,
                                         .groups = 3,
                                         .expected = figure(r),
                                         .measured = figure(r),
                                         .band = 0.5,
                                         .rows = draw(r) % 2,
                                         .causal = draw(r) % 2,
                                         .context = draw(r) % 2,
                                         .seconds = figure(r) };
}

static char *print_run(const run *r, bool all)
{
    tm_console_options options = { .log_freq = 1, .quiet = true, .verbose = all };
    tm_sink           *sink = NULL;
    tm_error           err = { 0 };
    char              *data = NULL;
    size_t             bytes = 0;
    options.out = open_memstream(&data, &bytes);
    assert_int_equal(tm_console_sink_open(&options, &sink, &err), TM_OK);
    fake_emit(sink, r->start);
    for (int64_t k = 0; k < r->steps; k++) fake_emit(sink, r->step);
    fake_emit(sink, r->end);
    fake_close(sink);
    fclose(options.out);
    return data;
}

/* --- judging ------------------------------------------------------------------------------------------------------ */

/* The words follow each other from line `i` on, its first ones in cell `cell`; no line is wider than the report, but
 * for one word. Returns the line behind them. */
static int words_follow(const told *t, int i, const char *at, const char *words, size_t indent)
{
    char wanted[260] = " ", found[260] = " ";
    for (const char *w = words + strspn(words, " \n"); *w; w += strspn(w, " \n")) {
        size_t n = strcspn(w, " \n");
        snprintf(wanted + strlen(wanted), sizeof wanted - strlen(wanted), "%.*s ", (int)n, w);
        w += n;
    }
    do {
        if (*at) snprintf(found + strlen(found), sizeof found - strlen(found), "%s ", at);
        if (strlen(t->lines[i].text) > WIDE) assert_null(strchr(at, ' '));
        at = t->lines[++i].text;
        size_t spaces = strspn(at, " ");
        if (spaces != indent) break;
        at += spaces;
        /* the first word would not have fitted above */
        assert_true(strlen(t->lines[i - 1].text) + 1 + strcspn(at, " ") > WIDE);
    } while (*at);
    assert_string_equal(found, wanted);
    return i;
}

static void verdict_is_told(const told *t, const run *r)
{
    const tm_run_ended *end = &r->end.run_ended;
    char                text[300];
    int                 i = 0;
    while (strncmp(t->lines[i].text, "  verdict ", 10) != 0) i++;
    snprintf(text, sizeof text, "  verdict     %-12s", tm_verdict_name(end->verdict));
    assert_true(strncmp(t->lines[i].text, text, WORDS) == 0);
    i = words_follow(t, i, t->lines[i].text + WORDS, r->reason, WORDS);
    while (strncmp(t->lines[i].text, "  memory ", 9) != 0) i++;
    for (i++; strncmp(t->lines[i].text, "              ", 14) == 0;) i++;
    const tm_certificate *c = &end->certificate;
    if (c->done) {
        assert_true(strncmp(t->lines[i].text, "  gradients   passed      ", WORDS) == 0);
        snprintf(text, sizeof text,
                 "3 parameter groups: predicted loss change %.6g, measured %.6g (tolerance 0.5)%s%s%s; %.3g s",
                 c->expected, c->measured, c->causal ? "; causal mask" : "",
                 c->causal && c->rows ? ", row isolation" : "", c->context ? ", use of context" : "", c->seconds);
        i = words_follow(t, i, t->lines[i].text + WORDS, text, WORDS);
    }
    const told_line *losses = &t->lines[i];
    assert_true((losses->n > 0 && strcmp(losses->cells[0], "losses") == 0) == (end->curve.steps > 0));
    if (end->curve.steps == 0) return;
    snprintf(text, sizeof text, "  losses      passed      %s the stored reference for %lld step%s of the built-in job",
             end->curve.equal ? "equal to" : "within the band of", (long long)end->curve.steps,
             end->curve.steps == 1 ? "" : "s");
    assert_string_equal(losses->text, text);
}

/* The words of one of the five lines, in one piece. */
static void head_line(const told *t, const char *label, char out[400])
{
    char begin[40];
    int  i = 0;
    snprintf(begin, sizeof begin, "  %-12s", label);
    while (i < t->n && strncmp(t->lines[i].text, begin, 14) != 0) i++;
    assert_true(i < t->n);
    snprintf(out, 400, "%s", t->lines[i].text + 14);
    for (i++; i < t->n && strncmp(t->lines[i].text, "              ", 14) == 0; i++)
        snprintf(out + strlen(out), 400 - strlen(out), " %s", t->lines[i].text + 14);
}

/* The figure that stands before these words is `value`, with its unit where it has one; NAN: the words are not there.
 * `unit`: it is the word before them. */
static void figure_before(const char *line, const char *words, bool unit, double value)
{
    const char *at = strstr(line, words), *from = at;
    char        cell[80];
    if (!isfinite(value) != !at) fail_msg("'%s' in '%s'", words, line);
    if (!at) return;
    for (int spaces = unit ? 2 : 1; from > line && (from[-1] != ' ' || --spaces > 0);) from--;
    snprintf(cell, sizeof cell, "%.*s", (int)(at - from), from);
    says(cell, value);
}

/* The five lines say what the tables say. */
static void head_is_told(const told *t, const run *r)
{
    const tm_run_ended      *end = &r->end.run_ended;
    const tm_sample_summary *s = &r->speed;
    const tm_run_started    *start = &r->start.run_started;
    char                     line[400];
    double                   none = (double)NAN;
    bool                     rate = isfinite(s->median_rate), held_out = isfinite(end->loss_validation);
    double                   loss = held_out ? end->loss_validation : end->loss_last, above = loss - end->loss_floor;
    head_line(t, "speed", line);
    figure_before(line, " tokens/s", false, s->median_rate);
    figure_before(line, " images/s", false, end->image_tokens ? s->median_rate / 64 : none);
    figure_before(line, " .. ", false, rate && isfinite(s->median_rate_lo) ? s->median_rate_lo : none);
    figure_before(line, " step", false, rate ? (double)s->n : none);
    assert_true((strstr(line, "per device") != NULL) == (rate && start->devices > 1));
    figure_before(line, " (6 N)", true, /* by its convention */
                  rate && start->n_flops_per_token ? r->flops[0].value * s->median_rate : none);
    assert_true((strstr(line, "MFU") != NULL) == (rate && start->n_flops_per_token && start->peak_flops > 0));
    head_line(t, "step time", line);
    figure_before(line, " median", true, s->n > 0 ? s->median : none);
    figure_before(line, " step", false, s->n > 0 ? (double)s->n : none);
    figure_before(line, " ..", true, s->n >= FEW ? s->p5 : none); /* 5 % of fewer are less than one */
    if (s->n < FEW || isfinite(s->p95)) figure_before(line, " for 90 %", true, s->n >= FEW ? s->p95 : none);
    head_line(t, "loss", line);
    figure_before(line, " on held-out data", false, end->loss_validation);
    figure_before(line, " in the last step", false, held_out ? none : end->loss_last);
    figure_before(line, " above the", false, above >= 0 ? above : none);
    figure_before(line, " below the", false, above < 0 ? -above : none);
    head_line(t, "memory", line);
    figure_before(line, ", as planned", true, end->used_bytes == end->planned_bytes ? (double)end->used_bytes : none);
}

static void losses_are_told(const told *t, const run *r)
{
    const tm_run_ended *end = &r->end.run_ended;
    bool                image = end->image_tokens > 0;
    const struct {
        const char *label;
        double      value;
    } rows[] = { { "first step", end->loss_first },
                 { "last step", end->loss_last },
                 { "validation", end->loss_validation },
                 { image ? "floor: the least possible loss" : "floor: the entropy of the data", end->loss_floor },
                 { "validation above the floor", end->loss_validation - end->loss_floor },
                 { "validation, bits per byte", end->bits_per_byte },
                 { "reward", end->n_measures ? r->measures[0].value : (double)NAN },
                 { "margin", end->n_measures ? r->measures[1].value : (double)NAN } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        row_says(t, "loss", rows[i].label, isfinite(rows[i].value), rows[i].value, 0, 0);
    int i = 1;
    while (t->lines[i - 1].n > 0 || strcmp(t->lines[i].cells[0], "loss") != 0) i++;
    assert_string_equal(t->lines[i].cells[1], end->n_measures ? "nats per pair"
                                              : image         ? "mean square error"
                                                              : "nats per token");
}

static void interval_is_told(const told *t, const char *label, double scale, double value, double lo, double hi,
                             int64_t n)
{
    const told_line *l = find(t, "speed, one device", label);
    assert_non_null(l);
    assert_int_equal(l->n, 4);
    says(l->cells[1], value * scale);
    says(l->cells[3], (double)n);
    char *dots = strstr(l->cells[2], " .. "), from[40];
    if (!isfinite(lo)) {
        assert_string_equal(l->cells[2], "-");
        return;
    }
    assert_non_null(dots);
    snprintf(from, sizeof from, "%.*s", (int)(dots - l->cells[2]), l->cells[2]);
    says(from, lo * scale);
    says(dots + 4, hi * scale);
}

static void speed_is_told(const told *t, const run *r)
{
    static const char        speed[] = "speed, one device";
    const tm_sample_summary *s = &r->speed;
    const tm_run_ended      *end = &r->end.run_ended;
    bool                     any = s->n > 0, drifts = any && !isnan(s->steady.drift);
    interval_is_told(t, "tokens/s, median step", 1, s->median_rate, s->median_rate_lo, s->median_rate_hi, s->n);
    interval_is_told(t, "tokens/s, all tokens / all seconds", 1, s->rate, s->rate_lo, s->rate_hi, s->n);
    if (end->image_tokens)
        interval_is_told(t, "images/s, median step", 1.0 / 64, s->median_rate, s->median_rate_lo, s->median_rate_hi,
                         s->n);
    else
        row_says(t, speed, "images/s, median step", 0, 0, 0, 0);
    double targets = (double)r->step.step_done.target_tokens / FAKE_TOKENS;
    if (targets < 1 && !end->image_tokens)
        interval_is_told(t, "target tokens/s, median step", targets, s->median_rate, s->median_rate_lo,
                         s->median_rate_hi, s->n);
    else
        row_says(t, speed, "target tokens/s, median step", 0, 0, 0, 0);
    row_says(t, speed, "step time, median", any, s->median, 0, 0);
    row_says(t, speed, "step time, 5 and 95 % of steps", s->n >= FEW ? 2 : 0, s->p5, s->p95, 0);
    row_says(t, speed, "step time, variation", any, s->variation, 0, 0);
    row_says(t, speed, "outliers (included)", any, (double)s->outliers, 0, 0);
    row_says(t, speed, "warm-up steps (excluded)", 1, (double)s->warmup, 0, 0);
    row_says(t, speed, "time to first step", 1, end->first_step_seconds, 0, 0);
    row_says(t, speed, "total time", 1, end->seconds, 0, 0);
    const told_line *worth = find(t, speed, "effective sample size");
    const told_line *drift = find(t, speed, "drift"), *steady = find(t, speed, "steady state");
    assert_true((worth != NULL) == any && (drift != NULL) == drifts && (steady != NULL) == drifts);
    char text[120];
    snprintf(text, sizeof text, "%.0f of %lld", s->effective_n, (long long)s->n);
    if (any) assert_string_equal(worth->cells[1], text);
    bool        none = any && s->n > 1 && isnan(s->rate_lo);
    bool        moved = none && s->n >= 6 && drifts && !s->steady.reached;
    const char *why = s->n < 6 ? "fewer than 6 steps"
                      : moved  ? "the speed changed during these steps"
                               : "consecutive step times are too correlated; run more steps";
    snprintf(text, sizeof text, "no interval%s: %s", isfinite(s->median_rate_lo) ? " of all tokens / all seconds" : "",
             why);
    assert_true((find(t, speed, text) != NULL) == none);
    if (!drifts) return;
    bool   known = isfinite(s->steady.drift_lo) && isfinite(s->steady.drift_hi);
    double widest = fmax(fabs(s->steady.drift_lo), fabs(s->steady.drift_hi));
    assert_string_equal(steady->cells[1], !s->steady.reached                         ? "not reached"
                                          : !known || widest > 3 * TM_STEADY_PERCENT ? "too few steps"
                                                                                     : "reached");
    assert_true(drift->cells[1][0] == '+');
    says(drift->cells[1], s->steady.drift / 100);
    char *dots = strstr(drift->cells[2], " .. ");
    assert_true((dots != NULL) == known);
    if (!known) return;
    says(dots + 4, s->steady.drift_hi / 100);
    snprintf(text, sizeof text, "%.*s %%", (int)(dots - drift->cells[2]), drift->cells[2]);
    says(text, s->steady.drift_lo / 100);
}

static void ranks_are_told(const told *t, const run *r)
{
    size_t n = r->end.run_ended.n_ranks, most = 0, least = 0;
    char   heading[40];
    snprintf(heading, sizeof heading, "%zu ranks", n);
    for (size_t i = 0; i < n; i++) {
        if (r->ranks[i].busy_seconds > r->ranks[most].busy_seconds) most = i;
        if (r->ranks[i].busy_seconds < r->ranks[least].busy_seconds) least = i;
    }
    row_says(t, heading, "busiest rank", n < 2 ? 0 : 3, r->ranks[most].busy_seconds, r->ranks[most].wait_seconds,
             r->ranks[most].rank);
    row_says(t, heading, "least busy rank", n < 2 ? 0 : 3, r->ranks[least].busy_seconds, r->ranks[least].wait_seconds,
             r->ranks[least].rank);
    row_says(t, heading, "tokens/s of all ranks", n >= 2 && isfinite(r->speed.median_rate),
             round(r->speed.median_rate * r->start.run_started.devices), 0, 0);
}

/* Whatever else is told, and of however many ranks. */
static void stragglers_are_told(const char *report, const run *r)
{
    char line[400];
    for (size_t i = 0; i < RANKS; i++) {
        const tm_straggler *s = &r->stragglers[i];
        snprintf(line, sizeof line,
                 "    rank %d on some-host %s: %.1f %% (%.1f .. %.1f) behind the others, most in %s; each waited %.3g "
                 "s since "
                 "step %lld\n",
                 s->rank, s->disturbed ? "shares its processor with other programs" : "is slow", 100 * s->behind,
                 100 * s->low, 100 * s->high, s->phase, s->waited_seconds, (long long)s->since);
        assert_true((strstr(report, line) != NULL) == (i < r->end.run_ended.n_stragglers));
    }
}

static void arithmetic_is_told(const told *t, const run *r)
{
    double peak = r->start.run_started.peak_flops;
    for (int i = 0; i < 4; i++) {
        double rate = r->flops[i].value * r->speed.median_rate;
        row_says(t, "arithmetic, by convention", r->flops[i].name, r->start.run_started.n_flops_per_token ? 3 : 0,
                 r->flops[i].value, rate, peak > 0 ? rate / peak : (double)NAN);
    }
}

/* Milliseconds, to a thousandth, and a share of the step. */
static void line_says(const told *t, const char *label, bool any, double seconds, double whole)
{
    const told_line *l = find(t, "step time by phase", label);
    assert_true((l != NULL) == any);
    if (!any) return;
    char  *end;
    double ms = strtod(l->cells[1], &end);
    if (*end || fabs(ms - 1e3 * seconds) > 0.0005001)
        fail_msg("%s: '%s' is not %.17g", label, l->cells[1], 1e3 * seconds);
    says(l->cells[2], seconds / whole);
}

/* Lines of the ledger add up to the step, bars are as long as the shares. */
static void ledger_is_told(const told *t, const run *r)
{
    static const char ledger[] = "step time by phase";
    double            whole = r->step_seconds, rest = whole;
    size_t            n = r->step.step_done.n_phases;
    for (size_t i = 0; i < n; i++) {
        bool   own = strcmp(r->phases[i].name, "unaccounted") != 0;
        double seconds = r->phases[i].value;
        if (!own) continue;
        rest -= seconds;
        line_says(t, r->phases[i].name, true, seconds, whole);
        const told_line *l = find(t, ledger, r->phases[i].name);
        size_t           bar = l->n > 3 ? strlen(l->cells[3]) : 0;
        assert_true(fabs((double)bar - fmin(24, 24 * seconds / whole)) <= 0.5001);
    }
    line_says(t, "unaccounted", n > 0, fmax(0, rest), whole);
    char mean[64];
    snprintf(mean, sizeof mean, "whole step, mean of %lld%s", (long long)(r->steps > 1 ? r->steps - 1 : 1),
             r->steps > 1 ? " after the first" : ""); /* which does not count, if there are others */
    line_says(t, mean, n > 0, whole, whole);
}

static void memory_is_told(const told *t, const run *r)
{
    const tm_run_ended   *end = &r->end.run_ended;
    const tm_run_started *start = &r->start.run_started;
    for (size_t i = 0; i < start->n_memory; i++)
        row_says(t, "memory", start->memory[i].name, 1, (double)start->memory[i].value, 0, 0);
    row_says(t, "memory", "arena", 2, (double)end->planned_bytes, (double)end->used_bytes, 0);
    assert_string_equal(find(t, "memory", "arena")->cells[3],
                        end->planned_bytes == end->used_bytes ? "equal" : "differ");
    row_says(t, "memory", "outside the arena, libraries", 1, (double)end->outside_arena_bytes, 0, 0);
    row_says(t, "memory", "whole process, resident", 1, (double)r->step.step_done.resident_bytes, 0, 0);
    row_says(t, "memory", "limit", 1, (double)start->memory_limit_bytes, 0, 0);
}

static void sample_is_told(const told *t, const run *r)
{
    int i = 0;
    while (i < t->n && strcmp(t->lines[i].text, "  text generated by the trained model") != 0) i++;
    assert_true((i < t->n) == (r->end.run_ended.sample != NULL));
    if (i < t->n) words_follow(t, i + 1, t->lines[i + 1].text + 4, r->sample, 4);
}

TEST(every_figure_is_told)
{
    run r;
    for (uint64_t seed = 0; seed < DRAWS; seed++) {
        draw_run(&r, seed);
        char *text = print_run(&r, true);
        told *t = read_report(text);
        for (int i = 0; i < t->n; i++)
            if (strstr(t->lines[i].text, "nan") || strstr(t->lines[i].text, "inf ")) fail_msg("'%s'", t->lines[i].text);
        verdict_is_told(t, &r);
        head_is_told(t, &r);
        losses_are_told(t, &r);
        speed_is_told(t, &r);
        ranks_are_told(t, &r);
        stragglers_are_told(text, &r);
        arithmetic_is_told(t, &r);
        ledger_is_told(t, &r);
        memory_is_told(t, &r);
        sample_is_told(t, &r);
        free(t);
        free(text);
    }
}

/* Without -v: lines of the whole report, in their order; those of five labels, what failed, and the phases of which
 * none is below half a percent, but for one line of these together. */
TEST(the_short_report_is_part_of_the_whole)
{
    static const char *const first[] = { "verdict", "speed", "step time", "loss", "memory" };
    run                      r;
    for (uint64_t seed = 0; seed < DRAWS; seed++) {
        draw_run(&r, seed);
        r.end.run_ended.certificate = (tm_certificate){ .done = seed % 2, .reason = "the gradient is wrong" };
        r.end.run_ended.update.n_steps = (int)(seed % 3 / 2);
        snprintf(r.end.run_ended.update.reason, TM_REASON_BYTES, "moved elsewhere");
        char *whole_text = print_run(&r, true), *text = print_run(&r, false);
        told *whole = read_report(whole_text), *t = read_report(text);
        int   at = 0, found = 0;
        for (int i = 0; i < t->n; i++) {
            if (strstr(t->lines[i].text, " below 0.5 %  ")) continue;
            while (at < whole->n && strcmp(whole->lines[at].text, t->lines[i].text) != 0) at++;
            if (at == whole->n) fail_msg("not in the whole report: '%s'", t->lines[i].text);
            found += found < 5 && strncmp(t->lines[i].text + 2, first[found], strlen(first[found])) == 0;
        }
        assert_int_equal(found, 5);
        assert_non_null(strstr(text, seed % 2 ? "  gradients   failed  " : "  gradients   none  "));
        assert_true((strstr(text, "  update      failed  ") != NULL) == (seed % 3 == 2));
        assert_null(strstr(text, "by convention"));
        for (int i = 0; i < PHASES && r.step.step_done.n_phases; i++)
            assert_true((find(t, "step time by phase", r.phases[i].name) != NULL) ==
                            (r.phases[i].value >= 0.005 * r.step_seconds) ||
                        strcmp(r.phases[i].name, "unaccounted") == 0);
        free(t);
        free(whole);
        free(text);
        free(whole_text);
    }
}

/* Text that a model wrote can hold any bytes; what could command a terminal becomes '?'. */
TEST(a_sample_commands_no_terminal)
{
    static const char written[] = "a\tb\x01\x1b[2J\x1f \x7f\xc2\x85\xc2\xa0\xc3\xa9\xff\xe2\x82 \xe2\x82\xac";
    run               r;
    draw_run(&r, 5);
    r.end.run_ended.sample = written;
    char *text = print_run(&r, false), *sample = strstr(text, "generated by the trained model\n    ");
    assert_non_null(sample);
    assert_true(strncmp(sample + 35, "a b??[2J? ??\xc2\xa0\xc3\xa9??? \xe2\x82\xac\n", 22) == 0);
    free(text);
}
