/* SPDX-License-Identifier: Apache-2.0 */
/* A FLUX folder (tests/hf/flux.json, by tools/flux_parity.py), and LoRA of it: what diffusers and PEFT compute with
 * files of diffusers, of sd-scripts and of ComfyUI (tests/hf/flux_loras, by tools/flux_lora_parity.py): loss, every
 * gradient, losses of 20 steps; written and read again, merged; files that are refused. */
#include "hf/adapter.h"
#include "hf/numerics.h"
#include "hf/source.h"
#include "support/json.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/golden.h"
#include "support/hf_folder.h"
#include "support/training.h"
#include "support/refusal.h"

#include <dirent.h>

#include "support/test.h"
#include <jansson.h>

enum { STEPS = 20, MOST = 96, THREADS = 2 };
static const char fixtures[] = "tests/hf/flux_loras";

/* The model of tests/hf/flux.json in a folder. */
static const char *model_folder(void)
{
    static char path[300];
    json_t     *root = test_json("tests/hf/flux.json");
    char       *config = json_dumps(json_object_get(root, "config"), 0);
    snprintf(path, sizeof path, "%s/model", test_folder());
    mkdir(path, 0700);
    test_hf_write(path, config, NULL);
    free(config);
    json_decref(root);
    return path;
}

/* --- files of adapters -------------------------------------------------------------------------------------------- */

/* What a file is made of; a test changes it before it is written. */
typedef struct {
    tm_tensor_heading heading[MOST];
    double            alpha[MOST]; /* of headings of rank 0 */
    size_t            n;
    const char       *metadata; /* lora_adapter_metadata */
} lora_file;

static lora_file file_of(const json_t *root)
{
    lora_file   f = { .n = 0 };
    const char *name;
    json_t     *value;
    json_object_foreach(json_object_get(root, "shapes"), name, value)
    {
        assert_true(f.n < MOST);
        tm_tensor_heading *h = &f.heading[f.n++];
        *h = (tm_tensor_heading){ .name = name, .dtype = TM_F32, .rank = (int)json_array_size(value) };
        for (size_t k = 0; k < (size_t)h->rank; k++) h->n[k] = (int64_t)json_integer_value(json_array_get(value, k));
    }
    json_object_foreach(json_object_get(root, "alphas"), name, value)
    {
        assert_true(f.n < MOST);
        f.alpha[f.n] = json_number_value(value);
        f.heading[f.n++] = (tm_tensor_heading){ .name = name, .dtype = TM_F32 };
    }
    f.metadata = json_string_value(json_object_get(json_object_get(root, "metadata"), "lora_adapter_metadata"));
    return f;
}

static void write_file(const char *path, const lora_file *f)
{
    const char *const metadata[][2] = { { f->metadata ? "lora_adapter_metadata" : NULL, f->metadata }, { NULL, NULL } };
    tm_safetensors_writer *writer;
    assert_ok(tm_safetensors_create(path, f->heading, f->n, metadata, &writer, err));
    for (size_t i = 0; i < f->n; i++) {
        const tm_tensor_heading *h = &f->heading[i];
        int64_t                  elements = 1;
        double                   mean = strstr(h->name, "lora_magnitude") ? 1 : 0;
        for (int k = 0; k < h->rank; k++) elements *= h->n[k];
        for (int64_t e = 0; e < elements; e++) {
            double value = h->rank ? mean + 0.25 * golden_unit(h->name, (uint32_t)e) : f->alpha[i];
            float  narrow = (float)value;
            tm_safetensors_write(writer, h->dtype == TM_F64 ? (const void *)&value : &narrow, tm_dtype_bytes(h->dtype));
        }
    }
    assert_ok(tm_safetensors_finish(writer, err));
}

/* --- models with adapters ----------------------------------------------------------------------------------------- */

typedef struct {
    tm_config        *config;
    tm_hf_description description;
    tm_model_shape    shape;
    tm_safetensors   *weights;
    tm_hf_adapter     adapter;
    tm_numerics_image image;
    tm_device        *device;
    tm_trainer       *trainer;
} adapted;

