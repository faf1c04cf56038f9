/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/watch.c - sensors of processors and GPUs while something runs. */
#include "apps/node/watch.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/text.h"
#include "stats/summary.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FILES = 64, PATH = 512 };

typedef struct {
    char   path[MOST_FILES][PATH];
    double range[MOST_FILES]; /* of a counter: where it begins again */
    double last[MOST_FILES];
    size_t n;
} files;

struct tm_node_watch {
    tm_gpu_sensors *gpu; /* NULL: of processors */
    char           *sysroot;
    int            *processors;
    size_t          n;
    files           heat, energy;
    double          joules, read_at; /* of the last reading; NAN: none yet */
    tm_gpu_reading  first;           /* of the GPU */
    double          first_at;
};

/* --- files -------------------------------------------------------------------------------------------------------- */

static double number_in(const char *path)
{
    char text[64], *end;
    if (!tm_file_read_line(path, text, sizeof text)) return (double)NAN;
    const double value = strtod(text, &end);
    return end == text ? (double)NAN : value;
}

static void add_file(files *to, const char *path, double range)
{
    if (to->n == MOST_FILES || isnan(number_in(path))) return;
    snprintf(to->path[to->n], PATH, "%s", path);
    to->last[to->n] = number_in(path);
    to->range[to->n++] = range;
}

/* Is the first line of the file one of these names, or does it begin with one? */
static bool names(const char *path, const char *const *wanted)
{
    char text[64];
    if (!tm_file_read_line(path, text, sizeof text)) return false;
    for (; *wanted; wanted++)
        if (strncmp(text, *wanted, strlen(*wanted)) == 0) return true;
    return false;
}

/* For every entry of a folder below sysroot. */
static void each(tm_node_watch *w, const char *folder, void (*look)(tm_node_watch *w, const char *entry))
{
    char           path[PATH];
    struct dirent *entry;
    snprintf(path, sizeof path, "%.200s%s", w->sysroot, folder);
    DIR *open = opendir(path);
    while (open && (entry = readdir(open))) {
        char at[PATH];
        snprintf(at, sizeof at, "%.250s/%.200s", path, entry->d_name);
        if (entry->d_name[0] != '.') look(w, at);
    }
    if (open) closedir(open);
}

static void look_at_monitor(tm_node_watch *w, const char *entry)
{
    static const char *const of_processors[] = { "coretemp", "k10temp", "zenpower", "cpu_thermal", "cpu", NULL };
    char                     path[PATH + 32];
    snprintf(path, sizeof path, "%s/name", entry);
    if (!names(path, of_processors)) return;
    for (int i = 1; i <= MOST_FILES; i++) {
        snprintf(path, sizeof path, "%s/temp%d_input", entry, i);
        add_file(&w->heat, path, 0);
    }
}

static void look_at_zone(tm_node_watch *w, const char *entry)
{
    static const char *const of_processors[] = { "x86_pkg_temp", "cpu", NULL };
    char                     path[PATH + 32];
    snprintf(path, sizeof path, "%s/type", entry);
    if (!names(path, of_processors)) return;
    snprintf(path, sizeof path, "%s/temp", entry);
    add_file(&w->heat, path, 0);
}

