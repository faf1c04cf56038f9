/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels are prepared once for all equal calls of a plan, get what was prepared, and are released. */

#include "support/test.h"

#include "device/backend.h"
#include "support/training.h"

/* What a kernel prepares: what it was prepared for. */
typedef struct {
    tm_op_id op;
    tm_shape in, out;
} ready_for;

static int prepared, released, ran, fail_at;

static tm_status prepare(const void *context, const tm_call *call, void **state, tm_error *err)
{
    assert_non_null(context);
    if (++prepared == fail_at) return tm_fail(err, TM_DEVICE, "cannot compile");
    ready_for *made = calloc(1, sizeof *made);
    assert_non_null(made);
    *made = (ready_for){ tm_op_id_of(call->op), call->in[0].shape, call->out[0].shape };
    *state = made;
    return TM_OK;
}

static void release(void *state)
{
    released++;
    free(state);
}

static void run(const tm_call *call)
{
    const ready_for *made = call->state;
    assert_non_null(made);
    assert_non_null(call->queue);
    assert_int_equal(made->op, tm_op_id_of(call->op));
    assert_true(tm_shape_equal(made->in, call->in[0].shape) && tm_shape_equal(made->out, call->out[0].shape));
    ran++;
}

static const tm_kernel *choose(const tm_device *device, const tm_call *call, tm_text *refusals)
{
    static const tm_kernel kernels[TM_OP_COUNT] = {
#define TM_OP(id) { .op = TM_OP_##id, .name = #id "/counted", .run = run, .prepare = prepare, .release = release },
#include "op/ops.def"
#undef TM_OP
    };
    (void)device;
    (void)refusals;
    return &kernels[tm_op_id_of(call->op)];
}

static tm_device *open_counting(tm_backend *backend)
{
    tm_device *device;
    *backend = tm_backend_null;
    backend->choose = choose;
    prepared = released = ran = fail_at = 0;
    assert_ok(tm_device_open_backend(backend, 1, false, &device, err));
    return device;
}

/* Different calls among all instructions of a plan, counted the slow way. */
static int different_calls(const tm_plan *plan)
{
    int count = 0;
    for (size_t p = 0; p < plan->n_programs; p++)
        for (size_t x = 0; x < plan->programs[p].count; x++) {
            const tm_instruction *a = &plan->programs[p].instructions[x];
            bool                  seen = false;
            for (size_t q = 0; q <= p && !seen; q++)
                for (size_t y = 0; y < (q < p ? plan->programs[q].count : x) && !seen; y++) {
                    const tm_instruction *b = &plan->programs[q].instructions[y];
                    seen = a->call.op == b->call.op &&
                           (a->node->attr_bytes == 0 || memcmp(a->call.attr, b->call.attr, a->node->attr_bytes) == 0);
                    for (int k = 0; k < TM_MAX_IN + TM_MAX_OUT && seen; k++) {
                        const tm_view *v = k < TM_MAX_IN ? &a->call.in[k] : &a->call.out[k - TM_MAX_IN];
                        const tm_view *w = k < TM_MAX_IN ? &b->call.in[k] : &b->call.out[k - TM_MAX_IN];
                        seen = tm_shape_equal(v->shape, w->shape) &&
                               (!tm_view_present(v) || (v->dtype == w->dtype && tm_view_ld(v) == tm_view_ld(w)));
                    }
                }
            count += !seen;
        }
    return count;
}

TEST(equal_layers_share_what_is_prepared)
{
    int of[2];
    for (int i = 0; i < 2; i++) {
        tm_backend      backend;
        tm_device      *device = open_counting(&backend);
        tm_step_options options = test_llama_options();
        options.shape.n_layers = i ? 12 : 3;
        options.precision = &tm_precision_bf16;
        tm_trainer *trainer = test_trainer_open(device, &options, 1);
        of[i] = prepared;
        assert_int_equal(prepared, different_calls(tm_trainer_step_of(trainer)->plan));
        assert_int_equal(released, 0);
        test_batch batch = test_batch_random(options.micro_batch, options.seq, options.shape.vocab_size, 1);
        test_step(trainer, 1, 1e-3, 1, &batch);
        assert_int_equal(prepared, of[i]); /* nothing is prepared in a step */
        assert_true(ran > prepared);
        test_batch_fini(&batch);
        tm_trainer_close(trainer);
        assert_int_equal(released, prepared);
        tm_device_close(device);
    }
    assert_true(of[0] > 20);
    assert_int_equal(of[0], of[1]);
}

/* The same op on tensors of the same shape: formats tell calls apart. */
TEST(formats_are_prepared_for)
{
    tm_backend backend;
    tm_device *device = open_counting(&backend);
    tm_graph  *g = tm_graph_create(&tm_precision_f32);
    tm_chooser chooser = tm_device_chooser(device);
    tm_plan   *plan;
    tm_loaded *loaded;
    tm_address arena;
    tm_shape   shape = tm_shape_2(4, 8);
    tm_graph_segment(g, "only");
    for (int i = 0; i < 4; i++) {
        tm_dtype     dtype = i % 2 ? TM_BF16 : TM_F32;
        tm_tensor_id x = tm_graph_tensor_as(g, "x", TM_ROLE_INPUT, shape, dtype);
        tm_tensor_id in[TM_MAX_IN] = { x, x }, out[TM_MAX_OUT];
        for (int k = 0; k < TM_MAX_OUT; k++) out[k] = TM_NONE;
        out[0] = tm_graph_tensor_as(g, "y", TM_ROLE_INPUT, shape, dtype);
        tm_graph_add(g, TM_OP_add, NULL, 0, in, out, 0);
    }
    assert_ok(tm_plan_create(g, &chooser, &plan, err));
    assert_ok(tm_device_alloc(device, plan->arena_bytes, &arena, err));
    assert_ok(tm_device_load(device, plan, &(tm_arenas){ .base = { arena } }, &loaded, err));
    assert_int_equal(prepared, 2);
    assert_ok(tm_device_run(device, &plan->programs[0], NULL, err));
    assert_int_equal(ran, 4);
    tm_device_unload(loaded);
    tm_device_release(device, arena, plan->arena_bytes);
    tm_plan_destroy(plan);
    tm_graph_destroy(g);
    tm_device_close(device);
}

TEST(a_failure_releases_what_was_prepared)
{
    for (int n = 1; n <= 20; n++) {
        tm_backend      backend;
        tm_device      *device = open_counting(&backend);
        tm_step_options options = test_llama_options();
        tm_trainer     *trainer = NULL;
        fail_at = n;
        assert_refused(tm_trainer_open(device, &options, 1, &trainer, err), TM_DEVICE, "cannot compile");
        assert_null(trainer);
        assert_int_equal(prepared, n);
        assert_int_equal(released, n - 1);
        tm_device_close(device);
    }
}
