/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/adafactor.c - Adafactor (source/adafactor.cu): means over rows and columns, the mean square of the update,
 * then the update. A tensor of less than two axes has all its variances: one kernel in the place of five. */
#include "device/gpu/gpu.h"

#include <float.h>
#include <math.h>
#include <stdint.h>

enum { THREADS = 256, CHUNK = 64, ALIGN = 256 };
/* Kernels by their numbers. */
enum { ROWS, COLUMNS, MEANS, FACTORS, SQUARES, MATRIX_STEP, MATRIX_MOVE };
enum { FLAT, FLAT_STEP, FLAT_MOVE };

/* What a call works on: `matrices` of rows x columns, or 1 x 1 x all elements; and its workspace. */
typedef struct {
    bool    flat;
    int64_t elements, matrices, rows, columns, chunks, parts;
    size_t  part_u, step, factor, sums, bytes; /* sums of p^2 stand in front */
} plan;

static size_t take(plan *p, size_t bytes)
{
    size_t at = p->bytes;
    p->bytes += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return at;
}

static plan plan_of(const tm_call *call)
{
    const tm_shape *shape = &call->in[0].shape;
    plan            p = { .flat = shape->rank < 2, .elements = tm_shape_elements(*shape), .matrices = 1, .rows = 1 };
    p.columns = p.flat ? p.elements : shape->n[shape->rank - 1];
    if (!p.flat) {
        p.rows = shape->n[shape->rank - 2];
        p.matrices = p.elements / (p.rows * p.columns);
    }
    p.chunks = (p.rows + CHUNK - 1) / CHUNK;
    p.parts = tm_gpu_parts_of(p.elements);
    (void)take(&p, (size_t)p.parts * sizeof(double));
    p.part_u = take(&p, (size_t)p.parts * sizeof(double));
    p.step = take(&p, sizeof(double));
    if (p.flat) return p;
    p.factor = take(&p, (size_t)(p.matrices * p.rows) * sizeof(float));
    p.sums = take(&p, (size_t)(p.matrices * p.chunks * p.columns) * sizeof(float));
    return p;
}

static size_t workspace(const tm_call *call)
{
    return plan_of(call).bytes;
}

/* in: p, g, r or v, [q], scalars, clip; out: p, r or v, [q] */
static const char *refuse(const tm_call *call)
{
    const tm_view *weights[] = { &call->in[0], &call->in[1], &call->out[0] };
    const tm_view *means[] = { &call->in[2], &call->in[3], &call->out[1], &call->out[2] };
    const char    *why = tm_gpu_refuse_update(weights, 3, &call->in[4], &call->in[5]);
    if (!why) why = tm_gpu_refuse_update(means, 4, &call->in[4], &call->in[5]);
    if (!why && call->in[2].dtype != TM_F32) why = "keeps means in float32";
    plan p = plan_of(call);
    if (!why && (p.matrices * p.rows > INT32_MAX || p.columns > INT32_MAX))
        why = "takes fewer than 2^31 rows and columns";
    return why;
}

static tm_status prepare(const void *device, const tm_call *call, void **state, tm_error *err)
{
    static const char *const        matrix[] = { "adafactor_rows",    "adafactor_columns",
                                                 "adafactor_means",   "adafactor_factors",
                                                 "adafactor_squares", "adafactor_step",
                                                 "adafactor_move",    NULL },
                             *const flat[] = { "adafactor_flat", "adafactor_step", "adafactor_move", NULL };
    tm_gpu_defines                  d = { .n = 0 };
    (void)err;
    tm_gpu_define_format(&d, "P", call->in[0].dtype);
    for (const char *const *k = plan_of(call).flat ? flat : matrix; *k; k++)
        tm_gpu_note(device, "adafactor", tm_gpu_text_adafactor, &d, *k, state);
    return TM_OK;
}

static char *at(const tm_call *call, size_t offset)
{
    return (char *)call->workspace + offset;
}

static double least_variance(const tm_call *call)
{
    double eps = ((const tm_adafactor_attr *)call->attr)->eps1;
    return fmax(eps * eps, (double)FLT_MIN); /* below, 0 / sqrt(0) would be no number */
}

static tm_status launch_flat(const tm_call *call, const plan *p, tm_error *err)
{
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[1].data);
    tm_gpu_pass(&a, call->in[2].data);
    tm_gpu_pass(&a, at(call, 0));
    tm_gpu_pass(&a, at(call, p->part_u));
    for (int k = 0; k < 2; k++) tm_gpu_pass(&a, call->in[k].data);
    for (int k = 4; k < 6; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_i64(&a, p->elements);
    tm_gpu_pass_float(&a, least_variance(call));
    return tm_gpu_start(call, FLAT, p->parts, 1, 1, THREADS, &a, err);
}

/* New means over rows; parts of the weights' squares. */
static tm_status launch_rows(const tm_call *call, const plan *p, tm_error *err)
{
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[1].data);
    tm_gpu_pass(&a, call->in[2].data);
    tm_gpu_pass(&a, at(call, 0));
    for (int k = 0; k < 2; k++) tm_gpu_pass(&a, call->in[k].data);
    for (int k = 4; k < 6; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_i64(&a, p->matrices * p->rows);
    tm_gpu_pass_int(&a, (int)p->columns);
    return tm_gpu_start(call, ROWS, p->parts, 1, 1, THREADS, &a, err);
}

