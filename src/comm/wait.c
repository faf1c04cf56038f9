/* SPDX-License-Identifier: Apache-2.0 */
/* comm/wait.c - how ranks wait and when they give up, and what they say when a world fails. */
#include "comm/group.h"

#include "base/clock.h"
#include "base/hash.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* ALL_DUE: the turns before every 4th, 16th and 64th one are. */
enum { CROWDED_YIELDS = 4, ALL_DUE = 63, NAP_NS = 50000 };

static void pause_processor(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void tm_comm_pause(int pauses)
{
    for (int i = 0; i < pauses; i++) pause_processor();
}

static bool is_patient(const tm_comm *comm, const tm_comm_backoff *backoff, int64_t now_ns)
{
    return (double)(now_ns - backoff->since_ns) * 1e-9 < comm->world->deadline_s + comm->grace_s;
}

/* A nap for whatever no event tells of lasts an eighth of the time that was waited. Messages that this rank has to move
 * on do not wait for an event. */
static void sleep_turn(const tm_comm *comm, tm_comm_backoff *backoff, int64_t now_ns)
{
    const int64_t least_ns = 50000, most_ns = 1000000;
    int64_t       nap_ns = (now_ns - backoff->since_ns) / 8;
    if (nap_ns < least_ns) nap_ns = least_ns;
    if (nap_ns > most_ns) nap_ns = most_ns;
    if (backoff->event)
        tm_comm_event_sleep(backoff->event, backoff->seen, comm->world->ports.engine->move_on ? least_ns : most_ns);
    else
        nanosleep(&(struct timespec){ .tv_nsec = nap_ns }, NULL);
    backoff->turn |= ALL_DUE;
}

/* Waits of a few microseconds are not worth a look at the clock. */
static void count_from_here(tm_comm_backoff *backoff)
{
    enum { SHORT = 64 };
    if (backoff->counted_ns == 0 && backoff->turn >= SHORT) backoff->counted_ns = tm_now_ns();
}

void tm_comm_wait_over(const tm_comm *comm, tm_comm_backoff *backoff)
{
    int64_t waited = backoff->counted_ns > 0 ? tm_now_ns() - backoff->counted_ns : 0;
    if (waited > 0) atomic_fetch_add_explicit(&comm->world->waited_ns, waited, memory_order_relaxed);
    backoff->counted_ns = -1;
}

/* Other ranks want the processor. */
static bool crowded_turn(const tm_comm *comm, tm_comm_backoff *backoff)
{
    int64_t now = tm_now_ns();
    if (backoff->since_ns == 0) backoff->since_ns = now;
    if (backoff->counted_ns == 0) backoff->counted_ns = now;
    if (backoff->turn++ < CROWDED_YIELDS) {
        sched_yield();
    } else {
        sleep_turn(comm, backoff, now);
        now = tm_now_ns();
    }
    if (backoff->event) backoff->seen = atomic_load(&backoff->event->word);
    return is_patient(comm, backoff, now);
}

bool tm_comm_wait_turn(const tm_comm *comm, tm_comm_backoff *backoff)
{
    enum { SPINS = 2000, YIELDS = 4000, CLOCK = 64 };
    if (comm->world->oversubscribed) return crowded_turn(comm, backoff);
    count_from_here(backoff);
    int64_t turn = backoff->turn++;
    if (turn < SPINS) {
        pause_processor();
        return true;
    }
    if (turn < SPINS + YIELDS) {
        sched_yield();
        if (turn % CLOCK != 0) return true;
    } else {
        nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
    }
    int64_t now = tm_now_ns();
    if (backoff->since_ns == 0) backoff->since_ns = now;
    return is_patient(comm, backoff, now);
}

/* --- what a call is -------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 32)) * 0x9E3779B97F4A7C15u;
    return x ^ (x >> 29);
}

/* The hash is made of numbers, not of the header: what was written just now byte by byte cannot be read at once. */
void tm_comm_header_fill(const tm_collective *call, tm_comm_header *header)
{
    bool   pair = call->kind == TM_COMM_SEND || call->kind == TM_COMM_RECEIVE;
    bool   reduces = call->kind == TM_COMM_ALL_REDUCE || call->kind == TM_COMM_REDUCE_SCATTER;
    size_t named = call->what ? strnlen(call->what, sizeof header->what - 1) : 0;
    memset(header, 0, sizeof *header);
    memcpy(header->what, call->what ? call->what : "", named);
    /* A message is the same thing for both of its ranks. */
    header->kind = (uint8_t)(pair ? TM_COMM_SEND : call->kind);
    header->op = (uint8_t)(reduces ? call->op : 0);
    header->format = (uint8_t)call->format;
    header->pieces = call->send_counts != NULL;
    header->count = call->send_counts ? 0 : call->count;
    header->peer = call->kind == TM_COMM_BROADCAST ? call->peer : -1;
    uint64_t what = header->kind | header->op << 8 | header->format << 16 | (uint64_t)header->pieces << 24;
    header->hash = mix(tm_hash(call->what, named) ^ header->count) ^ (what | (uint64_t)header->peer << 32);
    header->hash = mix(header->hash);
    header->step = call->step;
    header->send_window = header->receive_window = -1;
}

char *tm_comm_header_text(const tm_comm_header *header, char out[256])
{
    static const char *const kinds[] = { "barrier",    "all-reduce", "reduce-scatter", "all-gather", "broadcast",
                                         "all-to-all", "message",    "message",        "the end" };
    static const char *const ops[] = { "sum", "max", "min" };
    static const char *const formats[] = { "bytes", "int64", "float64", "float32", "bfloat16" };
    int                      kind = header->kind <= TM_COMM_CLOSE ? header->kind : TM_COMM_CLOSE;
    bool                     reduces = kind == TM_COMM_ALL_REDUCE || kind == TM_COMM_REDUCE_SCATTER;
    int                      n = snprintf(out, 256, "%s", kinds[kind]);
    if (reduces) n += snprintf(out + n, 256 - (size_t)n, " (%s)", ops[header->op % 3]);
    if (kind != TM_COMM_BARRIER && kind != TM_COMM_CLOSE) {
        if (header->pieces)
            n += snprintf(out + n, 256 - (size_t)n, " of pieces of %s", formats[header->format % 5]);
        else
            n += snprintf(out + n, 256 - (size_t)n, " of %llu %s", (unsigned long long)header->count,
                          formats[header->format % 5]);
    }
    if (kind == TM_COMM_BROADCAST) n += snprintf(out + n, 256 - (size_t)n, " from rank %d", header->peer);
    if (header->what[0]) n += snprintf(out + n, 256 - (size_t)n, " '%.55s'", header->what);
    if (header->step >= 0) n += snprintf(out + n, 256 - (size_t)n, ", step %lld", (long long)header->step);
    return out;
}

/* --- failures -------------------------------------------------------------------------------- */

/* The failure of this host becomes this rank's. With the lock. */
static void adopt(tm_comm_world *world)
{
    tm_comm_segment *segment = world->segment[0];
    char             text[sizeof segment->text];
    memcpy(text, segment->text, sizeof text);
    text[sizeof text - 1] = 0;
    bool known = segment->status > TM_OK && segment->status < TM_STATUS_COUNT;
    (void)tm_fail(&world->error, known ? (tm_status)segment->status : TM_INTERNAL, "%s", text);
    world->failed = true;
}

tm_status tm_comm_failed(tm_comm *comm, tm_error *err)
{
    tm_comm_world *world = comm->world;
    if (!world->failed) {
        if (atomic_load_explicit(&world->segment[0]->failed, memory_order_acquire) != 2) return TM_OK;
        pthread_mutex_lock(&world->lock);
        if (!world->failed) adopt(world);
        pthread_mutex_unlock(&world->lock);
    }
    return tm_fail(err, world->error.status, "%s", world->error.text);
}

/* The first failure of this host is everybody's: `text`, unless another rank was earlier. */
static void record(tm_comm_world *world, tm_status status, int code, const char *text)
{
    tm_comm_segment *segment = world->segment[0];
    int              none = 0;
    pthread_mutex_lock(&world->lock);
    if (!world->failed) {
        if (atomic_compare_exchange_strong(&segment->failed, &none, 1)) {
            segment->status = status;
            segment->code = code;
            snprintf(segment->text, sizeof segment->text, "%s", text);
            atomic_store_explicit(&segment->failed, 2, memory_order_release);
        }
        /* Another rank writes its failure just now; one that was killed while it did so must not hold us up. */
        int64_t until = tm_now_ns() + 1000000000;
        while (atomic_load_explicit(&segment->failed, memory_order_acquire) != 2 && tm_now_ns() < until)
            nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
        if (atomic_load_explicit(&segment->failed, memory_order_acquire) == 2) adopt(world);
        if (!world->failed) {
            (void)tm_fail(&world->error, status, "%s", text);
            world->failed = true;
        }
    }
    pthread_mutex_unlock(&world->lock);
}

tm_status tm_comm_fail(tm_comm *comm, tm_status status, tm_error *err, const char *format, ...)
{
    tm_comm_world *world = comm->world;
    char           text[2048];
    va_list        args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    record(world, status, tm_status_exit_code(status), text);
    return tm_fail(err, world->error.status, "%s", world->error.text);
}

tm_status tm_comm_mismatch(tm_comm *comm, const tm_comm_header *mine, int other, const tm_comm_header *theirs,
                           tm_error *err)
{
    char here[256], there[256];
    int  own = comm->member[comm->rank], its = comm->member[other];
    if (theirs->kind == TM_COMM_CLOSE)
        return tm_comm_fail(comm, TM_INVALID, err,
                            "ranks of group %s disagree: rank %d has closed it, rank %d calls %s", comm->name, its, own,
                            tm_comm_header_text(mine, here));
    if (mine->kind == TM_COMM_CLOSE)
        return tm_comm_fail(comm, TM_INVALID, err,
                            "ranks of group %s disagree: rank %d has closed it, rank %d calls %s", comm->name, own, its,
                            tm_comm_header_text(theirs, there));
    return tm_comm_fail(comm, TM_INVALID, err,
                        "ranks of group %s disagree: rank %d calls %s, rank %d calls %s; all ranks of a group call the "
                        "same, in the same order",
                        comm->name, own, tm_comm_header_text(mine, here), its, tm_comm_header_text(theirs, there));
}

/* What the rank called before, as far as this host can see. */
static void add_last_call(const tm_comm *comm, int rank, char *out, size_t room)
{
    char text[256];
    if (!comm->one_host) return;
    const tm_comm_slot *slot = comm->slots[rank];
    uint64_t            flag = atomic_load_explicit(&slot->flag, memory_order_acquire);
    if (flag == 0)
        snprintf(out, room, "; rank %d has called nothing in this group yet", comm->member[rank]);
    else
        snprintf(out, room, "; the last call of rank %d was %s", comm->member[rank],
                 tm_comm_header_text(&slot->header[flag & 1], text));
}

tm_status tm_comm_late(tm_comm *comm, const tm_comm_header *mine, const int *late, int n, tm_error *err)
{
    enum { NAMED = 8, EACH = 60 };
    char   call[256], names[NAMED * EACH] = "", last[384] = "";
    size_t length = 0;
    bool   hosts = comm->world->hosts > 1;
    for (int i = 0; i < n && i < NAMED; i++) {
        tm_comm_place place = tm_comm_place_of(comm, late[i]);
        length += (size_t)snprintf(names + length, EACH, "%s%d%s%.30s", i ? ", " : "", comm->member[late[i]],
                                   hosts ? " on " : "", hosts ? place.host_name : "");
    }
    add_last_call(comm, late[0], last, sizeof last);
    return tm_comm_fail(comm, TM_IO, err, "rank%s %s%s of group %s %s late: rank %d has waited %g s in %s%s",
                        n > 1 ? "s" : "", names, n > NAMED ? " and others" : "", comm->name, n > 1 ? "are" : "is",
                        comm->member[comm->rank], comm->world->deadline_s, tm_comm_header_text(mine, call), last);
}

void tm_comm_abort(tm_comm *comm, int code, const char *message)
{
    tm_comm_world *world = comm->world;
    char           text[2048];
    snprintf(text, sizeof text, "rank %d: %s", world->ports.rank, message);
    record(world, TM_INTERNAL, code, text);
    if (atomic_load_explicit(&world->segment[0]->failed, memory_order_acquire) == 2) code = world->segment[0]->code;
    /* Of several that give up, the first speaks. */
    bool speaks = atomic_exchange(&world->segment[0]->told, 1) == 0;
    world->ports.engine->abort(world->ports.own, code, speaks ? message : NULL);
}