/* inputs.safetensors, as the numerics of the command line read it. */
static void write_inputs(const char *path, const json_t *root)
{
    static const struct {
        const char *name, *shape; /* of members of the file, or of its configuration */
    } inputs[] = { { "guidance", "1" },
                   { "noisy", "rows columns in_channels" },
                   { "pooled", "pooled_projection_dim" },
                   { "text", "text joint_attention_dim" },
                   { "time", "" },
                   { "velocity", "rows columns in_channels" } };
    lora_file f = { .n = 0 };
    for (size_t i = 0; i < 6; i++) {
        char words[64], *rest = strcpy(words, inputs[i].shape);
        f.heading[f.n] = (tm_tensor_heading){ .name = inputs[i].name, .dtype = TM_F32 };
        for (char *word; *inputs[i].shape && (word = strsep(&rest, " "));) {
            json_t *n = json_object_get(root, word);
            if (!n) n = json_object_get(json_object_get(root, "config"), word);
            f.heading[f.n].n[f.heading[f.n].rank++] = n ? (int64_t)json_integer_value(n) : 1;
        }
        f.n++;
    }
    tm_safetensors_writer *writer;
    assert_ok(tm_safetensors_create(path, f.heading, f.n, NULL, &writer, err));
    for (size_t i = 0; i < f.n; i++) {
        const json_t *single = f.heading[i].rank < 2 ? json_object_get(root, f.heading[i].name) : NULL;
        int64_t       elements = 1;
        for (int k = 0; k < f.heading[i].rank; k++) elements *= f.heading[i].n[k];
        for (int64_t e = 0; e < elements; e++) {
            float value = (float)golden_unit(f.heading[i].name, (uint32_t)e);
            if (json_is_number(single)) value = (float)json_number_value(single);
            tm_safetensors_write(writer, &value, sizeof value);
        }
    }
    assert_ok(tm_safetensors_finish(writer, err));
}

static void take_inputs(adapted *a)
{
    json_t     *root = test_json("tests/hf/flux.json");
    const char *path = test_in_folder("inputs.safetensors");
    write_inputs(path, root);
    assert_ok(tm_numerics_image_read(path, &a->shape, &a->image, err));
    json_decref(root);
}

/* `own`: the adapters of the run; NULL: those of the file. `path` NULL: no adapter. */
static tm_status open_adapted(const char *folder, const char *path, const char *device, const tm_precision *precision,
                              const tm_adapters *own, adapted *out, tm_error *err)
{
    tm_hf_report report;
    *out = (adapted){ .config = test_full_config() };
    TM_TRY(tm_hf_folder_shape(folder, out->config, &out->description, &out->shape, err));
    TM_TRY(tm_hf_folder_weights(folder, &out->weights, err));
    if (path) TM_TRY(tm_hf_adapter_open(path, out->weights, out->description.form, &out->adapter, err));
    take_inputs(out);
    tm_step_options step = tm_numerics_step(&out->shape, precision, 1);
    tm_numerics_image_fields(&out->shape, &step);
    step.optimizer = &tm_optimizer_adamw;
    step.hyper = (tm_hyper){ .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1 };
    if (path) step.adapters = own ? *own : out->adapter.adapters;
    TM_TRY(tm_device_open(device, THREADS, &out->device, err));
    TM_TRY(tm_trainer_open(out->device, &step, 1, &out->trainer, err));
    tm_hf_memory memory = tm_hf_trainer_memory(out->trainer, out->description.form);
    TM_TRY(tm_hf_load(&memory, out->weights, THREADS, &report, err));
    return path ? tm_hf_adapter_load(&memory, &out->adapter, &step.adapters, THREADS, &report, err) : TM_OK;
}

static void close_adapted(adapted *a)
{
    tm_trainer_close(a->trainer);
    if (a->device) tm_device_close(a->device);
    tm_numerics_image_fini(&a->image);
    tm_hf_adapter_close(&a->adapter);
    tm_safetensors_close(a->weights);
    tm_config_destroy(a->config);
}

static adapted opened(const char *folder, const char *path, const char *device, const tm_precision *precision)
{
    adapted  a;
    tm_error err = { 0 };
    if (open_adapted(folder, path, device, precision, NULL, &a, &err) != TM_OK) fail_msg("%s: %s", folder, err.text);
    return a;
}

static double step(adapted *a, int t, double rate)
{
    tm_step_result result;
    tm_micro_batch batch = tm_numerics_image_batch(&a->image);
    test_begin(a->trainer, t, rate, 1.0, a->image.elements);
    assert_ok(tm_trainer_step(a->trainer, &batch, &result, NULL, err));
    return result.loss;
}

