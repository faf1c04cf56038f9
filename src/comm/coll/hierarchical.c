/* SPDX-License-Identifier: Apache-2.0 */
/* comm/coll/hierarchical.c - sums, gathers and broadcasts that hosts share out: between hosts goes a share of every
 * host, not one of every rank; within a host, ranks reach each other's memory.
 *
 * Sums keep the order of the ranks, wherever they run. A *lane* (comm/coll/hosts.h) is a share of the elements. Its
 * owner in the first run adds what the ranks of that run have, in their order, and sends the partial sum to its owner
 * in the next run, who goes on from there; in the last run the sum is complete. Of an all-reduce it then goes back from
 * host to host, the one of the last run first, and on each the lane's keeper writes it into the memory of all; of a
 * reduce-scatter it goes to the rank that it is for.
 *
 * Lanes are cut into chunks, of which as many are under way as there are runs. Let partial sum c be made in run j at
 * time c + j; then it is complete at c + R - 1, and i hosts further back at c + R - 1 + i. Each rank does its work in
 * the order of these times, and waits only for what has an earlier one: so no rank can wait for itself.
 *
 * Nobody reads a rank's elements of a lane but the lane's owner in that rank's run, and not after the sum is complete:
 * so the sum may be written over them.
 */
#include "comm/coll/coll.h"

#include <string.h>

enum { CHUNK = 256 << 10, PIECE_OF_GATHER = 1 << 20 };

/* Messages that are waited for by themselves; two of each lane at a time. */
enum { PARTIAL_IN, PARTIAL_OUT, COMPLETE, STAGES };

typedef struct {
    tm_comm_transfer    *f;
    const tm_comm_hosts *h;
    int                  me, run, host;
    size_t               wide;   /* bytes of an element of a partial sum */
    size_t               chunk;  /* elements */
    size_t               each;   /* chunks of a lane, of one part */
    size_t               parts;  /* of a reduce-scatter: one for each rank */
    size_t               behind; /* steps after the partial sum of a chunk, this rank gets the sum; 0: it gets none */
} chain;

/* --- memory of the ranks of this host -------------------------------------------------------- */

static const char *sent_by(const tm_comm_transfer *f, int rank)
{
    const tm_comm_header *header = &f->comm->headers[rank];
    return rank == f->comm->rank ? f->call->send : tm_comm_reach(f->comm, rank, header->send_window, header->send_at);
}

static char *received_by(const tm_comm_transfer *f, int rank)
{
    const tm_comm_header *header = &f->comm->headers[rank];
    return rank == f->comm->rank ? f->call->receive
                                 : tm_comm_reach(f->comm, rank, header->receive_window, header->receive_at);
}

/* Bytes that lie at `from` go to this place of what all ranks of this host receive. */
static void write_to_all(const tm_comm_transfer *f, size_t at, const char *from, size_t bytes)
{
    const tm_comm_hosts *h = f->comm->hosts;
    int                  host = h->host[f->comm->rank];
    for (int i = h->host_first[host]; i < h->host_first[host + 1]; i++) {
        char *to = received_by(f, h->members[i]) + at;
        if (to != from) memcpy(to, from, bytes);
    }
}

/* --- sums ------------------------------------------------------------------------------------ */

/* Of this step, the elements of a lane: first and number. */
static size_t elements(const chain *c, size_t step, int lane, size_t *first)
{
    size_t begin, end, count = c->f->call->count;
    tm_comm_slice(count, c->f->element, (size_t)lane, (size_t)c->h->lanes, &begin, &end);
    begin += step % c->each * c->chunk;
    *first = (c->parts > 1 ? step / c->each * count : 0) + begin;
    return begin >= end ? 0 : end - begin < c->chunk ? end - begin : c->chunk;
}

static int label_of(int stage, int lane, size_t step)
{
    return 1 + ((lane * STAGES) + stage) * 2 + (int)(step & 1);
}

/* Those that wait for a rank that itself waits for another one are more patient than that one. */
static tm_status wait_behind(const chain *c, int label, int hops)
{
    static const double each_s = 0.1, most_s = 2;
    c->f->comm->grace_s = each_s * hops < most_s ? each_s * hops : most_s;
    return tm_comm_transfer_wait(c->f, label);
}

