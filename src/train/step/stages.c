/* SPDX-License-Identifier: Apache-2.0 */
#include "train/step/stages.h"

#include "base/arena.h"
#include "train/step/split_head.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const unsigned pipeline_axes = 1U << TM_AXIS_PP;

static int rank_of(const tm_step_options *o)
{
    return tm_mesh_group_rank(&o->layout.mesh, o->layout.rank, pipeline_axes);
}

/* --- what there is ------------------------------------------------------------------------------------------------ */

tm_status stages_find(const tm_step_options *o, tm_parallel *parallel, tm_error *err)
{
    tm_pipeline p = stages_pipeline(o);
    if (p.ranks == 1) return TM_OK;
    TM_TRY(tm_pipeline_check(&p, err));
    TM_TRY(split_head_check(o, err));
    tm_stage *all = tm_alloc((size_t)(p.ranks * p.chunks) * sizeof *all);
    tm_status st = stages_cut_all(o, all, err);
    parallel->chunks = p.chunks;
    for (int c = 0; c < p.chunks && st == TM_OK; c++) parallel->chunk[c] = all[tm_pipeline_stage(&p, rank_of(o), c)];
    free(all);
    return st;
}

static double zero(const void *context, int64_t i)
{
    (void)context, (void)i;
    return 0;
}

static tm_tensor_id zeros(tm_graph *graph, const char *name, int64_t n)
{
    tm_tensor_id id = tm_graph_constant(graph, name, tm_shape_1(n), zero, NULL, 0);
    tm_graph_at(graph, id)->dtype = TM_F64;
    return id;
}

/* A program in another format takes those of the programs before it: it adds nothing to what outlives programs. */
static tm_tensor_id zeros_again(const tm_step *step, const char *name, int64_t n)
{
    tm_graph *graph = step->graph;
    for (size_t i = 0; i < graph->n_tensors && graph->precision != step->options.precision; i++) {
        const tm_tensor *t = &graph->tensors[i];
        if (t->role == TM_ROLE_CONSTANT && strcmp(t->name, name) == 0 && tm_shape_elements(t->shape) == n)
            return (tm_tensor_id)i;
    }
    return zeros(graph, name, n);
}

/* Is a tied table looked up and multiplied with by this rank, in a stage each? */
static bool has_whole_table(const tm_model *m)
{
    bool divided = tm_parallel_piece(&m->parallel) != NULL;
    return m->shape->tied && !divided && tm_parallel_begins(&m->parallel) && tm_parallel_ends(&m->parallel);
}

/* The last stage's copy of a table that the first one has, or the pieces of one. */
void stages_declare(tm_step *step)
{
    const tm_model *m = &step->model;
    if (!stages_cut(step) || m->head == TM_NONE) return;
    tm_tensor *head = tm_graph_at(step->graph, m->head);
    head->head = true; /* which tm_quantize_take asks for */
    head->twin = m->head == m->embedding && !tm_parallel_begins(&m->parallel);
    if (tm_parallel_piece(&m->parallel)) head->twin = m->shape->tied;
}

