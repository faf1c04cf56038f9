/* SPDX-License-Identifier: Apache-2.0 */
/* comm/coll/nccl_calls.c - calls of NCCL and RCCL, waits for them, and what is said when they fail. */
#include "comm/coll/nccl_own.h"

#include "base/arena.h"
#include "base/clock.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const int types[] = { [TM_COMM_BYTES] = NCCL_UINT8,
                             [TM_COMM_INT64] = NCCL_INT64,
                             [TM_COMM_FLOAT64] = NCCL_FLOAT64,
                             [TM_COMM_FLOAT32] = NCCL_FLOAT32,
                             [TM_COMM_BFLOAT16] = NCCL_BFLOAT16 };
static const int ops[] = { [TM_COMM_SUM] = NCCL_SUM, [TM_COMM_MAX] = NCCL_MAX, [TM_COMM_MIN] = NCCL_MIN };

/* --- failures -------------------------------------------------------------------------------- */

static void give_up(tm_nccl *n)
{
    for (int i = 0; i < n->groups; i++) {
        if (n->group[i]->comm) n->call.CommAbort(n->group[i]->comm);
        n->group[i]->comm = NULL;
    }
}

/* The first failure is the one that stays; the communicators are of no use any more. */
static tm_status cancel_all(tm_nccl *n, tm_status st, const tm_error *why, tm_error *err)
{
    if (!n->failed) {
        n->failed = true;
        n->error = (tm_error){ 0 };
        (void)tm_fail(&n->error, st, "%s", why->text);
        give_up(n);
    }
    return tm_fail(err, n->error.status, "%s", n->error.text);
}

void tm_nccl_give_up(tm_nccl *n, const tm_error *why)
{
    tm_error told = { 0 };
    (void)cancel_all(n, why->status, why, &told);
}

/* What is under way by a number is what messages tell of. */
static void recall(tm_nccl *n)
{
    int32_t number = n->under_way ? *n->under_way : -1;
    if (number >= 0 && number < n->n_noted) n->last = n->noted[number];
}

static tm_status call_failed(tm_nccl_group *g, const char *call, int code, tm_error *err)
{
    char        what[256];
    tm_nccl    *n = g->of;
    const char *more = n->call.GetLastError && g->comm ? n->call.GetLastError(g->comm) : NULL;
    tm_error    why = { 0 };
    (void)tm_fail(&why, TM_DEVICE, "rank %d: %s (%s): %s (%d)%s%s", tm_comm_rank(n->world), call,
                  tm_comm_header_text(&n->last, what), n->call.GetErrorString(code), code, more && *more ? "; " : "",
                  more ? more : "");
    return cancel_all(n, TM_DEVICE, &why, err);
}

typedef struct {
    int64_t begin_ns, turn;
} backoff;

/* One turn of waiting; false: the deadline has passed. */
static bool wait_turn(const tm_nccl *n, backoff *p)
{
    enum { YIELDS = 2000, NAP_NS = 20000 };
    if (p->turn++ == 0) p->begin_ns = tm_now_ns();
    if (p->turn < YIELDS)
        sched_yield();
    else
        nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
    return (double)(tm_now_ns() - p->begin_ns) * 1e-9 < n->deadline_s;
}

/* Nobody can tell by a GPU that waits for which rank it does. Ranks that still are there come to a roll call, and its
 * error names the one that does not. */
static void tell_lateness(const tm_nccl *n, const char *where, tm_error *out)
{
    char                what[256];
    tm_error            missing = { 0 };
    const tm_gpu_facts *gpu = tm_gpu_facts_of(n->gpu);
    tm_collective       roll_call = { .kind = TM_COMM_BARRIER, .what = "roll call after a GPU's deadline", .step = -1 };
    if (tm_comm_run(n->world, &roll_call, &missing) == TM_OK)
        (void)tm_fail(&missing, TM_DEVICE, "all ranks are there: look at what links the GPUs (NCCL_DEBUG=INFO)");
    (void)tm_fail(out, TM_DEVICE, "rank %d has waited %g s %s %s on GPU %d (%s); %s", tm_comm_rank(n->world),
                  n->deadline_s, where, tm_comm_header_text(&n->last, what), gpu->index, gpu->bus, missing.text);
}

static tm_status too_late(tm_nccl *n, const char *where, tm_error *err)
{
    tm_error why = { 0 };
    recall(n);
    give_up(n);
    tell_lateness(n, where, &why);
    return cancel_all(n, TM_DEVICE, &why, err);
}

tm_status nccl_through(tm_nccl_group *g, const char *call, int code, tm_error *err)
{
    tm_nccl *n = g->of;
    backoff  p = { 0 };
    n->since_ns = 0;
    while (code == NCCL_IN_PROGRESS && g->comm) {
        int asked = n->call.CommGetAsyncError(g->comm, &code);
        if (asked != NCCL_SUCCESS) return call_failed(g, "ncclCommGetAsyncError", asked, err);
        if (code == NCCL_IN_PROGRESS && !wait_turn(n, &p)) return too_late(n, "for the begin of", err);
    }
    return code == NCCL_SUCCESS ? TM_OK : call_failed(g, call, code, err);
}

