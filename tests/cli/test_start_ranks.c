/* SPDX-License-Identifier: Apache-2.0 */
/* How long ranks that do not end are waited for, and what is said when they are killed, by a clock that goes on when it
 * is looked at. Ends that need no patience: test_launcher.sh. What a rank makes of its input and output, and
 * of its signals. */
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
    bool up = tm_file_exists("up");
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
    const char *said;
} patience;

#define STOPPED "sleep 1000 & sign pid 1 $!; kill -STOP $!; sign pid 0 $$; "
#define DEAF "trap '' USR1 TERM; : >up; while :; do sleep 0.05; done"

/* It passes nothing on: a library took the signal. Its rank hears of it all the same. */
#define FORGETFUL                                                                                                      \
    "(trap 'exit 0' USR1; while :; do sleep 0.05; done) & trap '' USR1; sign pid 0 $!; sign pid 1 $!; sleep 0.2; "     \
    ": >up; wait $!; sign done 0 130; sign done 1 130"

#define ASKING "trainmark: asking the ranks to stop; once more ends them\n"
#define KILLING "trainmark: killing the ranks: "

static const patience cases[] = {
    { "sign pid 0 $$; sign pid 1 $$; sign failed 1 4; : >up; exec sleep 1000",
      { 0 },
      10,
      0.4,
      1,
      TM_INVALID,
      KILLING "the launcher did not end after a rank had\n-> invalid configuration or input: \n\n" },
    { STOPPED "sign done 0 0; : >up; exec sleep 1000",
      { 0 },
      10,
      4,
      100,
      TM_INTERNAL,
      KILLING "one was stopped when another had ended\n-> internal error: rank 1 (process N) was stopped while others "
              "waited, and was ended\n\n" },
    { DEAF,
      { SIGTERM },
      600,
      0.9,
      0,
      TM_INTERNAL,
      ASKING KILLING
      "they did not stop\n-> internal error: 2 of 2 ranks ended without a word (the launcher's exit code "
      "is 137)\n\n" },
    { DEAF, { SIGHUP, SIGINT }, 5, 0.4, 1, TM_INTERRUPTED, ASKING KILLING "they did not end\n-> interrupted: \n\n" },
    { DEAF,
      { SIGUSR2, SIGUSR1, SIGINT },
      5,
      0.4,
      1,
      TM_INTERRUPTED,
      ASKING KILLING "they did not end\n-> interrupted: \n\n" },
    { FORGETFUL, { SIGTERM }, 0, 0.4, 100, TM_INTERRUPTED, ASKING "-> interrupted: \n\n" },
    { DEAF, { SIGINT, SIGTERM, SIGINT }, 0, 0.4, 100, TM_INTERRUPTED, ASKING "-> interrupted: \n\n" },
};

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
    assert_string_equal(told.data, p->said);
    assert_int_equal(st, p->status);
    assert_true(started);
    if (p->seconds > 0 && !(passed > p->seconds && passed < p->seconds + 5 * p->reading))
        fail_msg("%s: %g s, wanted %g s", p->script, passed, p->seconds);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nobody is left */
    tm_arena_destroy(arena);
}

TEST(patience_ends)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) wait_for(&cases[i]);
    tm_text_fini(&told);
}

/* --- a rank settles ----------------------------------------------------------------------------------------------- */

TESTS_ALONE
TEST_FIXTURE(make_launcher, told_leave)
