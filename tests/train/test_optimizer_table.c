/* SPDX-License-Identifier: Apache-2.0 */
/* The table of optimizers: found by name, the keys that each reads, whose rules there are, what is a parameter's state,
 * and the smallest number that Adafactor adds where none is given. */
#include "support/test.h"
#include "support/training.h"
#include "train/optimizer/optimizer.h"

#include <math.h>
#include <string.h>

TEST(optimizers_are_found_by_name)
{
    static const char *const names[] = { "AdamW", "AdamW8bit", "SGD", "Adafactor", "Muon" };
    for (int i = 0; i < 5; i++) {
        assert_non_null(tm_optimizer_at(i));
        assert_string_equal(tm_optimizer_at(i)->name, names[i]);
        assert_ptr_equal(tm_optimizer_find(names[i]), tm_optimizer_at(i));
    }
    assert_ptr_equal(tm_optimizer_find("adamw"), &tm_optimizer_adamw);
    assert_null(tm_optimizer_at(-1));
    assert_null(tm_optimizer_at(5));
    assert_null(tm_optimizer_find("Adam"));
    assert_null(tm_optimizer_find(""));
}

TEST(each_reads_its_keys)
{
    static const char *const keys[] = { "beta1",     "beta2", "eps",  "eps1",        "momentum",
                                        "kahan_sum", "beta",  "beta", "beta1,beta2", "" };
    static const char *const read[] = { "1110010000", "1110000000", "0000100000", "0001000000", "1110100000" };
    static const char *const owners[] = { "torchao", "bitsandbytes", "torch", "megatron", "mega", "torch|megatron" };
    static const char *const defined[] = { "000000", "110000", "000000", "000000", "001100" };
    for (int i = 0; i < 5; i++) {
        for (int k = 0; k < 10; k++)
            if (tm_optimizer_reads(tm_optimizer_at(i), keys[k]) != (read[i][k] == '1'))
                fail_msg("%s, '%s'", tm_optimizer_at(i)->name, keys[k]);
        for (int k = 0; k < 6; k++)
            if (tm_optimizer_defines(tm_optimizer_at(i), owners[k]) != (defined[i][k] == '1'))
                fail_msg("%s, '%s'", tm_optimizer_at(i)->name, owners[k]);
    }
    assert_int_equal(tm_definition_find("torchao"), TM_DEFINED_TORCHAO);
    assert_int_equal(tm_definition_find("bitsandbytes"), TM_DEFINED_BITSANDBYTES);
    assert_int_equal(tm_definition_find("torch"), TM_DEFINED_TORCH);
    assert_int_equal(tm_definition_find("megatron"), TM_DEFINED_MEGATRON);
    assert_int_equal(tm_definition_find("nobody"), TM_DEFINED_TORCHAO);
    assert_int_equal(tm_definition_find(NULL), TM_DEFINED_TORCHAO);
}

/* Moments only, of all of the parameter's name and a dot. */
TEST(a_state_is_of_one_parameter)
{
    tm_graph    *graph = tm_graph_create(&tm_precision_f32);
    tm_tensor_id w = tm_graph_tensor_as(graph, "w", TM_ROLE_PARAMETER, tm_shape_1(4), TM_F32);
    tm_graph_tensor_as(graph, "w.exp_avg", TM_ROLE_GRADIENT, tm_shape_1(4), TM_F32);
    tm_graph_tensor_as(graph, "w_exp_avg", TM_ROLE_MOMENT, tm_shape_1(4), TM_F32);
    tm_graph_tensor_as(graph, "v.exp_avg", TM_ROLE_MOMENT, tm_shape_1(4), TM_F32);
    tm_graph_tensor_as(graph, "w.exp_avg_sq", TM_ROLE_MOMENT, tm_shape_1(4), TM_F32);
    assert_int_equal(tm_optimizer_state_of(graph, w, "exp_avg"), TM_NONE);
    tm_tensor_id own = tm_graph_tensor_as(graph, "w.exp_avg", TM_ROLE_MOMENT, tm_shape_1(4), TM_F32);
    assert_int_equal(tm_optimizer_state_of(graph, w, "exp_avg"), own);
    assert_int_equal(tm_optimizer_state_of(graph, w, "exp_avg_sq"), own - 1);
    tm_graph_destroy(graph);
}

/* From 1 to the next number of the weights' format. */
TEST(what_adafactor_adds_is_of_the_format)
{
    static const struct {
        tm_dtype dtype;
        double   given, wanted;
    } cases[] = { { TM_F32, NAN, 0x1p-23 }, { TM_F64, NAN, 0x1p-52 }, { TM_BF16, NAN, 0x1p-7 }, { TM_BF16, 0.5, 0.5 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_graph *graph = tm_graph_create(&tm_precision_f32);
        tm_hyper  hyper = { .beta2_decay = -0.8, .eps1 = cases[i].given, .eps2 = 1e-3, .clip_threshold = 1 };
        tm_update update = { 0 };
        tm_graph_segment(graph, "update");
        update.parameter = tm_graph_tensor_as(graph, "w", TM_ROLE_PARAMETER, tm_shape_2(4, 8), cases[i].dtype);
        update.gradient = tm_graph_tensor_as(graph, "g", TM_ROLE_GRADIENT, tm_shape_2(4, 8), TM_F32);
        update.scalars = tm_graph_tensor_as(graph, "s", TM_ROLE_SCALAR, tm_shape_1(TM_SCALAR_COUNT), TM_F64);
        update.clip = tm_graph_tensor_as(graph, "c", TM_ROLE_SCALAR, tm_shape_1(2), TM_F64);
        tm_optimizer_add(graph, &tm_optimizer_adafactor, &hyper, update);
        const tm_adafactor_attr *attr = graph->segment->nodes[0].attr;
        assert_int_equal(graph->segment->nodes[0].op, TM_OP_adafactor);
        assert_true(!(attr->eps1 < cases[i].wanted) && !(attr->eps1 > cases[i].wanted));
        tm_graph_destroy(graph);
    }
}