void nccl_enter(tm_nccl *n, const char *call)
{
    n->within = call;
    n->since_ns = tm_now_ns();
}

/* The library blocks while it makes connections. It can be told not to, but then it starts a thread for every call,
 * which takes 70 us instead of some 5. So somebody else looks at the clock: what hangs cannot be helped, but it is
 * told, and ends. */
void *nccl_watch(void *nccl)
{
    enum { LOOK_NS = 20000000 };
    tm_nccl *n = nccl;
    while (!n->ends) {
        int64_t since = n->since_ns;
        if (since > 0 && (double)(tm_now_ns() - since) * 1e-9 > n->deadline_s) {
            tm_error why = { 0 };
            char     where[64];
            snprintf(where, sizeof where, "within %.50s,", n->within);
            tell_lateness(n, where, &why);
            tm_comm_abort(n->world, tm_status_exit_code(TM_DEVICE), why.text);
            break; /* ranks that are threads stay */
        }
        nanosleep(&(struct timespec){ .tv_nsec = LOOK_NS }, NULL);
    }
    return NULL;
}

/* --- calls ----------------------------------------------------------------------------------- */

/* As messages to and from every rank, all under way at once. */
static tm_status all_to_all(tm_nccl_group *g, const tm_collective *call, void *stream, tm_error *err)
{
    tm_nccl    *n = g->of;
    size_t      bytes = tm_comm_bytes_of(call->format), to = 0, from = 0;
    int         type = types[call->format];
    const char *send = call->send;
    char       *receive = call->receive;
    TM_TRY(nccl_through(g, "ncclGroupStart", n->call.GroupStart(), err));
    for (int r = 0; r < tm_comm_size(g->ranks); r++) {
        size_t out = call->send_counts ? call->send_counts[r] : call->count;
        size_t in = call->receive_counts ? call->receive_counts[r] : call->count;
        if (out > 0) NCCL_MUST(g, Send, send + to, out, type, r, g->comm, stream);
        if (in > 0) NCCL_MUST(g, Recv, receive + from, in, type, r, g->comm, stream);
        to += out * bytes;
        from += in * bytes;
    }
    nccl_enter(n, "ncclGroupEnd");
    return nccl_through(g, "ncclGroupEnd", n->call.GroupEnd(), err);
}

static tm_status call_one(tm_nccl_group *g, const tm_collective *c, void *stream, tm_error *err)
{
    tm_nccl *n = g->of;
    int      type = types[c->format], op = ops[c->op];
    if (n->failed) return tm_fail(err, n->error.status, "%s", n->error.text);
    if (c->format == TM_COMM_BFLOAT16 && n->version < NCCL_HAS_BFLOAT16)
        return tm_fail(err, TM_UNSUPPORTED, "'%s' is version %s: bfloat16 came with 2.10; use float32, or a later one",
                       n->facts.library, n->facts.version);
    tm_comm_header_fill(c, &n->last);
    switch (c->kind) {
    case TM_COMM_ALL_REDUCE:
        NCCL_MUST(g, AllReduce, c->send, c->receive, c->count, type, op, g->comm, stream);
        break;
    case TM_COMM_REDUCE_SCATTER:
        NCCL_MUST(g, ReduceScatter, c->send, c->receive, c->count, type, op, g->comm, stream);
        break;
    case TM_COMM_ALL_GATHER:
        NCCL_MUST(g, AllGather, c->send, c->receive, c->count, type, g->comm, stream);
        break;
    case TM_COMM_BROADCAST:
        NCCL_MUST(g, Broadcast, c->send, c->receive, c->count, type, c->peer, g->comm, stream);
        break;
    case TM_COMM_ALL_TO_ALL:
        return all_to_all(g, c, stream, err);
    case TM_COMM_SEND:
        NCCL_MUST(g, Send, c->send, c->count, type, g->lane ? 1 : c->peer, g->comm, stream);
        break;
    case TM_COMM_RECEIVE:
        NCCL_MUST(g, Recv, c->receive, c->count, type, g->lane ? 0 : c->peer, g->comm, stream);
        break;
    case TM_COMM_BARRIER:
        TM_ASSERT(!"a barrier is the world's");
    }
    return TM_OK;
}

tm_status tm_nccl_run(tm_nccl *n, const tm_collective *c, tm_error *err)
{
    return call_one(n->group[0], c, n->stream, err);
}

