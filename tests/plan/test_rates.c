/* SPDX-License-Identifier: Apache-2.0 */
/* Times of pieces of a step: what others measured, and what must hold of any hardware. */
#include "support/test.h"

#include "plan/rates.h"

static tm_machine_plan machine(tm_arena *arena, const char *text)
{
    tm_machine_plan m;
    assert_ok_of(text, tm_machine_plan_read(arena, text, &m, err));
    return m;
}

static void within(const char *what, double value, double wanted, double tolerance)
{
    if (!(fabs(value / wanted - 1) <= tolerance)) fail_msg("%s: %.4g, measured %.4g", what, value, wanted);
}

/* A report of an MI350X, January 2026: bfloat16 products, M x N x K. */
TEST(products_as_measured)
{
    static const double rows[][4] = { { 8192, 8192, 8192, 1104 },    { 16384, 8192, 7168, 1095 },
                                      { 16384, 16384, 16384, 1059 }, { 16384, 3584, 8192, 1038 },
                                      { 16384, 1024, 8192, 1023 },   { 4096, 4096, 4096, 969 },
                                      { 16384, 8192, 1280, 901 } };
    tm_arena           *arena = tm_arena_create();
    tm_hardware         hw = machine(arena, "MI350X").device;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double m = rows[i][0], n = rows[i][1], k = rows[i][2];
        double seconds = tm_time_product(&hw, TM_RATE_BF16, m, n, k, 1, 2 * (m * k + k * n + m * n), 1);
        within("MI350X", 2 * m * n * k / seconds * 1e-12, rows[i][3], 0.1);
    }
    tm_arena_destroy(arena);
}

/* Bus bandwidth of an all-reduce: bytes x 2 (n - 1) / n / seconds. AMD's RCCL page and the ML Engineering book. */
TEST(all_reduces_as_measured)
{
    static const struct {
        const char *machine;
        double      mib, gbs, tolerance;
    } rows[] = {
        { "8xMI300X", 64, 274, 0.15 },    { "8xMI300X", 256, 306, 0.1 },   { "8xMI300X", 1024, 315, 0.1 },
        { "8xMI300X", 16384, 319, 0.05 }, { "8xB200", 256, 646, 0.25 },    { "8xB200", 1024, 723, 0.1 },
        { "8xB200", 16384, 846, 0.25 },   { "4x8xB200", 1024, 362, 0.25 }, { "4x8xB200", 4096, 377, 0.2 },
        { "8xH100", 16384, 366, 0.05 },
    };
    tm_arena *arena = tm_arena_create();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_machine_plan m = machine(arena, rows[i].machine);
        int             n = m.nodes * m.devices;
        double          bytes = rows[i].mib * 0x1p20;
        double          seconds = tm_time_move(&m.device, TM_MOVE_ALL_REDUCE, bytes, tm_group_plan_of(&m, n, 1));
        within(rows[i].machine, bytes * 2 * (n - 1) / n / seconds * 1e-9, rows[i].gbs, rows[i].tolerance);
    }
    tm_arena_destroy(arena);
}

/* A gather or a scatter is half of an all-reduce; a pair in a mesh has one of seven links, over a switch all. */
TEST(moves_keep_their_proportions)
{
    tm_arena       *arena = tm_arena_create();
    tm_machine_plan mesh = machine(arena, "8xMI300X"), switched = machine(arena, "8xH100"),
                    nodes = machine(arena, "4x8xH100");
    const double bytes = 1e12; /* delays do not count */
    for (int ranks = 2; ranks <= 8; ranks *= 2) {
        tm_group_plan g = tm_group_plan_of(&mesh, ranks, 1), s = tm_group_plan_of(&switched, ranks, 1);
        double        all = tm_time_move(&mesh.device, TM_MOVE_ALL_REDUCE, bytes, g);
        within("gather", 2 * tm_time_move(&mesh.device, TM_MOVE_ALL_GATHER, bytes, g), all, 1e-6);
        within("scatter", 2 * tm_time_move(&mesh.device, TM_MOVE_REDUCE_SCATTER, bytes, g), all, 1e-6);
        double sent = bytes * 2 * (ranks - 1) / ranks;
        within("mesh", sent / all, (ranks - 1) / 7.0 * 448e9 * 0.71, 1e-3);
        within("switch", sent / tm_time_move(&switched.device, TM_MOVE_ALL_REDUCE, bytes, s), 450e9 * 0.81, 1e-3);
    }
    /* Every eighth rank: no two of them in one node. */
    tm_group_plan far = tm_group_plan_of(&nodes, 4, 8);
    assert_int_equal(far.near, 1);
    within("network", bytes * 3 / 4 / tm_time_move(&nodes.device, TM_MOVE_ALL_GATHER, bytes, far), 50e9 * 0.73, 1e-3);
    assert_int_equal(tm_group_plan_of(&nodes, 32, 1).near, 8);
    assert_int_equal(tm_group_plan_of(&nodes, 8, 4).near, 2);
    assert_float_equal(tm_time_move(&mesh.device, TM_MOVE_ALL_GATHER, bytes, (tm_group_plan){ 1, 1 }), 0, 0);
    tm_arena_destroy(arena);
}

