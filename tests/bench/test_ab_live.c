/* SPDX-License-Identifier: Apache-2.0 */
/* Live sessions by a clock that moves when a process starts and when it goes on: who plays when, how long rounds are,
 * why it ends, and what is drawn meanwhile, to the letter (tests/golden/whole-ab-live.txt). The programs are this one:
 * `test_ab_live play MODE SECONDS STEPS`.
 */
#include "bench/ab.h"
#include "support/fake_clock.h"
#include "support/whole.h"
#include "train/run/interleave.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <poll.h>
#include <sys/socket.h>

#include "support/test.h"

/* --- the clock, and who moves it ---------------------------------------------------------------------------------- */

static int64_t               start_ns, turn_ns, starts, turns, stop_at_turn;
static volatile sig_atomic_t stop_now;

static bool just_continued; /* and nobody has listened since */

/* Who does not stop at once is told to go on, and stopped again: that is no turn. */
int kill(pid_t pid, int signal_)
{
    if (fake_clock.on && signal_ == SIGCONT && !stop_now) {
        fake_clock_pass(turn_ns);
        just_continued = true;
        if (++turns == stop_at_turn) stop_now = 1;
    }
    if (fake_clock.on && signal_ == SIGSTOP && just_continued && !stop_now) {
        fake_clock_pass(-turn_ns);
        just_continued = false;
        turns--;
    }
    return (int)syscall(SYS_kill, pid, signal_);
}

int setpgid(pid_t pid, pid_t group)
{
    if (fake_clock.on && pid > 0) fake_clock_pass(start_ns), starts++;
    return (int)syscall(SYS_setpgid, pid, group);
}

static int64_t wake_ns; /* that pass when something is heard */

int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *most, const sigset_t *mask)
{
    just_continued = false;
    struct timespec copy = most ? *most : (struct timespec){ 0 };
    int             found = (int)syscall(SYS_ppoll, fds, n, most ? &copy : NULL, mask, 8);
    if (fake_clock.on && found > 0 && fds[0].revents) fake_clock_pass(wake_ns);
    return found;
}

/* --- the program that plays --------------------------------------------------------------------------------------- */

/* Behind the words that were given: the folder of this process, in whose own name there is no blank. */
static bool has_folder(int argc, char **argv)
{
    static const char *const names[] = { "/tmp/never made/A", "/tmp/never made/B", "/tmp/never made/A-again" };
    bool                     known = false;
    for (int i = 0; i < 3; i++) known = known || strcmp(argv[argc - 1], names[i]) == 0;
    return known && argc == 7 && strcmp(argv[argc - 2], "--out") == 0;
}

/* Says all of a turn at once. Steps differ by a few hundredths. */
static int play(int argc, char **argv)
{
    const char *mode = argv[2], *channel = getenv(TM_TURN_VARIABLE);
    double      seconds = strtod(argv[3], NULL);
    int64_t     n = strtoll(argv[4], NULL, 10), step = 0;
    if (!channel || !has_folder(argc, argv)) return 8;
    int fd = atoi(channel);
    if (strcmp(mode, "silent") == 0) pause();
    if (send(fd, TM_TURN_HELLO "\n", strlen(TM_TURN_HELLO) + 1, 0) < 0) return 9;
    for (char order[64]; recv(fd, order, sizeof order, 0) > 0;) {
        bool    whole = strncmp(order, "turn inf\n", 9) == 0;
        tm_text said = { 0 };
        for (int64_t i = 0; i < n; i++) {
            step++;
            double share = strcmp(mode, "same") == 0 ? 1 : 1 + 0.01 * (double)(step * 7 % 5);
            tm_text_printf(&said, "step %lld %.17g %d\n", (long long)step, step == 1 ? 5 * seconds : seconds * share,
                           64);
        }
        if (!whole) tm_text_add(&said, "pause\n");
        if (send(fd, said.data, said.length, 0) != (ssize_t)said.length) return 7;
        tm_text_fini(&said);
        if (whole) return 0;
    }
    return 0;
}

/* --- sessions ----------------------------------------------------------------------------------------------------- */

static char *self; /* argv[0] */

typedef struct {
    const char   *what, *mode, *b_seconds, *steps;
    double        start_seconds;
    int64_t       stop_at_turn;
    tm_ab_options options;
    bool          drawn;
} session_case;

