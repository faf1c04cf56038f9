/* SPDX-License-Identifier: Apache-2.0 */
/* What is wrong with received data, and whose it is: one sender's part, or a sum, is damaged in each way, and has to be
 * named so. */
#include "apps/node/payload_value.h"

#include "support/test.h"

enum { SIZE = 4, RANK = 2, FROM = 3, OTHER = 1, COUNT = 40, ROOM = 1024 };
static const int member[SIZE] = { 10, 11, 12, 13 }, partner[SIZE] = { 1, 0, 3, 2 };

typedef struct {
    tm_wrong_how how;
    int          other; /* how many calls before */
    long         shift;
    const char  *words;
} damage;

static const damage damages[] = {
    { TM_WRONG_NOT_WRITTEN, 0, 0, "not written at all" },
    { TM_WRONG_ZEROS, 0, 0, "zeros" },
    { TM_WRONG_EARLIER, 1, 0, "of the call before" },
    { TM_WRONG_EARLIER, 2, 0, "of a call 2 before" },
    { TM_WRONG_SWAPPED, 0, 0, "rank 11's in place of rank 13's" },
    { TM_WRONG_MISSENT, 0, 0, "what rank 13 sent to rank 11" },
    { TM_WRONG_SHIFTED, 0, 1, "shifted by 1 element" },
    { TM_WRONG_SHIFTED, 0, -1, "shifted by -1 element" },
    { TM_WRONG_SHIFTED, 0, 16, "shifted by 16 elements" },
    { TM_WRONG_SHIFTED, 0, 17, "other values" },
    { TM_WRONG_BITS, 0, 0, "right but for one bit each" },
    { TM_WRONG_VALUES, 0, 0, "other values" },
};

typedef struct {
    tm_payload_call call[3]; /* and the two before it */
    unsigned char   got[ROOM], want[ROOM], was[ROOM], earlier[3][ROOM];
    size_t          each, begin, n; /* of the part that is damaged */
} received;

static void receive(received *r, tm_comm_kind kind, bool uneven)
{
    const bool sum = kind == TM_COMM_ALL_REDUCE || kind == TM_COMM_REDUCE_SCATTER;
    memset(r, 0, sizeof *r);
    for (uint64_t i = 0; i < 3; i++) {
        r->call[i] = (tm_payload_call){ .seed = 9,
                                        .number = 7 - i,
                                        .kind = kind,
                                        .op = TM_COMM_SUM,
                                        .format = TM_COMM_FLOAT32,
                                        .values = sum ? TM_PAYLOAD_ORDER : TM_PAYLOAD_BITS,
                                        .count = COUNT,
                                        .root = FROM,
                                        .uneven = uneven,
                                        .member = member,
                                        .partner = partner,
                                        .size = SIZE };
        tm_payload_receive_image(&r->call[i], RANK, r->earlier[i]);
    }
    memcpy(r->want, r->earlier[0], ROOM);
    memcpy(r->got, r->want, ROOM);
    tm_payload_fill(&r->call[0], r->was, ROOM);
    r->each = tm_payload_bytes(TM_COMM_FLOAT32);
    r->n = kind == TM_COMM_ALL_TO_ALL ? tm_payload_piece(r->call, FROM, RANK) : COUNT;
    if (kind == TM_COMM_ALL_GATHER) r->begin = FROM * COUNT;
    for (int k = 0; k < FROM && kind == TM_COMM_ALL_TO_ALL; k++) r->begin += tm_payload_piece(r->call, k, RANK);
}

static void spoil(received *r, const damage *d, size_t i)
{
    const size_t   place = (r->begin + i) * r->each;
    const long     moved = (long)i + d->shift;
    unsigned char *to = r->got + place;
    memset(to, 0, r->each);
    if (d->how == TM_WRONG_NOT_WRITTEN) memcpy(to, r->was + place, r->each);
    if (d->how == TM_WRONG_EARLIER) memcpy(to, r->earlier[d->other] + place, r->each);
    if (d->how == TM_WRONG_SWAPPED) tm_payload_put(r->call, OTHER, RANK, i, 1, to);
    if (d->how == TM_WRONG_MISSENT) tm_payload_put(r->call, FROM, OTHER, i, 1, to);
    if (d->how == TM_WRONG_VALUES || moved < 0 || moved >= (long)r->n) memset(to, (int)(i * 37 % 251) + 1, r->each);
    if (d->how == TM_WRONG_SHIFTED && moved >= 0 && moved < (long)r->n)
        memcpy(to, r->want + (r->begin + (size_t)moved) * r->each, r->each);
    if (d->how == TM_WRONG_BITS) memcpy(to, r->want + place, r->each), to[i % 4] ^= (unsigned char)(1 << i % 8);
}

