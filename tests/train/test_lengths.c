/* SPDX-License-Identifier: Apache-2.0 */
/* The first lengths of adapted rows (DoRA): those of the rows of the matrix; memory that fails ends the work at once.
 */
#include "support/test.h"
#include "graph/value.h"
#include "support/training.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    const tm_graph *graph;
    int             calls, fail_at, wrote;
} room;

/* Every element of a matrix is 3. */
static tm_status read_threes(void *context, tm_tensor_id id, size_t offset, void *to, size_t bytes, tm_error *err)
{
    room *h = context;
    (void)id, (void)offset;
    if (++h->calls == h->fail_at) return tm_fail(err, TM_IO, "read %d", h->calls);
    for (size_t i = 0; i < bytes / sizeof(float); i++) ((float *)to)[i] = 3;
    return TM_OK;
}

static tm_status write_lengths(void *context, tm_tensor_id id, size_t offset, const void *from, size_t bytes,
                               tm_error *err)
{
    room            *h = context;
    const tm_tensor *m = tm_graph_at(h->graph, id);
    if (++h->calls == h->fail_at) return tm_fail(err, TM_IO, "write %d", h->calls);
    assert_int_equal(offset, 0);
    assert_int_equal(bytes, tm_tensor_bytes(m->shape, m->dtype));
    int64_t width = tm_graph_at(h->graph, m->adapts)->shape.n[1];
    for (int64_t i = 0; i < tm_shape_elements(m->shape); i++)
        assert_true(fabs(tm_value_get(from, m->dtype, i) - 3 * sqrt((double)width)) < 1e-5);
    h->wrote++;
    return TM_OK;
}

TEST(memory_that_fails_ends_it)
{
    tm_device      *device = test_device_open("cpu", 1);
    tm_step_options o = test_llama_options();
    o.adapters = (tm_adapters){ .rank = 2, .alpha = 4, .base = TM_DTYPE_COUNT, .place = "test", .dora = true };
    strcpy(o.adapters.targets, "wo,wq,wk"); /* wq and wk are rows of one matrix */
    tm_chooser chooser = tm_device_chooser(device);
    tm_step   *step = test_step_plan(&o, &chooser);
    for (int fail_at = 0; fail_at < 10; fail_at++) {
        room                     h = { .graph = step->graph, .fail_at = fail_at };
        const tm_adapters_memory memory = { .read = read_threes, .write = write_lengths, .context = &h };
        tm_error                 err = { 0 };
        char                     wanted[32];
        tm_status                st = tm_adapters_measure(step->graph, &memory, &err);
        const bool               fails = fail_at > 0 && fail_at <= 8;
        snprintf(wanted, sizeof wanted, "%s %d", fail_at % 2 ? "read" : "write", fail_at);
        assert_int_equal(st, fails ? TM_IO : TM_OK);
        assert_int_equal(h.calls, fails ? fail_at : 8);
        assert_int_equal(h.wrote, fails ? (fail_at - 1) / 2 : 4);
        assert_string_equal(err.text, fails ? wanted : "");
    }
    tm_step_destroy(step);
    tm_device_close(device);
}
