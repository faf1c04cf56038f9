/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/launched.h - starts ranks as a launcher does that gives them an address to barrier at, and keeps what they
 * say.
 */
#ifndef TM_TESTS_COMM_LAUNCHED_H
#define TM_TESTS_COMM_LAUNCHED_H

#include "support/test.h"

#include "calls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { MOST = 8 };

/* A port that was free a moment ago. */
static inline int free_port(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t          n = sizeof a;
    int                fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, n), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    close(fd);
    return ntohs(a.sin_port);
}

static inline void set(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

typedef struct {
    int         ranks, port;
    const int  *node; /* of each rank; NULL: one */
    double      deadline;
    const char *job, *address, *secret; /* address: NULL: this machine's */
    void (*body)(tm_comm *world);
} launch_of;

/* As the launcher does. */
static inline void set_rank(const launch_of *l, int rank, int out)
{
    setenv("MASTER_ADDR", l->address ? l->address : "127.0.0.1", 1);
    if (l->job) setenv("TORCHELASTIC_RUN_ID", l->job, 1);
    if (l->secret) setenv("TRAINMARK_SECRET", l->secret, 1);
    set("MASTER_PORT", l->port), set("RANK", rank), set("WORLD_SIZE", l->ranks), set("LOCAL_RANK", 0);
    set("GROUP_RANK", l->node ? l->node[rank] : 0);
    dup2(out, 2);
}

/* Of the address sanitizer, if there is one. */
extern int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

static inline _Noreturn void be_rank(const launch_of *l, int rank, int out)
{
    tm_comm *world;
    tm_error err = { 0 };
    set_rank(l, rank, out);
    tm_status st = tm_comm_open(&(tm_comm_options){ .deadline_seconds = l->deadline }, &world, &err);
    if (st == TM_OK) {
        CHECK(strcmp(tm_comm_engine_name(world), "tcp") == 0);
        l->body(world);
        tm_comm_close(world);
        if (__lsan_do_recoverable_leak_check) CHECK(__lsan_do_recoverable_leak_check() == 0); /* _exit does not look */
    } else {
        dprintf(2, "rank %d: %s\n", rank, err.text);
    }
    _exit(tm_status_exit_code(st));
}

static inline pid_t start(const launch_of *l, int rank, int out)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) be_rank(l, rank, out);
    return child;
}

/* All that was said; codes of the ranks, 128 + signal. */
static char said[16384];

static inline void finish(const pid_t *child, int n, const int fds[2], int *code)
{
    close(fds[1]);
    size_t length = 0;
    for (ssize_t got; (got = read(fds[0], said + length, sizeof said - 1 - length)) > 0;) length += (size_t)got;
    said[length] = '\0';
    close(fds[0]);
    for (int r = 0; r < n; r++) {
        int status = 0;
        while (waitpid(child[r], &status, 0) < 0 && errno == EINTR) {
        }
        code[r] = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
}

static inline void run_all(const launch_of *l, int *code)
{
    int   fds[2];
    pid_t child[MOST];
    assert_int_equal(pipe(fds), 0);
    for (int r = l->ranks - 1; r >= 0; r--) child[r] = start(l, r, fds[1]);
    finish(child, l->ranks, fds, code);
}

static inline void expect(const char *words)
{
    if (!strstr(said, words)) fail_msg("'%s' is not in: %s", words, said);
}

#endif
