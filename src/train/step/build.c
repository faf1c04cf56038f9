/* SPDX-License-Identifier: Apache-2.0 */
/* train/step/build.c - builds a step: tensors are declared, programs emitted and rewritten, the whole is planned. */
#include "train/step/step.h"

#include "base/text.h"
#include "graph/gradient.h"
#include "train/step/sequence.h"
#include "train/step/data_parallel.h"
#include "train/step/early.h"
#include "train/step/split_head.h"
#include "train/step/whole_model.h"
#include "train/step/stages.h"
#include "train/step/supported.h"
#include "train/step/checks.h"
#include "train/step/program.h"
#include "train/step/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a micro-batch, on this rank. */
static int64_t rows_of(const tm_step *step)
{
    const tm_step_options *o = &step->options;
    return o->micro_batch * o->seq / tm_layout_size(&o->layout, 1U << TM_AXIS_CP);
}

static tm_inputs named(const tm_step *step, const tm_tensor_id *tensors)
{
    tm_inputs inputs = { .n = step->options.n_fields };
    for (int f = 0; f < inputs.n; f++) {
        inputs.name[f] = step->options.fields[f].name;
        inputs.tensor[f] = tensors[f];
    }
    return inputs;
}

static tm_inputs inputs_of(const tm_step *step)
{
    return named(step, step->inputs);
}

/* The passes of a program that only goes forward; first_row: see tm_adapt_pass. */
tm_status step_forward_only(tm_step *step, const tm_chooser *chooser, tm_tensor_id first_row, tm_error *err)
{
    tm_adapt_pass(step->graph, first_row);
    tm_head_rope_pass(step->graph, chooser);
    tm_ring_pass(step->graph);
    TM_TRY(tm_quantize_pass(step->graph, &step->options.quantize, &step->quantized, false, false, err));
    if (step->graph->precision != step->options.precision) tm_units_round(step->graph, &step->units);
    tm_precision_pass(step->graph);
    tm_uncast_pass(step->graph, chooser);
    if (step->options.quantize.on) tm_codes_pass(step->graph, chooser, NULL);
    data_parallel_segment(step);
    return TM_OK;
}

/* Do gradients outlive a micro-batch, added to whole by whole? */
static bool sums_several(const tm_step *step)
{
    const tm_layout *layout = &step->options.layout;
    bool             whole = layout->sharing < TM_SHARE_GRADIENTS || tm_layout_size(layout, TM_AXES_FSDP) == 1;
    return whole && step->options.accumulation / (layout->parts > 1 ? layout->parts : 1) > 1;
}

tm_status step_add_program(tm_step *step, const tm_chooser *chooser, const training_program *p, tm_error *err)
{
    tm_graph *graph = step->graph;
    tm_model  model = p->model;
    bool      adds = p->accumulate || (stages_cut(step) && !p->together); /* counts of stages begin with zeros */
    tm_graph_segment(graph, p->name);
    tm_inputs inputs = inputs_of(step);
    stages_receive(step, &model, rows_of(step), false);
    split_head_receive(step, &model, rows_of(step), false);
    tm_tensor_id passed = tm_model_loss(graph, &model, &inputs, p->loss, step->options.loss_chunk, adds);
    tm_adapt_pass(graph, step->first_row);
    tm_head_rope_pass(graph, chooser);
    tm_tensor_id balance = model.balance_loss, given = TM_NONE;
    tm_seed      seeds[STAGES_SEEDS + 1] = { { p->loss, step->scalars } };
    size_t       n = passed != TM_NONE ? stages_turn(step, &model, passed, seeds) : 1;
    if (balance != TM_NONE && tm_moe_takes_balance(&model.parallel)) seeds[n++] = (tm_seed){ balance, step->scalars };
    tm_gradient_pass(graph, p->accumulate, seeds, n, &model.received, &given, stages_returns(step, &model));
    if (given != TM_NONE) stages_return(step, &model, given);
    tm_lookup_pass(graph, sums_several(step), p->accumulate);
    if (!model.link) tm_chunks_pass(graph, adds);
    tm_recompute_pass(graph, &step->options.recompute);
    tm_ring_pass(graph);
    if (!p->plain)
        TM_TRY(tm_quantize_pass(graph, &step->options.quantize, &step->quantized, p->records, p->accumulate, err));
    tm_precision_pass(graph);
    tm_uncast_pass(graph, chooser);
    if (step->options.quantize.on && p->records) tm_codes_pass(graph, chooser, p->accumulate ? NULL : &step->codes);
    if (step->options.quantize.on && p->records) tm_both_pass(graph, chooser), tm_made_pass(graph, chooser);
    tm_offload offload = step->options.offload;
    offload.apart = stages_cut(step);
    if (p->offloads) tm_offload_pass(graph, &offload);
    if (!stages_cut(step)) tm_columns_pass(graph, chooser); /* else nodes of both phases part */
    if (stages_cut(step) && !p->together) stages_split(step, !p->accumulate, p->chunk);
    if (stages_cut(step) && p->together) stages_table_apart(step, true);
    return TM_OK;
}

