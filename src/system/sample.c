/* SPDX-License-Identifier: Apache-2.0 */
#include "system/sample.h"

#include "base/arena.h"
#include "base/file.h"
#include "gpu/sensors.h"

#include <dirent.h>
#include <fcntl.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { TEXT_BYTES = 1 << 17, PATH_BYTES = 1536 };

static const double unknown = (double)NAN;

/* --- parsers ------------------------------------------------------------------------------------------------------ */

bool sample_parse_cpus(const char *list, uint8_t bits[SAMPLE_CPUS / 8])
{
    memset(bits, 0, SAMPLE_CPUS / 8);
    while (*list == ' ' || *list == '\t') list++;
    for (bool more = true; more;) {
        char *end;
        if (*list < '0' || *list > '9') return false;
        long first = strtol(list, &end, 10), last = first;
        if (*end == '-') {
            list = end + 1;
            if (*list < '0' || *list > '9') return false;
            last = strtol(list, &end, 10);
        }
        if (last < first || last >= SAMPLE_CPUS) return false;
        for (long cpu = first; cpu <= last; cpu++) bits[cpu / 8] |= (uint8_t)(1u << cpu % 8);
        more = *end == ',';
        list = end + 1;
    }
    return true;
}

static bool has_cpu(const uint8_t bits[SAMPLE_CPUS / 8], long cpu)
{
    return cpu >= 0 && cpu < SAMPLE_CPUS && (bits[cpu / 8] >> cpu % 8 & 1);
}

int sample_parse_stat(const char *text, const uint8_t bits[SAMPLE_CPUS / 8], double *busy, double *iowait,
                      double *steal)
{
    enum { USER, NICE, SYSTEM, IDLE, IOWAIT, IRQ, SOFTIRQ, STEAL, COLUMNS };
    int count = 0;
    *busy = *iowait = *steal = 0;
    for (const char *line = text; strncmp(line, "cpu", 3) == 0;) {
        char  *rest;
        long   cpu = line[3] >= '0' && line[3] <= '9' ? strtol(line + 3, &rest, 10) : -1;
        double column[COLUMNS];
        int    n = 0;
        if (has_cpu(bits, cpu)) {
            while (n < COLUMNS && rest[0] == ' ' && rest[1] >= '0' && rest[1] <= '9') column[n++] = strtod(rest, &rest);
            if (n < COLUMNS) break; /* cut off, not such a file, or a kernel before 2.6.11 */
            *busy += column[USER] + column[NICE] + column[SYSTEM] + column[IRQ] + column[SOFTIRQ];
            *iowait += column[IOWAIT];
            *steal += column[STEAL];
            count++;
        }
        line = strchr(line, '\n');
        if (!line) break;
        line++;
    }
    if (count == 0) *busy = *iowait = *steal = unknown;
    return count;
}

/* The number behind `name` at the start of a line, blanks and one colon between; NAN if there is none. */
static double number_of(const char *text, const char *name)
{
    size_t n = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, n) != 0) continue;
        const char *value = line + n + strspn(line + n, " \t:");
        if (value == line + n || *value < '0' || *value > '9') continue;
        return strtod(value, NULL);
    }
    return unknown;
}

double sample_parse_throttled(const char *text)
{
    double usec = number_of(text, "throttled_usec"), nsec = number_of(text, "throttled_time");
    return isnan(usec) ? nsec * 1e-9 : usec * 1e-6;
}

double sample_parse_pressure(const char *text)
{
    if (strncmp(text, "some ", 5) != 0) return unknown;
    const char *total = strstr(text, "total="), *end = strchr(text, '\n');
    if (!total || (end && total > end) || total[6] < '0' || total[6] > '9') return unknown;
    return strtod(total + 6, NULL) * 1e-6;
}

