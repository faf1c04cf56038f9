/* SPDX-License-Identifier: Apache-2.0 */
/* Messages over connections, by hand: of every size, whether they are awaited before they come, while they come or
 * after; of another size than is expected; what is given up; and that a rank which ends loses nothing of what it has
 * sent. */
#include "support/test.h"
#include "launched.h"

#include "base/clock.h"
#include "comm/engine/frames.h"
#include "comm/engine/tcp.h"

#include <poll.h>
#include <time.h>

enum { MARK = 90, NEVER, LARGE = 6000000, LONG_MS = 10000 };

static int gate[2][2]; /* pipes: rank r waits at gate[r] without looking after its messages */

static const char *send_it(const tm_comm *world, int tag, const void *data, size_t n, tm_comm_request *request)
{
    const tm_comm_ports *p = &world->world->ports;
    return p->engine->send(p->own, 1 - p->rank, tag, data, n, request);
}

static void ask(const tm_comm *world, int tag, void *data, size_t n, tm_comm_request *request)
{
    const tm_comm_ports *p = &world->world->ports;
    CHECK(!p->engine->receive(p->own, 1 - p->rank, tag, data, n, request));
}

/* Until it has ended: what is said of it. */
static const char *end_of(const tm_comm *world, tm_comm_request *request)
{
    const tm_comm_ports *p = &world->world->ports;
    const char          *why = NULL;
    int64_t              until = tm_now_ns() + (int64_t)LONG_MS * 1000000;
    bool                 done = false;
    while (!done && !why && tm_now_ns() < until) why = p->engine->test(p->own, request, &done);
    CHECK(done || why);
    return why;
}

static void well(const tm_comm *world, tm_comm_request *request)
{
    const char *why = end_of(world, request);
    if (why) dprintf(2, "rank %d: %s\n", tm_comm_rank(world), why);
    CHECK(!why);
}

static unsigned char byte_of(size_t i, int tag)
{
    return (unsigned char)(i * 7 + i / 251 + (size_t)tag * 31 + 1);
}

/* What a message with this tag says; one byte more, which it does not reach. */
static unsigned char *text_of(size_t n, int tag)
{
    unsigned char *x = calloc(n + 1, 1);
    CHECK(x);
    for (size_t i = 0; i < n && tag >= 0; i++) x[i] = byte_of(i, tag);
    return x;
}

static void check_text(const unsigned char *x, size_t n, int tag)
{
    for (size_t i = 0; i < n; i++) CHECK(x[i] == byte_of(i, tag));
    CHECK(x[n] == 0);
}

static void pass_gate(const tm_comm *world)
{
    struct pollfd p = { .fd = gate[tm_comm_rank(world)][0], .events = POLLIN };
    char          one;
    CHECK(poll(&p, 1, LONG_MS) == 1 && read(p.fd, &one, 1) == 1);
}

/* Of the other rank. */
static void open_gate(const tm_comm *world)
{
    CHECK(write(gate[1 - tm_comm_rank(world)][1], "x", 1) == 1);
}

/* The world is over: nobody waits for the other one. */
static void is_over(tm_comm *world)
{
    tm_error err = { 0 };
    CHECK(tm_comm_fail(world, TM_IO, &err, "it is over") == TM_IO);
}

/* --- sizes ---------------------------------------------------------------------------------------- */

static const size_t lengths[] = { 0, 1, 2, 15, 16, 17, 4096, 70000, 3000000 };
enum { KINDS = sizeof lengths / sizeof lengths[0] };

enum { BEFORE, WHILE, AFTER, TIMES };

/* Runs a body on two ranks of two nodes. */
static void run_two(void (*body)(tm_comm *world))
{
    static const int node[] = { 0, 1 };
    int              code[MOST];
    for (int r = 0; r < 2; r++) assert_int_equal(pipe(gate[r]), 0);
    launch_of l = { .ranks = 2, .port = free_port(), .node = node, .deadline = 20, .body = body };
    run_all(&l, code);
    for (int i = 0; i < 4; i++) close(gate[i / 2][i % 2]);
    for (int r = 0; r < 2; r++)
        if (code[r] != 0) fail_msg("rank %d ends with %d: %s", r, code[r], said);
}

/* --- ends ----------------------------------------------------------------------------------------- */

