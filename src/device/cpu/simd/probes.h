/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/probes.h - kernels that measure the machine, one thread's share each. */
#ifndef TM_DEVICE_CPU_PROBES_H
#define TM_DEVICE_CPU_PROBES_H

#include "device/ceilings.h"
#include "device/cpu/gemm.h"

typedef struct {
    const char *isa;
    int         lanes, chains; /* of `multiply_add` */
    bool        fused, streams;
    /* Keeps the arithmetic units busy from registers; returns the FLOPs done. */
    double (*multiply_add)(int64_t rounds);
    /* The same with bfloat16 products; NULL: no such instructions in this build. */
    double (*multiply_add_bf16)(int64_t rounds);
    /* The same in tile registers; the caller has leave to use them. */
    double (*multiply_add_tiles)(int64_t rounds);
    /* One part of the arrays; n is a multiple of 8 unless it is the end of the arrays. */
    double (*stream)(tm_stream_kernel kernel, bool streaming_stores, double scalar, double *a, double *b, double *c,
                     int64_t n);
} tm_cpu_probe;

extern const tm_cpu_probe             tm_cpu_probe_base;
extern TM_IF_BUILT const tm_cpu_probe tm_cpu_probe_avx2, tm_cpu_probe_avx512;

#endif
