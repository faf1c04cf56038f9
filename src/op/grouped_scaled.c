/* SPDX-License-Identifier: Apache-2.0 */
/* op/grouped_scaled.c - products of codes of experts: what `grouped_linear` and its gradients are where `quantize`
 * gives codes with scales beside them (graph/passes/codes.c). Each expert's tensors have scales of their own; rows of
 * nobody and experts without rows give 0. Both factors are summed along their rows:
 *
 *   grouped_scaled_mm    c_r = scale_a[r] scale_b[e] sum_k a[r][k] b[e][m][k] + bias_e + residual_r
 *   grouped_scaled_wgrad dw_e = scale_a[e] scale_b[e] sum over its rows r of a[m][r] b[k][r]
 *
 * a (R, K), b (E, M, K), scale_a, scale_b, offsets (E + 1) int32, [bias (E M)], [residual (R, M)] -> c (R, M)
 * a (M, R), b (K, R), scale_a, scale_b, offsets (E + 1) int32 -> dw (E, M, K)
 *
 * Scales are those that `quantize` writes: one expert after the other, in an expert one part after the other, of each
 * part or of each of its lines (op/attrs.h); or of blocks along what is summed over (op/codes.h): of a's rows as of one
 * matrix, of each matrix of b; of dw the lines of both have the blocks of each expert (tm_codes_begin), and R is their
 * room.
 */
#include "base/status.h"
#include "op/attrs.h"
#include "op/codes.h"
#include "op/describe.h"

enum { A, B, SCALE_A, SCALE_B, OFFSETS, BIAS, RESIDUAL, OPERANDS };

/* Parts that factor `side` has, and whether its lines run through them. */
static int64_t parts_of(const tm_grouped_scaled_attr *attr, int side)
{
    return attr->cut == side || attr->cut == TM_CUT_DEPTH ? attr->n_parts : 1;
}

static int part_at(const tm_grouped_scaled_attr *attr, int64_t i)
{
    int p = 0;
    while (p + 1 < attr->n_parts && i >= attr->end[p]) p++;
    return p;
}

static bool has_blocks(const tm_grouped_scaled_attr *attr, int side)
{
    return attr->scales[side] > TM_CODES_PLAIN;
}

/* lines: of all experts together. */
static int64_t scales_of(const tm_grouped_scaled_attr *attr, int side, int64_t experts, int64_t lines, tm_shape codes)
{
    if (has_blocks(attr, side))
        return (codes.rank == 3 ? codes.n[0] : 1) *
               tm_codes_scales(attr->scales[side], codes.n[codes.rank - 2], codes.n[codes.rank - 1]);
    if (!attr->lines[side]) return experts * parts_of(attr, side);
    return attr->cut == TM_CUT_DEPTH ? lines * attr->n_parts : lines;
}

/* The scale of a line in part p of an expert, whose first line is `first` among all; k: a line, else the part counts.
 */
static double scale_of(const tm_call *call, int side, int64_t expert, int64_t first, int64_t lines, int64_t line, int p)
{
    const tm_grouped_scaled_attr *attr = call->attr;
    const double                 *scales = call->in[SCALE_A + side].data;
    if (!attr->lines[side])
        return scales[expert * parts_of(attr, side) + (attr->cut == side ? part_at(attr, line) : p)];
    return attr->cut == TM_CUT_DEPTH ? scales[first * attr->n_parts + p * lines + line] : scales[first + line];
}

static const char *kinds_check(const tm_grouped_scaled_attr *attr)
{
    for (int side = 0; side < 2; side++) {
        if (attr->scales[side] >= TM_CODES_KINDS) return "there is no such kind of scales";
        if (attr->scales[side] == TM_CODES_TILES) return "experts have no scales in tiles";
        if (has_blocks(attr, side) != has_blocks(attr, 0)) return "both factors have scales of blocks, or none";
    }
    if (!has_blocks(attr, 0)) return NULL;
    if (attr->n_parts > 1) return "parts of experts end with a block where blocks have scales";
    return tm_codes_scale_of(attr->scales[0]).block != tm_codes_scale_of(attr->scales[1]).block
               ? "blocks of both factors have one size"
               : NULL;
}

