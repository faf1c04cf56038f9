/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that do not keep to the protocol of turns, and lines of any other program. The programs are this one:
 * `test_ab_whole play MODE SECONDS TOKENS STEPS`. */
#include "apps/bench/ab.h"
#include "ab_rules.h"
#include "train/run/interleave.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/test.h"

/* --- the program that plays --------------------------------------------------------------------------------------- */

static void say(int fd, const char *line)
{
    size_t n = strlen(line);
    if (write(fd, line, n) != (ssize_t)n) _exit(9);
}

/* The next line that is heard; false at the end. */
static bool hear(int fd, char *line, size_t room)
{
    size_t n = 0;
    for (char c; n + 1 < room && read(fd, &c, 1) == 1;) {
        if (c == '\n') {
            line[n] = '\0';
            return true;
        }
        line[n++] = c;
    }
    return false;
}

static void tell_steps(int fd, int64_t *step, int64_t n, double seconds, int64_t tokens)
{
    for (int64_t i = 0; i < n; i++) {
        char line[96];
        ++*step;
        snprintf(line, sizeof line, "step %lld %.17g %lld\n", (long long)*step, *step == 1 ? 5 * seconds : seconds,
                 (long long)tokens);
        say(fd, line);
    }
}

static int play(int argc, char **argv)
{
    const char *mode = argv[2], *channel = getenv(TM_TURN_VARIABLE);
    double      seconds = strtod(argv[3], NULL);
    int64_t     tokens = strtoll(argv[4], NULL, 10), n = strtoll(argv[5], NULL, 10), step = 0;
    char        order[64];
    (void)argc;
    if (!channel) return 8;
    int fd = atoi(channel);
    if (strcmp(mode, "mute") == 0) return fputs("I know nothing\n", stderr), 3;
    if (strcmp(mode, "other") == 0) say(fd, "trainmark-turns 2\n"), pause();
    if (strcmp(mode, "stranger") == 0) say(fd, "hello\n"), pause();
    say(fd, TM_TURN_HELLO "\n");
    if (strcmp(mode, "liar") == 0) {
        say(fd, argv[6]);
        pause();
    }
    while (hear(fd, order, sizeof order)) {
        bool whole = strcmp(order, "turn inf") == 0;
        if (!whole && strcmp(order, "turn 0.070000") != 0) return 7;
        if ((getenv(TM_TURN_ENDLESS) != NULL) == whole) return 6;
        tell_steps(fd, &step, n, seconds, tokens);
        if (strcmp(mode, "fails") == 0) return fputs("for no reason\n", stderr), 5;
        if (strcmp(mode, "hangs") == 0) close(fd), pause();
        if (whole) return 0;
        say(fd, "pause\n");
    }
    return 0;
}

/* --- sessions ----------------------------------------------------------------------------------------------------- */

static char *self; /* argv[0] */

typedef struct {
    char *argv[10];
} words;

static tm_ab_program player(words *w, const char *text, const char *mode, const char *seconds, const char *tokens,
                            const char *steps, const char *line)
{
    *w =
        (words){ { self, (char *)"play", (char *)mode, (char *)seconds, (char *)tokens, (char *)steps, (char *)line } };
    return (tm_ab_program){ .text = text, .argv = w->argv, .turns = true };
}

static tm_status session_of(tm_ab_program a, tm_ab_program b, tm_ab_options options, tm_ab_session *out, tm_error *err)
{
    options.a = a;
    options.b = b;
    options.folder = "/tmp/never-made";
    if (options.turn_seconds < 1e-9) options.turn_seconds = 0.07;
    if (options.budget_seconds < 1e-9) options.budget_seconds = 60;
    *out = (tm_ab_session){ 0 };
    *err = (tm_error){ 0 };
    return tm_ab_run(&options, out, err);
}

/* --- what goes wrong ---------------------------------------------------------------------------------------------- */

static void refused(const char *mode, const char *line, const char *steps, tm_ab_options options, const char *wanted)
{
    tm_ab_session s;
    tm_error      err;
    words         w[2];
    tm_ab_program a = player(&w[0], "a", mode, "0.5", "64", steps, line),
                  b = player(&w[1], "b", "steps", "0.5", "64", "3", NULL);
    tm_status st = session_of(b, a, options, &s, &err);
    char     *whose = strstr(err.text, "B");
    if (st != TM_INVALID || !whose || strcmp(whose, wanted) != 0)
        fail_msg("%s: %s\nwanted: %s", mode, err.text, wanted);
    tm_ab_session_fini(&s);
}

TEST(what_is_no_turn_is_refused)
{
    tm_ab_options live = { .budget_seconds = 20 }, whole = { .budget_seconds = 20, .whole_runs = true };
    refused("mute", NULL, "3", live,
            "B (a) does not know the turn protocol (TRAINMARK_TURN_FD; name an older version with --a-command or "
            "--b-command) or exited after 0 steps (exit code 3); its last output:\nI know nothing");
    refused("other", NULL, "3", live,
            "B (a) uses another turn protocol: it sends 'trainmark-turns 2', this program knows 'trainmark-turns 1'; "
            "name it with --a-command or --b-command");
    refused("stranger", NULL, "3", live, "B: not a line of the turn protocol: 'hello'");
    static const char *const lies[] = { "step 1 0.5\n",    "step 1\n",        "step 0 0.5 1\n",  "step 1 0 1\n",
                                        "step 1 -0.5 1\n", "step 1 0.5 -1\n", "step 1 0.5 1 \n", "stop 1 0.5 1\n",
                                        "step 1 0.5 1x\n", "step\n",          "pauses\n",        "\n" };
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        char wanted[128];
        snprintf(wanted, sizeof wanted, "B: not a line of the turn protocol: '%.*s'", (int)strlen(lies[i]) - 1,
                 lies[i]);
        refused("liar", lies[i], "3", live, wanted);
    }
    refused("fails", NULL, "3", live, "B (a) exited after 3 steps (exit code 5); its last output:\nfor no reason");
    refused("fails", NULL, "3", whole, "B (a) failed after 3 steps (exit code 5); its last output:\nfor no reason");
    refused("steps", NULL, "0", live, "B (a) printed no line of a step after 0 steps (it is still alive)");
    refused("steps", NULL, "0", whole, "B (a) printed no line of a step after 0 steps (exit code 0)");
    refused("steps", NULL, "1", whole, "B (a) has 1 step(s), and the first does not count; let it do more steps");
    whole.budget_seconds = 2;
    refused("hangs", NULL, "3", whole, "B (a) closed its output and does not end after 3 steps (it is still alive)");
}

TM_TEST_ROLE("play", play)

static int begin(void **state)
{
    (void)state;
    self = (char *)(uintptr_t)test_program;
    signal(SIGPIPE, SIG_IGN); /* as the program does: a player may be gone */
    return 0;
}

TEST_FIXTURE(begin, NULL)
