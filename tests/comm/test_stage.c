/* SPDX-License-Identifier: Apache-2.0 */
/* Large messages of a host that nobody waits for lie in stages: how many there are, which one is taken, what happens
 * before memory is shared, at the end of a world, and to a stage that cannot be opened. */
#include "support/test.h"
#include "comm/world.h"

#include <dirent.h>

enum { MOST = 200000 };

/* Files in memory that this process has open. */
static int files_in_memory(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int  n = 0;
    CHECK(folder);
    for (struct dirent *e; (e = readdir(folder));) {
        char    target[64] = "";
        ssize_t length = readlinkat(dirfd(folder), e->d_name, target, sizeof target - 1);
        n += length > 0 && strncmp(target, "/memfd:trainmark", 16) == 0;
    }
    closedir(folder);
    return n;
}

/* Of a world that was closed no file in memory is open, and none is mapped. */
static int nothing_is_left(void **state)
{
    char  line[4096];
    int   mapped = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    (void)state;
    CHECK(maps);
    while (fgets(line, sizeof line, maps)) mapped += strstr(line, "/memfd:trainmark") != NULL;
    fclose(maps);
    if (mapped > 0) fprintf(stderr, "%d parts of files in memory are still mapped\n", mapped);
    return mapped > 0 || files_in_memory() > 0;
}

static void barrier(tm_comm *world)
{
    tm_collective barrier = { .kind = TM_COMM_BARRIER, .step = -1 };
    CHECK_OK(tm_comm_run(world, &barrier, err));
}

/* The first rank sends so many bytes, numbered; what it has is overwritten at once. */
static void post(tm_comm *world, unsigned char *data, size_t bytes, int number, int channel)
{
    tm_collective call = message_of(world, true, data, bytes);
    call.buffered = true;
    call.channel = channel;
    for (size_t i = 0; i < bytes; i++) data[i] = (unsigned char)(mix((uint64_t)number * MOST + i) >> 24);
    CHECK_OK(tm_comm_run(world, &call, err));
    memset(data, 0, bytes);
}

static void take(tm_comm *world, unsigned char *data, size_t bytes, int number, int channel)
{
    tm_collective call = message_of(world, false, data, bytes);
    call.channel = channel;
    memset(data, 0, bytes);
    CHECK_OK(tm_comm_run(world, &call, err));
    for (size_t i = 0; i < bytes; i++) CHECK(data[i] == (unsigned char)(mix((uint64_t)number * MOST + i) >> 24));
}

/* Posts or takes messages of these sizes; both ranks go on together. `files`: stages, from then on. */
static void go(tm_comm *world, unsigned char *data, const size_t *sizes, int n, int files)
{
    bool sends = tm_comm_rank(world) == 0;
    for (int i = 0; i < n && sends; i++) post(world, data, sizes[i], i, 0);
    barrier(world);
    CHECK(files_in_memory() == files);
    barrier(world); /* who takes one has it open for a moment */
    for (int i = 0; i < n && !sends; i++) take(world, data, sizes[i], i, 0);
    barrier(world);
}

/* Memory that is shared is what lets ranks see each other's stages. */
static void *share(tm_comm *world)
{
    void *shared;
    CHECK_OK(tm_comm_alloc(world, 4096, &shared, err));
    barrier(world); /* the files of both are closed again */
    return shared;
}

/* --- which stage ------------------------------------------------------------------------------- */

/* More than there may be stages: the engine carries the rest, and all come in order. */
static void very_many(tm_comm *world, void *context)
{
    enum { N = 80 };
    size_t         sizes[N];
    unsigned char *data = malloc(MOST);
    CHECK(data);
    void *shared = share(world);
    (void)context;
    for (int i = 0; i < N; i++) sizes[i] = 9000;
    go(world, data, sizes, N, 64);
    CHECK(!world->world->send_queue == (tm_comm_rank(world) == 1));
    go(world, data, sizes, 64, 64);
    free(data);
    tm_comm_free(world, shared);
}

TEST(there_are_64_at_most)
{
    run_world(2, NULL, 60, false, very_many, NULL);
    assert_int_equal(files_in_memory(), 0);
}

/* --- the end ---------------------------------------------------------------------------------- */

/* run_world closes the first rank's world as soon as it has returned. */
static void leaves(tm_comm *world, void *context)
{
    unsigned char *data = malloc(MOST);
    CHECK(data);
    (void)context;
    share(world);
    if (tm_comm_rank(world) == 0) {
        post(world, data, MOST, 7, 0);
        tm_comm_close(world);
    } else {
        usleep(200000);
        take(world, data, MOST, 7, 0);
        tm_comm_close(world);
    }
    free(data);
}

TEST(what_was_posted_arrives)
{
    run_world(2, NULL, 60, true, leaves, NULL);
    assert_int_equal(files_in_memory(), 0);
}

TEST_FIXTURE(NULL, nothing_is_left)
