/* SPDX-License-Identifier: Apache-2.0 */
#include "train/trainer/checksum.h"

#include "base/arena.h"
#include "graph/value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double unit = 0x1p-24; /* of float32 */
static const double tiny = 1e-30;   /* below: kernels flush it */
static const double large = 1e30;   /* sums of magnitudes beyond may overflow float32 */

struct tm_checksum {
    tm_device *device;
    char      *bytes;  /* of a row */
    double    *values; /* of it */
    size_t     bytes_room, values_room;
    double    *sums, *sizes;          /* (rows, blocks) what the factors say; of magnitudes */
    double    *factor, *factor_sizes; /* (inner, blocks) of B */
    size_t     sums_room, sizes_room, factor_room, factor_sizes_room;
};

/* C (rows, columns) = A (rows, inner) B (inner, columns). */
typedef struct {
    int64_t rows, inner, columns, blocks;
    bool    first_is_transposed; /* rows of in[0] are columns of A */
    bool    second_is_transposed;
} product;

static product product_of(const tm_call *call)
{
    const int64_t *a = call->in[0].shape.n, *b = call->in[1].shape.n;
    product        p = { .rows = a[0], .inner = a[1] };
    if (call->op == &tm_op_linear) p.columns = b[0], p.second_is_transposed = true;
    if (call->op == &tm_op_linear_dgrad) p.columns = b[1];
    if (call->op == &tm_op_linear_wgrad)
        p = (product){ .rows = a[1], .inner = a[0], .columns = b[1], .first_is_transposed = true };
    p.blocks = (p.columns + TM_CHECKSUM_COLUMNS - 1) / TM_CHECKSUM_COLUMNS;
    return p;
}

static bool known(const tm_view *view)
{
    return view->shape.rank < 0 || view->dtype == TM_F32 || view->dtype == TM_BF16;
}

/* In the format in which it is multiplied. */
static tm_dtype multiplied(const tm_call *call, int k)
{
    return call->rounded >> k & 1 ? TM_BF16 : call->in[k].dtype;
}

bool tm_checksum_can(const tm_call *call)
{
    bool can = call->op == &tm_op_linear || call->op == &tm_op_linear_dgrad || call->op == &tm_op_linear_wgrad;
    for (int k = 0; k < 4 && can; k++) can = k >= call->op->n_in || known(&call->in[k]);
    return can && known(&call->out[0]) && multiplied(call, 0) == multiplied(call, 1);
}

tm_checksum *tm_checksum_create(tm_device *device)
{
    tm_checksum *checksum = tm_alloc(sizeof *checksum);
    *checksum = (tm_checksum){ .device = device };
    return checksum;
}

void tm_checksum_destroy(tm_checksum *c)
{
    if (!c) return;
    free(c->bytes), free(c->values), free(c->sums), free(c->sizes);
    free(c->factor), free(c->factor_sizes), free(c);
}

/* Zeros, n of them. */
static void make_room(double **values, size_t *room, size_t n)
{
    if (*room < n) {
        free(*values);
        *values = tm_alloc(n * sizeof **values);
        *room = n;
    }
    memset(*values, 0, n * sizeof **values);
}

/* Row r of a matrix, or a vector, as numbers into c->values. */
static tm_status read_row(tm_checksum *c, const tm_view *view, int64_t r, bool rounded, tm_error *err)
{
    const int64_t    n = view->shape.n[view->shape.rank - 1];
    const size_t     size = tm_dtype_bytes(view->dtype), bytes = (size_t)n * size;
    const tm_address from = { (uintptr_t)view->data + (size_t)(r * tm_view_ld(view)) * size };
    if (c->bytes_room < bytes) {
        free(c->bytes);
        c->bytes = tm_alloc(bytes);
        c->bytes_room = bytes;
    }
    if (c->values_room < (size_t)n) make_room(&c->values, &c->values_room, (size_t)n);
    TM_TRY(tm_device_read(c->device, c->bytes, from, bytes, err));
    for (int64_t i = 0; i < n; i++) {
        double value = tm_value_get(c->bytes, view->dtype, i);
        c->values[i] = rounded ? (double)tm_bf16_value(tm_bf16_round((float)value)) : value;
    }
    return TM_OK;
}

/* Sums of the columns of B, of all its rows. */
static tm_status sum_factor(tm_checksum *c, const tm_call *call, const product *p, tm_error *err)
{
    const size_t n = (size_t)(p->inner * p->blocks);
    make_room(&c->factor, &c->factor_room, n);
    make_room(&c->factor_sizes, &c->factor_sizes_room, n);
    const int64_t rows = p->second_is_transposed ? p->columns : p->inner;
    for (int64_t r = 0; r < rows; r++) {
        TM_TRY(read_row(c, &call->in[1], r, call->rounded >> 1 & 1, err));
        for (int64_t i = 0; i < (p->second_is_transposed ? p->inner : p->columns); i++) {
            int64_t k = p->second_is_transposed ? i : r, m = p->second_is_transposed ? r : i;
            int64_t at = k * p->blocks + m / TM_CHECKSUM_COLUMNS;
            c->factor[at] += c->values[i];
            c->factor_sizes[at] += fabs(c->values[i]);
        }
    }
    return TM_OK;
}

