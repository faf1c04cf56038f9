/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between two ranks of a host: of every size around the borders of what a packet holds, from memory in reach
 * and out of it, waited for and not, more than the ring holds, asked for in another order. */
#include "support/test.h"
#include "comm/world.h"

#include <stdatomic.h>

enum { INSIDE = 8192, MOST = 300000 };

static void fill(unsigned char *data, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes; i++) data[i] = (unsigned char)(mix(seed + i) >> 24);
}

static void expect(const unsigned char *data, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes; i++) CHECK(data[i] == (unsigned char)(mix(seed + i) >> 24));
}

/* --- sizes ------------------------------------------------------------------------------------ */

static const size_t sizes[] = { 0,     1,    63,         64,   65,   4095, 4096,       INSIDE, INSIDE + 1, 20000, 32768,
                                65537, MOST, INSIDE - 1, 7000, 8191, 5000, INSIDE - 3, 130,    99999,      3 };
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void all_sizes(tm_comm *world, void *context)
{
    const bool *buffered = context;
    void       *shared;
    CHECK_OK(tm_comm_alloc(world, MOST, &shared, err));
    unsigned char *own = malloc(MOST);
    CHECK(own);
    for (uint64_t round = 0; round < 6 * SIZES; round++) {
        size_t         bytes = sizes[round % SIZES];
        bool           sends = (round / SIZES) % 2 == (uint64_t)tm_comm_rank(world);
        unsigned char *data = round / SIZES % 3 == 2 ? own : shared;
        tm_collective  call = message_of(world, sends, data, bytes);
        call.buffered = *buffered;
        call.channel = round % 5 == 0;
        if (sends) fill(data, bytes, round);
        CHECK_OK(tm_comm_run(world, &call, err));
        if (sends)
            memset(data, 0, bytes); /* it may be changed at once */
        else
            expect(data, bytes, round);
    }
    free(own);
    tm_collective barrier = { .kind = TM_COMM_BARRIER, .step = -1 };
    CHECK_OK(tm_comm_run(world, &barrier, err));
    tm_comm_free(world, shared);
}

TEST(sizes_around_the_borders)
{
    for (int buffered = 0; buffered < 2; buffered++) run_world(2, NULL, 60, false, all_sizes, &(bool){ buffered });
}

/* --- order ------------------------------------------------------------------------------------ */

/* Packets of two groups and two channels, asked for in the opposite order of the first ones; large ones are waited for
 * by their sender until they have been put aside, or carried by the engine, if they lie in memory of its own. */
static void other_order(tm_comm *world, void *context)
{
    static const size_t lengths[] = { 100, INSIDE, 50000, INSIDE + 1, 65536 };
    tm_comm            *twin;
    void               *shared, *own = malloc(4 * 65536);
    int                 rank = tm_comm_rank(world);
    (void)context;
    CHECK(own);
    CHECK_OK(tm_comm_split(world, 0, rank, "twin", &twin, err));
    CHECK_OK(tm_comm_alloc(world, 4 * 65536, &shared, err));
    for (uint64_t round = 0; round < 60; round++) {
        size_t bytes = lengths[round % 5];
        for (uint64_t k = 0; k < 4; k++) {
            uint64_t       way = rank ? 3 - k : k;
            unsigned char *data = (unsigned char *)((round + way) / 2 % 2 ? own : shared) + way * 65536;
            tm_collective  call = message_of(world, rank == 0, data, bytes);
            call.channel = (int)(way & 1);
            if (rank == 0) fill(data, bytes, 4 * round + way);
            /* the last one that rank 1 asks for is the first that was sent: the others wait aside */
            CHECK_OK(tm_comm_run(way & 2 ? twin : world, &call, err));
            if (rank) expect(data, bytes, 4 * round + way);
        }
    }
    tm_comm_close(twin);
    tm_comm_free(world, shared);
    free(own);
}

TEST(letters_are_found_in_any_order)
{
    run_world(2, NULL, 60, false, other_order, NULL);
}

/* --- more than there is room for -------------------------------------------------------------- */

static void overflow(tm_comm *world, void *context)
{
    enum { N = 300, SMALL = 3000, LARGE = 20000 };
    atomic_int    *sent = context;
    bool           sends = tm_comm_rank(world) == 0;
    unsigned char *data = malloc(LARGE);
    CHECK(data);
    while (!sends && !atomic_load(sent)) usleep(100); /* nobody takes one before all are on their way */
    for (uint64_t i = 0; i <= N; i++) {
        size_t        bytes = i % 7 == 3 ? LARGE : SMALL;
        tm_collective call = message_of(world, sends, data, bytes);
        call.buffered = i < N;
        if (sends) fill(data, bytes, i);
        if (sends && i == N) atomic_store(sent, 1);  /* the last one waits for its turn behind them */
        if (!sends && i > 0 && i < 100) usleep(300); /* there is room again, and nobody in a hurry */
        CHECK_OK(tm_comm_run(world, &call, err));
        if (!sends) expect(data, bytes, i);
    }
    free(data);
}

TEST(posted_letters_never_wait)
{
    run_world(2, NULL, 60, false, overflow, &(atomic_int){ 0 });
}
