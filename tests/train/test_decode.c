/* SPDX-License-Identifier: Apache-2.0 */
/* A sequence read token by token, with what was kept of the earlier ones, has the logits of the forward pass of
 * training over all of it. */
#include "support/test.h"
#include "support/golden.h"
#include "support/training.h"
#include "train/generate/decode.h"

enum { LENGTH = 70, VOCAB = 96 };

/* The weights of one into the other, by name. */
static void copy_weights(const tm_trainer *from, tm_decoder *to)
{
    const tm_graph *a = tm_trainer_step_of(from)->graph, *b = tm_decoder_forward(to)->plan->graph;
    for (size_t i = 0; i < b->n_tensors; i++)
        for (size_t k = 0; b->tensors[i].role == TM_ROLE_PARAMETER && k < a->n_tensors; k++) {
            if (a->tensors[k].role != TM_ROLE_PARAMETER || strcmp(a->tensors[k].name, b->tensors[i].name) != 0)
                continue;
            void  *values = test_tensor_read(from, (tm_tensor_id)k);
            size_t bytes = tm_tensor_bytes(a->tensors[k].shape, a->tensors[k].dtype);
            assert_ok(tm_forward_write(tm_decoder_forward(to), (tm_tensor_id)i, 0, values, bytes, err));
            free(values);
        }
}

/* Tokens in parts, the logits behind each beside those of training; after another sequence, to the last place. */
static void check(const tm_model_shape *shape, const tm_precision *precision, double bound)
{
    static const int parts[][7] = { { 1, 1, 2, 30, 31, 5 }, { 40, 1, 1, 1, 27 }, { 70 } };
    tm_step_options  o = { .shape = *shape,
                           .precision = precision,
                           .micro_batch = 1,
                           .seq = LENGTH,
                           .accumulation = 1,
                           .optimizer = tm_optimizer_find("SGD"),
                           .sample = true };
    tm_device       *device = test_device_open("cpu", 2);
    tm_trainer      *trainer = test_trainer_open(device, &o, 7);
    int32_t          tokens[LENGTH];
    double           wanted[LENGTH][VOCAB], logits[VOCAB];
    tm_decoder      *decoder;
    golden_tokens(tokens, LENGTH, VOCAB);
    for (int32_t t = 0; t < LENGTH; t++) assert_ok(tm_trainer_logits(trainer, tokens, t, wanted[t], err));
    assert_ok(tm_decoder_open(device, shape, precision, LENGTH, 1, &decoder, err));
    /* tokens of a prompt are read many at a time, but for tables that turn */
    assert_int_equal(tm_decoder_forward(decoder)->plan->graph->n_segments,
                     shape->window > 0 && shape->window < LENGTH ? 1 : 2);
    copy_weights(trainer, decoder);
    for (int i = 0; i < 3; i++) {
        int64_t at = 0;
        tm_decoder_restart(decoder);
        for (const int *part = parts[i]; *part; part++) {
            assert_ok(tm_decoder_feed(decoder, tokens + at, *part, logits, err));
            at += *part;
            assert_int_equal(tm_decoder_position(decoder), at);
            for (int v = 0; v < VOCAB; v++)
                if (!(fabs(logits[v] - wanted[at - 1][v]) <= bound))
                    fail_msg("token %d, logit %d: %.9g, wanted %.9g", (int)at, v, logits[v], wanted[at - 1][v]);
        }
    }
    tm_decoder_close(decoder);
    tm_trainer_close(trainer);
    tm_device_close(device);
}

TEST(models_read_token_by_token)
{
    static const int windows[] = { 0, 11, LENGTH, 1 }; /* every token sees itself */
    for (int i = 0; i < 4; i++) {
        tm_step_options o = test_llama_options();
        if (i > 0) o.shape.family = TM_FAMILY_MISTRAL;
        o.shape.window = windows[i];
        check(&o.shape, &tm_precision_f32, 2e-5);
        o.shape.rope_interleaved = o.shape.tied = i == 0;
        if (i == 0) check(&o.shape, &tm_precision_f32, 2e-5);
        if (i < 2) check(&o.shape, &tm_precision_bf16_pure, 0.02); /* weights are read as they are */
        if (i == 0) o = test_gpt_options();
        if (i == 0) check(&o.shape, &tm_precision_f32, 2e-5);
        if (i == 0) check(&o.shape, &tm_precision_bf16_pure, 0.02);
    }
}

/* Layers with tables of one length share the places in them, however many they are. */
TEST(windows_by_turns_have_two_tables)
{
    tm_step_options o = test_llama_options();
    o.shape.n_layers = 20;
    o.shape.dim = 32, o.shape.n_heads = o.shape.n_kv_heads = 1, o.shape.ffn_dim = 32;
    o.shape.window = 11;
    o.shape.window_every = 2;
    check(&o.shape, &tm_precision_f32, 2e-5);
}

/* Before there is any memory that would be given back. */
TEST(a_format_without_kernels_is_refused)
{
    tm_step_options o = test_llama_options();
    tm_device      *device = test_device_open("cpu", 1);
    tm_decoder     *decoder = NULL;
    assert_refused(tm_decoder_open(device, &o.shape, &tm_precision_f64, LENGTH, 1, &decoder, err), TM_UNSUPPORTED,
                   "float64");
    assert_null(decoder);
    tm_device_close(device);
}
