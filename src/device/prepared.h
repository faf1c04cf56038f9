/* SPDX-License-Identifier: Apache-2.0 */
/* device/prepared.h - one call of an op, without a plan, and the device's own clock: for benches of single ops.
 *
 * The kernel is the one that a plan would choose for the call, prepared as for a plan: it asks the library for the same
 * algorithm, and takes the same code.
 */
#ifndef TM_DEVICE_PREPARED_H
#define TM_DEVICE_PREPARED_H

#include "device/device.h"
#include "op/op.h"

typedef struct tm_prepared tm_prepared;

/* call: op, attributes, formats and shapes; its data pointers do not count. Takes the kernel's scratch memory.
 * TM_UNSUPPORTED: no fast kernel takes it, with the reasons; TM_NOMEM. Closed before the device is. */
TM_MUST_USE tm_status tm_prepared_open(tm_device *device, const tm_call *call, tm_prepared **out, tm_error *err);
void                  tm_prepared_close(tm_prepared *prepared); /* NULL is fine; nothing of it is left in the queue */
/* "linear/matrix". */
const char *tm_prepared_kernel(const tm_prepared *prepared);
/* Does a library of the device's maker compute it? */
bool tm_prepared_by_library(const tm_prepared *prepared);
/* Why better kernels were not taken, a line each; "" where the best was. */
const char *tm_prepared_refusals(const tm_prepared *prepared);

/* Puts the call into the queue, with operands at these addresses (those that are absent do not count). On a device that
 * looks at a call when it executes it, as `late` does, the queue is waited for before the next one. */
TM_MUST_USE tm_status tm_prepared_run(tm_prepared *prepared, const tm_address in[TM_MAX_IN],
                                      const tm_address out[TM_MAX_OUT], tm_error *err);

/* Two points in the queue of computations, and the seconds between them by the device's clock. */
typedef struct tm_stopwatch tm_stopwatch;

TM_MUST_USE tm_status tm_stopwatch_open(tm_device *device, tm_stopwatch **out, tm_error *err);
void                  tm_stopwatch_close(tm_stopwatch *watch); /* NULL is fine */
TM_MUST_USE tm_status tm_stopwatch_start(tm_stopwatch *watch, tm_error *err);
/* Waits for all that was queued since. */
TM_MUST_USE tm_status tm_stopwatch_stop(tm_stopwatch *watch, double *seconds, tm_error *err);

#endif
