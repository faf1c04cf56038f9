/* SPDX-License-Identifier: Apache-2.0 */
/* gpu/blas_calls.h - the calls of the libraries of matrix products; private to gpu/blas.c. */
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

#endif
