/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products of a model. Lists of shapes and operands: test_tables.c, test_checks.c. */

#include "support/test.h"

#include "apps/bench/engine.h"
#include "graph/value.h"

static const tm_product f32_product = { .dtype = TM_F32, .c_dtype = TM_F32 };

/* Everything that a step multiplies costs 6 FLOP per weight and row: the products of all layers, three layouts. */
TEST(a_models_products_are_all_its_products)
{
    static const char *const models[] = { "tiny-llama", "llama3.1_8B", "gpt2-124M", "gpt-xl" };
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        tm_model_shape  shape;
        int64_t         seq;
        tm_error        err = { 0 };
        tm_product_list list = { .count = 0 };
        assert_int_equal(tm_bench_model(models[i], &shape, &seq, &err), TM_OK);
        assert_true(seq > 0);
        tm_products_of_model(&shape, 3, 128, &f32_product, &list);
        assert_int_equal(list.count, 15);
        double flops = 0;
        for (size_t k = 0; k < list.count; k++) {
            bool vocab = strncmp(list.items[k].name, "vocab", 5) == 0;
            flops += tm_product_flops(&list.items[k]) * (vocab ? 1 : (double)shape.n_layers);
        }
        assert_true(flops == 6. * (double)tm_model_parameters_matmul(&shape) * 3 * 128);
        for (size_t k = 0; k < list.count; k += 3) {
            const tm_product *f = &list.items[k], *d = f + 1, *w = f + 2;
            assert_true(f->m == 384 && f->trans_b && !f->trans_a); /* x W^T */
            assert_true(d->m == 384 && d->n == f->k && d->k == f->n && !d->trans_a && !d->trans_b);
            assert_true(w->m == f->n && w->n == f->k && w->k == 384 && w->trans_a && !w->trans_b);
        }
    }
    tm_model_shape shape;
    int64_t        seq;
    tm_error       err = { 0 };
    assert_int_equal(tm_bench_model("gpt-xll", &shape, &seq, &err), TM_INVALID);
    assert_non_null(strstr(err.text, "gpt-xl"));
}
