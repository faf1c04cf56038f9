/* SPDX-License-Identifier: Apache-2.0 */
/* base/log.h - notes and complaints, to stderr and, where a rank has a folder for them, to files. Results go to stdout
 * through record/. The logger is the program's only global state. */
#ifndef TM_BASE_LOG_H
#define TM_BASE_LOG_H

#include "base/status.h"

#include <stdbool.h>

typedef enum { TM_LOG_DEBUG, TM_LOG_INFO, TM_LOG_WARN, TM_LOG_ERROR } tm_log_level;

void tm_log_set_level(tm_log_level lowest); /* of what goes to stderr */
void tm_log(tm_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* From now on what would go to stderr goes to `show`, as whole lines, from any thread; NULL: to stderr again. For who
 * holds the bottom of the terminal. */
void tm_log_set_outlet(void (*show)(void *context, const char *lines), void *context);

#define tm_note(...) tm_log(TM_LOG_INFO, __VA_ARGS__)
#define tm_warn(...) tm_log(TM_LOG_WARN, __VA_ARGS__)

/* From now on every message, whatever the lowest level is, is also appended to the files debug, info, warning and error
 * of a folder that is there: behind the time, in the file of its level and in those below. TM_INVALID or TM_IO. Threads
 * may log meanwhile, but not while this is called. */
TM_MUST_USE tm_status tm_log_open_folder(const char *folder, tm_error *err);
void                  tm_log_close_folder(void);
/* A text of several lines for these files only. */
void tm_log_record(tm_log_level level, const char *text);

#endif
