/* SPDX-License-Identifier: Apache-2.0 */
/* record/panel_frame.h - private to the room: what a panel knows, and the picture that it makes of it. */
#ifndef TM_RECORD_PANEL_FRAME_H
#define TM_RECORD_PANEL_FRAME_H

#include "base/event.h"
#include "record/canvas.h"

/* A curve of any length in a fixed room: when it is full, neighbours become their mean. */
enum { SERIES_POINTS = 1024 };
typedef struct {
    double  x[SERIES_POINTS], y[SERIES_POINTS];
    int     n;
    int64_t stride; /* values in a point */
    double  sum_x, sum_y;
    int64_t open; /* values in those sums, of the point that is not complete */
} panel_series;

void panel_series_add(panel_series *series, double x, double y); /* not finite: left out */

enum { PANEL_RATES = 128, PANEL_PHASES = 48, PANEL_NAME = 48 };

typedef struct {
    char         model[64], device[32];
    int64_t      step, first_step, steps;         /* steps 0: not known */
    double       loss, validation, floor, target; /* NAN: none */
    panel_series losses, validations;
    double       rates[PANEL_RATES]; /* tokens/s of the last steps, the newest at n_rates - 1 modulo PANEL_RATES */
    int64_t      n_rates;
    struct {
        char   name[PANEL_NAME];
        double seconds; /* of the last steps, the newest ones count most */
    } phases[PANEL_PHASES];
    int     n_phases;
    int     devices;
    double  used_bytes, limit_bytes;  /* 0: not known */
    double  clock_mhz, temperature_c; /* of a GPU; 0: not known */
    double  seconds, paced_seconds;   /* of all steps, evaluations and checkpoints; of those after the first step */
    int64_t paced_steps;
} panel_data;

void panel_data_take(panel_data *data, const tm_event *event);

/* Draws it for a terminal of that size: rows below the steps' lines, at most half of the terminal; none if it is too
 * small for any. */
void panel_frame(const panel_data *data, int columns, int rows, bool utf8, canvas *out);

/* Where a curve lies on the picture, and which values its lowest and highest row are. */
typedef struct {
    int    left, top, columns, rows;
    double first, last, low, high; /* first and last step */
} panel_axes;
/* Dot column and row of a point. */
int panel_dot_x(const panel_axes *axes, const canvas *picture, double step);
int panel_dot_y(const panel_axes *axes, const canvas *picture, double loss);
/* The axes of the frame's curve; rows 0: it has none. */
panel_axes panel_curve_axes(const panel_data *data, int columns, int rows);

#endif
