/* SPDX-License-Identifier: Apache-2.0 */
/* device/device.h - where programs run.
 *
 *   cpu        fast kernels, float32 and bfloat16; the references compute what none takes only if that is asked for
 *   reference  every op in float64, slow and obviously right: it judges the others
 *   cuda, hip  a GPU, through CUDA's driver or HIP's runtime; "cuda:1" is the second one
 *   null       computes nothing: what remains is our own overhead
 *   late       for tests: the kernels of cpu, memory of its own, nothing done before somebody waits for it
 *
 * A device owns its threads and hands out memory for arenas. One thread drives a device.
 *
 * Nobody but the device's kernels looks into its memory: everybody else copies, by the calls below. Copies, fills and
 * programs go to the device's queue, which does them one after the other in the order of the calls; the calls may
 * return before anything is done. Until tm_device_wait has returned
 *     the host memory that a write reads from stays as it is,
 *     the host memory that a read writes to is not looked at,
 *     what was loaded stays loaded.
 * Each of them, and tm_device_wait, may be the one that reports an earlier failure (TM_DEVICE). After a failure of the
 * device every call gives the first one again: all that is left is to release and to close.
 */
#ifndef TM_DEVICE_DEVICE_H
#define TM_DEVICE_DEVICE_H

#include "base/random.h"
#include "base/status.h"
#include "comm/mesh/mesh.h"
#include "gpu/neighbours.h"
#include "gpu/platform.h"
#include "gpu/sensors.h"
#include "graph/plan.h"

typedef struct tm_device tm_device;

typedef enum { TM_DEVICE_CPU, TM_DEVICE_GPU } tm_device_kind; /* the hardware that computes */

/* What the rest of the house may ask about a device: by these facts, never by its name. */
typedef struct {
    const char    *name;      /* "cpu" */
    char           text[240]; /* "cpu: avx512, 2 threads" */
    tm_device_kind kind;
    int            threads;
    bool           computes;      /* false: its kernels do nothing, no result and no time of it means anything */
    bool           float64_only;  /* its kernels take float64 whatever training.dtype says */
    bool           own_memory;    /* an arena is not in the memory of the host */
    bool           fnuz;          /* its units multiply FNUZ's formats of 8 bits, and not OCP's */
    bool           near_memory;   /* what is offloaded goes to the memory of the host, not to a file */
    size_t         align;         /* bytes: where its kernels want buffers to begin; 0: anywhere that plans put them */
    int64_t        memory_bytes;  /* of its own; 0: unknown, or the host's */
    int64_t        plan_bytes;    /* of it, that a plan may take; 0: unknown, or the host's */
    bool           weight_copies; /* its kernels read weights in the format of the computation, cast from step to step
                                     (graph/passes/resident.c), not for each use */
    bool        fuses;            /* its kernels are bound by memory: passes make one op of neighbours (head_rope.c) */
    int64_t     loss_rows;     /* rows that products of the output layer and its gradient need to be worth it; 0: any */
    int64_t     cache_bytes;   /* of a GPU's last level; 0: unknown, or the host's */
    const char *model;         /* of a GPU, as its runtime says: "AMD Instinct MI300X"; NULL: planned for, or none */
    const tm_gpu_sheet *sheet; /* what its maker publishes of a GPU; NULL: it is not in the table */
    const char         *products;       /* the library of a GPU's matrix products, "hipBLASLt 1.1.0"; NULL: none */
    const char         *other_products; /* "rocBLAS 5.0.0"; NULL: nobody asked for it, or there is none */
    double              peak_flops;     /* 0: unknown */
    const char         *bus;            /* of a GPU: its address on PCI; NULL: it has none, or is not here */
    tm_gpu_neighbours   near;           /* to a GPU: its NUMA node, its network card; bus "": it is not here */
    const char         *kernels;        /* "avx512": by instruction set; NULL where there is one set only */
    const char         *sums[2]; /* a word for the order of summation in products: of float32, of bfloat16 operands.
                                    Kernels with the same words leave the same bits. NULL as above */
    int judged_modules, compiled_modules; /* of a GPU's kernels that were loaded: how many are code that the tests have
                                             executed (gpu/embedded.h), how many were compiled on this machine */
} tm_device_info;

/* name "auto": the first kind of GPU of which there is one, else the CPU. threads: 0 = as many as cpuset and cgroup
 * quota allow. Unknown name: TM_INVALID with the list. */
TM_MUST_USE tm_status tm_device_open(const char *name, int threads, tm_device **out, tm_error *err);
/* A device to plan for, whether this machine has it or not: it is described and chooses kernels, the calls that need
 * the device itself are refused (TM_UNSUPPORTED). */
