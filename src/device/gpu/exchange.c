/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/exchange.c - kernels of op/exchange.c: rows to the experts of other ranks and back, by NCCL or RCCL.
 *
 * What a message has is known to the library when it is called, and how many rows go where only to the GPU. So the host
 * waits for the counts: once for each exchange_counts, whose numbers it keeps for the calls that come with them, known
 * by their address. Rows go from where they are to where they belong, a message for each expert and pair of ranks, all
 * of a round in one group of the library: nothing is packed.
 */
#include "device/gpu/ranks.h"

#include "base/arena.h"
#include "device/host/host.h"
#include "op/exchange.h"

#include <stdlib.h>
#include <string.h>

static const tm_exchange_attr *attr_of(const tm_call *call)
{
    return call->attr;
}

static tm_gpu_own *own_of(const tm_call *call)
{
    return ((const tm_gpu_noted *)call->state)->own;
}

/* --- counts on the host ------------------------------------------------------------------------------------------- */

/* Where a tensor of counts lies, and what is in it. */
struct tm_gpu_counts {
    struct tm_gpu_counts *next;
    const void           *at;
    size_t                n;
    int32_t               number[];
};

void tm_gpu_counts_forget(tm_gpu_own *own)
{
    while (own->counts) {
        tm_gpu_counts *first = own->counts;
        own->counts = first->next;
        free(first);
    }
}

/* Room for a read of so many numbers. */
static tm_status make_room(tm_gpu_own *own, size_t n, tm_error *err)
{
    void *pinned;
    if (own->counts_room >= n) return TM_OK;
    if (own->counts_read) tm_gpu_free_pinned(own->gpu, own->counts_read);
    own->counts_read = NULL;
    own->counts_room = 0;
    TM_TRY(tm_gpu_alloc_pinned(own->gpu, n * sizeof(int32_t), &pinned, err));
    own->counts_read = pinned;
    own->counts_room = n;
    return TM_OK;
}

static tm_gpu_counts *find(const tm_gpu_own *own, const tm_view *counts)
{
    tm_gpu_counts *c = own->counts;
    while (c && (c->at != counts->data || c->n != (size_t)tm_shape_elements(counts->shape))) c = c->next;
    return c;
}

/* Those that are there when all of the queue is done, which is waited for. */
static tm_status read_counts(const tm_call *call, const tm_view *counts, tm_gpu_counts **out, tm_error *err)
{
    tm_gpu_own *own = own_of(call);
    void       *stream = tm_gpu_stream_of(call->queue);
    size_t      n = (size_t)tm_shape_elements(counts->shape), bytes = n * sizeof(int32_t);
    TM_TRY(tm_gpu_queue_read(own->gpu, stream, own->counts_read, counts->data, bytes, err));
    TM_TRY(tm_gpu_ranks_wait(own, stream, err));
    *out = find(own, counts);
    if (!*out) {
        *out = tm_alloc(sizeof **out + bytes);
        (*out)->at = counts->data;
        (*out)->n = n;
        (*out)->next = own->counts;
        own->counts = *out;
    }
    memcpy((*out)->number, own->counts_read, bytes);
    return TM_OK;
}

/* Those of a call that was given counts. */
static tm_status counts_of(const tm_call *call, const int32_t **out, tm_error *err)
{
    tm_gpu_counts *c = find(own_of(call), &call->in[1]);
    if (!c) TM_TRY(read_counts(call, &call->in[1], &c, err));
    *out = c->number;
    return TM_OK;
}

/* Another plan has other tensors there. */
static void release(void *state)
{
    if (state) tm_gpu_counts_forget(((tm_gpu_noted *)state)->own);
    tm_gpu_forget(state);
}

/* --- exchange_counts ---------------------------------------------------------------------------------------------- */

enum { OWN_COUNTS, PLACES };

static const char *refuse_counts(const tm_call *call)
{
    if (attr_of(call)->rows > INT32_MAX) return "takes fewer than 2^31 rows";
    for (int k = 0; k < 2; k++) {
        const char *why = tm_gpu_refuse_whole(&call->out[k]);
        if (why) return why;
    }
    return tm_gpu_refuse_whole(&call->in[0]);
}

