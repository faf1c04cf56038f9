/* SPDX-License-Identifier: Apache-2.0 */
#include "support/training.h"

#include "support/test.h"

#include "base/hash.h"
#include "base/random.h"
#include "graph/value.h"
#include "support/full_config.h"
#include "support/golden.h"

tm_model_shape test_shape_preset(const char *preset, const char *more)
{
    tm_config     *config = test_full_config();
    tm_error       err = { 0 };
    tm_model_shape shape = { 0 };
    char           copy[1024];
    tm_status      st = tm_config_apply_preset(config, preset, &err);
    snprintf(copy, sizeof copy, "%s", more ? more : "");
    for (char *word = strtok(copy, " "); st == TM_OK && word; word = strtok(NULL, " "))
        st = tm_config_apply_arguments(config, 1, &word, &err);
    if (st == TM_OK) st = tm_config_finish(config, &err);
    if (st == TM_OK) st = tm_model_shape_read(config, &shape, &err);
    if (st != TM_OK) fail_msg("%s: %s", preset, err.text);
    tm_config_destroy(config);
    return shape;
}

tm_step_options test_llama_options(void)
{
    tm_step_options o = { .precision = &tm_precision_f32,
                          .micro_batch = 2,
                          .seq = 32,
                          .accumulation = 1,
                          .optimizer = &tm_optimizer_adamw,
                          .hyper = { .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1 } };
    o.shape = (tm_model_shape){ .family = TM_FAMILY_LLAMA,
                                .vocab_size = 96,
                                .dim = 64,
                                .n_layers = 2,
                                .n_heads = 2,
                                .n_kv_heads = 1,
                                .head_dim = 32,
                                .ffn_dim = 160,
                                .max_seq_len = 512,
                                .norm_eps = 1e-5,
                                .rope_theta = 10000,
                                .init = TM_INIT_TORCHTITAN };
    return o;
}

tm_step_options test_gpt_options(void)
{
    tm_step_options o = test_llama_options();
    o.shape = (tm_model_shape){ .family = TM_FAMILY_GPT,
                                .vocab_size = 96,
                                .dim = 64,
                                .n_layers = 2,
                                .n_heads = 2,
                                .n_kv_heads = 2,
                                .head_dim = 32,
                                .ffn_dim = 256,
                                .max_seq_len = 512,
                                .norm_eps = 1e-5,
                                .tied = true,
                                .bias = TM_BIAS_ALL,
                                .init = TM_INIT_GPT2 };
    return o;
}

tm_step_options test_family_options(tm_model_family family)
{
    tm_step_options o = family == TM_FAMILY_GPT ? test_gpt_options() : test_llama_options();
    o.shape.family = family;
    if (family == TM_FAMILY_MISTRAL) o.shape.window = 11;
    if (family == TM_FAMILY_QWEN2) o.shape.bias = TM_BIAS_QKV;
    if (family == TM_FAMILY_QWEN3) {
        o.shape.qk_norm = o.shape.tied = true;
        o.shape.head_dim = 24;
        o.shape.init = TM_INIT_HF;
    }
    return o;
}

tm_device *test_device_open(const char *name, int threads)
{
    tm_device *device = NULL;
    assert_ok(tm_device_open(name, threads, &device, err));
    return device;
}

tm_step *test_step_plan(const tm_step_options *options, const tm_chooser *chooser)
{
    tm_step *step = NULL;
    assert_ok(tm_step_create(options, chooser, &step, err));
    return step;
}

tm_trainer *test_trainer_open(tm_device *device, const tm_step_options *options, uint64_t seed)
{
    tm_trainer *trainer = NULL;
    assert_ok(tm_trainer_open(device, options, seed, &trainer, err));
    return trainer;
}

tm_step *test_step_of(const tm_step_options *options)
{
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    tm_step   *step = test_step_plan(options, &chooser);
    tm_device_close(device);
    return step;
}

tm_trainer *test_trainer_on(const char *device, int threads, const tm_step_options *options, uint64_t seed)
{
    return test_trainer_open(test_device_open(device, threads), options, seed);
}

void test_trainer_end(tm_trainer *trainer)
{
    tm_device *device = tm_trainer_device(trainer);
    tm_trainer_close(trainer);
    tm_device_close(device);
}

test_batch test_batch_random(int64_t sequences, int64_t seq, int64_t vocab, uint64_t seed)
{
    test_batch batch = { .rows = sequences * seq, .target_tokens = sequences * seq };
    batch.tokens = malloc((size_t)batch.rows * sizeof *batch.tokens);
    batch.targets = malloc((size_t)batch.rows * sizeof *batch.targets);
    assert_true(batch.tokens && batch.targets);
    for (int64_t b = 0; b < sequences; b++)
        for (int64_t t = 0; t <= seq; t++) {
            int32_t token = (int32_t)tm_random_below(seed, (uint64_t)b, (uint64_t)t, (uint64_t)vocab);
            if (t < seq) batch.tokens[b * seq + t] = token;
            if (t > 0) batch.targets[b * seq + t - 1] = token;
        }
    return batch;
}

void test_batch_fini(test_batch *batch)
{
    free(batch->tokens);
    free(batch->targets);
    *batch = (test_batch){ 0 };
}

void *test_tensor_read(const tm_trainer *trainer, tm_tensor_id id)
{
    size_t bytes = tm_plan_place(tm_trainer_step_of(trainer)->plan, id).bytes;
    void  *values = malloc(bytes);
    assert_non_null(values);
    assert_ok(tm_trainer_read(trainer, id, 0, values, bytes, err));
    return values;
}

