/* SPDX-License-Identifier: Apache-2.0 */
/* plan/instruction.c - an instruction is a product, attention, a collective, a copy to the host, or a stream through
 * the memory of the device: shapes and formats are those of the call. */
#include "plan/instruction.h"

#include "op/attrs.h"
#include "op/quantize.h"

#include <math.h>
#include <stdlib.h>

/* --- formats ------------------------------------------------------------------------------------------------------ */

plan_context plan_context_of(const tm_machine_plan *machine, const tm_mesh *mesh, const tm_program *program,
                             size_t tensors)
{
    plan_context c = { machine, mesh, program, tm_alloc(tensors) };
    for (size_t x = 0; x < program->count; x++) {
        const tm_node *node = program->instructions[x].node;
        if (node->op == TM_OP_quantize)
            c.narrow[node->out[0]] = ((const tm_quantize_attr *)node->attr)->recipe[0].format;
    }
    return c;
}

void plan_context_fini(plan_context *context)
{
    free(context->narrow);
}

/* A factor in float32 that counts as rounded is one in bfloat16. */
static tm_rate_format format_of(const plan_context *c, const tm_instruction *x, int input)
{
    tm_dtype dtype = x->call.in[input].dtype;
    uint8_t  narrow = x->node->in[input] == TM_NONE ? 0 : c->narrow[x->node->in[input]];
    if (narrow) return tm_dtype_bits((tm_dtype)narrow) == 4 ? TM_RATE_FP4 : TM_RATE_FP8;
    if (dtype == TM_F32 || dtype == TM_F64) return x->call.rounded & 1U << input ? TM_RATE_BF16 : TM_RATE_F32;
    if (tm_dtype_bits(dtype) == 4) return TM_RATE_FP4; /* codes */
    return tm_dtype_bits(dtype) == 8 ? TM_RATE_FP8 : TM_RATE_BF16;
}

/* Products have the rate of the wider factor; one in float32 beside a narrower one is rounded to bfloat16. */
static tm_rate_format wider(tm_rate_format a, tm_rate_format b)
{
    tm_rate_format wide = a < b ? a : b;
    return wide == TM_RATE_F32 && a != b ? TM_RATE_BF16 : wide;
}

static const tm_hardware_number product_number[] = { TM_HARDWARE_PRODUCT_F32, TM_HARDWARE_PRODUCT_BF16,
                                                     TM_HARDWARE_PRODUCT_FP8, TM_HARDWARE_PRODUCT_FP4 };

static const char *key_of(tm_hardware_number which)
{
    static const char *const keys[] = {
#define X(id, key, unit, gpu, cpu, help) key,
        TM_HARDWARE_LIST(X)
#undef X
    };
    return keys[which];
}

/* `what`: that needs it. */
static tm_status need_number(const tm_hardware *hw, tm_hardware_number which, const char *what, const char *of,
                             tm_error *err)
{
    bool wide = which == TM_HARDWARE_PRODUCT_F32;
    if (hw->number[which] > 0) return TM_OK;
    return tm_fail(err, TM_INVALID,
                   "the file of %s has no '%s', which '%s' of %s needs; add it, with its source, to a copy of the "
                   "file%s",
                   hw->name, key_of(which), what, of, wide ? ", or train in another format" : "");
}

static tm_status need(const plan_context *c, const tm_instruction *x, tm_hardware_number which, tm_error *err)
{
    return need_number(&c->machine->device, which, x->call.op->name, x->node->module, err);
}

/* --- products ----------------------------------------------------------------------------------------------------- */

/* `count` products (m, k) x (k, n) at once, so many `times`. bytes: that each moves; 0: its share of the op's. */
typedef struct {
    double m, n, k, count, times, bytes;
} product;

enum { MOST_PRODUCTS = 3 };

static double bytes_of(const tm_view *view)
{
    return (double)tm_tensor_bytes(view->shape, view->dtype);
}

static double side(const tm_view *view, int axis)
{
    return (double)view->shape.n[axis];
}

