/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF files: what llama.cpp's Python package wrote is read (tests/hf/gguf, tools/make_gguf_fixture.py), what is
 * written is read again bit for bit, and what is not supported is refused by name. */
#include "base/file.h"
#include "hf/convert.h"
#include "hf/gguf.h"
#include "hf/source.h"
#include "support/json.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/hf_folder.h"
#include "support/refusal.h"
#include "token/chat.h"

#include <jansson.h>

#include "support/test.h"

#define MIXED "tests/hf/gguf/mixed.gguf"

/* Every tensor of one set is in the other, of the same shape, with the same numbers. */
static void same_tensors(const tm_safetensors *a, const tm_safetensors *b, bool same_format)
{
    size_t                  n, m;
    const tm_stored_tensor *x = tm_safetensors_list(a, &n), *y = tm_safetensors_list(b, &m);
    assert_int_equal(n, m);
    for (size_t i = 0; i < n; i++) {
        int64_t elements = 1;
        assert_string_equal(x[i].name, y[i].name);
        assert_int_equal(x[i].rank, y[i].rank);
        for (int k = 0; k < x[i].rank; k++) {
            assert_int_equal(x[i].n[k], y[i].n[k]);
            elements *= x[i].n[k];
        }
        if (same_format && x[i].dtype != y[i].dtype) fail_msg("%s has another format", x[i].name);
        for (int64_t k = 0; k < elements; k++) {
            double u = tm_stored_value(&x[i], k), v = tm_stored_value(&y[i], k);
            if (memcmp(&u, &v, sizeof u) != 0) fail_msg("%s[%lld]: %.9g and %.9g", x[i].name, (long long)k, u, v);
        }
    }
}

/* --- files of llama.cpp's package --------------------------------------------------------------------------------- */

TEST(tensors_of_every_format_are_what_gguf_says)
{
    tm_safetensors *read, *wanted;
    assert_ok(tm_hf_folder_weights(MIXED, &read, err));
    assert_ok(tm_safetensors_open("tests/hf/gguf/mixed.safetensors", &wanted, err));
    same_tensors(read, wanted, false);
    assert_int_equal(tm_safetensors_find(read, "model.layers.0.self_attn.v_proj.weight")->dtype, TM_BF16);
    assert_int_equal(tm_safetensors_find(read, "model.layers.0.self_attn.k_proj.weight")->dtype, TM_F16);
    tm_safetensors_close(read);
    tm_safetensors_close(wanted);
}

TEST(blocks_of_q8_0_are_those_of_gguf_byte_for_byte)
{
    tm_safetensors *set;
    assert_ok(tm_safetensors_open("tests/hf/gguf/blocks.safetensors", &set, err));
    const tm_stored_tensor *values = tm_safetensors_find(set, "values"), *blocks = tm_safetensors_find(set, "q8_0");
    int64_t                 n = values->n[0] * values->n[1];
    float                  *wide = malloc(values->bytes);
    uint8_t                *own = malloc(blocks->bytes);
    assert_true(wide && own && tm_gguf_bytes(TM_GGUF_FORMAT_Q8_0, n) == blocks->bytes);
    memcpy(wide, values->data, values->bytes);
    tm_gguf_from_f32(TM_GGUF_FORMAT_Q8_0, wide, n, own);
    for (size_t i = 0; i < blocks->bytes; i++)
        if (own[i] != blocks->data[i])
            fail_msg("block %zu, byte %zu: %d, wanted %d", i / 34, i % 34, own[i], blocks->data[i]);
    free(wide);
    free(own);
    tm_safetensors_close(set);
}

