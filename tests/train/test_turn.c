/* SPDX-License-Identifier: Apache-2.0 */
/* A run that takes turns: what it says and hears over its socket. */
#include "support/test.h"
#include "train/run/interleave.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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
    if (fails) {
        errno = fails;
        fails = 0;
        return -1;
    }
    return broken_off() ? -1 : recv(fd, to, bytes, 0);
}

static int          ours, theirs;
static tm_turn     *turn;
static sig_atomic_t never;
static sig_atomic_t always = 1;

static int set_up(void **state)
{
    (void)state;
    int      pair[2];
    tm_error err = { 0 };
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return -1;
    ours = pair[0];
    theirs = pair[1];
    return tm_turn_open(theirs, &turn, &err) == TM_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    tm_turn_close(turn);
    close(ours);
    close(theirs);
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

TEST_WITH(a_turn_is_whole_steps, set_up, tear_down)
{
    tm_error err = { 0 };
    bool     waited = true;
    heard(TM_TURN_HELLO "\n");
    say("turn 0.25\nturn 0.3\nturn inf\n");
    assert_int_equal(tm_turn_begin(turn, &never, &err), TM_OK);
    assert_int_equal(tm_turn_step(turn, 1, 0.125, 64, &never, &waited, &err), TM_OK);
    assert_false(waited);
    heard(""); /* nobody is woken within a turn */
    assert_int_equal(tm_turn_step(turn, 2, 0.125, 63, &never, &waited, &err), TM_OK);
    assert_true(waited);
    heard("step 1 0.125000000 64\nstep 2 0.125000000 63\npause\n");
    assert_int_equal(tm_turn_step(turn, 3, 0.0625, 64, &never, &waited, &err), TM_OK);
    assert_false(waited); /* the seconds of the turn before do not count */
    assert_int_equal(tm_turn_step(turn, 4, 0.25, 64, &never, &waited, &err), TM_OK);
    assert_true(waited);
    heard("step 3 0.062500000 64\nstep 4 0.250000000 64\npause\n");
    for (int64_t step = 5; step < 7; step++) {
        assert_int_equal(tm_turn_step(turn, step, 1000, 64, &never, &waited, &err), TM_OK);
        assert_false(waited);
    }
    tm_turn_close(turn);
    turn = NULL;
    heard("step 5 1000.000000000 64\nstep 6 1000.000000000 64\n");
}

TEST_WITH(signals_and_short_writes_lose_nothing, set_up, tear_down)
{
    tm_error err = { 0 };
    bool     waited = false;
    heard(TM_TURN_HELLO "\n");
    few = 5; /* the last write has fewer */
    say("turn 0.2\nturn 1\n");
    assert_int_equal(tm_turn_begin(turn, &never, &err), TM_OK);
    assert_int_equal(tm_turn_step(turn, 7, 0.25, 64, &never, &waited, &err), TM_OK);
    assert_true(waited);
    few = SIZE_MAX;
    heard("step 7 0.250000000 64\npause\n");
    shutdown(ours, SHUT_WR); /* with a signal in front of the end */
    few = 5;
    assert_int_equal(tm_turn_begin(turn, &never, &err), TM_INTERRUPTED);
    few = SIZE_MAX;
    shutdown(theirs, SHUT_WR);
    assert_int_equal(tm_turn_step(turn, 8, 2, 64, &never, &waited, &err), TM_INTERRUPTED);
    assert_string_equal(err.text, "the program that controls the turns (" TM_TURN_VARIABLE ") has ended");
}

TEST_WITH(the_other_side_goes, set_up, tear_down)
{
    tm_error err = { 0 };
    shutdown(ours, SHUT_WR);
    assert_int_equal(tm_turn_begin(turn, &never, &err), TM_INTERRUPTED);
    assert_string_equal(err.text, "the program that controls the turns (" TM_TURN_VARIABLE ") has ended");
}

/* After a signal it is read again, after anything else it is not, whatever is there by then. */
TEST_WITH(a_socket_that_fails_is_read_no_more, set_up, tear_down)
{
    tm_error err = { 0 };
    say("turn 1\nturn 2\n");
    fails = EINTR;
    assert_int_equal(tm_turn_begin(turn, &never, &err), TM_OK);
    fails = EIO;
    assert_int_equal(tm_turn_begin(turn, &never, &err), TM_INTERRUPTED);
    assert_string_equal(err.text, "the program that controls the turns (" TM_TURN_VARIABLE ") has ended");
}

TEST_WITH(a_signal_ends_waiting, set_up, tear_down)
{
    tm_error err = { 0 };
    assert_int_equal(tm_turn_begin(turn, &always, &err), TM_INTERRUPTED);
}

TEST_WITH(what_is_no_turn, set_up, tear_down)
{
    const char *const bad[] = { "turn\n",     "turn \n",    "turn x\n", "turn -1\n", "turn 0\n",
                                "turn nan\n", "turn 1 2\n", "turn-5\n", "go\n",      "\n" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tm_error err = { 0 };
        char     words[160];
        say(bad[i]);
        assert_int_equal(tm_turn_begin(turn, &never, &err), TM_INVALID);
        snprintf(words, sizeof words, TM_TURN_VARIABLE ": heard '%.*s', wanted 'turn SECONDS'", (int)strlen(bad[i]) - 1,
                 bad[i]);
        assert_string_equal(err.text, words);
    }
    /* Of a line that is too long, 63 letters. */
    tm_error err = { 0 };
    say("turn 1");
    for (int i = 0; i < 57; i++) say("0");
    say("x\n");
    assert_int_equal(tm_turn_begin(turn, &never, &err), TM_OK);
    say("turn 1");
    for (int i = 0; i < 56; i++) say("0");
    say("x\n");
    assert_int_equal(tm_turn_begin(turn, &never, &err), TM_INVALID);
}

TESTS_ALONE
