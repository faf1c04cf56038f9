/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of weights in the compute format from step to step, on a device that is made to want them. Who reads what.
 * (Bits: tests/differential, compare.copies.) */
#include "support/training.h"

#include <string.h>

#include "support/test.h"

static tm_step_options options_of(tm_step_options o)
{
    o.precision = &tm_precision_bf16;
    o.accumulation = 2;
    return o;
}

/* A Llama, a GPT with a tied table and averages, one with an optimizer that writes no copies, and one whose blocks are
 * computed again. */
enum { MODELS = 4 };
static tm_step_options model(int which)
{
    tm_step_options o = options_of(which == 1 ? test_gpt_options() : test_llama_options());
    if (which == 1) o.hyper.ema_decay = 0.5;
    if (which == 2) o.optimizer = &tm_optimizer_sgd, o.hyper.momentum = 0.5;
    if (which == 3) o.recompute = (tm_recompute){ .cheap = true, .every_n = 1 };
    return o;
}

static tm_step *plan_with(bool copies, int64_t room, const tm_step_options *o)
{
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    chooser.weight_copies = copies;
    chooser.room = room;
    tm_step *step = test_step_plan(o, &chooser);
    tm_device_close(device);
    return step;
}

/* --- plans -------------------------------------------------------------------------------------------------------- */

static bool casts_weight(const tm_graph *graph, const tm_node *node)
{
    return node->op == TM_OP_cast && tm_graph_at(graph, node->in[0])->role == TM_ROLE_PARAMETER;
}

static const tm_node *writer_of(const tm_step *step, const char *program, tm_tensor_id id)
{
    const tm_program *p = tm_plan_program(step->plan, program);
    const tm_node    *found = NULL;
    for (size_t x = 0; x < p->count; x++)
        for (int k = 0; k < TM_MAX_OUT; k++)
            if (p->instructions[x].node->out[k] == id) found = p->instructions[x].node;
    return found;
}

/* A copy: as large as its weight; written by the update if the weight is, by the op of the optimizer if that can. */
static size_t check_copy(const tm_step *step, tm_tensor_id copy, bool by_op)
{
    const tm_graph  *graph = step->graph;
    const tm_node   *made = writer_of(step, "copies", copy), *update = writer_of(step, "update", copy);
    const tm_tensor *weight = tm_graph_at(graph, made->in[0]);
    assert_int_equal(made->op, TM_OP_cast);
    assert_true(weight->role == TM_ROLE_PARAMETER && weight->dtype == TM_F32);
    assert_true(tm_graph_at(graph, copy)->dtype == TM_BF16 &&
                tm_shape_equal(weight->shape, tm_graph_at(graph, copy)->shape));
    assert_true(update != NULL && (update->op == TM_OP_adamw) == by_op && update->in[0] == made->in[0]);
    if (!by_op) assert_int_equal(update->op, TM_OP_cast);
    return tm_plan_aligned(step->plan, step->plan->places[copy].bytes);
}

TEST(programs_read_copies)
{
    for (int m = 0; m < MODELS; m++) {
        tm_step_options o = model(m);
        tm_step        *step = plan_with(true, 0, &o);
        const tm_graph *graph = step->graph;
        size_t          casts = 0, copies = 0, bytes = 0;
        for (size_t p = 0; p < step->plan->n_programs; p++) {
            const tm_program *program = &step->plan->programs[p];
            bool              own = program == step->copies || (program == step->update && m == 2);
            for (size_t x = 0; x < program->count; x++) {
                if (!casts_weight(graph, program->instructions[x].node)) continue;
                if (!own) fail_msg("model %d, program %s casts a weight", m, program->name);
                casts += program == step->copies;
            }
        }
        for (size_t i = 0; i < graph->n_tensors; i++) {
            assert_true(graph->tensors[i].role != TM_ROLE_WEIGHT_COPY || step->plan->places[i].program < 0);
            if (graph->tensors[i].role != TM_ROLE_COPY || graph->tensors[i].base != TM_NONE) continue;
            bytes += check_copy(step, (tm_tensor_id)i, m != 2);
            copies++;
        }
        assert_true(copies > 0 && copies == casts);
        for (size_t c = 0; c < step->plan->n_classes; c++)
            if (strcmp(step->plan->by_class[c].name, "copies") == 0) bytes -= (size_t)step->plan->by_class[c].value;
        assert_int_equal(bytes, 0);
        tm_step_destroy(step);
    }
}

/* A part of a weight becomes the same part of its copy. */
TEST(parts_are_those_of_copies)
{
    const tm_chooser chooser = { .weight_copies = true };
    const tm_piece   piece = { .name = "b", .rows = 6 };
    tm_graph        *graph = tm_graph_create(&tm_precision_bf16);
    tm_graph_segment(graph, "first");
    tm_tensor_id b = tm_graph_parameter(graph, "b", tm_shape_1(6), &piece, 1);
    tm_tensor_id part = tm_graph_run(graph, "part", b, 2, tm_shape_1(3));
    tm_tensor_id x = tm_graph_tensor(graph, "x", TM_ROLE_ACTIVATION, tm_shape_2(4, 3));
    tm_tensor_id in[TM_MAX_IN] = { x, x, part }, out[TM_MAX_OUT] = { TM_NONE };
    tm_graph_add(graph, TM_OP_add_bias, NULL, 0, in, out, 0);
    tm_precision_pass(graph);
    assert_int_equal(graph->segment->n_nodes, 2);
    tm_resident_pass(graph, &chooser);
    assert_int_equal(graph->segment->n_nodes, 1);
    const tm_tensor *read = tm_graph_at(graph, graph->segment->nodes[0].in[2]);
    const tm_node   *made = &graph->segments[1]->nodes[0];
    assert_true(graph->n_segments == 2 && graph->segments[1]->n_nodes == 1);
    assert_true(made->op == TM_OP_cast && made->in[0] == b && made->out[0] == read->base);
    assert_true(read->role == TM_ROLE_COPY && read->offset == 2 && tm_shape_elements(read->shape) == 3);
    tm_graph_destroy(graph);
}

/* Nobody wants them, nothing is cast, or the plan would be too large: the plan with casts. */
TEST(others_have_none)
{
    tm_step_options o = model(0), whole = model(0);
    whole.precision = &tm_precision_f32;
    whole.compared = &tm_precision_bf16; /* the microscope casts */
    tm_step *with = plan_with(true, 0, &o), *without = plan_with(false, 0, &o), *wide = plan_with(true, 0, &whole);
    int64_t  room = (int64_t)with->plan->arena_bytes;
    assert_true(with->copies && !without->copies && !wide->copies);
    assert_true(without->plan->arena_bytes < with->plan->arena_bytes);
    tm_step *fits = plan_with(true, room, &o), *casts = plan_with(true, room - 1, &o), *none = plan_with(true, 1, &o);
    assert_true(fits->copies && !casts->copies && !none->copies);
    assert_true(fits->plan->arena_bytes == with->plan->arena_bytes);
    assert_true(none->plan->arena_bytes == casts->plan->arena_bytes);
    assert_true((int64_t)casts->plan->arena_bytes < room);
    tm_step *const all[] = { with, without, wide, fits, casts, none };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) tm_step_destroy(all[i]);
}
