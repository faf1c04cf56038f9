/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/muon.c - Muon, the formula of op/muon.c: of each matrix the momentum, its iterations as products
 * (product.c), the update (source/muon.cu). A matrix that is higher than wide stays as it is: where op/muon.c
 * transposes it, the products go across its rows.
 *
 *   A = X X^T (or X^T X),  S = A A,  B = a I + b A + c S,  X = B X (or X B)
 *
 * The B X is made in the place of the X before, in turns. */
#include "device/gpu/own.h"
#include "op/muon.h"

#include <math.h>
#include <stdint.h>

enum { THREADS = 256, ALIGN = 256 };
/* Kernels by their numbers; behind them the products of each kind of matrix. */
enum { TAKE, NORM, SCALE, BLEND, MOVE, PRODUCTS };
enum { GRAM, SQUARE, APPLY, KINDS };

/* A matrix, and where in the workspace there is what. */
typedef struct {
    int64_t rows, columns, r, elements, parts;
    bool    high;
    size_t  part, scale, x[2], gram, square, library, bytes;
} matrix;

static size_t take(matrix *m, size_t bytes)
{
    size_t at = m->bytes;
    m->bytes += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return at;
}

static int64_t columns_of(const tm_call *call)
{
    const tm_shape *shape = &call->in[0].shape;
    return shape->n[shape->rank - 1];
}

static char *at(const tm_call *call, size_t offset)
{
    return (char *)call->workspace + offset;
}

/* x: which of both holds X. */
static tm_gpu_product_of product_of(const tm_call *call, const matrix *m, int kind, int x, tm_gpu_how how)
{
    bool              tall = m->high, gram = kind == GRAM, apply = kind == APPLY;
    tm_gpu_product_of p = { .c = TM_F32, .a = TM_F32, .b = TM_F32, .how = how };
    p.rows = apply ? m->rows : m->r;
    p.columns = apply ? m->columns : m->r;
    p.depth = gram ? tall ? m->rows : m->columns : m->r;
    p.a_across = gram && tall;
    p.b_across = (gram && tall) || (apply && !tall);
    p.ld_a = gram || (apply && tall) ? m->columns : m->r;
    p.ld_b = gram || (apply && !tall) ? m->columns : m->r;
    p.ld_c = apply ? m->columns : m->r;
    if (!call->workspace) return p;
    const char *from = at(call, m->x[x]), *gram_at = at(call, m->gram), *square_at = at(call, m->square);
    p.from_a = gram ? from : kind == SQUARE ? gram_at : tall ? from : square_at;
    p.from_b = gram ? from : kind == SQUARE ? gram_at : tall ? square_at : from;
    p.to = at(call, gram ? m->gram : kind == SQUARE ? m->square : m->x[!x]);
    p.workspace = at(call, m->library);
    return p;
}

static matrix matrix_of(const tm_call *call, int64_t rows, tm_gpu_how how)
{
    matrix m = { .rows = rows, .columns = columns_of(call) };
    size_t library = 0;
    m.high = m.rows > m.columns;
    m.r = m.high ? m.columns : m.rows;
    m.elements = m.rows * m.columns;
    m.parts = tm_gpu_parts_of(m.elements);
    m.part = take(&m, (size_t)m.parts * sizeof(double));
    m.scale = take(&m, sizeof(float));
    for (int k = 0; k < 2; k++) m.x[k] = take(&m, (size_t)m.elements * sizeof(float));
    m.gram = take(&m, (size_t)(m.r * m.r) * sizeof(float));
    m.square = take(&m, (size_t)(m.r * m.r) * sizeof(float));
    for (int kind = 0; how == TM_GPU_BY_LIBRARY && kind < KINDS; kind++) {
        tm_gpu_product_of p = product_of(call, &m, kind, 0, how);
        size_t            bytes = tm_gpu_library_bytes(call->device, &p);
        if (bytes > library) library = bytes;
    }
    m.library = take(&m, library);
    return m;
}

/* --- what it takes --------------------------------------------------------------------------------------------------
 */