/* Twice the rate, half the time; more work, more time; a share is one. */
TEST(times_follow_rates)
{
    tm_arena   *arena = tm_arena_create();
    tm_hardware hw = machine(arena, "MI300X").device, fast = hw;
    for (int i = TM_HARDWARE_MEMORY_RATE; i <= TM_HARDWARE_ATTENTION_BACKWARD; i++)
        if (i != TM_HARDWARE_MEMORY_SHARE && i != TM_HARDWARE_CACHE && i != TM_HARDWARE_HALF_DEPTH &&
            i != TM_HARDWARE_TILE_ROWS && i != TM_HARDWARE_TILE_COLUMNS)
            fast.number[i] *= 2;
    for (double n = 64; n < 20000; n *= 3) {
        double bytes = 6 * n * n, one = tm_time_product(&hw, TM_RATE_BF16, n, n, n, 1, bytes, 0);
        within("product", tm_time_product(&fast, TM_RATE_BF16, n, n, n, 1, bytes, 0), one / 2, 1e-9);
        assert_true(tm_time_product(&hw, TM_RATE_BF16, n, n, 2 * n, 1, bytes, 0) >= one);
        assert_true(tm_time_product(&hw, TM_RATE_FP8, n, n, n, 1, bytes, 0) <= one);
        within("stream", tm_time_stream(&fast, bytes, 0, 0), tm_time_stream(&hw, bytes, 0, 0) / 2, 1e-9);
        within("attention", tm_time_attention(&fast, true, n * n, 128, 0),
               tm_time_attention(&hw, true, n * n, 128, 0) / 2, 1e-9);
        assert_true(tm_time_attention(&hw, false, n * n, 64, 0) > tm_time_attention(&hw, false, n * n, 128, 0));
        double share = tm_product_share(&hw, n, n, n, 1);
        assert_true(share > 0 && share <= 1);
    }
    double without = tm_time_stream(&hw, 1e9, 0, 0);
    within("launches", tm_time_stream(&hw, 1e9, 0, 10) - without, 10 * hw.number[TM_HARDWARE_LAUNCH] * 1e-6, 1e-6);
    tm_arena_destroy(arena);
}

/* Of ranks that are neighbours: how many of a group links join. */
TEST(groups)
{
    static const struct {
        const char *machine;
        int         ranks, stride, near;
    } cases[] = {
        { "4x8xMI300X", 8, 1, 8 },   { "4x8xMI300X", 4, 8, 1 },    { "4x8xMI300X", 32, 1, 8 },
        { "4x8xMI300X", 16, 2, 4 },  { "1x4xMI300X", 4, 1, 4 },    { "18x4xGB200", 72, 1, 72 },
        { "18x4xGB200", 18, 4, 18 }, { "36x4xGB200", 144, 1, 72 }, { "8x8xH100", 3, 1, 3 },
        { "2x8xH100", 2, 8, 1 },     { "H100", 1, 1, 1 },
    };
    tm_arena *arena = tm_arena_create();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_machine_plan m = machine(arena, cases[i].machine);
        tm_group_plan   g = tm_group_plan_of(&m, cases[i].ranks, cases[i].stride);
        if (g.ranks != cases[i].ranks || g.near != cases[i].near)
            fail_msg("%s: %d ranks, every %d-th: %d near", cases[i].machine, cases[i].ranks, cases[i].stride, g.near);
    }
    tm_arena_destroy(arena);
}

