/* SPDX-License-Identifier: Apache-2.0 */
/* gpu/sensors_calls.h - the calls of NVML and the numbers of its header; the layout of the kernel's table gpu_metrics
 * of amdgpu (kgd_pp_interface.h). Private to gpu/sensors.c; `make judge-headers` compares them. */
#ifndef TM_GPU_SENSORS_CALLS_H
#define TM_GPU_SENSORS_CALLS_H

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

/* X(member, arguments, NVML's name, needed): all return 0 for success. CUDA 13's header says of violations that they
 * leave with CUDA 14, and that temperature_of is to be called for temperature. */
#define NVML_CALLS(X)                                                                                                  \
    X(init, (void), "nvmlInit_v2", true)                                                                               \
    X(shutdown, (void), "nvmlShutdown", true)                                                                          \
    X(by_bus, (const char *bus, void **device), "nvmlDeviceGetHandleByPciBusId_v2", true)                              \
    X(clock, (void *device, int which, unsigned *mhz), "nvmlDeviceGetClockInfo", true)                                 \
    X(power, (void *device, unsigned *milliwatts), "nvmlDeviceGetPowerUsage", true)                                    \
    X(temperature, (void *device, int which, unsigned *celsius), "nvmlDeviceGetTemperature", false)                    \
    X(temperature_of, (void *device, nvml_temperature *of), "nvmlDeviceGetTemperatureV", false)                        \
    X(violation, (void *device, int policy, nvml_violation *time), "nvmlDeviceGetViolationStatus", false)              \
    X(fields, (void *device, int n, nvml_field *fields), "nvmlDeviceGetFieldValues", false)

/* X(name, value, NVML's expression) */
#define NVML_NUMBERS(X)                                                                                                \
    X(NVML_OF_SM, 1, "NVML_CLOCK_SM")                                                                                  \
    X(NVML_OF_GPU, 0, "NVML_TEMPERATURE_GPU")                                                                          \
    X(NVML_BY_POWER, 0, "NVML_PERF_POLICY_POWER")                                                                      \
    X(NVML_BY_HEAT, 1, "NVML_PERF_POLICY_THERMAL")                                                                     \
    X(NVML_FIELD_POWER, 74, "NVML_FI_DEV_PERF_POLICY_POWER")                                                           \
    X(NVML_FIELD_HEAT, 75, "NVML_FI_DEV_PERF_POLICY_THERMAL")                                                          \
    X(NVML_UNSIGNED_64, 3, "NVML_VALUE_TYPE_UNSIGNED_LONG_LONG")                                                       \
    X(NVML_TEMPERATURE_1, 0x100000c, "nvmlTemperature_v1")

/* X(name, value, the kernel's expression): of contents 6 to 8 of format 1, where the counter of cycles is, and how far
 * behind it those of what held the clock down are, in bytes; all have 4. Content 9 is a list, without gaps: 8 bytes
 * that say what comes, of which type and how many, then these. */
#define AMD_METRICS_NUMBERS(X)                                                                                         \
    X(AMD_FORMAT, 2, "offsetof(struct metrics_table_header, format_revision)")                                         \
    X(AMD_CONTENT, 3, "offsetof(struct metrics_table_header, content_revision)")                                       \
    X(AMD_CYCLES_6, 32, "offsetof(struct gpu_metrics_v1_6, accumulation_counter)")                                     \
    X(AMD_CYCLES_7, 40, "offsetof(struct gpu_metrics_v1_7, accumulation_counter)")                                     \
    X(AMD_CYCLES_8, 40, "offsetof(struct gpu_metrics_v1_8, accumulation_counter)")                                     \
    X(AMD_HOT_PROCESSOR, 4,                                                                                            \
      "offsetof(struct gpu_metrics_v1_6, prochot_residency_acc) - offsetof(struct gpu_metrics_v1_6, "                  \
      "accumulation_counter)")                                                                                         \
    X(AMD_POWER, 8,                                                                                                    \
      "offsetof(struct gpu_metrics_v1_6, ppt_residency_acc) - offsetof(struct gpu_metrics_v1_6, "                      \
      "accumulation_counter)")                                                                                         \
    X(AMD_HOT_SOCKET, 12,                                                                                              \
      "offsetof(struct gpu_metrics_v1_6, socket_thm_residency_acc) - offsetof(struct gpu_metrics_v1_6, "               \
      "accumulation_counter)")                                                                                         \
    X(AMD_HOT_REGULATOR, 16,                                                                                           \
      "offsetof(struct gpu_metrics_v1_6, vr_thm_residency_acc) - offsetof(struct gpu_metrics_v1_6, "                   \
      "accumulation_counter)")                                                                                         \
    X(AMD_HOT_MEMORY, 20,                                                                                              \
      "offsetof(struct gpu_metrics_v1_6, hbm_thm_residency_acc) - offsetof(struct gpu_metrics_v1_6, "                  \
      "accumulation_counter)")                                                                                         \
    X(AMD_LISTED, 4, "offsetof(struct gpu_metrics_v1_9, attr_count)")                                                  \
    X(AMD_LIST, 8, "offsetof(struct gpu_metrics_v1_9, metrics_attrs)")                                                 \
    X(AMD_TYPE_SHIFT, 20, "AMDGPU_METRICS_ATTR_TYPE_SHIFT")                                                            \
    X(AMD_TYPE_MASK, 0xf, "AMDGPU_METRICS_ATTR_TYPE_MASK >> AMDGPU_METRICS_ATTR_TYPE_SHIFT")                           \
    X(AMD_ID_SHIFT, 10, "AMDGPU_METRICS_ATTR_ID_SHIFT")                                                                \
    X(AMD_ID_MASK, 0x3ff, "AMDGPU_METRICS_ATTR_ID_MASK >> AMDGPU_METRICS_ATTR_ID_SHIFT")                               \
    X(AMD_HOW_MANY_MASK, 0x3ff, "AMDGPU_METRICS_ATTR_INST_MASK >> AMDGPU_METRICS_ATTR_INST_SHIFT")                     \
    X(AMD_U32, 4, "AMDGPU_METRICS_TYPE_U32")                                                                           \
    X(AMD_U64, 6, "AMDGPU_METRICS_TYPE_U64")                                                                           \
    X(AMD_TYPES, 8, "AMDGPU_METRICS_TYPE_MAX")                                                                         \
    X(AMD_ID_CYCLES, 9, "AMDGPU_METRICS_ATTR_ID_ACCUMULATION_COUNTER")                                                 \
    X(AMD_ID_HOT_PROCESSOR, 10, "AMDGPU_METRICS_ATTR_ID_PROCHOT_RESIDENCY_ACC")                                        \
    X(AMD_ID_POWER, 11, "AMDGPU_METRICS_ATTR_ID_PPT_RESIDENCY_ACC")                                                    \
    X(AMD_ID_HOT_SOCKET, 12, "AMDGPU_METRICS_ATTR_ID_SOCKET_THM_RESIDENCY_ACC")                                        \
    X(AMD_ID_HOT_REGULATOR, 13, "AMDGPU_METRICS_ATTR_ID_VR_THM_RESIDENCY_ACC")                                         \
    X(AMD_ID_HOT_MEMORY, 14, "AMDGPU_METRICS_ATTR_ID_HBM_THM_RESIDENCY_ACC")

enum {
#define X(name, value, maker) name = (value),
    NVML_NUMBERS(X) AMD_METRICS_NUMBERS(X)
#undef X
};

#endif
