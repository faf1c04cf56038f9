/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over ranks in bfloat16, bit for bit. (Which are: test_plans.c; what they train: tests/differential.) */
#include "support/test.h"
#include "graph/value.h"
#include "graph/passes/passes.h"
#include "op/attrs.h"
#include "ranks_fixture.h"

enum { ROWS = 6, COLUMNS = 48, ELEMENTS = ROWS * COLUMNS, RANKS = 3 };

static float value_of(int rank, int i)
{
    return (float)tm_random_normal(11, (uint64_t)rank, (uint64_t)i);
}

static float expected(int i)
{
    float sum = 0;
    for (int r = 0; r < RANKS; r++) {
        float part = tm_bf16_value(tm_bf16_round(value_of(r, i)));
        sum = r == 0 ? part : sum + part;
    }
    return tm_bf16_value(tm_bf16_round(sum));
}

/* One op of a group of all ranks, y added to what is there or not. */
static void one_sum(tm_comm *comm, tm_op_id op, bool add)
{
    tm_device     *device;
    tm_mesh        mesh = tm_mesh_one();
    tm_mesh_groups groups = { 0 };
    tm_group_attr  attr;
    tm_loaded     *loaded;
    tm_plan       *plan;
    tm_arenas      memory = { 0 };
    float          x[ELEMENTS], y[ELEMENTS];
    int            rank = tm_comm_rank(comm), n = op == TM_OP_all_reduce ? ELEMENTS : ELEMENTS / RANKS;
    CHECK_OK(tm_device_open("cpu", 1, &device, err));
    mesh.degree[TM_AXIS_REPLICATE] = RANKS;
    CHECK_OK(tm_mesh_split(&mesh, comm, &groups, err));
    tm_device_join(device, &groups);
    tm_graph    *graph = tm_graph_create(&tm_precision_f32);
    tm_tensor_id from = tm_graph_tensor(graph, "x", TM_ROLE_GRADIENT, tm_shape_2(ROWS, COLUMNS));
    tm_tensor_id to = tm_graph_tensor(graph, "y", TM_ROLE_GRADIENT, tm_shape_2(n / COLUMNS, COLUMNS));
    tm_tensor_id in[TM_MAX_IN] = { from }, out[TM_MAX_OUT] = { to };
    for (int i = 1; i < TM_MAX_IN; i++) in[i] = TM_NONE;
    for (int i = 1; i < TM_MAX_OUT; i++) out[i] = TM_NONE;
    memset(&attr, 0, sizeof attr);
    attr.axes = TM_AXES_BATCH;
    attr.ranks = RANKS;
    tm_graph_segment(graph, "only");
    tm_graph_add(graph, op, &attr, sizeof attr, in, out, add ? 1 : 0);
    tm_narrow_pass(graph);
    tm_chooser chooser = tm_device_chooser(device);
    CHECK_OK(tm_plan_create(graph, &chooser, &plan, err));
    CHECK_OK(tm_device_alloc(device, plan->arena_bytes, &memory.base[TM_SPACE_DEVICE], err));
    CHECK_OK(tm_device_load(device, plan, &memory, &loaded, err));
    for (int i = 0; i < ELEMENTS; i++) x[i] = value_of(rank, i);
    for (int i = 0; i < n; i++) y[i] = add ? value_of(99, i) : 0;
    CHECK_OK(tm_device_write(device, tm_plan_address(plan, &memory, from), x, sizeof x, err));
    CHECK_OK(tm_device_write(device, tm_plan_address(plan, &memory, to), y, (size_t)n * 4, err));
    CHECK_OK(tm_device_run(device, &plan->programs[0], NULL, err));
    CHECK_OK(tm_device_read(device, y, tm_plan_address(plan, &memory, to), (size_t)n * 4, err));
    CHECK_OK(tm_device_wait(device, err));
    for (int i = 0; i < n; i++) {
        float want = expected(i + (op == TM_OP_all_reduce ? 0 : rank * n));
        CHECK(y[i] == (add ? value_of(99, i) + want : want));
    }
    tm_device_unload(loaded);
    tm_device_release(device, memory.base[TM_SPACE_DEVICE], plan->arena_bytes);
    tm_plan_destroy(plan);
    tm_graph_destroy(graph);
    tm_device_close(device);
    tm_mesh_join(&groups);
}

static void sums(tm_comm *comm, void *context)
{
    (void)context;
    one_sum(comm, TM_OP_all_reduce, false);
    one_sum(comm, TM_OP_reduce_scatter, false);
    one_sum(comm, TM_OP_reduce_scatter, true);
}

TEST(sums_are_rounded_on_every_rank_and_once_more)
{
    run_world(RANKS, NULL, 60, false, sums, NULL);
}
