/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that call different things, come late, leave early or give up: every rank hears of it in the same words, within
 * the deadline, and no number is wrong. */
#include "support/test.h"
#include "world.h"

#include "base/clock.h"

#include <stdatomic.h>

static void expect_words(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (!strstr(text, *words)) {
            fprintf(stderr, "'%s' lacks '%s'\n", text, *words);
            abort();
        }
}

/* Far more than a busy machine takes to let a thread run. */
static const double patience_s = 1.5;

/* --- mismatches ---------------------------------------------------------------------------------- */

typedef struct {
    tm_collective     odd; /* what rank 1 calls; the others: an all-reduce of 20 float32 'gradients' */
    const char *const words[4];
} different;

static const tm_collective usual = {
    .kind = TM_COMM_ALL_REDUCE, .format = TM_COMM_FLOAT32, .count = 20, .what = "gradients", .step = 3
};

static const different cases[] = {
    { { .kind = TM_COMM_ALL_GATHER, .format = TM_COMM_FLOAT32, .count = 20, .what = "gradients", .step = 3 },
      { "rank 1 calls all-gather of 20 float32 'gradients', step 3", "calls all-reduce (sum) of 20 float32" } },
    { { .op = TM_COMM_MAX, .kind = TM_COMM_ALL_REDUCE, .format = TM_COMM_FLOAT32, .count = 20, .what = "gradients" },
      { "rank 1 calls all-reduce (max)", "(sum)" } },
    { { .kind = TM_COMM_ALL_REDUCE, .format = TM_COMM_INT64, .count = 20, .what = "gradients", .step = 3 },
      { "20 int64", "20 float32" } },
    { { .kind = TM_COMM_ALL_REDUCE, .format = TM_COMM_FLOAT32, .count = 20, .what = "norms", .step = 3 },
      { "'norms'", "'gradients'" } },
    { { .kind = TM_COMM_BARRIER, .step = -1 }, { "rank 1 calls barrier", "all-reduce" } },
    { { .kind = TM_COMM_ALL_REDUCE, .format = TM_COMM_FLOAT32, .count = 5000, .what = "gradients", .step = 3 },
      { "5000 float32", "20 float32" } },
};

static void call_different(tm_comm *world, void *context)
{
    const different *d = context;
    static float     memory[8][2][40000];
    int              rank = tm_comm_rank(world);
    tm_collective    good = { .kind = TM_COMM_BARRIER, .step = -1 };
    for (int i = 0; i < 3; i++) CHECK_OK(tm_comm_run(world, &good, err));
    tm_collective call = rank == 1 ? d->odd : usual;
    call.send = memory[rank][0], call.receive = memory[rank][1];
    memory[rank][1][0] = -1;
    tm_error err = { 0 }, later = { 0 };
    CHECK(tm_comm_run(world, &call, &err) == TM_INVALID);
    expect_words(err.text, d->words);
    expect_words(err.text, (const char *const[]){ "group world", NULL });
    CHECK(!(memory[rank][1][0] > 0) && !(memory[rank][1][0] < -1)); /* no number was written */
    CHECK(tm_comm_run(world, &good, &later) == TM_INVALID);
    /* On one host all say the same; and everybody the same again. */
    CHECK(strcmp(later.text, err.text) == 0);
}

TEST(different_calls)
{
    static const int hosts[] = { 0, 1, 2, 3 };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        run_world(3, NULL, 10, false, call_different, (void *)&cases[i]);
        run_world(4, hosts, 5, false, call_different, (void *)&cases[i]);
    }
}

static void roots(tm_comm *world, void *context)
{
    float         x = 1;
    tm_error      err = { 0 };
    tm_collective call = collective_of(TM_COMM_BROADCAST, TM_COMM_FLOAT32, &x, &x, 1, "w", -1);
    call.peer = tm_comm_rank(world) == 0 ? 0 : 1;
    (void)context;
    CHECK(tm_comm_run(world, &call, &err) == TM_INVALID);
    expect_words(err.text, (const char *const[]){ "from rank 0", "from rank 1", NULL });
}

/* Of 4 ranks one sends another number to one: that one says so, with both numbers. */
static void one_piece(tm_comm *world, void *context)
{
    const int    *pair = context; /* from, to */
    char          x[100] = { 0 }, y[100], want[200];
    size_t        me = (size_t)tm_comm_rank(world), out[4], in[4];
    tm_error      err = { 0 };
    tm_collective call = collective_of(TM_COMM_ALL_TO_ALL, TM_COMM_BYTES, x, y, 0, "tokens", 3);
    call.send_counts = out, call.receive_counts = in;
    for (size_t r = 0; r < 4; r++) out[r] = 4 * me + r, in[r] = 4 * r + me;
    if ((int)me == pair[0]) out[pair[1]] += 5;
    tm_status st = tm_comm_run(world, &call, &err);
    CHECK(st == TM_INVALID || (int)me != pair[1]);
    if ((int)me != pair[1]) return;
    snprintf(want, sizeof want,
             "all-to-all 'tokens' of group world: rank %d sends %d elements to rank %d, which expects %d", pair[0],
             4 * pair[0] + pair[1] + 5, pair[1], 4 * pair[0] + pair[1]);
    CHECK(strcmp(err.text, want) == 0);
}

TEST(pieces_of_other_sizes)
{
    static const int hosts[] = { 0, 1, 0, 1 };
    for (int i = 0; i < 16; i += 3) {
        int pair[] = { i % 4, i / 4 };
        run_world(4, i % 2 ? hosts : NULL, 0.4, false, one_piece, pair);
    }
}

