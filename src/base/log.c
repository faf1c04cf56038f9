/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/plain.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LEVELS = TM_LOG_ERROR + 1 };

static tm_log_level lowest_level = TM_LOG_INFO;
static int          files[LEVELS] = { -1, -1, -1, -1 }; /* -1: there is no folder */

static void (*outlet)(void *context, const char *lines);
static void *outlet_context;

void tm_log_set_outlet(void (*show)(void *context, const char *lines), void *context)
{
    outlet = show;
    outlet_context = context;
}

void tm_log_set_level(tm_log_level lowest)
{
    lowest_level = lowest;
}

tm_status tm_log_open_folder(const char *folder, tm_error *err)
{
    static const char *const names[LEVELS] = { "debug", "info", "warning", "error" };
    tm_log_close_folder();
    for (int i = 0; i < LEVELS; i++) {
        tm_text path = { 0 };
        tm_text_printf(&path, "%s/%s", folder, names[i]);
        tm_status st = tm_file_open_append(path.data, &files[i], err);
        tm_text_fini(&path);
        if (st == TM_OK) continue;
        files[i] = -1;
        tm_log_close_folder();
        return st;
    }
    return TM_OK;
}

void tm_log_close_folder(void)
{
    for (int i = 0; i < LEVELS; i++) {
        if (files[i] >= 0) close(files[i]);
        files[i] = -1;
    }
}

void tm_log_record(tm_log_level level, const char *text)
{
    char now[32];
    if (files[level] < 0) return;
    tm_wall_text(now);
    for (size_t n; *text; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        for (int i = 0; i <= (int)level && n > 0; i++) dprintf(files[i], "%s %.*s\n", now, (int)n, text);
    }
}

void tm_log(tm_log_level level, const char *format, ...)
{
    static const char *const prefix[] = { "debug: ", "note: ", "warning: ", "error: " };
    char                     line[2048];
    va_list                  args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    tm_text text = { 0 };
    tm_text_printf(&text, "trainmark: %s", prefix[level]);
    tm_plain_add(&text, line, TM_PLAIN_MESSAGE);
    tm_log_record(level, text.data + strlen("trainmark: "));
    tm_text_add(&text, "\n");
    if (level >= lowest_level && outlet)
        outlet(outlet_context, text.data);
    else if (level >= lowest_level)
        fputs(text.data, stderr);
    tm_text_fini(&text);
}
