/* SPDX-License-Identifier: Apache-2.0 */
/* How long ranks that do not end are waited for, and what is said when they are killed, by a clock that goes on when it
 * is looked at. Ends that need no patience: test_launcher.sh. */
#include "support/test.h"
#include "cli/cli.h"
#include "cli/ranks.h"
#include "support/fake_clock.h"
#include "told.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

/* --- looks -------------------------------------------------------------------------------------------------------- */

static int64_t    nap_ns;  /* of a look */
static const int *signals; /* that come once the launcher is up, one at each look; ends with 0 */

int sigtimedwait(const sigset_t *set, siginfo_t *info, const struct timespec *most)
{
    (void)info;
    assert_true(sigismember(set, SIGINT) && sigismember(set, SIGCHLD) && most->tv_sec == 0);
    bool  up = tm_file_exists("up");
    FILE *looks = fopen("looks", "a"); /* a byte for each */
    if (looks && fputc('.', looks) == '.') fclose(looks);
    syscall(SYS_nanosleep, &(struct timespec){ .tv_nsec = up ? nap_ns : 2000000 }, NULL);
    if (up && signals && *signals) return *signals++;
    errno = EAGAIN;
    return -1;
}

/* --- launchers ---------------------------------------------------------------------------------------------------- */

static int make_launcher(void **state)
{
    static const char head[] = "#!/bin/sh\nsign() { echo \"$3\" >\"$TRAINMARK_RANKS_FOLDER/$1.$2\"; }\n. ./script\n";
    char              path[4200], folder[4096];
    tm_error          err = { 0 };
    if (told_enter(state) != 0 || !getcwd(folder, sizeof folder)) return 1;
    snprintf(path, sizeof path, "%s:%s", folder, getenv("PATH"));
    setenv("PATH", path, 1);
    setenv("TRAINMARK_MODULES", folder, 1);
    return tm_file_write("trainmark-openmpi.so", "", 0, &err) != TM_OK ||
           tm_file_write("mpirun.openmpi", head, strlen(head), &err) != TM_OK || chmod("mpirun.openmpi", 0755) != 0;
}

/* Numbers of processes are not the test's. */
static void mask_processes(void)
{
    tm_text masked = { 0 };
    for (const char *at = told.data; *at;) {
        size_t n = strncmp(at, "process ", 8) == 0 ? 8 : 1;
        tm_text_add_n(&masked, at, n);
        at += n;
        if (n == 8 && isdigit((unsigned char)*at)) {
            tm_text_add(&masked, "N");
            at += strspn(at, "0123456789");
        }
    }
    tm_text_fini(&told);
    told = masked;
}

typedef struct {
    const char *script;
    int         signals[4];
    double      seconds; /* that are waited; 0: none */
    double      reading; /* of the clock takes so many */
    int64_t     nap_ms;  /* of a look; long enough for a process that is killed to be gone at the next one */
    tm_status   status;
    const char *killed, *said; /* why; NULL: they are not. The message, without its status */
} patience;

#define STOPPED "sleep 1000 & sign pid 1 $!; kill -STOP $!; sign pid 0 $$; "
#define DEAF "trap '' USR1 TERM; : >up; while :; do sleep 0.05; done"

/* It passes nothing on: a library took the signal. Its rank hears of it all the same. */
#define FORGETFUL                                                                                                      \
    "(trap 'exit 0' USR1; while :; do sleep 0.05; done) & trap '' USR1; sign pid 0 $!; sign pid 1 $!; sleep 0.2; "     \
    ": >up; wait $!; sign done 0 130; sign done 1 130"

/* Its other rank has left the launcher's group. */
#define FAILED                                                                                                         \
    "setsid sleep 1000 & echo $! >strayed; sign pid 0 $!; sign pid 1 $$; sign failed 1 4; : >up; exec sleep 1000"
#define ENDED STOPPED "sign done 0 0; : >up; exec sleep 1000"
/* A rank that was stopped goes on and ends: the other one is what was lost. */
#define WENT_ON                                                                                                        \
    "looked() { n=$(wc -c <looks); until [ $(wc -c <looks) -gt $((n + 2)) ]; do sleep 0.02; done; }; sleep 1000 & "    \
    "sign pid 1 $!; kill -STOP $!; sign pid 0 $$; : >up; looked; sign done 1 0; looked; kill -9 $!"
