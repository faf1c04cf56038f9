/* SPDX-License-Identifier: Apache-2.0 */
/* Worlds of processes, over each MPI that is here: the same calls and the same bits, and no process is left. This
 * program is also what is launched. Ranks that are killed or stopped: tests/cli/test_ranks.sh.
 */
#include "calls.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/folder.h"
#include "support/test.h"

/* --- as a rank ----------------------------------------------------------------------------------- */

static void messages_around(tm_comm *world)
{
    enum { N = 300000 };
    int    rank = tm_comm_rank(world), size = tm_comm_size(world);
    float *x = malloc(N * sizeof *x);
    CHECK(x);
    for (int i = 0; i < N; i++) x[i] = (float)(rank * 10 + i % 7);
    tm_collective send = collective_of(TM_COMM_SEND, TM_COMM_FLOAT32, x, NULL, N, "ring", 0);
    send.peer = (rank + 1) % size;
    tm_collective receive = collective_of(TM_COMM_RECEIVE, TM_COMM_FLOAT32, NULL, x, N, "ring", 0);
    receive.peer = (rank + size - 1) % size;
    if (rank > 0) CHECK_OK(tm_comm_run(world, &receive, err));
    CHECK_OK(tm_comm_run(world, &send, err));
    if (rank == 0) CHECK_OK(tm_comm_run(world, &receive, err));
    /* Every rank passes on what it got: all end with that of rank 0. */
    for (int i = 0; i < N; i++) CHECK(x[i] == (float)(i % 7));
    free(x);
}

static int rank_main(const char *engine)
{
    static const size_t counts[] = { 0, 5, 2000, 9001 };
    tm_comm_options     options = { .engine = engine, .deadline_seconds = 60 };
    tm_comm            *world;
    tm_error            err = { 0 };
    printf("pid %ld\n", (long)getpid());
    fflush(stdout);
    tm_status st = tm_comm_open(&options, &world, &err);
    if (st != TM_OK) {
        fprintf(stderr, "%s\n", err.text);
        return tm_status_exit_code(st);
    }
    all_calls(world, OF(counts));
    messages_around(world);
    tm_comm_place place = tm_comm_place_of(world, tm_comm_rank(world));
    printf("rank %d of %d done, place %d of %d on host %d of %d\n", tm_comm_rank(world), tm_comm_size(world),
           place.local_rank, place.local_size, place.host, place.hosts);
    tm_comm_close(world);
    return 0;
}

/* --- as the test --------------------------------------------------------------------------------- */

typedef struct {
    const char *name, *launcher, *other; /* other: engine that does not fit this launcher */
} library;

static const library libraries[] = { { "openmpi", "mpirun.openmpi", "mpich" },
                                     { "mpich", "mpiexec.mpich", "openmpi" } };

static char self[PATH_MAX];

static bool in_path(const char *program)
{
    char command[128];
    snprintf(command, sizeof command, "command -v %s >/dev/null 2>&1", program);
    return system(command) == 0;
}

/* Skips the test where the library is not here. */
static void need(const library *l)
{
    if (!in_path(l->launcher)) {
        print_message("SKIPPED: %s is not installed\n", l->launcher);
        skip();
    }
    if (!tm_comm_engine_built(l->name)) {
        print_message("SKIPPED: trainmark-%s.so was not built\n", l->name);
        skip();
    }
}

typedef struct {
    int    code; /* 128 + signal */
    double seconds;
    char   text[65536];
} outcome;

static void run_child(const library *l, const char *ranks, const char *engine, int out)
{
    const char *argv[24];
    int         n = 0;
    argv[n++] = l->launcher;
    argv[n++] = "-n";
    argv[n++] = ranks;
    if (strcmp(l->name, "openmpi") == 0) {
        argv[n++] = "--oversubscribe", argv[n++] = "--bind-to", argv[n++] = "none", argv[n++] = "--quiet";
        argv[n++] = "--mca", argv[n++] = "pml", argv[n++] = "ob1", argv[n++] = "--mca", argv[n++] = "btl";
        argv[n++] = "vader,self";
    }
    argv[n++] = self;
    argv[n++] = "rank";
    argv[n++] = engine;
    argv[n] = NULL;
    setpgid(0, 0);
    dup2(out, 1);
    dup2(out, 2);
    int null = open("/dev/null", O_RDONLY);
    dup2(null, 0);
    execvp(argv[0], (char *const *)argv);
    _exit(127);
}

