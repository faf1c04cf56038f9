/* SPDX-License-Identifier: Apache-2.0 */
/* A plan made by hand, with a device that has few kernels: what is printed of it is what it is, and what it cannot
 * compute is said. */
#include "graph/plan.h"

#include "base/arena.h"
#include "op/attrs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

/* --- the device --------------------------------------------------------------------------------------------------- */

typedef struct {
    tm_op_id lacking;  /* no kernel for it; TM_OP_COUNT: it has all */
    bool     explains; /* says why */
} device;

static size_t thousand(const tm_call *call)
{
    return 1000 * (size_t)call->threads;
}

static const tm_kernel plain = { .name = "plain" }, fast = { .name = "linear/fast", .workspace = thousand },
                       other = { .name = "scales" }, /* its op is scale */
    another = { .name = "gelo/kernel" };             /* and gelu */

static const tm_kernel *choose(const void *context, const tm_call *call, tm_text *refusals)
{
    const device *d = context;
    tm_op_id      op = TM_OP_COUNT;
    for (int i = 0; i < TM_OP_COUNT; i++)
        if (tm_op_get((tm_op_id)i) == call->op) op = (tm_op_id)i;
    bool lacks = op == d->lacking;
    if (refusals && (lacks ? d->explains : op == TM_OP_linear))
        tm_text_printf(
            refusals,
            "%s/wide: needs rows of 16 elements\n%s/wider: needs whole tiles of 16 rows and 64 columns, which "
            "are more than this matrix has in either of its two directions, and nothing else beside them\n",
            call->op->name, call->op->name);
    if (lacks) return NULL;
    return op == TM_OP_linear ? &fast : op == TM_OP_scale ? &other : op == TM_OP_gelu ? &another : &plain;
}

/* --- the graph ---------------------------------------------------------------------------------------------------- */

static tm_tensor_id emit(tm_graph *g, tm_op_id op, const void *attr, size_t bytes, tm_tensor_id a, tm_tensor_id b,
                         tm_tensor_id out)
{
    tm_tensor_id in[TM_MAX_IN], made[TM_MAX_OUT] = { out, TM_NONE, TM_NONE, TM_NONE, TM_NONE, TM_NONE };
    for (int i = 0; i < TM_MAX_IN; i++) in[i] = TM_NONE;
    in[0] = a, in[1] = b;
    tm_graph_add(g, op, attr, bytes, in, made, out == TM_NONE ? 0 : tm_graph_at(g, out)->role == TM_ROLE_GRADIENT);
    return made[0];
}

/* Two programs; what the first one makes goes to the host and comes back in the second. Slots: it crosses in them. */
static tm_graph *make_graph(int slots)
{
    const tm_copy_attr  host = { .space = TM_SPACE_HOST };
    const tm_fill_attr  twice = { .value = 2 };
    const tm_norm_attr  norm = { .eps = 0.5 };
    const tm_group_attr group = { .axes = 1, .ranks = 2, .what = "sums" };
    tm_graph           *g = tm_graph_create(&tm_precision_bf16);
    g->slots = slots;
    tm_tensor_id x = tm_graph_tensor(g, "x", TM_ROLE_INPUT, tm_shape_2(24, 40));
    tm_graph_at(g, x)->dtype = TM_BF16;
    tm_tensor_id w =
        tm_graph_tensor(g, "layers.0.some.quite.long.name.of.a.weight", TM_ROLE_PARAMETER, tm_shape_2(8, 40));
    tm_graph_at(g, w)->dtype = TM_BF16;
    tm_tensor_id v = tm_graph_tensor(g, "norm.weight", TM_ROLE_PARAMETER, tm_shape_1(8));
    tm_tensor_id sum = tm_graph_tensor(g, "sum", TM_ROLE_GRADIENT, tm_shape_1(16));
    tm_tensor_id kept = tm_graph_tensor(g, "kept", slots ? TM_ROLE_ACTIVATION : TM_ROLE_MOMENT, tm_shape_2(24, 8));
    tm_graph_at(g, kept)->dtype = TM_BF16;
    tm_graph_at(g, kept)->space = TM_SPACE_HOST;
    tm_graph_segment(g, "first");
    g->layer = 0, g->module = "layers.0.feed_forward";
    tm_tensor_id y = emit(g, TM_OP_linear, NULL, 0, x, w, TM_NONE);
    y = emit(g, TM_OP_gelu, NULL, 0, y, TM_NONE, TM_NONE);
    tm_tensor_id z = emit(g, TM_OP_scale, &twice, sizeof twice, y, TM_NONE, TM_NONE);
    emit(g, TM_OP_store, &host, sizeof host, z, TM_NONE, kept);
    tm_tensor_id across = slots ? tm_graph_tensor(g, "across", TM_ROLE_ACTIVATION, tm_shape_2(24, 8)) : TM_NONE;
    if (slots) emit(g, TM_OP_gelu, NULL, 0, y, TM_NONE, across);
    tm_graph_segment(g, "second");
    g->phase = TM_PHASE_BACKWARD, g->module = "layers.0.attention";
    tm_tensor_id back = tm_graph_tensor_as(g, "back", TM_ROLE_ACTIVATION, tm_shape_2(24, 8), TM_BF16);
    emit(g, TM_OP_fetch, &host, sizeof host, kept, TM_NONE, back);
    tm_tensor_id n = emit(g, TM_OP_rmsnorm, &norm, sizeof norm, slots ? across : back, v, TM_NONE);
    g->segment->nodes[g->segment->n_nodes - 1].recomputed = true;
    tm_tensor_id part = tm_graph_run(g, "part", sum, 4, tm_shape_1(8));
    n = emit(g, TM_OP_add, NULL, 0, n, back, TM_NONE);
    emit(g, TM_OP_bias_grad, NULL, 0, n, TM_NONE, part);
    emit(g, TM_OP_all_reduce, &group, sizeof group, sum, TM_NONE, sum);
    g->phase = TM_PHASE_UPDATE, g->module = "";
    emit(g, TM_OP_cast, NULL, 0, part, TM_NONE, v);
    return g;
}

