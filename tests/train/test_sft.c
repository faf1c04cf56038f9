/* SPDX-License-Identifier: Apache-2.0 */
/* A sample of data for fine-tuning has the same loss packed with others as in a row of its own, in every family. */
#include "support/test.h"
#include "base/log.h"
#include "data/source.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQ = 96, SAMPLES = 24 };

typedef struct {
    int32_t tokens[SEQ], targets[SEQ], positions[SEQ], first_key[SEQ];
    int64_t weight;
} row;

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
    test_file_write(test_folder(), "rows.jsonl", text.data);
    tm_text_fini(&text);
    tm_source_options o = { .name = "sft",
                            .path = test_in_folder("rows.jsonl"),
                            .vocab = 257,
                            .seq = SEQ,
                            .seed = 1,
                            .sft = { .packed = packed } };
    if (tm_source_open(&o, &source, &err) != TM_OK) fail_msg("%s", err.text);
    return source;
}

static void get_row(const tm_source *source, int64_t index, row *out)
{
    int32_t  scratch[SEQ + 1];
    tm_error err = { 0 };
    void    *at[] = { out->tokens, out->targets, out->positions, out->first_key };
    memset(out, 0, sizeof *out);
    if (tm_source_row(source, TM_SPLIT_TRAIN, index, scratch, at, &out->weight, &err) != TM_OK)
        fail_msg("%s", err.text);
}

/* The sum over the row's targets. */
static double loss_of(tm_trainer *trainer, const row *r)
{
    tm_error       err = { 0 };
    tm_micro_batch micro = { .field = { r->tokens, r->targets, r->positions, r->first_key } };
    double         sum = 0;
    if (tm_trainer_evaluate(trainer, &micro, &sum, &err) != TM_OK) fail_msg("%s", err.text);
    return sum;
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

/* The targets of the sample that begins at `first` only; its length. */
static int64_t keep_sample(const row *packed, int64_t first, row *out)
{
    int64_t n = 0;
    *out = *packed;
    out->weight = 0;
    for (int64_t t = 0; t < SEQ; t++) {
        bool own = packed->first_key[t] == first;
        n += own;
        if (!own) out->targets[t] = TM_IGNORED_TARGET;
        out->weight += out->targets[t] != TM_IGNORED_TARGET;
    }
    return n;
}

static void check_family(const char *name, const tm_step_options *o, const tm_source *packed, const tm_source *plain)
{
    tm_device  *device = test_device_open("cpu", 2);
    tm_trainer *together = open_trainer(device, *o, 4), *apart = open_trainer(device, *o, 2);
    int64_t     rows = tm_source_describe(packed)->train_samples, met = 0;
    for (int64_t i = 0; i < rows; i++) {
        row    r, one, alone;
        double sum = 0;
        get_row(packed, i, &r);
        for (int64_t first = 0; first < SEQ; first++) {
            if (r.first_key[first] != first) continue;
            int64_t n = keep_sample(&r, first, &one);
            if (one.weight == 0) continue; /* what is left of the row */
            for (int64_t k = 0; k < SAMPLES; k++) {
                get_row(plain, k, &alone);
                if (memcmp(alone.tokens, r.tokens + first, (size_t)n * sizeof *alone.tokens) == 0) break;
            }
            assert_int_equal(alone.weight, one.weight);
            double a = loss_of(together, &one), b = loss_of(apart, &alone);
            if (!(fabs(a - b) <= 1e-5 * b))
                fail_msg("%s: sample at %d of row %d: %.9g, alone %.9g", name, (int)first, (int)i, a, b);
            sum += a;
            met++;
        }
        double whole = loss_of(together, &r); /* and the row has the loss of its samples */
        if (!(fabs(whole - sum) <= 1e-5 * sum))
            fail_msg("%s: row %d: %.9g, its samples %.9g", name, (int)i, whole, sum);
    }
    assert_int_equal(met, SAMPLES);
    tm_trainer_close(together);
    tm_trainer_close(apart);
    tm_device_close(device);
}

#define EXPERTS " --model.n_experts=4 --model.n_experts_per_token=2"
TEST(packed_samples_have_their_own_loss)
{
    static const struct {
        const char *name, *more;
    } mixtures[] = {
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
                 mixtures[i].name, mixtures[i].more);
        o.shape = test_shape_preset("tiny-llama", words);
        check_family(mixtures[i].name, &o, packed, plain);
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
