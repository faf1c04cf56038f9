/* SPDX-License-Identifier: Apache-2.0 */
/* gpu/gemm_ex.h - the makers' other libraries of matrix products, NVIDIA's cuBLAS and AMD's rocBLAS: nothing trains by
 * them, `bench gemm` measures them beside cublasLt and hipBLASLt (gpu/blas.h). Loaded at run time. They take memory of
 * their own.
 */
#ifndef TM_GPU_GEMM_EX_H
#define TM_GPU_GEMM_EX_H

#include "gpu/blas.h"

typedef struct tm_gpu_gemm_ex tm_gpu_gemm_ex;

/* The file that TRAINMARK_CUBLAS or TRAINMARK_ROCBLAS names ("none": no library), else one of where toolkits, drivers
 * and Python's packages have it. TM_UNSUPPORTED: there is none, with what to install. TM_DEVICE: it does not begin. */
TM_MUST_USE tm_status tm_gpu_gemm_ex_open(tm_gpu *gpu, tm_gpu_gemm_ex **out, tm_error *err);
void tm_gpu_gemm_ex_close(tm_gpu_gemm_ex *library); /* NULL is fine; no work of it is left in a stream */
/* "rocBLAS 4.4.0". */
const char *tm_gpu_gemm_ex_name(const tm_gpu_gemm_ex *library);
/* Why it does not take a shape (static text): codes, a bias, a result of another format than these. NULL: it does. */
const char *tm_gpu_gemm_ex_refuse(const tm_gpu_matmul_shape *shape);
/* Puts c = a b^T + old into `stream`, as tm_gpu_blas_multiply does; sums in float32, float32 is not rounded to TF32. */
TM_MUST_USE tm_status tm_gpu_gemm_ex_multiply(tm_gpu_gemm_ex *library, const tm_gpu_matmul_shape *shape, void *stream,
                                              const tm_gpu_matmul_operands *operands, tm_error *err);

#endif
