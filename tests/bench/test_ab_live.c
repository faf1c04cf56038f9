/* SPDX-License-Identifier: Apache-2.0 */
/* Live sessions by a clock that moves when a process starts and when it goes on: who plays when, how long rounds are,
 * why it ends, and what is drawn meanwhile, by rules (ab_rules.h). The programs are this one:
 * `test_ab_live play MODE SECONDS STEPS`.
 */
#include "apps/bench/ab.h"
#include "support/fake_clock.h"
#include "ab_rules.h"
#include "train/run/interleave.h"

#include <signal.h>
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

/* What it is called where the compiler counts the elements of fds (_FORTIFY_SOURCE, Ubuntu's default). */
int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *most, const sigset_t *mask, size_t bytes);
int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *most, const sigset_t *mask, size_t bytes)
{
    assert_true(n * sizeof *fds <= bytes);
    return ppoll(fds, n, most, mask);
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

static void say(int fd, const char *line)
{
    if (send(fd, line, strlen(line), 0) != (ssize_t)strlen(line)) _exit(9);
}

/* Says all of a turn at once. Steps differ by a few hundredths; "liar" says a line of its own. */
static int play(int argc, char **argv)
{
    const char *mode = argv[2], *channel = getenv(TM_TURN_VARIABLE);
    double      seconds = strtod(argv[3], NULL);
    int64_t     n = strtoll(argv[4], NULL, 10), step = 0;
    if (!channel || !has_folder(argc, argv)) return 8;
    int fd = atoi(channel);
    if (strcmp(mode, "silent") == 0) pause();
    if (strcmp(mode, "mute") == 0) return fputs("I know nothing\n", stderr), 3;
    if (strcmp(mode, "other") == 0) say(fd, "trainmark-turns 2\n"), pause();
    say(fd, TM_TURN_HELLO "\n");
    if (strcmp(mode, "liar") == 0) say(fd, argv[4]), pause();
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
        if (said.length) say(fd, said.data);
        tm_text_fini(&said);
        if (strcmp(mode, "fails") == 0) return fputs("for no reason\n", stderr), 5;
        if (whole) return 0;
    }
    return 0;
}

/* --- sessions ----------------------------------------------------------------------------------------------------- */

static char *self; /* argv[0] */

typedef struct {
    const char   *what;
    bool          vary; /* steps differ by a few hundredths */
    double        b_seconds;
    int64_t       steps; /* of a turn or a run */
    double        start_seconds;
    int64_t       stop_at_turn;
    tm_ab_options options;
    /* What must come of it. */
    tm_ab_end   end;
    const char *refused;
    int64_t     rounds;       /* at least */
    double      next_seconds; /* what a session by the budget had no room for */
} session_case;

#define LIVE .turn_seconds = 0.07
/* clang-format off */
static const session_case cases[] = {
    { "long rounds", false, 0.25, 3, 0.1, 0, { .budget_seconds = 30, LIVE, .seed = 5 }, TM_AB_END_BUDGET, NULL, 8,
      1.14 },
    { "starts take long", true, 0.25, 2, 0.9, 0, { .budget_seconds = 60, LIVE, .seed = 6 }, TM_AB_END_BUDGET, NULL, 8,
      3.54 },
    { "few rounds fit", true, 0.6, 2, 0.5, 0, { .budget_seconds = 15, .turn_seconds = 0.2, .seed = 7 },
      TM_AB_END_BUDGET, NULL, 6, 2.34 },
    { "one block a round", false, 0.6, 2, 0.3, 0, { .budget_seconds = 8, LIVE, .seed = 8 }, TM_AB_END_BUDGET, NULL, 4,
      1.74 },
    { "a target", true, 0.6, 2, 0.1, 0, { .budget_seconds = 60, LIVE, .seed = 9, .target = 0.05, .least_pairs = 3 },
      TM_AB_END_TARGET, NULL, 6, 0 },
    { "a target of many pairs", false, 0.505, 2, 0.1, 0, { .budget_seconds = 60, LIVE, .seed = 9, .target = 0.01,
      .least_pairs = 80, .least_difference = 0.02 }, TM_AB_END_TARGET, NULL, 6, 0 },
    { "whole runs", true, 0.6, 5, 0.1, 0, { .budget_seconds = 6, LIVE, .seed = 10, .whole_runs = true },
      TM_AB_END_BUDGET, NULL, 5, 1.02 },
    { "stopped in a warm-up", false, 0.6, 2, 0.1, 4, { .budget_seconds = 60, LIVE }, TM_AB_END_INTERRUPTED,
      "stopped after 0.5 s", 1, 0 },
    { "stopped in a block", false, 0.6, 2, 0.1, 15, { .budget_seconds = 60, LIVE }, TM_AB_END_INTERRUPTED,
      "stopped after 1.4 s", 1, 0 },
    { "stopped in a whole run", false, 0.6, 5, 0.1, 8, { .budget_seconds = 60, LIVE, .whole_runs = true },
      TM_AB_END_INTERRUPTED, "stopped after 1.4 s", 2, 0 },
    { "no turn in time", false, 0.6, 0, 0.3, 0, { .budget_seconds = 0.4, LIVE }, TM_AB_END_BUDGET,
      "the budget of 0.4 s ended before the first block of six turns; raise --budget", 0, 0 },
    { "no run in time", false, 0.6, 0, 0.3, 0, { .budget_seconds = 0.4, LIVE, .whole_runs = true }, TM_AB_END_BUDGET,
      "the budget of 0.4 s ended before the first block of six turns; raise --budget, or let a run do fewer steps", 0,
      0 },
};
/* clang-format on */

