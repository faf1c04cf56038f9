/* SPDX-License-Identifier: Apache-2.0 */
/* gpu/blas_calls.h - the calls of the libraries of matrix products, and the numbers of their headers; private to
 * gpu/blas.c. `make judge-headers` compares the tables with cublasLt.h and hipblaslt.h. */
#ifndef TM_GPU_BLAS_CALLS_H
#define TM_GPU_BLAS_CALLS_H

#include <stddef.h>
#include <stdint.h>

/* X(member, result, arguments, cublasLt's name, hipBLASLt's): NULL: it has none. */
#define BLAS_CALLS(X)                                                                                                  \
    X(version, size_t, (void), "cublasLtGetVersion", NULL)                                                             \
    X(version_of, int, (void *handle, int *version), NULL, "hipblasLtGetVersion")                                      \
    X(create, int, (void **handle), "cublasLtCreate", "hipblasLtCreate")                                               \
    X(destroy, int, (void *handle), "cublasLtDestroy", "hipblasLtDestroy")                                             \
    X(desc, int, (void **desc, int compute, int scale), "cublasLtMatmulDescCreate", "hipblasLtMatmulDescCreate")       \
    X(desc_set, int, (void *desc, int which, const void *value, size_t bytes), "cublasLtMatmulDescSetAttribute",       \
      "hipblasLtMatmulDescSetAttribute")                                                                               \
    X(desc_free, int, (void *desc), "cublasLtMatmulDescDestroy", "hipblasLtMatmulDescDestroy")                         \
    X(layout, int, (void **layout, int type, uint64_t rows, uint64_t columns, int64_t ld),                             \
      "cublasLtMatrixLayoutCreate", "hipblasLtMatrixLayoutCreate")                                                     \
    X(layout_free, int, (void *layout), "cublasLtMatrixLayoutDestroy", "hipblasLtMatrixLayoutDestroy")                 \
    X(wish, int, (void **wish), "cublasLtMatmulPreferenceCreate", "hipblasLtMatmulPreferenceCreate")                   \
    X(wish_set, int, (void *wish, int which, const void *value, size_t bytes), "cublasLtMatmulPreferenceSetAttribute", \
      "hipblasLtMatmulPreferenceSetAttribute")                                                                         \
    X(wish_free, int, (void *wish), "cublasLtMatmulPreferenceDestroy", "hipblasLtMatmulPreferenceDestroy")             \
    X(find, int,                                                                                                       \
      (void *handle, void *desc, void *a, void *b, void *c, void *d, void *wish, int wanted, void *results, int *n),   \
      "cublasLtMatmulAlgoGetHeuristic", "hipblasLtMatmulAlgoGetHeuristic")                                             \
    X(multiply, int,                                                                                                   \
      (void *handle, void *desc, const void *alpha, const void *a, void *layout_a, const void *b, void *layout_b,      \
       const void *beta, const void *c, void *layout_c, void *d, void *layout_d, const void *algorithm,                \
       void *workspace, size_t bytes, void *stream),                                                                   \
      "cublasLtMatmul", "hipblasLtMatmul")

/* X(member, of cublasLt, its expression there, of hipBLASLt, its expression): -1, NULL: it has none. A result of the
 * heuristic begins with the algorithm. */
#define BLAS_NUMBERS(X)                                                                                                \
    X(plain, 0, "CUBLAS_OP_N", 111, "HIPBLAS_OP_N")                                                                    \
    X(transposed, 1, "CUBLAS_OP_T", 112, "HIPBLAS_OP_T")                                                               \
    X(compute_f32, 68, "CUBLAS_COMPUTE_32F", 2, "HIPBLAS_COMPUTE_32F")                                                 \
    X(compute_tf32, 77, "CUBLAS_COMPUTE_32F_FAST_TF32", 6, "HIPBLAS_COMPUTE_32F_FAST_TF32")                            \
    X(trans_a, 3, "CUBLASLT_MATMUL_DESC_TRANSA", 0, "HIPBLASLT_MATMUL_DESC_TRANSA")                                    \
    X(trans_b, 4, "CUBLASLT_MATMUL_DESC_TRANSB", 1, "HIPBLASLT_MATMUL_DESC_TRANSB")                                    \
    X(epilogue, 7, "CUBLASLT_MATMUL_DESC_EPILOGUE", 2, "HIPBLASLT_MATMUL_DESC_EPILOGUE")                               \
    X(bias, 8, "CUBLASLT_MATMUL_DESC_BIAS_POINTER", 3, "HIPBLASLT_MATMUL_DESC_BIAS_POINTER")                           \
    X(bias_type, 26, "CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE", 4, "HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE")                 \
    X(scale_a, 17, "CUBLASLT_MATMUL_DESC_A_SCALE_POINTER", 5, "HIPBLASLT_MATMUL_DESC_A_SCALE_POINTER")                 \
    X(scale_b, 18, "CUBLASLT_MATMUL_DESC_B_SCALE_POINTER", 6, "HIPBLASLT_MATMUL_DESC_B_SCALE_POINTER")                 \
    X(reduction, 3, "CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK", -1, NULL)                                            \
    X(align_a, 5, "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES", -1, NULL)                                              \
    X(align_b, 6, "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES", -1, NULL)                                              \
    X(align_c, 7, "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES", -1, NULL)                                              \
    X(align_d, 8, "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES", -1, NULL)                                              \
    X(algorithm, 64, "sizeof(cublasLtMatmulAlgo_t)", 24, "sizeof(hipblasLtMatmulAlgo_t)")                              \
    X(workspace, 64, "offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize)", 24,                                   \
      "offsetof(hipblasLtMatmulHeuristicResult_t, workspaceSize)")                                                     \
    X(status, 72, "offsetof(cublasLtMatmulHeuristicResult_t, state)", 32,                                              \
      "offsetof(hipblasLtMatmulHeuristicResult_t, state)")                                                             \
    X(result, 96, "sizeof(cublasLtMatmulHeuristicResult_t)", 56, "sizeof(hipblasLtMatmulHeuristicResult_t)")           \
    X(unsupported, 15, "CUBLAS_STATUS_NOT_SUPPORTED", 7, "HIPBLAS_STATUS_NOT_SUPPORTED")                               \
    X(invalid, 7, "CUBLAS_STATUS_INVALID_VALUE", 3, "HIPBLAS_STATUS_INVALID_VALUE")

