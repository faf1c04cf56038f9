/* SPDX-License-Identifier: Apache-2.0 */
/* device/backend.h - what a kind of device implements (private to device/): one table of calls in its own folder, one
 * line in backends.def.
 *
 * device.c calls `info` first: from there on the device can be planned for. A device that is to run is probed and
 * opened; then a queue is opened for each stream (op.h), and work goes there. What a call promises is in device.h. A
 * call that fails says TM_DEVICE when the device itself failed: device.c remembers that and calls nothing any more but
 * free, the closing calls and `close`. Devices that compute at once in the memory of the host take most calls from
 * device/host/host.h.
 */
#ifndef TM_DEVICE_BACKEND_H
#define TM_DEVICE_BACKEND_H

#include "device/cpu/gemm.h"
#include "device/device.h"
#include "op/attrs.h"

typedef struct tm_queue   tm_queue;   /* in order; the backend's own struct */
typedef struct tm_instant tm_instant; /* a point in a queue (others call it an event); the backend's own struct */
typedef struct tm_bound   tm_bound;   /* work to be played again (others call it a graph); the backend's own struct */

typedef struct {
    const char *name;
    bool        for_tests; /* opened by name like any other, not offered to anybody */
    bool        numbered;  /* there may be several: "cuda:1" is the second (device->ordinal) */

    /* --- what it is; nothing here touches hardware ------------------------------------------------------------ */

    /* Fills device->info and makes device->own. threads: 0 = as many as this process may use. */
    void (*info)(tm_device *device, int threads);
    /* Restricts it to the kernels of one of its rows of capabilities ("avx2"); device->planning: whether this machine
     * has them or not. NULL: there is nothing to choose from. */
    tm_status (*limit)(tm_device *device, const char *name, tm_error *err);
    /* The kernel for a call; NULL: there is none. */
    const tm_kernel *(*choose)(const tm_device *device, const tm_call *call, tm_text *refusals);
    void (*close)(tm_device *device); /* ends what `info` and `open` made */

    /* --- the device ------------------------------------------------------------------------------------------- */

    tm_status (*probe)(tm_error *err); /* is it there? TM_UNSUPPORTED says what is missing */
    tm_status (*open)(tm_device *device, tm_error *err);
    tm_status (*alloc)(tm_device *device, size_t bytes, tm_address *out, tm_error *err);
    void (*free)(tm_device *device, tm_address memory, size_t bytes);
    int64_t (*used)(tm_device *device, tm_address memory, size_t bytes);
    void (*beside)(tm_device *device, tm_device_beside *out); /* NULL: its memory is the host's */
    /* Zeroed memory of the host for the space host. NULL, both: any memory of the process is. `write`, `read`, `copy`
     * and `fill` take it, too. */
    tm_status (*alloc_near)(tm_device *device, size_t bytes, tm_address *out, tm_error *err);
    void (*free_near)(tm_device *device, tm_address memory, size_t bytes);

    /* --- its queues: all of these may return before anything is done --------------------------------------------- */

    tm_status (*queue_open)(tm_device *device, tm_queue **out, tm_error *err);
    void (*queue_close)(tm_queue *queue); /* what was not waited for may never be done */
    tm_status (*write)(tm_queue *queue, tm_address to, const void *from, size_t bytes, tm_error *err);
    tm_status (*read)(tm_queue *queue, void *to, tm_address from, size_t bytes, tm_error *err);
    tm_status (*copy)(tm_queue *queue, tm_address to, tm_address from, size_t bytes,
                      tm_error *err); /* do not overlap */
    tm_status (*fill)(tm_queue *queue, tm_address to, unsigned char value, size_t bytes, tm_error *err);
    /* As tm_device_draw; *drawn false: not of this format, or not to this place. NULL: the host makes them. */
    tm_status (*draw)(tm_queue *queue, tm_address to, tm_dtype dtype, const tm_random_rows *rows, int64_t from,
                      int64_t n, bool *drawn, tm_error *err);
    /* `call` stays as it is until the queue was waited for. */
    tm_status (*launch)(tm_queue *queue, const tm_kernel *kernel, const tm_call *call, tm_error *err);
    tm_status (*wait)(tm_queue *queue, tm_error *err); /* until all of it is done; what failed meanwhile */

    /* --- points in a queue: times, and order between queues ------------------------------------------------------ */

    tm_status (*instant_open)(tm_device *device, tm_instant **out, tm_error *err);
    void (*instant_close)(tm_instant *instant);
    tm_status (*record)(tm_queue *queue, tm_instant *instant, tm_error *err); /* may be recorded again */
    /* What comes later in `queue` begins after what was before the instant in its own. */
    tm_status (*wait_for)(tm_queue *queue, tm_instant *instant, tm_error *err);
    /* Seconds from a to b; both queues were waited for since. */
    tm_status (*time)(const tm_instant *a, const tm_instant *b, double *seconds, tm_error *err);

    /* --- NULL: it has none --------------------------------------------------------------------------------------- */

    int (*count)(void); /* of a numbered one: how many this process sees */
    /* The device has joined several ranks, which all call it: it opens what its collectives go through. */
    tm_status (*connect)(tm_device *device, tm_error *err);
    /* All kernels of a plan were prepared: what they have noted is compiled at once, for all of them. */
    tm_status (*prepared)(tm_device *device, tm_error *err);

    /* From `bind` to `bound` launches, records and waits for instants are kept, not done. They begin in the queue of
     * TM_ON_COMPUTE and end there. `play` then does them all, as often as it is called. All four, or none. */
    tm_status (*bind)(tm_device *device, tm_error *err);
    tm_status (*bound)(tm_device *device, tm_bound **out, tm_error *err);
    tm_status (*play)(tm_device *device, tm_bound *bound, tm_error *err);
    void (*unbind)(tm_bound *bound);

    /* These parts of an arena, in whole pages, get memory that collectives of this world reach without copies; as
     * tm_comm_share. */
    tm_status (*share)(tm_device *device, tm_comm *world, const tm_comm_range *ranges, int n, int *share,
                       tm_error *err);
    const tm_gemm_kernel *(*gemm)(const tm_device *device); /* its matrix product, to be called by hand */
} tm_backend;

