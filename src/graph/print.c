/* SPDX-License-Identifier: Apache-2.0 */
/* graph/print.c - the programs of a plan for people (tm_plan_print) and for programs (tm_plan_json). */
#include "graph/plan.h"

#include <stdio.h>
#include <string.h>

enum { WIDTH = 120, AT = 71 }; /* of a line; the column of addresses */

/* `tail` behind what was printed since `begin`, or in a line of its own. */
static void add_tail(tm_text *out, size_t begin, const char *tail)
{
    if (out->length - begin + strlen(tail) > WIDTH) tm_text_printf(out, "\n%*s", AT, "");
    tm_text_printf(out, "%s\n", tail);
}

static void tensor_line(const tm_plan *plan, const char *label, tm_tensor_id id, bool accumulates, tm_text *out)
{
    if (id == TM_NONE) return;
    const tm_tensor *tensor = tm_graph_at(plan->graph, id);
    tm_place         place = tm_plan_place(plan, id);
    size_t           begin = out->length;
    char             shape[96];
    tm_text          tail = { 0 };
    tm_text_printf(out, "      %-3s %-36s %-8s %-15s @%-12zu %12zu B", label, tensor->name,
                   tm_dtype_name(tensor->dtype), tm_shape_text(shape, tensor->shape), place.offset, place.bytes);
    if (place.program == TM_ACROSS)
        tm_text_printf(&tail, "  programs %d-%d, in slots", (int)place.first, (int)place.last);
    else if (place.program < 0)
        tm_text_printf(&tail, "  %s%s", tm_role_memory_class(tensor->role), accumulates ? ", added to" : "");
    else
        tm_text_printf(&tail, "  %d-%d%s", (int)place.first, (int)place.last, place.shares >= 0 ? ", in place" : "");
    if (tensor->space != TM_SPACE_DEVICE) tm_text_printf(&tail, ", %s", tm_space_name(tensor->space));
    add_tail(out, begin, tail.data);
    tm_text_fini(&tail);
}

/* Of programs with several streams only. */
static void stream_line(const tm_instruction *i, tm_text *out)
{
    bool waits = false;
    for (int s = 0; s < TM_STREAMS; s++) waits = waits || i->waits[s] >= 0;
    if (i->stream == TM_ON_COMPUTE && !waits) return;
    tm_text_printf(out, "      stream %s", tm_stream_label(i->stream));
    for (int s = 0; s < TM_STREAMS; s++)
        if (i->waits[s] >= 0) tm_text_printf(out, ", waits for %s %d", tm_stream_label((tm_stream)s), (int)i->waits[s]);
    if (i->cost.wire > 0) tm_text_printf(out, ", %.4g MB on the wire", i->cost.wire * 1e-6);
    tm_text_add(out, "\n");
}

/* Without the name of the op, which stands before it: "linear/own-avx512" is "own-avx512". */
static const char *short_name(const tm_instruction *i)
{
    size_t n = strlen(i->call.op->name);
    bool   same = strncmp(i->kernel->name, i->call.op->name, n) == 0 && i->kernel->name[n] == '/';
    return i->kernel->name + (same ? n + 1 : 0);
}

