/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "cli/explain_ranks.h"
#include "device/device.h"
#include "train/run/run.h"

#include <stdio.h>
#include <string.h>

/* What each parameter takes from step to step. */
typedef struct {
    double weights, copies, gradients, optimizer;
} bytes_per_parameter;
static bytes_per_parameter per_parameter(const tm_step *step)
{
    bytes_per_parameter sum = { 0 };
    double              parameters = (double)tm_model_parameters(&step->options.shape);
    for (size_t i = 0; i < step->graph->n_tensors; i++) {
        const tm_tensor *tensor = &step->graph->tensors[i];
        double           bytes = (double)tm_tensor_bytes(tensor->shape, tensor->dtype) / parameters;
        if (tensor->base != TM_NONE || tm_graph_elsewhere(tensor)) continue;
        if (tensor->role == TM_ROLE_PARAMETER || tensor->role == TM_ROLE_UNIT) sum.weights += bytes;
        if (tensor->role == TM_ROLE_COPY) sum.copies += bytes;
        if (tensor->role == TM_ROLE_GRADIENT) sum.gradients += bytes;
        if (tensor->role == TM_ROLE_MOMENT) sum.optimizer += bytes;
    }
    return sum;
}

/* FLOPs of a micro-batch on this rank: its programs' forward and backward. */
static double of_micro_batch(const tm_step *step)
{
    double flops = 0;
    if (step->first) return step->first->cost.flops;
    for (size_t i = 0; i < step->training.n; i++)
        if (step->training.work[i].micro_batch == 0) flops += step->training.work[i].program->cost.flops;
    return flops;
}

static void summary(const tm_cli_options *cli, const tm_run_options *o, const tm_step *step, const tm_device *device,
                    const char *without, tm_text *out)
{
    char parameters[40], bytes[32], live[32];
    tm_text_printf(out, "model       %s: %s parameters\n", o->model_name,
                   tm_format_grouped(parameters, tm_model_parameters(&o->step.shape)));
    tm_text_printf(
        out, "step        %lld sequence(s) of %lld tokens x %lld micro-batch(es), %s, logits in chunks of %lld rows\n",
        (long long)o->step.micro_batch, (long long)o->step.seq, (long long)o->step.accumulation,
        o->step.precision->name, (long long)step->options.loss_chunk);
    tm_text_printf(out, "device      %s\n", tm_device_describe(device)->text);
    if (tm_step_products(step))
        tm_text_printf(out, "quantized   factors hold what their codes stand for, and are multiplied in %s\n",
                       tm_step_products(step));
    tm_text codes = { 0 };
    tm_step_codes(step, &codes);
    if (codes.data) tm_text_printf(out, "quantized   %s\n", codes.data);
    tm_text_fini(&codes);
    tm_cli_print_platform(cli, device, "platform    ", out);
    double own = (double)(o->step.micro_batch * o->step.seq) / tm_layout_size(&o->step.layout, 1U << TM_AXIS_CP);
    double executed = of_micro_batch(step);
    tm_text_printf(out, "executed    %.6g GFLOP per micro-batch, %.6g per token\n", executed * 1e-9,
                   executed * 1e-9 / own);
    for (int i = 0; i < TM_FLOPS_COUNT; i++)
        tm_text_printf(out, "  %-12s %10.6g GFLOP per token\n", tm_flops_convention_name((tm_flops_convention)i),
                       tm_model_flops_per_token(&o->step.shape, (tm_flops_convention)i, o->step.seq) * 1e-9);
    tm_text_printf(out, "memory      %s planned, %s is the least that any placement needs\n",
                   tm_format_bytes(bytes, (double)step->plan->arena_bytes),
                   tm_format_bytes(live, (double)step->plan->live_peak));
    if (cli->memory_bytes)
        tm_text_printf(out, "  %s %s of %s\n",
                       step->plan->arena_bytes <= (size_t)cli->memory_bytes ? "fits into" : "does not fit into",
                       tm_format_bytes(bytes, (double)cli->memory_bytes), cli->hardware.gpu->name);
    bytes_per_parameter each = per_parameter(step);
    tm_text_printf(out, "  per parameter %.4g B: weights %.4g",
                   each.weights + each.copies + each.gradients + each.optimizer, each.weights);
    if (each.copies > 0) tm_text_printf(out, ", copies %.4g", each.copies);
    tm_text_printf(out, ", gradients %.4g, optimizer %.4g (%s)\n", each.gradients, each.optimizer,
                   o->step.optimizer->name);
    for (size_t i = 0; i < step->plan->n_classes; i++)
        tm_text_printf(out, "  %-12s %12s %20lld B\n", step->plan->by_class[i].name,
                       tm_format_bytes(bytes, (double)step->plan->by_class[i].value),
                       (long long)step->plan->by_class[i].value);
    tm_plan_print_spaces(step->plan, "", out);
    tm_cli_add_lines(out, "without     ", without);
    tm_text_add(out, "\n");
}

