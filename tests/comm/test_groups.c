/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of every kind, also called by two threads of a rank at once. */
#include "support/test.h"
#include "world.h"

/* A sum over the group shows who is in it, and in which order. `me`: of the world. */
static void check_members(tm_comm *group, int me, const int *want, int n)
{
    float x[3], y[3], right[3];
    CHECK(tm_comm_size(group) == n);
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
    tm_comm *out = comm; /* replaced */
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
    check_members(parity, rank, list, 4);
    CHECK(strcmp(tm_comm_name(parity), "parity") == 0);
    for (int i = 0; i < 4; i++) list[i] = rank / 4 * 4 + 3 - i; /* by key: backwards */
    check_members(buffer, rank, list, 4);
    tm_comm *odd = split(world, rank % 3 == 0 ? -1 : 7, 0, "some");
    CHECK(!odd == (rank % 3 == 0));
    const int some[] = { 1, 2, 4, 5, 7 };
    if (odd) check_members(odd, rank, some, 5);
    /* A group of a group, of one rank each in the end. */
    tm_comm *pair = split(parity, tm_comm_rank(parity) / 2, 0, "pair"), *one = split(pair, rank, 0, "one");
    list[0] = rank / 4 * 4 + rank % 2, list[1] = list[0] + 2;
    check_members(pair, rank, list, 2);
    check_members(one, rank, &rank, 1);
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
        check_members(group, rank, list, n);
        tm_comm_close(group);
    }
    for (int i = 0; i < 8; i++) list[i] = i;
    check_members(world, rank, list, 8);
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
