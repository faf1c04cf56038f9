/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that find nobody, or somebody else, where the environment says: what each says of it, word for word. */
#include "base/hash.h"
#include "comm/engine/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

#include "support/test.h"
#include "proven.h"

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
                                       "TORCHELASTIC_USE_AGENT_STORE",
                                       "TRAINMARK_SECRET_FILE" };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) unsetenv(all[i]);
    setenv("TRAINMARK_SECRET", secret_of_tests, 1);
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

static tm_status status; /* of what was said */

static void says_here(double deadline, const char *why)
{
    tm_comm_tcp_mesh mesh;
    tm_error         err = { 0 };
    status = tm_comm_tcp_meet(deadline, &mesh, &err);
    assert_int_not_equal(status, TM_OK);
    assert_string_equal(err.text, why);
}

/* This rank of that world meets nobody, and says why. */
static void says(int rank, int size, const char *address, int port, double deadline, const char *why)
{
    set("RANK", rank), set("WORLD_SIZE", size), set("MASTER_PORT", port);
    setenv("MASTER_ADDR", address, 1);
    says_here(deadline, why);
}

static const char *text(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    return words;
}

/* --- the first rank ------------------------------------------------------------------------------- */

TEST(the_first_waits_in_vain)
{
    int port = free_port(), taken, fd = door(&taken);
    says(0, 3, "127.0.0.1", port, 0.05,
         text("ranks 1, 2 of 3 did not come to rank 0 on %s (port %d) within 0.05 s", host, port));
    assert_int_equal(status, TM_IO);
    says(0, 2, "127.0.0.1", taken, 1,
         text("rank 0 cannot listen at MASTER_ADDR 127.0.0.1, port %d: Address already in use", taken));
    close(fd);
    set("LOCAL_WORLD_SIZE", 1);
    says(0, 2, "192.0.2.1", port, 0.05,
         text("rank 0 cannot listen at MASTER_ADDR 192.0.2.1, port %d: it is no address of this host (%s); on the "
              "first host, set MASTER_ADDR to one of its own",
              port, host));
    assert_int_equal(status, TM_INVALID);
    /* The launcher has the port itself. */
    for (int agent = 0; agent < 2; agent++) {
        setenv("TORCHELASTIC_USE_AGENT_STORE", agent ? "True" : "False", 1);
        says(0, 2, "127.0.0.1", port - agent, 0.05,
             text("rank 1 of 2 did not come to rank 0 on %s (port %d) within 0.05 s", host, port));
    }
}

/* Those who come to the first rank one after the other, and what each is told: 0: nothing, the door is closed. */
enum { VISITORS = 12 };

typedef struct {
    int         port;
    bool        failed;
    int32_t     told[VISITORS];
    uint64_t    job;
    tm_comm_key secret, wrong;
} visitors;

/* A rank that says this of itself; claim, encounter, answer: what was said, if asked for. Returns the connection. */
static int visit(visitors *v, const tm_comm_key *secret, int door, const tm_comm_tcp_card *card, tm_comm_claim *said,
                 tm_comm_encounter *met, tm_comm_answer *answer)
{
    tm_comm_hello     hello;
    tm_comm_encounter e;
    int               fd = call(v->port);
    memset(answer, 0, sizeof *answer);
    if (fd < 0 || !read_all(fd, &hello, sizeof hello)) v->failed = true;
    tm_comm_claim claim = claim_to(secret, &hello, door, card, &e);
    if (!write_all(fd, &claim, sizeof claim) || !read_all(fd, answer, sizeof *answer)) answer->verdict = 0;
    if (said) *said = claim;
    if (met) *met = e;
    return fd;
}

static int32_t visit_once(visitors *v, const tm_comm_key *secret, int door, const tm_comm_tcp_card *card)
{
    tm_comm_answer    answer;
    tm_comm_encounter e;
    close(visit(v, secret, door, card, NULL, &e, &answer));
    if (answer.verdict == TM_COMM_STRANGER || answer.verdict == 0) return answer.verdict;
    return tm_comm_listener_is_proven(secret, &e, &answer) ? answer.verdict : -1;
}

