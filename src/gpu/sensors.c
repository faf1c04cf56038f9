/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/sensors.h"

#include "base/arena.h"
#include "base/file.h"
#include "gpu/library.h"
#include "gpu/sensors_calls.h"

#include <fcntl.h>
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
#define X(member, arguments, name, needed) int(*member) arguments;
    NVML_CALLS(X)
#undef X
} nvml_calls;

static const struct {
    size_t      at;
    const char *name;
    bool        needed;
} names[] = {
#define X(member, arguments, name, needed) { offsetof(nvml_calls, member), name, needed },
    NVML_CALLS(X)
#undef X
};

/* Files of amdgpu. */
typedef enum { FILE_CLOCK, FILE_POWER, FILE_TEMPERATURE, FILE_METRICS, FILES } amd_file;

struct tm_gpu_sensors {
    bool       hip;
    nvml_calls nvml;
    void      *device;
    bool       by_fields;           /* what held the clock down */
    int        file[FILES];         /* -1: is not there */
    uint32_t   cycles, power, heat; /* of gpu_metrics, as they were last: counters of 32 bits */
    double     held_of, power_held, heat_held;
    bool       counted;
};

/* --- AMD -------------------------------------------------------------------------------------------------------------
 */

/* The first file that the patterns find, below the directory of the device. */
static int open_first(const char *device, const char *const *patterns)
{
    for (; *patterns; patterns++) {
        char   pattern[600];
        glob_t found;
        int    fd = -1;
        snprintf(pattern, sizeof pattern, "%s/%s", device, *patterns);
        if (glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc > 0)
            fd = open(found.gl_pathv[0], O_RDONLY | O_CLOEXEC);
        globfree(&found);
        if (fd >= 0) return fd;
    }
    return -1;
}

/* The hottest place is called junction; a GPU that does not name its sensors has one. */
static int open_temperature(const char *device)
{
    static const char *const first[] = { "hwmon/hwmon*/temp1_input", NULL };
    for (int i = 1; i <= 3; i++) {
        char              path[64], label[64] = "";
        const char *const one[] = { path, NULL };
        snprintf(path, sizeof path, "hwmon/hwmon*/temp%d_label", i);
        int     fd = open_first(device, one);
        ssize_t n = fd >= 0 ? read(fd, label, sizeof label - 1) : 0;
        if (fd >= 0) close(fd);
        if (n <= 0 || strncmp(label, "junction", 8) != 0) continue;
        snprintf(path, sizeof path, "hwmon/hwmon*/temp%d_input", i);
        return open_first(device, one);
    }
    return open_first(device, first);
}

static bool open_amd(tm_gpu_sensors *s, const char *bus, const char *sysroot, tm_text *why)
{
    static const char *const clock[] = { "hwmon/hwmon*/freq1_input", NULL };
    static const char *const power[] = { "hwmon/hwmon*/power1_average", "hwmon/hwmon*/power1_input", NULL };
    static const char *const metrics[] = { "gpu_metrics", NULL };
    char                     device[512];
    snprintf(device, sizeof device, "%.300s/sys/bus/pci/devices/%.32s", sysroot, bus);
    s->file[FILE_CLOCK] = open_first(device, clock);
    s->file[FILE_POWER] = open_first(device, power);
    s->file[FILE_TEMPERATURE] = open_temperature(device);
    s->file[FILE_METRICS] = open_first(device, metrics);
    for (int i = 0; i < FILES; i++)
        if (s->file[i] >= 0) return true;
    tm_text_printf(why, "%s has neither hwmon nor gpu_metrics (is the driver amdgpu?)", device);
    return false;
}

/* A number of a file, in its unit. */
static double number_in(int fd, double unit)
{
    char    text[40];
    ssize_t n = fd >= 0 ? pread(fd, text, sizeof text - 1, 0) : 0;
    if (n <= 0) return (double)NAN;
    text[n] = '\0';
    char  *end;
    double value = strtod(text, &end);
    return end == text ? (double)NAN : value * unit;
}

