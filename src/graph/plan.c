/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/plan.h"

#include "graph/place.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN_BYTES = 64 };

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

static void place_persistent(tm_plan *plan)
{
    size_t used = 0;
    for (int role = 0; role < TM_ROLE_COUNT; role++) {
        if (!tm_role_persistent((tm_role)role)) continue;
        for (size_t i = 0; i < plan->graph->n_tensors; i++) {
            const tm_tensor *tensor = &plan->graph->tensors[i];
            if ((int)tensor->role != role || tensor->base != TM_NONE) continue;
            plan->places[i] = (tm_place){
                .offset = used, .bytes = tm_tensor_bytes(tensor->shape, tensor->dtype), .program = -1, .first = -1, .last = -1, .shares = -1
            };
            used += aligned(plan->places[i].bytes);
        }
    }
    plan->persistent_bytes = used;
}

static void touch(tm_plan *plan, int32_t program, tm_tensor_id id, int32_t x)
{
    if (id == TM_NONE) return;
    id = tm_graph_base(plan->graph, id); /* whoever uses a view uses what it is a view of */
    const tm_tensor *tensor = tm_graph_at(plan->graph, id);
    if (tm_role_persistent(tensor->role)) return;
    tm_place *place = &plan->places[id];
    if (place->program < 0)
        *place = (tm_place){ .bytes = tm_tensor_bytes(tensor->shape, tensor->dtype), .program = program, .first = x, .last = x, .shares = -1 };
    TM_ASSERT(place->program == program); /* transient tensors do not cross segments */
    place->last = x;
}

static tm_tensor_id root_of(const tm_plan *plan, tm_tensor_id id)
{
    id = tm_graph_base(plan->graph, id);
    while (plan->places[id].shares >= 0) id = plan->places[id].shares;
    return id;
}

/* out[0] continues the memory of an input that dies at this instruction, where the op can work in place. */
static void share_memory(tm_plan *plan, const tm_node *node, int32_t x)
{
    const tm_op *op = tm_op_get(node->op);
    tm_tensor_id out = node->out[0];
    if (!op->inplace || out == TM_NONE || plan->places[out].program < 0 || plan->places[out].first != x) return;
    for (int i = 0; i < op->n_in; i++) {
        tm_tensor_id in = node->in[i];
        if (!(op->inplace & 1u << i) || in == TM_NONE || plan->places[in].program < 0) continue;
        tm_tensor_id root = root_of(plan, in);
        int          uses = 0;
        for (int j = 0; j < op->n_in; j++) uses += node->in[j] != TM_NONE && root_of(plan, node->in[j]) == root;
        const tm_tensor *a = tm_graph_at(plan->graph, in), *b = tm_graph_at(plan->graph, out);
        if (uses != 1 || plan->places[in].last != x || plan->places[root].last != x) continue;
        if (a->dtype != b->dtype || !tm_shape_equal(a->shape, b->shape)) continue;
        plan->places[out].shares = root;
        plan->places[root].last = plan->places[out].last;
        return;
    }
}

/* Why there is no kernel: the op, what it was given, who refused. */
static tm_status no_kernel(const tm_node *node, const tm_call *call, const tm_chooser *chooser, tm_error *err)
{
    tm_text what = { 0 }, refusals = { 0 };
    char    shape[96];
    for (int i = 0; i < call->op->n_in; i++)
        if (tm_view_present(&call->in[i]))
            tm_text_printf(&what, "%s%s %s", what.length ? ", " : "", tm_dtype_name(call->in[i].dtype),
                           tm_shape_text(shape, call->in[i].shape));
    chooser->choose(chooser->context, call, &refusals);
    tm_fail(err, TM_UNSUPPORTED, "no fast kernel for op '%s' in module '%s' (%s): %s", call->op->name, node->module,
            what.data, refusals.length ? refusals.data : "the device has none"); /* one line each */
    tm_text_fini(&what);
    tm_text_fini(&refusals);
    return TM_UNSUPPORTED;
}

static tm_status choose_kernels(tm_plan *plan, tm_program *program, const tm_segment *segment,
                                const tm_chooser *chooser, tm_error *err)
{
    *program = (tm_program){ .name = segment->name, .count = segment->n_nodes };
    program->instructions = tm_arena_take(plan->arena, segment->n_nodes * sizeof *program->instructions);
    for (size_t x = 0; x < segment->n_nodes; x++) {
        tm_instruction *i = &program->instructions[x];
        i->node = &segment->nodes[x];
        tm_node_call(plan->graph, i->node, &i->call);
        i->call.threads = chooser->threads;
        i->kernel = chooser->choose(chooser->context, &i->call, NULL);
        if (!i->kernel) return no_kernel(i->node, &i->call, chooser, err);
        i->call.workspace_bytes = i->kernel->workspace ? i->kernel->workspace(&i->call) : 0;
        i->cost = i->call.op->cost(&i->call);
        program->cost.flops += i->cost.flops;
        program->cost.bytes += i->cost.bytes;
        program->cost.vector += i->cost.vector;
        program->cost.wire += i->cost.wire;
    }
    return TM_OK;
}

