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

typedef enum { AS_TRAINING, OWN, LIBRARY, OTHER } choice;

typedef struct {
    choice        wanted;
    char          library[64]; /* "hipBLASLt" */
    tm_prepared  *product;
    tm_stopwatch *watch;
    tm_address    one; /* float32, what codes are multiplied with */
} state;

enum { ONE_BYTES = 256 };

static tm_view matrix(tm_dtype dtype, int64_t rows, int64_t columns)
{
    return (tm_view){ .dtype = dtype, .shape = tm_shape_2(rows, columns) };
}

static bool is_code(const tm_product *p)
{
    return tm_dtype_bytes(p->dtype) == 1;
}

/* Why no training step has such a product; NULL: it is y = x w^T, dx = dy w or dw = dy^T x. */
static const char *call_of(const tm_product *p, tm_call *call)
{
    *call = (tm_call){ .op = &tm_op_linear };
    for (int i = 0; i < TM_MAX_IN; i++) call->in[i].shape.rank = -1;
    for (int k = 0; k < TM_MAX_OUT; k++) call->out[k].shape.rank = -1;
    call->in[0] = p->trans_a ? matrix(p->dtype, p->k, p->m) : matrix(p->dtype, p->m, p->k);
    call->in[1] = p->trans_b ? matrix(p->dtype, p->n, p->k) : matrix(p->dtype, p->k, p->n);
    call->out[0] = matrix(p->c_dtype, p->m, p->n);
    if (!p->trans_b) call->op = p->trans_a ? &tm_op_linear_wgrad : &tm_op_linear_dgrad;
    if (p->trans_a && p->trans_b) return "no product of a training step has both factors transposed";
    if (!is_code(p)) return NULL;
    call->op = &tm_op_scaled_mm;
    for (int side = 0; side < 2; side++) call->in[2 + side] = (tm_view){ .dtype = TM_F32, .shape = tm_shape_1(1) };
    return p->trans_b && !p->trans_a ? NULL : "codes are summed along the rows of both factors: nt";
}

/* "linear/library: too wide" of several such lines. */
static void first_line(const char *lines, char out[200])
{
    snprintf(out, 200, "%.*s", (int)strcspn(lines, "\n"), lines);
}

static tm_status open_call(tm_device *device, choice wanted, const tm_call *call, tm_prepared **out, tm_error *err)
{
    tm_device_own_kernels(device, wanted == OWN);
    tm_device_other_library(device, wanted == OTHER);
    tm_status st = tm_prepared_open(device, call, out, err);
    tm_device_own_kernels(device, false);
    tm_device_other_library(device, false);
    return st;
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
    *why = s->wanted == OTHER && is_code(p) ? "it multiplies no codes of 8 bits"
           : s->wanted == OWN && p->tf32    ? "our kernels round nothing to TF32"
                                            : call_of(p, &call);
    if (*why) return TM_OK;
    tm_device_tf32(device, p->tf32); /* of what is queued, too */
    *why = engine->why;
    tm_status st = open_call(device, s->wanted, &call, &s->product, &own);
    if (st == TM_UNSUPPORTED || st == TM_NOMEM) {
        snprintf(engine->why, sizeof engine->why, "%.199s", own.text);
        return TM_OK;
    }
    if (st != TM_OK) return tm_fail(err, st, "%s", own.text);
    bool library = tm_prepared_by_library(s->product);
    engine->name = library || s->wanted >= LIBRARY ? s->library : "trainmark";
    if (s->wanted >= LIBRARY && !library) {
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
        in[2] = in[3] = s->one; /* of codes */
        TM_TRY(tm_prepared_run(s->product, in, out, err));
    }
    return tm_stopwatch_stop(s->watch, seconds, err);
}