/* As the program does its steps. */
static double share_of(int64_t step)
{
    return 1 + 0.01 * (double)(step * 7 % 5);
}

static void run_case(const session_case *c)
{
    char          steps[8], seconds[16], *drawn = NULL;
    size_t        bytes = 0;
    const char   *mode = c->steps == 0 ? "silent" : c->vary ? "vary" : "same";
    char         *a[] = { self, (char *)"play", (char *)mode, (char *)"0.5", steps, NULL };
    char         *b[] = { self, (char *)"play", (char *)mode, seconds, steps, NULL };
    FILE         *progress = open_memstream(&drawn, &bytes);
    tm_ab_options o = c->options;
    tm_ab_session s = { 0 };
    tm_error      err = { 0 };
    snprintf(steps, sizeof steps, "%lld", (long long)c->steps);
    snprintf(seconds, sizeof seconds, "%g", c->b_seconds);
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
    fclose(progress);
    /* The time is that of starts and turns; it is used up to what does not fit. */
    if (st != (!c->refused       ? TM_OK
               : c->stop_at_turn ? TM_INTERRUPTED
                                 : TM_INVALID) ||
        (c->refused && strcmp(err.text, c->refused) != 0))
        fail_msg("%s: %s: %s", c->what, tm_status_text(st), err.text);
    if (s.end != c->end) fail_msg("%s: end %d", c->what, (int)s.end);
    assert_true(fabs(s.seconds - passed) < 1e-9 && s.seconds <= o.budget_seconds);
    assert_true(fabs(passed - (double)starts * c->start_seconds - 0.07 * (double)turns) < 1e-9);
    if (st == TM_OK && s.end == TM_AB_END_BUDGET && s.seconds + c->next_seconds + 1e-9 < o.budget_seconds)
        fail_msg("%s: ends after %g s of %g, a round takes %g", c->what, s.seconds, o.budget_seconds, c->next_seconds);
    assert_int_equal(starts > 0, turns > 0);
    if (c->steps) {
        const ab_play play = { .seconds = { 0.5, c->b_seconds }, .steps = c->steps, .tokens = { 64, 64 } };
        turns_are_regular(&s, &play, c->vary ? share_of : NULL, c->refused != NULL);
        assert_true(s.turns[s.n_turns - 1].round + 1 >= c->rounds);
        /* The turn in which it was stopped is not recorded. */
        assert_int_equal(s.n_turns, o.whole_runs ? 2 * (turns - (st != TM_OK)) : turns - (st != TM_OK));
        assert_int_equal(starts,
                         o.whole_runs ? turns : 3 * (s.turns[s.n_turns - 1].round + 1) - (c->stop_at_turn == 4));
    }
    if (st == TM_OK) report_is_right(&s);

    if (s.end == TM_AB_END_TARGET) {
        tm_ab_figures f = tm_ab_figures_of(&s);
        assert_true(f.paired.pairs >= o.least_pairs && f.paired.half_width <= o.target);
        /* Without the last round there was not enough. */
        assert_true(f.paired.rounds <= TM_PAIRED_UNITS ||
                    f.paired.pairs < o.least_pairs + f.paired.pairs / f.paired.rounds + 1);
    }
    free(drawn);
    tm_ab_session_fini(&s);
}

TEST(live_sessions)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) run_case(&cases[i]);
}

/* --- the order of turns ------------------------------------------------------------------------------------------- */

