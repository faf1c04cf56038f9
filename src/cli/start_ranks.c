/* SPDX-License-Identifier: Apache-2.0 */
/* cli/start_ranks.c - `--ranks N`: this command again, N times, under the launcher of an MPI; this process looks after
 * them.
 *
 * Launchers differ in what they do with signals, exit codes and processes that hang (docs/ranks.md). So the launcher
 * gets a process group of its own and never sees the terminal's signals; SIGUSR1, which all of them pass on to the
 * ranks and otherwise ignore, says "save and stop"; ranks leave signs of their beginning and end in a folder; and a
 * launcher that does not end after a rank has is killed with all of its ranks.
 */

#include "base/clock.h"
#include "base/file.h"
#include "base/lock.h"
#include "base/program.h"
#include "cli/ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_RANKS = 256, LOOK_NS = 100000000 };
/* Seconds after the first rank has failed or gone that the launcher has to end the others; that ranks have to save. */
static const double grace_s = 10, save_s = 600;

typedef struct {
    const char *mpi;
    int         ranks;
    tm_scratch  folder;
    pid_t       launcher;
    int         asked;   /* signals so far */
    int64_t     due_ns;  /* when patience ends; 0: not yet */
    const char *reason;  /* why it will */
    int         first;   /* rank that was gone without a word while all others still were there; -1: not known */
    int         stopped; /* rank that somebody has stopped (SIGSTOP), and nobody let go on; -1: none */
    sigset_t    before;
} supervisor;

/* --- signs ----------------------------------------------------------------------------------- */

/* What a rank has left, or -1. */
static long sign(const supervisor *s, const char *kind, int rank)
{
    char path[4200], line[32];
    snprintf(path, sizeof path, "%.4000s/%s.%d", s->folder.path, kind, rank);
    return tm_file_read_line(path, line, sizeof line) ? strtol(line, NULL, 10) : -1;
}

static bool runs(long pid)
{
    return pid > 0 && (kill((pid_t)pid, 0) == 0 || errno == EPERM);
}

/* A rank that gave up, or is gone without a word: its launcher has to end the others now. */
static bool one_is_gone(supervisor *s)
{
    int gone = 0;
    for (int r = 0; r < s->ranks; r++) {
        long pid = sign(s, "pid", r);
        if (sign(s, "failed", r) >= 0) return true;
        if (pid <= 0 || runs(pid) || sign(s, "done", r) >= 0) continue;
        s->first = gone++ == 0 ? r : -1;
    }
    return gone > 0;
}

/* 'R', 'S', 'T' (stopped) and so on, or 0. */
static char state_of(long pid)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    if (pid <= 0 || !tm_file_read_line(path, line, sizeof line)) return 0;
    const char *state = strrchr(line, ')');
    return state && state[1] == ' ' ? state[2] : 0;
}

/* Keeps who is stopped, also after its end. True: another rank has ended already, so the launcher waits for this one
 * for ever, and nobody is left whose deadline would tell. */
static bool stopped_behind(supervisor *s)
{
    int done = 0;
    for (int r = 0; r < s->ranks; r++) {
        if (sign(s, "done", r) >= 0) {
            done++;
            if (s->stopped == r) s->stopped = -1;
            continue;
        }
        char state = state_of(sign(s, "pid", r));
        if (state == 'T' || state == 't')
            s->stopped = r;
        else if (s->stopped == r && state && state != 'Z' && state != 'X')
            s->stopped = -1;
    }
    return done > 0 && s->stopped >= 0;
}

static void signal_ranks(const supervisor *s, int number)
{
    for (int r = 0; r < s->ranks; r++) {
        long pid = sign(s, "pid", r);
        if (runs(pid) && sign(s, "done", r) < 0) kill((pid_t)pid, number);
    }
}

static void kill_all(const supervisor *s)
{
    kill(-s->launcher, SIGKILL);
    signal_ranks(s, SIGKILL);
}

/* --- starting -------------------------------------------------------------------------------- */