/* Says this, whatever it is told. */
static int32_t throw(visitors * v, const void *data, size_t bytes)
{
    tm_comm_hello  hello;
    tm_comm_answer answer = { 0 };
    int            fd = call(v->port);
    if (fd < 0 || !read_all(fd, &hello, sizeof hello) || !write_all(fd, data, bytes)) v->failed = true;
    if (bytes < sizeof(tm_comm_claim)) shutdown(fd, SHUT_WR);
    if (!read_all(fd, &answer, sizeof answer)) answer.verdict = 0;
    close(fd);
    return answer.verdict;
}

/* Repeats to who listens what it has said itself. */
static int32_t reflect(visitors *v, const tm_comm_tcp_card *card)
{
    tm_comm_hello     hello;
    tm_comm_encounter e = { .card = *card };
    tm_comm_claim     claim = { .card = *card };
    tm_comm_answer    answer = { 0 };
    int               fd = call(v->port);
    if (fd < 0 || !read_all(fd, &hello, sizeof hello)) v->failed = true;
    memcpy(e.listener, hello.random, sizeof e.listener);
    memcpy(e.caller, hello.random, sizeof e.caller);
    memcpy(claim.random, hello.random, sizeof claim.random);
    tm_comm_prove_listener(&v->secret, &e, TM_COMM_WELCOME, &claim.proof);
    if (!write_all(fd, &claim, sizeof claim) || !read_all(fd, &answer, sizeof answer)) answer.verdict = 0;
    close(fd);
    return answer.verdict;
}

/* The one that was let in hears who is missing. */
static bool hears_news(const visitors *v, int fd, const tm_comm_encounter *e)
{
    struct {
        int32_t complete;
        char    words[508];
    } news = { 7, "" };
    char        wanted[256];
    tm_comm_key key, proof;
    tm_comm_connection_key(&v->secret, e, &key);
    bool heard = read_all(fd, &news, sizeof news) && read_all(fd, &proof, sizeof proof) && news.complete == 0;
    snprintf(wanted, sizeof wanted,
             "rank 2 of 3 did not come to rank 0 on %s (port %d) within 1 s; 7 callers did not know the secret of this "
             "job",
             host, v->port);
    return heard && tm_comm_is_proven(&key, "trainmark news", &news, sizeof news, &proof) &&
           strcmp(news.words, wanted) == 0;
}

static void *visit_all(void *argument)
{
    visitors         *v = argument;
    tm_comm_tcp_card  card = { .rank = 1, .size = 3, .job = v->job }, other;
    tm_comm_claim     claim;
    tm_comm_encounter met;
    tm_comm_answer    answer;
    unsigned char     noise[sizeof(tm_comm_claim)];
    int               n = 0;
    memset(noise, 0xa5, sizeof noise);
    v->told[n++] = throw(v, noise, sizeof noise);
    other = card, other.size = 4;
    v->told[n++] = visit_once(v, &v->secret, 0, &other);
    other = card, other.rank = 3;
    v->told[n++] = visit_once(v, &v->secret, 0, &other);
    other = card, other.job++;
    v->told[n++] = visit_once(v, &v->secret, 0, &other);
    int kept = visit(v, &v->secret, 0, &card, &claim, &met, &answer);
    v->told[n++] = answer.verdict;
    v->failed = v->failed || !tm_comm_listener_is_proven(&v->secret, &met, &answer);
    v->told[n++] = visit_once(v, &v->secret, 0, &card);
    other = card, other.rank = 2;
    v->told[n++] = visit_once(v, &v->wrong, 0, &other); /* another secret */
    v->told[n++] = throw(v, &claim, sizeof claim);      /* a card that was let in, again */
    claim.card.rank = 2;
    v->told[n++] = throw(v, &claim, sizeof claim);       /* and altered */
    v->told[n++] = visit_once(v, &v->secret, 2, &other); /* a proof for another rank's door */
    memcpy(&claim.proof, &answer.proof, sizeof claim.proof);
    v->told[n++] = throw(v, &claim, sizeof claim); /* what it has said itself */
    v->told[n++] = reflect(v, &other);
    v->failed = v->failed || n != VISITORS || !hears_news(v, kept, &met);
    close(kept);
    return NULL;
}