static uint32_t word_at(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Of gpu_metrics: cycles, and in how many of them power or heat held the clock down. */
typedef struct {
    uint32_t cycles, power, heat;
} amd_counters;

static bool read_table(const unsigned char *bytes, amd_counters *out)
{
    static const size_t  begin[] = { [6] = AMD_CYCLES_6, [7] = AMD_CYCLES_7, [8] = AMD_CYCLES_8 };
    const unsigned char *at = bytes + begin[bytes[AMD_CONTENT]];
    *out = (amd_counters){ word_at(at), word_at(at + AMD_POWER),
                           word_at(at + AMD_HOT_PROCESSOR) + word_at(at + AMD_HOT_SOCKET) +
                               word_at(at + AMD_HOT_REGULATOR) + word_at(at + AMD_HOT_MEMORY) };
    return true;
}

/* False: a counter is not there, or the driver did not fill it in. */
static bool read_list(const unsigned char *bytes, size_t n, amd_counters *out)
{
    enum { FIRST = AMD_ID_CYCLES, COUNTERS = AMD_ID_HOT_MEMORY + 1 - FIRST, ENCODED = 8 };
    uint32_t value[COUNTERS], listed = word_at(bytes + AMD_LISTED);
    size_t   at = AMD_LIST;
    memset(value, 0xff, sizeof value);
    for (uint32_t i = 0; i < listed && at + ENCODED <= n; i++) {
        uint32_t encoded = word_at(bytes + at), type = encoded >> AMD_TYPE_SHIFT & AMD_TYPE_MASK;
        uint32_t id = encoded >> AMD_ID_SHIFT & AMD_ID_MASK, many = encoded & AMD_HOW_MANY_MASK;
        size_t   size = (size_t)many << type / 2; /* of 8 bits, signed or not, 16, 32, 64 */
        at += ENCODED;
        if (type >= AMD_TYPES || size > n - at) return false;
        if (id >= FIRST && id < FIRST + COUNTERS && many == 1 && (type == AMD_U32 || type == AMD_U64))
            value[id - FIRST] = word_at(bytes + at);
        at += size;
    }
    for (int i = 0; i < COUNTERS; i++)
        if (value[i] == UINT32_MAX) return false;
    *out = (amd_counters){ value[0], value[AMD_ID_POWER - FIRST],
                           value[AMD_ID_HOT_PROCESSOR - FIRST] + value[AMD_ID_HOT_SOCKET - FIRST] +
                               value[AMD_ID_HOT_REGULATOR - FIRST] + value[AMD_ID_HOT_MEMORY - FIRST] };
    return true;
}

static void read_metrics(tm_gpu_sensors *s)
{
    enum { LEAST = 64, MOST = 4096 }; /* of a table; a page */
    unsigned char bytes[MOST] = { 0 };
    amd_counters  now;
    ssize_t       n = s->file[FILE_METRICS] >= 0 ? pread(s->file[FILE_METRICS], bytes, sizeof bytes, 0) : 0;
    int           content = bytes[AMD_CONTENT];
    if (n < LEAST || bytes[AMD_FORMAT] != 1 || content < 6 || content > 9) return;
    if (!(content == 9 ? read_list(bytes, (size_t)n, &now) : read_table(bytes, &now))) return;
    if (s->counted) {
        s->held_of += (uint32_t)(now.cycles - s->cycles);
        s->power_held += (uint32_t)(now.power - s->power);
        s->heat_held += (uint32_t)(now.heat - s->heat);
    }
    s->cycles = now.cycles, s->power = now.power, s->heat = now.heat;
    s->counted = true;
}

static void read_amd(tm_gpu_sensors *s, tm_gpu_reading *out)
{
    out->clock_mhz = number_in(s->file[FILE_CLOCK], 1e-6);           /* Hz */
    out->power_w = number_in(s->file[FILE_POWER], 1e-6);             /* microwatts */
    out->temperature_c = number_in(s->file[FILE_TEMPERATURE], 1e-3); /* thousandths of a degree */
    read_metrics(s);
    if (!s->counted) return;
    out->held_of = s->held_of;
    out->power_held = s->power_held;
    out->heat_held = s->heat_held;
}

/* --- NVIDIA ----------------------------------------------------------------------------------------------------------
 */

static bool open_nvidia(tm_gpu_sensors *s, const char *bus, tm_text *why)
{
    const char *given = getenv("TRAINMARK_NVML");
    const char *list[] = { given && *given ? given : "libnvidia-ml.so.1", NULL };
    tm_library  library;
    if (!tm_library_open(list, &library, why)) return false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        void *symbol = tm_library_symbol(&library, names[i].name);
        memcpy((char *)&s->nvml + names[i].at, &symbol, sizeof symbol);
        if (symbol || !names[i].needed) continue;
        tm_text_printf(why, "%s has no %s", library.path, names[i].name);
        return false;
    }
    int code = s->nvml.init();
    if (code == 0 && (code = s->nvml.by_bus(bus, &s->device)) != 0) s->nvml.shutdown();
    nvml_violation time;
    s->by_fields =
        code == 0 && (!s->nvml.violation || s->nvml.violation(s->device, NVML_BY_POWER, &time) != 0) && s->nvml.fields;
    if (code != 0) tm_text_printf(why, "NVML (%s) fails for the GPU at %s with code %d", library.path, bus, code);
    return code == 0;
}

