/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for libnvidia-ml.so.1, for tests: one GPU, whose sensors go on with every look at its clock.
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

static int looks, open_count;

static int fails(const char *name)
{
    const char *wanted = getenv("STANDIN_NVML_FAIL");
    return wanted && strcmp(wanted, name) == 0 ? 3 : 0;
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
    return strcmp(bus, here ? here : "0000:01:00.0") == 0 ? 0 : 6;
}

/* 1800, 1810, ... MHz. */
int nvmlDeviceGetClockInfo(void *device, int which, unsigned *mhz)
{
    if (device != &looks || which != 1) return 2;
    *mhz = 1800 + 10 * (unsigned)looks++;
    return fails("nvmlDeviceGetClockInfo");
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
    if (device != &looks) return 2;
    *milliwatts = 650500;
    return fails("nvmlDeviceGetPowerUsage");
}

int nvmlDeviceGetTemperature(void *device, int which, unsigned *celsius)
{
    if (device != &looks || which != 0) return 2;
    *celsius = 60 + (unsigned)looks % 7;
    return fails("nvmlDeviceGetTemperature");
}

/* A second from look to look; the power cap holds the clock down in a quarter of it. */
int nvmlDeviceGetViolationStatus(void *device, int policy, nvml_violation *time)
{
    const char *heat = getenv("STANDIN_NVML_HEAT");
    if (device != &looks || policy < 0 || policy > 1) return 2;
    time->reference_us = 1000000ULL * (unsigned)looks;
    time->violation_ns = policy == 0 ? 250000000ULL * (unsigned)looks
                                     : (unsigned long long)(1e7 * (heat ? strtod(heat, NULL) : 0)) * (unsigned)looks;
    return fails("nvmlDeviceGetViolationStatus");
}
