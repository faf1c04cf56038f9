/* SPDX-License-Identifier: Apache-2.0 */
/* What `explain` says of a plan is the plan: every member of every instruction and tensor, read back; the text has the
 * same in the same order. */
#include "plan_rules.h"
#include "support/json.h"

#include "base/text.h"
#include "graph/plan.h"

#include "support/test.h"

static void text_is(const json_t *object, const char *member, const char *wanted)
{
    const char *text = json_string_value(json_object_get(object, member));
    if (!text != !wanted || (text && strcmp(text, wanted) != 0))
        fail_msg("'%s' is %s, not %s", member, text ? text : "null", wanted ? wanted : "null");
}

static void number_is(const json_t *object, const char *member, double wanted)
{
    if (test_json_number(object, member) != wanted) fail_msg("'%s' is not %.17g", member, wanted);
}

/* The text without blanks and line feeds, as far as it has been found. */
static const char *text_left;

/* Words come next in it, or behind others of the same instruction. */
static void says(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void says(const char *format, ...)
{
    char    words[1000], *to = words;
    va_list list;
    va_start(list, format);
    vsnprintf(words, sizeof words, format, list);
    va_end(list);
    for (const char *p = words; *p; p++)
        if (*p != ' ' && *p != '\n') *to++ = *p;
    *to = '\0';
    if (strncmp(text_left, words, strlen(words)) != 0) fail_msg("'%s' does not come next: %.200s", words, text_left);
    text_left += strlen(words);
}

static void check_tensor(const tm_plan *plan, tm_tensor_id id, const json_t *json, const char *label, bool added)
{
    const tm_tensor *tensor = tm_graph_at(plan->graph, id);
    tm_place         place = tm_plan_place(plan, id);
    const json_t    *shape = json_object_get(json, "shape");
    char             dims[96];
    text_is(json, "name", tensor->name);
    text_is(json, "dtype", tm_dtype_name(tensor->dtype));
    text_is(json, "class", tm_role_memory_class(tensor->role));
    text_is(json, "space", tm_space_name(tensor->space));
    assert_int_equal(json_array_size(shape), tensor->shape.rank);
    for (int i = 0; i < tensor->shape.rank; i++)
        assert_int_equal(json_integer_value(json_array_get(shape, (size_t)i)), tensor->shape.n[i]);
    number_is(json, "offset", (double)place.offset);
    number_is(json, "bytes", (double)place.bytes);
    number_is(json, "first", place.first);
    number_is(json, "last", place.last);
    says("%s %s %s %s @%zu %zu B", label, tensor->name, tm_dtype_name(tensor->dtype),
         tm_shape_text(dims, tensor->shape), place.offset, place.bytes);
    if (place.program == TM_ACROSS)
        says("programs %d-%d, in slots", (int)place.first, (int)place.last);
    else if (place.program < 0)
        says("%s%s", tm_role_memory_class(tensor->role), added ? ", added to" : "");
    else
        says("%d-%d%s", (int)place.first, (int)place.last, place.shares >= 0 ? ", in place" : "");
    if (tensor->space != TM_SPACE_DEVICE) says(", %s", tm_space_name(tensor->space));
}

static void check_tensors(const tm_plan *plan, const tm_tensor_id *ids, int n, const json_t *json, const char *label,
                          unsigned added)
{
    size_t seen = 0;
    for (int k = 0; k < n; k++)
        if (ids[k] != TM_NONE) check_tensor(plan, ids[k], json_array_get(json, seen++), label, added >> k & 1);
    assert_int_equal(json_array_size(json), seen);
}

static void check_streams(const tm_instruction *i, const json_t *json)
{
    const json_t *waits = json_object_get(json, "waits");
    size_t        n = 0;
    text_is(json, "stream", tm_stream_label(i->stream));
    for (int s = 0; s < TM_STREAMS; s++) n += i->waits[s] >= 0;
    assert_int_equal(json_object_size(waits), n);
    if (i->stream == TM_ON_COMPUTE && n == 0) return;
    says("stream %s", tm_stream_label(i->stream));
    for (int s = 0; s < TM_STREAMS; s++) {
        if (i->waits[s] < 0) continue;
        number_is(waits, tm_stream_label((tm_stream)s), i->waits[s]);
        says(", waits for %s %d", tm_stream_label((tm_stream)s), (int)i->waits[s]);
    }
    if (i->cost.wire > 0) says(", %.4g MB on the wire", i->cost.wire * 1e-6);
}

static void check_instruction(const tm_plan *plan, const tm_chooser *chooser, const tm_instruction *i, size_t x,
                              const json_t *json)
{
    static const char *const phases[] = { "forward", "backward", "update" };
    const char              *op = i->call.op->name, *kernel = i->kernel->name;
    tm_text                  refusals = { 0 };
    text_is(json, "op", op);
    text_is(json, "module", i->node->module);
    text_is(json, "phase", phases[i->node->phase]);
    text_is(json, "kernel", kernel);
    number_is(json, "layer", i->node->layer);
    assert_true(json_is_true(json_object_get(json, "recomputed")) == i->node->recomputed);
    number_is(json, "flops", i->cost.flops);
    number_is(json, "bytes", i->cost.bytes);
    number_is(json, "vector", i->cost.vector);
    number_is(json, "workspace_bytes", (double)i->call.workspace_bytes);
    number_is(json, "workspace_offset", (double)i->workspace_offset);
    if (strncmp(kernel, op, strlen(op)) == 0 && kernel[strlen(op)] == '/') kernel += strlen(op) + 1;
    says("%zu %s %s %s%s %.4g GFLOP %.4g MB %s", x, op, i->node->module, phases[i->node->phase],
         i->node->recomputed ? "*" : "", i->cost.flops * 1e-9, i->cost.bytes * 1e-6, kernel);
    check_streams(i, json);
    check_tensors(plan, i->node->in, i->call.op->n_in, json_object_get(json, "inputs"), "in", 0);
    check_tensors(plan, i->node->out, i->call.op->n_out, json_object_get(json, "outputs"), "out", i->node->accumulate);
    if (i->call.workspace_bytes) says("workspace @%zu %zu B", i->workspace_offset, i->call.workspace_bytes);
    chooser->choose(chooser->context, &i->call, &refusals);
    text_is(json, "refused", refusals.data);
    for (char *rest = refusals.data, *line; rest && (line = strsep(&rest, "\n")) && *line;) says("refused: %s", line);
    tm_text_fini(&refusals);
}

/* Classes, their sum, and no others. */
static void check_memory(const json_t *memory, const tm_named_i64 *by_class, size_t n, size_t all)
{
    int64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        number_is(memory, by_class[i].name, (double)by_class[i].value);
        sum += by_class[i].value;
    }
    assert_true(sum > 0 && (size_t)sum == all && json_object_size(memory) == n);
}

