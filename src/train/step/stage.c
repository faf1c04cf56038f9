/* SPDX-License-Identifier: Apache-2.0 */
#include "train/step/stage.h"

#include "base/arena.h"

#include <stdio.h>
#include <string.h>

tm_pipeline stages_pipeline(const tm_step_options *o)
{
    return tm_layout_pipeline(&o->layout, o->accumulation);
}

tm_status stages_cut_all(const tm_step_options *o, tm_stage *out, tm_error *err)
{
    const tm_layout  *l = &o->layout;
    const tm_pipeline p = stages_pipeline(o);
    const int64_t     blocks = tm_model_blocks(&o->shape);
    if (l->divide_head) {
        tm_pipeline_head head = { .vocabulary = o->shape.vocab_size, .blocks = l->head_blocks };
        return tm_pipeline_cut_head(&p, blocks, l->first_less, &head, out, err);
    }
    if (!l->first_blocks) return tm_pipeline_cut(blocks, p.ranks * p.chunks, l->first_less, l->last_less, out, err);
    tm_pipeline_cut_at(blocks, p.ranks * p.chunks, l->first_blocks, out);
    return TM_OK;
}

/* With pieces of an output layer two messages go where one does without. */
static int64_t messages_waiting(tm_step *step)
{
    const tm_pipeline p = stages_pipeline(&step->options);
    if (step->waiting == 0) step->waiting = tm_pipeline_waiting(&p);
    return (step->options.layout.divide_head ? 2 : 1) * step->waiting;
}

void stages_message(tm_step *step, bool sends, int peer, int channel, int64_t times, const char *what, tm_tensor_id x)
{
    tm_graph       *graph = step->graph;
    tm_message_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.axes = TM_STAGE_AXES;
    attr.ranks = tm_layout_size(&step->options.layout, TM_STAGE_AXES);
    attr.peer = peer;
    attr.channel = channel;
    attr.times = times;
    if (sends) attr.waiting = messages_waiting(step);
    tm_shape shape = tm_graph_at(graph, x)->shape;
    if (!sends) attr.rows = shape.n[0], attr.columns = shape.n[1];
    snprintf(attr.what, sizeof attr.what, "%s", what);
    tm_tensor_id in[TM_MAX_IN] = { sends ? x : TM_NONE }, out[TM_MAX_OUT] = { sends ? TM_NONE : x };
    graph->layer = -1;
    graph->module = tm_arena_text(graph->arena, what);
    tm_graph_add(graph, sends ? TM_OP_send : TM_OP_receive, &attr, sizeof attr, in, out, 0);
    graph->module = "";
}
