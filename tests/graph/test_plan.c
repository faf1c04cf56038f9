/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of whole training steps: an interpreter that knows which tensor owns each byte, the same programs with every
 * tensor in memory of its own, and how tight the plans are. */
#include "support/training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/test.h"

static const tm_recompute keep_all = { 0 }, cheap = { .cheap = true }, second = { .every_n = 2 },
                          full = { .cheap = true, .every_n = 1 };

typedef struct {
    const char         *preset; /* NULL: the small model of the family */
    tm_model_family     family;
    const tm_precision *precision;
    int64_t             micro_batch, seq, accumulation;
    const tm_recompute *recompute;
} configuration;

static const configuration small[] = {
    { NULL, TM_FAMILY_LLAMA, &tm_precision_f32, 2, 32, 1, &keep_all },
    { NULL, TM_FAMILY_LLAMA, &tm_precision_f32, 2, 32, 4, &cheap },
    { NULL, TM_FAMILY_LLAMA, &tm_precision_f32, 2, 32, 1, &second },
    { NULL, TM_FAMILY_LLAMA, &tm_precision_f32, 2, 32, 4, &full },
    { NULL, TM_FAMILY_LLAMA, &tm_precision_bf16, 2, 32, 4, &cheap },
    { NULL, TM_FAMILY_LLAMA, &tm_precision_bf16_pure, 2, 32, 1, &full },
    { NULL, TM_FAMILY_GPT, &tm_precision_f32, 2, 32, 4, &keep_all },
    { NULL, TM_FAMILY_GPT, &tm_precision_f32, 2, 32, 1, &cheap },
    { NULL, TM_FAMILY_GPT, &tm_precision_bf16, 2, 32, 1, &second },
    { NULL, TM_FAMILY_GPT, &tm_precision_bf16, 2, 32, 4, &full },
    { NULL, TM_FAMILY_GPT, &tm_precision_bf16_pure, 2, 32, 4, &cheap },
    { NULL, TM_FAMILY_GPT, &tm_precision_bf16_pure, 2, 32, 1, &keep_all },
};
static const configuration large[] = {
    { "gpt-small", TM_FAMILY_GPT, &tm_precision_f32, 8, 512, 1, &cheap },
    { "gpt-small", TM_FAMILY_GPT, &tm_precision_bf16, 32, 512, 4, &keep_all },
    { "gpt-medium", TM_FAMILY_GPT, &tm_precision_f32, 4, 512, 1, &cheap },
    { "gpt-medium", TM_FAMILY_GPT, &tm_precision_f32, 4, 512, 1, &keep_all },
    { "gpt-medium", TM_FAMILY_GPT, &tm_precision_bf16, 4, 512, 1, &cheap },
    { "gpt-medium", TM_FAMILY_GPT, &tm_precision_bf16_pure, 4, 512, 4, &full },
    { "tiny-llama", TM_FAMILY_LLAMA, &tm_precision_f32, 16, 256, 1, &cheap },
    { "tiny-llama", TM_FAMILY_LLAMA, &tm_precision_f32, 16, 256, 1, &second },
    { "tiny-llama", TM_FAMILY_LLAMA, &tm_precision_bf16, 16, 256, 4, &keep_all },
    { "llama3.1_8B", TM_FAMILY_LLAMA, &tm_precision_f32, 1, 1024, 1, &cheap },
    { "llama3.1_8B", TM_FAMILY_LLAMA, &tm_precision_bf16, 4, 8192, 4, &second },
    { "llama3.1_8B", TM_FAMILY_LLAMA, &tm_precision_bf16_pure, 4, 8192, 1, &full },
    { "llama3.1_405B", TM_FAMILY_LLAMA, &tm_precision_bf16, 1, 8192, 1, &cheap },
    { "llama3.1_405B", TM_FAMILY_LLAMA, &tm_precision_f32, 1, 8192, 4, &full },
};
enum { SMALL = sizeof small / sizeof small[0], LARGE = sizeof large / sizeof large[0] };

