/* SPDX-License-Identifier: Apache-2.0 */
/* The language of packed documents with answers: what it is said to be, counted; and its floors. */
#include "data/opened.h"

enum { T = 128, V = 64, ROWS = 4000 };

static tm_source *open_reports(uint64_t seed, bool plain)
{
    tm_source_options o = { .name = "reports", .vocab = V, .seq = T, .seed = seed, .plain_answers = plain };
    return open_source(&o);
}

typedef struct {
    int32_t tokens[T], targets[T], scratch[T + 1];
    int64_t weight;
} row;

static void read_row(const tm_source *source, tm_split split, int64_t index, row *r)
{
    void *fields[TM_MAX_FIELDS] = { r->tokens, r->targets };
    assert_ok(tm_source_row(source, split, index, r->scratch, fields, &r->weight, err));
}

/* How often b follows a, in reports [0] and answers [1]; the bytes of a document tell where it is. */
typedef struct {
    double pairs[2][V][V];
    double counted, n; /* predictions that count; all */
} counts;

static void count(const tm_source *source, tm_split split, counts *c)
{
    memset(c, 0, sizeof *c);
    for (int64_t i = 0; i < ROWS; i++) {
        row r;
        int part = 0;
        read_row(source, split, i, &r);
        int64_t weight = 0;
        for (int t = 0; t < T; t++) {
            if (r.tokens[t] == 0) part = 0;
            if (r.tokens[t] == 1) part = 1;
            int32_t next = t + 1 < T ? r.tokens[t + 1] : r.scratch[T];
            bool    counts_here = r.targets[t] != TM_IGNORED_TARGET;
            assert_true(!counts_here || r.targets[t] == next);
            assert_true(counts_here == (split == TM_SPLIT_TRAIN || part == 1));
            weight += counts_here;
            if (counts_here) c->pairs[part][r.tokens[t]][next]++;
        }
        assert_int_equal(r.weight, weight);
        c->counted += (double)weight;
        c->n += T;
    }
}

/* Nats per counted prediction by the frequencies of pairs. */
static double entropy_of(const counts *c)
{
    double nats = 0;
    for (int part = 0; part < 2; part++)
        for (int a = 0; a < V; a++) {
            double all = 0;
            for (int b = 0; b < V; b++) all += c->pairs[part][a][b];
            for (int b = 0; b < V; b++)
                if (c->pairs[part][a][b] > 0) nats -= c->pairs[part][a][b] * log(c->pairs[part][a][b] / all);
        }
    return nats / c->counted;
}

TEST(floors_are_what_is_counted)
{
    static counts c;
    for (int plain = 0; plain < 2; plain++) {
        tm_source             *source = open_reports(7, plain);
        const tm_source_facts *facts = tm_source_describe(source);
        count(source, TM_SPLIT_TRAIN, &c);
        /* The frequencies of n pairs are off by some (kinds of pairs) / 2 n, downwards. */
        assert_true(fabs(entropy_of(&c) - facts->floor) < 0.005);
        count(source, TM_SPLIT_VALIDATION, &c);
        assert_true(c.counted > 0.15 * c.n && c.counted < 0.3 * c.n);
        assert_true(fabs(entropy_of(&c) - facts->validation_floor) < 0.01);
        assert_true(facts->validation_floor > facts->floor);
        assert_int_equal(facts->vocab_needed, V);
        tm_source_close(source);
    }
}

/* Which pairs occur at all: in answers and in reports; the language does not depend on the seed. */
TEST(answers_rename_a_tenth_of_the_symbols)
{
    static counts plain, renamed, other;
    tm_source    *sources[] = { open_reports(7, true), open_reports(7, false), open_reports(8, false) };
    count(sources[0], TM_SPLIT_TRAIN, &plain);
    count(sources[1], TM_SPLIT_TRAIN, &renamed);
    count(sources[2], TM_SPLIT_TRAIN, &other);
    int same = 0, moved = 0, n = 0;
    for (int a = 2; a < V; a++)
        for (int b = 2; b < V; b++) {
            bool report = renamed.pairs[0][a][b] > 0, answer = renamed.pairs[1][a][b] > 0;
            assert_true(report == (plain.pairs[0][a][b] > 0));
            assert_true(report == (plain.pairs[1][a][b] > 0));
            assert_true(report == (other.pairs[0][a][b] > 0));
            assert_true(answer == (other.pairs[1][a][b] > 0));
            n += report;
            same += report && answer;
            moved += answer && !report;
        }
    assert_true(n > 3 * (V - 2) && n <= 4 * (V - 2));
    assert_true(moved > n / 8 && moved < n / 2 && same > n / 2); /* 3 of 31 pairs of symbols changed places */
    for (int i = 0; i < 3; i++) tm_source_close(sources[i]);
}

TESTS_IN_ORDER
