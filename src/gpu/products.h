/* SPDX-License-Identifier: Apache-2.0 */
/* gpu/products.h - which algorithm a matrix product takes, where something else than the library's first one is wanted:
 * a file of algorithms that were measured (docs/gpu.md), and the shapes that a file of hipBLASLt's own decides.
 *
 * TRAINMARK_PRODUCTS=FILE        algorithms by shape: a line of JSON that says of which library and GPU they are, then
 *                                one for each shape
 * TRAINMARK_PRODUCTS_TUNE=N      the fastest of N algorithms is looked for where FILE has none, and added to FILE
 * HIPBLASLT_TUNING_OVERRIDE_FILE hipBLASLt puts the file's algorithm first, so for these shapes its first one stays
 */
#ifndef TM_GPU_PRODUCTS_H
#define TM_GPU_PRODUCTS_H

#include "base/text.h"
#include "gpu/blas.h"

typedef struct tm_gpu_products tm_gpu_products;

/* What algorithms depend on. */
typedef struct {
    const char *library; /* "hipBLASLt 1.1.0" */
    const char *arch;    /* "gfx942" */
    int         units;   /* multiprocessors, compute units */
    size_t      bytes;   /* of an algorithm: at most 64 */
    bool        hip;
} tm_gpu_products_of;

/* Reads what the variables name; *out is never NULL afterwards. TM_INVALID: no such file, of another library or GPU,
 * N is no number from 2 to 64; TM_FORMAT: damaged, with the line. */
TM_MUST_USE tm_status tm_gpu_products_open(const tm_gpu_products_of *of, tm_gpu_products **out, tm_error *err);
void                  tm_gpu_products_close(tm_gpu_products *products); /* NULL is fine */

/* The algorithm of the file; NULL: it has none, or hipBLASLt's own file decides. */
const void *tm_gpu_products_find(tm_gpu_products *products, const tm_gpu_matmul_shape *shape);
/* How many algorithms are to be measured for it; 0: none. */
int tm_gpu_products_wanted(const tm_gpu_products *products, const tm_gpu_matmul_shape *shape);
/* Adds the fastest of `n` and writes the file anew. Seconds: of it, and of the first that the library named. */
TM_MUST_USE tm_status tm_gpu_products_add(tm_gpu_products *products, const tm_gpu_matmul_shape *shape,
                                          const void *algorithm, int n, double seconds, double first_seconds,
                                          tm_error *err);
/* Of all that decides here; 0: nothing does. */
uint64_t tm_gpu_products_hash(const tm_gpu_products *products);
/* Appends ", 12 tuned" and ", 3 by HIPBLASLT_TUNING_OVERRIDE_FILE": the products that were asked for so far. */
void tm_gpu_products_describe(const tm_gpu_products *products, tm_text *out);

#endif
