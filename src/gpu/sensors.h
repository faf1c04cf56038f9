/* SPDX-License-Identifier: Apache-2.0 */
/* gpu/sensors.h - a GPU's clock, power and temperature while something runs, and for how long power or heat held the
 * clock down. Of NVIDIA by NVML, which is loaded at run time; of AMD by what the kernel shows (hwmon, gpu_metrics).
 */
#ifndef TM_GPU_SENSORS_H
#define TM_GPU_SENSORS_H

#include "base/text.h"
#include "gpu/runtime.h"

typedef struct tm_gpu_sensors tm_gpu_sensors;

/* At one moment; NAN: unknown. Between two readings, power_held / held_of is the part of the time in which the power
 * cap lowered the clock, heat_held / held_of that of heat. Sums since some past moment. */
typedef struct {
    double clock_mhz, power_w, temperature_c; /* of the cores; of the board; of the hottest place */
    double power_held, heat_held, held_of;
} tm_gpu_reading;

/* Of the GPU at `bus` (tm_gpu_facts). sysroot: "" for the running machine. NULL: nothing can be read, `why` says what
 * is missing. The file that TRAINMARK_NVML names is loaded instead of libnvidia-ml.so.1. */
tm_gpu_sensors *tm_gpu_sensors_open(tm_gpu_maker maker, const char *bus, const char *sysroot, tm_text *why);
void            tm_gpu_sensors_close(tm_gpu_sensors *sensors); /* NULL is fine */
/* Some 10 to 100 microseconds; no memory is taken. */
void tm_gpu_sensors_read(tm_gpu_sensors *sensors, tm_gpu_reading *out);

#endif
