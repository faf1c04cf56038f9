/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary positions that a config.json scales, against what transformers computes from the same file
 * (tests/hf/rope.json, made by tools/make_rope_fixture.py): frequencies and the factor of cosines and sines, the logits
 * of whole small models of every family and scaling, and of sequences that grow by a token at a time. Also what is
 * refused, and that what is written means the same. */
#include "hf/numerics.h"
#include "support/json.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/golden.h"
#include "support/hf_folder.h"
#include "train/generate/decode.h"

#include <jansson.h>

#include "support/test.h"

static json_t *load(const char *list, size_t at_least)
{
    json_t *root = test_json("tests/hf/rope.json"), *rows = json_incref(json_object_get(root, list));
    json_decref(root);
    assert_true(json_array_size(rows) >= at_least);
    return rows;
}

/* The caller frees it. */
static char *config_of(const json_t *row)
{
    return json_dumps(json_object_get(row, "config"), JSON_SORT_KEYS);
}

static tm_status read_shape(const char *text, tm_config *config, tm_model_shape *shape, tm_error *err)
{
    tm_hf_description description;
    test_apply_words(config, "--training.seq_len 8"); /* no note of a longer one */
    TM_TRY(tm_hf_config_parse("config.json", text, strlen(text), config, &description, err));
    TM_TRY(tm_config_finish(config, err));
    return tm_model_shape_read(config, shape, err);
}

/* --- frequencies -------------------------------------------------------------------------------------------------- */

static void near(const char *config, const char *what, double value, double wanted, double bound)
{
    if (!(fabs(value - wanted) <= bound)) fail_msg("%s: %s is %.15g, wanted %.15g", config, what, value, wanted);
}

/* The table that a model of the shape looks at, for a sequence of `length` tokens. */
static void table_is(const char *config, const tm_model_shape *shape, const json_t *row)
{
    const json_t *frequencies = json_object_get(row, "inverse_frequencies");
    int64_t       length = (int64_t)test_json_number(row, "length"), half = (int64_t)json_array_size(frequencies);
    double        factor = test_json_number(row, "attention_factor");
    tm_graph     *graph = tm_graph_create(&tm_precision_f64);
    tm_model      model;
    tm_model_declare(graph, shape, length, NULL, &model);
    const tm_tensor *table = tm_graph_at(graph, model.rope_table);
    assert_true(table->shape.n[0] == length && table->shape.n[1] == 2 * half);
    for (int64_t i = 0; i < half; i++) {
        double  f = json_number_value(json_array_get(frequencies, (size_t)i)), angle = f * (double)(length - 1);
        int64_t last = (length - 1) * 2 * half + i;
        near(config, "a frequency", tm_model_rope_frequency(shape, i, length) / f, 1, 1e-12);
        near(config, "a cosine", table->fill(table->fill_context, last), factor * cos(angle), 1e-9);
        near(config, "a sine", table->fill(table->fill_context, last + half), factor * sin(angle), 1e-9);
    }
    near(config, "the factor", table->fill(table->fill_context, 0), factor, 1e-14 * factor);
    tm_graph_destroy(graph);
}

TEST(frequencies_are_those_of_the_library)
{
    json_t *rows = load("frequencies", 30), *row;
    size_t  i;
    json_array_foreach(rows, i, row)
    {
        char             *text = config_of(row);
        tm_config        *config = test_full_config(), *again = test_full_config();
        tm_model_shape    shape;
        const tm_hf_form *form;
        tm_text           written = { 0 };
        assert_ok_of(text, read_shape(text, config, &shape, err));
        table_is(text, &shape, row);
        assert_ok(tm_hf_form_of(config, &shape, &form, err));
        tm_hf_config_write(config, &shape, form, "float32", NULL, &written);
        assert_ok_of(written.data, read_shape(written.data, again, &shape, err));
        table_is(written.data, &shape, row);
        tm_text_fini(&written);
        tm_config_destroy(config);
        tm_config_destroy(again);
        free(text);
    }
    json_decref(rows);
}

/* --- logits ------------------------------------------------------------------------------------------------------- */

static void model_is(const char *config, const json_t *row, const char *device, const tm_precision *precision)
{
    int           n = (int)test_json_number(row, "sequence");
    int32_t      *tokens = malloc((size_t)n * sizeof *tokens);
    test_hf_model model;
    tm_numerics   numerics;
    assert_ok_of(config, test_hf_open(test_folder(), device, precision, n - 1, &model, err));
    golden_tokens(tokens, n, (int)model.shape.vocab_size);
    assert_ok_of(config,
                 tm_numerics_read(model.trainer, model.description.form, model.weights, tokens, &numerics, err));
    near(config, "the loss", numerics.loss, test_json_number(row, "loss"), 1e-6);
    test_json_close(config, row, "last_logits", numerics.last, model.shape.vocab_size, 1e-6);
    tm_numerics_fini(&numerics);
    test_hf_close(&model);
    free(tokens);
}