/* Packages, not their parts: "intel-rapl:0". */
static void look_at_energy(tm_node_watch *w, const char *entry)
{
    static const char *const packages[] = { "package", NULL };
    char                     path[PATH + 32];
    snprintf(path, sizeof path, "%s/name", entry);
    if (!names(path, packages)) return;
    snprintf(path, sizeof path, "%s/max_energy_range_uj", entry);
    const double range = number_in(path);
    snprintf(path, sizeof path, "%s/energy_uj", entry);
    add_file(&w->energy, path, isnan(range) ? 0 : range);
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static tm_node_watch *create(void)
{
    tm_node_watch *w = memset(tm_alloc(sizeof *w), 0, sizeof *w);
    w->read_at = (double)NAN;
    return w;
}

tm_node_watch *tm_node_watch_processors(const int *processors, size_t n, const char *sysroot)
{
    tm_node_watch *w = create();
    w->sysroot = strcpy(tm_alloc(strlen(sysroot) + 1), sysroot);
    w->processors = tm_alloc((n + 1) * sizeof *w->processors);
    memcpy(w->processors, processors, n * sizeof *processors);
    w->n = n;
    each(w, "/sys/class/hwmon", look_at_monitor);
    if (w->heat.n == 0) each(w, "/sys/class/thermal", look_at_zone);
    each(w, "/sys/class/powercap", look_at_energy);
    return w;
}

tm_node_watch *tm_node_watch_gpu(const tm_device *device)
{
    tm_text         why = { 0 };
    tm_gpu_sensors *gpu = tm_device_sensors(device, &why);
    tm_text_fini(&why);
    if (!gpu) return NULL;
    tm_node_watch *w = create();
    w->gpu = gpu;
    return w;
}

void tm_node_watch_close(tm_node_watch *w)
{
    if (!w) return;
    tm_gpu_sensors_close(w->gpu);
    free(w->sysroot);
    free(w->processors);
    free(w);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* Sum or median over the processors of what a file of each says; NAN: none says anything. */
static double of_processors(const tm_node_watch *w, const char *file, bool sum)
{
    double *x = tm_alloc((w->n + 1) * sizeof *x), all = 0;
    int64_t known = 0;
    for (size_t i = 0; i < w->n; i++) {
        char path[PATH];
        snprintf(path, sizeof path, "%.200s/sys/devices/system/cpu/cpu%d/%s", w->sysroot, w->processors[i], file);
        const double value = number_in(path);
        if (isnan(value)) continue;
        all += value;
        x[known++] = value;
    }
    const double result = known == 0 ? (double)NAN : sum ? all : tm_stats_median(x, known);
    free(x);
    return result;
}

/* Counters begin again at their end. */
static double joules_of(tm_node_watch *w)
{
    for (size_t i = 0; i < w->energy.n; i++) {
        double now = number_in(w->energy.path[i]), more = now - w->energy.last[i];
        if (isnan(now)) continue;
        if (more < 0) more += w->energy.range[i];
        w->joules += more * 1e-6;
        w->energy.last[i] = now;
    }
    return w->joules;
}

static void read_gpu(tm_node_watch *w, double seconds, tm_node_sensed *out)
{
    tm_gpu_reading r;
    tm_gpu_sensors_read(w->gpu, &r);
    if (isnan(w->read_at)) w->first = r, w->first_at = seconds;
    out->clock_mhz = r.clock_mhz, out->hottest_c = r.temperature_c, out->watts = r.power_w;
    const double of = r.held_of - w->first.held_of, held = r.heat_held - w->first.heat_held;
    out->held = of > 0 ? (seconds - w->first_at) * held / of : held * 0; /* NAN stays */
}

void tm_node_watch_read(tm_node_watch *w, double seconds, tm_node_sensed *out)
{
    const double nan = (double)NAN;
    *out = (tm_node_sensed){ nan, nan, nan, nan, nan };
    if (w->gpu) {
        read_gpu(w, seconds, out);
        w->read_at = seconds;
        return;
    }
    out->clock_mhz = of_processors(w, "cpufreq/scaling_cur_freq", false) / 1e3;
    out->throttles = of_processors(w, "thermal_throttle/core_throttle_count", true);
    for (size_t i = 0; i < w->heat.n; i++) out->hottest_c = fmax(out->hottest_c, number_in(w->heat.path[i]) / 1e3);
    const double before = w->joules, joules = joules_of(w);
    if (w->energy.n > 0 && seconds > w->read_at) out->watts = (joules - before) / (seconds - w->read_at);
    w->read_at = seconds;
}
