/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/watch.h - private to the room: clock, temperature, power and throttling of processors, as the kernel shows
 * them, or of a GPU.
 */
#ifndef TM_NODE_WATCH_H
#define TM_NODE_WATCH_H

#include "device/device.h"
#include "apps/node/change.h"

typedef struct tm_node_watch tm_node_watch;

/* Of these processors: the median clock (cpufreq), the hottest sensor of a processor (hwmon, thermal zones), the power
 * of all packages (RAPL) and the events of throttling (thermal_throttle). sysroot: "" for the running machine. Never
 * NULL. */
tm_node_watch *tm_node_watch_processors(const int *processors, size_t n, const char *sysroot);
/* Of the GPU of a device; NULL: it has no sensors that can be read. */
tm_node_watch *tm_node_watch_gpu(const tm_device *device);
void           tm_node_watch_close(tm_node_watch *watch); /* NULL is fine */
/* Power is the mean since the last reading, at `seconds` of any origin; the first one has none. */
void tm_node_watch_read(tm_node_watch *watch, double seconds, tm_node_sensed *out);

#endif