/* In chunks of rows: the logits (chunk, V), and in a gradient what they give dx (chunk, C) and dw (V, C). Each chunk
 * reads all of the weight, and adds to all of dw. */
static int products_of_loss(const tm_call *call, bool gradient, product out[MOST_PRODUCTS])
{
    double rows = side(&call->in[0], 0), channels = side(&call->in[0], 1), classes = side(&call->in[1], 0);
    double chunk = fmin(rows, (double)((const tm_loss_attr *)call->attr)->chunk), times = rows / chunk;
    double weight = bytes_of(&call->in[1]), sum = 2 * classes * channels * sizeof(float);
    int    n = 0;
    out[n++] = (product){ chunk, classes, channels, 1, times, weight };
    if (gradient && !((const tm_loss_attr *)call->attr)->no_dx)
        out[n++] = (product){ chunk, channels, classes, 1, times, weight };
    double own = 2 * rows * channels * classes;
    if (gradient && call->op->cost(call).flops >= (n + 1) * own)
        out[n++] = (product){ classes, channels, chunk, 1, times, times > 1 ? sum : sum / 2 };
    return n;
}

/* Of experts with the same number of rows each. */
static product grouped(const tm_call *call, double outputs, double inputs, double experts, bool weights)
{
    const tm_grouped_attr *attr = call->attr; /* or that of codes, which begins with it */
    double                 rows = (attr ? (double)attr->even : side(&call->in[0], 0)) / experts;
    return weights ? (product){ outputs, inputs, rows, experts, 1, 0 }
                   : (product){ rows, outputs, inputs, experts, 1, 0 };
}

/* The products of an instruction; 0: it is none. */
static int products_of(const tm_instruction *x, product out[MOST_PRODUCTS])
{
    const tm_call *call = &x->call;
    const tm_view *in = call->in;
    switch (tm_op_id_of(call->op)) {
    case TM_OP_linear:
    case TM_OP_scaled_mm:
        return out[0] = (product){ side(in, 0), side(&in[1], 0), side(in, 1), 1, 1, 0 }, 1;
    case TM_OP_linear_dgrad:
        return out[0] = (product){ side(in, 0), side(&in[1], 1), side(in, 1), 1, 1, 0 }, 1;
    case TM_OP_linear_wgrad:
        return out[0] = (product){ side(in, 1), side(&in[1], 1), side(in, 0), 1, 1, 0 }, 1;
    case TM_OP_grouped_linear:
        return out[0] = grouped(call, side(&in[1], 1), side(&in[1], 2), side(&in[1], 0), false), 1;
    case TM_OP_grouped_linear_dgrad:
        return out[0] = grouped(call, side(&in[1], 2), side(&in[1], 1), side(&in[1], 0), false), 1;
    case TM_OP_grouped_linear_wgrad:
        return out[0] = grouped(call, side(in, 1), side(&in[1], 1), side(&in[2], 0) - 1, true), 1;
    case TM_OP_grouped_scaled_mm:
        return out[0] = grouped(call, side(&in[1], 1), side(&in[1], 2), side(&in[1], 0), false), 1;
    case TM_OP_grouped_scaled_wgrad:
        return out[0] = grouped(call, side(in, 0), side(&in[1], 0), side(&in[4], 0) - 1, true), 1;
    case TM_OP_low_rank:
        return out[0] = (product){ side(in, 0), side(&in[2], 0), side(&in[2], 1), 1, 1, 0 }, 1;
    case TM_OP_low_rank_dgrad:
        return out[0] = (product){ side(in, 0), side(&in[1], 1), side(&in[1], 0), 1, 1, 0 }, 1;
    case TM_OP_low_rank_wgrad:
        return out[0] = (product){ side(&call->out[0], 0), side(&call->out[0], 1), side(in, 0), 1, 1, 0 }, 1;
    case TM_OP_adapted_norm:
        return out[0] = (product){ side(&in[2], 0), side(in, 1), side(&in[2], 1), 1, 1, 0 }, 1;
    case TM_OP_linear_cross_entropy:
    case TM_OP_linear_token_losses:
        return products_of_loss(call, false, out);
    case TM_OP_linear_cross_entropy_grad:
    case TM_OP_linear_token_losses_grad:
        return products_of_loss(call, true, out);
    case TM_OP_muon: { /* of the shorter side each: sums of squares and of fifth powers */
        double rows = side(in, in->shape.rank - 2), columns = side(in, in->shape.rank - 1);
        double less = fmin(rows, columns), more = fmax(rows, columns);
        return out[0] = (product){ less, more, less, 1, x->cost.flops / (2 * less * less * more), 0 }, 1;
    }
    default:
        return 0;
    }
}

