/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/bench/hardware.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/file.h"
#include "plan/hardware.h"
#include "stats/nonnegative.h"
#include "stats/summary.h"
#include "system/environment.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const tm_bench *bench;
    const char     *workload;
    tm_arena       *arena;
    tm_hardware     hw;
} draft;

/* --- cells ------------------------------------------------------------------------------------- */

static const tm_cell *cell_of(const draft *d, size_t row, const char *column)
{
    int at = tm_table_find(d->bench->table, column);
    return at < 0 ? NULL : tm_table_cell(d->bench->table, row, (size_t)at);
}

/* NAN: it is empty. */
static double number_of(const draft *d, size_t row, const char *column)
{
    const tm_cell *cell = cell_of(d, row, column);
    if (!cell || (cell->kind != TM_CELL_F64 && cell->kind != TM_CELL_I64)) return (double)NAN;
    return cell->kind == TM_CELL_F64 ? cell->f64 : (double)cell->i64;
}

static bool says(const draft *d, size_t row, const char *column, const char *text)
{
    const tm_cell *cell = cell_of(d, row, column);
    return cell && cell->kind == TM_CELL_TEXT && strcmp(cell->text, text) == 0;
}

static const char *source_of(const draft *d, const char *what)
{
    char date[32];
    tm_wall_text(date);
    return tm_arena_format(d->arena, "measured by `trainmark bench %s` on %.10s, %d thread%s: %s", d->workload, date,
                           d->bench->threads, d->bench->threads == 1 ? "" : "s", what);
}

/* What is measured has no more than four digits. */
static double rounded(double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.4g", value);
    return strtod(text, NULL);
}

static void found(draft *d, tm_hardware_number which, double value, const char *what)
{
    if (!(value > 0) || !isfinite(value)) return;
    d->hw.number[which] = rounded(value);
    d->hw.source[which] = source_of(d, what);
}

/* --- workloads ---------------------------------------------------------------------------------- */

/* The best sample of any kernel is the memory's rate, what a kernel does in the middle the share. */
static void of_stream(draft *d)
{
    size_t  rows = tm_table_n_rows(d->bench->table), n = 0;
    double *medians = tm_arena_take(d->arena, (rows + 1) * sizeof *medians), best = 0;
    for (size_t i = 0; i < rows; i++) {
        double fast = number_of(d, i, "best_mbps"), median = number_of(d, i, "median_mbps");
        if (isnan(fast) || isnan(median)) continue;
        best = fmax(best, fast);
        medians[n++] = median;
    }
    if (n == 0) return;
    found(d, TM_HARDWARE_MEMORY_RATE, best * 1e-3, tm_arena_format(d->arena, "the best sample of %zu kernels", n));
    found(d, TM_HARDWARE_MEMORY_SHARE, fmin(1, tm_stats_median(medians, (int64_t)n) / best),
          tm_arena_format(d->arena, "the median of %zu kernels, over the best sample", n));
}

/* Seconds of a FLOP, the median of samples, are 1 / rate + (depth / rate) / K. Of a format without several K: the best
 * rate. FNUZ's formats of 8 bits have the rate of OCP's. The depth is that of the usual format: float32 on CPUs,
 * bfloat16 on GPUs. */
static void of_products(draft *d, const char *dtype, tm_hardware_number which)
{
    size_t  rows = tm_table_n_rows(d->bench->table), n = 0;
    double *terms = tm_arena_take(d->arena, (2 * rows + 1) * sizeof *terms), best = 0, each[2], least = 0, most = 0;
    double *values = tm_arena_take(d->arena, (rows + 1) * sizeof *values);
    double *weights = tm_arena_take(d->arena, (rows + 1) * sizeof *weights);
    for (size_t i = 0; i < rows; i++) {
        double rate = number_of(d, i, "tflop") / (number_of(d, i, "median_ms") * 1e-3), k = number_of(d, i, "K");
        if (isnan(rate) || !says(d, i, "dtype", dtype)) continue;
        best = fmax(best, rate);
        least = n == 0 ? k : fmin(least, k);
        most = fmax(most, k);
        terms[2 * n] = 1;
        terms[2 * n + 1] = 1 / k;
        values[n] = 1 / rate;
        weights[n++] = rate * rate;
    }
    if (n == 0) return;
    if (most < 4 * least) {
        found(d, which, best, tm_arena_format(d->arena, "the best of %zu shapes", n));
        return;
    }
    tm_stats_nonnegative(terms, values, weights, (int64_t)n, 2, each);
    if (!(each[0] > 0)) return;
    const char *what = tm_arena_format(d->arena, "fitted to %zu shapes with K of %.0f to %.0f", n, least, most);
    found(d, which, 1 / each[0], what);
    bool usual = which == (d->hw.cpu ? TM_HARDWARE_PRODUCT_F32 : TM_HARDWARE_PRODUCT_BF16);
    if (usual || d->hw.number[TM_HARDWARE_HALF_DEPTH] <= 0)
        found(d, TM_HARDWARE_HALF_DEPTH, fmax(1, each[1] / each[0]), what);
}

