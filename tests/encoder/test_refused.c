/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of encoders that do not fit: what is wrong is named, and nothing is computed. */
#include "base/file.h"
#include "encoder/encoder.h"

#include <jansson.h>

#include "support/folder.h"
#include "support/test.h"

#define CLIP "tests/encoder/data/clip_largest"
#define T5 "tests/encoder/data/t5_gated"
#define VAE "tests/encoder/data/vae_four"

/* Files of a folder into another, as links. */
static void link_file(const char *from, const char *to, const char *name)
{
    char path[400], *target, link[400];
    snprintf(path, sizeof path, "%s/%s", from, name);
    snprintf(link, sizeof link, "%s/%s", to, name);
    target = realpath(path, NULL);
    unlink(link);
    if (target) assert_int_equal(symlink(target, link), 0);
    free(target);
}

/* A copy of `from` whose config.json has `after` in the place of `before` (NULL: no config.json). */
static void copy_with(const char *from, const char *to, const char *before, const char *after)
{
    static const char *const files[] = { "model.safetensors", "model.safetensors.index.json",
                                         "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                         "model-00003-of-00003.safetensors" };
    tm_text                  text = { 0 }, changed = { 0 };
    tm_error                 err = { 0 };
    char                     path[400];
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) link_file(from, to, files[i]);
    snprintf(path, sizeof path, "%s/config.json", from);
    assert_int_equal(tm_file_read(path, 1 << 20, &text, &err), TM_OK);
    const char *at = strstr(text.data, before);
    if (!at) fail_msg("%s has no %s", path, before);
    tm_text_add_n(&changed, text.data, (size_t)(at - text.data));
    tm_text_printf(&changed, "%s%s", after, at + strlen(before));
    snprintf(path, sizeof path, "%s/config.json", to);
    assert_int_equal(tm_file_write(path, changed.data, changed.length, &err), TM_OK);
    tm_text_fini(&text);
    tm_text_fini(&changed);
}

static void refused(tm_device *device, const char *folder, tm_frozen_kind kind, tm_frozen_size size, tm_dtype compute,
                    tm_status status, const char *says)
{
    tm_frozen *encoder;
    tm_error   err = { 0 };
    tm_status  st = tm_frozen_open(device, folder, kind, &size, compute, &encoder, &err);
    if (st != status) fail_msg("%d, not %d: '%s', wanted '%s'", (int)st, (int)status, err.text, says);
    assert_null(encoder);
    if (!strstr(err.text, says)) fail_msg("'%s' lacks '%s'", err.text, says);
}

