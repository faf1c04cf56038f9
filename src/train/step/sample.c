/* SPDX-License-Identifier: Apache-2.0 */
/* train/step/sample.c - the program "sample": what the model says of a token that follows, or of an image's velocity.
 */
#include "train/step/program.h"
#include "train/step/stages.h"

#include <string.h>

/* The logits of one row of the hidden state; behind all that a stage sends, so that they stay. */
static tm_tensor_id add_logits(tm_step *step, tm_tensor_id hidden)
{
    tm_graph         *graph = step->graph;
    tm_embedding_attr whole = { .seq = 1 };
    tm_tensor         like = *tm_graph_at(graph, hidden), head = *tm_graph_at(graph, step->model.head);
    tm_tensor_id row = tm_graph_tensor_as(graph, "sample_state", like.role, tm_shape_2(1, like.shape.n[1]), like.dtype);
    tm_tensor_id logits = tm_graph_tensor(graph, "sample_logits", TM_ROLE_LOGITS, tm_shape_2(1, head.shape.n[0]));
    tm_tensor_id in[TM_MAX_IN], out[TM_MAX_OUT] = { row };
    for (int i = 0; i < TM_MAX_IN; i++) in[i] = TM_NONE;
    graph->layer = -1;
    graph->module = "output";
    in[0] = step->sample_row, in[1] = hidden;
    tm_graph_add(graph, TM_OP_embedding, &whole, sizeof whole, in, out, 0);
    in[0] = row, in[1] = step->model.head, out[0] = logits;
    tm_graph_add(graph, TM_OP_linear, NULL, 0, in, out, 0);
    return logits;
}

/* One image, which every rank has whole. */
static tm_status add_image(tm_step *step, const tm_chooser *chooser, tm_error *err)
{
    static const char *const names[TM_SAMPLE_FIELDS] = { "noisy", "time", "text", "pooled" };
    const tm_step_options   *o = &step->options;
    tm_model                 whole = step->model;
    tm_inputs                inputs = { .n = TM_SAMPLE_FIELDS };
    whole.parallel.context = (tm_division){ 0 };
    for (int i = 0; i < TM_SAMPLE_FIELDS; i++) {
        int f = 0;
        while (f < o->n_fields && strcmp(names[i], o->fields[f].name) != 0) f++;
        TM_ASSERT(f < o->n_fields); /* the loss reads them, too */
        step->sample_fields[i] =
            tm_graph_tensor_as(step->graph, tm_arena_format(step->graph->arena, "sample.%s", names[i]), TM_ROLE_INPUT,
                               o->fields[f].shape, o->fields[f].dtype);
        inputs.name[i] = names[i];
        inputs.tensor[i] = step->sample_fields[i];
    }
    tm_graph_segment(step->graph, "sample");
    step->sample_velocity = tm_model_velocity(step->graph, &whole, &inputs);
    return step_forward_only(step, chooser, TM_NONE, err);
}

/* Of stages one for each of this rank; the last one has what comes out of the model. */
static tm_status add_sequence(tm_step *step, const tm_chooser *chooser, tm_error *err)
{
    const int64_t seq = step->options.seq;
    tm_model      whole = step->model;
    whole.parallel.context = (tm_division){ 0 }; /* every rank has all of the one sequence */
    step->sample_tokens = tm_graph_tensor(step->graph, "sample_tokens", TM_ROLE_INPUT, tm_shape_1(seq));
    step->sample_row = tm_graph_tensor_as(step->graph, "sample_row", TM_ROLE_INPUT, tm_shape_1(1), TM_I32);
    for (int c = 0; c < (stages_cut(step) ? whole.parallel.chunks : 1); c++) {
        if (stages_cut(step)) whole.stage = whole.parallel.chunk[c];
        tm_graph_segment(step->graph, stages_cut(step) ? stages_program(step, "sample", false, c) : "sample");
        stages_receive(step, &whole, seq, true);
        tm_tensor_id hidden = tm_model_hidden(step->graph, &whole, step->sample_tokens);
        if (!whole.stage.ends) stages_pass(step, &whole, hidden, true);
        if (whole.stage.ends || whole.stage.pieces > 0) step->sample_logits = add_logits(step, hidden);
        TM_TRY(step_forward_only(step, chooser, TM_NONE, err));
    }
    return TM_OK;
}

tm_status step_add_sample(tm_step *step, const tm_chooser *chooser, tm_error *err)
{
    step->sample_tokens = step->sample_row = step->sample_logits = step->sample_velocity = TM_NONE;
    if (!step->options.sample) return TM_OK;
    bool images = tm_model_images(&step->options.shape);
    return images ? add_image(step, chooser, err) : add_sequence(step, chooser, err);
}
