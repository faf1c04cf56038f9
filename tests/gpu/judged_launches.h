/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels are launched with, as far as that was judged. */
#ifndef TESTS_GPU_JUDGED_LAUNCHES_H
#define TESTS_GPU_JUDGED_LAUNCHES_H

#include "base/text.h"
#include "device/device.h"
#include "op/kernel.h"

#include <stdbool.h>

/* Has a line "MAKER KERNEL HASH TRIALS" for each kernel that the sweep tries: of the definitions, grids, arguments and
 * products with which it is launched on all short trials that it takes, and how many these are. */
#define JUDGED_LAUNCHES "tests/gpu/launches.txt"

tm_text judged_launches_list(void); /* the file's content */
/* Has the list no such line of the kernel on a device that trials_open has opened? Nothing is compiled or executed.
 * Fails where it takes fewer trials than that. */
bool judged_launches_changed(const char *list, tm_device *device, const char *maker, const tm_kernel *kernel);
/* The sweep has found the kernels of every `parts`-th op right, from `part` on. NULL, or why the file has other lines;
 * with TM_RECORD=1 it gets these. */
const char *judged_launches_differ(tm_device *device, const char *maker, int part, int parts);

#endif