/* Rows of logits go through memory between the products. */
static double logits_bytes(const tm_call *call)
{
    switch (tm_op_id_of(call->op)) {
    case TM_OP_linear_cross_entropy:
    case TM_OP_linear_token_losses:
        return side(&call->in[0], 0) * side(&call->in[1], 0) * sizeof(float);
    case TM_OP_linear_cross_entropy_grad:
    case TM_OP_linear_token_losses_grad:
        return side(&call->in[0], 0) * side(&call->in[1], 0) * 2 * sizeof(float);
    default:
        return 0;
    }
}

static tm_status time_products(const plan_context *c, const tm_instruction *x, const product *p, int n,
                               plan_seconds *out, tm_error *err)
{
    const tm_hardware *hw = &c->machine->device;
    tm_rate_format     format = wider(format_of(c, x, 0), format_of(c, x, 1));
    double             flops = 0, launches = 0, seconds = 0, logits = logits_bytes(&x->call);
    TM_TRY(need(c, x, product_number[format], err));
    for (int i = 0; i < n; i++) flops += 2 * p[i].m * p[i].n * p[i].k * p[i].count * p[i].times;
    for (int i = 0; i < n; i++) {
        double own = 2 * p[i].m * p[i].n * p[i].k * p[i].count / flops;
        double bytes = p[i].bytes > 0 ? p[i].bytes : x->cost.bytes * own;
        seconds += p[i].times * tm_time_product(hw, format, p[i].m, p[i].n, p[i].k, p[i].count, bytes, 0);
        launches += p[i].times;
    }
    seconds *= x->cost.flops / flops; /* products of adapters beside those of the output layer */
    if (logits > 0) {
        seconds += tm_time_stream(hw, logits, x->cost.vector, 0);
        launches += p[0].times;
    }
    *out = (plan_seconds){ .work = seconds, .launch = launches * hw->number[TM_HARDWARE_LAUNCH] * 1e-6 };
    return TM_OK;
}

/* --- attention ---------------------------------------------------------------------------------------------------- */

static bool is_attention(const tm_call *call, double *width)
{
    tm_op_id id = tm_op_id_of(call->op);
    bool     ring = id == TM_OP_ring_attention || id == TM_OP_ring_attention_grad;
    if (!ring && id != TM_OP_attention && id != TM_OP_attention_grad) return false;
    const tm_attention_attr *attr = ring ? &((const tm_ring_attr *)call->attr)->attention : call->attr;
    *width = (double)attr->dim_qk;
    return true;
}

/* Rates in the file are of bfloat16, for CPUs of float32: on a GPU, float32 is as much slower as in products. */
static tm_status time_attention(const plan_context *c, const tm_instruction *x, double width, plan_seconds *out,
                                tm_error *err)
{
    const tm_hardware *hw = &c->machine->device;
    tm_op_id           id = tm_op_id_of(x->call.op);
    bool               backward = id == TM_OP_attention_grad || id == TM_OP_ring_attention_grad;
    double             seconds = tm_time_attention(hw, backward, x->cost.flops, width, 0);
    if (!hw->cpu && format_of(c, x, 0) == TM_RATE_F32) {
        TM_TRY(need(c, x, TM_HARDWARE_PRODUCT_F32, err));
        seconds *= hw->number[TM_HARDWARE_PRODUCT_BF16] / hw->number[TM_HARDWARE_PRODUCT_F32];
    }
    *out = (plan_seconds){ .work = fmax(seconds, tm_time_stream(hw, x->cost.bytes, 0, 0)),
                           .launch = hw->number[TM_HARDWARE_LAUNCH] * 1e-6 };
    return TM_OK;
}

