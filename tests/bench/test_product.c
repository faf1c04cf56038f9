/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products: what a list of shapes means, what a model multiplies, and the operands. */

#include "support/test.h"

#include "apps/bench/engine.h"
#include "graph/value.h"

#include <math.h>
#include <string.h>

static const tm_product f32_product = { .dtype = TM_F32, .c_dtype = TM_F32 };

/* --- shapes ---------------------------------------------------------------------------------- */

TEST(shapes_are_read)
{
    tm_product_list list = { .count = 0 };
    tm_error        err = { 0 };
    tm_product      like = f32_product;
    like.trans_b = true;
    assert_int_equal(tm_products_parse("512x768x64,1x2x3:tn,16777216x1x1:nn", &like, &list, &err), TM_OK);
    assert_int_equal(list.count, 3);
    assert_true(list.items[0].m == 512 && list.items[0].n == 768 && list.items[0].k == 64);
    assert_true(!list.items[0].trans_a && list.items[0].trans_b);
    assert_true(list.items[1].m == 1 && list.items[1].n == 2 && list.items[1].k == 3);
    assert_true(list.items[1].trans_a && !list.items[1].trans_b);
    assert_true(!list.items[2].trans_a && !list.items[2].trans_b);
    list.count = 0;
    assert_int_equal(tm_products_parse("llama70b", &f32_product, &list, &err), TM_OK);
    assert_int_equal(list.count, 7);
    assert_true(list.items[1].m == 16384 && list.items[1].n == 8192 && list.items[1].k == 7168);
    assert_string_equal(list.items[6].name, "llama70b 7");
}

TEST(wrong_shapes_are_refused)
{
    static const char *const wrong[] = { "",        "512",      "512x768",     "512x768x",
                                         "0x1x1",   "1x1x1,",   ",1x1x1",      "1x1x1:",
                                         "1x1x1:n", "1x1x1:nx", "1x1x1:ntn",   "16777217x1x1",
                                         "1x-1x1",  "axbxc",    "1x1x1 ",      "99999999999999999999x1x1",
                                         "+1x1x1",  "1x+1x1",   "1x1x+1",      " 1x1x1",
                                         "1x 1x1",  "1x1x\t1",  "2x2x2, 1x1x1" };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        tm_product_list list = { .count = 0 };
        tm_error        err = { 0 };
        if (tm_products_parse(wrong[i], &f32_product, &list, &err) != TM_INVALID) fail_msg("'%s' was taken", wrong[i]);
        assert_non_null(strstr(err.text, "--shapes"));
    }
    tm_text many = { 0 };
    for (int i = 0; i <= TM_PRODUCTS; i++) tm_text_add(&many, i ? ",1x1x1" : "1x1x1");
    tm_product_list list = { .count = 0 };
    tm_error        err = { 0 };
    assert_int_equal(tm_products_parse(many.data, &f32_product, &list, &err), TM_INVALID);
    tm_text_fini(&many);
}

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

/* --- operands -------------------------------------------------------------------------------- */

TEST(sets_rotate_and_hold_the_same)
{
    tm_bench    bench = { .seed = 3, .threads = 2 };
    tm_error    err = { 0 };
    tm_operands o;
    tm_product  p = { .m = 300, .n = 301, .k = 302, .dtype = TM_F32, .c_dtype = TM_F32 };
    assert_int_equal(tm_device_open("cpu", 2, &bench.device, &err), TM_OK);
    tm_operands_plan(&o, &p, true);
    assert_true(o.sets >= 2 && (double)o.bytes > 2. * (double)tm_last_level_bytes(NULL));
    assert_int_equal(tm_operands_fill(&o, &bench, &err), TM_OK);
    assert_true(tm_operands_a(&o, o.sets) == tm_operands_a(&o, 0) && tm_operands_a(&o, 1) != tm_operands_a(&o, 0));
    assert_memory_equal(tm_operands_a(&o, 1), tm_operands_a(&o, 0), 300 * 302 * 4);
    assert_memory_equal(tm_operands_b(&o, o.sets - 1), tm_operands_b(&o, 0), 301 * 302 * 4);
    double        sum = 0, squares = 0;
    const float  *a = tm_operands_a(&o, 0);
    const int64_t n = 300 * 302;
    for (int64_t i = 0; i < n; i++) sum += (double)a[i], squares += (double)a[i] * (double)a[i];
    assert_true(fabs(sum / (double)n) < 5 / sqrt((double)n)); /* five standard errors */
    assert_true(fabs(squares / (double)n - 1) < 5 * sqrt(2 / (double)n));
    assert_true(isnan(((const float *)tm_operands_c(&o, 1))[0]));
    tm_operands_release(&o, &bench);
    tm_device_close(bench.device);
}
