/* SPDX-License-Identifier: Apache-2.0 */
/* gpu/visible.h - which devices the environment leaves visible to this process. */
#ifndef TM_GPU_VISIBLE_H
#define TM_GPU_VISIBLE_H

#include "base/text.h"
#include "gpu/runtime.h"

/* The variables, in the order in which a maker's runtime applies them; NULL ends them. ROCr applies its own first, so
 * HIP's indices count what that leaves. */
const char *const *tm_gpu_visible_variables(tm_gpu_maker maker);

/* How many of `devices` are visible. A list has indices and identifiers (GPU-...); as the runtimes do, it ends at the
 * first entry that names no device. `told` (NULL is fine) gets the variables that count ("HIP_VISIBLE_DEVICES=0,1");
 * *wrong the first entry that names no device, with its variable, or "". */
int tm_gpu_visible(tm_gpu_maker maker, char *const *environment, int devices, tm_text *told, char wrong[96]);

/* Why a runtime sees no GPU at all, with the way out: the kernel's driver is not there (/dev/kfd, /proc/driver/nvidia),
 * its file may not be opened, or variables hide the GPUs. root: "", or where a test has its own /dev. */
void tm_gpu_none_here(tm_gpu_maker maker, const char *root, char out[320]);

#endif
