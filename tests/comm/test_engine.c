/* SPDX-License-Identifier: Apache-2.0 */
/* What carries messages, by hand: the one for threads, its order, sizes and ends; and calls over one that breaks at
 * each of its calls: who is named, and that nothing of a message is left (the leak sanitizer looks). */
#include "support/test.h"
#include "world.h"

#include "support/threads_left.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const tm_comm_ports *ports_of(const tm_comm *comm)
{
    return &comm->world->ports;
}

/* --- threads -------------------------------------------------------------------------------------- */

static tm_comm *ends[3];

static void receive(int rank, int from, int tag, void *data, size_t bytes, tm_comm_request *request)
{
    const tm_comm_ports *p = ports_of(ends[rank]);
    assert_null(p->engine->receive(p->own, from, tag, data, bytes, request));
}

static void send_text(int rank, int to, int tag, const char *text)
{
    const tm_comm_ports *p = ports_of(ends[rank]);
    tm_comm_request      request;
    bool                 done = false;
    assert_null(p->engine->send(p->own, to, tag, text, strlen(text), &request));
    assert_null(p->engine->test(p->own, &request, &done));
    assert_true(done);
    p->engine->cancel(p->own, &request); /* nothing of it is left */
}

/* Has it come? What is said of it. */
static bool came(int rank, tm_comm_request *request, const char **why)
{
    const tm_comm_ports *p = ports_of(ends[rank]);
    bool                 done = false;
    *why = p->engine->test(p->own, request, &done);
    return done;
}

static void expect(int rank, tm_comm_request *request, const char *data, const char *text)
{
    const char *why;
    assert_true(came(rank, request, &why));
    assert_null(why);
    assert_memory_equal(data, text, strlen(text));
}

static void close_ends(int n)
{
    static const char message[] = "it is over";
    for (int r = 0; r < n; r++) {
        tm_error err = { 0 };
        assert_int_equal(tm_comm_fail(ends[r], TM_IO, &err, message), TM_IO);
        tm_comm_close(ends[r]);
    }
}

TEST(messages_of_threads)
{
    static const int hosts[] = { 0, 1, 2 };
    tm_comm_request  request[6];
    char             data[6][8] = { "" };
    const char      *why;
    tm_error         err = { 0 };
    assert_int_equal(tm_comm_open_threads_on(3, hosts, 1, ends, &err), TM_OK);
    assert_string_equal(tm_comm_engine_name(ends[1]), "threads");
    /* Awaited first; of another tag, of another rank: not this one. */
    receive(1, 0, 5, data[0], 4, &request[0]);
    receive(1, 0, 5, data[1], 4, &request[1]);
    receive(1, 2, 5, data[2], 4, &request[2]);
    receive(1, 0, 6, data[3], 4, &request[3]);
    for (int i = 0; i < 4; i++) assert_false(came(1, &request[i], &why));
    send_text(2, 1, 5, "from");
    send_text(0, 1, 5, "once");
    assert_false(came(1, &request[1], &why));
    assert_false(came(1, &request[3], &why));
    expect(1, &request[2], data[2], "from");
    expect(1, &request[0], data[0], "once");
    send_text(0, 1, 5, "more");
    send_text(0, 1, 6, "else");
    expect(1, &request[1], data[1], "more");
    expect(1, &request[3], data[3], "else");
    /* Sent first: in order, each tag for itself. */
    send_text(0, 1, 7, "ab"), send_text(0, 1, 8, "cd"), send_text(0, 1, 7, "ef"), send_text(2, 1, 7, "gh");
    receive(1, 2, 7, data[0], 2, &request[0]), expect(1, &request[0], data[0], "gh");
    receive(1, 0, 8, data[0], 2, &request[0]), expect(1, &request[0], data[0], "cd");
    receive(1, 0, 7, data[0], 2, &request[0]), expect(1, &request[0], data[0], "ab");
    receive(1, 0, 7, data[0], 2, &request[0]), expect(1, &request[0], data[0], "ef");
    receive(1, 0, 7, data[0], 2, &request[0]);
    assert_false(came(1, &request[0], &why));
    /* One that is given up gets nothing; the next one does. */
    receive(1, 0, 7, data[1], 2, &request[1]);
    ports_of(ends[1])->engine->cancel(ports_of(ends[1])->own, &request[0]);
    memcpy(data[0], "zz", 2);
    send_text(0, 1, 7, "ij");
    expect(1, &request[1], data[1], "ij");
    assert_memory_equal(data[0], "zz", 2);
    /* Of another size, whoever comes first. */
    for (int first = 0; first < 2; first++)
        for (int larger = 0; larger < 2; larger++) {
            memcpy(data[4], "untouch", 8);
            if (first) receive(1, 2, 9, data[4], larger ? 3 : 5, &request[4]);
            send_text(2, 1, 9, "1234");
            if (!first) receive(1, 2, 9, data[4], larger ? 3 : 5, &request[4]);
            assert_true(came(1, &request[4], &why));
            assert_string_equal(why, "a message has another size than its receiver expects");
            assert_string_equal(data[4], "untouch");
        }
    /* Of no bytes. */
    send_text(2, 0, 1, "");
    receive(0, 2, 1, data[5], 0, &request[5]), expect(0, &request[5], data[5], "");
    /* What nobody takes, and who waits in vain, is forgotten at the end. */
    send_text(0, 2, 3, "left");
    receive(2, 1, 3, data[5], 2, &request[5]);
    ports_of(ends[0])->engine->abort(ports_of(ends[0])->own, 3, "threads are no processes");
    close_ends(3);
}

