/* SPDX-License-Identifier: Apache-2.0 */
/* Samples for fine-tuning, and pairs, have the same losses packed as in rows of their own, in every family. */
#include "support/test.h"
#include "base/log.h"
#include "data/source.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/training.h"

enum { SEQ = 96, SAMPLES = 24 };

/* Prompts with answers, or with a chosen and a rejected one, whose lengths differ. */
static void write_rows(void)
{
    tm_text text[2] = { { 0 } };
    for (int i = 0; i < SAMPLES; i++)
        for (int pairs = 0; pairs < 2; pairs++) {
            tm_text *to = &text[pairs];
            tm_text_printf(to, "{\"prompt\": \"%c%d", 'a' + i, i);
            for (int k = 0; k < i * 7 % (pairs ? 9 : 29); k++) tm_text_printf(to, "%c", 'a' + (i * 5 + k * k) % 26);
            tm_text_printf(to, "\", \"%s\": \"", pairs ? "chosen" : "completion");
            for (int k = 0; k < 2 + i * 3 % 17; k++) tm_text_printf(to, "%c", 'A' + (i + k * 3) % 26);
            if (pairs) tm_text_add(to, "\", \"rejected\": \"");
            for (int k = 0; pairs && k < 2 + i * 5 % 13; k++) tm_text_printf(to, "%c", 'a' + (i + k * 7) % 26);
            tm_text_add(to, "\"}\n");
        }
    test_file_write(test_folder(), "sft", text[0].data);
    test_file_write(test_folder(), "preference", text[1].data);
    tm_text_fini(&text[0]), tm_text_fini(&text[1]);
}

/* Over all targets, or pairs, of all samples, which are so many. */
static double sum_of(const char *name, tm_step_options o, bool packed, int64_t *weights)
{
    tm_source_options options = {
        .name = name, .path = test_in_folder(name), .vocab = 257, .seq = SEQ, .seed = 1, .sft = { .packed = packed }
    };
    tm_source *source;
    double     sum = 0;
    o.shape.vocab_size = 257;
    o.micro_batch = o.accumulation = 1;
    o.seq = SEQ;
    assert_ok(tm_source_fields(&options, o.fields, &o.n_fields, err));
    assert_ok(tm_source_open(&options, &source, err));
    tm_trainer *trainer = test_trainer_on("cpu", 2, &o, 3);
    int64_t     rows = tm_source_describe(source)->train_samples;
    assert_true(packed ? rows < SAMPLES / 2 : rows == SAMPLES);
    *weights = 0;
    for (int64_t i = 0; i < rows; i++) {
        int32_t scratch[SEQ + 1], row[5][SEQ]; /* or float */
        double  loss;
        int64_t weight;
        void   *at[] = { row[0], row[1], row[2], row[3], row[4] };
        assert_ok(tm_source_row(source, TM_SPLIT_TRAIN, i, scratch, at, &weight, err));
        tm_micro_batch micro = { .field = { row[0], row[1], row[2], row[3], row[4] } };
        assert_ok(tm_trainer_evaluate(trainer, &micro, &loss, err));
        sum += loss, *weights += weight;
    }
    test_trainer_end(trainer);
    tm_source_close(source);
    return sum;
}

static void check_family(const char *name, const tm_step_options *o)
{
    const char *source = o->preference.beta > 0 ? "preference" : "sft";
    int64_t     together, apart;
    double      a = sum_of(source, *o, true, &together), b = sum_of(source, *o, false, &apart);
    if (together != apart || !(fabs(a - b) <= 1e-6 * b))
        fail_msg("%s: %.9g over %d, alone %.9g over %d", name, a, (int)together, b, (int)apart);
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
    tm_log_set_level(TM_LOG_ERROR);
    write_rows();
    for (int family = 0; family < (int)TM_FAMILY_MIXTRAL; family++) {
        tm_step_options o = test_family_options((tm_model_family)family);
        if (!*tm_model_optional_fields(&o.shape)) continue;
        if (o.shape.max_seq_len < SEQ) o.shape.max_seq_len = SEQ;
        check_family(tm_model_family_name(&o.shape), &o);
    }
    for (size_t i = 0; i < sizeof mixtures / sizeof mixtures[0]; i++) {
        char            words[600];
        tm_step_options o = test_llama_options();
        snprintf(words, sizeof words,
                 "--model.family=%s%s --model.dim=32 --model.n_layers=2 --model.n_heads=2 --model.ffn_dim=48 "
                 "--model.moe_ffn_dim=24",
                 mixtures[i][0], mixtures[i][1]);
        o.shape = test_shape_preset("tiny-llama", words);
        check_family(mixtures[i][0], &o);
    }
    tm_step_options pairs = test_llama_options();
    pairs.preference = (tm_preference_attr){ .kind = TM_PREFERENCE_SIGMOID, .beta = 0.2 };
    check_family("pairs", &pairs);
}

/* A step of sequences without answers has no gradient, not one that is no number. */
TEST(a_step_without_targets_has_no_loss)
{
    tm_step_options o = test_llama_options();
    tm_trainer     *trainer = test_trainer_on("cpu", 1, &o, 3);
    int32_t         tokens[SEQ] = { 5, 6, 7 }, targets[SEQ];
    for (int t = 0; t < SEQ; t++) targets[t] = TM_IGNORED_TARGET;
    test_begin(trainer, 1, 1e-3, 1, 0);
    test_accumulate(trainer, 0, tokens, targets);
    tm_step_result result = test_update(trainer);
    assert_true(result.loss == 0 && result.grad_norm == 0);
    test_trainer_end(trainer);
}

TEST_FIXTURE(NULL, test_folder_teardown)
