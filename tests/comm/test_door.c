/* SPDX-License-Identifier: Apache-2.0 */
/* The door at which ranks come: however many strangers there are, and whatever they say or do not say, who knows the
 * secret comes in at once. And where secrets come from. */
#include "support/test.h"
#include "proven.h"

#include "base/clock.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>

static const tm_comm_tcp_card card = { .rank = 1, .size = 2 };
static tm_comm_key            secret;
static tm_comm_door           door;

static int begin(void **state)
{
    tm_comm_address a;
    (void)state;
    unsetenv("TRAINMARK_SECRET"), unsetenv("TRAINMARK_SECRET_FILE");
    secret = key_of_text(secret_of_tests);
    if (tm_comm_address_find("127.0.0.1", "0", false, &a)) return -1;
    int fd = tm_comm_address_bind(&a);
    if (fd < 0 || tm_comm_address_listen(fd) != 0) return -1;
    tm_comm_door_open(&door, fd, 0, &secret);
    return 0;
}

static int end(void **state)
{
    (void)state;
    tm_comm_door_close(&door);
    return 0;
}

static int port_of_door(void)
{
    tm_comm_address a;
    tm_comm_address_of_own(door.listening, &a);
    return (int)tm_comm_address_port(&a);
}

/* A process of callers; ends well if what it does is. */
static pid_t start(int (*body)(int port))
{
    int   port = port_of_door();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(body(port));
    return child;
}

static void ended_well(pid_t child)
{
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Until one has come in, which is let in; false: none within so many seconds. */
static bool one_comes(double seconds)
{
    tm_comm_arrival a;
    int64_t         until = tm_now_ns() + (int64_t)(seconds * 1e9);
    while (tm_now_ns() < until) {
        if (!tm_comm_door_look(&door, 10, &a)) continue;
        bool in = tm_comm_door_answer(&door, &a, TM_COMM_WELCOME);
        if (in) close(a.fd);
        return in;
    }
    return false;
}

/* A rank: 0 if it was let in by somebody who knows the secret. */
static int come_in(int port)
{
    tm_comm_key       own = key_of_text(secret_of_tests);
    tm_comm_hello     hello;
    tm_comm_encounter e;
    tm_comm_answer    answer;
    for (int i = 0; i < 50; i++) { /* it may have had to make room for others */
        int fd = call(port);
        if (fd < 0) return 1;
        if (read_all(fd, &hello, sizeof hello)) {
            tm_comm_claim claim = claim_to(&own, &hello, 0, &card, &e);
            if (write_all(fd, &claim, sizeof claim) && read_all(fd, &answer, sizeof answer))
                return answer.verdict != TM_COMM_WELCOME || !tm_comm_listener_is_proven(&own, &e, &answer);
        }
        close(fd);
    }
    return 2;
}

/* 200 that say nothing, 50 that say anything, one that says a byte now and then; then a rank. */
static int crowd(int port)
{
    unsigned char noise[4096];
    memset(noise, 0x5c, sizeof noise);
    for (int i = 0; i < 200; i++)
        if (call(port) < 0) return 3;
    int slow = call(port);
    for (int i = 0; i < 50; i++) {
        int fd = call(port);
        (void)write_all(fd, noise, sizeof noise >> (i % 9));
        if (i % 3 == 0) close(fd);
        (void)write_all(slow, noise, 1);
    }
    return come_in(port);
}

TEST_WITH(strangers_hold_up_nobody, begin, end)
{
    int64_t begun = tm_now_ns();
    pid_t   child = start(crowd);
    assert_true(one_comes(20));
    assert_true(tm_now_ns() - begun < (int64_t)4e9); /* less than one silent caller has */
    ended_well(child);
    assert_true(door.strangers <= 50); /* maybe none: who came last is heard first */
}

/* Who has said too little when its time is over. */
static int silence(int port)
{
    tm_comm_hello hello;
    struct pollfd p[2] = { { .fd = call(port), .events = POLLIN }, { .fd = call(port), .events = POLLIN } };
    char          x = 0;
    int64_t       begun = tm_now_ns(), gone[2] = { 0, 0 };
    for (int i = 0; i < 2; i++)
        if (!read_all(p[i].fd, &hello, sizeof hello)) return 1;
    while (!gone[0] || !gone[1]) {
        (void)write_all(p[1].fd, &x, 1);
        if (poll(p, 2, 100) < 0) return 2;
        for (int i = 0; i < 2; i++)
            if (p[i].fd >= 0 && p[i].revents) gone[i] = tm_now_ns() - begun, p[i].fd = -1;
    }
    for (int i = 0; i < 2; i++)
        if (gone[i] < (TM_COMM_CALLER_S - 1) * (int64_t)1e9) return 3;
    return 0;
}

FULL_TEST_WITH(who_is_silent_goes, begin, end)
{
    pid_t child = start(silence);
    assert_false(one_comes(TM_COMM_CALLER_S + 1.5));
    ended_well(child);
    assert_int_equal(door.count, 0);
    assert_int_equal(door.strangers, 0);
}

/* --- secrets ------------------------------------------------------------------------------------ */

static char     folder[] = "/tmp/tm-secret-XXXXXX", path[64];
static tm_error problem;

/* What a file of that text and mode is taken for. */
static tm_status given_by_file(const char *text, mode_t mode, tm_comm_key *key)
{
    bool given = false;
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && fchmod(fd, mode) == 0);
    close(fd);
    setenv("TRAINMARK_SECRET_FILE", path, 1);
    problem = (tm_error){ 0 };
    tm_status st = tm_comm_secret_given(key, &given, &problem);
    assert_true(given);
    return st;
}

