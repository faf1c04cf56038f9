/* SPDX-License-Identifier: Apache-2.0 */
/* Low precision on the devices cuda and hip: what kernels leave has the bits of the CPU's, codes, scales and records
 * alike, for every recipe and every example of the ops. */
#include "../support/execute.h"
#include "base/random.h"
#include "device/backend.h"
#include "gpu/called.h"
#include "gpu/emulated.h"
#include "graph/value.h"
#include "op/describe.h"
#include "graph/passes/quantize.h"
#include "op/quantize.h"

#include "support/test.h"

/* --- bits of kernels */

/* Operands of a call, as they lie in memory. */
typedef struct {
    tm_call call; /* formats and shapes */
    char   *image[TM_MAX_IN + TM_MAX_OUT];
    size_t  bytes[TM_MAX_IN + TM_MAX_OUT];
} operands;

static tm_view *view_at(tm_call *call, int i)
{
    return i < TM_MAX_IN ? &call->in[i] : &call->out[i - TM_MAX_IN];
}

/* All but which NaN it is. */
static void compare_bits(const operands *o, char *const a[TM_MAX_OUT], char *const b[TM_MAX_OUT], const char *what)
{
    for (int k = 0; k < TM_MAX_OUT; k++) {
        const tm_view *view = &o->call.out[k];
        if (!tm_view_present(view)) continue;
        bool   halves = tm_dtype_bits(view->dtype) < 8; /* of bytes, which have no NaN */
        size_t each = halves ? 1 : tm_dtype_bytes(view->dtype);
        if (halves && memcmp(a[k], b[k], o->bytes[TM_MAX_IN + k]) != 0) fail_msg("%s: other codes", what);
        for (int64_t i = 0; i < tm_shape_elements(view->shape) && !halves; i++) {
            double x = tm_value_get(a[k], view->dtype, i), y = tm_value_get(b[k], view->dtype, i);
            bool   same = memcmp(a[k] + (size_t)i * each, b[k] + (size_t)i * each, each) == 0 || (isnan(x) && isnan(y));
            if (!same) fail_msg("%s: output %d, element %lld: %.9g, on the CPU %.9g", what, k, (long long)i, x, y);
        }
    }
}

/* The step of a call's switch; < 0: it has none. */
static int64_t at_switch(const tm_op *op, const tm_example *example)
{
    if (op == &tm_op_scale_history) return ((const tm_scale_history_attr *)(const void *)example->attr)->switch_step;
    if (op == &tm_op_tick) return -1;
    return ((const tm_quantize_attr *)(const void *)example->attr)->switch_step;
}

/* Values of an example, or with `wild` of many magnitudes, with runs of zeros and what is not finite. */
static void fill(operands *o, const tm_op *op, const tm_example *example, const tm_precision *precision, bool wild)
{
    tm_call values;
    tm_call_make(&values, op, example, 7);
    o->call = tm_example_call(op, example, precision);
    o->call.attr = example->attr;
    for (int i = 0; i < TM_MAX_IN + TM_MAX_OUT; i++) {
        tm_view *view = view_at(&o->call, i), *from = view_at(&values, i);
        o->image[i] = NULL;
        o->bytes[i] = tm_view_present(view) ? tm_tensor_bytes(view->shape, view->dtype) : 0;
        if (!tm_view_present(view)) continue;
        o->image[i] = calloc(o->bytes[i] + 1, 1);
        for (int64_t e = 0; e < tm_shape_elements(view->shape) && i < TM_MAX_IN; e++) {
            double x = tm_value_get(from->data, from->dtype, e);
            if (wild && i == 0) {
                x = ldexp(x, (int)tm_random_below(3, 1, (uint64_t)(e / 7), 24) - 16);
                if (e / 48 % 5 == 2) x = 0;
                if (e == 1000) x = HUGE_VAL;
                if (e == 2001) x = (double)NAN;
            }
            if (wild && e == 0 && i == (op == &tm_op_scale_history ? 0 : 1) && at_switch(op, example) >= 0)
                x = (double)at_switch(op, example);
            tm_value_set(o->image[i], view->dtype, e, x);
        }
        /* a record that something was added to, and rows of zeros */
        for (int64_t e = 0; i > TM_MAX_IN && e < tm_shape_elements(view->shape); e++)
            if (e / TM_QUANTIZE_RECORD % 2) tm_value_set(o->image[i], view->dtype, e, e % 4 == 1 ? 0.25 : 0.01);
    }
    tm_call_free(&values);
}

