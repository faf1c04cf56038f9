/* SPDX-License-Identifier: Apache-2.0 */
/* base/terminal.h - is a stream a terminal, and what can it show? */
#ifndef TM_BASE_TERMINAL_H
#define TM_BASE_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    int columns, rows; /* 0: unknown */
} tm_terminal_size;

/* A terminal that obeys escape sequences: TERM is set, and not to "dumb". */
bool tm_terminal_obeys(int fd);
/* That, and NO_COLOR is not set. */
bool tm_terminal_colour(int fd);
/* Does the locale of the environment (LC_ALL, LC_CTYPE, LANG) encode text as UTF-8? */
bool tm_terminal_utf8(void);
/* Now: a window may change. */
tm_terminal_size tm_terminal_size_of(int fd);
/* Characters of a line for people: the terminal's columns; `otherwise` where the stream is none. */
size_t tm_terminal_width(int fd, size_t otherwise);
/* Does the shell let this process write there? Not while it runs in the background. */
bool tm_terminal_is_ours(int fd);
/* Are two descriptors the same terminal or file? */
bool tm_terminal_same(int a, int b);

/* How often the process was continued after a stop (Ctrl-Z, then fg) since the first call: what stood on the terminal
 * has moved by then. */
int tm_terminal_continued(void);

/* Cells that the UTF-8 text takes on a terminal: 2 for wide characters, 0 for combining ones. */
size_t tm_terminal_cells(const char *text);
/* Those of the character at *text, which is moved behind it; control characters and bytes that are no UTF-8 count 1. */
int tm_terminal_next(const char **text);

#endif
