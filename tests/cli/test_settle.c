/* SPDX-License-Identifier: Apache-2.0 */
/* A command that computes where others use the processors starts itself again with threads that sleep while they wait:
 * when, with which words that is told, and what is left where it cannot, on a machine that is made up. From the
 * outside: test_run_words.sh. */
#include "support/test.h"
#include "cli/cli.h"
#include "told.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <time.h>

/* --- the machine -------------------------------------------------------------------------------------------------- */

static bool        made_up;
static int         threads;
static const char *online;  /* the file of that name; NULL: none */
static const char *running; /* digits: tasks at one look after the other; the last again */
static int         looks, naps, starts;
static char        started[PATH_MAX], policy[24];
static char      **with;

FILE *fopen(const char *path, const char *mode)
{
    static char text[64];
    FILE *(*real)(const char *, const char *) = NULL;
    *(void **)&real = dlsym(RTLD_NEXT, "fopen");
    if (!made_up) return real(path, mode);
    if (strstr(path, "cgroup")) return NULL;
    if (strcmp(path, "/proc/loadavg") == 0) {
        size_t last = strlen(running) - 1, at = (size_t)looks++;
        snprintf(text, sizeof text, "0.57 0.18 0.10 %c/95 7603\n", running[at < last ? at : last]);
        return fmemopen(text, strlen(text), "r");
    }
    if (strcmp(path, "/sys/devices/system/cpu/online") != 0) return real(path, mode);
    if (!online) return NULL;
    snprintf(text, sizeof text, "%s\n", online);
    return fmemopen(text, strlen(text), "r");
}

int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set)
{
    (void)pid;
    CPU_ZERO_S(bytes, set);
    for (int i = 0; i < threads; i++) CPU_SET_S((size_t)(3 * i), bytes, set);
    return 0;
}

int nanosleep(const struct timespec *time, struct timespec *left)
{
    (void)left;
    if (time->tv_sec == 0 && time->tv_nsec == 2000000) naps++;
    return 0;
}

int execv(const char *path, char *const *argv)
{
    const char *set = getenv("OMP_WAIT_POLICY");
    starts++;
    snprintf(started, sizeof started, "%s", path);
    snprintf(policy, sizeof policy, "%s", set ? set : "");
    with = (char **)(size_t)argv;
    errno = ENOENT;
    return -1;
}

/* --- cases -------------------------------------------------------------------------------------------------------- */

typedef struct {
    const char *words;   /* between blanks */
    const char *setting; /* of the environment, NAME=value */
    int         threads;
    const char *online, *running;
    int         naps;
    bool        starts;
    const char *spins;
} waiting_case;

static const waiting_case cases[] = {
    { "run a --b c", "", 4, "0-3", "2", 5, true, NULL },
    { "bench gemm", "", 2, "0-3", "4", 5, true, NULL },
    { "run", "", 2, "0-3", "3", 0, false, NULL },
    { "ab", "", 4, "0-3", "1", 0, false, "300000" },
    { "run", "", 4, "0-3", "99991", 4, false, NULL },
    { "run", "", 1, "0-3", "9", 0, false, NULL },
    { "run", "", 4, NULL, "9", 0, false, NULL },
    { "explain", "", 4, "0-3", "9", 0, false, NULL },
    { "run --help", "", 4, "0-3", "9", 0, false, NULL },
    { "run", "OMP_WAIT_POLICY=active", 4, "0-3", "9", 0, false, NULL },
    { "ab", "GOMP_SPINCOUNT=7", 4, "0-3", "1", 0, false, "7" },
    { "run", "RANK=1", 4, "0-3", "9", 0, false, NULL },
};

static void settle(const waiting_case *c)
{
    static const char note[] = "trainmark: note: other processes were using the CPU at the start, so idle worker "
                               "threads slept instead of spinning (OMP_WAIT_POLICY=passive)\n";
    char copy[100], setting[100], *rest = copy, *argv[10] = { (char *)"trainmark" }, self[PATH_MAX] = "", wanted[200];
    int  argc = 1;
    tm_error none = { 0 };
    snprintf(copy, sizeof copy, "%s", c->words);
    for (char *word; (word = strsep(&rest, " "));) argv[argc++] = word;
    snprintf(setting, sizeof setting, "%s", c->setting);
    char *value = strchr(setting, '=');
    if (value) *value++ = '\0', setenv(setting, value, 1);
    threads = c->threads, online = c->online, running = c->running;
    looks = naps = starts = 0;
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    told.length = 0;
    told_begin();
    made_up = true;
    assert_false(tm_cli_settle_waiting(argv));
    made_up = false;
    assert_null(getenv("TRAINMARK_WAITING_SLEEPS"));
    if (c->starts) { /* as the program that would have been started */
        setenv("TRAINMARK_WAITING_SLEEPS", "1", 1);
        assert_true(tm_cli_settle_waiting(argv));
        assert_null(getenv("TRAINMARK_WAITING_SLEEPS"));
        tm_cli_tell_waiting();
    }
    told_end(TM_OK, &none);
    snprintf(wanted, sizeof wanted, "%s-> ok\n\n", c->starts ? note : "");
    if (strcmp(told.data, wanted) != 0 || naps != c->naps || starts != c->starts)
        fail_msg("%s %s, %s running: %d naps, %d starts, %s", c->words, c->setting, c->running, naps, starts,
                 told.data);
    if (c->starts) {
        assert_string_equal(started, self);
        assert_string_equal(policy, "passive");
        assert_ptr_equal(with, argv);
    }
    const char *spins = getenv("GOMP_SPINCOUNT"), *left = getenv("OMP_WAIT_POLICY");
    if (!spins != !c->spins || (spins && strcmp(spins, c->spins) != 0))
        fail_msg("%s %s: spins %s", c->words, c->setting, spins ? spins : "as ever");
    if (strcmp(setting, "OMP_WAIT_POLICY") != 0) assert_null(left); /* it was not started: nothing is set */
    if (strcmp(setting, "OMP_WAIT_POLICY") == 0) assert_string_equal(left, value);
    unsetenv("GOMP_SPINCOUNT"), unsetenv("OMP_WAIT_POLICY");
    if (value) unsetenv(setting);
}

TEST(who_waits_asleep)
{
    setenv("WORLD_SIZE", "2", 1), setenv("LOCAL_RANK", "0", 1);
    unsetenv("GOMP_SPINCOUNT"), unsetenv("OMP_WAIT_POLICY");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) settle(&cases[i]);
    tm_text_fini(&told);
}

TESTS_ALONE
TEST_FIXTURE(told_enter, told_leave)
