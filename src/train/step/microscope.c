/* SPDX-License-Identifier: Apache-2.0 */
/* train/step/microscope.c - the microscope's program: a micro-batch in the training's format and in another, side by
 * side. Of the stages of a pipeline each rank has one, with its stages' forward passes and then their backward passes,
 * in which both formats' messages go from stage to stage in turn. */
#include "train/step/data_parallel.h"
#include "train/step/stages.h"
#include "train/step/program.h"

#include <stdlib.h>

/* A scalar like `of`, for the other format. */
static tm_tensor_id like_scalar(tm_graph *graph, const char *name, tm_tensor_id of)
{
    return of == TM_NONE ? TM_NONE : tm_graph_tensor(graph, name, TM_ROLE_SCALAR, tm_graph_at(graph, of)->shape);
}

/* What a program counts in scalars of its own, whose names begin with `prefix`. */
static void count_apart(tm_step *step, training_program *p, const char *prefix)
{
    tm_graph   *graph = step->graph;
    const char *of[] = { "loss", "expert_counts", "balance_loss", "preferred" };
    for (size_t i = 0; i < 4; i++) of[i] = tm_arena_format(graph->arena, "%s.%s", prefix, of[i]);
    p->loss = like_scalar(graph, of[0], step->loss);
    p->model.expert_counts = like_scalar(graph, of[1], step->model.expert_counts);
    p->model.balance_loss = like_scalar(graph, of[2], step->model.balance_loss);
    p->model.preferred = like_scalar(graph, of[3], step->model.preferred);
}

/* The gradients of parameters, as (tensors) pairs of the one and the other format's. `hide`: notes the own ones and
 * takes them out of the graph; else puts them back, and makes the others what a program holds for a moment. */
static void swap_gradients(tm_graph *graph, tm_look_pair *pairs, size_t n, bool lookup, bool hide)
{
    for (size_t i = 0; i < n; i++) {
        tm_tensor    *tensor = &graph->tensors[i];
        tm_tensor_id *slot = lookup ? &tensor->lookup_gradient : &tensor->gradient;
        if (hide) {
            pairs[i] = (tm_look_pair){ *slot, TM_NONE };
            *slot = TM_NONE;
            continue;
        }
        pairs[i].reference = *slot;
        *slot = pairs[i].own;
        if (pairs[i].reference == TM_NONE) continue;
        tm_tensor *reference = tm_graph_at(graph, pairs[i].reference);
        reference->role = TM_ROLE_PARTIAL;
        reference->name = tm_arena_format(graph->arena, "%s.%s", reference->name, graph->precision->name);
    }
}

/* The forward passes of all stages of this rank, then their backward passes, in one segment; *microscope: which of its
 * nodes are of what (NULL: nobody asks). */
static void join_stages(tm_step *step, tm_segment *const *of, int chunks, tm_microscope *microscope)
{
    tm_segment all = { .name = of[0]->name };
    size_t    *ends = tm_arena_take(step->graph->arena, 2 * (size_t)chunks * sizeof *ends);
    for (int part = 0; part < 2 * chunks; part++) {
        const tm_segment *from = of[part < chunks ? part : 2 * chunks - 1 - part];
        for (size_t x = 0; x < from->n_nodes; x++) {
            if ((from->nodes[x].phase == TM_PHASE_FORWARD) != (part < chunks)) continue;
            all.nodes = tm_grow(all.nodes, &all.capacity, all.n_nodes, sizeof *all.nodes);
            all.nodes[all.n_nodes++] = from->nodes[x];
        }
        ends[part] = all.n_nodes;
    }
    for (int c = 0; c < chunks; c++) free(of[c]->nodes);
    *of[0] = all;
    if (microscope) microscope->ends = ends, microscope->n_ends = 2 * (size_t)chunks;
}

/* One format's forward and backward: the current segment. */
static tm_status add_format(tm_step *step, const tm_chooser *chooser, const training_program *of,
                            tm_microscope *microscope, tm_error *err)
{
    tm_graph   *graph = step->graph;
    int         chunks = step->model.parallel.chunks;
    tm_segment *made[TM_MAX_CHUNKS] = { 0 };
    if (!stages_cut(step)) return step_add_program(step, chooser, of, err);
    for (int c = 0; c < chunks; c++) {
        training_program p = *of;
        p.together = true;
        p.chunk = c;
        p.model.stage = step->model.parallel.chunk[c];
        TM_TRY(step_add_program(step, chooser, &p, err));
        made[c] = graph->segment;
    }
    graph->n_segments -= (size_t)chunks - 1; /* of which they are the last */
    graph->segment = made[0];
    join_stages(step, made, chunks, microscope);
    return TM_OK;
}

/* The same forward and backward in the format `compared`: a segment that is taken out of the graph again. */
static tm_status add_reference(tm_step *step, const tm_chooser *chooser, tm_look_pair *pairs, size_t n, tm_error *err)
{
    tm_graph        *graph = step->graph;
    training_program p = { .name = "microscope.reference", .model = step->model, .plain = true };
    swap_gradients(graph, pairs, n, false, true);
    swap_gradients(graph, pairs + n, n, true, true);
    count_apart(step, &p, "microscope");
    step->reference_loss = p.loss;
    p.model.account = TM_ACCOUNT_FRESH;
    graph->precision = step->options.compared;
    tm_status st = add_format(step, chooser, &p, NULL, err);
    swap_gradients(graph, pairs, n, false, false);
    swap_gradients(graph, pairs + n, n, true, false);
    graph->precision = step->options.precision;
    return st;
}

/* A micro-batch in the training's format and in another, side by side. It writes nothing that a step does not write
 * before it reads it: gradients, loss and counts are those of the next program "first". */
tm_status step_add_look(tm_step *step, const tm_chooser *chooser, tm_error *err)
{
    tm_graph        *graph = step->graph;
    training_program own = { .name = "microscope", .model = step->model, .loss = step->loss };
    own.model.account = TM_ACCOUNT_FRESH;
    if (step->counts != TM_NONE) count_apart(step, &own, "microscope.own"); /* the step's are parts of one tensor */
    step->look_loss = own.loss;
    TM_TRY(add_format(step, chooser, &own, &step->microscope, err));
    tm_segment   *segment = graph->segment;
    size_t        n = graph->n_tensors;
    tm_look_pair *pairs = tm_alloc((2 * n + 1) * sizeof *pairs);
    tm_status     st = add_reference(step, chooser, pairs, n, err);
    tm_segment   *reference = graph->segment;
    graph->segment = segment;
    graph->n_segments--; /* of which it is the last */
    if (st == TM_OK) {
        size_t both = 0;
        for (size_t i = 0; i < 2 * n; i++)
            if (pairs[i].own != TM_NONE && pairs[i].reference != TM_NONE) pairs[both++] = pairs[i];
        st = tm_microscope_pass(graph, reference, pairs, both, &step->microscope, err);
    }
    if (st == TM_OK) data_parallel_segment(step);
    free(reference->nodes);
    free(pairs);
    return st;
}