static void compare(const json_t *root, const char *folder, const char *path, const char *device,
                    const tm_precision *precision, double relative)
{
    adapted       a = opened(folder, path, device, precision);
    tm_numerics   n;
    const json_t *gradients = json_object_get(root, "gradients");
    assert_ok(tm_numerics_read_image(a.trainer, a.description.form, a.weights, &a.image, &n, err));
    golden_close("loss", n.loss, test_json_number(root, "loss"), 1e-5);
    if (path) golden_close("gradient_norm", n.gradient_norm, test_json_number(root, "gradient_norm"), relative);
    if (!path) assert_int_equal(n.parameters, (int64_t)test_json_number(root, "parameters"));
    assert_int_equal(n.n_gradients, json_object_size(gradients));
    for (size_t i = 0; i < n.n_gradients; i++)
        golden_close(n.gradients[i].name, n.gradients[i].norm, test_json_number(gradients, n.gradients[i].name),
                     relative);
    tm_numerics_fini(&n);
    close_adapted(&a);
}

/* The model of the folder with the adapter added, in another folder. */
static void merge(const char *folder, const char *path, const char *into)
{
    tm_hf_source         source;
    tm_hf_report         report;
    tm_error             err = { 0 };
    tm_hf_export_options o = { .folder = into, .dtype = TM_F32, .shard_bytes = 1 << 30 };
    tm_status            st = tm_hf_source_open(folder, -1, test_full_config(), &source, &err);
    if (st == TM_OK) st = tm_hf_source_adapt(&source, path, &err);
    if (st == TM_OK) st = tm_hf_export(&source, &o, &report, &err);
    if (st != TM_OK) fail_msg("%s", err.text);
    tm_hf_source_close(&source);
}

static void train(const json_t *root, const char *path)
{
    char          written[300], merged[300];
    tm_hf_report  report;
    const char   *folder = model_folder();
    const json_t *losses = json_object_get(root, "losses");
    adapted       a = opened(folder, path, "cpu", &tm_precision_f32);
    assert_int_equal(json_array_size(losses), STEPS);
    for (int t = 0; t < STEPS; t++)
        golden_close("loss of a step", step(&a, t + 1, 3e-3), json_number_value(json_array_get(losses, (size_t)t)),
                     1e-4);
    double       trained = step(&a, STEPS + 1, 0);
    tm_hf_memory memory = tm_hf_trainer_memory(a.trainer, a.description.form);
    snprintf(written, sizeof written, "%s/written", test_folder());
    snprintf(merged, sizeof merged, "%s/merged", test_folder());
    assert_ok(tm_hf_adapter_write(&memory, &a.adapter.adapters, "", written, &report, err));
    assert_refused(tm_hf_adapter_write(&memory, &a.adapter.adapters, "", written, &report, err), TM_INVALID, "");
    close_adapted(&a);
    assert_true(tm_hf_is_adapter(written) && !tm_hf_is_adapter(folder));

    a = opened(folder, written, "cpu", &tm_precision_f32);
    golden_close("loss of what was written", step(&a, 1, 0), trained, 1e-6);
    close_adapted(&a);
    merge(folder, written, merged);
    a = opened(merged, NULL, "cpu", &tm_precision_f32);
    golden_close("loss of the merged model", step(&a, 1, 0), trained, 1e-5);
    close_adapted(&a);
}

/* The model alone, of its folder and of what is written of it. */
TEST(diffusers_computes_the_same)
{
    json_t      *root = test_json("tests/hf/flux.json");
    tm_hf_source source;
    tm_hf_report report;
    char         out[300];
    snprintf(out, sizeof out, "%s/out", test_folder());
    compare(root, model_folder(), NULL, "cpu", &tm_precision_f32, 1e-4);
    assert_ok(tm_hf_source_open(model_folder(), -1, test_full_config(), &source, err));
    tm_hf_export_options options = { .folder = out, .dtype = TM_F32, .shard_bytes = 1 << 14 };
    assert_ok(tm_hf_export(&source, &options, &report, err));
    tm_hf_source_close(&source);
    compare(root, out, NULL, "cpu", &tm_precision_f32, 1e-4);
    json_decref(root);
    test_folder_remove();
}

