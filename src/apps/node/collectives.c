/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/collectives.c - collective calls whose every element is known beforehand, on both sides of every size at
 * which the way of a call changes (docs/ranks.md); who is to blame is judged by all receivers together.
 *
 * Calls go in *legs*: every kind at the sizes around one switch. Format, memory, group and numbers change from round to
 * round, the same on all ranks; the first rank ends it when the time is up.
 */
#include "apps/node/among.h"
#include "apps/node/blame.h"
#include "apps/node/checks.h"
#include "apps/node/collectives_gpu.h"
#include "apps/node/payload.h"
#include "apps/node/payload_value.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NEAR: switches whose calls are cheap; EARLIER: calls that are remembered; ROOM: bytes of a buffer at most. */
enum { NEAR = 6, EARLIER = 8, ROOM = 16 << 20, SLACK = 64 << 10, LEAST_ROOM = 1 << 20, KINDS = 8, FORMATS = 5 };
static const size_t switches[] = { 64, 4096, 8192, 32768, 65536, 262144, 1 << 20, 8 << 20, 16 << 20 };
enum { SWITCHES = sizeof switches / sizeof switches[0], PAST = SWITCHES - 1 };

enum { WORLD, ROWS, COLUMNS, GROUPS };
enum { SHARED, PRIVATE, MIXED, SENT_SHARED, PLACES };

static const struct {
    tm_comm_kind kind;
    bool         uneven, buffered;
    const char  *name;
} kinds[KINDS] = {
    { TM_COMM_ALL_REDUCE, false, false, "all-reduce" }, { TM_COMM_REDUCE_SCATTER, false, false, "reduce-scatter" },
    { TM_COMM_ALL_GATHER, false, false, "all-gather" }, { TM_COMM_BROADCAST, false, false, "broadcast" },
    { TM_COMM_ALL_TO_ALL, false, false, "all-to-all" }, { TM_COMM_ALL_TO_ALL, true, false, "all-to-all with counts" },
    { TM_COMM_SEND, false, false, "messages" },         { TM_COMM_SEND, false, true, "buffered messages" },
};
static const char *const formats[FORMATS] = { "bytes", "int64", "float64", "float32", "bfloat16" };

/* One call of the plan. */
typedef struct {
    int             row, place, group, channel;
    bool            in_place;
    size_t          bytes; /* of the switch */
    tm_payload_call data;
} planned;

typedef struct {
    tm_comm *comm;
    int      size, rank, *member, *partner;
} group;

typedef struct {
    const tm_node_task  *task;
    tm_node_gpus        *gpus; /* NULL: in the host's memory */
    double               seconds;
    const tm_node_calls *calls;
    tm_comm             *world;
    group                groups[GROUPS];
    unsigned char       *shared, *own, *sent, *want, *was; /* shared, own: send and receive, each `room` */
    size_t               room;
    uint64_t             number, elements, bytes;
    size_t               largest;
    tm_payload_call      earlier[EARLIER];
    int                  n_earlier;
    uint32_t            *wrong; /* (ranks + 1) by sender; the last one: of sums, not known whose */
    char (*text)[TM_NODE_TEXT]; /* (ranks + 1) the one that tells most: with most wrong elements of a kind that has a
                                   name */
    size_t *tells;
} session;

/* --- what is called -------------------------------------------------------------------------- */

static size_t count_of(const session *s, const planned *p, int delta, bool divided)
{
    const size_t each = tm_payload_bytes(p->data.format), size = (size_t)s->groups[p->group].size;
    const size_t ranks = (size_t)s->task->ranks; /* the same limit for all groups of a call */
    const bool   pieces =
        p->data.kind != TM_COMM_ALL_REDUCE && p->data.kind != TM_COMM_BROADCAST && p->data.kind != TM_COMM_SEND;
    const size_t most = (s->room - SLACK / 2) / each / (pieces ? ranks : 1) - (pieces ? 8 : 0);
    size_t       count = p->bytes / each / (pieces && divided ? size : 1);
    if (count > 0 || delta > 0) count += (size_t)delta;
    return count < most ? count : most;
}

