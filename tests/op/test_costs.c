/* SPDX-License-Identifier: Apache-2.0 */
/* What a call moves, counted again: every input and output once, outputs that are added to twice; what it computes
 * grows with what it reads. */
#include "graph/graph.h"
#include "op/op.h"

#include <stdio.h>
#include <string.h>

#include "support/test.h"

static double bytes_of(const tm_view *view)
{
    return tm_view_present(view) ? (double)tm_tensor_bytes(view->shape, view->dtype) : 0;
}

/* Of tables the rows that are used count, of logits a chunk. */
static bool reads_parts(const char *name)
{
    static const char *const prefixes[] = {
        "linear_token_losses", "linear_cross_entropy", "embedding", "put_rows", "quantize", "vocabulary_loss"
    };
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) return true;
    return false;
}

static void count(const tm_op *op, int number, tm_call *call)
{
    double moved = 0;
    for (int k = 0; k < op->n_in; k++) moved += bytes_of(&call->in[k]);
    for (int k = 0; k < op->n_out; k++) moved += bytes_of(&call->out[k]) * (call->accumulate >> k & 1U ? 2 : 1);
    tm_cost cost = op->cost(call);
    if (reads_parts(op->name) ? cost.bytes <= 0 || cost.bytes > moved : cost.bytes != moved)
        fail_msg("%s, example %d: %g bytes, %g are moved", op->name, number, cost.bytes, moved);
    assert_true(cost.flops >= 0 && cost.vector >= 0 && cost.wire >= 0);
    if (op->vector > 0 && tm_view_present(&call->in[0])) assert_true(cost.vector > 0 || cost.flops > 0);
}

TEST(bytes_are_those_of_the_operands)
{
    for (int id = 0; id < TM_OP_COUNT; id++) {
        const tm_op *op = tm_op_get((tm_op_id)id);
        tm_example   example;
        for (int n = 0; op->example(n, &example); n++)
            for (int form = 0; form < 4; form++) {
                tm_call call = tm_example_call(op, &example, form & 1 ? &tm_precision_bf16 : &tm_precision_f32);
                call.accumulate = form & 2 ? (1U << op->n_out) - 1 : 0;
                count(op, n, &call);
            }
    }
}
