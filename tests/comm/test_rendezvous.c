/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that find nobody, or somebody else, where the environment says: what each says of it, word for word. */
#include "base/hash.h"
#include "comm/engine/tcp.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <setjmp.h>

#include "support/test.h"

static char host[TM_COMM_HOST_NAME], words[1024];

static void set(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

static int clean(void **state)
{
    static const char *const all[] = { "RANK",
                                       "WORLD_SIZE",
                                       "MASTER_ADDR",
                                       "MASTER_PORT",
                                       "LOCAL_WORLD_SIZE",
                                       "GROUP_RANK",
                                       "TORCHELASTIC_RUN_ID",
                                       "TORCHELASTIC_USE_AGENT_STORE" };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) unsetenv(all[i]);
    return gethostname(host, sizeof host - 1);
}

/* A socket of this machine, which listens; *port: where. */
static int door(int *port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t          n = sizeof a;
    int                fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, n), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    assert_int_equal(listen(fd, 8), 0);
    *port = ntohs(a.sin_port);
    return fd;
}

static int free_port(void)
{
    int port;
    close(door(&port));
    return port;
}

/* This rank of that world meets nobody, and says why. */
static void says(int rank, int size, const char *address, int port, double deadline, const char *why)
{
    tm_comm_tcp_mesh mesh;
    set("RANK", rank), set("WORLD_SIZE", size), set("MASTER_PORT", port);
    setenv("MASTER_ADDR", address, 1);
    const char *said = tm_comm_tcp_meet(deadline, &mesh);
    assert_non_null(said);
    assert_string_equal(said, why);
}

static const char *text(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    return words;
}

/* --- what the environment says ------------------------------------------------------------------ */

static void places_that_are_none(void **state)
{
    static const char none[] =
        "this is rank 1 of 2, launched by torchrun or its like, but MASTER_ADDR and MASTER_PORT do not "
        "say where ranks meet; set them, or use --ranks 2, mpirun, or srun --mpi=pmix";
    tm_comm_tcp_mesh mesh;
    (void)state;
    assert_string_equal(tm_comm_tcp_meet(1, &mesh), "RANK is -1, WORLD_SIZE is -1: no rank of a world");
    says(2, 2, "127.0.0.1", 29500, 1, "RANK is 2, WORLD_SIZE is 2: no rank of a world");
    says(1, 2, "", 29500, 1, none);
    says(1, 2, "127.0.0.1", 0, 1, none);
    says(1, 2, "127.0.0.1", 65535, 1, none);
    setenv("MASTER_PORT", "29500x", 1);
    assert_string_equal(tm_comm_tcp_meet(1, &mesh), none);
    set("MASTER_PORT", 29500);
    unsetenv("MASTER_ADDR");
    assert_string_equal(tm_comm_tcp_meet(1, &mesh), none);
}

static void numbers_of_the_environment(void **state)
{
    static const struct {
        const char *text;
        int         value;
    } rows[] = { { "0", 0 },         { "16777215", 16777215 },
                 { "16777216", -7 }, { "-1", -7 },
                 { "", -7 },         { "3x", -7 },
                 { "12", 12 },       { "1.0", -7 },
                 { "1e3", -7 } };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        setenv("GROUP_RANK", rows[i].text, 1);
        assert_int_equal(tm_comm_number("GROUP_RANK", -7), rows[i].value);
    }
    unsetenv("GROUP_RANK");
    assert_int_equal(tm_comm_number("GROUP_RANK", 5), 5);
}

/* --- the first rank ------------------------------------------------------------------------------- */