/* The call of a round at a switch. Everything follows from the numbers, alike on all ranks. */
static planned plan(session *s, int round, int at, int row, int delta)
{
    const group *groups = s->groups;
    planned      p = { .row = row,
                       .place = (round + row) % PLACES,
                       .group = round / 2 % GROUPS,
                       .channel = round % 2,
                       .in_place = (round + round / PLACES + row) % 2,
                       .bytes = switches[at] };
    const int    format = (round + row + at) % FORMATS, number = round * KINDS + row + delta + 1;
    p.data = (tm_payload_call){ .seed = s->task->options->seed,
                                .number = s->number++,
                                .kind = kinds[row].kind,
                                .format = (tm_comm_format)format,
                                .uneven = kinds[row].uneven };
    const bool reduces = tm_payload_reduces(&p.data);
    if (at == PAST) p.data.format = TM_COMM_FLOAT32, p.place = SHARED, p.in_place = false, p.group = WORLD;
    if (reduces && p.data.format == TM_COMM_BYTES) p.data.format = TM_COMM_FLOAT32;
    if (reduces && at != PAST) p.data.op = number % 5 == 3 ? TM_COMM_MAX : number % 5 == 4 ? TM_COMM_MIN : TM_COMM_SUM;
    if (reduces && p.data.op == TM_COMM_SUM)
        p.data.values = (tm_payload_values)(TM_PAYLOAD_ORDER + (round + delta + 1) % 3);
    else if (reduces)
        p.data.values = TM_PAYLOAD_ORDER;
    if (row >= KINDS - 4) p.in_place = false;
    if (s->gpus) { /* of the world alone; the library adds in an order of its own */
        p.place = PRIVATE, p.group = WORLD, p.channel = 0;
        if (p.data.values == TM_PAYLOAD_ORDER) p.data.values = TM_PAYLOAD_EXACT;
        if (reduces && p.data.format == TM_COMM_BFLOAT16 && s->task->ranks > 256) p.data.format = TM_COMM_FLOAT32;
    }
    p.data.size = groups[p.group].size, p.data.member = groups[p.group].member;
    p.data.root = (int)(p.data.number % (uint64_t)p.data.size);
    p.data.count = count_of(s, &p, delta, round % 2 == 0);
    return p;
}

static unsigned char *memory_of(const session *s, const planned *p, bool receives)
{
    const bool shared = s->shared && (p->place == SHARED || (p->place == MIXED && s->task->rank % 2 == 0) ||
                                      (p->place == SENT_SHARED && !receives));
    return (shared ? s->shared : s->own) + (receives ? s->room : 0);
}

/* Messages to and from the other one of a pair: the lower rank sends first. */
static tm_status exchange(session *s, const planned *p, tm_collective *call, tm_error *err)
{
    const group *g = &s->groups[p->group];
    const int    other = g->partner[g->rank];
    if (other < 0) return TM_OK;
    call->peer = other, call->buffered = kinds[p->row].buffered, call->channel = p->channel;
    for (int i = 0; i < 2; i++) {
        const bool sends = (i == 0) == (call->buffered || g->rank < other);
        call->kind = sends ? TM_COMM_SEND : TM_COMM_RECEIVE;
        TM_TRY(tm_node_call_run(s->calls, g->comm, call, err));
    }
    return TM_OK;
}

/* Lays out memory, calls, and leaves what was received at *got. */
static tm_status make(session *s, const planned *p, unsigned char **source, unsigned char **got, tm_error *err)
{
    const tm_payload_call *c = &p->data;
    const group           *g = &s->groups[p->group];
    const size_t           each = tm_payload_bytes(c->format), at = (size_t)g->rank * c->count * each;
    const size_t   sends = tm_payload_sends(c, g->rank) * each, receives = tm_payload_receives(c, g->rank) * each;
    unsigned char *send = memory_of(s, p, false), *receive = memory_of(s, p, true);
    size_t         counts[2][TM_NODE_TEXT];
    if (p->in_place && c->kind == TM_COMM_ALL_GATHER) send = receive + at;
    if (p->in_place && c->kind == TM_COMM_REDUCE_SCATTER) receive = send + at;
    if (p->in_place && (c->kind == TM_COMM_ALL_REDUCE || c->kind == TM_COMM_BROADCAST)) receive = send;
    tm_payload_send_image(c, g->rank, s->sent);
    tm_payload_receive_image(c, g->rank, s->want);
    tm_payload_fill(c, s->was, receives + TM_PAYLOAD_GUARD);
    memcpy(receive, s->was, receives + TM_PAYLOAD_GUARD);
    memcpy(send, s->sent, sends);
    memcpy(s->was, receive, receives + TM_PAYLOAD_GUARD);
    tm_collective call = { .kind = c->kind,
                           .op = c->op,
                           .format = c->format,
                           .send = send,
                           .receive = receive,
                           .count = c->count,
                           .peer = c->root,
                           .what = "certified data",
                           .step = (int64_t)c->number };
    if (c->kind == TM_COMM_BROADCAST && g->rank != c->root) call.send = NULL;
    size_t *more = c->uneven && c->size > TM_NODE_TEXT ? tm_alloc(2 * (size_t)c->size * sizeof *more) : NULL;
    size_t *out = more ? more : counts[0], *in = more ? more + c->size : counts[1];
    for (int r = 0; r < c->size && c->uneven; r++)
        out[r] = tm_payload_piece(c, g->rank, r), in[r] = tm_payload_piece(c, r, g->rank);
    if (c->uneven) call.send_counts = out, call.receive_counts = in;
    tm_status st =
        c->kind == TM_COMM_SEND ? exchange(s, p, &call, err) : tm_node_call_run(s->calls, g->comm, &call, err);
    free(more);
    *source = p->in_place ? NULL : send, *got = receive;
    return st;
}

