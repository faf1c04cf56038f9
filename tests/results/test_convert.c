/* SPDX-License-Identifier: Apache-2.0 */
/* Published figures and what they are by other conventions, worked out by hand from the formulas of docs/flops.md.
 * Tables: tests/cli/test_convert.c. */

#include "support/test.h"

#include "apps/bench/bench.h"
#include "results/convert.h"

static tm_speed_basis basis_of(const char *model, int64_t seq)
{
    tm_speed_basis b = { .devices = 1 };
    int64_t        own;
    assert_int_equal(tm_bench_model(model, &b.shape, &own, NULL), TM_OK);
    b.seq = seq;
    return b;
}

static double speed(const tm_speed_basis *b, double value, const char *unit, const char *convention, bool all)
{
    double   rate;
    tm_error err = { 0 };
    if (tm_speed_of(b, value, unit, convention, all, &rate, &err) != TM_OK) fail_msg("%s", err.text);
    return rate;
}

static void expect(double value, double wanted, double relative)
{
    if (!(fabs(value / wanted - 1) <= relative)) fail_msg("%.8g, wanted %.8g", value, wanted);
}

/* tokens/s, and FLOP/s of a token by another convention. */
TEST(published_figures_convert)
{
    tm_speed_basis small = basis_of("gpt-small", 512), llama = basis_of("llama3.1_8B", 8192);
    /* torchtitan's H100 runs: 5,762 and 6,667 tokens/s are 33.7 and 39.0 % of 989 TFLOP/s. */
    double titan = tm_convention_flops(&llama, "titan");
    expect(titan, 5.79144e10, 1e-5);
    expect(speed(&llama, 333.7, "TFLOPS", "titan", false), 5762, 1e-3);
    expect(6667 * titan / 989e12, 0.390, 2e-3);
    /* The container's row: 542.94 by F2 is 9,375 tokens/s, a micro-batch of 3 in 2.621 s, and 482.5 by F3. */
    double rate = speed(&llama, 542.94, "TFLOP/s", "matmul", false);
    expect(rate, 9375.1, 1e-5);
    expect(3 * 8192 / rate, 2.621, 2e-4);
    expect(rate * tm_convention_flops(&llama, "megatron") / 1e12, 482.5, 1e-3);
    llama.batch = 3;
    expect(speed(&llama, 2.62140, "s/step", NULL, false), 9375.1, 1e-4);
    expect(speed(&llama, 2621.40, "ms/step", NULL, false), 9375.1, 1e-4);
    /* 4,096 tokens: 523.79 is 10,176.5. */
    llama.seq = 4096;
    expect(speed(&llama, 523.79, "tflops", "matmul", false), 10176.5, 1e-5);
    /* The GPT table by 6 N. */
    expect(speed(&small, 171.8, "TFLOP/s", "6n", false), 950586, 2e-2);
    /* MLPerf: 30.69 samples/s of 8 devices are 31,427 tokens/s each. */
    llama.seq = 8192;
    llama.devices = 8;
    expect(speed(&llama, 30.69, "samples/s", NULL, true), 31427, 1e-4);
    expect(speed(&llama, 30.69, "samples/s", NULL, true) * titan / 1e12, 1820, 1e-3);
}

TEST(lora_counts_frozen_weights)
{
    tm_speed_basis b = basis_of("llama2_70B", 8192);
    expect(tm_convention_flops(&b, "lora"), 3.3928e11, 1e-4);
    expect(tm_convention_flops(&b, "lora-causal"), 3.0706e11, 1e-4);
    b.devices = 8;
    double rate = speed(&b, 5.875, "samples/s", NULL, true);
    expect(rate, 6016, 1e-4);
    expect(rate * tm_convention_flops(&b, "lora") / 1e12, 2041, 1e-3);
    b.lora_parameters = 1e9;
    expect(tm_convention_flops(&b, "lora"), 3.3928e11 + 6e9, 1e-4);
}

TEST(images_have_a_length)
{
    tm_speed_basis b = { .devices = 1 };
    int64_t        seq;
    tm_error       err = { 0 };
    if (tm_bench_model("flux.1-dev", &b.shape, &seq, &err) != TM_OK) fail_msg("%s", err.text);
    b.seq = tm_model_length(&b.shape);
    assert_true(b.seq > 0);
    expect(tm_convention_flops(&b, "exact-causal") * (double)b.seq, 64.508e12, 1e-5); /* 512 x 512 with 512 of text */
    double rate = speed(&b, 4.51, "images/s", NULL, false);
    expect(rate * tm_convention_flops(&b, "exact-causal") / 1e12, 290.9, 2e-4);
}

TEST(budgets_are_counted)
{
    expect(tm_token_count("300B"), 3e11, 0);
    expect(tm_token_count("8,192"), 8192, 0);
    expect(tm_token_count("1.5e12"), 1.5e12, 0);
    expect(tm_token_count("20k"), 20000, 0);
    static const char *const none[] = { "", "T", "15X", "15TT", "-3B", "0", "15 T", "inf" };
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) assert_true(isnan(tm_token_count(none[i])));
}

TEST(what_is_not_known_is_refused)
{
    tm_speed_basis b = basis_of("llama3.1_8B", 8192);
    double         rate;
    assert_int_equal(tm_speed_of(&b, 1, "TFLOP/s", NULL, false, &rate, NULL), TM_USAGE);
    assert_int_equal(tm_speed_of(&b, 1, "TFLOP/s", "f9", false, &rate, NULL), TM_USAGE);
    assert_int_equal(tm_speed_of(&b, 1, "furlongs", NULL, false, &rate, NULL), TM_USAGE);
    assert_int_equal(tm_speed_of(&b, 1, "s/step", NULL, false, &rate, NULL), TM_INVALID);
    assert_true(isnan(tm_convention_flops(&b, "nothing")));
}