static void both(tm_device *cpu, tm_device *gpu, operands *o, const char *what)
{
    char *wanted[TM_MAX_OUT], *found[TM_MAX_OUT];
    for (int adds = 0; adds < (tm_view_present(&o->call.out[1]) && o->call.op == &tm_op_quantize ? 2 : 1); adds++) {
        o->call.accumulate = adds ? 1U << 1 : 0;
        call_on(cpu, &o->call, o->image, 0, wanted);
        call_on(gpu, &o->call, o->image, 0, found);
        compare_bits(o, found, wanted, what);
        for (int k = 0; k < TM_MAX_OUT; k++) free(wanted[k]), free(found[k]);
    }
    for (int i = 0; i < TM_MAX_IN + TM_MAX_OUT; i++) free(o->image[i]);
}

/* Every example of an op on both devices: those whose number has this parity with wild values. */
static void each_example(const char *name, const tm_op *op, int wild,
                         void (*judge)(tm_device *cpu, tm_device *gpu, operands *o, const char *what))
{
    static const tm_precision *const precisions[] = { &tm_precision_f32, &tm_precision_bf16 };
    tm_example                       example;
    if (!emulated_device(name)) skip();
    tm_device *cpu = emulated_open("cpu"), *gpu = emulated_open(name);
    for (int k = 0; op->example(k, &example); k++)
        for (int p = 0; p < 2; p++) {
            char     what[120];
            operands o;
            bool     large = op == &tm_op_quantize_both && tm_shape_elements(example.in[0]) > 3000; /* several tiles */
            if (large && !test_is_full() && k % 2 != p) continue;
            snprintf(what, sizeof what, "%s on %s, example %d, %s", op->name, name, k, precisions[p]->name);
            fill(&o, op, &example, precisions[p], k % 2 == wild);
            judge(cpu, gpu, &o, what);
        }
    tm_device_close(gpu);
    tm_device_close(cpu);
}

/* A factor (rows, columns) of a product of a recipe, of both formats that it may be held in. */
static void try_factor(tm_device *cpu, tm_device *gpu, const tm_quantizer *z, bool down, int64_t rows, int64_t columns,
                       const char *what)
{
    tm_quantize_attr attr = { .recipe = { *z }, .switch_step = -1, .seed = 9, .down = down, .n_parts = 1 };
    bool             exact = z->rule != TM_RULE_RATIO && z->rule != TM_RULE_TWO_LEVEL;
    attr.end[0] = (int32_t)rows;
    for (int format = 0; format < (exact ? 3 : 2); format++) {
        static const char *const names[] = { "float32", "bfloat16 to float32", "bfloat16" };
        char                     text[200];
        tm_example               example;
        operands                 o;
        snprintf(text, sizeof text, "%s, %s", what, names[format]);
        tm_example_begin(&example, &attr, sizeof attr);
        tm_example_in(&example, 0, TM_ROLE_ACTIVATION, tm_shape_2(rows, columns), 0, 1);
        tm_example_in(&example, 1, TM_ROLE_STATE, tm_shape_1(TM_QUANTIZE_TICKS), 200, 1);
        tm_example_in(&example, 2, TM_ROLE_STATE, tm_shape_1(1), 8, 1);
        example.out[1] = tm_shape_2(1, TM_QUANTIZE_RECORD);
        fill(&o, &tm_op_quantize, &example, format ? &tm_precision_bf16 : &tm_precision_f32, rows % 32 != 0);
        if (format == 1) {
            free(o.image[TM_MAX_IN]);
            o.call.out[0].dtype = TM_F32;
            o.bytes[TM_MAX_IN] = tm_tensor_bytes(o.call.out[0].shape, TM_F32);
            o.image[TM_MAX_IN] = calloc(o.bytes[TM_MAX_IN], 1);
        }
        both(cpu, gpu, &o, text);
    }
}

static void recipes_have_the_bits_of_cpus(const char *name)
{
    if (!emulated_device(name)) skip();
    tm_device *cpu = emulated_open("cpu"), *gpu = emulated_open(name);
    for (int i = 0; tm_quantize_recipe_at(i); i++)
        for (int f = 0; f < TM_FACTORS; f++) {
            const tm_quantize_recipe *recipe = tm_quantize_recipe_at(i);
            bool                      down = f == TM_FACTOR_W_DX || f == TM_FACTOR_DY_DW || f == TM_FACTOR_X_DW;
            char                      what[120];
            if (!test_is_full() && (f == TM_FACTOR_DY || f == TM_FACTOR_X_DW)) continue; /* much as the others */
            snprintf(what, sizeof what, "%s on %s, %s", recipe->name, name, tm_factor_name((tm_factor)f));
            int64_t rows = down ? 96 : 70, columns = down ? 70 : 96;
            try_factor(cpu, gpu, &recipe->factor[f], down, rows, columns, what);
            if (test_is_full()) try_factor(cpu, gpu, &recipe->factor[f], down, 288, 416, what);
        }
    tm_device_close(gpu);
    tm_device_close(cpu);
}

