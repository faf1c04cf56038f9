/* SPDX-License-Identifier: Apache-2.0 */
/* base/plain.h - text from outside on its way to a terminal: names of files and models, values of configurations,
 * strings of libraries. Whatever a terminal would obey is shown instead of sent: control characters, C1 among them
 * ("\x1b", "\u009b"), bytes that are no UTF-8 ("\xff"), characters that turn the direction of writing ("\u202e").
 * Everything that is printed goes through tm_plain_put.
 */
#ifndef TM_BASE_PLAIN_H
#define TM_BASE_PLAIN_H

#include "base/text.h"

#include <stdbool.h>
#include <stdio.h>

enum {
    TM_PLAIN_LINES = 1, /* line feeds and tabs stay; else they are shown, too */
    TM_PLAIN_MESSAGE =
        2, /* line feeds stay, and the lines behind them are indented: none can pass for another message */
    TM_PLAIN_COLOURS = 4, /* the colours of our own report stay */
};

/* Appends the string to *out, which then is not empty: data is not NULL. */
void tm_plain_add(tm_text *out, const char *string, unsigned keep);
/* Prints it; false, with errno, if not all could be written. Does not flush. */
bool tm_plain_put(FILE *to, const char *string, unsigned keep);

#endif
