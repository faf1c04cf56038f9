/* SPDX-License-Identifier: Apache-2.0 */
#include "train/step/split_head.h"

#include "base/arena.h"
#include "train/step/stage.h"

#include <stdio.h>
#include <stdlib.h>

static const unsigned pipeline_axes = 1U << TM_AXIS_PP;

/* --- what it goes with -------------------------------------------------------------------------------------------- */

tm_status split_head_check(const tm_step_options *o, tm_error *err)
{
    const char *const key = "parallelism.pipeline_parallel_divide_head";
    const tm_pipeline p = stages_pipeline(o);
    if (!o->layout.divide_head) return TM_OK;
    if (p.chunks > 1 || p.ranks == 2) return TM_OK;
    return tm_fail(err, TM_INVALID,
                   "%s: the %d pieces of the output layer come behind all blocks, which the first of %d stages would "
                   "have alone; take a schedule with two stages on each rank (parallelism.pipeline_parallel_schedule "
                   "%s)",
                   key, p.ranks, p.ranks, tm_pipeline_name(TM_PIPELINE_INTERLEAVED));
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

/* With the stage before or behind this one: pieces that follow one another are on different ranks. */
static void message(tm_step *step, const tm_model *model, bool sends, int other, bool back, bool held_out,
                    tm_tensor_id x)
{
    const tm_pipeline p = stages_pipeline(&step->options);
    const int         of = sends ? model->stage.number : other;
    char              what[64];
    snprintf(what, sizeof what, "%ssums of logits of stage %d", held_out ? "held-out " : "", of);
    stages_message(step, sends, tm_pipeline_rank(&p, other), back ? STAGES_BACKWARD : STAGES_FORWARD,
                   held_out ? 1 : step->options.accumulation, what, x);
}

static tm_tensor_id parts_of(tm_graph *graph, const char *name, int pieces, int64_t rows)
{
    return tm_graph_tensor(graph, name, TM_ROLE_STATISTIC, tm_shape_2((int64_t)3 * pieces, rows));
}

void split_head_receive(tm_step *step, tm_model *model, int64_t rows, bool held_out)
{
    const tm_stage *stage = &model->stage;
    model->link = NULL;
    if (stage->pieces == 0) return;
    model->link = tm_arena_take(step->graph->arena, sizeof *model->link);
    *model->link = (tm_piece_link){ .before = TM_NONE, .parts = TM_NONE, .e = TM_NONE, .targets = TM_NONE };
    if (stage->piece == 0) return;
    model->link->before = parts_of(step->graph, "received.parts", stage->piece, rows);
    message(step, model, false, stage->number - 1, false, held_out, model->link->before);
}

void split_head_pass(tm_step *step, const tm_model *model, bool held_out)
{
    if (model->link) message(step, model, true, model->stage.number + 1, false, held_out, model->link->parts);
}

size_t split_head_turn(tm_step *step, const tm_model *model, tm_seed *seed)
{
    tm_graph          *graph = step->graph;
    const tm_stage    *stage = &model->stage;
    tm_piece_link     *link = model->link;
    tm_vocabulary_attr attr = { .first = stage->class_first, .rank = stage->piece, .ranks = stage->pieces };
    if (!link) return 0;
    link->parts = parts_of(graph, "received.all_parts", stage->pieces, tm_graph_at(graph, link->parts)->shape.n[1]);
    message(step, model, false, stage->number + 1, true, false, link->parts);
    tm_tensor_id in[TM_MAX_IN] = { link->e, link->targets, link->parts, step->scalars, TM_NONE };
    tm_tensor_id out[TM_MAX_OUT] = { TM_NONE };
    graph->module = "output";
    tm_graph_add(graph, TM_OP_vocabulary_loss_grad, &attr, sizeof attr, in, out, 0);
    graph->module = "";
    *seed = (tm_seed){ link->e, out[0] };
    return 1;
}

void split_head_return(tm_step *step, const tm_model *model)
{
    if (model->link && model->stage.piece > 0)
        message(step, model, true, model->stage.number - 1, true, false, model->link->parts);
}

/* --- a table that is looked up, too ------------------------------------------------------------------------------- */

static tm_tensor_id add(tm_graph *graph, tm_tensor_id a, tm_tensor_id b, tm_tensor_id sum)
{
    tm_tensor_id in[TM_MAX_IN] = { a, b }, out[TM_MAX_OUT] = { sum };
    tm_graph_add(graph, TM_OP_add, NULL, 0, in, out, 0);
    return out[0];
}

/* Gives another rank the gradient of some rows of the table, and takes the one that it has. */
static tm_tensor_id exchange(tm_step *step, int peer, tm_tensor_id own)
{
    tm_tensor    like = *tm_graph_at(step->graph, own);
    tm_tensor_id other =
        tm_graph_tensor_as(step->graph, "gradients of the other stage", TM_ROLE_PARTIAL, like.shape, like.dtype);
    stages_message(step, true, peer, STAGES_BACKWARD, 1, "gradients of the table", own);
    stages_message(step, false, peer, STAGES_BACKWARD, 1, "gradients of the table", other);
    step->graph->module = "stages";
    return other;
}

/* The table's gradient is that of its look-ups, a piece's that of its logits: both become the sum. */
static void share_rows(tm_step *step, tm_tensor_id table, tm_tensor_id piece, const tm_stage *stage, int rank)
{
    tm_graph    *graph = step->graph;
    int64_t      columns = step->options.shape.dim;
    tm_shape     rows = tm_shape_2(stage->class_end - stage->class_first, columns);
    const char  *name = tm_arena_format(graph->arena, "rows of %s", tm_graph_at(graph, table)->name);
    tm_tensor_id run = tm_graph_run(graph, name, table, stage->class_first * columns, rows);
    if (rank != 0) {
        add(graph, run, exchange(step, rank, run), run);
        return;
    }
    tm_tensor_id in[TM_MAX_IN] = { add(graph, run, piece, run) }, out[TM_MAX_OUT] = { piece };
    tm_graph_add(graph, TM_OP_cast, NULL, 0, in, out, 0);
}

void split_head_share_table(tm_step *step)
{
    tm_graph         *graph = step->graph;
    const tm_model   *m = &step->model;
    const tm_pipeline p = stages_pipeline(&step->options);
    tm_error          err = { 0 };
    if (!stages_cut(step) || !m->shape->tied || !tm_parallel_piece(&m->parallel)) return;
    tm_tensor_id piece = tm_graph_at(graph, m->head)->gradient;
    tm_stage    *all = tm_alloc((size_t)(p.ranks * p.chunks) * sizeof *all);
    tm_status    st = stages_cut_all(&step->options, all, &err);
    TM_ASSERT(st == TM_OK && tm_layout_size(&step->options.layout, pipeline_axes) == p.ranks);
    tm_graph_segment(graph, "table");
    graph->phase = TM_PHASE_BACKWARD;
    graph->module = "stages";
    if (!tm_parallel_begins(&m->parallel)) {
        add(graph, exchange(step, 0, piece), piece, piece);
    } else {
        tm_tensor_id table = tm_graph_at(graph, m->embedding)->gradient;
        for (int s = 0; s < p.ranks * p.chunks; s++)
            if (all[s].pieces > 0) share_rows(step, table, piece, &all[s], tm_pipeline_rank(&p, s));
    }
    free(all);
}
