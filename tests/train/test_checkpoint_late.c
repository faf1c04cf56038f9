/* SPDX-License-Identifier: Apache-2.0 */
/* A rank that stops while a checkpoint is loaded is no damage of the checkpoint: the others say who is late, and look
 * at no older one. */
#include "support/test.h"
#include "checkpoint_fixture.h"

#include "../comm/world.h"

#include <stdatomic.h>
#include <unistd.h>

typedef struct {
    const char *folder, *slow; /* the file at which rank 1 is slow */
    int         opened[2];     /* checkpoints that a rank has looked at */
    tm_status   status[2];
    tm_error    err[2];
    atomic_bool given_up; /* by rank 0 */
} job;

typedef struct {
    job *job;
    int  rank;
} disk;

static int slow_open(void *context, const char *path)
{
    disk *d = context;
    d->job->opened[d->rank] += strstr(path, "/complete") != NULL;
    while (d->rank == 1 && strstr(path, d->job->slow) && !atomic_load(&d->job->given_up)) usleep(1000);
    return tm_checkpoint_system_io.open(NULL, path);
}

static void load_rank(tm_comm *comm, void *context)
{
    job                 *j = context;
    disk                 d = { j, tm_comm_rank(comm) };
    tm_checkpoint_io     io = tm_checkpoint_system_io;
    tm_checkpoint_state  state = { 0 };
    tm_checkpoint_report report;
    int64_t              value = 0;
    tm_checkpoint_tensor tensor = { .name = "w", .dtype = 1, .rank = 1, .n = { 1 }, .bytes = 8 };
    place(&tensor, &value);
    io.context = &d;
    io.open = slow_open;
    j->status[d.rank] = tm_checkpoint_load_with(&io, comm, j->folder, -1, &state, &tensor, 1, &report, &j->err[d.rank]);
    if (d.rank == 0) atomic_store(&j->given_up, true);
}

TEST(a_rank_that_stops_is_named)
{
    static const char *const files[] = { "/complete", "/index.bin", "/tensors" };
    for (int i = 0; i < 3; i++) {
        fixture              f = new_fixture();
        tm_error             err = { 0 };
        int64_t              value = 7;
        tm_checkpoint_tensor tensor = { .name = "w", .dtype = 1, .rank = 1, .n = { 1 }, .bytes = 8 };
        place(&tensor, &value);
        for (int64_t step = 1; step <= 2; step++) {
            tm_checkpoint_state state = { .step = step, .samples_consumed = 8 * step, .seed = 4, .model = "m" };
            assert_int_equal(tm_checkpoint_save(f.folder, &state, &tensor, 1, 2, &err), TM_OK);
        }
        job j = { .folder = f.folder, .slow = files[i] };
        run_world(2, NULL, 1, false, load_rank, &j);
        for (int r = 0; r < 2; r++) {
            assert_int_equal(j.status[r], TM_IO);
            assert_says(&j.err[r], "cannot load checkpoint '");
            assert_says(&j.err[r], "step-00000002': rank 1 of group world is late");
            assert_int_equal(j.opened[r], 1);
        }
        clear(f.folder);
    }
}
