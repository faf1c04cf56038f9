/* SPDX-License-Identifier: Apache-2.0 */
/* train/step/checks.c - refusals that need a step's numbers or its programs. */
#include "train/step/checks.h"

/* An expert's rows are quantized together, so they must come together. */
tm_status step_check_declared(const tm_step *step, tm_error *err)
{
    const tm_step_options *o = &step->options;
    const tm_parallel     *parallel = &step->model.parallel;
    if (!tm_divided(parallel->experts) || !o->quantize.experts.name) return TM_OK;
    int64_t tokens = o->micro_batch * o->seq / tm_layout_size(&o->layout, 1U << TM_AXIS_CP);
    if (tm_moe_own_rows(parallel)) tokens /= parallel->tensor.ranks;
    int64_t rounds = tm_moe_exchange(&o->shape, parallel, tokens).rounds;
    if (rounds == 1) return TM_OK;
    return tm_fail(
        err, TM_UNSUPPORTED,
        "quantize.experts_recipe is built for divided experts whose rows come in one round, and "
        "parallelism.expert_parallel_degree %d with parallelism.expert_parallel_capacity %g has %lld; set the "
        "capacity to 0, which plans room for all rows",
        parallel->experts.ranks, parallel->expert_capacity, (long long)rounds);
}

/* An adapter beside a matrix that nothing multiplies with would train nothing. */
tm_status step_check_built(const tm_step *step, tm_error *err)
{
    const tm_graph *graph = step->graph;
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_adapter *adapter = graph->tensors[i].adapter; /* those behind it have the same product */
        if (adapter && tm_graph_at(graph, adapter->b)->trained && tm_graph_at(graph, adapter->b)->gradient == TM_NONE)
            return tm_fail(err, TM_UNSUPPORTED,
                           "'%s' is not the weight of a linear layer and cannot have an adapter; remove its name from "
                           "lora.targets",
                           graph->tensors[i].name);
    }
    return TM_OK;
}

tm_status step_check_parts(const tm_step_options *o, tm_error *err)
{
    bool others = tm_layout_size(&o->layout, TM_AXES_WORLD) > tm_layout_size(&o->layout, 1U << TM_AXIS_PP);
    if (o->layout.parts > 1 && (others || o->accumulation % o->layout.parts != 0))
        return tm_fail(err, TM_INVALID,
                       "training.separate_sums is %lld: it is for one rank, or one of each stage, and must divide "
                       "the micro-batches (training.grad_accumulation), which are %lld",
                       (long long)o->layout.parts, (long long)o->accumulation);
    return TM_OK;
}
