/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/load.c - matrix products of a place, timed and verified. */
#include "apps/node/load.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/random.h"
#include "apps/bench/product.h"
#include "device/prepared.h"
#include "graph/value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tm_node_load {
    tm_device    *device;
    tm_prepared  *prepared;
    tm_stopwatch *watch; /* NULL: of a thread of the processor */
    tm_operands   operands;
    tm_address    there; /* of the operands: A, B, C one after the other */
    uint64_t      first; /* hash of the first result */
    bool          known;
    char          wrong[TM_NODE_TEXT]; /* the first wrong result since somebody asked */
};

int tm_node_products(bool gpu, tm_node_product out[TM_NODE_PRODUCTS])
{
    /* A square, few rows, few columns, a long sum. */
    static const int64_t cpu_shapes[][3] = { { 256, 256, 256 }, { 32, 768, 512 }, { 768, 32, 512 }, { 128, 96, 1024 } };
    static const int64_t gpu_shapes[][3] = {
        { 4096, 4096, 4096 }, { 512, 8192, 4096 }, { 8192, 512, 4096 }, { 1024, 1024, 16384 }
    };
    static const tm_dtype dtypes[] = { TM_F32, TM_BF16 };
    int                   n = 0;
    for (int d = 0; d < 2; d++)
        for (int s = 0; s < 4; s++) {
            const int64_t   *shape = gpu ? gpu_shapes[s] : cpu_shapes[s];
            tm_node_product *p = &out[n++];
            *p = (tm_node_product){ .dtype = dtypes[d], .m = shape[0], .n = shape[1], .k = shape[2] };
            p->flops = 2. * (double)p->m * (double)p->n * (double)p->k;
            snprintf(p->name, sizeof p->name, "%s product %lldx%lldx%lld", tm_dtype_name(p->dtype), (long long)p->m,
                     (long long)p->n, (long long)p->k);
        }
    return n;
}

/* --- operands ----------------------------------------------------------------------------------------------------- */

static void draw(void *to, tm_dtype dtype, int64_t n, const char *name, uint64_t seed)
{
    enum { SOME = 256 };
    const uint64_t stream = tm_random_stream(name);
    for (int64_t i = 0; i < n; i += SOME) {
        float   values[SOME];
        int64_t count = n - i < SOME ? n - i : SOME;
        tm_random_normals(seed, stream, (uint64_t)i, count, values);
        for (int64_t k = 0; k < count; k++) tm_value_set(to, dtype, i + k, (double)values[k]);
    }
}

static tm_status place(tm_node_load *l, tm_error *err)
{
    tm_operands *o = &l->operands;
    tm_operands_clear(o, 0, 1); /* a product that is not computed has no results of the one before */
    TM_TRY(tm_device_alloc(l->device, o->bytes, &l->there, err));
    TM_TRY(tm_device_write(l->device, l->there, o->memory, o->bytes, err));
    return tm_device_wait(l->device, err);
}

static tm_status fill(tm_node_load *l, const tm_product *p, uint64_t seed, tm_error *err)
{
    tm_operands *o = &l->operands;
    tm_operands_plan(o, p, false);
    o->memory = aligned_alloc(4096, o->bytes);
    if (!o->memory) return tm_fail(err, TM_NOMEM, "no memory for %zu bytes of operands", o->bytes);
    draw(tm_operands_a(o, 0), p->dtype, p->m * p->k, "A", seed);
    draw(tm_operands_b(o, 0), p->dtype, p->k * p->n, "B", seed);
    return place(l, err);
}

static tm_status prepare(tm_node_load *l, const tm_product *p, tm_error *err)
{
    tm_call call = { .op = &tm_op_linear };
    for (int i = 0; i < TM_MAX_IN; i++) call.in[i].shape.rank = -1;
    for (int k = 0; k < TM_MAX_OUT; k++) call.out[k].shape.rank = -1;
    call.in[0] = (tm_view){ .dtype = p->dtype, .shape = tm_shape_2(p->m, p->k) };
    call.in[1] = (tm_view){ .dtype = p->dtype, .shape = tm_shape_2(p->n, p->k) };
    call.out[0] = (tm_view){ .dtype = p->c_dtype, .shape = tm_shape_2(p->m, p->n) };
    TM_TRY(tm_prepared_open(l->device, &call, &l->prepared, err));
    if (tm_device_describe(l->device)->kind != TM_DEVICE_GPU) return TM_OK;
    return tm_stopwatch_open(l->device, &l->watch, err);
}