/* --- what came of it ------------------------------------------------------------------------- */

static void note(session *s, const planned *p, const tm_wrong *w)
{
    static const char *const places[PLACES] = { "shared memory", "private memory", "mixed memory",
                                                "memory shared to send" };
    static const char *const groups[GROUPS] = { "the world", "a row", "a column" };
    static const char *const ops[] = { "sum", "max", "min" };
    const tm_payload_call   *c = &p->data;
    const int                of = w->how >= TM_WRONG_BEHIND ? s->task->rank : w->from < 0 ? s->task->ranks : w->from;
    char                     how[160];
    const size_t             tells = w->how == TM_WRONG_VALUES ? 1 : 2 + w->wrong;
    s->wrong[of]++;
    if (tells <= s->tells[of]) return;
    s->tells[of] = tells;
    snprintf(s->text[of], sizeof s->text[of], "%s; %s%s%s of %zu %s in %s%s, %s, call %llu", tm_wrong_text(w, how),
             kinds[p->row].name, tm_payload_reduces(c) ? " " : "", tm_payload_reduces(c) ? ops[c->op] : "", c->count,
             formats[c->format],
             s->gpus     ? "memory of GPUs"
             : s->shared ? places[p->place]
                         : "private memory",
             p->in_place ? " in place" : "", groups[p->group], (unsigned long long)c->number);
}

static void judge(session *s, const planned *p, const unsigned char *source, const unsigned char *got)
{
    const tm_payload_call *c = &p->data;
    const group           *g = &s->groups[p->group];
    const size_t           each = tm_payload_bytes(c->format), sends = tm_payload_sends(c, g->rank) * each;
    const size_t           receives = tm_payload_receives(c, g->rank) * each;
    const bool inside = p->in_place && c->kind == TM_COMM_REDUCE_SCATTER; /* what follows is not behind it */
    s->elements += receives / each, s->bytes += receives;
    if (p->bytes > s->largest && receives > 0) s->largest = p->bytes;
    if (memcmp(got, s->want, receives) != 0) {
        tm_wrong             *wrong = tm_alloc((size_t)c->size * sizeof *wrong);
        const tm_payload_case k = { c, s->earlier, s->n_earlier, g->rank, got, s->want, s->was };
        const int             n = tm_payload_diagnose(&k, wrong, c->size);
        for (int i = 0; i < n; i++) note(s, p, &wrong[i]);
        free(wrong);
    }
    if (!inside && memcmp(got + receives, s->was + receives, TM_PAYLOAD_GUARD) != 0)
        note(s, p, &(tm_wrong){ .how = TM_WRONG_BEHIND });
    if (source && memcmp(source, s->sent, sends) != 0) {
        tm_wrong w = { .how = TM_WRONG_SOURCE };
        while (memcmp(source + w.first * each, s->sent + w.first * each, each) == 0) w.first++;
        note(s, p, &w);
    }
}