static tm_status add_training_segment(tm_step *step, const tm_chooser *chooser, const char *name, bool accumulate,
                                      tm_error *err)
{
    training_program p = { .name = name,
                           .model = step->model,
                           .loss = step->loss,
                           .accumulate = accumulate,
                           .records = true,
                           .offloads = true };
    p.model.account = accumulate ? TM_ACCOUNT_ADD : TM_ACCOUNT_FRESH;
    return step_add_program(step, chooser, &p, err);
}

tm_status step_add_first(tm_step *step, const tm_chooser *chooser, tm_error *err)
{
    return add_training_segment(step, chooser, "first", false, err);
}

/* The programs of the stages that this rank has. */
static tm_status add_stage_segments(tm_step *step, const tm_chooser *chooser, bool accumulate, tm_error *err)
{
    for (int c = 0; c < step->model.parallel.chunks; c++) {
        training_program p = { .name = stages_program(step, "forward", !accumulate, c),
                               .model = step->model,
                               .loss = step->loss,
                               .accumulate = accumulate,
                               .records = true,
                               .offloads = true,
                               .chunk = c };
        p.model.account = TM_ACCOUNT_ADD;
        p.model.stage = step->model.parallel.chunk[c];
        TM_TRY(step_add_program(step, chooser, &p, err));
    }
    return TM_OK;
}

/* updates: room for n; what updates which parameter. Returns how many parameters are updated. */
static size_t add_updates(tm_step *step, size_t n, tm_tensor_id clip, early_update *updates)
{
    tm_graph              *graph = step->graph;
    const tm_step_options *o = &step->options;
    size_t                 updated = 0;
    for (size_t i = 0; i < n; i++) {
        if (graph->tensors[i].gradient == TM_NONE) continue;
        tm_tensor_id p = (tm_tensor_id)i;
        int          group = step->group_of[i];
        tm_update    update = {
               .parameter = p, .gradient = graph->tensors[i].gradient, .scalars = step->group_scalars[group], .clip = clip
        };
        size_t from = graph->n_tensors, first = graph->segment->n_nodes;
        tm_optimizer_add(graph, o->optimizer, &o->groups[group].hyper, update);
        for (size_t k = from; k < graph->n_tensors; k++) graph->tensors[k].twin = graph->tensors[i].twin;
        updates[updated++] = (early_update){ p, first, graph->segment->n_nodes };
    }
    return updated;
}

/* The program that averages begin with: those of the current segment become copies of the weights. */
static void add_average_segment(tm_step *step)
{
    tm_graph   *graph = step->graph;
    tm_segment *update = graph->segment;
    if (!(step->options.hyper.ema_decay > 0)) return;
    tm_graph_segment(graph, "average");
    tm_optimizer_copy(graph, update);
    tm_offload_pass(graph, &step->options.offload);
    graph->segment = update;
}

