/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/product_check.c - is a product right? Rows and columns of it, recomputed in float64.
 *
 * The computed sum of K products, in any order, with or without fused multiply-add, differs from the exact one by at
 * most gamma_K sum |a b|, gamma_K = K u / (1 - K u), u = 2^-24 (Higham 2002, section 3.1). Rounding errors have no
 * common direction: by theorem 2.4 of Higham & Mary (2019) K may be replaced by lambda sqrt(K), but for a probability
 * below 2 K exp(-lambda^2 / 2) per element, with lambda = 8 about 4e-10 at K = 16384. The smaller of both is taken,
 * plus the rounding of C to its format, plus what denormals flushed to zero can lose. Matrix units for 8 bits keep
 * about 14 bits of a sum while they add 32 products (of Hopper: DeepSeek-AI 2024, arXiv 2412.19437, section 3.5.2):
 * each of K / 32 such steps, and each product of one, may lose 2^-13 of a partial sum, which of standard normal values
 * is beyond 8 sqrt(K) as rarely. Infinity is always wrong: a sum of at most 2^24 products of standard normal values has
 * a standard deviation of 4096, and float16 ends at 16 of them.
 */
#include "apps/bench/product.h"

#include "base/arena.h"
#include "base/random.h"
#include "graph/value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 3, COLUMNS = 3 };

static double a_at(const tm_operands *o, const void *a, int64_t i, int64_t k)
{
    const tm_product *p = &o->product;
    return tm_value_get(a, p->dtype, p->trans_a ? k * p->m + i : i * p->k + k);
}

static double b_at(const tm_operands *o, const void *b, int64_t k, int64_t j)
{
    const tm_product *p = &o->product;
    return tm_value_get(b, p->dtype, p->trans_b ? j * p->k + k : k * p->n + j);
}

/* Columns [from, to) of row i. */
static void part_of_row(const tm_operands *o, int64_t turn, int64_t i, int64_t from, int64_t to, double *sums,
                        double *sizes)
{
    const void       *a = tm_operands_a(o, turn), *b = tm_operands_b(o, turn);
    const tm_product *p = &o->product;
    for (int64_t j = from; j < to; j++) sums[j] = sizes[j] = 0;
    if (p->trans_b) {
        for (int64_t j = from; j < to; j++)
            for (int64_t k = 0; k < p->k; k++) {
                double term = a_at(o, a, i, k) * b_at(o, b, k, j);
                sums[j] += term;
                sizes[j] += fabs(term);
            }
        return;
    }
    for (int64_t k = 0; k < p->k; k++) {
        double x = a_at(o, a, i, k);
        for (int64_t j = from; j < to; j++) {
            double term = x * b_at(o, b, k, j);
            sums[j] += term;
            sizes[j] += fabs(term);
        }
    }
}

void tm_product_row(const tm_operands *o, int64_t turn, int64_t i, double *sums, double *sizes)
{
    part_of_row(o, turn, i, 0, o->product.n, sums, sizes);
}

static double bound_of(const tm_product *p, double size, double wanted)
{
    double k = (double)p->k, u = 0x1p-24;
    double certain = k * u / (1 - k * u), likely = exp(8 * sqrt(k) * u + k * u * u / (1 - u)) - 1;
    double sum = (k * u < 0.5 && certain < likely ? certain : likely) * size + (k + 1) * 0x1p-126;
    if (p->tf32) sum += 0x1p-9 * size; /* 10 bits of fraction of either factor, cut off or rounded */
    if (tm_dtype_bytes(p->dtype) == 1) sum += 0x1p-13 * (k / 32 + 32) * 8 * sqrt(k);
    if (p->c_dtype == TM_BF16) sum += 0x1p-8 * (fabs(wanted) + sum);
    if (p->c_dtype == TM_F16) sum += 0x1p-11 * (fabs(wanted) + sum) + 0x1p-25; /* 2^-25: below 2^-14 */
    return sum;
}

