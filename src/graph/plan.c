/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/plan.h"

#include "graph/lend.h"
#include "graph/place.h"
#include "graph/waits.h"

#include <stdlib.h>
#include <string.h>

enum { LEAST_ALIGN = 64 };

static const tm_place nowhere = { .program = TM_PERSISTENT, .first = -2, .last = -2, .shares = -1 };

size_t tm_plan_aligned(const tm_plan *plan, size_t bytes)
{
    return (bytes + plan->align - 1) / plan->align * plan->align;
}

static void place_role(tm_plan *plan, tm_role role)
{
    for (size_t i = 0; i < plan->graph->n_tensors; i++) {
        const tm_tensor *tensor = &plan->graph->tensors[i];
        if (tensor->role != role || tensor->base != TM_NONE || tm_graph_elsewhere(tensor)) continue;
        size_t *used = &plan->spaces[tensor->space].persistent_bytes;
        plan->places[i] = (tm_place){ .offset = *used,
                                      .bytes = tm_tensor_bytes(tensor->shape, tensor->dtype),
                                      .program = TM_PERSISTENT,
                                      .first = -1,
                                      .last = -1,
                                      .shares = -1 };
        *used += tm_plan_aligned(plan, plan->places[i].bytes);
    }
}

/* Gradients last: what they lend lies beside what programs share. */
static void place_persistent(tm_plan *plan)
{
    for (int role = 0; role < TM_ROLE_COUNT; role++)
        if (tm_role_persistent((tm_role)role) && role != TM_ROLE_GRADIENT) place_role(plan, (tm_role)role);
    for (int s = 0; s < TM_SPACE_COUNT; s++) plan->spaces[s].gradient_bytes = plan->spaces[s].persistent_bytes;
    place_role(plan, TM_ROLE_GRADIENT);
    for (int s = 0; s < TM_SPACE_COUNT; s++)
        plan->spaces[s].gradient_bytes = plan->spaces[s].persistent_bytes - plan->spaces[s].gradient_bytes;
}