static void add_update_segment(tm_step *step)
{
    tm_graph     *graph = step->graph;
    size_t        n = graph->n_tensors, updated = 0;
    bool          early = step->options.early_updates;
    early_update *updates = tm_alloc((n + 1) * sizeof *updates);
    tm_graph_segment(graph, "update");
    tm_lookup_join(graph);
    data_parallel_reduce(step);
    tm_model_update(graph, &step->model);
    graph->module = "clip";
    tm_tensor_id square_sum = tm_graph_tensor(graph, "gradient_square_sum", TM_ROLE_SCALAR, (tm_shape){ .rank = 0 });
    data_parallel_square_sum(step, n, square_sum);
    graph->layer = -1;
    stages_square_sum(step, square_sum);
    tm_tensor_id norm_in[TM_MAX_IN] = { square_sum, step->scalars }, norm_out[TM_MAX_OUT] = { step->clip };
    tm_graph_add(graph, TM_OP_clip, NULL, 0, norm_in, norm_out, 0);
    graph->module = "optimizer";
    if (data_parallel_updates(step))
        data_parallel_update(step);
    else
        updated = add_updates(step, n, early ? early_clip(graph) : step->clip, updates);
    add_average_segment(step);
    if (early) early_move(step, graph->segments[0], updates, updated);
    free(updates);
    tm_quantize_update(graph, &step->options.quantize, &step->quantized);
    tm_offload_pass(graph, &step->options.offload);
    graph->module = "";
    graph->layer = -1;
}

/* The losses of tokens that the segment at hand makes pairs of: of whole sequences, or `here`, of this rank's rows. */
static tm_tensor_id losses_of(const tm_graph *graph, bool here)
{
    const tm_segment *segment = graph->segment;
    for (size_t i = 0; i < segment->n_nodes; i++) {
        const tm_node *node = &segment->nodes[i];
        if (!here && node->op == TM_OP_preference_loss) return node->in[0];
        if (here && node->op == TM_OP_linear_token_losses) return node->out[0];
        if (here && node->op == TM_OP_vocabulary_loss && node->out[0] == TM_NONE)
            return tm_graph_base(graph, node->out[1]);
    }
    return TM_NONE;
}

/* The loss of an evaluation is that of whole sequences. */
static void sum_over_chunks(tm_step *step)
{
    unsigned axes = 1U << TM_AXIS_CP;
    int      ranks = tm_layout_size(&step->options.layout, axes);
    if (ranks == 1) return;
    step->graph->module = "evaluation";
    tm_units_call(step->graph, TM_OP_all_reduce, axes, ranks, "loss of an evaluation", step->evaluation_loss,
                  step->evaluation_loss, false);
    step->graph->module = "";
}

/* This is the forward pass of training: certificates look at what it counts (a step begins anew) and at losses of rows,
 * which the end of the model has. */
static void account_rows(tm_step *step, tm_model *model)
{
    model->account = TM_ACCOUNT_FRESH;
    if (step->targets == TM_NONE || model->whole_logits || model->preferred != TM_NONE) return;
    if (!tm_parallel_ends(&model->parallel)) return;
    model->row_losses = step->row_losses = tm_graph_tensor_as(step->graph, "row_losses", TM_ROLE_STATISTIC,
                                                              tm_graph_at(step->graph, step->targets)->shape, TM_F64);
}

/* The forward pass of each stage of this rank; the last one gives all ranks the loss. */
static tm_status add_held_out_segments(tm_step *step, const tm_chooser *chooser, const char *name, tm_model model,
                                       const tm_tensor_id *tensors, int64_t rows, tm_tensor_id first_row,
                                       tm_tensor_id kept[2], tm_error *err)
{
    const tm_step_options *o = &step->options;
    const int              chunks = model.parallel.chunks;
    tm_inputs              inputs = named(step, tensors);
    for (int c = 0; c < chunks; c++) {
        model.stage = model.parallel.chunk[c];
        tm_graph_segment(step->graph, stages_program(step, name, false, c));
        if (c == 0 && model.account != TM_ACCOUNT_NONE) stages_count_anew(step, &model);
        stages_receive(step, &model, rows, true);
        split_head_receive(step, &model, rows, true);
        tm_tensor_id passed = tm_model_loss(step->graph, &model, &inputs, step->evaluation_loss,
                                            o->loss_chunk < rows ? o->loss_chunk : rows, false);
        if (passed != TM_NONE)
            stages_pass(step, &model, passed, true);
        else
            sum_over_chunks(step);
        const tm_tensor_id losses[2] = { losses_of(step->graph, false), losses_of(step->graph, true) };
        if (c + 1 == chunks) stages_evaluated(step, &model, losses, kept);
        TM_TRY(step_forward_only(step, chooser, first_row, err));
    }
    return TM_OK;
}