static const char *check(const tm_shape *in, const tm_grouped_scaled_attr *attr, int64_t experts,
                         const int64_t lines[2], int64_t depth)
{
    const char *why = kinds_check(attr);
    if (why) return why;
    if (in[OFFSETS].rank != 1 || in[OFFSETS].n[0] != experts + 1) return "there must be one offset more than experts";
    for (int side = 0; side < 2; side++)
        if (!tm_shape_is_vector(in[SCALE_A + side], scales_of(attr, side, experts, lines[side], in[side])))
            return "there must be a scale of each expert's parts, of each of their lines, or of each block";
    const int64_t cut[] = { lines[0] / experts, lines[1] / experts, depth };
    if (attr->n_parts < 1 || attr->n_parts > TM_GROUPED_PARTS) return "there must be from 1 to 8 parts";
    return attr->end[attr->n_parts - 1] != cut[attr->cut] ? "the parts must cover what they cut" : NULL;
}

static const char *mm_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    if (in[A].rank != 2) return "a must have two axes (rows, depth)";
    if (in[B].rank != 3) return "b must have three axes (experts, columns, depth)";
    if (in[A].n[1] != in[B].n[2]) return "the last axes of a and of b differ";
    if (((const tm_grouped_scaled_attr *)attr)->cut == TM_CUT_ROWS &&
        ((const tm_grouped_scaled_attr *)attr)->n_parts > 1)
        return "rows of experts have no parts";
    const int64_t experts = in[B].n[0], lines[] = { in[A].n[0], experts * in[B].n[1] };
    const char   *why = check(in, attr, experts, lines, in[A].n[1]);
    if (why) return why;
    tm_shape c = tm_shape_2(in[A].n[0], in[B].n[1]);
    if (tm_shape_present(in[BIAS]) && !tm_shape_is_vector(in[BIAS], experts * c.n[1]))
        return "the bias must have one value per expert and column of c";
    if (tm_shape_present(in[RESIDUAL]) && !tm_shape_equal(in[RESIDUAL], c))
        return "the residual must have the shape of c";
    return tm_shape_fit(&out[0], c, "c must have the rows of a and a column for each row of b's matrices");
}

static const char *wgrad_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    if (in[A].rank != 2) return "a must have two axes (outputs, rows)";
    if (in[B].rank != 2) return "b must have two axes (inputs, rows)";
    if (in[A].n[1] != in[B].n[1]) return "a and b must have the same rows";
    if (in[OFFSETS].rank != 1 || in[OFFSETS].n[0] < 2) return "there must be one offset more than experts";
    if (((const tm_grouped_scaled_attr *)attr)->cut == TM_CUT_DEPTH &&
        ((const tm_grouped_scaled_attr *)attr)->n_parts > 1)
        return "rows of experts have no parts";
    const int64_t experts = in[OFFSETS].n[0] - 1, lines[] = { experts * in[A].n[0], experts * in[B].n[0] };
    const char   *why = check(in, attr, experts, lines, in[A].n[1]);
    return why ? why
               : tm_shape_fit(&out[0], tm_shape_3(experts, in[A].n[0], in[B].n[0]),
                              "dw must have the shape (experts, rows of a, rows of b)");
}

/* A product of an expert's matrices over k from `begin` to `end`; first: numbers of its first lines among all that have
 * scales. */
typedef struct {
    const tm_call *call;
    const double  *a, *b; /* of the first lines */
    int64_t        expert, begin, end, first[2], lines[2];
} part_of_product;

/* Of row m of a and row n of b, in parts where the depth has them. */
static double sum_of(const part_of_product *p, int64_t m, int64_t n)
{
    const tm_grouped_scaled_attr *attr = p->call->attr;
    int64_t                       depth = p->call->in[A].shape.n[1], line[] = { m, n };
    const double                 *a = p->a + m * depth, *b = p->b + n * depth;
    bool                          through = attr->cut == TM_CUT_DEPTH;
    double                        all = 0;
    for (int i = 0; i < (through ? attr->n_parts : 1); i++) {
        int64_t from = through && i > 0 ? attr->end[i - 1] : p->begin, to = through ? attr->end[i] : p->end;
        double  sum = 0;
        for (int64_t k = from; k < to; k++) sum += a[k] * b[k];
        for (int side = 0; side < 2 && to > from; side++)
            sum *= scale_of(p->call, side, p->expert, p->first[side], p->lines[side], line[side], i);
        all += sum;
    }
    return all;
}

