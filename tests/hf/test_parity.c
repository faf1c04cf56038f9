/* SPDX-License-Identifier: Apache-2.0 */
/* What transformers computes for tiny random models (tools/hf_parity.py): every file in tests/hf/fixtures is one. The
 * folder is written from the fixture's config.json, read, loaded and computed with as any other. */
#include "hf/numerics.h"
#include "support/json.h"
#include "support/folder.h"
#include "support/golden.h"
#include "support/hf_folder.h"
#include "support/training.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"
#include <jansson.h>

static const char fixtures[] = "tests/hf/fixtures";

typedef struct {
    const char *name;
    json_t     *root;
    char       *config;
    int64_t     seq;
    int32_t    *tokens;
} fixture;

static fixture load(const char *name)
{
    char    path[512];
    fixture f = { .name = name };
    snprintf(path, sizeof path, "%s/%s", fixtures, name);
    f.root = test_json(path);
    f.config = json_dumps(json_object_get(f.root, "config"), 0);
    f.seq = (int64_t)test_json_number(f.root, "sequence") - 1;
    f.tokens = malloc((size_t)(f.seq + 1) * sizeof *f.tokens);
    golden_tokens(f.tokens, (int)f.seq + 1, (int)test_json_number(json_object_get(f.root, "config"), "vocab_size"));
    return f;
}

static void unload(fixture *f)
{
    json_decref(f->root);
    free(f->config);
    free(f->tokens);
}

static void close_to(const fixture *f, const char *what, double value, double wanted, double relative)
{
    double error = fabs(value - wanted) / fabs(wanted);
    if (!(error <= relative)) fail_msg("%s: %s is %.10g, wanted %.10g", f->name, what, value, wanted);
}

static void compare(const fixture *f, const char *device, const tm_precision *precision, double error,
                    double norm_error)
{
    test_hf_model model;
    tm_numerics   n;
    tm_error      err = { 0 };
    if (test_hf_open(test_folder(), device, precision, f->seq, &model, &err) != TM_OK)
        fail_msg("%s: %s", f->name, err.text);
    if (tm_numerics_read(model.trainer, model.description.form, model.weights, f->tokens, &n, &err) != TM_OK)
        fail_msg("%s: %s", f->name, err.text);
    const json_t *gradients = json_object_get(f->root, "gradients");
    assert_int_equal(n.parameters, (int64_t)test_json_number(f->root, "parameters"));
    assert_int_equal(n.n_gradients, json_object_size(gradients));
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
    test_hf_close(&model);
}

static void train(const fixture *f)
{
    test_hf_model model;
    tm_error      err = { 0 };
    const json_t *losses = json_object_get(f->root, "losses");
    if (test_hf_open(test_folder(), "cpu", &tm_precision_f32, f->seq, &model, &err) != TM_OK) fail_msg("%s", err.text);
    tm_step_options step = tm_numerics_step(&model.shape, &tm_precision_f32, f->seq);
    step.optimizer = &tm_optimizer_adamw;
    step.hyper = (tm_hyper){ .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1 };
    tm_trainer_close(model.trainer);
    model.trainer = test_trainer_open(model.device, &step, 1);
    tm_hf_memory memory = tm_hf_trainer_memory(model.trainer, model.description.form);
    if (tm_hf_load(&memory, model.weights, 2, &model.report, &err) != TM_OK) fail_msg("%s", err.text);
    assert_true(json_array_size(losses) >= 20);
    for (size_t t = 0; t < json_array_size(losses); t++) {
        char what[48];
        test_begin(model.trainer, (int64_t)t + 1, 1e-3, 1.0, f->seq);
        test_accumulate(model.trainer, 0, f->tokens, f->tokens + 1);
        tm_step_result result = test_update(model.trainer);
        snprintf(what, sizeof what, "loss of step %zu", t + 1);
        close_to(f, what, result.loss, json_number_value(json_array_get(losses, t)), 1e-4);
    }
    test_hf_close(&model);
}

TEST(every_fixture_is_met)
{
    struct dirent **entries;
    int             n = scandir(fixtures, &entries, NULL, alphasort), met = 0;
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        if (strstr(entries[i]->d_name, ".json")) {
            fixture f = load(entries[i]->d_name);
            test_hf_write(test_folder(), f.config, NULL);
            compare(&f, "cpu", &tm_precision_f32, 1e-5, 1e-4);
            compare(&f, "reference", &tm_precision_f64, 1e-6, 1e-5); /* the library has float32 in some places */
            train(&f);
            test_folder_remove();
            unload(&f);
            met++;
        }
        free(entries[i]);
    }
    free(entries);
    assert_true(met >= 6);
}
