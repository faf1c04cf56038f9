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

/* A call of the backend that is counted first. */
#define COUNTED(call, parameters, ...)                                                                                 \
    static tm_status counted_##call parameters                                                                         \
    {                                                                                                                  \
        TM_TRY(count(err));                                                                                            \
        return tm_backend_late.call(__VA_ARGS__);                                                                      \
    }
COUNTED(alloc, (tm_device * device, size_t bytes, tm_address *out, tm_error *err), device, bytes, out, err)
COUNTED(queue_open, (tm_device * device, tm_queue **out, tm_error *err), device, out, err)
COUNTED(write, (tm_queue * q, tm_address to, const void *from, size_t bytes, tm_error *err), q, to, from, bytes, err)
COUNTED(read, (tm_queue * q, void *to, tm_address from, size_t bytes, tm_error *err), q, to, from, bytes, err)
COUNTED(fill, (tm_queue * q, tm_address to, unsigned char value, size_t n, tm_error *err), q, to, value, n, err)
COUNTED(launch, (tm_queue * q, const tm_kernel *kernel, const tm_call *call, tm_error *err), q, kernel, call, err)
COUNTED(wait, (tm_queue * q, tm_error *err), q, err)
COUNTED(instant_open, (tm_device * device, tm_instant **out, tm_error *err), device, out, err)
COUNTED(record, (tm_queue * q, tm_instant *instant, tm_error *err), q, instant, err)
COUNTED(time, (const tm_instant *a, const tm_instant *b, double *seconds, tm_error *err), a, b, seconds, err)
COUNTED(wait_for, (tm_queue * q, tm_instant *instant, tm_error *err), q, instant, err)
COUNTED(bind, (tm_device * device, tm_error *err), device, err)
#undef COUNTED

static tm_status counted_play(tm_device *device, tm_bound *bound, tm_error *err)
{
    played++;
    TM_TRY(count(err));
    return tm_backend_late.play(device, bound, err);
}

static inline tm_backend failing(void)
{
    tm_backend b = tm_backend_late;
    b.name = "failing";
    b.alloc = counted_alloc, b.queue_open = counted_queue_open;
    b.write = counted_write, b.read = counted_read, b.fill = counted_fill;
    b.launch = counted_launch, b.wait = counted_wait, b.wait_for = counted_wait_for;
    b.instant_open = counted_instant_open, b.record = counted_record, b.time = counted_time;
    b.bind = counted_bind, b.play = counted_play;
    return b;
}

#endif
