/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes of mixtures beside the ops' own examples: an expert that has all rows, experts without any, more of them than
 * a wave or a block has threads, rows of nobody, chunks of several pieces. */
#include "gpu/shapes.h"

#include "op/attrs.h"
#include "op/codes.h"
#include "op/describe.h"

/* --- products of experts' rows; their bias */

typedef struct {
    int64_t  rows, inputs, outputs, experts, behind;
    tm_whole whole;
    bool     extras, quick; /* bias and residual */
} grouped_shape;

static const grouped_shape grouped[] = {
    { 140, 40, 72, 5, 0, TM_WHOLE_ONE, true, true },        /* one expert has all rows: more than a tile */
    { 300, 72, 136, 3, 30, TM_WHOLE_OFFSETS, true, false }, /* runs of eight, two tiles each way, rows of nobody */
    { 1, 16, 8, 90, 0, TM_WHOLE_ONE, false, false },        /* one row, more experts than a wave has lanes */
    { 260, 24, 16, 130, 0, TM_WHOLE_OFFSETS, false, false }, { 90, 35, 200, 300, 40, TM_WHOLE_OFFSETS, true, false },
    { 200, 200, 9, 2, 199, TM_WHOLE_ONE, false, false },  /* all but one row are nobody's */
    { 160, 40, 72, 5, 0, TM_WHOLE_OFFSETS, true, false }, /* experts begin between runs of 16 rows */
    { 290, 24, 40, 2, 0, TM_WHOLE_ONE, true, false },     /* three tiles of one expert */
};

static bool is_grouped(const tm_op *op)
{
    return op == &tm_op_grouped_linear || op == &tm_op_grouped_linear_dgrad || op == &tm_op_grouped_linear_wgrad ||
           op == &tm_op_grouped_bias_grad;
}

static void make_grouped(gpu_shape *s, const tm_op *op, const grouped_shape *of)
{
    tm_example     *e = &s->example;
    bool            forward = op == &tm_op_grouped_linear;
    int             offsets = op == &tm_op_grouped_bias_grad ? 1 : 2;
    tm_grouped_attr attr = { .even = of->rows - of->behind };
    tm_shape        x = tm_shape_2(of->rows, of->inputs), y = tm_shape_2(of->rows, of->outputs);
    tm_shape        w = tm_shape_3(of->experts, of->outputs, of->inputs), b = tm_shape_1(of->experts * of->outputs);
    *s = (gpu_shape){ .quick = of->quick };
    tm_example_begin(e, &attr, offsets == 1 ? 0 : sizeof attr);
    tm_example_in(e, 0, TM_ROLE_ACTIVATION, forward ? x : y, 0, 1);
    if (op == &tm_op_grouped_linear_wgrad)
        tm_example_in(e, 1, TM_ROLE_ACTIVATION, x, 0, 1);
    else if (offsets == 2)
        tm_example_in(e, 1, TM_ROLE_PARAMETER, w, 0, 0.5);
    tm_example_offsets(e, offsets, of->experts, of->rows - of->behind);
    e->whole[offsets] = of->whole;
    if (forward && of->extras) tm_example_in(e, 3, TM_ROLE_PARAMETER, b, 0, 1);
    if (forward && of->extras) tm_example_in(e, 4, TM_ROLE_ACTIVATION, y, 0, 1);
    if (op == &tm_op_grouped_linear_wgrad) e->out[0] = w;
    if (op == &tm_op_grouped_bias_grad) e->out[0] = b;
}

/* The same of codes, of OCP's formats and of FNUZ's: with scales of experts, of lines, of parts of what each kernel may
 * have in parts. */
