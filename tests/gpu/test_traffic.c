/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels that are bound by memory move, counted by the emulators: rows of the layers of Llama 3.1 8B. A launch
 * moves at most so many times the op's floor (tm_cost.bytes, each operand once), and every lane accesses 16 bytes at a
 * time. What all rows share (weights of a norm, tables of angles) stays in caches and counts once. `traffic MAKER` of
 * this program prints the table of docs/gpu.md. */
#include "device/gpu/gpu.h"
#include "gpu/emulated.h"
#include "op/attrs.h"
#include "op/describe.h"
#include "op/quantize.h"

#include <dlfcn.h>

#include "machine/machine.h"
#include "support/test.h"

enum { HIDDEN = 4096, WIDTH = 14336, VOCABULARY = 128256, HEAD = 128, HEADS = 40, QKV = 6144 };

typedef struct {
    const tm_op *op;
    int          example;        /* of the op, whose dimensions become others */
    int64_t      from[5], to[5]; /* rows and columns of the first operand come first */
    double       most;           /* times the floor */
    unsigned     shared;         /* inputs that count once */
} traffic_case;

static const traffic_case cases[] = {
    { &tm_op_cast, 1, { 3, 7 }, { 16, HIDDEN }, 1.0, 0 },
    { &tm_op_add, 1, { 3, 7 }, { 16, HIDDEN }, 1.0, 0 },
    { &tm_op_fill, 1, { 3, 7 }, { 16, HIDDEN }, 1.0, 0 },
    { &tm_op_swiglu, 1, { 3, 7, 14 }, { 4, WIDTH, 2 * WIDTH }, 1.0, 0 },
    { &tm_op_swiglu_grad, 1, { 3, 7, 14 }, { 4, WIDTH, 2 * WIDTH }, 1.0, 0 },
    { &tm_op_gelu, 1, { 3, 7 }, { 4, WIDTH }, 1.0, 0 },
    { &tm_op_gelu_grad, 1, { 3, 7 }, { 4, WIDTH }, 1.0, 0 },
    { &tm_op_silu, 1, { 3, 7 }, { 4, WIDTH }, 1.0, 0 },
    { &tm_op_silu_grad, 1, { 3, 7 }, { 4, WIDTH }, 1.0, 0 },
    { &tm_op_swiglu_clamped, 1, { 3, 7, 14 }, { 4, WIDTH, 2 * WIDTH }, 1.0, 0 },
    { &tm_op_swiglu_clamped_grad, 1, { 3, 7, 14 }, { 4, WIDTH, 2 * WIDTH }, 1.0, 0 },
    { &tm_op_scale, 1, { 3, 7 }, { 16, HIDDEN }, 1.0, 0 },
    { &tm_op_add_bias, 1, { 3, 7 }, { 16, HIDDEN }, 1.0, 1U << 2 },
    { &tm_op_rope, 1, { 6, 16, 3, 4 }, { 16, QKV, 16, HEAD }, 1.05, 1U << 1 },
    { &tm_op_rope_grad, 1, { 6, 16, 3, 4 }, { 16, QKV, 16, HEAD }, 1.05, 1U << 1 },
    { &tm_op_rmsnorm, 1, { 3, 7 }, { 16, HIDDEN }, 1.05, 1U << 1 },
    { &tm_op_rmsnorm_grad, 1, { 3, 7 }, { 64, HIDDEN }, 1.05, 1U << 2 },
    { &tm_op_layernorm, 1, { 3, 7 }, { 16, HIDDEN }, 1.05, 1U << 1 | 1U << 2 },
    { &tm_op_layernorm_grad, 1, { 3, 7 }, { 64, HIDDEN }, 1.07, 1U << 2 }, /* two sums of 32 rows */
    { &tm_op_bias_grad, 1, { 3, 9 }, { 64, HIDDEN }, 1.13, 0 },     /* sums of 32 rows, in float32, are written and read
                                                                       again */
    { &tm_op_gelu_bias_grad, 1, { 3, 7 }, { 64, WIDTH }, 1.05, 0 }, /* likewise */
    { &tm_op_copy, 1, { 3, 7 }, { 16, HIDDEN }, 1.0, 0 },
    { &tm_op_head_norm, 2, { 9, 64, 16, 6 }, { 16, QKV, 2 * HEAD, HEADS }, 1.0, 1U << 1 },
    { &tm_op_head_norm_grad, 2, { 9, 64, 16, 6 }, { 64, QKV, 2 * HEAD, HEADS }, 1.0, 1U << 2 | 1U << 3 },
    { &tm_op_head_rope, 1, { 9, 48, 32, 3, 16 }, { 16, QKV, 2 * HEAD, HEADS, HEAD }, 1.0, 1U << 1 | 1U << 2 },
    { &tm_op_head_rope_grad,
      1,
      { 9, 48, 32, 3, 16 },
      { 64, QKV, 2 * HEAD, HEADS, HEAD },
      1.0,
      1U << 2 | 1U << 3 | 1U << 4 },
    { &tm_op_gated_add, 2, { 18, 8, 2 }, { 16, HIDDEN, 1 }, 1.0, 1U << 2 },
    { &tm_op_gated_add_grad, 2, { 18, 8, 2 }, { 64, HIDDEN, 1 }, 1.4, 1U << 2 },     /* dy once more for the sum */
    { &tm_op_modulate, 2, { 18, 8, 2 }, { 16, HIDDEN, 1 }, 2.0, 1U << 1 | 1U << 2 }, /* rows of three passes, of which
                                                                                  caches have two */
    { &tm_op_modulate_grad, 2, { 18, 8, 2 }, { 64, HIDDEN, 1 }, 2.4, 1U << 2 | 1U << 3 | 1U << 4 },
    { &tm_op_embedding_grad, 1, { 6, 9, 7 }, { 2048, 256, 512 }, 1.15, 0 }, /* zeros come first; each block of numbers
                                                                               looks at all tokens */
    { &tm_op_square_sum, 1, { 3, 7 }, { 64, HIDDEN }, 1.05, 0 },
    { &tm_op_quantize_both, 0, { 0 }, { 256, 1024 }, 1.01, 1U << 2 }, /* with scales of earlier steps */
    { &tm_op_quantize_made, 0, { 0 }, { 256, 1024 }, 1.01, 1U << 2 }, /* gradients of a gate of 512, with such scales */
    { &tm_op_cross_entropy, 2, { 9, 7 }, { 2, VOCABULARY }, 1.0001, 0 },
    { &tm_op_cross_entropy_grad, 2, { 9, 7 }, { 2, VOCABULARY }, 1.5001, 0 }, /* a row of logits is read twice */
};

