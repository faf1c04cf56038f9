/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of every kind, also called by two threads of a rank at once; messages between two ranks; memory; places. */
#include "support/test.h"
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

/* A sum over the group shows who is in it, and in which order. */
static void check_members(tm_comm *group, const int *want, int n)
{
    float x[3], y[3], right[3];
    int   me = -1;
    CHECK(tm_comm_size(group) == n);
    for (int r = 0; r < n; r++)
        if (r == tm_comm_rank(group)) me = want[r];
    for (size_t i = 0; i < 3; i++) put_value(TM_COMM_FLOAT32, 5, me, i, &x[i]);
    for (size_t i = 0; i < 3; i++) put_reduced(TM_COMM_SUM, TM_COMM_FLOAT32, 5, want, n, i, &right[i]);
    tm_collective sum = { .kind = TM_COMM_ALL_REDUCE, .format = TM_COMM_FLOAT32, .send = x, .receive = y, .count = 3 };
    CHECK_OK(tm_comm_run(group, &sum, err));
    CHECK(memcmp(y, right, sizeof y) == 0);
    int64_t       all[TM_COMM_LOCAL], own = me;
    tm_collective gather = {
        .kind = TM_COMM_ALL_GATHER, .format = TM_COMM_INT64, .send = &own, .receive = all, .count = 1
    };
    CHECK_OK(tm_comm_run(group, &gather, err));
    for (int r = 0; r < n; r++) CHECK(all[r] == want[r]);
}

static tm_comm *split(tm_comm *comm, int color, int key, const char *name)
{
    tm_comm *out;
    CHECK_OK(tm_comm_split(comm, color, key, name, &out, err));
    return out;
}

/* Of 8 ranks. */
static void splits(tm_comm *world, void *context)
{
    int rank = tm_comm_rank(world), list[8];
    (void)context;
    tm_comm *parity = split(world, rank % 2, 0, "parity"), *buffer = split(world, rank / 4, -rank, "half");
    for (int i = 0; i < 4; i++) list[i] = 2 * i + rank % 2;
    check_members(parity, list, 4);
    CHECK(strcmp(tm_comm_name(parity), "parity") == 0);
    for (int i = 0; i < 4; i++) list[i] = rank / 4 * 4 + 3 - i; /* by key: backwards */
    check_members(buffer, list, 4);
    tm_comm *odd = split(world, rank % 3 == 0 ? -1 : 7, 0, "some");
    CHECK(!odd == (rank % 3 == 0));
    const int some[] = { 1, 2, 4, 5, 7 };
    if (odd) check_members(odd, some, 5);
    /* A group of a group, of one rank each in the end. */
    tm_comm *pair = split(parity, tm_comm_rank(parity) / 2, 0, "pair"), *one = split(pair, rank, 0, "one");
    list[0] = rank / 4 * 4 + rank % 2, list[1] = list[0] + 2;
    check_members(pair, list, 2);
    check_members(one, &rank, 1);
    tm_comm_close(one);
    tm_comm_close(pair);
    tm_comm_close(odd);
    tm_comm_close(buffer);
    tm_comm_close(parity);
    /* Places of closed groups are used again, by groups of others. */
    for (int i = 0; i < TM_COMM_GROUPS + 20; i++) {
        int      n = 0, color = (rank + i) / 3;
        tm_comm *group = split(world, color, 0, "again");
        for (int r = 0; r < 8; r++)
            if ((r + i) / 3 == color) list[n++] = r;
        check_members(group, list, n);
        tm_comm_close(group);
    }
    for (int i = 0; i < 8; i++) list[i] = i;
    check_members(world, list, 8);
}

TEST(groups_of_all_kinds)
{
    static const int hosts[] = { 0, 0, 0, 1, 1, 1, 2, 2 };
    run_world(8, NULL, 60, false, splits, NULL);
    run_world(8, hosts, 60, false, splits, NULL);
}

/* --- two threads of each rank, each with groups of its own -------------------------------------- */

typedef struct {
    tm_comm *comm;
    uint64_t seed;
    bool     shared; /* are its buffers in the world's memory */
    char    *memory;
} worker;

enum { WORK_ROOM = 65536 };

/* Calls by a list that all ranks of the group have: kinds, formats and counts by the seed. */
static void *work(void *context)
{
    worker *w = context;
    int     size = tm_comm_size(w->comm), rank = tm_comm_rank(w->comm), all[TM_COMM_LOCAL];
    char    want[8], *send = w->memory, *receive = w->memory + WORK_ROOM;
    for (int r = 0; r < size; r++) all[r] = r;
    for (uint64_t i = 0; i < 60; i++) {
        uint64_t       dice = mix(w->seed * 100 + i);
        size_t         count = dice % 3 ? dice % 300 : dice % 7000;
        tm_comm_format format = dice >> 20 & 1 ? TM_COMM_FLOAT32 : TM_COMM_INT64;
        tm_collective  call = collective_of(dice >> 21 & 1 ? TM_COMM_ALL_REDUCE : TM_COMM_BROADCAST, format, send,
                                           receive, count, NULL, 0);
        call.peer = (int)((dice >> 22) % (uint64_t)size);
        size_t bytes = format_bytes(format);
        for (size_t k = 0; k < count; k++) put_value(format, dice, rank, k, send + k * bytes);
        CHECK_OK(tm_comm_run(w->comm, &call, err));
        for (size_t k = 0; k < count; k++) {
            if (call.kind == TM_COMM_BROADCAST)
                put_value(format, dice, call.peer, k, want);
            else
                put_reduced(TM_COMM_SUM, format, dice, all, size, k, want);
            CHECK(memcmp(receive + k * bytes, want, bytes) == 0);
        }
    }
    return NULL;
}