static void instruction_text(const tm_plan *plan, const tm_chooser *chooser, const tm_instruction *i, size_t x,
                             tm_text *out)
{
    static const char *const phases[] = { "forward", "backward", "update" };
    tm_text                  name = { 0 }, refusals = { 0 };
    size_t                   begin = out->length;
    tm_text_printf(out, "%5zu %-25s %-24s %-8s%s %9.4g GFLOP %9.4g MB", x, i->call.op->name, i->node->module,
                   phases[i->node->phase], i->node->recomputed ? "*" : " ", i->cost.flops * 1e-9, i->cost.bytes * 1e-6);
    tm_text_printf(&name, "  %s", short_name(i));
    add_tail(out, begin, name.data);
    tm_text_fini(&name);
    stream_line(i, out);
    for (int k = 0; k < i->call.op->n_in; k++) tensor_line(plan, "in", i->node->in[k], false, out);
    for (int k = 0; k < i->call.op->n_out; k++)
        tensor_line(plan, "out", i->node->out[k], i->node->accumulate & 1u << k, out);
    if (i->call.workspace_bytes)
        tm_text_printf(out, "      %-*s @%-12zu %12zu B\n", AT - 6, "workspace", i->workspace_offset,
                       i->call.workspace_bytes);
    tm_call call = i->call;
    chooser->choose(chooser->context, &call, &refusals);
    for (const char *line = refusals.data; line && *line;) {
        const char *end = strchr(line, '\n');
        char        story[512];
        snprintf(story, sizeof story, "refused: %.*s", (int)(end - line), line);
        tm_text_add(out, "      ");
        tm_text_fill(out, story, 6, 8, WIDTH);
        line = end + 1;
    }
    tm_text_fini(&refusals);
}

void tm_plan_print(const tm_plan *plan, const tm_chooser *chooser, tm_text *out)
{
    for (size_t p = 0; p < plan->n_programs; p++) {
        const tm_program *program = &plan->programs[p];
        char              bytes[32];
        tm_text_printf(out, "program %s: %zu instructions, %.6g GFLOP, %s of transient memory%s\n", program->name,
                       program->count, program->cost.flops * 1e-9, tm_format_bytes(bytes, (double)program->bytes),
                       program->written ? " beside what gradients lend" : "");
        for (size_t x = 0; x < program->count; x++) instruction_text(plan, chooser, &program->instructions[x], x, out);
        tm_text_add(out, "\n");
    }
    tm_text_add(
        out, "  (* recomputed for the backward pass; of a buffer: @address, bytes, from which instruction to which)\n");
}

void tm_plan_print_spaces(const tm_plan *plan, const char *prefix, tm_text *out)
{
    char bytes[32];
    for (int s = TM_SPACE_DEVICE + 1; s < TM_SPACE_COUNT; s++) {
        const tm_space_plan *space = &plan->spaces[s];
        if (space->arena_bytes == 0) continue;
        tm_text_printf(out, "%s%-11s %s planned\n", prefix, tm_space_name((tm_space)s),
                       tm_format_bytes(bytes, (double)space->arena_bytes));
        for (size_t i = 0; i < space->n_classes; i++)
            tm_text_printf(out, "%s  %-12s %12s %20lld B\n", prefix, space->by_class[i].name,
                           tm_format_bytes(bytes, (double)space->by_class[i].value),
                           (long long)space->by_class[i].value);
    }
}

static void tensor_json(const tm_plan *plan, tm_tensor_id id, tm_json *json)
{
    const tm_tensor *tensor = tm_graph_at(plan->graph, id);
    tm_place         place = tm_plan_place(plan, id);
    tm_json_open(json, NULL, '{');
    tm_json_string(json, "name", tensor->name);
    tm_json_string(json, "dtype", tm_dtype_name(tensor->dtype));
    tm_json_open(json, "shape", '[');
    for (int i = 0; i < tensor->shape.rank; i++) tm_json_i64(json, NULL, tensor->shape.n[i]);
    tm_json_close(json, ']');
    tm_json_string(json, "class", tm_role_memory_class(tensor->role));
    tm_json_i64(json, "offset", (int64_t)place.offset);
    tm_json_i64(json, "bytes", (int64_t)place.bytes);
    tm_json_string(json, "space", tm_space_name(tensor->space));
    tm_json_i64(json, "first", place.first);
    tm_json_i64(json, "last", place.last);
    tm_json_close(json, '}');
}