static void place_program(tm_plan *plan, int32_t index)
{
    tm_program  *program = &plan->programs[index];
    size_t       n_tensors = plan->graph->n_tensors, n = 0;
    tm_interval *items = tm_alloc((n_tensors + program->count) * sizeof *items);
    for (size_t i = 0; i < n_tensors; i++) {
        const tm_place *place = &plan->places[i];
        if (place->program == index && place->shares < 0)
            items[n++] = (tm_interval){ .bytes = aligned(place->bytes), .first = place->first, .last = place->last };
    }
    for (size_t x = 0; x < program->count; x++)
        if (program->instructions[x].call.workspace_bytes)
            items[n++] = (tm_interval){ .bytes = aligned(program->instructions[x].call.workspace_bytes),
                                        .first = (int32_t)x,
                                        .last = (int32_t)x };
    program->live_peak = tm_place_lower_bound(items, n, (int32_t)program->count);
    program->bytes = tm_place_intervals(items, n, (int32_t)program->count);
    size_t k = 0;
    for (size_t i = 0; i < n_tensors; i++)
        if (plan->places[i].program == index && plan->places[i].shares < 0)
            plan->places[i].offset = plan->persistent_bytes + items[k++].offset;
    for (size_t x = 0; x < program->count; x++)
        if (program->instructions[x].call.workspace_bytes)
            program->instructions[x].workspace_offset = plan->persistent_bytes + items[k++].offset;
    free(items);
}

static tm_status plan_program(tm_plan *plan, int32_t index, const tm_chooser *chooser, tm_error *err)
{
    const tm_segment *segment = plan->graph->segments[index];
    TM_TRY(choose_kernels(plan, &plan->programs[index], segment, chooser, err));
    for (size_t x = 0; x < segment->n_nodes; x++) {
        for (int i = 0; i < TM_MAX_IN; i++) touch(plan, index, segment->nodes[x].in[i], (int32_t)x);
        for (int k = 0; k < TM_MAX_OUT; k++) touch(plan, index, segment->nodes[x].out[k], (int32_t)x);
    }
    for (size_t x = 0; x < segment->n_nodes; x++) share_memory(plan, &segment->nodes[x], (int32_t)x);
    place_program(plan, index);
    for (size_t i = 0; i < plan->graph->n_tensors; i++)
        if (plan->places[i].program == index && plan->places[i].shares >= 0)
            plan->places[i].offset = plan->places[root_of(plan, (tm_tensor_id)i)].offset;
    return TM_OK;
}

static void add_class(tm_plan *plan, const char *name, size_t bytes)
{
    if (bytes == 0) return;
    for (size_t i = 0; i < plan->n_classes; i++) {
        if (strcmp(plan->by_class[i].name, name) != 0) continue;
        plan->by_class[i].value += (int64_t)bytes;
        return;
    }
    TM_ASSERT(plan->n_classes < TM_MEMORY_CLASSES + 1);
    plan->by_class[plan->n_classes++] = (tm_named_i64){ name, (int64_t)bytes };
}

/* Bytes of each class at the fullest instruction of the fullest program: they add up to live_peak; what alignment and
 * placement lose on top is the class "padding". */
static void sum_classes(tm_plan *plan)
{
    const tm_program *fullest = NULL;
    int32_t           index = 0, at = 0;
    for (size_t i = 0; i < plan->n_programs; i++)
        if (!fullest || plan->programs[i].bytes > fullest->bytes) fullest = &plan->programs[i], index = (int32_t)i;
    size_t most = 0;
    size_t *live = tm_alloc((fullest->count + 2) * sizeof *live);
    for (size_t i = 0; i < plan->graph->n_tensors; i++) {
        const tm_place *p = &plan->places[i];
        if (p->program != index || p->shares >= 0) continue;
        live[p->first] += aligned(p->bytes);
        live[p->last + 1] -= aligned(p->bytes);
    }
    size_t sum = 0;
    for (size_t x = 0; x < fullest->count; x++) {
        sum += live[x];
        size_t here = sum + aligned(fullest->instructions[x].call.workspace_bytes);
        if (here > most) most = here, at = (int32_t)x;
    }
    free(live);
    size_t total = 0;
    for (size_t i = 0; i < plan->graph->n_tensors; i++) {
        const tm_place *p = &plan->places[i];
        bool            alive = p->program == index && p->shares < 0 && p->first <= at && at <= p->last;
        if (p->program == -1) alive = p->first == -1 && tm_role_persistent(plan->graph->tensors[i].role);
        if (!alive) continue;
        add_class(plan, tm_role_memory_class(plan->graph->tensors[i].role), aligned(p->bytes));
        total += aligned(p->bytes);
    }
    size_t workspace = fullest->count ? aligned(fullest->instructions[at].call.workspace_bytes) : 0;
    add_class(plan, tm_role_memory_class(TM_ROLE_WORKSPACE), workspace);
    total += workspace;
    TM_ASSERT(total <= plan->arena_bytes);
    add_class(plan, "padding", plan->arena_bytes - total);
}