double sample_parse_migrations(const char *text)
{
    return number_of(text, "se.nr_migrations");
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static int open_file(const sampler *s, const char *path)
{
    char full[PATH_BYTES];
    if ((size_t)snprintf(full, sizeof full, "%s%s", s->sysroot, path) >= sizeof full) return -1;
    return open(full, O_RDONLY | O_CLOEXEC);
}

/* The whole file, from its start, in s->text; false if it cannot be read. */
static bool read_file(sampler *s, int file)
{
    if (file < 0) return false;
    ssize_t n = 0, got;
    while (n < TEXT_BYTES - 1 && (got = pread(file, s->text + n, (size_t)(TEXT_BYTES - 1 - n), n)) > 0) n += got;
    s->text[n] = '\0';
    return n > 0;
}

/* Opens cpu.stat of the group `path` below `mount` and of its parents. In a container the path is often the host's and
 * does not exist below the mount: then only the mount itself answers. */
static void open_groups(sampler *s, const char *mount, const char *path)
{
    char   name[PATH_BYTES];
    size_t root = strlen(mount);
    if ((size_t)snprintf(name, sizeof name - 16, "%s%s", mount, path) >= sizeof name - 16) return;
    for (;;) {
        size_t n = strlen(name);
        while (n > root && name[n - 1] == '/') name[--n] = '\0';
        strcpy(name + n, "/cpu.stat");
        int file = s->n_groups < SAMPLE_GROUPS ? open_file(s, name) : -1;
        if (file >= 0) s->group[s->n_groups++] = file;
        name[n] = '\0';
        if (n <= root) return;
        *strrchr(name, '/') = '\0';
    }
}

/* Version 2 names no controllers ("0::/path"), version 1 does ("4:cpu,cpuacct:/path"). */
static void find_groups(sampler *s)
{
    char path[PATH_BYTES], text[8192], *next;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", s->sysroot);
    if (!tm_file_read_line(path, text, sizeof text)) return;
    for (char *line = text; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *controllers = ',';
        *group++ = '\0';
        size_t n = strlen(controllers);
        if (n == 1) open_groups(s, "/sys/fs/cgroup", group);
        if (strstr(controllers, ",cpu,") || (n >= 4 && strcmp(controllers + n - 4, ",cpu") == 0))
            open_groups(s, "/sys/fs/cgroup/cpu", group);
    }
}

/* Adds the processors that a thread may use, by its status file, to the set; false if that cannot be read. */
static bool add_allowed(sampler *s, const char *path)
{
    uint8_t bits[SAMPLE_CPUS / 8];
    if (!tm_file_read_line(path, s->text, TEXT_BYTES)) return false;
    const char *list = strstr(s->text, "Cpus_allowed_list:");
    if (!list || !sample_parse_cpus(list + strlen("Cpus_allowed_list:"), bits)) return false;
    for (size_t i = 0; i < sizeof bits; i++) s->allowed[i] |= bits[i];
    return true;
}

/* Of all threads together: each may be bound to a processor of its own. Unknown: all processors. */
static void find_processors(sampler *s)
{
    char           path[PATH_BYTES];
    double         busy, iowait, steal;
    bool           known = false;
    struct dirent *entry;
    snprintf(path, sizeof path, "%s/proc/self/task", s->sysroot);
    DIR *tasks = opendir(path);
    while (tasks && (entry = readdir(tasks))) {
        snprintf(path, sizeof path, "%s/proc/self/task/%s/status", s->sysroot, entry->d_name);
        if (*entry->d_name != '.') known |= add_allowed(s, path);
    }
    if (tasks) closedir(tasks);
    if (!known) memset(s->allowed, 0xff, sizeof s->allowed);
    if (read_file(s, s->stat)) s->processors = sample_parse_stat(s->text, s->allowed, &busy, &iowait, &steal);
}

/* Ticks per second of the time stamp counter as the processor tells them: by its crystal (leaf 15H), by the hypervisor
 * (leaf 40000010H, in kHz), or by the register that is there for it. Most virtual machines tell nothing. */
static double counter_rate(void)
{
#if defined(__x86_64__)
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid_count(0x15, 0, &a, &b, &c, &d) && a && b && c) return (double)c * b / a;
    __cpuid(1, a, b, c, d);
    if (!(c >> 31)) return unknown; /* no hypervisor */
    __cpuid(0x40000000, a, b, c, d);
    if (a < 0x40000010) return unknown;
    __cpuid(0x40000010, a, b, c, d);
    return a ? 1e3 * a : unknown;
#elif defined(__aarch64__)
    uint64_t rate;
    __asm__ volatile("mrs %0, cntfrq_el0" : "=r"(rate));
    return rate ? (double)rate : unknown;
#else
    return unknown;
#endif
}

void sampler_open(sampler *s, const char *sysroot)
{
    *s = (sampler){ .text = tm_alloc(TEXT_BYTES) };
    snprintf(s->sysroot, sizeof s->sysroot, "%s", sysroot);
    s->stat = open_file(s, "/proc/stat");
    s->sched = open_file(s, "/proc/self/sched");
    s->uptime = open_file(s, "/proc/uptime");
    s->counter_rate = counter_rate();
    s->cpu_pressure = open_file(s, "/proc/pressure/cpu");
    s->memory_pressure = open_file(s, "/proc/pressure/memory");
    s->io_pressure = open_file(s, "/proc/pressure/io");
    find_groups(s);
    find_processors(s);
}

void sampler_close(sampler *s)
{
    const int files[] = { s->stat, s->sched, s->uptime, s->cpu_pressure, s->memory_pressure, s->io_pressure };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (files[i] >= 0) close(files[i]);
    for (int i = 0; i < s->n_groups; i++) close(s->group[i]);
    free(s->text);
    *s = (sampler){ 0 };
}

/* --- a sample ----------------------------------------------------------------------------------------------------- */

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double cycles_now(void)
{
#if defined(__x86_64__)
    return (double)__builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return (double)ticks;
#else
    return unknown;
#endif
}