static tm_status one(session *s, int round, int at, int row, int delta, tm_error *err)
{
    planned        p = plan(s, round, at, row, delta);
    group         *g = &s->groups[p.group];
    unsigned char *source, *got;
    if (g->size == 1) return TM_OK;
    for (int r = 0; r < g->size; r++) g->partner[r] = tm_node_partner(g->size, round % tm_node_turns(g->size), r);
    p.data.partner = g->partner;
    TM_TRY(make(s, &p, &source, &got, err));
    judge(s, &p, source, got);
    memmove(s->earlier + 1, s->earlier, (EARLIER - 1) * sizeof s->earlier[0]);
    s->earlier[0] = p.data;
    if (s->n_earlier < EARLIER) s->n_earlier++;
    return TM_OK;
}

/* Every kind around one switch: at all of its sizes where they are small, else at one that changes. */
static tm_status leg(session *s, int round, int at, tm_error *err)
{
    const int rows = at == PAST ? 2 : s->gpus ? KINDS - 1 : KINDS; /* GPUs have no buffered messages */
    for (int row = 0; row < rows; row++)
        for (int delta = -1; delta <= 1; delta++)
            if (at < NEAR || delta == (round / 4 + row) % 3 - 1) TM_TRY(one(s, round, at, row, delta, err));
    return TM_OK;
}

/* The legs in their order: large ones in fewer rounds. */
static bool in_round(int round, int at)
{
    return at < NEAR || (at == NEAR ? round % 3 == 1 : at == NEAR + 1 ? round % 6 == 2 : round % 12 == 3);
}

static tm_status all_legs(session *s, tm_error *err)
{
    const int64_t begun = tm_now_ns();
    double        each = 0; /* seconds of a call for each byte of its switch */
    bool          goes_on = true;
    for (int round = 0; goes_on; round++)
        for (int at = 0; at < SWITCHES && goes_on; at++) {
            if (!in_round(round, at) || switches[at] > s->room) continue;
            const int64_t now = tm_now_ns();
            const double  calls = at < NEAR ? 3 * KINDS : at == PAST ? 2 : KINDS;
            const double  left = s->seconds - (double)(now - begun) * 1e-9;
            const bool    more =
                round == 0 ? at < 2 || left > 0 : left > (at < NEAR ? 0 : each * calls * (double)switches[at]);
            TM_TRY(tm_node_goes_on(s->world, more, &goes_on, err));
            if (!goes_on) break;
            TM_TRY(leg(s, round, at, err));
            if (at >= NEAR - 1) each = (double)(tm_now_ns() - now) * 1e-9 / calls / (double)switches[at];
        }
    return TM_OK;
}

/* --- who it was ------------------------------------------------------------------------------ */

/* What each rank has seen, with a sum that shows whether it came as it was sent. */
static tm_status gather(session *s, uint32_t *all, tm_error *err)
{
    const size_t   ranks = (size_t)s->task->ranks, words = ranks + 1, bytes = words * 4 + 8;
    unsigned char *own = tm_alloc(bytes), *rows = tm_alloc(ranks * bytes);
    const uint64_t sum = tm_hash(s->wrong, words * 4) ^ (uint64_t)s->task->rank;
    memcpy(own, s->wrong, words * 4);
    memcpy(own + words * 4, &sum, 8);
    const tm_collective call = { .kind = TM_COMM_ALL_GATHER,
                                 .format = TM_COMM_BYTES,
                                 .send = own,
                                 .receive = rows,
                                 .count = bytes,
                                 .what = "what ranks have seen",
                                 .step = -1 };
    tm_status           st = tm_node_call_run(s->calls, s->world, &call, err);
    for (size_t r = 0; r < ranks && st == TM_OK; r++) {
        uint64_t told;
        memcpy(all + r * words, rows + r * bytes, words * 4);
        memcpy(&told, rows + r * bytes + words * 4, 8);
        if (r == (size_t)s->task->rank || told == (tm_hash(all + r * words, words * 4) ^ (uint64_t)r)) continue;
        memset(all + r * words, 0, words * 4);
        /* Its own data is wrong, unless that of this rank is. */
        all[r * words + r] = s->wrong[s->task->rank] == 0;
        if (s->wrong[r]++ == 0) snprintf(s->text[r], sizeof s->text[r], "what rank %zu has seen came damaged", r);
    }
    memcpy(all + (size_t)s->task->rank * words, s->wrong, words * 4);
    free(own);
    free(rows);
    return st;
}