static void the_first_waits_in_vain(void **state)
{
    int port = free_port();
    (void)state;
    says(0, 2, "127.0.0.1", port, 0.05,
         text("rank 1 of 2 did not come to rank 0 on %s (port %d) within 0.05 s", host, port));
    says(0, 3, "127.0.0.1", port, 0.05,
         text("ranks 1, 2 of 3 did not come to rank 0 on %s (port %d) within 0.05 s", host, port));
    says(
        0, 17, "127.0.0.1", port, 0.05,
        text("ranks 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 of 17 did not come to rank 0 on %s (port %d) "
             "within 0.05 s",
             host, port));
    says(
        0, 18, "127.0.0.1", port, 0.05,
        text(
            "ranks 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 and others of 18 did not come to rank 0 on %s "
            "(port %d) within 0.05 s",
            host, port));
    /* Behind one address of many machines, or on another machine's name: at all addresses. */
    set("LOCAL_WORLD_SIZE", 1);
    says(0, 2, "127.0.0.1", port, 0.05,
         text("rank 1 of 2 did not come to rank 0 on %s (port %d) within 0.05 s", host, port));
    says(0, 2, "192.0.2.1", port, 0.05,
         text("rank 1 of 2 did not come to rank 0 on %s (port %d) within 0.05 s", host, port));
    /* The launcher has the port itself. */
    setenv("TORCHELASTIC_USE_AGENT_STORE", "False", 1);
    says(0, 2, "127.0.0.1", port, 0.05,
         text("rank 1 of 2 did not come to rank 0 on %s (port %d) within 0.05 s", host, port));
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    says(0, 2, "127.0.0.1", port - 1, 0.05,
         text("rank 1 of 2 did not come to rank 0 on %s (port %d) within 0.05 s", host, port));
}

static void a_port_that_is_taken(void **state)
{
    int port, fd = door(&port);
    (void)state;
    says(0, 2, "127.0.0.1", port, 1,
         text("rank 0 cannot listen at MASTER_ADDR 127.0.0.1, port %d: Address already in use", port));
    close(fd);
}

/* Those who come to the first rank one after the other, and what each is told: 0: nothing, the door is closed. */
typedef struct {
    int      port;
    bool     failed;
    int32_t  told[8];
    uint64_t job;
} visitors;

static int32_t visit(int port, const void *data, size_t bytes, int *kept)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    for (int i = 0; i < 100; i++) {
        int32_t answer = 0;
        int     fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&a, sizeof a) != 0) {
            close(fd);
            usleep(10000);
            continue;
        }
        if (send(fd, data, bytes, MSG_NOSIGNAL) != (ssize_t)bytes) answer = -1;
        if (bytes < sizeof(tm_comm_tcp_card)) shutdown(fd, SHUT_WR);
        if (recv(fd, &answer, sizeof answer, MSG_WAITALL) <= 0) answer = 0;
        if (kept)
            *kept = fd;
        else
            close(fd);
        return answer;
    }
    return -2;
}

static void *visit_all(void *argument)
{
    visitors        *v = argument;
    tm_comm_tcp_card card = { .magic = 0x746d7231, .rank = 1, .size = 3, .job = v->job }, other = card;
    int              kept = -1;
    v->told[0] = visit(v->port, "GET / HTTP/1.1\r\n\r\n", 18, NULL);
    other.magic++;
    v->told[1] = visit(v->port, &other, sizeof other, NULL);
    other = card, other.size = 4;
    v->told[2] = visit(v->port, &other, sizeof other, NULL);
    other = card, other.rank = 3;
    v->told[3] = visit(v->port, &other, sizeof other, NULL);
    other = card, other.rank = 0;
    v->told[4] = visit(v->port, &other, sizeof other, NULL);
    other = card, other.job++;
    v->told[5] = visit(v->port, &other, sizeof other, NULL);
    v->told[6] = visit(v->port, &card, sizeof card, &kept);
    v->told[7] = visit(v->port, &card, sizeof card, NULL);
    /* The one that was let in hears who is missing. */
    struct {
        int32_t complete;
        char    words[508];
    } news = { 7, "" };
    char wanted[256];
    v->failed = kept < 0 || recv(kept, &news, sizeof news, MSG_WAITALL) != (ssize_t)sizeof news || news.complete != 0;
    snprintf(wanted, sizeof wanted, "rank 2 of 3 did not come to rank 0 on %s (port %d) within 1 s", host, v->port);
    v->failed = v->failed || strcmp(news.words, wanted) != 0;
    if (kept >= 0) close(kept);
    return NULL;
}