static bool in_path(const char *program)
{
    char  path[PATH_MAX];
    char *copy = strdup(getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin"), *rest = copy;
    bool  found = false;
    for (char *folder; copy && !found && (folder = strsep(&rest, ":"));) {
        snprintf(path, sizeof path, "%.3000s/%s", folder, program);
        found = access(path, X_OK) == 0;
    }
    free(copy);
    return found;
}

/* The names that tell the MPIs apart first. */
static const char *launcher_of(const char *mpi)
{
    static const char *const names[2][3] = { { "mpirun.openmpi", "mpirun", NULL },
                                             { "mpiexec.mpich", "mpiexec.hydra", NULL } };
    const char *const       *name = names[strcmp(mpi, "mpich") == 0];
    for (; *name; name++)
        if (in_path(*name)) return *name;
    return NULL;
}

static tm_status choose_mpi(supervisor *s, const char *mpi, const char **launcher, tm_error *err)
{
    static const char *const all[] = { "openmpi", "mpich" };
    bool                     built = false;
    for (int i = 0; i < 2; i++) {
        if (mpi && strcmp(mpi, all[i]) != 0) continue;
        built = built || tm_comm_engine_built(all[i]);
        if (!tm_comm_engine_built(all[i]) || !(*launcher = launcher_of(all[i]))) continue;
        s->mpi = all[i];
        return TM_OK;
    }
    return tm_fail(err, TM_INVALID, "--ranks needs %s; `apt-get install %s`%s",
                   mpi ? mpi : "an MPI (Open MPI or MPICH)",
                   mpi && strcmp(mpi, "mpich") == 0 ? "mpich libmpich-dev" : "openmpi-bin libopenmpi-dev",
                   built ? ": its launcher is not in PATH" : ", then build trainmark again");
}

/* Everything on this host, through memory; nothing outside the folder that a killed launcher would leave behind. */
static void set_environment(const supervisor *s)
{
    static const char *const folders[] = { "OMPI_MCA_orte_tmpdir_base", "OMPI_MCA_btl_vader_backing_directory",
                                           "OMPI_MCA_osc_sm_backing_directory", TM_RANKS_FOLDER };
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) setenv(folders[i], s->folder.path, 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_pml", "ob1", 0);
    setenv("OMPI_MCA_btl", "vader,self", 0); /* does not look for networks: a quarter of a second less */
    setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
    setenv("HWLOC_COMPONENTS", "-opencl", 0); /* or the launcher loads a compiler that takes SIGUSR1 (cli/ranks.c) */
    if (!isatty(STDOUT_FILENO)) setenv("NO_COLOR", "1", 0); /* launchers give ranks pipes or terminals as they like */
}

/* The launcher's command line; words of `line` behind it. */
static char **command_line(const supervisor *s, const char *launcher, const tm_cli_line *line, tm_error *err)
{
    enum { MORE = 24 };
    static const char *const open_mpi[] = { "--oversubscribe", "--bind-to", "none", "--quiet" };
    char                   **argv = tm_arena_take(line->arena, (size_t)(line->argc + MORE) * sizeof *argv), *rest;
    char                    *self = tm_arena_take(line->arena, TM_PROGRAM_PATH);
    int                      n = 0;
    if (tm_program_path(self, err) != TM_OK) return NULL;
    argv[n++] = (char *)launcher;
    argv[n++] = (char *)"-n";
    argv[n++] = tm_arena_format(line->arena, "%d", s->ranks);
    for (size_t i = 0; i < 4 && strcmp(s->mpi, "openmpi") == 0; i++) argv[n++] = (char *)open_mpi[i];
    argv[n++] = self;
    rest = tm_arena_text(line->arena, line->name);
    for (char *word; (word = strsep(&rest, " "));) argv[n++] = word;
    for (int i = 1; i < line->argc; i++) argv[n++] = line->argv[i];
    return argv;
}

static void become_launcher(const supervisor *s, char **argv)
{
    int null = open("/dev/null", O_RDONLY);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* this process is killed: so are they */
    sigprocmask(SIG_SETMASK, &s->before, NULL);
    if (null >= 0) dup2(null, STDIN_FILENO);
    set_environment(s);
    execvp(argv[0], argv);
    _exit(127);
}

/* --- looking after them ---------------------------------------------------------------------- */

static void set_due(supervisor *s, double seconds, const char *reason)
{
    s->due_ns = tm_now_ns() + (int64_t)(seconds * 1e9);
    s->reason = reason;
}

/* The first asks the ranks to save and stop, the second ends them. */
static void on_signal(supervisor *s)
{
    s->asked++;
    if (s->asked == 1) {
        fprintf(stderr, "trainmark: asking the ranks to stop; once more ends them\n");
        kill(s->launcher, SIGUSR1); /* it passes it on, also to ranks that are not up yet, unless a library took it */
        signal_ranks(s, SIGUSR1);
        set_due(s, save_s, "they did not stop");
    } else if (s->asked == 2) {
        kill(s->launcher, SIGTERM);
        set_due(s, grace_s / 2, "they did not end");
    } else {
        kill_all(s);
    }
}

/* Until the launcher has ended; what waitpid says of it. */
static int look_after(supervisor *s, const sigset_t *set)
{
    int  status = 0;
    bool gone = false, killed = false;
    for (;;) {
        int number = sigtimedwait(set, NULL, &(struct timespec){ .tv_nsec = LOOK_NS });
        if (waitpid(s->launcher, &status, WNOHANG) == s->launcher) break;
        bool notice = number == SIGUSR1 || number == SIGUSR2; /* of a batch system: it ends nobody who is saving */
        if (number == SIGINT || number == SIGTERM || number == SIGHUP || (notice && s->asked == 0)) on_signal(s);
        if (!gone && (gone = one_is_gone(s))) set_due(s, grace_s, "the launcher did not end after a rank had");
        if (!gone && stopped_behind(s) && !s->due_ns) /* launchers let them go on before they end them */
            set_due(s, grace_s, "one was stopped when another had ended");
        if (s->due_ns && !killed && tm_now_ns() > s->due_ns) {
            fprintf(stderr, "trainmark: killing the ranks: %s\n", s->reason);
            kill_all(s);
            killed = true;
        }
    }
    kill_all(s);
    return status;
}

static tm_status status_of(int code)
{
    static const tm_status known[] = { TM_INTERNAL, TM_USAGE, TM_NUMBERS, TM_INVALID, TM_NEGATIVE, TM_INTERRUPTED };
    if (code == 0) return TM_OK;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (tm_status_exit_code(known[i]) == code) return known[i];
    return TM_INTERNAL;
}

/* Signs count more than the launcher's exit code: it is 0 where a rank left without a word, and mixes those of several.
 */
static tm_status conclude(const supervisor *s, int status, tm_error *err)
{
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), ended = 0;
    for (int r = 0; r < s->ranks; r++) {
        long failed = sign(s, "failed", r);
        if (failed >= 0) return status_of((int)failed); /* it has said why */
    }
    for (int r = 0; r < s->ranks; r++) ended += sign(s, "done", r) >= 0;
    if (ended == s->ranks) return status_of((int)sign(s, "done", 0));
    if (s->asked > 1) return TM_INTERRUPTED;
    for (int r = 0; r < s->ranks; r++)
        if (sign(s, "pid", r) < 0 && code != 0 && code < 128 && status_of(code) != TM_INTERNAL)
            return status_of(code); /* refused before it began, and said so */
    if (s->stopped >= 0)
        return tm_fail(err, TM_INTERNAL, "rank %d (process %ld) was stopped while others waited, and was ended",
                       s->stopped, sign(s, "pid", s->stopped));
    if (s->first >= 0)
        return tm_fail(err, TM_INTERNAL, "rank %d (process %ld) ended without a word; the others were ended after it",
                       s->first, sign(s, "pid", s->first));
    return tm_fail(err, TM_INTERNAL, "%d of %d ranks ended without a word (the launcher's exit code is %d)",
                   s->ranks - ended, s->ranks, code);
}