static void models_are(const char *device, const tm_precision *precision)
{
    json_t *rows = load("models", 60), *row;
    size_t  i;
    json_array_foreach(rows, i, row)
    {
        char *config = config_of(row);
        test_hf_write(test_folder(), config, NULL);
        model_is(config, row, device, precision);
        test_folder_remove();
        free(config);
    }
    json_decref(rows);
}

TEST(kernels_compute_what_the_library_computes)
{
    models_are("cpu", &tm_precision_f32);
}

/* --- sequences that grow ------------------------------------------------------------------------------------------ */

static void decoder_is(const char *config, const json_t *row)
{
    int64_t       n = (int64_t)test_json_number(row, "sequence"), prompt = (int64_t)test_json_number(row, "prompt");
    int32_t      *tokens = malloc((size_t)n * sizeof *tokens);
    test_hf_model model;
    tm_decoder   *decoder;
    tm_hf_report  report;
    assert_ok_of(config, test_hf_open(test_folder(), "reference", &tm_precision_f64, n, &model, err));
    double *logits = malloc((size_t)model.shape.vocab_size * sizeof *logits);
    golden_tokens(tokens, (int)n, (int)model.shape.vocab_size);
    assert_ok(tm_decoder_open(model.device, &model.shape, &tm_precision_f64, n, prompt, &decoder, err));
    tm_hf_memory memory = tm_hf_forward_memory(tm_decoder_forward(decoder), &model.shape, model.description.form);
    assert_ok(tm_hf_load(&memory, model.weights, 1, &report, err));
    assert_ok(tm_decoder_feed(decoder, tokens, prompt, logits, err));
    for (int64_t t = prompt; t < n; t++) assert_ok(tm_decoder_feed(decoder, tokens + t, 1, logits, err));
    test_json_close(config, row, "last_logits", logits, model.shape.vocab_size, 1e-6);
    tm_decoder_close(decoder);
    test_hf_close(&model);
    free(logits);
    free(tokens);
}

TEST(sequences_grow_as_in_the_library)
{
    json_t *rows = load("growing", 15), *row;
    size_t  i;
    json_array_foreach(rows, i, row)
    {
        char *config = config_of(row);
        test_hf_write(test_folder(), config, NULL);
        decoder_is(config, row);
        test_folder_remove();
        free(config);
    }
    json_decref(rows);
}

/* --- what is refused ---------------------------------------------------------------------------------------------- */

#define SIZES                                                                                                          \
    "\"hidden_size\": 32, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"max_position_embeddings\": 64"
#define FILE_OF(type, members) "{\"model_type\": \"" type "\", " SIZES ", " members "}"
#define SCALED(members) FILE_OF("llama", "\"rope_scaling\": {" members "}")

TEST(what_would_be_something_else_is_refused)
{
    static const struct {
        const char *file, *named;
    } cases[] = {
        { SCALED("\"rope_type\": \"longrope\", \"short_factor\": [1], \"long_factor\": [2]"),
          "'rope_scaling.rope_type' is longrope; of llama models only default or llama3 or yarn or linear or dynamic" },
        { SCALED("\"rope_type\": \"linear\", \"factor\": 2.0, \"finetuned\": true"), "'rope_scaling.finetuned'" },
        { SCALED("\"rope_type\": \"yarn\", \"factor\": null, \"original_max_position_embeddings\": 128"), "0.5" },
        { SCALED("\"rope_type\": \"llama3\", \"factor\": 2.0"), "has no 'rope_scaling.low_freq_factor'" },
        { SCALED("\"rope_type\": \"yarn\", \"factor\": 2.0, \"partial_rotary_factor\": 0.5"),
          "'rope_scaling.partial_rotary_factor' is 0.5" },
        { SCALED("\"rope_type\": \"linear\", \"type\": \"yarn\", \"factor\": 2.0"),
          "'rope_scaling.rope_type' is linear, but 'rope_scaling.type' is yarn" },
        { FILE_OF("llama", "\"rope_theta\": 5.0, \"rope_scaling\": {\"rope_theta\": 7.0}"),
          "'rope_theta' is 5, but 'rope_scaling.rope_theta' is 7" },
        { FILE_OF("llama", "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2.0}, \"rope_parameters\": "
                           "{\"rope_theta\": 5.0}"),
          "'rope_scaling' and 'rope_parameters' differ" },
        { FILE_OF("qwen3", "\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 5.0}}"),
          "'rope_parameters.full_attention'" },
        { FILE_OF("llama", "\"head_dim\": 2, \"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 2.0}"),
          "model.rope_scaling dynamic" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_config     *config = test_full_config();
        tm_model_shape shape;
        tm_error       err = { 0 };
        if (read_shape(cases[i].file, config, &shape, &err) == TM_OK || !strstr(err.text, cases[i].named))
            fail_msg("%s: '%s'", cases[i].file, err.text);
        tm_config_destroy(config);
    }
}

TEST_FIXTURE(NULL, test_folder_teardown)
