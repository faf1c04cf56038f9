/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/product.h - matrix products to be measured: shapes, operands, and whether the result is right
 * (docs/bench-gemm.md).
 *
 * C (M, N) = op(A) (M, K) op(B) (K, N), row-major and dense; transposed: A is stored as (K, M), B as (N, K).
 */
#ifndef TM_BENCH_PRODUCT_H
#define TM_BENCH_PRODUCT_H

#include "apps/bench/bench.h"

typedef struct {
    char     name[96]; /* "llama70b 3", "qkv forward", "" for a shape of the user's */
    int64_t  m, n, k;
    bool     trans_a, trans_b;
    tm_dtype dtype, c_dtype; /* of A and B; of C, which has 16 bits or more */
    bool     tf32;           /* a GPU's library may round float32 A and B to TF32 */
} tm_product;

double  tm_product_flops(const tm_product *product); /* 2 M N K */
double  tm_product_bytes(const tm_product *product); /* of A, B and C, each once */
int64_t tm_product_lda(const tm_product *product);   /* elements of a stored row */
int64_t tm_product_ldb(const tm_product *product);

/* --- shapes ---------------------------------------------------------------------------------- */

enum { TM_PRODUCTS = 128 };
typedef struct {
    tm_product items[TM_PRODUCTS];
    size_t     count;
} tm_product_list;

/* A named list ("llama70b"), or shapes with commas between: "512x768x64", "512x768x64:nt" with n or t for A and B. Each
 * is as `like` but for its dimensions, name and letters. TM_INVALID with what is wrong. */
TM_MUST_USE tm_status tm_products_parse(const char *text, const tm_product *like, tm_product_list *list, tm_error *err);
/* What a training step multiplies, S = batch x seq rows: qkv, out, up (gate and up in one for llama), down, vocab; each
 * forward (x W^T), dgrad (dy W) and wgrad (dy^T x). */
void tm_products_of_model(const tm_model_shape *shape, int64_t batch, int64_t seq, const tm_product *like,
                          tm_product_list *list);
/* Every dimension divided by `scale` and rounded to a multiple of 16 (at least 16): another shape, by another name. */
tm_product tm_product_scaled(const tm_product *product, double scale);

/* --- operands -------------------------------------------------------------------------------- */

/* `sets` copies of A, B and C: calls take turns with them, so that none finds its operands in the cache. */
typedef struct {
    tm_product product;
    int64_t    sets;
    size_t     a_bytes, b_bytes, c_bytes, bytes; /* of one set, padded; of all */
    char      *memory;
    tm_device *device; /* of a device with memory of its own: the sets lie there, and the host has the first */
    tm_address there;
} tm_operands;

/* Sizes only; memory is NULL. cold: sets that are more than twice the last-level cache. */
void tm_operands_plan(tm_operands *operands, const tm_product *product, bool cold);
/* A and B standard normal, the same in all sets and for all threads; C filled with NaN. TM_NOMEM. */
TM_MUST_USE tm_status tm_operands_fill(tm_operands *operands, tm_bench *bench, tm_error *err);
void                  tm_operands_clear(tm_operands *operands, int64_t turn, int threads); /* C to NaN */
void                  tm_operands_release(tm_operands *operands, tm_bench *bench);
void                 *tm_operands_a(const tm_operands *operands, int64_t turn);
void                 *tm_operands_b(const tm_operands *operands, int64_t turn);
void                 *tm_operands_c(const tm_operands *operands, int64_t turn);

/* Of a device with memory of its own (product_device.c): sizes as tm_operands_plan, the cache is the device's. */
void tm_operands_plan_there(tm_operands *operands, const tm_product *product, bool cold, tm_device *device);
/* As tm_operands_fill, and the sets to the device. TM_NOMEM: of the host, of the device. */
TM_MUST_USE tm_status tm_operands_fill_there(tm_operands *operands, tm_bench *bench, tm_error *err);
void                  tm_operands_release_there(tm_operands *operands);
tm_address            tm_operands_there(const tm_operands *operands, int64_t turn); /* A; B and C lie behind it */
/* C of set 0: from the host to the device, and back. */
TM_MUST_USE tm_status tm_operands_send_c(const tm_operands *operands, tm_error *err);
TM_MUST_USE tm_status tm_operands_fetch_c(const tm_operands *operands, tm_error *err);

/* --- the check ------------------------------------------------------------------------------- */

typedef struct {
    bool    correct;
    double  worst; /* largest error as a part of its bound; above 1 is wrong; infinite for NaN */
    int64_t row, column;
    double  found, wanted, bound; /* there */
    int64_t rows, columns;        /* checked */
} tm_product_check;

/* Holds sampled rows and columns of the C of `turn` against products in float64, and every element against NaN and
 * infinity. The bound follows from the order-free error analysis of a sum of K products (docs/bench-gemm.md). */
void tm_product_verify(const tm_operands *operands, int64_t turn, uint64_t seed, int threads, tm_product_check *out);
/* Seconds that the check takes, roughly. */
double tm_product_verify_seconds(const tm_product *product, int threads);

/* Row i of the exact product (float64 sums of the stored values), N of them, and of the product of absolute values. */
void tm_product_row(const tm_operands *operands, int64_t turn, int64_t i, double *sums, double *sizes);

#endif
