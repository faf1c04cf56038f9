/* SPDX-License-Identifier: Apache-2.0 */
/* What planted faults do to the calls of three ranks: exactly the elements that they name, on the ranks that they name,
 * in the call that they name. */
#include "faults.h"

#include "comm/world.h"
#include "support/test.h"

enum { RANKS = 3, MOST = 12, CALLS = 3, UNTOUCHED = -7 };

/* Elements that each rank received in each of three equal calls; what it sent is as it was. */
typedef struct {
    tm_comm_kind kind;
    size_t       count;
    int          peer;
    bool         in_place, pieces;
    int64_t      got[CALLS][RANKS][MOST];
} trial;

/* Elements from each rank to each other one. */
static const size_t piece_counts[RANKS][RANKS] = { { 1, 2, 1 }, { 2, 1, 2 }, { 1, 2, 1 } };

static int64_t value(int rank, int i)
{
    return 1000 * (rank + 1) + i;
}

static void three_calls(tm_comm *comm, void *context)
{
    trial        *t = context;
    int           rank = tm_comm_rank(comm);
    bool          pair = t->kind == TM_COMM_SEND;
    tm_comm_kind  kind = pair && rank != t->peer ? TM_COMM_RECEIVE : t->kind;
    tm_collective call = {
        .kind = kind, .format = TM_COMM_INT64, .count = t->count, .peer = t->peer, .what = "sums of it"
    };
    if (pair && rank == 2) return;
    if (pair) call.peer = rank == t->peer ? 1 - t->peer : t->peer;
    if (t->pieces) call.send_counts = call.receive_counts = piece_counts[rank];
    for (int k = 0; k < CALLS; k++) {
        int64_t send[MOST], receive[MOST];
        for (int i = 0; i < MOST; i++) send[i] = value(rank, i), receive[i] = UNTOUCHED;
        call.send = kind == TM_COMM_RECEIVE ? NULL : send;
        call.receive = kind == TM_COMM_SEND ? NULL : t->in_place ? send : receive;
        if (t->in_place && kind == TM_COMM_REDUCE_SCATTER) call.receive = send + (size_t)rank * t->count;
        /* The second one inside of a launch: it counts as a call of the rank all the same. */
        fault_place launch = { .number = 1 };
        faults_rank()->place = k == 1 ? &launch : NULL;
        CHECK_OK(tm_comm_run(comm, &call, err));
        CHECK(faults_rank()->place == (k == 1 ? &launch : NULL));
        faults_rank()->place = NULL;
        for (int i = 0; i < MOST && !t->in_place; i++) CHECK(send[i] == value(rank, i));
        for (int i = 0; i < MOST; i++) t->got[k][rank][i] = t->in_place ? send[i] : receive[i];
    }
}

static void with(const char *text, trial *t)
{
    tm_error err = { 0 };
    if (faults_plant(text, &err) != TM_OK) fail_msg("%s", err.text);
    memset(t->got, 0, sizeof t->got);
    run_world(RANKS, NULL, 60, false, three_calls, t);
    assert_int_equal(faults_plant(NULL, &err), TM_OK);
}

/* One rank, and elements that are something else than in a run without a fault. */
typedef struct {
    const char  *text;
    tm_comm_kind kind;
    size_t       count;
    unsigned     ranks; /* bit r: the elements of rank r are wrong */
    int          first, n;
    enum { ZEROS, OLD, MOVED } how; /* zeros, what was there, or the element `moved` further on */
    int  moved;
    bool pieces;
} row;

