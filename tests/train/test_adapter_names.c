/* SPDX-License-Identifier: Apache-2.0 */
/* Names of modules: lists of them, what of a list a module is, ours and those in files; which tensors may have
 * adapters.
 */
#include "support/test.h"
#include "support/training.h"
#include "train/adapter/names.h"

#include <stdio.h>
#include <string.h>

TEST(a_name_ends_another_behind_a_dot)
{
    static const struct {
        bool        same;
        const char *a, *b;
    } cases[] = {
        { true, "layers.0.attention.wq", "layers.0.attention.wq" },
        { true, "model.layers.0.wq", "layers.0.wq" },
        { true, "wq", "a.wq" },
        { true, ".wq", "wq" },
        { false, "awq", "wq" },
        { false, "a.wq", "bq" },
        { false, "a.wq", "" },
        { false, "", "a.wq" },
        { false, "", "" },
        { false, "wq", "wk" },
        { false, "a.wq", ".q" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int turned = 0; turned < 2; turned++) {
            const char *a = turned ? cases[i].b : cases[i].a, *b = turned ? cases[i].a : cases[i].b;
            if (adapter_same_name(a, b) != cases[i].same) fail_msg("'%s' and '%s'", a, b);
        }
}

TEST(both_names_lose_their_ending)
{
    static const struct {
        const char *preset, *piece, *ours, *theirs;
    } cases[] = {
        { "tiny-llama", "layers.1.attention.wq.weight", "layers.1.attention.wq", "model.layers.1.self_attn.q_proj" },
        { "tiny-llama", "layers.1.attention.wq", "layers.1.attention.wq", "" },
        { "tiny-llama", "layers.1.weights", "layers.1.weights", "" },
        { "tiny-llama", ".weight", ".weight", "" }, /* nothing would be left */
        { "tiny-llama", "a.weight", "a", "" },
        { "gpt-small", "h.3.attn.c_proj.weight", "h.3.attn.c_proj", "transformer.h.3.attn.c_proj" },
        { "gpt-small", "h.3.attn.c_proj.bias", "h.3.attn.c_proj.bias", "transformer.h.3.attn.c_proj.bias" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_model_shape shape = test_shape_preset(cases[i].preset, "");
        adapter_names  names = adapter_names_of(&shape, cases[i].piece);
        assert_string_equal(names.ours.data, cases[i].ours);
        assert_int_equal(names.ours.length, strlen(cases[i].ours));
        assert_string_equal(names.theirs.data, cases[i].theirs);
        adapter_names_fini(&names);
    }
}

TEST(modules_that_files_do_not_tell_apart)
{
    const tm_model_shape gpt = test_shape_preset("gpt-small", ""), llama = test_shape_preset("tiny-llama", "");
    const char *const q = "layers.0.attention.wq.weight", *const k = "layers.0.attention.wk.weight";
    assert_true(adapter_same_module(&gpt, "h.0.attn.c_attn.weight", "h.0.attn.c_attn.weight"));
    assert_false(adapter_same_module(&gpt, "h.0.attn.c_attn.weight", "h.1.attn.c_attn.weight"));
    assert_true(adapter_same_module(&llama, q, q));
    assert_false(adapter_same_module(&llama, q, k));
    assert_false(adapter_same_module(&llama, q, "nowhere"));
    assert_false(adapter_same_module(&llama, "nowhere", q));
    assert_false(adapter_same_module(&llama, "nowhere", "nowhere"));
}

TEST(lists_of_names_are_read)
{
    static adapter_list list;
    tm_error            err = { 0 };
    char                many[200] = "";
    list = (adapter_list){ 0 };
    assert_int_equal(adapter_list_read(&list, "lora.targets", NULL, "here", &err), TM_OK);
    assert_int_equal(list.n, 0);
    assert_int_equal(
        adapter_list_read(&list, "lora.targets",
                          "wq, output_proj|linear_qkv,,all-linear,linear_proj,linear_fc1,linear_fc2,o_proj", "here",
                          &err),
        TM_OK);
    static const char *const wanted[] = { "wq", "o_proj", "wqkv", "wo", "w13", "w2", "o_proj" };
    assert_int_equal(list.n, 7);
    assert_true(list.all);
    for (int i = 0; i < 7; i++) assert_string_equal(list.name[i], wanted[i]);
    for (int more = 0; more < 2; more++) {
        list = (adapter_list){ 0 };
        many[0] = '\0';
        for (int i = 0; i < TM_MAX_TARGETS + more; i++) snprintf(many + strlen(many), 16, "n%d,", i);
        strcat(many, "all-linear"); /* which is none of them */
        assert_int_equal(adapter_list_read(&list, "lora.targets", many, "here", &err), more ? TM_INVALID : TM_OK);
        assert_int_equal(list.n, 32);
    }
    assert_string_equal(err.text, "lora.targets (here) has more than 32 names; use patterns");
}

/* What is taken is marked; of what is not, the nearest last part of a name is kept, the first of equally near ones. */
TEST(lists_of_names_are_looked_up)
{
    static adapter_list list;
    tm_error            err = { 0 };
    list = (adapter_list){ 0 };
    assert_int_equal(adapter_list_read(&list, "lora.targets", "w[kq],layers.0.*,mlp", "here", &err), TM_OK);
    assert_false(adapter_listed(&list, ""));
    assert_null(list.nearest.data);
    assert_true(adapter_listed(&list, "layers.1.attention.wq"));
    assert_true(list.used[0] && !list.used[1] && !list.used[2]);
    assert_string_equal(list.nearest.data, "wq"); /* 3 from mlp */
    assert_int_equal(list.distance, 3);
    assert_false(adapter_listed(&list, "layers.1.mxx"));
    assert_int_equal(list.distance, 2);
    assert_string_equal(list.nearest.data, "mxx");
    assert_false(adapter_listed(&list, "xlx"));
    assert_string_equal(list.nearest.data, "mxx");
    assert_false(adapter_listed(&list, "mlpx"));
    assert_int_equal(list.distance, 1);
    assert_string_equal(list.nearest.data, "mlpx");
    assert_true(adapter_listed(&list, "layers.0.wv"));
    assert_true(list.used[0] && list.used[1] && !list.used[2]);
    assert_true(adapter_listed(&list, "mlp"));
    assert_true(list.used[2]);
    tm_text_fini(&list.nearest);
    list = (adapter_list){ 0 };
    assert_int_equal(adapter_list_read(&list, "lora.targets", "wq,mlp", "here", &err), TM_OK);
    assert_true(adapter_listed(&list, "wq"));
    assert_false(adapter_listed(&list, "wqx")); /* near to what is there already */
    assert_int_equal(list.distance, 3);
    assert_string_equal(list.nearest.data, "wq");
    tm_text_fini(&list.nearest);
}

TEST(matrices_of_blocks_may_have_adapters)
{
    const tm_tensor matrix = { .name = "layers.0.wq.weight",
                               .role = TM_ROLE_PARAMETER,
                               .base = TM_NONE,
                               .adapts = TM_NONE,
                               .shape = tm_shape_2(4, 3),
                               .layer = 0 };
    tm_tensor       others[10];
    assert_true(tm_adapters_may_adapt(&matrix));
    for (int i = 0; i < 10; i++) others[i] = matrix;
    others[0].role = TM_ROLE_MOMENT;
    others[1].base = 0; /* a view */
    others[2].adapts = 0;
    others[3].shape = tm_shape_1(12);
    others[4].shape = tm_shape_3(2, 2, 3);
    others[5].layer = -1;
    others[6].as_stored = true;
    others[7].name = "layers.0.wq.bias";
    others[8].name = ".weight"; /* of no module */
    others[9].name = "layers.0.wq_norm.weight";
    for (int i = 0; i < 10; i++)
        if (tm_adapters_may_adapt(&others[i])) fail_msg("%d may", i);
    others[7].name = "a.weight";
    assert_true(tm_adapters_may_adapt(&others[7]));
}