static void launch(const library *l, const char *ranks, const char *engine, outcome *o)
{
    enum { LIMIT_S = 100 };
    int     fds[2], status = 0;
    size_t  n = 0;
    int64_t begin = tm_now_ns();
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) run_child(l, ranks, engine, fds[1]);
    close(fds[1]);
    for (;;) {
        struct pollfd p = { .fd = fds[0], .events = POLLIN };
        ssize_t       got = poll(&p, 1, 200) > 0 ? read(fds[0], o->text + n, sizeof o->text - 1 - n) : -1;
        if (got > 0) n += (size_t)got;
        if (got == 0) break;
        if ((double)(tm_now_ns() - begin) * 1e-9 > LIMIT_S) kill(-child, SIGKILL);
    }
    o->text[n] = 0;
    close(fds[0]);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    o->seconds = (double)(tm_now_ns() - begin) * 1e-9;
    o->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    assert_true(o->seconds < LIMIT_S);
}

/* One that nobody has waited for yet is gone, too. */
static bool runs(long pid)
{
    char path[64], state = 'X', line[512];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return false;
    char *name = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    if (name) state = name[2];
    fclose(file);
    return state != 'Z' && state != 'X';
}

static void expect_nobody_left(const outcome *o, int ranks)
{
    int found = 0;
    for (const char *at = o->text; (at = strstr(at, "pid ")); at++) {
        long pid = strtol(at + 4, NULL, 10);
        found++;
        for (int i = 0; i < 100 && runs(pid); i++) nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
        if (runs(pid)) fail_msg("process %ld is left of: %s", pid, o->text);
    }
    if (found != ranks) fail_msg("%d ranks of %d told their numbers: %s", found, ranks, o->text);
}

static void expect(const outcome *o, const char *words)
{
    if (!strstr(o->text, words))
        fail_msg("exit code %d after %.1f s, '%s' is not in: %s", o->code, o->seconds, words, o->text);
}

static outcome o;

static void same_calls(const library *l)
{
    need(l);
    launch(l, "3", "-", &o);
    if (o.code != 0) fail_msg("exit code %d: %s", o.code, o.text);
    for (int r = 0; r < 3; r++) {
        char line[96];
        snprintf(line, sizeof line, "rank %d of 3 done, place %d of 3 on host 0 of 1", r, r);
        expect(&o, line);
    }
    expect_nobody_left(&o, 3);
}

/* Ranks that would all train alone. */
static void wrong_launcher(const library *l)
{
    need(l);
    need(&libraries[l == libraries]);
    launch(l, "2", l->other, &o);
    assert_int_not_equal(o.code, 0);
    expect(&o, "the launcher is another MPI's");
    expect(&o, "--ranks 2");
    if (strstr(o.text, "done")) fail_msg("a rank computed: %s", o.text);
}

TEST(calls_openmpi)
{
    same_calls(&libraries[0]);
}

TEST(calls_mpich)
{
    same_calls(&libraries[1]);
}

TEST(wrong_launchers)
{
    for (int i = 0; i < 2; i++) wrong_launcher(&libraries[i]);
}

/* The modules lie beside the program, two folders up. */
static int settle_environment(void **state)
{
    char    modules[PATH_MAX + 16];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    (void)state;
    assert_true(n > 0);
    self[n] = 0;
    snprintf(modules, sizeof modules, "%s", self);
    for (int i = 0; i < 3; i++) *strrchr(modules, '/') = 0;
    setenv("TRAINMARK_MODULES", modules, 0);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* those of the MPI */
    setenv("TMPDIR", test_folder(), 1);
    return 0;
}

static int clean_up(void **state)
{
    (void)state;
    unsetenv("TMPDIR");
    test_folder_remove();
    return 0;
}

static int be_rank(int argc, char **argv)
{
    return argc > 2 ? rank_main(argv[2][0] == '-' ? NULL : argv[2]) : 2;
}
TM_TEST_ROLE("rank", be_rank)

TEST_FIXTURE(settle_environment, clean_up)