/* A rank gives up a message, which ends the connection: of what is left of it, both say that the other one has gone. */
static void cancel_all(tm_comm *world, bool gives, tm_comm_request *one, tm_comm_request *other)
{
    const tm_comm_ports *p = &world->world->ports;
    bool                 done;
    char                 host[TM_COMM_HOST_NAME] = "", want[160];
    if (p->rank == 0) {
        CHECK(!p->engine->test(p->own, one, &done) && !done);
        open_gate(world);
    } else {
        pass_gate(world); /* else it would take all of it meanwhile */
    }
    if (gives) p->engine->cancel(p->own, one);
    const char *why = end_of(world, other);
    CHECK(gethostname(host, sizeof host - 1) == 0);
    snprintf(want, sizeof want, "rank %d on %s has gone: its connection is closed", 1 - p->rank, host);
    if (!why || strcmp(why, want) != 0) dprintf(2, "%s\n", why ? why : "well");
    CHECK(why && strcmp(why, want) == 0);
    /* Whoever gave it up stays until the other one has seen it. */
    if (gives) pass_gate(world);
    if (!gives) p->engine->cancel(p->own, one);
    if (!gives) open_gate(world);
    p->engine->cancel(p->own, other);
    is_over(world);
}

/* Rank 0 sends, rank 1 waits for what does not come. */
static void two_messages(tm_comm *world, int gives)
{
    tm_comm_request request[2];
    unsigned char  *text = text_of(LARGE, 0);
    for (int k = 0; k < 2; k++) {
        if (tm_comm_rank(world) == 0)
            CHECK(!send_it(world, 1 + k, text, LARGE, &request[k]));
        else
            ask(world, 3 + k, text + k, 1, &request[k]);
    }
    cancel_all(world, tm_comm_rank(world) == gives, &request[0], &request[1]);
    free(text);
}

static void sender_gives_up(tm_comm *world)
{
    two_messages(world, 0);
}

static void receiver_gives_up(tm_comm *world)
{
    two_messages(world, 1);
}

TEST(what_is_given_up)
{
    run_two(sender_gives_up);
    run_two(receiver_gives_up);
}

/* Rank 0 ends with a packet unread that has come to it: what it has sent arrives all the same. */
static void end_at_once(tm_comm *world)
{
    enum { BYTES = 200000 };
    const tm_comm_ports *p = &world->world->ports;
    tm_comm_request      request;
    unsigned char       *text = text_of(BYTES, tm_comm_rank(world) == 0 ? 3 : -1);
    if (tm_comm_rank(world) == 0) {
        pass_gate(world);
        CHECK(!send_it(world, 3, text, BYTES, &request));
        well(world, &request);
    } else {
        CHECK(!send_it(world, 4, "unread", 6, &request));
        well(world, &request);
        open_gate(world);
        nanosleep(&(struct timespec){ .tv_nsec = 200000000 }, NULL);
        ask(world, 3, text, BYTES, &request);
        well(world, &request);
        check_text(text, BYTES, 3);
    }
    int64_t begin = tm_now_ns();
    p->engine->close(p->own, false);
    dprintf(2, "rank %d has closed %s\n", p->rank, tm_now_ns() - begin < 1900000000 ? "soon" : "late");
    _exit(0);
}

TEST(what_was_sent_last_arrives)
{
    run_two(end_at_once);
    expect("rank 0 has closed soon\n");
    expect("rank 1 has closed soon\n");
}

/* Rank 1 names memory that is not its own as such. */
static _Noreturn void offer(const launch_of *l, const tm_comm_file *file, int out)
{
    enum { TAG = TM_COMM_TAGS };
    tm_comm_ports   ports;
    tm_error        err = { 0 };
    tm_comm_request request;
    bool            done = false;
    set_rank(l, 1, out);
    CHECK(tm_comm_tcp_open(10, &ports, &err) == TM_OK);
    CHECK(!ports.engine->send(ports.own, 0, TAG, file, sizeof *file, &request));
    while (!done) CHECK(!ports.engine->test(ports.own, &request, &done));
    char nothing;
    CHECK(!ports.engine->receive(ports.own, 0, TAG + 1, &nothing, 1, &request));
    while (!ports.engine->test(ports.own, &request, &done)) CHECK(!done); /* until rank 0 has given up */
    _exit(0);
}

TEST(memory_of_somebody_else)
{
    static const char *const want[] = { "the memory of rank 1 has no proof that it is its own",
                                        "the memory of rank 1: Operation not permitted",
                                        "the memory of rank 1 is too small" };
    for (int i = 0; i < 3; i++) {
        int       fds[2], code[2];
        launch_of l = { .ranks = 2, .port = free_port(), .deadline = 5 };
        pid_t     child[2];
        /* Of this process, which is no rank; or the rank's, but not with what only the rank knows. */
        tm_comm_file file = tm_comm_file_make(i == 2 ? 4096 : 16 << 20);
        assert_int_equal(pipe(fds), 0);
        for (int r = 0; r < 2; r++) {
            child[r] = fork();
            assert_true(child[r] >= 0);
            if (child[r] == 0 && r == 0) be_rank(&l, 0, fds[1]);
            if (child[r] > 0) continue;
            if (i != 1) file.pid = getpid();
            offer(&l, &file, fds[1]);
        }
        finish(child, 2, fds, code);
        close((int)file.fd);
        expect("tcp cannot share memory among the ranks of a host");
        expect(want[i]);
        assert_int_not_equal(code[0], 0);
    }
}
