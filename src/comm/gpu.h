/* SPDX-License-Identifier: Apache-2.0 */
/* comm/gpu.h - the memory, the queue and the clock of one GPU: CUDA's driver or HIP's runtime, loaded at run time. What
 * collective calls among GPUs need, and no more: nothing is computed here.
 *
 * Addresses are the device's: the processor never follows one. A call that fails says which one, with the runtime's
 * words for it (TM_DEVICE). One thread calls a GPU: the one that has opened it.
 */
#ifndef TM_COMM_GPU_H
#define TM_COMM_GPU_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tm_gpu tm_gpu;

typedef struct {
    const char *runtime; /* "CUDA", "HIP" */
    const char *library; /* the file that was loaded */
    int         version; /* as the runtime tells it: 13000 is CUDA 13.0 */
    int         count;   /* GPUs that this process sees */
    int         index;   /* of this one among them */
    char        name[96];
    char        bus[32]; /* "0000:3b:00.0": says of two ranks of a host whether they have the same one */
    size_t      memory;  /* bytes */
} tm_gpu_facts;

/* Opens GPU number `wanted` of those that this process sees, counted round (of 1, every number is the first).
 * TM_INVALID: there is no runtime (with what to install), or no GPU. The runtime is the file that the environment
 * variable TRAINMARK_GPU_RUNTIME names, else libcuda.so.1 or libamdhip64.so; `hip`: -1: whichever is there. */
TM_MUST_USE tm_status tm_gpu_open(int hip, int wanted, tm_gpu **out, tm_error *err);
void                  tm_gpu_close(tm_gpu *gpu); /* NULL is fine; memory that is left goes with it */
/* GPUs that this process sees; 0: also where there is no runtime. */
int                 tm_gpu_count(void);
const tm_gpu_facts *tm_gpu_facts_of(const tm_gpu *gpu);

TM_MUST_USE tm_status tm_gpu_alloc(tm_gpu *gpu, size_t bytes, void **out, tm_error *err);
void                  tm_gpu_free(tm_gpu *gpu, void *memory);

/* At once, whatever the queue does: wait first. */
TM_MUST_USE tm_status tm_gpu_write(tm_gpu *gpu, void *to, const void *from, size_t bytes, tm_error *err);
TM_MUST_USE tm_status tm_gpu_read(tm_gpu *gpu, void *to, const void *from, size_t bytes, tm_error *err);
/* In the queue: from one place of the device to another. */
TM_MUST_USE tm_status tm_gpu_copy(tm_gpu *gpu, void *to, const void *from, size_t bytes, tm_error *err);

void *tm_gpu_queue(tm_gpu *gpu); /* a stream, for libraries that put work into it */
/* Is all work of the queue done? A failure of that work comes back here. */
TM_MUST_USE tm_status tm_gpu_done(tm_gpu *gpu, bool *done, tm_error *err);

/* Marks the queue at the beginning (0) and the end (1) of what is timed; when the queue is done, the seconds between.
 */
TM_MUST_USE tm_status tm_gpu_mark(tm_gpu *gpu, int which, tm_error *err);
TM_MUST_USE tm_status tm_gpu_marked(tm_gpu *gpu, double *seconds, tm_error *err);

#endif
