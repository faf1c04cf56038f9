/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/whole.h - texts that are compared as a whole with a recorded file. */
#ifndef TM_TESTS_WHOLE_H
#define TM_TESTS_WHOLE_H

#include "base/status.h"
#include "base/text.h"

/* Fails where `text` is not what the file holds, and shows the first line that differs. With TM_RECORD set the file is
 * written instead: read the difference, line by line, before it is kept. Frees the text. */
void whole_is(const char *path, tm_text *text);

/* Keeps what the program logs from now on, of every level; appends what it has logged since, a line each, without
 * times.
 */
void whole_log_open(void);
void whole_log_take(tm_text *out);
void whole_log_close(void);

#endif
