/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/engine_gpu.c - products on a GPU: by the kernel that a training plan takes (device/prepared.h), which is
 * the maker's library where it is there, or by our own kernels; timed by the GPU's events. */
#include "base/arena.h"
#include "base/version.h"
#include "apps/bench/engine.h"
#include "device/prepared.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum { AS_TRAINING, OWN, LIBRARY } choice;

typedef struct {
    choice        wanted;
    char          library[64]; /* "hipBLASLt" */
    tm_prepared  *product;
    tm_stopwatch *watch;
} state;

static tm_view matrix(tm_dtype dtype, int64_t rows, int64_t columns)
{
    return (tm_view){ .dtype = dtype, .shape = tm_shape_2(rows, columns) };
}

/* y = x w^T, dx = dy w, or dw = dy^T x: no other product is in a training step. */
static bool call_of(const tm_product *p, tm_call *call)
{
    *call = (tm_call){ .op = &tm_op_linear };
    for (int i = 0; i < TM_MAX_IN; i++) call->in[i].shape.rank = -1;
    for (int k = 0; k < TM_MAX_OUT; k++) call->out[k].shape.rank = -1;
    call->in[0] = p->trans_a ? matrix(p->dtype, p->k, p->m) : matrix(p->dtype, p->m, p->k);
    call->in[1] = p->trans_b ? matrix(p->dtype, p->n, p->k) : matrix(p->dtype, p->k, p->n);
    call->out[0] = matrix(p->c_dtype, p->m, p->n);
    if (!p->trans_b) call->op = p->trans_a ? &tm_op_linear_wgrad : &tm_op_linear_dgrad;
    return !(p->trans_a && p->trans_b);
}

/* "linear/library: too wide" of several such lines. */
static void first_line(const char *lines, char out[200])
{
    snprintf(out, 200, "%.*s", (int)strcspn(lines, "\n"), lines);
}

static tm_status prepare(tm_engine *engine, const tm_product *p, const char **why, tm_error *err)
{
    state     *s = engine->context;
    tm_device *device = engine->bench->device;
    tm_call    call;
    tm_error   own = { 0 };
    tm_prepared_close(s->product);
    s->product = NULL;
    *why = engine->why;
    engine->rate = 0; /* another shape has another */
    if (!call_of(p, &call)) {
        snprintf(engine->why, sizeof engine->why, "no product of a training step has both factors transposed");
        return TM_OK;
    }
    tm_device_own_kernels(device, s->wanted == OWN);
    tm_status st = tm_prepared_open(device, &call, &s->product, &own);
    tm_device_own_kernels(device, false);
    if (st == TM_UNSUPPORTED || st == TM_NOMEM) {
        snprintf(engine->why, sizeof engine->why, "%.199s", own.text);
        return TM_OK;
    }
    if (st != TM_OK) return tm_fail(err, st, "%s", own.text);
    bool library = tm_prepared_by_library(s->product);
    engine->name = library || s->wanted == LIBRARY ? s->library : "trainmark";
    if (s->wanted == LIBRARY && !library) {
        first_line(tm_prepared_refusals(s->product), engine->why);
        return TM_OK;
    }
    snprintf(engine->kernel, sizeof engine->kernel, "%s", tm_prepared_kernel(s->product));
    *why = NULL;
    return TM_OK;
}

static tm_status series(tm_engine *engine, const tm_operands *o, int64_t turn, int64_t calls, double *seconds,
                        tm_error *err)
{
    const state *s = engine->context;
    tm_address   in[TM_MAX_IN] = { { 0 } }, out[TM_MAX_OUT] = { { 0 } };
    TM_TRY(tm_stopwatch_start(s->watch, err));
    for (int64_t c = turn; c < turn + calls; c++) {
        in[0] = tm_operands_there(o, c);
        in[1] = tm_address_add(in[0], o->a_bytes);
        out[0] = tm_address_add(in[1], o->b_bytes);
        TM_TRY(tm_prepared_run(s->product, in, out, err));
    }
    return tm_stopwatch_stop(s->watch, seconds, err);
}

static void close_engine(tm_engine *engine)
{
    state *s = engine->context;
    tm_prepared_close(s->product);
    tm_stopwatch_close(s->watch);
    free(s);
}

static const char *refuse_nothing(const tm_engine *engine, const tm_product *product)
{
    (void)engine;
    (void)product;
    return NULL;
}

static tm_status add(tm_bench *bench, choice wanted, tm_engine_list *list, tm_error *err)
{
    const char *products = tm_device_describe(bench->device)->products;
    tm_engine  *engine = &list->items[list->count++];
    state      *s = memset(tm_alloc(sizeof *s), 0, sizeof *s);
    s->wanted = wanted;
    if (products) snprintf(s->library, sizeof s->library, "%.*s", (int)strcspn(products, " "), products);
    *engine = (tm_engine){ .name = wanted == LIBRARY ? s->library : "trainmark",
                           .bench = bench,
                           .context = s,
                           .refuse = refuse_nothing,
                           .prepare = prepare,
                           .series = series,
                           .close = close_engine };
    return tm_stopwatch_open(bench->device, &s->watch, err);
}

tm_status tm_engines_gpu(tm_bench *bench, bool libraries, const char *only, tm_engine_list *list, tm_error *err)
{
    const tm_device_info *d = tm_device_describe(bench->device);
    if (only) {
        char name[64] = "";
        if (d->products) snprintf(name, sizeof name, "%.*s", (int)strcspn(d->products, " "), d->products);
        if (!tm_names_equal(name, only))
            return tm_fail(err, TM_UNSUPPORTED, "--library %.40s: device %s has %s", only, d->name,
                           *name ? name : "no library of products here; `trainmark devices` says what is missing");
        return add(bench, LIBRARY, list, err);
    }
    TM_TRY(add(bench, libraries ? OWN : AS_TRAINING, list, err));
    if (!libraries) return TM_OK;
    if (d->products) return add(bench, LIBRARY, list, err);
    tm_bench_note(bench, "no library of products: `trainmark devices` says what is missing");
    return TM_OK;
}
