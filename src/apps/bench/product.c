/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/bench/product.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double tm_product_flops(const tm_product *p)
{
    return 2. * (double)p->m * (double)p->n * (double)p->k;
}

double tm_product_bytes(const tm_product *p)
{
    double in = (double)tm_dtype_bytes(p->dtype), out = (double)tm_dtype_bytes(p->c_dtype);
    return in * ((double)p->m * (double)p->k + (double)p->k * (double)p->n) + out * (double)p->m * (double)p->n;
}

int64_t tm_product_lda(const tm_product *p)
{
    return p->trans_a ? p->m : p->k;
}

int64_t tm_product_ldb(const tm_product *p)
{
    return p->trans_b ? p->k : p->n;
}

/* --- operands -------------------------------------------------------------------------------- */

enum { PAD = 4096 };

static size_t padded(int64_t elements, tm_dtype dtype)
{
    return ((size_t)elements * tm_dtype_bytes(dtype) + PAD - 1) / PAD * PAD;
}

void tm_operands_plan(tm_operands *o, const tm_product *p, bool cold)
{
    *o = (tm_operands){ .product = *p, .sets = 1 };
    o->a_bytes = padded(p->m * p->k, p->dtype);
    o->b_bytes = padded(p->k * p->n, p->dtype);
    o->c_bytes = padded(p->m * p->n, p->c_dtype);
    size_t one = o->a_bytes + o->b_bytes + o->c_bytes;
    if (cold) o->sets = tm_rotation((int64_t)one);
    o->bytes = (size_t)o->sets * one;
}

static char *set_at(const tm_operands *o, int64_t turn)
{
    return o->memory + (size_t)(turn % o->sets) * (o->a_bytes + o->b_bytes + o->c_bytes);
}

void *tm_operands_a(const tm_operands *o, int64_t turn)
{
    return set_at(o, turn);
}

void *tm_operands_b(const tm_operands *o, int64_t turn)
{
    return set_at(o, turn) + o->a_bytes;
}

void *tm_operands_c(const tm_operands *o, int64_t turn)
{
    return set_at(o, turn) + o->a_bytes + o->b_bytes;
}

static void fill_nan(void *data, tm_dtype dtype, int64_t n, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < n; i++) {
        if (dtype == TM_F32)
            ((float *)data)[i] = NAN;
        else
            ((uint16_t *)data)[i] = 0x7fc0; /* of bfloat16 and of float16 */
    }
}

void tm_operands_clear(tm_operands *o, int64_t turn, int threads)
{
    const tm_product *p = &o->product;
    fill_nan(tm_operands_c(o, turn), p->c_dtype, p->m * p->n, threads);
}

tm_status tm_operands_fill(tm_operands *o, tm_bench *bench, tm_error *err)
{
    const tm_product *p = &o->product;
    void             *memory;
    TM_TRY(tm_device_alloc_host(bench->device, o->bytes, &memory, err));
    o->memory = memory;
    tm_bench_normal(bench, "A", tm_operands_a(o, 0), p->dtype, p->m * p->k);
    tm_bench_normal(bench, "B", tm_operands_b(o, 0), p->dtype, p->k * p->n);
    for (int64_t set = 1; set < o->sets; set++) memcpy(set_at(o, set), o->memory, o->a_bytes + o->b_bytes);
    for (int64_t set = 0; set < o->sets; set++) tm_operands_clear(o, set, bench->threads);
    return TM_OK;
}

void tm_operands_release(tm_operands *o, tm_bench *bench)
{
    tm_device_release_host(bench->device, o->memory, o->bytes);
    o->memory = NULL;
}