static const struct {
    const char *folder, *before, *after;
    tm_status   status;
    const char *says;
} configs[] = {
    { CLIP, "\"quick_gelu\"", "\"gelu\"", TM_UNSUPPORTED,
      "'hidden_act' is gelu, and of CLIPTextModel only quick_gelu," },
    { CLIP, "\"hidden_size\": 24,", "", TM_FORMAT,
      "has no 'hidden_size', which the config.json of a CLIPTextModel needs" },
    { CLIP, "\"hidden_size\": 24", "\"hidden_size\": 25", TM_FORMAT,
      "25 is not a multiple of 'num_attention_heads' 3" },
    { CLIP, "\"layer_norm_eps\": 1e-05", "\"layer_norm_eps\": 0", TM_FORMAT, "wanted a positive number" },
    { CLIP, "\"hidden_size\"", "\"rotary\": true, \"hidden_size\"", TM_UNSUPPORTED,
      "'rotary' (true) is not known for CLIPTextModel and might change what is computed; remove it if it does not" },
    { CLIP, "\"hidden_size\"", "\"rotary\": null, \"vocab_size\": 7, \"hidden_size\"", TM_FORMAT, "not JSON" },
    { CLIP, "\"CLIPTextModel\"", "\"CLIPTextModelWithProjection\"", TM_UNSUPPORTED,
      "is of a CLIPTextModelWithProjection, wanted CLIPTextModel; give the folder of that encoder" },
    { CLIP, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", TM_FORMAT,
      "16 missing (encoder.layers.2.layer_norm1.weight, " },
    { CLIP, "\"intermediate_size\": 40", "\"intermediate_size\": 48", TM_FORMAT,
      "tensor 'encoder.layers.0.mlp.fc1.weight' has the shape [40, 24], config.json means [48, 24]; take both from "
      "one" },
    { T5, "\"gated-gelu\"", "\"gated-silu\"", TM_UNSUPPORTED,
      "'feed_forward_proj' is gated-silu, and of T5EncoderModel only gated-gelu,relu" },
    { T5, "\"gated-gelu\"", "\"relu\"", TM_FORMAT,
      "2 missing (encoder.block.0.layer.1.DenseReluDense.wi.weight, encoder.block.1" },
    { T5, "\"relative_attention_num_buckets\": 8", "\"relative_attention_num_buckets\": 6", TM_UNSUPPORTED,
      "buckets must be a multiple of 4" },
    { T5, "\"relative_attention_max_distance\": 20", "\"relative_attention_max_distance\": 2", TM_UNSUPPORTED,
      "and the distance more than a quarter of them" },
    { VAE, "\"act_fn\": \"silu\"", "\"act_fn\": \"relu\"", TM_UNSUPPORTED, "'act_fn' is relu" },
    { VAE, "    \"DownEncoderBlock2D\",", "    \"AttnDownEncoderBlock2D\",", TM_UNSUPPORTED,
      "'down_block_types' is AttnDown" },
    { VAE, "    \"UpDecoderBlock2D\",", "    \"AttnUpDecoderBlock2D\",", TM_UNSUPPORTED, "'up_block_types' is AttnUp" },
    { VAE, "\"in_channels\": 3", "\"in_channels\": 4", TM_UNSUPPORTED, "'in_channels' is 4" },
    { VAE, "\"latents_mean\": null", "\"latents_mean\": [0.5]", TM_UNSUPPORTED, "'latents_mean' is" },
    { VAE, "\"norm_num_groups\": 4", "\"norm_num_groups\": 3", TM_FORMAT, "not a multiple of 'norm_num_groups' 3" },
    { VAE, "\"sample_size\": 32", "\"sample_size\": 32, \"spatial\": 1", TM_UNSUPPORTED, "'spatial'" },
    { VAE, "AutoencoderKL", "AutoencoderTiny", TM_UNSUPPORTED, "AutoencoderTiny" },
    { VAE, "\"layers_per_block\": 1", "\"layers_per_block\": 2", TM_INVALID, "has no weights" },
};

TEST(configurations_that_do_not_fit_are_refused_by_name)
{
    tm_device *device;
    tm_error   err = { 0 };
    assert_int_equal(tm_device_open("cpu", 1, &device, &err), TM_OK);
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        char          *folder = test_tree_make();
        tm_frozen_size size = { .batch = 1, .tokens = 12, .height = 16, .width = 16 };
        tm_frozen_kind kind = strcmp(configs[i].folder, CLIP) == 0 ? TM_FROZEN_CLIP
                              : strcmp(configs[i].folder, T5) == 0 ? TM_FROZEN_T5
                                                                   : TM_FROZEN_VAE_ENCODE;
        copy_with(configs[i].folder, folder, configs[i].before, configs[i].after);
        refused(device, folder, kind, size, TM_F32, configs[i].status, configs[i].says);
        test_tree_remove(folder);
    }
    tm_device_close(device);
}

/* Of the form of FLUX.1's text_encoder and text_encoder_2, written by transformers 4.43. */
static const char flux_clip[] =
    "{ \"_name_or_path\": \"openai/clip-vit-large-patch14\", \"architectures\": [\"CLIPTextModel\"], "
    "\"attention_dropout\": 0.0, \"bos_token_id\": 0, \"dropout\": 0.0, \"eos_token_id\": 2, \"hidden_act\": "
    "\"quick_gelu\", \"hidden_size\": 768, \"initializer_factor\": 1.0, \"initializer_range\": 0.02, "
    "\"intermediate_size\": 3072, \"layer_norm_eps\": 1e-05, \"max_position_embeddings\": 77, \"model_type\": "
    "\"clip_text_model\", \"num_attention_heads\": 12, \"num_hidden_layers\": 12, \"pad_token_id\": 1, "
    "\"projection_dim\": 768, \"torch_dtype\": \"bfloat16\", \"transformers_version\": \"4.43.3\", \"vocab_size\": "
    "49408 }";