/* pieces: what messages call an exchange whose sizes differ. */
static tm_status note_exchange(const void *device, const tm_call *call, const tm_collective *what, void **state,
                               tm_error *err)
{
    return attr_of(call)->group.ranks > 1 ? tm_gpu_note_call(device, call, &attr_of(call)->group, what, state, err)
                                          : TM_OK;
}

static tm_status prepare_counts(const void *device, const tm_call *call, void **state, tm_error *err)
{
    const tm_gpu_defines none = { .n = 0 };
    int64_t              experts = call->out[0].shape.n[1];
    tm_collective        what = {
               .kind = TM_COMM_ALL_GATHER, .format = TM_COMM_BYTES, .count = (size_t)experts * sizeof(int32_t), .step = -1
    };
    tm_gpu_note(device, "exchange", tm_gpu_text_exchange, &none, "own_counts", state);
    tm_gpu_note(device, "exchange", tm_gpu_text_exchange, &none, "exchange_places", state);
    TM_TRY(make_room(((tm_gpu_noted *)*state)->own, (size_t)tm_shape_elements(call->out[0].shape), err));
    return note_exchange(device, call, &what, state, err);
}

static tm_status launch_counts(const tm_call *call, tm_error *err)
{
    const tm_exchange_attr *attr = attr_of(call);
    int64_t                 experts = call->out[0].shape.n[1], each = experts / attr->group.ranks;
    int32_t                *counts = call->out[0].data, *mine = counts + attr->rank * experts;
    tm_gpu_arguments        a = { .bytes = 0 }, b = { .bytes = 0 };
    tm_gpu_counts          *kept;
    tm_gpu_pass(&a, mine);
    tm_gpu_pass(&a, call->in[0].data);
    tm_gpu_pass_i64(&a, experts);
    TM_TRY(tm_gpu_start_each(call, OWN_COUNTS, experts, &a, err));
    if (attr->group.ranks > 1) {
        const tm_gpu_collective *c = tm_gpu_noted_call(call);
        tm_collective            what = c->what;
        what.send = mine;
        what.receive = counts;
        TM_TRY(tm_nccl_queue(c->group, c->number, &what, tm_gpu_stream_of(call->queue), err));
    }
    tm_gpu_pass(&b, call->out[1].data);
    tm_gpu_pass(&b, counts);
    tm_gpu_pass_i64(&b, experts);
    tm_gpu_pass_i64(&b, attr->rank * each);
    tm_gpu_pass_i64(&b, each);
    tm_gpu_pass_int(&b, (int)attr->group.ranks);
    tm_gpu_pass_int(&b, (int)attr->rounds);
    tm_gpu_pass_i64(&b, attr->rows);
    TM_TRY(tm_gpu_start_each(call, PLACES, each + 1, &b, err));
    return read_counts(call, &call->out[0], &kept, err);
}

/* --- send_rows, return_rows --------------------------------------------------------------------------------------- */

enum { ADDS, MOST_EXPERTS = 1024 };

static bool adds(const tm_call *call)
{
    return call->op == &tm_op_return_rows && tm_view_present(&call->in[2]);
}

static const char *refuse_rows(const tm_call *call)
{
    const char *why = tm_gpu_refuse_view(&call->in[0]);
    if (!why) why = tm_gpu_refuse_view(&call->out[0]);
    if (!why && adds(call)) why = tm_gpu_refuse_view(&call->in[2]);
    if (!why) why = tm_gpu_refuse_other(&call->out[0], call->in[0].dtype);
    if (!why && adds(call)) why = tm_gpu_refuse_other(&call->in[2], call->in[0].dtype);
    if (!why) why = tm_gpu_refuse_whole(&call->in[1]);
    if (!why && call->in[1].shape.n[1] > MOST_EXPERTS) why = "a group of the library has messages of 1024 experts";
    return why ? why : call->accumulate ? "does not add to what is there" : NULL;
}

static size_t row_bytes(const tm_call *call)
{
    return (size_t)call->in[0].shape.n[1] * tm_dtype_bytes(call->in[0].dtype);
}

