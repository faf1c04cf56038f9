/* SPDX-License-Identifier: Apache-2.0 */
/* Every kernel of the devices cuda and hip, as machine code, against the double reference of its op over the op's own
 * examples: within the bound of device/judge.h, also where it adds to what is there, and on views where the op takes
 * them; the same bits whatever the order of waves, and in place where the op allows it. Reading or writing beside an
 * operand, a race, or a wait that is missing is an error of the interpreters. */
#include "gpu/trials.h"

#include "device/gpu/gpu.h"
#include "device/trial.h"
#include "gpu/dnn.h"
#include "gpu/emulated.h"
#include "gpu/shapes.h"
#include "gpu/usual.h"
#include "graph/value.h"
#include "op/attrs.h"
#include "op/describe.h"

#include "support/folder.h"
#include "support/test.h"

/* Examples that are tried: in the quick suite, in all ways, at all. Longer ones are for the blocks of CPUs. */
enum { QUICK_FLOPS = 40000, QUICK_VALUES = 2000, WAYS_FLOPS = 400000, WAYS_VALUES = 20000 };
enum { MOST_FLOPS = 5000000, MOST_VALUES = 200000, SHAPES = 1000 };

static const tm_precision *const precisions[] = { &tm_precision_f32, &tm_precision_bf16, &tm_precision_bf16_pure };
static const char               *name_of_device;
static trials_code               code_of_trials;
static bool                      unjudged; /* this example: its values have no bound */

static bool is_audited(void)
{
    return getenv("STANDIN_GPU_AUDIT") != NULL;
}

/* Kernel number `i` of an op; NULL past the last. */
static const tm_kernel *kernel_of(tm_op_id op, int i)
{
    for (const tm_kernel *const *family = tm_gpu_kernels; *family; family++)
        for (const tm_kernel *k = *family; k->name; k++)
            if (k->op == op && i-- == 0) return k;
    return NULL;
}

/* Of bfloat16, by matrix units? */
static bool by_units(const tm_kernel *kernel)
{
    return strstr(kernel->name, "/matrix") || strstr(kernel->name, "/wgmma");
}

static void complain(const tm_trial *t, unsigned adds, const char *what, int k)
{
    fail_msg("%s on %s, example %d, %s, adds %#x: %s %d", t->kernel->name, name_of_device, t->judge->number,
             t->precision, adds, what, k);
}

/* Keys of a sequence between the first and the last one that one of its queries sees (op/attention.c). */
static void keys_in_sight(const tm_attention_attr *attr, const tm_view *documents, int64_t sequence, int64_t range[2])
{
    range[0] = attr->seq_k, range[1] = 0;
    for (int64_t i = 0; i < attr->seq_q; i++) {
        int64_t at = sequence * attr->seq_q + i, p = attr->q_offset + i, end = attr->seq_k, first = 0;
        if (attr->causal && p + 1 < end) end = p + 1;
        if (attr->window > 0 && p >= attr->window) first = p - attr->window + 1;
        if (tm_view_present(documents))
            first =
                (int64_t)fmax((double)first, tm_value_get(documents->data, documents->dtype, at) - (double)attr->key0);
        if (first >= end) continue;
        if (first < range[0]) range[0] = first;
        if (end > range[1]) range[1] = end;
    }
}

/* To attention by matrix units keys and values that no query sees may hold anything: here NaN. */
static void hide_rows(tm_trial *t)
{
    const tm_attention_attr *attr = t->call.attr;
    int64_t                  range[2] = { 0, 0 };
    if (t->judge->op != &tm_op_attention || !by_units(t->kernel)) return;
    for (int i = 1; i < 3; i++) {
        const tm_view *view = &t->call.in[i];
        int64_t        columns = view->shape.n[1];
        for (int64_t row = 0; row < view->shape.n[0]; row++) {
            if (row % attr->seq_k == 0) keys_in_sight(attr, &t->judge->call.in[3], row / attr->seq_k, range);
            bool hidden = row % attr->seq_k < range[0] || row % attr->seq_k >= range[1];
            for (int64_t c = 0; c < columns && hidden; c++)
                tm_value_set(t->image[i], view->dtype, tm_trial_place(t, i, row * columns + c), (double)NAN);
        }
    }
}

