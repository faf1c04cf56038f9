/* SPDX-License-Identifier: Apache-2.0 */
/* gpu/sensors_calls.h - the calls of NVML and the numbers of its header; the layout of the kernel's table gpu_metrics
 * of amdgpu (kgd_pp_interface.h). Private to gpu/sensors.c; `make judge-headers` compares them. */
#ifndef TM_GPU_SENSORS_CALLS_H
#define TM_GPU_SENSORS_CALLS_H

typedef struct {
    unsigned long long reference_us, violation_ns;
} nvml_violation;

/* X(member, arguments, NVML's name): all return 0 for success. */
#define NVML_CALLS(X)                                                                                                  \
    X(init, (void), "nvmlInit_v2")                                                                                     \
    X(shutdown, (void), "nvmlShutdown")                                                                                \
    X(by_bus, (const char *bus, void **device), "nvmlDeviceGetHandleByPciBusId_v2")                                    \
    X(clock, (void *device, int which, unsigned *mhz), "nvmlDeviceGetClockInfo")                                       \
    X(power, (void *device, unsigned *milliwatts), "nvmlDeviceGetPowerUsage")                                          \
    X(temperature, (void *device, int which, unsigned *celsius), "nvmlDeviceGetTemperature")                           \
    X(violation, (void *device, int policy, nvml_violation *time), "nvmlDeviceGetViolationStatus")

/* X(name, value, NVML's expression) */
#define NVML_NUMBERS(X)                                                                                                \
    X(NVML_OF_SM, 1, "NVML_CLOCK_SM")                                                                                  \
    X(NVML_OF_GPU, 0, "NVML_TEMPERATURE_GPU")                                                                          \
    X(NVML_BY_POWER, 0, "NVML_PERF_POLICY_POWER")                                                                      \
    X(NVML_BY_HEAT, 1, "NVML_PERF_POLICY_THERMAL")

/* X(name, value, the kernel's expression): bytes; from the counter of cycles on follow those of a hot processor, of
 * package power, of a hot socket, regulator and memory, four bytes each. */
#define AMD_METRICS_NUMBERS(X)                                                                                         \
    X(AMD_FORMAT, 2, "offsetof(struct metrics_table_header, format_revision)")                                         \
    X(AMD_CONTENT, 3, "offsetof(struct metrics_table_header, content_revision)")                                       \
    X(AMD_COUNTERS_6, 32, "offsetof(struct gpu_metrics_v1_6, accumulation_counter)")                                   \
    X(AMD_COUNTERS_7, 40, "offsetof(struct gpu_metrics_v1_7, accumulation_counter)")                                   \
    X(AMD_COUNTERS_8, 40, "offsetof(struct gpu_metrics_v1_8, accumulation_counter)")

enum {
#define X(name, value, maker) name = (value),
    NVML_NUMBERS(X) AMD_METRICS_NUMBERS(X)
#undef X
};

#endif