/* What is added is received apart. */
static size_t rows_workspace(const tm_call *call)
{
    return adds(call) && attr_of(call)->group.ranks > 1 ? tm_tensor_bytes(call->out[0].shape, call->out[0].dtype) : 0;
}

static tm_status prepare_rows(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_gpu_defines defines = { .n = 0 };
    tm_collective  what = { .kind = TM_COMM_ALL_TO_ALL, .format = TM_COMM_BYTES, .step = -1 };
    tm_gpu_define_format(&defines, "X", call->in[0].dtype);
    tm_gpu_define_format(&defines, "Y", call->in[0].dtype);
    tm_gpu_note(device, "collectives", tm_gpu_text_collectives, &defines, "add_to", state);
    TM_TRY(make_room(((tm_gpu_noted *)*state)->own, (size_t)tm_shape_elements(call->in[1].shape), err));
    TM_TRY(note_exchange(device, call, &what, state, err));
    tm_gpu_noted *p = *state;
    if (p->collective == 0) return TM_OK;
    tm_gpu_collective *c = &p->own->ranks->all[p->collective - 1];
    c->counts = memset(tm_alloc(sizeof *c->counts), 0, sizeof *c->counts);
    c->what.send_counts = c->what.receive_counts = c->counts; /* pieces, says its name */
    return TM_OK;
}

static void begin(tm_exchange_walk *walk, const tm_call *call, const int32_t *counts)
{
    tm_exchange_begin(walk, call->attr, counts, call->in[1].shape.n[1], -1);
}

/* Rows of the result that come with this round, which are its first ones where none is added and there is one round. */
static int64_t rows_that_come(const tm_call *call, const int32_t *counts)
{
    bool             sends = call->op == &tm_op_send_rows;
    int64_t          rows = 0;
    tm_exchange_walk walk;
    tm_exchange_run  run;
    begin(&walk, call, counts);
    while (tm_exchange_next(&walk, &run))
        if ((sends ? run.to : run.from) == attr_of(call)->rank) rows += run.rows;
    return rows;
}

static tm_status begin_result(const tm_call *call, const int32_t *counts, tm_error *err)
{
    const tm_view *z = &call->out[0];
    size_t         bytes = tm_tensor_bytes(z->shape, z->dtype), first = 0;
    if (adds(call))
        return z->data == call->in[2].data ? TM_OK : tm_gpu_copy_of(call, z->data, call->in[2].data, bytes, err);
    if (call->op == &tm_op_send_rows || attr_of(call)->rounds == 1)
        first = (size_t)rows_that_come(call, counts) * row_bytes(call);
    if (first == bytes) return TM_OK;
    return tm_gpu_queue_fill(own_of(call)->gpu, tm_gpu_stream_of(call->queue), (char *)z->data + first, 0,
                             bytes - first, err);
}

/* Rows `at` and on of the result get what `from` has. */
static tm_status add_rows(const tm_call *call, int64_t at, const void *from, int64_t rows, tm_error *err)
{
    tm_gpu_arguments a = { .bytes = 0 };
    int64_t          n = rows * call->out[0].shape.n[1];
    char            *to = (char *)call->out[0].data + (size_t)at * row_bytes(call);
    bool             wide = ((uintptr_t)to | (uintptr_t)from) % 16 == 0;
    int              run = tm_gpu_run(call->in[0].dtype, call->out[0].dtype);
    tm_gpu_pass(&a, to);
    tm_gpu_pass(&a, from);
    tm_gpu_pass_i64(&a, n);
    tm_gpu_pass_int(&a, wide);
    return tm_gpu_start_each(call, ADDS, tm_gpu_pieces(n, run, wide), &a, err);
}

/* Of a group of one. */
static tm_status rows_alone(const tm_call *call, const int32_t *counts, tm_error *err)
{
    bool             sends = call->op == &tm_op_send_rows;
    size_t           bytes = row_bytes(call);
    tm_exchange_walk walk;
    tm_exchange_run  run;
    begin(&walk, call, counts);
    while (tm_exchange_next(&walk, &run)) {
        int64_t     from = sends ? run.at : run.place, to = sends ? run.place : run.at;
        const char *x = (const char *)call->in[0].data + (size_t)from * bytes;
        TM_TRY(adds(call) ? add_rows(call, to, x, run.rows, err)
                          : tm_gpu_copy_of(call, (char *)call->out[0].data + (size_t)to * bytes, x,
                                           (size_t)run.rows * bytes, err));
    }
    return TM_OK;
}