/* What the factors say of the sums of C. */
static tm_status multiply(tm_checksum *c, const tm_call *call, const product *p, tm_error *err)
{
    const size_t  n = (size_t)(p->rows * p->blocks);
    const int64_t rows = p->first_is_transposed ? p->inner : p->rows;
    make_room(&c->sums, &c->sums_room, n);
    make_room(&c->sizes, &c->sizes_room, n);
    for (int64_t r = 0; r < rows; r++) {
        TM_TRY(read_row(c, &call->in[0], r, call->rounded & 1, err));
        for (int64_t i = 0; i < (p->first_is_transposed ? p->rows : p->inner); i++) {
            const int64_t row = p->first_is_transposed ? i : r, k = p->first_is_transposed ? r : i;
            const double  a = c->values[i], size = fabs(a);
            double       *sums = c->sums + row * p->blocks, *sizes = c->sizes + row * p->blocks;
            const double *b = c->factor + k * p->blocks, *b_sizes = c->factor_sizes + k * p->blocks;
            for (int64_t block = 0; block < p->blocks; block++) {
                sums[block] += a * b[block];
                sizes[block] += size * b_sizes[block];
            }
        }
    }
    return TM_OK;
}

/* Adds the elements of row r of a view to the sums of a row. */
static tm_status add_row(tm_checksum *c, const tm_view *view, int64_t r, double *sums, double *sizes, tm_error *err)
{
    TM_TRY(read_row(c, view, r, false, err));
    for (int64_t i = 0; i < view->shape.n[view->shape.rank - 1]; i++) {
        sums[i / TM_CHECKSUM_COLUMNS] += c->values[i];
        sizes[i / TM_CHECKSUM_COLUMNS] += fabs(c->values[i]);
    }
    return TM_OK;
}

/* What is added to the product: a bias, a residual, what was there. */
static tm_status add_others(tm_checksum *c, const tm_call *call, const product *p, int64_t r, tm_error *err)
{
    double *sums = c->sums + r * p->blocks, *sizes = c->sizes + r * p->blocks;
    if (call->op == &tm_op_linear && call->in[2].shape.rank >= 0) TM_TRY(add_row(c, &call->in[2], 0, sums, sizes, err));
    if (call->op == &tm_op_linear && call->in[3].shape.rank >= 0) TM_TRY(add_row(c, &call->in[3], r, sums, sizes, err));
    return call->accumulate & 1 ? add_row(c, &call->out[0], r, sums, sizes, err) : TM_OK;
}

tm_status tm_checksum_before(tm_checksum *c, const tm_call *call, tm_error *err)
{
    const product p = product_of(call);
    TM_TRY(sum_factor(c, call, &p, err));
    TM_TRY(multiply(c, call, &p, err));
    for (int64_t r = 0; r < p.rows; r++) TM_TRY(add_others(c, call, &p, r, err));
    return TM_OK;
}

tm_status tm_checksum_after(tm_checksum *c, const tm_call *call, bool *wrong, tm_checksum_wrong *how, tm_error *err)
{
    const product p = product_of(call);
    const double  stored = call->out[0].dtype == TM_BF16 ? 0x1p-8 : unit; /* with what is added to it: twice a half */
    double       *found = tm_alloc(2 * (size_t)p.blocks * sizeof *found), *sizes = found + p.blocks;
    tm_status     st = TM_OK;
    *wrong = false;
    for (int64_t r = 0; r < p.rows && st == TM_OK && !*wrong; r++) {
        memset(found, 0, 2 * (size_t)p.blocks * sizeof *found);
        st = add_row(c, &call->out[0], r, found, sizes, err);
        for (int64_t b = 0; b < p.blocks && st == TM_OK && !*wrong; b++) {
            double wanted = c->sums[r * p.blocks + b], all = c->sizes[r * p.blocks + b];
            double bound = (double)(p.inner + 3) * unit * all * (1 + 1e-6) +
                           stored * (all < sizes[b] ? all : sizes[b]) + TM_CHECKSUM_COLUMNS * tiny;
            if (fabs(found[b] - wanted) <= bound || !(all < large)) continue;
            *wrong = true;
            *how = (tm_checksum_wrong){ r, b * TM_CHECKSUM_COLUMNS, found[b], wanted, bound };
        }
    }
    free(found);
    return st;
}
