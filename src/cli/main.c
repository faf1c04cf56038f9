/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpu.h"
#include "base/plain.h"
#include <errno.h>
#include "base/secret.h"
#include "cli/cli.h"
#include "comm/comm.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

volatile sig_atomic_t tm_cli_stop;

static volatile sig_atomic_t heeded;

void tm_cli_heed_stop(void)
{
    heeded = 1;
}

static void on_signal(int signal_number)
{
    static const char            said[] = "trainmark: interrupted\n";
    static volatile sig_atomic_t asked;
    (void)signal_number;
    if (asked) _exit(130);
    if (!heeded) {
        ssize_t told = write(STDERR_FILENO, said, sizeof said - 1);
        (void)told;
        _exit(130);
    }
    asked = tm_cli_stop = 1;
}

/* Time is nearly over, says a batch system, maybe again and again: that ends nobody who is saving. */
static void on_notice(int signal_number)
{
    (void)signal_number;
    tm_cli_stop = 1;
}

/* What is ignored stays so (nohup). */
static void handle(int signal_number, void (*handler)(int))
{
    struct sigaction action = { .sa_handler = handler }, before;
    if (sigaction(signal_number, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(signal_number, &action, NULL);
}

static void set_signals(void)
{
    struct sigaction action = { .sa_handler = on_signal };
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    handle(SIGHUP, on_signal); /* the terminal is gone: saves like SIGTERM */
    handle(SIGUSR1, on_notice);
    handle(SIGUSR2, on_notice);
    handle(SIGXCPU, on_notice);
    signal(SIGXFSZ, SIG_IGN); /* a file-size limit is an error of write(), not an end */
    signal(SIGPIPE, SIG_IGN);
}

/* The next file that is opened would get the number of a closed one, and with it what is printed there. These can be
 * read, but not written: printing still fails. */
static void fill_closed(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != fd) _exit(1); // NOLINT: children inherit it
}

/* Frames of this program have some tens of KiB, and its threads the stack that a process begins with. */
static tm_status check_stack(tm_error *err)
{
    enum { LEAST_KIB = 512 };
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return TM_OK;
    if (limit.rlim_cur >= (rlim_t)LEAST_KIB << 10) return TM_OK;
    return tm_fail(err, TM_INVALID,
                   "stacks are limited to %llu KiB (ulimit -s), and %d KiB are needed; `ulimit -s 8192` in front",
                   (unsigned long long)limit.rlim_cur >> 10, LEAST_KIB);
}

static void add_usage(tm_text *out)
{
    tm_cli_command        storage;
    const tm_cli_command *command;
    tm_text_add(out, "usage: trainmark COMMAND [options]\n\ncommands:\n");
    for (size_t i = 0; (command = tm_cli_nested(NULL, i, &storage)); i++)
        tm_text_printf(out, "  %-11s %s\n", command->name, command->summary);
    tm_text_add(out, "\n`trainmark run` alone trains the built-in model until it has learned the built-in language.\n"
                     "`trainmark COMMAND --help` describes a command. Exit codes: 0 done, 1 internal error, 2 wrong "
                     "usage,\n"
                     "3 invalid numbers or no verdict, 4 invalid configuration or input, 5 negative verdict,\n"
                     "130 interrupted.\n");
}

static tm_status print_usage(tm_error *err)
{
    tm_text text = { 0 };
    add_usage(&text);
    tm_status st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    return st;
}

static bool is_one_of(const char *word, const char *a, const char *b, const char *c)
{
    return strcmp(word, a) == 0 || strcmp(word, b) == 0 || strcmp(word, c) == 0;
}

/* `help COMMAND [COMMAND]` is `COMMAND [COMMAND] --help`. */
static tm_status help(int argc, char **argv, tm_error *err)
{
    char *words[] = { argv[0], argv[2], argc > 3 ? argv[3] : (char *)"--help", argc > 3 ? (char *)"--help" : NULL,
                      NULL };
    if (argc == 2) return print_usage(err);
    return tm_cli_dispatch(argc > 3 ? 4 : 3, words, err);
}

/* `help`, `help COMMAND`, `--version`, or a command. */
static tm_status dispatch(int argc, char **argv, tm_error *err)
{
    if (is_one_of(argv[1], "--version", "-V", "version")) argv[1] = (char *)"version";
    if (is_one_of(argv[1], "help", "--help", "-h")) return help(argc, argv, err);
    return tm_cli_dispatch(argc, argv, err);
}

/* What came from a secret variable through ${VAR} does not show up in a message either. */
static void complain(tm_status st, const tm_error *err)
{
    tm_text text = { 0 };
    tm_text_add(&text, err->text);
    tm_secret_mask(&text);
    fprintf(stderr, "trainmark: %s: ", tm_status_text(st));
    tm_plain_put(stderr, text.data, TM_PLAIN_MESSAGE);
    fputc('\n', stderr);
    tm_text_fini(&text);
}

int main(int argc, char **argv)
{
    fill_closed();
    tm_cpu_flush_denormals(); /* first: threads made later inherit it */
    set_signals();
    if (tm_comm_launched().ranks > 1) setvbuf(stderr, NULL, _IOLBF, BUFSIZ); /* lines of ranks do not mix */
    if (argc < 2) {
        tm_text text = { 0 };
        add_usage(&text);
        fputs(text.data, stderr);
        tm_text_fini(&text);
        return tm_status_exit_code(TM_USAGE);
    }
    tm_error  err = { 0 };
    tm_status st = check_stack(&err);
    bool      sleeps = st == TM_OK && tm_cli_settle_waiting(argv);
    if (st == TM_OK) st = dispatch(argc, argv, &err);
    if (sleeps && (st == TM_OK || st == TM_NUMBERS)) tm_cli_tell_waiting(); /* there is a result */
    if (st != TM_OK && err.text[0]) complain(st, &err); /* else others have said it: the ranks of this command */
    if (fflush(stdout) != 0 && errno != EPIPE && st == TM_OK) {
        fprintf(stderr, "trainmark: cannot write to standard output\n");
        st = TM_IO;
    }
    return tm_status_exit_code(st);
}
