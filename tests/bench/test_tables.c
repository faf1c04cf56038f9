/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of workloads by the rules of their rows (table_rules.h). Every kernel takes a given time, so that all
 * times are known. */
#include "support/test.h"
#include "bench/table_rules.h"

TEST(stream_tables)
{
    static const struct {
        const char *arguments;
        double      seconds, least, most; /* samples */
        bool        stopped;
        const char *words;
    } cases[] = {
        { "elements=41 repetitions=1", 0, 1, 1, false, "samples" },
        { "elements=48 repetitions=3", 0, 3, 3, false, "samples" },
        { "elements=48 rep-ms=1 warmup-ms=1", 0, 20, 27, false, "samples" },
        { "elements=48 repetitions=2 rep-ms=1 precision=1 duration=1", 0, 2, 2, false, "samples" },
        { "elements=8", 1e-9, NAN, NAN, false, "the budget ended before a sample (--budget)" },
        { "elements=8", 0, NAN, NAN, true, "stopped while timing" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const trial what = { tm_workload_find("stream"), "cpu", cases[i].arguments,
                             cases[i].seconds,           NULL,  cases[i].stopped };
        const bool  one = cases[i].stopped; /* row, then it ends */
        table_follows(&what, one ? 1 : 9, one ? TM_INTERRUPTED : TM_OK, cases[i].words, stream_row);
        table_follows(&what, one ? 1 : 9, one ? TM_INTERRUPTED : TM_OK, "smaller than four times the last-level cache",
                      stream_row);
        tried t = try_workload(&what);
        for (size_t row = 0; row < tm_table_n_rows(t.table) && !isnan(cases[i].least); row++) {
            cell_within(t.table, row, "n", cases[i].least, cases[i].most);
            cell_is(t.table, row, "elements", i == 4 ? 8 : 48); /* a multiple of eight or so */
        }
        tried_fini(&t);
    }
}

/* Which products: their number, and the shape of one row. */
TEST(gemm_tables)
{
    static const char alone[] = "--M, --N, --K, --shapes and --model each say what to multiply; give one";
    static const struct {
        const char *device, *arguments;
        double      seconds;
        bool        stopped;
        size_t      rows;
        tm_status   status;
        const char *words;
    } cases[] = {
        { "cpu", "shapes=33x47x65,5x32x16:tn cache=both", 0, false, 4, TM_OK, "5x32x16" },
        { "cpu", "M=6 N=7 K=8 trans_b=true dtype=bf16 cache=warm seed=5", 0, false, 1, TM_OK, "bfloat16" },
        { "cpu", "M=6 N=7 K=8 trans_a=true dtype=bf16 c-dtype=fp32 cache=cold", 0, false, 1, TM_OK, "float32" },
        { "cpu", "M=6 N=7 K=8 dtype=float16 c-dtype=bfloat16 cache=warm", 0, false, 1, TM_OK, "bfloat16" },
        { "cpu", "model=tiny-llama seq=16 batch=2 cache=warm", 0, false, 15, TM_OK, "32x512x256" },
        { "cpu", "model=tiny-llama scale=16 cache=warm", 0, false, 15, TM_OK, "qkv wgrad, each side / 16" },
        { "cpu", "shapes=llama70b cache=both", 1e-3, false, 14, TM_OK, "16384x8192x7168" },
        { "cpu", "shapes=8192x3x40,20x30x41:tt,7x8x9:nt scale=3 cache=warm", 0, false, 3, TM_OK, "2736x16x16" },
        { "cpu", "M=4194304 N=4194304 K=4194304", 0, false, 1, TM_OK, "needs 192.00 TiB of memory" },
        { "cpu", "M=64 N=72 K=40 cache=warm rep-ms=1 warmup-ms=0.2 precision=20", 0, false, 1, TM_OK, "precise" },
        { "cpu", "M=16 N=24 K=8 cache=both duration=0.0005", 0, false, 2, TM_OK, "time" },
        { "cpu", "M=64 N=64 K=64 cache=warm", 1.2e-8, false, 1, TM_OK, "of the budget is left for it; raise --budget" },
        { "cpu", "M=4 cache=warm", 0, true, 0, TM_INTERRUPTED, "stopped before all shapes were measured" },
        { "cpu", "M=4 shapes=1x2x3", 0, false, 0, TM_INVALID, alone },
        { "cpu", "model=tiny-llama shapes=1x2x3", 0, false, 0, TM_INVALID, alone },
        { "cpu", "batch=4", 0, false, 0, TM_INVALID, "--batch and --seq belong to --model" },
        { "cpu", "model=tiny-lama", 0, false, 0, TM_INVALID, "did you mean 'tiny-llama'" },
        { "cpu", "shapes=1x2", 0, false, 0, TM_INVALID, "'1x2' (--shapes) is not a list of shapes" },
        { "cpu", "shapes=1x1x1,", 0, false, 0, TM_INVALID, "is not a list of shapes" },
        { "cpu", "shapes=1x1x1:nx", 0, false, 0, TM_INVALID, "is not a list of shapes" },
        { "cpu", "shapes=16777217x1x1", 0, false, 0, TM_INVALID, "is not a list of shapes" },
        { "cpu", "shapes=1x-1x1", 0, false, 0, TM_INVALID, "is not a list of shapes" },
        { "cpu", "library=mkl libraries=true", 0, false, 0, TM_INVALID,
          "--libraries takes all of them, --library one" },
        { "cpu", "library=atlas", 0, false, 0, TM_INVALID, "known: oneDNN, OpenBLAS, BLIS, MKL" },
        { "null", "M=4 N=4 K=4", 0, false, 0, TM_UNSUPPORTED, "device null has no matrix product" },
        { "reference", "M=4 N=5 K=6 cache=warm", 0, false, 0, TM_UNSUPPORTED,
          "device reference has no matrix product" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const trial what = { tm_workload_find("gemm"), cases[i].device, cases[i].arguments, cases[i].seconds, NULL,
                             cases[i].stopped };
        table_follows(&what, cases[i].rows, cases[i].status, cases[i].words, gemm_row);
        if (cases[i].rows)
            table_follows(&what, cases[i].rows, cases[i].status, "peak: 1e+06 GFLOP/s float32 measured (dreamt)",
                          gemm_row);
    }
}

static void attention_on_cpu(const tm_table *table, size_t row)
{
    attention_row(table, row, true);
    if (!*words_at(table, row, "skipped")) assert_true(truth_at(table, row, "correct"));
}

/* Nothing takes time there. */
static void attention_elsewhere(const tm_table *table, size_t row)
{
    attention_row(table, row, false);
    assert_int_equal(truth_at(table, row, "correct"), strcmp(words_at(table, row, "backend"), "attention/null") != 0);
}

TEST(attention_tables)
{
    static const struct {
        const char *device, *arguments;
        double      seconds;
        size_t      rows;
        tm_status   status;
        const char *words;
    } cases[] = {
        { "cpu", "batch=2 seq=33 heads=4 kv_heads=2 head_dim=8", 0, 1, TM_OK, "cold" },
        { "cpu", "seq=24 heads=3 head_dim=16 causal=false cache=warm", 0, 1, TM_OK, "full" },
        { "cpu", "seq=40 heads=2 head_dim=8 window=7 cache=warm dtype=bf16", 0, 1, TM_OK, "bfloat16" },
        { "cpu", "seq=40 heads=2 head_dim=8 window=40 cache=warm seed=9", 0, 1, TM_OK, "causal-half" },
        { "cpu", "seq=40 heads=2 head_dim=8 window=39 cache=warm", 0, 1, TM_OK, "window" },
        { "cpu", "model=tiny-llama cache=warm", 0, 1, TM_OK, "tiny-llama" },
        { "cpu", "model=tiny-llama cache=warm seq=8 heads=4 kv_heads=1 head_dim=4", 0, 1, TM_OK, "tiny-llama" },
        { "cpu", "seq=40 heads=2 head_dim=8 cache=warm rep-ms=1 warmup-ms=0.2 precision=10", 0, 1, TM_OK, NULL },
        { "reference", "seq=9 heads=2 head_dim=4 cache=warm dtype=bf16", 0, 1, TM_OK, "float64" },
        { "null", "seq=9 heads=2 head_dim=4 cache=warm", 0, 1, TM_OK, "attention/null" },
        { "cpu", "seq=16777216 heads=512 head_dim=256", 0, 0, TM_INVALID, "have 6.6e+12 elements; 4.4e12 is the most" },
        { "cpu", "seq=4 heads=1 head_dim=513", 0, 0, TM_UNSUPPORTED, "needs heads of at most 512 elements" },
        { "cpu", "seq=1024 heads=2 head_dim=64 cache=warm", 1e-12, 1, TM_OK,
          "four calls take at least 0 s, the budget has 0 s" },
        { "cpu", "causal=false window=4", 0, 0, TM_INVALID, "window" },
        { "cpu", "heads=6 kv_heads=4", 0, 0, TM_INVALID, "heads" },
        { "cpu", "model=none-such", 0, 0, TM_INVALID, "unknown model 'none-such'" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        table_follows(&(trial){ tm_workload_find("attention"), cases[i].device, cases[i].arguments, cases[i].seconds },
                      cases[i].rows, cases[i].status, cases[i].words,
                      strcmp(cases[i].device, "cpu") == 0 ? attention_on_cpu : attention_elsewhere);
}

static void with_bias(const tm_table *table, size_t row)
{
    mlp_row(table, row, true, true);
}

static void without_bias(const tm_table *table, size_t row)
{
    mlp_row(table, row, false, true);
}

static void on_no_cpu(const tm_table *table, size_t row)
{
    mlp_row(table, row, true, false);
}

TEST(mlp_tables)
{
    static const char widths[] = "'; wanted 2 to 17 widths of 1 to 16777216 with - between";
    static const char few[] = " outputs are judged, but whether it learns takes 10; raise --budget or --iterations";
    static const struct {
        const char *device, *arguments;
        double      seconds, n; /* samples; -1: any */
        bool        stopped;
        size_t      rows;
        tm_status   status;
        const char *words;
    } cases[] = {
        { "cpu", "dims=12-20-7 batch=6 iterations=4 warmup=2", 0, 3, false, 1, TM_OK, few },
        { "cpu", "dims=12-20-7-3 batch=6 iterations=12 warmup=0 activation=gelu bias=false lr=0.01", 0, 11, false, 1,
          TM_OK, "gelu" },
        { "cpu", "dims=5-4 batch=3 iterations=2 optimizer=none dtype=bf16 seed=4", 0, 2, false, 1, TM_OK, "none" },
        { "cpu", "dims=5-4 batch=3 iterations=10 warmup=0 lr=1", 0, 9, false, 1, TM_OK, "adamw" },
        { "cpu", "dims=5-4 batch=3 iterations=10 lr=0", 0, 9, false, 1, TM_OK, "adamw" },
        { "cpu", "dims=1100-1000 batch=2 iterations=1 warmup=0", 0, 1, false, 1, TM_OK,
          few }, /* more than is filled at a time */
        { "cpu", "dims=5-4 batch=3 iterations=9 lr=0.5", 0.0015, 8, false, 1, TM_OK, few },
        { "cpu", "dims=5-4 batch=3 iterations=9 warmup=900 lr=0.5", 0.0015, 8, false, 1, TM_OK, few },
        { "reference", "dims=5-4 batch=3 iterations=2 dtype=bf16", 0, 2, false, 1, TM_OK, "float64" },
        { "null", "dims=5-4 batch=3 iterations=2", 0, 2, false, 1, TM_OK, few },
        { "late", "dims=5-4 batch=3 iterations=2", 0, 2, false, 1, TM_OK, few },
        { "cpu", "dims=5-4 batch=3 iterations=2", 0, -1, true, 1, TM_INTERRUPTED,
          "stopped before the first iteration" },
        { "cpu", "dims=16777216-16777216 batch=1", 0, -1, false, 1, TM_OK, "needs 4.00 PiB" },
        { "cpu", "dims=5", 0, -1, false, 0, TM_USAGE, widths },
        { "cpu", "dims=1-16777217", 0, -1, false, 0, TM_USAGE, widths },
        { "cpu", "dims=1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1", 0, -1, false, 0, TM_USAGE, widths },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const bool cpu = strcmp(cases[i].device, "cpu") == 0,
                   frozen = strstr(cases[i].arguments, "lr=0") && !strstr(cases[i].arguments, "lr=0.");
        const trial what = { tm_workload_find("mlp"), cases[i].device, cases[i].arguments, cases[i].seconds, NULL,
                             cases[i].stopped };
        table_follows(&what, cases[i].rows, cases[i].status, cases[i].words,
                      !cpu                                       ? on_no_cpu
                      : strstr(cases[i].arguments, "bias=false") ? without_bias
                                                                 : with_bias);
        if (cases[i].n < 0) continue;
        tried t = try_workload(&what);
        cell_is(t.table, 0, "n", cases[i].n);
        assert_int_equal(truth_at(t.table, 0, "correct"), strcmp(cases[i].device, "null") != 0);
        double first = number_at(t.table, 0, "loss_first"), last = number_at(t.table, 0, "loss_last");
        if (frozen || strstr(cases[i].arguments, "optimizer=none"))
            cell_is(t.table, 0, "loss_last", first); /* nothing learns */
        else if (strcmp(cases[i].device, "null") != 0 && !isnan(last))
            assert_true(last < first && last > 0);
        tried_fini(&t);
    }
}

TESTS_ALONE
