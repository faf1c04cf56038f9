/* SPDX-License-Identifier: Apache-2.0 */
/* Parameter groups: frozen ones cost nothing, formats that weights are held in, groups as text. (Numbers of each group:
 * test_update.c.) */
#include "words.h"
#include "support/golden.h"

#include <math.h>

#define GROUPS "--optimizer.groups="

static tm_tensor_id named(const tm_trainer *trainer, const char *name)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    for (size_t i = 0; i < graph->n_tensors; i++)
        if (strcmp(graph->tensors[i].name, name) == 0) return (tm_tensor_id)i;
    fail_msg("there is no '%s'", name);
    return TM_NONE;
}

/* --- frozen parameters -------------------------------------------------------------------------------------------- */

static size_t bytes_of_role(const tm_step *step, tm_role role)
{
    size_t bytes = 0;
    for (size_t i = 0; i < step->graph->n_tensors; i++)
        if (step->graph->tensors[i].role == role) bytes += step->plan->places[i].bytes;
    return bytes;
}

/* By hand: 2 FLOPs per multiply-add; N rows, C wide. Two layers of wqkv (128, C), wo (C, 64), w13 (320, C), w2 (C,
 * 160), a head (96, C); causal attention of 2 heads of 32 over sequences of 32: (T + 1) / 2 keys a query. */
TEST(one_trained_tensor_costs_what_it_must)
{
    enum { N = 64, C = 64, T = 32, V = 96, F = 160 };
    static const double layer = 2. * N * C * (128 + 64 + 2 * F + F) + 4. * 64 * N * (T + 1) / 2, head = 2. * N * C * V;
    static const struct {
        const char *trained;
        double      flops; /* of the backward pass */
        size_t      elements;
    } cases[] = {
        { "output.weight", head, V * C },                                    /* dw of the head, no dx */
        { "layers.1.feed_forward.w2.weight", head + 2. * N * C * F, C * F }, /* dx of the head, dw of w2 */
        { "norm.weight", head, C },                                          /* dx of the head */
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        char groups[256];
        snprintf(groups, sizeof groups, GROUPS "[{\"params\":\"%s\"},{\"params\":\"*\",\"trained\":\"false\"}]",
                 cases[k].trained);
        tm_step_options o = step_of(SMALL_LLAMA, groups);
        tm_step        *step = test_step_of(&o);
        double          wanted = 2 * layer + head + cases[k].flops;
        if (!(fabs(step->first->cost.flops - wanted) <= 1e-9 * wanted))
            fail_msg("'%s': %.15g FLOPs, by hand %.15g", cases[k].trained, step->first->cost.flops, wanted);
        assert_true(tm_schedule_flops(&step->training) == step->first->cost.flops);
        assert_int_equal(bytes_of_role(step, TM_ROLE_GRADIENT), cases[k].elements * 4);
        assert_int_equal(bytes_of_role(step, TM_ROLE_MOMENT), cases[k].elements * 8);
        tm_step_destroy(step);
    }
}

#define HELD(format)                                                                                                   \
    GROUPS "[{\"params\":\"layers.*|tok_embeddings.weight\",\"trained\":\"false\",\"format\":\"" format "\"}]"

/* Weights held in a smaller format: the loss of float32 weights with the same, rounded values, to the bit. */
TEST(held_formats_compute_with_the_rounded_weights)
{
    static const char *const formats[] = { HELD("bfloat16"), HELD("float16"), HELD("float8_e5m2") };
    tm_device               *device = test_device_open("cpu", 2);
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++) {
        tm_step_options held = step_of(SMALL_LLAMA, formats[f]), wide = step_of(SMALL_LLAMA, HELD("float32"));
        test_batch      batch = test_batch_random(held.micro_batch, held.seq, held.shape.vocab_size, 63);
        tm_trainer     *a = test_trainer_open(device, &held, 64), *b = test_trainer_open(device, &wide, 64);
        int             smaller = 0;
        for (size_t i = 0; i < tm_trainer_step_of(a)->graph->n_tensors; i++) {
            const tm_tensor *tensor = &tm_trainer_step_of(a)->graph->tensors[i];
            if (tensor->role != TM_ROLE_PARAMETER || tensor->trained) continue;
            tm_tensor_id wide_one = named(b, tensor->name);
            smaller += tensor->dtype != TM_F32 && strstr(formats[f], tm_dtype_name(tensor->dtype)) != NULL;
            for (int64_t k = 0; k < tm_shape_elements(tensor->shape); k++)
                golden_set(b, wide_one, k, golden_get(a, (tm_tensor_id)i, k));
        }
        assert_int_equal(smaller, 13);
        for (int64_t t = 1; t <= 2; t++) {
            double x = test_step(a, t, 1e-2, 0, &batch).loss, y = test_step(b, t, 1e-2, 0, &batch).loss;
            if (!(x == y)) fail_msg("%s, step %d: %.17g, with float32 %.17g", formats[f], (int)t, x, y);
        }
        tm_trainer_close(a);
        tm_trainer_close(b);
        test_batch_fini(&batch);
    }
    tm_device_close(device);
}

/* All pieces of a fused matrix, or its own name, take it. */
TEST(fused_matrices_go_as_a_whole)
{
    const char *groups[] = { GROUPS "[{\"params\":\"*.wq.weight|*.wk.weight|*.wv.weight\"}]",
                             GROUPS "[{\"params\":\"*.wqkv.weight\"}]",
                             GROUPS "[{\"params\":\"*.attention.w[qkv].weight\"}]" };
    for (int k = 0; k < 3; k++) {
        tm_step_options o = step_of(SMALL_LLAMA, groups[k]);
        tm_step        *step = test_step_of(&o);
        int             taken = 0;
        for (size_t i = 0; i < step->graph->n_tensors; i++) {
            if (step->graph->tensors[i].role != TM_ROLE_PARAMETER || step->group_of[i] == 0) continue;
            assert_non_null(strstr(step->graph->tensors[i].name, ".attention.wqkv.weight"));
            taken++;
        }
        assert_int_equal(taken, 2);
        tm_step_destroy(step);
    }
}

/* As text: members between blanks, groups between commas. */
TEST(groups_may_be_text)
{
    static const struct {
        const char *text;
        int         n;
        double      scale; /* of the first; n 0: it is none */
    } cases[] = { { " params=*norm*   lr_scale=2  ", 2, 2 }, { "lr_scale=3 params=*norm*,params=out*", 3, 3 },
                  { "params=*norm* lr_scale=4,", 2, 4 },     { "", 1, 0 },
                  { "params=*norm*,,params=out*", 0, 0 },    { "params=*norm* x", 0, 0 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_step_options o = test_llama_options();
        tm_config      *config = test_full_config();
        tm_error        err = { 0 };
        char            word[256];
        char           *words[] = { word };
        snprintf(word, sizeof word, GROUPS "%s", cases[i].text);
        tm_status st = tm_config_apply_arguments(config, 1, words, &err);
        if (st == TM_OK) st = tm_config_finish(config, &err);
        if (st == TM_OK) st = tm_groups_read(config, o.optimizer, &o.hyper, o.groups, &o.n_groups, &err);
        if ((st == TM_OK) != (cases[i].n > 0)) fail_msg("%s: %s", word, err.text);
        if (st == TM_OK) assert_int_equal(o.n_groups, cases[i].n);
        if (cases[i].scale > 0) assert_float_equal(o.groups[1].lr_scale, cases[i].scale, 1e-15);
        tm_config_destroy(config);
    }
}
