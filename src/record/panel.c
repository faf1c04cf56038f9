/* SPDX-License-Identifier: Apache-2.0 */
#include "record/panel.h"

#include "base/clock.h"
#include "base/text.h"
#include "record/panel_frame.h"
#include "record/sink.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct tm_panel {
    pthread_mutex_t  lock; /* messages come from any thread */
    tm_panel_options options;
    panel_data       data;
    canvas           picture;
    tm_text          above, frame;
    int              drawn; /* lines that stand on the terminal; the cursor is below the last one */
    int              widths[CANVAS_ROWS];
    int              continued; /* tm_terminal_continued, when they were drawn */
    int64_t          drawn_ns;
};

static const int64_t INTERVAL_NS = 250000000;

FILE *tm_panel_stream(FILE *stream)
{
    return tm_terminal_obeys(fileno(stream)) ? stream : NULL;
}

tm_panel *tm_panel_create(const tm_panel_options *options)
{
    tm_panel *panel = tm_alloc(sizeof *panel);
    memset(panel, 0, sizeof *panel);
    panel->options = *options;
    pthread_mutex_init(&panel->lock, NULL);
    record_text_reserve(&panel->above, 16384);
    record_text_reserve(&panel->frame, 65536);
    panel->continued = tm_terminal_continued();
    return panel;
}

void tm_panel_destroy(tm_panel *panel)
{
    if (!panel) return;
    tm_panel_hide(panel);
    pthread_mutex_destroy(&panel->lock);
    tm_text_fini(&panel->above);
    tm_text_fini(&panel->frame);
    free(panel);
}

void tm_panel_take(tm_panel *panel, const tm_event *event)
{
    pthread_mutex_lock(&panel->lock);
    panel_data_take(&panel->data, event);
    pthread_mutex_unlock(&panel->lock);
}

static tm_terminal_size size_now(const tm_panel *panel)
{
    tm_terminal_size size = panel->options.size ? *panel->options.size : tm_terminal_size_of(fileno(panel->options.to));
    if (!panel->options.size && size.columns == 0) size.columns = 80; /* a serial line does not say */
    if (!panel->options.size && size.rows == 0) size.rows = 24;
    return size;
}

/* Up to the first line of the last frame. Terminals wrap what a narrower window cannot show, so that lines become more.
 */
static void go_up(tm_panel *panel, int columns)
{
    int up = 0;
    for (int i = 0; i < panel->drawn; i++)
        up += columns > 0 && panel->widths[i] > columns ? (panel->widths[i] + columns - 1) / columns : 1;
    if (panel->continued != tm_terminal_continued()) up = 0; /* the shell has written meanwhile: it stays there */
    panel->continued = tm_terminal_continued();
    tm_text_add(&panel->frame, "\r");
    if (up > 0) tm_text_printf(&panel->frame, "\033[%dA", up);
    panel->drawn = 0;
}

/* All of a frame in one write: between two frames there is nothing to see. "?2026": terminals that know it show what
 * comes between at once; others leave it. */
static void put_frame(tm_panel *panel, bool shown)
{
    tm_terminal_size size = size_now(panel);
    if (!shown && panel->drawn == 0 && panel->above.length == 0) return;
    panel->frame.length = 0;
    tm_text_add(&panel->frame, "\033[?2026h");
    go_up(panel, size.columns);
    if (panel->above.length > 0 || !shown) tm_text_add(&panel->frame, "\033[J");
    tm_text_add_n(&panel->frame, panel->above.data, panel->above.length);
    panel->above.length = 0;
    if (shown) panel_frame(&panel->data, size.columns, size.rows, panel->options.utf8, &panel->picture);
    for (int y = 0; shown && y < panel->picture.rows; y++) {
        panel->widths[y] = canvas_line(&panel->picture, y, panel->options.colour, &panel->frame);
        tm_text_add(&panel->frame, "\033[K\n");
        panel->drawn = y + 1;
    }
    tm_text_add(&panel->frame, shown ? "\033[J\033[?2026l" : "\033[?2026l");
    fwrite(panel->frame.data, 1, panel->frame.length, panel->options.to);
    fflush(panel->options.to);
}

/* In the background the lines go on, as they would without a panel. */
static bool in_foreground(const tm_panel *panel)
{
    return panel->options.size || tm_terminal_is_ours(fileno(panel->options.to));
}

void tm_panel_above(tm_panel *panel, const char *lines)
{
    pthread_mutex_lock(&panel->lock);
    tm_text_add(&panel->above, lines);
    pthread_mutex_unlock(&panel->lock);
}

void tm_panel_draw(tm_panel *panel, bool now)
{
    int64_t at = tm_now_ns();
    pthread_mutex_lock(&panel->lock);
    if (now || panel->drawn_ns == 0 || at - panel->drawn_ns >= INTERVAL_NS) {
        put_frame(panel, panel->data.step > 0 && in_foreground(panel));
        panel->drawn_ns = at;
    }
    pthread_mutex_unlock(&panel->lock);
}

void tm_panel_hide(tm_panel *panel)
{
    pthread_mutex_lock(&panel->lock);
    put_frame(panel, false);
    pthread_mutex_unlock(&panel->lock);
}