static bool make_grouped_scaled(gpu_shape *s, const tm_op *op, int k)
{
    bool weights = op == &tm_op_grouped_scaled_wgrad, fnuz = k % 2;
    if (k >= 2 * TM_COUNT_OF(grouped)) return false;
    const grouped_shape   *of = &grouped[k / 2];
    int64_t                rows = of->rows, in = of->inputs, out = of->outputs, experts = of->experts;
    int                    cut = weights ? k / 2 % 2 : 2 - k / 2 % 2;
    int64_t                whole = cut == TM_CUT_ROWS ? out : cut == TM_CUT_COLUMNS ? (weights ? in : out) : in;
    int32_t                lines[] = { k / 2 % 4 != 1, k / 2 % 3 != 0 }, parts = 2;
    tm_grouped_scaled_attr attr = { .even = rows - of->behind,
                                    .lines = { lines[0], lines[1] },
                                    .cut = cut,
                                    .n_parts = parts,
                                    .end = { (int32_t)(whole / 3), (int32_t)whole } };
    int64_t                a = weights ? experts * out : rows, b = experts * (weights ? in : out);
    int64_t                through = cut == TM_CUT_DEPTH ? parts : 1;
    int64_t                of_a = lines[0] ? a * through : experts * (cut == TM_CUT_COLUMNS ? 1 : parts);
    int64_t                of_b = lines[1] ? b * through : experts * (cut == TM_CUT_ROWS ? 1 : parts);
    *s = (gpu_shape){ .quick = false };
    tm_example *e = &s->example;
    tm_example_begin(e, &attr, sizeof attr);
    tm_example_in(e, 0, TM_ROLE_ACTIVATION, weights ? tm_shape_2(out, rows) : tm_shape_2(rows, in), 0, 8);
    tm_example_in(e, 1, TM_ROLE_ACTIVATION, weights ? tm_shape_2(in, rows) : tm_shape_3(experts, out, in), 0, 8);
    tm_example_in(e, 2, TM_ROLE_STATISTIC, tm_shape_1(of_a), 0.25, 0.05);
    tm_example_in(e, 3, TM_ROLE_STATISTIC, tm_shape_1(of_b), 0.125, 0.02);
    tm_example_offsets(e, 4, experts, rows - of->behind);
    e->whole[4] = of->whole;
    e->dtype[0] = fnuz ? TM_E5M2FNUZ : TM_E4M3, e->dtype[1] = fnuz ? TM_E4M3FNUZ : TM_E5M2;
    if (weights || !of->extras) return true;
    tm_example_in(e, 5, TM_ROLE_PARAMETER, tm_shape_1(experts * out), 0, 1);
    tm_example_in(e, 6, TM_ROLE_ACTIVATION, tm_shape_2(rows, out), 0, 1);
    return true;
}

/* With scales of blocks: of 32, of codes of 8 and of 4 bits, and of 128, where weights have squares. */
static bool make_grouped_blocks(gpu_shape *s, const tm_op *op, int k)
{
    static const struct {
        tm_dtype a, b;
        uint8_t  kind, other;
    } codes[] = { { TM_E5M2, TM_E4M3, TM_CODES_ROWS, TM_CODES_ROWS },
                  { TM_E2M1, TM_E2M1, TM_CODES_ROWS, TM_CODES_ROWS },
                  { TM_E4M3, TM_E4M3, TM_CODES_RUNS, TM_CODES_SQUARES } };
    bool weights = op == &tm_op_grouped_scaled_wgrad;
    if (k >= TM_COUNT_OF(codes) * TM_COUNT_OF(grouped)) return false;
    const grouped_shape   *of = &grouped[k / TM_COUNT_OF(codes)];
    int                    c = k % TM_COUNT_OF(codes), kind = codes[c].kind, other = weights ? kind : codes[c].other;
    int64_t                in = tm_codes_cut(of->inputs, 32) * 32, out = of->outputs, experts = of->experts;
    int64_t                room = tm_codes_room(kind, of->rows, experts);
    tm_grouped_scaled_attr attr = { .even = of->rows - of->behind,
                                    .cut = TM_CUT_COLUMNS,
                                    .n_parts = 1,
                                    .end = { (int32_t)(weights ? in : out) },
                                    .scales = { (uint8_t)kind, (uint8_t)other } };
    tm_shape               a = weights ? tm_shape_2(out, room) : tm_shape_2(of->rows, in);
    tm_shape               b = weights ? tm_shape_2(in, room) : tm_shape_3(experts, out, in);
    int64_t                of_b = tm_codes_scales(other, b.n[b.rank - 2], b.n[b.rank - 1]);
    tm_example            *e = &s->example;
    *s = (gpu_shape){ .quick = of->quick };
    tm_example_begin(e, &attr, sizeof attr);
    tm_example_in(e, 0, TM_ROLE_ACTIVATION, a, 0, 8);
    tm_example_in(e, 1, TM_ROLE_ACTIVATION, b, 0, 8);
    tm_example_in(e, 2, TM_ROLE_STATISTIC, tm_shape_1(tm_codes_scales(kind, a.n[0], a.n[1])), 0.35, 0.05);
    tm_example_in(e, 3, TM_ROLE_STATISTIC, tm_shape_1(weights ? of_b : experts * of_b), 0.0875, 0.02);
    tm_example_offsets(e, 4, experts, of->rows - of->behind);
    e->whole[4] = of->whole;
    e->dtype[0] = codes[c].a, e->dtype[1] = codes[c].b;
    if (kind == TM_CODES_ROWS) e->dtype[2] = e->dtype[3] = TM_E8M0;
    if (weights || !of->extras) return true;
    tm_example_in(e, 5, TM_ROLE_PARAMETER, tm_shape_1(experts * out), 0, 1);
    tm_example_in(e, 6, TM_ROLE_ACTIVATION, tm_shape_2(of->rows, out), 0, 1);
    return true;
}