TEST(every_fixture_is_met)
{
    struct dirent **entries;
    int             n = scandir(fixtures, &entries, NULL, alphasort), met = 0;
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", fixtures, entries[i]->d_name);
        if (strstr(path, ".json")) {
            json_t   *root = test_json(path);
            lora_file f = file_of(root);
            snprintf(path, sizeof path, "%s/%.100s.safetensors", test_folder(), entries[i]->d_name);
            write_file(path, &f);
            assert_true(tm_hf_is_adapter(path));
            compare(root, model_folder(), path, "cpu", &tm_precision_f32, 1e-4);
            compare(root, model_folder(), path, "reference", &tm_precision_f64, 1e-5);
            train(root, path);
            json_decref(root);
            test_folder_remove();
            met++;
        }
        free(entries[i]);
    }
    free(entries);
    assert_int_equal(met, 7);
}

/* --- what is refused ---------------------------------------------------------------------------------------------- */

#define BLOCK "transformer.transformer_blocks.0.attn."
#define QKV BLOCK "to_q"
#define FUSED "lora_unet_double_blocks_0_img_attn_qkv"
/* Tensors of a file, "NAME ROWSxCOLUMNS", "NAME" alone of rank 0, "; " between them; i32: in that format. */
#define PEFT(module, r, out, in) module ".lora_A.weight " r "x" in "; " module ".lora_B.weight " out "x" r
#define KOHYA(module, r, out, in) module ".lora_down.weight " r "x" in "; " module ".lora_up.weight " out "x" r
#define PLAIN PEFT(QKV, "2", "16", "16")

static const struct {
    const char *tensors, *words;
    tm_status   status;
    double      alpha; /* of those of rank 0 */
    const char *metadata;
    const char *targets; /* of a run that reads it; NULL: those of the file */
} refused[] = {
    { .tensors = "text_encoder.text_model.encoder.layers.0.mlp.fc1.lora_A.weight 2x4",
      .status = TM_UNSUPPORTED,
      .words = "an adapter of a text encoder" },
    { .tensors = PLAIN "; " BLOCK "to_k.lokr_w1 2x4", .status = TM_UNSUPPORTED, .words = "no LoRA of a linear layer" },
    { .tensors = KOHYA("lora_unet_double_blocks_0_img_attn_q", "2", "16", "16"),
      .status = TM_UNSUPPORTED,
      .words = "no such linear layer" },
    { .tensors = QKV ".lora_A.weight 2x16", .status = TM_FORMAT, .words = "lora_B (lora_up)" },
    { .tensors = PLAIN "; " FUSED ".alpha",
      .status = TM_UNSUPPORTED,
      .words = "an alpha without an adapter",
      .alpha = 2 },
    { .tensors = QKV ".lora_A.weight 2x16; " QKV ".lora_B.weight 16x3",
      .status = TM_FORMAT,
      .words = "wanted (outputs, 2)" },
    { .tensors = QKV ".lora_A.weight 2x16 i32; " QKV ".lora_B.weight 16x2", .status = TM_FORMAT, .words = "I32" },
    { .tensors = KOHYA(FUSED, "2", "47", "16"), .status = TM_FORMAT, .words = "48 rows, 16 for each" },
    { .tensors = KOHYA("lora_unet_single_blocks_0_linear1", "2", "48", "16"),
      .status = TM_FORMAT,
      .words = "more than 48 rows" },
    { .tensors = KOHYA(FUSED, "2", "48", "16") "; " FUSED ".alpha",
      .status = TM_FORMAT,
      .words = "is -1, wanted a number from 0",
      .alpha = -1 },
    { .tensors = PLAIN "; " QKV ".alpha",
      .status = TM_UNSUPPORTED,
      .words = "which both say the factor",
      .alpha = 2,
      .metadata = "{\"transformer.r\": 2, \"transformer.lora_alpha\": 4}" },
    { .tensors = PLAIN, .status = TM_FORMAT, .words = "'r' must be", .metadata = "{\"lora_alpha\": 4}" },
    { .tensors = PLAIN,
      .status = TM_UNSUPPORTED,
      .words = "'bias' is \"all\"",
      .metadata = "{\"transformer.r\": 2, \"transformer.bias\": \"all\"}" },
    { .tensors = PLAIN "; " QKV ".lora_down.weight 2x16", .status = TM_FORMAT, .words = "which mean the same" },
    { .tensors = PEFT("transformer.transformer_blocks.7.attn.to_q", "2", "16", "16"),
      .status = TM_FORMAT,
      .words = "transformer_blocks.7.attn.to_q" },
    { .tensors = PLAIN "; " PEFT(BLOCK "to_k", "2", "16", "16"),
      .status = TM_FORMAT,
      .words = "or the run no adapter there",
      .targets = "double_blocks.0.img_attn.qkv.q" },
    { .tensors = PLAIN "; " PEFT(BLOCK "to_k", "2", "16", "16") "; " PEFT(BLOCK "to_v", "2", "16", "16"),
      .status = TM_FORMAT,
      .words = "differ, and the run has one for both",
      .targets = "img_attn.qkv" },
};

