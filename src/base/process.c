/* SPDX-License-Identifier: Apache-2.0 */
#include "base/process.h"

#include "base/arena.h"
#include "base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { KEPT_BYTES = 4400, KEPT_LINES = 10, POLL_NS = 1000000 };

extern char **environ;

struct tm_process {
    pid_t pid, guard;
    int   output, complaints, channel;
    int   guard_line; /* its end wakes the guard */
    bool  ended;
    int   status;
    char  words[KEPT_BYTES + 1]; /* the end of standard error */
    int   n_words;
};

/* --- start -------------------------------------------------------------------------------------------------------- */

/* The descriptors of one start, -1 where there is none; [0] is ours, [1] the child's. */
typedef struct {
    int output[2], complaints[2], channel[2], failure[2], guard[2];
} ends;

static void close_ends(ends *e)
{
    int *all = (int *)e;
    for (size_t i = 0; i < sizeof *e / sizeof *all; i++)
        if (all[i] >= 0) close(all[i]);
}

static bool make_pipe(int pair[2])
{
    return pipe2(pair, O_CLOEXEC) == 0;
}

static bool open_ends(const tm_process_options *o, ends *e)
{
    memset(e, -1, sizeof *e); /* every int is -1 */
    if (!make_pipe(e->complaints) || !make_pipe(e->failure) || !make_pipe(e->guard)) return false;
    if (o->output && !make_pipe(e->output)) return false;
    return !o->channel || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, e->channel) == 0;
}

/* environ with the settings in place of variables of the same name, and the channel's number. */
static const char **make_environment(const tm_process_options *o, int channel, char channel_text[64])
{
    size_t n = 0, added = 0;
    while (environ[n]) n++;
    while (o->settings && o->settings[added]) added++;
    const char **all = tm_alloc((n + added + 2) * sizeof *all);
    size_t       count = 0;
    if (o->channel) {
        snprintf(channel_text, 64, "%.40s=%d", o->channel, channel);
        all[count++] = channel_text;
    }
    for (size_t i = 0; i < added; i++) all[count++] = o->settings[i];
    size_t ours = count;
    for (size_t i = 0; i < n; i++) {
        size_t name = strcspn(environ[i], "=") + 1;
        bool   replaced = false;
        for (size_t k = 0; k < ours && !replaced; k++) replaced = strncmp(environ[i], all[k], name) == 0;
        if (!replaced) all[count++] = environ[i];
    }
    all[count] = NULL;
    return all;
}

/* In the child, between fork and exec: system calls only. */
_Noreturn static void become(const tm_process_options *o, const ends *e, const char **environment)
{
    static const int caught[] = { SIGINT, SIGTERM, SIGPIPE, SIGXFSZ };
    int              nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    int              input = o->input ? open(o->input, O_RDONLY | O_CLOEXEC) : nothing;
    setpgid(0, 0);
    for (size_t i = 0; i < sizeof caught / sizeof caught[0]; i++) signal(caught[i], SIG_DFL);
    bool ok = nothing >= 0 && input >= 0 && dup2(input, 0) >= 0 && dup2(o->output ? e->output[1] : nothing, 1) >= 0 &&
              dup2(e->complaints[1], 2) >= 0;
    if (ok && o->channel) ok = fcntl(e->channel[1], F_SETFD, 0) == 0;
    if (ok) execvpe(o->argv[0], o->argv, (char *const *)environment);
    int     cause = errno;
    ssize_t written = write(e->failure[1], &cause, sizeof cause);
    _exit(written == sizeof cause ? 127 : 126);
}

/* Closes every descriptor from 1 on, by system calls only. Linux before 5.9 has none for it: there the folder of what
 * is open is read until nothing is left. */
static bool close_all_but_input(void)
{
    if (syscall(SYS_close_range, 1u, ~0u, 0u) == 0) return true;
    int  folder = open("/proc/self/fd", O_RDONLY | O_DIRECTORY);
    char entries[1024] __attribute__((aligned(8)));
    if (folder < 0) return false;
    for (bool closed = true; closed;) {
        closed = false;
        long n = lseek(folder, 0, SEEK_SET) == 0 ? syscall(SYS_getdents64, folder, entries, sizeof entries) : -1;
        for (long at = 0; at < n; at += ((struct dirent64 *)(void *)(entries + at))->d_reclen) {
            int fd = atoi(((struct dirent64 *)(void *)(entries + at))->d_name); /* "." and "..": 0 */
            if (fd > 0 && fd != folder) closed = close(fd) == 0 || closed;
        }
        if (n < 0) return false;
    }
    return close(folder) == 0;
}