#define ALONE "1 of 2 ranks ended without a word (the launcher's exit code is 0)"
#define LATE "the launcher did not end after a rank had"
#define ASLEEP "one was stopped when another had ended"
#define WITHOUT "2 of 2 ranks ended without a word (the launcher's exit code is 137)"
#define WAITED "rank 1 (process N) was stopped while others waited, and was ended"

static const patience cases[] = {
    { FAILED, { 0 }, 10, 0.4, 1, TM_INVALID, LATE, "" },
    { ENDED, { 0 }, 10, 4, 100, TM_INTERNAL, ASLEEP, WAITED },
    { WENT_ON, { 0 }, 0, 0.4, 100, TM_INTERNAL, NULL, ALONE },
    { DEAF, { SIGTERM }, 600, 0.9, 0, TM_INTERNAL, "they did not stop", WITHOUT },
    { DEAF, { SIGHUP, SIGINT }, 5, 0.4, 1, TM_INTERRUPTED, "they did not end", "" },
    { DEAF, { SIGUSR2, SIGUSR1, SIGINT }, 5, 0.4, 1, TM_INTERRUPTED, "they did not end", "" },
    { FORGETFUL, { SIGTERM }, 0, 0.4, 100, TM_INTERRUPTED, NULL, "" },
    { DEAF, { SIGINT, SIGTERM, SIGINT }, 0, 0.4, 100, TM_INTERRUPTED, NULL, "" },
};

/* Does the rank that is in no group run? */
static bool strayed_is_left(void)
{
    char  path[64] = "", line[400] = "";
    long  pid = 0;
    FILE *file = fopen("strayed", "r");
    bool  known = file && fscanf(file, "%ld", &pid) == 1;
    if (file) fclose(file);
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    return known && tm_file_read_line(path, line, sizeof line) && !strstr(line, ") Z ") && !strstr(line, ") X ");
}

static void wait_for(const patience *p)
{
    tm_arena    *arena = tm_arena_create();
    char        *argv[] = { (char *)"collectives", NULL };
    tm_cli_line  line = { .name = "bench collectives", .argc = 1, .argv = argv, .arena = arena };
    tm_cli_start start = { .ranks = 2, .mpi = "openmpi" };
    bool         started = false;
    tm_error     err = { 0 };
    assert_int_equal(tm_file_write("script", p->script, strlen(p->script), &err), TM_OK);
    unlink("up");
    nap_ns = p->nap_ms * 1000000;
    signals = p->signals[0] ? p->signals : NULL;
    told.length = 0;
    told_begin();
    fake_clock_start((int64_t)(p->reading * 1e9), 0);
    tm_status st = tm_cli_start_ranks(&start, &line, &started, &err);
    double    passed = (double)fake_clock_passed() * 1e-9;
    fake_clock_stop();
    told_end(st, &err);
    mask_processes();
    tm_text wanted = { 0 };
    tm_text_add(&wanted, p->signals[0] ? "trainmark: asking the ranks to stop; once more ends them\n" : "");
    if (p->killed) tm_text_printf(&wanted, "trainmark: killing the ranks: %s\n", p->killed);
    tm_text_printf(&wanted, "-> %s: %s\n\n", tm_status_text(p->status), p->said);
    assert_string_equal(told.data, wanted.data);
    tm_text_fini(&wanted);
    assert_int_equal(st, p->status);
    assert_true(started);
    if (p->seconds > 0 && !(passed > p->seconds && passed < p->seconds + 5 * p->reading))
        fail_msg("%s: %g s, wanted %g s", p->script, passed, p->seconds);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);                 /* nobody is left */
    for (int i = 0; i < 5000 && strayed_is_left(); i++) usleep(1000); /* until a kill is done */
    assert_false(strayed_is_left());
    tm_arena_destroy(arena);
}

TEST(patience_ends)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) wait_for(&cases[i]);
    tm_text_fini(&told);
}

TESTS_ALONE
TEST_FIXTURE(make_launcher, told_leave)