/* X(name, value, cublasLt's expression, hipBLASLt's): the same in both; NULL: it has none. */
#define BLAS_SAME_NUMBERS(X)                                                                                           \
    X(BLAS_F32, 0, "CUDA_R_32F", "HIP_R_32F")                                                                          \
    X(BLAS_F16, 2, "CUDA_R_16F", "HIP_R_16F")                                                                          \
    X(BLAS_BF16, 14, "CUDA_R_16BF", "HIP_R_16BF")                                                                      \
    X(BLAS_E4M3, 28, "CUDA_R_8F_E4M3", "HIP_R_8F_E4M3")                                                                \
    X(BLAS_E5M2, 29, "CUDA_R_8F_E5M2", "HIP_R_8F_E5M2")                                                                \
    X(BLAS_E4M3FNUZ, 1000, NULL, "HIP_R_8F_E4M3_FNUZ")                                                                 \
    X(BLAS_E5M2FNUZ, 1001, NULL, "HIP_R_8F_E5M2_FNUZ")                                                                 \
    X(BLAS_E2M1, 33, "CUDA_R_4F_E2M1", "HIP_R_4F_E2M1")                                                                \
    X(BLAS_EPILOGUE_BIAS, 4, "CUBLASLT_EPILOGUE_BIAS", "HIPBLASLT_EPILOGUE_BIAS")                                      \
    X(BLAS_MAX_WORKSPACE, 1, "CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES", "HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES")  \
    X(BLAS_REDUCTION_COMPUTE_TYPE, 2, "CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE", NULL)                                  \
    X(BLAS_MODE_OF_A, 31, "CUBLASLT_MATMUL_DESC_A_SCALE_MODE", "HIPBLASLT_MATMUL_DESC_A_SCALE_MODE")                   \
    X(BLAS_MODE_OF_B, 32, "CUBLASLT_MATMUL_DESC_B_SCALE_MODE", "HIPBLASLT_MATMUL_DESC_B_SCALE_MODE")                   \
    X(BLAS_BLOCKS_OF_32, 2, "CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0", "HIPBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0")   \
    X(BLAS_OF_LINES, 3, "CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F", "HIPBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F")   \
    X(BLAS_RUNS_OF_128, 4, "CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F", NULL)                                            \
    X(BLAS_SQUARES_OF_128, 5, "CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F", NULL)

enum {
#define X(name, value, cuda, hip) name = (value),
    BLAS_SAME_NUMBERS(X)
#undef X
};

/* X(of cublasLt, its name, of hipBLASLt, its name, words) */
#define BLAS_STATUSES(X)                                                                                               \
    X(1, "CUBLAS_STATUS_NOT_INITIALIZED", 1, "HIPBLAS_STATUS_NOT_INITIALIZED", "it is not initialized")                \
    X(3, "CUBLAS_STATUS_ALLOC_FAILED", 2, "HIPBLAS_STATUS_ALLOC_FAILED", "it has no memory")                           \
    X(7, "CUBLAS_STATUS_INVALID_VALUE", 3, "HIPBLAS_STATUS_INVALID_VALUE", "a value is invalid")                       \
    X(8, "CUBLAS_STATUS_ARCH_MISMATCH", 8, "HIPBLAS_STATUS_ARCH_MISMATCH", "not for this architecture")                \
    X(11, "CUBLAS_STATUS_MAPPING_ERROR", 4, "HIPBLAS_STATUS_MAPPING_ERROR", "memory cannot be reached")                \
    X(13, "CUBLAS_STATUS_EXECUTION_FAILED", 5, "HIPBLAS_STATUS_EXECUTION_FAILED", "the GPU could not execute it")      \
    X(14, "CUBLAS_STATUS_INTERNAL_ERROR", 6, "HIPBLAS_STATUS_INTERNAL_ERROR", "an internal error")                     \
    X(15, "CUBLAS_STATUS_NOT_SUPPORTED", 7, "HIPBLAS_STATUS_NOT_SUPPORTED", "not supported")

#endif
