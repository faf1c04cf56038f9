/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that a plan shares: what may be computed in place, whole steps with every tensor in memory of its own, and
 * the deepest model that may be asked for. Rules of any plan: test_plans.c. */
#include "support/training.h"

#include <time.h>

#include "support/test.h"

enum { CELL = 64 };

static const tm_recompute keep_all = { 0 }, cheap = { .cheap = true }, second = { .every_n = 2 },
                          full = { .cheap = true, .every_n = 1 }, blocks = { .every_n = 1 };

typedef struct {
    tm_model_family     family;
    const tm_precision *precision;
    int64_t             accumulation;
    const tm_recompute *recompute;
} configuration;

static const configuration small[] = {
    { TM_FAMILY_LLAMA, &tm_precision_f32, 1, &keep_all },  { TM_FAMILY_LLAMA, &tm_precision_f32, 4, &full },
    { TM_FAMILY_LLAMA, &tm_precision_bf16, 4, &cheap },    { TM_FAMILY_LLAMA, &tm_precision_bf16_pure, 1, &full },
    { TM_FAMILY_GPT, &tm_precision_f32, 4, &keep_all },    { TM_FAMILY_GPT, &tm_precision_bf16, 1, &second },
    { TM_FAMILY_GPT, &tm_precision_bf16_pure, 4, &cheap },
};

/* What may be computed in place and what may not, on a graph made for it. */
TEST(memory_is_shared_only_with_what_dies)
{
    tm_device   *device = test_device_open("cpu", 1);
    tm_chooser   chooser = tm_device_chooser(device);
    tm_graph    *g = tm_graph_create(&tm_precision_f32);
    tm_tensor_id a = tm_graph_constant(g, "a", tm_shape_2(8, 16), NULL, "", 1), t[7];
    const struct {
        tm_op_id op;
        int      x, y;  /* operands: numbers of results, -1: the constant, -2: none */
        int      owner; /* whose memory the result continues; -1: its own */
    } nodes[] = {
        { TM_OP_gelu, -1, -2, -1 }, /* 0: persistent memory is nobody's to continue */
        { TM_OP_gelu, 0, -2, -1 },  /* 1: 0 is read again by 2 */
        { TM_OP_add, 0, 1, 0 },     /* 2: both die, the first is taken */
        { TM_OP_add, 2, 2, -1 },    /* 3: read twice at once */
        { TM_OP_gelu, 3, -2, 3 },   /* 4 */
        { TM_OP_gelu, 4, -2, 3 },   /* 5: the memory of 3, at second hand */
        { TM_OP_add, -1, 5, 3 },    /* 6: the second operand dies */
    };
    tm_graph_segment(g, "only");
    for (int i = 0; i < 7; i++) {
        tm_tensor_id in[TM_MAX_IN] = { nodes[i].x < 0 ? a : t[nodes[i].x], nodes[i].y == -2 ? TM_NONE : t[nodes[i].y] },
                     out[TM_MAX_OUT] = { TM_NONE };
        tm_graph_add(g, nodes[i].op, NULL, 0, in, out, 0);
        t[i] = out[0];
    }
    tm_plan *plan;
    assert_int_equal(tm_plan_create(g, &chooser, &plan, NULL), TM_OK);
    for (int i = 0; i < 7; i++)
        if (plan->places[t[i]].shares != (nodes[i].owner < 0 ? -1 : t[nodes[i].owner]))
            fail_msg("result %d shares with %d", i, plan->places[t[i]].shares);
    assert_true(plan->places[t[6]].offset == plan->places[t[3]].offset && plan->places[t[3]].last == 6);
    tm_plan_destroy(plan);
    tm_graph_destroy(g);
    tm_device_close(device);
}

/* --- the same programs without any sharing ------------------------------------------------------------------------ */

/* Every tensor alone in memory; what lives within a program holds NaN before the program runs, its workspace too. */
static void run_apart(const tm_step *step, void **data, const tm_program *program)
{
    const tm_plan *plan = step->plan;
    for (size_t t = 0; t < plan->graph->n_tensors; t++)
        if (!tm_role_persistent(plan->graph->tensors[t].role) && plan->places[t].bytes)
            memset(data[t], 0xff, plan->places[t].bytes);
    for (size_t x = 0; x < program->count; x++) {
        const tm_instruction *i = &program->instructions[x];
        tm_call               call = i->call;
        for (int k = 0; k < TM_MAX_IN; k++) call.in[k].data = i->node->in[k] == TM_NONE ? NULL : data[i->node->in[k]];
        for (int k = 0; k < TM_MAX_OUT; k++)
            call.out[k].data = i->node->out[k] == TM_NONE ? NULL : data[i->node->out[k]];
        size_t room = (call.workspace_bytes + CELL) / CELL * CELL;
        call.workspace = call.workspace_bytes ? aligned_alloc(CELL, room) : NULL;
        if (call.workspace) memset(call.workspace, 0xff, room);
        i->kernel->run(&call);
        free(call.workspace);
    }
}

