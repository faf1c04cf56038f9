/* SPDX-License-Identifier: Apache-2.0 */
#include "train/step.h"

#include "graph/gradient.h"

#include <stdio.h>
#include <stdlib.h>

int64_t tm_step_loss_chunk(int64_t rows, int64_t vocab)
{
    const int64_t unit = 512, limit_bytes = 32 << 20;
    int64_t       fits = limit_bytes / (vocab * 4) / unit * unit;
    if (fits < unit) fits = unit;
    return fits < rows ? fits : rows;
}

/* A tied table has a gradient from the head and one from the look-up. Each is summed over all rows of the step before
 * one is added to the other: the order of the additions, and so the bits, must not depend on where micro-batches end.
 * In a step of one micro-batch the kernel does that; over several the look-up's part has memory of its own. */
static void part_lookup_gradient(tm_step *step, bool accumulate)
{
    tm_graph    *graph = step->graph;
    tm_tensor_id table = step->model.embedding;
    for (size_t x = 0; step->options.shape.tied && x < graph->segment->n_nodes; x++) {
        tm_node *node = &graph->segment->nodes[x];
        if (node->op != TM_OP_embedding_grad || node->out[0] != tm_graph_at(graph, table)->gradient) continue;
        if (step->options.accumulation == 1) {
            tm_embedding_attr *attr = tm_arena_take(graph->arena, sizeof *attr);
            *attr = *(const tm_embedding_attr *)node->attr;
            attr->apart = 1;
            node->attr = attr;
            continue;
        }
        if (step->lookup_gradient == TM_NONE)
            step->lookup_gradient =
                tm_graph_tensor(graph, "lookup.grad", TM_ROLE_GRADIENT, tm_graph_at(graph, table)->shape);
        node->out[0] = step->lookup_gradient;
        if (!accumulate) node->accumulate &= ~1u;
    }
}

/* At the head of "update", when the look-up's part has memory of its own. */
static void join_lookup_gradient(tm_step *step)
{
    if (step->lookup_gradient == TM_NONE) return;
    tm_tensor_id gradient = tm_graph_at(step->graph, step->model.embedding)->gradient;
    tm_tensor_id in[TM_MAX_IN] = { gradient, step->lookup_gradient }, out[TM_MAX_OUT] = { gradient };
    step->graph->phase = TM_PHASE_BACKWARD;
    step->graph->module = "lookup";
    tm_graph_add(step->graph, TM_OP_add, NULL, 0, in, out, 0);
}

static void add_training_segment(tm_step *step, const char *name, bool accumulate)
{
    tm_graph *graph = step->graph;
    tm_graph_segment(graph, name);
    tm_model_loss(graph, &step->model, step->tokens, step->targets, step->loss, step->options.loss_chunk, accumulate);
    tm_seed seed = { .result = step->loss, .cotangent = step->scalars };
    tm_gradient_pass(graph, accumulate, &seed, 1, NULL, NULL, 0);
    part_lookup_gradient(step, accumulate);
    tm_recompute_pass(graph, &step->options.recompute);
    tm_precision_pass(graph);
}

static void add_update_segment(tm_step *step)
{
    tm_graph              *graph = step->graph;
    const tm_step_options *o = &step->options;
    size_t                 n = graph->n_tensors;
    tm_graph_segment(graph, "update");
    join_lookup_gradient(step);
    graph->phase = TM_PHASE_UPDATE;
    graph->module = "clip";
    tm_tensor_id square_sum = tm_graph_tensor(graph, "gradient_square_sum", TM_ROLE_SCALAR, (tm_shape){ .rank = 0 });
    unsigned     accumulate = 0;
    for (size_t i = 0; i < n; i++) {
        if (graph->tensors[i].gradient == TM_NONE) continue;
        tm_tensor_id in[TM_MAX_IN] = { graph->tensors[i].gradient }, out[TM_MAX_OUT] = { square_sum };
        graph->layer = graph->tensors[i].layer;
        tm_graph_add(graph, TM_OP_square_sum, NULL, 0, in, out, accumulate);
        accumulate = 1;
    }
    graph->layer = -1;
    tm_tensor_id norm_in[TM_MAX_IN] = { square_sum, step->scalars }, norm_out[TM_MAX_OUT] = { step->clip };
    tm_graph_add(graph, TM_OP_clip, NULL, 0, norm_in, norm_out, 0);
    graph->module = "optimizer";
    for (size_t i = 0; i < n; i++) {
        if (graph->tensors[i].gradient == TM_NONE) continue;
        tm_tensor_id p = (tm_tensor_id)i;
        tm_update    update = { .parameter = p, .gradient = graph->tensors[i].gradient, .scalars = step->scalars,
                                .clip = step->clip };
        tm_optimizer_add(graph, o->optimizer, &o->hyper, update);
    }
    graph->module = "";
    graph->layer = -1;
}

