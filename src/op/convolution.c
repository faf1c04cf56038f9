/* SPDX-License-Identifier: Apache-2.0 */
/* op/convolution.c - the cross-correlation of pictures with square kernels (LeCun et al. 1989), forward only.
 *
 *   y[b, i, j, m] = bias_m + sum over u, v < k and c of x'[b, s i + u - p, s j + v - p, c] w[m, u, v, c]
 *
 * x' is x, with `upsample` 2 nearest-neighbour interpolated to twice its lines and columns; 0 outside of the picture.
 * and residual[b, i, j, m] is added to it.
 * x (B H W, C), w (M, k k C), [bias (M)], [residual (B Ho Wo, M)] -> y (B Ho Wo, M)
 */
#include "op/attrs.h"
#include "op/describe.h"

static const char *convolution_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_convolution_attr *attr = attr_;
    if (attr->samples < 1 || attr->height < 1 || attr->width < 1) return "samples, height and width must be positive";
    if (attr->kernel < 1 || attr->stride < 1) return "the kernel and the stride must be positive";
    if (attr->pad_before < 0 || attr->pad_after < 0) return "the padding must not be negative";
    if (attr->upsample != 1 && attr->upsample != 2) return "upsample must be 1 or 2";
    if (in[0].rank != 2) return "x must have two axes (positions, channels)";
    if (in[0].n[0] != attr->samples * attr->height * attr->width)
        return "x must have one row for each position of the pictures";
    if (in[1].rank != 2) return "the weight must have two axes (outputs, places of the kernel times channels)";
    if (in[1].n[1] != attr->kernel * attr->kernel * in[0].n[1])
        return "the weight must have a column for each place of the kernel and channel of x";
    if (tm_shape_present(in[2]) && !tm_shape_is_vector(in[2], in[1].n[0]))
        return "the bias must have one value per output";
    int64_t lines = tm_convolution_extent(attr, attr->height), columns = tm_convolution_extent(attr, attr->width);
    if (lines < 1 || columns < 1) return "the kernel must not be larger than the padded picture";
    tm_shape y = tm_shape_2(attr->samples * lines * columns, in[1].n[0]);
    if (tm_shape_present(in[3]) && !tm_shape_equal(in[3], y)) return "the residual must have the shape of y";
    return tm_shape_fit(&out[0], y, "y must have a row for each position of the kernel and the outputs of the weight");
}

/* The line (or column) of x that a place of the kernel meets, of `n`; -1: it lies outside. */
static int64_t met(const tm_convolution_attr *attr, int64_t position, int64_t place, int64_t n)
{
    int64_t at = position * attr->stride + place - attr->pad_before;
    return at < 0 || at >= n * attr->upsample ? -1 : at / attr->upsample;
}

static void convolution_reference(const tm_call *call)
{
    const tm_convolution_attr *attr = call->attr;
    int64_t                    channels = call->in[0].shape.n[1], outputs = call->in[1].shape.n[0], k = attr->kernel;
    int64_t       lines = tm_convolution_extent(attr, attr->height), columns = tm_convolution_extent(attr, attr->width);
    const double *x = call->in[0].data, *w = call->in[1].data, *bias = call->in[2].data, *residual = call->in[3].data;
    double       *y = call->out[0].data;
    for (int64_t r = 0; r < call->out[0].shape.n[0]; r++)
        for (int64_t m = 0; m < outputs; m++) {
            int64_t b = r / (lines * columns), i = r / columns % lines, j = r % columns;
            double  sum = bias ? bias[m] : 0;
            for (int64_t place = 0; place < k * k; place++) {
                int64_t line = met(attr, i, place / k, attr->height), column = met(attr, j, place % k, attr->width);
                if (line < 0 || column < 0) continue;
                const double *from = x + ((b * attr->height + line) * attr->width + column) * channels;
                for (int64_t c = 0; c < channels; c++) sum += from[c] * w[(m * k * k + place) * channels + c];
            }
            y[r * outputs + m] = sum + (residual ? residual[r * outputs + m] : 0);
        }
}