static void judge(const tm_operands *o, int64_t turn, int64_t i, int64_t j, double wanted, double size,
                  tm_product_check *out)
{
    const tm_product *p = &o->product;
    double found = tm_value_get(tm_operands_c(o, turn), p->c_dtype, i * p->n + j), bound = bound_of(p, size, wanted);
    double share = fabs(found - wanted) / bound;
    if (!isfinite(share)) share = (double)INFINITY;
    if (share <= out->worst) return;
    out->worst = share;
    out->row = i, out->column = j;
    out->found = found, out->wanted = wanted, out->bound = bound;
}

static void check_row(const tm_operands *o, int64_t turn, int64_t i, int threads, tm_product_check *out)
{
    enum { PART = 256 };
    const tm_product *p = &o->product;
    double           *sums = tm_alloc((size_t)p->n * 2 * sizeof(double)), *sizes = sums + p->n;
    int64_t           parts = (p->n + PART - 1) / PART;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t part = 0; part < parts; part++) {
        int64_t to = (part + 1) * PART;
        part_of_row(o, turn, i, part * PART, to < p->n ? to : p->n, sums, sizes);
    }
    for (int64_t j = 0; j < p->n; j++) judge(o, turn, i, j, sums[j], sizes[j], out);
    free(sums);
}

static void check_column(const tm_operands *o, int64_t turn, int64_t j, int threads, tm_product_check *out)
{
    const tm_product *p = &o->product;
    const void       *a = tm_operands_a(o, turn), *b = tm_operands_b(o, turn);
    double           *sums = tm_alloc((size_t)p->m * 2 * sizeof(double)), *sizes = sums + p->m;
    double           *column = tm_alloc((size_t)p->k * sizeof(double));
    for (int64_t k = 0; k < p->k; k++) column[k] = b_at(o, b, k, j);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < p->m; i++) {
        double sum = 0, size = 0;
        for (int64_t k = 0; k < p->k; k++) {
            double term = a_at(o, a, i, k) * column[k];
            sum += term;
            size += fabs(term);
        }
        sums[i] = sum, sizes[i] = size;
    }
    for (int64_t i = 0; i < p->m; i++) judge(o, turn, i, j, sums[i], sizes[i], out);
    free(column);
    free(sums);
}

/* First, last, and in between by chance. */
static int64_t pick(int64_t n, int which, uint64_t seed, const char *stream)
{
    if (which == 0) return 0;
    if (which == 1) return n - 1;
    return (int64_t)tm_random_below(seed, tm_random_stream(stream), (uint64_t)which, (uint64_t)n);
}

/* The first element that is not a finite number, or -1. */
static int64_t not_finite(const tm_operands *o, int64_t turn, int threads)
{
    const tm_product *p = &o->product;
    const void       *c = tm_operands_c(o, turn);
    int64_t           n = p->m * p->n, first = n;
#pragma omp parallel for schedule(static) num_threads(threads) reduction(min : first)
    for (int64_t i = 0; i < n; i++)
        if (i < first && !isfinite(tm_value_get(c, p->c_dtype, i))) first = i;
    return first < n ? first : -1;
}

void tm_product_verify(const tm_operands *o, int64_t turn, uint64_t seed, int threads, tm_product_check *out)
{
    const tm_product *p = &o->product;
    *out = (tm_product_check){ .worst = -1 };
    out->rows = p->m < ROWS ? p->m : ROWS;
    out->columns = p->n < COLUMNS ? p->n : COLUMNS;
    for (int i = 0; i < out->rows; i++) check_row(o, turn, pick(p->m, i, seed, "row"), threads, out);
    for (int j = 0; j < out->columns; j++) check_column(o, turn, pick(p->n, j, seed, "column"), threads, out);
    int64_t odd = not_finite(o, turn, threads);
    if (odd >= 0) {
        out->worst = (double)INFINITY;
        out->row = odd / p->n, out->column = odd % p->n;
        out->found = tm_value_get(tm_operands_c(o, turn), p->c_dtype, odd);
        out->wanted = out->bound = (double)NAN;
    }
    out->correct = out->worst <= 1;
}

double tm_product_verify_seconds(const tm_product *p, int threads)
{
    double terms = (double)p->k * (ROWS * (double)p->n + COLUMNS * (double)p->m);
    return (terms * 2e-9 + (double)p->m * (double)p->n * 1e-9) / threads;
}