/* --- routes */

static const struct {
    int64_t       rows, experts;
    bool          bias, quick;
    tm_route_attr attr;
    bool          alike; /* logits: many are equal to the last bit */
} routes[] = {
    { 9, 1024, false, false, { .top_k = 8, .scale = 1, .normalise = 1 }, false },
    { 4, 250, false, false, { .top_k = 3, .scale = 1 }, false },
    { 6, 1000, true, false, { .top_k = 3, .score = TM_SCORE_SIGMOID, .scale = 1 }, false },
    { 5, 300, true, true, { .top_k = 6, .scale = 2, .groups = 3, .top_groups = 2, .group_best = 4 }, false },
    { 6, 70, true, false, { .top_k = 70, .score = TM_SCORE_SIGMOID, .scale = 1, .normalise = 1 }, false },
    { 7, 64, false, false, { .top_k = 4, .scale = 1, .groups = 64, .top_groups = 9, .group_best = 1 }, false },
    { 40, 100, false, true, { .top_k = 5, .scale = 1 }, true },
    { 3, 520, true, false, { .top_k = 2, .scale = 1, .groups = 2, .top_groups = 1, .group_best = 260 }, false },
};

static void make_route(gpu_shape *s, int k, bool gradient)
{
    tm_example *e = &s->example;
    tm_shape    all = tm_shape_2(routes[k].rows, routes[k].experts);
    tm_shape    chosen = tm_shape_2(routes[k].rows, routes[k].attr.top_k);
    *s = (gpu_shape){ .quick = routes[k].quick };
    tm_example_begin(e, &routes[k].attr, sizeof routes[k].attr);
    if (!gradient) {
        tm_example_in(e, 0, TM_ROLE_STATISTIC, all, routes[k].alike ? 1024 : 0, routes[k].alike ? 2e-4 : 2);
        if (routes[k].bias) tm_example_in(e, 1, TM_ROLE_STATE, tm_shape_1(routes[k].experts), 0, 0.2);
        return;
    }
    tm_example_in(e, 0, TM_ROLE_STATISTIC, chosen, 0, 1);
    /* of weights alone that are normalised the sum over the experts is 0: nothing but rounding is left elsewhere */
    if (routes[k].bias || routes[k].attr.normalise) tm_example_in(e, 1, TM_ROLE_STATISTIC, all, 0, 1);
    tm_example_int(e, 2, chosen, routes[k].experts);
    tm_example_in(e, 3, TM_ROLE_STATISTIC, all, 0.3, 0.05);
}

/* --- counting. met: experts that have pairs, the first ones. */

static const struct {
    int64_t rows, slots, experts, met;
    bool    quick;
} sorts[] = { { 40, 3, 300, 1, true },
              { 1000, 3, 1024, 1024, false },
              { 700, 2, 8, 2, false },
              { 30000, 5, 3, 3, false } /* chunks of more than a piece */ };

static void make_sort(gpu_shape *s, int k)
{
    tm_dispatch_attr attr = { .experts = sorts[k].experts };
    *s = (gpu_shape){ .quick = sorts[k].quick, .f32 = true };
    tm_example_begin(&s->example, &attr, sizeof attr);
    tm_example_int(&s->example, 0, tm_shape_2(sorts[k].rows, sorts[k].slots), sorts[k].met);
}

static const struct {
    int64_t rows, experts, top_k, seq, met;
} balances[] = { { 600, 9, 3, 300, 1 }, { 40, 300, 2, 0, 300 }, { 24000, 3, 6, 0, 3 }, { 24000, 1, 1, 0, 1 } };