static void run(tm_trial *t, unsigned adds, int alias)
{
    tm_error err = { 0 };
    t->filled = hide_rows;
    if (tm_trial_run(t, adds, alias, &err) != TM_OK) complain(t, adds, err.text, 0);
}

static void check(const tm_trial *t, unsigned adds)
{
    tm_trial_worst w = tm_trial_judge(t, adds);
    if (w.part <= 1 || unjudged) return;
    char text[160];
    snprintf(text, sizeof text, "%.9g at element %lld, wanted %.9g within %.3g, output", w.got, (long long)w.element,
             w.wanted, w.bound);
    complain(t, adds, text, w.output);
}

/* Nothing was written between the rows. */
static void check_gaps(const tm_trial *t)
{
    for (int k = 0; k < t->judge->op->n_out; k++) {
        const tm_view *view = &t->call.out[k];
        if (!tm_view_present(view) || view->ld == 0) continue;
        int64_t columns = view->shape.n[view->shape.rank - 1], gap = view->ld - columns;
        size_t  element = tm_dtype_bytes(view->dtype), row = (size_t)(columns + gap) * element;
        for (size_t at = (size_t)(t->shift + columns) * element; at < t->bytes[TM_MAX_IN + k]; at += row)
            for (size_t b = 0; b < (size_t)gap * element; b++)
                if ((unsigned char)t->image[TM_MAX_IN + k][at + b] != 0xff) complain(t, 0, "writes beside output", k);
    }
}

static char *bits_of(const tm_trial *t, int k)
{
    char *bits = malloc(t->bytes[TM_MAX_IN + k] + 1);
    memcpy(bits, t->image[TM_MAX_IN + k], t->bytes[TM_MAX_IN + k]);
    return bits;
}

/* In other orders of waves, and in place: the same bits. */
static void check_orders(tm_trial *t)
{
    static const char *const orders[] = { "eager", "reversed", "7" };
    char                    *wanted[TM_MAX_OUT] = { NULL };
    for (int k = 0; k < TM_MAX_OUT; k++)
        if (tm_view_present(&t->call.out[k])) wanted[k] = bits_of(t, k);
    for (int o = 0; o < 3 + TM_MAX_IN; o++) {
        int alias = o - 3;
        if (alias >= 0 && !(t->judge->op->inplace >> alias & 1U)) continue;
        if (alias >= 0 && (!tm_view_present(&t->call.in[alias]) || t->call.in[alias].dtype != t->call.out[0].dtype))
            continue;
        if (alias < 0 && is_audited()) continue; /* these have their own */
        if (alias < 0) setenv("STANDIN_GPU_ORDER", orders[o], 1);
        run(t, 0, alias);
        unsetenv("STANDIN_GPU_ORDER");
        for (int k = 0; k < TM_MAX_OUT; k++)
            if (wanted[k] && tm_judge_has(t->judge, k) &&
                memcmp(wanted[k], t->image[TM_MAX_IN + k], t->bytes[TM_MAX_IN + k]) != 0)
                complain(t, 0, alias < 0 ? orders[o] : "in place: other bits of output", k);
    }
    for (int k = 0; k < TM_MAX_OUT; k++) free(wanted[k]);
}

/* Columns of a wider matrix of codes of 4 bits may begin between bytes. */
static bool has_views(const tm_judge *j)
{
    bool whole_bytes = true;
    for (int k = 0; k < j->op->n_in; k++)
        if (tm_view_present(&j->call.in[k]) && tm_dtype_bits(j->example->dtype[k]) % 8 != 0) whole_bytes = false;
    return (j->op->strided_in | j->op->strided_out) && whole_bytes;
}

/* With operands that are columns of wider matrices: rows that begin anywhere; and at multiples, from the second column
 * on. */