/* What is trained how: a line for each parameter, its pieces beside it. */
static void parameters(const tm_step *step, tm_text *out)
{
    const tm_step_options *o = &step->options;
    char                   shape[96];
    tm_text_printf(out, "parameters (group 0: %s, all that optimizer.groups does not take)\n", o->optimizer->name);
    for (int g = 1; g < o->n_groups; g++)
        tm_text_printf(out, "  group %-3d %s: learning rate x %g%s\n", g, o->groups[g].patterns, o->groups[g].lr_scale,
                       o->groups[g].frozen ? ", not trained" : "");
    for (size_t i = 0; i < step->graph->n_tensors; i++) {
        const tm_tensor *tensor = &step->graph->tensors[i];
        if (tensor->role != TM_ROLE_PARAMETER) continue;
        const tm_group *group = &o->groups[step->group_of[i]];
        tm_text_printf(out, "  %-44s %-18s %-10s group %d", tensor->name, tm_shape_text(shape, tensor->shape),
                       tm_dtype_name(tensor->dtype), step->group_of[i]);
        if (tensor->trained)
            tm_text_printf(out, ", weight decay %g", tm_hyper_decay(&group->hyper, tensor->shape));
        else
            tm_text_add(out, ", not trained");
        for (int p = 0; tensor->n_pieces > 1 && p < tensor->n_pieces; p++)
            tm_text_printf(out, "%s%s", p ? ", " : ": ", tensor->pieces[p].name);
        tm_text_add(out, "\n");
    }
    tm_text_add(out, "\n");
}

/* A, B or lengths, a copy in the compute format, or a gradient: by name, as all are called after the parameter. */
static bool of_adapter(const tm_graph *graph, tm_tensor_id id)
{
    return strstr(tm_graph_at(graph, id)->name, ".lora_") != NULL;
}

/* Of an instruction: all FLOPs, or where it multiplies with the output layer, too, those that the adapter adds. */
static double adapter_flops(const tm_instruction *x)
{
    tm_call plain = x->call;
    bool    loss = strncmp(x->call.op->name, "linear_cross_entropy", 20) == 0;
    int     first = strstr(x->call.op->name, "_grad") ? 4 : 3;
    if (!loss) return x->cost.flops;
    plain.in[first].shape.rank = plain.in[first + 1].shape.rank = -1;
    return x->cost.flops - x->call.op->cost(&plain).flops;
}

/* Of the products of a program those that adapters add. */
static double own_flops(const tm_step *step, const tm_program *program)
{
    double flops = 0;
    for (size_t i = 0; i < program->count; i++) {
        const tm_instruction *x = &program->instructions[i];
        bool                  own = strncmp(x->call.op->name, "low_rank", 8) == 0;
        for (int k = 0; k < TM_MAX_IN; k++)
            if (x->node->in[k] != TM_NONE) own = own || of_adapter(step->graph, x->node->in[k]);
        for (int k = 0; k < TM_MAX_OUT; k++)
            if (x->node->out[k] != TM_NONE) own = own || of_adapter(step->graph, x->node->out[k]);
        flops += own ? adapter_flops(x) : 0;
    }
    return flops;
}