/* Lanes that this rank owns: lane, lane + stride, ... */
static int stride_of(const chain *c)
{
    return c->h->run_first[c->run + 1] - c->h->run_first[c->run];
}

static int first_lane(const chain *c)
{
    return c->me - c->h->run_first[c->run];
}

static void *buffer(const chain *c, int lane, bool out, size_t step)
{
    size_t which = (size_t)(lane / stride_of(c)) * 4 + (out ? 2 : 0) + (step & 1);
    return (char *)c->f->comm->scratch + which * c->chunk * c->wide;
}

static tm_status expect_partial(const chain *c, size_t step)
{
    size_t first;
    if (c->run == 0 || step >= c->parts * c->each) return TM_OK;
    for (int lane = first_lane(c); lane < c->h->lanes; lane += stride_of(c)) {
        size_t n = elements(c, step, lane, &first);
        int    from = tm_comm_hosts_owner(c->h, c->run - 1, lane);
        TM_TRY(tm_comm_transfer_receive(c->f, from, buffer(c, lane, false, step), n * c->wide,
                                        label_of(PARTIAL_IN, lane, step)));
    }
    return TM_OK;
}

/* The sum of a lane is complete on this host: further back it goes, and to all ranks here. */
static tm_status hand_on(const chain *c, int lane, size_t first, size_t n)
{
    tm_comm_transfer *f = c->f;
    int               next = c->h->back_at[c->host] + 1;
    char             *from = received_by(f, c->me) + first * f->element;
    if (next < c->h->hosts)
        TM_TRY(tm_comm_transfer_send(f, tm_comm_hosts_keeper(c->h, c->h->back[next], lane), from, n * f->element, 0));
    write_to_all(f, first * f->element, from, n * f->element);
    return TM_OK;
}

static tm_status add_lane(const chain *c, size_t step, int lane)
{
    tm_comm_transfer *f = c->f;
    tm_comm          *comm = f->comm;
    size_t            first, n = elements(c, step, lane, &first);
    int               begin = c->h->run_first[c->run], ranks = stride_of(c), part = (int)(step / c->each);
    bool              ends = c->run == c->h->runs - 1;
    const void       *before = c->run > 0 ? buffer(c, lane, false, step) : NULL;
    char             *out = buffer(c, lane, true, step);
    const int         in = label_of(PARTIAL_IN, lane, step), sent = label_of(PARTIAL_OUT, lane, step);
    bool              here = ends && (c->parts == 1 || c->h->host[part] == c->host); /* whom it is for */
    if (n == 0) return TM_OK;
    if (before) TM_TRY(wait_behind(c, in, c->run));
    if (here)
        out = received_by(f, c->parts == 1 ? c->me : part) +
              (first - (c->parts == 1 ? 0 : (size_t)part * f->call->count)) * f->element;
    else
        TM_TRY(wait_behind(c, sent, c->run));
    for (int k = 0; k < ranks; k++) comm->parts[k] = sent_by(f, begin + k) + first * f->element;
    tm_comm_reduce_on(f->call->op, f->call->format, before, comm->parts, ranks, !ends, out, n);
    if (!ends) return tm_comm_transfer_send(f, tm_comm_hosts_owner(c->h, c->run + 1, lane), out, n * c->wide, sent);
    if (!here) return tm_comm_transfer_send(f, part, out, n * f->element, sent);
    return c->parts == 1 ? hand_on(c, lane, first, n) : TM_OK;
}

/* Lanes whose sums come to this rank in a step, and from whom: (lane, next lane) as it owns them, or all. */
static int lanes_between(const chain *c)
{
    return c->parts > 1 ? 1 : stride_of(c);
}

static int lane_from(const chain *c)
{
    return c->parts > 1 ? 0 : first_lane(c);
}

/* Is the sum of this step for this rank? */
static bool is_for_me(const chain *c, size_t step)
{
    return c->behind > 0 && step < c->parts * c->each && (c->parts == 1 || step / c->each == (size_t)c->me);
}