static void check_views(const tm_judge *j, tm_device *device, const tm_kernel *kernel, const tm_precision *precision,
                        int64_t gap)
{
    for (int aligned = 0; aligned < 2 && has_views(j); aligned++) {
        tm_trial t;
        tm_trial_open(&t, j, device, kernel, precision, gap + (aligned ? 8 : 3), aligned);
        tm_error err = { 0 };
        bool     takes = !kernel->refuse(&t.call);
        t.filled = hide_rows;
        if (takes && tm_trial_run(&t, 0, -1, &err) == TM_OK)
            check(&t, 0), check_gaps(&t);
        else if (takes && !(aligned && strstr(err.text, "does not begin at a multiple of"))) /* some kernels say so */
            complain(&t, 0, err.text, 0);
        tm_trial_close(&t);
    }
}

/* No longer than that, in operations and elements of its inputs? */
static bool within(const tm_op *op, const tm_call *call, double flops, int64_t values)
{
    for (int k = 0; k < op->n_in; k++)
        if (tm_view_present(&call->in[k])) values -= tm_shape_elements(call->in[k].shape);
    return op->cost(call).flops <= flops && values >= 0;
}

static bool is_tried(const tm_op *op, const tm_example *example)
{
    tm_call call = tm_example_call(op, example, &tm_precision_f32);
    call.attr = example->attr;
    if (is_audited()) return within(op, &call, WAYS_FLOPS, WAYS_VALUES);
    return test_is_full() ? within(op, &call, MOST_FLOPS, MOST_VALUES) : within(op, &call, QUICK_FLOPS, QUICK_VALUES);
}

/* Has the program the code that the call takes inside? Asked of another device, which keeps what it cannot load. */
static bool is_embedded(const tm_trial *t)
{
    tm_device *device;
    tm_error   err = { 0 };
    void      *state = NULL;
    tm_call    call = t->call;
    if (tm_device_open(name_of_device, 1, &device, &err) != TM_OK) fail_msg("%s", err.text);
    tm_status st = t->kernel->prepare(device, &call, &state, &err);
    if (st == TM_OK) st = device->backend->prepared(device, &err);
    if (st != TM_OK && st != TM_UNSUPPORTED) fail_msg("%s", err.text);
    assert_int_equal(device->info.compiled_modules, 0);
    t->kernel->release(state);
    tm_device_close(device);
    return st == TM_OK;
}

/* gap: elements between the rows of operands whose rows may be apart. False: refused, or left out. */
static bool try_precision(const tm_judge *j, tm_device *device, const tm_kernel *kernel, const tm_precision *precision,
                          int64_t gap)
{
    tm_trial t;
    tm_trial_open(&t, j, device, kernel, precision, gap, 0);
    const char *why = kernel->refuse(&t.call);
    if (why) {
        if (test_is_full()) print_message("%s, %s: refused: %s\n", kernel->name, precision->name, why);
        tm_trial_close(&t);
        return false;
    }
    if (code_of_trials == CODE_INSIDE && !is_embedded(&t)) {
        tm_trial_close(&t);
        return false;
    }
    bool short_one = within(j->op, &t.call, WAYS_FLOPS, WAYS_VALUES) || (j->number >= SHAPES && by_units(kernel));
    bool in_all_ways = j->number == 1 || (test_is_full() && short_one);
    run(&t, 0, -1);
    check(&t, 0);
    check_gaps(&t);
    if (in_all_ways) check_orders(&t);
    if (j->adds) {
        run(&t, j->adds, -1);
        if (!kernel->refuse(&t.call)) check(&t, j->adds);
    }
    tm_trial_close(&t);
    if (in_all_ways || j->number >= SHAPES) check_views(j, device, kernel, precision, gap);
    return true;
}

/* Attention by matrix units may not refuse this shape in bfloat16. */
static bool must_take(const tm_kernel *kernel, const gpu_shape *s)
{
    const tm_attention_attr *t = (const void *)s->example.attr;
    if (strstr(kernel->name, "/wgmma")) return t->dim_qk == t->dim_v && (t->dim_v == 64 || t->dim_v == 128);
    int64_t both = (t->dim_qk + 31) / 32 * 32 + (t->dim_v + 31) / 32 * 32;
    if (strcmp(name_of_device, "cuda") == 0 && both > 320) return false;
    return t->dim_qk <= 192 && t->dim_v <= 192 && (s->gap | t->dim_qk | t->dim_v) % 8 == 0;
}