static void add_message(tm_gpu_ranks *r, int64_t peer, bool sends, const void *at, size_t bytes)
{
    if (r->n_messages == r->messages_room) {
        r->messages_room = r->messages_room ? 2 * r->messages_room : 64;
        r->messages = tm_realloc(r->messages, r->messages_room * sizeof *r->messages);
    }
    r->messages[r->n_messages++] = (tm_nccl_message){ (int)peer, sends, (void *)at, bytes };
}

/* Messages of the round. Between two ranks both sides have them in the order of the experts. */
static void list_messages(const tm_call *call, const int32_t *counts, char *to)
{
    tm_gpu_ranks    *r = own_of(call)->ranks;
    bool             sends = call->op == &tm_op_send_rows;
    int64_t          rank = attr_of(call)->rank;
    size_t           bytes = row_bytes(call);
    const char      *x = call->in[0].data;
    tm_exchange_walk walk;
    tm_exchange_run  run;
    r->n_messages = 0;
    begin(&walk, call, counts);
    while (tm_exchange_next(&walk, &run)) {
        int64_t source = sends ? run.from : run.to, end = sends ? run.to : run.from;
        int64_t out = sends ? run.at : run.place, in = sends ? run.place : run.at;
        size_t  n = (size_t)run.rows * bytes;
        if (source == rank) add_message(r, end, true, x + (size_t)out * bytes, n);
        if (end == rank) add_message(r, source, false, to + (size_t)in * bytes, n);
    }
}

/* What was received is added, where its rows lie in a row at once. */
static tm_status add_received(const tm_call *call, const int32_t *counts, tm_error *err)
{
    int64_t          at = 0, rows = 0;
    const char      *from = call->workspace;
    tm_exchange_walk walk;
    tm_exchange_run  run;
    begin(&walk, call, counts);
    while (tm_exchange_next(&walk, &run)) {
        if (run.from != attr_of(call)->rank) continue;
        if (rows > 0 && run.at != at + rows) {
            TM_TRY(add_rows(call, at, from + (size_t)at * row_bytes(call), rows, err));
            rows = 0;
        }
        if (rows == 0) at = run.at;
        rows += run.rows;
    }
    return rows > 0 ? add_rows(call, at, from + (size_t)at * row_bytes(call), rows, err) : TM_OK;
}

static tm_status launch_rows(const tm_call *call, tm_error *err)
{
    const int32_t *counts;
    TM_TRY(counts_of(call, &counts, err));
    TM_TRY(begin_result(call, counts, err));
    if (attr_of(call)->group.ranks == 1) return rows_alone(call, counts, err);
    const tm_gpu_collective *c = tm_gpu_noted_call(call);
    tm_gpu_ranks            *r = own_of(call)->ranks;
    list_messages(call, counts, adds(call) ? call->workspace : call->out[0].data);
    if (r->n_messages > 0)
        TM_TRY(tm_nccl_queue_messages(c->group, c->number, &c->what, r->messages, r->n_messages,
                                      tm_gpu_stream_of(call->queue), err));
    return adds(call) ? add_received(call, counts, err) : TM_OK;
}

#define ROWS(id)                                                                                                       \
    {                                                                                                                  \
        .op = TM_OP_##id, .name = #id "/gpu", .refuse = refuse_rows, .workspace = rows_workspace,                      \
        .launch = launch_rows, .prepare = prepare_rows, .release = release, .host = true                               \
    }
const tm_kernel tm_gpu_exchange[] = { { .op = TM_OP_exchange_counts,
                                        .name = "exchange_counts/gpu",
                                        .refuse = refuse_counts,
                                        .launch = launch_counts,
                                        .prepare = prepare_counts,
                                        .release = release,
                                        .host = true },
                                      ROWS(send_rows),
                                      ROWS(return_rows),
                                      { .name = NULL } };