/* The same with scales of blocks. */
static double sum_of_blocks(const part_of_product *p, int64_t m, int64_t n)
{
    const tm_grouped_scaled_attr *attr = p->call->attr;
    int64_t                       depth = p->call->in[A].shape.n[1], line[] = { m, n };
    const double                 *a = p->a + m * depth, *b = p->b + n * depth, *scales[2];
    int64_t                       all[2]; /* lines of a matrix */
    double                        sum = 0;
    for (int side = 0; side < 2; side++) {
        tm_shape codes = p->call->in[side].shape;
        bool     own = codes.rank == 3;
        all[side] = codes.n[codes.rank - 2];
        scales[side] = (const double *)p->call->in[SCALE_A + side].data +
                       (own ? p->expert * tm_codes_scales(attr->scales[side], all[side], depth) : 0);
        line[side] += own ? 0 : p->first[side];
    }
    for (int64_t k = p->begin; k < p->end; k++)
        sum += a[k] * b[k] * scales[0][tm_codes_place(attr->scales[0], all[0], depth, line[0], k)] *
               scales[1][tm_codes_place(attr->scales[1], all[1], depth, line[1], k)];
    return sum;
}

static double result_of(const part_of_product *p, int64_t m, int64_t n)
{
    return has_blocks(p->call->attr, 0) ? sum_of_blocks(p, m, n) : sum_of(p, m, n);
}

static void mm_reference(const tm_call *call)
{
    int64_t        experts = call->in[B].shape.n[0], columns = call->in[B].shape.n[1], depth = call->in[B].shape.n[2];
    const int32_t *offsets = call->in[OFFSETS].data;
    const double  *bias = call->in[BIAS].data, *residual = call->in[RESIDUAL].data;
    double        *c = tm_call_sums(call, 0);
    for (int64_t e = 0; e < experts; e++) {
        const part_of_product p = { .call = call,
                                    .a = (const double *)call->in[A].data + offsets[e] * depth,
                                    .b = (const double *)call->in[B].data + e * columns * depth,
                                    .expert = e,
                                    .end = depth,
                                    .first = { offsets[e], e * columns },
                                    .lines = { offsets[e + 1] - offsets[e], columns } };
        for (int64_t r = offsets[e]; r < offsets[e + 1]; r++)
            for (int64_t m = 0; m < columns; m++) {
                double sum = result_of(&p, r - offsets[e], m);
                if (bias) sum += bias[e * columns + m];
                if (residual) sum += residual[r * columns + m];
                c[r * columns + m] += sum;
            }
    }
}

static void wgrad_reference(const tm_call *call)
{
    int64_t experts = call->out[0].shape.n[0], outputs = call->out[0].shape.n[1], inputs = call->out[0].shape.n[2];
    const tm_grouped_scaled_attr *attr = call->attr;
    const int32_t                *offsets = call->in[OFFSETS].data;
    double                       *dw = tm_call_sums(call, 0);
    bool                          shared = has_blocks(attr, 0); /* lines of all experts are the same ones */
    for (int64_t e = 0; e < experts; e++) {
        int64_t               rows = offsets[e + 1] - offsets[e];
        const part_of_product p = { .call = call,
                                    .a = call->in[A].data,
                                    .b = call->in[B].data,
                                    .expert = e,
                                    .begin = tm_codes_begin(attr->scales[0], offsets[e], e),
                                    .end = tm_codes_end(attr->scales[0], offsets[e], rows, e),
                                    .first = { shared ? 0 : e * outputs, shared ? 0 : e * inputs },
                                    .lines = { outputs, inputs } };
        for (int64_t m = 0; m < outputs; m++)
            for (int64_t k = 0; k < inputs; k++) dw[(e * outputs + m) * inputs + k] += result_of(&p, m, k);
    }
}

static tm_cost mm_cost(const tm_call *call)
{
    const tm_grouped_scaled_attr *attr = call->attr;
    int                           extras = tm_view_present(&call->in[BIAS]) + tm_view_present(&call->in[RESIDUAL]);
    tm_cost                       cost =
        tm_call_cost(call, 2.0 * (double)attr->even * (double)call->in[B].shape.n[1] * (double)call->in[B].shape.n[2]);
    cost.vector = extras * (double)tm_shape_elements(call->out[0].shape);
    return cost;
}

static tm_cost wgrad_cost(const tm_call *call)
{
    const tm_grouped_scaled_attr *attr = call->attr;
    return tm_call_cost(call,
                        2.0 * (double)attr->even * (double)call->in[A].shape.n[0] * (double)call->in[B].shape.n[0]);
}