/* Heads of the usual sizes, which the program has inside. */
static void try_usual_heads(const tm_op *op, const tm_kernel *kernel, tm_device *device)
{
    const tm_precision *precision = by_units(kernel) ? &tm_precision_bf16 : &tm_precision_f32;
    if (!by_units(kernel) && !strstr(kernel->name, "/tiles")) return; /* wide heads: compiled where they are wanted */
    for (int i = 0; i < USUAL_HEADS; i++) {
        gpu_shape s;
        tm_judge  j;
        if (!gpu_usual_heads(op, usual_heads[i], &s)) return;
        if (!must_take(kernel, &s)) continue;
        tm_judge_open(&j, op, &s.example, SHAPES + 100 + i, precision == &tm_precision_bf16);
        if (!try_precision(&j, device, kernel, precision, s.gap))
            fail_msg("%s: heads of %d are not inside", kernel->name, (int)usual_heads[i]);
        tm_judge_close(&j);
    }
}

/* Products whose kernels also add to what is there, as no graph asks for yet. */
static bool may_add(const tm_op *op)
{
    return op == &tm_op_linear || op == &tm_op_linear_dgrad || op == &tm_op_scaled_mm || op == &tm_op_grouped_linear ||
           op == &tm_op_grouped_linear_dgrad;
}

/* Kernels in tiles leave long attention to matrix units. */
static bool takes_shape(const tm_op *op, const tm_kernel *kernel, const gpu_shape *s)
{
    enum { MOST_IN_TILES = 3000000 };
    tm_call call = tm_example_call(op, &s->example, &tm_precision_f32);
    call.attr = s->example.attr;
    bool tiles = strstr(kernel->name, "attention") && !by_units(kernel);
    return !tiles || (!s->quick && within(op, &call, MOST_IN_TILES, MOST_VALUES));
}

/* Shape number k in precision number p. What matrix units of attention must take they may not refuse. */
static bool try_shape(const tm_op *op, const tm_kernel *kernel, tm_device *device, const gpu_shape *s, int k, int p)
{
    tm_judge j;
    bool     matrix = strstr(kernel->name, "attention") && by_units(kernel);
    unjudged = s->f32 && p > 0;
    tm_judge_open(&j, op, &s->example, SHAPES + k, p > 0);
    if (may_add(op)) j.adds |= 1U;
    bool taken = try_precision(&j, device, kernel, precisions[p], s->gap);
    unjudged = false;
    if (!taken && code_of_trials == CODE_COMPILED && matrix && p == 1 && must_take(kernel, s))
        fail_msg("%s refuses shape %d", kernel->name, k);
    tm_judge_close(&j);
    return taken;
}

/* Beside the ops' own examples (shapes.h): all that the quick suite does not leave out. Returns how many were tried. */
static int try_shapes(const tm_op *op, const tm_kernel *kernel, tm_device *device)
{
    int       tried = 0;
    gpu_shape s;
    if (code_of_trials != CODE_COMPILED || getenv("STANDIN_GPU_LAUNCHED")) try_usual_heads(op, kernel, device);
    for (int k = 0; gpu_shape_of(op, k, &s); k++) {
        if ((!s.quick && !test_is_full() && !is_audited()) || !takes_shape(op, kernel, &s)) continue;
        for (int p = 0; p < (s.f32 && !is_audited() ? 1 : 3); p++) tried += try_shape(op, kernel, device, &s, k, p);
    }
    return tried;
}

