/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/gemm.h - the matrix product of the CPU device: C = op(A) op(B) [+ C] [+ bias] [+ residual].
 *
 * The order of summation is fixed and depends on K alone: k ascends inside blocks of TM_GEMM_BLOCK with one fused
 * multiply-add per term (the base build multiplies and adds), block sums are added to C in ascending order. So the bits
 * do not depend on threads, tiles, or on how M and N are split; K may be split at multiples of TM_GEMM_BLOCK with
 * `accumulate` when C is float32. avx2, avx512 and avx512_bf16 agree bit for bit with a scalar fmaf loop.
 * Operands of bfloat16 and float16 are widened while they are packed; avx512_bf16 multiplies two of bfloat16 as they
 * are, with the same bits. A C of 16 bits is summed in float32 and rounded once, to nearest even.
 *
 * amx: the same, but products of two bfloat16 operands have an order of their own, fixed by K alone, too. Groups of 32
 * k are added to C in ascending order, each the sum of two chains of fused multiply-adds from 0, over its even and over
 * its odd k. K may be split at multiples of 32.
 */
#ifndef TM_DEVICE_CPU_GEMM_H
#define TM_DEVICE_CPU_GEMM_H

#include "device/device.h"
#include "graph/tensor.h"

enum { TM_GEMM_BLOCK = 512 };

typedef struct {
    const void *data;
    int64_t     ld;         /* elements from one stored row to the next, at least the row's width */
    bool        transposed; /* stored the other way round: A as (K, M), B as (N, K) */
    /* TM_F32, TM_BF16 or TM_F16; of B with `narrow_b` also a format in blocks (graph/blocks.h): decoded and rounded on
     * the way; ld is then a multiple of TM_NF4_BLOCK */
    tm_dtype dtype;
} tm_gemm_matrix;

typedef struct {
    int64_t        m, n, k; /* op(A) (M, K), op(B) (K, N), C (M, N) */
    tm_gemm_matrix a, b;
    void          *c; /* must not overlap any input; read only when `accumulate` */
    int64_t        ldc;
    tm_dtype       c_dtype; /* TM_F32, TM_BF16 or TM_F16 */
    bool           accumulate;
    /* Added to the finished float32 sum in this order, before the one rounding to c_dtype. NULL: none. */
    const void *bias;       /* (N) */
    tm_dtype    bias_dtype; /* TM_F32 or TM_BF16 */
    const void *residual;   /* (M, N) */
    int64_t     ld_residual;
    tm_dtype    residual_dtype; /* likewise */
    bool  narrow_b; /* a B of another format becomes bfloat16 on the way where A is bfloat16 (kernels of pairs do) */
    int   threads;
    void *workspace; /* tm_gemm_workspace_<isa> bytes, any alignment */
} tm_gemm;

enum { TM_GEMM_WORKSPACE_MAX = 24 << 20 };

/* workspace: bytes of scratch; sees m, n, k, the formats and threads only. At most TM_GEMM_WORKSPACE_MAX, whatever the
 * shape. workspace_most: enough for every product of these formats and at most these m, n and k.
 * run: one OpenMP region of gemm->threads threads (one thread for a very small product); allocates nothing. M or N == 0
 * does nothing, K == 0 gives an empty sum. */
#define TM_GEMM_DECLARE(isa, optional)                                                                                 \
    optional size_t tm_gemm_workspace_##isa(const tm_gemm *gemm);                                                      \
    optional size_t tm_gemm_workspace_most_##isa(const tm_gemm *gemm);                                                 \
    optional void   tm_gemm_run_##isa(const tm_gemm *gemm)
/* NULL where the build leaves the instruction set out (`make ISA=...`); so are its kernel tables and probes. */
#define TM_IF_BUILT __attribute__((weak))
TM_GEMM_DECLARE(base, );
TM_GEMM_DECLARE(avx2, TM_IF_BUILT);
TM_GEMM_DECLARE(avx512, TM_IF_BUILT);
TM_GEMM_DECLARE(avx512_bf16, TM_IF_BUILT);
TM_GEMM_DECLARE(amx, TM_IF_BUILT);

/* The product for the instruction set of a CPU device; NULL for other devices. Static. */
typedef struct {
    const char *isa;
    size_t (*workspace)(const tm_gemm *gemm);
    void (*run)(const tm_gemm *gemm);
} tm_gemm_kernel;
const tm_gemm_kernel *tm_device_gemm(const tm_device *device);

#endif
