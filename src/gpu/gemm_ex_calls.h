/* SPDX-License-Identifier: Apache-2.0 */
/* gpu/gemm_ex_calls.h - the calls of cuBLAS and rocBLAS, and the numbers of their headers; private to gpu/gemm_ex.c.
 * `make judge-headers` compares the tables with cublas_api.h and rocblas.h. */
#ifndef TM_GPU_GEMM_EX_CALLS_H
#define TM_GPU_GEMM_EX_CALLS_H

#include <stddef.h>
#include <stdint.h>

/* X(member, result, arguments, cuBLAS's name, rocBLAS's): NULL: it has none. */
#define GEMM_EX_CALLS(X)                                                                                               \
    X(create, int, (void **handle), "cublasCreate_v2", "rocblas_create_handle")                                        \
    X(destroy, int, (void *handle), "cublasDestroy_v2", "rocblas_destroy_handle")                                      \
    X(stream, int, (void *handle, void *stream), "cublasSetStream_v2", "rocblas_set_stream")                           \
    X(version, int, (void *handle, int *version), "cublasGetVersion_v2", NULL)                                         \
    X(version_text, int, (char *text, size_t bytes), NULL, "rocblas_get_version_string")                               \
    X(cuda, int,                                                                                                       \
      (void *handle, int trans_a, int trans_b, int m, int n, int k, const void *alpha, const void *a, int a_type,      \
       int ld_a, const void *b, int b_type, int ld_b, const void *beta, void *c, int c_type, int ld_c, int compute,    \
       int algorithm),                                                                                                 \
      "cublasGemmEx", NULL)                                                                                            \
    X(hip, int,                                                                                                        \
      (void *handle, int trans_a, int trans_b, int m, int n, int k, const void *alpha, const void *a, int a_type,      \
       int ld_a, const void *b, int b_type, int ld_b, const void *beta, const void *c, int c_type, int ld_c, void *d,  \
       int d_type, int ld_d, int compute, int algorithm, int32_t solution, uint32_t flags),                            \
      NULL, "rocblas_gemm_ex")

/* X(member, of cuBLAS, its expression there, of rocBLAS, its expression) */
#define GEMM_EX_NUMBERS(X)                                                                                             \
    X(plain, 0, "CUBLAS_OP_N", 111, "rocblas_operation_none")                                                          \
    X(transposed, 1, "CUBLAS_OP_T", 112, "rocblas_operation_transpose")                                                \
    X(f32, 0, "CUDA_R_32F", 151, "rocblas_datatype_f32_r")                                                             \
    X(bf16, 14, "CUDA_R_16BF", 168, "rocblas_datatype_bf16_r")                                                         \
    X(f16, 2, "CUDA_R_16F", 150, "rocblas_datatype_f16_r")                                                             \
    X(compute_f32, 68, "CUBLAS_COMPUTE_32F", 151, "rocblas_datatype_f32_r")                                            \
    X(algorithm, -1, "CUBLAS_GEMM_DEFAULT", 0, "rocblas_gemm_algo_standard")

#endif