static plan_seconds time_stream(const plan_context *c, const tm_instruction *x)
{
    const tm_hardware *hw = &c->machine->device;
    return (plan_seconds){ .work = tm_time_stream(hw, x->cost.bytes, x->cost.vector, 0),
                           .launch = hw->number[TM_HARDWARE_LAUNCH] * 1e-6 };
}

/* --- between ranks, and to the host ------------------------------------------------------------------------------- */

/* Ranks of the mesh are numbered with the last axis fastest: a group's neighbours are as many ranks apart as the axes
 * behind its last one have. Those of experts lie within the ranks of a stage. */
static int stride_of(const tm_mesh *mesh, unsigned axes)
{
    static const tm_axis slower[] = { TM_AXIS_TP, TM_AXIS_CP, TM_AXIS_SHARD, TM_AXIS_REPLICATE, TM_AXIS_PP };
    int                  stride = 1;
    if (axes & 1U << TM_AXIS_EP) return 1;
    if (axes & 1U << TM_AXIS_EFSDP) return mesh->degree[TM_AXIS_EP];
    for (size_t i = 0; i < sizeof slower / sizeof slower[0]; i++) {
        if (axes & 1U << slower[i] && mesh->degree[slower[i]] > 1) return stride;
        stride *= mesh->degree[slower[i]];
    }
    return 1;
}

tm_group_plan plan_group(const tm_machine_plan *machine, const tm_mesh *mesh, unsigned axes)
{
    if (mesh->degree[0] == 0) return (tm_group_plan){ 1, 1 };
    return tm_group_plan_of(machine, tm_mesh_group_size(mesh, axes), stride_of(mesh, axes));
}

static tm_status need_wire(const tm_hardware *hw, tm_group_plan group, const char *what, const char *of, tm_error *err)
{
    if (group.near > 1) {
        TM_TRY(need_number(hw, TM_HARDWARE_LINK_RATE, what, of, err));
        TM_TRY(need_number(hw, TM_HARDWARE_LINK_SHARE, what, of, err));
    }
    if (group.near == group.ranks) return TM_OK;
    TM_TRY(need_number(hw, TM_HARDWARE_NIC_RATE, what, of, err));
    return need_number(hw, TM_HARDWARE_NIC_SHARE, what, of, err);
}

tm_status plan_check_messages(const tm_machine_plan *machine, const tm_mesh *mesh, tm_error *err)
{
    return need_wire(&machine->device, plan_group(machine, mesh, 1U << TM_AXIS_PP), "send", "the pipeline", err);
}

bool plan_is_stage_message(const tm_instruction *x, double *bytes)
{
    tm_op_id id = tm_op_id_of(x->call.op);
    if (id != TM_OP_send && id != TM_OP_receive) return false;
    *bytes = bytes_of(id == TM_OP_send ? &x->call.in[0] : &x->call.out[0]);
    return (((const tm_message_attr *)x->call.attr)->axes & 1 << TM_AXIS_PP) != 0;
}

/* In a ring all ranks send at the same time: the time is that of what is received. */
static tm_status time_message(const plan_context *c, const tm_instruction *x, plan_seconds *out, tm_error *err)
{
    const tm_message_attr *attr = x->call.attr;
    double                 bytes;
    if (plan_is_stage_message(x, &bytes) || tm_op_id_of(x->call.op) == TM_OP_send) return TM_OK;
    tm_group_plan group = plan_group(c->machine, c->mesh, (unsigned)attr->axes);
    TM_TRY(need_wire(&c->machine->device, group, x->call.op->name, x->node->module, err));
    out->work = tm_time_send(&c->machine->device, bytes, group.near == group.ranks);
    return TM_OK;
}