static void the_first_tells_strangers(void **state)
{
    static const int32_t wanted[] = { 0, 0, 2, 2, 2, 3, 1, 4 };
    static const char    job[] = "a job";
    pthread_t            thread;
    (void)state;
    setenv("TORCHELASTIC_RUN_ID", job, 1);
    visitors v = { .port = free_port(), .job = tm_hash(job, strlen(job)) };
    assert_int_equal(pthread_create(&thread, NULL, visit_all, &v), 0);
    says(0, 3, "127.0.0.1", v.port, 1,
         text("rank 2 of 3 did not come to rank 0 on %s (port %d) within 1 s", host, v.port));
    pthread_join(thread, NULL);
    for (int i = 0; i < 8; i++)
        if (v.told[i] != wanted[i]) fail_msg("visitor %d was told %d, not %d", i, v.told[i], wanted[i]);
    assert_false(v.failed);
}

/* --- the others ----------------------------------------------------------------------------------- */

static void nobody_is_there(void **state)
{
    int port = free_port();
    (void)state;
    says(1, 2, "127.0.0.1", port, 0.1,
         text("rank 0 was not at MASTER_ADDR 127.0.0.1, port %d, within 0.1 s: Connection refused", port));
}

/* Somebody who listens, takes what is said, and answers this; closes then, unless it waits. */
typedef struct {
    int     fd, knocks;
    bool    answers, closes, complete; /* complete: says that all are there, and no more */
    int32_t answer, more;
    int     rank; /* that comes; 0: 1 */
    bool    tells;
    bool    brings; /* the last rank but one, whose connection is descriptor 0 of the other end */
    int     size;   /* 0: 3 */
    size_t  heard;
} somebody;

/* Where ranks listen, as the first one tells it: none of them, at a port that nobody has. */
typedef struct {
    tm_comm_tcp_card        card;
    struct sockaddr_storage address;
    uint32_t                length;
} place;

static void tell_places(int fd, int size)
{
    place places[4];
    memset(places, 0, sizeof places);
    for (int r = 0; r < size; r++) {
        struct sockaddr_in a = { .sin_family = AF_INET,
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                 .sin_port = htons(1) };
        places[r].card = (tm_comm_tcp_card){ .magic = 0x746d7231, .rank = r, .size = size };
        snprintf(places[r].card.host_name, TM_COMM_HOST_NAME, "host-%d", r);
        memcpy(&places[r].address, &a, sizeof a);
        places[r].length = sizeof a;
    }
    (void)!write(fd, places, (size_t)size * sizeof *places);
}

static int input = -1; /* standard input, while it is closed */

/* Before it is told of, a rank knocks at the one that has come, which is not there yet to let it in. */
static int bring(tm_comm_tcp_card card)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons(card.port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int                fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    card.rank = card.size - 2;
    if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0) (void)!write(fd, &card, sizeof card);
    input = dup(STDIN_FILENO);
    close(STDIN_FILENO);
    return fd;
}

static void *be_somebody(void *argument)
{
    somebody        *s = argument;
    tm_comm_tcp_card card;
    int              open[4] = { -1, -1, -1, -1 };
    for (int i = 0; i < s->knocks; i++) {
        open[i] = accept(s->fd, NULL, NULL);
        ssize_t n = i == 0 ? 0 : recv(open[i], &card, sizeof card, MSG_WAITALL); /* the first only learns its address */
        if (n > 0) s->heard += (size_t)n;
        if (n > 0 && s->brings) open[3] = bring(card);
        if (n > 0 && s->answers) (void)!write(open[i], &s->answer, sizeof s->answer);
        if (n > 0 && s->more) (void)!write(open[i], &s->more, sizeof s->more);
        const int32_t all[128] = { 1 };
        if (n > 0 && s->complete) (void)!write(open[i], all, sizeof all);
        if (n > 0 && s->tells) tell_places(open[i], s->size ? s->size : 3);
        if (n > 0 && s->closes) close(open[i]), open[i] = -1;
    }
    char left[8];
    for (int i = 0; i < 4; i++)
        if (open[i] >= 0) (void)!read(open[i], left, 1), close(open[i]);
    return NULL;
}

