/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between two ranks as the device sends them: what arrives, in which formats, and how one that does not
 * come is named. */
#include "support/test.h"
#include "base/arena.h"
#include "device/host/host.h"
#include "graph/value.h"
#include "op/attrs.h"

#include "../comm/world.h"

enum { ROWS = 3, COLUMNS = 5, N = ROWS * COLUMNS };

typedef struct {
    int64_t     times;
    int         come; /* messages that come; one more is waited for */
    const char *named;
} job;

static const tm_kernel *kernel_of(tm_op_id op)
{
    for (const tm_kernel *k = tm_host_messages; k->name; k++)
        if (k->op == op) return k;
    return NULL;
}

static tm_message_attr attr_of(int ranks, int peer, int64_t times)
{
    tm_message_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.axes = 1 << TM_AXIS_PP;
    attr.ranks = ranks;
    attr.peer = peer;
    attr.times = times;
    snprintf(attr.what, sizeof attr.what, "rows of stage 1");
    return attr;
}

static tm_call call_of(tm_op_id op, const tm_message_attr *attr, const tm_view *x, const tm_view *y)
{
    tm_call call = { .op = tm_op_get(op), .attr = attr, .threads = 1 };
    for (int k = 0; k < TM_MAX_IN; k++) call.in[k].shape.rank = -1;
    for (int k = 0; k < TM_MAX_OUT; k++) call.out[k].shape.rank = -1;
    if (x) call.in[0] = *x;
    if (y) call.out[0] = *y;
    return call;
}

static tm_view view_of(tm_dtype dtype, double *memory)
{
    memset(memory, 0xff, N * sizeof *memory); /* NaN */
    return (tm_view){ .data = memory, .dtype = dtype, .shape = tm_shape_2(ROWS, COLUMNS) };
}

static void fill(const tm_view *view, int turn)
{
    for (int i = 0; i < N; i++) tm_value_set(view->data, view->dtype, i, turn * 16 + i);
}

static void check(const tm_view *view, int turn)
{
    for (int i = 0; i < N; i++) CHECK(tm_value_get(view->data, view->dtype, i) == turn * 16 + i);
}

/* Rank 1 sends, and waits before the last one until rank 0 has given up. */
static void message_body(tm_comm *comm, void *context)
{
    const job      *j = context;
    tm_mesh         mesh = tm_mesh_one();
    tm_mesh_groups  groups;
    tm_device      *device;
    double          memory[2][N];
    bool            sends = tm_comm_rank(comm) == 1;
    tm_message_attr attr = attr_of(2, !sends, j->times);
    mesh.degree[TM_AXIS_PP] = 2;
    CHECK_OK(tm_mesh_fill(&mesh, 2, err));
    CHECK_OK(tm_mesh_split(&mesh, comm, &groups, err));
    CHECK_OK(tm_device_open("cpu", 1, &device, err));
    tm_device_join(device, &groups);
    tm_view          x = view_of(TM_F32, memory[0]), y = view_of(TM_F32, memory[1]);
    tm_op_id         op = sends ? TM_OP_send : TM_OP_receive;
    tm_call          call = call_of(op, &attr, sends ? &x : NULL, &y);
    const tm_kernel *kernel = kernel_of(op);
    CHECK_OK(kernel->prepare(device, &call, &call.state, err));
    for (int turn = 0; turn < j->come; turn++) {
        fill(&x, turn);
        CHECK_OK(tm_kernel_run(kernel, &call, err));
        check(&y, turn); /* received, or a copy of what was sent */
    }
    if (sends) {
        tm_error failed = { 0 };
        while (tm_comm_failed(comm, &failed) == TM_OK) usleep(1000);
    } else {
        tm_error first = { 0 }, second = { 0 };
        CHECK(tm_kernel_run(kernel, &call, &first) == TM_DEVICE);
        if (!strstr(first.text, j->named)) {
            fprintf(stderr, "'%s' says nothing of %s\n", first.text, j->named);
            abort();
        }
        CHECK(tm_kernel_run(kernel, &call, &second) == TM_DEVICE); /* no more: the first failure stays */
        CHECK(strcmp(first.text, second.text) == 0);
    }
    kernel->release(call.state);
    tm_device_close(device);
    tm_mesh_join(&groups);
}

TEST(messages_arrive_and_are_named)
{
    static job jobs[] = { { 2, 3, "'rows of stage 1, micro-batch 2'" },
                          { 2, 0, "'rows of stage 1, micro-batch 1'" },
                          { 3, 5, "'rows of stage 1, micro-batch 3'" },
                          { 1, 2, "'rows of stage 1'" } };
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) run_world(2, NULL, 0.5, false, message_body, &jobs[i]);
}
