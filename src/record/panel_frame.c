/* SPDX-License-Identifier: Apache-2.0 */
#include "record/panel_frame.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- what is known ------------------------------------------------------------------------------------------------ */

static void halve(panel_series *s)
{
    for (int i = 0; i < SERIES_POINTS / 2; i++) {
        s->x[i] = (s->x[2 * i] + s->x[2 * i + 1]) / 2;
        s->y[i] = (s->y[2 * i] + s->y[2 * i + 1]) / 2;
    }
    s->n = SERIES_POINTS / 2;
    s->stride *= 2;
}

void panel_series_add(panel_series *s, double x, double y)
{
    if (!isfinite(y)) return;
    if (s->stride == 0) s->stride = 1;
    s->sum_x += x;
    s->sum_y += y;
    if (++s->open < s->stride) return;
    if (s->n == SERIES_POINTS) halve(s);
    s->x[s->n] = s->sum_x / (double)s->open;
    s->y[s->n++] = s->sum_y / (double)s->open;
    s->sum_x = s->sum_y = 0;
    s->open = 0;
}

static void begin(panel_data *data, const tm_run_started *start)
{
    *data = (panel_data){ .first_step = start->first_step,
                          .steps = start->steps,
                          .loss = (double)NAN,
                          .validation = (double)NAN,
                          .floor = start->loss_floor,
                          .target = start->loss_target > 0 ? start->loss_target : (double)NAN,
                          .devices = start->devices > 1 ? start->devices : 1,
                          .limit_bytes = (double)start->memory_limit_bytes };
    snprintf(data->model, sizeof data->model, "%s", start->model ? start->model : "");
    snprintf(data->device, sizeof data->device, "%s", start->device ? start->device : "");
}

/* A mean over about ten steps: what is older fades. */
static void add_phases(panel_data *data, const tm_step_done *step)
{
    const double kept = 0.9;
    for (int i = 0; i < data->n_phases; i++) data->phases[i].seconds *= kept;
    for (size_t k = 0; k < step->n_phases; k++) {
        int i = 0;
        while (i < data->n_phases && strncmp(data->phases[i].name, step->phases[k].name, PANEL_NAME - 1) != 0) i++;
        if (i == PANEL_PHASES) continue;
        if (i == data->n_phases) {
            snprintf(data->phases[i].name, PANEL_NAME, "%s", step->phases[k].name);
            data->phases[data->n_phases++].seconds = 0;
        }
        data->phases[i].seconds += fmax(step->phases[k].value, 0);
    }
}

static void pass(panel_data *data, double seconds)
{
    if (!(seconds > 0)) return;
    data->seconds += seconds;
    if (data->n_rates > 0) data->paced_seconds += seconds;
}

static void add_step(panel_data *data, const tm_step_done *step)
{
    pass(data, step->seconds);
    if (data->n_rates > 0) data->paced_steps++;
    data->step = step->step;
    data->loss = step->loss;
    data->used_bytes = (double)step->used_bytes;
    data->clock_mhz = step->gpu_clock_mhz;
    data->temperature_c = step->gpu_temperature_c;
    panel_series_add(&data->losses, (double)step->step, step->loss);
    data->rates[data->n_rates++ % PANEL_RATES] =
        step->seconds > 0 ? (double)step->tokens * data->devices / step->seconds : (double)NAN;
    add_phases(data, step);
}

void panel_data_take(panel_data *data, const tm_event *event)
{
    if (event->kind == TM_EVENT_RUN_STARTED) begin(data, &event->run_started);
    if (event->kind == TM_EVENT_STEP_DONE) add_step(data, &event->step_done);
    if (event->kind == TM_EVENT_CHECKPOINT) pass(data, event->checkpoint.seconds);
    if (event->kind != TM_EVENT_EVALUATION) return;
    pass(data, event->evaluation.seconds);
    data->validation = event->evaluation.loss;
    panel_series_add(&data->validations, (double)event->evaluation.step, event->evaluation.loss);
}

/* --- the curve ---------------------------------------------------------------------------------------------------- */

enum { LABEL = 9, NARROW = 80, WIDE = 120, LEAST = 24, SIDE = 46, CURVE_MOST = 8, BARS_MOST = 3, SPARK = 24 };

