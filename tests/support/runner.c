/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/runner.c - main() of every program of tests.
 *
 *   all [FILE|TEST]...       the tests of the room, or those whose file or name has one of the words in it
 *   test_add [TEST]...       a link to it: the tests of test_add.c
 *
 * Each test runs in a process of its own; one that takes longer than TM_TEST_SECONDS (120) is killed with its children.
 * Lines of TAP, with what a test printed if it failed. Tests for `make test-full` (test.h) run with TM_TEST_FULL=1, or
 * when they are named; TM_TEST_FULL=draw:SEED runs a fifth of them, which depends on the seed.
 */
#include "support/test.h"

#include "base/hash.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

typedef struct test_file {
    const char        *path;
    struct CMUnitTest *tests;
    size_t             count;
    CMFixtureFunction  set_up, tear_down;
    bool               in_order; /* all in one process */
    struct test_file  *next;
} test_file;

const char          *test_program;
static test_file    *files;
static tm_test_role *roles;

/* By path: the order of links is the linker's. */
static test_file *file_of(const char *path)
{
    test_file **at = &files;
    while (*at && strcmp((*at)->path, path) < 0) at = &(*at)->next;
    if (*at && strcmp((*at)->path, path) == 0) return *at;
    test_file *file = calloc(1, sizeof *file);
    if (!file) abort();
    *file = (test_file){ .path = path, .next = *at };
    return *at = file;
}

void test_add(const char *path, struct CMUnitTest test)
{
    test_file *file = file_of(path);
    file->tests = realloc(file->tests, (file->count + 1) * sizeof test);
    if (!file->tests) abort();
    file->tests[file->count++] = test;
}

void test_set_fixture(const char *path, CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
    file_of(path)->set_up = set_up;
    file_of(path)->tear_down = tear_down;
}

void test_set_in_order(const char *path)
{
    file_of(path)->in_order = true;
}

void test_add_role(tm_test_role *role)
{
    role->next = roles;
    roles = role;
}

bool test_is_full(void)
{
    const char *full = getenv("TM_TEST_FULL");
    return full && *full && strncmp(full, "draw:", 5) != 0;
}

/* "tests/op/test_add.c" -> "test_add", as long as the result says. */
static const char *stem_of(const char *path, int *length)
{
    const char *slash = strrchr(path, '/');
    path = slash ? slash + 1 : path;
    *length = (int)strcspn(path, ".");
    return path;
}

/* Is it one of the tests that `words` ask for? Without words: all; those of the full suite only if that is wanted. */
static bool wanted(const test_file *file, const char *name, char *const *words)
{
    int         length;
    const char *stem = stem_of(file->path, &length), *full = getenv("TM_TEST_FULL");
    for (char *const *word = words; *word; word++)
        if (strstr(name, *word) || (strncmp(stem, *word, (size_t)length) == 0 && !(*word)[length])) return true;
    if (*words) return false;
    if (strncmp(name, TM_FULL, strlen(TM_FULL)) != 0) return true;
    if (!full || strncmp(full, "draw:", 5) != 0) return test_is_full();
    char key[512];
    int  n = snprintf(key, sizeof key, "%s %s %s", full, file->path, name);
    return tm_hash(key, (size_t)n) % 5 == 0;
}

/* In the child: these tests, as a group of their own. */
_Noreturn static void run_here(const test_file *file, const struct CMUnitTest *tests, size_t count, int out)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    close(out);
    setenv("CMOCKA_MESSAGE_OUTPUT", "TAP", 1);
    test_leftovers_begin();
    exit(_cmocka_run_group_tests(file->path, tests, count, file->set_up, file->tear_down));
}

/* Its wait status and processor time; false: it took too long and was killed. On kernels before 5.3 only the caller's
 * limit counts. */
