/* SPDX-License-Identifier: Apache-2.0 */
/* apps/check/left.c - what earlier jobs have left behind: processes that have ended and are still there, and shared
 * memory that nobody has. */
#include "apps/check/context.h"

#include "base/root.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SHOWN = 4, MANY_ZOMBIES = 20 };

/* "12 (python3) Z 7 ...": the name may hold anything, so the state is behind the last ')'. */
static bool parse_zombie(const char *stat, char name[20], long *parent)
{
    const char *open = stat ? strchr(stat, '(') : NULL, *close = stat ? strrchr(stat, ')') : NULL;
    if (!open || !close || close < open || close[1] != ' ' || close[2] != 'Z') return false;
    snprintf(name, 20, "%.*s", (int)(close - open - 1), open + 1);
    *parent = strtol(close + 3, NULL, 10);
    return true;
}

void check_zombies(check *c)
{
    size_t       n, count = 0;
    tm_text      list = { 0 };
    const char **names = check_list(c, "/proc", "", true, &n);
    for (size_t i = 0; i < n; i++) {
        char name[20];
        long parent;
        if (parse_zombie(check_line(c, check_path(c, "/proc/%s/stat", names[i])), name, &parent))
            check_list_add(&list, &count, SHOWN, "%s %s (parent %ld)", names[i], name, parent);
    }
    check_list_end(&list, count, SHOWN);
    if (n == 0)
        check_say(c, TM_CHECK_SKIP, "/proc shows no processes");
    else if (count == 0)
        check_say(c, TM_CHECK_PASS, "none of %zu processes", n);
    else
        check_say(c, count < MANY_ZOMBIES ? TM_CHECK_WARN : TM_CHECK_FAIL, "%zu: %s", count, list.data);
    tm_text_fini(&list);
}

/* --- shared memory ------------------------------------------------------------------------------ */

/* Bytes of segments that no process has attached: columns of /proc/sysvipc/shm. */
static double unattached(check *c, size_t *count)
{
    const char *text = check_content(c, "/proc/sysvipc/shm");
    double      bytes = 0;
    for (const char *line = text ? strchr(text, '\n') : NULL; line && line[1]; line = strchr(line + 1, '\n')) {
        double size, attached;
        if (sscanf(line + 1, "%*s %*s %*s %lf %*s %*s %lf", &size, &attached) != 2 || attached > 0) continue;
        bytes += size;
        (*count)++;
    }
    return bytes;
}

/* Of plain files in /dev/shm; the largest one's name. */
static double files(check *c, size_t *count, const char **largest)
{
    size_t       n;
    double       bytes = 0, most = 0;
    const char **names = check_list(c, "/dev/shm", "", false, &n);
    for (size_t i = 0; i < n; i++) {
        struct stat info;
        int         fd = tm_root_open(c->sysroot, check_path(c, "/dev/shm/%s", names[i]), O_PATH | O_NOFOLLOW);
        bool        plain = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
        if (fd >= 0) close(fd);
        if (!plain) continue;
        (*count)++;
        bytes += (double)info.st_size;
        if ((double)info.st_size > most) most = (double)info.st_size, *largest = names[i];
    }
    return bytes;
}

void check_left_shm(check *c)
{
    char        in_files[32], in_segments[32];
    size_t      n_files = 0, n_segments = 0;
    const char *info = check_content(c, "/proc/meminfo"), *largest = "";
    double      total = info ? 1024 * (double)check_field(info, "MemTotal") : -1;
    if (total <= 0) {
        check_say(c, TM_CHECK_SKIP, "/proc/meminfo has no MemTotal");
        return;
    }
    double of_files = files(c, &n_files, &largest), of_segments = unattached(c, &n_segments);
    double part = (of_files + of_segments) / total;
    check_say(c,
              part < 0.01   ? TM_CHECK_PASS
              : part < 0.05 ? TM_CHECK_WARN
                            : TM_CHECK_FAIL,
              "%s in %zu files of /dev/shm%s%s, %s in %zu segments that nobody has attached",
              tm_format_bytes(in_files, of_files), n_files, *largest ? ", the largest is " : "", largest,
              tm_format_bytes(in_segments, of_segments), n_segments);
}
