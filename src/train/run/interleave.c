/* SPDX-License-Identifier: Apache-2.0 */
#include "train/run/interleave.h"

#include "base/arena.h"
#include "base/text.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct tm_turn {
    int     fd;
    double  granted, used; /* seconds of this turn */
    tm_text lines;         /* not reported yet */
};

static tm_status gone(tm_error *err)
{
    return tm_fail(err, TM_INTERRUPTED, "the program that controls the turns (" TM_TURN_VARIABLE ") has ended");
}

static bool send_lines(tm_turn *turn)
{
    size_t done = 0;
    while (done < turn->lines.length) {
        ssize_t n = write(turn->fd, turn->lines.data + done, turn->lines.length - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        done += (size_t)n;
    }
    turn->lines.length = 0;
    return true;
}

tm_status tm_turn_open(int fd, tm_turn **out, tm_error *err)
{
    tm_turn *turn = tm_alloc(sizeof *turn);
    *turn = (tm_turn){ .fd = fd };
    tm_text_add(&turn->lines, TM_TURN_HELLO "\n");
    if (!send_lines(turn)) {
        int cause = errno;
        tm_text_fini(&turn->lines);
        free(turn);
        return tm_fail(err, TM_INVALID, TM_TURN_VARIABLE " is %d, which cannot be written to: %s; unset it", fd,
                       strerror(cause));
    }
    *out = turn;
    return TM_OK;
}

void tm_turn_close(tm_turn *turn)
{
    if (!turn) return;
    (void)send_lines(turn);
    tm_text_fini(&turn->lines);
    free(turn);
}

tm_status tm_turn_begin(tm_turn *turn, const volatile sig_atomic_t *stop, tm_error *err)
{
    char   line[64];
    size_t n = 0;
    for (;;) {
        char    c;
        ssize_t got = *stop ? 0 : read(turn->fd, &c, 1);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return gone(err);
        if (c == '\n') break;
        if (n + 1 < sizeof line) line[n++] = c;
    }
    line[n] = '\0';
    char *end = line;
    turn->granted = strncmp(line, "turn ", 5) == 0 ? strtod(line + 5, &end) : (double)NAN;
    turn->used = 0;
    if (*end || !(turn->granted > 0))
        return tm_fail(err, TM_INVALID, TM_TURN_VARIABLE ": heard '%s', wanted 'turn SECONDS'", line);
    return TM_OK;
}

tm_status tm_turn_step(tm_turn *turn, int64_t step, double seconds, int64_t tokens, const volatile sig_atomic_t *stop,
                       bool *waited, tm_error *err)
{
    tm_text_printf(&turn->lines, "step %lld %.9f %lld\n", (long long)step, seconds, (long long)tokens);
    turn->used += seconds;
    *waited = turn->used >= turn->granted;
    if (!*waited) return TM_OK;
    tm_text_add(&turn->lines, "pause\n");
    return send_lines(turn) ? tm_turn_begin(turn, stop, err) : gone(err);
}
