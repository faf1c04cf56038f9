/* SPDX-License-Identifier: Apache-2.0 */
/* Products by the stand-ins for cublasLt and hipBLASLt: operands of any format, layout and scales, and what must come
 * of them, exact. */
#ifndef TESTS_GPU_BLAS_BENCH_H
#define TESTS_GPU_BLAS_BENCH_H

#include "gpu/blas.h"

#include <stddef.h>

enum { BLAS_WORKSPACE = 1 << 16 };

typedef struct {
    tm_gpu      *gpu;
    tm_gpu_blas *blas;
    void        *stream, *workspace;
    int          hip;
} blas_bench;

/* Environment: the stand-ins of a maker. */
void        blas_use(int hip);
const char *blas_variable(int hip);
/* arch NULL, version 0: the stand-in's own. */
blas_bench blas_open(int hip, const char *arch, int version);
tm_status  blas_try_open(int hip, tm_error *err);
/* Fails where something of the library is left. */
void blas_close(blas_bench *b);
/* A number that the stand-in of the library counts. */
int blas_counted(int hip, const char *name);

typedef enum { BLAS_NONE, BLAS_OTHER, BLAS_ITSELF, BLAS_OLDS } blas_old;

typedef struct {
    tm_gpu_format a, b, result;
    tm_gpu_scales scales, second_scales;
    bool          a_across, b_across, bias;
    bool          odd; /* nothing begins at more than an element */
    int           gap; /* between rows: of a; twice of b, three times of c */
    blas_old      old; /* what is added */
} blas_kind;

/* Of 5 x 7 x 9; of codes sizes that are allowed, but no whole tiles. */
tm_gpu_matmul_shape blas_shape(const blas_kind *kind);

enum { BLAS_A, BLAS_B, BLAS_C, BLAS_BIAS, BLAS_OLD, BLAS_SCALE_A, BLAS_SCALE_B, BLAS_OPERANDS };

typedef struct {
    blas_kind              kind;
    tm_gpu_matmul_shape    shape;
    char                  *image[BLAS_OPERANDS]; /* on the host; what is no element is 0xff */
    void                  *memory[BLAS_OPERANDS];
    size_t                 bytes[BLAS_OPERANDS];
    tm_gpu_matmul_operands operands;
} blas_product;

blas_product blas_product_make(const blas_bench *b, const blas_kind *kind, const tm_gpu_matmul_shape *shape);
void         blas_product_free(const blas_bench *b, blas_product *p);
tm_status    blas_multiply(const blas_bench *b, const blas_product *p, tm_error *err);
/* After so many products into c: every element, and what lies beside them. Frees the product. */
void blas_check(const blas_bench *b, blas_product *p, int times, const char *what);

#endif
