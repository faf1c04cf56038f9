/* SPDX-License-Identifier: Apache-2.0 */
/* One call of an op on a device, with operands from the host and back. */
#ifndef TESTS_GPU_CALLED_H
#define TESTS_GPU_CALLED_H

#include "device/device.h"
#include "op/kernel.h"

/* Runs a call, whose views say format, shape and pitch, by the kernel that the device chooses. image: what each operand
 * holds, outputs behind the inputs; NULL: nothing yet. skew: elements between where memory begins and the operands.
 * out: bytes of the results, the caller's to free; NULL: absent. Fails where something is written beside them. */
void   call_on(tm_device *device, const tm_call *call, char *const image[TM_MAX_IN + TM_MAX_OUT], int skew,
               char *out[TM_MAX_OUT]);
size_t called_bytes(const tm_view *view);

#endif