tm_status tm_node_load_open(tm_device *device, const tm_node_product *product, uint64_t seed, tm_node_load **out,
                            tm_error *err)
{
    const tm_product p = { .m = product->m,
                           .n = product->n,
                           .k = product->k,
                           .trans_b = true,
                           .dtype = product->dtype,
                           .c_dtype = product->dtype };
    tm_node_load    *l = memset(tm_alloc(sizeof *l), 0, sizeof *l);
    l->device = device;
    tm_status st = prepare(l, &p, err);
    if (st == TM_OK) st = fill(l, &p, seed, err);
    if (st == TM_OK)
        *out = l;
    else
        tm_node_load_close(l);
    return st;
}

void tm_node_load_close(tm_node_load *l)
{
    if (!l) return;
    tm_prepared_close(l->prepared);
    tm_stopwatch_close(l->watch);
    tm_device_release(l->device, l->there, l->operands.bytes);
    free(l->operands.memory);
    free(l);
}

/* --- running ------------------------------------------------------------------------------------------------------ */

static tm_status fetch(tm_node_load *l, tm_error *err)
{
    const tm_operands *o = &l->operands;
    TM_TRY(tm_device_read(l->device, tm_operands_c(o, 0), tm_address_add(l->there, o->a_bytes + o->b_bytes), o->c_bytes,
                          err));
    return tm_device_wait(l->device, err);
}

/* Is the result that lies there right? The first thing that is wrong stays. */
static tm_status look(tm_node_load *l, tm_error *err)
{
    const tm_product *p = &l->operands.product;
    tm_product_check  check;
    TM_TRY(fetch(l, err));
    const uint64_t hash = tm_hash(tm_operands_c(&l->operands, 0), (size_t)(p->m * p->n) * tm_dtype_bytes(p->c_dtype));
    if (l->wrong[0] || (l->known && hash == l->first)) return TM_OK;
    tm_product_verify(&l->operands, 0, hash, 1, &check);
    if (!check.correct)
        snprintf(l->wrong, sizeof l->wrong, "element (%lld, %lld) of a product is %.9g; expected: %.9g, within %.2g",
                 (long long)check.row, (long long)check.column, check.found, check.wanted, check.bound);
    else if (l->known)
        snprintf(l->wrong, sizeof l->wrong, "the same product has other bits than the first time");
    if (!l->known) l->first = hash, l->known = true;
    return TM_OK;
}

static tm_status call_it(tm_node_load *l, int64_t calls, tm_error *err)
{
    const tm_operands *o = &l->operands;
    tm_address         in[TM_MAX_IN] = { { 0 } }, out[TM_MAX_OUT] = { { 0 } };
    in[0] = l->there;
    in[1] = tm_address_add(in[0], o->a_bytes);
    out[0] = tm_address_add(in[1], o->b_bytes);
    for (int64_t c = 0; c < calls; c++) TM_TRY(tm_prepared_run(l->prepared, in, out, err));
    return TM_OK;
}

tm_status tm_node_load_run(tm_node_load *l, int64_t calls, double *seconds, tm_error *err)
{
    *seconds = 0;
    if (l->watch) {
        TM_TRY(tm_stopwatch_start(l->watch, err));
        TM_TRY(call_it(l, calls, err));
        TM_TRY(tm_stopwatch_stop(l->watch, seconds, err));
        return look(l, err);
    }
    for (int64_t c = 0; c < calls; c++) {
        const double begin = tm_node_thread_seconds();
        TM_TRY(call_it(l, 1, err));
        TM_TRY(tm_device_wait(l->device, err));
        *seconds += tm_node_thread_seconds() - begin;
        TM_TRY(look(l, err));
    }
    return TM_OK;
}

tm_status tm_node_load_move(tm_node_load *l, tm_error *err)
{
    tm_device_release(l->device, l->there, l->operands.bytes);
    l->there = (tm_address){ 0 };
    return place(l, err);
}

tm_status tm_node_load_verify(tm_node_load *l, char wrong[TM_NODE_TEXT], tm_error *err)
{
    TM_TRY(look(l, err));
    memcpy(wrong, l->wrong, TM_NODE_TEXT);
    l->wrong[0] = '\0';
    return TM_OK;
}