static void make_balance(gpu_shape *s, int k, bool gradient)
{
    tm_balance_attr attr = { .seq = balances[k].seq, .top_k = balances[k].top_k, .alpha = 0.25 };
    *s = (gpu_shape){ .f32 = true };
    tm_example_begin(&s->example, &attr, sizeof attr);
    tm_example_in(&s->example, 0, TM_ROLE_STATISTIC, tm_shape_2(balances[k].rows, balances[k].experts), 0.2, 0.1);
    tm_example_int(&s->example, 1, tm_shape_2(balances[k].rows, balances[k].top_k), balances[k].met);
    if (gradient) tm_example_in(&s->example, 2, TM_ROLE_SCALAR, tm_shape_1(TM_SCALAR_COUNT), 0.5, 0.1);
}

static const int64_t experts_of_counts[] = { 300, 1024 };

static void make_counts(gpu_shape *s, const tm_op *op, int k)
{
    tm_expert_bias_attr attr = { .rate = 0.25 };
    int64_t             experts = experts_of_counts[k];
    *s = (gpu_shape){ .f32 = true };
    tm_example_begin(&s->example, &attr, op == &tm_op_expert_bias ? sizeof attr : 0);
    if (op != &tm_op_expert_bias) {
        tm_example_offsets(&s->example, 0, experts, 5000);
        return;
    }
    tm_example_in(&s->example, 0, TM_ROLE_SCALAR, tm_shape_1(experts), 10, 3);
    tm_example_in(&s->example, 1, TM_ROLE_STATE, tm_shape_1(experts), 0, 1);
}

/* --- rows */

static const int64_t columns_of_rows[] = { 264, 2064, 1301 };

static void make_rows(gpu_shape *s, const tm_op *op, int k)
{
    tm_slots_attr attr = { .top_k = 3 };
    int64_t       rows = 5, pairs = rows * attr.top_k, columns = columns_of_rows[k];
    bool          back = op == &tm_op_combine, weights = op == &tm_op_combine_weights_grad;
    tm_example   *e = &s->example;
    *s = (gpu_shape){ .quick = k == 0 };
    tm_example_begin(e, &attr, sizeof attr);
    tm_example_in(e, 0, TM_ROLE_ACTIVATION, tm_shape_2(back ? pairs : rows, columns), 0, 1);
    if (weights)
        tm_example_in(e, 1, TM_ROLE_ACTIVATION, tm_shape_2(pairs, columns), 0, 1);
    else
        tm_example_order(e, 1, pairs, false);
    tm_example_order(e, 2, pairs, true);
    if (weights) return;
    tm_example_in(e, 3, TM_ROLE_STATISTIC, tm_shape_2(rows, attr.top_k), 0.3, 0.2);
    if (back) tm_example_in(e, 4, TM_ROLE_ACTIVATION, tm_shape_2(rows, columns), 0, 1);
}

bool gpu_expert_shape_of(const tm_op *op, int k, gpu_shape *out)
{
    if (op == &tm_op_grouped_scaled_mm || op == &tm_op_grouped_scaled_wgrad)
        return make_grouped_scaled(out, op, k) || make_grouped_blocks(out, op, k - 2 * TM_COUNT_OF(grouped));
    bool counts = op == &tm_op_expert_counts || op == &tm_op_expert_span || op == &tm_op_expert_bias;
    bool rows = op == &tm_op_gather_rows || op == &tm_op_combine || op == &tm_op_combine_weights_grad;
    if (is_grouped(op) && k < TM_COUNT_OF(grouped))
        make_grouped(out, op, &grouped[k]);
    else if ((op == &tm_op_route || op == &tm_op_route_grad) && k < TM_COUNT_OF(routes))
        make_route(out, k, op == &tm_op_route_grad);
    else if (op == &tm_op_dispatch && k < TM_COUNT_OF(sorts))
        make_sort(out, k);
    else if ((op == &tm_op_balance_loss || op == &tm_op_balance_loss_grad) && k < TM_COUNT_OF(balances))
        make_balance(out, k, op == &tm_op_balance_loss_grad);
    else if (counts && k < TM_COUNT_OF(experts_of_counts))
        make_counts(out, op, k);
    else if (rows && k < TM_COUNT_OF(columns_of_rows))
        make_rows(out, op, k);
    else
        return false;
    return true;
}
