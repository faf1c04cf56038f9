/* SPDX-License-Identifier: Apache-2.0 */
/* cli/numerics.c - `trainmark numerics`: what a Hugging Face folder computes for given tokens. */
#include "cli/cli.h"
#include "data/token_list.h"
#include "hf/adapter.h"
#include "hf/folder.h"
#include "hf/numerics.h"
#include "record/look.h"
#include "train/trainer/microscope.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *tokens, *inputs, *device, *isa, *dtype, *compared, *adapter;
    int64_t     threads;
    double      bound;
    bool        json;
} numerics_options;

typedef struct {
    const char             *folder, *dtype;
    const numerics_options *o;
    tm_config              *config;
    tm_hf_description       description;
    tm_model_shape          shape;
    tm_safetensors         *weights;
    int32_t                *ids;
    int64_t                 n;
    tm_device              *opened;
    tm_trainer             *trainer;
    tm_numerics             numerics;
    tm_numerics_image       image;
    tm_hf_adapter           adapter;
    tm_looked               looked;
} job;

static tm_status describe(job *j, tm_error *err)
{
    j->config = tm_cli_config();
    TM_TRY(tm_hf_folder_shape(j->folder, j->config, &j->description, &j->shape, err));
    TM_TRY(tm_hf_folder_weights(j->folder, &j->weights, err));
    if (!j->weights) return tm_fail(err, TM_INVALID, "'%.300s' holds no weights (model.safetensors)", j->folder);
    if (!tm_model_images(&j->shape) != !j->o->inputs)
        return tm_fail(err, TM_USAGE, "'%.300s' is a model of %s", j->folder,
                       j->o->inputs ? "a language: give --tokens FILE" : "images: give --inputs FILE");
    if (j->o->inputs) return tm_numerics_image_read(j->o->inputs, &j->shape, &j->image, err);
    TM_TRY(tm_token_list_read(j->o->tokens, j->shape.vocab_size, &j->ids, &j->n, err));
    if (j->n < 2)
        return tm_fail(err, TM_INVALID, "'%s' has %lld tokens; two are the least: an input and a target", j->o->tokens,
                       (long long)j->n);
    if (j->n - 1 > tm_model_max_length(&j->shape))
        return tm_fail(err, TM_INVALID, "'%s' has %lld inputs, the model has %lld positions; give fewer", j->o->tokens,
                       (long long)j->n - 1, (long long)tm_model_max_length(&j->shape));
    return TM_OK;
}

static const tm_precision *precision_of(const char *name)
{
    static const tm_precision *const formats[] = { &tm_precision_f32, &tm_precision_bf16, &tm_precision_f64 };
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (strcmp(formats[i]->name, name) == 0) return formats[i];
    return NULL;
}

/* What is looked at, unless --dtype says so: the format that --compare-dtype is not. */
static const char *default_dtype(const job *j, bool wide)
{
    if (wide) return "float64";
    return j->o->compared && strcmp(j->o->compared, "float32") == 0 ? "bfloat16" : "float32";
}

static tm_status open_device(job *j, const tm_precision **precision, tm_error *err)
{
    TM_TRY(tm_device_open(j->o->device, (int)j->o->threads, &j->opened, err));
    if (j->o->isa) TM_TRY(tm_device_limit_isa(j->opened, j->o->isa, err));
    bool wide = tm_device_describe(j->opened)->float64_only;
    j->dtype = j->o->dtype ? j->o->dtype : default_dtype(j, wide);
    *precision = precision_of(j->dtype);
    if (wide && j->o->compared)
        return tm_fail(err, TM_USAGE, "--compare-dtype compares float32 and bfloat16, --device %s computes in float64",
                       j->o->device);
    if (wide != (*precision == &tm_precision_f64))
        return tm_fail(err, TM_USAGE, "--dtype %s is not computed on --device %s; %s", j->dtype, j->o->device,
                       wide ? "it computes in float64" : "--device reference computes in float64");
    if (!tm_device_describe(j->opened)->computes)
        return tm_fail(err, TM_USAGE, "--device %s computes nothing", j->o->device);
    return TM_OK;
}

static tm_status compute(job *j, tm_error *err)
{
    const tm_precision *precision = NULL;
    tm_hf_report        report;
    TM_TRY(describe(j, err));
    TM_TRY(open_device(j, &precision, err));
    tm_step_options step = tm_numerics_step(&j->shape, precision, j->n - 1);
    if (j->o->inputs) tm_numerics_image_fields(&j->shape, &step);
    if (j->o->adapter) TM_TRY(tm_hf_adapter_open(j->o->adapter, j->weights, j->description.form, &j->adapter, err));
    step.adapters = j->adapter.adapters;
    step.adapters.dropout = 0;
    if (j->o->compared) step.compared = precision_of(j->o->compared);
    TM_TRY(tm_trainer_open(j->opened, &step, 0, &j->trainer, err));
    tm_hf_memory memory = tm_hf_trainer_memory(j->trainer, j->description.form);
    TM_TRY(tm_hf_load(&memory, j->weights, tm_device_describe(j->opened)->threads, &report, err));
    if (j->o->adapter)
        TM_TRY(tm_hf_adapter_load(&memory, &j->adapter, &step.adapters, tm_device_describe(j->opened)->threads, &report,
                                  err));
    if (j->o->inputs)
        TM_TRY(tm_numerics_read_image(j->trainer, j->description.form, j->weights, &j->image, &j->numerics, err));
    else
        TM_TRY(tm_numerics_read(j->trainer, j->description.form, j->weights, j->ids, &j->numerics, err));
    if (!j->o->compared) return TM_OK;
    tm_micro_batch batch = j->o->inputs ? tm_numerics_image_batch(&j->image) : tm_numerics_batch(j->ids, step.seq);
    return tm_looked_take(&j->looked, j->trainer, &batch, 1, j->o->bound, err);
}