static void instruction_json(const tm_plan *plan, const tm_chooser *chooser, const tm_instruction *i, tm_json *json)
{
    static const char *const phases[] = { "forward", "backward", "update" };
    tm_json_open(json, NULL, '{');
    tm_json_string(json, "op", i->call.op->name);
    tm_json_string(json, "module", i->node->module);
    tm_json_i64(json, "layer", i->node->layer);
    tm_json_string(json, "phase", phases[i->node->phase]);
    tm_json_bool(json, "recomputed", i->node->recomputed);
    if (i->cost.wire > 0) tm_json_f64(json, "wire_bytes", i->cost.wire);
    tm_json_f64(json, "flops", i->cost.flops);
    tm_json_f64(json, "bytes", i->cost.bytes);
    tm_json_f64(json, "vector", i->cost.vector);
    tm_json_string(json, "kernel", i->kernel->name);
    tm_json_string(json, "stream", tm_stream_label(i->stream));
    tm_json_open(json, "waits", '{');
    for (int s = 0; s < TM_STREAMS; s++)
        if (i->waits[s] >= 0) tm_json_i64(json, tm_stream_label((tm_stream)s), i->waits[s]);
    tm_json_close(json, '}');
    tm_text refusals = { 0 };
    tm_call call = i->call;
    chooser->choose(chooser->context, &call, &refusals);
    tm_json_string(json, "refused", refusals.data);
    tm_text_fini(&refusals);
    tm_json_i64(json, "workspace_bytes", (int64_t)i->call.workspace_bytes);
    tm_json_i64(json, "workspace_offset", (int64_t)i->workspace_offset);
    tm_json_open(json, "inputs", '[');
    for (int k = 0; k < i->call.op->n_in; k++)
        if (i->node->in[k] != TM_NONE) tensor_json(plan, i->node->in[k], json);
    tm_json_close(json, ']');
    tm_json_open(json, "outputs", '[');
    for (int k = 0; k < i->call.op->n_out; k++)
        if (i->node->out[k] != TM_NONE) tensor_json(plan, i->node->out[k], json);
    tm_json_close(json, ']');
    tm_json_close(json, '}');
}

void tm_plan_json(const tm_plan *plan, const tm_chooser *chooser, tm_json *json)
{
    tm_json_open(json, "programs", '[');
    for (size_t p = 0; p < plan->n_programs; p++) {
        const tm_program *program = &plan->programs[p];
        tm_json_open(json, NULL, '{');
        tm_json_string(json, "name", program->name);
        tm_json_f64(json, "flops", program->cost.flops);
        tm_json_f64(json, "bytes", program->cost.bytes);
        tm_json_i64(json, "transient_bytes", (int64_t)program->bytes);
        tm_json_i64(json, "live_peak_bytes", (int64_t)program->live_peak);
        tm_json_open(json, "instructions", '[');
        for (size_t x = 0; x < program->count; x++) instruction_json(plan, chooser, &program->instructions[x], json);
        tm_json_close(json, ']');
        tm_json_close(json, '}');
    }
    tm_json_close(json, ']');
    tm_json_open(json, "memory", '{');
    for (size_t i = 0; i < plan->n_classes; i++) tm_json_i64(json, plan->by_class[i].name, plan->by_class[i].value);
    tm_json_close(json, '}');
    for (int s = TM_SPACE_DEVICE + 1; s < TM_SPACE_COUNT; s++) {
        const tm_space_plan *space = &plan->spaces[s];
        if (space->arena_bytes == 0) continue;
        char name[32];
        snprintf(name, sizeof name, "%s_memory", tm_space_name((tm_space)s));
        tm_json_open(json, name, '{');
        for (size_t i = 0; i < space->n_classes; i++)
            tm_json_i64(json, space->by_class[i].name, space->by_class[i].value);
        tm_json_close(json, '}');
        snprintf(name, sizeof name, "%s_bytes", tm_space_name((tm_space)s));
        tm_json_i64(json, name, (int64_t)space->arena_bytes);
    }
    tm_json_i64(json, "arena_bytes", (int64_t)plan->arena_bytes);
    tm_json_i64(json, "live_peak_bytes", (int64_t)plan->live_peak);
}