static void touch(tm_plan *plan, int32_t program, const tm_node *node, tm_tensor_id id, int32_t x)
{
    if (id == TM_NONE) return;
    id = tm_graph_base(plan->graph, id); /* whoever uses a view uses what it is a view of */
    const tm_tensor *tensor = tm_graph_at(plan->graph, id);
    tm_place        *place = &plan->places[id];
    if (tm_role_persistent(tensor->role) || place->program == TM_ACROSS) return;
    if (place->program < 0)
        *place = (tm_place){ .bytes = tm_tensor_bytes(tensor->shape, tensor->dtype),
                             .program = program,
                             .first = x,
                             .last = x,
                             .shares = -1 };
    TM_ASSERT(place->program == program); /* transient tensors cross segments only in slots */
    place->last = x;
    place->streams |= 1u << node->stream;
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
        if (plan->places[root].streams != 1u << node->stream) continue; /* it would wait for the other stream */
        if (a->dtype != b->dtype || !tm_shape_equal(a->shape, b->shape)) continue;
        plan->places[out].shares = root;
        plan->places[root].last = plan->places[out].last;
        plan->places[root].streams |= plan->places[out].streams;
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
    if (refusals.length) refusals.data[--refusals.length] = 0; /* the last line's end */
    tm_fail(err, TM_UNSUPPORTED, "no fast kernel for op '%s' in module '%s' (%s): %s", call->op->name, node->module,
            what.length ? what.data : "reads nothing",
            refusals.length ? refusals.data : "the device has none"); /* one line each */
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
        i->stream = i->node->stream;
        tm_node_call(plan->graph, i->node, &i->call);
        i->call.threads = chooser->threads;
        i->call.device = chooser->context;
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

/* Where the region that programs share in turn begins. */
static size_t transient_offset(const tm_plan *plan, tm_space space)
{
    return plan->spaces[space].persistent_bytes + (size_t)plan->graph->slots * plan->spaces[space].slot_bytes;
}

static bool placed_here(const tm_plan *plan, size_t tensor, int32_t program, tm_space space)
{
    const tm_place *place = &plan->places[tensor];
    return place->program == program && place->shares < 0 && plan->graph->tensors[tensor].space == space;
}

/* The transient tensors of a program in one space, and on the device its workspaces. `items`: room for all. Returns the
 * bytes beyond those that gradients lend. */
static size_t place_in_space(tm_plan *plan, int32_t index, tm_space space, const tm_lenders *lenders,
                             tm_interval *items)
{
    tm_program *program = &plan->programs[index];
    size_t n_tensors = plan->graph->n_tensors, begin = transient_offset(plan, space) - lenders->bytes, n = 0, k = 0;
    size_t workspaces = space == TM_SPACE_DEVICE ? program->count : 0;
    for (size_t i = 0; i < n_tensors; i++)
        if (placed_here(plan, i, index, space))
            items[n++] = (tm_interval){ .bytes = tm_plan_aligned(plan, plan->places[i].bytes),
                                        .first = plan->places[i].first,
                                        .last = plan->places[i].last };
    for (size_t x = 0; x < workspaces; x++)
        if (program->instructions[x].call.workspace_bytes)
            items[n++] = (tm_interval){ .bytes = tm_plan_aligned(plan, program->instructions[x].call.workspace_bytes),
                                        .first = (int32_t)x,
                                        .last = (int32_t)x };
    if (space == TM_SPACE_DEVICE)
        program->live_peak = tm_place_bound_beside(lenders, items, n, (int32_t)program->count) - lenders->bytes;
    size_t bytes = tm_place_beside(lenders, items, n, (int32_t)program->count);
    for (size_t i = 0; i < n_tensors; i++)
        if (placed_here(plan, i, index, space)) plan->places[i].offset = begin + items[k++].offset;
    for (size_t x = 0; x < workspaces; x++)
        if (program->instructions[x].call.workspace_bytes)
            program->instructions[x].workspace_offset = begin + items[k++].offset;
    return bytes - lenders->bytes;
}

/* On the device: where gradients lend, or, where the holes between them would cost more than that saves, without. */
static size_t place_on_device(tm_plan *plan, int32_t index, tm_interval *items)
{
    const tm_lenders nobody = { 0 };
    tm_program      *program = &plan->programs[index];
    tm_interval     *lent = tm_alloc((plan->graph->n_tensors + 1) * sizeof *lent);
    tm_lend_find(plan, index);
    tm_lenders gradients = tm_lend_lenders(plan, index, lent);
    size_t     bytes = place_in_space(plan, index, TM_SPACE_DEVICE, &gradients, items), least = program->live_peak;
    if (program->written && bytes > least + least / 100) {
        const int32_t *written = program->written;
        size_t         plain = place_in_space(plan, index, TM_SPACE_DEVICE, &nobody, items);
        program->written = NULL;
        if (plain >= bytes) {
            program->written = written;
            plain = place_in_space(plan, index, TM_SPACE_DEVICE, &gradients, items);
        }
        bytes = plain;
    }
    free(lent);
    return bytes;
}

static void place_program(tm_plan *plan, int32_t index, const bool used[TM_SPACE_COUNT])
{
    const tm_lenders nobody = { 0 };
    tm_program      *program = &plan->programs[index];
    tm_interval     *items = tm_alloc((plan->graph->n_tensors + program->count) * sizeof *items);
    for (int space = 0; space < TM_SPACE_COUNT; space++)
        if (used[space] && space != TM_SPACE_DEVICE)
            program->outside_bytes[space] = place_in_space(plan, index, (tm_space)space, &nobody, items);
    program->bytes = place_on_device(plan, index, items);
    free(items);
}

static tm_status plan_program(tm_plan *plan, int32_t index, const bool used[TM_SPACE_COUNT], const tm_chooser *chooser,
                              tm_error *err)
{
    const tm_segment *segment = plan->graph->segments[index];
    TM_TRY(choose_kernels(plan, &plan->programs[index], segment, chooser, err));
    for (size_t x = 0; x < segment->n_nodes; x++) {
        const tm_node *node = &segment->nodes[x];
        for (int i = 0; i < TM_MAX_IN; i++) touch(plan, index, node, node->in[i], (int32_t)x);
        for (int k = 0; k < TM_MAX_OUT; k++) touch(plan, index, node, node->out[k], (int32_t)x);
    }
    for (size_t x = 0; x < segment->n_nodes; x++) share_memory(plan, &segment->nodes[x], (int32_t)x);
    place_program(plan, index, used);
    for (size_t i = 0; i < plan->graph->n_tensors; i++)
        if (plan->places[i].program == index && plan->places[i].shares >= 0)
            plan->places[i].offset = plan->places[root_of(plan, (tm_tensor_id)i)].offset;
    tm_waits_find(plan, &plan->programs[index]);
    return TM_OK;
}

/* --- slots -------------------------------------------------------------------------------------------------------- */

/* Notes in which programs a transient tensor is used: of what crosses, first and last. */
static void note_program(tm_plan *plan, int32_t program, tm_tensor_id id)
{
    if (id == TM_NONE) return;
    id = tm_graph_base(plan->graph, id);
    const tm_tensor *tensor = tm_graph_at(plan->graph, id);
    tm_place        *place = &plan->places[id];
    if (tm_role_persistent(tensor->role)) return;
    if (place->first < 0)
        *place = (tm_place){ .bytes = tm_tensor_bytes(tensor->shape, tensor->dtype),
                             .program = TM_ACROSS,
                             .first = program,
                             .last = program,
                             .shares = -1 };
    place->last = program;
}

/* What crosses programs gets its place in a slot; lifetimes are counted in programs, which a micro-batch runs in their
 * order. */
static void place_across(tm_plan *plan)
{
    const tm_graph *graph = plan->graph;
    if (graph->slots == 0) return;
    for (size_t p = 0; p < graph->n_segments; p++)
        for (size_t x = 0; x < graph->segments[p]->n_nodes; x++) {
            const tm_node *node = &graph->segments[p]->nodes[x];
            for (int i = 0; i < TM_MAX_IN; i++) note_program(plan, (int32_t)p, node->in[i]);
            for (int k = 0; k < TM_MAX_OUT; k++) note_program(plan, (int32_t)p, node->out[k]);
        }
    for (size_t i = 0; i < graph->n_tensors; i++)
        if (plan->places[i].program == TM_ACROSS && plan->places[i].first == plan->places[i].last)
            plan->places[i] = nowhere;
    tm_interval *items = tm_alloc((graph->n_tensors + 1) * sizeof *items);
    for (int space = 0; space < TM_SPACE_COUNT; space++) {
        size_t n = 0, k = 0;
        for (size_t i = 0; i < graph->n_tensors; i++)
            if (placed_here(plan, i, TM_ACROSS, (tm_space)space))
                items[n++] = (tm_interval){ .bytes = tm_plan_aligned(plan, plan->places[i].bytes),
                                            .first = plan->places[i].first,
                                            .last = plan->places[i].last };
        plan->spaces[space].slot_bytes = tm_place_intervals(items, n, (int32_t)graph->n_segments);
        for (size_t i = 0; i < graph->n_tensors; i++)
            if (placed_here(plan, i, TM_ACROSS, (tm_space)space))
                plan->places[i].offset = plan->spaces[space].persistent_bytes + items[k++].offset;
    }
    free(items);
}

/* The programs once more for each slot: the same instructions, until they are bound to other addresses. */
static void copy_programs(tm_plan *plan)
{
    size_t slots = (size_t)plan->graph->slots, n = plan->n_programs;
    if (slots == 0) return;
    plan->in_slot = tm_arena_take(plan->arena, slots * n * sizeof *plan->in_slot);
    for (size_t k = 0; k < slots * n; k++) plan->in_slot[k] = plan->programs[k % n];
}

/* Instructions of its own for a program in a slot; plan->programs are bound to slot 0. */
static void own_instructions(const tm_plan *plan, tm_program *program, const tm_program *of)
{
    size_t bytes = program->count * sizeof *program->instructions;
    if (bytes == 0 || program->instructions != of->instructions) return;
    program->instructions = tm_arena_take(plan->arena, bytes);
    memcpy(program->instructions, of->instructions, bytes);
}

int tm_execution_slots(tm_execution *list, size_t n)
{
    int32_t *holder = tm_alloc((n + 1) * sizeof *holder); /* of each slot: its micro-batch, or -1 */
    int32_t  slots = 0, most = -1;
    for (size_t i = 0; i < n; i++)
        if (list[i].micro_batch > most) most = list[i].micro_batch;
    size_t *last = tm_alloc(((size_t)most + 2) * sizeof *last); /* execution of each micro-batch */
    for (size_t i = 0; i < n; i++)
        if (list[i].micro_batch >= 0) last[list[i].micro_batch] = i;
    for (size_t i = 0; i < n; i++) {
        int32_t slot = 0, free_slot = -1;
        list[i].slot = 0;
        if (list[i].micro_batch < 0) continue;
        while (slot < slots && holder[slot] != list[i].micro_batch) {
            if (holder[slot] < 0 && free_slot < 0) free_slot = slot;
            slot++;
        }
        if (slot == slots) slot = free_slot >= 0 ? free_slot : slots++;
        holder[slot] = last[list[i].micro_batch] > i ? list[i].micro_batch : -1;
        list[i].slot = slot;
    }
    free(holder);
    free(last);
    return slots;
}

/* --- books -------------------------------------------------------------------------------------------------------- */

static void add_class(tm_space_plan *space, const char *name, int64_t bytes)
{
    if (bytes == 0) return;
    for (size_t i = 0; i < space->n_classes; i++) {
        if (strcmp(space->by_class[i].name, name) != 0) continue;
        space->by_class[i].value += bytes;
        return;
    }
    TM_ASSERT(space->n_classes < TM_MEMORY_CLASSES + 2);
    space->by_class[space->n_classes++] = (tm_named_i64){ name, bytes };
}

static size_t program_bytes(const tm_program *program, tm_space space)
{
    return space == TM_SPACE_DEVICE ? program->bytes : program->outside_bytes[space];
}

static size_t workspace_at(const tm_plan *plan, const tm_program *program, size_t x, tm_space space)
{
    return space == TM_SPACE_DEVICE ? tm_plan_aligned(plan, program->instructions[x].call.workspace_bytes) : 0;
}

/* Bytes of a gradient on the device, 0 of everything else. */
static size_t gradient_at(const tm_plan *plan, size_t tensor)
{
    const tm_tensor *t = &plan->graph->tensors[tensor];
    bool is = t->role == TM_ROLE_GRADIENT && t->space == TM_SPACE_DEVICE && plan->places[tensor].first == -1;
    return is ? tm_plan_aligned(plan, plan->places[tensor].bytes) : 0;
}

/* The instruction of a program at which most bytes are live. */
static int32_t fullest_instruction(const tm_plan *plan, int32_t index, tm_space space)
{
    const tm_program *program = &plan->programs[index];
    size_t            most = 0, sum = 0, *live = tm_alloc((program->count + 2) * sizeof *live);
    int32_t           at = 0;
    for (size_t i = 0; i < plan->graph->n_tensors; i++) {
        if (space == TM_SPACE_DEVICE && program->written) live[program->written[i]] += gradient_at(plan, i);
        if (!placed_here(plan, i, index, space)) continue;
        live[plan->places[i].first] += tm_plan_aligned(plan, plan->places[i].bytes);
        live[plan->places[i].last + 1] -= tm_plan_aligned(plan, plan->places[i].bytes);
    }
    for (size_t x = 0; x < program->count; x++) {
        sum += live[x];
        size_t here = sum + workspace_at(plan, program, x, space);
        if (here > most) most = here, at = (int32_t)x;
    }
    free(live);
    return at;
}

/* The program in which most bytes of a slot are live. */
static int32_t fullest_of_slots(const tm_plan *plan, tm_space space)
{
    int64_t *change = tm_alloc((plan->n_programs + 2) * sizeof *change), sum = 0, most = 0;
    int32_t  at = 0;
    for (size_t p = 0; p < plan->n_programs + 2; p++) change[p] = 0;
    for (size_t i = 0; i < plan->graph->n_tensors; i++) {
        if (!placed_here(plan, i, TM_ACROSS, space)) continue;
        change[plan->places[i].first] += (int64_t)tm_plan_aligned(plan, plan->places[i].bytes);
        change[plan->places[i].last + 1] -= (int64_t)tm_plan_aligned(plan, plan->places[i].bytes);
    }
    for (size_t p = 0; p < plan->n_programs; p++) {
        sum += change[p];
        if (sum > most) most = sum, at = (int32_t)p;
    }
    free(change);
    return at;
}

/* Bytes of each class at the fullest instruction of the fullest program, and in every slot at its fullest: they add up
 * to live_peak; what alignment and placement lose on top is the class "padding"; what lies in the memory of gradients
 * that come later counts once less ("reused"). (Micro-batches are at different
 * programs at a time, so what one of their slots holds does not go by the program that runs.) */
static void sum_classes(tm_plan *plan, tm_space in)
{
    tm_space_plan *space = &plan->spaces[in];
    int32_t        index = 0;
    for (size_t i = 1; i < plan->n_programs; i++)
        if (program_bytes(&plan->programs[i], in) > program_bytes(&plan->programs[index], in)) index = (int32_t)i;
    int32_t at = fullest_instruction(plan, index, in), slot_at = fullest_of_slots(plan, in);
    size_t  total = 0;
    for (size_t i = 0; i < plan->graph->n_tensors; i++) {
        const tm_tensor *tensor = &plan->graph->tensors[i];
        const tm_place  *p = &plan->places[i];
        size_t           times = p->program == index && p->shares < 0 && p->first <= at && at <= p->last;
        if (tensor->space != in) continue;
        if (p->program == TM_PERSISTENT) times = p->first == -1 && tm_role_persistent(tensor->role);
        if (p->program == TM_ACROSS) times = p->first <= slot_at && slot_at <= p->last ? (size_t)plan->graph->slots : 0;
        if (times == 0) continue;
        add_class(space, tm_role_memory_class(tensor->role), (int64_t)(times * tm_plan_aligned(plan, p->bytes)));
        total += times * tm_plan_aligned(plan, p->bytes);
    }
    size_t workspace = plan->programs[index].count ? workspace_at(plan, &plan->programs[index], (size_t)at, in) : 0;
    add_class(space, tm_role_memory_class(TM_ROLE_WORKSPACE), (int64_t)workspace);
    total += workspace;
    bool lends = in == TM_SPACE_DEVICE && plan->programs[index].written;
    TM_ASSERT(lends || total <= space->arena_bytes);
    if (total > space->arena_bytes) add_class(space, "reused", -(int64_t)(total - space->arena_bytes));
    if (total < space->arena_bytes) add_class(space, "padding", (int64_t)(space->arena_bytes - total));
}

static void sum_up(tm_plan *plan)
{
    for (int s = 0; s < TM_SPACE_COUNT; s++) {
        tm_space_plan *space = &plan->spaces[s];
        size_t         transient = 0, live = 0;
        for (size_t i = 0; i < plan->n_programs; i++) {
            size_t bytes = program_bytes(&plan->programs[i], (tm_space)s);
            size_t peak = s == TM_SPACE_DEVICE ? plan->programs[i].live_peak : bytes;
            if (bytes > transient) transient = bytes;
            if (peak > live) live = peak;
        }
        space->arena_bytes = transient_offset(plan, (tm_space)s) + transient;
        space->live_peak = transient_offset(plan, (tm_space)s) + live;
        space->by_class = tm_arena_take(plan->arena, (TM_MEMORY_CLASSES + 2) * sizeof *space->by_class);
        if (s == TM_SPACE_DEVICE || space->arena_bytes > 0) sum_classes(plan, (tm_space)s);
    }
    const tm_space_plan *device = &plan->spaces[TM_SPACE_DEVICE];
    plan->persistent_bytes = device->persistent_bytes;
    plan->arena_bytes = device->arena_bytes;
    plan->live_peak = device->live_peak;
    plan->by_class = device->by_class;
    plan->n_classes = device->n_classes;
}

tm_status tm_plan_create(const tm_graph *graph, const tm_chooser *chooser, tm_plan **out, tm_error *err)
{
    tm_plan *plan = tm_alloc(sizeof *plan);
    bool     used[TM_SPACE_COUNT] = { [TM_SPACE_DEVICE] = true };
    plan->graph = graph;
    plan->align = chooser->align ? chooser->align : LEAST_ALIGN;
    plan->arena = tm_arena_create();
    plan->places = tm_arena_take(plan->arena, (graph->n_tensors + 1) * sizeof *plan->places);
    plan->programs = tm_arena_take(plan->arena, graph->n_segments * sizeof *plan->programs);
    for (size_t i = 0; i < graph->n_tensors; i++) {
        plan->places[i] = nowhere;
        used[graph->tensors[i].space] = true;
    }
    place_persistent(plan);
    place_across(plan);
    plan->n_programs = graph->n_segments;
    TM_ASSERT(plan->n_programs > 0);
    for (size_t i = 0; i < plan->n_programs; i++) {
        tm_status st = plan_program(plan, (int32_t)i, used, chooser, err);
        if (st != TM_OK) {
            tm_plan_destroy(plan);
            return st;
        }
    }
    sum_up(plan);
    copy_programs(plan);
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
    place.offset += tm_tensor_bytes(tm_shape_1(tensor->offset), tensor->dtype);
    place.bytes = tm_tensor_bytes(tensor->shape, tensor->dtype);
    return place;
}

static tm_address address_in_slot(const tm_plan *plan, const tm_arenas *memory, tm_tensor_id id, size_t slot)
{
    tm_place place = tm_plan_place(plan, id);
    tm_space space = tm_graph_at(plan->graph, id)->space;
    TM_ASSERT(place.bytes > 0);
    if (place.program == TM_ACROSS) place.offset += slot * plan->spaces[space].slot_bytes;
    return tm_address_add(memory->base[space], place.offset);
}

tm_address tm_plan_address(const tm_plan *plan, const tm_arenas *memory, tm_tensor_id id)
{
    return address_in_slot(plan, memory, id, 0);
}

/* As kernels get it: where it may be followed is theirs to know. */
static void *data_at(const tm_plan *plan, const tm_arenas *memory, tm_tensor_id id, size_t slot)
{
    return (void *)address_in_slot(plan, memory, id, slot).at; // NOLINT(performance-no-int-to-ptr)
}

static void bind(const tm_plan *plan, const tm_program *program, const tm_arenas *memory, size_t slot)
{
    for (size_t x = 0; x < program->count; x++) {
        tm_instruction *i = &program->instructions[x];
        for (int k = 0; k < TM_MAX_IN; k++)
            if (i->node->in[k] != TM_NONE) i->call.in[k].data = data_at(plan, memory, i->node->in[k], slot);
        for (int k = 0; k < TM_MAX_OUT; k++)
            if (i->node->out[k] != TM_NONE) i->call.out[k].data = data_at(plan, memory, i->node->out[k], slot);
        tm_address workspace = tm_address_add(memory->base[TM_SPACE_DEVICE], i->workspace_offset);
        i->call.workspace = i->call.workspace_bytes ? (void *)workspace.at : NULL; // NOLINT(performance-no-int-to-ptr)
    }
}

void tm_plan_bind(tm_plan *plan, const tm_arenas *memory)
{
    for (size_t p = 0; p < plan->n_programs; p++) bind(plan, &plan->programs[p], memory, 0);
    for (size_t k = plan->n_programs; k < (size_t)plan->graph->slots * plan->n_programs; k++) {
        own_instructions(plan, &plan->in_slot[k], &plan->programs[k % plan->n_programs]);
        bind(plan, &plan->in_slot[k], memory, k / plan->n_programs);
    }
}

const tm_program *tm_plan_execution(const tm_plan *plan, const tm_execution *execution)
{
    TM_ASSERT(execution->program >= 0 && (size_t)execution->program < plan->n_programs);
    if (!plan->in_slot) return &plan->programs[execution->program];
    TM_ASSERT(execution->slot >= 0 && execution->slot < plan->graph->slots);
    return &plan->in_slot[(size_t)execution->slot * plan->n_programs + (size_t)execution->program];
}

const tm_program *tm_plan_program(const tm_plan *plan, const char *name)
{
    for (size_t i = 0; i < plan->n_programs; i++)
        if (strcmp(plan->programs[i].name, name) == 0) return &plan->programs[i];
    return NULL;
}