static tm_status expect_sum(const chain *c, size_t step)
{
    tm_comm_transfer *f = c->f;
    size_t            first;
    if (!is_for_me(c, step)) return TM_OK;
    for (int lane = lane_from(c); lane < c->h->lanes; lane += lanes_between(c)) {
        size_t n = elements(c, step, lane, &first);
        int    from = tm_comm_hosts_owner(c->h, c->h->runs - 1, lane);
        if (c->parts == 1)
            from = tm_comm_hosts_keeper(c->h, c->h->back[c->h->back_at[c->host] - 1], lane);
        else
            first -= (size_t)c->me * f->call->count;
        TM_TRY(tm_comm_transfer_receive(f, from, (char *)f->call->receive + first * f->element, n * f->element,
                                        label_of(COMPLETE, lane, step)));
    }
    return TM_OK;
}

static tm_status take_sum(const chain *c, size_t step)
{
    size_t first;
    if (!is_for_me(c, step)) return TM_OK;
    for (int lane = lane_from(c); lane < c->h->lanes; lane += lanes_between(c)) {
        size_t n = elements(c, step, lane, &first);
        TM_TRY(wait_behind(c, label_of(COMPLETE, lane, step), c->h->runs + c->h->back_at[c->host]));
        if (n > 0 && c->parts == 1) TM_TRY(hand_on(c, lane, first, n));
    }
    return TM_OK;
}

static chain begin_chain(tm_comm_transfer *f)
{
    const tm_comm_hosts *h = f->comm->hosts;
    chain  c = { .f = f, .h = h, .me = f->comm->rank, .run = h->run[f->comm->rank], .host = h->host[f->comm->rank] };
    size_t most = 1, begin, end, longest = 0;
    bool   to_one = f->call->kind == TM_COMM_REDUCE_SCATTER;
    for (int j = 0; j < h->runs; j++) { /* lanes of one rank, at most */
        size_t ranks = (size_t)(h->run_first[j + 1] - h->run_first[j]), its = ((size_t)h->lanes + ranks - 1) / ranks;
        if (its > most) most = its;
    }
    size_t bytes = TM_COMM_SCRATCH / most / 4 / 64 * 64;
    c.wide = f->call->format == TM_COMM_BFLOAT16 ? sizeof(float) : f->element;
    c.chunk = (bytes < CHUNK ? bytes : CHUNK) / c.wide;
    for (int lane = 0; lane < h->lanes; lane++) {
        tm_comm_slice(f->call->count, f->element, (size_t)lane, (size_t)h->lanes, &begin, &end);
        if (end - begin > longest) longest = end - begin;
    }
    c.each = (longest + c.chunk - 1) / c.chunk;
    c.parts = to_one ? (size_t)h->size : 1;
    if (to_one && h->back_at[c.host] > 0) c.behind = (size_t)(h->runs - c.run);
    if (!to_one && h->back_at[c.host] > 0 && h->last_run[c.host] == c.run)
        c.behind = (size_t)(h->runs - 1 - c.run + h->back_at[c.host]);
    return c;
}

static tm_status run_chain(tm_comm_transfer *f)
{
    chain  c = begin_chain(f);
    size_t steps = c.parts * c.each;
    TM_TRY(expect_partial(&c, 0));
    for (size_t step = 0; step < steps + c.behind; step++) {
        TM_TRY(expect_partial(&c, step + 1));
        for (int lane = first_lane(&c); lane < c.h->lanes && step < steps; lane += stride_of(&c))
            TM_TRY(add_lane(&c, step, lane));
        if (step + 1 >= c.behind) TM_TRY(expect_sum(&c, step + 1 - c.behind));
        if (step >= c.behind) TM_TRY(take_sum(&c, step - c.behind));
    }
    return TM_OK;
}

/* --- what some ranks have goes to all --------------------------------------------------------- */

/* Does rank `from` of another host send what it has to this rank, for this host? */
static bool comes_here(const tm_comm_transfer *f, int from)
{
    const tm_comm_hosts *h = f->comm->hosts;
    int                  host = h->host[f->comm->rank];
    if (f->call->kind == TM_COMM_BROADCAST && from != f->call->peer) return false;
    return h->host[from] != host && tm_comm_hosts_partner(h, host, from) == f->comm->rank;
}