static void find(const session *s, const uint32_t *matrix, const tm_blame *b, tm_node_outcome *out)
{
    const int ranks = s->task->ranks, me = s->task->rank;
    char      place[TM_NODE_PLACE];
    int       witness = 0, sender = b->sender;
    if (b->kind == TM_BLAME_SENDER) {
        while (witness < ranks - 1 && (witness == sender || matrix[witness * ranks + sender] == 0)) witness++;
        if (witness != me) return;
        snprintf(place, sizeof place, "what rank %d sends", sender);
        tm_node_find(out, sender, place, "seen by %d of %d others: %s", b->seen, ranks - 1, s->text[sender]);
        return;
    }
    if (b->receiver != me) return; /* it has the text */
    if (b->kind == TM_BLAME_LINK) {
        snprintf(place, sizeof place, "rank %d -> rank %d", sender, me);
        tm_node_find(out, sender, place, "%u calls, the link or one of its ends: %s", matrix[me * ranks + sender],
                     s->text[sender]);
        return;
    }
    for (sender = 0; sender < ranks && (sender == me || s->wrong[sender] == 0); sender++)
        ;
    if (sender == ranks) sender = s->wrong[me] ? me : ranks;
    snprintf(place, sizeof place, "what rank %d receives", me);
    if (b->seen == 0)
        tm_node_find(out, me, place, "%s", s->text[me]);
    else
        tm_node_find(out, me, place, "wrong from %d of %d others: %s", b->seen, ranks - 1, s->text[sender]);
}

/* Sums that nobody's data explains: one rank receives them wrong, or all do. */
static void find_sums(const session *s, const uint32_t *all, tm_node_outcome *out)
{
    const int ranks = s->task->ranks, me = s->task->rank;
    int       seen = 0, first = -1;
    for (int r = 0; r < ranks; r++)
        if (all[r * (ranks + 1) + ranks] > 0 && seen++ == 0) first = r;
    if (all[me * (ranks + 1) + ranks] == 0) return;
    if (seen == 1)
        tm_node_find(out, me, "sums", "wrong on this rank alone: %s", s->text[ranks]);
    else if (first == me)
        tm_node_find(out, -1, "sums", "wrong on %d of %d ranks, it is not known whose part: %s", seen, ranks,
                     s->text[ranks]);
}

static tm_status blame(session *s, tm_node_outcome *out, tm_error *err)
{
    const size_t ranks = (size_t)s->task->ranks;
    uint32_t    *all = tm_alloc(ranks * (ranks + 1) * sizeof *all), *matrix = tm_alloc(ranks * ranks * sizeof *matrix);
    tm_blame    *blamed = tm_alloc(ranks * ranks * sizeof *blamed);
    tm_status    st = gather(s, all, err);
    for (size_t r = 0; r < ranks && st == TM_OK; r++) memcpy(matrix + r * ranks, all + r * (ranks + 1), ranks * 4);
    const int n = st == TM_OK ? tm_blame_find(matrix, (int)ranks, blamed, (int)(ranks * ranks)) : 0;
    for (int i = 0; i < n; i++) find(s, matrix, &blamed[i], out);
    if (st == TM_OK && n == 0) find_sums(s, all, out);
    free(all);
    free(matrix);
    free(blamed);
    return st;
}

/* --- from beginning to end ------------------------------------------------------------------- */

static tm_status open_groups(session *s, tm_error *err)
{
    const int ranks = s->task->ranks, me = s->task->rank;
    int       wide = 1;
    while (wide * wide < ranks) wide++;
    for (int i = 0; i < GROUPS; i++) {
        group *g = &s->groups[i];
        g->member = tm_alloc((size_t)ranks * sizeof(int));
        g->partner = tm_alloc((size_t)ranks * sizeof(int));
        for (int r = 0; r < ranks; r++) {
            if (i == ROWS && r / wide != me / wide) continue;
            if (i == COLUMNS && r % wide != me % wide) continue;
            if (r == me) g->rank = g->size;
            g->member[g->size++] = r;
        }
        if (i == WORLD)
            g->comm = s->world;
        else
            TM_TRY(tm_comm_split(s->world, i == ROWS ? me / wide : me % wide, 0, i == ROWS ? "rows" : "columns",
                                 &g->comm, err));
    }
    return TM_OK;
}

