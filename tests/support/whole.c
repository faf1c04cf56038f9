/* SPDX-License-Identifier: Apache-2.0 */
#include "support/whole.h"

#include "support/fake_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int line_bytes(const char *text)
{
    return (int)strcspn(text, "\n");
}

void whole_is(const char *path, tm_text *text)
{
    if (getenv("TM_RECORD")) {
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(text->data, f);
        fclose(f);
    }
    tm_text     golden = fake_read(path);
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