/* The forward pass of a micro-batch, in one segment or in one for each stage; `kept`: what is left of its rows. */
static tm_status add_forward(tm_step *step, const tm_chooser *chooser, const char *name, tm_model model,
                             tm_tensor_id first_row, tm_tensor_id kept[2], tm_error *err)
{
    tm_inputs inputs = inputs_of(step);
    if (stages_cut(step))
        return add_held_out_segments(step, chooser, name, model, step->inputs, rows_of(step), first_row, kept, err);
    tm_graph_segment(step->graph, name);
    tm_model_loss(step->graph, &model, &inputs, step->evaluation_loss, step->options.loss_chunk, false);
    sum_over_chunks(step);
    kept[0] = losses_of(step->graph, false);
    kept[1] = losses_of(step->graph, true);
    return step_forward_only(step, chooser, first_row, err);
}

static tm_status add_evaluate_segment(tm_step *step, const tm_chooser *chooser, const char *name,
                                      tm_tensor_id first_row, tm_error *err)
{
    tm_model     model = step->model;
    tm_tensor_id kept[2] = { TM_NONE, TM_NONE };
    bool         told = first_row == step->first_row;
    if (told) account_rows(step, &model);
    TM_TRY(add_forward(step, chooser, name, model, first_row, kept, err));
    if (first_row == TM_NONE) step->losses = kept[0];
    if (told && model.preferred != TM_NONE) step->row_losses = kept[1];
    return TM_OK;
}

/* The losses of training's forward pass in another format: nothing is told but their sum. */
static tm_status add_exact_segment(tm_step *step, const tm_chooser *chooser, tm_error *err)
{
    tm_tensor_id kept[2] = { TM_NONE, TM_NONE };
    step->graph->precision = step->options.exact;
    tm_status st = add_forward(step, chooser, "exact", step->model, step->first_row, kept, err);
    step->graph->precision = step->options.precision;
    return st;
}

/* The same for held-out samples, where they come in other batches or lengths. */
static tm_status add_validate_segment(tm_step *step, const tm_chooser *chooser, tm_error *err)
{
    const tm_step_options *o = &step->options;
    tm_model               model = step->model;
    tm_inputs              inputs = named(step, step->validation_inputs);
    int64_t rows = o->validation_batch * o->validation_seq / tm_layout_size(&o->layout, 1U << TM_AXIS_CP);
    tm_model_resize(step->graph, &model, o->validation_seq);
    if (stages_cut(step)) {
        tm_tensor_id kept[2] = { TM_NONE, TM_NONE };
        TM_TRY(
            add_held_out_segments(step, chooser, "validate", model, step->validation_inputs, rows, TM_NONE, kept, err));
        step->validation_losses = kept[0];
        return TM_OK;
    }
    tm_graph_segment(step->graph, "validate");
    tm_model_loss(step->graph, &model, &inputs, step->evaluation_loss, o->loss_chunk < rows ? o->loss_chunk : rows,
                  false);
    sum_over_chunks(step);
    step->validation_losses = losses_of(step->graph, false);
    return step_forward_only(step, chooser, TM_NONE, err);
}

/* What the loss of pairs does not go with. */
static tm_status declare_preference(tm_step *step, tm_error *err)
{
    const tm_step_options *o = &step->options;
    tm_inputs              inputs = inputs_of(step);
    if (!(o->preference.beta > 0)) return TM_OK;
    if (tm_inputs_find(&inputs, "first_key") == TM_NONE)
        return tm_fail(err, TM_INVALID, "the loss of pairs needs samples of pairs; set data.source preference");
    step->model.preference = o->preference;
    step->model.preferred = tm_graph_tensor(step->graph, "preferred", TM_ROLE_SCALAR, tm_shape_1(TM_PREFERRED_COUNT));
    return TM_OK;
}