static tm_status time_collective(const plan_context *c, const tm_instruction *x, plan_seconds *out, tm_error *err)
{
    const tm_group_attr *attr = x->call.attr; /* of an exchange, its first member */
    tm_op_id             id = tm_op_id_of(x->call.op);
    const tm_hardware   *hw = &c->machine->device;
    if (attr->ranks <= 1) { /* a copy on this rank */
        *out = time_stream(c, x);
        return TM_OK;
    }
    tm_group_plan group = plan_group(c->machine, c->mesh, (unsigned)attr->axes);
    double        narrow = attr->narrow ? 0.5 : 1;
    double        in = bytes_of(&x->call.in[0]) * narrow, whole = bytes_of(&x->call.out[0]) * narrow;
    TM_TRY(need_wire(&c->machine->device, group, x->call.op->name, x->node->module, err));
    if (id == TM_OP_all_reduce) out->work = tm_time_move(hw, TM_MOVE_ALL_REDUCE, in, group);
    if (id == TM_OP_reduce_scatter) out->work = tm_time_move(hw, TM_MOVE_REDUCE_SCATTER, in, group);
    if (id == TM_OP_all_gather || id == TM_OP_exchange_counts)
        out->work = tm_time_move(hw, TM_MOVE_ALL_GATHER, whole, group);
    if (id == TM_OP_send_rows || id == TM_OP_return_rows) {
        double share = group.ranks > 1 ? (group.ranks - 1.0) / group.ranks : 1;
        out->work = tm_time_move(hw, TM_MOVE_ALL_TO_ALL, x->cost.wire / share, group);
    }
    return TM_OK;
}

/* What is read in one memory and written in the other: half of the bytes cross. */
static tm_status time_copy(const plan_context *c, const tm_instruction *x, plan_seconds *out, tm_error *err)
{
    TM_TRY(need(c, x, TM_HARDWARE_HOST_RATE, err));
    out->work = x->cost.bytes / 2 / (c->machine->device.number[TM_HARDWARE_HOST_RATE] * 1e9);
    return TM_OK;
}

/* --- all ---------------------------------------------------------------------------------------------------------- */

static tm_status time_instruction(const plan_context *c, const tm_instruction *x, plan_seconds *out, tm_error *err)
{
    product products[MOST_PRODUCTS];
    double  width;
    *out = (plan_seconds){ 0 };
    switch (tm_op_id_of(x->call.op)) {
    case TM_OP_send:
    case TM_OP_receive:
        return time_message(c, x, out, err);
    case TM_OP_all_reduce:
    case TM_OP_reduce_scatter:
    case TM_OP_all_gather:
    case TM_OP_exchange_counts:
    case TM_OP_send_rows:
    case TM_OP_return_rows:
        return time_collective(c, x, out, err);
    case TM_OP_fetch:
    case TM_OP_store:
        return time_copy(c, x, out, err);
    default:
        break;
    }
    double measured = tm_time_op(&c->machine->device, &x->call, &x->cost);
    if (measured >= 0) {
        out->work = measured;
        return TM_OK;
    }
    if (is_attention(&x->call, &width)) return time_attention(c, x, width, out, err);
    int n =
        x->cost.flops > 0 ? products_of(x, products) : 0; /* rounds of experts' rows that nobody expects have none */
    if (n > 0) return time_products(c, x, products, n, out, err);
    TM_ASSERT(x->cost.flops == 0); /* an op with products has a row above */
    *out = time_stream(c, x);
    return TM_OK;
}

/* Products of experts, and the exchange of their rows. */
static bool is_of_experts(const tm_instruction *x)
{
    switch (tm_op_id_of(x->call.op)) {
    case TM_OP_grouped_linear:
    case TM_OP_grouped_linear_dgrad:
    case TM_OP_grouped_linear_wgrad:
    case TM_OP_send_rows:
    case TM_OP_return_rows:
        return true;
    default:
        return false;
    }
}

tm_status plan_time_instruction(const plan_context *c, const tm_instruction *x, plan_seconds *out, tm_error *err)
{
    TM_TRY(time_instruction(c, x, out, err));
    if (c->machine->imbalance > 1 && is_of_experts(x)) out->more = (c->machine->imbalance - 1) * out->work;
    return TM_OK;
}
