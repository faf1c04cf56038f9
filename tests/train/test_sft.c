/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of data for fine-tuning have the same losses packed as in rows of their own, in every family. */
#include "support/test.h"
#include "data/source.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQ = 96, SAMPLES = 24 };

static tm_source *open_source(bool packed)
{
    tm_text    text = { 0 };
    tm_source *source;
    tm_error   err = { 0 };
    for (int i = 0; i < SAMPLES; i++) {
        tm_text_printf(&text, "{\"prompt\": \"%c%d", 'a' + i, i);
        for (int k = 0; k < i * 7 % 29; k++) tm_text_printf(&text, "%c", 'a' + (i * 5 + k * k) % 26);
        tm_text_add(&text, "\", \"completion\": \"");
        for (int k = 0; k < 2 + i * 3 % 17; k++) tm_text_printf(&text, "%c", 'A' + (i + k * 3) % 26);
        tm_text_add(&text, "\"}\n");
    }
    tm_source_options o = { .name = "sft",
                            .path = test_file_write(test_folder(), "rows.jsonl", text.data),
                            .vocab = 257,
                            .seq = SEQ,
                            .seed = 1,
                            .sft = { .packed = packed } };
    tm_text_fini(&text);
    if (tm_source_open(&o, &source, &err) != TM_OK) fail_msg("%s", err.text);
    return source;
}

static tm_trainer *open_trainer(tm_device *device, tm_step_options o, int fields)
{
    static const char *const names[] = { "tokens", "targets", "positions", "first_key" };
    o.shape.vocab_size = 257;
    o.micro_batch = o.accumulation = 1;
    o.seq = SEQ;
    for (int f = 0; f < fields; f++)
        o.fields[f] = (tm_field){ .name = names[f], .dtype = TM_I32, .shape = tm_shape_1(SEQ) };
    o.n_fields = fields;
    return test_trainer_open(device, &o, 3);
}

/* Over all targets of all samples, which are so many. */
static double sum_of(const tm_source *source, const tm_step_options *o, int fields, int64_t *targets)
{
    tm_device  *device = test_device_open("cpu", 2);
    tm_trainer *trainer = open_trainer(device, *o, fields);
    double      sum = 0;
    *targets = 0;
    for (int64_t i = 0; i < tm_source_describe(source)->train_samples; i++) {
        int32_t  scratch[SEQ + 1], row[4][SEQ];
        double   loss;
        int64_t  weight;
        tm_error err = { 0 };
        void    *at[] = { row[0], row[1], row[2], row[3] };
        if (tm_source_row(source, TM_SPLIT_TRAIN, i, scratch, at, &weight, &err) != TM_OK) fail_msg("%s", err.text);
        tm_micro_batch micro = { .field = { row[0], row[1], row[2], row[3] } };
        if (tm_trainer_evaluate(trainer, &micro, &loss, &err) != TM_OK) fail_msg("%s", err.text);
        sum += loss, *targets += weight;
    }
    tm_trainer_close(trainer);
    tm_device_close(device);
    return sum;
}

static void check_family(const char *name, const tm_step_options *o, const tm_source *packed, const tm_source *plain)
{
    int64_t together, apart;
    double  a = sum_of(packed, o, 4, &together), b = sum_of(plain, o, 2, &apart);
    if (together != apart || !(fabs(a - b) <= 1e-6 * b))
        fail_msg("%s: %.9g over %d targets, alone %.9g over %d", name, a, (int)together, b, (int)apart);
}

#define EXPERTS " --model.n_experts=4 --model.n_experts_per_token=2"
TEST(packed_samples_have_their_own_loss)
{
    static const char *const mixtures[][2] = {
        { "mixtral", EXPERTS },
        { "qwen3_moe", " --model.qk_norm=true --model.moe_normalise=true" EXPERTS },
        { "deepseek", " --model.kv_lora_rank=16 --model.qk_nope_head_dim=8 --model.qk_rope_head_dim=4 "
                      "--model.v_head_dim=8 --model.n_kv_heads=2 --model.n_shared_experts=1 "
                      "--model.n_dense_layers=1" EXPERTS },
        { "gpt_oss", " --model.sliding_window=5 --model.sliding_window_every=2" EXPERTS },
    };
    tm_source *packed = open_source(true), *plain = open_source(false);
    assert_int_equal(tm_source_describe(plain)->train_samples, SAMPLES);
    assert_true(tm_source_describe(packed)->train_samples < SAMPLES / 2);
    for (int family = 0; family < (int)TM_FAMILY_MIXTRAL; family++) {
        tm_step_options o = test_family_options((tm_model_family)family);
        if (!*tm_model_optional_fields(&o.shape)) continue;
        if (o.shape.max_seq_len < SEQ) o.shape.max_seq_len = SEQ;
        check_family(tm_model_family_name(&o.shape), &o, packed, plain);
    }
    for (size_t i = 0; i < sizeof mixtures / sizeof mixtures[0]; i++) {
        char            words[600];
        tm_step_options o = test_llama_options();
        snprintf(words, sizeof words,
                 "--model.family=%s%s --model.dim=32 --model.n_layers=2 --model.n_heads=2 --model.ffn_dim=48 "
                 "--model.moe_ffn_dim=24",
                 mixtures[i][0], mixtures[i][1]);
        o.shape = test_shape_preset("tiny-llama", words);
        check_family(mixtures[i][0], &o, packed, plain);
    }
    tm_source_close(packed);
    tm_source_close(plain);
}

/* A step of sequences without answers has no gradient, not one that is no number. */
TEST(a_step_without_targets_has_no_loss)
{
    tm_device  *device = test_device_open("cpu", 1);
    tm_trainer *trainer = open_trainer(device, test_llama_options(), 2);
    int32_t     tokens[SEQ] = { 5, 6, 7 }, targets[SEQ];
    for (int t = 0; t < SEQ; t++) targets[t] = TM_IGNORED_TARGET;
    test_begin(trainer, 1, 1e-3, 1, 0);
    test_accumulate(trainer, 0, tokens, targets);
    tm_step_result result = test_update(trainer);
    assert_true(result.loss == 0 && result.grad_norm == 0);
    tm_trainer_close(trainer);
    tm_device_close(device);
}

TEST_FIXTURE(NULL, test_folder_teardown)
