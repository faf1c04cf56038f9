/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/attention_sinks.h - the part of attention_grad that makes the gradients of the sinks (output 3). */
#ifndef TM_DEVICE_CPU_ATTENTION_SINKS_H
#define TM_DEVICE_CPU_ATTENTION_SINKS_H

#include "device/cpu/simd/simd.h"
#include "op/op.h"

#if TM_PAIRS /* there is no product in it */
#define TM_SINKS(name) TM_JOIN(name, avx512)
#else
#define TM_SINKS(name) TM_K(name)
#endif

/* Bytes at the start of the call's workspace, whole cache lines; 0: no such output. */
size_t TM_SINKS(attention_sinks_workspace)(const tm_call *call);
void   TM_SINKS(attention_sinks_run)(const tm_call *call);

#endif
