/* SPDX-License-Identifier: Apache-2.0 */
/* gpu/blas.h - matrix products by the maker's library: NVIDIA's cublasLt or AMD's hipBLASLt, loaded at run time.
 *
 * The library chooses an algorithm once for each shape, the first that it names: two runs on one kind of GPU with one
 * version of the library take the same. A file can name another one, which was measured (gpu/products.h). Products are
 * added up in float32; float32 is not rounded to TF32 on the way, unless a shape says so.
 */
#ifndef TM_GPU_BLAS_H
#define TM_GPU_BLAS_H

#include "base/text.h"
#include "gpu/runtime.h"

typedef struct tm_gpu_blas   tm_gpu_blas;
typedef struct tm_gpu_matmul tm_gpu_matmul; /* a shape with its algorithms; lives as long as the library is open */

/* The library is the file that TRAINMARK_CUBLASLT or TRAINMARK_HIPBLASLT names, else one of where toolkits, drivers
 * and Python's packages have it. "none" names no library. TM_UNSUPPORTED: there is none, with what to install, or it
 * is too old. TM_INVALID, TM_FORMAT: a file of algorithms (gpu/products.h). TM_DEVICE: it is there and does not begin.
 */
TM_MUST_USE tm_status tm_gpu_blas_open(tm_gpu *gpu, tm_gpu_blas **out, tm_error *err);
void                  tm_gpu_blas_close(tm_gpu_blas *blas); /* NULL is fine; no work of it is left in a stream */
/* Will a GPU of this maker have it? Where one is here, or a file is named: whether it can be loaded. Else yes. It is
 * not begun: without a GPU hipBLASLt ends the process then. */
TM_MUST_USE tm_status tm_gpu_blas_expect(tm_gpu_maker maker, tm_error *err);
/* "cublasLt 13.1.0", and the file that was loaded. */
const char *tm_gpu_blas_name(const tm_gpu_blas *blas);
const char *tm_gpu_blas_library(const tm_gpu_blas *blas);
/* Appends how many products take another algorithm than the library's first. Returns a hash of these; 0: none does. */
uint64_t tm_gpu_blas_tuned(const tm_gpu_blas *blas, tm_text *words);

typedef enum {
    TM_GPU_F32,
    TM_GPU_BF16,
    TM_GPU_F16,
    TM_GPU_E4M3, /* codes of 8 bits, from here on */
    TM_GPU_E5M2,
    TM_GPU_E4M3FNUZ,
    TM_GPU_E5M2FNUZ,
    TM_GPU_E2M1 /* of 4 bits: two in a byte, the first one in its low half */
} tm_gpu_format;

/* What the codes of a factor are multiplied with, on the GPU: float32, one number for the matrix, or one for each of
 * its rows; or those of blocks. L: blocks of a row, L4: the next multiple of 4. These begin at multiples of 16 bytes,
 * and zeros fill them up. */
typedef enum {
    TM_GPU_NO_SCALES,
    TM_GPU_SCALES_OF_MATRICES,
    TM_GPU_SCALES_OF_ROWS,
    TM_GPU_SCALES_OF_RUNS,    /* float32, of 128 elements of a row: (L, rows) */
    TM_GPU_SCALES_OF_SQUARES, /* float32, of 128 rows by 128 elements: (squares of rows, L4) */
    TM_GPU_SCALES_IN_TILES,   /* e8m0, of 32 elements of a row: tiles of 128 rows by 4 blocks, one after the other along
                               * the rows; in a tile 32 times the blocks of rows i, i + 32, i + 64 and i + 96 */
    TM_GPU_SCALES_ROW_BY_ROW, /* e8m0, of 32 elements of a row: (rows, L) */
    TM_GPU_SCALES
} tm_gpu_scales;

/* c (rows, columns) = a b^T + bias, row after row: a (rows, depth), or (depth, rows) if a_across; b (columns, depth),
 * or (depth, columns) if b_across; bias (columns). */
typedef struct {
    tm_gpu_format factors, result; /* of a and b; of c and bias */
    tm_gpu_format second;          /* of codes: of b */
    tm_gpu_scales scales;          /* of a; TM_GPU_NO_SCALES: a and b are no codes */
    tm_gpu_scales second_scales;   /* of codes: of b */
    bool          a_across, b_across, bias;
    bool          tf32;                 /* factors of float32 may be rounded to TF32: 10 bits of fraction */
    int64_t       rows, columns, depth; /* none is 0 */
    int64_t       ld_a, ld_b, ld_c;     /* elements from row to row */
    size_t        workspace;            /* bytes that it may have */
} tm_gpu_matmul_shape;

/* Why no matrix unit of an architecture (NULL: of any that multiplies codes) takes codes of these formats (static
 * text). NULL: one does. */
const char *tm_gpu_refuse_codes(tm_gpu_maker maker, const char *arch, tm_gpu_format a, tm_gpu_format b);

/* Of codes: why a library of this version, on a GPU of this architecture, does not take the shape (static text). NULL:
 * it does, as far as documents say. arch NULL: any that this maker's products of codes run on. */
const char *tm_gpu_blas_refuse_codes(tm_gpu_maker maker, const char *arch, int version,
                                     const tm_gpu_matmul_shape *shape);
/* 130100 is cublasLt 13.1.0, 100100 is hipBLASLt 1.1.0. */
int tm_gpu_blas_version(const tm_gpu_blas *blas);

/* Asks the library at the first call with a shape. TM_UNSUPPORTED: it has no algorithm for it; the error's text is
 * also in *why, and stays. */
TM_MUST_USE tm_status tm_gpu_blas_find(tm_gpu_blas *blas, const tm_gpu_matmul_shape *shape, tm_gpu_matmul **out,
                                       const char **why, tm_error *err);

typedef struct {
    void       *c;
    const void *a, *b, *bias;
    const void *old; /* is added, in the format and with the rows of c; may be c; NULL: none */
    void       *workspace;
    const void *scale_a, *scale_b; /* of codes */

    const float *scale; /* of the host: a b^T is multiplied with it; NULL: with 1 */
} tm_gpu_matmul_operands;

/* Puts the product into `stream`. Neither takes memory nor waits. Codes, and what is made of them, begin at multiples
 * of 16 bytes: TM_INVALID. */
TM_MUST_USE tm_status tm_gpu_blas_multiply(tm_gpu_blas *blas, const tm_gpu_matmul *product, void *stream,
                                           const tm_gpu_matmul_operands *operands, tm_error *err);

#endif
