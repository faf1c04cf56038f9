/* SPDX-License-Identifier: Apache-2.0 */
/* system/validity.h - was the machine undisturbed while something was measured? Samples of the kernel's counters and of
 * the clocks before, through and after a measurement, and a verdict on them (docs/statistics.md).
 */
#ifndef TM_SYSTEM_VALIDITY_H
#define TM_SYSTEM_VALIDITY_H

#include "base/event.h"
#include "gpu/sensors.h"

#include <stdint.h>

/* X(id, name, noisy above, invalid above, what it says): one row is one fact. INFINITY: reported, not judged.
 * Percentages of processors are of those that the process may use. Those of a GPU are last, and there only if one is
 * watched: means of the clock and of the power, the highest temperature. A clock that the power cap lowers is what
 * every GPU has under full load: not judged. */
#define TM_MACHINE_LIST(X)                                                                                             \
    X(STEAL, "steal_percent", 1, 50, "the hypervisor gave %.3g %% of the processors' time to other machines")          \
    X(THROTTLED, "throttled_percent", 1, 50, "the control group's quota withheld %.3g %% of the processors' time")     \
    X(OTHER, "other_load_percent", 5, INFINITY, "other work took %.3g %% of the processors' time")                     \
    X(OTHER_WORST, "other_load_worst_second_percent", INFINITY, INFINITY, "%.3g")                                      \
    X(FREQUENCY, "frequency_change_percent", 5, INFINITY, "the processor's clock changed by %.3g %%")                  \
    X(CLOCK, "clock_error_percent", 0.1, 1, "the clocks disagree by %.3g %%")                                          \
    X(MAJOR, "major_faults_per_second", 100, INFINITY, "%.3g pages per second came from disk")                         \
    X(MINOR, "minor_faults_per_second", 10000, INFINITY, "%.3g page faults per second")                                \
    X(SWITCHES, "involuntary_switches_per_second", INFINITY, INFINITY, "%.3g")                                         \
    X(MIGRATIONS, "migrations_per_second", 10, INFINITY, "the main thread moved %.3g times per second")                \
    X(THERMAL, "thermal_throttles", 0, INFINITY, "%.0f thermal throttle events")                                       \
    X(IOWAIT, "iowait_percent", INFINITY, INFINITY, "%.3g")                                                            \
    X(CPU_PRESSURE, "cpu_pressure_percent", INFINITY, INFINITY, "%.3g")                                                \
    X(MEMORY_PRESSURE, "memory_pressure_percent", 1, INFINITY, "tasks waited for memory %.3g %% of the time")          \
    X(IO_PRESSURE, "io_pressure_percent", INFINITY, INFINITY, "%.3g")                                                  \
    X(GPU_HEAT, "gpu_heat_percent", 1, 50, "heat held the GPU's clock down for %.3g %% of the time")                   \
    X(GPU_CAPPED, "gpu_power_cap_percent", INFINITY, INFINITY, "%.3g")                                                 \
    X(GPU_CLOCK, "gpu_clock_mhz", INFINITY, INFINITY, "%.0f")                                                          \
    X(GPU_POWER, "gpu_power_w", INFINITY, INFINITY, "%.0f")                                                            \
    X(GPU_TEMPERATURE, "gpu_temperature_c", INFINITY, INFINITY, "%.0f")

typedef enum {
#define X(id, name, noisy, invalid, text) TM_MACHINE_##id,
    TM_MACHINE_LIST(X)
#undef X
        TM_MACHINE_COUNT
} tm_machine_fact;
enum { TM_MACHINE_GPU = TM_MACHINE_GPU_HEAT }; /* the first of a GPU */

typedef struct {
    tm_verdict   verdict; /* not-judged: less than a second, or nothing known */
    char         reason[TM_REASON_BYTES];
    double       seconds;                 /* between the samples that count */
    int          samples;                 /* that count */
    int          processors;              /* that the process may use; 0 = unknown */
    tm_named_f64 facts[TM_MACHINE_COUNT]; /* NAN = unknown */
    int          n_facts;                 /* without those of a GPU if none was watched */
} tm_validity_report;

/* The verdict and its reason by `seconds` and `facts` (all of them, NAN = unknown). A pure function. */
void tm_validity_judge(tm_validity_report *report);

typedef struct tm_validity tm_validity;

/* Takes the first sample. sysroot: "" for the running machine; with a folder that holds copies of /proc and /sys the
 * clocks and the figures of the process itself are still the real ones. Never NULL. */
tm_validity *tm_validity_start(const char *sysroot);
/* Begins again, with the sensors of a GPU (gpu/sensors.h); they stay the caller's until it is stopped. */
void tm_validity_watch(tm_validity *v, tm_gpu_sensors *gpu);
/* Call as often as it suits, after every step: takes a sample if the last one is old enough that all of them cost less
 * than 0.05 % of the time. No memory is taken. */
void tm_validity_sample(tm_validity *v);
/* Clock (MHz) and temperature (Celsius) of the GPU that is watched, by the last sample; 0: not known. */
void tm_validity_gpu(const tm_validity *v, double *clock_mhz, double *temperature_c);
/* Takes the last sample and judges what happened since `from_ns` (tm_now_ns; 0: since the start), from the first sample
 * after that moment. Once per start. */
void tm_validity_stop(tm_validity *v, int64_t from_ns, tm_validity_report *out);
void tm_validity_destroy(tm_validity *v); /* NULL is fine */

#endif