TM_MUST_USE tm_status tm_device_open_planning(const char *name, int threads, tm_device **out, tm_error *err);
/* NULL is fine. All memory was released, all plans were unloaded. */
void                  tm_device_close(tm_device *device);
const tm_device_info *tm_device_describe(const tm_device *device);
/* Of a GPU that is here (gpu/sensors.h), closed by the caller. NULL: there is none, and `why` has words if its sensors
 * cannot be read. */
tm_gpu_sensors *tm_device_sensors(const tm_device *device, tm_text *why);
/* The instruction set of kernels: "base", "avx2", "avx512", "avx512_bf16", "amx". TM_UNSUPPORTED if this CPU lacks it
 * and the device is to run. */
TM_MUST_USE tm_status tm_device_limit_isa(tm_device *device, const char *isa, tm_error *err);

/* May the references compute what no fast kernel takes (many times slower)? No, unless somebody asks for it. */
void tm_device_allow_reference(tm_device *device, bool allowed);

/* Where programs are bound when they are loaded (launched as one): launch their instructions one by one all the same.
 * Same bits. */
void tm_device_one_by_one(tm_device *device, bool wanted);

/* Products of a GPU by our own kernels, where the maker's library would be taken, in what is planned and prepared from
 * here on. */
void tm_device_own_kernels(tm_device *device, bool wanted);
/* Products of a GPU by its maker's other library (gpu/gemm_ex.h), which nothing trains by, in what is prepared from
 * here on: it is loaded then, and named in tm_device_info.other_products. */
void tm_device_other_library(tm_device *device, bool wanted);

/* Products of float32 by a GPU's library may round factors to TF32, in what is planned and prepared from here on. */
void tm_device_tf32(tm_device *device, bool allowed);

/* A device to plan for has so much memory for a plan. Those in the host's memory have what there is. */
void tm_device_plan_bytes(tm_device *device, int64_t bytes);

/* The name of the device of a rank that is number `local` on its host: of several GPUs "cuda" is "cuda:local", counted
 * round where the process sees fewer; a name with a number, or of a device of which there is one, stays. */
void tm_device_name_of_rank(char out[80], const char *name, int local);

/* The groups that its collectives call: of this rank, before a plan with collectives is loaded; they outlive what is
 * loaded. A collective that fails is reported as a failure of the device (TM_DEVICE, with the text of the group), one
 * that found ranks that do not fit together as what it is (TM_INVALID). */
void tm_device_join(tm_device *device, const tm_mesh_groups *groups);
/* A device whose collectives go past the memory of the host opens what they take; every rank of the world that it has
 * joined calls it, before a plan is loaded. TM_INVALID, TM_UNSUPPORTED: with what to do. Elsewhere, and alone, it does
 * nothing. From there on the groups outlive the device. */
TM_MUST_USE tm_status tm_device_connect(tm_device *device, tm_error *err);
tm_comm *tm_device_group(const tm_device *device, unsigned axes); /* NULL: a group of one, or it has joined none */

/* Puts what the collectives of a loaded plan read and write where the ranks of this host reach it without copies: those
 * parts of the arena become zeros. Every rank of the world calls it, with a plan of its own; one that has joined
 * nothing may, too. Where that cannot be (a device with memory of its own, a system that forbids it, said as a warning)
 * it changes nothing, and calls copy through blocks. The memory is released after tm_device_unshare. */
TM_MUST_USE tm_status tm_device_share(tm_device *device, const tm_plan *plan, tm_error *err);
void                  tm_device_unshare(tm_device *device);
/* Bytes of that memory: part of the arena, but not anonymous as the system counts. */
int64_t tm_device_shared_bytes(const tm_device *device);

/* The line of a ledger of times that an instruction belongs to: "forward linear", static text. */
const char *tm_ledger_line(const tm_instruction *instruction);
/* For tm_plan_create; valid while the device is open. */
tm_chooser tm_device_chooser(const tm_device *device);

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Memory for an arena, in memory from the start (on CPUs near the threads that will use it). What is in it is unknown.
 * TM_NOMEM names the size and the memory that is there. */
TM_MUST_USE tm_status tm_device_alloc(tm_device *device, size_t bytes, tm_address *out, tm_error *err);
void                  tm_device_release(tm_device *device, tm_address memory, size_t bytes);
/* The same, zeroed, for benches that call kernels of the CPU by hand: TM_UNSUPPORTED where the memory is not the
 * host's. */
TM_MUST_USE tm_status tm_device_alloc_host(tm_device *device, size_t bytes, void **out, tm_error *err);
void                  tm_device_release_host(tm_device *device, void *memory, size_t bytes);

/* Memory of the space disk, zeroed: a file in `folder` that has no name any more and is gone with the process, mapped
 * as shared, its blocks reserved. TM_INVALID: no file can be made there; TM_IO: the disk is too full. */
