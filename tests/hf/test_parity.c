/* SPDX-License-Identifier: Apache-2.0 */
/* What transformers and PEFT compute for tiny models and their adapters (tools/hf_parity.py, tools/peft_parity.py):
 * every file in tests/hf/fixtures and tests/hf/adapters is one; adapters written and read again, and the merged model.
 */
#include "parity_fixture.h"

#include "support/refusal.h"
#include "support/full_config.h"

#include <dirent.h>

#include "support/test.h"

static void compare(const fixture *f, const char *device, const tm_precision *precision, double error,
                    double norm_error)
{
    adapted        a;
    tm_numerics    n;
    tm_error       err = { 0 };
    tm_model_shape none = { 0 };
    if (open_adapted(f, device, precision, tm_numerics_step(&none, precision, f->seq), &a, &err) != TM_OK)
        fail_msg("%s: %s", f->name, err.text);
    if (tm_numerics_read(a.model.trainer, a.model.description.form, a.model.weights, f->tokens, &n, &err) != TM_OK)
        fail_msg("%s: %s", f->name, err.text);
    const json_t *gradients = json_object_get(f->root, "gradients");
    assert_int_equal(n.n_gradients, json_object_size(gradients));
    if (!f->adapted) assert_int_equal(n.parameters, (int64_t)test_json_number(f->root, "parameters"));
    close_to(f, "loss", n.loss, test_json_number(f->root, "loss"), error);
    close_to(f, "gradient_norm", n.gradient_norm, test_json_number(f->root, "gradient_norm"), norm_error);
    for (size_t i = 0; i < n.n_gradients; i++) {
        double wanted = test_json_number(gradients, n.gradients[i].name);
        if (wanted > 0 || n.gradients[i].norm > 0) /* an expert that no token goes to has none */
            close_to(f, n.gradients[i].name, n.gradients[i].norm, wanted, norm_error);
    }
    test_json_close(f->name, f->root, "first_logits", n.first, n.vocab, error);
    test_json_close(f->name, f->root, "last_logits", n.last, n.vocab, error);
    tm_numerics_fini(&n);
    close_adapted(&a);
}

/* The losses of a run; adapters are then written, read again and merged: the same loss, and the model's bytes are what
 * they were. */
static void train(const fixture *f)
{
    adapted         a;
    tm_error        err = { 0 };
    uint64_t        before, after;
    tm_hf_report    report;
    tm_model_shape  none = { 0 };
    char            written[300];
    const json_t   *losses = json_object_get(f->root, "losses");
    tm_step_options step = tm_numerics_step(&none, &tm_precision_f32, f->seq);
    step.optimizer = &tm_optimizer_adamw;
    step.hyper = (tm_hyper){ .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1 };
    if (open_adapted(f, "cpu", &tm_precision_f32, step, &a, &err) != TM_OK) fail_msg("%s", err.text);
    if (f->adapted) assert_int_equal(tm_trainer_base_hash(a.model.trainer, &before, &err), TM_OK);
    assert_true(json_array_size(losses) >= (f->adapted ? 50 : 20));
    for (size_t t = 0; t < json_array_size(losses); t++) {
        char what[48];
        test_begin(a.model.trainer, (int64_t)t + 1, f->adapted ? 3e-3 : 1e-3, 1.0, f->seq);
        test_accumulate(a.model.trainer, 0, f->tokens, f->tokens + 1);
        snprintf(what, sizeof what, "loss of step %zu", t + 1);
        close_to(f, what, test_update(a.model.trainer).loss, json_number_value(json_array_get(losses, t)), 1e-4);
    }
    if (!f->adapted) {
        close_adapted(&a);
        return;
    }
    assert_int_equal(tm_trainer_base_hash(a.model.trainer, &after, &err), TM_OK);
    assert_true(before == after);
    double       trained = test_evaluate(a.model.trainer, f->tokens, f->tokens + 1) / (double)f->seq;
    tm_hf_memory memory = tm_hf_trainer_memory(a.model.trainer, a.model.description.form);
    snprintf(written, sizeof written, "%s/written", test_folder());
    if (tm_hf_adapter_write(&memory, &a.adapter.adapters, "base", written, &report, &err) != TM_OK)
        fail_msg("%s", err.text);
    close_adapted(&a);

    fixture again = *f;
    snprintf(again.adapter, sizeof again.adapter, "%s", written);
    if (open_adapted(&again, "cpu", &tm_precision_f32, step, &a, &err) != TM_OK) fail_msg("%s", err.text);
    close_to(f, "loss of what was written", test_evaluate(a.model.trainer, f->tokens, f->tokens + 1) / (double)f->seq,
             trained, 0);
    close_adapted(&a);

    tm_hf_source         source;
    tm_hf_export_options o = { .folder = "", .dtype = TM_F32, .shard_bytes = 1 << 30 };
    char                 merged[300];
    test_hf_model        model;
    snprintf(merged, sizeof merged, "%s/merged", test_folder());
    o.folder = merged;
    tm_status st = tm_hf_source_open(f->base, -1, test_full_config(), &source, &err);
    if (st == TM_OK) st = tm_hf_source_adapt(&source, written, &err);
    if (st == TM_OK) st = tm_hf_export(&source, &o, &report, &err);
    if (st != TM_OK) fail_msg("%s", err.text);
    tm_hf_source_close(&source);
    if (test_hf_open(merged, "cpu", &tm_precision_f32, f->seq, &model, &err) != TM_OK) fail_msg("%s", err.text);
    close_to(f, "loss of the merged model", test_evaluate(model.trainer, f->tokens, f->tokens + 1) / (double)f->seq,
             trained, 1e-5);
    test_hf_close(&model);
}