/* What LoRA costs: parameters, memory that is theirs, FLOPs of the products beside the model's, in the programs of the
 * first micro-batch. */
static void adapters(const tm_step *step, tm_text *out)
{
    tm_adapters_facts  facts = tm_adapters_describe(step->graph);
    const tm_adapters *a = &step->options.adapters;
    char               trained[40], frozen[40], bytes[32];
    double             flops = 0;
    for (size_t i = 0; i < step->training.n; i++)
        if (step->training.work[i].micro_batch == 0) flops += own_flops(step, step->training.work[i].program);
    char ranks[64] = "";
    if (facts.least < facts.most)
        snprintf(ranks, sizeof ranks, " (%lld to %lld)", (long long)facts.least, (long long)facts.most);
    tm_text_printf(out,
                   "adapters    rank %lld%s, scale %g%s, %lld modules: %s parameters are trained, %s frozen in %s\n",
                   (long long)a->rank, ranks, tm_adapters_scale(a), a->dora ? ", DoRA" : "", (long long)facts.modules,
                   tm_format_grouped(trained, facts.trained), tm_format_grouped(frozen, facts.frozen),
                   tm_format_bytes(bytes, (double)facts.frozen_bytes));
    tm_text_printf(
        out, "            %.6g GFLOP per micro-batch are theirs, %.3g %% of all; %.4g bits per frozen weight\n",
        flops * 1e-9, 100 * flops / of_micro_batch(step), 8 * (double)facts.frozen_bytes / (double)facts.frozen);
}

static void json_parameters(const tm_step *step, tm_json *json)
{
    tm_json_open(json, "parameter_groups", '[');
    for (size_t i = 0; i < step->graph->n_tensors; i++) {
        const tm_tensor *tensor = &step->graph->tensors[i];
        if (tensor->role != TM_ROLE_PARAMETER) continue;
        const tm_group *group = &step->options.groups[step->group_of[i]];
        tm_json_open(json, NULL, '{');
        tm_json_string(json, "name", tensor->name);
        tm_json_i64(json, "group", step->group_of[i]);
        tm_json_bool(json, "trained", tensor->trained);
        tm_json_f64(json, "lr_scale", group->lr_scale);
        tm_json_f64(json, "weight_decay", tm_hyper_decay(&group->hyper, tensor->shape));
        tm_json_close(json, '}');
    }
    tm_json_close(json, ']');
}

void tm_cli_json_lines(tm_json *json, const char *key, const char *lines)
{
    tm_json_open(json, key, '[');
    for (size_t n; *lines; lines += n + (lines[n] == '\n')) {
        tm_text line = { 0 };
        n = strcspn(lines, "\n");
        tm_text_add_n(&line, lines, n);
        tm_json_string(json, NULL, line.data);
        tm_text_fini(&line);
    }
    tm_json_close(json, ']');
}

static void as_json(const tm_cli_options *cli, const tm_run_options *o, const tm_step *step, const tm_chooser *chooser,
                    const tm_device *device, const char *without, tm_text *out)
{
    tm_json json = { .out = out, .indent = true };
    tm_json_open(&json, NULL, '{');
    tm_json_string(&json, "model", o->model_name);
    tm_json_i64(&json, "parameters", tm_model_parameters(&o->step.shape));
    tm_json_i64(&json, "parameters_active", tm_model_parameters_active(&o->step.shape));
    tm_json_string(&json, "precision", o->step.precision->name);
    tm_json_string(&json, "device", tm_device_describe(device)->text);
    tm_cli_platform_json(cli, device, &json);
    tm_cli_json_lines(&json, "planned_without", without);
    tm_json_i64(&json, "local_batch_size", o->step.micro_batch);
    tm_json_i64(&json, "seq_len", o->step.seq);
    tm_json_i64(&json, "micro_batches", o->step.accumulation);
    tm_json_i64(&json, "loss_chunk_tokens", step->options.loss_chunk);
    bytes_per_parameter each = per_parameter(step);
    tm_json_open(&json, "bytes_per_parameter", '{');
    tm_json_f64(&json, "weights", each.weights);
    if (each.copies > 0) tm_json_f64(&json, "copies", each.copies);
    tm_json_f64(&json, "gradients", each.gradients);
    tm_json_f64(&json, "optimizer", each.optimizer);
    tm_json_close(&json, '}');
    tm_json_open(&json, "flops_per_token", '{');
    for (int i = 0; i < TM_FLOPS_COUNT; i++)
        tm_json_f64(&json, tm_flops_convention_name((tm_flops_convention)i),
                    tm_model_flops_per_token(&o->step.shape, (tm_flops_convention)i, o->step.seq));
    tm_json_close(&json, '}');
    explain_ranks_json(step, cli->ranks_per_host, &json);
    if (step->options.n_groups > 1 || o->step.adapters.rank > 0) json_parameters(step, &json);
    tm_plan_json(step->plan, chooser, &json);
    tm_json_close(&json, '}');
    tm_text_add(out, "\n");
}

