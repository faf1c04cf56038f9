/* SPDX-License-Identifier: Apache-2.0 */
/* The ops of a training step, as their rows describe them. */
#include "base/json.h"
#include "cli/cli.h"
#include "cli/ops_check.h"
#include "device/device.h"
#include "op/kernel.h"

#include <string.h>

/* Words for the roles that outputs have; " +=" may be added to what is there. */
static const char *role_text(tm_role role)
{
    switch (role) {
    case TM_ROLE_ACTIVATION:
        return "activation";
    case TM_ROLE_STATISTIC:
        return "statistic";
    case TM_ROLE_GRADIENT:
        return "gradient +=";
    case TM_ROLE_SCALAR:
        return "scalar";
    case TM_ROLE_LOGITS:
        return "scratch";
    case TM_ROLE_WEIGHT_COPY:
    case TM_ROLE_COPY:
        return "weight copy";
    case TM_ROLE_PARAMETER:
        return "parameter";
    case TM_ROLE_MOMENT:
        return "moment";
    case TM_ROLE_INDEX:
        return "index";
    case TM_ROLE_STATE:
        return "state";
    case TM_ROLE_PARTIAL:
        return "partial gradient";
    case TM_ROLE_CONSTANT:
        return "constant";
    case TM_ROLE_INPUT:
        return "input";
    case TM_ROLE_WORKSPACE:
        return "workspace";
    case TM_ROLE_UNIT:
        return "unit of weights";
    case TM_ROLE_STAGED:
        return "staged";
    case TM_ROLE_COUNT:
        break;
    }
    TM_ASSERT(!"unknown role");
    return "";
}

static void add_inputs(const tm_op *op, unsigned which, bool shapes, tm_text *out)
{
    const char *comma = "";
    for (int k = 0; k < op->n_in; k++) {
        if (!(which >> k & 1U)) continue;
        const char *text = op->in_name[k], *name = text + (!shapes && text[0] == '[');
        tm_text_printf(out, "%s%.*s", comma, (int)(shapes ? strlen(name) : strcspn(name, " ")), name);
        comma = ", ";
    }
}

static void add_outputs(const tm_op *op, tm_text *out)
{
    for (int k = 0; k < op->n_out; k++)
        tm_text_printf(out, "%s%s %s", k ? ", " : "", op->out_name[k], role_text(op->out_role[k]));
}

/* Cells must not hold a bar: no name or formula does. */
static void markdown(tm_text *out)
{
    tm_text_add(out,
                "| op | formula | inputs | attributes | outputs | in place with | gradient | cheap | fast kernel |\n"
                "|---|---|---|---|---|---|---|---|---|\n");
    for (int id = 0; id < TM_OP_COUNT; id++) {
        const tm_op *op = tm_op_get((tm_op_id)id);
        tm_text_printf(out, "| %s | %s | ", op->name, op->formula);
        add_inputs(op, ~0U, true, out);
        tm_text_printf(out, " | %s | ", op->attributes ? op->attributes : "");
        add_outputs(op, out);
        tm_text_add(out, " | ");
        add_inputs(op, op->inplace, false, out);
        tm_text_printf(out, " | %s | %s | %s |\n", op->gradient ? "yes" : "", op->cheap ? "yes" : "",
                       op->no_fast_kernel ? op->no_fast_kernel : "yes");
    }
}

static void list(tm_text *out)
{
    for (int id = 0; id < TM_OP_COUNT; id++) {
        const tm_op *op = tm_op_get((tm_op_id)id);
        tm_text_printf(out, "%-26s %-12s ", op->name, op->group);
        tm_text_fill(out, op->formula, 40, 40, 120);
    }
    tm_text_add(out, "\ntrainmark ops NAME describes one, with the kernels of this machine. docs/ops.md\n");
}

/* The kernel that a training step of each precision gets here, for a small example. */
static tm_status add_kernels(const tm_op *op, tm_text *out, tm_error *err)
{
    static const tm_precision *const precisions[] = { &tm_precision_f32, &tm_precision_bf16, &tm_precision_bf16_pure };
    tm_device                       *device;
    tm_example                       example;
    TM_TRY(tm_device_open("cpu", 0, &device, err));
    tm_chooser chooser = tm_device_chooser(device);
    TM_ASSERT(op->example(0, &example));
    for (size_t p = 0; p < sizeof precisions / sizeof precisions[0]; p++) {
        tm_call          call = tm_example_call(op, &example, precisions[p]);
        const tm_kernel *kernel = chooser.choose(chooser.context, &call, NULL);
        tm_text_printf(out, "%-13s %s\n", precisions[p]->name, kernel ? kernel->name : "no kernel");
    }
    tm_device_close(device);
    return TM_OK;
}

