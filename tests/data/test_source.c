/* SPDX-License-Identifier: Apache-2.0 */
/* Finding sources, options that cannot be, and the mock source. */
#include "data/source_kind.h"
#include "support/refusal.h"

#include <math.h>
#include <string.h>

#include "support/test.h"

static void expect_refusal(const tm_source_options *options, const char *part)
{
    tm_source *source = NULL;
    tm_error   err = { 0 };
    assert_int_equal(tm_source_open(options, &source, &err), TM_INVALID);
    assert_null(source);
    refusal_is_sound(&err);
    if (!strstr(err.text, part)) fail_msg("wanted '%s' in: %s", part, err.text);
}

/* Nothing behind a full row cuts no document. */
TEST(an_empty_document_cuts_nothing)
{
    int32_t      targets[4] = { 5, 6, 7, 8 }, positions[4], first_key[4];
    void *const  fields[] = { NULL, targets, positions, first_key };
    tm_documents d = tm_documents_of(fields, 4);
    tm_documents_add(&d, 0);
    tm_documents_add(&d, 3);
    tm_documents_add(&d, 0);
    tm_documents_add(&d, 1);
    tm_documents_add(&d, 0);
    assert_int_equal(tm_documents_end(&d), 3);
    assert_int_equal(targets[2], TM_IGNORED_TARGET);
    assert_int_equal(targets[3], 8);
    tm_documents_add(&d, 1);
    assert_int_equal(tm_documents_end(&d), 2);
    assert_int_equal(targets[3], TM_IGNORED_TARGET);
}

TEST(wrong_options_are_refused_with_the_cure)
{
    expect_refusal(&(tm_source_options){ .name = "sinthetic", .vocab = 64, .seq = 8 }, "did you mean 'synthetic'");
    expect_refusal(&(tm_source_options){ .name = "", .vocab = 64, .seq = 8 },
                   "mock, pictures, preference, reports, sft, synthetic, text");
    expect_refusal(&(tm_source_options){ .name = "mock", .vocab = 64, .seq = 0 }, "training.seq_len");
    expect_refusal(&(tm_source_options){ .name = "mock", .vocab = 0, .seq = 8 }, "model.vocab_size");
    expect_refusal(&(tm_source_options){ .name = "mock", .vocab = (int64_t)1 << 40, .seq = 8 }, "model.vocab_size");
    expect_refusal(&(tm_source_options){ .name = "synthetic", .vocab = 7, .seq = 8 }, "set model.vocab_size to 8");
    expect_refusal(&(tm_source_options){ .name = "reports", .vocab = 15, .seq = 128 }, "needs 16 tokens");
    expect_refusal(&(tm_source_options){ .name = "text", .seq = 8 }, "set data.path");
    expect_refusal(&(tm_source_options){ .name = "text", .path = "/", .seq = 8, .vocab = 64 },
                   "model.vocab_size to 257");
    expect_refusal(&(tm_source_options){ .name = "text", .path = "/", .seq = 8, .validation_fraction = 1 }, "0 to 0.9");
    expect_refusal(&(tm_source_options){ .name = "text", .path = "/", .seq = 8, .validation_fraction = (double)NAN },
                   "0 to 0.9");
}

/* 100 cells, 200,100 draws: chi-square with 99 degrees of freedom stays under 160 except once in 10,000 languages. */
TEST(mock_is_uniform_and_has_no_memory)
{
    enum { V = 10, T = 1000, N = 200 };
    tm_source_options options = { .name = "mock", .vocab = V, .seq = T, .seed = 9 };
    tm_source        *source = NULL;
    tm_error          err = { 0 };
    int32_t           x[T + 1], again[T + 1];
    double            pairs[V][V] = { { 0 } }, chi = 0;
    assert_int_equal(tm_source_open(&options, &source, &err), TM_OK);
    for (int i = 0; i < N; i++) {
        tm_source_sample(source, TM_SPLIT_TRAIN, i, x);
        tm_source_sample(source, TM_SPLIT_TRAIN, i, again);
        assert_memory_equal(x, again, sizeof x);
        tm_source_sample(source, TM_SPLIT_VALIDATION, i, again);
        assert_memory_not_equal(x, again, sizeof x);
        for (int t = 1; t <= T; t++) {
            assert_true(x[t] >= 0 && x[t] < V);
            pairs[x[t - 1]][x[t]]++;
        }
        assert_true(fabs(tm_source_nats(source, x) - T * log(V)) < 1e-9);
    }
    const double expected = (double)N * T / (V * V);
    for (int i = 0; i < V * V; i++) chi += pow(pairs[i / V][i % V] - expected, 2) / expected;
    if (!(chi < 160)) fail_msg("chi-square %.1f", chi);
    const tm_source_facts *facts = tm_source_describe(source);
    assert_true(fabs(facts->unigram_entropy - log(V)) < 1e-12 && fabs(facts->floor - log(V)) < 1e-12);
    assert_true(isnan(facts->ngram3_entropy) && isnan(facts->bytes_per_token));
    assert_int_equal(facts->vocab_needed, V);
    assert_int_equal(facts->end_token, -1);
    tm_text out = { 0 };
    assert_null(tm_source_decode(source, x, T, &out));
    x[4] = V;
    assert_true(isinf(tm_source_nats(source, x)));
    tm_source_close(source);
}

TESTS_IN_ORDER