static void check_spaces(const tm_plan *plan, const json_t *read)
{
    char name[32], bytes[32];
    for (int s = TM_SPACE_DEVICE + 1; s < TM_SPACE_COUNT; s++) {
        const tm_space_plan *space = &plan->spaces[s];
        snprintf(name, sizeof name, "%s_memory", tm_space_name((tm_space)s));
        assert_int_equal(json_object_get(read, name) != NULL, space->arena_bytes > 0);
        if (space->arena_bytes == 0) continue;
        check_memory(json_object_get(read, name), space->by_class, space->n_classes, space->arena_bytes);
        snprintf(name, sizeof name, "%s_bytes", tm_space_name((tm_space)s));
        number_is(read, name, (double)space->arena_bytes);
        says("- %s %s planned", tm_space_name((tm_space)s), tm_format_bytes(bytes, (double)space->arena_bytes));
        for (size_t i = 0; i < space->n_classes; i++)
            says("- %s %s %lld B", space->by_class[i].name, tm_format_bytes(bytes, (double)space->by_class[i].value),
                 (long long)space->by_class[i].value);
    }
    assert_string_equal(text_left, "");
}

static char *without_blanks(const char *text)
{
    char *out = malloc(strlen(text) + 1), *to = out;
    assert_non_null(out);
    for (; *text; text++)
        if (*text != ' ' && *text != '\n') *to++ = *text;
    *to = '\0';
    return out;
}

void rules_of_print(const tm_plan *plan, const tm_chooser *chooser, const char *json, const char *text)
{
    json_t *read = json_loads(json, 0, NULL), *programs = json_object_get(read, "programs");
    char   *flat = without_blanks(text), bytes[32];
    text_left = flat;
    assert_int_equal(json_array_size(programs), plan->n_programs);
    for (size_t p = 0; p < plan->n_programs; p++) {
        const tm_program *program = &plan->programs[p];
        const json_t     *object = json_array_get(programs, p), *list = json_object_get(object, "instructions");
        double            flops = 0, moved = 0;
        text_is(object, "name", program->name);
        assert_int_equal(json_array_size(list), program->count);
        says("program %s: %zu instructions, %.6g GFLOP, %s of transient memory%s", program->name, program->count,
             program->cost.flops * 1e-9, tm_format_bytes(bytes, (double)program->bytes),
             program->written ? " beside what gradients lend" : "");
        for (size_t x = 0; x < program->count; x++) {
            check_instruction(plan, chooser, &program->instructions[x], x, json_array_get(list, x));
            flops += program->instructions[x].cost.flops;
            moved += program->instructions[x].cost.bytes;
        }
        number_is(object, "flops", flops);
        number_is(object, "bytes", moved);
        number_is(object, "transient_bytes", (double)program->bytes);
        number_is(object, "live_peak_bytes", (double)program->live_peak);
    }
    says("(* recomputed for the backward pass; of a buffer: @address, bytes, from which instruction to which)");
    check_memory(json_object_get(read, "memory"), plan->by_class, plan->n_classes, plan->arena_bytes);
    check_spaces(plan, read);
    number_is(read, "arena_bytes", (double)plan->arena_bytes);
    number_is(read, "live_peak_bytes", (double)plan->live_peak);
    json_decref(read);
    free(flat);
}
