/* SPDX-License-Identifier: Apache-2.0 */
/* device/host/exchange.c - kernels of op/exchange.c where the device's memory is the host's: rows are put together for
 * every rank, the group exchanges them, and they are put where they belong.
 */
#include "device/host/host.h"
#include "graph/value.h"
#include "op/exchange.h"

#include <stdlib.h>
#include <string.h>

/* What `prepare` found out of several ranks, and the bytes for and from each of the call at hand. */
typedef struct {
    tm_comm *comm;
    size_t  *send, *receive;
    char   **next; /* where the next row for or from each rank is */
} member;

static const tm_exchange_attr *attr_of(const tm_call *call)
{
    return call->attr;
}

static tm_status exchange_prepare(const void *context, const tm_call *call, void **state, tm_error *err)
{
    const tm_exchange_attr *attr = call->attr;
    size_t                  ranks = (size_t)attr->group.ranks;
    tm_comm                *comm;
    TM_TRY(tm_host_group(context, call->op->name, &attr->group, &comm, err));
    if (!comm) return TM_OK;
    member *own = tm_alloc(sizeof *own + ranks * (2 * sizeof(size_t) + sizeof(char *)));
    *own = (member){ .comm = comm };
    own->send = (size_t *)(own + 1);
    own->receive = own->send + ranks;
    own->next = (char **)(own->receive + ranks);
    *state = own;
    return TM_OK;
}

/* ---- exchange_counts ---- */

static const char *counts_refuse(const tm_call *call)
{
    bool whole = call->in[0].dtype == TM_I32 && call->out[0].dtype == TM_I32 && call->out[1].dtype == TM_I32;
    if (attr_of(call)->rows > INT32_MAX) return "more than 2^31 - 1 rows";
    return whole ? NULL : "needs int32 offsets, counts and places";
}

static tm_status counts_launch(const tm_call *call, tm_error *err)
{
    const tm_exchange_attr *attr = call->attr;
    member                 *own = call->state;
    int64_t                 experts = call->out[0].shape.n[1];
    const int32_t          *offsets = call->in[0].data;
    int32_t                *counts = call->out[0].data, *mine = counts + attr->rank * experts;
    tm_collective           what = { .kind = TM_COMM_ALL_GATHER,
                                     .format = TM_COMM_BYTES,
                                     .send = mine,
                                     .receive = counts,
                                     .count = (size_t)experts * sizeof *counts,
                                     .what = attr->group.what,
                                     .step = -1 };
    for (int64_t e = 0; e < experts; e++) mine[e] = offsets[e + 1] - offsets[e];
    if (own) TM_TRY(tm_host_call(own->comm, &what, err));
    tm_exchange_places(attr, counts, experts, call->out[1].data);
    return TM_OK;
}

/* ---- send_rows, return_rows ---- */

static bool adds(const tm_call *call)
{
    return call->op == &tm_op_return_rows && tm_view_present(&call->in[2]);
}

static const char *rows_refuse(const tm_call *call)
{
    tm_dtype dtype = call->in[0].dtype;
    if (call->in[1].dtype != TM_I32) return "needs int32 counts";
    if (dtype != call->out[0].dtype || (adds(call) && dtype != call->in[2].dtype))
        return "an exchange keeps the format";
    if (call->accumulate) return "does not add to what is there";
    return dtype == TM_F32 || dtype == TM_BF16 || dtype == TM_F64 ? NULL : "exchanges float32, bfloat16 and float64";
}

static size_t row_bytes(const tm_call *call)
{
    return (size_t)call->in[0].shape.n[1] * tm_dtype_bytes(call->in[0].dtype);
}

/* Do the own rows of the round lie one after the other in the order in which they are sent, with nothing to add to? */
static bool in_order(const tm_call *call)
{
    return attr_of(call)->rounds == 1 && !adds(call);
}

/* Rows that this rank's experts get, sorted by where they are from; and its own, if they are not in order. */
static size_t rows_workspace(const tm_call *call)
{
    const tm_exchange_attr *attr = call->attr;
    if (attr->group.ranks == 1) return 0;
    return (size_t)(attr->rows + (in_order(call) ? 0 : attr->pairs)) * row_bytes(call);
}

static void add_row(tm_dtype dtype, char *to, const char *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (dtype == TM_F32)
            ((float *)(void *)to)[i] += ((const float *)(const void *)from)[i];
        else if (dtype == TM_F64)
            ((double *)(void *)to)[i] += ((const double *)(const void *)from)[i];
        else
            ((uint16_t *)(void *)to)[i] = tm_bf16_round(tm_bf16_value(((const uint16_t *)(const void *)to)[i]) +
                                                        tm_bf16_value(((const uint16_t *)(const void *)from)[i]));
}

/* Rows of a run to where they belong in the result. */
static void put(const tm_call *call, int64_t row, const char *from, int64_t rows)
{
    size_t bytes = row_bytes(call);
    char  *to = (char *)call->out[0].data + (size_t)row * bytes;
    if (adds(call))
        add_row(call->out[0].dtype, to, from, rows * call->out[0].shape.n[1]);
    else if (to != from)
        memcpy(to, from, (size_t)rows * bytes);
}

static void begin(tm_exchange_walk *walk, const tm_call *call)
{
    tm_exchange_begin(walk, call->attr, call->in[1].data, call->in[1].shape.n[1], -1);
}

/* Rows of the result that come with this round. */
static int64_t rows_that_come(const tm_call *call)
{
    bool             sends = call->op == &tm_op_send_rows;
    int64_t          rows = 0;
    tm_exchange_walk walk;
    tm_exchange_run  run;
    begin(&walk, call);
    while (tm_exchange_next(&walk, &run))
        if ((sends ? run.to : run.from) == attr_of(call)->rank) rows += run.rows;
    return rows;
}