/* --- what is printed ---------------------------------------------------------------------------------------------- */

/* Words with one blank between them, from a format. */
static void expect(tm_text *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void expect(tm_text *out, const char *format, ...)
{
    char    text[700];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) tm_text_printf(out, "%s ", word);
}

static void expect_tensor(tm_text *out, const tm_plan *plan, const char *label, tm_tensor_id id, bool added)
{
    if (id == TM_NONE) return;
    const tm_tensor *t = tm_graph_at(plan->graph, id);
    const tm_place   p = tm_plan_place(plan, id);
    char             shape[96];
    expect(out, "%s %s %s %s @%zu %zu B ", label, t->name, tm_dtype_name(t->dtype), tm_shape_text(shape, t->shape),
           p.offset, p.bytes);
    if (p.program == TM_ACROSS)
        expect(out, "programs %d-%d, in slots", (int)p.first, (int)p.last);
    else if (p.program < 0)
        expect(out, "%s%s", tm_role_memory_class(t->role), added ? ", added to" : "");
    else
        expect(out, "%d-%d%s", (int)p.first, (int)p.last, p.shares >= 0 ? ", in place" : "");
    if (t->space != TM_SPACE_DEVICE) out->length--, expect(out, ", %s", tm_space_name(t->space));
}

static void expect_instruction(tm_text *out, const tm_plan *plan, const tm_instruction *i, size_t x, const device *d)
{
    static const char *const phases[] = { "forward", "backward", "update" };
    const char              *kernel = i->kernel->name;
    bool                     waits = false;
    expect(out, "%zu %s %s %s%s %.4g GFLOP %.4g MB %s", x, i->call.op->name, i->node->module, phases[i->node->phase],
           i->node->recomputed ? "*" : "", i->cost.flops / 1e9, i->cost.bytes / 1e6,
           strcmp(kernel, "linear/fast") == 0 ? "fast" : kernel);
    for (int s = 0; s < TM_STREAMS; s++) waits = waits || i->waits[s] >= 0;
    if (i->stream != TM_ON_COMPUTE || waits) expect(out, "stream %s", tm_stream_label(i->stream));
    for (int s = 0; s < TM_STREAMS; s++)
        if (i->waits[s] >= 0)
            out->length--, expect(out, ", waits for %s %d", tm_stream_label((tm_stream)s), (int)i->waits[s]);
    if (i->cost.wire > 0) out->length--, expect(out, ", %.4g MB on the wire", i->cost.wire / 1e6);
    for (int k = 0; k < TM_MAX_IN; k++) expect_tensor(out, plan, "in", i->node->in[k], false);
    for (int k = 0; k < TM_MAX_OUT; k++) expect_tensor(out, plan, "out", i->node->out[k], i->node->accumulate >> k & 1);
    if (i->call.workspace_bytes) expect(out, "workspace @%zu %zu B", i->workspace_offset, i->call.workspace_bytes);
    tm_text refusals = { 0 };
    char   *rest = NULL;
    choose(d, &i->call, &refusals);
    for (char *line = refusals.data ? strtok_r(refusals.data, "\n", &rest) : NULL; line;
         line = strtok_r(NULL, "\n", &rest))
        expect(out, "refused: %s", line);
    tm_text_fini(&refusals);
}

