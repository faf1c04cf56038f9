/* SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const struct {
    const char *text;
    int         exit_code;
} status_table[TM_STATUS_COUNT] = {
#define X(id, code, text) [TM_##id] = { text, code },
    TM_STATUS_LIST(X)
#undef X
};

const char *tm_status_text(tm_status status)
{
    TM_ASSERT(status < TM_STATUS_COUNT);
    return status_table[status].text;
}

int tm_status_exit_code(tm_status status)
{
    TM_ASSERT(status < TM_STATUS_COUNT);
    return status_table[status].exit_code;
}

tm_status tm_fail_at(tm_error *err, tm_status status, const char *file, int line, const char *format, ...)
{
    TM_ASSERT(status != TM_OK);
    if (err && err->status == TM_OK) {
        err->status = status;
        err->file = file;
        err->line = line;
        va_list args;
        va_start(args, format);
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
    }
    return status;
}

void tm_assert_failed(const char *expression, const char *file, int line)
{
    fprintf(stderr, "trainmark: bug: %s:%d: %s\n", file, line, expression);
    abort();
}
