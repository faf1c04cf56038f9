/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/kernels.h - the kernel tables of this folder: one per family and instruction set, e.g.
 * tm_cpu_linear_avx512[], best first, ended by .name == NULL. */
#ifndef TM_DEVICE_CPU_KERNELS_H
#define TM_DEVICE_CPU_KERNELS_H

#include "device/cpu/gemm.h"
#include "op/kernel.h"

/* kernel_tables.def is made by make of the files of this folder: TM_CPU_TABLE(linear) for the table of linear.c, ... */
#define TM_CPU_TABLE(family)                                                                                           \
    extern const tm_kernel             tm_cpu_##family##_base[];                                                       \
    extern TM_IF_BUILT const tm_kernel tm_cpu_##family##_avx2[], tm_cpu_##family##_avx512[];
#include "device/cpu/kernel_tables.def"
#undef TM_CPU_TABLE
/* product_tables.def: the same of the kernels of products. */
#define TM_CPU_TABLE(family)                                                                                           \
    extern TM_IF_BUILT const tm_kernel tm_cpu_##family##_avx512_bf16[], tm_cpu_##family##_amx[];
#include "device/cpu/product_tables.def"
#undef TM_CPU_TABLE

/* All tables of an instruction set ("base", "avx2", "avx512", "avx512_bf16", "amx"; the last two have products of
 * bfloat16 only), ended by NULL. NULL: this machine, or this build, lacks it. */
const tm_kernel *const *tm_cpu_kernel_tables(const char *isa);

#endif