/* New means over columns; factors of rows. */
static tm_status launch_means(const tm_call *call, const plan *p, tm_error *err)
{
    tm_gpu_arguments a = { .bytes = 0 }, b = { .bytes = 0 }, c = { .bytes = 0 };
    tm_gpu_pass(&a, at(call, p->sums));
    tm_gpu_pass(&a, call->in[1].data);
    tm_gpu_pass(&a, call->in[5].data);
    tm_gpu_pass_i64(&a, p->matrices);
    tm_gpu_pass_int(&a, (int)p->chunks);
    tm_gpu_pass_int(&a, (int)p->rows);
    tm_gpu_pass_int(&a, (int)p->columns);
    TM_TRY(tm_gpu_start_rows(call, COLUMNS, p->matrices * p->chunks, p->columns, &a, err));
    tm_gpu_pass(&b, call->out[2].data);
    tm_gpu_pass(&b, call->in[3].data);
    tm_gpu_pass(&b, at(call, p->sums));
    tm_gpu_pass(&b, call->in[4].data);
    tm_gpu_pass_i64(&b, p->matrices);
    tm_gpu_pass_int(&b, (int)p->chunks);
    tm_gpu_pass_int(&b, (int)p->rows);
    tm_gpu_pass_int(&b, (int)p->columns);
    TM_TRY(tm_gpu_start_rows(call, MEANS, p->matrices, p->columns, &b, err));
    tm_gpu_pass(&c, at(call, p->factor));
    tm_gpu_pass(&c, call->out[1].data);
    tm_gpu_pass_i64(&c, p->matrices);
    tm_gpu_pass_int(&c, (int)p->rows);
    tm_gpu_pass_double(&c, (double)p->rows);
    tm_gpu_pass_double(&c, ((const tm_adafactor_attr *)call->attr)->eps1);
    return tm_gpu_start(call, FACTORS, p->matrices < TM_GPU_MOST_PARTS ? p->matrices : TM_GPU_MOST_PARTS, 1, 1, THREADS,
                        &c, err);
}

static tm_status launch_squares(const tm_call *call, const plan *p, tm_error *err)
{
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, at(call, p->part_u));
    tm_gpu_pass(&a, call->in[1].data);
    tm_gpu_pass(&a, at(call, p->factor));
    tm_gpu_pass(&a, call->out[2].data);
    tm_gpu_pass(&a, call->in[5].data);
    tm_gpu_pass_i64(&a, p->matrices * p->rows);
    tm_gpu_pass_int(&a, (int)p->rows);
    tm_gpu_pass_int(&a, (int)p->columns);
    tm_gpu_pass_float(&a, least_variance(call));
    return tm_gpu_start(call, SQUARES, p->parts, 1, 1, THREADS, &a, err);
}

static tm_status launch_move(const tm_call *call, const plan *p, tm_error *err)
{
    const tm_adafactor_attr *attr = call->attr;
    tm_gpu_arguments         a = { .bytes = 0 }, b = { .bytes = 0 };
    tm_gpu_pass(&a, at(call, p->step));
    tm_gpu_pass(&a, at(call, 0));
    tm_gpu_pass(&a, at(call, p->part_u));
    tm_gpu_pass_int(&a, (int)p->parts);
    tm_gpu_pass(&a, call->in[4].data);
    tm_gpu_pass_double(&a, (double)p->elements);
    tm_gpu_pass_double(&a, attr->eps2);
    tm_gpu_pass_double(&a, attr->clip_threshold);
    TM_TRY(tm_gpu_start(call, p->flat ? (int)FLAT_STEP : (int)MATRIX_STEP, 1, 1, 1, THREADS, &a, err));
    tm_gpu_pass(&b, call->out[0].data);
    for (int k = 0; k < 2; k++) tm_gpu_pass(&b, call->in[k].data);
    tm_gpu_pass(&b, p->flat ? call->out[1].data : NULL);
    tm_gpu_pass(&b, p->flat ? NULL : at(call, p->factor));
    tm_gpu_pass(&b, p->flat ? NULL : call->out[2].data);
    tm_gpu_pass(&b, at(call, p->step));
    for (int k = 4; k < 6; k++) tm_gpu_pass(&b, call->in[k].data);
    tm_gpu_pass_i64(&b, p->matrices * p->rows);
    tm_gpu_pass_int(&b, (int)p->rows);
    tm_gpu_pass_int(&b, (int)p->columns);
    tm_gpu_pass_double(&b, attr->weight_decay);
    tm_gpu_pass_float(&b, least_variance(call));
    tm_gpu_pass_i64(&b, attr->rounding);
    return tm_gpu_start_rows(call, p->flat ? (int)FLAT_MOVE : (int)MATRIX_MOVE, p->matrices * p->rows, p->columns, &b,
                             err);
}

static tm_status launch(const tm_call *call, tm_error *err)
{
    plan p = plan_of(call);
    if (p.flat) {
        TM_TRY(launch_flat(call, &p, err));
        return launch_move(call, &p, err);
    }
    TM_TRY(launch_rows(call, &p, err));
    TM_TRY(launch_means(call, &p, err));
    TM_TRY(launch_squares(call, &p, err));
    return launch_move(call, &p, err);
}

const tm_kernel tm_gpu_adafactor[] = { { .op = TM_OP_adafactor,
                                         .name = "adafactor/gpu",
                                         .refuse = refuse,
                                         .workspace = workspace,
                                         .launch = launch,
                                         .prepare = prepare,
                                         .release = tm_gpu_forget },
                                       { .name = NULL } };