static tm_step_options options_of(const configuration *c)
{
    tm_step_options o = c->family == TM_FAMILY_GPT ? test_gpt_options() : test_llama_options();
    if (c->preset) o.shape = test_shape_preset(c->preset, NULL);
    o.precision = c->precision;
    o.micro_batch = c->micro_batch;
    o.seq = c->seq;
    o.accumulation = c->accumulation;
    o.recompute = *c->recompute;
    return o;
}

static const char *name_of(const configuration *c)
{
    static char name[160];
    snprintf(name, sizeof name, "%s %s %lldx%lldx%lld, recompute %lld%s",
             c->preset                    ? c->preset
             : c->family == TM_FAMILY_GPT ? "small gpt"
                                          : "small llama",
             c->precision->name, (long long)c->accumulation, (long long)c->micro_batch, (long long)c->seq,
             (long long)c->recompute->every_n, c->recompute->cheap ? " cheap" : "");
    return name;
}

static tm_step *plan_of(const configuration *c, int threads)
{
    tm_device      *device = test_device_open("cpu", threads);
    tm_chooser      chooser = tm_device_chooser(device);
    tm_step_options options = options_of(c);
    tm_step        *step = test_step_plan(&options, &chooser);
    tm_device_close(device);
    return step;
}

/* --- tightness and books ------------------------------------------------------------------------------------------ */

/* The sum of live bytes, counted anew from places and workspaces: gradients, and what lives within the program. */
static size_t live_bytes(const tm_plan *plan, int32_t program, int32_t x)
{
    const int32_t *written = plan->programs[program].written;
    size_t         live = plan->programs[program].instructions[x].call.workspace_bytes;
    for (size_t i = 0; i < plan->graph->n_tensors; i++) {
        const tm_place *p = &plan->places[i];
        if (plan->graph->tensors[i].role == TM_ROLE_GRADIENT && (!written || written[i] <= x)) live += p->bytes;
        if (p->program == program && p->shares < 0 && p->first <= x && x <= p->last) live += p->bytes;
    }
    return live;
}

static void check_tight(const configuration *c)
{
    tm_step       *step = plan_of(c, 2);
    const tm_plan *plan = step->plan;
    size_t         persistent = 0, largest = 0;
    int64_t        classes = 0;
    for (size_t i = 0; i < plan->graph->n_tensors; i++) {
        tm_role role = plan->graph->tensors[i].role;
        if (tm_role_persistent(role)) *(role == TM_ROLE_GRADIENT ? &largest : &persistent) += plan->places[i].bytes;
    }
    for (size_t p = 0; p < plan->n_programs; p++)
        for (size_t x = 0; x < plan->programs[p].count; x++) {
            size_t live = live_bytes(plan, (int32_t)p, (int32_t)x);
            if (live > largest) largest = live;
        }
    for (size_t i = 0; i < plan->n_classes; i++) classes += plan->by_class[i].value;
    double bound = (double)(persistent + largest);
    if (!((double)plan->arena_bytes <= 1.02 * bound))
        fail_msg("%s: %zu bytes are planned, %.4f of the largest sum of live bytes", name_of(c), plan->arena_bytes,
                 (double)plan->arena_bytes / bound);
    if (!((double)plan->live_peak >= bound && plan->live_peak <= plan->arena_bytes))
        fail_msg("%s: live_peak", name_of(c));
    if (classes != (int64_t)plan->arena_bytes)
        fail_msg("%s: the classes add up to %lld of %zu", name_of(c), (long long)classes, plan->arena_bytes);
    tm_step_destroy(step);
}

TEST(plans_are_tight_and_classes_add_up)
{
    for (int i = 0; i < SMALL; i++) check_tight(&small[i]);
    for (int i = 0; i < LARGE; i++) check_tight(&large[i]);
}

/* --- who owns each byte ------------------------------------------------------------------------------------------- */

enum { CELL = 64, NOBODY = -1, WORKSPACE = -2 };

typedef struct {
    const tm_plan *plan;
    int32_t       *owner; /* of each cell of 64 bytes */
    size_t         cells;
    bool **written;      /* (tensors) of a tensor that is written through views: which of its columns hold something */
    char   problem[200]; /* the first one; "" */
} books;

