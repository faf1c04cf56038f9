/* SPDX-License-Identifier: Apache-2.0 */
/* op/quantize_largest.c - what is largest in a factor of a product, for scales of a tensor that ranks have in parts
 * (op/quantize.h): each rank finds that of its part, the largest of all ranks goes into the op `quantize`.
 *
 *   largest (L)  of each part of x (of each expert); with `lines` then of each line of these, one part after the other,
 *                in float32; rows that no expert has are 0
 */
#include "op/describe.h"
#include "op/quantize.h"

#include "base/arena.h"

#include <stdlib.h>

static int64_t count_of(const tm_shape *in, const tm_quantize_attr *attr)
{
    int64_t groups = in[0].rank == 3 ? in[0].n[0] : 1;
    if (tm_shape_present(in[TM_QUANTIZE_OFFSETS])) groups = in[TM_QUANTIZE_OFFSETS].n[0] - 1;
    return groups * attr->n_parts + (attr->lines ? tm_quantize_lines(attr, in[0], groups) : 0);
}

static const char *largest_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_quantize_attr *attr = attr_;
    tm_shape                y[TM_MAX_OUT] = { in[0], { .rank = -1 }, { .rank = -1 } }, x[TM_MAX_IN];
    for (int i = 0; i < TM_MAX_IN; i++) x[i] = i < TM_QUANTIZE_LARGEST ? in[i] : (tm_shape){ .rank = -1 };
    if (attr->codes) return "codes do not matter here";
    const char *why = tm_op_quantize.infer(x, attr, y);
    return why ? why : tm_shape_fit(&out[0], tm_shape_1(count_of(in, attr)), "there must be one number of each part");
}

static void largest_reference(const tm_call *call)
{
    const tm_quantize_attr *attr = call->attr;
    const double           *ticks = call->in[1].data;
    double                 *y = call->out[0].data;
    bool                    switched = attr->switch_step >= 0 && ticks && ticks[0] >= (double)attr->switch_step;
    const tm_quantizer     *z = &attr->recipe[switched];
    int64_t                 cells = tm_quantize_groups(call) * attr->n_parts, at = cells;
    for (int64_t i = 0; i < call->out[0].shape.n[0]; i++) y[i] = 0;
    for (int64_t cell = 0; cell < cells; cell++) {
        tm_quantize_part part = tm_quantize_cell(call, cell);
        float           *line = tm_alloc((size_t)part.length * sizeof *line + 1);
        for (int64_t l = 0; l < part.lines; l++, at++) {
            float most = 0;
            tm_quantize_line(call, z, part, l, line);
            for (int64_t k = 0; k < part.length; k++) most = fmaxf(most, fabsf(line[k]));
            if (attr->lines) y[at] = (double)most;
            y[cell] = fmax(y[cell], (double)most);
        }
        free(line);
    }
}

/* Those of `quantize`, without a delayed scale and what is given there. */
static bool largest_example(int k, tm_example *example)
{
    tm_quantize_attr *attr = (tm_quantize_attr *)(void *)example->attr;
    if (!tm_op_quantize.example(k, example) || attr->codes) return false;
    attr->lines = k % 2;
    example->in[2] = example->in[TM_QUANTIZE_LARGEST] = example->out[1] = (tm_shape){ .rank = -1 };
    return true;
}

const tm_op tm_op_quantize_largest = {
    .name = "quantize_largest",
    .formula = "largest = the largest magnitude of each part of x, and of each line where scales are of lines",
    .group = "elementwise",
    .n_in = 4,
    .n_out = 1,
    .optional_in = 1U << 1 | 1U << 2 | 1U << TM_QUANTIZE_OFFSETS,
    .out_role = { TM_ROLE_STATISTIC },
    .infer = largest_infer,
    .reference = largest_reference,
    .cost = tm_cost_moved,
    .vector = 1,
    .strided_in = 1U << 0,
    .example = largest_example,
    .in_name = { "x (...)", "[ticks (2)]", "[scale (R)]", "[offsets (E + 1)]" },
    .out_name = { "largest (L)" },
    .attributes = "recipe, switch_step, down, cut_columns, lines, n_parts, end",
};
