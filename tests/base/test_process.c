/* SPDX-License-Identifier: Apache-2.0 */
/* Child processes: what they are given, what they say, and that none of them outlives its parent. */
#include "support/test.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/process.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define SECOND 1000000000LL

/* A system that gives only so many processes more. */
static int forks_left = -1; /* -1: as many as are wanted */

pid_t fork(void)
{
    static pid_t (*real)(void);
    if (!real) *(void **)(void *)&real = dlsym(RTLD_NEXT, "fork");
    if (forks_left == 0) return errno = EAGAIN, -1;
    if (forks_left > 0) forks_left--;
    return real();
}

static tm_process *start_shell(const char *script, const char *channel)
{
    static const char *const settings[] = { "TM_TEST_WORD=two words", "HOME=/nowhere", NULL };
    char                    *argv[] = { "sh", "-c", (char *)(size_t)script, NULL };
    tm_process_options       options = { .argv = argv, .settings = settings, .output = true, .channel = channel };
    tm_process              *process;
    assert_ok(tm_process_start(&options, &process, err));
    return process;
}

/* Everything that comes from `fd` until its end or `most` bytes; at most 10 s. */
static const char *read_all(tm_process *p, int fd, size_t most, char out[1024])
{
    size_t n = 0;
    for (;;) {
        assert_true(tm_process_wait(&p, 1, fd, 10 * SECOND, NULL));
        ssize_t got = read(fd, out + n, 1023 - n);
        assert_true(got >= 0);
        n += (size_t)got;
        out[n] = '\0';
        if (got == 0 || n >= most) return out;
    }
}

static int status_of(tm_process *p)
{
    int status = -1;
    while (!tm_process_ended(p, &status)) usleep(1000);
    return status;
}

/* State letter in /proc, '-' for a process that is gone; a zombie counts as gone. */
static char state_of(pid_t pid)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    if (!tm_file_read_line(path, line, sizeof line)) return '-';
    const char *after = strrchr(line, ')');
    return after && after[2] != 'Z' ? after[2] : '-';
}

static bool gone_within(pid_t pid, double seconds)
{
    int64_t until = tm_now_ns() + (int64_t)(seconds * 1e9);
    while (tm_now_ns() < until) {
        if (state_of(pid) == '-') return true;
        usleep(1000);
    }
    return false;
}

TEST(environment_and_output)
{
    char        text[1024];
    tm_process *p =
        start_shell("echo \"$TM_TEST_WORD $HOME\"; read line || echo no input; kill -l $? >/dev/null; exit 3", NULL);
    assert_string_equal(read_all(p, tm_process_output(p), 1023, text), "two words /nowhere\nno input\n");
    int status = status_of(p);
    assert_string_equal(tm_process_status_text(status, text), "exit code 3");
    tm_process_close(p, 0);
    p = start_shell("kill -9 $$", NULL);
    assert_non_null(strstr(tm_process_status_text(status_of(p), text), "signal 9"));
    tm_process_close(p, 0);
}

/* What this program does when it is its own child: answers over the channel. */
static int answer(void)
{
    char        word[64];
    const char *number = getenv("TM_TEST_FD");
    int         fd = number ? (int)strtol(number, NULL, 10) : -1;
    ssize_t     n = read(fd, word, sizeof word);
    return n > 0 && write(fd, "got ", 4) == 4 && write(fd, word, (size_t)n) == n ? 0 : 1;
}

TEST(channel_is_passed)
{
    char               text[1024], *argv[] = { "/proc/self/exe", "answer", NULL };
    tm_process_options options = { .argv = argv, .channel = "TM_TEST_FD" };
    tm_process        *p;
    assert_ok(tm_process_start(&options, &p, err));
    int fd = tm_process_channel(p);
    assert_int_equal(tm_process_output(p), -1);
    assert_int_equal(write(fd, "hello\n", 6), 6);
    assert_string_equal(read_all(p, fd, 10, text), "got hello\n");
    assert_int_equal(status_of(p), 0);
    tm_process_close(p, 0);
}

