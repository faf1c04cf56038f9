/* SPDX-License-Identifier: Apache-2.0 */
/* cli/numerics.c - `trainmark numerics`: what a Hugging Face folder computes for given tokens. */
#include "cli/cli.h"
#include "data/token_list.h"
#include "hf/folder.h"
#include "hf/numerics.h"

#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: trainmark numerics FOLDER --tokens FILE | --inputs FILE [--json] [--device NAME] [--isa NAME] [--dtype NAME] [--threads "
    "N]\n\n"
    "Loads a Hugging Face folder and runs forward and backward on the tokens, to compare implementations: loss, norms\n"
    "of all gradients by the names of the tensors, logits of the first and the last input.\n\n"
    "  --tokens FILE   a JSON array of ids, or a .npy of int32 or int64: all but the last are the inputs, all but the\n"
    "                  first the targets\n"
    "  --dtype NAME    float32 (default), bfloat16 (weights and gradients float32), float64 (--device reference)\n"
    "  --inputs FILE   of a FLUX folder (diffusers): safetensors with noisy, velocity (rows, columns, channels), time,\n"
    "                  text (tokens, n), pooled (n) and guidance, if the model has it\n"
    "  --device NAME   cpu (default), reference (float64, slow)\n"
    "  --json          one JSON object\n";

typedef struct {
    const char       *folder, *tokens, *inputs, *device, *isa, *dtype, *threads;
    bool              json;
    tm_config        *config;
    tm_hf_description description;
    tm_model_shape    shape;
    tm_safetensors   *weights;
    int32_t          *ids;
    int64_t           n;
    tm_device        *opened;
    tm_trainer       *trainer;
    tm_numerics       numerics;
    tm_numerics_image image;
} job;

static tm_status describe(job *j, tm_error *err)
{
    j->config = tm_cli_config();
    TM_TRY(tm_hf_folder_shape(j->folder, j->config, &j->description, &j->shape, err));
    TM_TRY(tm_hf_folder_weights(j->folder, &j->weights, err));
    if (!j->weights) return tm_fail(err, TM_INVALID, "'%.300s' holds no weights (model.safetensors)", j->folder);
    if (!tm_model_images(&j->shape) != !j->inputs)
        return tm_fail(err, TM_USAGE, "'%.300s' is a model of %s", j->folder,
                       j->inputs ? "a language: give --tokens FILE" : "images: give --inputs FILE");
    if (j->inputs) return tm_numerics_image_read(j->inputs, &j->shape, &j->image, err);
    TM_TRY(tm_token_list_read(j->tokens, j->shape.vocab_size, &j->ids, &j->n, err));
    if (j->n < 2)
        return tm_fail(err, TM_INVALID, "'%s' has %lld tokens; two are the least: an input and a target", j->tokens,
                       (long long)j->n);
    if (j->n - 1 > tm_model_max_length(&j->shape))
        return tm_fail(err, TM_INVALID, "'%s' has %lld inputs, the model has %lld positions; give fewer", j->tokens,
                       (long long)j->n - 1, (long long)tm_model_max_length(&j->shape));
    return TM_OK;
}

static tm_status open_device(job *j, const tm_precision **precision, tm_error *err)
{
    static const tm_precision *const formats[] = { &tm_precision_f32, &tm_precision_bf16, &tm_precision_f64 };
    char                            *end;
    long                             threads = strtol(j->threads, &end, 10);
    if (*end || end == j->threads || threads < 0 || threads > 4096)
        return tm_fail(err, TM_USAGE, "--threads is '%.100s', wanted 0 (all) to 4096", j->threads);
    TM_TRY(tm_device_open(j->device, (int)threads, &j->opened, err));
    if (j->isa) TM_TRY(tm_device_limit_isa(j->opened, j->isa, err));
    bool wide = tm_device_describe(j->opened)->float64_only;
    if (!j->dtype) j->dtype = wide ? "float64" : "float32";
    *precision = NULL;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (strcmp(formats[i]->name, j->dtype) == 0) *precision = formats[i];
    if (!*precision)
        return tm_fail(err, TM_USAGE, "--dtype is '%.100s', wanted float32, bfloat16 or float64", j->dtype);
    if (wide != (*precision == &tm_precision_f64))
        return tm_fail(err, TM_USAGE, "--dtype %s is not computed on --device %s; %s", j->dtype, j->device,
                       wide ? "it computes in float64" : "--device reference computes in float64");
    if (!tm_device_describe(j->opened)->computes)
        return tm_fail(err, TM_USAGE, "--device %s computes nothing", j->device);
    return TM_OK;
}