/* Places outside of the picture count: they are multiplied, too. */
static tm_cost convolution_cost(const tm_call *call)
{
    double  y = (double)tm_shape_elements(call->out[0].shape);
    tm_cost cost = tm_call_cost(call, 2 * y * (double)call->in[1].shape.n[1]);
    cost.vector = (tm_view_present(&call->in[2]) + tm_view_present(&call->in[3])) * y;
    return cost;
}

static tm_rounding convolution_rounding(const tm_call *call, int k)
{
    (void)k;
    return tm_rounding_sum(call->in[1].shape.n[1] + 2);
}

/* 65 channels cross the 512-element blocks of the products; 1320 positions are more than one strip of the kernels. */
static const struct {
    tm_convolution_attr attr; /* samples, height, width, kernel, stride, pad_before, pad_after, upsample */
    int64_t             c, m;
    bool                bias, residual;
} cases[] = {
    { { 1, 1, 1, 1, 1, 0, 0, 1 }, 1, 1, false, false },   { { 2, 3, 5, 3, 1, 1, 1, 1 }, 7, 9, true, true },
    { { 1, 8, 6, 3, 2, 0, 1, 1 }, 5, 3, true, false },    { { 2, 4, 3, 3, 1, 1, 1, 2 }, 6, 8, true, false },
    { { 3, 5, 7, 1, 1, 0, 0, 1 }, 33, 18, true, true },   { { 1, 20, 17, 3, 1, 1, 1, 1 }, 8, 40, false, false },
    { { 1, 9, 11, 3, 1, 1, 1, 1 }, 65, 33, true, false }, { { 2, 7, 9, 3, 1, 1, 1, 1 }, 3, 16, true, true },
    { { 1, 6, 5, 2, 2, 0, 0, 1 }, 4, 7, false, false },   { { 1, 5, 4, 5, 3, 2, 2, 2 }, 3, 2, true, false },
    { { 1, 40, 33, 3, 1, 1, 1, 1 }, 16, 24, true, true }, { { 1, 5, 6, 1, 2, 0, 0, 1 }, 4, 5, true, false },
    { { 2, 3, 3, 1, 1, 0, 0, 2 }, 4, 5, false, false },   { { 1, 1, 2, 3, 1, 2, 3, 1 }, 2, 17, true, true },
    { { 2, 20, 18, 3, 1, 1, 1, 2 }, 9, 6, true, false }
};

static bool convolution_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    const tm_convolution_attr *attr = &cases[k].attr;
    tm_example_begin(example, attr, sizeof *attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(attr->samples * attr->height * attr->width, cases[k].c), 0,
                  1);
    tm_example_in(example, 1, TM_ROLE_PARAMETER, tm_shape_2(cases[k].m, attr->kernel * attr->kernel * cases[k].c), 0,
                  0.5);
    if (cases[k].bias) tm_example_in(example, 2, TM_ROLE_PARAMETER, tm_shape_1(cases[k].m), 0, 1);
    int64_t rows = attr->samples * tm_convolution_extent(attr, attr->height) * tm_convolution_extent(attr, attr->width);
    if (cases[k].residual) tm_example_in(example, 3, TM_ROLE_ACTIVATION, tm_shape_2(rows, cases[k].m), 0, 1);
    return true;
}

const tm_op tm_op_convolution = {
    .name = "convolution",
    .formula = "y[b, i, j] = bias + residual[b, i, j] + sum over u, v < k of w[u, v] x[b, s i + u - p, s j + v - p], x "
               "upsampled first",
    .group = "linear",
    .n_in = 4,
    .n_out = 1,
    .optional_in = 1U << 2 | 1U << 3,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = convolution_infer,
    .reference = convolution_reference,
    .cost = convolution_cost,
    .example = convolution_example,
    .rounding = convolution_rounding,
    .in_name = { "x (B H W, C)", "w (M, k k C)", "[bias (M)]", "[residual (B Ho Wo, M)]" },
    .out_name = { "y (B Ho Wo, M)" },
    .attributes = "samples, height, width, kernel, stride, pad_before, pad_after, upsample",
};