static int meet_all(const char *folder)
{
    struct dirent **entries;
    char            path[300];
    int             met = 0;
    snprintf(path, sizeof path, "tests/hf/%s", folder);
    const int n = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        if (strstr(entries[i]->d_name, ".json")) {
            snprintf(path, sizeof path, "%s/%.100s", folder, entries[i]->d_name);
            fixture f = load(path);
            compare(&f, "cpu", &tm_precision_f32, 1e-5, 1e-4);
            compare(&f, "reference", &tm_precision_f64, 1e-6, 1e-5); /* the library has float32 in some places */
            train(&f);
            unload(&f);
            met++;
        }
        free(entries[i]);
    }
    free(entries);
    return met;
}

TEST(every_model_is_met)
{
    assert_true(meet_all("fixtures") >= 6);
}

TEST(every_adapter_is_met)
{
    assert_true(meet_all("adapters") >= 15);
}

/* The file holds A (rank, 32) and B (32, rank) of every module of `wanted`: "1 q 4" is q_proj of layer 1 with rank 4.
 */
static void tensors_are(const char *folder, const char *wanted, const tm_hf_report *report)
{
    char            path[500], words[200], *rest = words;
    tm_safetensors *set;
    size_t          n, found = 0;
    int64_t         elements = 0;
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    assert_ok(tm_safetensors_open(path, &set, err));
    const tm_stored_tensor *all = tm_safetensors_list(set, &n);
    snprintf(words, sizeof words, "%s", wanted);
    for (char *word; (word = strsep(&rest, ","));)
        for (int side = 0; side < 2; side++) {
            char name[120], shape[192], is[192];
            int  rank = word[4] - '0';
            snprintf(name, sizeof name, "base_model.model.model.layers.%c.self_attn.%c_proj.lora_%c.weight", word[0],
                     word[2], 'A' + side);
            snprintf(shape, sizeof shape, side ? "[32, %d]" : "[%d, 32]", rank);
            for (size_t i = 0; i < n; i++)
                if (strcmp(all[i].name, name) == 0) {
                    assert_string_equal(tm_stored_shape_text(is, &all[i]), shape);
                    assert_string_equal(all[i].dtype_name, "F32");
                    found++, elements += 32LL * rank;
                }
        }
    assert_true(found == n && found == 2 * (strlen(wanted) + 1) / 6); /* each once, no other one */
    assert_true(report->tensors == n && report->elements == elements && report->bytes == 4 * elements);
    tm_safetensors_close(set);
}

/* PEFT has every member, and what is not of this run has its value. */
static void members_are_peft_s(const fixture *f, json_t *config, const tm_adapters *own)
{
    static const char *const of_run[] = { "alpha_pattern", "layers_to_transform", "lora_alpha", "r",
                                          "rank_pattern",  "target_modules" };
    static const char *const of_all[] = { "base_model_name_or_path",
                                          "bias",
                                          "init_lora_weights",
                                          "lora_dropout",
                                          "peft_type",
                                          "task_type",
                                          "use_dora",
                                          "use_rslora",
                                          "fan_in_fan_out",
                                          "inference_mode" };
    const char              *name;
    json_t                  *value, *theirs = json_object_get(f->root, "adapter");
    for (size_t i = 0; i < sizeof of_all / sizeof of_all[0]; i++)
        if (!json_object_get(config, of_all[i])) fail_msg("no %s", of_all[i]);
    assert_int_equal(json_object_get(config, "layers_to_transform") != NULL, own->n_layers > 0);
    json_object_foreach(config, name, value)
    {
        bool known = false;
        for (size_t i = 0; i < sizeof of_run / sizeof of_run[0]; i++) known |= strcmp(of_run[i], name) == 0;
        if (!json_object_get(theirs, name) || (!known && !json_equal(json_object_get(theirs, name), value)))
            fail_msg("%s is not PEFT's", name);
    }
    assert_int_equal(json_integer_value(json_object_get(config, "r")), own->rank);
    assert_int_equal(json_integer_value(json_object_get(config, "lora_alpha")), own->alpha);
}