static void complain(books *b, const char *program, size_t x, const char *what, tm_tensor_id id)
{
    if (!b->problem[0])
        snprintf(b->problem, sizeof b->problem, "%s %zu: %s '%s'", program, x, what,
                 id >= 0 ? b->plan->graph->tensors[id].name : "workspace");
}

static void range_of(const books *b, size_t offset, size_t bytes, size_t *from, size_t *to)
{
    assert_int_equal(offset % CELL, 0);
    *from = offset / CELL;
    *to = (offset + bytes + CELL - 1) / CELL;
    assert_true(*to <= b->cells);
}

static bool owns(const books *b, size_t offset, size_t bytes, int32_t who)
{
    size_t from, to;
    range_of(b, offset, bytes, &from, &to);
    for (size_t i = from; i < to; i++)
        if (b->owner[i] != who) return false;
    return true;
}

static void give(books *b, size_t offset, size_t bytes, int32_t who)
{
    size_t from, to;
    range_of(b, offset, bytes, &from, &to);
    for (size_t i = from; i < to; i++) b->owner[i] = who;
}

/* A tensor, or the columns of one, for a reader: all of it is there. */
static bool holds(const books *b, tm_tensor_id id)
{
    const tm_tensor *tensor = tm_graph_at(b->plan->graph, id);
    tm_tensor_id     base = tm_graph_base(b->plan->graph, id);
    const tm_place  *place = &b->plan->places[base];
    if (place->bytes == 0 || !owns(b, place->offset, place->bytes, base)) return false;
    for (int64_t c = 0; b->written[base] && c < tensor->shape.n[1]; c++)
        if (!b->written[base][tensor->offset + c]) return false;
    return true;
}

static void write_down(books *b, tm_tensor_id id)
{
    const tm_graph  *graph = b->plan->graph;
    const tm_tensor *tensor = tm_graph_at(graph, id);
    tm_tensor_id     base = tm_graph_base(graph, id);
    const tm_place  *place = &b->plan->places[base];
    bool             whole = tensor->base == TM_NONE, anew = !owns(b, place->offset, place->bytes, base);
    int64_t          columns = whole ? 0 : tm_graph_at(graph, base)->shape.n[1];
    if (whole || anew) free(b->written[base]), b->written[base] = NULL;
    if (!whole && anew) b->written[base] = calloc((size_t)columns, sizeof(bool));
    for (int64_t c = 0; b->written[base] && c < tensor->shape.n[1]; c++) b->written[base][tensor->offset + c] = true;
    give(b, place->offset, place->bytes, base);
}

static bool same_memory(const tm_plan *plan, tm_tensor_id a, tm_tensor_id b)
{
    const tm_place *p = &plan->places[tm_graph_base(plan->graph, a)], *q = &plan->places[tm_graph_base(plan->graph, b)];
    return p->offset < q->offset + q->bytes && q->offset < p->offset + p->bytes;
}

/* Outputs may lie on inputs only where the op works in place: out[0], wholly, same format; or a tensor updated. */
static void check_in_place(books *b, const char *program, size_t x, const tm_node *node)
{
    const tm_op *op = tm_op_get(node->op);
    for (int k = 0; k < op->n_out; k++)
        for (int i = 0; i < op->n_in; i++) {
            if (node->out[k] == TM_NONE || node->in[i] == TM_NONE || node->in[i] == node->out[k]) continue;
            if (!same_memory(b->plan, node->in[i], node->out[k])) continue;
            const tm_place *in = &b->plan->places[node->in[i]], *out = &b->plan->places[node->out[k]];
            bool allowed = k == 0 && (op->inplace >> i & 1) && in->offset == out->offset && in->bytes == out->bytes;
            for (int j = 0; j < op->n_in; j++)
                allowed =
                    allowed && (j == i || node->in[j] == TM_NONE || !same_memory(b->plan, node->in[j], node->out[k]));
            if (!allowed) complain(b, program, x, "lies on an input that is still read:", node->out[k]);
        }
}