static const session_case cases[] = {
    { "long rounds", "same", "0.25", "3", 0.1, 0, { .budget_seconds = 30, .turn_seconds = 0.07, .seed = 5 }, true },
    { "starts take long",
      "vary",
      "0.25",
      "2",
      0.9,
      0,
      { .budget_seconds = 60, .turn_seconds = 0.07, .seed = 6 },
      false },
    { "few rounds fit", "vary", "0.6", "2", 0.5, 0, { .budget_seconds = 15, .turn_seconds = 0.2, .seed = 7 }, false },
    { "one block a round",
      "same",
      "0.6",
      "2",
      0.3,
      0,
      { .budget_seconds = 8, .turn_seconds = 0.07, .seed = 8 },
      false },
    { "a target",
      "vary",
      "0.6",
      "2",
      0.1,
      0,
      { .budget_seconds = 60, .turn_seconds = 0.07, .seed = 9, .target = 0.05, .least_pairs = 3 },
      true },
    { "a target of many pairs",
      "same",
      "0.505",
      "2",
      0.1,
      0,
      { .budget_seconds = 60,
        .turn_seconds = 0.07,
        .seed = 9,
        .target = 0.01,
        .least_pairs = 80,
        .least_difference = 0.02 },
      false },
    { "whole runs",
      "vary",
      "0.6",
      "5",
      0.1,
      0,
      { .budget_seconds = 6, .turn_seconds = 0.07, .seed = 10, .whole_runs = true },
      true },
    { "stopped in a warm-up", "same", "0.6", "2", 0.1, 4, { .budget_seconds = 60, .turn_seconds = 0.07 }, false },
    { "stopped in a block", "same", "0.6", "2", 0.1, 15, { .budget_seconds = 60, .turn_seconds = 0.07 }, false },
    { "stopped in a whole run",
      "same",
      "0.6",
      "5",
      0.1,
      8,
      { .budget_seconds = 60, .turn_seconds = 0.07, .whole_runs = true },
      false },
    { "no turn in time", "silent", "0.6", "2", 0.3, 0, { .budget_seconds = 0.4, .turn_seconds = 0.07 }, false },
    { "no run in time",
      "silent",
      "0.6",
      "2",
      0.3,
      0,
      { .budget_seconds = 0.4, .turn_seconds = 0.07, .whole_runs = true },
      false },
};

/* A line for each block and each warm-up: "0 w A1+2 A3+2": round, sides, first step + steps. */
static void tell_turns(const tm_ab_session *s, tm_text *out)
{
    static const char names[] = "ABC";
    int64_t           round = -1, block = -2;
    for (int64_t i = 0; i < s->n_turns; i++) {
        const tm_ab_turn *t = &s->turns[i];
        if (t->round != round || t->block != block)
            tm_text_printf(out, "%s  %lld %s%.0d", i ? "\n" : "", (long long)t->round, t->block < 0 ? "w" : "b",
                           t->block < 0 ? 0 : (int)t->block + 1);
        round = t->round;
        block = t->block;
        double sum = 0;
        for (int64_t k = 0; k < t->n; k++) sum += t->seconds[k];
        tm_text_printf(out, " %c%lld+%lld", names[t->side], (long long)t->first_step, (long long)t->n);
        if (i < 40) tm_text_printf(out, "=%.6g/%g", sum, t->work);
        if (t->cut) tm_text_printf(out, " cut %lld", (long long)t->cut);
        if ((t->kind == TM_AB_WARMUP) != (t->block < 0)) tm_text_add(out, "?");
    }
    if (s->n_turns) tm_text_add(out, "\n");
}

static void run_case(const session_case *c, tm_text *out)
{
    char         *drawn = NULL;
    size_t        bytes = 0;
    char         *a[] = { self, (char *)"play", (char *)c->mode, (char *)"0.5", (char *)c->steps, NULL };
    char         *b[] = { self, (char *)"play", (char *)c->mode, (char *)c->b_seconds, (char *)c->steps, NULL };
    FILE         *progress = c->drawn ? open_memstream(&drawn, &bytes) : NULL;
    tm_ab_options o = c->options;
    tm_ab_session s = { 0 };
    tm_error      err = { 0 };
    o.a = (tm_ab_program){ .text = "the first", .argv = a, .turns = true };
    o.b = (tm_ab_program){ .text = "the second", .argv = b, .turns = true };
    o.folder = "/tmp/never made";
    o.progress = progress;
    o.stop = &stop_now;
    start_ns = (int64_t)(c->start_seconds * 1e9);
    turn_ns = 70000000;
    starts = turns = stop_now = 0;
    stop_at_turn = c->stop_at_turn;
    fake_clock_start(0, 0);
    tm_status st = tm_ab_run(&o, &s, &err);
    double    passed = (double)fake_clock_passed() * 1e-9;
    fake_clock_stop();
    tm_text_printf(out, "== %s: %s%s%s, end %d, %.9g of %.9g s, %lld starts, %lld turns\n", c->what, tm_status_text(st),
                   *err.text ? ": " : "", err.text, (int)s.end, s.seconds, passed, (long long)starts, (long long)turns);
    tell_turns(&s, out);
    if (progress) {
        fclose(progress);
        for (char *at = drawn; *at; at++)
            if (*at == '\r') *at = '\n';
        for (char *at = drawn; (at = strstr(at, "\033[K"));) memmove(at, at + 3, strlen(at + 3) + 1);
        tm_text_printf(out, "drawn:%s|\n", drawn);
        free(drawn);
    }
    if (st == TM_OK) tm_ab_print_text(&s, out);
    tm_ab_session_fini(&s);
}