/* Elements [first, end) of the part are damaged: so it is told. */
static void is_told(received *r, const damage *d, size_t first, size_t end, size_t index, bool sum)
{
    const tm_payload_case k = { .call = r->call,
                                .earlier = r->call + 1,
                                .n_earlier = 2,
                                .rank = RANK,
                                .got = r->got,
                                .want = r->want,
                                .was = r->was };
    const tm_wrong_how    how = strcmp(d->words, "other values") == 0 ? TM_WRONG_VALUES : d->how;
    tm_wrong              w[SIZE];
    char                  text[160], wanted[160];
    assert_int_equal(tm_payload_diagnose(&k, w, SIZE), 0);
    for (size_t i = first; i < end; i++) spoil(r, d, i);
    assert_int_equal(tm_payload_diagnose(&k, w, SIZE), 1);
    const size_t n = end - first, last = index + end - 1;
    if (how <= TM_WRONG_EARLIER && end == r->n && n > 1 && first > 0)
        snprintf(wanted, sizeof wanted, "the tail, elements %zu .. %zu, is lost: %s", index + first, last, d->words);
    else if (n == 1)
        snprintf(wanted, sizeof wanted, "element %zu (of %zu) is %s", index + first, r->n, d->words);
    else
        snprintf(wanted, sizeof wanted, "%zu of %zu elements, %zu .. %zu, are %s", n, r->n, index + first, last,
                 d->words);
    assert_string_equal(tm_wrong_text(w, text), wanted);
    assert_int_equal(w->how, how);
    assert_int_equal(w->from, sum ? -1 : member[FROM]);
}

TEST(damaged_data_of_a_sender)
{
    static const tm_comm_kind kinds[] = { TM_COMM_ALL_GATHER, TM_COMM_BROADCAST, TM_COMM_SEND, TM_COMM_ALL_TO_ALL,
                                          TM_COMM_ALL_TO_ALL };
    static received           r;
    for (size_t k = 0; k < 5; k++)
        for (size_t d = 0; d < sizeof damages / sizeof damages[0]; d++) {
            const tm_wrong_how how = damages[d].how;
            const bool         all = kinds[k] == TM_COMM_ALL_TO_ALL;
            if ((how == TM_WRONG_MISSENT && !all)) continue;
            for (int where = 0; where < 3; where++) { /* to the end, within, one element */
                receive(&r, kinds[k], k == 4);
                const size_t end = where == 0 ? r.n : where == 1 ? r.n - 2 : 6;
                if (where == 2 && how >= TM_WRONG_SHIFTED && how != TM_WRONG_BITS) continue;
                is_told(&r, &damages[d], where == 2 ? 5 : 3, end, 0, false);
            }
        }
}

/* As a whole; whose data is wrong within a sum: test_collectives_check.c. */
TEST(damaged_sums)
{
    static const tm_comm_kind kinds[] = { TM_COMM_ALL_REDUCE, TM_COMM_REDUCE_SCATTER };
    static received           r;
    for (size_t k = 0; k < 2; k++)
        for (size_t d = 0; d < 4; d++)
            for (int where = 0; where < 2; where++) {
                receive(&r, kinds[k], false);
                is_told(&r, &damages[d], 3, where ? r.n : r.n - 1, k == 1 ? RANK * COUNT : 0, true);
            }
}

TEST(each_sender_has_its_own)
{
    static received       r;
    tm_wrong              w[SIZE];
    const tm_payload_case k = { .call = r.call, .rank = RANK, .got = r.got, .want = r.want, .was = r.was };
    receive(&r, TM_COMM_ALL_GATHER, false);
    memset(r.got, 0, r.each);
    memset(r.got + (SIZE * COUNT - 1) * r.each, 0, r.each);
    assert_int_equal(tm_payload_diagnose(&k, w, SIZE), 2);
    assert_true(w[0].from == member[0] && w[0].first == 0 && w[1].from == member[3] && w[1].last == COUNT - 1);
    assert_int_equal(tm_payload_diagnose(&k, w, 1), 1);
}
