/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that ranks send to each other's experts and get back: the kernels among threads, against what the definition
 * says; uneven, empty and full rounds. */
#include "support/test.h"
#include "base/arena.h"
#include "base/random.h"
#include "device/host/host.h"
#include "graph/value.h"
#include "op/exchange.h"

#include "../comm/world.h"

enum { CHANNELS = 3, PAIRS = 12, EACH = 2, MOST = 4 };

typedef struct {
    int      ranks, kind; /* kind 0: random experts; 1: all rows to the last one; 2: none to the first rank */
    int64_t  rows;        /* of a round */
    tm_dtype dtype;
} job;

static int expert_of(const job *j, int rank, int i)
{
    int experts = j->ranks * EACH;
    int e = (int)tm_random_below(3, (uint64_t)j->ranks, (uint64_t)(rank * PAIRS + i), (uint64_t)experts);
    if (j->kind == 1) return experts - 1;
    return j->kind == 2 && e < EACH ? e + EACH : e;
}

/* Rows of a rank for experts below e. */
static int rows_below(const job *j, int rank, int e)
{
    int n = 0;
    for (int i = 0; i < PAIRS; i++) n += expert_of(j, rank, i) < e;
    return n;
}

/* Whole numbers that every format holds: which row of which rank. */
static double value(int rank, int row, int c)
{
    return rank * 64 + row * CHANNELS + c;
}

static tm_exchange_attr attr_of(const job *j, int rank)
{
    tm_exchange_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.group.axes = 1 << TM_AXIS_EP;
    attr.group.ranks = j->ranks;
    snprintf(attr.group.what, sizeof attr.group.what, "rows");
    attr.rank = rank;
    attr.rows = j->rows;
    attr.pairs = PAIRS;
    attr.rounds = (j->ranks * PAIRS + j->rows - 1) / j->rows;
    return attr;
}

static tm_view matrix(tm_dtype dtype, int64_t rows, int64_t columns)
{
    tm_view view = { .dtype = dtype, .shape = tm_shape_2(rows, columns) };
    size_t  bytes = tm_tensor_bytes(view.shape, dtype);
    view.data = malloc(bytes);
    memset(view.data, 0xff, bytes); /* NaN, -1 */
    return view;
}

static const tm_kernel *kernel_of(tm_op_id op)
{
    for (const tm_kernel *k = tm_host_exchange; k->name; k++)
        if (k->op == op) return k;
    return NULL;
}

/* absent: shape.rank -1. */
static void run(tm_device *device, tm_op_id op, const tm_exchange_attr *attr, tm_view a, tm_view b, tm_view c,
                tm_view x, tm_view y)
{
    tm_call          call = { .op = tm_op_get(op), .attr = attr, .in = { a, b, c }, .out = { x, y }, .threads = 1 };
    const tm_kernel *kernel = kernel_of(op);
    tm_error         err = { 0 };
    for (int k = 3; k < TM_MAX_IN; k++) call.in[k].shape.rank = -1;
    for (int k = 2; k < TM_MAX_OUT; k++) call.out[k].shape.rank = -1;
    CHECK(kernel && kernel->refuse(&call) == NULL);
    call.workspace_bytes = kernel->workspace ? kernel->workspace(&call) : 0;
    call.workspace = malloc(call.workspace_bytes + 1);
    CHECK(kernel->prepare(device, &call, &call.state, &err) == TM_OK);
    CHECK(tm_kernel_run(kernel, &call, &err) == TM_OK);
    kernel->release(call.state);
    free(call.workspace);
}

static double at(tm_view view, int64_t row, int64_t c)
{
    return tm_value_get(view.data, view.dtype, row * view.shape.n[1] + c);
}

/* What this rank has got in a round: rows of its experts in the order (expert, rank, row), behind them zeros. */
static void check_received(const job *j, int rank, const tm_exchange_attr *attr, tm_view y, const int32_t *places)
{
    int64_t number = 0, begin = attr->round * attr->rows, used = 0;
    for (int e = rank * EACH; e < (rank + 1) * EACH; e++) {
        CHECK(places[e - rank * EACH] == used);
        for (int s = 0; s < j->ranks; s++)
            for (int i = rows_below(j, s, e); i < rows_below(j, s, e + 1); i++, number++) {
                if (number < begin || number >= begin + attr->rows) continue;
                for (int c = 0; c < CHANNELS; c++) CHECK(at(y, number - begin, c) == value(s, i, c));
                used++;
            }
    }
    CHECK(places[EACH] == used);
    for (int64_t r = used; r < attr->rows; r++)
        for (int c = 0; c < CHANNELS; c++) CHECK(at(y, r, c) == 0);
}

