/* SPDX-License-Identifier: Apache-2.0 */
#include "train/step/whole_model.h"

#include "train/step/program.h"

#include <string.h>

/* The same step among the ranks of this one's stage, each of which has the whole model. */
static tm_step_options without_stages(const tm_step_options *of)
{
    tm_step_options one = *of;
    int             ranks = tm_mesh_ranks(&of->layout.mesh) / of->layout.mesh.degree[TM_AXIS_PP];
    one.layout.mesh.degree[TM_AXIS_PP] = 1;
    one.layout.rank = of->layout.rank % ranks; /* stages are the slowest axis */
    one.layout.parts = 0;
    one.offload = (tm_offload){ .folder = NULL };
    one.validation_batch = one.validation_seq = 0;
    one.sample = false;
    one.compared = NULL;
    return one;
}

static bool is_trained(const tm_tensor *tensor)
{
    return tensor->role == TM_ROLE_PARAMETER && tensor->trained;
}

/* Is anything trained of what lies in front of the blocks? */
static bool trains_in_front(const tm_step *whole)
{
    const tm_step_options *o = &whole->options;
    const tm_parallel      front = { .chunks = 1, .chunk = { { .begins = true } } };
    tm_graph              *graph = tm_graph_create(o->precision);
    tm_model               model;
    bool                   any = false;
    tm_model_declare(graph, &o->shape, o->seq, &front, &model);
    for (size_t i = 0; i < graph->n_tensors; i++)
        for (size_t k = 0; k < whole->graph->n_tensors; k++) {
            const tm_tensor *tensor = &whole->graph->tensors[k];
            any = any || (is_trained(tensor) && strcmp(tensor->name, graph->tensors[i].name) == 0);
        }
    tm_graph_destroy(graph);
    return any;
}

/* The block in front of which nothing is trained; -1: what lies in front of the blocks is. */
static int find_first_trained(const tm_step *whole)
{
    int first = (int)tm_model_blocks(&whole->options.shape);
    if (trains_in_front(whole)) return -1;
    for (size_t i = 0; i < whole->graph->n_tensors; i++) {
        const tm_tensor *tensor = &whole->graph->tensors[i];
        if (is_trained(tensor) && tensor->layer >= 0 && tensor->layer < first) first = tensor->layer;
    }
    return first;
}

static tm_status take_from(tm_step *step, tm_step *whole, const tm_chooser *chooser, tm_error *err)
{
    const tm_step_options *o = &step->options;
    step->first_trained = find_first_trained(whole);
    step->model.fixed_front = step->first_trained >= 0;
    TM_TRY(tm_groups_assign(step->graph, o->groups, o->n_groups, false, step->group_of, err));
    if (!o->quantize.on) return TM_OK;
    TM_TRY(step_add_first(whole, chooser, err));
    tm_quantize_take(step->graph, &o->quantize, whole->graph, &whole->quantized, &step->quantized);
    return TM_OK;
}

tm_status stage_whole(tm_step *step, const tm_chooser *chooser, tm_error *err)
{
    const tm_step_options *o = &step->options;
    const tm_step_options  one = without_stages(o);
    tm_step               *whole;
    if (o->n_groups == 1 && o->adapters.rank == 0 && !o->quantize.on) /* all is trained */
        return tm_groups_assign(step->graph, o->groups, o->n_groups, false, step->group_of, err);
    TM_TRY(step_declare(&one, chooser, &whole, err));
    tm_status st = take_from(step, whole, chooser, err);
    tm_step_destroy(whole);
    return st;
}
