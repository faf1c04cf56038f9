/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that hosts share out: the bits of plain loops for every layout of ranks on hosts, the bytes that the formulas
 * say, and the right name when a message is lost on the way. */
#include "support/test.h"
#include "calls.h"

#include "comm/coll/hosts.h"

/* --- bits ---------------------------------------------------------------------------------------- */

static const char shared_by_hosts[] = "shared by hosts", rank_to_rank[] = "from rank to rank";

static bool went(const bench *b, const char *way)
{
    if (strcmp(tm_comm_way(b->comm), way) == 0) return true;
    fprintf(stderr, "the call went '%s'\n", tm_comm_way(b->comm));
    return false;
}

static bench make_bench(tm_comm *world, tm_comm *comm, size_t most)
{
    bench b = { .comm = comm, .place = SHARED };
    void *shared;
    b.room = ((most + 64) * 8 * (size_t)tm_comm_size(comm) + 4095) / 4096 * 4096;
    CHECK_OK(tm_comm_alloc(world, 2 * b.room, &shared, err));
    b.shared = shared;
    for (int i = 0; i < 2; i++) CHECK((b.own[i] = malloc(b.room)) != NULL);
    for (int r = 0; r < tm_comm_size(comm); r++) b.all[r] = r;
    return b;
}

static void free_bench(tm_comm *world, bench *b)
{
    tm_comm_free(world, b->shared);
    for (int i = 0; i < 2; i++) free(b->own[i]);
}

/* Has every other host than this rank's one rank only? Then a broadcast goes from rank to rank. */
static bool alone_elsewhere(const tm_comm *comm, int root)
{
    const tm_comm_hosts *h = comm->hosts;
    int                  host = h->host[root];
    return h->size - (h->host_first[host + 1] - h->host_first[host]) == h->hosts - 1;
}

/* All kinds that hosts may share out, of one format. `way`: how they are to go; NULL: either. */
static void shared_kinds(bench *b, tm_comm_format format, size_t count, uint64_t seed, const char *way)
{
    int size = tm_comm_size(b->comm);
    for (int in_place = 0; in_place < 2; in_place++) {
        b->in_place = in_place;
        for (int op = TM_COMM_SUM; op <= TM_COMM_MIN && format != TM_COMM_BYTES; op++) {
            if (op != TM_COMM_SUM && count > 20000) continue;
            check_call(b, TM_COMM_ALL_REDUCE, (tm_comm_op)op, format, count, 0, false, seed + 1);
            CHECK(!way || went(b, way));
            check_call(b, TM_COMM_REDUCE_SCATTER, (tm_comm_op)op, format, count, 0, false, seed + 2);
            CHECK(!way || went(b, way));
        }
        check_call(b, TM_COMM_ALL_GATHER, TM_COMM_SUM, format, count, 0, false, seed + 3);
        CHECK(!way || went(b, way));
        int root = (int)(seed % (uint64_t)size);
        check_call(b, TM_COMM_BROADCAST, TM_COMM_SUM, format, count, root, false, seed + 4);
        CHECK(!way || (b->comm->hosts && alone_elsewhere(b->comm, root)) || went(b, way));
    }
}

typedef struct {
    size_t      count;
    const char *way;
} large;

static void large_calls(tm_comm *world, void *context)
{
    const large *l = context;
    bench        b = make_bench(world, world, l->count);
    for (int format = TM_COMM_INT64; format <= TM_COMM_FLOAT32; format++)
        shared_kinds(&b, (tm_comm_format)format, l->count, (uint64_t)format, l->way);
    /* Sums of bfloat16 are under way in float32: that may be more than from rank to rank. */
    shared_kinds(&b, TM_COMM_BFLOAT16, l->count, 7, NULL);
    shared_kinds(&b, TM_COMM_BYTES, 5 * l->count, 8, l->way);
    tm_comm_set_direct(world, tm_comm_rank(world) == 1); /* one decides for all */
    shared_kinds(&b, TM_COMM_FLOAT32, l->count, 9, rank_to_rank);
    tm_comm_set_direct(world, false);
    b.place = MIXED; /* memory that others do not reach */
    shared_kinds(&b, TM_COMM_FLOAT64, l->count, 10, rank_to_rank);
    b.place = RECEIVED_SHARED;
    b.in_place = false;
    check_call(&b, TM_COMM_ALL_REDUCE, TM_COMM_SUM, TM_COMM_FLOAT32, l->count, 0, false, 12);
    CHECK(went(&b, rank_to_rank));
    check_call(&b, TM_COMM_REDUCE_SCATTER, TM_COMM_SUM, TM_COMM_FLOAT32, l->count, 0, false, 13);
    CHECK(went(&b, rank_to_rank));
    b.place = SHARED;
    shared_kinds(&b, TM_COMM_FLOAT32, 700, 11, rank_to_rank); /* too small (reduce-scatter: of 8 ranks 22 KiB) */
    free_bench(world, &b);
}