static tm_status describe(const char *name, tm_text *out, tm_error *err)
{
    const tm_op *op = NULL;
    for (int id = 0; id < TM_OP_COUNT; id++)
        if (strcmp(tm_op_get((tm_op_id)id)->name, name) == 0) op = tm_op_get((tm_op_id)id);
    if (!op) return tm_fail(err, TM_INVALID, "unknown op '%.100s'; `trainmark ops` lists them", name);
    tm_text_printf(out, "%-13s %s\ngroup         %s\ninputs        ", op->name, op->formula, op->group);
    add_inputs(op, ~0U, true, out);
    tm_text_add(out, "\noutputs       ");
    add_outputs(op, out);
    if (op->attributes) tm_text_printf(out, "\nattributes    %s", op->attributes);
    if (op->inplace) {
        tm_text_add(out, "\nin place with ");
        add_inputs(op, op->inplace, false, out);
    }
    tm_text_printf(out, "\ngradient      %s\n",
                   op->gradient ? "yes" : "none: it is one itself, or nothing is trained through it");
    if (op->cheap) tm_text_add(out, "cheap         recomputed in the backward pass to save memory\n");
    if (op->no_fast_kernel) tm_text_printf(out, "fast kernel   none: %s\n", op->no_fast_kernel);
    return add_kernels(op, out, err);
}

static void add_names(tm_json *json, const char *key, const char *const *names, int n)
{
    tm_json_open(json, key, '[');
    for (int k = 0; k < n; k++) tm_json_string(json, NULL, names[k]);
    tm_json_close(json, ']');
}

/* All ops, or the one that is named. */
static tm_status print_json(const char *name, tm_text *out, tm_error *err)
{
    tm_json json = { .out = out, .indent = true };
    int     found = 0;
    tm_json_open(&json, NULL, '[');
    for (int id = 0; id < TM_OP_COUNT; id++) {
        const tm_op *op = tm_op_get((tm_op_id)id);
        if (name && strcmp(op->name, name) != 0) continue;
        found++;
        tm_json_open(&json, NULL, '{');
        tm_json_string(&json, "name", op->name);
        tm_json_string(&json, "group", op->group);
        tm_json_string(&json, "formula", op->formula);
        add_names(&json, "inputs", op->in_name, op->n_in);
        add_names(&json, "outputs", op->out_name, op->n_out);
        tm_json_string(&json, "attributes", op->attributes);
        tm_json_bool(&json, "gradient", op->gradient != NULL);
        tm_json_bool(&json, "cheap", op->cheap);
        tm_json_string(&json, "no_fast_kernel", op->no_fast_kernel);
        tm_json_close(&json, '}');
    }
    tm_json_close(&json, ']');
    tm_text_add(out, "\n");
    return found ? TM_OK : tm_fail(err, TM_INVALID, "unknown op '%.100s'; `trainmark ops` lists them", name);
}

typedef struct {
    bool        markdown, json, check;
    const char *device;
} ops_options;

static tm_status ops(tm_cli_line *line, tm_error *err)
{
    const ops_options *o = line->options;
    tm_text            out = { 0 };
    tm_status          st = TM_OK;
    if (o->markdown && line->n_words)
        return tm_fail(err, TM_USAGE, "--markdown prints the table of all operations; leave out '%.100s'",
                       line->words[0]);
    if (o->check && o->markdown) return tm_fail(err, TM_USAGE, "--check computes, --markdown prints a table; give one");
    if (o->device && !o->check)
        return tm_fail(err, TM_USAGE, "--device %.100s is for --check, which computes", o->device);
    if (o->check) return ops_check(line->n_words ? line->words[0] : NULL, o->device ? o->device : "cpu", o->json, err);
    if (o->json)
        st = print_json(line->n_words ? line->words[0] : NULL, &out, err);
    else if (o->markdown)
        markdown(&out);
    else if (line->n_words)
        st = describe(line->words[0], &out, err);
    else
        list(&out);
    if (st == TM_OK) st = tm_cli_print(&out, err);
    tm_text_fini(&out);
    return st;
}

static const tm_option rows[] = {
    { "markdown", 0, TM_OPTION_FLAG, offsetof(ops_options, markdown), .help = "print the table of docs/ops.md" },
    { "check", 0, TM_OPTION_FLAG, offsetof(ops_options, check),
      .help = "compute all examples by the device's kernels, beside the references" },
    { "device", 0, TM_OPTION_TEXT, offsetof(ops_options, device), .value = "NAME",
      .help = "of --check: cpu (default), auto, cuda or hip (cuda:1: the second GPU)" },
    TM_OPTION_JSON(ops_options),
};

const tm_cli_command tm_command_ops = {
    .name = "ops",
    .summary = "list the operations of a training step: formulas, shapes, kernels",
    .words = "[NAME]",
    .most = 1,
    .about =
        "Lists the operations that training steps are made of, with their formulas. With NAME: its inputs, outputs "
        "and shapes, and the kernels that this machine runs it with. With --check the kernels are judged: every "
        "number beside that of a plain reference in double, within a bound of its rounding. Exit code 5: one is "
        "beyond it.",
    TM_CLI_OPTIONS(rows, ops_options),
    .run = ops,
};
