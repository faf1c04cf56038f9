/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of the tiny models with golden numbers: read, loaded, computed with, and what is refused. */
#include "hf/layout.h"
#include "hf/numerics.h"
#include "support/refusal.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/golden.h"
#include "support/hf_folder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/test.h"

#define LLAMA_SIZES                                                                                                    \
    "\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 64, \"hidden_size\": 32, "  \
    "\"intermediate_size\": 48, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "    \
    "\"rms_norm_eps\": 1e-05, \"max_position_embeddings\": 64, \"torch_dtype\": \"float32\", \"bos_token_id\": 1"
static const char llama[] =
    "{" LLAMA_SIZES ", \"rope_theta\": 10000.0, \"tie_word_embeddings\": false, \"rope_scaling\": {\"rope_type\": "
    "\"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
    "\"original_max_position_embeddings\": 32}}";
static const char llama_new[] = /* as transformers 5 writes it */
    "{" LLAMA_SIZES ", \"dtype\": \"float32\", \"rope_parameters\": {\"rope_theta\": 10000.0, \"rope_type\": "
    "\"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
    "\"original_max_position_embeddings\": 32}}";
static const char gpt2[] =
    "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], \"vocab_size\": 32, \"n_embd\": 16, "
    "\"n_layer\": 2, \"n_head\": 2, \"n_positions\": 8, \"n_ctx\": 8, \"n_inner\": null, \"layer_norm_epsilon\": "
    "1e-05, "
    "\"activation_function\": \"gelu_new\", \"attn_pdrop\": 0.1, \"embd_pdrop\": 0.1, \"resid_pdrop\": 0.1, "
    "\"summary_type\": \"cls_index\"}";

static void close_to(const char *what, double value, double wanted, double relative)
{
    double error = fabs(value - wanted) / fabs(wanted);
    if (!(error <= relative)) fail_msg("%s: %.12g, wanted %.12g", what, value, wanted);
}

static double gradient_of(const tm_numerics *n, const char *name)
{
    for (size_t i = 0; i < n->n_gradients; i++)
        if (strcmp(n->gradients[i].name, name) == 0) return n->gradients[i].norm;
    fail_msg("no gradient of %s", name);
    return 0;
}

typedef struct {
    int64_t     parameters, seq;
    double      loss, norm, first[3], last[3];
    const char *name; /* of one gradient, the one that depends on everything */
    double      gradient;
} golden;

static const golden llama_golden = { 19616,
                                     12,
                                     4.177805733845,
                                     6.567559164951,
                                     { 0.878288475, 2.549255589, 0.329849588 },
                                     { 1.247512855, 0.633825443, 0.831630431 },
                                     "model.layers.0.self_attn.k_proj.weight",
                                     1.247751422 };
static const golden gpt2_golden = { 7232,
                                    8,
                                    3.588928801722,
                                    3.468557124009,
                                    { -0.144434803, 0.554486762, 1.002958389 },
                                    { 0.413595696, 0.510917339, 0.472365647 },
                                    "transformer.h.0.attn.c_attn.weight",
                                    1.093753227 };

static void compute(const char *folder, const char *device, const tm_precision *precision, const golden *g,
                    double loss_error, double norm_error)
{
    test_hf_model model;
    tm_numerics   n;
    tm_error      err = { 0 };
    int32_t       tokens[64];
    if (test_hf_open(folder, device, precision, g->seq, &model, &err) != TM_OK) fail_msg("%s", err.text);
    golden_tokens(tokens, (int)g->seq + 1, (int)model.shape.vocab_size);
    if (tm_numerics_read(model.trainer, model.description.form, model.weights, tokens, &n, &err) != TM_OK)
        fail_msg("%s", err.text);
    assert_int_equal(n.parameters, g->parameters);
    close_to("loss", n.loss, g->loss, loss_error);
    close_to("norm", n.gradient_norm, g->norm, norm_error);
    close_to(g->name, gradient_of(&n, g->name), g->gradient, norm_error);
    for (int i = 0; i < 3; i++) {
        close_to("first logits", n.first[i], g->first[i], 100 * loss_error);
        close_to("last logits", n.last[i], g->last[i], 100 * loss_error);
    }
    tm_numerics_fini(&n);
    test_hf_close(&model);
}

TEST(golden_numbers_of_folders)
{
    const char     *folder = test_folder();
    test_hf_options o = { .ours = true };
    test_hf_write(folder, llama, &o);
    compute(folder, "reference", &tm_precision_f64, &llama_golden, 1e-9, 1e-8);
    compute(folder, "cpu", &tm_precision_f32, &llama_golden, 1e-5, 1e-4);
    test_hf_write(folder, gpt2, &o);
    compute(folder, "reference", &tm_precision_f64, &gpt2_golden, 1e-9, 1e-8);
    test_folder_remove();
    test_hf_write(test_folder(), llama_new, &(test_hf_options){ .shards = 3, .dtype = TM_F32 });
    compute(test_folder(), "cpu", &tm_precision_f32, &llama_golden, 1e-5, 1e-4);
    test_folder_remove();
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
    tm_error      err = { 0 };
    test_hf_write(test_folder(), gpt2,
                  &(test_hf_options){ .extra = "transformer.h.1.attn.masked_bias", .dtype = TM_BF16 });
    assert_int_equal(test_hf_open(test_folder(), "cpu", &tm_precision_f32, 8, &model, &err), TM_OK);
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
    compute(test_folder(), "reference", &tm_precision_f64, &gpt2_golden, 1e-9, 1e-8);
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
