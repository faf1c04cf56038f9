/* SPDX-License-Identifier: Apache-2.0 */
/* What the workloads offer and what their tables say, to the letter: tests/golden/whole-bench.txt. Every kernel takes a
 * given time, so all numbers are known. */
#include "support/test.h"
#include "bench/tables.h"

static void options_and_columns(tm_text *out)
{
    size_t                    n;
    const tm_workload *const *workloads = tm_workloads(&n);
    for (size_t i = 0; i < n; i++) {
        tm_config *config = tm_bench_configure(workloads[i], "help");
        tm_text_printf(out, "== %s: %s%s\n", workloads[i]->name, workloads[i]->summary,
                       workloads[i]->ranks ? " (ranks)" : "");
        /* What all have stands once. */
        for (size_t k = i ? tm_config_n_keys(config) - workloads[i]->n_options : 0; k < tm_config_n_keys(config); k++) {
            const tm_key *key = tm_config_key_at(config, k);
            tm_text_printf(out, "%s%s: ", key->name, key->quiet ? " (quiet)" : "");
            tm_config_describe_key(key, out);
            tm_text_add(out, "\n");
        }
        tm_config_destroy(config);
    }
    assert_ptr_equal(tm_workload_find("stream"), workloads[3]);
    assert_null(tm_workload_find("strea"));
}

/* A table of no row tells its columns. */
static void columns(tm_text *out, const char *name, const char *device, const char *arguments)
{
    tried t = try_workload(&(trial){ tm_workload_find(name), device, arguments, 0, NULL, false });
    tm_text_printf(out, "%s ", name);
    tell_columns(out, t.table);
    tried_fini(&t);
}

static void stream_tables(tm_text *out)
{
    static const char *const arguments[] = { "elements=41 repetitions=1", "elements=48 repetitions=3",
                                             "elements=48 rep-ms=1 warmup-ms=1",
                                             "elements=48 repetitions=2 rep-ms=1 precision=1 duration=1" };
    for (int i = 0; i < 4; i++)
        tell(out, &(trial){ tm_workload_find("stream"), "cpu", arguments[i], 0, NULL, false }, "", "", "arrays of");
    tell(out, &(trial){ tm_workload_find("stream"), "cpu", "elements=8", 1e-9, NULL, false }, "", "", "arrays of");
    tell(out, &(trial){ tm_workload_find("stream"), "cpu", "elements=8", 0, NULL, true }, "", "", "arrays of");
}

