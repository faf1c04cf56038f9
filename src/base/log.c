/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/plain.h"

#include <stdarg.h>
#include <stdio.h>

static tm_log_level lowest_level = TM_LOG_INFO;

void tm_log_set_level(tm_log_level lowest)
{
    lowest_level = lowest;
}

void tm_log(tm_log_level level, const char *format, ...)
{
    static const char *const prefix[] = { "debug: ", "note: ", "warning: ", "error: " };
    if (level < lowest_level) return;
    char    line[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    tm_text text = { 0 };
    tm_text_printf(&text, "trainmark: %s", prefix[level]);
    tm_plain_add(&text, line, TM_PLAIN_MESSAGE);
    fprintf(stderr, "%s\n", text.data);
    tm_text_fini(&text);
}