static const char flux_t5[] =
    "{ \"_name_or_path\": \"google/t5-v1_1-xxl\", \"architectures\": [\"T5EncoderModel\"], \"classifier_dropout\": "
    "0.0, "
    "\"d_ff\": 10240, \"d_kv\": 64, \"d_model\": 4096, \"decoder_start_token_id\": 0, \"dense_act_fn\": \"gelu_new\", "
    "\"dropout_rate\": 0.1, \"eos_token_id\": 1, \"feed_forward_proj\": \"gated-gelu\", \"initializer_factor\": 1.0, "
    "\"is_encoder_decoder\": true, \"is_gated_act\": true, \"layer_norm_epsilon\": 1e-06, \"model_type\": \"t5\", "
    "\"num_decoder_layers\": 24, \"num_heads\": 64, \"num_layers\": 24, \"output_past\": true, \"pad_token_id\": 0, "
    "\"relative_attention_max_distance\": 128, \"relative_attention_num_buckets\": 32, \"tie_word_embeddings\": false, "
    "\"torch_dtype\": \"bfloat16\", \"transformers_version\": \"4.43.3\", \"use_cache\": true, \"vocab_size\": 32128 }";

static void write_config(const char *folder, const char *text, size_t bytes)
{
    char     path[400];
    tm_error err = { 0 };
    snprintf(path, sizeof path, "%s/config.json", folder);
    assert_int_equal(tm_file_write(path, text, bytes, &err), TM_OK);
}

/* Nothing in them is refused: the weights are what is looked for next. */
TEST(those_of_flux_are_read)
{
    tm_frozen_size size = { .batch = 1, .tokens = 77 };
    char          *folder = test_tree_make();
    tm_device     *device;
    tm_error       err = { 0 };
    assert_int_equal(tm_device_open("cpu", 1, &device, &err), TM_OK);
    write_config(folder, flux_clip, strlen(flux_clip));
    refused(device, folder, TM_FROZEN_CLIP, size, TM_BF16, TM_INVALID, "has no weights");
    size.tokens = 512;
    write_config(folder, flux_t5, strlen(flux_t5));
    refused(device, folder, TM_FROZEN_T5, size, TM_BF16, TM_INVALID, "has no weights");
    tm_device_close(device);
    test_tree_remove(folder);
}

/* Each member of config.json becomes each of these: it is refused in words, or nothing that is computed changes. */
TEST(any_value_is_taken_or_refused_in_words)
{
    static const char *const values[] = { "null", "-1", "0", "1e300", "3.5", "\"x\"", "[]", "{}", "true", "16777216" };
    tm_frozen_size           size = { .batch = 1, .tokens = 4 };
    char                    *folder = test_tree_make();
    tm_device               *device;
    tm_error                 err = { 0 };
    assert_int_equal(tm_device_open("cpu", 1, &device, &err), TM_OK);
    for (int k = 0; k < 2; k++) {
        json_t     *config = json_load_file(k ? T5 "/config.json" : CLIP "/config.json", 0, NULL), *old;
        const char *key;
        int         taken = 0, not_taken = 0;
        void       *next;
        copy_with(k ? T5 : CLIP, folder, "{", "{");
        json_object_foreach_safe(config, next, key, old)
        {
            json_t *kept = json_deep_copy(old);
            for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
                tm_frozen *encoder;
                tm_error   own = { 0 };
                json_object_set_new(config, key, json_loads(values[v], JSON_DECODE_ANY, NULL));
                char *text = json_dumps(config, 0);
                write_config(folder, text, strlen(text));
                tm_status st =
                    tm_frozen_open(device, folder, k ? TM_FROZEN_T5 : TM_FROZEN_CLIP, &size, TM_F32, &encoder, &own);
                if (st != TM_OK && !strstr(own.text, key) && !strstr(own.text, "config.json")) fail_msg("%s", own.text);
                *(st == TM_OK ? &taken : &not_taken) += 1;
                tm_frozen_close(encoder);
                free(text);
            }
            json_object_set_new(config, key, kept);
        }
        assert_true(taken > 50 && not_taken > 50);
        json_decref(config);
    }
    tm_device_close(device);
    test_tree_remove(folder);
}