static double of(int code, unsigned value, double unit)
{
    return code == 0 ? value * unit : (double)NAN;
}

static double read_temperature(const tm_gpu_sensors *s)
{
    unsigned         value = 0;
    nvml_temperature now = { NVML_TEMPERATURE_1, NVML_OF_GPU, 0 };
    if (s->nvml.temperature) {
        int code = s->nvml.temperature(s->device, NVML_OF_GPU, &value);
        return of(code, value, 1);
    }
    if (!s->nvml.temperature_of || s->nvml.temperature_of(s->device, &now) != 0) return (double)NAN;
    return now.celsius;
}

/* The same counters in both ways. */
static void read_held(const tm_gpu_sensors *s, tm_gpu_reading *out)
{
    nvml_violation power, heat;
    nvml_field     field[] = { { .field = NVML_FIELD_POWER }, { .field = NVML_FIELD_HEAT } };
    if (s->by_fields) {
        if (s->nvml.fields(s->device, 2, field) != 0) return;
        for (int i = 0; i < 2; i++)
            if (field[i].code != 0 || field[i].type != NVML_UNSIGNED_64) return;
        power = (nvml_violation){ (unsigned long long)field[0].time_us, field[0].value };
        heat = (nvml_violation){ (unsigned long long)field[1].time_us, field[1].value };
    } else if (!s->nvml.violation || s->nvml.violation(s->device, NVML_BY_POWER, &power) != 0 ||
               s->nvml.violation(s->device, NVML_BY_HEAT, &heat) != 0) {
        return;
    }
    out->held_of = (double)heat.reference_us * 1e-6;
    out->power_held = (double)power.violation_ns * 1e-9;
    out->heat_held = (double)heat.violation_ns * 1e-9;
}

static void read_nvidia(tm_gpu_sensors *s, tm_gpu_reading *out)
{
    unsigned value = 0;
    int      code = s->nvml.clock(s->device, NVML_OF_SM, &value);
    out->clock_mhz = of(code, value, 1);
    code = s->nvml.power(s->device, &value);
    out->power_w = of(code, value, 1e-3);
    out->temperature_c = read_temperature(s);
    read_held(s, out);
}

/* --- both ------------------------------------------------------------------------------------------------------------
 */

tm_gpu_sensors *tm_gpu_sensors_open(tm_gpu_maker maker, const char *bus, const char *sysroot, tm_text *why)
{
    tm_gpu_sensors *s = tm_alloc(sizeof *s);
    *s = (tm_gpu_sensors){ .hip = maker == TM_GPU_HIP };
    for (int i = 0; i < FILES; i++) s->file[i] = -1;
    if (s->hip ? open_amd(s, bus, sysroot, why) : open_nvidia(s, bus, why)) return s;
    free(s);
    return NULL;
}

void tm_gpu_sensors_close(tm_gpu_sensors *s)
{
    if (!s) return;
    if (s->device) s->nvml.shutdown();
    for (int i = 0; i < FILES; i++)
        if (s->file[i] >= 0) close(s->file[i]);
    free(s);
}

void tm_gpu_sensors_read(tm_gpu_sensors *s, tm_gpu_reading *out)
{
    const double unknown = (double)NAN;
    *out = (tm_gpu_reading){ unknown, unknown, unknown, unknown, unknown, unknown };
    if (s->hip)
        read_amd(s, out);
    else
        read_nvidia(s, out);
}