/* The guard: waits for the end of a pipe that only this program holds open. Everything else is closed, so that it keeps
 * no pipe of another child alive. */
_Noreturn static void guard(int line, pid_t group)
{
    char    byte;
    ssize_t n;
    signal(SIGINT, SIG_IGN); /* Ctrl-C at a terminal reaches this group, too: the guard leaves last */
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    if (dup2(line, 0) < 0 || !close_all_but_input()) _exit(1);
    prctl(PR_SET_NAME, "trainmark-guard");
    do n = read(0, &byte, 1);
    while (n > 0 || (n < 0 && errno == EINTR));
    kill(-group, SIGKILL);
    _exit(0);
}

/* What exec said: 0 when it worked. */
static int exec_failure(int fd)
{
    int     cause = 0;
    ssize_t n;
    do n = read(fd, &cause, sizeof cause);
    while (n < 0 && errno == EINTR);
    return n == sizeof cause ? cause : 0;
}

static void reap(pid_t pid)
{
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
}

static void no_wait(int fd)
{
    if (fd >= 0) TM_ASSERT(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
}

tm_status tm_process_start(const tm_process_options *options, tm_process **out, tm_error *err)
{
    TM_ASSERT(options->argv && options->argv[0]);
    ends e;
    char number[64];
    if (!open_ends(options, &e)) {
        int cause = errno;
        close_ends(&e);
        return tm_fail(err, TM_IO, "cannot open pipes for '%.200s': %s", options->argv[0], strerror(cause));
    }
    const char **environment = make_environment(options, e.channel[1], number);
    fflush(NULL); /* nothing of ours is written twice */
    pid_t pid = fork();
    if (pid == 0) become(options, &e, environment);
    int cause = errno;
    free(environment);
    if (pid > 0) setpgid(pid, pid); /* here and there: neither has to wait for the other */
    pid_t watcher = pid > 0 ? fork() : -1;
    if (watcher == 0) guard(e.guard[0], pid);
    if (pid > 0 && watcher < 0) {
        cause = errno;
        kill(-pid, SIGKILL);
        reap(pid);
    }
    if (watcher < 0) {
        close_ends(&e);
        return tm_fail(err, TM_IO, "cannot start '%.200s': %s", options->argv[0], strerror(cause));
    }
    tm_process *p = tm_alloc(sizeof *p);
    *p = (tm_process){ .pid = pid,
                       .guard = watcher,
                       .output = e.output[0],
                       .complaints = e.complaints[0],
                       .channel = e.channel[0],
                       .guard_line = e.guard[1] };
    int failure = e.failure[0];
    e.output[0] = e.complaints[0] = e.channel[0] = e.guard[1] = e.failure[0] = -1;
    close_ends(&e);
    cause = exec_failure(failure);
    close(failure);
    no_wait(p->output);
    no_wait(p->complaints);
    no_wait(p->channel);
    if (cause != 0) {
        tm_process_close(p, 0);
        return tm_fail(err, TM_INVALID, "cannot execute '%.200s': %s", options->argv[0], strerror(cause));
    }
    *out = p;
    return TM_OK;
}

int tm_process_output(const tm_process *process)
{
    return process->output;
}

int tm_process_channel(const tm_process *process)
{
    return process->channel;
}

pid_t tm_process_id(const tm_process *process)
{
    return process->pid;
}

/* --- standard error ----------------------------------------------------------------------------------------------- */

static void take_complaints(tm_process *p)
{
    char part[4096];
    while (p->complaints >= 0) {
        ssize_t n = read(p->complaints, part, sizeof part);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) {
            close(p->complaints);
            p->complaints = -1;
            return;
        }
        int fresh = n > KEPT_BYTES ? KEPT_BYTES : (int)n, old = p->n_words;
        if (old + fresh > KEPT_BYTES) {
            memmove(p->words, p->words + (old + fresh - KEPT_BYTES), (size_t)(KEPT_BYTES - fresh));
            old = KEPT_BYTES - fresh;
        }
        memcpy(p->words + old, part + n - fresh, (size_t)fresh);
        p->n_words = old + fresh;
    }
}

const char *tm_process_last_words(tm_process *process)
{
    take_complaints(process);
    int n = process->n_words, lines = 0;
    while (n > 0 && strchr(" \t\r\n", process->words[n - 1])) n--;
    process->words[n] = '\0';
    for (int i = 0; i < n; i++)
        if (process->words[i] == '\0') process->words[i] = '?';
    int from = n;
    while (from > 0 && !(process->words[from - 1] == '\n' && ++lines == KEPT_LINES)) from--;
    return process->words + from;
}