FULL_TEST(hosts_alike)
{
    static const int two[] = { 0, 0, 1, 1 }, four[] = { 0, 0, 1, 1, 2, 2, 3, 3 }, wide[] = { 0, 0, 0, 0, 1, 1, 1, 1 };
    run_world(4, two, 60, false, large_calls, &(large){ 9001, shared_by_hosts });
    run_world(8, four, 60, false, large_calls, &(large){ 9001, shared_by_hosts });
    run_world(8, wide, 60, false, large_calls, &(large){ 9001, shared_by_hosts });
}

/* A host of one rank, which owns all lanes; hosts that come again later in the order of the ranks. */
FULL_TEST(hosts_unlike)
{
    static const int first[] = { 0, 1, 1, 1, 1 }, last[] = { 0, 0, 0, 1 }, uneven[] = { 0, 0, 0, 1, 2, 2, 2, 2 },
                     again[] = { 0, 0, 1, 1, 0, 0, 1, 1 }, third[] = { 0, 0, 0, 1, 1, 2, 2, 0 };
    run_world(5, first, 60, false, large_calls, &(large){ 9001, shared_by_hosts });
    run_world(4, last, 60, false, large_calls, &(large){ 9001, NULL }); /* a reduce-scatter would be more */
    run_world(8, uneven, 60, false, large_calls, &(large){ 9001, shared_by_hosts });
    run_world(8, again, 60, false, large_calls, &(large){ 9001, shared_by_hosts });
    run_world(8, third, 60, false, large_calls, &(large){ 9001, shared_by_hosts });
}

/* --- bytes --------------------------------------------------------------------------------------- */

enum { MOST_RANKS = 8 };

typedef struct {
    const int *host;
    uint64_t   sent[MOST_RANKS];
} ledger;

/* All ranks together. */
static uint64_t sent_by_all(tm_comm *world, ledger *l, uint64_t before)
{
    tm_collective barrier = { .kind = TM_COMM_BARRIER, .step = -1 };
    uint64_t      sum = 0;
    l->sent[tm_comm_rank(world)] = tm_comm_sent_between_hosts(world) - before;
    CHECK_OK(tm_comm_run(world, &barrier, err));
    for (int r = 0; r < tm_comm_size(world); r++) sum += l->sent[r];
    CHECK_OK(tm_comm_run(world, &barrier, err));
    return sum;
}

static void count_bytes(tm_comm *world, void *context)
{
    static const tm_comm_kind kinds[] = { TM_COMM_ALL_REDUCE, TM_COMM_REDUCE_SCATTER, TM_COMM_ALL_GATHER,
                                          TM_COMM_BROADCAST, TM_COMM_ALL_TO_ALL };
    ledger                   *l = context;
    size_t                    count = 32 * 840; /* whole lines for every rank and lane */
    bench                     b = make_bench(world, world, count);
    tm_comm_hosts            *hosts = tm_comm_hosts_make(l->host, tm_comm_size(world));
    uint64_t                  headers = 0;
    for (int r = 0; r < hosts->size; r++)
        for (int to = 0; to < hosts->size; to++) headers += l->host[r] != l->host[to] ? sizeof(tm_comm_header) : 0;
    for (int k = 0; k < 5; k++)
        for (int format = TM_COMM_FLOAT32; format <= TM_COMM_BFLOAT16; format++)
            for (int direct = 0; direct < 2; direct++) {
                tm_collective call =
                    collective_of(kinds[k], (tm_comm_format)format, b.shared, b.shared + b.room, count, NULL, -1);
                call.peer = 2;
                bool shared = !direct && tm_comm_hosts_share(hosts, &call);
                tm_comm_set_direct(world, direct);
                uint64_t before = tm_comm_sent_between_hosts(world);
                CHECK_OK(tm_comm_run(world, &call, err));
                CHECK(went(&b, shared ? shared_by_hosts : rank_to_rank));
                uint64_t sent = sent_by_all(world, l, before);
                CHECK(sent == (uint64_t)tm_comm_hosts_moved(hosts, &call, shared).between + headers);
            }
    tm_comm_hosts_free(hosts);
    free_bench(world, &b);
}

TEST(bytes_between_hosts)
{
    static const int alike[] = { 0, 0, 1, 1, 2, 2, 3, 3 }, wide[] = { 0, 0, 0, 0, 1, 1, 1, 1 },
                     uneven[] = { 0, 0, 0, 1, 2, 2, 2, 2 }, again[] = { 0, 0, 1, 0, 1, 1 };
    run_world(8, alike, 60, false, count_bytes, &(ledger){ .host = alike });
    run_world(8, wide, 60, false, count_bytes, &(ledger){ .host = wide });
    run_world(8, uneven, 60, false, count_bytes, &(ledger){ .host = uneven });
    run_world(6, again, 60, false, count_bytes, &(ledger){ .host = again });
}
