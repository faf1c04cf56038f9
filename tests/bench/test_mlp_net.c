/* SPDX-License-Identifier: Apache-2.0 */
/* The network of the mlp benchmark: its counts, its gradients (it learns its batch), its check. */
#include "bench/mlp_net.h"

#include "../support/training.h"

#include <math.h>
#include <string.h>

#include "support/test.h"

static tm_mlp_options small(tm_op_id activation, bool bias, const tm_precision *precision)
{
    return (tm_mlp_options){ .width = { 24, 40, 56, 17 },
                             .layers = 3,
                             .batch = 13,
                             .activation = activation,
                             .bias = bias,
                             .update = true,
                             .precision = precision,
                             .learning_rate = 0.005 };
}

static tm_mlp *open_net(const tm_mlp_options *o, tm_device *device, tm_bench *bench)
{
    tm_error err = { 0 };
    *bench = (tm_bench){ .device = device, .threads = tm_device_describe(device)->threads, .seed = 7 };
    tm_mlp *net = NULL;
    if (tm_mlp_create(o, device, &net, &err) != TM_OK || tm_mlp_open(net, bench, &err) != TM_OK)
        fail_msg("%s", err.text);
    return net;
}

static double one_step(tm_mlp *net)
{
    double loss = 0;
    assert_int_equal(tm_mlp_step(net, NULL, &loss, NULL), TM_OK);
    return loss;
}

/* The check has room for the widest layer, wherever it is; what is planted in the widest is seen. */
TEST(any_layer_may_be_the_widest)
{
    static const int64_t widths[][4] = { { 24, 40, 90 }, { 24, 90, 40 }, { 90, 40, 24 }, { 90, 40, 24, 91 } };
    tm_device           *device = test_device_open("cpu", 2);
    for (int i = 0; i < 4; i++) {
        tm_mlp_options o = small(TM_OP_gelu, true, &tm_precision_f32);
        tm_bench       bench;
        tm_mlp_check   check;
        o.layers = i < 3 ? 2 : 3;
        o.batch = i + 1; /* the first, the middle and the last sample are checked, of few those that there are */
        memcpy(o.width, widths[i], sizeof widths[i]);
        tm_mlp *net = open_net(&o, device, &bench);
        (void)one_step(net);
        assert_int_equal(tm_mlp_verify(net, &check, NULL), TM_OK);
        if (!check.correct || !(check.worst > 0)) fail_msg("case %d: worst %g", i, check.worst);
        assert_true(isfinite(check.found) && fabs(check.found - check.wanted) <= check.bound);
        assert_true(check.bound > 0 && check.bound < 1e-3 * (1 + fabs(check.wanted)));
        tm_mlp_destroy(net);
    }
    tm_device_close(device);
}