TEST(folders_that_lack_a_file_are_refused)
{
    tm_frozen_size size = { .batch = 1, .tokens = 12 };
    char          *folder = test_tree_make(), path[400];
    tm_device     *device;
    tm_error       err = { 0 };
    assert_int_equal(tm_device_open("cpu", 1, &device, &err), TM_OK);
    refused(device, folder, TM_FROZEN_CLIP, size, TM_F32, TM_INVALID, "config.json");
    copy_with(CLIP, folder, "{", "{");
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_int_equal(unlink(path), 0);
    refused(
        device, folder, TM_FROZEN_CLIP, size, TM_F32, TM_INVALID,
        "has no weights: neither model.safetensors nor diffusion_pytorch_model.safetensors, nor an index of either; "
        "download the whole folder");
    snprintf(path, sizeof path, "%s/pytorch_model.bin", folder);
    assert_int_equal(tm_file_write(path, "x", 1, &err), TM_OK);
    refused(device, folder, TM_FROZEN_CLIP, size, TM_F32, TM_UNSUPPORTED, "'pytorch_model.bin', a pickle");
    copy_with(T5, folder, "{", "{");
    snprintf(path, sizeof path, "%s/model-00002-of-00003.safetensors", folder);
    assert_int_equal(unlink(path), 0);
    refused(device, folder, TM_FROZEN_T5, size, TM_F32, TM_INVALID, "model-00002-of-00003.safetensors");
    tm_device_close(device);
    test_tree_remove(folder);
}

TEST(sizes_and_formats_are_checked)
{
    tm_device *device;
    tm_error   err = { 0 };
    assert_int_equal(tm_device_open("cpu", 1, &device, &err), TM_OK);
    for (int64_t tokens = 0; tokens <= 13; tokens += 13)
        refused(device, CLIP, TM_FROZEN_CLIP, (tm_frozen_size){ .batch = 1, .tokens = tokens }, TM_F32, TM_INVALID,
                "takes 1 to 12 tokens, not");
    refused(device, T5, TM_FROZEN_T5, (tm_frozen_size){ .batch = 1, .tokens = 0 }, TM_F32, TM_INVALID, "not 0");
    refused(device, T5, TM_FROZEN_T5, (tm_frozen_size){ .batch = 0, .tokens = 1 }, TM_F32, TM_INVALID, "a batch of 0");
    refused(device, VAE, TM_FROZEN_VAE_DECODE, (tm_frozen_size){ .batch = 1, .height = 20, .width = 16 }, TM_F32,
            TM_INVALID, "height is a multiple of 8");
    refused(device, VAE, TM_FROZEN_VAE_DECODE, (tm_frozen_size){ .batch = 1, .height = 16 }, TM_F32, TM_INVALID,
            "width is a multiple of 8");
    refused(device, CLIP, TM_FROZEN_CLIP, (tm_frozen_size){ .batch = 1, .tokens = 12 }, TM_F16, TM_UNSUPPORTED,
            "computes in float32 or bfloat16, not in float16");
    tm_device_close(device);
}

TEST(ids_are_below_the_vocabulary)
{
    static const int32_t wrong[] = { 60, -1 };
    tm_frozen_size       size = { .batch = 2, .tokens = 3 };
    tm_device           *device;
    tm_frozen           *encoder;
    tm_error             err = { 0 };
    float                out[2 * 24];
    assert_int_equal(tm_device_open("cpu", 1, &device, &err), TM_OK);
    assert_int_equal(tm_frozen_open(device, CLIP, TM_FROZEN_CLIP, &size, TM_F32, &encoder, &err), TM_OK);
    for (size_t i = 0; i < 2; i++) {
        int32_t  ids[] = { 1, 2, 3, 4, 5, 6 };
        tm_error own = { 0 };
        char     says[120];
        ids[4] = wrong[i];
        snprintf(says, sizeof says, "id %d (sequence 1, token 1) is not below its vocabulary of 60", (int)wrong[i]);
        assert_int_equal(tm_frozen_text(encoder, ids, out, &own), TM_INVALID);
        if (!strstr(own.text, says)) fail_msg("'%s' lacks '%s'", own.text, says);
    }
    float    pixels[1];
    tm_error own = { 0 };
    assert_int_equal(tm_frozen_encode(encoder, pixels, pixels, pixels, &own), TM_INVALID);
    assert_string_equal(own.text, "the CLIP text encoder takes no pixels");
    tm_frozen_close(encoder);
    tm_device_close(device);
}