/* All clocks at the same moment: of five tries the one that took the shortest; unknown if that was interrupted, too. */
static void read_clocks(double rate, sample *out)
{
    double shortest = 20e-6;
    out->at = seconds_of(CLOCK_MONOTONIC);
    out->raw = out->wall = out->cycles = out->counter = unknown;
    for (int i = 0; i < 5; i++) {
        double before = seconds_of(CLOCK_MONOTONIC), raw = seconds_of(CLOCK_MONOTONIC_RAW), cycles = cycles_now();
        double wall = seconds_of(CLOCK_REALTIME), after = seconds_of(CLOCK_MONOTONIC);
        if (!(after - before < shortest)) continue;
        shortest = after - before;
        out->at = (before + after) / 2;
        out->raw = raw;
        out->wall = wall;
        out->cycles = cycles;
        out->counter = cycles / rate;
    }
}

/* Nanoseconds of a chain of dependent multiplications, about 8 us long; the best of four, so that an interrupt does not
 * count. */
static double spin_ns(void)
{
    double best = (double)INFINITY;
    for (int i = 0; i < 4; i++) {
        uint64_t x = 1;
        double   begin = seconds_of(CLOCK_MONOTONIC);
        for (int k = 0; k < 6000; k++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            __asm__ volatile("" : "+r"(x));
        }
        best = fmin(best, seconds_of(CLOCK_MONOTONIC) - begin);
    }
    return best * 1e9;
}

/* Throttle events of cores and packages. Those of a package stand at each of its processors: counted as often. */
static double thermal_events(const sampler *s)
{
    static const char *const names[] = { "core", "package" };
    double                   sum = unknown;
    for (int cpu = 0, found = 0; cpu < SAMPLE_CPUS && found < s->processors; cpu++) {
        if (!has_cpu(s->allowed, cpu)) continue;
        found++;
        for (int i = 0; i < 2; i++) {
            char path[PATH_BYTES], text[64];
            snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%d/thermal_throttle/%s_throttle_count",
                     s->sysroot, cpu, names[i]);
            if (tm_file_read_line(path, text, sizeof text) && *text >= '0' && *text <= '9')
                sum = (isnan(sum) ? 0 : sum) + strtod(text, NULL);
        }
    }
    return sum;
}

static double throttled_seconds(sampler *s)
{
    double sum = unknown;
    for (int i = 0; i < s->n_groups; i++) {
        double own = read_file(s, s->group[i]) ? sample_parse_throttled(s->text) : unknown;
        if (!isnan(own)) sum = (isnan(sum) ? 0 : sum) + own;
    }
    return sum;
}

static void read_usage(sample *out)
{
    struct rusage usage;
    out->own = out->minor_faults = out->major_faults = out->switches = unknown;
    if (getrusage(RUSAGE_SELF, &usage) != 0) return;
    out->own = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
               (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
    out->minor_faults = (double)usage.ru_minflt;
    out->major_faults = (double)usage.ru_majflt;
    out->switches = (double)usage.ru_nivcsw;
}

static void read_gpu(const sampler *s, sample *out)
{
    tm_gpu_reading gpu = { unknown, unknown, unknown, unknown, unknown, unknown };
    if (s->gpu) tm_gpu_sensors_read(s->gpu, &gpu);
    out->gpu_clock = gpu.clock_mhz;
    out->gpu_power = gpu.power_w;
    out->gpu_temperature = gpu.temperature_c;
    out->gpu_capped = gpu.power_held;
    out->gpu_heat = gpu.heat_held;
    out->gpu_time = gpu.held_of;
}

void sampler_take(sampler *s, bool ends, sample *out)
{
    double tick = 1 / (double)sysconf(_SC_CLK_TCK);
    int    seen = 0;
    if (read_file(s, s->stat)) seen = sample_parse_stat(s->text, s->allowed, &out->busy, &out->iowait, &out->steal);
    if (seen == 0 || seen != s->processors) out->busy = out->iowait = out->steal = unknown;
    out->busy *= tick;
    out->iowait *= tick;
    out->steal *= tick;
    read_usage(out);
    out->throttled = throttled_seconds(s);
    out->migrations = read_file(s, s->sched) ? sample_parse_migrations(s->text) : unknown;
    out->stalled_cpu = read_file(s, s->cpu_pressure) ? sample_parse_pressure(s->text) : unknown;
    out->stalled_memory = read_file(s, s->memory_pressure) ? sample_parse_pressure(s->text) : unknown;
    out->stalled_io = read_file(s, s->io_pressure) ? sample_parse_pressure(s->text) : unknown;
    out->thermal = ends ? thermal_events(s) : unknown;
    read_gpu(s, out);
    out->spin_ns = spin_ns();
    out->uptime = read_file(s, s->uptime) ? strtod(s->text, NULL) : unknown;
    read_clocks(s->counter_rate, out);
}