static void add_evaluate_segment(tm_step *step)
{
    tm_graph_segment(step->graph, "evaluate");
    tm_model_loss(step->graph, &step->model, step->tokens, step->targets, step->evaluation_loss,
                  step->options.loss_chunk, false);
    tm_precision_pass(step->graph);
}

static void add_sample_segment(tm_step *step)
{
    step->sample_tokens = tm_graph_tensor(step->graph, "sample_tokens", TM_ROLE_INPUT, tm_shape_1(step->options.seq));
    tm_graph_segment(step->graph, "sample");
    step->sample_hidden = tm_model_hidden(step->graph, &step->model, step->sample_tokens);
    tm_precision_pass(step->graph);
}

tm_status tm_step_create(const tm_step_options *options, const tm_chooser *chooser, tm_step **out, tm_error *err)
{
    tm_step *step = tm_alloc(sizeof *step);
    step->options = *options;
    int64_t rows = options->micro_batch * options->seq;
    if (step->options.loss_chunk <= 0) step->options.loss_chunk = tm_step_loss_chunk(rows, options->shape.vocab_size);
    if (step->options.loss_chunk > rows) step->options.loss_chunk = rows;
    tm_graph *graph = step->graph = tm_graph_create(options->precision);
    step->tokens = tm_graph_tensor(graph, "tokens", TM_ROLE_INPUT, tm_shape_1(rows));
    step->targets = tm_graph_tensor(graph, "targets", TM_ROLE_INPUT, tm_shape_1(rows));
    step->scalars = tm_graph_tensor(graph, "scalars", TM_ROLE_SCALAR, tm_shape_1(TM_SCALAR_COUNT));
    step->loss = tm_graph_tensor(graph, "loss", TM_ROLE_SCALAR, (tm_shape){ .rank = 0 });
    step->evaluation_loss = tm_graph_tensor(graph, "evaluation_loss", TM_ROLE_SCALAR, (tm_shape){ .rank = 0 });
    step->clip = tm_graph_tensor(graph, "clip", TM_ROLE_SCALAR, tm_shape_1(2));
    step->lookup_gradient = TM_NONE;
    tm_model_declare(graph, &step->options.shape, options->seq, &step->model);
    add_training_segment(step, "first", false);
    if (options->accumulation > 1) add_training_segment(step, "further", true);
    add_update_segment(step);
    add_evaluate_segment(step);
    step->sample_tokens = step->sample_hidden = TM_NONE;
    if (options->sample) add_sample_segment(step);
    tm_status st = tm_plan_create(graph, chooser, &step->plan, err);
    if (st != TM_OK) {
        tm_step_destroy(step);
        return st;
    }
    step->first = tm_plan_program(step->plan, "first");
    step->further = tm_plan_program(step->plan, "further");
    step->update = tm_plan_program(step->plan, "update");
    step->evaluate = tm_plan_program(step->plan, "evaluate");
    step->sample = tm_plan_program(step->plan, "sample");
    *out = step;
    return TM_OK;
}

void tm_step_destroy(tm_step *step)
{
    if (!step) return;
    tm_plan_destroy(step->plan);
    tm_graph_destroy(step->graph);
    free(step);
}