/* Precisions that only some ops meet: moments in bfloat16; weights in bfloat16 for the float32 of a certificate. */
static const tm_precision *further_precision(const tm_op *op)
{
    static const tm_precision moments = { "bfloat16-moments", TM_F32, TM_F32, TM_F32, TM_BF16, TM_F32 },
                              weights = { "bfloat16-weights", TM_BF16, TM_F32, TM_F32, TM_F32, TM_F32 };
    if (op == &tm_op_adamw || op == &tm_op_muon) return &moments;
    return op == &tm_op_embedding || op == &tm_op_cast ? &weights : NULL;
}

/* Precision number p of an op's trials; NULL: it has no more. */
static const tm_precision *precision_of(const tm_op *op, int p)
{
    return p < 3 ? precisions[p] : p == 3 ? further_precision(op) : NULL;
}

static bool try_example(const tm_op *op, const tm_kernel *kernel, tm_device *device, const tm_example *example,
                        int number, int p)
{
    tm_judge j;
    tm_judge_open(&j, op, example, number, p > 0);
    if (op == &tm_op_scaled_mm || op == &tm_op_grouped_scaled_mm)
        j.adds |= 1U; /* in the place of gradients of weights, too */
    bool taken = try_precision(&j, device, kernel, precision_of(op, p), 0);
    tm_judge_close(&j);
    return taken;
}

/* The examples of an op in all precisions. Returns how many. */
static int try_op(const tm_op *op, const tm_kernel *kernel, tm_device *device)
{
    tm_example example;
    int        tried = 0;
    for (int number = 0; op->example(number, &example); number++)
        for (int p = 0; precision_of(op, p) && is_tried(op, &example); p++)
            tried += try_example(op, kernel, device, &example, number, p);
    return tried + try_shapes(op, kernel, device);
}

/* --- one by one (trials.h) */

static double cost_of(const tm_op *op, const tm_example *example)
{
    double  cost;
    tm_call call = tm_example_call(op, example, &tm_precision_f32);
    call.attr = example->attr;
    cost = op->cost(&call).flops;
    for (int k = 0; k < op->n_in; k++)
        if (tm_view_present(&call.in[k])) cost += (double)tm_shape_elements(call.in[k].shape);
    return cost;
}

/* Number `i` of an op's examples; past them, of its shapes that the kernel takes. False: there are no more. */
static bool find_trial(const tm_op *op, const tm_kernel *kernel, int i, trial_of *out)
{
    int k = 0;
    for (; op->example(k, &out->shape.example); k++)
        if (k == i) {
            out->number = k;
            out->shape.gap = 0;
            return true;
        }
    for (int s = 0; gpu_shape_of(op, s, &out->shape); s++) {
        if (takes_shape(op, kernel, &out->shape) && k++ == i) {
            out->number = SHAPES + s;
            return true;
        }
    }
    return false;
}

void trials_each(tm_device *device, const tm_op *op, const tm_kernel *kernel, void *out,
                 void (*found)(void *out, const trial_of *trial, const tm_call *call))
{
    trial_of trial = { .op = op, .kernel = kernel };
    for (int i = 0; find_trial(op, kernel, i, &trial); i++)
        for (trial.precision = 0; precision_of(op, trial.precision); trial.precision++) {
            tm_judge j = { .op = op, .example = &trial.shape.example, .call.attr = trial.shape.example.attr };
            tm_trial t;
            trial.cost = cost_of(op, &trial.shape.example);
            if (trial.cost > WAYS_FLOPS) continue;
            if (trial.number >= SHAPES && trial.precision >= (trial.shape.f32 ? 1 : 3)) continue;
            tm_trial_open(&t, &j, device, kernel, precision_of(op, trial.precision), trial.shape.gap, 0);
            if (!kernel->refuse(&t.call)) found(out, &trial, &t.call);
            tm_trial_close(&t);
        }
}

/* Of the maker's other library the kernels are chosen by nobody else. */
static void choose_library(tm_device *device, const tm_kernel *kernel)
{
    tm_device_other_library(device, strstr(kernel->name, "/gemm_ex") != NULL);
}

void trials_try(tm_device *device, const trial_of *t)
{
    choose_library(device, t->kernel);
    if (t->number < SHAPES)
        (void)try_example(t->op, t->kernel, device, &t->shape.example, t->number, t->precision);
    else
        (void)try_shape(t->op, t->kernel, device, &t->shape, t->number - SHAPES, t->precision);
}

