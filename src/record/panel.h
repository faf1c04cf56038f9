/* SPDX-License-Identifier: Apache-2.0 */
/* record/panel.h - what a run does now, as some lines at the bottom of a terminal: the curve of the loss, speed, where
 * the time goes, memory, the time left. Lines of a run scroll above it; at the end it is gone.
 *
 * It is drawn with six plain sequences: a terminal library would take over the whole screen, and the lines of a run
 * must stay in the terminal's history. After each frame the cursor is at the beginning of the line below, visible: the
 * process may end at any time. docs/step-line.md shows it.
 */
#ifndef TM_RECORD_PANEL_H
#define TM_RECORD_PANEL_H

#include "base/event.h"
#include "base/terminal.h"

#include <stdbool.h>
#include <stdio.h>

typedef struct {
    FILE                   *to; /* not closed */
    bool                    colour, utf8;
    const tm_terminal_size *size; /* looked at before each frame; NULL: that of the terminal */
} tm_panel_options;

typedef struct tm_panel tm_panel;

tm_panel *tm_panel_create(const tm_panel_options *options);
/* Hides it, and frees it. NULL is fine. */
void tm_panel_destroy(tm_panel *panel);

/* Takes RUN_STARTED, STEP_DONE, EVALUATION and CHECKPOINT in; others are left alone. Draws nothing, and takes no memory
 * after RUN_STARTED. What a run does not say is 0 in these events, the number of its steps too. */
void tm_panel_take(tm_panel *panel, const tm_event *event);
/* Whole lines that go above the panel, with the next frame. Any thread may call it. */
void tm_panel_above(tm_panel *panel, const char *lines);
/* A frame, unless the last one is younger than a quarter of a second; `now`: in any case. */
void tm_panel_draw(tm_panel *panel, bool now);
/* Takes the panel off the terminal, and prints what goes above it. */
void tm_panel_hide(tm_panel *panel);

/* The standard stream for it if that is a terminal that obeys sequences, else NULL. */
FILE *tm_panel_stream(FILE *stream);

#endif