static void stretch(tm_shape *shape, const traffic_case *c)
{
    for (int d = 0; d < shape->rank; d++)
        for (int i = 0; i < 5; i++)
            if (c->from[i] && shape->n[d] == c->from[i]) {
                shape->n[d] = c->to[i];
                break;
            }
}

#define SET(e, op, name, kind, ...)                                                                                    \
    if (op == &tm_op_##name) memcpy(e->attr, &(kind){ __VA_ARGS__ }, sizeof(kind))
#define EPS .eps = 1e-5
#define OF_HEADS .heads = HEADS, .head_dim = HEAD

/* Attributes that tell sizes. */
static void set_attributes(tm_example *e, const tm_op *op, int64_t rows)
{
    SET(e, op, rope, tm_rope_attr, .seq = rows, OF_HEADS, .layout = TM_ROPE_HALF);
    SET(e, op, rope_grad, tm_rope_attr, .seq = rows, OF_HEADS, .layout = TM_ROPE_HALF);
    SET(e, op, modulate, tm_modulate_attr, EPS, .seq = rows);
    SET(e, op, modulate_grad, tm_modulate_attr, EPS, .seq = rows);
    SET(e, op, gated_add, tm_gated_add_attr, .seq = rows);
    SET(e, op, gated_add_grad, tm_gated_add_attr, .seq = rows);
    SET(e, op, embedding_grad, tm_embedding_attr, .seq = rows);
    SET(e, op, head_norm, tm_head_norm_attr, EPS, OF_HEADS, .second = HEADS - 8);
    SET(e, op, head_norm_grad, tm_head_norm_attr, EPS, OF_HEADS, .second = HEADS - 8);
    SET(e, op, head_rope, tm_head_rope_attr, EPS, OF_HEADS, .second = HEADS - 8, .seq = rows,
        .layout = TM_ROPE_INTERLEAVED);
    SET(e, op, head_rope_grad, tm_head_rope_attr, EPS, OF_HEADS, .second = HEADS - 8, .seq = rows,
        .layout = TM_ROPE_INTERLEAVED);
}

static bool is_coder(const tm_op *op)
{
    return op == &tm_op_quantize_both || op == &tm_op_quantize_made;
}

/* Of two factors, x as it lies and transposed: scales and rows of the record. */
static void make_codes(const traffic_case *c, tm_example *e)
{
    tm_quantize_both_attr attr = { .along = { .recipe = { { .format = TM_E4M3, .scaled = TM_SCALED_DELAYED } },
                                              .switch_step = -1,
                                              .codes = TM_CODES_PLAIN,
                                              .n_parts = 1,
                                              .end = { (int32_t)c->to[0] } },
                                   .turned_row = 1 };
    tm_shape              x = tm_shape_2(c->to[0], c->to[1]);
    bool                  made = c->op == &tm_op_quantize_made;
    if (made) {
        attr.along.cut_columns = 1, attr.along.n_parts = attr.turned_row = 2;
        attr.along.end[0] = (int32_t)c->to[1] / 2, attr.along.end[1] = (int32_t)c->to[1];
        attr.maker = TM_MADE_SWIGLU_GRAD, attr.as = TM_BF16;
    }
    tm_example_begin(e, &attr, sizeof attr);
    tm_example_in(e, 0, TM_ROLE_ACTIVATION, made ? tm_shape_2(c->to[0], c->to[1] / 2) : x, 0, 1);
    if (made) tm_example_in(e, 1, TM_ROLE_ACTIVATION, x, 0, 1);
    tm_example_in(e, 2, TM_ROLE_STATE, tm_shape_1(made ? 4 : 2), 1, 0);
    e->out[1] = tm_shape_2(made ? 4 : 2, TM_QUANTIZE_RECORD);
    e->out[TM_QUANTIZE_TURNED] = tm_shape_2(c->to[1], c->to[0]);
    e->out[TM_QUANTIZE_TURNED_SCALES] = tm_shape_1(made ? 2 : 1);
    e->out_dtype[0] = e->out_dtype[TM_QUANTIZE_TURNED] = TM_E4M3;
}

static void make_example(const traffic_case *c, tm_example *e)
{
    const tm_op *op = c->op;
    if (is_coder(op)) {
        make_codes(c, e);
        return;
    }
    if (!op->example(c->example, e)) abort();
    for (int k = 0; k < op->n_in; k++) stretch(&e->in[k], c);
    for (int k = 0; k < op->n_out; k++) stretch(&e->out[k], c);
    for (int k = 0; k < op->n_in; k++)
        for (int i = 0; i < 5; i++)
            if (c->from[i] && e->limit[k] == c->from[i]) e->limit[k] = c->to[i];
    set_attributes(e, op, c->to[0]);
    if (op == &tm_op_cast) e->role[0] = TM_ROLE_PARAMETER;
    if (op == &tm_op_embedding_grad) e->out[1].rank = -1; /* without positions */
    if (op == &tm_op_head_rope_grad) e->out[1] = tm_shape_1(2 * HEAD);
}

/* Kernels that are counted, and the stand-in that counts. */
typedef struct {
    tm_device *device;
    void (*count)(void);
    machine_use (*used)(const void *address);
    machine_counts (*counted)(void);
    bool tells;
    int  judged;
} counter;

static const tm_kernel *kernel_for(const tm_call *call)
{
    for (const tm_kernel *const *family = tm_gpu_kernels; *family; family++)
        for (const tm_kernel *k = *family; k->name; k++)
            if (k->op == tm_op_id_of(call->op) && !(k->refuse && k->refuse(call))) return k;
    return NULL;
}

static void *zeros_of(tm_device *device, size_t bytes)
{
    tm_address at;
    tm_error   err = { 0 };
    char      *zeros = calloc(bytes + 1, 1);
    if (tm_device_alloc(device, bytes, &at, &err) != TM_OK) fail_msg("%s", err.text);
    assert_int_equal(tm_device_write(device, at, zeros, bytes, &err), TM_OK);
    free(zeros);
    return (void *)at.at; // NOLINT(performance-no-int-to-ptr)
}

static tm_view *view_at(tm_call *call, int i)
{
    return i < TM_MAX_IN ? &call->in[i] : &call->out[i - TM_MAX_IN];
}

static void launch(counter *c, tm_call *call, const tm_kernel *kernel)
{
    tm_error err = { 0 };
    call->device = c->device;
    call->queue = c->device->queues[TM_ON_COMPUTE];
    for (int i = 0; i < TM_MAX_IN + TM_MAX_OUT; i++) {
        tm_view *view = view_at(call, i);
        if (tm_view_present(view)) view->data = zeros_of(c->device, tm_tensor_bytes(view->shape, view->dtype));
    }
    call->workspace_bytes = kernel->workspace ? kernel->workspace(call) : 0;
    if (call->workspace_bytes) call->workspace = zeros_of(c->device, call->workspace_bytes);
    tm_status st = kernel->prepare(c->device, call, &call->state, &err);
    if (st == TM_OK) st = c->device->backend->prepared(c->device, &err);
    if (st == TM_OK) st = tm_device_wait(c->device, &err);
    c->count();
    if (st == TM_OK) st = kernel->launch(call, &err);
    if (st == TM_OK) st = tm_device_wait(c->device, &err);
    if (st != TM_OK) fail_msg("%s: %s", kernel->name, err.text);
    kernel->release(call->state);
}

/* Bytes of an operand; of a large one also whether lanes take 16 at a time, but for a logit or so. */
static double moved_by(counter *c, const tm_call *call, const void *data, double whole, const char *what)
{
    machine_use use = c->used(data);
    double      bytes = (double)(use.read_bytes + use.written_bytes), times = (double)(use.reads + use.writes);
    if (whole * 32 >= call->op->cost(call).bytes && !(bytes >= 15.9 * times))
        fail_msg("%s: lanes access %s by %.3g bytes", call->op->name, what, bytes / times);
    return bytes;
}

static void judge(counter *c, const traffic_case *of, const tm_precision *precision)
{
    tm_example example;
    double     moved = 0;
    make_example(of, &example);
    tm_call call = tm_example_call(of->op, &example, precision);
    call.attr = example.attr;
    call.device = c->device;
    const tm_kernel *kernel = kernel_for(&call);
    if (!kernel) fail_msg("no kernel of %s takes %s", of->op->name, precision->name);
    launch(c, &call, kernel);
    for (int i = 0; i < TM_MAX_IN + TM_MAX_OUT; i++) {
        const tm_view *view = view_at(&call, i);
        double         whole = tm_view_bytes(view);
        char           what[24];
        snprintf(what, sizeof what, "%s %d", i < TM_MAX_IN ? "input" : "output", i < TM_MAX_IN ? i : i - TM_MAX_IN);
        if (!tm_view_present(view)) continue;
        bool   once = i < TM_MAX_IN && of->shared >> i & 1U;
        double bytes = once ? whole : moved_by(c, &call, view->data, whole, what);
        moved += bytes;
    }
    if (call.workspace) moved += moved_by(c, &call, call.workspace, (double)call.workspace_bytes, "workspace");
    double times = moved / of->op->cost(&call).bytes;
    if (c->tells)
        printf("| %s | %s | %lld x %lld | %.3f |\n", of->op->name, precision->name, (long long)of->to[0],
               (long long)of->to[1], times);
    if (!(times <= of->most + 1e-9))
        fail_msg("%s, %s: moves %.3f times its floor, %.2f allowed", of->op->name, precision->name, times, of->most);
    if (!(times >= 0.8)) fail_msg("%s, %s: moves %.3f times its floor", of->op->name, precision->name, times);
    c->judged++;
    for (int i = 0; i < TM_MAX_IN + TM_MAX_OUT; i++) {
        const tm_view *view = view_at(&call, i);
        if (tm_view_present(view))
            tm_device_release(c->device, (tm_address){ (uintptr_t)view->data },
                              tm_tensor_bytes(view->shape, view->dtype));
    }
    tm_device_release(c->device, (tm_address){ (uintptr_t)call.workspace }, call.workspace_bytes);
}

/* False: there is no compiler. */
static bool open_counter(counter *c, const char *maker)
{
    tm_error err = { 0 };
    if (!emulated_device(maker)) return false;
    void *runtime = dlopen(getenv("TRAINMARK_GPU_RUNTIME"), RTLD_NOW); /* it stays, with what it counts */
    *(void **)&c->count = runtime ? dlsym(runtime, "standin_count") : NULL;
    *(void **)&c->used = runtime ? dlsym(runtime, "standin_used") : NULL;
    *(void **)&c->counted = runtime ? dlsym(runtime, "standin_counted") : NULL;
    if (!c->count || !c->used || !c->counted) fail_msg("nothing counts in %s", getenv("TRAINMARK_GPU_RUNTIME"));
    if (tm_device_open(maker, 2, &c->device, &err) != TM_OK) fail_msg("%s", err.text);
    return true;
}

/* Of a run of float32 clang loads the first element alone, too. */
static bool is_counted(const tm_op *op, int precision)
{
    return !is_coder(op) || precision > 0;
}

static int judge_all(const char *maker, bool tells)
{
    static const tm_precision *const precisions[] = { &tm_precision_f32, &tm_precision_bf16, &tm_precision_bf16_pure };
    counter                          c = { .tells = tells };
    if (!open_counter(&c, maker)) return 0;
    for (int i = 0; i < TM_COUNT_OF(cases); i++)
        for (int p = 0; p < 3; p++)
            if (is_counted(cases[i].op, p)) judge(&c, &cases[i], precisions[p]);
    tm_device_close(c.device);
    return c.judged;
}

static void kernels_move_their_floor(const char *maker)
{
    if (gpu_is_real()) skip();
    int judged = judge_all(maker, false);
    if (!judged) skip();
    assert_int_equal(judged, 3 * TM_COUNT_OF(cases) - 2);
}

ON_BOTH(FULL_TEST, traffic, kernels_move_their_floor(on))

/* --- products by matrix units: no two lanes meet in a bank of shared memory */

static void make_product(const tm_op *op, tm_example *e, tm_dtype code)
{
    enum { ROWS = 200, COLUMNS = 144, DEPTH = 192 };
    bool codes = op == &tm_op_scaled_mm;
    tm_example_begin(e, NULL, 0);
    tm_example_in(e, 0, TM_ROLE_ACTIVATION, tm_shape_2(ROWS, DEPTH), 0, 1);
    tm_example_in(e, 1, codes ? TM_ROLE_ACTIVATION : TM_ROLE_PARAMETER, tm_shape_2(COLUMNS, DEPTH), 0, 1);
    if (codes) tm_example_in(e, 2, TM_ROLE_STATISTIC, tm_shape_1(1), 1, 0);
    if (codes) tm_example_in(e, 3, TM_ROLE_STATISTIC, tm_shape_1(COLUMNS), 1, 0);
    if (codes) e->dtype[0] = e->dtype[1] = code;
}

static void no_lanes_meet(const char *maker)
{
    static const tm_op *const ops[] = { &tm_op_linear, &tm_op_scaled_mm };
    counter                   c = { .tells = false };
    if (gpu_is_real() || !open_counter(&c, maker)) skip();
    for (int i = 0; i < TM_COUNT_OF(ops); i++) {
        tm_example example;
        make_product(ops[i], &example, strcmp(maker, "hip") == 0 ? TM_E4M3FNUZ : TM_E4M3);
        tm_call call = tm_example_call(ops[i], &example, &tm_precision_bf16_pure);
        call.device = c.device;
        tm_device_own_kernels(c.device, true);
        const tm_kernel *kernel = kernel_for(&call);
        if (!kernel || !strstr(kernel->name, "/matrix")) fail_msg("no matrix units for %s", ops[i]->name);
        launch(&c, &call, kernel);
        machine_counts n = c.counted();
        assert_true(n.matrix_flops >= 2.0 * 200 * 144 * 192 && n.shared_least > 0);
        if (n.shared_cycles != n.shared_least)
            fail_msg("%s on %s: %llu cycles of shared memory, %llu without conflicts", kernel->name, maker,
                     (unsigned long long)n.shared_cycles, (unsigned long long)n.shared_least);
    }
    tm_device_close(c.device);
}

ON_BOTH(FULL_TEST, no_lanes_meet, no_lanes_meet(on))

static int tell(int argc, char **argv)
{
    return argc == 3 && judge_all(argv[2], true) ? 0 : 1;
}

TM_TEST_ROLE("traffic", tell)
