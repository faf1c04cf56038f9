/* SPDX-License-Identifier: Apache-2.0 */
/* A device that fails at its n-th call, and asks that none follows. */
#ifndef TM_TESTS_FAILING_FIXTURE_H
#define TM_TESTS_FAILING_FIXTURE_H

#include "support/test.h"
#include "device/backend.h"

enum { NEVER = -1 };
static int  calls, fail_at, played; /* calls: since it was set to 0; fail_at 0: none, but they are counted */
static bool failed;

static tm_status count(tm_error *err)
{
    if (fail_at == NEVER) return TM_OK;
    if (failed) fail_msg("call %d came after the failure at call %d", calls + 1, fail_at);
    if (++calls != fail_at) return TM_OK;
    failed = true;
    return tm_fail(err, TM_DEVICE, "planted at call %d", calls);
}

static tm_status alloc(tm_device *device, size_t bytes, tm_address *out, tm_error *err)
{
    TM_TRY(count(err));
    return tm_backend_late.alloc(device, bytes, out, err);
}

static tm_status queue_open(tm_device *device, tm_queue **out, tm_error *err)
{
    TM_TRY(count(err));
    return tm_backend_late.queue_open(device, out, err);
}

static tm_status write_to(tm_queue *queue, tm_address to, const void *from, size_t bytes, tm_error *err)
{
    TM_TRY(count(err));
    return tm_backend_late.write(queue, to, from, bytes, err);
}

static tm_status read_from(tm_queue *queue, void *to, tm_address from, size_t bytes, tm_error *err)
{
    TM_TRY(count(err));
    return tm_backend_late.read(queue, to, from, bytes, err);
}

static tm_status fill(tm_queue *queue, tm_address to, unsigned char value, size_t bytes, tm_error *err)
{
    TM_TRY(count(err));
    return tm_backend_late.fill(queue, to, value, bytes, err);
}

static tm_status launch(tm_queue *queue, const tm_kernel *kernel, const tm_call *call, tm_error *err)
{
    TM_TRY(count(err));
    return tm_backend_late.launch(queue, kernel, call, err);
}

static tm_status wait_all(tm_queue *queue, tm_error *err)
{
    TM_TRY(count(err));
    return tm_backend_late.wait(queue, err);
}

static tm_status instant_open(tm_device *device, tm_instant **out, tm_error *err)
{
    TM_TRY(count(err));
    return tm_backend_late.instant_open(device, out, err);
}

static tm_status record(tm_queue *queue, tm_instant *instant, tm_error *err)
{
    TM_TRY(count(err));
    return tm_backend_late.record(queue, instant, err);
}

static tm_status time_between(const tm_instant *a, const tm_instant *b, double *seconds, tm_error *err)
{
    TM_TRY(count(err));
    return tm_backend_late.time(a, b, seconds, err);
}

static tm_status wait_for(tm_queue *queue, tm_instant *instant, tm_error *err)
{
    TM_TRY(count(err));
    return tm_backend_late.wait_for(queue, instant, err);
}

static tm_status bind_next(tm_device *device, tm_error *err)
{
    TM_TRY(count(err));
    return tm_backend_late.bind(device, err);
}

static tm_status play(tm_device *device, tm_bound *bound, tm_error *err)
{
    played++;
    TM_TRY(count(err));
    return tm_backend_late.play(device, bound, err);
}

static inline tm_backend failing(void)
{
    tm_backend b = tm_backend_late;
    b.name = "failing";
    b.alloc = alloc;
    b.queue_open = queue_open;
    b.write = write_to;
    b.read = read_from;
    b.fill = fill;
    b.launch = launch;
    b.wait = wait_all;
    b.instant_open = instant_open;
    b.record = record;
    b.time = time_between;
    b.wait_for = wait_for;
    b.bind = bind_next;
    b.play = play;
    return b;
}

#endif