void test_tensor_write(tm_trainer *trainer, tm_tensor_id id, const void *values)
{
    size_t bytes = tm_plan_place(tm_trainer_step_of(trainer)->plan, id).bytes;
    assert_ok(tm_trainer_write(trainer, id, 0, values, bytes, err));
}

double *test_values_read(const tm_trainer *trainer, tm_tensor_id id)
{
    const tm_tensor *tensor = tm_graph_at(tm_trainer_step_of(trainer)->graph, id);
    int64_t          n = tm_shape_elements(tensor->shape);
    void            *stored = test_tensor_read(trainer, id);
    double          *values = malloc((size_t)n * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < n; i++) values[i] = tm_value_get(stored, tensor->dtype, i);
    free(stored);
    return values;
}

void test_values_write(tm_trainer *trainer, tm_tensor_id id, const double *values)
{
    const tm_tensor *tensor = tm_graph_at(tm_trainer_step_of(trainer)->graph, id);
    void            *stored = test_tensor_read(trainer, id);
    for (int64_t i = 0; i < tm_shape_elements(tensor->shape); i++) tm_value_set(stored, tensor->dtype, i, values[i]);
    test_tensor_write(trainer, id, stored);
    free(stored);
}

void test_begin(tm_trainer *trainer, int64_t t, double rate, double max_norm, int64_t total_targets)
{
    assert_ok(tm_trainer_begin(trainer, t, rate, max_norm, total_targets, err));
}

void test_accumulate(tm_trainer *trainer, int64_t index, const int32_t *tokens, const int32_t *targets)
{
    tm_micro_batch micro = { { tokens, targets }, 0 };
    assert_ok(tm_trainer_accumulate(trainer, index, &micro, NULL, err));
}

tm_step_result test_update(tm_trainer *trainer)
{
    tm_step_result result = { 0 };
    assert_ok(tm_trainer_update(trainer, &result, NULL, err));
    return result;
}

double test_evaluate(tm_trainer *trainer, const int32_t *tokens, const int32_t *targets)
{
    tm_micro_batch micro = { { tokens, targets }, 0 };
    double         loss = 0;
    assert_ok(tm_trainer_evaluate(trainer, &micro, &loss, err));
    return loss;
}

uint64_t test_weights_hash(const tm_trainer *trainer)
{
    uint64_t hash = 0;
    assert_ok(tm_trainer_weights_hash(trainer, &hash, err));
    return hash;
}

static void accumulate(tm_trainer *trainer, const test_batch *batch)
{
    const tm_step_options *o = &tm_trainer_step_of(trainer)->options;
    int64_t                rows = o->micro_batch * o->seq;
    assert_int_equal(batch->rows, rows * o->accumulation);
    for (int64_t i = 0; i < o->accumulation; i++)
        test_accumulate(trainer, i, batch->tokens + i * rows, batch->targets + i * rows);
}

double test_gradients(tm_trainer *trainer, const test_batch *batch)
{
    test_begin(trainer, 1, 0, 0, batch->target_tokens);
    accumulate(trainer, batch);
    test_update(trainer);
    double *loss = test_tensor_read(trainer, tm_trainer_step_of(trainer)->loss), sum = *loss;
    free(loss);
    return batch->target_tokens ? sum / (double)batch->target_tokens : sum;
}

tm_step_result test_step(tm_trainer *trainer, int64_t t, double rate, double max_norm, const test_batch *batch)
{
    test_begin(trainer, t, rate, max_norm, batch->target_tokens);
    accumulate(trainer, batch);
    return test_update(trainer);
}

static uint64_t hash_of_roles(const tm_trainer *trainer, tm_role role, tm_role other)
{
    const tm_step *step = tm_trainer_step_of(trainer);
    uint64_t       hash = 0;
    for (size_t i = 0; i < step->graph->n_tensors; i++) {
        if (step->graph->tensors[i].role != role && step->graph->tensors[i].role != other) continue;
        void    *values = test_tensor_read(trainer, (tm_tensor_id)i);
        uint64_t both[2] = { hash, tm_hash(values, step->plan->places[i].bytes) };
        free(values);
        hash = tm_hash(both, sizeof both);
    }
    return hash;
}

uint64_t test_gradients_hash(const tm_trainer *trainer)
{
    return hash_of_roles(trainer, TM_ROLE_GRADIENT, TM_ROLE_GRADIENT);
}

uint64_t test_state_hash(const tm_trainer *trainer)
{
    return hash_of_roles(trainer, TM_ROLE_PARAMETER, TM_ROLE_MOMENT);
}

double test_relative_difference(const tm_trainer *a, const tm_trainer *b, tm_tensor_id in_a, tm_tensor_id in_b)
{
    int64_t n = tm_shape_elements(tm_graph_at(tm_trainer_step_of(a)->graph, in_a)->shape);
    double  difference = 0, norm = 0;
    assert_int_equal(n, tm_shape_elements(tm_graph_at(tm_trainer_step_of(b)->graph, in_b)->shape));
    double *x = test_values_read(a, in_a), *y = test_values_read(b, in_b);
    for (int64_t i = 0; i < n; i++) {
        difference += (x[i] - y[i]) * (x[i] - y[i]);
        norm += y[i] * y[i];
    }
    free(x);
    free(y);
    return sqrt(difference / norm);
}
