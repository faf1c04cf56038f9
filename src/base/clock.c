/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int64_t tm_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* By Linux, which counts it for each thread. A processor that the hypervisor takes away is not seen here. */
int64_t tm_thread_delayed_ns(void)
{
    char    text[96];
    int64_t delayed;
    int     file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    ssize_t n = file >= 0 ? read(file, text, sizeof text - 1) : 0;
    if (file >= 0) close(file);
    text[n > 0 ? n : 0] = '\0';
    return sscanf(text, "%*u %" SCNd64, &delayed) == 1 ? delayed : 0;
}

int64_t tm_wall_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t tm_process_age_ns(void)
{
    char  line[1024];
    FILE *f = fopen("/proc/self/stat", "r");
    if (!f) return -1;
    size_t n = fread(line, 1, sizeof line - 1, f);
    fclose(f);
    line[n] = '\0';
    const char        *after_name = strrchr(line, ')'); /* the name may hold blanks */
    unsigned long long ticks = 0;
    if (!after_name ||
        sscanf(after_name + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &ticks) != 1)
        return -1;
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    int64_t started_ns = (int64_t)(ticks * (1000000000ull / (unsigned long long)sysconf(_SC_CLK_TCK)));
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - started_ns;
}

char *tm_wall_text(char out[32])
{
    time_t    now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return out;
}