/* Rows of the parts of a frame. */
typedef struct {
    int  curve, bars, rows; /* rows: of all */
    bool wide, narrow;
} layout;

static layout lay_out(const panel_data *data, int columns, int rows)
{
    layout l = { .wide = columns > WIDE - 1, .narrow = columns < NARROW };
    int    room = rows / 2;
    if (columns < LEAST || room < 1) return (layout){ 0 };
    if (columns < 40 || room < 4) return (layout){ .rows = 1 };
    int lines = l.wide ? 2 : 3; /* that are always there */
    l.bars = l.narrow || l.wide ? 0 : data->n_phases < 1 ? 0 : BARS_MOST;
    if (room < lines + l.bars + 3) l.bars = 0;
    l.curve = room - lines - l.bars;
    if (l.curve > (l.narrow ? 4 : CURVE_MOST)) l.curve = l.narrow ? 4 : CURVE_MOST;
    if (l.curve < 2 || data->losses.n < 1) l.curve = 0;
    l.rows = lines + l.bars + l.curve;
    return l;
}

/* A line that would press the curve into less than half of the rows is left out: its value is told below. */
static void make_room(panel_axes *axes, double value)
{
    double low = fmin(axes->low, value), high = fmax(axes->high, value);
    if (!isfinite(value) || (axes->high - axes->low) * 2 < high - low) return;
    axes->low = low;
    axes->high = high;
}

static void widen(panel_axes *axes, double value)
{
    if (!isfinite(value)) return;
    axes->low = fmin(axes->low, value);
    axes->high = fmax(axes->high, value);
}

panel_axes panel_curve_axes(const panel_data *data, int columns, int rows)
{
    layout     l = lay_out(data, columns, rows);
    panel_axes axes = { .left = LABEL, .top = 1, .rows = l.curve, .low = (double)INFINITY, .high = -(double)INFINITY };
    axes.columns = columns - 1 - LABEL - (l.wide ? SIDE : 0);
    axes.first = (double)data->first_step;
    axes.last = fmax((double)data->step, axes.first + 1);
    for (int i = 0; i < data->losses.n; i++) widen(&axes, data->losses.y[i]);
    for (int i = 0; i < data->validations.n; i++) widen(&axes, data->validations.y[i]);
    make_room(&axes, data->target);
    make_room(&axes, data->floor);
    if (axes.high > axes.low) return axes;
    axes.high += 0.5;
    axes.low -= 0.5;
    return axes;
}

int panel_dot_x(const panel_axes *a, const canvas *picture, double step)
{
    double share = fmin(fmax((step - a->first) / (a->last - a->first), 0), 1);
    return (int)lround(share * (a->columns * canvas_dots_across(picture) - 1));
}

int panel_dot_y(const panel_axes *a, const canvas *picture, double loss)
{
    return (int)lround((a->high - loss) / (a->high - a->low) * (a->rows * canvas_dots_down(picture) - 1));
}

static void draw_line(canvas *picture, const panel_axes *a, double value, const char *name)
{
    if (!(value >= a->low && value <= a->high)) return;
    int y = a->top + panel_dot_y(a, picture, value) / canvas_dots_down(picture);
    for (int x = 0; x < a->columns; x++) canvas_text(picture, a->left + x, y, HUE_LINE, picture->utf8 ? "┄" : "-");
    canvas_printf(picture, 0, y, HUE_LINE, "%-8.8s", name);
}

/* A stroke between neighbours: the curve has no gaps. */
static void stroke(canvas *picture, const panel_axes *a, int x0, int y0, int x1, int y1)
{
    int n = abs(x1 - x0) > abs(y1 - y0) ? abs(x1 - x0) : abs(y1 - y0);
    for (int i = 0; i <= n; i++) {
        double share = n ? (double)i / n : 0;
        canvas_dot(picture, a->left, a->top, x0 + (int)lround(share * (x1 - x0)), y0 + (int)lround(share * (y1 - y0)),
                   HUE_RUN);
    }
}

