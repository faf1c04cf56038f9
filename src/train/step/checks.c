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

tm_status step_check_tensor(const tm_step *step, tm_error *err)
{
    const tm_step_options *o = &step->options;
    const tm_layout       *layout = &o->layout;
    int                    ranks = tm_layout_size(layout, 1U << TM_AXIS_TP);
    int64_t                context = tm_layout_size(layout, 1U << TM_AXIS_CP), rows = o->micro_batch * o->seq / context;
    int64_t                validation = o->validation_batch * o->validation_seq / context;
    if (ranks == 1) return TM_OK;
    tm_parallel parallel = tm_layout_parallel(layout);
    TM_TRY(tm_model_check_tensor(&o->shape, &parallel, err));
    if (layout->whole_rows || tm_model_images(&o->shape)) return TM_OK;
    if (rows % ranks || validation % ranks)
        return tm_fail(err, TM_INVALID,
                       "parallelism.tensor_parallel_degree %d does not divide the tokens of a micro-batch "
                       "(training.local_batch_size x training.seq_len / parallelism.context_parallel_degree, %lld; of "
                       "validation %lld); change them, or set "
                       "parallelism.enable_sequence_parallel false",
                       ranks, (long long)rows, (long long)validation);
    if (o->sample && o->seq % ranks)
        return tm_fail(
            err, TM_INVALID,
            "parallelism.tensor_parallel_degree %d does not divide training.seq_len %lld, and a text that the "
            "model writes (data.sample_tokens) is one sequence; change one of them, or set "
            "data.sample_tokens 0 or parallelism.enable_sequence_parallel false",
            ranks, (long long)o->seq);
    return TM_OK;
}