TEST(the_tokenizer_and_the_template_are_read)
{
    static const int32_t wanted[] = { 258, 'a', 257, 257, 'h' };
    tm_tokenizer        *t;
    tm_ids               ids = { 0 };
    tm_chat             *chat;
    tm_text              text = { 0 };
    assert_ok(tm_tokenizer_open(MIXED, NULL, &t, err));
    const tm_tokenizer_facts *f = tm_tokenizer_describe(t);
    assert_true(f->bos == 258 && f->eos == 259 && f->merges == 2 && f->vocab == 260);
    assert_string_equal(f->pattern, "qwen2");
    tm_token_encoder *e = tm_token_encoder_create(t);
    assert_ok(tm_token_encoder_encode(e, "a he heh", 8, TM_ENCODE_SPECIAL, &ids, err));
    assert_int_equal(ids.count, 5);
    assert_memory_equal(ids.data, wanted, sizeof wanted);
    free(ids.data);
    tm_token_encoder_destroy(e);
    tm_tokenizer_close(t);
    assert_ok(tm_chat_open(MIXED, NULL, &chat, err));
    json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "hi");
    assert_ok(tm_chat_render(chat, messages, NULL, false, &text, NULL, err));
    assert_string_equal(text.data, "user: hi<|end|>");
    json_decref(messages);
    tm_chat_close(chat);
    tm_text_fini(&text);
}

/* --- there and back ----------------------------------------------------------------------------------------------- */

static const char *config_of(const char *fixture)
{
    static char *text;
    json_t      *root = test_json(fixture);
    free(text);
    text = json_dumps(json_object_get(root, "config"), 0);
    json_decref(root);
    return text;
}

static tm_status export_to(const tm_hf_source *source, const char *name, const char *format, tm_error *err)
{
    tm_hf_report    report;
    tm_gguf_options options = { .path = test_in_folder(name), .format = format };
    return tm_hf_export_gguf(source, &options, &report, err);
}

static void config_text(const tm_hf_source *s, tm_text *out)
{
    tm_hf_config_write(s->config, &s->shape, s->form, "float32", NULL, out);
}

/* The folder of a test as a file, opened again: the same tensors; of the same class also the same configuration. */
static void there_and_back(const char *format, bool same_class)
{
    tm_hf_source folder, file;
    tm_text      a = { 0 }, b = { 0 };
    assert_ok(tm_hf_source_open(test_folder(), -1, test_full_config(), &folder, err));
    assert_ok(export_to(&folder, "x.gguf", format, err));
    assert_ok(tm_hf_source_open(test_in_folder("x.gguf"), -1, test_full_config(), &file, err));
    same_tensors(folder.weights, file.weights, true);
    config_text(&folder, &a);
    config_text(&file, &b);
    if (same_class) assert_string_equal(a.data, b.data);
    tm_text_fini(&a);
    tm_text_fini(&b);
    tm_hf_source_close(&folder);
    tm_hf_source_close(&file);
}

TEST(what_was_written_has_the_same_bits)
{
    static const struct {
        const char *name;
        bool        same_class;
    } families[] = { { "llama", true }, { "mistral", false },  { "mixtral", true }, { "qwen2", true },
                     { "qwen3", true }, { "qwen3_moe", true }, { "gpt2", true } };
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        for (int k = 0; k < 6; k++) {
            const test_hf_options options = { .dtype = k < 3 ? TM_F32 : TM_BF16 };
            char                  path[200];
            snprintf(path, sizeof path, "tests/hf/fixtures/%s-%d.json", families[i].name, k % 3);
            const char *config = config_of(path);
            if (strstr(config, "\"norm_topk_prob\": false")) continue; /* is refused: below */
            bool window = strstr(config, "\"sliding_window\": ") && !strstr(config, "\"sliding_window\": null");
            test_hf_write(test_folder(), config, &options);
            there_and_back(k < 3 ? "f32" : "bf16", families[i].same_class && !window);
            test_folder_remove();
        }
}

#define OF_CLASSES(n)                                                                                                  \
    "\"model_type\": \"llama\", \"vocab_size\": " n ", \"hidden_size\": 32, \"intermediate_size\": 48, "               \
    "\"num_hidden_layers\": 1, \"num_attention_heads\": 4, \"max_position_embeddings\": 64"
#define SIZES OF_CLASSES("64")

TEST(scaled_positions_come_back)
{
    static const char *const sections[] = {
        "\"rope_type\": \"linear\", \"factor\": 2.5",
        "\"rope_type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 16",
        "\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 3.5, "
        "\"original_max_position_embeddings\": 48",
        "\"rope_type\": \"llama3\", \"factor\": 32.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
        "\"original_max_position_embeddings\": 8192",
    };
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++) {
        char config[600];
        snprintf(config, sizeof config, "{" SIZES ", \"rope_scaling\": {%s}}", sections[i]);
        test_hf_write(test_folder(), config, NULL);
        there_and_back("f32", true);
        test_folder_remove();
    }
}

