/* SPDX-License-Identifier: Apache-2.0 */
/* Folders that do not fit, have more than they need, or tie the output layer to the table. */
#include "hf/layout.h"
#include "hf/numerics.h"
#include "support/refusal.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/golden.h"
#include "support/hf_folder.h"

#include "support/test.h"

#define LLAMA_SIZES                                                                                                    \
    "\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 64, \"hidden_size\": 32, "  \
    "\"intermediate_size\": 48, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "    \
    "\"rms_norm_eps\": 1e-05, \"max_position_embeddings\": 64, \"torch_dtype\": \"float32\", \"bos_token_id\": 1"
static const char llama[] =
    "{" LLAMA_SIZES ", \"rope_theta\": 10000.0, \"tie_word_embeddings\": false, \"rope_scaling\": {\"rope_type\": "
    "\"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
    "\"original_max_position_embeddings\": 32}}";
static const char gpt2[] =
    "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], \"vocab_size\": 32, \"n_embd\": 16, "
    "\"n_layer\": 2, \"n_head\": 2, \"n_positions\": 8, \"n_ctx\": 8, \"n_inner\": null, \"layer_norm_epsilon\": "
    "1e-05, "
    "\"activation_function\": \"gelu_new\", \"attn_pdrop\": 0.1, \"embd_pdrop\": 0.1, \"resid_pdrop\": 0.1, "
    "\"summary_type\": \"cls_index\"}";

/* The loss of a folder's model. */
static double loss_of(const char *folder)
{
    test_hf_model model;
    tm_numerics   n;
    int32_t       tokens[9];
    assert_ok(test_hf_open(folder, "reference", &tm_precision_f64, 8, &model, err));
    golden_tokens(tokens, 9, (int)model.shape.vocab_size);
    assert_ok(tm_numerics_read(model.trainer, model.description.form, model.weights, tokens, &n, err));
    const double loss = n.loss;
    tm_numerics_fini(&n);
    test_hf_close(&model);
    return loss;
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

static void refuse_weights(const char *config, const test_hf_options *options, const char *part)
{
    test_hf_model model;
    tm_error      err = { 0 };
    test_hf_write(test_folder(), config, options);
    tm_status st = test_hf_open(test_folder(), "cpu", &tm_precision_f32, 8, &model, &err);
    refusal_is_sound(&err);
    if (st != TM_FORMAT || !strstr(err.text, part)) fail_msg("status %d, '%s', wanted '%s'", (int)st, err.text, part);
    test_hf_close(&model);
    test_folder_remove();
}

TEST(weights_that_do_not_fit_are_refused_by_name)
{
    refuse_weights(llama, &(test_hf_options){ .leave_out = "model.norm.weight" },
                   "1 missing (model.norm.weight), 0 unexp");
    refuse_weights(llama, &(test_hf_options){ .extra = "lm_head.bias" }, "0 missing, 1 unexpected (lm_head.bias)");
    refuse_weights(llama, &(test_hf_options){ .narrow = "model.layers.1.mlp.up_proj.weight" },
                   "'model.layers.1.mlp.up_proj.weight' has the shape [48, 31], the model needs [48, 32]");
    refuse_weights(gpt2, &(test_hf_options){ .extra = "lm_head.weight" },
                   "holds 'lm_head.weight', which differs from 'wte.weight'");
}

TEST(tensors_without_use_are_passed_over)
{
    test_hf_model model;
    test_hf_write(test_folder(), gpt2,
                  &(test_hf_options){ .extra = "transformer.h.1.attn.masked_bias", .dtype = TM_BF16 });
    assert_ok(test_hf_open(test_folder(), "cpu", &tm_precision_f32, 8, &model, err));
    assert_int_equal(model.report.ignored, 1);
    assert_int_equal(model.report.tensors, 28);
    assert_int_equal(model.report.elements, 7232);
    assert_string_equal(model.report.formats, "BF16");
    test_hf_close(&model);
    test_folder_remove();
}

/* Files of a model that was not tied, under a config.json that says that it is. */
TEST(a_tied_head_in_the_files_equals_the_table)
{
    test_hf_model model;
    for (int same = 0; same < 2; same++) {
        char     untied[1024];
        tm_error err = { 0 };
        snprintf(untied, sizeof untied, "{\"tie_word_embeddings\": false, %s", gpt2 + 1);
        test_hf_write(test_folder(), untied, &(test_hf_options){ .same_head = same });
        test_file_write(test_folder(), "config.json", gpt2);
        tm_status st = test_hf_open(test_folder(), "cpu", &tm_precision_f32, 8, &model, &err);
        assert_int_equal(st, same ? TM_OK : TM_FORMAT);
        if (same) assert_int_equal(model.report.ignored, 1);
        refusal_is_sound(&err);
        if (!same) assert_non_null(strstr(err.text, "'lm_head.weight', which differs from 'wte.weight'"));
        test_hf_close(&model);
        test_folder_remove();
    }
}

/* A tied model whose files have the table under the head's name only. */
TEST(a_tied_head_alone_is_the_table)
{
    char untied[1024];
    snprintf(untied, sizeof untied, "{\"tie_word_embeddings\": false, %s", gpt2 + 1);
    test_hf_write(test_folder(), untied,
                  &(test_hf_options){ .ours = true, .same_head = true, .leave_out = "wte.weight" });
    test_file_write(test_folder(), "config.json", gpt2);
    golden_close("the loss", loss_of(test_folder()), 3.588928801722, 1e-9); /* of tests/golden */
    test_folder_remove();
}

TEST(names_match_whole_numbers)
{
    int64_t at[2] = { -1, -1 };
    assert_true(tm_hf_matches("a.{l}.b.{e}.c", "a.12.b.7.c", at));
    assert_true(at[0] == 12 && at[1] == 7);
    assert_false(tm_hf_matches("a.{l}.b", "a.x.b", at));
    assert_false(tm_hf_matches("a.{l}.b", "a.01.b", at));
    assert_false(tm_hf_matches("a.{l}.b", "a.1.bc", at));
    assert_false(tm_hf_matches("a.{l}.b", "a.1.", at));
    assert_false(tm_hf_matches("a.{l}.b", "a.1234567890.b", at));
}

TESTS_IN_ORDER
