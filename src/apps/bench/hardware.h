/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/hardware.h - private to the room: what a workload's table says of this machine, for a hardware file
 * (docs/hardware-files.md). */
#ifndef TM_BENCH_HARDWARE_H
#define TM_BENCH_HARDWARE_H

#include "apps/bench/bench.h"

/* Before anything is measured: TM_USAGE if a workload finds no numbers of hardware files; TM_FORMAT or TM_INVALID if
 * the file is there and is none, or is of other hardware than the device. A path that is not there is fine. */
TM_MUST_USE tm_status tm_bench_check_hardware(const tm_bench *bench, const char *workload, const char *path,
                                              tm_error *err);
/* Writes the file, or it again with the numbers that the table of `workload` has. */
TM_MUST_USE tm_status tm_bench_write_hardware(const tm_bench *bench, const char *workload, const char *path,
                                              tm_error *err);

#endif