/* --- one that breaks ------------------------------------------------------------------------------- */

enum { SENDS, RECEIVES, TESTS, WAYS };
typedef struct {
    tm_comm_engine        engine;
    const tm_comm_engine *whole;
    int                   how, left; /* so many go well */
    int                   open;      /* requests that have neither ended nor been given up */
} breaking;

static breaking breaks;

static bool breaks_now(int how)
{
    return breaks.how == how && breaks.left-- == 0;
}

static const char *send_or_not(void *own, int to, int tag, const void *data, size_t bytes, tm_comm_request *request)
{
    if (breaks_now(SENDS)) return "it was cut";
    breaks.open++;
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
    const char *why = breaks.whole->test(own, request, done);
    breaks.open -= *done;
    return why;
}

static void cancel_it(void *own, tm_comm_request *request)
{
    breaks.open--;
    breaks.whole->cancel(own, request);
}

/* From now on, of this rank. */
static void break_at(tm_comm *comm, int how, int left)
{
    breaks = (breaking){ .engine = *ports_of(comm)->engine, .whole = ports_of(comm)->engine, .how = how, .left = left };
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

/* Messages that are buffered: what cannot be sent is said at once, what breaks on its way by the next one. */
static void post(tm_comm *world, void *context)
{
    cut          *c = context;
    static char   data[4000];
    tm_error      err = { 0 };
    tm_status     st = TM_OK;
    tm_collective call = collective_of(TM_COMM_SEND, TM_COMM_BYTES, data, NULL, sizeof data, "letter", 2);
    call.peer = 1, call.buffered = true;
    if (tm_comm_rank(world) == 1) return;
    break_at(world, c->how, c->left);
    for (int i = 0; i < 200 && st == TM_OK; i++) {
        st = tm_comm_run(world, &call, &err);
        if (c->how == TESTS) usleep(500);
    }
    CHECK(st == TM_IO);
    snprintf(c->text, sizeof c->text, "%s", err.text);
}

TEST(posted_messages_that_break)
{
    static const int  hosts[] = { 0, 1 };
    static const char words[] = "the connection failed in message of 4000 bytes 'letter', step 2: ";
    static const struct {
        int         how, left;
        const char *why;
    } rows[] = { { SENDS, 0, "it was cut" },
                 { SENDS, 1, "it was cut" },
                 { SENDS, 2, "it was cut" },
                 { TESTS, 0, "to rank 1: it was cut" },
                 { TESTS, 3, "to rank 1: it was cut" } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        cut  c = { rows[i].how, rows[i].left, "", 0 };
        char want[160];
        run_world(2, hosts, 0.05, false, post, &c);
        snprintf(want, sizeof want, "%s%s", words, rows[i].why);
        assert_string_equal(c.text, want);
        assert_int_equal(breaks.open, 0);
    }
}

/* --- memory of a host ------------------------------------------------------------------------------ */

enum { SHARED = 3 };

/* Of hosts 0, 1, 0: each has its own, and the ranks of a host reach each other's. */
static void share_twice(tm_comm *world, void *context)
{
    static const int     hosts[] = { 0, 1, 0 };
    const tm_comm_ports *p = ports_of(world);
    int                  rank = tm_comm_rank(world), local = rank == 2, ranks = rank == 1 ? 1 : 2;
    (void)context;
    for (size_t turn = 0; turn < 2; turn++) {
        void         *where[SHARED] = { NULL };
        size_t        bytes = 4096 * (1 + turn + (size_t)rank);
        tm_collective barrier = { .kind = TM_COMM_BARRIER, .step = -1 };
        CHECK(!p->engine->share(p->own, bytes, where));
        for (int l = 0; l < SHARED; l++) CHECK((where[l] != NULL) == (l < ranks));
        for (size_t i = 0; i < bytes; i++) CHECK(((char *)where[local])[i] == 0);
        CHECK((uintptr_t)where[local] % 4096 == 0);
        memset(where[local], 1 + rank, bytes);
        CHECK_OK(tm_comm_run(world, &barrier, err));
        for (int r = 0, l = 0; r < SHARED; r++)
            if (hosts[r] == hosts[rank]) {
                const char *its = where[l++];
                for (size_t i = 0; i < 4096 * (1 + turn + (size_t)r); i++) CHECK(its[i] == 1 + r);
            }
        CHECK_OK(tm_comm_run(world, &barrier, err));
    }
}

/* More than there is: all are told. */
static void share_too_much(tm_comm *world, void *context)
{
    const tm_comm_ports *p = ports_of(world);
    void                *where[SHARED] = { NULL };
    int                  rank = tm_comm_rank(world);
    (void)context;
    const char *why = p->engine->share(p->own, rank == 2 ? SIZE_MAX / 4 : 4096, where);
    CHECK(rank == 1 ? !why : why && strcmp(why, "the system has no more memory") == 0);
}

TEST(memory_of_threads)
{
    static const int hosts[] = { 0, 1, 0 };
    run_world(SHARED, hosts, 20, false, share_twice, NULL);
    run_world(SHARED, hosts, 20, false, share_too_much, NULL);
}

/* --- without threads ------------------------------------------------------------------------------- */

static void post_without_a_thread(tm_comm *world, void *context)
{
    static char   data[4000];
    tm_error      err = { 0 };
    tm_collective barrier = { .kind = TM_COMM_BARRIER, .step = -1 };
    tm_collective call = collective_of(TM_COMM_SEND, TM_COMM_BYTES, data, NULL, sizeof data, "letter", 2);
    call.peer = 1, call.buffered = true;
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
