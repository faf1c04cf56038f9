/* SPDX-License-Identifier: Apache-2.0 */
/* The built-in language: its stated entropies against samples, its predictability by short contexts, its laws. */
#include "data/opened.h"

static tm_source *open_language(int64_t vocab, int64_t seq, uint64_t seed)
{
    tm_source_options options = { .name = "synthetic", .vocab = vocab, .seq = seq, .seed = seed };
    return open_source(&options);
}

/* The mean of the exact -log p along n samples lies within 5 standard errors of the stated floor. */
static void check_floor(int64_t vocab, int64_t seq, int64_t n)
{
    tm_source *source = open_language(vocab, seq, 11);
    double     floor = tm_source_describe(source)->floor, sum = 0, squares = 0;
    int32_t   *tokens = malloc((size_t)(seq + 1) * sizeof *tokens);
    assert_non_null(tokens);
    for (int64_t i = 0; i < n; i++) {
        tm_source_sample(source, TM_SPLIT_VALIDATION, i, tokens);
        for (int64_t t = 0; t <= seq; t++)
            assert_true(tokens[t] >= 0 && tokens[t] < tm_source_describe(source)->vocab_needed);
        double nats = tm_source_nats(source, tokens) / (double)seq;
        sum += nats;
        squares += nats * nats;
    }
    double mean = sum / (double)n, variance = fmax(squares / (double)n - mean * mean, 0);
    double error = sqrt(variance / (double)n);
    print_message("vocab %lld, T %lld: floor %.5f, sampled %.5f +- %.5f\n", (long long)vocab, (long long)seq, floor,
                  mean, error);
    if (!(fabs(mean - floor) <= 5 * error + 1e-12)) fail_msg("floor %.6f, sampled %.6f +- %.6f", floor, mean, error);
    free(tokens);
    tm_source_close(source);
}

TEST(floor_is_the_mean_of_minus_log_p)
{
    check_floor(64, 256, 3000);
    check_floor(64, 17, 3000);
    check_floor(64, 5, 100); /* nothing but starts */
    check_floor(64, 1, 10);
    check_floor(8, 128, 3000);
    check_floor(33, 256, 1000);
    check_floor(50257, 256, 1000);
}

/* By hand, for T = 256, V = 64: e = 0.1, M = 16, C = 4, K = 16. */
TEST(floor_has_the_documented_value)
{
    tm_source *source = open_language(64, 256, 1);
    double     q = 0.90625, other = 0.00625;
    double     h = log(4) - q * log(q) - 15 * other * log(other);
    double     floor = (15 * log(64) + 241 * h) / 256;
    assert_true(fabs(tm_source_describe(source)->floor - floor) < 1e-12);
    assert_true(fabs(floor - 2.0807) < 1e-4);
    tm_source_close(source);
}

/* The probabilities of all possible tokens at a place add up to 1, whatever came before. */
TEST(probabilities_add_up)
{
    const int64_t vocabs[] = { 8, 31, 64 };
    for (int v = 0; v < 3; v++) {
        tm_source *source = open_language(vocabs[v], 40, 2);
        int32_t    tokens[41];
        for (int64_t last = 1; last <= 40; last++) {
            tm_source *shorter = open_language(vocabs[v], last, 2); /* same language, ends at `last` */
            tm_source_sample(source, TM_SPLIT_TRAIN, last, tokens);
            double before = 0, sum = 0;
            if (last > 1) {
                tm_source *before_last = open_language(vocabs[v], last - 1, 2);
                before = tm_source_nats(before_last, tokens);
                tm_source_close(before_last);
            }
            for (int32_t x = 0; x < tm_source_describe(source)->vocab_needed; x++) {
                tokens[last] = x;
                sum += exp(before - tm_source_nats(shorter, tokens));
            }
            if (!(fabs(sum - 1) < 1e-12))
                fail_msg("vocab %lld, place %lld: %.15f", (long long)vocabs[v], (long long)last, sum);
            tm_source_close(shorter);
        }
        tokens[7] = 9999;
        assert_true(isinf(tm_source_nats(source, tokens)));
        tm_source_close(source);
    }
}

TEST(at_least_half_a_nat_below_order_3)
{
    for (int64_t vocab = 8; vocab <= 80; vocab++) {
        tm_source             *source = open_language(vocab, 256, 1);
        const tm_source_facts *facts = tm_source_describe(source);
        assert_true(facts->vocab_needed <= vocab && facts->vocab_needed <= 64);
        if (!(facts->floor + 0.5 <= facts->ngram3_entropy))
            fail_msg("vocab %lld: floor %.4f, order 3 %.4f", (long long)vocab, facts->floor, facts->ngram3_entropy);
        tm_source_close(source);
    }
}

TESTS_IN_ORDER