static void print(const job *j, tm_text *out)
{
    const tm_numerics *n = &j->numerics;
    if (j->o->json) {
        tm_json json = { .out = out };
        tm_json_open(&json, NULL, '{');
        tm_numerics_json(n, &json);
        if (j->o->compared) {
            tm_json_open(&json, "comparison", '{');
            tm_look_print_json(&j->looked.look, true, &json);
            tm_json_close(&json, '}');
        }
        tm_json_close(&json, '}');
        tm_text_add(out, "\n");
        return;
    }
    tm_text_printf(out, "%-60s %lld\n", "parameters", (long long)n->parameters);
    if (n->tokens) tm_text_printf(out, "%-60s %lld\n", "target tokens", (long long)n->tokens);
    tm_text_printf(out, "%-60s %.12g\n", "loss", n->loss);
    if (n->tokens)
        tm_text_printf(out, "%-60s %.12g %.12g %.12g ...\n", "logits of the first token", n->first[0], n->first[1],
                       n->first[n->vocab > 2 ? 2 : 1]);
    if (n->tokens)
        tm_text_printf(out, "%-60s %.12g %.12g %.12g ...\n", "logits of the last token", n->last[0], n->last[1],
                       n->last[n->vocab > 2 ? 2 : 1]);
    tm_text_printf(out, "%-60s %.12g\n", "gradient norm", n->gradient_norm);
    for (size_t i = 0; i < n->n_gradients; i++)
        tm_text_printf(out, "%-60s %.12g\n", n->gradients[i].name, n->gradients[i].norm);
    if (j->o->compared) {
        tm_text_add(out, "\n");
        tm_look_print_table(&j->looked.look, 0, out);
    }
}

static void release(job *j)
{
    tm_numerics_fini(&j->numerics);
    tm_looked_fini(&j->looked);
    tm_numerics_image_fini(&j->image);
    tm_trainer_close(j->trainer);
    tm_device_close(j->opened);
    tm_safetensors_close(j->weights);
    tm_hf_adapter_close(&j->adapter);
    tm_config_destroy(j->config);
    free(j->ids);
}

static tm_status numerics(tm_cli_line *line, tm_error *err)
{
    numerics_options *o = line->options;
    const char       *folder = line->words[0];
    TM_TRY(tm_cli_find_model(line, &folder, &o->adapter, err));
    job     j = { .folder = folder, .o = o };
    tm_text out = { 0 };
    if (!j.o->tokens == !j.o->inputs)
        return tm_fail(err, TM_USAGE,
                       "give --tokens FILE (a JSON array of ids, or a .npy) or, of an image model, --inputs FILE "
                       "(safetensors)");
    tm_status st = compute(&j, err);
    if (st == TM_OK) print(&j, &out);
    if (st == TM_OK) st = tm_cli_print(&out, err);
    release(&j);
    tm_text_fini(&out);
    return st;
}

static const tm_option rows[] = {
    { "tokens", 0, TM_OPTION_TEXT, offsetof(numerics_options, tokens), .value = "FILE",
      .help = "JSON array or .npy of ids; the last one is only a target" },
    { "inputs", 0, TM_OPTION_TEXT, offsetof(numerics_options, inputs), .value = "FILE",
      .help = "safetensors with the inputs of a FLUX directory (diffusers)" },
    { "adapter", 0, TM_OPTION_TEXT, offsetof(numerics_options, adapter), .value = "DIR",
      .help = "use the PEFT adapter in this directory, with gradients of its tensors" },
    { "dtype", 0, TM_OPTION_CHOICE, offsetof(numerics_options, dtype), .value = "NAME",
      .choices = "float32|bfloat16|float64", .help = "format of products; float64: with --device reference" },
    { "compare-dtype", 0, TM_OPTION_CHOICE, offsetof(numerics_options, compared), .value = "NAME",
      .choices = "float32|bfloat16", .help = "compute a second time in this format, and compare all tensors of both" },
    { "bound", 0, TM_OPTION_F64, offsetof(numerics_options, bound), .value = "ERROR", .fallback = "0.1", .lo = 0,
      .hi = 1e9, .help = "with --compare-dtype: relative error from which on a tensor diverges" },
    TM_OPTION_DEVICE(numerics_options),
    TM_OPTION_JSON(numerics_options),
};

const tm_cli_command tm_command_numerics = {
    .name = "numerics",
    .summary = "compute loss, gradients and logits of a Hugging Face directory for given inputs",
    .words = "DIR",
    .least = 1,
    .most = 1,
    .about =
        "Loads a Hugging Face directory and runs forward and backward on the tokens, to compare implementations: loss, "
        "norms of all gradients by the names of the tensors, logits of the first and the last input. With "
        "--compare-dtype also what another number format makes of every tensor (relative error, cosine, underflow, "
        "overflow, "
        "exponents), and the first that diverges; --dtype is then the other one unless given. Inputs of FLUX: noisy "
        "and "
        "velocity (rows, columns, channels), time, text (tokens, n), pooled (n), and guidance if the model has it.",
    TM_CLI_OPTIONS(rows, numerics_options),
    .run = numerics,
};