TEST(the_first_tells_strangers)
{
    static const int32_t wanted[VISITORS] = { 5, 2, 2, 3, 1, 4, 5, 5, 5, 5, 5, 5 };
    static const char    job[] = "a job";
    pthread_t            thread;
    setenv("TORCHELASTIC_RUN_ID", job, 1);
    visitors v = { .port = free_port(),
                   .job = tm_hash(job, strlen(job)),
                   .secret = key_of_text(secret_of_tests),
                   .wrong = key_of_text("another secret of the same length") };
    assert_int_equal(pthread_create(&thread, NULL, visit_all, &v), 0);
    says(
        0, 3, "127.0.0.1", v.port, 1,
        text("rank 2 of 3 did not come to rank 0 on %s (port %d) within 1 s; 7 callers did not know the secret of this "
             "job",
             host, v.port));
    pthread_join(thread, NULL);
    for (int i = 0; i < VISITORS; i++)
        if (v.told[i] != wanted[i]) fail_msg("visitor %d was told %d, not %d", i, v.told[i], wanted[i]);
    assert_false(v.failed);
}

/* Where ranks are on several hosts as far as one can tell, and no secret is given. */
TEST(no_secret)
{
    static const char format[] =
        "ranks on several hosts need a secret in common, and this one (rank %d on %s) has none; `export "
        "TRAINMARK_SECRET=$(openssl rand -hex 16)`, the same on all hosts, before the launcher (srun hands it on by "
        "itself), or TRAINMARK_SECRET_FILE=FILE of mode 0600";
    int port = free_port();
    unsetenv("TRAINMARK_SECRET");
    says(1, 2, "192.0.2.1", port, 0.05, text(format, 1, host)); /* not this host's */
    assert_int_equal(status, TM_INVALID);
    set("LOCAL_WORLD_SIZE", 1); /* there are others, the launcher says */
    says(0, 2, "0.0.0.0", port, 0.05, text(format, 0, host));
    /* Ranks of one host that no launcher has counted together. */
    says(0, 2, "localhost", port, 0.05,
         text("rank 1 of 2 did not come to rank 0 on %s (port %d) within 0.05 s", host, port));
    setenv("TRAINMARK_SECRET", "fifteen letters", 1);
    says(0, 2, "127.0.0.1", port, 0.05,
         "TRAINMARK_SECRET has 15 characters instead of 16 to 4096; `openssl rand -hex 16` makes one");
    assert_int_equal(status, TM_INVALID);
}

/* A name that may be another address elsewhere, and is this host's own here (127.1: as only resolvers write it): nobody
 * would come. */
TEST(a_name_of_this_host_only)
{
    set("LOCAL_WORLD_SIZE", 1);
    says(0, 2, "127.1", free_port(), 0.05,
         "MASTER_ADDR '127.1' is an address here that other hosts do not reach (a line of /etc/hosts?); give this "
         "host's own address in its network");
    assert_int_equal(status, TM_INVALID);
}

/* --- the others ----------------------------------------------------------------------------------- */

TEST(nobody_is_there)
{
    int port = free_port();
    says(1, 2, "127.0.0.1", port, 0.1,
         text("rank 0 was not at MASTER_ADDR 127.0.0.1, port %d, within 0.1 s: Connection refused", port));
}

/* Somebody who listens, says hello, takes what is said, and answers this; closes then, unless it waits. */
typedef struct {
    int         fd;
    bool        silent, foreign, lies; /* says nothing; no hello of a rank; proves nothing */
    bool        answers, closes;
    int32_t     answer, more;
    size_t      heard;
    tm_comm_key secret;
} somebody;

/* The rest comes later. */
static void write_parts(int fd, const void *data, size_t bytes)
{
    (void)write_all(fd, data, bytes / 2);
    usleep(2000);
    (void)write_all(fd, (const char *)data + bytes / 2, bytes - bytes / 2);
}