/* --- codes as they lie and transposed, of one look: those of two ops on the CPU */

/* What the two leave, one after the other, where one op leaves it. */
static void two_on(tm_device *cpu, const operands *o, char *result[TM_MAX_OUT])
{
    static const int places[2][TM_MAX_OUT] = { { 0, 1, TM_QUANTIZE_SCALES },
                                               { TM_QUANTIZE_TURNED, 1, TM_QUANTIZE_TURNED_SCALES } };
    for (int k = 0; k < TM_MAX_OUT; k++) result[k] = NULL;
    for (int turns = 0; turns < 2; turns++) {
        tm_quantize_attr attr;
        operands         half = *o;
        char            *left[TM_MAX_OUT];
        const int       *place = places[turns && tm_view_present(&o->call.out[TM_QUANTIZE_TURNED])];
        if (!tm_quantize_gives(&o->call, turns)) continue;
        half.call = tm_quantize_half(&o->call, turns, &attr);
        for (int k = 0; k < TM_MAX_OUT; k++) {
            int from = k < 3 ? place[k] : 0;
            half.image[TM_MAX_IN + k] = o->image[TM_MAX_IN + from];
            half.bytes[TM_MAX_IN + k] = k < 3 ? o->bytes[TM_MAX_IN + from] : 0;
        }
        if (turns && result[1]) half.image[TM_MAX_IN + 1] = result[1];
        call_on(cpu, &half.call, half.image, 0, left);
        if (turns) free(result[1]);
        for (int k = 0; k < 3; k++) result[place[k]] = left[k];
        for (int k = 3; k < TM_MAX_OUT; k++) free(left[k]);
    }
}

static void one_as_two(tm_device *cpu, tm_device *gpu, operands *o, const char *what)
{
    for (int adds = 0; adds < 2; adds++) {
        char *wanted[TM_MAX_OUT], *found[TM_MAX_OUT];
        o->call.accumulate = adds ? 1U << 1 : 0;
        two_on(cpu, o, wanted);
        call_on(gpu, &o->call, o->image, 0, found);
        compare_bits(o, found, wanted, what);
        for (int k = 0; k < TM_MAX_OUT; k++) free(wanted[k]), free(found[k]);
    }
    for (int i = 0; i < TM_MAX_IN + TM_MAX_OUT; i++) free(o->image[i]);
}

/* What the maker leaves on the GPU, quantized on the CPU. */
static void one_as_three(tm_device *cpu, tm_device *gpu, operands *o, const char *what)
{
    tm_quantize_both_attr attr = *(const tm_quantize_both_attr *)o->call.attr;
    operands              maker = *o, apart = *o;
    char                 *x[TM_MAX_OUT], *wanted[TM_MAX_OUT], *found[TM_MAX_OUT];
    attr.as = (uint8_t)o->call.in[0].dtype;
    o->call.attr = apart.call.attr = &attr;
    maker.call = tm_quantize_making(&o->call);
    for (int k = 0; k < TM_MAX_OUT; k++) maker.bytes[TM_MAX_IN + k] = 0;
    maker.bytes[TM_MAX_IN] = apart.bytes[0] = tm_tensor_bytes(maker.call.out[0].shape, maker.call.out[0].dtype);
    maker.image[TM_MAX_IN] = calloc(apart.bytes[0] + 1, 1);
    call_on(gpu, &maker.call, maker.image, 0, x);
    apart.image[0] = x[0];
    two_on(cpu, &apart, wanted);
    call_on(gpu, &o->call, o->image, 0, found);
    compare_bits(o, found, wanted, what);
    for (int k = 0; k < TM_MAX_OUT; k++) free(wanted[k]), free(found[k]), free(x[k]);
    for (int i = 0; i < TM_MAX_IN + TM_MAX_OUT; i++) free(o->image[i]);
    free(maker.image[TM_MAX_IN]);
}

ON_BOTH(FULL_TEST, factors_that_are_made_have_the_bits_of_three_ops,
        each_example(on, &tm_op_quantize_made, 0, one_as_three))
ON_BOTH(FULL_TEST, both_directions_have_the_bits_of_two_ops, each_example(on, &tm_op_quantize_both, 1, one_as_two))
static void all_have_the_bits_of_cpus(const char *name)
{
    static const tm_op *const ops[] = { &tm_op_quantize, &tm_op_quantize_largest, &tm_op_scale_history, &tm_op_tick };
    for (int i = 0; i < 4; i++) each_example(name, ops[i], 1, both);
    recipes_have_the_bits_of_cpus(name);
}

ON_BOTH(FULL_TEST, all_have_the_bits_of_cpus, all_have_the_bits_of_cpus(on))