static tm_status open_session(session *s, tm_node_outcome *out, tm_error *err)
{
    const size_t ranks = (size_t)s->task->ranks;
    int          local = 1;
    void        *shared = NULL;
    tm_error     why = { 0 };
    for (int r = 0; r < s->task->ranks; r++)
        if (tm_comm_place_of(s->world, r).local_size > local) local = tm_comm_place_of(s->world, r).local_size;
    s->room = 4 * (size_t)ROOM / (size_t)(local < 4 ? 4 : local);
    if (s->room < LEAST_ROOM) s->room = LEAST_ROOM;
    s->room = (s->room + SLACK + 63) / 64 * 64; /* every part begins where any format may */
    s->wrong = calloc(ranks + 1, sizeof *s->wrong);
    s->text = calloc(ranks + 1, sizeof *s->text);
    s->tells = calloc(ranks + 1, sizeof *s->tells);
    s->own = malloc(5 * s->room);
    if (!s->wrong || !s->text || !s->tells || !s->own)
        return tm_fail(err, TM_NOMEM, "no memory for data of collective calls");
    s->sent = s->own + 2 * s->room, s->want = s->sent + s->room, s->was = s->want + s->room;
    TM_TRY(open_groups(s, err));
    if (s->gpus) return tm_node_gpus_lend(s->gpus, s->own, 2 * s->room, TM_PAYLOAD_GUARD, err);
    tm_status st = tm_comm_alloc(s->world, 2 * s->room, &shared, &why);
    s->shared = shared;
    if (st != TM_OK && st != TM_UNSUPPORTED) return tm_fail(err, st, "%s", why.text);
    if (st != TM_OK) tm_node_fact_add(out, "shared memory of ranks", "", false, why.text);
    return TM_OK;
}

static void close_session(session *s)
{
    for (int i = 0; i < GROUPS; i++) {
        if (i != WORLD) tm_comm_close(s->groups[i].comm);
        free(s->groups[i].member);
        free(s->groups[i].partner);
    }
    if (s->shared) tm_comm_free(s->world, s->shared);
    free(s->own);
    free(s->wrong);
    free(s->text);
    free(s->tells);
}

/* In the host's memory, or between GPUs. Adds what was reached to `reach`. */
static tm_status run_session(session *s, tm_node_outcome *out, char reach[TM_NODE_TEXT], tm_error *err)
{
    char         calls[40], bytes[32], largest[32];
    const size_t length = strlen(reach);
    tm_status    st = open_session(s, out, err);
    if (st == TM_OK) st = all_legs(s, err);
    if (st == TM_OK) st = blame(s, out, err);
    snprintf(reach + length, TM_NODE_TEXT - length, "%s%s calls%s with %s for each rank, up to %s", length ? "; " : "",
             tm_format_grouped(calls, (int64_t)s->number), s->gpus ? " between GPUs" : "",
             tm_format_bytes(bytes, (double)s->bytes), tm_format_bytes(largest, (double)s->largest));
    close_session(s);
    return st;
}

tm_status tm_node_collectives(const tm_node_task *task, const tm_node_calls *calls, tm_node_outcome *out, tm_error *err)
{
    session       s = { .task = task, .calls = calls, .world = task->options->world, .seconds = task->seconds };
    char          reach[TM_NODE_TEXT] = "", why[TM_NODE_TEXT], library[48];
    tm_node_gpus *gpus;
    if (tm_node_alone(task, 2, out)) return TM_OK;
    TM_TRY(tm_node_gpus_open(task->options, &gpus, why, err));
    if (gpus) s.seconds /= 2;
    session             on_gpu = { .task = task, .world = s.world, .gpus = gpus, .seconds = s.seconds };
    const tm_node_calls by_gpu = { tm_node_gpus_run, gpus, NULL };
    on_gpu.calls = &by_gpu;
    tm_status st = run_session(&s, out, reach, err);
    if (st == TM_OK && gpus) st = run_session(&on_gpu, out, reach, err);
    if (gpus) tm_node_fact_add(out, "library of calls between GPUs", "", true, tm_node_gpus_library(gpus, library));
    tm_node_gpus_close(gpus);
    if (why[0] && task->rank == 0) tm_node_tell(out, -1, "GPUs", "calls between them were not checked: %s", why);
    tm_node_reach(out, "any wrong element of %.220s", reach);
    return st;
}

tm_status node_check_collectives(const tm_node_task *task, tm_node_outcome *out, tm_error *err)
{
    return tm_node_collectives(task, NULL, out, err);
}