TEST(programs_that_are_not_there)
{
    const struct {
        const char *name, *why;
    } rows[] = { { "/no/such/program", "No such file" },
                 { "no-such-program-xyz", "No such file" },
                 { "/etc/passwd", "Permission" } };
    char *path = strdup(getenv("PATH"));
    setenv("PATH", "/usr/bin:/bin", 1); /* of folders that everybody may look into */
    for (int i = 0; i < 3; i++) {
        char       *argv[] = { (char *)(size_t)rows[i].name, NULL };
        tm_process *process;
        tm_error    err = { 0 };
        assert_int_equal(tm_process_start(&(tm_process_options){ .argv = argv }, &process, &err), TM_INVALID);
        if (!strstr(err.text, rows[i].why) || !strstr(err.text, rows[i].name)) fail_msg("%s", err.text);
    }
    setenv("PATH", path, 1);
    free(path);
}

/* Neither for the program nor for its guard: what was opened for them is closed, and nobody is left. */
TEST(the_system_gives_no_process)
{
    char              *argv[] = { "sleep", "1000", NULL };
    tm_process_options options = { .argv = argv, .output = true, .channel = "TM_TEST_FD" };
    for (int more = 0; more < 2; more++) {
        tm_process *process;
        forks_left = more;
        assert_refused(tm_process_start(&options, &process, err), TM_IO, "cannot start 'sleep': Resource temporarily");
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    }
}