/* adapter_config.json of what a run with `own` trained beside the fixture's model. Free it with json_decref. */
static json_t *written_config(const fixture *f, const tm_adapters *own, const char *name, const char *tensors)
{
    tm_hf_report report;
    tm_error     err = { 0 };
    char         folder[400], path[500];
    adapted      a;
    if (open_adapted(f, "cpu", &tm_precision_f32, tm_numerics_step(&(tm_model_shape){ 0 }, &tm_precision_f32, f->seq),
                     &a, &err) != TM_OK)
        fail_msg("%s", err.text);
    tm_step_options o = tm_numerics_step(&a.model.shape, &tm_precision_f32, f->seq);
    o.adapters = *own;
    tm_trainer_close(a.model.trainer);
    a.model.trainer = NULL;
    if (tm_trainer_open(a.model.device, &o, 1, &a.model.trainer, &err) != TM_OK) fail_msg("%s", err.text);
    tm_hf_memory memory = tm_hf_trainer_memory(a.model.trainer, a.model.description.form);
    snprintf(folder, sizeof folder, "%s/%s", test_folder(), name);
    if (tm_hf_adapter_write(&memory, own, "base", folder, &report, &err) != TM_OK) fail_msg("%s", err.text);
    tensors_are(folder, tensors, &report);
    assert_int_equal(tm_hf_adapter_write(&memory, own, "base", folder, &report, &err), TM_INVALID);
    refusal_is_sound(&err);
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    json_t *config = json_load_file(path, 0, NULL);
    assert_non_null(config);
    members_are_peft_s(f, config, own);
    close_adapted(&a);
    return config;
}

/* The shortest configuration that PEFT reads as what was trained; members as JSON, NULL: absent. */
TEST(what_was_trained_is_written)
{
    static const tm_pattern_value theirs[] = { { "(q|o)_proj", 2 } }, ours[] = { { "attention\\.wq", 2 } };
    static const tm_pattern_value odd[] = { { "(q|o)_proj", 3 } }, digits[] = { { "q_proj", 0.9 }, { "o_proj", 3.1 } };
    static const int64_t          second[][2] = { { 1, 1 } };
#define LAYER(n, name) "\"model.layers." n ".self_attn." name "_proj\""
    static const struct {
        const char *name, *tensors, *modules, *ranks, *alphas, *layers;
        tm_adapters own;
    } rows[] = {
        { .name = "plain", .tensors = "0 q 4,0 o 4,1 q 4,1 o 4" },
        { .name = "layers", .tensors = "1 q 4,1 o 4", .layers = "[1]", .own = { .layers = second, .n_layers = 1 } },
        { .name = "names", /* no blocks and no last parts say that */
          .tensors = "0 q 4,1 q 4,1 o 4",
          .modules = "[" LAYER("0", "q") "," LAYER("1", "q") "," LAYER("1", "o") "]",
          .own.exclude = "layers.0.attention.wo" },
        { .name = "theirs",
          .tensors = "0 q 2,0 o 2,1 q 2,1 o 2",
          .ranks = "{\"(q|o)_proj\": 2}",
          .alphas = "{\"(q|o)_proj\": 2}",
          .own = { .ranks = theirs, .n_ranks = 1, .alphas = theirs, .n_alphas = 1 } },
        { .name = "ours", /* names that PEFT does not know: module by module */
          .tensors = "0 q 2,0 o 4,1 q 2,1 o 4",
          .ranks = "{" LAYER("0", "q") ": 2, " LAYER("1", "q") ": 2}",
          .own = { .ranks = ours, .n_ranks = 1 } },
        { .name = "digits", /* what was given, to the digit */
          .tensors = "0 q 3,0 o 3,1 q 3,1 o 3",
          .ranks = "{\"(q|o)_proj\": 3}",
          .alphas = "{\"q_proj\": 0.9, \"o_proj\": 3.1}",
          .own = { .ranks = odd, .n_ranks = 1, .alphas = digits, .n_alphas = 2 } },
    };
    fixture f = load("adapters/llama.json");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *const members[][2] = {
            { "target_modules", rows[i].modules ? rows[i].modules : "[\"q_proj\", \"o_proj\"]" },
            { "rank_pattern", rows[i].ranks },
            { "alpha_pattern", rows[i].alphas },
            { "layers_to_transform", rows[i].layers },
        };
        tm_adapters own = rows[i].own;
        own.rank = 4, own.alpha = 8, own.base = TM_DTYPE_COUNT, own.place = "test";
        strcpy(own.targets, "q_proj,o_proj");
        json_t *config = written_config(&f, &own, rows[i].name, rows[i].tensors);
        for (size_t k = 0; k < 4; k++) {
            json_t *is = json_object_get(config, members[k][0]);
            json_t *wanted = members[k][1] ? json_loads(members[k][1], 0, NULL) : NULL;
            if (wanted ? !json_equal(is, wanted) : is != NULL) fail_msg("%s: %s", rows[i].name, members[k][0]);
            json_decref(wanted);
        }
        json_decref(config);
    }
    unload(&f);
}

TESTS_IN_ORDER