static tm_status supervise(supervisor *s, char **argv, tm_error *err)
{
    static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD };
    sigset_t         set;
    sigemptyset(&set); /* taken one by one: no race */
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) sigaddset(&set, signals[i]);
    sigprocmask(SIG_BLOCK, &set, &s->before);
    fflush(stdout);
    s->launcher = fork();
    if (s->launcher == 0) become_launcher(s, argv);
    if (s->launcher < 0) {
        sigprocmask(SIG_SETMASK, &s->before, NULL);
        return tm_fail(err, TM_IO, "cannot start '%s': %s", argv[0], strerror(errno));
    }
    setpgid(s->launcher, s->launcher);
    int status = look_after(s, &set);
    sigprocmask(SIG_SETMASK, &s->before, NULL);
    return conclude(s, status, err);
}

/* From the beginning to the end of a launcher; signs are those of this time. */
static tm_status attempt(supervisor *s, const char *launcher, const tm_cli_line *line, bool *started, tm_error *err)
{
    s->first = s->stopped = -1;
    s->due_ns = 0;
    TM_TRY(tm_scratch_make_in(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", "trainmark-ranks", &s->folder, err));
    char **argv = command_line(s, launcher, line, err);
    *started = argv != NULL;
    tm_status st = argv ? supervise(s, argv, err) : TM_INTERNAL;
    tm_scratch_remove(&s->folder);
    return st;
}

tm_status tm_cli_start_ranks(const tm_cli_start *start, const tm_cli_line *line, bool *started, tm_error *err)
{
    supervisor  s = { .ranks = (int)start->ranks };
    const char *launcher = NULL;
    tm_status   st = TM_OK;
    *started = false;
    if (start->ranks < 2 || tm_comm_launched().ranks > 1) return TM_OK;
    if (start->ranks > MOST_RANKS) return tm_fail(err, TM_USAGE, "--ranks may be at most %d", MOST_RANKS);
    TM_TRY(choose_mpi(&s, start->mpi, &launcher, err));
    for (int64_t again = 0;; again++) {
        tm_error own = { 0 };
        st = attempt(&s, launcher, line, started, &own);
        bool lost = st != TM_OK && tm_status_exit_code(st) == tm_status_exit_code(TM_INTERNAL);
        if (!lost || s.asked > 0 || again == start->restarts) {
            *err = own;
            return st;
        }
        fprintf(stderr, "trainmark: %s%sbeginning again, %lld of %lld times\n", own.text, own.text[0] ? "; " : "",
                (long long)again + 1, (long long)start->restarts);
    }
}
