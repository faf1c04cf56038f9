/* SPDX-License-Identifier: Apache-2.0 */
/* A terminal as a screen of cells: obeys the sequences that the panel sends, and fails at any other. Lines that are too
 * long wrap, and are put together and wrapped anew when the width changes, as most terminals do. */
#ifndef TM_TESTS_RECORD_SCREEN_H
#define TM_TESTS_RECORD_SCREEN_H

#include "base/terminal.h"
#include "base/text.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

enum { SCREEN_LINES = 4096, SCREEN_CELLS = 400 };

typedef struct {
    char cells[SCREEN_CELLS][5]; /* empty: blank */
    bool wraps;                  /* the line goes on in the next row */
} screen_row;

typedef struct {
    screen_row *rows; /* with all that has scrolled away; the screen is the last `height` */
    int         n, width, height, x, y;
    int         colours; /* sequences of colour so far */
    int         widest;  /* cells that were ever written in a row */
} screen;

static void screen_open(screen *s, int width, int height)
{
    *s = (screen){ .rows = calloc(SCREEN_LINES, sizeof *s->rows), .n = 1, .width = width, .height = height };
}

static int screen_top(const screen *s)
{
    return s->n > s->height ? s->n - s->height : 0;
}

static void screen_feed(screen *s)
{
    s->y++;
    if (s->y == s->n) s->n++;
    assert_true(s->n < SCREEN_LINES);
}

static void screen_put(screen *s, const char *at, size_t bytes, int cells)
{
    if (cells == 0) return;
    if (s->x + cells > s->width) {
        s->rows[s->y].wraps = true;
        screen_feed(s);
        s->x = 0;
    }
    snprintf(s->rows[s->y].cells[s->x], 5, "%.*s", (int)bytes, at);
    s->x += cells;
    if (s->x > s->widest) s->widest = s->x;
}

static void screen_clear_row(screen *s, int y, int from)
{
    for (int x = from; x < SCREEN_CELLS; x++) s->rows[y].cells[x][0] = '\0';
    s->rows[y].wraps = false;
}

/* Returns the bytes of the sequence. */
static size_t screen_obey(screen *s, const char *at)
{
    char *end;
    if (strncmp(at, "\033[?2026h", 8) == 0 || strncmp(at, "\033[?2026l", 8) == 0) return 8;
    assert_memory_equal(at, "\033[", 2);
    long n = strtol(at + 2, &end, 10);
    if (*end == 'A') s->y = s->y - (int)n > screen_top(s) ? s->y - (int)n : screen_top(s);
    if (*end == 'K') screen_clear_row(s, s->y, s->x);
    if (*end == 'J')
        for (int y = s->y; y < s->n; y++) screen_clear_row(s, y, y == s->y ? s->x : 0);
    if (*end == 'J') s->n = s->y + 1; /* rows without anything below the cursor are none */
    while (*end == ';') strtol(end + 1, &end, 10);
    s->colours += *end == 'm';
    if (!strchr("AKJm", *end)) fail_msg("the terminal does not know '%.12s'", at + 1);
    return (size_t)(end + 1 - at);
}

static void screen_write(screen *s, const char *text, size_t bytes)
{
    for (const char *at = text; at < text + bytes;) {
        const char *next = at;
        if (*at == '\033') {
            at += screen_obey(s, at);
        } else if (*at == '\n') {
            screen_feed(s);
            s->x = 0;
            at++;
        } else if (*at == '\r') {
            s->x = 0;
            at++;
        } else {
            int cells = tm_terminal_next(&next);
            assert_true((unsigned char)*at >= 0x20);
            screen_put(s, at, (size_t)(next - at), cells);
            at = next;
        }
    }
}

/* Row y without the blanks at its end. */
static void screen_row_text(const screen *s, int y, tm_text *out)
{
    int end = SCREEN_CELLS;
    tm_text_add(out, "");
    while (end > 0 && (!s->rows[y].cells[end - 1][0] || strcmp(s->rows[y].cells[end - 1], " ") == 0)) end--;
    for (int x = 0; x < end; x++) tm_text_add(out, s->rows[y].cells[x][0] ? s->rows[y].cells[x] : " ");
}

/* All lines, those that wrapped as one, each with a line feed. */
static void screen_lines(const screen *s, tm_text *out)
{
    out->length = 0;
    tm_text_add(out, "");
    for (int y = 0; y < s->n; y++) {
        if (y == s->n - 1 && s->x == 0 && s->y == y) break; /* where the cursor waits */
        screen_row_text(s, y, out);
        if (!s->rows[y].wraps) tm_text_add(out, "\n");
    }
}

/* The cursor stands in column 0 of an empty last row, as it does between two frames. */
static void screen_resize(screen *s, int width, int height)
{
    tm_text lines = { 0 };
    assert_int_equal(s->x, 0);
    assert_int_equal(s->y, s->n - 1);
    screen_lines(s, &lines);
    memset(s->rows, 0, SCREEN_LINES * sizeof *s->rows);
    s->n = 1;
    s->x = s->y = 0;
    s->width = width;
    s->height = height;
    screen_write(s, lines.data, lines.length);
    s->widest = 0;
    tm_text_fini(&lines);
}

static void screen_close(screen *s)
{
    free(s->rows);
}

#endif