static void live_sessions(void **state)
{
    (void)state;
    tm_text out = { 0 };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) run_case(&cases[i], &out);
    whole_is("tests/golden/whole-ab-live.txt", &out);
}

/* --- the order of turns ------------------------------------------------------------------------------------------- */

/* The six orders of three come once each in six draws, of blocks and of starts, with any seed. */
static void orders_come_in_turn(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 2; seed++) {
        session_case  c = cases[3];
        tm_ab_session s = { 0 };
        tm_error      err = { 0 };
        tm_ab_options o = c.options;
        char         *a[] = { self, (char *)"play", (char *)"same", (char *)"0.5", (char *)"2", NULL };
        unsigned      starts_seen = 0, blocks_seen = 0;
        o.a = o.b = (tm_ab_program){ .text = "a", .argv = a, .turns = true };
        o.seed = seed;
        o.folder = "/tmp/never made";
        o.budget_seconds = 26;
        start_ns = 300000000, turn_ns = 70000000, stop_at_turn = 0;
        fake_clock_start(0, 0);
        assert_int_equal(tm_ab_run(&o, &s, &err), TM_OK);
        fake_clock_stop();
        for (int64_t i = 0; i < s.n_turns; i += 6) {
            const tm_ab_turn *t = &s.turns[i];
            bool              warm = t->kind == TM_AB_WARMUP;
            int               first = (int)t[0].side, second = (int)t[warm ? 2 : 1].side;
            unsigned         *seen = warm ? &starts_seen : &blocks_seen, order = 1U << (first * 3 + second);
            int64_t           draw = warm ? t->round : t->block;
            assert_true(first != second);
            if (draw % 6 == 0) *seen = 0;
            assert_int_equal(*seen & order, 0);
            *seen |= order;
            for (int k = 0; k < 6; k++)
                assert_int_equal(t[k].side, warm ? t[k / 2 * 2].side : t[k < 3 ? k : 5 - k].side);
        }
        assert_true(s.n_turns >= 2 * 6 * 7);
        tm_ab_session_fini(&s);
    }
}

/* --- strangers ---------------------------------------------------------------------------------------------------- */

/* Of a program that only prints lines, those that a stop cut in two and those nobody timed are left out, in every turn
 * but the first of a process, which has none; all of its lines are numbered. */
static void strangers_are_cut(void **state)
{
    (void)state;
    char         *argv[] = { (char *)"sh", (char *)"-c", (char *)"while :; do echo; sleep 0.001; done", NULL };
    tm_ab_session s = { 0 };
    tm_error      err = { 0 };
    tm_ab_options o = { .budget_seconds = 4, .turn_seconds = 0.07, .folder = "/tmp/never made" };
    int64_t       next[TM_AB_SIDES] = { 0 }, round = -1;
    o.a = o.b = (tm_ab_program){ .text = "a", .argv = argv };
    start_ns = 300000000, turn_ns = 0, wake_ns = 10000000, stop_at_turn = 0;
    fake_clock_start(0, 0);
    tm_status st = tm_ab_run(&o, &s, &err);
    fake_clock_stop();
    wake_ns = 0;
    if (st != TM_OK) fail_msg("%s", err.text);
    for (int64_t i = 0; i < s.n_turns; i++) {
        const tm_ab_turn *t = &s.turns[i];
        double            sum = 0;
        if (t->round != round) memset(next, 0, sizeof next);
        round = t->round;
        for (int64_t k = 0; k < t->n; k++) sum += t->seconds[k];
        /* A turn ends with the lines after 70 ms: seven times 10 ms. */
        if (fabs(sum - 0.07) > 1e-9) fail_msg("turn %lld takes %.9g s", (long long)i, sum);
        assert_true(t->n >= 7 && t->work == 0);
        if (next[t->side] == 0) assert_int_equal(t->first_step, 1);
        if (next[t->side] > 0) assert_true(t->first_step > next[t->side]);
        next[t->side] = t->first_step + t->n - 1;
    }
    assert_int_equal(round, 1);
    assert_int_equal(s.n_turns, 24);
    tm_ab_session_fini(&s);
}

TM_TEST_ROLE("play", play)

static int begin(void **state)
{
    (void)state;
    self = (char *)(uintptr_t)test_program;
    signal(SIGPIPE, SIG_IGN); /* as the program does: a player may be gone */
    return 0;
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(live_sessions), cmocka_unit_test(orders_come_in_turn),
                                           cmocka_unit_test(strangers_are_cut) };

TM_TESTS_ALONE(tests, begin, NULL)