static tm_status explain(const tm_config *config, const tm_cli_options *cli, tm_text *out, tm_error *err)
{
    tm_run_options run;
    tm_device     *device;
    TM_TRY(tm_run_options_read(config, &run, err));
    tm_step *step = NULL;
    TM_TRY(tm_cli_open_device(cli, &run, true, &device, err));
    tm_chooser  chooser = tm_device_chooser(device);
    tm_status   st = tm_step_create(&run.step, &chooser, &step, err);
    const char *without = tm_config_unbuilt(config);
    if (st == TM_OK && cli->json) {
        as_json(cli, &run, step, &chooser, device, without, out);
    } else if (st == TM_OK) {
        summary(cli, &run, step, device, without, out);
        explain_ranks(step, cli->ranks_per_host, out);
        if (run.step.adapters.rank > 0) adapters(step, out);
        if (step->options.n_groups > 1 || run.step.adapters.rank > 0) parameters(step, out);
        if (cli->schedule)
            explain_schedule(step, out);
        else
            tm_plan_print(step->plan, &chooser, out);
    }
    tm_step_destroy(step);
    tm_device_close(device);
    return st;
}

static tm_status print(tm_cli_line *line, tm_error *err)
{
    tm_config *config;
    tm_text    out = { 0 };
    tm_status  st = tm_cli_configure(line, "tiny-llama", true, &config, err);
    if (st == TM_OK) st = explain(config, line->options, &out, err);
    if (st == TM_OK) st = tm_cli_print(&out, err);
    tm_text_fini(&out);
    tm_config_destroy(config);
    return st;
}

static const tm_option rows[] = {
    { "schedule", 0, TM_OPTION_FLAG, offsetof(tm_cli_options, schedule),
      .help = "print the order of a step; of a pipeline as a grid, with its idle time" },
    { "ranks-per-host", 0, TM_OPTION_I64, offsetof(tm_cli_options, ranks_per_host), .value = "N", .lo = 1, .hi = 256,
      .help = "ranks that share a host: print what collectives move within and between hosts" },
    TM_OPTION_PLATFORM(tm_cli_options, ""),
    TM_OPTION_JSON(tm_cli_options),
    TM_CLI_CONFIGURATION_ROWS,
};

const tm_cli_command tm_command_explain = {
    .name = "explain",
    .summary = "print the program of a training step, instruction by instruction, and its memory",
    .words = "[MODEL | FILE]",
    .most = 1,
    .about =
        "Prints the programs of a training step: every instruction with op, module, phase, FLOPs, bytes and "
        "kernel; every tensor with format, shape, offset, bytes and lifetime. Nothing is allocated: any model size "
        "works. Requested features that are not supported are listed (\"without\") and the rest is "
        "planned; `run` refuses it.",
    TM_CLI_OPTIONS(rows, tm_cli_options),
    .keys = tm_cli_keys,
    .first_keys = "training.local_batch_size,training.global_batch_size,training.seq_len,training.dtype,model.n_layers,"
                  "activation_checkpoint.mode",
    .keys_help = "`trainmark keys` lists all keys.",
    .reads = true,
    .run = print,
};
