/* SPDX-License-Identifier: Apache-2.0 */
/* A folder loaded by ranks that divide the matrices of its model: each has what the whole model has at the same places,
 * and asks for no more. */
#include "graph/value.h"
#include "hf/folder.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/hf_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const folders[] = {
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 63, \"hidden_size\": 32, "
    "\"intermediate_size\": 48, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"rms_norm_eps\": 1e-05, \"max_position_embeddings\": 64, \"torch_dtype\": \"float32\"}",
    "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], \"vocab_size\": 32, \"n_embd\": 16, "
    "\"n_layer\": 2, \"n_head\": 2, \"n_positions\": 8, \"activation_function\": \"gelu_new\"}",
    "{\"model_type\": \"mixtral\", \"architectures\": [\"MixtralForCausalLM\"], \"vocab_size\": 64, \"hidden_size\": "
    "32, "
    "\"intermediate_size\": 48, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"rms_norm_eps\": 1e-05, \"max_position_embeddings\": 64, "
    "\"rope_theta\": 1e6, \"sliding_window\": null, \"tie_word_embeddings\": false}",
    "{\"model_type\": \"gpt_oss\", \"architectures\": [\"GptOssForCausalLM\"], \"vocab_size\": 64, "
    "\"hidden_size\": 32, \"intermediate_size\": 16, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 2, \"head_dim\": 8, \"num_local_experts\": 4, \"num_experts_per_tok\": 2, "
    "\"sliding_window\": 4, \"rms_norm_eps\": 1e-05, \"rope_theta\": 150000, \"rope_scaling\": {\"rope_type\": "
    "\"yarn\", \"factor\": 32.0, \"original_max_position_embeddings\": 16, \"beta_fast\": 32.0, \"beta_slow\": 1.0, "
    "\"truncate\": false}, \"layer_types\": [\"sliding_attention\", \"full_attention\"], \"swiglu_limit\": 7.0}",
    "{\"model_type\": \"deepseek_v2\", \"architectures\": [\"DeepseekV2ForCausalLM\"], \"vocab_size\": 64, "
    "\"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
    "\"num_key_value_heads\": 2, \"kv_lora_rank\": 16, \"q_lora_rank\": 8, \"qk_nope_head_dim\": 8, "
    "\"qk_rope_head_dim\": 4, \"v_head_dim\": 8, \"n_routed_experts\": 8, \"num_experts_per_tok\": 3, "
    "\"moe_intermediate_size\": 12, \"n_shared_experts\": 2, \"first_k_dense_replace\": 1, \"norm_topk_prob\": "
    "false, \"routed_scaling_factor\": 1.0, \"topk_method\": \"greedy\", \"scoring_func\": \"softmax\", "
    "\"n_group\": 1, \"topk_group\": 1, \"rms_norm_eps\": 1e-06, \"rope_theta\": 10000}",
};
enum { MIXTURES = 2 }; /* the first of them */

typedef struct {
    tm_graph *graph;
    float   **values;
    int64_t   written;
} part;

static tm_status write_part(const tm_hf_memory *memory, tm_tensor_id id, size_t offset, const void *from, size_t bytes,
                            tm_error *err)
{
    part *p = memory->context;
    (void)err;
    assert_true(offset + bytes <= tm_tensor_bytes(p->graph->tensors[id].shape, TM_F32));
    memcpy((char *)p->values[id] + offset, from, bytes);
    p->written += (int64_t)(bytes / sizeof(float));
    return TM_OK;
}

/* `experts`: ranks divide these, too. */
static part load(const char *path, int rank, int ranks, bool experts)
{
    part              p = { .graph = tm_graph_create(&tm_precision_f32) };
    tm_config        *config = test_full_config();
    tm_hf_description description;
    tm_model_shape    shape;
    tm_safetensors   *weights;
    tm_model          model;
    tm_hf_report      report;
    tm_error          err = { 0 };
    tm_parallel       parallel = { .tensor = { .axes = 1, .rank = rank, .ranks = ranks }, .rows = true };
    if (experts) parallel.experts = (tm_division){ .axes = 2, .rank = rank, .ranks = ranks };
    assert_int_equal(tm_hf_folder_shape(path, config, &description, &shape, &err), TM_OK);
    assert_int_equal(tm_hf_folder_weights(path, &weights, &err), TM_OK);
    tm_model_declare(p.graph, &shape, 8, &parallel, &model);
    p.values = calloc(p.graph->n_tensors, sizeof *p.values);
    assert_non_null(p.values);
    for (size_t i = 0; i < p.graph->n_tensors; i++)
        p.values[i] = calloc((size_t)tm_shape_elements(p.graph->tensors[i].shape) + 1, sizeof **p.values);
    tm_hf_memory memory = {
        .graph = p.graph, .shape = &shape, .form = description.form, .context = &p, .write = write_part
    };
    if (tm_hf_load(&memory, weights, 1, &report, &err) != TM_OK) fail_msg("%s", err.text);
    tm_safetensors_close(weights);
    tm_config_destroy(config);
    return p;
}

static void unload(part *p)
{
    for (size_t i = 0; i < p->graph->n_tensors; i++) free(p->values[i]);
    free(p->values);
    tm_graph_destroy(p->graph);
}

static size_t find(const part *p, const char *name)
{
    for (size_t i = 0; i < p->graph->n_tensors; i++)
        if (strcmp(p->graph->tensors[i].name, name) == 0) return i;
    fail_msg("no tensor %s", name);
    return 0;
}

static int64_t compare(const part *p, const part *whole)
{
    int64_t elements = 0;
    for (size_t i = 0; i < p->graph->n_tensors; i++) {
        const tm_tensor *t = &p->graph->tensors[i];
        if (t->role != TM_ROLE_PARAMETER) continue;
        const float *all = whole->values[find(whole, t->name)];
        int64_t      columns = tm_piece_row(t->shape), row = t->cut ? tm_piece_row(t->cut->whole) : columns;
        int64_t      column = t->cut ? t->cut->column : 0;
        elements += tm_shape_elements(t->shape);
        for (int k = 0; k < t->n_pieces; k++)
            for (int64_t r = 0; r < t->pieces[k].rows; r++)
                for (int64_t c = 0; c < columns; c++) {
                    int64_t begin = t->cut ? t->pieces[k].begin : t->pieces[k].row;
                    float   have = p->values[i][(t->pieces[k].row + r) * columns + c];
                    float   want = all[(begin + r) * row + column + c];
                    if (have != want)
                        fail_msg("%s (%lld, %lld): %g, wanted %g", t->name, (long long)r, (long long)c, (double)have,
                                 (double)want);
                }
    }
    return elements;
}

static void ranks_load_their_parts(void **state)
{
    (void)state;
    for (size_t f = 0; f < sizeof folders / sizeof folders[0]; f++) {
        char *path = test_tree_make();
        test_hf_write(path, folders[f], NULL);
        part whole = load(path, 0, 1, false);
        for (int k = 0; k < (f < MIXTURES ? 2 : 4); k++) {
            part p = load(path, k % 2, 2, k >= 2);
            assert_int_equal(compare(&p, &whole), p.written);
            assert_true(p.written < 3 * whole.written / 4);
            unload(&p);
        }
        unload(&whole);
        test_tree_remove(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_load_their_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