int tm_nccl_note(tm_nccl *n, const tm_collective *call)
{
    if (n->n_noted == n->noted_room) {
        n->noted_room = n->noted_room ? 2 * n->noted_room : 64;
        n->noted = tm_realloc(n->noted, (size_t)n->noted_room * sizeof *n->noted);
    }
    tm_comm_header_fill(call, &n->noted[n->n_noted]);
    return n->n_noted++;
}

/* The GPU says where it is: a number goes to memory that the processor sees. Those that are not in the table share its
 * last one. */
static tm_status mark(tm_nccl *n, int number, void *stream, tm_error *err)
{
    int known = number < NCCL_NUMBERS ? number : NCCL_NUMBERS - 1;
    return tm_gpu_queue_read(n->gpu, stream, n->under_way, n->numbers + (size_t)(known + 1) * sizeof(int32_t),
                             sizeof(int32_t), err);
}

tm_status tm_nccl_queue(tm_nccl_group *g, int number, const tm_collective *call, void *stream, tm_error *err)
{
    TM_TRY(tm_nccl_begin(g->of, number, stream, err));
    TM_TRY(call_one(g, call, stream, err));
    return tm_nccl_end(g->of, stream, err);
}

tm_status tm_nccl_queue_messages(tm_nccl_group *g, int number, const tm_collective *call,
                                 const tm_nccl_message *messages, size_t count, void *stream, tm_error *err)
{
    tm_nccl  *n = g->of;
    const int type = types[TM_COMM_BYTES];
    if (n->failed) return tm_fail(err, n->error.status, "%s", n->error.text);
    TM_TRY(mark(n, number, stream, err));
    tm_comm_header_fill(call, &n->last);
    TM_TRY(nccl_through(g, "ncclGroupStart", n->call.GroupStart(), err));
    for (size_t i = 0; i < count; i++) {
        const tm_nccl_message *m = &messages[i];
        if (m->sends) NCCL_MUST(g, Send, m->data, m->bytes, type, m->peer, g->comm, stream);
        if (!m->sends) NCCL_MUST(g, Recv, m->data, m->bytes, type, m->peer, g->comm, stream);
    }
    nccl_enter(n, "ncclGroupEnd");
    TM_TRY(nccl_through(g, "ncclGroupEnd", n->call.GroupEnd(), err));
    return mark(n, -1, stream, err);
}

tm_status tm_nccl_begin(tm_nccl *n, int number, void *stream, tm_error *err)
{
    return mark(n, number, stream, err);
}

tm_status tm_nccl_end(tm_nccl *n, void *stream, tm_error *err)
{
    return mark(n, -1, stream, err);
}

tm_status tm_nccl_post(tm_nccl_group *g, const tm_collective *call, void *stream, tm_error *err)
{
    return call_one(g, call, stream, err);
}

/* --- waits ----------------------------------------------------------------------------------- */

static tm_status look_at_groups(tm_nccl *n, tm_error *err)
{
    for (int i = 0; i < n->groups; i++) {
        int code = NCCL_SUCCESS, asked = n->call.CommGetAsyncError(n->group[i]->comm, &code);
        if (asked != NCCL_SUCCESS) return call_failed(n->group[i], "ncclCommGetAsyncError", asked, err);
        if (code == NCCL_SUCCESS || code == NCCL_IN_PROGRESS) continue;
        recall(n);
        return call_failed(n->group[i], "what was under way", code, err);
    }
    return TM_OK;
}

/* Is the GPU in another call than at the last look, or in none? Then the deadline counts from here. */
static bool goes_on(const tm_nccl *n, int32_t *before)
{
    if (!n->under_way) return false;
    int32_t now = *n->under_way;
    bool    other = now != *before || now < 0;
    *before = now;
    return other;
}

static tm_status wait_for(tm_nccl *n, void *stream, tm_error *err)
{
    enum { LOOK = 16 };
    backoff p = { 0 };
    bool    done = false;
    int32_t before = -1;
    if (n->failed) return tm_fail(err, n->error.status, "%s", n->error.text);
    for (;;) {
        tm_error  why = { 0 };
        tm_status st = tm_gpu_stream_done(n->gpu, stream, &done, &why);
        if (st != TM_OK) return cancel_all(n, st, &why, err);
        if (!done && p.turn % LOOK == 0 && (st = tm_comm_failed(n->world, &why)) != TM_OK)
            return cancel_all(n, st, &why, err);
        if (done || p.turn % LOOK == 0) TM_TRY(look_at_groups(n, err));
        if (done) return TM_OK;
        if (goes_on(n, &before)) p.begin_ns = tm_now_ns();
        if (!wait_turn(n, &p)) return too_late(n, "for the end of", err);
    }
}

tm_status tm_nccl_wait(tm_nccl *n, tm_error *err)
{
    return wait_for(n, n->stream, err);
}

tm_status tm_nccl_wait_for(tm_nccl *n, void *stream, tm_error *err)
{
    return wait_for(n, stream, err);
}