/* Beside the sum the scales, the bias, the residual and what is added to. */
static tm_rounding scaled_rounding(const tm_call *call, int k)
{
    (void)k;
    return tm_rounding_sum(call->in[A].shape.n[1] + 6);
}

/* Both ops: inputs and outputs of a layer (K and M), or of its gradient. The first experts have no rows where there are
 * few. behind: rows of nobody. */
static const struct {
    int64_t  rows, inputs, outputs, experts, behind;
    tm_dtype a, b;
    bool     lines_a, lines_b, extras;
    int      cut, n_parts, first_end; /* of two parts */
    uint8_t  scales[2];               /* 0: plain ones */
} cases[] = {
    { 9, 7, 5, 4, 0, TM_E4M3, TM_E5M2, false, false, true, TM_CUT_COLUMNS, 1, 0, { 0 } },
    { 20, 33, 17, 3, 2, TM_E5M2FNUZ, TM_E4M3FNUZ, true, true, true, TM_CUT_COLUMNS, 1, 0, { 0 } },
    { 70, 48, 40, 8, 0, TM_E4M3FNUZ, TM_E4M3FNUZ, false, false, false, TM_CUT_COLUMNS, 2, 16, { 0 } },
    { 40, 32, 32, 3, 7, TM_E5M2, TM_E4M3, true, true, false, TM_CUT_DEPTH, 2, 16, { 0 } },
    { 40, 41, 24, 2, 0, TM_E4M3, TM_E4M3, false, false, true, TM_CUT_DEPTH, 2, 21, { 0 } },
    { 3, 16, 16, 6, 0, TM_E4M3FNUZ, TM_E5M2FNUZ, true, false, false, TM_CUT_COLUMNS, 2, 8, { 0 } },
    { 33, 160, 20, 1, 0, TM_E4M3, TM_E4M3, false, true, true, TM_CUT_DEPTH, 2, 144, { 0 } },
    { 150, 16, 48, 2, 0, TM_E5M2FNUZ, TM_E5M2FNUZ, false, true, false, TM_CUT_COLUMNS, 1, 0, { 0 } },
    { 50, 64, 36, 3, 4, TM_E4M3, TM_E5M2, false, false, true, TM_CUT_COLUMNS, 1, 0, { TM_CODES_ROWS, TM_CODES_ROWS } },
    { 140,
      96,
      40,
      5,
      0,
      TM_E2M1,
      TM_E2M1,
      false,
      false,
      false,
      TM_CUT_COLUMNS,
      1,
      0,
      { TM_CODES_ROWS, TM_CODES_ROWS } },
    { 150,
      272,
      132,
      3,
      3,
      TM_E4M3,
      TM_E4M3,
      false,
      false,
      true,
      TM_CUT_COLUMNS,
      1,
      0,
      { TM_CODES_RUNS, TM_CODES_SQUARES } },
    { 9,
      130,
      20,
      4,
      0,
      TM_E5M2FNUZ,
      TM_E4M3FNUZ,
      false,
      false,
      false,
      TM_CUT_COLUMNS,
      1,
      0,
      { TM_CODES_RUNS, TM_CODES_RUNS } },
};

/* lines: of all experts together. */
static void make_scales(tm_example *example, int i, const tm_grouped_scaled_attr *attr, int64_t a, int64_t b)
{
    const int64_t lines[] = { a, b };
    for (int side = 0; side < 2; side++) {
        int64_t n = scales_of(attr, side, cases[i].experts, lines[side], example->in[side]);
        tm_example_in(example, SCALE_A + side, TM_ROLE_STATISTIC, tm_shape_1(n), side ? 0.0875 : 0.35,
                      side ? 0.02 : 0.05);
        if (tm_codes_scale_of(attr->scales[side]).dtype == TM_E8M0) example->dtype[SCALE_A + side] = TM_E8M0;
    }
}

static tm_grouped_scaled_attr attr_of(int i, int cut, int64_t end)
{
    return (tm_grouped_scaled_attr){ .even = cases[i].rows - cases[i].behind,
                                     .lines = { cases[i].lines_a, cases[i].lines_b },
                                     .cut = cut,
                                     .n_parts = cases[i].n_parts,
                                     .end = { cases[i].n_parts > 1 ? cases[i].first_end : (int)end, (int)end },
                                     .scales = { cases[i].scales[0], cases[i].scales[1] } };
}

