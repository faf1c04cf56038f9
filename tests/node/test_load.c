/* SPDX-License-Identifier: Apache-2.0 */
/* Products of a place: right ones pass whatever the shape, moved ones too, and a wrong element is named. */
#include "support/training.h"

#include "apps/node/load.h"

#include "support/test.h"

/* Small ones of the same kinds. */
TEST(products_are_right)
{
    tm_device      *device = test_device_open("cpu", 1);
    tm_node_product products[TM_NODE_PRODUCTS];
    const int       n = tm_node_products(false, products);
    assert_int_equal(n, TM_NODE_PRODUCTS);
    for (int i = 0; i < n; i++) {
        tm_node_load *load = NULL;
        tm_error      err = { 0 };
        char          wrong[TM_NODE_TEXT];
        double        seconds = -1;
        assert_true(products[i].flops == 2. * (double)(products[i].m * products[i].n * products[i].k));
        if (tm_node_load_open(device, &products[i], 1, &load, &err) != TM_OK) fail_msg("%s", err.text);
        assert_int_equal(tm_node_load_verify(load, wrong, &err), TM_OK);
        if (!strstr(wrong, "a product is nan; expected: ")) fail_msg("before the first call: '%s'", wrong);
        tm_node_load_close(load);
        if (tm_node_load_open(device, &products[i], 1, &load, &err) != TM_OK) fail_msg("%s", err.text);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(tm_node_load_run(load, 2, &seconds, &err), TM_OK);
            assert_true(seconds >= 0);
            assert_int_equal(tm_node_load_verify(load, wrong, &err), TM_OK);
            assert_string_equal(wrong, "");
            assert_int_equal(tm_node_load_move(load, &err), TM_OK);
        }
        assert_int_equal(tm_node_load_verify(load, wrong, &err), TM_OK); /* moved, not multiplied yet */
        if (!wrong[0]) fail_msg("what was not computed passes");
        tm_node_load_close(load);
    }
    tm_device_close(device);
}
