/* SPDX-License-Identifier: Apache-2.0 */
/* gpu/runtime.h - one GPU: its memory, queues, clock and programs, through CUDA's driver or HIP's runtime, which is
 * loaded at run time.
 *
 * Addresses are the device's: the processor never follows one. A call that fails says which one, with the runtime's
 * words for it (TM_DEVICE). One thread calls a GPU: the one that has opened it. A stream (void *) is a queue of the
 * GPU, an event a point in one; both are what libraries of the maker take.
 */
#ifndef TM_GPU_RUNTIME_H
#define TM_GPU_RUNTIME_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tm_gpu tm_gpu;

typedef enum { TM_GPU_ANY = -1, TM_GPU_CUDA, TM_GPU_HIP } tm_gpu_maker;

typedef struct {
    const char *runtime; /* "CUDA", "HIP" */
    const char *library; /* the file that was loaded */
    int         version; /* as the runtime tells it: 13000 is CUDA 13.0 */
    int         count;   /* GPUs that this process sees */
    int         index;   /* of this one among them */
    char        name[96];
    char        bus[32];         /* "0000:3b:00.0": says of two ranks of a host whether they have the same one */
    char        arch[32];        /* "sm_90", "gfx942" */
    size_t      memory;          /* bytes */
    size_t      cache;           /* bytes of the L2 cache; what AMD has behind it is not told */
    int         multiprocessors; /* streaming multiprocessors, compute units */
    int         shared_bytes;    /* that a block may have */
} tm_gpu_facts;

/* Opens GPU number `wanted` of those that this process sees, counted round (of 1, every number is the first).
 * TM_INVALID: there is no runtime (with what to install), or no GPU. The runtime is the file that the environment
 * variable TRAINMARK_GPU_RUNTIME names, else libcuda.so.1 or libamdhip64.so; TM_GPU_ANY: whichever is there. */
TM_MUST_USE tm_status tm_gpu_open(tm_gpu_maker maker, int wanted, tm_gpu **out, tm_error *err);
void                  tm_gpu_close(tm_gpu *gpu); /* NULL is fine; memory that is left goes with it */
/* GPUs of a maker that this process sees; 0: also where there is no runtime. */
int tm_gpu_count(tm_gpu_maker maker);
/* The runtime's version as in tm_gpu_facts; 0: there is no runtime. No GPU is needed. */
int                 tm_gpu_version(tm_gpu_maker maker);
const tm_gpu_facts *tm_gpu_facts_of(const tm_gpu *gpu);
bool                tm_gpu_is_hip(const tm_gpu *gpu);

/* --- memory ---------------------------------------------------------------------------------------------------------
 */

/* Of the GPU's memory, by all processes: contexts, code and what libraries take are part of it. */
TM_MUST_USE tm_status tm_gpu_memory_in_use(tm_gpu *gpu, int64_t *bytes, tm_error *err);
TM_MUST_USE tm_status tm_gpu_alloc(tm_gpu *gpu, size_t bytes, void **out, tm_error *err);
void                  tm_gpu_free(tm_gpu *gpu, void *memory);
/* Memory of the host that the GPU copies from and to while the processor goes on. */
TM_MUST_USE tm_status tm_gpu_alloc_pinned(tm_gpu *gpu, size_t bytes, void **out, tm_error *err);
void                  tm_gpu_free_pinned(tm_gpu *gpu, void *memory);

/* At once, whatever the queues do: wait first. */
TM_MUST_USE tm_status tm_gpu_write(tm_gpu *gpu, void *to, const void *from, size_t bytes, tm_error *err);
TM_MUST_USE tm_status tm_gpu_read(tm_gpu *gpu, void *to, const void *from, size_t bytes, tm_error *err);

/* In a stream. The host's side of a write or a read is pinned, and stays until the stream was waited for. */
TM_MUST_USE tm_status tm_gpu_queue_write(tm_gpu *gpu, void *stream, void *to, const void *from, size_t bytes,
                                         tm_error *err);
TM_MUST_USE tm_status tm_gpu_queue_read(tm_gpu *gpu, void *stream, void *to, const void *from, size_t bytes,
                                        tm_error *err);
TM_MUST_USE tm_status tm_gpu_queue_copy(tm_gpu *gpu, void *stream, void *to, const void *from, size_t bytes,
                                        tm_error *err);