static void exchange_body(tm_comm *comm, void *context)
{
    const job       *j = context;
    int              rank = tm_comm_rank(comm), experts = j->ranks * EACH;
    tm_mesh          mesh = tm_mesh_one();
    tm_mesh_groups   groups;
    tm_device       *device;
    tm_exchange_attr attr = attr_of(j, rank);
    tm_view          none = { .shape.rank = -1 };
    mesh.degree[TM_AXIS_SHARD] = mesh.degree[TM_AXIS_EP] = j->ranks;
    CHECK_OK(tm_mesh_fill(&mesh, j->ranks, err));
    CHECK_OK(tm_mesh_split(&mesh, comm, &groups, err));
    CHECK_OK(tm_device_open("cpu", 1, &device, err));
    tm_device_join(device, &groups);

    tm_view offsets = matrix(TM_I32, 1, experts + 1), counts = matrix(TM_I32, j->ranks, experts);
    tm_view places = matrix(TM_I32, attr.rounds, EACH + 1), x = matrix(j->dtype, PAIRS, CHANNELS);
    tm_view y = matrix(j->dtype, j->rows, CHANNELS), z[2] = { none, none };
    for (int e = 0; e <= experts; e++) ((int32_t *)offsets.data)[e] = rows_below(j, rank, e);
    for (int i = 0; i < PAIRS * CHANNELS; i++)
        tm_value_set(x.data, x.dtype, i, value(rank, i / CHANNELS, i % CHANNELS));
    run(device, TM_OP_exchange_counts, &attr, offsets, none, none, counts, places);
    for (int s = 0; s < j->ranks; s++)
        for (int e = 0; e < experts; e++)
            CHECK(((int32_t *)counts.data)[s * experts + e] == rows_below(j, s, e + 1) - rows_below(j, s, e));
    for (int64_t turn = 0; turn < 2 * attr.rounds; turn++) { /* all rounds, and once more on top */
        tm_view before = z[turn % 2 ^ 1], *after = &z[turn % 2];
        attr.round = turn % attr.rounds;
        if (after->shape.rank < 0) *after = matrix(j->dtype, PAIRS, CHANNELS);
        run(device, TM_OP_send_rows, &attr, x, counts, none, y, none);
        check_received(j, rank, &attr, y, (int32_t *)places.data + attr.round * (EACH + 1));
        run(device, TM_OP_return_rows, &attr, y, counts, before, *after, none);
    }
    for (int i = 0; i < PAIRS; i++) /* what was sent has come back twice, in all rounds together */
        for (int c = 0; c < CHANNELS; c++) CHECK(at(z[1], i, c) == 2 * value(rank, i, c));
    tm_view all[] = { offsets, counts, places, x, y, z[0], z[1] };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].shape.rank > 0) free(all[i].data);
    tm_device_close(device);
    tm_mesh_join(&groups);
}

TEST(rows_go_to_experts_and_come_back)
{
    static const int64_t  room[] = { 1, 5, PAIRS, MOST * PAIRS };
    static const tm_dtype dtypes[] = { TM_F32, TM_BF16, TM_F64 };
    for (int ranks = 2; ranks <= MOST; ranks++)
        for (int kind = 0; kind < 3; kind++)
            for (size_t m = 0; m < sizeof room / sizeof room[0]; m++) {
                job j = { .ranks = ranks, .kind = kind, .rows = room[m], .dtype = dtypes[(m + (size_t)kind) % 3] };
                run_world(ranks, NULL, 60, false, exchange_body, &j);
            }
}

/* Between hosts, too, where no rank reaches another's memory. */
TEST(between_hosts_as_well)
{
    static const int host[] = { 0, 0, 1, 1 };
    job              j = { .ranks = 4, .rows = 10, .dtype = TM_F32 };
    run_world(4, host, 60, false, exchange_body, &j);
}