tm_status tm_plan_create(const tm_graph *graph, const tm_chooser *chooser, tm_plan **out, tm_error *err)
{
    tm_plan *plan = tm_alloc(sizeof *plan);
    plan->graph = graph;
    plan->arena = tm_arena_create();
    plan->places = tm_arena_take(plan->arena, (graph->n_tensors + 1) * sizeof *plan->places);
    plan->programs = tm_arena_take(plan->arena, graph->n_segments * sizeof *plan->programs);
    plan->by_class = tm_arena_take(plan->arena, (TM_MEMORY_CLASSES + 1) * sizeof *plan->by_class);
    for (size_t i = 0; i < graph->n_tensors; i++)
        plan->places[i] = (tm_place){ .program = -1, .first = -2, .last = -2, .shares = -1 };
    place_persistent(plan);
    plan->n_programs = graph->n_segments;
    TM_ASSERT(plan->n_programs > 0);
    size_t transient = 0, live = 0;
    for (size_t i = 0; i < plan->n_programs; i++) {
        tm_status st = plan_program(plan, (int32_t)i, chooser, err);
        if (st != TM_OK) {
            tm_plan_destroy(plan);
            return st;
        }
        if (plan->programs[i].bytes > transient) transient = plan->programs[i].bytes;
        if (plan->programs[i].live_peak > live) live = plan->programs[i].live_peak;
    }
    plan->arena_bytes = plan->persistent_bytes + transient;
    plan->live_peak = plan->persistent_bytes + live;
    sum_classes(plan);
    *out = plan;
    return TM_OK;
}

void tm_plan_destroy(tm_plan *plan)
{
    if (!plan) return;
    tm_arena_destroy(plan->arena);
    free(plan);
}

tm_place tm_plan_place(const tm_plan *plan, tm_tensor_id id)
{
    const tm_tensor *tensor = tm_graph_at(plan->graph, id);
    tm_place         place = plan->places[tm_graph_base(plan->graph, id)];
    if (tensor->base == TM_NONE) return place;
    place.offset += (size_t)(tensor->offset * tm_dtype_bits(tensor->dtype) / 8);
    place.bytes = tm_tensor_bytes(tensor->shape, tensor->dtype);
    return place;
}

tm_address tm_plan_address(const tm_plan *plan, tm_address arena, tm_tensor_id id)
{
    tm_place place = tm_plan_place(plan, id);
    TM_ASSERT(place.bytes > 0);
    return tm_address_add(arena, place.offset);
}

/* As kernels get it: where it may be followed is theirs to know. */
static void *data_at(const tm_plan *plan, tm_address arena, tm_tensor_id id)
{
    return (void *)tm_plan_address(plan, arena, id).at; // NOLINT(performance-no-int-to-ptr)
}

void tm_plan_bind(tm_plan *plan, tm_address arena)
{
    for (size_t p = 0; p < plan->n_programs; p++)
        for (size_t x = 0; x < plan->programs[p].count; x++) {
            tm_instruction *i = &plan->programs[p].instructions[x];
            for (int k = 0; k < TM_MAX_IN; k++)
                if (i->node->in[k] != TM_NONE) i->call.in[k].data = data_at(plan, arena, i->node->in[k]);
            for (int k = 0; k < TM_MAX_OUT; k++)
                if (i->node->out[k] != TM_NONE) i->call.out[k].data = data_at(plan, arena, i->node->out[k]);
            i->call.workspace =
                i->call.workspace_bytes ? (void *)tm_address_add(arena, i->workspace_offset).at : NULL; // NOLINT
        }
}

const tm_program *tm_plan_program(const tm_plan *plan, const char *name)
{
    for (size_t i = 0; i < plan->n_programs; i++)
        if (strcmp(plan->programs[i].name, name) == 0) return &plan->programs[i];
    return NULL;
}
