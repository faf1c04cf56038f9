/* SPDX-License-Identifier: Apache-2.0 */
/* A folder loaded by ranks that divide the matrices of its model: each has what the whole model has at the same places,
 * and asks for no more. So with adapters. */
#include "graph/blocks.h"
#include "graph/value.h"
#include "hf/adapter.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/hf_folder.h"

#include "support/test.h"

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
    char    **values; /* in the format of each tensor */
    int64_t   written;
} part;

/* What the adapters of a model are, and the folder that they are read from, or written to if there is none yet. */
typedef struct {
    tm_adapters adapters;
    char        folder[300];
    bool        write;
} beside;

static tm_status write_part(const tm_hf_memory *memory, tm_tensor_id id, size_t offset, const void *from, size_t bytes,
                            tm_error *err)
{
    part            *p = memory->context;
    const tm_tensor *t = &p->graph->tensors[id];
    (void)err;
    assert_true(offset + bytes <= tm_tensor_bytes(t->shape, t->dtype));
    memcpy(p->values[id] + offset, from, bytes);
    if (!tm_dtype_blocked(t->dtype)) p->written += (int64_t)(bytes / tm_dtype_bytes(t->dtype));
    return TM_OK;
}

static tm_status read_part(const tm_hf_memory *memory, tm_tensor_id id, size_t offset, void *to, size_t bytes,
                           tm_error *err)
{
    (void)err;
    memcpy(to, ((part *)memory->context)->values[id] + offset, bytes);
    return TM_OK;
}

/* The lengths of rows that are measured here are those of parts; the adapter brings its own. */
static tm_status no_sum(const tm_hf_memory *memory, unsigned axes, double *values, size_t n, tm_error *err)
{
    (void)memory, (void)axes, (void)values, (void)n, (void)err;
    return TM_OK;
}

/* Adapters of the whole model with values of their own, written; or read from there. */
static void load_adapters(part *p, const tm_hf_memory *memory, const beside *b)
{
    tm_hf_report  report;
    tm_hf_adapter adapter;
    if (b->write) {
        for (size_t i = 0; i < p->graph->n_tensors; i++)
            for (int64_t k = 0;
                 p->graph->tensors[i].adapts != TM_NONE && k < tm_shape_elements(p->graph->tensors[i].shape); k++)
                tm_value_set(p->values[i], TM_F32, k, (double)(i * 4099 + (size_t)k));
        assert_ok(tm_hf_adapter_write(memory, &b->adapters, "base", b->folder, &report, err));
        return;
    }
    assert_ok(tm_hf_adapter_open(b->folder, NULL, NULL, &adapter, err));
    assert_ok(tm_hf_adapter_load(memory, &adapter, &b->adapters, 1, &report, err));
    tm_hf_adapter_close(&adapter);
}