static void close_engine(tm_engine *engine)
{
    state *s = engine->context;
    tm_prepared_close(s->product);
    tm_stopwatch_close(s->watch);
    tm_device_release(engine->bench->device, s->one, ONE_BYTES);
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
    static const float    one = 1;
    const tm_device_info *d = tm_device_describe(bench->device);
    const char           *products = wanted == OTHER ? d->other_products : d->products;
    tm_engine            *engine = &list->items[list->count++];
    state                *s = memset(tm_alloc(sizeof *s), 0, sizeof *s);
    s->wanted = wanted;
    if (products) snprintf(s->library, sizeof s->library, "%.*s", (int)strcspn(products, " "), products);
    *engine = (tm_engine){ .name = wanted >= LIBRARY ? s->library : "trainmark",
                           .bench = bench,
                           .context = s,
                           .refuse = refuse_nothing,
                           .prepare = prepare,
                           .series = series,
                           .close = close_engine };
    TM_TRY(tm_device_alloc(bench->device, ONE_BYTES, &s->one, err));
    TM_TRY(tm_device_write(bench->device, s->one, &one, sizeof one, err));
    return tm_stopwatch_open(bench->device, &s->watch, err);
}

/* Does the maker's other library multiply here? The smallest product asks for it; else `why` has what is missing. */
static tm_status ask_other(tm_bench *bench, tm_error *why)
{
    const tm_product p = { .m = 16, .n = 16, .k = 16, .trans_b = true, .dtype = TM_F32, .c_dtype = TM_F32 };
    const char       mark[] = "/gemm_ex: ", *reason;
    tm_call          call;
    tm_prepared     *product = NULL;
    tm_error         own = { 0 };
    if (call_of(&p, &call)) return tm_fail(why, TM_INTERNAL, "no product to ask for");
    tm_status st = open_call(bench->device, OTHER, &call, &product, &own);
    tm_prepared_close(product);
    if (st == TM_OK) return TM_OK;
    reason = strstr(own.text, mark);
    return tm_fail(why, st, "%s", reason ? reason + strlen(mark) : own.text);
}

static bool is_library(const char *words, const char *name)
{
    char first[64] = "";
    if (words) snprintf(first, sizeof first, "%.*s", (int)strcspn(words, " "), words);
    return tm_names_equal(first, name);
}

static tm_status add_named(tm_bench *bench, const char *only, tm_engine_list *list, tm_error *err)
{
    const tm_device_info *d = tm_device_describe(bench->device);
    const char           *other = strcmp(d->name, "hip") == 0 ? "rocBLAS" : "cuBLAS";
    tm_error              why = { 0 };
    if (is_library(d->products, only)) return add(bench, LIBRARY, list, err);
    if (tm_names_equal(other, only)) {
        tm_status st = ask_other(bench, &why);
        return st == TM_OK ? add(bench, OTHER, list, err) : tm_fail(err, st, "--library %.40s: %s", only, why.text);
    }
    return tm_fail(err, TM_UNSUPPORTED, "--library %.40s: device %s has %.*s", only, d->name,
                   d->products ? (int)strcspn(d->products, " ") : 99,
                   d->products ? d->products : "no library of products here; `trainmark devices` says what is missing");
}

tm_status tm_engines_gpu(tm_bench *bench, bool libraries, const char *only, tm_engine_list *list, tm_error *err)
{
    tm_error why = { 0 };
    if (only) return add_named(bench, only, list, err);
    TM_TRY(add(bench, libraries ? OWN : AS_TRAINING, list, err));
    if (!libraries) return TM_OK;
    if (tm_device_describe(bench->device)->products)
        TM_TRY(add(bench, LIBRARY, list, err));
    else
        tm_bench_note(bench, "no library of products: `trainmark devices` says what is missing");
    if (ask_other(bench, &why) != TM_OK) {
        tm_bench_note(bench, "not measured: %s", why.text);
        return TM_OK;
    }
    tm_bench_note(bench, "nothing trains by %s", tm_device_describe(bench->device)->other_products);
    return add(bench, OTHER, list, err);
}
