/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for libnvidia-ml.so.1, for tests: one GPU, whose sensors go on with every look at its clock. Rules are
 * those of nvml.h. LATER: one of CUDA 14, without what CUDA 13's header says leaves with it.
 *
 * STANDIN_NVML_BUS: where it is ("0000:01:00.0"). STANDIN_NVML_FAIL=NAME: that call returns 3 (not supported).
 * STANDIN_NVML_HEAT: percent of the time in which heat held the clock down (0).
 */
#pragma GCC visibility push(default)
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#include <stdlib.h>
#include <string.h>

typedef struct {
    unsigned long long reference_us, violation_ns;
} nvml_violation;

typedef struct {
    unsigned version;
    int      sensor, celsius;
} nvml_temperature;

typedef struct {
    unsigned           field, scope;
    long long          time_us, latency_us;
    int                type, code;
    unsigned long long value;
} nvml_field;

enum { INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, VERSION_MISMATCH = 25 };

static int looks, open_count;

static int fails(const char *name)
{
    const char *wanted = getenv("STANDIN_NVML_FAIL");
    return wanted && strcmp(wanted, name) == 0 ? NOT_SUPPORTED : 0;
}

int nvmlInit_v2(void)
{
    int code = fails("nvmlInit_v2");
    open_count += code == 0;
    return code;
}

int nvmlShutdown(void)
{
    return open_count-- > 0 ? 0 : 1;
}

int standin_nvml_open(void)
{
    return open_count;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device)
{
    const char *here = getenv("STANDIN_NVML_BUS");
    *device = &looks;
    return strcmp(bus, here ? here : "0000:01:00.0") == 0 ? 0 : NOT_FOUND;
}

/* 1800, 1810, ... MHz. */
int nvmlDeviceGetClockInfo(void *device, int which, unsigned *mhz)
{
    if (device != &looks || which != 1) return INVALID_ARGUMENT;
    *mhz = 1800 + 10 * (unsigned)looks++;
    return fails("nvmlDeviceGetClockInfo");
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
    if (device != &looks) return INVALID_ARGUMENT;
    *milliwatts = 650500;
    return fails("nvmlDeviceGetPowerUsage");
}

static unsigned celsius_now(void)
{
    return 60 + (unsigned)looks % 7;
}

#ifndef LATER
int nvmlDeviceGetTemperature(void *device, int which, unsigned *celsius)
{
    if (device != &looks || which != 0) return INVALID_ARGUMENT;
    *celsius = celsius_now();
    return fails("nvmlDeviceGetTemperature");
}

#endif

int nvmlDeviceGetTemperatureV(void *device, nvml_temperature *of)
{
    if (device != &looks || of->sensor != 0) return INVALID_ARGUMENT;
    if (of->version != (sizeof *of | 1U << 24)) return VERSION_MISMATCH;
    of->celsius = (int)celsius_now();
    return fails("nvmlDeviceGetTemperatureV");
}

/* A second from look to look; the power cap holds the clock down in a quarter of it. */
static nvml_violation held_by(int policy)
{
    const char *heat = getenv("STANDIN_NVML_HEAT");
    return (nvml_violation){ 1000000ULL * (unsigned)looks,
                             policy == 0
                                 ? 250000000ULL * (unsigned)looks
                                 : (unsigned long long)(1e7 * (heat ? strtod(heat, NULL) : 0)) * (unsigned)looks };
}

#ifndef LATER
int nvmlDeviceGetViolationStatus(void *device, int policy, nvml_violation *time)
{
    if (device != &looks || policy < 0 || policy > 1) return INVALID_ARGUMENT;
    *time = held_by(policy);
    return fails("nvmlDeviceGetViolationStatus");
}
#endif

/* "NVML_SUCCESS if any values in values were populated. Note that you must check the nvmlReturn field of each value".
 * STANDIN_NVML_FAIL=heat: that of heat is not; =type: it is a double. */
int nvmlDeviceGetFieldValues(void *device, int n, nvml_field *fields)
{
    if (device != &looks || !fields) return INVALID_ARGUMENT;
    for (int i = 0; i < n; i++) {
        nvml_violation held = held_by(fields[i].field == 75);
        fields[i].code = fields[i].field != 74 && (fields[i].field != 75 || fails("heat")) ? NOT_SUPPORTED : 0;
        fields[i].type = fails("type") ? 0 : 3;
        fields[i].time_us = 1700000000000000LL + (long long)held.reference_us;
        fields[i].value = held.violation_ns;
    }
    return fails("nvmlDeviceGetFieldValues");
}