bool tm_process_wait(tm_process *const *processes, int n, int fd, long long timeout_ns,
                     const volatile sig_atomic_t *stop)
{
    enum { MOST = 16 };
    TM_ASSERT(n < MOST);
    int64_t  until = tm_now_ns() + timeout_ns;
    sigset_t ours, before; /* blocked while we look, so that no signal falls between looking and waiting */
    sigemptyset(&ours);
    sigaddset(&ours, SIGINT);
    sigaddset(&ours, SIGTERM);
    sigprocmask(SIG_BLOCK, &ours, &before);
    bool ready = false;
    while (!ready && !(stop && *stop)) {
        struct pollfd polled[MOST] = { { .fd = fd, .events = POLLIN } };
        for (int i = 0; i < n; i++)
            polled[i + 1] = (struct pollfd){ .fd = processes[i] ? processes[i]->complaints : -1, .events = POLLIN };
        int64_t left = until - tm_now_ns();
        if (left < 0) left = 0;
        struct timespec most = { .tv_sec = left / 1000000000, .tv_nsec = left % 1000000000 };
        int             found = ppoll(polled, (nfds_t)n + 1, &most, &before);
        if (found == 0) break;
        for (int i = 0; found > 0 && i < n; i++)
            if (polled[i + 1].revents) take_complaints(processes[i]);
        ready = found > 0 && polled[0].revents != 0;
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return ready;
}

/* --- stop, continue, end ------------------------------------------------------------------------------------------ */

/* Without reaping: the number stays ours until the group is killed. */
static bool has_ended(tm_process *p)
{
    siginfo_t info = { 0 };
    if (p->ended) return true;
    return waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == p->pid;
}

tm_status tm_process_stop(tm_process *process, tm_error *err)
{
    enum { TURNS = 200 };
    if (has_ended(process)) return TM_OK;
    kill(-process->pid, SIGSTOP);
    int64_t until = tm_now_ns() + 10000000000;
    for (int turn = 1; tm_now_ns() < until; turn++) {
        siginfo_t info = { 0 };
        if (waitid(P_PID, (id_t)process->pid, &info, WSTOPPED | WNOHANG) == 0 && info.si_pid == process->pid)
            return TM_OK;
        if (has_ended(process)) return TM_OK;
        nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
        if (turn % TURNS != 0) continue;
        /* Who has called vfork cannot stop before its child has called exec, which a child that is stopped never does.
         */
        kill(-process->pid, SIGCONT);
        nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
        kill(-process->pid, SIGSTOP);
    }
    return tm_fail(err, TM_INTERNAL, "process %ld does not stop", (long)process->pid);
}

void tm_process_continue(tm_process *process)
{
    if (!process->ended) kill(-process->pid, SIGCONT);
}

/* Once the child is reaped its number may be given away: before that, what is left of the group is killed and the
 * guard, which knows that number, is gone. */
static void finish(tm_process *p)
{
    if (p->ended) return;
    kill(-p->pid, SIGKILL);
    kill(p->guard, SIGKILL);
    reap(p->guard);
    while (waitpid(p->pid, &p->status, 0) < 0 && errno == EINTR) {
    }
    p->ended = true;
}

bool tm_process_ended(tm_process *process, int *status)
{
    if (!has_ended(process)) return false;
    finish(process);
    *status = process->status;
    return true;
}

const char *tm_process_status_text(int status, char out[64])
{
    if (WIFEXITED(status))
        snprintf(out, 64, "exit code %d", WEXITSTATUS(status));
    else
        snprintf(out, 64, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    return out;
}

void tm_process_close(tm_process *process, double grace_seconds)
{
    if (!process) return;
    if (grace_seconds > 0 && !has_ended(process)) {
        int64_t until = tm_now_ns() + (int64_t)(grace_seconds * 1e9);
        char    part[4096];
        kill(-process->pid, SIGTERM);
        kill(-process->pid, SIGCONT);
        while (!has_ended(process) && tm_now_ns() < until) {
            take_complaints(process);
            while (process->output >= 0 && read(process->output, part, sizeof part) > 0) {
            }
            nanosleep(&(struct timespec){ .tv_nsec = POLL_NS }, NULL);
        }
    }
    finish(process);
    int fds[] = { process->output, process->complaints, process->channel, process->guard_line };
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        if (fds[i] >= 0) close(fds[i]);
    free(process);
}