/* What the result is beside them, which are its first ones, or anywhere. */
static void begin_result(const tm_call *call)
{
    const tm_view *z = &call->out[0];
    size_t         bytes = tm_tensor_bytes(z->shape, z->dtype), first = 0;
    if (adds(call)) {
        if (z->data != call->in[2].data) memcpy(z->data, call->in[2].data, bytes);
        return;
    }
    if (call->op == &tm_op_send_rows || in_order(call)) first = (size_t)rows_that_come(call) * row_bytes(call);
    memset((char *)z->data + first, 0, bytes - first);
}

/* Of a group of one. */
static void rows_alone(const tm_call *call)
{
    bool             sends = call->op == &tm_op_send_rows;
    const char      *x = call->in[0].data;
    tm_exchange_walk walk;
    tm_exchange_run  run;
    begin(&walk, call);
    while (tm_exchange_next(&walk, &run))
        put(call, sends ? run.place : run.at, x + (size_t)(sends ? run.at : run.place) * row_bytes(call), run.rows);
}

/* Bytes for and from every rank; false: nobody has rows for anybody in this round. */
static bool count_bytes(const tm_call *call, member *own)
{
    const tm_exchange_attr *attr = call->attr;
    bool                    sends = call->op == &tm_op_send_rows, any = false;
    size_t                 *experts = sends ? own->receive : own->send, *pairs = sends ? own->send : own->receive;
    tm_exchange_walk        walk;
    tm_exchange_run         run;
    for (int64_t r = 0; r < attr->group.ranks; r++) own->send[r] = own->receive[r] = 0;
    begin(&walk, call);
    while (tm_exchange_next(&walk, &run)) {
        any = true;
        if (run.to == attr->rank) experts[run.from] += (size_t)run.rows * row_bytes(call);
        if (run.from == attr->rank) pairs[run.to] += (size_t)run.rows * row_bytes(call);
    }
    return any;
}

/* The pieces of the ranks lie one after the other from `at` on. */
static void point(const tm_call *call, member *own, const size_t *bytes, char *at)
{
    for (int64_t r = 0; r < attr_of(call)->group.ranks; r++) {
        own->next[r] = at;
        at += bytes[r];
    }
}

/* Rows between the tensor of this rank's experts, where they lie by expert, and pieces that are by rank. */
static void move_expert_rows(const tm_call *call, member *own, bool to_pieces)
{
    const tm_exchange_attr *attr = call->attr;
    tm_exchange_walk        walk;
    tm_exchange_run         run;
    begin(&walk, call);
    while (tm_exchange_next(&walk, &run)) {
        size_t bytes = (size_t)run.rows * row_bytes(call);
        if (run.to != attr->rank) continue;
        if (to_pieces)
            memcpy(own->next[run.from], (const char *)call->in[0].data + (size_t)run.place * row_bytes(call), bytes);
        else
            put(call, run.place, own->next[run.from], run.rows);
        own->next[run.from] += bytes;
    }
}

/* This rank's own rows and their pieces, which have the same order. */
static void move_own_rows(const tm_call *call, char *pieces, bool to_pieces)
{
    const tm_exchange_attr *attr = call->attr;
    tm_exchange_walk        walk;
    tm_exchange_run         run;
    begin(&walk, call);
    while (tm_exchange_next(&walk, &run)) {
        size_t bytes = (size_t)run.rows * row_bytes(call);
        if (run.from != attr->rank) continue;
        if (to_pieces)
            memcpy(pieces, (const char *)call->in[0].data + (size_t)run.at * row_bytes(call), bytes);
        else
            put(call, run.at, pieces, run.rows);
        pieces += bytes;
    }
}

static tm_status rows_launch(const tm_call *call, tm_error *err)
{
    const tm_exchange_attr *attr = call->attr;
    member                 *own = call->state;
    bool                    sends = call->op == &tm_op_send_rows, direct = in_order(call);
    char                   *of_experts = call->workspace, *of_own = NULL;
    begin_result(call);
    if (!own) {
        rows_alone(call);
        return TM_OK;
    }
    if (!count_bytes(call, own)) return TM_OK;
    if (!direct) of_own = of_experts + (size_t)attr->rows * row_bytes(call);
    if (direct) of_own = sends ? (char *)call->in[0].data : (char *)call->out[0].data;
    tm_collective what = { .kind = TM_COMM_ALL_TO_ALL,
                           .format = TM_COMM_BYTES,
                           .send = sends ? of_own : of_experts,
                           .receive = sends ? of_experts : of_own,
                           .send_counts = own->send,
                           .receive_counts = own->receive,
                           .what = attr->group.what,
                           .step = -1 };
    if (sends && !direct) move_own_rows(call, of_own, true);
    if (!sends) {
        point(call, own, own->send, of_experts);
        move_expert_rows(call, own, true);
    }
    TM_TRY(tm_host_call(own->comm, &what, err));
    if (sends) {
        point(call, own, own->receive, of_experts);
        move_expert_rows(call, own, false);
    } else if (!direct) {
        move_own_rows(call, of_own, false);
    }
    return TM_OK;
}

#define ROWS(id)                                                                                                       \
    {                                                                                                                  \
        .op = TM_OP_##id, .name = #id "/base", .refuse = rows_refuse, .workspace = rows_workspace,                     \
        .launch = rows_launch, .prepare = exchange_prepare, .release = free                                            \
    }
const tm_kernel tm_host_exchange[] = {
    { .op = TM_OP_exchange_counts,
      .name = "exchange_counts/base",
      .refuse = counts_refuse,
      .launch = counts_launch,
      .prepare = exchange_prepare,
      .release = free },
    ROWS(send_rows),
    ROWS(return_rows),
    { .name = NULL },
};
