/* SPDX-License-Identifier: Apache-2.0 */
/* Parameter groups: frozen ones cost nothing, formats that weights are held in, groups as text. (Numbers of each group:
 * test_update.c; what is refused: test_options.c.) */
#include "support/test.h"
#include "support/full_config.h"
#include "support/golden.h"
#include "support/training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The groups that `text` gives, as on a command line; *err says why not. */
static tm_status read_groups(tm_step_options *o, const char *text, tm_error *err)
{
    tm_config *config = test_full_config();
    char       word[512];
    char      *words[] = { word };
    snprintf(word, sizeof word, "--optimizer.groups=%s", text);
    tm_status st = tm_config_apply_arguments(config, 1, words, err);
    if (st == TM_OK) st = tm_config_finish(config, err);
    if (st == TM_OK) st = tm_groups_read(config, o->optimizer, &o->hyper, o->groups, &o->n_groups, err);
    for (int g = 0; g < o->n_groups; g++) o->groups[g].place = "test";
    tm_config_destroy(config);
    return st;
}

static tm_step_options options_with(const char *groups)
{
    tm_step_options o = test_llama_options();
    tm_error        err = { 0 };
    if (read_groups(&o, groups, &err) != TM_OK) fail_msg("%s", err.text);
    return o;
}

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
        const char *trained, *others;
        double      flops; /* of the backward pass */
        size_t      elements;
    } cases[] = {
        { "output.weight", "*", head, V * C },                                    /* dw of the head, no dx */
        { "layers.1.feed_forward.w2.weight", "*", head + 2. * N * C * F, C * F }, /* dx of the head, dw of w2 */
        { "norm.weight", "*", head, C },                                          /* dx of the head */
    };
    tm_device *device = test_device_open("cpu", 2);
    tm_chooser chooser = tm_device_chooser(device);
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        char groups[256];
        snprintf(groups, sizeof groups, "params=%s,params=%s trained=false", cases[k].trained, cases[k].others);
        tm_step_options o = options_with(groups);
        tm_step        *step = test_step_plan(&o, &chooser);
        double          wanted = 2 * layer + head + cases[k].flops;
        if (!(fabs(step->first->cost.flops - wanted) <= 1e-9 * wanted))
            fail_msg("'%s': %.15g FLOPs, by hand %.15g", cases[k].trained, step->first->cost.flops, wanted);
        assert_true(tm_schedule_flops(&step->training) == step->first->cost.flops);
        assert_int_equal(bytes_of_role(step, TM_ROLE_GRADIENT), cases[k].elements * 4);
        assert_int_equal(bytes_of_role(step, TM_ROLE_MOMENT), cases[k].elements * 8);
        tm_step_destroy(step);
    }
    tm_device_close(device);
}

/* Weights held in a smaller format: the loss of float32 weights with the same, rounded values, to the bit. */
TEST(held_formats_compute_with_the_rounded_weights)
{
    static const char *const formats[] = { "bfloat16", "float16", "float8_e5m2" };
    tm_device               *device = test_device_open("cpu", 2);
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++) {
        char groups[256];
        snprintf(groups, sizeof groups, "params=layers.*|tok_embeddings.weight trained=false format=%s", formats[f]);
        tm_step_options held = options_with(groups),
                        wide = options_with("params=layers.*|tok_embeddings.weight trained=false");
        test_batch  batch = test_batch_random(held.micro_batch, held.seq, held.shape.vocab_size, 63);
        tm_trainer *a = test_trainer_open(device, &held, 64), *b = test_trainer_open(device, &wide, 64);
        int         smaller = 0;
        for (size_t i = 0; i < tm_trainer_step_of(a)->graph->n_tensors; i++) {
            const tm_tensor *tensor = &tm_trainer_step_of(a)->graph->tensors[i];
            if (tensor->role != TM_ROLE_PARAMETER || tensor->trained) continue;
            tm_tensor_id wide_one = named(b, tensor->name);
            smaller += strcmp(tm_dtype_name(tensor->dtype), formats[f]) == 0;
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
    tm_device  *device = test_device_open("cpu", 1);
    tm_chooser  chooser = tm_device_chooser(device);
    const char *groups[] = { "params=*.wq.weight|*.wk.weight|*.wv.weight lr_scale=2", "params=*.wqkv.weight lr_scale=2",
                             "params=*.attention.w[qkv].weight lr_scale=2" };
    for (int k = 0; k < 3; k++) {
        tm_step_options o = options_with(groups[k]);
        tm_step        *step = test_step_plan(&o, &chooser);
        int             taken = 0;
        for (size_t i = 0; i < step->graph->n_tensors; i++) {
            if (step->graph->tensors[i].role != TM_ROLE_PARAMETER || step->group_of[i] == 0) continue;
            assert_non_null(strstr(step->graph->tensors[i].name, ".attention.wqkv.weight"));
            taken++;
        }
        assert_int_equal(taken, 2);
        tm_step_destroy(step);
    }
    tm_device_close(device);
}

/* As text: members between blanks, groups between commas. `said`: what is wrong. */
TEST(groups_may_be_text)
{
    static const struct {
        const char *text;
        int         n;
        const char *said;
    } cases[] = {
        { " params=*norm*   lr_scale=2  ", 2, "" },
        { "lr_scale=3 params=*norm*,params=out*", 3, "" },
        { "params=*norm* lr_scale=4,", 2, "" },
        { "", 1, "" },
        { "params=*norm*,,params=out*", 0, "lacks 'params', the pattern of its parameters' names: ''" },
        { "params=*norm* x", 0, "must be a list of maps, like {params: \"*.bias\", weight_decay: 0}; found 'x'" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_step_options o = test_llama_options();
        tm_error        err = { 0 };
        tm_status       st = read_groups(&o, cases[i].text, &err);
        if ((st == TM_OK) != !*cases[i].said || !strstr(err.text, cases[i].said)) fail_msg("%zu: %s", i, err.text);
        if (st == TM_OK) assert_int_equal(o.n_groups, cases[i].n);
        const char *scale = strstr(cases[i].text, "lr_scale=");
        if (st == TM_OK && scale) assert_float_equal(o.groups[1].lr_scale, atof(scale + 9), 1e-15);
    }
}
