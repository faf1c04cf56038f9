/* SPDX-License-Identifier: Apache-2.0 */
/* A sequence read token by token, with what was kept of the earlier ones, has the logits of the forward pass of
 * training over all of it. */
#include "support/test.h"
#include "support/golden.h"
#include "support/hf_folder.h"
#include "support/training.h"
#include "train/generate/decode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 70, VOCAB = 96 };

/* In which all is computed, and how far logits may be apart then. */
static const tm_precision *precision = &tm_precision_f32;
static double              bound = 2e-5;

static tm_trainer *open_trainer(tm_device *device, const tm_model_shape *shape)
{
    tm_step_options o = { .shape = *shape,
                          .precision = precision,
                          .micro_batch = 1,
                          .seq = LENGTH,
                          .accumulation = 1,
                          .optimizer = tm_optimizer_find("SGD"),
                          .sample = true };
    return test_trainer_open(device, &o, 7);
}

/* The weights of one into the other, by name. */
static void copy_weights(const tm_trainer *from, tm_decoder *to)
{
    const tm_graph *a = tm_trainer_step_of(from)->graph, *b = tm_decoder_forward(to)->plan->graph;
    for (size_t i = 0; i < b->n_tensors; i++)
        for (size_t k = 0; b->tensors[i].role == TM_ROLE_PARAMETER && k < a->n_tensors; k++) {
            if (a->tensors[k].role != TM_ROLE_PARAMETER || strcmp(a->tensors[k].name, b->tensors[i].name) != 0)
                continue;
            tm_error err = { 0 };
            void    *values = test_tensor_read(from, (tm_tensor_id)k);
            assert_int_equal(tm_forward_write(tm_decoder_forward(to), (tm_tensor_id)i, 0, values,
                                              tm_tensor_bytes(a->tensors[k].shape, a->tensors[k].dtype), &err),
                             TM_OK);
            free(values);
        }
}

/* (LENGTH, VOCAB) logits of the forward pass of training; the caller frees them. */
static double *forward(tm_trainer *trainer, const int32_t *tokens)
{
    tm_error err = { 0 };
    double  *z = malloc((size_t)LENGTH * VOCAB * sizeof *z);
    for (int32_t t = 0; t < LENGTH; t++)
        assert_int_equal(tm_trainer_logits(trainer, tokens, t, z + t * VOCAB, &err), TM_OK);
    return z;
}

/* Feeds the tokens in the given parts and compares the logits behind each. */
static void feed(tm_decoder *decoder, const int32_t *tokens, const double *wanted, const int *parts)
{
    double   logits[VOCAB];
    tm_error err = { 0 };
    int64_t  at = 0;
    tm_decoder_restart(decoder);
    for (; *parts; parts++) {
        assert_int_equal(tm_decoder_feed(decoder, tokens + at, *parts, logits, &err), TM_OK);
        at += *parts;
        assert_int_equal(tm_decoder_position(decoder), at);
        for (int v = 0; v < VOCAB; v++)
            if (!(fabs(logits[v] - wanted[(at - 1) * VOCAB + v]) <= bound))
                fail_msg("token %lld, logit %d: %.9g, wanted %.9g", (long long)at, v, logits[v],
                         wanted[(at - 1) * VOCAB + v]);
    }
}

static void check(const tm_model_shape *shape)
{
    tm_device  *device = test_device_open("cpu", 2);
    tm_trainer *trainer = open_trainer(device, shape);
    int32_t     tokens[LENGTH];
    tm_decoder *decoder;
    tm_error    err = { 0 };
    golden_tokens(tokens, LENGTH, VOCAB);
    double *wanted = forward(trainer, tokens);
    size_t  n;
    tm_trainer_tensors(trainer, &n);
    if (tm_decoder_open(device, shape, precision, LENGTH, 1, &decoder, &err) != TM_OK) fail_msg("%s", err.text);
    /* tokens of a prompt are read many at a time, but for tables that turn */
    assert_int_equal(tm_decoder_forward(decoder)->plan->graph->n_segments,
                     shape->window > 0 && shape->window < LENGTH ? 1 : 2);
    copy_weights(trainer, decoder);
    feed(decoder, tokens, wanted, (const int[]){ 1, 1, 2, 30, 31, 5, 0 });
    feed(decoder, tokens, wanted, (const int[]){ 40, 1, 1, 1, 27, 0 }); /* after another sequence, to the last place */
    feed(decoder, tokens, wanted, (const int[]){ 70, 0 });
    free(wanted);
    tm_decoder_close(decoder);
    tm_trainer_close(trainer);
    tm_device_close(device);
}

TEST(llama_reads_token_by_token)
{
    tm_step_options o = test_llama_options();
    check(&o.shape);
    o.shape.rope_interleaved = true;
    o.shape.tied = true;
    check(&o.shape);
}

TEST(gpt_reads_token_by_token)
{
    tm_step_options o = test_gpt_options();
    check(&o.shape);
}

TEST(a_window_turns_its_table)
{
    tm_step_options o = test_llama_options();
    o.shape.family = TM_FAMILY_MISTRAL;
    o.shape.window = 11;
    check(&o.shape);
    o.shape.window = LENGTH;
    check(&o.shape);
    o.shape.window = 1; /* every token sees itself */
    check(&o.shape);
}

/* Layers with tables of one length share the places in them, however many they are. */
TEST(windows_by_turns_have_two_tables)
{
    tm_step_options o = test_llama_options();
    o.shape.n_layers = 20;
    o.shape.dim = 32, o.shape.n_heads = o.shape.n_kv_heads = 1, o.shape.ffn_dim = 32;
    o.shape.window = 11;
    o.shape.window_every = 2;
    check(&o.shape);
}

TEST(weights_of_bfloat16_are_read_as_they_are)
{
    tm_step_options llama = test_llama_options(), gpt = test_gpt_options();
    precision = &tm_precision_bf16_pure;
    bound = 0.02;
    llama.shape.tied = true;
    check(&llama.shape);
    check(&gpt.shape);
    llama.shape.family = TM_FAMILY_MISTRAL;
    llama.shape.window = 11;
    check(&llama.shape);
    precision = &tm_precision_f32;
    bound = 2e-5;
}

/* Before there is any memory that would be given back. */
TEST(a_format_without_kernels_is_refused)
{
    tm_step_options o = test_llama_options();
    tm_device      *device = test_device_open("cpu", 1);
    tm_decoder     *decoder = NULL;
    tm_error        err = { 0 };
    assert_int_equal(tm_decoder_open(device, &o.shape, &tm_precision_f64, LENGTH, 1, &decoder, &err), TM_UNSUPPORTED);
    if (!strstr(err.text, "float64")) fail_msg("%s", err.text);
    assert_null(decoder);
    tm_device_close(device);
}