static void **copy_apart(const tm_trainer *trainer)
{
    const tm_plan *plan = tm_trainer_step_of(trainer)->plan;
    void         **data = calloc(plan->graph->n_tensors, sizeof *data);
    assert_non_null(data);
    for (size_t t = 0; t < plan->graph->n_tensors; t++) {
        if (!plan->places[t].bytes) continue;
        data[t] = aligned_alloc(CELL, (plan->places[t].bytes + CELL) / CELL * CELL);
        assert_non_null(data[t]);
        if (!tm_role_persistent(plan->graph->tensors[t].role)) continue;
        void *values = test_tensor_read(trainer, (tm_tensor_id)t);
        memcpy(data[t], values, plan->places[t].bytes);
        free(values);
    }
    for (size_t t = 0; t < plan->graph->n_tensors; t++) {
        const tm_tensor *view = &plan->graph->tensors[t];
        if (view->base != TM_NONE)
            data[t] = (char *)data[view->base] + (size_t)view->offset * tm_dtype_bytes(view->dtype);
    }
    return data;
}

static void check_apart(const configuration *c)
{
    tm_device      *device = test_device_open("cpu", 1);
    tm_step_options options = c->family == TM_FAMILY_GPT ? test_gpt_options() : test_llama_options();
    options.precision = c->precision;
    options.accumulation = c->accumulation;
    options.recompute = *c->recompute;
    tm_trainer    *trainer = test_trainer_open(device, &options, 5);
    const tm_step *step = tm_trainer_step_of(trainer);
    test_batch     batch =
        test_batch_random(options.micro_batch * options.accumulation, options.seq, options.shape.vocab_size, 6);
    int64_t    rows = options.micro_batch * options.seq;
    size_t     kept = step->plan->persistent_bytes - step->plan->spaces[TM_SPACE_DEVICE].gradient_bytes;
    tm_address transient = tm_address_add(tm_trainer_arena(trainer), kept);
    void     **data = copy_apart(trainer);
    assert_ok(tm_device_fill(device, transient, 0xff, step->plan->arena_bytes - kept,
                             err)); /* NaN in every format, in the gradients, too */
    test_begin(trainer, 1, 1e-3, 1, batch.target_tokens);
    void *scalars = test_tensor_read(trainer, step->scalars);
    memcpy(data[step->scalars], scalars, step->plan->places[step->scalars].bytes);
    free(scalars);
    for (int64_t i = 0; i < options.accumulation; i++) {
        test_accumulate(trainer, i, batch.tokens + i * rows, batch.targets + i * rows);
        memcpy(data[step->tokens], batch.tokens + i * rows, (size_t)rows * sizeof(int32_t));
        memcpy(data[step->targets], batch.targets + i * rows, (size_t)rows * sizeof(int32_t));
        run_apart(step, data, i == 0 ? step->first : step->further);
    }
    tm_step_result result = test_update(trainer);
    run_apart(step, data, step->update);
    assert_true(isfinite(result.loss) && isfinite(result.grad_norm) && result.grad_norm > 0);
    for (size_t t = 0; t < step->graph->n_tensors; t++) {
        const tm_tensor *tensor = &step->graph->tensors[t];
        if (!tm_role_persistent(tensor->role) || tensor->base != TM_NONE) continue;
        void *values = test_tensor_read(trainer, (tm_tensor_id)t);
        if (memcmp(data[t], values, step->plan->places[t].bytes) != 0)
            fail_msg("configuration %d: '%s' differs from the one computed in memory of its own", (int)(c - small),
                     tensor->name);
        free(values);
    }
    for (size_t t = 0; t < step->graph->n_tensors; t++)
        if (step->graph->tensors[t].base == TM_NONE) free(data[t]);
    free(data);
    test_batch_fini(&batch);
    tm_trainer_close(trainer);
    tm_device_close(device);
}

TEST(shared_memory_changes_no_bit)
{
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++) check_apart(&small[i]);
}

/* More than 200,000 tensors, graph and plan. */
FULL_TEST(the_deepest_models_are_planned_at_once)
{
    static const struct {
        const char         *preset;
        int64_t             micro_batch, seq;
        const tm_recompute *recompute;
    } deep[] = { { "llama3.1_405B", 1, 8192, &cheap }, { "gpt-small", 8, 512, &blocks } };
    for (int i = 0; i < 2; i++) {
        struct timespec from, to;
        tm_step_options o = test_llama_options();
        o.shape = test_shape_preset(deep[i].preset, "model.n_layers=4096");
        o.micro_batch = deep[i].micro_batch;
        o.seq = deep[i].seq;
        o.recompute = *deep[i].recompute;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
        tm_step *step = test_step_of(&o);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
        assert_true(step->graph->n_tensors >= 200000 && to.tv_sec - from.tv_sec < 10);
        assert_true((double)step->plan->arena_bytes <= 1.001 * (double)step->plan->live_peak);
        tm_step_destroy(step);
    }
}
