/* SPDX-License-Identifier: Apache-2.0 */
/* Collective calls as the device makes them: sums, largest values, parts and wholes of all ranks, in every format,
 * added to what is there or not; what is passed around a ring; groups of one.
 */
#include "support/test.h"
#include "base/arena.h"
#include "device/host/host.h"
#include "graph/value.h"
#include "op/attrs.h"

#include "../comm/world.h"

enum { MOST = 3, ROWS = 6, COLUMNS = 5, ROOM = MOST * ROWS * COLUMNS * 8, WAS = 3 };

typedef struct {
    tm_op_id op;
    tm_dtype dtype;
    bool     adds, largest, in_place;
} job;

/* Whole numbers whose sums every format holds. */
static int value_of(int rank, int64_t i)
{
    return (rank + 1) * (int)(i % 7) - (int)(i % 3) * 4;
}

static int64_t rows_of_result(tm_op_id op, int ranks)
{
    return op == TM_OP_reduce_scatter ? ROWS / ranks : op == TM_OP_all_gather ? ROWS * ranks : ROWS;
}

/* Element i of the result of a rank. */
static double wanted(const job *j, int ranks, int rank, int64_t i)
{
    int    part = ROWS / ranks * COLUMNS;
    double result = 0;
    if (j->op == TM_OP_all_gather) return value_of((int)(i / (ROWS * COLUMNS)), i % (ROWS * COLUMNS));
    if (j->op == TM_OP_pass_on) return value_of((rank + ranks - 1) % ranks, i);
    if (j->op == TM_OP_share) return value_of(rank, i);
    if (j->op == TM_OP_reduce_scatter) i += rank * part;
    for (int r = 0; r < ranks; r++) {
        double own = value_of(r, i);
        result = r == 0 ? own : j->largest ? (own > result ? own : result) : result + own;
    }
    return result + (j->adds ? WAS : 0);
}

static const tm_kernel *kernel_of(tm_op_id op)
{
    const tm_kernel *const tables[] = { tm_host_collectives, tm_host_ring };
    for (int t = 0; t < 2; t++)
        for (const tm_kernel *k = tables[t]; k->name; k++)
            if (k->op == op) return k;
    return NULL;
}

static tm_group_attr attr_of(int ranks, bool largest)
{
    tm_group_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.axes = 1 << TM_AXIS_PP;
    attr.ranks = ranks;
    attr.largest = largest;
    snprintf(attr.what, sizeof attr.what, "parts of a test");
    return attr;
}

static tm_call call_of(const job *j, const tm_group_attr *attr, void *x, void *y)
{
    tm_call call = { .op = tm_op_get(j->op), .attr = attr, .threads = 2, .accumulate = j->adds };
    for (int k = 1; k < TM_MAX_IN; k++) call.in[k].shape.rank = -1;
    for (int k = 1; k < TM_MAX_OUT; k++) call.out[k].shape.rank = -1;
    call.in[0] = (tm_view){ .data = x, .dtype = j->dtype, .shape = tm_shape_2(ROWS, COLUMNS) };
    call.out[0] = (tm_view){ .data = y,
                             .dtype = j->dtype,
                             .shape = tm_shape_2(rows_of_result(j->op, (int)attr->ranks), COLUMNS) };
    return call;
}

static void run_job(tm_device *device, const job *j, int ranks, int rank)
{
    _Alignas(64) static _Thread_local char x[ROOM], y[ROOM + 64];
    const tm_kernel                       *kernel = kernel_of(j->op);
    tm_group_attr                          attr = attr_of(ranks, j->largest);
    tm_call                                call = call_of(j, &attr, x, j->in_place ? x : y);
    int64_t                                n = tm_shape_elements(call.out[0].shape);
    CHECK(kernel && kernel->refuse(&call) == NULL);
    for (int64_t i = 0; i < n; i++) tm_value_set(y, j->dtype, i, WAS);
    memset(y + n * tm_dtype_bits(j->dtype) / 8, 0x5a, 64);
    for (int64_t i = 0; i < ROWS * COLUMNS; i++) tm_value_set(x, j->dtype, i, value_of(rank, i));
    call.workspace_bytes = kernel->workspace ? kernel->workspace(&call) : 0;
    call.workspace = malloc(call.workspace_bytes + 1);
    if (kernel->prepare) CHECK_OK(kernel->prepare(device, &call, &call.state, err));
    CHECK((call.state != NULL) == (kernel->prepare && ranks > 1));
    CHECK_OK(tm_kernel_run(kernel, &call, err));
    for (int64_t i = 0; i < n; i++) {
        double found = tm_value_get(call.out[0].data, j->dtype, i), right = wanted(j, ranks, rank, i);
        if (found == right) continue;
        fprintf(stderr, "%s of %d ranks, format %d: element %lld is %g, not %g\n", kernel->name, ranks, (int)j->dtype,
                (long long)i, found, right);
        abort();
    }
    for (int i = 0; i < 64; i++) CHECK(y[n * tm_dtype_bits(j->dtype) / 8 + i] == 0x5a);
    if (kernel->release) kernel->release(call.state);
    free(call.workspace);
}

static void all_jobs(tm_comm *comm, void *context)
{
    static const tm_dtype dtypes[] = { TM_F32, TM_BF16, TM_F64, TM_I32 };
    const int            *ranks = context;
    tm_mesh               mesh = tm_mesh_one();
    tm_mesh_groups        groups = { 0 };
    tm_device            *device;
    int                   rank = comm ? tm_comm_rank(comm) : 0;
    CHECK_OK(tm_device_open("cpu", 1, &device, err));
    mesh.degree[TM_AXIS_PP] = *ranks;
    if (comm) CHECK_OK(tm_mesh_fill(&mesh, *ranks, err));
    if (comm) CHECK_OK(tm_mesh_split(&mesh, comm, &groups, err));
    if (comm) tm_device_join(device, &groups);
    for (int d = 0; d < 4; d++) {
        tm_dtype  dtype = dtypes[d];
        const job jobs[] = {
            { TM_OP_all_reduce, dtype, .largest = false }, { TM_OP_all_reduce, dtype, .largest = true },
            { TM_OP_all_reduce, dtype, .in_place = true }, { TM_OP_reduce_scatter, dtype, .adds = false },
            { TM_OP_reduce_scatter, dtype, .adds = true }, { TM_OP_all_gather, dtype, .adds = false },
            { TM_OP_share, dtype, .adds = false },         { TM_OP_share, dtype, .in_place = true },
            { TM_OP_pass_on, dtype, .adds = false },
        };
        for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
            bool sums = jobs[i].op == TM_OP_all_reduce || jobs[i].op == TM_OP_reduce_scatter;
            if (sums && dtype == TM_I32) continue;
            run_job(device, &jobs[i], *ranks, rank);
        }
    }
    tm_device_close(device);
    if (comm) tm_mesh_join(&groups);
}

TEST(results_are_those_of_all_ranks)
{
    for (int ranks = 1; ranks <= MOST; ranks++)
        if (ranks == 1)
            all_jobs(NULL, &ranks);
        else
            run_world(ranks, NULL, 60, false, all_jobs, &ranks);
}
