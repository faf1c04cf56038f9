/* SPDX-License-Identifier: Apache-2.0 */
/* base/log.h - notes and complaints, to stderr. Results go to stdout through record/. The level is the program's only
 * global state. */
#ifndef TM_BASE_LOG_H
#define TM_BASE_LOG_H

typedef enum { TM_LOG_DEBUG, TM_LOG_INFO, TM_LOG_WARN, TM_LOG_ERROR } tm_log_level;

void tm_log_set_level(tm_log_level lowest);
void tm_log(tm_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define tm_note(...) tm_log(TM_LOG_INFO, __VA_ARGS__)
#define tm_warn(...) tm_log(TM_LOG_WARN, __VA_ARGS__)

#endif
