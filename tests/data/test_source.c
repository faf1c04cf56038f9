/* SPDX-License-Identifier: Apache-2.0 */
/* Finding sources, options that cannot be, and the mock source. */
#include "data/opened.h"
#include "data/source_kind.h"

TEST(wrong_options_are_refused_with_the_cure)
{
    expect_refusal(&(tm_source_options){ .name = "sinthetic", .vocab = 64, .seq = 8 }, "did you mean 'synthetic'", "");
    expect_refusal(&(tm_source_options){ .name = "", .vocab = 64, .seq = 8 },
                   "mock, pictures, preference, reports, sft, synthetic, text", "");
    expect_refusal(&(tm_source_options){ .name = "mock", .vocab = 64, .seq = 0 }, "training.seq_len", "");
    expect_refusal(&(tm_source_options){ .name = "mock", .vocab = 0, .seq = 8 }, "model.vocab_size", "");
    expect_refusal(&(tm_source_options){ .name = "mock", .vocab = (int64_t)1 << 40, .seq = 8 }, "model.vocab_size", "");
    expect_refusal(&(tm_source_options){ .name = "synthetic", .vocab = 7, .seq = 8 }, "set model.vocab_size to 8", "");
    expect_refusal(&(tm_source_options){ .name = "reports", .vocab = 15, .seq = 128 }, "needs 16 tokens", "");
    expect_refusal(&(tm_source_options){ .name = "text", .seq = 8 }, "set data.path", "");
    expect_refusal(&(tm_source_options){ .name = "text", .path = "/", .seq = 8, .vocab = 64 },
                   "model.vocab_size to 257", "");
    expect_refusal(&(tm_source_options){ .name = "text", .path = "/", .seq = 8, .validation_fraction = 1 }, "0 to 0.9",
                   "");
    expect_refusal(&(tm_source_options){ .name = "text", .path = "/", .seq = 8, .validation_fraction = (double)NAN },
                   "0 to 0.9", "");
}

/* An outline is what a dry run tells of files; options that cannot be are refused there, too. */
TEST(who_has_an_outline)
{
    static const char *const with[] = { "govreport", "latents", "megatron", "preference", "sft" }, *const without[] = {
        "synthetic", "mock", "text", "reports", "gaussians", "nosuch"
    };
    for (size_t i = 0; i < 5; i++) assert_true(tm_source_has_outline(with[i]));
    for (size_t i = 0; i < 6; i++) assert_false(tm_source_has_outline(without[i]));
    tm_text out = { 0 };
    assert_ok(tm_source_outline(&(tm_source_options){ .name = "mock", .vocab = 8, .seq = 8 }, &out, err));
    assert_refused(tm_source_outline(&(tm_source_options){ .name = "mock", .vocab = 8 }, &out, err), TM_INVALID, "");
    assert_int_equal(tm_source_outline(&(tm_source_options){ .name = "nosuch", .seq = 8 }, &out, NULL), TM_INVALID);
    assert_int_equal(out.length, 0);
}

TESTS_IN_ORDER