/* Of one line without an end that is longer than what is kept; blanks at the end go, and no byte ends the text. */
TEST(last_words_are_the_last_bytes)
{
    enum { KEPT = 4400 };
    static const struct {
        const char *script;
        int         zeros;
        const char *end;
    } rows[] = {
        { "printf 'a%04500dz' 7 >&2", KEPT - 2, "7z" },
        { "printf '%04397dz' 7 >&2; printf '12' >&2", KEPT - 4, "7z12" },
        { "printf '%04398dz' 7 >&2; printf '12' >&2", KEPT - 4, "7z12" },
        { "printf '%0100d' 5 >&2; printf ' \\t\\r\\n' >&2", 99, "5" },
        { "printf '%03d' 5 >&2; printf 'a\\000b\\000' >&2", 2, "5a?b" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char        text[1024], wanted[KEPT + 8];
        tm_process *p = start_shell(rows[i].script, NULL);
        read_all(p, tm_process_output(p), 1023, text);
        status_of(p);
        memset(wanted, '0', (size_t)rows[i].zeros);
        strcpy(wanted + rows[i].zeros, rows[i].end);
        for (int turn = 0; turn < 2; turn++) { /* and again; lines before are a preloaded library's */
            const char *words = tm_process_last_words(p), *line = strrchr(words, '\n');
            assert_string_equal(line ? line + 1 : words, wanted);
        }
        tm_process_close(p, 0);
    }
}

/* What comes later pushes the rest out at its beginning. */
TEST(last_words_move_up)
{
    static const char *const pauses[] = { "", "sleep 0.1;", "seq 100000 >&2;" }; /* far more than a pipe holds */
    for (size_t i = 0; i < sizeof pauses / sizeof pauses[0]; i++) {
        char    script[128], text[1024];
        tm_text all = { 0 };
        snprintf(script, sizeof script, "%s seq -s, 1000 1900 >&2; %s seq -s, 2000 2060 >&2; seq -s, 3000 3020 >&2",
                 i == 2 ? pauses[i] : "", i == 2 ? "" : pauses[i]);
        for (int n = 1000; n <= 3020; n++)
            if (n <= 1900 || (n >= 2000 && n <= 2060) || n >= 3000)
                tm_text_printf(&all, "%d%s", n, n == 1900 || n == 2060 ? "\n" : n < 3020 ? "," : "");
        tm_process *p = start_shell(script, NULL);
        read_all(p, tm_process_output(p), 1023, text);
        status_of(p);
        assert_string_equal(tm_process_last_words(p), all.data + all.length + 1 - 4400); /* and a line's end */
        tm_process_close(p, 0);
        tm_text_fini(&all);
    }
}

/* A child with a child of its own; returns the latter's number. */
static tm_process *start_family(pid_t *grandchild, bool deaf)
{
    char        text[1024];
    tm_process *p = start_shell(
        deaf ? "trap '' TERM; sleep 1000 & echo $!; while :; do wait; done" : "sleep 1000 & echo $!; wait", NULL);
    read_all(p, tm_process_output(p), 2, text);
    *grandchild = (pid_t)strtol(text, NULL, 10);
    assert_true(*grandchild > 1 && state_of(*grandchild) != '-');
    return p;
}

TEST(stop_and_continue_reach_the_group)
{
    pid_t       grandchild;
    tm_process *p = start_family(&grandchild, false);
    assert_ok(tm_process_stop(p, err));
    assert_int_equal(state_of(tm_process_id(p)), 'T');
    while (state_of(grandchild) != 'T') usleep(1000);
    tm_process_continue(p);
    while (state_of(grandchild) == 'T') usleep(1000);
    assert_true(state_of(grandchild) != '-');
    assert_ok(tm_process_stop(p, err)); /* and once more */
    tm_process_close(p, 0);             /* of a stopped group */
    assert_true(gone_within(grandchild, 60));
}

TEST(close_is_polite_then_firm)
{
    pid_t       grandchild;
    tm_process *p = start_family(&grandchild, false);
    int64_t     begin = tm_now_ns();
    tm_process_close(p, 1000); /* SIGTERM does */
    assert_true(tm_now_ns() - begin < 500 * SECOND);
    assert_true(gone_within(grandchild, 60));
    p = start_family(&grandchild, true);
    begin = tm_now_ns();
    tm_process_close(p, 0.2); /* SIGTERM does not */
    assert_true(tm_now_ns() - begin >= SECOND / 5);
    assert_true(gone_within(grandchild, 60));
}

TEST(a_child_that_ends_takes_its_children_along)
{
    char        text[1024];
    tm_process *p = start_shell("sleep 1000 >/dev/null 2>&1 & echo $!", NULL);
    read_all(p, tm_process_output(p), 1023, text);
    pid_t grandchild = (pid_t)strtol(text, NULL, 10);
    assert_int_equal(status_of(p), 0);
    assert_true(gone_within(grandchild, 60));
    tm_process_close(p, 0);
}

/* The child of this program that is named so; 0: there is none. */
static pid_t child_named(const char *name)
{
    pid_t found = 0;
    DIR  *all = opendir("/proc");
    for (const struct dirent *d; (d = readdir(all));) {
        char path[300], line[512], wanted[64];
        snprintf(path, sizeof path, "/proc/%s/stat", d->d_name);
        snprintf(wanted, sizeof wanted, "(%s) S %ld ", name, (long)getpid());
        if (*d->d_name >= '0' && *d->d_name <= '9' && tm_file_read_line(path, line, sizeof line) &&
            strstr(line, wanted))
            found = (pid_t)strtol(d->d_name, NULL, 10);
    }
    closedir(all);
    return found;
}

/* It leaves last: what a terminal sends does not end it, and it keeps no pipe of anybody but its own. */
static void guard_is_alone(tm_process *p)
{
    pid_t guard = 0;
    while (!(guard = child_named("trainmark-guard"))) usleep(1000);
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%ld/status", (long)guard);
    assert_true(tm_file_read_line(path, text, sizeof text));
    const char *ignored = strstr(text, "\nSigIgn:");
    assert_non_null(ignored);
    unsigned long long signals = strtoull(ignored + strlen("\nSigIgn:"), NULL, 16);
    static const int   sent[] = { SIGINT, SIGTERM, SIGHUP };
    for (size_t i = 0; i < sizeof sent / sizeof sent[0]; i++) assert_true(signals >> (sent[i] - 1) & 1);
    snprintf(path, sizeof path, "/proc/%ld/fd", (long)guard);
    DIR *open_files = opendir(path);
    assert_non_null(open_files);
    int n = 0;
    for (const struct dirent *d; (d = readdir(open_files)); n++)
        if (*d->d_name != '.') assert_string_equal(d->d_name, "0");
    closedir(open_files);
    assert_int_equal(n, 3);
    tm_process_close(p, 0);
    assert_true(gone_within(guard, 5));
}

TEST(the_guard_waits_for_the_end)
{
    guard_is_alone(start_shell("sleep 1000", NULL));
}

/* A thread with the system calls of Linux before 5.9, which its children keep: more files are open than one look shows.
 */
static void *start_on_old_linux(void *unused)
{
    (void)unused;
    static struct sock_filter lines[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = { sizeof lines / sizeof lines[0], lines };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        return NULL;
    return syscall(SYS_close_range, ~0u, ~0u, 0) != 0 && errno == ENOSYS ? start_shell("sleep 1000", NULL) : NULL;
}

TEST(the_guard_closes_all_on_old_linux)
{
    enum { FILES = 200 };
    int files[FILES];
    for (int i = 0; i < FILES; i++) assert_true((files[i] = open("/dev/null", O_RDONLY)) >= 0);
    pthread_t thread;
    void     *p = NULL;
    assert_int_equal(pthread_create(&thread, NULL, start_on_old_linux, NULL), 0);
    assert_int_equal(pthread_join(thread, &p), 0);
    if (!p) skip(); /* no filters of system calls here */
    guard_is_alone(p);
    for (int i = 0; i < FILES; i++) close(files[i]);
}

/* The parent dies by SIGKILL: its guard kills what it had started, stopped or not. */
TEST(no_orphans)
{
    for (int stopped = 0; stopped < 2; stopped++) {
        int line[2];
        assert_int_equal(pipe2(line, O_CLOEXEC), 0);
        pid_t parent = fork();
        if (parent == 0) {
            pid_t       pids[2];
            tm_error    err = { 0 };
            tm_process *p = start_family(&pids[1], true);
            pids[0] = tm_process_id(p);
            if (stopped && tm_process_stop(p, &err) != TM_OK) _exit(1);
            if (write(line[1], pids, sizeof pids) != sizeof pids) _exit(1);
            for (;;) pause();
        }
        pid_t pids[2];
        close(line[1]);
        assert_int_equal(read(line[0], pids, sizeof pids), sizeof pids);
        close(line[0]);
        kill(parent, SIGKILL);
        assert_int_equal(waitpid(parent, NULL, 0), parent);
        assert_true(gone_within(pids[0], 10));
        assert_true(gone_within(pids[1], 10));
    }
}

TEST(waiting_ends)
{
    tm_process           *p = start_shell("sleep 1000", NULL);
    volatile sig_atomic_t stop = 0;
    int64_t               begin = tm_now_ns();
    assert_false(tm_process_wait(&p, 1, tm_process_output(p), SECOND / 20, &stop));
    assert_true(tm_now_ns() - begin >= SECOND / 20);
    stop = 1;
    begin = tm_now_ns();
    assert_false(tm_process_wait(&p, 1, tm_process_output(p), 1000 * SECOND, &stop));
    assert_true(tm_now_ns() - begin < 500 * SECOND);
    tm_process_close(p, 0);
    tm_process_close(NULL, 0);
}

static volatile sig_atomic_t told_to_stop;

static void on_term(int number)
{
    (void)number;
    told_to_stop = 1;
}

/* Also one that comes when nobody waits yet; which signals are blocked stays as it was. */
TEST(a_signal_ends_waiting)
{
    struct sigaction action = { .sa_handler = on_term }, usual;
    sigset_t         mine, before, after;
    assert_int_equal(sigaction(SIGTERM, &action, &usual), 0);
    sigemptyset(&mine);
    sigaddset(&mine, SIGUSR1);
    assert_int_equal(sigprocmask(SIG_SETMASK, &mine, &before), 0);
    tm_process *p = start_shell("kill -TERM $PPID; sleep 1000", NULL);
    int64_t     begin = tm_now_ns();
    assert_false(tm_process_wait(&p, 1, tm_process_output(p), 1000 * SECOND, &told_to_stop));
    assert_true(tm_now_ns() - begin < 500 * SECOND && told_to_stop);
    assert_false(tm_process_wait(&p, 1, tm_process_output(p), 1000 * SECOND, &told_to_stop)); /* still told */
    assert_false(tm_process_wait(&p, 1, tm_process_output(p), 0, NULL));
    assert_int_equal(sigprocmask(SIG_SETMASK, &before, &after), 0);
    for (int number = 1; number < 32; number++) assert_int_equal(sigismember(&after, number), number == SIGUSR1);
    assert_int_equal(sigaction(SIGTERM, &usual, NULL), 0);
    tm_process_close(p, 0);
}

static int be_answer(int argc, char **argv)
{
    (void)argc, (void)argv;
    return answer();
}
TM_TEST_ROLE("answer", be_answer)
