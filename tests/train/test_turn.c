/* SPDX-License-Identifier: Apache-2.0 */
/* A run that takes turns: what it says and hears over its socket. */
#include "support/test.h"
#include "train/run/interleave.h"

#include <errno.h>
#include <sys/socket.h>

/* In the place of the system's: every other call is broken off by a signal, the others pass on few bytes. */
static size_t   few = SIZE_MAX;
static unsigned calls;
static int      fails; /* the next read: its errno */

static bool broken_off(void)
{
    if (few == SIZE_MAX || ++calls % 2 == 0) return false;
    errno = EINTR;
    return true;
}

ssize_t write(int fd, const void *from, size_t bytes)
{
    return broken_off() ? -1 : send(fd, from, bytes < few ? bytes : few, MSG_NOSIGNAL);
}

ssize_t read(int fd, void *to, size_t bytes)
{
    int cause = fails;
    fails = 0;
    if (cause) errno = cause;
    return cause || broken_off() ? -1 : recv(fd, to, bytes, 0);
}

static int          ours, theirs;
static tm_turn     *turn;
static tm_error     err;
static sig_atomic_t never, always = 1;

static int set_up(void **state)
{
    (void)state;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return -1;
    ours = pair[0], theirs = pair[1];
    return tm_turn_open(theirs, &turn, &err) == TM_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    tm_turn_close(turn);
    close(ours), close(theirs);
    return 0;
}

static void heard(const char *wanted)
{
    char    text[1024];
    ssize_t n = recv(ours, text, sizeof text - 1, MSG_DONTWAIT);
    text[n > 0 ? n : 0] = '\0';
    assert_string_equal(text, wanted);
}

static void say(const char *text)
{
    assert_int_equal(send(ours, text, strlen(text), 0), strlen(text));
}

static void step(int64_t number, double seconds, int64_t tokens, bool waits)
{
    bool waited = !waits;
    assert_int_equal(tm_turn_step(turn, number, seconds, tokens, &never, &waited, &err), TM_OK);
    assert_int_equal(waited, waits);
}

static void expect_gone(tm_status st)
{
    assert_int_equal(st, TM_INTERRUPTED);
    assert_string_equal(err.text, "the program that controls the turns (" TM_TURN_VARIABLE ") has ended");
    err = (tm_error){ 0 };
}

TEST(a_turn_is_whole_steps)
{
    heard(TM_TURN_HELLO "\n");
    say("turn 0.25\nturn 0.3\nturn inf\n");
    assert_int_equal(tm_turn_begin(turn, &never, &err), TM_OK);
    step(1, 0.125, 64, false);
    heard(""); /* nobody is woken within a turn */
    step(2, 0.125, 63, true);
    heard("step 1 0.125000000 64\nstep 2 0.125000000 63\npause\n");
    step(3, 0.0625, 64, false); /* the seconds of the turn before do not count */
    step(4, 0.25, 64, true);
    heard("step 3 0.062500000 64\nstep 4 0.250000000 64\npause\n");
    step(5, 1000, 64, false);
    tm_turn_close(turn);
    turn = NULL;
    heard("step 5 1000.000000000 64\n");
}

/* After a signal it is read again, after anything else it is not, whatever is there by then. */
TEST(signals_and_short_writes_lose_nothing)
{
    heard(TM_TURN_HELLO "\n");
    few = 5; /* the last write has fewer */
    say("turn 0.2\nturn 1\nturn 1\n");
    assert_int_equal(tm_turn_begin(turn, &never, &err), TM_OK);
    step(7, 0.25, 64, true);
    few = SIZE_MAX;
    heard("step 7 0.250000000 64\npause\n");
    fails = EIO;
    expect_gone(tm_turn_begin(turn, &never, &err));
    expect_gone(tm_turn_begin(turn, &always, &err)); /* told to stop */
}

TEST(the_other_side_goes)
{
    bool waited = false;
    shutdown(ours, SHUT_WR);
    few = 5; /* with a signal in front of the end */
    expect_gone(tm_turn_begin(turn, &never, &err));
    few = SIZE_MAX;
    shutdown(theirs, SHUT_WR);
    expect_gone(tm_turn_step(turn, 8, 2, 64, &never, &waited, &err));
}

/* Of a line that is too long, 63 letters. */
TEST(what_is_no_turn)
{
    static const char        zeros[] = "turn 1000000000000000000000000000000000000000000000000000000000";
    static const char *const bad[] = { "turn",     "turn ",    "turn x", "turn -1", "turn 0",
                                       "turn nan", "turn 1 2", "turn-5", "go",      "" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char words[160];
        say(bad[i]), say("\n");
        err = (tm_error){ 0 };
        assert_int_equal(tm_turn_begin(turn, &never, &err), TM_INVALID);
        snprintf(words, sizeof words, TM_TURN_VARIABLE ": heard '%s', wanted 'turn SECONDS'", bad[i]);
        assert_string_equal(err.text, words);
    }
    assert_int_equal(strlen(zeros), 63);
    say(zeros), say("x\n");
    assert_int_equal(tm_turn_begin(turn, &never, &err), TM_OK);
    say(zeros + 1), say("\n"); /* "urn 1..." */
    assert_int_equal(tm_turn_begin(turn, &never, &err), TM_INVALID);
}

TESTS_ALONE
TEST_FIXTURE(set_up, tear_down)