static void of_gemm(draft *d)
{
    of_products(d, "bfloat16", TM_HARDWARE_PRODUCT_BF16);
    of_products(d, "float32", TM_HARDWARE_PRODUCT_F32);
    of_products(d, "float8_e4m3", TM_HARDWARE_PRODUCT_FP8);
    of_products(d, "float8_e4m3fnuz", TM_HARDWARE_PRODUCT_FP8);
    if (!d->hw.cpu) return;
    d->hw.number[TM_HARDWARE_TILE_ROWS] = d->hw.number[TM_HARDWARE_TILE_COLUMNS] = 1;
    d->hw.source[TM_HARDWARE_TILE_ROWS] = d->hw.source[TM_HARDWARE_TILE_COLUMNS] =
        "our kernels of CPUs pad no tile: threads share rows and columns evenly";
}

/* What was executed: FLOPs of visible pairs. */
static void of_attention(draft *d)
{
    double forward = 0, backward = 0;
    for (size_t i = 0; i < tm_table_n_rows(d->bench->table); i++) {
        forward = fmax(forward, number_of(d, i, "fwd_tflops_executed"));
        backward = fmax(backward, number_of(d, i, "bwd_tflops_executed"));
    }
    found(d, TM_HARDWARE_ATTENTION_FORWARD, forward, "executed FLOPs");
    found(d, TM_HARDWARE_ATTENTION_BACKWARD, backward, "executed FLOPs");
}

/* All-reduce: the best bus bandwidth, and the steps of the smallest call. */
static void of_collectives(draft *d)
{
    double ranks = 0, rate = 0, bytes = (double)INFINITY, seconds = 0;
    for (size_t i = 0; i < tm_table_n_rows(d->bench->table); i++) {
        double bus = number_of(d, i, "bus_gbps"), size = number_of(d, i, "bytes");
        if (!says(d, i, "call", "all-reduce") || isnan(bus)) continue;
        ranks = number_of(d, i, "ranks");
        rate = fmax(rate, bus);
        if (size >= bytes) continue;
        bytes = size;
        seconds = number_of(d, i, "median_ms") * 1e-3;
    }
    if (!(ranks > 1)) return;
    d->hw.links = TM_LINKS_SWITCH;
    found(d, TM_HARDWARE_LINK_DEVICES, ranks, "ranks");
    found(d, TM_HARDWARE_LINK_RATE, rate, "the best bus bandwidth of all-reduce");
    found(d, TM_HARDWARE_LINK_SHARE, 1, "the rate is a measured one");
    found(d, TM_HARDWARE_LINK_DELAY, 1e6 * seconds / (2 * log2(ranks)),
          tm_arena_format(d->arena, "all-reduce of %.0f bytes", bytes));
}

static tm_hardware_op *op_named(tm_hardware_op *ops, size_t *n, const char *name)
{
    for (size_t i = 0; i < *n; i++)
        if (strcmp(ops[i].name, name) == 0) return &ops[i];
    return &ops[(*n)++];
}

static void of_ops(draft *d)
{
    size_t          rows = tm_table_n_rows(d->bench->table), n = d->hw.n_ops, calls = 0;
    tm_hardware_op *ops = tm_arena_take(d->arena, (n + rows + 1) * sizeof *ops);
    double         *call = tm_arena_take(d->arena, (rows + 1) * sizeof *call);
    for (size_t i = 0; i < n; i++) ops[i] = d->hw.op[i];
    for (size_t i = 0; i < rows; i++) {
        const tm_cell *name = cell_of(d, i, "op");
        double us = number_of(d, i, "call_us"), flops = number_of(d, i, "tflops"), gbps = number_of(d, i, "gbps");
        if (!name || name->kind != TM_CELL_TEXT || (isnan(us) && isnan(flops) && isnan(gbps))) continue;
        const char *what = tm_arena_format(d->arena, "%.0f calls, median error %.1f %%", number_of(d, i, "calls"),
                                           number_of(d, i, "error_pct"));
        *op_named(ops, &n, name->text) = (tm_hardware_op){ .name = tm_arena_text(d->arena, name->text),
                                                           .call = isnan(us) ? 0 : rounded(us),
                                                           .flops = isnan(flops) ? 0 : rounded(flops),
                                                           .bytes = isnan(gbps) ? 0 : rounded(gbps),
                                                           .source = source_of(d, what) };
        if (us > 0) call[calls++] = us;
    }
    d->hw.op = ops;
    d->hw.n_ops = n;
    if (calls > 0) found(d, TM_HARDWARE_LAUNCH, tm_stats_median(call, (int64_t)calls), "the median of all ops");
}

