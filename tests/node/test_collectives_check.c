/* SPDX-License-Identifier: Apache-2.0 */
/* The check `collectives` among ranks that are threads, with data that is spoilt in front of the calls of one rank:
 * each kind is found, named, and the right rank is to blame; with nothing spoilt nobody is. */
#include "support/test.h"

#include "comm/world.h"
#include "apps/node/among.h"
#include "apps/node/blame.h"
#include "apps/node/payload.h"

typedef enum { NOTHING, ZEROS, EARLIER, TAIL, SHIFT, BIT, BEHIND, SOURCE } spoil;
enum { MOST = 8, PIECE = 1 << 20 };

/* What one rank does to its data. */
typedef struct {
    spoil how;
    bool  sends; /* before it is sent; else after it was received */
    int   rank;  /* whose */
} plant;

typedef struct {
    const plant   *p;
    unsigned char *before; /* what was there in the call before */
    size_t         before_bytes;
} spoiler;

static size_t sum_of(const size_t *counts, int n)
{
    size_t sum = 0;
    for (int i = 0; i < n; i++) sum += counts[i];
    return sum;
}

/* Bytes that a call reads or writes on this rank. */
static size_t extent(const tm_comm *comm, const tm_collective *c, bool sends)
{
    const size_t each = format_bytes(c->format), size = (size_t)tm_comm_size(comm);
    if (c->kind == TM_COMM_ALL_TO_ALL && c->send_counts)
        return each * sum_of(sends ? c->send_counts : c->receive_counts, (int)size);
    if (c->kind == TM_COMM_ALL_TO_ALL) return each * c->count * size;
    if (sends) {
        if (c->kind == TM_COMM_RECEIVE) return 0;
        if (c->kind == TM_COMM_BROADCAST && c->peer != tm_comm_rank(comm)) return 0;
        return each * c->count * (c->kind == TM_COMM_REDUCE_SCATTER ? size : 1);
    }
    return c->kind == TM_COMM_SEND ? 0 : each * c->count * (c->kind == TM_COMM_ALL_GATHER ? size : 1);
}

static void spoil_bytes(spoiler *s, unsigned char *data, size_t bytes, size_t each)
{
    const size_t   tail = (bytes / each + 3) / 4 * each;
    unsigned char *kept = malloc(bytes + 1);
    CHECK(kept);
    memcpy(kept, data, bytes);
    switch (s->p->how) {
    case ZEROS:
        memset(data, 0, bytes);
        break;
    case EARLIER:
        memcpy(data, s->before, s->before_bytes < bytes ? s->before_bytes : bytes);
        break;
    case TAIL:
        memset(data + bytes - tail, 0, tail);
        break;
    case SHIFT:
        memmove(data, data + each, bytes - each);
        break;
    case BIT:
        data[bytes / 2] ^= 4;
        break;
    case BEHIND:
        data[bytes] ^= 1;
        break;
    default:
        break;
    }
    memcpy(s->before, kept, bytes < PIECE ? bytes : PIECE);
    s->before_bytes = bytes < PIECE ? bytes : PIECE;
    free(kept);
}

static tm_status spoilt_call(void *data, tm_comm *comm, const tm_collective *c, tm_error *err)
{
    spoiler       *s = data;
    const size_t   sends = extent(comm, c, true), receives = extent(comm, c, false), each = format_bytes(c->format);
    unsigned char *send = (unsigned char *)(uintptr_t)c->send, *kept = NULL;
    if (s->p->sends && sends > 0) {
        const bool inside = send == c->receive || c->kind == TM_COMM_REDUCE_SCATTER || c->kind == TM_COMM_ALL_GATHER;
        kept = malloc(sends);
        CHECK(kept);
        memcpy(kept, send, sends);
        spoil_bytes(s, send, sends, each);
        TM_TRY(tm_comm_run(comm, c, err));
        /* As the memory of a card that sends other bits than are in it. */
        if (!inside) memcpy(send, kept, sends);
        free(kept);
        return TM_OK;
    }
    TM_TRY(tm_comm_run(comm, c, err));
    if (s->p->sends || receives == 0 || strcmp(c->what, "certified data") != 0) return TM_OK;
    if (s->p->how == SOURCE && send && send != c->receive && c->kind == TM_COMM_ALL_TO_ALL && sends > 0)
        send[sends - 1] ^= 1;
    else if (s->p->how != SOURCE)
        spoil_bytes(s, c->receive, receives, each);
    return TM_OK;
}

/* All ranks of a world certify; what they find lies in `out`. */
typedef struct {
    plant           p;
    double          seconds;
    uint64_t        seed;
    tm_node_outcome out[MOST];
} certified;

static void certify(tm_comm *comm, void *context)
{
    certified      *c = context;
    const int       rank = tm_comm_rank(comm);
    spoiler         s = { .p = &c->p, .before = calloc(1, PIECE) };
    tm_node_calls   calls = { c->p.how != NOTHING && c->p.rank == rank ? spoilt_call : NULL, &s, NULL };
    tm_node_options options = { .seed = c->seed, .world = comm, .sysroot = "", .devices = "cpu" };
    tm_node_task    task = { .options = &options, .seconds = c->seconds, .rank = rank, .ranks = tm_comm_size(comm) };
    CHECK(s.before);
    CHECK_OK(tm_node_collectives(&task, &calls, &c->out[rank], err));
    free(s.before);
}

