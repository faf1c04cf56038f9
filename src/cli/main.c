/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpu.h"
#include "base/plain.h"
#include "base/secret.h"
#include "cli/cli.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

volatile sig_atomic_t tm_cli_stop;

static const struct {
    const char *name, *summary;
    tm_status (*run)(int argc, char **argv, tm_error *err);
} commands[] = {
#define TM_COMMAND(name, summary) { #name, summary, tm_command_##name },
#include "cli/commands.def"
#undef TM_COMMAND
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static void on_signal(int signal_number)
{
    (void)signal_number;
    if (tm_cli_stop) _exit(130);
    tm_cli_stop = 1;
}

static void set_signals(void)
{
    struct sigaction action = { .sa_handler = on_signal };
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    struct sigaction before;
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) /* nohup stays nohup */
        sigaction(SIGHUP, &action, NULL); /* the terminal is gone: saves like SIGTERM */
    signal(SIGXFSZ, SIG_IGN); /* a file-size limit is an error of write(), not an end */
    signal(SIGPIPE, SIG_IGN);
}

static void usage(FILE *out)
{
    fprintf(out, "usage: trainmark COMMAND [options]\n\ncommands:\n");
    for (int i = 0; i < COMMANDS; i++) fprintf(out, "  %-9s %s\n", commands[i].name, commands[i].summary);
    fprintf(out, "\n`trainmark run` alone trains the built-in model until it has learnt the built-in language.\n"
                 "`trainmark COMMAND --help` tells more. Exit codes: 0 done, 1 internal error, 2 wrong usage, 3 "
                 "invalid numbers,\n"
                 "4 invalid configuration or input, 5 negative verdict, 130 interrupted.\n");
}

static tm_status unknown(const char *name, tm_error *err)
{
    const char *nearest = NULL;
    int         best = 3; /* farther is no help */
    for (int i = 0; i < COMMANDS; i++) {
        int distance = tm_edit_distance(name, commands[i].name);
        if (distance >= best) continue;
        best = distance;
        nearest = commands[i].name;
    }
    return tm_fail(err, TM_USAGE, "unknown command '%.200s'; %s%s%s`trainmark help` lists all", name,
                   nearest ? "did you mean '" : "", nearest ? nearest : "", nearest ? "'? " : "");
}

static tm_status run_command(int argc, char **argv, tm_error *err)
{
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(argv[0], commands[i].name) == 0) return commands[i].run(argc, argv, err);
    return unknown(argv[0], err);
}

static bool is_one_of(const char *word, const char *a, const char *b, const char *c)
{
    return strcmp(word, a) == 0 || strcmp(word, b) == 0 || strcmp(word, c) == 0;
}

/* `help`, `help COMMAND`, `--version`, or a command. */
static tm_status dispatch(int argc, char **argv, tm_error *err)
{
    char *help_of[] = { argc > 2 ? argv[2] : NULL, "--help", NULL }, *version[] = { "version", NULL };
    if (is_one_of(argv[1], "--version", "-V", "version") && argc == 2) return run_command(1, version, err);
    if (!is_one_of(argv[1], "help", "--help", "-h")) return run_command(argc - 1, argv + 1, err);
    if (argc > 2) return run_command(2, help_of, err);
    usage(stdout);
    return TM_OK;
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
    tm_cpu_flush_denormals(); /* first: threads made later inherit it */
    set_signals();
    if (argc < 2) {
        usage(stderr);
        return tm_status_exit_code(TM_USAGE);
    }
    tm_cli_settle_waiting(argv);
    tm_error  err = { 0 };
    tm_status st = dispatch(argc, argv, &err);
    if (st != TM_OK) complain(st, &err);
    if (fflush(stdout) != 0 && st == TM_OK) {
        fprintf(stderr, "trainmark: cannot write to standard output\n");
        st = TM_IO;
    }
    return tm_status_exit_code(st);
}