/* The tensors that a program reads and writes beside the inputs and the model's. */
static tm_status declare(tm_step *step, tm_error *err)
{
    tm_graph          *graph = step->graph;
    const tm_adapters *adapters = &step->options.adapters;
    if (step->options.n_groups == 1) {
        step->scalars = tm_graph_tensor(graph, "scalars", TM_ROLE_SCALAR, tm_shape_1(TM_SCALAR_COUNT));
        step->group_scalars[0] = step->scalars;
    } else {
        tm_tensor_id all = tm_graph_tensor(graph, "group_scalars", TM_ROLE_SCALAR,
                                           tm_shape_2(step->options.n_groups, TM_SCALAR_COUNT));
        for (int g = 0; g < step->options.n_groups; g++)
            step->group_scalars[g] = tm_graph_row(graph, tm_arena_format(graph->arena, "scalars.%d", g), all, g);
        step->scalars = step->group_scalars[0];
    }
    step->loss = tm_graph_tensor(graph, "loss", TM_ROLE_SCALAR, (tm_shape){ .rank = 0 });
    step->evaluation_loss = tm_graph_tensor(graph, "evaluation_loss", TM_ROLE_SCALAR, (tm_shape){ .rank = 0 });
    step->clip = tm_graph_tensor(graph, "clip", TM_ROLE_SCALAR, tm_shape_1(2));
    TM_TRY(step_check_parts(&step->options, err));
    TM_TRY(tm_supported(step, false, err));
    TM_TRY(step_check_tensor(step, err));
    tm_parallel parallel = tm_layout_parallel(&step->options.layout);
    TM_TRY(stages_find(&step->options, &parallel, err));
    TM_TRY(tm_moe_divides(&step->options.shape, &parallel, err));
    tm_model_declare(graph, &step->options.shape, step->options.seq, &parallel, &step->model);
    stages_declare(step);
    step->model.whole_logits = step->options.quantize.head.name != NULL;
    TM_TRY(declare_preference(step, err));
    if (stages_cut(step) && step->options.quantize.on)
        step->quantized.number = tm_graph_tensor(graph, "micro_batch", TM_ROLE_SCALAR, (tm_shape){ .rank = 0 });
    step->first_row = TM_NONE;
    if (adapters->rank > 0 && adapters->dropout > 0)
        step->first_row = tm_graph_tensor(graph, "first_row", TM_ROLE_SCALAR, (tm_shape){ .rank = 0 });
    TM_TRY(tm_adapters_declare(graph, &step->model, adapters, err));
    TM_TRY(tm_supported(step, true, err));
    return step_check_declared(step, err);
}

/* The model needs a field that the source does not give. */
static tm_status lacks_field(const tm_step_options *o, const char *name, tm_error *err)
{
    tm_text given = { 0 };
    for (int f = 0; f < o->n_fields; f++) tm_text_printf(&given, "%s%s", f ? ", " : "", o->fields[f].name);
    tm_fail(err, TM_INVALID,
            "the model needs the field '%s' of a sample, and data.source gives %s; choose another source", name,
            given.data);
    tm_text_fini(&given);
    return TM_INVALID;
}

/* The values of all samples of a batch along the first axis. */
static tm_tensor_id input_of(tm_graph *graph, const tm_step_options *o, const char *name, const tm_field *field,
                             int64_t batch, int64_t seq)
{
    tm_shape shape = field->shape;
    if (shape.rank == 0) shape = tm_shape_1(1);
    if (sequence_cuts(o, field, seq)) shape.n[0] /= tm_layout_size(&o->layout, 1U << TM_AXIS_CP);
    shape.n[0] *= batch;
    return tm_graph_tensor_as(graph, name, TM_ROLE_INPUT, shape, field->dtype);
}

/* false: samples do not have the field. */
static bool declare_input(tm_step *step, const char *name)
{
    const tm_step_options *o = &step->options;
    int                    f = 0;
    while (f < o->n_fields && strcmp(name, o->fields[f].name) != 0) f++;
    if (f == o->n_fields) return false;
    step->inputs[f] = input_of(step->graph, o, name, &o->fields[f], o->micro_batch, o->seq);
    if (o->validation_batch > 0)
        step->validation_inputs[f] =
            input_of(step->graph, o, tm_arena_format(step->graph->arena, "validation.%s", name),
                     &o->validation_fields[f], o->validation_batch, o->validation_seq);
    return true;
}