/* Instructions from .. to - 1 of a bound program. */
typedef struct {
    size_t    from, to;
    tm_bound *work; /* NULL: the host is needed (tm_kernel.host), so they are launched one by one */
} tm_part;

/* A bound program, and what is known of its times: tm_program.bound. */
typedef struct {
    tm_part  *parts; /* one behind the other */
    size_t    n;
    tm_ledger shares;
    int64_t   timed; /* how often it ran with a ledger */
} tm_played;

struct tm_device {
    const tm_backend     *backend;
    tm_device_info        info;
    void                 *own; /* the backend's */
    int                   ordinal;
    bool                  planning, reference_allowed, one_by_one, own_kernels, other_library, tf32;
    tm_queue             *queues[TM_STREAMS];        /* what is not of a program goes to that of TM_ON_COMPUTE */
    tm_instant           *begins, *ends[TM_STREAMS]; /* of a program with several streams; NULL: there was none yet */
    tm_error              failure;                   /* the first; TM_OK: none */
    const tm_mesh_groups *groups;                    /* NULL: alone */
    int                   share;                     /* number of the memory that collectives reach; -1: none */
    int64_t               shared_bytes;
    const tm_watch       *watch; /* NULL: nobody looks at instructions */
    struct tm_mark       *marks; /* device/ledger.c: times that are not known before the next wait */
    size_t                n_marks, marks_room;
};

#define TM_BACKEND(name) extern const tm_backend tm_backend_##name;
#include "device/backends.def"
#undef TM_BACKEND

/* As tm_device_open and tm_device_open_planning. */
TM_MUST_USE tm_status tm_device_open_backend(const tm_backend *backend, int threads, bool planning, tm_device **out,
                                             tm_error *err);

/* Instructions from .. to - 1 of a program into their queues, behind all that is there. */
TM_MUST_USE tm_status tm_device_queue(tm_device *device, const tm_program *program, size_t from, size_t to,
                                      tm_ledger *ledger, tm_error *err);

/* May the device be called? If not: its first failure, or that it was opened to plan. */
TM_MUST_USE tm_status tm_device_ready(const tm_device *device, tm_error *err);
/* Remembers the first failure of the device itself (TM_DEVICE); passes on what a call said. */
TM_MUST_USE tm_status tm_device_noted(tm_device *device, tm_status st, tm_error *own, tm_error *err);

/* The kernel that runs an op's double reference. `converted`: views may be float32 or bfloat16; values go through
 * float64 copies in the workspace. */
const tm_kernel *tm_reference_kernel(tm_op_id op, bool converted);

/* What the device works on from here to the next mark. */
typedef struct {
    tm_ledger  *ledger; /* NULL: nothing that is counted */
    const char *line;   /* NULL: lines as `shares` says */
    tm_ledger  *shares; /* seconds by line of the program when it was last timed by operation; with a line: it is now */
    bool        first;  /* of such a program: what `shares` had is forgotten */
} tm_marked;
TM_MUST_USE tm_status tm_marks_add(tm_device *device, const tm_marked *what, tm_error *err);
/* The queue was waited for: the times go to the ledgers. */
TM_MUST_USE tm_status tm_marks_settle(tm_device *device, tm_error *err);
void                  tm_marks_close(tm_device *device);

#endif
