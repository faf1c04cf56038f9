/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/cpu.h - the calls of the CPU device that another device with the same kernels takes over. Private to
 * device/. */
#ifndef TM_DEVICE_CPU_CPU_H
#define TM_DEVICE_CPU_CPU_H

#include "device/host/host.h"

/* device->own begins with it. */
typedef struct {
    tm_host host;
    int     isa; /* index of the best kernel table */
} tm_cpu;

/* As tm_host_info; `bytes`: of device->own. */
void             tm_cpu_info(tm_device *device, size_t bytes, int threads);
tm_status        tm_cpu_open(tm_device *device, tm_error *err);
tm_status        tm_cpu_limit(tm_device *device, const char *isa, tm_error *err);
const tm_kernel *tm_cpu_choose(const tm_device *device, const tm_call *call, tm_text *refusals);

#endif
