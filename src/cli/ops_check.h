/* SPDX-License-Identifier: Apache-2.0 */
/* cli/ops_check.h - private to the room: the kernels of a device beside the references of their operations. */
#ifndef TM_CLI_OPS_CHECK_H
#define TM_CLI_OPS_CHECK_H

#include "base/status.h"

#include <stdbool.h>

/* Computes the examples of the op `name` (NULL: of all) by the device's kernels and prints how far they are off. Exit
 * code 5: one is beyond its bound. */
TM_MUST_USE tm_status ops_check(const char *name, const char *device, bool as_json, tm_error *err);

#endif