static void two_threads(tm_comm *world, void *context)
{
    int       rank = tm_comm_rank(world);
    worker    a = { .comm = split(world, rank % 2, 0, "a"), .seed = 1 };
    worker    b = { .comm = split(world, rank / 2, 0, "b"), .seed = 2 };
    void     *shared;
    pthread_t thread;
    (void)context;
    CHECK_OK(tm_comm_alloc(world, 2 * WORK_ROOM, &shared, err));
    a.memory = shared;
    CHECK((b.memory = malloc(2 * WORK_ROOM)) != NULL);
    CHECK(pthread_create(&thread, NULL, work, &a) == 0);
    work(&b);
    pthread_join(thread, NULL);
    tm_comm_free(world, shared);
    free(b.memory);
    tm_comm_close(a.comm);
    tm_comm_close(b.comm);
}

TEST(threads_of_a_rank)
{
    static const int hosts[] = { 0, 1, 1, 0 };
    run_world(4, NULL, 60, false, two_threads, NULL);
    run_world(4, hosts, 60, false, two_threads, NULL);
}

/* --- messages ------------------------------------------------------------------------------------ */

/* --- memory and places --------------------------------------------------------------------------- */

/* Is the memory in reach of the others, as the last call said? */
static bool reached(const tm_comm *comm)
{
    const tm_comm_slot *slot = comm->slots[comm->rank];
    return slot->header[comm->header].send_window >= 0 && slot->header[comm->header].receive_window >= 0;
}

static void check_sum_in_place(tm_comm *world, char *at, size_t count, uint64_t seed)
{
    int all[TM_COMM_LOCAL], size = tm_comm_size(world);
    for (int r = 0; r < size; r++) all[r] = r;
    for (size_t i = 0; i < count; i++) put_value(TM_COMM_FLOAT32, seed, tm_comm_rank(world), i, at + 4 * i);
    tm_collective sum = {
        .kind = TM_COMM_ALL_REDUCE, .format = TM_COMM_FLOAT32, .send = at, .receive = at, .count = count
    };
    CHECK_OK(tm_comm_run(world, &sum, err));
    for (size_t i = 0; i < count; i++) {
        float want, have;
        put_reduced(TM_COMM_SUM, TM_COMM_FLOAT32, seed, all, size, i, &want);
        memcpy(&have, at + 4 * i, 4);
        CHECK(have == want);
    }
}

/* Ranges of private memory that become shared, others at each rank; what lies between them stays as it was. */
static void ranges(tm_comm *world, void *context)
{
    enum { PAGE = 4096, PAGES = 700, COUNT = 5000 };
    size_t rank = (size_t)tm_comm_rank(world);
    int    share, none;
    char  *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)context;
    CHECK(memory != MAP_FAILED);
    memset(memory, 1, PAGES * PAGE);
    char         *first = memory + (1 + rank) * PAGE, *second = memory + (600 - 3 * rank) * PAGE;
    tm_comm_range own[] = { { first, 8 * PAGE }, { first + 8 * PAGE, 0 }, { second, 6 * PAGE } };
    CHECK_OK(tm_comm_share(world, own, rank == 2 ? 0 : 3, &share, err));
    for (size_t i = 0; i < PAGES * PAGE && rank != 2; i++) {
        bool in = (memory + i >= first && memory + i < first + 8 * PAGE) ||
                  (memory + i >= second && memory + i < second + 6 * PAGE);
        CHECK(memory[i] == !in);
    }
    CHECK_OK(tm_comm_share(world, &(tm_comm_range){ memory + 300 * PAGE, 7 * PAGE }, rank == 2, &none, err));
    CHECK(none != share);
    char *buffer = rank == 2 ? memory + 300 * PAGE : rank == 1 ? second : first;
    check_sum_in_place(world, buffer + 64, COUNT, 1);
    CHECK(reached(world));
    check_sum_in_place(world, buffer + 64 + 4 * COUNT - PAGE, COUNT, 2); /* over its end */
    CHECK(!reached(world));
    check_sum_in_place(world, memory + 400 * PAGE, COUNT, 3);
    CHECK(!reached(world));
    tm_comm_unshare(world, share);
    check_sum_in_place(world, buffer + 64, COUNT, 4);
    CHECK(reached(world) == (rank == 2));
    tm_comm_unshare(world, none);
    munmap(memory, PAGES * PAGE);
}

TEST(ranges_of_private_memory)
{
    static const int hosts[] = { 0, 0, 0 };
    run_world(3, hosts, 60, false, ranges, NULL);
}
