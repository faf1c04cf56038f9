/* SPDX-License-Identifier: Apache-2.0 */
/* op/dropout.c - elements left out at random (Srivastava et al. 2014), the others scaled up.
 *
 *   y_rc = x_rc keep_rc / (1 - rate),  keep_rc = [h(seed, stream, (first + n_r) C + c) >= rate]
 *   dx = the same of dy
 *
 * h is uniform in [0, 1), a multiple of 2^-32 (tm_dropout_keeps), and `first` the number of the first row among all
 * rows of the run: so the op is pure, recomputed with the same bits, and the elements do not depend on micro-batches.
 * n_r = r; where ranks have parts of sequences it is the number that the row has among those of all of them
 * (tm_dropout_row), so elements do not depend on ranks either. Nor do they where ranks have some of the columns, or
 * runs of the rows, between matrices that they divide: c and C are then those of the whole row.
 *
 * x (N, C), first () -> y (N, C); x may be a view: columns of a matrix.
 */
#include "base/random.h"
#include "graph/gradient.h"
#include "op/attrs.h"
#include "op/describe.h"
#include "op/keeps.h"

#include <math.h>

static const char *dropout_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_dropout_attr *attr = attr_;
    if (!(attr->rate >= 0 && attr->rate < 1)) return "the rate must be at least 0 and below 1";
    if (in[0].rank != 2) return "x must have two axes (rows, columns)";
    if (in[1].rank != 0) return "the number of the first row must be a scalar";
    if (attr->parts > 0 && (attr->part < 0 || attr->part >= attr->parts)) return "there are fewer parts";
    if (attr->chunk > 0 && in[0].n[0] * (attr->parts > 0 ? attr->parts : 1) % (2 * attr->chunk) != 0)
        return "rows must be two runs of whole chunks";
    if (attr->width > 0 && (attr->column < 0 || attr->column + in[0].n[1] > attr->width))
        return "columns must be some of the whole row";
    return tm_shape_fit(&out[0], in[0], "y must have the shape of x");
}

static void dropout_reference(const tm_call *call)
{
    const tm_dropout_attr *attr = call->attr;
    int64_t                rows = call->in[0].shape.n[0], columns = call->in[0].shape.n[1];
    uint64_t               first = (uint64_t)llrint(fabs(*(const double *)call->in[1].data));
    for (int64_t n = 0; n < rows; n++) {
        const double *x = tm_view_row(&call->in[0], n);
        double       *y = tm_view_row(&call->out[0], n);
        uint64_t      row = first + tm_dropout_row(attr, rows, n);
        for (int64_t c = 0; c < columns; c++) {
            bool keeps = tm_dropout_keeps(attr, tm_dropout_element(attr, row, columns, c));
            y[c] = keeps ? x[c] / (1 - attr->rate) : 0;
        }
    }
}

static void dropout_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id dy = tm_gradient_of(gradient, node->out[0]);
    if (dy == TM_NONE || !tm_gradient_wanted(gradient, node->in[0])) return;
    tm_tensor_id in[TM_MAX_IN] = { dy, node->in[1] }, dx[TM_MAX_OUT] = { TM_NONE };
    tm_gradient_emit(gradient, TM_OP_dropout, node->attr, node->attr_bytes, in, dx, 0);
    tm_gradient_add(gradient, node->in[0], dx[0]);
}

static bool dropout_example(int k, tm_example *example)
{
    static const struct {
        int64_t         rows, columns;
        tm_dropout_attr attr;
    } cases[] = { { 1, 1, { .rate = 0, .seed = 1, .stream = 2 } },
                  { 3, 7, { .rate = 0.5, .seed = 1, .stream = 2 } },
                  { 9, 65, { .rate = 0.1, .seed = 3, .stream = 4 } },
                  { 130, 33, { .rate = 0.25, .seed = 5, .stream = 6 } },
                  { 12, 17, { .rate = 0.4, .seed = 7, .stream = 8, .chunk = 2, .seq = 8, .first = 2, .second = 4 } },
                  { 6, 33, { .rate = 0.3, .seed = 9, .stream = 1, .column = 21, .width = 77 } },
                  { 6,
                    18,
                    { .rate = 0.3,
                      .seed = 9,
                      .stream = 2,
                      .chunk = 2,
                      .seq = 8,
                      .first = 2,
                      .second = 4,
                      .part = 1,
                      .parts = 2 } } };
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, &cases[k].attr, sizeof cases[k].attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, cases[k].columns), 0, 1);
    tm_example_in(example, 1, TM_ROLE_SCALAR, (tm_shape){ .rank = 0 }, 7, 1e-3);
    return true;
}

const tm_op tm_op_dropout = {
    .name = "dropout",
    .formula = "y = x keep / (1 - rate), keep = [h(seed, stream, (first + row) C + column) >= rate]",
    .group = "elementwise",
    .n_in = 2,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = dropout_infer,
    .reference = dropout_reference,
    .gradient = dropout_gradient,
    .cost = tm_cost_moved,
    .vector = 2,
    .cheap = true,
    .strided_in = 1U << 0,
    .example = dropout_example,
    .in_name = { "x (N, C)", "first ()" },
    .out_name = { "y (N, C)" },
    .attributes = "rate, seed, stream; chunk, seq, first, second: rows of a part of sequences; part, parts, column, "
                  "width: of rows and columns that ranks divide",
};
