/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/kernels.h - the kernel tables of this folder: one per family and instruction set, e.g.
 * tm_cpu_linear_avx512[], best first, ended by .run == NULL. */
#ifndef TM_DEVICE_CPU_KERNELS_H
#define TM_DEVICE_CPU_KERNELS_H

#include "op/kernel.h"

/* X(family): linear = linear, linear_dgrad, linear_wgrad; loss = linear_cross_entropy and its gradient; attention; norm
 * = rmsnorm, layernorm and gradients; pointwise = gelu, relu, swiglu, their gradients, add, cast, rope, rope_grad; reduce =
 * bias_grad, square_sum, square_error and its gradient, clip; embedding and its gradient; optimizer = adamw, sgd;
 * adafactor.
 */
#define TM_CPU_FAMILIES(X)                                                                                             \
    X(linear) X(loss) X(attention) X(norm) X(pointwise) X(reduce) X(embedding) X(optimizer)     \
    X(adafactor)

#define X(family) extern const tm_kernel tm_cpu_##family##_base[], tm_cpu_##family##_avx2[], tm_cpu_##family##_avx512[];
TM_CPU_FAMILIES(X)
#undef X

#endif