static void gemm_tables(tm_text *out)
{
    static const struct {
        const char *device, *arguments;
        double      seconds;
        bool        stopped;
    } cases[] = {
        { "cpu", "shapes=33x47x65,5x32x16:tn cache=both", 0, false },
        { "cpu", "M=6 N=7 K=8 trans_b=true dtype=bf16 cache=warm seed=5", 0, false },
        { "cpu", "M=6 N=7 K=8 trans_a=true dtype=bf16 c-dtype=fp32 cache=cold", 0, false },
        { "cpu", "M=9 N=3 K=2 c-dtype=bf16 cache=cold", 0, false },
        { "cpu", "M=6 N=7 K=8 trans_b=true dtype=fp16 cache=warm seed=5", 0, false },
        { "cpu", "M=6 N=7 K=8 dtype=float16 c-dtype=bfloat16 cache=warm", 0, false },
        { "cpu", "model=tiny-llama seq=16 batch=2 cache=warm", 0, false },
        { "cpu", "model=tiny-llama scale=16 cache=warm", 0, false },
        { "cpu", "shapes=llama70b cache=both", 1e-3, false },
        { "cpu", "shapes=8192x3x40,20x30x41:tt,7x8x9:nt scale=3 cache=warm", 0, false },
        { "cpu", "M=4194304 N=4194304 K=4194304", 0, false },
        { "cpu", "M=64 N=72 K=40 cache=warm rep-ms=1 warmup-ms=0.2 precision=20", 0, false },
        { "cpu", "M=16 N=24 K=8 cache=both duration=0.0005", 0, false },
        { "cpu", "M=64 N=64 K=64 cache=warm", 1.2e-8, false },
        { "cpu", "M=4 cache=warm", 0, true },
        { "cpu", "M=4 shapes=1x2x3", 0, false },
        { "cpu", "K=4 model=tiny-llama", 0, false },
        { "cpu", "model=tiny-llama shapes=1x2x3", 0, false },
        { "cpu", "batch=4", 0, false },
        { "cpu", "seq=4", 0, false },
        { "cpu", "model=tiny-lama", 0, false },
        { "cpu", "shapes=1x2", 0, false },
        { "cpu", "shapes=0x2x3", 0, false },
        { "cpu", "library=mkl libraries=true", 0, false },
        { "cpu", "library=atlas", 0, false },
        { "null", "M=4 N=4 K=4", 0, false },
        { "reference", "M=4 N=5 K=6 cache=warm", 0, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        tell(out,
             &(trial){ tm_workload_find("gemm"), cases[i].device, cases[i].arguments, cases[i].seconds, NULL,
                       cases[i].stopped },
             "", "", "");
}

static void attention_tables(tm_text *out)
{
    static const struct {
        const char *device, *arguments;
        double      seconds;
    } cases[] = {
        { "cpu", "batch=2 seq=33 heads=4 kv_heads=2 head_dim=8", 0 },
        { "cpu", "seq=24 heads=3 head_dim=16 causal=false cache=warm", 0 },
        { "cpu", "seq=40 heads=2 head_dim=8 window=7 cache=warm dtype=bf16", 0 },
        { "cpu", "seq=40 heads=2 head_dim=8 window=40 cache=warm seed=9", 0 },
        { "cpu", "seq=40 heads=2 head_dim=8 window=39 cache=warm", 0 },
        { "cpu", "model=tiny-llama cache=warm", 0 },
        { "cpu", "model=tiny-llama cache=warm seq=8 heads=4 kv_heads=1 head_dim=4", 0 },
        { "cpu", "seq=40 heads=2 head_dim=8 cache=warm rep-ms=1 warmup-ms=0.2 precision=10", 0 },
        { "reference", "seq=9 heads=2 head_dim=4 cache=warm dtype=bf16", 0 },
        { "null", "seq=9 heads=2 head_dim=4 cache=warm", 0 },
        { "cpu", "seq=16777216 heads=512 head_dim=256", 0 },
        { "cpu", "seq=16777216 heads=513 head_dim=256", 0 },
        { "cpu", "seq=4 heads=1 head_dim=513", 0 },
        { "cpu", "batch=1024 seq=1048576 heads=2 kv_heads=1 head_dim=1025", 0 },
        { "cpu", "seq=1024 heads=2 head_dim=64 cache=warm", 1e-12 },
        { "cpu", "causal=false window=4", 0 },
        { "cpu", "heads=6 kv_heads=4", 0 },
        { "cpu", "model=none-such", 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        tell(out,
             &(trial){ tm_workload_find("attention"), cases[i].device, cases[i].arguments, cases[i].seconds, NULL,
                       false },
             "", "", "");
}

static double cell_of(const tm_table *table, const char *column)
{
    const tm_cell *cell = tm_table_cell(table, 0, (size_t)tm_table_find(table, column));
    return cell->kind == TM_CELL_I64 ? (double)cell->i64 : cell->kind == TM_CELL_F64 ? cell->f64 : (double)NAN;
}

static void mlp_tables(tm_text *out)
{
    static const struct {
        const char *device, *arguments;
        double      seconds;
        bool        stopped;
    } cases[] = {
        { "cpu", "dims=12-20-7 batch=6 iterations=4 warmup=2", 0, false },
        { "cpu", "dims=12-20-7-3 batch=6 iterations=12 warmup=0 activation=gelu bias=false lr=0.01", 0, false },
        { "cpu", "dims=5-4 batch=3 iterations=2 optimizer=none dtype=bf16 seed=4", 0, false },
        { "cpu", "dims=5-4 batch=3 iterations=10 warmup=0 lr=1", 0, false },
        { "cpu", "dims=5-4 batch=3 iterations=10 lr=0", 0, false },
        { "cpu", "dims=1100-1000 batch=2 iterations=1 warmup=0", 0, false }, /* more than is filled at a time */
        { "cpu", "dims=5-4 batch=3 iterations=9 lr=0.5", 0.0015, false },
        { "cpu", "dims=5-4 batch=3 iterations=9 warmup=900 lr=0.5", 0.0015, false },
        { "reference", "dims=5-4 batch=3 iterations=2 dtype=bf16", 0, false },
        { "null", "dims=5-4 batch=3 iterations=2", 0, false },
        { "cpu", "dims=5-4 batch=3 iterations=2", 0, true },
        { "cpu", "dims=16777216-16777216 batch=1", 0, false },
        { "cpu", "dims=5", 0, false },
        { "cpu", "dims=5-", 0, false },
        { "cpu", "dims=-5-4", 0, false },
        { "cpu", "dims=5x4", 0, false },
        { "cpu", "dims=0-4", 0, false },
        { "cpu", "dims=1-16777217", 0, false },
        { "cpu", "dims=1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1", 0, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        tell(out,
             &(trial){ tm_workload_find("mlp"), cases[i].device, cases[i].arguments, cases[i].seconds, NULL,
                       cases[i].stopped },
             "", "", "");
    /* Slow enough for the budget that counts where none is given: five minutes. */
    tell(out,
         &(trial){ tm_workload_find("mlp"), "cpu", "dims=5-4 batch=3 iterations=9000 warmup=1 lr=0", 0, NULL, false,
                   false, 100000000 },
         "", "", "");
}

/* Initial values, the check, warm-up and iterations together end within an iteration of the budget, or are the least
 * that can be: the check, one iteration that counts. Every kernel takes 20 ms and up to a sixth more. */
static void the_budget_of_mlp_is_kept(void **state)
{
    static const double budgets[] = { 0.01, 0.5, 1, 2, 5, 20 };
    double              before = 0;
    (void)state;
    for (size_t i = 0; i < sizeof budgets / sizeof budgets[0]; i++) {
        tried  t = try_workload(&(trial){ tm_workload_find("mlp"), "cpu",
                                          "dims=5-4 batch=3 iterations=100000 warmup=3 budget=9", budgets[i], NULL,
                                          false, false, 20000000 });
        double passed = (double)fake_clock_passed() * 1e-9;
        double step = cell_of(t.table, "step_ms") * 1e-3, n = cell_of(t.table, "n");
        if (t.status != TM_OK || !(n >= 1) || !(passed <= fmax(budgets[i], 8 * step) + 1.2 * step) || !(n >= before))
            fail_msg("budget %g: %g s, %g iterations of %g s: %s", budgets[i], passed, n, step, t.err.text);
        if (budgets[i] > 50 * step) assert_true(passed > 0.9 * budgets[i]); /* and is used */
        const tm_cell *last = tm_table_cell(t.table, 0, (size_t)tm_table_find(t.table, "loss_last"));
        bool           told = false; /* how few they were */
        for (size_t k = 0; k < tm_table_n_notes(t.table); k++)
            told |= strstr(tm_table_note_at(t.table, k), n < 2 ? "mlp: 1 iteration: " : " iterations: ") != NULL;
        assert_true(told == (n < 10));
        if (i == 0) assert_true(n < 2 && last->kind == TM_CELL_EMPTY); /* no loss of before and after */
        before = n;
        tried_fini(&t);
    }
}

static void tables_say_all(void **state)
{
    (void)state;
    tm_text out = { 0 };
    options_and_columns(&out);
    columns(&out, "stream", "cpu", "elements=8 repetitions=1");
    columns(&out, "gemm", "cpu", "M=2 N=2 K=2");
    columns(&out, "attention", "cpu", "seq=2 heads=1 head_dim=4");
    columns(&out, "mlp", "cpu", "dims=2-2 iterations=1 batch=1");
    stream_tables(&out);
    gemm_tables(&out);
    attention_tables(&out);
    mlp_tables(&out);
    whole_is("tests/golden/whole-bench.txt", &out);
}

static int reads_left;

static tm_status read_from(tm_queue *queue, void *to, tm_address from, size_t bytes, tm_error *err)
{
    if (reads_left-- <= 0) return tm_fail(err, TM_DEVICE, "the cable is out");
    return tm_backend_cpu.read(queue, to, from, bytes, err);
}

/* Whatever it cannot read, the loss of a step or what the check looks at: there is no result. */
static void a_device_that_breaks(void **state)
{
    enum { STEPS = 3, CHECKED = 4 }; /* losses; input, output, weights and bias of the one sample and layer */
    tm_backend breaking = tm_backend_cpu;
    (void)state;
    breaking.read = read_from;
    for (int n = 0; n <= STEPS + CHECKED; n++) {
        trial t = { tm_workload_find("mlp"), "breaking", "dims=5-4 batch=1 iterations=2 warmup=1",
                    .backend = &breaking };
        reads_left = n;
        tried     run = try_workload(&t);
        tm_status wanted = n < STEPS + CHECKED ? TM_DEVICE : TM_OK;
        if (run.status != wanted) fail_msg("after %d reads: %d %s", n, run.status, run.err.text);
        if (wanted != TM_OK) assert_non_null(strstr(run.err.text, "the cable is out"));
        tried_fini(&run);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_device_that_breaks),
    cmocka_unit_test(tables_say_all),
    cmocka_unit_test(the_budget_of_mlp_is_kept),
};

TM_TESTS_ALONE(tests, NULL, NULL)
