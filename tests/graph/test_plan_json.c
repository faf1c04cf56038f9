/* SPDX-License-Identifier: Apache-2.0 */
/* What `explain --json` says of a plan is the plan: every member of every instruction and tensor, read back. */
#include "support/training.h"

#include "base/arena.h"
#include "graph/plan.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

static const char *text_of(const json_t *object, const char *member)
{
    const char *text = json_string_value(json_object_get(object, member));
    if (!text) fail_msg("no text '%s'", member);
    return text;
}

static double number_of(const json_t *object, const char *member)
{
    const json_t *value = json_object_get(object, member);
    if (!json_is_number(value)) fail_msg("no number '%s'", member);
    return json_number_value(value);
}

static void check_tensor(const tm_plan *plan, tm_tensor_id id, const json_t *json)
{
    const tm_tensor *tensor = tm_graph_at(plan->graph, id);
    tm_place         place = tm_plan_place(plan, id);
    const json_t    *shape = json_object_get(json, "shape");
    assert_string_equal(text_of(json, "name"), tensor->name);
    assert_string_equal(text_of(json, "dtype"), tm_dtype_name(tensor->dtype));
    assert_string_equal(text_of(json, "class"), tm_role_memory_class(tensor->role));
    assert_string_equal(text_of(json, "space"), tm_space_name(tensor->space));
    assert_int_equal(json_array_size(shape), tensor->shape.rank);
    for (int i = 0; i < tensor->shape.rank; i++)
        assert_int_equal(json_integer_value(json_array_get(shape, (size_t)i)), tensor->shape.n[i]);
    assert_true(number_of(json, "offset") == (double)place.offset && number_of(json, "bytes") == (double)place.bytes);
    assert_true(number_of(json, "first") == place.first && number_of(json, "last") == place.last);
}

static void check_tensors(const tm_plan *plan, const tm_tensor_id *ids, int n, const json_t *json)
{
    size_t seen = 0;
    for (int k = 0; k < n; k++)
        if (ids[k] != TM_NONE) check_tensor(plan, ids[k], json_array_get(json, seen++));
    assert_int_equal(json_array_size(json), seen);
}

static void check_streams(const tm_instruction *i, const json_t *json)
{
    const json_t *waits = json_object_get(json, "waits");
    size_t        n = 0;
    assert_string_equal(text_of(json, "stream"), tm_stream_label(i->stream));
    for (int s = 0; s < TM_STREAMS; s++) {
        if (i->waits[s] < 0) continue;
        assert_true(number_of(waits, tm_stream_label((tm_stream)s)) == i->waits[s]);
        n++;
    }
    assert_int_equal(json_object_size(waits), n);
}

static void check_instruction(const tm_plan *plan, const tm_chooser *chooser, const tm_instruction *i,
                              const json_t *json)
{
    static const char *const phases[] = { "forward", "backward", "update" };
    assert_string_equal(text_of(json, "op"), i->call.op->name);
    assert_string_equal(text_of(json, "module"), i->node->module);
    assert_string_equal(text_of(json, "phase"), phases[i->node->phase]);
    assert_string_equal(text_of(json, "kernel"), i->kernel->name);
    assert_true(number_of(json, "layer") == i->node->layer);
    assert_true(json_is_true(json_object_get(json, "recomputed")) == i->node->recomputed);
    assert_true(number_of(json, "flops") == i->cost.flops && number_of(json, "bytes") == i->cost.bytes);
    assert_true(number_of(json, "vector") == i->cost.vector);
    assert_true(number_of(json, "workspace_bytes") == (double)i->call.workspace_bytes);
    assert_true(number_of(json, "workspace_offset") == (double)i->workspace_offset);
    check_streams(i, json);
    tm_text refusals = { 0 };
    chooser->choose(chooser->context, &i->call, &refusals);
    if (refusals.data)
        assert_string_equal(text_of(json, "refused"), refusals.data);
    else
        assert_null(json_string_value(json_object_get(json, "refused")));
    tm_text_fini(&refusals);
    check_tensors(plan, i->node->in, i->call.op->n_in, json_object_get(json, "inputs"));
    check_tensors(plan, i->node->out, i->call.op->n_out, json_object_get(json, "outputs"));
}

/* Costs of a program are the sums of its instructions'. */
static void check_program(const tm_plan *plan, const tm_chooser *chooser, const tm_program *program, const json_t *json)
{
    const json_t *list = json_object_get(json, "instructions");
    double        flops = 0, bytes = 0;
    assert_string_equal(text_of(json, "name"), program->name);
    assert_int_equal(json_array_size(list), program->count);
    for (size_t x = 0; x < program->count; x++) {
        const json_t *instruction = json_array_get(list, x);
        check_instruction(plan, chooser, &program->instructions[x], instruction);
        flops += number_of(instruction, "flops");
        bytes += number_of(instruction, "bytes");
    }
    assert_true(number_of(json, "flops") == flops && number_of(json, "bytes") == bytes && bytes > 0);
    assert_true(number_of(json, "transient_bytes") == (double)program->bytes);
    assert_true(number_of(json, "live_peak_bytes") == (double)program->live_peak);
}

/* Classes, their sum, and no others. */
static void check_memory(const json_t *memory, const tm_named_i64 *by_class, size_t n, size_t all)
{
    int64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        assert_true(number_of(memory, by_class[i].name) == (double)by_class[i].value);
        sum += by_class[i].value;
    }
    assert_true(sum > 0 && (size_t)sum == all && json_object_size(memory) == n);
}

static void check_plan(const tm_step_options *o)
{
    tm_device     *device = test_device_open("cpu", 1);
    tm_chooser     chooser = tm_device_chooser(device);
    tm_step       *step = test_step_plan(o, &chooser);
    const tm_plan *plan = step->plan;
    tm_text        text = { 0 };
    tm_json        json = { .out = &text };
    tm_json_open(&json, NULL, '{');
    tm_plan_json(plan, &chooser, &json);
    tm_json_close(&json, '}');
    json_t *read = json_loads(text.data, 0, NULL);
    assert_non_null(read);
    const json_t *programs = json_object_get(read, "programs");
    assert_int_equal(json_array_size(programs), plan->n_programs);
    for (size_t p = 0; p < plan->n_programs; p++)
        check_program(plan, &chooser, &plan->programs[p], json_array_get(programs, p));
    check_memory(json_object_get(read, "memory"), plan->by_class, plan->n_classes, plan->arena_bytes);
    assert_true(number_of(read, "arena_bytes") == (double)plan->arena_bytes);
    assert_true(number_of(read, "live_peak_bytes") == (double)plan->live_peak);
    const tm_space_plan *host = &plan->spaces[TM_SPACE_HOST];
    assert_true((host->arena_bytes > 0) == o->offload.optimizer && !json_object_get(read, "disk_memory"));
    if (host->arena_bytes > 0) {
        check_memory(json_object_get(read, "host_memory"), host->by_class, host->n_classes, host->arena_bytes);
        assert_true(number_of(read, "host_bytes") == (double)host->arena_bytes);
    } else {
        assert_null(json_object_get(read, "host_memory"));
    }
    json_decref(read);
    tm_text_fini(&text);
    tm_step_destroy(step);
    tm_device_close(device);
}

TEST(json_is_the_plan)
{
    tm_step_options o = test_llama_options();
    o.recompute.cheap = true;
    check_plan(&o);
    o.offload.optimizer = o.offload.activations = true;
    o.offload.space = TM_SPACE_HOST;
    check_plan(&o);
}
