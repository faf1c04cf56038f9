/* SPDX-License-Identifier: Apache-2.0 */
#include "support/whole.h"

#include "support/test.h"

#include "base/file.h"
#include "base/log.h"
#include "support/fake_run.h"
#include "support/folder.h"

static int line_bytes(const char *text)
{
    return (int)strcspn(text, "\n");
}

/* The sign of what is no number is the compiler's. */
static void drop_signs(tm_text *text)
{
    for (char *at = text->data; (at = strstr(at, "-nan"));) {
        memmove(at, at + 1, strlen(at));
        text->length--;
    }
}

void whole_is(const char *path, tm_text *text)
{
    drop_signs(text);
    if (getenv("TM_RECORD")) {
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(text->data, f);
        fclose(f);
    }
    tm_text golden = fake_read(path);
    drop_signs(&golden);
    const char *want = golden.data, *have = text->data;
    for (int line = 1; *want || *have; line++) {
        int w = line_bytes(want), h = line_bytes(have);
        if (w != h || strncmp(want, have, (size_t)w) != 0)
            fail_msg("%s:%d:\nwanted: %.*s\nfound:  %.*s", path, line, w, want, h, have);
        want += w + (want[w] == '\n');
        have += h + (have[h] == '\n');
    }
    tm_text_fini(&golden);
    tm_text_fini(text);
}

void whole_log_open(void)
{
    tm_error err = { 0 };
    if (tm_folder_make(test_in_folder("log"), &err) != TM_OK ||
        tm_log_open_folder(test_in_folder("log"), &err) != TM_OK)
        fail_msg("%s", err.text);
}

void whole_log_take(tm_text *out)
{
    const size_t time = strlen("2026-01-31T12:00:00Z ");
    tm_text      all = fake_read(test_in_folder("log/debug")); /* the lowest level: everything */
    for (const char *line = all.data; *line; line += line_bytes(line) + 1)
        tm_text_printf(out, "  %.*s\n", line_bytes(line) - (int)time, line + time);
    tm_text_fini(&all);
    if (truncate(test_in_folder("log/debug"), 0) != 0) fail_msg("cannot empty the log");
}

void whole_log_close(void)
{
    tm_log_close_folder();
}