static void draw_curve(const panel_data *data, const panel_axes *a, canvas *picture)
{
    int last_x = 0, last_y = 0;
    draw_line(picture, a, data->floor, "floor");
    draw_line(picture, a, data->target, "target");
    for (int i = 0; i < data->losses.n; i++) {
        int x = panel_dot_x(a, picture, data->losses.x[i]), y = panel_dot_y(a, picture, data->losses.y[i]);
        stroke(picture, a, i ? last_x : x, i ? last_y : y, x, y);
        last_x = x;
        last_y = y;
    }
    for (int i = 0; i < data->validations.n; i++)
        canvas_text(picture, a->left + panel_dot_x(a, picture, data->validations.x[i]) / canvas_dots_across(picture),
                    a->top + panel_dot_y(a, picture, data->validations.y[i]) / canvas_dots_down(picture),
                    HUE_VALIDATION, "o");
    canvas_printf(picture, 0, a->top, HUE_DIM, "%8.4f", a->high);
    canvas_printf(picture, 0, a->top + a->rows - 1, HUE_DIM, "%8.4f", a->low);
}

/* --- the lines ---------------------------------------------------------------------------------------------------- */

static const char *clock_text(char out[32], double seconds)
{
    long long s = seconds >= 0 && seconds < 1e9 ? llround(seconds) : 0;
    if (s >= 3600)
        snprintf(out, 32, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(out, 32, "%lld:%02lld", s / 60, s % 60);
    return out;
}

/* "step 120 of 500  24 %  [bar]  0:32, ETA 1:40": as many of these as fit. */
static void draw_head(const panel_data *data, canvas *picture, bool narrow)
{
    char   passed[32], left[32] = "--:--", tail[80] = "";
    double share = data->steps > 0 ? (double)data->step / (double)data->steps : 0;
    int    x = narrow ? 0
                      : canvas_printf(picture, 0, 0, HUE_NONE, "%s%s%s  ", data->model, *data->device ? ", " : "",
                                      data->device);
    x = canvas_printf(picture, x, 0, HUE_NONE, "step %lld", (long long)data->step);
    clock_text(passed, data->seconds);
    if (data->steps > 0 && data->paced_steps > 0)
        clock_text(left, data->paced_seconds / (double)data->paced_steps * (double)(data->steps - data->step));
    if (data->steps > 0) {
        x = canvas_printf(picture, x, 0, HUE_NONE, "/%lld  %.0f %%", (long long)data->steps, 100 * share);
        snprintf(tail, sizeof tail, "  %s, ETA %s", passed, left);
    } else {
        snprintf(tail, sizeof tail, "  %s", passed);
    }
    int room = picture->columns - x - 2 - (int)strlen(tail);
    if (data->steps > 0 && room >= 8) {
        int width = room < 40 ? room : 40;
        for (int i = 0; i < width; i++) canvas_text(picture, x + 2 + i, 0, HUE_DIM, picture->utf8 ? "·" : ".");
        x = canvas_bar(picture, x + 2, 0, width, share, HUE_RATE);
    }
    canvas_text(picture, x, 0, HUE_NONE, tail);
}

static int draw_loss(const panel_data *data, canvas *picture, int y)
{
    int x = canvas_printf(picture, 0, y, HUE_RUN, "loss %.4f", data->loss);
    if (isfinite(data->validation))
        x = canvas_printf(picture, x, y, HUE_VALIDATION, "  o validation %.4f", data->validation);
    if (isfinite(data->floor)) x = canvas_printf(picture, x, y, HUE_LINE, "  floor %.4f", data->floor);
    if (isfinite(data->target)) x = canvas_printf(picture, x, y, HUE_LINE, "  target %.4f", data->target);
    return x;
}

/* The last rates, as many as fit, and their mean of ten at most. */
static int draw_rate(const panel_data *data, canvas *picture, int x, int y, int most)
{
    double  shown[PANEL_RATES], sum = 0;
    char    number[40];
    int64_t n = data->n_rates < PANEL_RATES ? data->n_rates : PANEL_RATES, counted = 0;
    for (int64_t i = data->n_rates - 1; i >= data->n_rates - n && counted < 10; i--, counted++)
        sum += data->rates[i % PANEL_RATES];
    bool known = counted > 0 && isfinite(sum);
    x = canvas_printf(picture, x, y, HUE_RATE, "%s tokens/s ",
                      known ? tm_format_grouped(number, llround(sum / (double)counted)) : "N/A");
    if (n > most) n = most;
    if (x + n > picture->columns) n = picture->columns - x;
    for (int64_t i = 0; i < n; i++) shown[i] = data->rates[(data->n_rates - n + i) % PANEL_RATES];
    return n > 0 ? canvas_spark(picture, x, y, shown, (int)n, HUE_RATE) : x;
}

static int draw_memory(const panel_data *data, canvas *picture, int x, int y)
{
    char used[32], limit[32];
    if (!(data->used_bytes > 0)) return x;
    x = canvas_printf(picture, x, y, HUE_NONE, "  memory %s", tm_format_bytes(used, data->used_bytes));
    if (data->limit_bytes > 0)
        x = canvas_printf(picture, x, y, HUE_NONE, " of %s (%.1f %%)", tm_format_bytes(limit, data->limit_bytes),
                          100 * data->used_bytes / data->limit_bytes);
    if (data->temperature_c > 0)
        x = canvas_printf(picture, x, y, HUE_NONE, "  %.0f %s", data->temperature_c, picture->utf8 ? "°C" : "C");
    if (data->clock_mhz > 0) x = canvas_printf(picture, x, y, HUE_NONE, "  %.0f MHz", data->clock_mhz);
    return x;
}

/* Places of the phases by their size, the largest first; returns the seconds of all. */
static double rank_phases(const panel_data *data, int order[PANEL_PHASES])
{
    double all = 0;
    for (int i = 0; i < data->n_phases; i++) {
        int at = i;
        for (; at > 0 && data->phases[order[at - 1]].seconds < data->phases[i].seconds; at--) order[at] = order[at - 1];
        order[at] = i;
        all += data->phases[i].seconds;
    }
    return all;
}

/* The largest phases with their share of the last steps, the last bar those that are left. `across`: bars in a row. */
static void draw_bars(const panel_data *data, canvas *picture, int left, int top, int across, int down)
{
    enum { NAME = 20 };
    int    order[PANEL_PHASES] = { 0 }, slots = across * down, width = (picture->columns - left) / across;
    double all = rank_phases(data, order), rest = all;
    for (int i = 0; i < slots && i < data->n_phases && all > 0; i++) {
        bool   others = i == slots - 1 && data->n_phases > slots;
        double seconds = others ? rest : data->phases[order[i]].seconds;
        int    x = left + i / down * width, y = top + i % down;
        canvas_printf(picture, x, y, HUE_NONE, "%-*.*s%4.0f %% ", NAME, NAME,
                      others ? "others" : data->phases[order[i]].name, 100 * seconds / all);
        canvas_bar(picture, x + NAME + 7, y, width - NAME - 9, seconds / all, HUE_BAR);
        rest -= seconds;
    }
}

void panel_frame(const panel_data *data, int columns, int rows, bool utf8, canvas *out)
{
    layout l = lay_out(data, columns < CANVAS_COLUMNS ? columns : CANVAS_COLUMNS, rows);
    if (columns > CANVAS_COLUMNS) columns = CANVAS_COLUMNS;
    canvas_clear(out, columns - 1, l.rows, utf8); /* a character in the last column may wrap */
    if (l.rows == 0) return;
    panel_axes axes = panel_curve_axes(data, columns, rows);
    draw_head(data, out, l.narrow || l.rows == 1);
    if (l.rows == 1) return;
    if (l.curve > 0) draw_curve(data, &axes, out);
    if (l.wide && l.curve > 0) draw_bars(data, out, axes.left + axes.columns + 2, 1, 1, l.curve);
    int y = 1 + l.curve;
    if (l.bars > 0) draw_bars(data, out, 0, y, 2, l.bars);
    y += l.bars;
    int x = draw_loss(data, out, y) + 2;
    if (!l.wide) x = 0, y++;
    x = draw_rate(data, out, x, y, SPARK);
    if (!l.narrow) draw_memory(data, out, x, y);
}
