/* SPDX-License-Identifier: Apache-2.0 */
/* device/device.h - where programs run.
 *
 *   cpu        fast kernels, float32 and bfloat16; the references compute what none takes only if that is asked for
 *   reference  every op in float64, slow and obviously right: it judges the others
 *   null       computes nothing: what remains is our own overhead
 *
 * A device owns its threads and hands out arenas. One thread drives a device.
 */
#ifndef TM_DEVICE_DEVICE_H
#define TM_DEVICE_DEVICE_H

#include "base/status.h"
#include "graph/plan.h"

typedef struct tm_device tm_device;

typedef enum { TM_DEVICE_CPU, TM_DEVICE_GPU } tm_device_kind; /* the hardware that computes */

/* What the rest of the house may ask about a device: by these facts, never by its name. */
typedef struct {
    const char    *name;      /* "cpu" */
    char           text[160]; /* "cpu: avx512, 2 threads" */
    tm_device_kind kind;
    int            threads;
    bool           computes;     /* false: its kernels do nothing, no result and no time of it means anything */
    bool           float64_only; /* its kernels take float64 whatever training.dtype says */
    bool           own_memory;   /* an arena is not in the memory of the host */
    double         peak_flops;   /* 0: unknown */
} tm_device_info;

/* threads: 0 = as many as cpuset and cgroup quota allow. Unknown name: TM_INVALID with the list. */
TM_MUST_USE tm_status tm_device_open(const char *name, int threads, tm_device **out, tm_error *err);
void                  tm_device_close(tm_device *device);
const tm_device_info *tm_device_describe(const tm_device *device);
/* The instruction set of kernels; for tests: "base", "avx2", "avx512". TM_UNSUPPORTED if this CPU lacks it. */
TM_MUST_USE tm_status tm_device_limit_isa(tm_device *device, const char *isa, tm_error *err);

/* May the references compute what no fast kernel takes (many times slower)? No, unless somebody asks for it. */
void tm_device_allow_reference(tm_device *device, bool allowed);

/* For tm_plan_create; valid while the device is open. */
tm_chooser tm_device_chooser(const tm_device *device);

/* Memory for an arena, zeroed, its pages touched by the threads that will use them. TM_NOMEM names the size and the
 * memory that is there. */
TM_MUST_USE tm_status tm_device_alloc(tm_device *device, size_t bytes, void **out, tm_error *err);
void                  tm_device_release(tm_device *device, void *memory, size_t bytes);

/* Memory of the space disk, zeroed: a file in `folder` that has no name any more and is gone with the process, mapped as
 * shared, its blocks reserved. Given back with tm_device_release. TM_INVALID: no file can be made there; TM_IO: the disk
 * is too full. */
TM_MUST_USE tm_status tm_device_map_file(tm_device *device, const char *folder, size_t bytes, void **out,
                                         tm_error *err);

/* Bytes of an arena that are in memory: what was touched, by the system's own books. */
int64_t tm_device_used_bytes(const tm_device *device, void *memory, size_t bytes);

/* Seconds spent by ledger line: "forward linear", "backward attention", "loss", "optimizer", "clip". */
enum { TM_LEDGER_LINES = 32 };
typedef struct {
    tm_named_f64 lines[TM_LEDGER_LINES];
    size_t       count;
} tm_ledger;

/* Runs the instructions in order. Adds to *ledger (may be NULL). */
void tm_device_run(tm_device *device, const tm_program *program, tm_ledger *ledger);
void tm_ledger_add(tm_ledger *ledger, const char *name, double seconds); /* name: static text */
void tm_ledger_reset(tm_ledger *ledger);                                 /* keeps the lines, sets them to 0 */

#endif