static tm_status compute(job *j, tm_error *err)
{
    const tm_precision *precision = NULL;
    tm_hf_report        report;
    TM_TRY(describe(j, err));
    TM_TRY(open_device(j, &precision, err));
    tm_step_options step = tm_numerics_step(&j->shape, precision, j->n - 1);
    if (j->inputs) tm_numerics_image_fields(&j->shape, &step);
    TM_TRY(tm_trainer_open(j->opened, &step, 0, &j->trainer, err));
    tm_hf_memory memory = tm_hf_trainer_memory(j->trainer, j->description.form);
    TM_TRY(tm_hf_load(&memory, j->weights, tm_device_describe(j->opened)->threads, &report, err));
    if (j->inputs)
        return tm_numerics_read_image(j->trainer, j->description.form, j->weights, &j->image, &j->numerics, err);
    return tm_numerics_read(j->trainer, j->description.form, j->weights, j->ids, &j->numerics, err);
}

static void print(const job *j, tm_text *out)
{
    const tm_numerics *n = &j->numerics;
    if (j->json) {
        tm_numerics_json(n, out);
        return;
    }
    tm_text_printf(out, "%-60s %lld\n", "parameters", (long long)n->parameters);
    if (n->tokens) tm_text_printf(out, "%-60s %lld\n", "target tokens", (long long)n->tokens);
    tm_text_printf(out, "%-60s %.12g\n", "loss", n->loss);
    if (n->tokens) tm_text_printf(out, "%-60s %.12g %.12g %.12g ...\n", "logits of the first token", n->first[0], n->first[1],
                   n->first[n->vocab > 2 ? 2 : 1]);
    if (n->tokens) tm_text_printf(out, "%-60s %.12g %.12g %.12g ...\n", "logits of the last token", n->last[0], n->last[1],
                   n->last[n->vocab > 2 ? 2 : 1]);
    tm_text_printf(out, "%-60s %.12g\n", "gradient norm", n->gradient_norm);
    for (size_t i = 0; i < n->n_gradients; i++)
        tm_text_printf(out, "%-60s %.12g\n", n->gradients[i].name, n->gradients[i].norm);
}

static void release(job *j)
{
    tm_numerics_fini(&j->numerics);
    tm_numerics_image_fini(&j->image);
    tm_trainer_close(j->trainer);
    tm_device_close(j->opened);
    tm_safetensors_close(j->weights);
    tm_config_destroy(j->config);
    free(j->ids);
}

tm_status tm_command_numerics(int argc, char **argv, tm_error *err)
{
    job                 j = { .device = "cpu", .threads = "0" };
    tm_text             out = { 0 };
    const tm_cli_option options[] = { { "--tokens", &j.tokens, NULL },
                                      { "--inputs", &j.inputs, NULL },
                                      { "--device", &j.device, NULL },
                                      { "--isa", &j.isa, NULL },
                                      { "--dtype", &j.dtype, NULL },
                                      { "--threads", &j.threads, NULL },
                                      { "--json", NULL, &j.json },
                                      { NULL, NULL, NULL } };
    if (tm_cli_wants_help(argc, argv)) return tm_cli_print_help(help, err);
    TM_TRY(tm_cli_arguments(argc, argv, argv[0], options, &j.folder, err));
    if (!j.tokens == !j.inputs)
        return tm_fail(err, TM_USAGE,
                       "give --tokens FILE (a JSON array of ids, or a .npy) or, of an image model, --inputs FILE (safetensors)");
    tm_status st = compute(&j, err);
    if (st == TM_OK) print(&j, &out);
    if (st == TM_OK) st = tm_cli_print(&out, err);
    release(&j);
    tm_text_fini(&out);
    return st;
}
