/* SPDX-License-Identifier: Apache-2.0 */
/* Calls over an engine of messages that breaks at each of its calls: who is named, and that nothing of a message is
 * left (the leak sanitizer looks). */
#include "support/test.h"
#include "world.h"

#include "support/threads_left.h"

static const tm_comm_ports *ports_of(const tm_comm *comm)
{
    return &comm->world->ports;
}

/* --- one that breaks ------------------------------------------------------------------------------- */

enum { SENDS, RECEIVES, TESTS, WAYS };
typedef struct {
    tm_comm_engine        engine;
    const tm_comm_engine *whole;
    int                   how, left; /* so many go well */
    int                   open;      /* requests that have neither ended nor been given up */
    int                   given_up;
    const tm_comm_world  *world;
    tm_comm_request      *slow; /* of a letter: done a few looks after the world has begun to close */
} breaking;

enum { LETTER = 4000 };

static breaking breaks;

static bool breaks_now(int how)
{
    return breaks.how == how && breaks.left-- == 0;
}

static const char *send_or_not(void *own, int to, int tag, const void *data, size_t bytes, tm_comm_request *request)
{
    if (breaks_now(SENDS)) return "it was cut";
    breaks.open++;
    if (bytes == LETTER) breaks.slow = request;
    return breaks.whole->send(own, to, tag, data, bytes, request);
}

static const char *receive_or_not(void *own, int from, int tag, void *data, size_t bytes, tm_comm_request *request)
{
    if (breaks_now(RECEIVES)) return "it was cut";
    breaks.open++;
    return breaks.whole->receive(own, from, tag, data, bytes, request);
}

static const char *test_or_not(void *own, tm_comm_request *request, bool *done)
{
    *done = false;
    if (breaks_now(TESTS)) return "it was cut";
    if (request == breaks.slow && (breaks.world->groups > 0 || breaks.left-- > 0)) return NULL;
    const char *why = breaks.whole->test(own, request, done);
    breaks.open -= *done;
    return why;
}

static void cancel_it(void *own, tm_comm_request *request)
{
    breaks.open--;
    breaks.given_up++;
    breaks.whole->cancel(own, request);
}

/* From now on, of this rank. */
static void break_at(tm_comm *comm, int how, int left)
{
    breaks = (breaking){ .engine = *ports_of(comm)->engine, .whole = ports_of(comm)->engine, .how = how, .left = left };
    breaks.world = comm->world;
    breaks.engine.send = send_or_not, breaks.engine.receive = receive_or_not;
    breaks.engine.test = test_or_not, breaks.engine.cancel = cancel_it;
    comm->world->ports.engine = &breaks.engine;
}

typedef struct {
    int  how, left;
    char text[4096];
    int  rank; /* whose breaks */
} cut;

static void sum_over_hosts(tm_comm *world, void *context)
{
    cut          *c = context;
    int64_t       x[50] = { 1 }, y[50];
    tm_error      err = { 0 };
    int           rank = tm_comm_rank(world);
    tm_collective sum = collective_of(TM_COMM_ALL_REDUCE, TM_COMM_INT64, x, y, 50, "counts", 8);
    if (rank == 1) break_at(world, c->how, c->left);
    tm_status st = tm_comm_run(world, &sum, &err);
    if (rank != 1) return; /* late, or done */
    CHECK(st == TM_IO);
    snprintf(c->text, sizeof c->text, "%s", err.text);
    CHECK(breaks.open == 0);
    /* All that follows fails alike. */
    tm_error again = { 0 };
    CHECK(tm_comm_run(world, &sum, &again) == TM_IO && strcmp(again.text, err.text) == 0);
}

TEST(who_broke_is_named)
{
    static const int hosts[] = { 0, 1, 2 };
    static const struct {
        int how, left, rank;
    } rows[] = { { RECEIVES, 0, 0 }, { RECEIVES, 1, 2 }, { RECEIVES, 2, 0 }, { SENDS, 0, 2 },
                 { SENDS, 1, 0 },    { SENDS, 2, 2 },    { TESTS, 0, 0 },    { TESTS, 1, 2 } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        cut  c = { rows[i].how, rows[i].left, "", 0 };
        char want[160];
        run_world(3, hosts, 0.05, false, sum_over_hosts, &c);
        snprintf(want, sizeof want,
                 "the connection to rank %d failed in all-reduce (sum) of 50 int64 'counts', step 8: it was cut",
                 rows[i].rank);
        assert_string_equal(c.text, want);
    }
}

/* --- letters on their way -------------------------------------------------------------------------- */

static tm_collective letter(tm_comm_kind kind, int peer)
{
    static char   data[LETTER], to[LETTER];
    tm_collective call = collective_of(kind, TM_COMM_BYTES, data, to, LETTER, "letter", 2);
    call.peer = peer, call.buffered = kind == TM_COMM_SEND;
    return call;
}

static void post_and_go(tm_comm *world, void *context)
{
    const int     rank = tm_comm_rank(world);
    tm_collective call = letter(rank ? TM_COMM_RECEIVE : TM_COMM_SEND, !rank);
    (void)context;
    if (rank == 0) break_at(world, WAYS, 3);
    CHECK_OK(tm_comm_run(world, &call, err));
}

TEST(who_goes_waits_for_its_letters)
{
    static const int hosts[] = { 0, 1 };
    run_world(2, hosts, 60, false, post_and_go, NULL);
    assert_true(breaks.slow && breaks.left < 0 && breaks.open == 0 && breaks.given_up == 0);
}

/* --- without threads ------------------------------------------------------------------------------- */

static void post_without_a_thread(tm_comm *world, void *context)
{
    tm_error      err = { 0 };
    tm_collective barrier = { .kind = TM_COMM_BARRIER, .step = -1 };
    tm_collective call = letter(TM_COMM_SEND, 1);
    (void)context;
    tm_status st = tm_comm_run(world, &barrier, &err);
    CHECK(st == TM_OK && !tm_comm_broken(world));
    if (tm_comm_rank(world) == 1) return;
    threads_left = 0;
    CHECK(tm_comm_run(world, &call, &err) == TM_NOMEM);
    CHECK(strcmp(err.text, "the system gives no thread for messages") == 0);
    CHECK(!tm_comm_watchdog_begin(0, 1, "nothing"));
    CHECK(tm_comm_broken(world));
    threads_left = -1;
}

TEST(the_system_gives_no_thread)
{
    static const int hosts[] = { 0, 1 };
    run_world(2, hosts, 0.3, false, post_without_a_thread, NULL);
}

TESTS_ALONE