static const struct {
    const char *workload;
    void (*take)(draft *d);
} takers[] = { { "gemm", of_gemm },
               { "stream", of_stream },
               { "attention", of_attention },
               { "collectives", of_collectives },
               { "ops", of_ops } };
enum { TAKERS = sizeof takers / sizeof takers[0] };

/* --- the file ------------------------------------------------------------------------------------ */

/* Of a GPU with a built-in file: that, to be corrected by what is measured. */
static void begin(draft *d)
{
    const tm_device_info *device = tm_device_describe(d->bench->device);
    tm_error              own = { 0 };
    d->hw = (tm_hardware){ .name = d->bench->host, .maker = "unknown", .arch = "", .cpu = true };
    if (device->kind == TM_DEVICE_GPU) {
        if (device->sheet && tm_hardware_read(d->arena, device->sheet->name, &d->hw, &own) == TM_OK) return;
        d->hw.cpu = false;
        d->hw.name = device->model ? device->model : device->name;
        d->hw.number[TM_HARDWARE_MEMORY] = (double)device->memory_bytes / (1 << 30);
        d->hw.source[TM_HARDWARE_MEMORY] = "the runtime's word";
        return;
    }
    tm_environment *environment = tm_environment_read("");
    const char     *model = tm_environment_text(environment, "cpu", NULL, "model");
    d->hw.maker = model ? tm_arena_text(d->arena, model) : "unknown";
    tm_environment_destroy(environment);
    d->hw.number[TM_HARDWARE_UNITS] = d->bench->threads;
    d->hw.source[TM_HARDWARE_UNITS] = "threads that were measured";
    d->hw.number[TM_HARDWARE_MEMORY] = rounded((double)tm_memory_total_bytes("") / (1 << 30));
    d->hw.source[TM_HARDWARE_MEMORY] = "the system's word";
}

static tm_status open_draft(draft *d, const char *path, tm_error *err)
{
    const tm_device_info *device = tm_device_describe(d->bench->device);
    bool                  cpu = device->kind != TM_DEVICE_GPU;
    if (!tm_file_exists(path)) {
        begin(d);
        return TM_OK;
    }
    TM_TRY(tm_hardware_read_part(d->arena, path, &d->hw, err));
    if (d->hw.cpu != cpu)
        return tm_fail(err, TM_INVALID, "%s is of a %s, and the device '%s' is none; give another file", path,
                       d->hw.cpu ? "CPU" : "GPU", device->name);
    double units = d->hw.number[TM_HARDWARE_UNITS];
    if (cpu && units > 0 && !d->bench->world && (int)units != d->bench->threads)
        return tm_fail(err, TM_INVALID,
                       "%s is of %.0f units, and the device has %d threads; add --threads %.0f, or give "
                       "another file",
                       path, units, d->bench->threads, units);
    return TM_OK;
}

tm_status tm_bench_check_hardware(const tm_bench *bench, const char *workload, const char *path, tm_error *err)
{
    draft d = { .bench = bench, .workload = workload, .arena = tm_arena_create() };
    bool  known = false;
    for (int i = 0; i < TAKERS; i++) known = known || strcmp(takers[i].workload, workload) == 0;
    tm_status st = TM_OK;
    if (!known)
        st = tm_fail(err, TM_USAGE,
                     "bench %s finds no numbers of hardware files; leave out --write-hardware, or run "
                     "bench gemm, stream, attention, collectives, ops",
                     workload);
    if (st == TM_OK) st = open_draft(&d, path, err);
    tm_arena_destroy(d.arena);
    return st;
}

tm_status tm_bench_write_hardware(const tm_bench *bench, const char *workload, const char *path, tm_error *err)
{
    draft     d = { .bench = bench, .workload = workload, .arena = tm_arena_create() };
    tm_text   text = { 0 };
    tm_status st = open_draft(&d, path, err);
    for (int i = 0; i < TAKERS && st == TM_OK; i++)
        if (strcmp(takers[i].workload, workload) == 0) takers[i].take(&d);
    if (st == TM_OK) tm_hardware_print(&d.hw, &text);
    if (st == TM_OK) st = tm_file_write(path, text.data, text.length, err);
    tm_text_fini(&text);
    tm_arena_destroy(d.arena);
    return st;
}