TM_MUST_USE tm_status tm_gpu_queue_fill(tm_gpu *gpu, void *stream, void *to, unsigned char value, size_t bytes,
                                        tm_error *err);

/* --- streams and events ---------------------------------------------------------------------------------------------
 */

TM_MUST_USE tm_status tm_gpu_stream_open(tm_gpu *gpu, void **out, tm_error *err);
void                  tm_gpu_stream_close(tm_gpu *gpu, void *stream);               /* NULL is fine */
TM_MUST_USE tm_status tm_gpu_stream_wait(tm_gpu *gpu, void *stream, tm_error *err); /* until all of it is done */
/* Is all work of a stream done? A failure of that work comes back here. */
TM_MUST_USE tm_status tm_gpu_stream_done(tm_gpu *gpu, void *stream, bool *done, tm_error *err);

TM_MUST_USE tm_status tm_gpu_event_open(tm_gpu *gpu, void **out, tm_error *err);
void                  tm_gpu_event_close(tm_gpu *gpu, void *event); /* NULL is fine */
TM_MUST_USE tm_status tm_gpu_event_record(tm_gpu *gpu, void *event, void *stream, tm_error *err);
TM_MUST_USE tm_status tm_gpu_event_wait(tm_gpu *gpu, void *event, tm_error *err); /* the processor waits */
/* What comes later in `stream` begins after what was before the event in its own. */
TM_MUST_USE tm_status tm_gpu_event_order(tm_gpu *gpu, void *event, void *stream, tm_error *err);
/* Seconds between two events that have passed. */
TM_MUST_USE tm_status tm_gpu_event_seconds(tm_gpu *gpu, void *from, void *to, double *seconds, tm_error *err);

/* --- programs of the GPU --------------------------------------------------------------------------------------------
 */

/* Loads machine code, as tm_gpu_compile makes it (gpu/compile.h). */
TM_MUST_USE tm_status tm_gpu_module_load(tm_gpu *gpu, const void *code, void **out, tm_error *err);
void                  tm_gpu_module_unload(tm_gpu *gpu, void *module); /* NULL is fine */
/* `shared`: bytes that a block takes beyond those that the kernel declares. */
TM_MUST_USE tm_status tm_gpu_module_kernel(tm_gpu *gpu, void *module, const char *name, size_t shared, void **out,
                                           tm_error *err);

typedef struct {
    void       *kernel;
    unsigned    blocks[3], threads, shared;
    const void *arguments; /* one behind the other, each at a multiple of its size */
    size_t      argument_bytes;
} tm_gpu_launch_of;

TM_MUST_USE tm_status tm_gpu_launch(tm_gpu *gpu, void *stream, const tm_gpu_launch_of *launch, tm_error *err);

/* What Hopper's TMA reads: bfloat16 (sequences, rows, columns), as boxes of 64 columns and some rows of a sequence,
 * which come to shared memory with a swizzle of 128 bytes. What is outside of the tensor comes as zeros. Addresses and
 * distances are multiples of 16 bytes. */
typedef struct {
    const void *at; /* of the device */
    int64_t     columns, rows, sequences;
    int64_t     row_bytes; /* from a row to the next; sequences follow each other */
    unsigned    box_rows;  /* 1 to 256 */
} tm_gpu_tensor;

enum { TM_GPU_MAP_BYTES = 128, TM_GPU_MAP_ALIGN = 64 };

/* Can maps be made? Drivers of CUDA 12 and later do. */
bool tm_gpu_has_maps(const tm_gpu *gpu);
/* map: TM_GPU_MAP_BYTES, at a multiple of TM_GPU_MAP_ALIGN: an argument of kernels. */
TM_MUST_USE tm_status tm_gpu_map(tm_gpu *gpu, const tm_gpu_tensor *tensor, void *map, tm_error *err);

/* What is put into `stream`, and into streams that wait for its events, is kept instead of done, until
 * tm_gpu_capture_end makes one graph of it; tm_gpu_graph_play puts all of it into a stream. */
TM_MUST_USE tm_status tm_gpu_capture_begin(tm_gpu *gpu, void *stream, tm_error *err);
TM_MUST_USE tm_status tm_gpu_capture_end(tm_gpu *gpu, void *stream, void **graph, tm_error *err);
TM_MUST_USE tm_status tm_gpu_graph_play(tm_gpu *gpu, void *graph, void *stream, tm_error *err);
void                  tm_gpu_graph_close(tm_gpu *gpu, void *graph); /* NULL is fine */

#endif
