/* SPDX-License-Identifier: Apache-2.0 */
#include "base/terminal.h"

#include "base/text.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utf8proc.h>

bool tm_terminal_obeys(int fd)
{
    const char *term = getenv("TERM");
    return isatty(fd) && term && *term && strcmp(term, "dumb") != 0;
}

bool tm_terminal_colour(int fd)
{
    const char *no_colour = getenv("NO_COLOR");
    return tm_terminal_obeys(fd) && !(no_colour && *no_colour);
}

bool tm_terminal_utf8(void)
{
    static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };
    for (int i = 0; i < 3; i++) {
        const char *locale = getenv(names[i]);
        if (!locale || !*locale) continue;
        const char *encoding = strchr(locale, '.');
        return encoding && (strncasecmp(encoding, ".utf-8", 6) == 0 || strncasecmp(encoding, ".utf8", 5) == 0);
    }
    return false;
}

tm_terminal_size tm_terminal_size_of(int fd)
{
    struct winsize window;
    if (ioctl(fd, TIOCGWINSZ, &window) != 0) return (tm_terminal_size){ 0 };
    return (tm_terminal_size){ .columns = window.ws_col, .rows = window.ws_row };
}

size_t tm_terminal_width(int fd, size_t otherwise)
{
    int columns = isatty(fd) ? tm_terminal_size_of(fd).columns : 0;
    return columns > 0 ? (size_t)columns : otherwise;
}

bool tm_terminal_is_ours(int fd)
{
    pid_t group = tcgetpgrp(fd);
    return group < 0 || group == getpgrp(); /* < 0: not the terminal of this session */
}

bool tm_terminal_same(int a, int b)
{
    struct stat one, other;
    return fstat(a, &one) == 0 && fstat(b, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

static volatile sig_atomic_t continued; /* of a signal: it has no other way to tell */

static void on_continue(int signal_number)
{
    (void)signal_number;
    continued = continued + 1;
}

int tm_terminal_continued(void)
{
    struct sigaction now, action = { .sa_handler = on_continue, .sa_flags = SA_RESTART };
    if (sigaction(SIGCONT, NULL, &now) == 0 && now.sa_handler != on_continue) sigaction(SIGCONT, &action, NULL);
    return continued;
}

int tm_terminal_next(const char **text)
{
    utf8proc_int32_t c;
    size_t           n = tm_utf8_length((const unsigned char *)*text);
    if (n == 0 || (unsigned char)**text < 0x20) {
        ++*text;
        return 1;
    }
    utf8proc_iterate((const utf8proc_uint8_t *)*text, (utf8proc_ssize_t)n, &c);
    *text += n;
    return utf8proc_charwidth(c);
}

size_t tm_terminal_cells(const char *text)
{
    size_t cells = 0;
    while (*text) cells += (size_t)tm_terminal_next(&text);
    return cells;
}