static void answer_it(somebody *s, int fd, const tm_comm_hello *hello, const tm_comm_claim *claim)
{
    tm_comm_encounter e = { .card = claim->card };
    tm_comm_answer    answer = { .verdict = s->answer };
    memcpy(e.listener, hello->random, sizeof e.listener);
    memcpy(e.caller, claim->random, sizeof e.caller);
    if (!s->lies) tm_comm_prove_listener(&s->secret, &e, answer.verdict, &answer.proof);
    write_parts(fd, &answer, sizeof answer);
    if (s->more) (void)write_all(fd, &s->more, sizeof s->more);
    char left[8];
    if (!s->closes) (void)!read(fd, left, 1);
}

static void *be_somebody(void *argument)
{
    somebody     *s = argument;
    tm_comm_hello hello = { .magic = s->foreign ? 7 : TM_COMM_MAGIC };
    tm_comm_claim claim;
    char          left[8];
    int           fd = accept(s->fd, NULL, NULL);
    memset(hello.random, 0x33, sizeof hello.random);
    if (!s->silent) write_parts(fd, &hello, sizeof hello);
    ssize_t n = recv(fd, &claim, sizeof claim, MSG_WAITALL);
    if (n > 0) s->heard += (size_t)n;
    if (n == (ssize_t)sizeof claim && s->answers) answer_it(s, fd, &hello, &claim);
    if (n > 0 && !s->answers) (void)!read(fd, left, 1);
    close(fd);
    return NULL;
}

static void says_to(somebody *s, double deadline, const char *why)
{
    pthread_t thread;
    int       port;
    s->fd = door(&port);
    s->secret = key_of_text(secret_of_tests);
    assert_int_equal(pthread_create(&thread, NULL, be_somebody, s), 0);
    char full[512], number[16];
    snprintf(number, sizeof number, "%d", port);
    const char *at = strstr(why, "PORT");
    snprintf(full, sizeof full, "%.*s%s%s", at ? (int)(at - why) : (int)strlen(why), why, at ? number : "",
             at ? at + 4 : "");
    says(1, 3, "127.0.0.1", port, deadline, full);
    pthread_join(thread, NULL);
    close(s->fd);
    assert_int_equal(s->heard, s->silent || s->foreign ? 0 : sizeof(tm_comm_claim));
}

#define NOT_TAKEN "rank 0 at 127.0.0.1, port PORT does not take rank 1 of 3: "
#define SECRETS "their secrets (TRAINMARK_SECRET) are not the same"
#define SILENT "rank 0 at MASTER_ADDR 127.0.0.1, port PORT, did not answer within 0.05 s"

TEST(somebody_else_is_there)
{
    static const struct {
        somebody    who;
        double      deadline;
        const char *why;
        tm_status   status;
    } rows[] = {
        { { .answers = true, .answer = 99 }, 3, NOT_TAKEN "it is no rank of this program", TM_IO },
        { { .foreign = true }, 3, NOT_TAKEN "it is no rank of this program", TM_IO },
        { { .answers = true, .answer = 1, .lies = true }, 3, NOT_TAKEN SECRETS, TM_INVALID },
        { { .answers = true, .answer = TM_COMM_STRANGER, .lies = true }, 3, NOT_TAKEN SECRETS, TM_INVALID },
        { { .answers = true, .answer = 2 }, 3, NOT_TAKEN "its WORLD_SIZE is another", TM_IO },
        { { .answers = true, .answer = 3 }, 3, NOT_TAKEN "its TORCHELASTIC_RUN_ID is another", TM_IO },
        { { .answers = true, .answer = 4 }, 3, NOT_TAKEN "there is one of this RANK already", TM_IO },
        { { .answers = true, .answer = 1, .more = 1, .closes = true },
          3,
          "rank 0 at 127.0.0.1, port PORT, has gone before all ranks had come",
          TM_IO },
        { { .silent = true }, 0.05, SILENT, TM_IO },
        { { .silent = false }, 0.05, SILENT, TM_IO },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        somebody who = rows[i].who;
        says_to(&who, rows[i].deadline, rows[i].why);
        assert_int_equal(status, rows[i].status);
    }
}

TEST_FIXTURE(clean, NULL)