TM_MUST_USE tm_status tm_device_map_file(tm_device *device, const char *folder, size_t bytes, tm_address *out,
                                         tm_error *err);
void                  tm_device_unmap_file(tm_device *device, tm_address memory, size_t bytes); /* {0} is fine */

/* Memory of the space host, zeroed: of the host, where the device's own copies reach it (of a GPU: pinned). All calls
 * of the queue below take it. TM_NOMEM names both sizes. */
TM_MUST_USE tm_status tm_device_alloc_near(tm_device *device, size_t bytes, tm_address *out, tm_error *err);
void                  tm_device_release_near(tm_device *device, tm_address memory, size_t bytes); /* {0} is fine */

/* Of a device with its own memory, in bytes; all 0: of another. */
typedef struct {
    int64_t in_use; /* of its memory, arenas and whatever else there is, of any process; -1: it cannot say */
    int64_t pinned; /* of the host's memory, for copies and for the space host */
} tm_device_beside;
tm_device_beside tm_device_look_beside(tm_device *device);

/* Bytes of an arena that are in memory: what was touched, as the kernel reports it. -1: unknown. */
int64_t tm_device_used_bytes(tm_device *device, tm_address memory, size_t bytes);

/* --- the queue ---------------------------------------------------------------------------------------------------- */

TM_MUST_USE tm_status tm_device_write(tm_device *device, tm_address to, const void *from, size_t bytes, tm_error *err);
TM_MUST_USE tm_status tm_device_read(tm_device *device, void *to, tm_address from, size_t bytes, tm_error *err);
TM_MUST_USE tm_status tm_device_copy(tm_device *device, tm_address to, tm_address from, size_t bytes, tm_error *err);
TM_MUST_USE tm_status tm_device_fill(tm_device *device, tm_address to, unsigned char value, size_t bytes,
                                     tm_error *err);
/* Elements from .. from + n - 1 of rows of random numbers (base/random.h), rounded to whole bytes of a format, one
 * behind the other. The same bits on every device. */
TM_MUST_USE tm_status tm_device_draw(tm_device *device, tm_address to, tm_dtype dtype, const tm_random_rows *rows,
                                     int64_t from, int64_t n, tm_error *err);
/* Until all of it is done. */
TM_MUST_USE tm_status tm_device_wait(tm_device *device, tm_error *err);

/* --- programs ----------------------------------------------------------------------------------------------------- */

/* Binds the programs of a plan to arenas of plan->spaces[].arena_bytes bytes and prepares their kernels: once for each
 * (kernel, op, attributes, shapes, formats). One device holds a plan at a time. */
typedef struct tm_loaded tm_loaded;
TM_MUST_USE tm_status    tm_device_load(tm_device *device, tm_plan *plan, const tm_arenas *memory, tm_loaded **out,
                                        tm_error *err);
void                     tm_device_unload(tm_loaded *loaded); /* releases the kernels; NULL is fine */

/* Seconds spent by ledger line: "forward linear", "backward attention", "loss", "optimizer", "clip". */
enum { TM_LEDGER_LINES = 32 };
typedef struct {
    tm_named_f64 lines[TM_LEDGER_LINES];
    size_t       count;
} tm_ledger;

/* Runs the instructions of a loaded plan: each stream's in order, side by side as far as their waits allow. Adds to
 * *ledger (may be NULL), which is complete after the next tm_device_wait and stays until then. A bound program is timed
 * by operation the first two times and each 16th; else as a whole, and its time is parted as it was last. */
TM_MUST_USE tm_status tm_device_run(tm_device *device, const tm_program *program, tm_ledger *ledger, tm_error *err);
/* Instructions from .. to - 1 of it, launched one by one, behind those before them. Same bits as the whole. */
TM_MUST_USE tm_status tm_device_run_part(tm_device *device, const tm_program *program, size_t from, size_t to,
                                         tm_ledger *ledger, tm_error *err);
/* Who looks at the instructions that it wants, right before and right after each of them, when all of it is done that
 * they wait for. Only where the memory is the host's (own_memory false): there everything is done at once. Programs
 * have the same bits. */
typedef struct {
    void *context;
    bool (*wants)(void *context, const tm_instruction *instruction);
    tm_status (*look)(void *context, const tm_instruction *instruction, bool done, tm_error *err);
} tm_watch;
/* From here on; `watch` stays until the next call. NULL: nobody looks. */
void tm_device_watch(tm_device *device, const tm_watch *watch);

void tm_ledger_add(tm_ledger *ledger, const char *name, double seconds); /* name: static text */
void tm_ledger_reset(tm_ledger *ledger);                                 /* keeps the lines, sets them to 0 */

#endif