/* Writes x.safetensors with these tensors; its path. */
static const char *write_tensors(const char *tensors, double alpha, const char *metadata)
{
    static char path[300], text[600];
    char       *rest = strcpy(text, tensors);
    lora_file   f = { .metadata = metadata };
    for (char *one; (one = strsep(&rest, ";"));) {
        tm_tensor_heading *h = &f.heading[f.n];
        one += *one == ' ';
        char *shape = strchr(one, ' ');
        if (shape) *shape++ = '\0';
        *h = (tm_tensor_heading){ .name = one, .dtype = shape && strstr(shape, "i32") ? TM_I32 : TM_F32 };
        if (shape) {
            h->rank = 2;
            assert_int_equal(sscanf(shape, "%ldx%ld", &h->n[0], &h->n[1]), 2);
        }
        f.alpha[f.n++] = alpha;
    }
    snprintf(path, sizeof path, "%s/x.safetensors", test_folder());
    write_file(path, &f);
    return path;
}

TEST(what_does_not_fit_is_refused_by_name)
{
    const char *folder = model_folder();
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        const char *path = write_tensors(refused[i].tensors, refused[i].alpha, refused[i].metadata);
        tm_adapters own = { .rank = 2, .alpha = 2, .base = TM_DTYPE_COUNT, .place = "test" };
        adapted     a;
        tm_error    err = { 0 };
        snprintf(own.targets, sizeof own.targets, "%s", refused[i].targets ? refused[i].targets : "");
        tm_status st = open_adapted(folder, path, "cpu", &tm_precision_f32, refused[i].targets ? &own : NULL, &a, &err);
        if (st != refused[i].status || !strstr(err.text, refused[i].words))
            fail_msg("%s: status %d, '%s', wanted '%s'", refused[i].tensors, (int)st, err.text, refused[i].words);
        refusal_is_sound(&err);
        close_adapted(&a);
    }
    test_folder_remove();
}

/* Modules of files by their names in diffusers. */
TEST(modules_have_many_spellings)
{
    static const char *const rows[][2] = {
        { PLAIN, "transformer_blocks.0.attn.to_q" },
        { PEFT("base_model.model.transformer_blocks.11.ff.net.0.proj", "2", "64", "16"),
          "transformer_blocks.11.ff.net.0.proj" },
        { KOHYA("lora_transformer_transformer_blocks_10_ff_context_net_0_proj", "2", "64", "16"),
          "transformer_blocks.10.ff_context.net.0.proj" },
        { KOHYA("lora_unet_double_blocks_18_txt_mlp_2", "2", "16", "64"), "transformer_blocks.18.ff_context.net.2" },
        { PEFT("diffusion_model.double_blocks.3.txt_attn.qkv", "2", "48", "16"),
          "transformer_blocks.3.attn.add_q_proj transformer_blocks.3.attn.add_k_proj "
          "transformer_blocks.3.attn.add_v_proj" },
        { KOHYA("lora_unet_single_blocks_5_linear1", "2", "112", "16"),
          "single_transformer_blocks.5.attn.to_q single_transformer_blocks.5.attn.to_k "
          "single_transformer_blocks.5.attn.to_v single_transformer_blocks.5.proj_mlp" },
        { KOHYA("lora_unet_single_blocks_5_modulation_lin", "2", "48", "16"),
          "single_transformer_blocks.5.norm.linear" },
        { KOHYA("lora_unet_final_layer_adaLN_modulation_1", "2", "32", "16"), "norm_out.linear" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char   *path = write_tensors(rows[i][0], 0, NULL);
        tm_hf_adapter adapter;
        tm_text       names = { 0 };
        assert_ok(tm_hf_adapter_open(path, NULL, tm_hf_form_named("FluxTransformer2DModel"), &adapter, err));
        for (size_t k = 0; k < adapter.adapters.n_modules; k++)
            tm_text_printf(&names, "%s%s", k ? " " : "", adapter.adapters.modules[k].name);
        assert_string_equal(names.data, rows[i][1]);
        tm_text_fini(&names);
        tm_hf_adapter_close(&adapter);
    }
    test_folder_remove();
}

TESTS_IN_ORDER