/* The values of the file follow from config.json; what is reported are the tensors that the file has. */
TEST(a_file_says_what_is_in_it)
{
    static const struct {
        const char *more, *format;
        double      head, context, type;
    } rows[] = {
        { "\"head_dim\": 16", "f32", 16, 64, TM_GGUF_MOSTLY_F32 },
        { "\"num_key_value_heads\": 2", "bf16", 8, 64, TM_GGUF_MOSTLY_BF16 },
        { "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, "
          "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 48}",
          "q8_0", 8, 64, TM_GGUF_MOSTLY_Q8_0 },
        { "\"model_type\": \"mistral\", \"num_key_value_heads\": 2, \"sliding_window\": 16", "f32", 8, 16,
          TM_GGUF_MOSTLY_F32 },
        { "\"model_type\": \"mistral\", \"num_key_value_heads\": 2, \"sliding_window\": 65", "f32", 8, 64,
          TM_GGUF_MOSTLY_F32 },
        { "\"model_type\": \"mixtral\", \"num_key_value_heads\": 2, \"num_local_experts\": 4, \"num_experts_per_tok\": "
          "2",
          "f32", 8, 64, TM_GGUF_MOSTLY_F32 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char            config[600];
        tm_hf_source    source;
        tm_hf_report    report;
        tm_gguf        *g;
        tm_gguf_options options = { .path = test_in_folder("x.gguf"), .format = rows[i].format };
        const bool      own = strstr(rows[i].more, "model_type");
        snprintf(config, sizeof config, "{%s, %s}", own ? strchr(SIZES, ',') + 2 : SIZES, rows[i].more);
        test_hf_write(test_folder(), config, NULL);
        assert_ok(tm_hf_source_open(test_folder(), -1, test_full_config(), &source, err));
        assert_ok(tm_hf_export_gguf(&source, &options, &report, err));
        assert_ok(tm_gguf_open(options.path, &g, err));
        const struct {
            const char *key;
            double      value;
        } says[] = { { "general.file_type", rows[i].type },
                     { "general.quantization_version", 2 },
                     { "llama.vocab_size", 64 },
                     { "llama.context_length", rows[i].context },
                     { "llama.rope.dimension_count", rows[i].head },
                     { "llama.attention.value_length", rows[i].head } };
        for (size_t k = 0; k < sizeof says / sizeof says[0]; k++) {
            const tm_gguf_value *value = tm_gguf_find(g, says[k].key);
            if (!value || tm_gguf_number(value, 0) != says[k].value) fail_msg("%s of '%s'", says[k].key, config);
        }
        size_t                n, length;
        int64_t               elements = 0, bytes = 0;
        const tm_gguf_tensor *tensors = tm_gguf_tensors(g, &n);
        assert_memory_equal(tm_gguf_text(g, "tokenizer.ggml.model", &length), "none", 4);
        for (size_t k = 0; k < n; k++) {
            int64_t all = 1;
            for (int d = 0; d < tensors[k].rank; d++) all *= tensors[k].n[d];
            if (strcmp(tensors[k].name, "rope_freqs.weight") == 0) continue; /* no weights */
            elements += all, bytes += (int64_t)tensors[k].bytes;
        }
        assert_true(report.tensors == n && report.elements == elements && report.bytes == bytes);
        tm_gguf_close(g);
        tm_hf_source_close(&source);
        test_folder_remove();
    }
}

/* Of a run on text it has the ids of bytes; one that is given has its own. */
TEST(the_tokenizer_that_is_given_is_written)
{
    static const char *const given[] = { "byte", "tests/token/fixtures/gpt2.json" };
    for (int i = 0; i < 2; i++) {
        tm_gguf_options options = { .path = test_in_folder("x.gguf"), .format = "f32", .tokenizer = given[i] };
        tm_hf_source    source;
        tm_hf_report    report;
        tm_ids          ids[2] = { { 0 }, { 0 } };
        test_hf_write(test_folder(), "{" OF_CLASSES("1024") "}", NULL);
        assert_ok(tm_hf_source_open(test_folder(), -1, test_full_config(), &source, err));
        assert_ok(tm_hf_export_gguf(&source, &options, &report, err));
        for (int k = 0; k < 2; k++) {
            tm_tokenizer *t;
            assert_ok(tm_tokenizer_open(k ? options.path : given[i], NULL, &t, err));
            tm_token_encoder *e = tm_token_encoder_create(t);
            assert_ok(tm_token_encoder_encode(e, "a he heh", 8, TM_ENCODE_SPECIAL, &ids[k], err));
            tm_token_encoder_destroy(e);
            tm_tokenizer_close(t);
        }
        assert_int_equal(ids[0].count, ids[1].count);
        assert_memory_equal(ids[0].data, ids[1].data, ids[0].count * sizeof *ids[0].data);
        free(ids[0].data), free(ids[1].data);
        tm_hf_source_close(&source);
        test_folder_remove();
    }
}

/* --- adapters ----------------------------------------------------------------------------------------------------- */

/* A value for each element: they are told apart. */
static tm_status made_up(const tm_hf_memory *memory, tm_tensor_id id, size_t offset, void *to, size_t n, tm_error *err)
{
    (void)memory;
    (void)err;
    for (size_t i = 0; i < n / sizeof(float); i++)
        ((float *)to)[i] = (float)id * 4096 + (float)(offset / sizeof(float) + i);
    return TM_OK;
}

/* A tensor of a PEFT file beside that of the GGUF file: equal, or of rows of `heads` heads in pairs. */
static void same_part(const tm_safetensors *peft, const char *name, const tm_gguf *gguf, const char *theirs,
                      int64_t heads)
{
    const tm_stored_tensor *a = tm_safetensors_find(peft, name);
    const tm_gguf_tensor   *b = tm_gguf_find_tensor(gguf, theirs);
    if (!a || !b) fail_msg("%s or %s is not there", name, theirs);
    assert_true(a->rank == 2 && b->rank == 2 && a->n[0] == b->n[0] && a->n[1] == b->n[1]);
    int64_t half = heads ? a->n[0] / heads / 2 : 0;
    for (int64_t r = 0; r < a->n[0]; r++) {
        /* of a head: first, first of the second half, second, second of the second half, ... */
        int64_t of = heads ? r / (2 * half) * 2 * half + (r % 2 ? half : 0) + r % (2 * half) / 2 : r;
        for (int64_t c = 0; c < a->n[1]; c++) {
            float value;
            memcpy(&value, b->data + 4 * (r * a->n[1] + c), sizeof value);
            if (tm_stored_value(a, of * a->n[1] + c) != (double)value) fail_msg("%s (%lld)", theirs, (long long)r);
        }
    }
}

static tm_hf_report report; /* of the last adapter */

static tm_status write_adapter(tm_adapters *adapters, tm_status *peft, tm_error *why)
{
    tm_hf_source source;
    tm_model     model;
    assert_ok(tm_hf_source_open(test_folder(), -1, test_full_config(), &source, err));
    tm_graph *graph = tm_graph_create(&tm_precision_f32);
    tm_model_declare(graph, &source.shape, 1, NULL, &model);
    assert_ok(tm_adapters_declare(graph, &model, adapters, err));
    tm_hf_memory memory = { .graph = graph, .shape = &source.shape, .form = source.form, .read = made_up };
    *peft = tm_hf_adapter_write(&memory, adapters, "base", test_in_folder("peft"), &report, NULL);
    assert_int_equal(*peft, TM_OK);
    const tm_gguf_model *theirs = tm_gguf_model_of_type(source.form->model_type);
    tm_status            st = tm_gguf_adapter_write(&memory, adapters, theirs, test_in_folder("a.gguf"), &report, why);
    tm_graph_destroy(graph);
    tm_hf_source_close(&source);
    return st;
}

TEST(adapters_have_the_tensors_of_peft_in_their_order)
{
    tm_adapters adapters = { .rank = 2, .alpha = 6, .rslora = true, .base = TM_DTYPE_COUNT, .place = "x" };
    tm_status   st;
    strcpy(adapters.targets, "q_proj,k_proj,down_proj");
    test_hf_write(test_folder(), "{" SIZES ", \"num_key_value_heads\": 2}", NULL);
    assert_ok(write_adapter(&adapters, &st, err));
    tm_safetensors *peft;
    tm_gguf        *g;
    size_t          n;
    assert_ok(tm_safetensors_open(test_in_folder("peft/adapter_model.safetensors"), &peft, err));
    assert_ok(tm_gguf_open(test_in_folder("a.gguf"), &g, err));
#define MODULE(name) "base_model.model.model.layers.0." name
    same_part(peft, MODULE("self_attn.q_proj.lora_A.weight"), g, "blk.0.attn_q.weight.lora_a", 0);
    same_part(peft, MODULE("self_attn.q_proj.lora_B.weight"), g, "blk.0.attn_q.weight.lora_b", 4);
    same_part(peft, MODULE("self_attn.k_proj.lora_B.weight"), g, "blk.0.attn_k.weight.lora_b", 2);
    same_part(peft, MODULE("mlp.down_proj.lora_A.weight"), g, "blk.0.ffn_down.weight.lora_a", 0);
    same_part(peft, MODULE("mlp.down_proj.lora_B.weight"), g, "blk.0.ffn_down.weight.lora_b", 0);
    tm_gguf_tensors(g, &n);
    assert_true(n == 6 && report.tensors == 6 && report.dtype == TM_F32);
    assert_true(report.elements == 2 * (32 + 32 + 32 + 16 + 48 + 32) && report.bytes == 4 * report.elements);
    assert_memory_equal(tm_gguf_text(g, "adapter.type", &n), "lora", 4);
    /* llama.cpp divides by the rank: 6 / sqrt(2) = 6 sqrt(2) / 2 */
    assert_true(tm_gguf_number(tm_gguf_find(g, "adapter.lora.alpha"), 0) == (double)(float)(6 * 1.4142135623730951));
    tm_gguf_close(g);
    tm_safetensors_close(peft);
    test_folder_remove();
}

TEST(adapters_that_llama_cpp_lacks_are_not_written)
{
    static const struct {
        const char *config, *targets;
        bool        dora;
        const char *why;
    } rows[] = {
        { "{" SIZES "}", "q_proj", true, "lengths of rows (DoRA)" },
        { "{" SIZES ", \"tie_word_embeddings\": false}", "lm_head", false, NULL },
        { "{\"model_type\": \"qwen3_moe\", \"vocab_size\": 64, \"hidden_size\": 32, \"intermediate_size\": 48, "
          "\"num_hidden_layers\": 1, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 8, "
          "\"max_position_embeddings\": 64, \"num_experts\": 4, \"num_experts_per_tok\": 2, "
          "\"moe_intermediate_size\": 16, \"norm_topk_prob\": true}",
          "experts.down_proj", false, "the tensor '" }
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_adapters adapters = { .rank = 2, .alpha = 6, .dora = rows[i].dora, .base = TM_DTYPE_COUNT, .place = "x" };
        tm_status   peft;
        tm_error    err = { 0 };
        strcpy(adapters.targets, rows[i].targets);
        test_hf_write(test_folder(), rows[i].config, NULL);
        tm_status st = write_adapter(&adapters, &peft, &err);
        refusal_is_sound(&err);
        if (rows[i].why ? st != TM_UNSUPPORTED || !strstr(err.text, rows[i].why) : st != TM_OK)
            fail_msg("%s: status %d, '%s'", rows[i].targets, (int)st, err.text);
        assert_int_equal(tm_file_exists(test_in_folder("a.gguf")), !rows[i].why);
        test_folder_remove();
    }
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

static void not_written(const char *config, const char *part)
{
    tm_hf_source source;
    test_hf_write(test_folder(), config, NULL);
    assert_ok(tm_hf_source_open(test_folder(), -1, test_full_config(), &source, err));
    assert_refused(export_to(&source, "x.gguf", "f32", err), TM_UNSUPPORTED, part);
    assert_false(tm_file_exists(test_in_folder("x.gguf")));
    tm_hf_source_close(&source);
    test_folder_remove();
}

TEST(what_llama_cpp_lacks_is_not_written)
{
    not_written(config_of("tests/hf/fixtures/deepseek_v3-0.json"), "a deepseek_v3 model is not written as GGUF");
    not_written(config_of("tests/hf/fixtures/gpt_oss-0.json"), "a gpt_oss model is not written as GGUF");
    not_written("{" SIZES ", \"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 2.0}}", "with dynamic scaling");
    not_written("{" SIZES ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, \"beta_fast\": 16}}",
                "YaRN of other settings");
}

/* The fixture with every occurrence of some bytes replaced by as many others. */
static const char *changed(const char *from, const char *to, size_t n)
{
    tm_text text = { 0 };
    int     found = 0;
    assert_ok(tm_file_read(MIXED, 1 << 20, &text, err));
    for (size_t i = 0; i + n <= text.length; i++) {
        if (memcmp(text.data + i, from, n) != 0) continue;
        memcpy(text.data + i, to, n);
        found++;
    }
    assert_true(found > 0);
    const char *path = test_in_folder("changed.gguf");
    assert_ok(tm_file_write(path, text.data, text.length, err));
    tm_text_fini(&text);
    return path;
}

static void not_read(const char *path, tm_status wanted, const char *part)
{
    tm_hf_source source;
    tm_error     err = { 0 };
    tm_status    st = tm_hf_source_open(path, -1, test_full_config(), &source, &err);
    char        *at = strstr(err.text, test_folder());
    if (at) memmove(at, at + strlen(test_folder()), strlen(at + strlen(test_folder())) + 1);
    refusal_is_sound(&err);
    if (st != wanted || !strstr(err.text, part)) fail_msg("status %d, '%s', wanted '%s'", (int)st, err.text, part);
    tm_hf_source_close(&source);
    test_folder_remove();
}

#define CHANGED(from, to) changed(from, to, sizeof(from) - 1)

TEST(what_is_not_supported_is_not_read)
{
    not_read("tests/hf/gguf/refused.gguf", TM_UNSUPPORTED, "'blk.0.ffn_gate.weight' is in the format q4_0");
    not_read(CHANGED("llama.vocab_size", "llama.what_is_it"), TM_UNSUPPORTED, "'llama.what_is_it' is not known");
    not_read(CHANGED("llama.block_count", "other.block_count"), TM_FORMAT, "has no 'llama.block_count'");
    not_read(CHANGED("llama.block_count\4\0\0\0", "llama.block_count\6\0\0\0"), TM_FORMAT, "is no whole number");
    not_read(CHANGED("llama.attention.layer_norm_rms_epsilon\6\0\0\0\xac\xc5\x27\x37",
                     "llama.attention.layer_norm_rms_epsilon\6\0\0\0\0\0\xc0\x7f"),
             TM_FORMAT, "is no finite number");
    not_read(CHANGED("llama.attention.head_count\4\0\0\0\4", "llama.attention.head_count\4\0\0\0\0"), TM_FORMAT,
             "is no whole number from 1 on");
    not_read(CHANGED("llama.attention.head_count\4\0\0\0\4", "llama.attention.head_count\4\0\0\0\3"), TM_UNSUPPORTED,
             "heads have 10 elements");
    not_read(CHANGED("llama.rope.dimension_count\4\0\0\0\x8", "llama.rope.dimension_count\4\0\0\0\4"), TM_UNSUPPORTED,
             "heads have 8 elements");
    not_read(CHANGED("general.architecture\x8\0\0\0\5\0\0\0\0\0\0\0llama",
                     "general.architecture\x8\0\0\0\5\0\0\0\0\0\0\0llamb"),
             TM_UNSUPPORTED, "'llamb' is not supported");
    not_read(CHANGED("general.type\x8\0\0\0\5\0\0\0\0\0\0\0model", "general.type\x8\0\0\0\5\0\0\0\0\0\0\0vocab"),
             TM_UNSUPPORTED, "is no model but of the type 'vocab'");
    not_read(CHANGED("blk.0.ffn_up.weight", "blk.0.ffn_us.weight"), TM_UNSUPPORTED,
             "'blk.0.ffn_us.weight' is not known");
    not_read(CHANGED("blk.0.ffn_norm.weight", "rope_freqs.weight\0\0\0\0"), TM_FORMAT, "has a NUL");
    not_read(CHANGED("token_embd.weight", "token_embe.weight"), TM_FORMAT, "has no matrix token_embd.weight");
}

TESTS_IN_ORDER