static size_t place_of(const tm_comm_transfer *f, int from)
{
    return f->call->kind == TM_COMM_BROADCAST ? 0 : (size_t)from * f->call->count * f->element;
}

static int label_from(int from, size_t step)
{
    return 1 + from * 2 + (int)(step & 1);
}

static tm_status expect_pieces(tm_comm_transfer *f, size_t step, size_t at, size_t bytes)
{
    for (int r = 0; r < f->comm->size && bytes > 0; r++)
        if (comes_here(f, r))
            TM_TRY(tm_comm_transfer_receive(f, r, (char *)f->call->receive + place_of(f, r) + at, bytes,
                                            label_from(r, step)));
    return TM_OK;
}

/* A piece of this rank's own goes to one rank of every other host, and to all of this one. */
static tm_status give_piece(tm_comm_transfer *f, size_t at, size_t bytes)
{
    const tm_comm_hosts *h = f->comm->hosts;
    int                  me = f->comm->rank;
    const char          *from = (const char *)f->call->send + at;
    for (int d = 1; d < h->hosts; d++)
        TM_TRY(tm_comm_transfer_send(f, tm_comm_hosts_partner(h, (h->host[me] + d) % h->hosts, me), from, bytes, 0));
    write_to_all(f, place_of(f, me) + at, from, bytes);
    return TM_OK;
}

static tm_status run_gather(tm_comm_transfer *f)
{
    size_t bytes = f->call->count * f->element, step = 0;
    bool   gives = f->call->kind != TM_COMM_BROADCAST || f->comm->rank == f->call->peer;
    for (size_t at = 0, next, part = 0; at < bytes; at = next, step++) {
        size_t after = bytes - at < PIECE_OF_GATHER ? bytes - at : PIECE_OF_GATHER;
        if (at == 0) TM_TRY(expect_pieces(f, 0, 0, after));
        part = after;
        next = at + part;
        after = bytes - next < PIECE_OF_GATHER ? bytes - next : PIECE_OF_GATHER;
        TM_TRY(expect_pieces(f, step + 1, next, after));
        if (gives) TM_TRY(give_piece(f, at, part));
        for (int r = 0; r < f->comm->size; r++) {
            if (!comes_here(f, r)) continue;
            TM_TRY(tm_comm_transfer_wait(f, label_from(r, step)));
            write_to_all(f, place_of(f, r) + at, (char *)f->call->receive + place_of(f, r) + at, part);
        }
    }
    return TM_OK;
}

/* --- calls ----------------------------------------------------------------------------------- */

bool tm_comm_hierarchical_fits(const tm_comm_transfer *f)
{
    const tm_comm_hosts *h = f->comm->hosts;
    const tm_collective *call = f->call;
    bool                 sums = call->kind == TM_COMM_ALL_REDUCE || call->kind == TM_COMM_REDUCE_SCATTER;
    if (!h || !tm_comm_hosts_share(h, call)) return false;
    for (int r = 0; r < h->size; r++) {
        const tm_comm_header *header = &f->comm->headers[r];
        bool                  alone = h->host_first[h->host[r] + 1] - h->host_first[h->host[r]] == 1;
        if (header->direct) return false;
        if (alone) continue;
        if (sums && header->send_window < 0) return false;
        if (header->receive_window < 0 && (call->kind != TM_COMM_BROADCAST || r != call->peer)) return false;
    }
    return true;
}

/* Behind the last step nobody touches another's memory any more. */
tm_status tm_comm_hierarchical_run(tm_comm_transfer *f)
{
    bool sums = f->call->kind == TM_COMM_ALL_REDUCE || f->call->kind == TM_COMM_REDUCE_SCATTER;
    f->comm->way = "shared by hosts";
    TM_TRY(sums ? run_chain(f) : run_gather(f));
    TM_TRY(tm_comm_transfer_wait(f, 0));
    tm_collective done = { .kind = TM_COMM_BARRIER, .what = f->call->what, .step = f->call->step };
    return tm_comm_run_intra(f->comm->inner, &done, f->err);
}