/* An input for every field that the model reads. */
static tm_status declare_inputs(tm_step *step, tm_error *err)
{
    tm_step_options *o = &step->options;
    if (o->n_fields == 0) {
        o->fields[0] = (tm_field){ .name = "tokens", .dtype = TM_I32, .shape = tm_shape_1(o->seq) };
        o->fields[1] = (tm_field){ .name = "targets", .dtype = TM_I32, .shape = tm_shape_1(o->seq) };
        o->n_fields = 2;
    }
    for (int f = 0; f < o->n_fields; f++) step->inputs[f] = step->validation_inputs[f] = TM_NONE;
    for (const char *const *wanted = tm_model_fields(&o->shape); *wanted; wanted++)
        if (!declare_input(step, *wanted)) return lacks_field(o, *wanted, err);
    for (const char *const *wanted = tm_model_optional_fields(&o->shape); *wanted; wanted++)
        declare_input(step, *wanted);
    tm_inputs inputs = inputs_of(step);
    step->tokens = tm_inputs_find(&inputs, "tokens");
    step->targets = tm_inputs_find(&inputs, "targets");
    return TM_OK;
}

static tm_status add_micro_batch_segments(tm_step *step, const tm_chooser *chooser, tm_error *err)
{
    const int64_t parts = step->options.layout.parts;
    if (stages_cut(step)) {
        TM_TRY(add_stage_segments(step, chooser, false, err));
        bool several = step->options.accumulation > (parts > 1 ? parts : 1);
        return several ? add_stage_segments(step, chooser, true, err) : TM_OK;
    }
    TM_TRY(step_add_first(step, chooser, err));
    if (step->options.accumulation > (parts > 1 ? parts : 1) + data_parallel_overlaps(step))
        TM_TRY(add_training_segment(step, chooser, "further", true, err));
    return data_parallel_overlaps(step) ? add_training_segment(step, chooser, "last", true, err) : TM_OK;
}

static tm_status add_segments(tm_step *step, const tm_chooser *chooser, tm_error *err)
{
    TM_TRY(add_micro_batch_segments(step, chooser, err));
    data_parallel_begin(step);
    data_parallel_parts(step);
    split_head_share_table(step);
    add_update_segment(step);
    TM_TRY(add_evaluate_segment(step, chooser, "evaluate", TM_NONE, err));
    if (step->first_row != TM_NONE)
        TM_TRY(add_evaluate_segment(step, chooser, stages_cut(step) ? "trial" : "forward", step->first_row, err));
    if (step->options.validation_batch > 0) TM_TRY(add_validate_segment(step, chooser, err));
    if (step->options.compared) TM_TRY(step_add_look(step, chooser, err));
    TM_TRY(step_add_sample(step, chooser, err));
    return step->options.exact ? add_exact_segment(step, chooser, err) : TM_OK;
}

/* As many rows at a time as tm_step_loss_chunk says; twice as many in the same place where the kernel can do with half
 * of it: weights and their gradients are then read half as often. */
static int64_t default_chunk(const tm_step_options *o, int64_t rows, const tm_chooser *chooser)
{
    int64_t    chunk = tm_step_loss_chunk(rows, o->shape.vocab_size, chooser->loss_rows);
    tm_example example;
    TM_ASSERT(tm_op_linear_cross_entropy_grad.example(0, &example));
    tm_call call = tm_example_call(&tm_op_linear_cross_entropy_grad, &example, o->precision);
    call.device = chooser->context;
    const tm_kernel *kernel = o->shape.vocab_size > 0 ? chooser->choose(chooser->context, &call, NULL) : NULL;
    return kernel && kernel->two_rows && chunk > (rows + 1) / 2 ? (rows + 1) / 2 : chunk;
}

/* Parameters into their groups. */
static tm_status assign_groups(tm_step *step, const tm_chooser *chooser, tm_error *err)
{
    const tm_step_options *o = &step->options;
    step->group_of = tm_arena_take(step->graph->arena, step->graph->n_tensors * sizeof *step->group_of);
    step->first_trained = -1;
    if (stages_cut(step)) return stage_whole(step, chooser, err);
    return tm_groups_assign(step->graph, o->groups, o->n_groups, true, step->group_of, err);
}

