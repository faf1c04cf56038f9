/* SPDX-License-Identifier: Apache-2.0 */
/* op/scale_history.c - what the scales of later steps need (op/quantize.h).
 *
 *   scale_history  the largest magnitudes of the last steps, and the scales that follow from them
 *   tick           counters of steps and passes: random numbers and a switch of recipes go by them
 */
#include "graph/value.h"
#include "op/describe.h"
#include "op/quantize.h"

/* --- scale_history: ticks (2), record (R, 4), history (R, H), scale (R) -> history, scale: the tensors that came in --
 */

static const char *history_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    if (!tm_shape_is_vector(in[0], TM_QUANTIZE_TICKS)) return "there must be two counters";
    if (in[1].rank != 2 || in[1].n[1] != TM_QUANTIZE_RECORD) return "the record must have four columns";
    if (in[2].rank != 2 || in[2].n[0] != in[1].n[0]) return "the history must have the rows of the record";
    if (!tm_shape_is_vector(in[3], in[1].n[0])) return "there must be one largest number per row";
    if (!tm_shape_is_vector(in[4], in[1].n[0])) return "there must be one scale per row";
    const char *why = tm_shape_fit(&out[0], in[2], "the new history must have the shape of the old one");
    return why ? why : tm_shape_fit(&out[1], in[4], "the new scales must have the shape of the old ones");
}

static double number(const tm_view *view, int64_t i)
{
    return tm_value_get(view->data, view->dtype, i);
}

/* As TransformerEngine: nothing but zeros, or what is not finite, leaves a scale as it was. */
static double next_scale(const tm_scale_history_attr *attr, double most, double largest, double old)
{
    if (!(most > 0) || most > (double)FLT_MAX) return old;
    double ratio = largest / most;
    if (ratio > (double)FLT_MAX) ratio = (double)FLT_MAX;
    return ldexp((double)(float)ratio, (int)-attr->margin);
}

void tm_scale_history(const tm_call *call)
{
    const tm_scale_history_attr *attr = call->attr;
    const tm_view               *history = &call->out[0], *scales = &call->out[1];
    double                       steps = number(&call->in[0], 0);
    bool                         waits = !attr->before && attr->switch_step >= 0 && steps < (double)attr->switch_step;
    bool                         begins = waits || (attr->switch_step >= 0 && steps == (double)attr->switch_step);
    int64_t                      rows = history->shape.n[0], n = history->shape.n[1];
    for (int64_t r = 0; r < rows; r++) {
        double amax = number(&call->in[1], r * TM_QUANTIZE_RECORD), most = amax, old = number(&call->in[4], r);
        for (int64_t i = n - 1; i > 0; i--) {
            double before = begins ? 0 : number(&call->in[2], r * n + i - 1);
            if (before > most && !attr->recent) most = before;
            tm_value_set(history->data, history->dtype, r * n + i, before);
        }
        tm_value_set(history->data, history->dtype, r * n, begins ? 0 : amax);
        double next = attr->frozen && steps > 1 ? old : next_scale(attr, most, number(&call->in[3], r), old);
        tm_value_set(scales->data, scales->dtype, r, begins ? 1 : next);
    }
}

static bool history_example(int k, tm_example *example)
{
    static const struct {
        int64_t               rows, length;
        tm_scale_history_attr attr;
    } of[] = { { 1, 1, { .switch_step = -1, .before = 1 } },
               { 3, 300, { .switch_step = -1, .before = 1, .margin = 1 } },
               { 5, 4, { .switch_step = 300, .before = 0 } },
               { 3, 4, { .switch_step = 20, .before = 0, .recent = 1 } },
               { 9, 3, { .switch_step = -1, .before = 1, .frozen = 1 } } };
    if (k >= TM_COUNT_OF(of)) return false;
    tm_example_begin(example, &of[k].attr, sizeof of[k].attr);
    tm_example_in(example, 0, TM_ROLE_STATE, tm_shape_1(TM_QUANTIZE_TICKS), 100, 1);
    tm_example_in(example, 1, TM_ROLE_STATE, tm_shape_2(of[k].rows, TM_QUANTIZE_RECORD), 4, 0.5);
    tm_example_in(example, 2, TM_ROLE_STATE, tm_shape_2(of[k].rows, of[k].length), 4, 0.5);
    tm_example_in(example, 3, TM_ROLE_CONSTANT, tm_shape_1(of[k].rows), 448, 1);
    tm_example_in(example, 4, TM_ROLE_STATE, tm_shape_1(of[k].rows), 100, 1);
    return true;
}

const tm_op tm_op_scale_history = {
    .name = "scale_history",
    .formula = "history = the largest magnitudes of the last steps, the newest first; scale = largest / max(history) / "
               "2^margin",
    .group = "elementwise",
    .n_in = 5,
    .n_out = 2,
    .out_role = { TM_ROLE_STATE, TM_ROLE_STATE },
    .infer = history_infer,
    .reference = tm_scale_history,
    .cost = tm_cost_moved,
    .vector = 2,
    .state = true,
    .inplace = 1U << 2,
    .example = history_example,
    .in_name = { "ticks (2)", "record (R, 4)", "history (R, H)", "largest (R)", "scale (R)" },
    .out_name = { "history (R, H)", "scale (R)" },
    .attributes = "switch_step, before, recent, margin, frozen",
};

/* --- tick: ticks (2), [number ()] -> ticks, the tensor that came in or another one
 * --------------------------------------------------------------
 */

static const char *tick_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    if (!tm_shape_is_vector(in[0], TM_QUANTIZE_TICKS)) return "there must be two counters";
    if (tm_shape_present(in[1]) && in[1].rank != 0) return "the number must be one";
    return tm_shape_fit(&out[0], in[0], "the new counters must be two, too");
}

static void tick_reference(const tm_call *call)
{
    const tm_tick_attr *attr = call->attr;
    const double       *ticks = call->in[0].data, *number_of = call->in[1].data;
    double             *out = call->out[0].data;
    out[0] = ticks[0] + (double)attr->steps;
    out[1] = ticks[1] + (double)attr->passes + (number_of ? *number_of : 0);
}

static bool tick_example(int k, tm_example *example)
{
    static const tm_tick_attr of[] = { { 0, 1 }, { 1, 0 }, { 2, 3 }, { 0, 4 } };
    if (k >= TM_COUNT_OF(of)) return false;
    tm_example_begin(example, &of[k], sizeof of[k]);
    tm_example_in(example, 0, TM_ROLE_STATE, tm_shape_1(TM_QUANTIZE_TICKS), 100, 20);
    if (k == 3) tm_example_in(example, 1, TM_ROLE_SCALAR, (tm_shape){ .rank = 0 }, 5, 1);
    return true;
}

const tm_op tm_op_tick = {
    .name = "tick",
    .formula = "ticks += (steps, passes + number)",
    .group = "elementwise",
    .n_in = 2,
    .optional_in = 1U << 1,
    .n_out = 1,
    .out_role = { TM_ROLE_STATE },
    .infer = tick_infer,
    .reference = tick_reference,
    .cost = tm_cost_moved,
    .vector = 1,
    .inplace = 1U << 0,
    .state = true,
    .example = tick_example,
    .in_name = { "ticks (2)", "[number ()]" },
    .out_name = { "ticks (2)" },
    .attributes = "steps, passes",
};