/* in: p, g, b, scalars, clip; out: p, b */
static const char *refuse_tiles(const tm_call *call)
{
    enum { TILE = 64, MOST_ROWS_OF_TILES = 65535 };
    const tm_muon_attr *attr = call->attr;
    const tm_view      *weights[] = { &call->in[0], &call->in[1], &call->out[0] };
    const tm_view      *moments[] = { &call->in[2], &call->out[1] };
    const char         *why = tm_gpu_refuse_update(weights, 3, &call->in[3], &call->in[4]);
    if (!why) why = tm_gpu_refuse_update(moments, 2, &call->in[3], &call->in[4]);
    for (int k = 0; k < tm_muon_parts(attr) && !why; k++)
        if (attr->rows[k] > (int64_t)TILE * MOST_ROWS_OF_TILES || columns_of(call) > INT32_MAX)
            why = "more rows than a grid takes";
    return why;
}

static const char *refuse_library(const tm_call *call)
{
    const tm_muon_attr *attr = call->attr;
    const char         *why = refuse_tiles(call);
    for (int k = 0; k < tm_muon_parts(attr) && !why; k++) {
        matrix m = matrix_of(call, attr->rows[k], TM_GPU_BY_TILES);
        for (int kind = 0; kind < KINDS && !why; kind++) {
            tm_gpu_product_of p = product_of(call, &m, kind, 0, TM_GPU_BY_LIBRARY);
            why = tm_gpu_by_library(call->device, &p);
        }
    }
    return why;
}

static size_t workspace_of(const tm_call *call, tm_gpu_how how)
{
    const tm_muon_attr *attr = call->attr;
    size_t              most = 0;
    for (int k = 0; k < tm_muon_parts(attr); k++) {
        size_t bytes = matrix_of(call, attr->rows[k], how).bytes;
        if (bytes > most) most = bytes;
    }
    return most;
}

static tm_status prepare(const void *device, const tm_call *call, tm_gpu_how how, void **state, tm_error *err)
{
    static const char *const kernels[] = { "muon_take", "muon_norm", "muon_scale", "muon_blend", "muon_move" };
    const tm_muon_attr      *attr = call->attr;
    tm_gpu_defines           d = { .n = 0 };
    tm_gpu_define_format(&d, "P", call->in[0].dtype);
    tm_gpu_define_format(&d, "M", call->in[2].dtype);
    tm_gpu_define_format(&d, "X", TM_F32);
    for (int k = 0; k < PRODUCTS; k++) tm_gpu_note(device, "muon", tm_gpu_text_muon, &d, kernels[k], state);
    for (int k = 0; k < tm_muon_parts(attr); k++) {
        matrix m = matrix_of(call, attr->rows[k], how);
        for (int kind = 0; kind < KINDS; kind++) {
            tm_gpu_product_of p = product_of(call, &m, kind, 0, how);
            TM_TRY(tm_gpu_note_product(device, &p, state, err));
        }
    }
    return TM_OK;
}

/* --- a matrix: its elements begin at `first` of the tensor ----------------------------------------------------------
 */

