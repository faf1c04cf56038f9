/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/hardware.c, apps/bench/ops.c: tables with planted laws give files with these numbers; the op bench times
 * every instruction of a step. */
#include "apps/bench/hardware.h"
#include "base/file.h"
#include "apps/bench/part.h"
#include "plan/rates.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/folder.h"
#include "support/test.h"

typedef struct {
    tm_bench bench;
    char     path[256];
} fixture;

static fixture *open_fixture(const char *file)
{
    fixture *f = tm_alloc(sizeof *f);
    tm_error err = { 0 };
    *f = (fixture){ .bench = { .threads = 1, .host = "here" } };
    snprintf(f->path, sizeof f->path, "%s", test_in_folder(file));
    if (tm_device_open("cpu", 1, &f->bench.device, &err) != TM_OK) fail_msg("%s", err.text);
    return f;
}

static void close_fixture(fixture *f)
{
    tm_device_close(f->bench.device);
    free(f);
}

/* Writes what `fill` puts into a table of this workload. */
static tm_hardware written(fixture *f, tm_arena *arena, const char *workload, void (*fill)(tm_table *))
{
    tm_error    err = { 0 };
    tm_hardware hw = { 0 };
    f->bench.table = tm_table_create(workload);
    fill(f->bench.table);
    if (tm_bench_check_hardware(&f->bench, workload, f->path, &err) != TM_OK) fail_msg("%s", err.text);
    if (tm_bench_write_hardware(&f->bench, workload, f->path, &err) != TM_OK) fail_msg("%s", err.text);
    tm_table_destroy(f->bench.table);
    if (tm_hardware_read_part(arena, f->path, &hw, &err) != TM_OK) fail_msg("%s", err.text);
    return hw;
}

static void near(double value, double wanted)
{
    if (!(fabs(value / wanted - 1) <= 5e-4)) fail_msg("%.6g, planted %.6g", value, wanted);
}

static void add_columns(tm_table *t, const char *const *names)
{
    for (; *names; names++) tm_table_column(t, *names, 0);
}

static void add_product(tm_table *t, int64_t k, const char *dtype, double tflops)
{
    tm_table_row(t);
    tm_table_i64(t, "K", k);
    tm_table_text(t, "dtype", dtype);
    tm_table_f64(t, "tflop", 0.003 * (double)k);
    tm_table_f64(t, "tflops", 0.01); /* the mean, which a disturbance made worse */
    if (tflops > 0) tm_table_f64(t, "median_ms", 3 * (double)k / tflops);
}

/* TFLOP/s = 0.2 K / (K + 48); half of that in bfloat16 with a single K; one row was skipped. */
static void fill_gemm(tm_table *t)
{
    static const char *const names[] = { "K", "dtype", "tflop", "tflops", "median_ms", NULL };
    add_columns(t, names);
    for (int64_t k = 16; k <= 4096; k *= 4) add_product(t, k, "float32", 0.2 * (double)k / (double)(k + 48));
    add_product(t, 512, "bfloat16", 0);
    add_product(t, 512, "bfloat16", 0.1);
}

/* TFLOP/s = 0.3 K / (K + 200). */
static void fill_narrow_gemm(tm_table *t)
{
    static const char *const names[] = { "K", "dtype", "tflop", "tflops", "median_ms", NULL };
    add_columns(t, names);
    for (int64_t k = 16; k <= 4096; k *= 4) add_product(t, k, "bfloat16", 0.3 * (double)k / (double)(k + 200));
}

static void fill_stream(tm_table *t)
{
    static const char *const names[] = { "kernel", "best_mbps", "median_mbps", NULL };
    add_columns(t, names);
    for (int i = 0; i < 3; i++) {
        tm_table_row(t);
        tm_table_f64(t, "best_mbps", 30000 + 10000 * i);
        tm_table_f64(t, "median_mbps", 20000 + 10000 * i);
    }
}

static void fill_attention(tm_table *t)
{
    static const char *const names[] = { "fwd_tflops", "fwd_tflops_executed", "bwd_tflops_executed", NULL };
    add_columns(t, names);
    for (int i = 0; i < 2; i++) {
        tm_table_row(t);
        tm_table_f64(t, "fwd_tflops", 9);
        tm_table_f64(t, "fwd_tflops_executed", 0.05 + 0.01 * i);
        if (i) tm_table_f64(t, "bwd_tflops_executed", 0.04);
    }
}

/* A call takes 20 us and its bytes 2 (n - 1) / n bytes / 5 GB/s. */
static void fill_collectives(tm_table *t)
{
    static const char *const names[] = { "call", "ranks", "bytes", "bus_gbps", "median_ms", NULL };
    add_columns(t, names);
    for (double bytes = 8; bytes < 1e9; bytes *= 64) {
        double wire = 1.5 * bytes, seconds = 20e-6 + wire / 5e9;
        tm_table_row(t);
        tm_table_text(t, "call", "all-reduce");
        tm_table_i64(t, "ranks", 4);
        tm_table_i64(t, "bytes", (int64_t)bytes);
        tm_table_f64(t, "bus_gbps", wire / seconds * 1e-9);
        tm_table_f64(t, "median_ms", seconds * 1e3);
        tm_table_row(t);
        tm_table_text(t, "call", "copy");
        tm_table_f64(t, "bus_gbps", 99);
    }
}

