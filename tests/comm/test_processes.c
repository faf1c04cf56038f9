/* SPDX-License-Identifier: Apache-2.0 */
/* Worlds of processes, over each MPI that is here: the same calls and the same bits. This program is also what is
 * launched. Ranks that are killed or stopped: tests/cli/test_ranks.sh. */
#include "calls.h"

#include <limits.h>
#include <sys/wait.h>

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
    tm_status           st = tm_comm_open(&options, &world, &err);
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

static const struct {
    const char *name, *other, *command; /* other: engine that does not fit this launcher */
} libraries[] = {
    { "openmpi", "mpich", "mpirun.openmpi --oversubscribe --bind-to none --quiet --mca pml ob1 --mca btl vader,self" },
    { "mpich", "openmpi", "mpiexec.mpich" },
};

static char self[PATH_MAX], text[65536];

/* What ranks say; returns their exit code. */
static int launch(int library, int ranks, const char *engine)
{
    char command[2 * PATH_MAX];
    snprintf(command, sizeof command, "timeout 100 %s -n %d '%s' rank %s 2>&1 </dev/null", libraries[library].command,
             ranks, self, engine);
    FILE *of = popen(command, "r");
    assert_non_null(of);
    text[fread(text, 1, sizeof text - 1, of)] = '\0';
    int status = pclose(of);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static void expect(const char *words)
{
    if (!strstr(text, words)) fail_msg("'%s' is not in: %s", words, text);
}

static bool is_here(int library)
{
    char command[128];
    snprintf(command, sizeof command, "command -v %.*s >/dev/null", (int)strcspn(libraries[library].command, " "),
             libraries[library].command);
    if (system(command) == 0 && tm_comm_engine_built(libraries[library].name)) return true;
    print_message("SKIPPED: %s or trainmark-%s.so is not here\n", libraries[library].name, libraries[library].name);
    return false;
}

TEST(same_calls_by_each_mpi)
{
    int n = 0;
    for (int l = 0; l < 2; l++) {
        if (!is_here(l)) continue;
        n++;
        if (launch(l, 3, "-") != 0) fail_msg("%s: %s", libraries[l].name, text);
        for (int r = 0; r < 3; r++) {
            char line[96];
            snprintf(line, sizeof line, "rank %d of 3 done, place %d of 3 on host 0 of 1", r, r);
            expect(line);
        }
    }
    if (n == 0) skip();
}

/* Ranks that would all train alone. */
TEST(wrong_launchers)
{
    if (!is_here(0) || !is_here(1)) skip();
    for (int l = 0; l < 2; l++) {
        assert_int_not_equal(launch(l, 2, libraries[l].other), 0);
        expect("the launcher is another MPI's");
        if (strstr(text, "done")) fail_msg("a rank computed: %s", text);
    }
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