/* X: the direction, of norm 1. */
static tm_status begin(const tm_call *call, const matrix *m, int64_t first, tm_error *err)
{
    const tm_muon_attr *attr = call->attr;
    tm_gpu_arguments    a = { .bytes = 0 }, b = { .bytes = 0 }, c = { .bytes = 0 };
    tm_gpu_pass(&a, at(call, m->x[0]));
    tm_gpu_pass(&a, at(call, m->part));
    tm_gpu_pass(&a, call->out[1].data);
    tm_gpu_pass(&a, call->in[2].data);
    tm_gpu_pass(&a, call->in[1].data);
    for (int k = 3; k < 5; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_i64(&a, m->elements);
    tm_gpu_pass_i64(&a, first);
    tm_gpu_pass_double(&a, attr->momentum);
    tm_gpu_pass_int(&a, attr->nesterov != 0);
    tm_gpu_pass_i64(&a, attr->rounding);
    TM_TRY(tm_gpu_start(call, TAKE, m->parts, 1, 1, THREADS, &a, err));
    tm_gpu_pass(&b, at(call, m->scale));
    tm_gpu_pass(&b, at(call, m->part));
    tm_gpu_pass_int(&b, (int)m->parts);
    tm_gpu_pass_double(&b, attr->eps);
    TM_TRY(tm_gpu_start(call, NORM, 1, 1, 1, THREADS, &b, err));
    tm_gpu_pass(&c, at(call, m->x[0]));
    tm_gpu_pass(&c, at(call, m->scale));
    tm_gpu_pass_i64(&c, m->elements);
    return tm_gpu_start_each(call, SCALE, m->elements, &c, err);
}

/* part: of those that the products were noted for. The last X lies in x[TM_MUON_STEPS % 2]. */
static tm_status iterate(const tm_call *call, const matrix *m, int part, tm_gpu_how how, tm_error *err)
{
    const tm_muon_attr *attr = call->attr;
    for (int i = 0; i < TM_MUON_STEPS; i++) {
        const double    *abc = tm_muon_triple((tm_muon_coefficients)attr->coefficients, i);
        tm_gpu_arguments a = { .bytes = 0 };
        for (int kind = 0; kind < KINDS; kind++) {
            tm_gpu_product_of p = product_of(call, m, kind, i % 2, how);
            if (kind == APPLY) {
                tm_gpu_pass(&a, at(call, m->square));
                tm_gpu_pass(&a, at(call, m->gram));
                tm_gpu_pass_int(&a, (int)m->r);
                for (int k = 0; k < 3; k++) tm_gpu_pass_float(&a, abc[k]);
                TM_TRY(tm_gpu_start_rows(call, BLEND, m->r, m->r, &a, err));
            }
            TM_TRY(tm_gpu_start_product(call, PRODUCTS + KINDS * part + kind, &p, err));
        }
    }
    return TM_OK;
}

static tm_status move(const tm_call *call, const matrix *m, int64_t first, tm_error *err)
{
    const tm_muon_attr *attr = call->attr;
    tm_gpu_arguments    a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    tm_gpu_pass(&a, call->in[0].data);
    tm_gpu_pass(&a, at(call, m->x[TM_MUON_STEPS % 2]));
    tm_gpu_pass(&a, call->in[3].data);
    tm_gpu_pass_i64(&a, m->elements);
    tm_gpu_pass_i64(&a, first);
    tm_gpu_pass_double(&a, attr->weight_decay);
    tm_gpu_pass_double(&a, tm_muon_factor((tm_muon_scale)attr->scale, m->rows, m->columns));
    tm_gpu_pass_i64(&a, attr->rounding);
    return tm_gpu_start_each(call, MOVE, m->elements, &a, err);
}

static tm_status launch(const tm_call *call, tm_gpu_how how, tm_error *err)
{
    const tm_muon_attr *attr = call->attr;
    int64_t             all = tm_muon_all_rows(call->in[0].shape), columns = columns_of(call);
    for (int64_t row = 0, k = 0; row < all; row += tm_muon_rows(attr, k), k++) {
        matrix m = matrix_of(call, tm_muon_rows(attr, k), how);
        TM_TRY(begin(call, &m, row * columns, err));
        TM_TRY(iterate(call, &m, (int)(k % tm_muon_parts(attr)), how, err));
        TM_TRY(move(call, &m, row * columns, err));
    }
    return TM_OK;
}

#define WAY(way, how)                                                                                                  \
    static size_t workspace_##way(const tm_call *call)                                                                 \
    {                                                                                                                  \
        return workspace_of(call, how);                                                                                \
    }                                                                                                                  \
                                                                                                                       \
    static tm_status prepare_##way(const void *device, const tm_call *call, void **state, tm_error *err)               \
    {                                                                                                                  \
        return prepare(device, call, how, state, err);                                                                 \
    }                                                                                                                  \
                                                                                                                       \
    static tm_status launch_##way(const tm_call *call, tm_error *err)                                                  \
    {                                                                                                                  \
        return launch(call, how, err);                                                                                 \
    }
WAY(library, TM_GPU_BY_LIBRARY)
WAY(tiles, TM_GPU_BY_TILES)

#define ROW(way, ...)                                                                                                  \
    {                                                                                                                  \
        .op = TM_OP_muon, .name = "muon/" #way, .refuse = refuse_##way, .workspace = workspace_##way,                  \
        .launch = launch_##way, .prepare = prepare_##way, .release = tm_gpu_forget, __VA_ARGS__                        \
    }
const tm_kernel tm_gpu_muon[] = { ROW(library, .library = true), ROW(tiles, ), { .name = NULL } };