static void says_to(somebody *s, double deadline, const char *why)
{
    pthread_t thread;
    int       port;
    s->fd = door(&port);
    assert_int_equal(pthread_create(&thread, NULL, be_somebody, s), 0);
    char full[512], number[16];
    snprintf(number, sizeof number, "%d", port);
    const char *at = strstr(why, "PORT");
    snprintf(full, sizeof full, "%.*s%s%s", at ? (int)(at - why) : (int)strlen(why), why, at ? number : "",
             at ? at + 4 : "");
    says(s->rank ? s->rank : 1, s->size ? s->size : 3, "127.0.0.1", port, deadline, full);
    pthread_join(thread, NULL);
    close(s->fd);
    assert_int_equal(s->heard, sizeof(tm_comm_tcp_card));
}

static void somebody_else_is_there(void **state)
{
    (void)state;
    says_to(&(somebody){ .knocks = 2, .answers = true, .answer = 99 }, 3,
            "rank 0 at 127.0.0.1, port PORT does not take rank 1 of 3: it is no rank of this program");
    says_to(&(somebody){ .knocks = 2, .answers = true, .answer = 2 }, 3,
            "rank 0 at 127.0.0.1, port PORT does not take rank 1 of 3: its WORLD_SIZE is another");
    says_to(&(somebody){ .knocks = 2, .answers = true, .answer = 3 }, 3,
            "rank 0 at 127.0.0.1, port PORT does not take rank 1 of 3: its TORCHELASTIC_RUN_ID is another");
    says_to(&(somebody){ .knocks = 2, .answers = true, .answer = 4 }, 3,
            "rank 0 at 127.0.0.1, port PORT does not take rank 1 of 3: there is one of this RANK already");
    says_to(&(somebody){ .knocks = 2, .answers = true, .answer = 1, .closes = true }, 3,
            "rank 0 at 127.0.0.1, port PORT, has gone before all ranks had come");
    says_to(&(somebody){ .knocks = 2, .answers = true, .answer = 1, .more = 1, .closes = true }, 3,
            "rank 0 at 127.0.0.1, port PORT, has gone before all ranks had come");
    says_to(&(somebody){ .knocks = 2, .answers = true, .answer = 1, .complete = true, .closes = true }, 3,
            "rank 0 has gone while it told of the others");
}

static void others_are_not_there(void **state)
{
    (void)state;
    says_to(&(somebody){ .knocks = 2, .answers = true, .answer = 1, .complete = true, .tells = true }, 0.3,
            "rank 2 on host-2 has not reached rank 1 within 0.3 s");
    says_to(&(somebody){ .rank = 2, .knocks = 2, .answers = true, .answer = 1, .complete = true, .tells = true }, 0.1,
            "rank 2 does not reach rank 1 on host-1");
}

/* Where standard input is closed, a connection has its number, and is one like any other. */
static void one_has_come_as_descriptor_0(void **state)
{
    (void)state;
    if (fcntl(STDIN_FILENO, F_GETFD) < 0) assert_int_equal(open("/dev/null", O_RDONLY), STDIN_FILENO);
    says_to(
        &(somebody){
            .knocks = 2, .answers = true, .answer = 1, .complete = true, .tells = true, .brings = true, .size = 4 },
        0.3, "rank 3 on host-3 has not reached rank 1 within 0.3 s");
    assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), -1); /* it was, and is closed again */
    if (input >= 0) dup2(input, STDIN_FILENO), close(input);
}

/* It takes what is said, and stays silent. */
static void silence(void **state)
{
    (void)state;
    says_to(&(somebody){ .knocks = 2 }, 0.05,
            "rank 0 at MASTER_ADDR 127.0.0.1, port PORT, did not answer within 0.05 s");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup(places_that_are_none, clean),
    cmocka_unit_test_setup(numbers_of_the_environment, clean),
    cmocka_unit_test_setup(the_first_waits_in_vain, clean),
    cmocka_unit_test_setup(the_first_tells_strangers, clean),
    cmocka_unit_test_setup(a_port_that_is_taken, clean),
    cmocka_unit_test_setup(nobody_is_there, clean),
    cmocka_unit_test_setup(somebody_else_is_there, clean),
    cmocka_unit_test_setup(others_are_not_there, clean),
    cmocka_unit_test_setup(one_has_come_as_descriptor_0, clean),
    cmocka_unit_test_setup(silence, clean),
};

TM_TESTS(tests, NULL, NULL)
