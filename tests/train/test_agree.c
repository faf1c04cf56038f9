/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks agree on: the same bytes, sums and largest numbers on all of them, and one failure for all, which is that
 * of the first rank that has one. */
#include "support/test.h"
#include "train/parallel/agree.h"

#include "../comm/world.h"

enum { RANKS = 4 };

static void numbers(tm_comm *world, void *context)
{
    int     rank = tm_comm_rank(world), all[RANKS][2], own[2] = { 10 * rank, 7 - rank };
    int64_t most[] = { rank, -rank, rank == 2 ? 9 : 3 }, sums[] = { rank, -1 };
    char    text[8] = "other";
    (void)context;
    CHECK(agree_rank(world) == rank && agree_ranks(world) == RANKS);
    CHECK_OK(agree_max(world, "most", most, 3, err));
    CHECK(most[0] == 3 && most[1] == 0 && most[2] == 9);
    CHECK_OK(agree_sum(world, "sums", sums, 2, err));
    CHECK(sums[0] == 6 && sums[1] == -4);
    if (rank == 0) memcpy(text, "words", 6);
    CHECK_OK(agree_bytes(world, "text", text, sizeof text, err));
    CHECK(strcmp(text, "words") == 0);
    CHECK_OK(agree_gather(world, "pairs", own, sizeof own, all, err));
    for (int r = 0; r < RANKS; r++) CHECK(all[r][0] == 10 * r && all[r][1] == 7 - r);
}

typedef struct {
    tm_status failure[RANKS]; /* of each rank */
    int       first;          /* whose failure is that of all; -1: there is none */
} outcome;

static void failures(tm_comm *world, void *context)
{
    const outcome *o = context;
    int            rank = tm_comm_rank(world);
    tm_error       own = { 0 };
    char           words[64], wanted[64] = "";
    snprintf(words, sizeof words, "%d is out of paper", rank);
    tm_status st = o->failure[rank] == TM_OK ? TM_OK : tm_fail(&own, o->failure[rank], "%s", words);
    if (o->failure[rank] != TM_OK)
        snprintf(wanted, sizeof wanted, "%s", words); /* its own story stays */
    else if (o->first >= 0)
        snprintf(wanted, sizeof wanted, "rank %d: %d is out of paper", o->first, o->first);
    tm_status got = agree_status(world, "printing", st, &own);
    CHECK(got == (o->first < 0 ? TM_OK : o->failure[o->first]));
    CHECK(strcmp(own.text, wanted) == 0);
    /* The world is not failed by it. */
    int64_t one = 1;
    CHECK_OK(agree_sum(world, "afterwards", &one, 1, err));
    CHECK(one == RANKS);
}

TEST(all_ranks_agree)
{
    static const outcome outcomes[] = { { { TM_OK, TM_OK, TM_OK, TM_OK }, -1 },
                                        { { TM_IO, TM_OK, TM_OK, TM_OK }, 0 },
                                        { { TM_OK, TM_OK, TM_OK, TM_NUMBERS }, 3 },
                                        { { TM_OK, TM_NOMEM, TM_IO, TM_OK }, 1 },
                                        { { TM_FORMAT, TM_NOMEM, TM_IO, TM_INVALID }, 0 },
                                        { { TM_OK, TM_OK, TM_INTERRUPTED, TM_IO }, 2 } };
    run_world(RANKS, NULL, 20, false, numbers, NULL);
    for (size_t i = 0; i < sizeof outcomes / sizeof outcomes[0]; i++)
        run_world(RANKS, NULL, 20, false, failures, (void *)&outcomes[i]);
}

/* Rank 0 says that it has failed, and is gone before it says how: rank 1 keeps its own failure, if it has one. */
static void gone_in_between(tm_comm *world, void *context)
{
    const tm_status own_failure = *(tm_status *)context;
    int64_t         first = 2;
    tm_error        own = { 0 };
    if (tm_comm_rank(world) == 0) {
        CHECK_OK(agree_max(world, "printing", &first, 1, err));
        CHECK(tm_comm_fail(world, TM_NOMEM, &own, "it is gone") == TM_NOMEM);
        return;
    }
    tm_status st = own_failure == TM_OK ? TM_OK : tm_fail(&own, own_failure, "no paper");
    CHECK(agree_status(world, "printing", st, &own) == (own_failure == TM_OK ? TM_NOMEM : own_failure));
    CHECK(strcmp(own.text, own_failure == TM_OK ? "it is gone" : "no paper") == 0);
}

TEST(a_rank_is_gone_before_it_says_why)
{
    tm_status failures_of_one[] = { TM_OK, TM_NUMBERS };
    for (int i = 0; i < 2; i++) run_world(2, NULL, 20, false, gone_in_between, &failures_of_one[i]);
}