/* Spaces of other memory than the device's, and what of each class lies there. */
static void expect_spaces(tm_text *out, const tm_plan *plan, const char *prefix)
{
    char bytes[32];
    for (int s = TM_SPACE_DEVICE + 1; s < TM_SPACE_COUNT; s++) {
        const tm_space_plan *space = &plan->spaces[s];
        size_t               sum = 0;
        for (size_t i = 0; i < plan->graph->n_tensors; i++)
            if ((int)plan->graph->tensors[i].space == s) {
                const tm_place place = tm_plan_place(plan, (tm_tensor_id)i);
                sum += place.bytes * (place.program == TM_ACROSS ? (size_t)plan->graph->slots : 1);
            }
        if (sum == 0) continue;
        assert_int_equal(space->arena_bytes, sum);
        expect(out, "%s%s %s planned", prefix, tm_space_name((tm_space)s), tm_format_bytes(bytes, (double)sum));
        for (size_t i = 0; i < space->n_classes; i++)
            expect(out, "%s %s %s %lld B", prefix, space->by_class[i].name,
                   tm_format_bytes(bytes, (double)space->by_class[i].value), (long long)space->by_class[i].value);
    }
}

/* The words of what was printed; no line is too long, and addresses stand below each other. */
static void read_printed(const char *text, tm_text *out)
{
    char *copy = strdup(text), *rest = copy;
    for (char *line = strtok_r(copy, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        const char *at = strstr(line, " @");
        if (at && strncmp(line, "      ", 6) == 0 && !strstr(line, "quite.long.name")) assert_ptr_equal(at, line + 71);
        assert_true(strlen(line) <= 120);
        expect(out, "%s", line);
    }
    free(copy);
}

TEST(what_is_printed_is_the_plan)
{
    for (int slots = 0; slots < 3; slots += 2) {
        const device all = { TM_OP_COUNT, true };
        tm_chooser   chooser = { .choose = choose, .context = &all, .threads = 3 };
        tm_graph    *g = make_graph(slots);
        tm_plan     *plan;
        tm_error     err = { 0 };
        tm_text      printed = { 0 }, found = { 0 }, wanted = { 0 };
        char         bytes[32];
        assert_int_equal(tm_plan_create(g, &chooser, &plan, &err), TM_OK);
        for (size_t p = 0; p < plan->n_programs; p++) {
            const tm_program *program = &plan->programs[p];
            expect(&wanted, "program %s: %zu instructions, %.6g GFLOP, %s of transient memory%s", program->name,
                   program->count, program->cost.flops / 1e9, tm_format_bytes(bytes, (double)program->bytes),
                   program->written ? " beside what gradients lend" : "");
            for (size_t x = 0; x < program->count; x++)
                expect_instruction(&wanted, plan, &program->instructions[x], x, &all);
        }
        expect(&wanted, "(* recomputed for the backward pass; of a buffer: @address, bytes, from which instruction to "
                        "which)");
        expect_spaces(&wanted, plan, "> ");
        tm_plan_print(plan, &chooser, &printed);
        tm_plan_print_spaces(plan, "> ", &printed);
        read_printed(printed.data, &found);
        assert_string_equal(found.data, wanted.data);
        assert_ptr_equal(tm_plan_program(plan, "first"), &plan->programs[0]);
        assert_ptr_equal(tm_plan_program(plan, "second"), &plan->programs[1]);
        assert_null(tm_plan_program(plan, "third"));
        tm_text_fini(&printed), tm_text_fini(&found), tm_text_fini(&wanted);
        tm_plan_destroy(plan);
        tm_graph_destroy(g);
    }
}

/* Inputs, module and reasons; also where there is no reason. */
TEST(what_has_no_kernel_is_said)
{
    static const struct {
        device      device;
        const char *wanted;
    } rows[] = {
        { { TM_OP_linear, true },
          "no fast kernel for op 'linear' in module 'layers.0.feed_forward' (bfloat16 (24, 40), bfloat16 (8, 40)): "
          "linear/wide: needs rows of 16 elements\nlinear/wider: needs whole tiles of 16 rows and 64 columns, which "
          "are "
          "more than this matrix has in either of its two directions, and nothing else beside them\n" },
        { { TM_OP_rmsnorm, false },
          "no fast kernel for op 'rmsnorm' in module 'layers.0.attention' (bfloat16 (24, 8), float32 (8)): the device "
          "has none" },
        { { TM_OP_gelu, false },
          "no fast kernel for op 'gelu' in module 'layers.0.feed_forward' (bfloat16 (24, 8)): the device has none" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tm_chooser chooser = { .choose = choose, .context = &rows[i].device, .threads = 1 };
        tm_graph  *g = make_graph(0);
        tm_plan   *plan = NULL;
        tm_error   err = { 0 };
        assert_int_equal(tm_plan_create(g, &chooser, &plan, &err), TM_UNSUPPORTED);
        assert_int_equal(err.status, TM_UNSUPPORTED);
        assert_string_equal(err.text, rows[i].wanted);
        assert_null(plan);
        tm_graph_destroy(g);
    }
}