static bool mm_example(int i, tm_example *example)
{
    if (i >= TM_COUNT_OF(cases)) return false;
    int64_t                rows = cases[i].rows, k = cases[i].inputs, m = cases[i].outputs, experts = cases[i].experts;
    tm_grouped_scaled_attr attr = attr_of(i, cases[i].cut, cases[i].cut == TM_CUT_DEPTH ? k : m);
    tm_example_begin(example, &attr, sizeof attr);
    tm_example_in(example, A, TM_ROLE_ACTIVATION, tm_shape_2(rows, k), 0, 8);
    tm_example_in(example, B, TM_ROLE_ACTIVATION, tm_shape_3(experts, m, k), 0, 8);
    make_scales(example, i, &attr, rows, experts * m);
    tm_example_offsets(example, OFFSETS, experts, attr.even);
    example->dtype[A] = cases[i].a, example->dtype[B] = cases[i].b;
    if (!cases[i].extras) return true;
    tm_example_in(example, BIAS, TM_ROLE_PARAMETER, tm_shape_1(experts * m), 0, 1);
    tm_example_in(example, RESIDUAL, TM_ROLE_ACTIVATION, tm_shape_2(rows, m), 0, 1);
    return true;
}

/* Of its lines no blocks are squares. */
static bool wgrad_example(int i, tm_example *example)
{
    if (i >= TM_COUNT_OF(cases)) return false;
    int64_t                rows = cases[i].rows, k = cases[i].inputs, m = cases[i].outputs, experts = cases[i].experts;
    bool                   of_a = cases[i].cut == TM_CUT_COLUMNS;
    tm_grouped_scaled_attr attr = attr_of(i, of_a ? TM_CUT_ROWS : TM_CUT_COLUMNS, of_a ? m : k);
    attr.scales[1] = attr.scales[0];
    rows = tm_codes_room(attr.scales[0], rows, experts);
    tm_example_begin(example, &attr, sizeof attr);
    tm_example_in(example, A, TM_ROLE_ACTIVATION, tm_shape_2(m, rows), 0, 8);
    tm_example_in(example, B, TM_ROLE_ACTIVATION, tm_shape_2(k, rows), 0, 8);
    make_scales(example, i, &attr, experts * m, experts * k);
    tm_example_offsets(example, OFFSETS, experts, attr.even);
    example->dtype[A] = cases[i].a, example->dtype[B] = cases[i].b;
    return true;
}

#define NO_CPU_KERNEL "CPUs multiply what codes stand for: no plan of theirs has it"

const tm_op tm_op_grouped_scaled_mm = {
    .name = "grouped_scaled_mm",
    .formula = "c[r] = scale_a scale_b a[r] b[e]^T + bias[e] + residual[r], offsets[e] <= r < offsets[e + 1]",
    .group = "linear",
    .n_in = OPERANDS,
    .n_out = 1,
    .optional_in = 1U << BIAS | 1U << RESIDUAL,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = mm_infer,
    .reference = mm_reference,
    .cost = mm_cost,
    .example = mm_example,
    .rounding = scaled_rounding,
    .no_fast_kernel = NO_CPU_KERNEL,
    .in_name = { "a (R, K)", "b (E, M, K)", "scale_a (P)", "scale_b (Q)", "offsets (E + 1)", "[bias (E M)]",
                 "[residual (R, M)]" },
    .out_name = { "c (R, M)" },
    .attributes = "even, lines, cut, n_parts, end, scales",
};

const tm_op tm_op_grouped_scaled_wgrad = {
    .name = "grouped_scaled_wgrad",
    .formula = "dw[e] = scale_a scale_b sum of a[.][r] b[.][r], offsets[e] <= r < offsets[e + 1]",
    .group = "linear",
    .n_in = OFFSETS + 1,
    .n_out = 1,
    .out_role = { TM_ROLE_GRADIENT },
    .infer = wgrad_infer,
    .reference = wgrad_reference,
    .cost = wgrad_cost,
    .example = wgrad_example,
    .rounding = scaled_rounding,
    .no_fast_kernel = NO_CPU_KERNEL,
    .in_name = { "a (M, R)", "b (K, R)", "scale_a (P)", "scale_b (Q)", "offsets (E + 1)" },
    .out_name = { "dw (E, M, K)" },
    .attributes = "even, lines, cut, n_parts, end, scales",
};