#define ALL 7u
static const row rows[] = {
    { "stale,of=1,at=2", TM_COMM_ALL_GATHER, 4, 5, 4, 4, ZEROS, 0, false },
    { "stale,of=1,at=2", TM_COMM_ALL_REDUCE, 6, ALL, 2, 2, ZEROS, 0, false },
    { "stale,of=1,at=2", TM_COMM_REDUCE_SCATTER, 4, 2, 0, 4, ZEROS, 0, false },
    { "stale,of=1,at=2", TM_COMM_BROADCAST, 5, 5, 0, 5, ZEROS, 0, false },
    { "stale,of=1,at=2", TM_COMM_ALL_TO_ALL, 2, 5, 2, 2, ZEROS, 0, false },
    { "stale,of=2,at=2,rank=1", TM_COMM_ALL_TO_ALL, 0, 2, 3, 2, ZEROS, 0, true },
    { "tail,elements=2,at=2,rank=1", TM_COMM_ALL_TO_ALL, 0, 2, 3, 2, OLD, 0, true },
    { "stale,of=1,at=2", TM_COMM_SEND, 3, 1, 0, 3, ZEROS, 0, false },
    { "stale,of=1,at=2,op=all_reduce", TM_COMM_ALL_GATHER, 4, 0, 0, 0, ZEROS, 0, false },
    { "stale,of=1,at=2,name=other", TM_COMM_ALL_GATHER, 4, 0, 0, 0, ZEROS, 0, false },
    { "tail,elements=2,at=2", TM_COMM_ALL_GATHER, 4, ALL, 10, 2, OLD, 0, false },
    { "tail,elements=99,at=2", TM_COMM_REDUCE_SCATTER, 4, ALL, 0, 4, OLD, 0, false },
    { "swap,ranks=0-2,at=2", TM_COMM_ALL_GATHER, 4, ALL, 0, 4, MOVED, 8, false },
    { "swap,ranks=0-2,at=2", TM_COMM_ALL_TO_ALL, 2, ALL, 0, 2, MOVED, 4, false },
    { "swap,ranks=0-3,at=2", TM_COMM_ALL_GATHER, 4, 0, 0, 0, MOVED, 0, false },
};

TEST(the_elements_that_are_named)
{
    static trial plain, faulty;
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        const row *x = &rows[r];
        plain = faulty = (trial){ .kind = x->kind, .count = x->count, .peer = 1, .pieces = x->pieces };
        with(NULL, &plain);
        with(x->text, &faulty);
        for (int k = 0; k < CALLS; k++)
            for (int rank = 0; rank < RANKS; rank++)
                for (int i = 0; i < MOST; i++) {
                    const int64_t *right = plain.got[k][rank];
                    bool           hit = k == 1 && (x->ranks >> rank & 1u);
                    int64_t        want = right[i];
                    if (hit && i >= x->first && i < x->first + x->n)
                        want = x->how == ZEROS ? 0 : x->how == OLD ? UNTOUCHED : right[i + x->moved];
                    if (hit && x->how == MOVED && i >= x->first + x->moved && i < x->first + x->moved + x->n)
                        want = right[i - x->moved];
                    if (faulty.got[k][rank][i] != want)
                        fail_msg("%s, kind %d: call %d, rank %d, element %d: %lld, expected %lld", x->text,
                                 (int)x->kind, k + 1, rank, i, (long long)faulty.got[k][rank][i], (long long)want);
                }
    }
}

TEST(one_bit_of_a_message)
{
    static trial plain, faulty;
    for (int sends = 0; sends < 2; sends++) {
        plain = faulty = (trial){ .kind = TM_COMM_ALL_REDUCE, .count = 3 };
        with(NULL, &plain);
        with(sends ? "flip,where=message,side=send,rank=1,bit=40,at=3" : "flip,where=message,rank=1,bit=40,at=3",
             &faulty);
        for (int k = 0; k < CALLS; k++)
            for (int rank = 0; rank < RANKS; rank++) {
                int wrong = 0; /* what a rank sends wrongly all have in their sums */
                for (int i = 0; i < MOST; i++) {
                    int64_t by = faulty.got[k][rank][i] - plain.got[k][rank][i];
                    if (by != 0) assert_int_equal(llabs(by), (int64_t)1 << 40);
                    wrong += by != 0;
                }
                assert_int_equal(wrong, k == 2 && (sends || rank == 1));
            }
    }
}