static void run_plant(int ranks, const int *hosts, certified *c)
{
    memset(c->out, 0, sizeof c->out);
    run_world(ranks, hosts, 60, false, certify, c);
}

static void finish(int ranks, certified *c)
{
    for (int r = 0; r < ranks; r++) tm_node_outcome_fini(&c->out[r]);
}

TEST(clean_worlds_pass)
{
    static const int hosts[] = { 0, 0, 1, 2, 1 };
    for (int ranks = 1; ranks <= 5; ranks++)
        for (int several = 0; several < 2; several++) {
            certified c = { .seconds = test_is_full() ? 0.5 : ranks % 2 ? 0.05 : 0.15, .seed = (uint64_t)ranks };
            run_plant(ranks, several ? hosts : NULL, &c);
            for (int r = 0; r < ranks; r++) {
                for (size_t i = 0; i < c.out[r].n_findings; i++) print_message("%s\n", c.out[r].findings[i].text);
                assert_int_equal(c.out[r].n_findings, 0);
                assert_int_equal(c.out[r].verdict, ranks == 1 ? TM_NODE_SKIP : TM_NODE_PASS);
                if (ranks > 1) assert_non_null(strstr(c.out[r].reach, "any wrong element"));
            }
            if (ranks == 1) assert_non_null(strstr(c.out[0].reason, "--ranks N"));
            finish(ranks, &c);
        }
}

/* There are findings, all of them blame this rank, and one says these words. Returns their number. */
static size_t blames(const certified *c, int ranks, int rank, const char *place, const char *words)
{
    size_t n = 0, said = 0;
    for (int r = 0; r < ranks; r++)
        for (size_t i = 0; i < c->out[r].n_findings; i++, n++) {
            const tm_node_finding *f = &c->out[r].findings[i];
            if ((f->rank < 0 ? r : f->rank) != rank || !strstr(f->place, place))
                print_message("rank %d blames %d: %s: %s\n", r, f->rank, f->place, f->text);
            assert_int_equal(f->rank < 0 ? r : f->rank, rank);
            assert_non_null(strstr(f->place, place));
            if (!strstr(f->text, words)) print_message("%s\n", f->text);
            said += strstr(f->text, words) != NULL;
        }
    if (n == 0 || said == 0) print_message("%zu findings, %zu say '%s'\n", n, said, words);
    assert_true(n > 0 && said > 0);
    return n;
}

static const struct {
    spoil       how;
    const char *words;
} spoils[] = { { ZEROS, "zeros" },
               { EARLIER, "before" },
               { TAIL, "lost: zeros" },
               { SHIFT, "shifted by 1 element" },
               { BIT, "one bit" } };

TEST(bad_senders_and_receivers)
{
    for (int ranks = 2; ranks <= 5; ranks++)
        for (size_t i = 0; i < sizeof spoils / sizeof spoils[0]; i++)
            for (int sends = 0; sends < 2; sends++) {
                const int rank = (int)(i + (size_t)ranks) % ranks;
                certified c = { .p = { spoils[i].how, sends, rank }, .seed = i };
                char      place[64];
                run_plant(ranks, NULL, &c);
                snprintf(place, sizeof place, "what rank %d %s", rank, sends ? "sends" : "receives");
                blames(&c, ranks, rank, place, spoils[i].how == TAIL ? "zeros" : spoils[i].words);
                finish(ranks, &c);
            }
}

TEST(memory_beside)
{
    certified c = { .p = { BEHIND, false, 2 } };
    run_plant(3, NULL, &c);
    blames(&c, 3, 2, "what rank 2 receives", "behind");
    finish(3, &c);
    c.p = (plant){ SOURCE, false, 1 };
    run_plant(3, NULL, &c);
    blames(&c, 3, 1, "what rank 1 receives", "memory that is sent");
    finish(3, &c);
}

TEST(who_is_to_blame)
{
    uint32_t wrong[25] = { 0 };
    tm_blame b[25];
    assert_int_equal(tm_blame_find(wrong, 5, b, 25), 0);
    for (int r = 0; r < 5; r++) wrong[r * 5 + 3] = 1; /* all see 3 wrong */
    wrong[0 * 5 + 1] = 7;                             /* and one link beside */
    assert_int_equal(tm_blame_find(wrong, 5, b, 25), 2);
    assert_true(b[0].kind == TM_BLAME_SENDER && b[0].sender == 3 && b[0].seen == 4);
    assert_true(b[1].kind == TM_BLAME_LINK && b[1].sender == 1 && b[1].receiver == 0);
    memset(wrong, 0, sizeof wrong);
    for (int s = 1; s < 5; s++) wrong[s] = 2;
    assert_int_equal(tm_blame_find(wrong, 5, b, 25), 1);
    assert_true(b[0].kind == TM_BLAME_RECEIVER && b[0].receiver == 0);
}
