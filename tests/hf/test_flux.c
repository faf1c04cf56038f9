/* SPDX-License-Identifier: Apache-2.0 */
/* A FLUX folder of diffusers (tests/hf/flux.json, by tools/flux_parity.py): loss and every gradient by its names; out
 * again. */
#include "graph/value.h"
#include "hf/numerics.h"
#include "hf/source.h"
#include "support/json.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/golden.h"
#include "support/hf_folder.h"
#include "support/training.h"

#include <stdio.h>
#include <stdlib.h>

#include "support/test.h"
#include <jansson.h>

static int64_t count(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

enum { GUIDANCE, NOISY, POOLED, TEXT, TIME, VELOCITY, INPUTS };

static void read_headings(const json_t *root, tm_tensor_heading headings[INPUTS])
{
    const json_t *config = json_object_get(root, "config");
    int64_t       rows = count(root, "rows"), columns = count(root, "columns"), channels = count(config, "in_channels");
    headings[GUIDANCE] = (tm_tensor_heading){ .name = "guidance", .dtype = TM_F32, .rank = 1, .n = { 1 } };
    headings[NOISY] =
        (tm_tensor_heading){ .name = "noisy", .dtype = TM_F32, .rank = 3, .n = { rows, columns, channels } };
    headings[POOLED] = (tm_tensor_heading){
        .name = "pooled", .dtype = TM_F32, .rank = 1, .n = { count(config, "pooled_projection_dim") }
    };
    headings[TEXT] = (tm_tensor_heading){
        .name = "text", .dtype = TM_F32, .rank = 2, .n = { count(root, "text"), count(config, "joint_attention_dim") }
    };
    headings[TIME] = (tm_tensor_heading){ .name = "time", .dtype = TM_F32, .rank = 0 };
    headings[VELOCITY] =
        (tm_tensor_heading){ .name = "velocity", .dtype = TM_F32, .rank = 3, .n = { rows, columns, channels } };
}

/* inputs.safetensors; those without a name are left out. */
static void write_inputs(const char *path, const json_t *root, const tm_tensor_heading all[INPUTS])
{
    tm_tensor_heading      headings[INPUTS];
    tm_safetensors_writer *writer;
    tm_error               err = { 0 };
    size_t                 n = 0;
    for (int i = 0; i < INPUTS; i++)
        if (all[i].name) headings[n++] = all[i];
    assert_int_equal(tm_safetensors_create(path, headings, n, NULL, &writer, &err), TM_OK);
    for (size_t i = 0; i < n; i++) {
        const json_t *single = headings[i].rank < 2 ? json_object_get(root, headings[i].name) : NULL;
        int64_t       elements = 1;
        for (int k = 0; k < headings[i].rank; k++) elements *= headings[i].n[k];
        for (int64_t e = 0; e < elements; e++) {
            float value = (float)golden_unit(headings[i].name, (uint32_t)e);
            if (json_is_number(single)) value = (float)json_number_value(single);
            tm_safetensors_write(writer, &value, tm_dtype_bytes(headings[i].dtype));
        }
    }
    assert_int_equal(tm_safetensors_finish(writer, &err), TM_OK);
}

static void compute(const char *folder, const char *inputs, tm_numerics *out)
{
    tm_config        *config = test_full_config();
    tm_hf_description description;
    tm_model_shape    shape;
    tm_numerics_image image;
    tm_safetensors   *weights;
    tm_device        *device;
    tm_trainer       *trainer;
    tm_hf_report      report;
    tm_error          err = { 0 };
    if (tm_hf_folder_shape(folder, config, &description, &shape, &err) != TM_OK) fail_msg("%s", err.text);
    if (tm_hf_folder_weights(folder, &weights, &err) != TM_OK) fail_msg("%s", err.text);
    if (tm_numerics_image_read(inputs, &shape, &image, &err) != TM_OK) fail_msg("%s", err.text);
    assert_int_equal(tm_device_open("cpu", 2, &device, &err), TM_OK);
    tm_step_options step = tm_numerics_step(&shape, &tm_precision_f32, 1);
    tm_numerics_image_fields(&shape, &step);
    if (tm_trainer_open(device, &step, 0, &trainer, &err) != TM_OK) fail_msg("%s", err.text);
    tm_hf_memory memory = tm_hf_trainer_memory(trainer, description.form);
    if (tm_hf_load(&memory, weights, 2, &report, &err) != TM_OK) fail_msg("%s", err.text);
    if (tm_numerics_read_image(trainer, description.form, weights, &image, out, &err) != TM_OK)
        fail_msg("%s", err.text);
    tm_numerics_image_fini(&image);
    tm_trainer_close(trainer);
    tm_device_close(device);
    tm_safetensors_close(weights);
    tm_config_destroy(config);
}

TEST(diffusers_computes_the_same)
{
    char          inputs[512], out[512];
    json_t       *root = test_json("tests/hf/flux.json");
    char         *config = json_dumps(json_object_get(root, "config"), 0);
    const json_t *gradients = json_object_get(root, "gradients");
    tm_numerics   n, again;
    tm_hf_source  source;
    tm_hf_report  report;
    tm_error      err = { 0 };

    tm_tensor_heading headings[INPUTS];
    snprintf(inputs, sizeof inputs, "%s/inputs.safetensors", test_folder());
    snprintf(out, sizeof out, "%s/out", test_folder());
    test_hf_write(test_folder(), config, NULL);
    read_headings(root, headings);
    write_inputs(inputs, root, headings);
    compute(test_folder(), inputs, &n);
    golden_close("loss", n.loss, json_number_value(json_object_get(root, "loss")), 1e-5);
    assert_int_equal(n.parameters, count(root, "parameters"));
    assert_int_equal(n.n_gradients, json_object_size(gradients));
    for (size_t i = 0; i < n.n_gradients; i++)
        golden_close(n.gradients[i].name, n.gradients[i].norm,
                     json_number_value(json_object_get(gradients, n.gradients[i].name)), 1e-4);
    if (tm_hf_source_open(test_folder(), -1, test_full_config(), &source, &err) != TM_OK) fail_msg("%s", err.text);
    tm_hf_export_options options = { .folder = out, .dtype = TM_F32, .shard_bytes = 1 << 14 };
    if (tm_hf_export(&source, &options, &report, &err) != TM_OK) fail_msg("%s", err.text);
    tm_hf_source_close(&source);
    compute(out, inputs, &again);
    assert_true(n.loss == again.loss && n.gradient_norm == again.gradient_norm);
    tm_numerics_fini(&n);
    tm_numerics_fini(&again);
    free(config);
    json_decref(root);
    test_folder_remove();
}

TESTS_IN_ORDER
