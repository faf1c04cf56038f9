/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/own.h - the state of a GPU as a device (gpu.c, modules.c). */
#ifndef TM_DEVICE_GPU_OWN_H
#define TM_DEVICE_GPU_OWN_H

#include "comm/coll/nccl.h"
#include "device/gpu/gpu.h"
#include "gpu/blas.h"
#include "gpu/gemm_ex.h"
#include "gpu/dnn.h"
#include "gpu/embedded.h"

/* A text with definitions. */
typedef struct {
    const char        *name;
    const char *const *text;
    tm_gpu_defines     defines;
    const void        *judged; /* its code in the embedded set; NULL: it is compiled here */
    void              *loaded; /* NULL: not yet */
} tm_gpu_module;

/* Pinned memory through which copies go: two halves, taken in turns. What was put into a half has left it when its
 * event has passed. */
typedef struct {
    char  *memory;
    void  *event[2];
    bool   recorded[2];
    int    half;
    size_t used; /* bytes of the half */
} tm_gpu_stage;

/* A read that ends in pinned memory: its bytes are there when the queue was waited for. */
typedef struct {
    void       *to;
    const char *from;
    size_t      bytes;
} tm_gpu_arrival;

typedef struct tm_gpu_ranks  tm_gpu_ranks;  /* collectives.c */
typedef struct tm_gpu_counts tm_gpu_counts; /* exchange.c */

/* Memory of the host that copies in queues reach (offload.c). */
typedef struct {
    char  *memory;
    size_t bytes;
} tm_gpu_near;

typedef struct {
    tm_gpu_maker     maker;
    tm_gpu          *gpu;           /* NULL: opened to plan */
    tm_gpu_embedded *embedded;      /* NULL: this build has no code for this GPU, or the driver does not load it */
    tm_gpu_compiler *compiler;      /* NULL: nothing was compiled yet */
    tm_gpu_blas     *blas;          /* NULL: opened to plan, or there is none */
    bool             tf32;          /* products of float32 that were prepared may be rounded to TF32 */
    bool             blas_expected; /* opened to plan: it was looked whether there will be one */
    tm_error         no_blas;       /* why there is none; TM_OK: there is, or will be */
    tm_gpu_gemm_ex  *other;         /* NULL: nobody asked for it, or there is none */
    tm_error         no_other;      /* why there is none, or what failed */
    tm_gpu_dnn      *dnn;           /* NULL: not asked for yet, or there is none */
    size_t           most_stored;   /* bytes of the workspace of attention's gradients by it */
    bool             dnn_asked;
    bool             attends;  /* the library computes attention of what was prepared */
    tm_error         no_dnn;   /* as no_blas; of another status: it is there, and fails */
    char             sums[80]; /* tm_device_info.sums */
    tm_gpu_module   *modules;
    size_t           n_modules, modules_room;
    tm_gpu_stage     writes;
    char            *reads; /* pinned */
    size_t           reads_used;
    tm_gpu_arrival  *arrivals;
    size_t           n_arrivals, arrivals_room;
    tm_gpu_ranks    *ranks;       /* NULL: it is not connected with others */
    tm_gpu_counts   *counts;      /* of exchanges, by their tensors' addresses (exchange.c) */
    int32_t         *counts_read; /* pinned */
    size_t           counts_room; /* numbers */
    tm_gpu_near     *near;
    size_t           n_near;
} tm_gpu_own;

enum { TM_GPU_MOST_NOTED = 20 };

/* What `prepare` of a kernel leaves (tm_gpu_note): kernels by their numbers. */
typedef struct {
    tm_gpu_own *own;
    int         n;
    int         collective; /* number of a call among ranks + 1; 0: it makes none */
    struct {
        size_t      module; /* number */
        const char *name;   /* NULL: the library does its work */
        void       *kernel; /* found at the first start */
    } all[TM_GPU_MOST_NOTED];
} tm_gpu_noted;

TM_MUST_USE tm_status tm_gpu_prepared(tm_device *device, tm_error *err);
/* What was noted is compiled and loaded: of it nothing but kernels of this GPU alone. */
TM_MUST_USE tm_status tm_gpu_modules_load(tm_device *device, tm_error *err);
/* Opens the compiler of kernels, unless that was done. */
TM_MUST_USE tm_status tm_gpu_compiler_needed(tm_gpu_own *own, tm_error *err);
void                  tm_gpu_describe(tm_device *device); /* info.text, and how many modules were judged */
void                  tm_gpu_modules_close(tm_gpu_own *own);
void                 *tm_gpu_stream_of(const tm_queue *queue);
tm_device            *tm_gpu_device_of(const tm_queue *queue);

/* draw.c. The kernel that draws float32 or bfloat16, as tm_gpu_note; as tm_backend.draw. */
void                  tm_gpu_note_draw(const void *device, tm_dtype dtype, void **state);
TM_MUST_USE tm_status tm_gpu_draw(tm_queue *queue, tm_address to, tm_dtype dtype, const tm_random_rows *rows,
                                  int64_t from, int64_t n, bool *drawn, tm_error *err);

/* offload.c. */
TM_MUST_USE tm_status tm_gpu_alloc_near(tm_device *device, size_t bytes, tm_address *out, tm_error *err);
void                  tm_gpu_free_near(tm_device *device, tm_address memory, size_t bytes);
/* Where the processor finds an address of such memory; NULL: it is the GPU's. */
char *tm_gpu_near_at(const tm_gpu_own *own, tm_address address);

/* product_library.c. */
tm_gpu_format tm_gpu_format_of(tm_dtype dtype); /* of float32, bfloat16, float16 and codes */
/* Of a device that was opened: the library is found and begun. TM_OK: also where there is none. */
TM_MUST_USE tm_status tm_gpu_library_open(tm_device *device, tm_error *err);
TM_MUST_USE tm_status tm_gpu_library_prepare(const void *device, const tm_gpu_product_of *p, tm_error *err);
TM_MUST_USE tm_status tm_gpu_library_start(const tm_call *call, const tm_gpu_product_of *p, tm_error *err);

/* The same of the maker's other library (gpu/gemm_ex.h): why it does not take the product, or NULL; the product. */
const char           *tm_gpu_by_other(tm_device *device, const tm_gpu_product_of *p);
TM_MUST_USE tm_status tm_gpu_other_start(const tm_call *call, const tm_gpu_product_of *p, tm_error *err);

/* The order of sums, by the libraries that are used. */
void tm_gpu_name_sums(tm_gpu_own *own);

/* exchange.c. What the host knows of tensors of counts. */
void tm_gpu_counts_forget(tm_gpu_own *own);

/* collectives.c. The library of collectives is opened with the ranks of the device's world, which all call it. */
TM_MUST_USE tm_status tm_gpu_connect(tm_device *device, tm_error *err);
void                  tm_gpu_disconnect(tm_gpu_own *own);
/* Communicators for what was prepared. */
TM_MUST_USE tm_status tm_gpu_ranks_prepared(tm_device *device, tm_error *err);
/* Of a device that has failed: what it does with others ends, or giving its memory back would wait for it. */
void tm_gpu_ranks_give_up(const tm_device *device);
/* Until all of a stream is done; where other ranks take part, with their deadline and their failures. */
TM_MUST_USE tm_status tm_gpu_ranks_wait(tm_gpu_own *own, void *stream, tm_error *err);

#endif
