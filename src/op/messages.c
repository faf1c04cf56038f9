/* SPDX-License-Identifier: Apache-2.0 */
/* op/messages.c - what one rank gives another: stages of a pipeline. `axes` and `ranks` name the group
 * (comm/mesh/mesh.h), `peer` the other's rank in it.
 *
 *   send     x goes to the rank `peer`, which receives it; [y = x]
 *   receive  y = what the rank `peer` sends
 *
 * A send does not wait until it is received. In a group of one nothing is sent, and what is received are zeros: that is
 * what the references compute. Neither is differentiated: who passes on sends the gradient, too (train/step/stages.c).
 */
#include "base/status.h"
#include "op/attrs.h"
#include "op/describe.h"

#include <string.h>

static const char *send_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    const tm_message_attr *a = attr;
    if (a->ranks < 1 || a->peer < 0 || a->peer >= a->ranks) return "a message goes to a rank of the group";
    if (!tm_shape_present(out[0])) return NULL;
    return tm_shape_fit(&out[0], in[0], "y must have the shape of x");
}

static const char *receive_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    const tm_message_attr *a = attr;
    (void)in;
    if (a->ranks < 1 || a->peer < 0 || a->peer >= a->ranks) return "a message comes from a rank of the group";
    if (a->rows < 1 || a->columns < 1) return "a message has rows and columns";
    return tm_shape_fit(&out[0], tm_shape_2(a->rows, a->columns), "y must have the rows and columns of the message");
}

static void send_reference(const tm_call *call)
{
    TM_ASSERT(((const tm_message_attr *)call->attr)->ranks == 1);
    int64_t       n = tm_shape_elements(call->in[0].shape);
    const double *x = call->in[0].data;
    double       *y = call->out[0].data;
    for (int64_t i = 0; i < n && tm_view_present(&call->out[0]); i++) y[i] = x[i];
}

static void receive_reference(const tm_call *call)
{
    TM_ASSERT(((const tm_message_attr *)call->attr)->ranks == 1);
    int64_t n = tm_shape_elements(call->out[0].shape);
    double *y = call->out[0].data;
    for (int64_t i = 0; i < n; i++) y[i] = 0;
}

static tm_cost message_cost(const tm_call *call)
{
    const tm_message_attr *attr = call->attr;
    tm_cost                cost = tm_call_cost(call, 0);
    if (call->op == &tm_op_send && attr->ranks > 1) cost.wire = tm_view_bytes(&call->in[0]);
    return cost;
}

static bool example_of(int k, bool receives, tm_shape *shape, tm_example *example)
{
    static const tm_shape cases[] = { { 2, { 1, 1 } }, { 2, { 3, 7 } }, { 2, { 1, 1000 } }, { 2, { 10, 13 } } };
    tm_message_attr       attr;
    memset(&attr, 0, sizeof attr);
    attr.ranks = attr.times = 1;
    if (k >= TM_COUNT_OF(cases)) return false;
    *shape = cases[k];
    if (receives) attr.rows = shape->n[0], attr.columns = shape->n[1];
    tm_example_begin(example, &attr, sizeof attr);
    return true;
}

static bool send_example(int k, tm_example *example)
{
    tm_shape shape;
    if (!example_of(k, false, &shape, example)) return false;
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, shape, 0, 1);
    example->out[0] = shape;
    return true;
}

static bool receive_example(int k, tm_example *example)
{
    tm_shape shape;
    if (!example_of(k, true, &shape, example)) return false;
    example->out[0] = shape;
    return true;
}

const tm_op tm_op_send = {
    .name = "send",
    .formula = "x goes to another rank; y = x",
    .group = "communication",
    .stream = TM_ON_COMMUNICATION,
    .n_in = 1,
    .n_out = 1,
    .optional_out = 1U << 0,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = send_infer,
    .reference = send_reference,
    .cost = message_cost,
    .any_dtype_in = 1U << 0,
    .example = send_example,
    .rounding = tm_rounding_f64,
    .in_name = { "x (...)" },
    .out_name = { "[y (...)]" },
    .attributes = "axes, ranks, peer, channel, waiting, times, what",
};

const tm_op tm_op_receive = {
    .name = "receive",
    .formula = "y = what another rank sends",
    .group = "communication",
    .stream = TM_ON_COMMUNICATION,
    .n_in = 0,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = receive_infer,
    .reference = receive_reference,
    .cost = message_cost,
    .example = receive_example,
    .rounding = tm_rounding_f64,
    .out_name = { "y (N, C)" },
    .attributes = "axes, ranks, peer, channel, rows, columns, times, what",
};
