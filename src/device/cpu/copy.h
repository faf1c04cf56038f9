/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/copy.h - kernels of `fetch` and `store`. */
#ifndef TM_DEVICE_CPU_COPY_H
#define TM_DEVICE_CPU_COPY_H

#include "op/kernel.h"

extern const tm_kernel tm_cpu_copies[]; /* ends with .name == NULL */

#endif