/* False: what it needs is not there. */
static bool open_libraries(const char *name, trials_code code)
{
    if (!gpu_is_real()) {
        setenv("TRAINMARK_CUDNN", test_built("standins/cudnn.so"), 1);
        setenv("TRAINMARK_CUBLAS", test_built("standins/cublaslt.so"), 1);
        setenv("TRAINMARK_ROCBLAS", test_built("standins/hipblaslt.so"), 1);
    }
    if (code == CODE_COMPILED) return emulated_device(name);
    (code == CODE_NONE ? emulated_uncompiled : emulated_without_compiler)(name);
    return true;
}

/* Attention by NVIDIA's library, which another maker's GPU has not, and a real one may lack. */
static bool lacks_library(const char *name, const char *kernel)
{
    tm_error ignored = { 0 };
    if (!strstr(kernel, "/cudnn")) return false;
    return strcmp(name, "hip") == 0 || (gpu_is_real() && tm_gpu_dnn_expect(&ignored) != TM_OK);
}

/* No unit of these multiplies codes of 8 bits. */
static bool lacks_codes(const tm_device *device)
{
    return strstr(device->info.text, ", sm_75;") || strstr(device->info.text, ", sm_80;");
}

/* Is it judged by examples of its op, by this code on this device? */
static bool is_judged(const tm_kernel *kernel, const tm_device *device)
{
    if (strstr(kernel->name, "/blocks")) return false; /* formats that no example has: test_gpu_adapters.c */
    if (!kernel->prepare) return false;                /* copies between host and device: test_gpu_offload.c */
    if (strstr(kernel->name, "/gemm_ex") && gpu_is_real()) return false; /* bench gemm judges it, where it is there */
    if (strstr(tm_op_get(kernel->op)->name, "scaled_") && lacks_codes(device)) return false;
    if (lacks_library(name_of_device, kernel->name)) return false;
    return !strstr(kernel->name, "/wgmma") || strstr(device->info.text, ", sm_90;");
}

tm_device *trials_open(const char *name, trials_code code)
{
    tm_device *device;
    tm_error   err = { 0 };
    name_of_device = name;
    code_of_trials = code;
    if (!open_libraries(name, code)) skip();
    setenv("STANDIN_GPU_UNITS", "1", 1); /* small grids: their threads go on to further elements */
    if (tm_device_open(name, 2, &device, &err) != TM_OK) fail_msg("%s", err.text);
    return device;
}

const tm_kernel *trials_kernel(const tm_device *device, int id, int i)
{
    const tm_kernel *kernel;
    for (int k = 0; (kernel = kernel_of((tm_op_id)id, k)); k++)
        if (is_judged(kernel, device) && i-- == 0) return kernel;
    return NULL;
}

void part_of_kernels_is_right(const char *name, trials_code code, int part, int parts, void (*judged)(tm_device *))
{
    const char      *only = getenv("TM_TEST_OP"), *kind = getenv("TM_TEST_KERNEL"); /* part of a kernel's name */
    tm_device       *device = trials_open(name, code);
    const tm_kernel *kernel;
    int              ops = 0;
    for (int id = part; id < TM_OP_COUNT; id += parts) {
        const tm_op *op = tm_op_get((tm_op_id)id);
        for (int k = 0; (!only || strcmp(only, op->name) == 0) && (kernel = trials_kernel(device, id, k)); k++) {
            if (kind && !strstr(kernel->name, kind)) continue;
            ops++;
            choose_library(device, kernel);
            if (try_op(op, kernel, device) == 0 && code != CODE_INSIDE)
                fail_msg("no example of %s was tried", kernel->name);
        }
    }
    assert_true(ops > 0 || (parts > 1 && (only || kind)));
    if (judged && test_is_full() && !only && !kind) judged(device);
    tm_device_close(device);
}

void kernels_are_right(const char *name, trials_code code)
{
    part_of_kernels_is_right(name, code, 0, 1, NULL);
}