static void interpret(books *b, const tm_program *program)
{
    for (size_t x = 0; x < program->count; x++) {
        const tm_instruction *i = &program->instructions[x];
        const tm_node        *node = i->node;
        give(b, i->workspace_offset, i->call.workspace_bytes, WORKSPACE);
        for (int k = 0; k < TM_MAX_IN; k++)
            if (node->in[k] != TM_NONE && !holds(b, node->in[k]))
                complain(b, program->name, x, "reads what is not there:", node->in[k]);
        for (int k = 0; k < TM_MAX_OUT; k++)
            if (node->out[k] != TM_NONE && (node->accumulate >> k & 1) && !holds(b, node->out[k]))
                complain(b, program->name, x, "adds to what is not there:", node->out[k]);
        check_in_place(b, program->name, x, node);
        for (int k = 0; k < TM_MAX_OUT; k++)
            if (node->out[k] != TM_NONE) write_down(b, node->out[k]);
        for (int k = 0; k < TM_MAX_OUT; k++)
            if (node->out[k] != TM_NONE && !holds(b, node->out[k]))
                complain(b, program->name, x, "shares memory with another output:", node->out[k]);
        if (!owns(b, i->workspace_offset, i->call.workspace_bytes, WORKSPACE))
            complain(b, program->name, x, "an output lies on the", TM_NONE);
    }
}

/* A step and an evaluation. What is wrong with the plan, or "". */
static const char *judge(const tm_plan *plan, books *b)
{
    *b = (books){ .plan = plan, .cells = (plan->arena_bytes + CELL - 1) / CELL };
    b->owner = malloc(b->cells * sizeof *b->owner);
    assert_non_null(b->owner);
    b->written = calloc(plan->graph->n_tensors, sizeof *b->written);
    assert_non_null(b->written);
    for (size_t i = 0; i < b->cells; i++) b->owner[i] = NOBODY;
    for (size_t i = 0; i < plan->graph->n_tensors; i++) {
        tm_role role = plan->graph->tensors[i].role;
        if (plan->graph->tensors[i].base != TM_NONE) continue;
        if (role == TM_ROLE_PARAMETER || role == TM_ROLE_MOMENT || role == TM_ROLE_CONSTANT || role == TM_ROLE_INPUT ||
            strcmp(plan->graph->tensors[i].name, "scalars") == 0)
            give(b, plan->places[i].offset, plan->places[i].bytes, (int32_t)i);
    }
    static const char *const order[] = { "first", "further", "further", "update", "evaluate", "first", "update" };
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        if (tm_plan_program(plan, order[i])) interpret(b, tm_plan_program(plan, order[i]));
    for (size_t i = 0; i < plan->graph->n_tensors; i++) free(b->written[i]);
    free(b->written);
    free(b->owner);
    return b->problem;
}

TEST(nothing_is_read_after_it_was_overwritten)
{
    size_t shared = 0;
    for (int i = 0; i < SMALL; i++) {
        tm_step *step = plan_of(&small[i], 2);
        books    b;
        if (*judge(step->plan, &b)) fail_msg("%s: %s", name_of(&small[i]), b.problem);
        for (size_t t = 0; t < step->graph->n_tensors; t++) shared += step->plan->places[t].shares >= 0;
        tm_step_destroy(step);
    }
    assert_true(shared > 100); /* in-place work is part of what was judged */
}

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
    tm_step_options options = options_of(c);
    tm_trainer     *trainer = test_trainer_open(device, &options, 5);
    const tm_step  *step = tm_trainer_step_of(trainer);
    test_batch      batch =
        test_batch_random(options.micro_batch * options.accumulation, options.seq, options.shape.vocab_size, 6);
    int64_t    rows = options.micro_batch * options.seq;
    size_t     kept = step->plan->persistent_bytes - step->plan->spaces[TM_SPACE_DEVICE].gradient_bytes;
    tm_address transient = tm_address_add(tm_trainer_arena(trainer), kept);
    void     **data = copy_apart(trainer);
    tm_error   err = { 0 };
    assert_int_equal(tm_device_fill(device, transient, 0xff, step->plan->arena_bytes - kept, &err),
                     TM_OK); /* NaN in every format, in the gradients, too */
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
            fail_msg("%s: '%s' differs from the one computed in memory of its own", name_of(c), tensor->name);
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
    for (int i = 0; i < SMALL; i++) check_apart(&small[i]);
}