static bool wait_for(pid_t child, int *status, double *seconds)
{
    struct rusage used;
    const char   *limit = getenv("TM_TEST_SECONDS");
    struct pollfd end = { .fd = (int)syscall(SYS_pidfd_open, child, 0), .events = POLLIN };
    bool          in_time = true;
    if (end.fd >= 0) {
        in_time = poll(&end, 1, (limit ? atoi(limit) : 120) * 1000) != 0;
        if (!in_time) kill(-child, SIGKILL);
        close(end.fd);
    }
    while (wait4(child, status, 0, &used) < 0 && errno == EINTR) {
    }
    *seconds = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
               (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
    return in_time;
}

static char *text_of(int fd)
{
    off_t bytes = lseek(fd, 0, SEEK_END);
    char *text = malloc((size_t)bytes + 1);
    if (!text || pread(fd, text, (size_t)bytes, 0) != (ssize_t)bytes) abort();
    text[bytes] = '\0';
    return text;
}

static struct {
    int tests, failed, passed_over;
} sum;

static void print_result(bool passed, const char *name, bool skipped)
{
    printf("%s %d - %s%s\n", passed ? "ok" : "not ok", ++sum.tests, name, skipped ? " # SKIP" : "");
    sum.failed += !passed;
}

static bool starts(const char *line, const char *with)
{
    return strncmp(line, with, strlen(with)) == 0;
}

/* The lines of TAP that a group has printed, with numbers of ours; the rest as comments where something failed or was
 * skipped, and lines that begin with "# note: " in any case. Returns the tests that have a line. */
static size_t print_output(const struct CMUnitTest *tests, size_t count, const char *text, bool comments)
{
    size_t done = 0;
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        int  n = (int)strcspn(line, "\n");
        bool skipped = memmem(line, (size_t)n, "# SKIP", 6) != NULL, passed = starts(line, "ok ");
        if ((passed || starts(line, "not ok ")) && done < count && line[passed ? 3 : 7] >= '0' &&
            line[passed ? 3 : 7] <= '9')
            print_result(passed || skipped, tests[done].name, skipped), done++;
        else if ((comments || starts(line, "# note: ")) && n > 0 && !starts(line, "1.."))
            printf("%s%.*s\n", *line == '#' ? "" : "# ", n, line);
    }
    return done;
}

/* Some tests in a process of their own, and their lines. */
static void run(const test_file *file, const struct CMUnitTest *tests, size_t count)
{
    int out = memfd_create("output", MFD_CLOEXEC), status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (out < 0 || child < 0) abort();
    if (child == 0) run_here(file, tests, count, out);
    double seconds;
    bool  in_time = wait_for(child, &status, &seconds), well = in_time && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    char *text = text_of(out);
    close(out);
    int    failed = sum.failed;
    size_t done = print_output(tests, count, text, !well || strstr(text, "# SKIP"));
    if (done < count) print_result(false, tests[done].name, false);
    if (done == count && !well && failed == sum.failed) print_result(false, "the end of the process", false);
    if (seconds > 1) printf("# %.1f s of processor time\n", seconds);
    if (!in_time) printf("# it took longer than TM_TEST_SECONDS\n");
    if (in_time && WIFSIGNALED(status)) printf("# ended by signal %d\n", WTERMSIG(status));
    if (in_time && !well && failed + 1 == sum.failed && WIFEXITED(status))
        printf("# exit status %d\n", WEXITSTATUS(status));
    free(text);
}

int main(int argc, char **argv)
{
    int         length;
    const char *own = stem_of(argv[0], &length);
    setenv("HF_HUB_CACHE", "/no/hub", 1); /* not the user's, which must not decide what a test finds */
    test_program = argv[0];
    for (const tm_test_role *role = roles; role && argc > 1; role = role->next)
        if (strcmp(argv[1], role->name) == 0) return role->run(argc, argv);
    /* Threads that wait sleep: on a busy machine spinning ones make the tests several times slower. */
    if (!getenv("OMP_WAIT_POLICY") && setenv("OMP_WAIT_POLICY", "passive", 1) == 0) execv("/proc/self/exe", argv);
    for (const test_file *file = files; file; file = file->next) {
        int         n;
        const char *stem = stem_of(file->path, &n);
        if (strncmp(own, "test_", 5) == 0 && (n != length || strncmp(own, stem, (size_t)n) != 0)) continue;
        size_t chosen = 0;
        for (size_t i = 0; i < file->count && argc > 1; i++) chosen += wanted(file, file->tests[i].name, argv + 1);
        bool all = file->in_order && (argc == 1 || chosen == file->count);
        if (all) run(file, file->tests, file->count);
        for (size_t i = 0; i < file->count && !all; i++)
            if (wanted(file, file->tests[i].name, argv + 1))
                run(file, &file->tests[i], 1);
            else
                sum.passed_over++;
    }
    printf("1..%d%s\n", sum.tests, sum.tests == 0 && sum.passed_over > 0 && argc == 1 ? " # for make test-full" : "");
    return sum.failed > 0;
}
