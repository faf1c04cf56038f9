/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that barrier at an address: the same calls and the same bits as everywhere, on one node and on several;
 * who may call, ranks that go or give up, and memory that is not theirs.
 */
#include "support/test.h"
#include "launched.h"

#include "base/clock.h"
#include "comm/engine/tcp.h"

#include <signal.h>
#include <time.h>

/* --- calls --------------------------------------------------------------------------------------- */

static void calls_and_messages(tm_comm *world)
{
    static const size_t counts[] = { 0, 5, 2000, 9001 };
    enum { N = 100000 };
    int      rank = tm_comm_rank(world), size = tm_comm_size(world);
    sizes    s = { counts, sizeof counts / sizeof counts[0] };
    int64_t *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    CHECK(x && y);
    all_calls(world, &s);
    /* Everybody sends to everybody at once, buffered, large behind small; they are asked for in the other order. */
    for (int to = 0; to < size; to++) {
        if (to == rank) continue;
        for (int i = 0; i < N; i++) x[i] = rank * 1000 + to + i;
        for (int channel = 0; channel < 2; channel++) {
            tm_collective call = collective_of(TM_COMM_SEND, TM_COMM_INT64, x, NULL, channel ? N : 3, "post", channel);
            call.peer = to, call.channel = channel, call.buffered = true;
            CHECK_OK(tm_comm_run(world, &call, err));
        }
    }
    for (int from = size - 1; from >= 0; from--) {
        if (from == rank) continue;
        for (int channel = 1; channel >= 0; channel--) {
            size_t        n = channel ? N : 3;
            tm_collective call = collective_of(TM_COMM_RECEIVE, TM_COMM_INT64, NULL, y, n, "post", channel);
            call.peer = from, call.channel = channel;
            CHECK_OK(tm_comm_run(world, &call, err));
            for (size_t i = 0; i < n; i++) CHECK(y[i] == from * 1000 + rank + (int64_t)i);
        }
    }
    free(x);
    free(y);
}

FULL_TEST(same_calls)
{
    static const int nodes[][4] = { { 0, 0, 0, 0 }, { 0, 0, 1, 1 }, { 0, 1, 2, 1 } };
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++) {
        int       code[MOST];
        launch_of l = { .ranks = 4, .port = free_port(), .node = nodes[i], .deadline = 60, .body = calls_and_messages };
        run_all(&l, code);
        for (int r = 0; r < l.ranks; r++)
            if (code[r] != 0) fail_msg("nodes %zu: rank %d ends with %d: %s", i, r, code[r], said);
    }
}

static void tell_place(tm_comm *world)
{
    tm_comm_place place = tm_comm_place_of(world, tm_comm_rank(world));
    dprintf(2, "rank %d: %d of %d on %d of %d\n", tm_comm_rank(world), place.local_rank, place.local_size, place.host,
            place.hosts);
}

/* Also by the other kind of address, where this machine has it. */
TEST(places)
{
    static const int    node[] = { 1, 0, 1 };
    struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    int                 fd = socket(AF_INET6, SOCK_STREAM, 0);
    bool                six = fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0;
    if (fd >= 0) close(fd);
    for (int i = 0; i <= six; i++) {
        int       code[MOST];
        launch_of l = { .ranks = 3, .port = free_port(), .node = node, .deadline = 20, .body = tell_place };
        if (i) l.address = "::1";
        run_all(&l, code);
        expect("rank 0: 0 of 2 on 0 of 2\n");
        expect("rank 1: 0 of 1 on 1 of 2\n");
        expect("rank 2: 1 of 2 on 0 of 2\n");
    }
}

/* --- who comes ----------------------------------------------------------------------------------- */

/* The address, in hexadecimal digits, at which somebody listens at this port; "": nobody does. */
static char *listens_at(int port, char out[64])
{
    char line[512], number[16];
    *out = '\0';
    snprintf(number, sizeof number, ":%04X", (unsigned)port);
    for (int tries = 0; !*out && tries < 500; tries++) {
        FILE *table = fopen("/proc/net/tcp", "r");
        assert_non_null(table);
        while (fgets(line, sizeof line, table)) {
            char local[64], remote[64], state[8];
            if (sscanf(line, " %*[^:]: %63s %63s %7s", local, remote, state) != 3 || strcmp(state, "0A") != 0) continue;
            char *colon = strchr(local, ':');
            if (!colon || strcmp(colon, number) != 0) continue;
            *colon = '\0';
            memcpy(out, local, sizeof local);
        }
        fclose(table);
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    }
    return out;
}

/* Also where "all addresses" are asked for, if all ranks are here. */
TEST(only_this_host_can_call)
{
    static const char *const addresses[] = { "127.0.0.1", "0.0.0.0" };
    for (int i = 0; i < 2; i++) {
        int       fds[2], code[MOST];
        pid_t     child[2];
        char      where[64];
        launch_of l = { .ranks = 2, .port = free_port(), .deadline = 20, .address = addresses[i], .body = tell_place };
        assert_int_equal(pipe(fds), 0);
        child[0] = start(&l, 0, fds[1]);
        assert_string_equal(listens_at(l.port, where), "0100007F");
        child[1] = start(&l, 1, fds[1]);
        finish(child, 2, fds, code);
        if (code[0] != 0 || code[1] != 0) fail_msg("exit codes %d and %d: %s", code[0], code[1], said);
    }
}

static void end_early(tm_comm *world)
{
    float    x = 1, y = 0;
    tm_error err = { 0 };
    if (tm_comm_rank(world) == 1) raise(SIGKILL);
    tm_collective sum = collective_of(TM_COMM_ALL_REDUCE, TM_COMM_FLOAT32, &x, &y, 1, "sums", 3);
    tm_status     st = tm_comm_run(world, &sum, &err);
    if (st != TM_OK) tm_comm_abort(world, tm_status_exit_code(st), err.text);
}

/* Of another node: at once. */
TEST(a_rank_dies)
{
    static const int node[] = { 0, 1, 0 };
    int              code[MOST];
    launch_of        l = { .ranks = 3, .port = free_port(), .node = node, .deadline = 1000, .body = end_early };
    int64_t          begin = tm_now_ns();
    run_all(&l, code);
    assert_int_equal(code[1], 128 + SIGKILL);
    assert_int_equal(code[0], 1);
    assert_int_equal(code[2], 1);
    char host[64] = "", words[160];
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    snprintf(words, sizeof words, "rank 1 on %s has gone: its connection is closed", host);
    expect(words);
    assert_true(tm_now_ns() - begin < 500000000000);
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

static int begin(void **state)
{
    (void)state;
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
    return 0;
}

TEST_FIXTURE(begin, NULL)
