/* SPDX-License-Identifier: Apache-2.0 */
/* apps/check/os.c - the system: container, distribution, kernel, clock; and what is read besides files. */
#include "base/clock.h"
#include "base/root.h"
#include "apps/check/context.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/klog.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <unistd.h>

extern char **environ;

/* --- checks ---------------------------------------------------------------------------------- */

const char *check_container_kind(check *c)
{
    static const char *const words[] = { "docker", "kubepods", "containerd", "libpod", "lxc", "slurm" };
    const char              *groups = check_content(c, "/proc/1/cgroup"), *kind = NULL;
    for (size_t i = 0; groups && !kind && i < sizeof words / sizeof words[0]; i++)
        if (strstr(groups, words[i])) kind = words[i];
    if (tm_root_exists(c->sysroot, "/.dockerenv")) kind = "docker";
    if (tm_root_exists(c->sysroot, "/run/.containerenv")) kind = "podman";
    return kind;
}

void check_container(check *c)
{
    const char *kind = check_container_kind(c);
    check_say(c, TM_CHECK_INFO, "%s", kind ? kind : "none seen");
}

/* /proc/self/status, "Seccomp:": 0 none, 1 strict, 2 a filter. A filter may refuse mbind: then ROCm and CUDA cannot put
 * memory that they pin on the NUMA node of a GPU. */
void check_seccomp(check *c)
{
    const char *status = check_content(c, "/proc/self/status");
    int64_t     mode = status ? check_field(status, "Seccomp") : -1;
    if (mode < 0)
        check_say(c, TM_CHECK_SKIP, "/proc/self/status has no Seccomp");
    else if (mode == 0)
        check_say(c, TM_CHECK_PASS, "no filter");
    else if (c->host->numa_calls == 0)
        check_say(c, TM_CHECK_WARN, "a filter refuses mbind and get_mempolicy: pinned memory is on any NUMA node");
    else if (c->host->numa_calls > 0)
        check_say(c, TM_CHECK_PASS, "a filter that allows mbind");
    else
        check_say(c, TM_CHECK_SKIP, "a filter; whether it allows mbind is only known on the running system");
}

void check_os(check *c)
{
    const char *text = check_content(c, "/etc/os-release"), *name = text ? strstr(text, "PRETTY_NAME=") : NULL;
    if (!name) {
        check_say(c, TM_CHECK_SKIP, "/etc/os-release names none");
        return;
    }
    name += strlen("PRETTY_NAME=");
    name += *name == '"';
    check_say(c, TM_CHECK_INFO, "%.*s", (int)strcspn(name, "\"\n"), name);
}

void check_kernel(check *c)
{
    const char *release = check_line(c, "/proc/sys/kernel/osrelease");
    if (release)
        check_say(c, TM_CHECK_INFO, "%s", release);
    else
        check_skip_unreadable(c, "/proc/sys/kernel/osrelease");
}

void check_time(check *c)
{
    char now[32];
    check_utc(c->host->wall_ms, now);
    if (c->host->clock_synced < 0)
        check_say(c, TM_CHECK_INFO, "%s; whether a time service keeps it is not known", now);
    else if (c->host->clock_synced == 0)
        check_say(c, TM_CHECK_WARN, "%s; the clock is not synchronized (no NTP service found)", now);
    else
        check_say(c, TM_CHECK_PASS, "%s; kept by a time service, error at most %.3g ms", now, c->host->clock_error_ms);
}

/* --- facts that are not files ----------------------------------------------------------------- */

/* get_mempolicy is refused with mbind and set_mempolicy by the default profile of containers, and changes nothing. */
static int numa_calls(void)
{
    int mode;
    if (syscall(SYS_get_mempolicy, &mode, NULL, 0, NULL, 0) == 0) return 1;
    return errno == EPERM ? 0 : -1;
}

enum { LOG_BYTES = 64 << 20 }; /* no kernel keeps more */

/* A read gives one record and never blocks; EPIPE says that records were lost. */
static const char *read_kmsg(int fd, tm_text *out)
{
    char    record[16384];
    ssize_t n;
    tm_text_add(out, "");
    while (out->length < LOG_BYTES) {
        n = read(fd, record, sizeof record);
        if (n < 0 && (errno == EINTR || errno == EPIPE)) continue;
        if (n < 0 && errno != EAGAIN) return strerror(errno);
        if (n <= 0) break;
        tm_text_add_n(out, record, (size_t)n);
    }
    return NULL;
}

/* The reason why not, or NULL. */
static const char *read_log(tm_text *out)
{
    enum { READ_ALL = 3, BUFFER_BYTES = 10 };
    int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) {
        const char *problem = read_kmsg(fd, out);
        close(fd);
        if (!problem) return NULL;
        out->length = 0;
    }
    int bytes = klogctl(BUFFER_BYTES, NULL, 0);
    if (bytes <= 0) return strerror(errno);
    char *text = tm_alloc((size_t)bytes + 1);
    int   n = klogctl(READ_ALL, text, bytes);
    int   cause = errno;
    if (n >= 0) tm_text_add_n(out, text, (size_t)n);
    free(text);
    return n < 0 ? strerror(cause) : NULL;
}

static void read_clock(tm_check_host *host)
{
    struct timex clock = { 0 };
    int          state = adjtimex(&clock);
    host->clock_synced = state < 0 ? -1 : !(state == TIME_ERROR || (clock.status & STA_UNSYNC));
    host->clock_error_ms = state < 0 ? (double)NAN : (double)clock.maxerror * 1e-3;
}

tm_check_host tm_check_host_read(const char *sysroot, bool klog, tm_arena *arena)
{
    char           uptime[64];
    struct statvfs shm;
    tm_text        log = { 0 };
    tm_check_host  host = { .shm_bytes = -1,
                            .uptime_seconds = (double)NAN,
                            .clock_synced = -1,
                            .clock_error_ms = (double)NAN,
                            .wall_ms = tm_wall_ms(),
                            .environment = environ,
                            .user = -1,
                            .numa_calls = -1 };
    if (tm_root_read_line(sysroot, "/proc/uptime", uptime, sizeof uptime) && *uptime)
        host.uptime_seconds = strtod(uptime, NULL);
    if (!*sysroot) {
        read_clock(&host);
        host.numa_calls = numa_calls();
        if (statvfs("/dev/shm", &shm) == 0) host.shm_bytes = (int64_t)((uint64_t)shm.f_blocks * shm.f_frsize);
    }
    if (!klog) return host;
    const char *problem = NULL;
    if (!*sysroot)
        problem = read_log(&log);
    else if (!tm_root_read(sysroot, "/dev/kmsg", LOG_BYTES, &log))
        problem = strerror(errno);
    for (size_t i = 0; i < log.length; i++)
        if (log.data[i] == '\0') log.data[i] = '?'; /* it is a string from here on */
    if (problem)
        host.klog_problem = tm_arena_text(arena, problem);
    else
        host.klog = tm_arena_text_n(arena, log.data ? log.data : "", log.length);
    tm_text_fini(&log);
    return host;
}