static void fill_ops(tm_table *t)
{
    static const char *const names[] = { "op", "calls", "call_us", "tflops", "gbps", "error_pct", NULL };
    add_columns(t, names);
    tm_table_row(t);
    tm_table_text(t, "op", "linear");
    tm_table_i64(t, "calls", 12);
    tm_table_f64(t, "call_us", 3);
    tm_table_f64(t, "tflops", 0.11);
    tm_table_f64(t, "error_pct", 1.5);
    tm_table_row(t);
    tm_table_text(t, "op", "gelu.bfloat16");
    tm_table_i64(t, "calls", 2);
    tm_table_f64(t, "gbps", 7);
    tm_table_f64(t, "error_pct", 0);
}

/* One file of five benches, which is complete in the end: what one has put there the others leave alone. */
TEST(benches_share_a_file)
{
    tm_arena   *arena = tm_arena_create();
    fixture    *f = open_fixture("box.yaml");
    tm_hardware hw = written(f, arena, "stream", fill_stream);
    near(hw.number[TM_HARDWARE_MEMORY_RATE], 50);
    near(hw.number[TM_HARDWARE_MEMORY_SHARE], 0.6);
    assert_true(hw.cpu && hw.number[TM_HARDWARE_MEMORY] > 0);
    assert_string_equal(hw.name, "here");
    near(hw.number[TM_HARDWARE_UNITS], 1);
    assert_int_equal(tm_hardware_read(arena, f->path, &hw, NULL), TM_FORMAT);
    hw = written(f, arena, "gemm", fill_gemm);
    near(hw.number[TM_HARDWARE_PRODUCT_F32], 0.2);
    near(hw.number[TM_HARDWARE_HALF_DEPTH], 48);
    near(hw.number[TM_HARDWARE_PRODUCT_BF16], 0.1);
    hw = written(f, arena, "gemm", fill_narrow_gemm);
    near(hw.number[TM_HARDWARE_PRODUCT_BF16], 0.3);
    near(hw.number[TM_HARDWARE_PRODUCT_F32], 0.2);
    near(hw.number[TM_HARDWARE_HALF_DEPTH], 48); /* a CPU's is that of float32 */
    hw = written(f, arena, "attention", fill_attention);
    near(hw.number[TM_HARDWARE_ATTENTION_FORWARD], 0.06);
    near(hw.number[TM_HARDWARE_ATTENTION_BACKWARD], 0.04);
    hw = written(f, arena, "ops", fill_ops);
    assert_int_equal(hw.n_ops, 2);
    hw = written(f, arena, "ops", fill_ops);
    assert_int_equal(hw.n_ops, 2);
    assert_string_equal(hw.op[0].name, "linear");
    near(hw.op[0].call, 3);
    near(hw.op[0].flops, 0.11);
    assert_true(hw.op[0].bytes <= 0 && hw.op[1].call <= 0);
    near(hw.op[1].bytes, 7);
    near(hw.number[TM_HARDWARE_LAUNCH], 3);
    assert_int_equal(tm_hardware_read(arena, f->path, &hw, NULL), TM_OK);
    hw = written(f, arena, "collectives", fill_collectives);
    assert_int_equal(hw.links, TM_LINKS_SWITCH);
    near(hw.number[TM_HARDWARE_LINK_DEVICES], 4);
    assert_true(hw.number[TM_HARDWARE_LINK_RATE] > 4.9 && hw.number[TM_HARDWARE_LINK_RATE] < 5);
    near(hw.number[TM_HARDWARE_LINK_DELAY], 5);
    near(hw.number[TM_HARDWARE_MEMORY_RATE], 50);
    assert_non_null(strstr(hw.source[TM_HARDWARE_PRODUCT_F32], "measured by `trainmark bench gemm` on 20"));
    assert_int_equal(tm_hardware_read(arena, f->path, &hw, NULL), TM_OK);
    close_fixture(f);
    tm_arena_destroy(arena);
}

/* Every instruction of a step is a call of its op; the losses of steps that are taken apart are those of whole ones. */
TEST(every_instruction_is_timed)
{
    const tm_workload *workload = tm_workload_find("ops");
    tm_config         *config = tm_bench_configure(workload, "help"), *model;
    tm_table          *table = tm_table_create("ops");
    tm_error           err = { 0 };
    tm_run_options     run;
    tm_device         *device;
    tm_step           *step;
    static const char  line[] = "micro-llama --training.seq_len 32 --training.local_batch_size 2";
    tm_config_set(config, "case", line, "the test");
    tm_config_set(config, "passes", "3", "the test");
    tm_config_set(config, "threads", "1", "the test");
    assert_int_equal(tm_config_finish(config, &err), TM_OK);
    if (tm_bench_run(workload, config, NULL, NULL, table, &err) != TM_OK) fail_msg("%s", err.text);
    assert_int_equal(tm_bench_model_config(line, &model, &err), TM_OK);
    assert_int_equal(tm_run_options_read(model, &run, &err), TM_OK);
    assert_int_equal(tm_device_open("cpu", 1, &device, &err), TM_OK);
    tm_chooser chooser = tm_device_chooser(device);
    assert_int_equal(tm_step_create(&run.step, &chooser, &step, &err), TM_OK);
    int64_t planned = 0, timed = 0;
    double  share = 0;
    for (size_t i = 0; i < step->training.n; i++) planned += (int64_t)step->training.work[i].program->count;
    for (size_t i = 0; i < tm_table_n_rows(table); i++) {
        timed += tm_table_cell(table, i, (size_t)tm_table_find(table, "calls"))->i64;
        share += tm_table_cell(table, i, (size_t)tm_table_find(table, "time_pct"))->f64;
    }
    assert_int_equal(timed, planned);
    assert_true(fabs(share - 100) < 1e-6);
    tm_step_destroy(step);
    tm_device_close(device);
    tm_config_destroy(model);
    tm_config_destroy(config);
    tm_table_destroy(table);
}

TEST_FIXTURE(NULL, test_folder_teardown)