static void message_of_another_size(tm_comm *world, void *context)
{
    float         x[8] = { 0 };
    tm_error      err = { 0 };
    int           rank = tm_comm_rank(world);
    tm_collective call =
        collective_of(rank ? TM_COMM_RECEIVE : TM_COMM_SEND, TM_COMM_FLOAT32, x, x, rank ? 7 : 8, "acts", 2);
    call.peer = !rank;
    (void)context;
    tm_status st = tm_comm_run(world, &call, &err);
    if (rank == 0) return; /* sent before anybody looked */
    CHECK(st == TM_INVALID);
    expect_words(err.text,
                 (const char *const[]){ "message of 7 float32 'acts', step 2", "message of 8 float32", NULL });
}

TEST(other_differences)
{
    static const int hosts[] = { 0, 1 };
    for (int far = 0; far < 2; far++) {
        run_world(2, far ? hosts : NULL, 60, false, roots, NULL);
        run_world(2, far ? hosts : NULL, patience_s, false, message_of_another_size, NULL);
    }
}

/* --- late ---------------------------------------------------------------------------------------- */

typedef struct {
    int             late; /* this rank, and those behind it, come when another has given up */
    atomic_int      given_up;
    const char     *who, *words; /* words: what it called before, on one host */
    pthread_mutex_t lock;
    char            text[4096]; /* of the first */
} lateness;

static void wait_for_others_to_give_up(lateness *l, int others)
{
    while (atomic_load(&l->given_up) < others) usleep(1000);
}

static void come_late(tm_comm *world, void *context)
{
    lateness     *l = context;
    float         x[2000] = { 1 }, y[2000];
    int           rank = tm_comm_rank(world);
    tm_collective before = collective_of(TM_COMM_ALL_GATHER, TM_COMM_FLOAT32, x, y, 2, "before", 6);
    tm_collective call = collective_of(TM_COMM_ALL_REDUCE, TM_COMM_FLOAT32, x, y, 2000, "layer 3", 7);
    int64_t       begin = tm_now_ns();
    CHECK_OK(tm_comm_run(world, &before, err));
    if (rank >= l->late) wait_for_others_to_give_up(l, 1);
    tm_error err = { 0 };
    CHECK(tm_comm_run(world, &call, &err) == TM_IO);
    CHECK((double)(tm_now_ns() - begin) * 1e-9 > patience_s - 0.01);
    atomic_store(&l->given_up, 1);
    expect_words(err.text, (const char *const[]){ l->who, "1.5 s", "all-reduce (sum) of 2000 float32",
                                                  "'layer 3', step 7", l->words, NULL });
    pthread_mutex_lock(&l->lock);
    if (!l->text[0]) snprintf(l->text, sizeof l->text, "%s", err.text);
    CHECK(tm_comm_place_of(world, 0).hosts > 1 || strcmp(l->text, err.text) == 0);
    pthread_mutex_unlock(&l->lock);
    tm_error again = { 0 };
    begin = tm_now_ns();
    CHECK(tm_comm_run(world, &call, &again) == TM_IO && strcmp(again.text, err.text) == 0);
    CHECK((double)(tm_now_ns() - begin) * 1e-9 < patience_s); /* nobody waits a second time */
}

TEST(ranks_that_are_late)
{
    lateness one = { .late = 3,
                     .who = "rank 3 of group world is late: ",
                     .words = "the last call of rank 3 was all-gather of 2 float32 'before', step 6",
                     .lock = PTHREAD_MUTEX_INITIALIZER };
    lateness more = { .late = 1,
                      .who = "ranks 1, 2, 3, 4, 5, 6, 7, 8 and others of group world are late: rank 0 has waited ",
                      .words = "the last call of rank 1 was all-gather of 2 float32 'before', step 6",
                      .lock = PTHREAD_MUTEX_INITIALIZER };
    run_world(4, NULL, patience_s, false, come_late, &one);
    run_world(10, NULL, patience_s, false, come_late, &more);
}

/* --- the end ------------------------------------------------------------------------------------- */

static void leave_early(tm_comm *world, void *context)
{
    float         x = 1, y;
    tm_error      err = { 0 };
    int           rank = tm_comm_rank(world);
    tm_collective call = collective_of(TM_COMM_ALL_REDUCE, TM_COMM_FLOAT32, &x, &y, 1, "loss", 9);
    (void)context;
    if (rank != 1) {
        CHECK(tm_comm_run(world, &call, &err) == TM_INVALID);
        expect_words(err.text, (const char *const[]){ "rank 1 has closed it",
                                                      "calls all-reduce (sum) of 1 float32 'loss'", NULL });
    }
    tm_comm_close(world);
}

TEST(a_rank_that_leaves)
{
    static const int hosts[] = { 0, 1, 1 };
    run_world(3, NULL, 60, true, leave_early, NULL);
    run_world(3, hosts, 60, true, leave_early, NULL);
}

static void cancel_all(tm_comm *world, void *context)
{
    tm_error      err = { 0 };
    tm_collective call = { .kind = TM_COMM_BARRIER, .what = "step", .step = 1 };
    (void)context;
    if (tm_comm_rank(world) == 1) tm_comm_abort(world, 3, "the disk is full");
    CHECK(tm_comm_run(world, &call, &err) != TM_OK);
    CHECK(strcmp(err.text, "rank 1: the disk is full") == 0);
}

TEST(a_rank_that_gives_up)
{
    run_world(3, NULL, 60, false, cancel_all, NULL);
}