tm_status step_declare(const tm_step_options *options, const tm_chooser *chooser, tm_step **out, tm_error *err)
{
    tm_step *step = tm_alloc(sizeof *step);
    step->options = *options;
    data_parallel_scales(&options->layout, options->accumulation, &step->options.quantize);
    step->quantized = tm_quantized_none();
    step->microscope.record = step->look_loss = step->reference_loss = step->row_losses = TM_NONE;
    step->losses = step->validation_losses = TM_NONE;
    step->counts = step->part_counts = TM_NONE;
    step->handed = step->handed_gradient = TM_NONE;
    int64_t rows = rows_of(step);
    if (step->options.loss_chunk <= 0) step->options.loss_chunk = default_chunk(options, rows, chooser);
    if (step->options.loss_chunk > rows) step->options.loss_chunk = rows;
    TM_ASSERT(options->validation_batch == 0 || options->n_fields > 0);
    step->graph = tm_graph_create(options->precision);
    if (options->n_groups == 0) {
        step->options.groups[0] =
            (tm_group){ .place = "", .lr_scale = 1, .hyper = options->hyper, .format = TM_DTYPE_COUNT };
        step->options.n_groups = 1;
    }
    tm_status st = sequence_check(options, err);
    if (st == TM_OK) st = declare_inputs(step, err);
    if (st == TM_OK) st = declare(step, err);
    if (st == TM_OK) st = assign_groups(step, chooser, err);
    *out = step;
    if (st == TM_OK) return TM_OK;
    tm_step_destroy(step);
    return st;
}

static tm_status build(const tm_step_options *options, const tm_chooser *chooser, tm_step **out, tm_error *err)
{
    tm_step *step;
    TM_TRY(step_declare(options, chooser, &step, err));
    tm_graph *graph = step->graph;
    tm_status st = add_segments(step, chooser, err);
    if (st == TM_OK) st = step_check_built(step, err);
    if (st == TM_OK) data_parallel_end(step);
    if (st == TM_OK) tm_resident_pass(graph, chooser);
    if (st == TM_OK) stages_slots(step);
    if (st == TM_OK && options->layout.narrow) tm_narrow_pass(graph);
    if (st == TM_OK) st = tm_plan_create(graph, chooser, &step->plan, err);
    if (st != TM_OK) {
        tm_step_destroy(step);
        return st;
    }
    step_schedule(step);
    *out = step;
    return TM_OK;
}

/* Bytes that the arenas of `with` have beyond those of `plain`. */
static double more_bytes(const tm_plan *with, const tm_plan *plain)
{
    double more = 0;
    for (int s = 0; s < TM_SPACE_COUNT; s++)
        more += (double)with->spaces[s].arena_bytes - (double)plain->spaces[s].arena_bytes;
    return more;
}

/* The same step with the program "exact" in the place of *out, if there can be one. */
static void take_exact(const tm_step_options *options, const tm_chooser *chooser, tm_step **out)
{
    tm_step *plain = *out, *with = NULL;
    tm_error err = { 0 };
    char    *why = plain->inexact;
    double   more = 0;
    if (plain->model.expert_counts != TM_NONE)
        snprintf(why, TM_INEXACT_BYTES, "tokens may have other experts in %s", options->exact->name);
    else if (build(options, chooser, &with, &err) != TM_OK)
        snprintf(why, TM_INEXACT_BYTES, "%.150s", err.text);
    else
        more = more_bytes(with->plan, plain->plan);
    if (more > 0)
        snprintf(why, TM_INEXACT_BYTES, "a forward pass in %s would take %.3g MB more memory", options->exact->name,
                 more * 1e-6);
    if (why[0]) {
        tm_step_destroy(with);
    } else {
        tm_step_destroy(plain);
        *out = with;
    }
}

/* Copies of weights that make a plan too large are left out, for casts: same bits. */
static bool must_cast(const tm_step *step, const tm_chooser *chooser)
{
    const tm_plan *plan = step->plan;
    return chooser->room > 0 && plan->arena_bytes > (size_t)chooser->room && tm_plan_program(plan, "copies");
}

tm_status tm_step_create(const tm_step_options *options, const tm_chooser *chooser, tm_step **out, tm_error *err)
{
    tm_step_options plain = *options;
    tm_chooser      own = *chooser;
    plain.exact = NULL;
    TM_TRY(build(&plain, &own, out, err));
    if (must_cast(*out, &own)) {
        tm_step_destroy(*out);
        own.weight_copies = false;
        TM_TRY(build(&plain, &own, out, err));
    }
    if (options->exact) take_exact(options, &own, out);
    return TM_OK;
}