/* Peak x sustained clock / clock x the libraries' share (0.94 of bfloat16, 0.83 of 8 bits) is what AMD has measured. */
TEST(clocks_give_rates)
{
    static const struct {
        const char *name;
        double      fp8_mhz; /* under products of 8 bits */
    } gpus[] = { { "MI300X", 1230 }, { "MI325X", 1464 } };
    tm_arena *arena = tm_arena_create();
    for (size_t i = 0; i < sizeof gpus / sizeof gpus[0]; i++) {
        tm_hardware hw = machine(arena, gpus[i].name).device;
        double      share = hw.number[TM_HARDWARE_SUSTAINED_CLOCK] / hw.number[TM_HARDWARE_CLOCK];
        double      bf16 = hw.number[TM_HARDWARE_PEAK_BF16] * share * 0.94;
        double      fp8 = hw.number[TM_HARDWARE_PEAK_FP8] * gpus[i].fp8_mhz / hw.number[TM_HARDWARE_CLOCK] * 0.83;
        assert_true(fabs(bf16 / hw.number[TM_HARDWARE_PRODUCT_BF16] - 1) < 0.01);
        assert_true(fabs(fp8 / hw.number[TM_HARDWARE_PRODUCT_FP8] - 1) < 0.01);
    }
    tm_arena_destroy(arena);
}

/* cuDNN 9.19 on H200, causal, heads of 128, grouped: 591 and 644 TFLOP/s forward at 4096 and 8192 tokens, 474 and 541
 * backward. */
TEST(attention_of_h200)
{
    tm_arena   *arena = tm_arena_create();
    tm_hardware hw = machine(arena, "H200").device;
    double      forward = 1e15 / tm_time_attention(&hw, false, 1e15, 128, 1) / 1e12;
    double      backward = 1e15 / tm_time_attention(&hw, true, 1e15, 128, 1) / 1e12;
    assert_true(forward >= 591 * 0.98 && forward <= 644 * 1.02);
    assert_true(backward >= 474 * 0.98 && backward <= 541 * 1.02);
    /* The same at heads of 64 with windows: 355 and 303. */
    assert_true(fabs(1e15 / tm_time_attention(&hw, false, 1e15, 64, 1) / 1e12 / 355 - 1) < 0.25);
    tm_arena_destroy(arena);
}

/* What was measured of an op adds up; an op, or a format, that was not measured is told. */
TEST(ops_as_measured)
{
    static const tm_hardware_op ops[] = { { "linear", 2, 0.5, 10, "s" }, { "linear.bfloat16", 1, 0, 0, "s" } };
    static const tm_hardware    hw = { .op = ops, .n_ops = 2 };
    const tm_cost               cost = { .flops = 3e9, .bytes = 5e6, .vector = 7 };
    tm_example                  example;
    assert_true(tm_op_linear.example(0, &example));
    tm_call call = tm_example_call(&tm_op_linear, &example, &tm_precision_f32);
    within("float32", tm_time_op(&hw, &call, &cost), 2e-6 + 3e9 / 0.5e12 + 5e6 / 10e9, 1e-9);
    call = tm_example_call(&tm_op_linear, &example, &tm_precision_bf16);
    within("bfloat16", tm_time_op(&hw, &call, &cost), 1e-6, 1e-9);
    assert_true(tm_op_gelu.example(0, &example));
    call = tm_example_call(&tm_op_gelu, &example, &tm_precision_f32);
    assert_true(tm_time_op(&hw, &call, &cost) < 0);
    assert_true(tm_op_embedding.example(0, &example)); /* its first operand are whole numbers */
    char name[TM_OP_NAME_BYTES];
    call = tm_example_call(&tm_op_embedding, &example, &tm_precision_bf16);
    tm_hardware_op_name(&call, name);
    assert_true(strncmp(name, "embedding", 9) == 0);
}