/* The six orders of three come once each in six draws, of blocks and of starts, with any seed. */
TEST(orders_come_in_turn)
{
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

/* --- who does not keep to the protocol ---------------------------------------------------------------------------- */

TEST(what_is_no_turn_is_refused)
{
    static const struct {
        const char *mode, *steps, *why; /* of B, whose steps may be a line */
        bool        whole;
    } rows[] = {
        { "mute", "3",
          "B (b) does not know the turn protocol (TRAINMARK_TURN_FD; name an older version with --a-command or "
          "--b-command) or exited after 0 steps (exit code 3); its last output:\nI know nothing",
          false },
        { "other", "3", "it sends 'trainmark-turns 2', this program knows 'trainmark-turns 1'", false },
        { "liar", "step 1 0.5\n", "B: not a line of the turn protocol: 'step 1 0.5'", false },
        { "liar", "step 0 0.5 1\n", "B: not a line of the turn protocol: 'step 0 0.5 1'", false },
        { "liar", "step 1 0 1\n", "B: not a line of the turn protocol", false },
        { "liar", "step 1 0.5 -1\n", "B: not a line of the turn protocol", false },
        { "liar", "step 1 0.5 1x\n", "B: not a line of the turn protocol", false },
        { "liar", "pauses\n", "B: not a line of the turn protocol", false },
        { "fails", "3", "B (b) exited after 3 steps (exit code 5); its last output:\nfor no reason", false },
        { "fails", "3", "B (b) failed after 3 steps (exit code 5); its last output:\nfor no reason", true },
        { "same", "0", "B (b) printed no line of a step after 0 steps (exit code 0)", true },
        { "same", "1", "B (b) has 1 step(s), and the first does not count; let it do more steps", true },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char         *a[] = { self, (char *)"play", (char *)"same", (char *)"0.5", (char *)"3", NULL };
        char         *b[] = { self, (char *)"play", (char *)rows[i].mode, (char *)"0.5", (char *)rows[i].steps, NULL };
        tm_ab_session s = { 0 };
        tm_error      err = { 0 };
        tm_ab_options o = { .budget_seconds = 20, LIVE, .whole_runs = rows[i].whole, .folder = "/tmp/never made" };
        o.a = (tm_ab_program){ .text = "a", .argv = a, .turns = true };
        o.b = (tm_ab_program){ .text = "b", .argv = b, .turns = true };
        assert_int_equal(tm_ab_run(&o, &s, &err), TM_INVALID);
        if (!strstr(err.text, rows[i].why)) fail_msg("%s: %s\nwanted: %s", rows[i].mode, err.text, rows[i].why);
        tm_ab_session_fini(&s);
    }
}

/* --- strangers ---------------------------------------------------------------------------------------------------- */

/* Of a program that only prints lines, those that a stop cut in two and those nobody timed are left out, in every turn
 * but the first of a process, which has none; all of its lines are numbered. */
TEST(strangers_are_cut)
{
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

/* A pattern says which lines are steps. */
TEST(lines_of_steps_have_a_pattern)
{
    static const char *const rows[][2] = { { "^st[aeo]p$", NULL },
                                           { "^steps$", "the budget of 4 s ended before the first block" },
                                           { "(", "'(' is not an extended regular expression: " } };
    for (int i = 0; i < 3; i++) {
        char         *argv[] = { (char *)"sh", (char *)"-c", (char *)"while :; do echo step; sleep 0.001; done", NULL };
        tm_ab_session s = { 0 };
        tm_error      err = { 0 };
        tm_ab_options o = { .budget_seconds = 4, .turn_seconds = 0.07, .folder = "/tmp/never made" };
        o.a = o.b = (tm_ab_program){ .text = "a", .argv = argv, .pattern = rows[i][0] };
        start_ns = 300000000, turn_ns = 0, wake_ns = 10000000, stop_at_turn = 0;
        fake_clock_start(0, 0);
        tm_status st = tm_ab_run(&o, &s, &err);
        fake_clock_stop();
        wake_ns = 0;
        if (rows[i][1] ? st != TM_INVALID || !strstr(err.text, rows[i][1]) : st != TM_OK)
            fail_msg("%s: %s", rows[i][0], err.text);
        tm_ab_session_fini(&s);
    }
}

TM_TEST_ROLE("play", play)

static int begin(void **state)
{
    (void)state;
    self = (char *)(uintptr_t)test_program;
    signal(SIGPIPE, SIG_IGN); /* as the program does: a player may be gone */
    return 0;
}

TESTS_ALONE
TEST_FIXTURE(begin, NULL)
