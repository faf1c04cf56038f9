/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/product_device.c - operands in the memory of a GPU: the host has one set, which fills the device's and is
 * checked. */
#include "apps/bench/product.h"

#include <stdlib.h>

enum { PAGE = 4096 };

static size_t set_bytes(const tm_operands *o)
{
    return o->a_bytes + o->b_bytes + o->c_bytes;
}

void tm_operands_plan_there(tm_operands *o, const tm_product *p, bool cold, tm_device *device)
{
    const int64_t unknown = (int64_t)256 << 20; /* as large as any that is known */
    int64_t       cache = tm_device_describe(device)->cache_bytes;
    tm_operands_plan(o, p, false);
    o->device = device;
    if (cache <= 0) cache = unknown;
    int64_t sets = 2 * cache / (int64_t)set_bytes(o) + 1;
    o->sets = !cold ? 1 : sets < 2 ? 2 : sets;
    o->bytes = (size_t)o->sets * set_bytes(o);
}

/* From the first set to all others, twice as many with each copy. */
static tm_status repeat(tm_operands *o, tm_error *err)
{
    size_t one = set_bytes(o);
    for (int64_t done = 1; done < o->sets; done *= 2) {
        int64_t n = o->sets - done < done ? o->sets - done : done;
        TM_TRY(tm_device_copy(o->device, tm_address_add(o->there, (size_t)done * one), o->there, (size_t)n * one, err));
    }
    return tm_device_wait(o->device, err);
}

tm_status tm_operands_fill_there(tm_operands *o, tm_bench *bench, tm_error *err)
{
    const tm_product *p = &o->product;
    o->memory = aligned_alloc(PAGE, set_bytes(o));
    if (!o->memory) return tm_fail(err, TM_NOMEM, "the host has no memory for %zu bytes", set_bytes(o));
    tm_bench_normal(bench, "A", tm_operands_a(o, 0), p->dtype, p->m * p->k);
    tm_bench_normal(bench, "B", tm_operands_b(o, 0), p->dtype, p->k * p->n);
    tm_operands_clear(o, 0, bench->threads);
    TM_TRY(tm_device_alloc(o->device, o->bytes, &o->there, err));
    TM_TRY(tm_device_write(o->device, o->there, o->memory, set_bytes(o), err));
    return repeat(o, err);
}

void tm_operands_release_there(tm_operands *o)
{
    tm_device_release(o->device, o->there, o->bytes);
    free(o->memory);
    o->there = (tm_address){ 0 };
    o->memory = NULL;
}

tm_address tm_operands_there(const tm_operands *o, int64_t turn)
{
    return tm_address_add(o->there, (size_t)(turn % o->sets) * set_bytes(o));
}

static tm_address c_there(const tm_operands *o)
{
    return tm_address_add(o->there, o->a_bytes + o->b_bytes);
}

tm_status tm_operands_send_c(const tm_operands *o, tm_error *err)
{
    TM_TRY(tm_device_write(o->device, c_there(o), tm_operands_c(o, 0), o->c_bytes, err));
    return tm_device_wait(o->device, err);
}

tm_status tm_operands_fetch_c(const tm_operands *o, tm_error *err)
{
    TM_TRY(tm_device_read(o->device, tm_operands_c(o, 0), c_there(o), o->c_bytes, err));
    return tm_device_wait(o->device, err);
}