TEST_WITH(secrets_that_are_given, begin, end)
{
    static char large[5000];
    memset(large, 'x', sizeof large - 1);
    static const struct {
        const char *text;
        mode_t      mode;
        const char *why; /* NULL: taken */
    } rows[] = {
        { "sixteen letters!\n", 0600, NULL },
        { "sixteen letters!\r\n", 0400, NULL },
        { "fifteen letters\n", 0600, "has to have 16 to 4096 characters; `openssl rand -hex 16` makes one" },
        { "sixteen letters!\n", 0604, "nobody else may read; `chmod 600 /tmp/tm-secret-" },
        { "sixteen letters!\n", 0640, "nobody else may read; `chmod 600 /tmp/tm-secret-" },
        { large, 0600, "has to have 16 to 4096 characters" },
    };
    tm_comm_key key, same = key_of_text("sixteen letters!"), other = key_of_text("sixteen letters?");
    bool        given = true;
    char        link[80];
    assert_memory_not_equal(&same, &other, sizeof same);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/secret", folder);
    snprintf(link, sizeof link, "%s/link", folder);
    assert_int_equal(tm_comm_secret_given(&key, &given, &problem), TM_OK);
    assert_false(given);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(given_by_file(rows[i].text, rows[i].mode, &key), rows[i].why ? TM_INVALID : TM_OK);
        if (rows[i].why) assert_non_null(strstr(problem.text, rows[i].why));
        if (!rows[i].why) assert_memory_equal(&key, &same, sizeof key); /* the same, however it is given */
    }
    large[TM_COMM_SECRET_MOST] = '\0';
    assert_int_equal(given_by_file(large, 0600, &key), TM_OK);
    assert_int_equal(symlink(path, link), 0);
    setenv("TRAINMARK_SECRET_FILE", link, 1);
    assert_int_equal(tm_comm_secret_given(&key, &given, &problem), TM_INVALID);
    assert_non_null(strstr(problem.text, "cannot be read: it is a symbolic link"));
    setenv("TRAINMARK_SECRET", "sixteen letters!", 1);
    problem = (tm_error){ 0 };
    assert_int_equal(tm_comm_secret_given(&key, &given, &problem), TM_INVALID);
    assert_non_null(strstr(problem.text, "are both set; leave one of them out"));
    unsetenv("TRAINMARK_SECRET_FILE"), unsetenv("TRAINMARK_SECRET");
    unlink(link), unlink(path), rmdir(folder);
}

/* The first rank's, and what is left of an earlier one. */
TEST_WITH(secrets_of_one_host, begin, end)
{
    uint64_t    name = 0x7e57000000000000u | (uint64_t)getpid();
    tm_comm_key first, second, found;
    char        place[PATH_MAX];
    struct stat facts;
    problem = (tm_error){ 0 };
    assert_int_equal(tm_comm_secret_find(name, &found, &problem), TM_INVALID);
    assert_non_null(strstr(problem.text, "`export TRAINMARK_SECRET=$(openssl rand -hex 16)`"));
    problem = (tm_error){ 0 };
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tm_comm_secret_make(name, i ? &second : &first, place, &problem), TM_OK);
        assert_int_equal(tm_comm_secret_find(name, &found, &problem), TM_OK);
        assert_memory_equal(&found, i ? &second : &first, sizeof found);
    }
    assert_memory_not_equal(&first, &second, sizeof first);
    assert_int_equal(stat(place, &facts), 0);
    assert_int_equal(facts.st_mode & 07777, 0600);
    assert_int_equal(facts.st_size, sizeof(tm_comm_key));
    *strrchr(place, '/') = '\0';
    assert_int_equal(stat(place, &facts), 0);
    assert_int_equal(facts.st_mode & 07777, 0700);
    place[strlen(place)] = '/';
    /* What others can read is no secret. */
    assert_int_equal(chmod(place, 0644), 0);
    assert_int_equal(tm_comm_secret_find(name, &found, &problem), TM_INVALID);
    assert_int_equal(truncate(place, 31), 0);
    assert_int_equal(chmod(place, 0600), 0);
    assert_int_equal(tm_comm_secret_find(name, &found, &problem), TM_INVALID);
    unlink(place);
}