/* `experts`: ranks divide these, too. `b`: adapters beside the model, or NULL. */
static part load(const char *path, int rank, int ranks, bool experts, const beside *b)
{
    part              p = { .graph = tm_graph_create(&tm_precision_f32) };
    tm_config        *config = test_full_config();
    tm_hf_description description;
    tm_model_shape    shape;
    tm_safetensors   *weights;
    tm_model          model;
    tm_hf_report      report;
    tm_parallel       parallel = { .tensor = { .axes = 1, .rank = rank, .ranks = ranks }, .rows = true };
    if (experts) parallel.experts = (tm_division){ .axes = 2, .rank = rank, .ranks = ranks };
    assert_ok(tm_hf_folder_shape(path, config, &description, &shape, err));
    assert_ok(tm_hf_folder_weights(path, &weights, err));
    tm_model_declare(p.graph, &shape, 8, &parallel, &model);
    assert_ok(b && tm_adapters_declare(p.graph, &model, &b->adapters, err));
    p.values = calloc(p.graph->n_tensors, sizeof *p.values);
    assert_non_null(p.values);
    for (size_t i = 0; i < p.graph->n_tensors; i++)
        p.values[i] = calloc(tm_tensor_bytes(p.graph->tensors[i].shape, p.graph->tensors[i].dtype) + 1, 1);
    tm_hf_memory memory = {
        .graph = p.graph, .shape = &shape, .form = description.form, .context = &p, .write = write_part
    };
    memory.read = read_part;
    memory.sum = no_sum;
    assert_ok(tm_hf_load(&memory, weights, 1, &report, err));
    if (b) load_adapters(&p, &memory, b);
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
        size_t           of = find(whole, t->name);
        const tm_tensor *as = &whole->graph->tensors[of];
        int64_t          columns = tm_piece_row(t->shape), row = t->cut ? tm_piece_row(t->cut->whole) : columns;
        int64_t          column = t->cut ? t->cut->column : 0;
        elements += tm_shape_elements(t->shape);
        for (int k = 0; k < t->n_pieces; k++)
            for (int64_t r = 0; r < t->pieces[k].rows; r++)
                for (int64_t c = 0; c < columns; c++) {
                    int64_t begin = t->cut ? t->pieces[k].begin : t->pieces[k].row;
                    double  have = tm_value_get(p->values[i], t->dtype, (t->pieces[k].row + r) * columns + c);
                    double  want = tm_value_get(whole->values[of], as->dtype, (begin + r) * row + column + c);
                    if (have < want || have > want)
                        fail_msg("%s (%lld, %lld): %g, wanted %g", t->name, (long long)r, (long long)c, have, want);
                }
    }
    return elements;
}

TEST(ranks_load_their_parts)
{
    for (size_t f = 0; f < sizeof folders / sizeof folders[0]; f++) {
        char *path = test_tree_make();
        test_hf_write(path, folders[f], NULL);
        part whole = load(path, 0, 1, false, NULL);
        for (int k = 0; k < (f < MIXTURES ? 2 : 4); k++) {
            part p = load(path, k % 2, 2, k >= 2, NULL);
            assert_int_equal(compare(&p, &whole), p.written);
            assert_true(p.written < 3 * whole.written / 4);
            unload(&p);
        }
        unload(&whole);
        test_tree_remove(path);
    }
}

/* A and B of every rank are its parts of what the folder of the adapter holds, that of experts, too; the lengths of
 * DoRA, and those of the output layer. */
TEST(adapters_load_in_parts)
{
    static const struct {
        size_t      folder;
        const char *targets;
        bool        dora;
    } cases[] = { { 0, "q_proj,v_proj,o_proj,gate_proj,down_proj", false },
                  { 1, "c_attn,c_proj", false },
                  { 2, "k_proj,experts.gate_up_proj,experts.down_proj", false },
                  { 3, "q_proj,o_proj", false },
                  { 4, "kv_a_proj_with_mqa,q_a_proj,kv_b_proj,o_proj", false },
                  { 0, "q_proj,v_proj,o_proj,gate_proj,down_proj", true },
                  { 1, "c_attn,c_proj", true },
                  { 4, "kv_a_proj_with_mqa,q_a_proj,kv_b_proj,o_proj", true },
                  { 2, "lm_head,v_proj", false },
                  { 2, "lm_head,v_proj", true } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char  *path = test_tree_make();
        size_t f = cases[i].folder;
        beside b = { .adapters = { .rank = 2, .alpha = 4, .base = TM_DTYPE_COUNT, .place = "test" }, .write = true };
        b.adapters.dora = cases[i].dora;
        snprintf(b.adapters.targets, sizeof b.adapters.targets, "%s", cases[i].targets);
        snprintf(b.folder, sizeof b.folder, "%s/adapter", path);
        test_hf_write(path, folders[f], NULL);
        part whole = load(path, 0, 1, false, &b);
        b.write = false;
        for (int k = 0; k < (f < MIXTURES ? 2 : 4); k++) {
            part p = load(path, k % 2, 2, k >= 2, &b);
            compare(&p, &whole);
            unload(&p);
        }
        unload(&whole);
        test_tree_remove(path);
    }
}