const char *stages_program(const tm_step *step, const char *what, bool first, int chunk)
{
    const char *name = first ? tm_arena_format(step->graph->arena, "%s.first", what) : what;
    if (step->model.parallel.chunks == 1) return name;
    return tm_arena_format(step->graph->arena, "%s.%d", name, chunk + 1);
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

/* Of stage `of`, to or from the rank of stage `stage`. */
static void stage_message(tm_step *step, bool sends, int of, int stage, bool gradient, bool held_out, tm_tensor_id x)
{
    tm_pipeline p = stages_pipeline(&step->options);
    char        what[64];
    snprintf(what, sizeof what, "%s of stage %d",
             gradient   ? "gradients"
             : held_out ? "held-out activations"
                        : "activations",
             of);
    stages_message(step, sends, tm_pipeline_rank(&p, stage), gradient ? STAGES_BACKWARD : STAGES_FORWARD,
                   held_out ? 1 : step->options.accumulation, what, x);
}

/* Is that stage on this rank? (In the bottom of a V two that follow each other are.) */
static bool is_own(const tm_step *step, int stage)
{
    tm_pipeline p = stages_pipeline(&step->options);
    return tm_pipeline_rank(&p, stage) == rank_of(&step->options);
}

void stages_receive(tm_step *step, tm_model *model, int64_t rows, bool held_out)
{
    tm_graph *graph = step->graph;
    if (!stages_cut(step) || model->stage.begins) return;
    if (is_own(step, model->stage.number - 1)) {
        model->received = step->handed;
        return;
    }
    rows = tm_model_passed_rows(model, rows);
    graph->phase = TM_PHASE_FORWARD;
    model->received = tm_graph_tensor(graph, "received", TM_ROLE_ACTIVATION, tm_shape_2(rows, model->shape->dim));
    stage_message(step, false, model->stage.number - 1, model->stage.number - 1, false, held_out, model->received);
}

void stages_pass(tm_step *step, const tm_model *model, tm_tensor_id passed, bool held_out)
{
    if (is_own(step, model->stage.number + 1))
        step->handed = passed;
    else
        stage_message(step, true, model->stage.number, model->stage.number + 1, false, held_out, passed);
    split_head_pass(step, model, held_out);
}

size_t stages_turn(tm_step *step, const tm_model *model, tm_tensor_id passed, tm_seed seeds[STAGES_SEEDS])
{
    tm_graph *graph = step->graph;
    stages_pass(step, model, passed, false);
    seeds[0] = (tm_seed){ passed, TM_NONE };
    if (step->first_trained >= model->stage.end) return 1;
    tm_tensor like = *tm_graph_at(graph, passed);
    graph->phase = TM_PHASE_BACKWARD;
    tm_tensor_id given = tm_graph_tensor_as(graph, "received.grad", like.role, like.shape, like.dtype);
    if (is_own(step, model->stage.number + 1))
        step->handed_gradient = given;
    else
        stage_message(step, false, model->stage.number + 1, model->stage.number + 1, true, false, given);
    seeds[0].cotangent = given;
    return 1 + split_head_turn(step, model, &seeds[1]);
}

bool stages_returns(const tm_step *step, const tm_model *model)
{
    return model->received != TM_NONE && step->first_trained < model->stage.first;
}

void stages_return(tm_step *step, const tm_model *model, tm_tensor_id gradient)
{
    tm_graph *graph = step->graph;
    TM_ASSERT(tm_graph_at(graph, gradient)->dtype == tm_graph_at(graph, model->received)->dtype);
    graph->phase = TM_PHASE_BACKWARD;
    if (is_own(step, model->stage.number - 1)) {
        tm_tensor_id in[TM_MAX_IN] = { gradient }, out[TM_MAX_OUT] = { step->handed_gradient };
        tm_graph_add(graph, TM_OP_cast, NULL, 0, in, out, 0);
    } else {
        stage_message(step, true, model->stage.number, model->stage.number - 1, true, false, gradient);
    }
    split_head_return(step, model);
}

/* --- programs ----------------------------------------------------------------------------------------------------- */

/* Which nodes of the backward pass, from `from` on, the gradient of the stage's input depends on. */
static void find_input_nodes(const tm_step *step, const tm_segment *segment, size_t from, bool *needed)
{
    const tm_graph *graph = step->graph;
    bool           *wanted = tm_alloc(graph->n_tensors * sizeof *wanted);
    if (step->handed_gradient != TM_NONE) wanted[step->handed_gradient] = true;
    for (size_t x = segment->n_nodes; x-- > from;) {
        const tm_node *node = &segment->nodes[x];
        bool           lookup = node->op == TM_OP_embedding_grad; /* the first stage: what its look-up gets */
        needed[x] = node->op == TM_OP_send || node->op == TM_OP_receive;
        for (int k = 0; k < TM_MAX_OUT; k++)
            needed[x] = needed[x] || (node->out[k] != TM_NONE && wanted[tm_graph_base(graph, node->out[k])]);
        for (int i = 0; i < TM_MAX_IN && (needed[x] || lookup); i++)
            if (node->in[i] != TM_NONE && !tm_role_persistent(tm_graph_at(graph, node->in[i])->role))
                wanted[tm_graph_base(graph, node->in[i])] = true;
    }
    free(wanted);
}

/* The nodes of the segment that are marked with `part` become the current segment. */
static void take_part(tm_graph *graph, const tm_segment *all, const char *part, char which, const char *name)
{
    tm_segment *made = tm_graph_segment(graph, name);
    for (size_t x = 0; x < all->n_nodes; x++) {
        if (part[x] != which) continue;
        made->nodes = tm_grow(made->nodes, &made->capacity, made->n_nodes, sizeof *made->nodes);
        made->nodes[made->n_nodes++] = all->nodes[x];
    }
}

void stages_table_apart(tm_step *step, bool first)
{
    if (has_whole_table(&step->model)) tm_lookup_apart(step->graph, step->model.embedding, !first);
}

/* Nodes of the forward pass, then the others. (Copies to another memory may stand on the other side.) */
static void copy_by_phase(tm_node *to, const tm_segment *segment)
{
    size_t n = 0;
    for (int backward = 0; backward < 2; backward++)
        for (size_t x = 0; x < segment->n_nodes; x++)
            if ((segment->nodes[x].phase != TM_PHASE_FORWARD) == (backward == 1)) to[n++] = segment->nodes[x];
}

void stages_split(tm_step *step, bool first, int chunk)
{
    tm_graph   *graph = step->graph;
    tm_segment *segment = graph->segment, all = *segment;
    tm_pipeline p = stages_pipeline(&step->options);
    bool        parts = tm_pipeline_parts(&p);
    size_t      turn = 0, kept = 0;
    stages_table_apart(step, first);
    all.nodes = tm_alloc(all.n_nodes * sizeof *all.nodes);
    copy_by_phase(all.nodes, segment);
    while (turn < all.n_nodes && all.nodes[turn].phase == TM_PHASE_FORWARD) turn++;
    bool *input = tm_alloc(all.n_nodes * sizeof *input);
    char *part = tm_alloc(all.n_nodes);
    if (parts) find_input_nodes(step, &all, turn, input);
    for (size_t x = 0; x < all.n_nodes; x++) part[x] = x < turn ? 'f' : !parts ? 'b' : input[x] ? 'i' : 'w';
    for (size_t x = 0; x < all.n_nodes; x++)
        if (part[x] == 'f') segment->nodes[kept++] = all.nodes[x];
    segment->n_nodes = kept;
    if (parts) {
        take_part(graph, &all, part, 'i', stages_program(step, "input", first, chunk));
        take_part(graph, &all, part, 'w', stages_program(step, "weight", first, chunk));
    } else {
        take_part(graph, &all, part, 'b', stages_program(step, "backward", first, chunk));
    }
    free(all.nodes);
    free(part);
    free(input);
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

static void sum_over_stages(tm_step *step, tm_tensor_id what)
{
    tm_units_call(step->graph, TM_OP_all_reduce, pipeline_axes, tm_layout_size(&step->options.layout, pipeline_axes),
                  tm_graph_at(step->graph, what)->name, what, what, false);
}

void stages_clear(tm_step *step, tm_tensor_id what)
{
    tm_graph    *graph = step->graph;
    const char  *name = tm_graph_at(graph, what)->name;
    tm_shape     shape = tm_graph_at(graph, what)->shape;
    tm_tensor_id from = zeros_again(step, tm_arena_format(graph->arena, "%s.zero", name), tm_shape_elements(shape));
    tm_tensor_id to = shape.rank == 1 ? what : tm_graph_run(graph, name, what, 0, tm_shape_1(1));
    tm_units_call(graph, TM_OP_reduce_scatter, 0, 1, "zeros", from, to, false);
}

void stages_count_anew(tm_step *step, tm_model *model)
{
    model->account = TM_ACCOUNT_ADD;
    step->graph->phase = TM_PHASE_FORWARD;
    step->graph->module = "counts";
    if (model->expert_counts != TM_NONE) stages_clear(step, step->counts);
}

/* A copy that stays where it is read once the program has run. */
static tm_tensor_id keep(tm_graph *graph, const char *name, tm_tensor_id what)
{
    tm_tensor    like = *tm_graph_at(graph, what);
    tm_tensor_id kept = tm_graph_tensor_as(graph, tm_arena_format(graph->arena, "%s.%s", graph->segment->name, name),
                                           TM_ROLE_SCALAR, like.shape, like.dtype);
    tm_tensor_id in[TM_MAX_IN] = { what }, out[TM_MAX_OUT] = { kept };
    tm_graph_add(graph, TM_OP_cast, NULL, 0, in, out, 0);
    return kept;
}

/* What an evaluation tells of pairs. */
static void tell_pairs(tm_step *step, const tm_model *model, const tm_tensor_id losses[2], tm_tensor_id kept[2])
{
    if (!tm_parallel_ends(&model->parallel)) stages_clear(step, model->preferred);
    sum_over_stages(step, model->preferred);
    kept[0] = losses[0] == TM_NONE ? TM_NONE : keep(step->graph, "token_losses", losses[0]);
    kept[1] = losses[1] == losses[0] ? kept[0] : keep(step->graph, "row_losses", losses[1]);
}

void stages_evaluated(tm_step *step, const tm_model *model, const tm_tensor_id losses[2], tm_tensor_id kept[2])
{
    step->graph->module = "stages";
    if (!tm_parallel_ends(&model->parallel)) stages_clear(step, step->evaluation_loss);
    sum_over_stages(step, step->evaluation_loss);
    if (model->preferred != TM_NONE) tell_pairs(step, model, losses, kept);
}

/* Does a step begin with the micro-batch that comes back first? */
static bool begins_with_first(const tm_step *step)
{
    tm_pipeline         p = stages_pipeline(&step->options);
    size_t              n;
    tm_pipeline_action *actions = tm_pipeline_actions(&p, rank_of(&step->options), &n);
    bool                same = actions[0].micro_batch == tm_pipeline_first(actions, n, 0);
    free(actions);
    return same;
}

/* In front of all that the first program of a step does; where that is run again in a step, in one of its own. So is
 * the record of factors in low precision, which programs add to as well. */
void stages_clear_counts(tm_step *step)
{
    tm_graph   *graph = step->graph;
    bool        own = !begins_with_first(step);
    tm_segment *current = graph->segment;
    tm_segment *first = own ? tm_graph_segment(graph, "counts") : graph->segments[0];
    size_t      before = first->n_nodes;
    graph->segment = first;
    graph->phase = TM_PHASE_FORWARD;
    graph->module = "counts";
    stages_clear(step, step->counts);
    tm_quantize_clear(graph, &step->quantized);
    size_t   n = first->n_nodes - before;
    tm_node *made = tm_alloc(n * sizeof *made);
    memcpy(made, first->nodes + before, n * sizeof *made);
    memmove(first->nodes + n, first->nodes, before * sizeof *first->nodes);
    memcpy(first->nodes, made, n * sizeof *made);
    free(made);
    graph->segment = current;
}

void stages_exchange(tm_step *step)
{
    tm_graph *graph = step->graph;
    tm_model *m = &step->model;
    int       last = tm_layout_size(&step->options.layout, pipeline_axes) - 1;
    bool      begins = tm_parallel_begins(&m->parallel);
    if (!stages_cut(step) || tm_parallel_piece(&m->parallel)) return;
    if (!m->shape->tied || (!begins && !tm_parallel_ends(&m->parallel)) || has_whole_table(m)) return;
    tm_tensor_id own = tm_graph_at(graph, m->embedding)->gradient;
    if (own == TM_NONE) return;
    tm_tensor    like = *tm_graph_at(graph, own);
    tm_tensor_id other =
        tm_graph_tensor_as(graph, "gradients of the other stage", TM_ROLE_PARTIAL, like.shape, like.dtype);
    stages_message(step, true, begins ? last : 0, STAGES_BACKWARD, 1, "gradients of the table", own);
    stages_message(step, false, begins ? last : 0, STAGES_BACKWARD, 1, "gradients of the table", other);
    tm_tensor_id in[TM_MAX_IN] = { begins ? own : other, begins ? other : own }, out[TM_MAX_OUT] = { own };
    graph->module = "stages";
    tm_graph_add(graph, TM_OP_add, NULL, 0, in, out, 0);
    graph->module = "";
}

void stages_count(tm_step *step)
{
    if (stages_cut(step)) sum_over_stages(step, step->counts);
}

void stages_square_sum(tm_step *step, tm_tensor_id square_sum)
{
    if (stages_cut(step)) sum_over_stages(step, square_sum);
}

/* --- the list of a step ------------------------------------------------------------------------------------------- */

static const char *const kinds[] = {
    [TM_DO_FORWARD] = "forward", [TM_DO_BACKWARD] = "backward", [TM_DO_INPUT] = "input", [TM_DO_WEIGHT] = "weight"
};

static int32_t program_of(const tm_step *step, tm_pipeline_kind kind, bool first, int chunk)
{
    const char *name = stages_program(step, kinds[kind], first, chunk);
    size_t      s = 0;
    while (s < step->graph->n_segments && strcmp(step->graph->segments[s]->name, name) != 0) s++;
    TM_ASSERT(s < step->graph->n_segments);
    return (int32_t)s;
}

/* What this rank runs for a part of the step, with slots; free it. Where backwards are parted, a whole one is both. */
static tm_execution *list_executions(const tm_step *step, size_t *n, int *slots)
{
    tm_pipeline         p = stages_pipeline(&step->options);
    size_t              actions_n;
    tm_pipeline_action *actions = tm_pipeline_actions(&p, rank_of(&step->options), &actions_n);
    tm_execution       *list = tm_alloc(2 * actions_n * sizeof *list);
    int64_t             first[TM_MAX_CHUNKS];
    const bool          parts = tm_pipeline_parts(&p), v = tm_pipeline_is_v(&p);
    for (int c = 0; c < p.chunks; c++) first[c] = tm_pipeline_first(actions, actions_n, c);
    *n = 0;
    for (size_t k = 0; k < actions_n; k++) {
        const tm_pipeline_action *a = &actions[k];
        const bool                both = parts && a->kind == TM_DO_BACKWARD, begins = a->micro_batch == first[a->chunk];
        int32_t                   slot_of = (int32_t)((v ? 0 : a->chunk) * p.micro_batches + a->micro_batch);
        list[(*n)++] = (tm_execution){ .program = program_of(step, both ? TM_DO_INPUT : a->kind, begins, a->chunk),
                                       .micro_batch = slot_of };
        if (both)
            list[(*n)++] =
                (tm_execution){ .program = program_of(step, TM_DO_WEIGHT, begins, a->chunk), .micro_batch = slot_of };
    }
    *slots = tm_execution_slots(list, *n);
    free(actions);
    return list;
}

/* In a V both stages of a micro-batch are in one slot, and the programs in an order in which what one of them leaves
 * for a later one is never in another's way: forward 1, 2, input 2, 1, weight 2, 1 (weights may come earlier), or
 * forward 1, 2, backward 2, 1. */
static void order_v(tm_graph *graph, int64_t micro_batches, bool parts)
{
    static const size_t parted[] = { 0, 3, 4, 1, 5, 2 }, whole[] = { 0, 2, 3, 1 };
    enum { MOST = sizeof parted / sizeof parted[0] };
    const size_t *wanted = parts ? parted : whole, each = parts ? MOST : MOST - 2;
    for (size_t from = 0; from < (size_t)(micro_batches > 1 ? 2 : 1) * each; from += each) {
        tm_segment *were[MOST];
        memcpy(were, graph->segments + from, each * sizeof *were);
        for (size_t k = 0; k < each; k++) graph->segments[from + k] = were[wanted[k]];
    }
}

void stages_slots(tm_step *step)
{
    size_t      n;
    tm_pipeline p = stages_pipeline(&step->options);
    if (!stages_cut(step)) return;
    if (tm_pipeline_is_v(&p)) order_v(step->graph, p.micro_batches, tm_pipeline_parts(&p));
    free(list_executions(step, &n, &step->graph->slots));
}

static void add_behind(tm_step *step, const tm_program *program)
{
    TM_ASSERT(program);
    *tm_schedule_add(step, &step->training) =
        (tm_work){ .program = program, .micro_batch = TM_BEHIND_MICRO_BATCH, .count = 1 };
}

/* The parts of a step one after the other, each a pipeline that fills and drains. */
void stages_schedule(tm_step *step)
{
    size_t            n;
    int               slots;
    tm_execution     *list = list_executions(step, &n, &slots);
    const int64_t     parts = step->options.layout.parts > 1 ? step->options.layout.parts : 1;
    const int64_t     each = step->options.accumulation / parts;
    const tm_program *counts = tm_plan_program(step->plan, "counts");
    for (int64_t part = 0; part < parts; part++) {
        if (counts) add_behind(step, counts);
        for (size_t k = 0; k < n; k++)
            *tm_schedule_add(step, &step->training) =
                (tm_work){ .program = tm_plan_execution(step->plan, &list[k]),
                           .micro_batch = part * each + list[k].micro_batch % each,
                           .count = 1,
                           .slot = list[k].slot };
        if (part + 1 < parts) add_behind(step, tm_plan_program(step->plan, part ? "part.further" : "part.first"));
    }
    if (tm_plan_program(step->plan, "table")) add_behind(step, tm_plan_program(step->plan, "table"));
    free(list);
}
