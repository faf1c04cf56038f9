/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for libcuda.so.1 and, with HIP defined, for libamdhip64.so: GPUs in memory of the process that cannot be
 * touched at the addresses that callers get, with queues that threads of their own work off, late. For tests.
 *
 * STANDIN_GPUS: how many (4). STANDIN_GPU_FAIL=NAME@N=CODE: from its N-th call on, NAME (of CUDA) returns CODE.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#ifdef HIP
#define NAME(cuda, hip) hip
#else
#define NAME(cuda, hip) cuda
#endif
#define API __attribute__((visibility("default"))) int

enum { OK = 0, INVALID = 1, NO_MEMORY = 2, NO_DEVICE = 100, NOT_READY = 600, LATE_NS = 100000 };

static const size_t    span = (size_t)1 << 32, page = 4096;
static char           *base; /* what callers get: not to be touched; `span` behind it what is there */
static size_t          used;
static int             held; /* blocks that were not given back */
static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;

/* --- faults ---------------------------------------------------------------------------------- */

static int fault(const char *name)
{
    static int  calls;
    const char *text = getenv("STANDIN_GPU_FAIL");
    int         n = 1, code = 0;
    size_t      length = strlen(name);
    if (!text || strncmp(text, name, length) != 0) return 0;
    if (sscanf(text + length, "@%d=%d", &n, &code) != 2) return 0;
    return ++calls >= n ? code : 0;
}

/* --- queues ---------------------------------------------------------------------------------- */

typedef struct work {
    struct work *next;
    void (*run)(void *);
    void *with;
} work;

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t  more;
    pthread_t       thread;
    work           *first;
    bool            busy, ends;
} queue;

static void *work_off(void *of)
{
    queue *q = of;
    pthread_mutex_lock(&q->lock);
    for (;;) {
        while (!q->first && !q->ends) pthread_cond_wait(&q->more, &q->lock);
        work *w = q->first;
        if (!w) break;
        q->busy = true;
        pthread_mutex_unlock(&q->lock);
        nanosleep(&(struct timespec){ .tv_nsec = LATE_NS }, NULL);
        w->run(w->with);
        pthread_mutex_lock(&q->lock);
        q->first = w->next;
        q->busy = false;
        free(w);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

__attribute__((visibility("default"))) void  standin_enqueue(void *stream, void (*run)(void *), void *with);
__attribute__((visibility("default"))) void *standin_real(const void *address, size_t bytes);

void standin_enqueue(void *stream, void (*run)(void *), void *with)
{
    queue *q = stream;
    work  *w = malloc(sizeof *w), **at = &q->first;
    *w = (work){ .run = run, .with = with };
    pthread_mutex_lock(&q->lock);
    while (*at) at = &(*at)->next;
    *at = w;
    pthread_cond_signal(&q->more);
    pthread_mutex_unlock(&q->lock);
}

/* Where the bytes of an address of the GPU are; NULL: it is none. */
void *standin_real(const void *address, size_t bytes)
{
    const char *at = address;
    if (!base || at < base || at + bytes > base + used) return NULL;
    return (char *)at + span;
}

API NAME(cuStreamCreate, hipStreamCreateWithFlags)(void **stream, unsigned flags);
API NAME(cuStreamCreate, hipStreamCreateWithFlags)(void **stream, unsigned flags)
{
    queue *q = calloc(1, sizeof *q);
    if (flags != 1) return INVALID;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->more, NULL);
    pthread_create(&q->thread, NULL, work_off, q);
    *stream = q;
    return fault("cuStreamCreate");
}

API NAME(cuStreamDestroy_v2, hipStreamDestroy)(void *stream);
API NAME(cuStreamDestroy_v2, hipStreamDestroy)(void *stream)
{
    queue *q = stream;
    pthread_mutex_lock(&q->lock);
    q->ends = true;
    pthread_cond_signal(&q->more);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->thread, NULL);
    free(q);
    return OK;
}

API NAME(cuStreamQuery, hipStreamQuery)(void *stream);
API NAME(cuStreamQuery, hipStreamQuery)(void *stream)
{
    queue *q = stream;
    int    code = fault("cuStreamQuery");
    if (code) return code;
    pthread_mutex_lock(&q->lock);
    bool idle = !q->first && !q->busy;
    pthread_mutex_unlock(&q->lock);
    return idle ? OK : NOT_READY;
}

/* What goes to the GPU at once goes through this one, and other queues do not heed it. */
static void *_Atomic default_queue;

API NAME(cuStreamSynchronize, hipStreamSynchronize)(void *stream);
API NAME(cuStreamSynchronize, hipStreamSynchronize)(void *stream)
{
    if (!stream && !default_queue) return OK;
    while (NAME(cuStreamQuery, hipStreamQuery)(stream ? stream : default_queue) == NOT_READY)
        nanosleep(&(struct timespec){ .tv_nsec = LATE_NS }, NULL);
    return OK;
}

/* --- events ---------------------------------------------------------------------------------- */

typedef struct {
    int64_t ns;
    bool    done;
} event;

static void stamp(void *of)
{
    struct timespec t;
    event          *e = of;
    clock_gettime(CLOCK_MONOTONIC, &t);
    e->ns = t.tv_sec * 1000000000LL + t.tv_nsec;
    e->done = true;
}

API NAME(cuEventCreate, hipEventCreateWithFlags)(void **out, unsigned flags);
API NAME(cuEventCreate, hipEventCreateWithFlags)(void **out, unsigned flags)
{
    int code = fault("cuEventCreate");
    *out = code ? NULL : calloc(1, sizeof(event));
    return code ? code : flags == 0 ? OK : INVALID;
}

API NAME(cuEventDestroy_v2, hipEventDestroy)(void *e);
API NAME(cuEventDestroy_v2, hipEventDestroy)(void *e)
{
    (void)e; /* its turn in a queue may still come */
    return OK;
}

API NAME(cuEventRecord, hipEventRecord)(void *e, void *stream);
API NAME(cuEventRecord, hipEventRecord)(void *e, void *stream)
{
    ((event *)e)->done = false;
    standin_enqueue(stream, stamp, e);
    return fault("cuEventRecord");
}

API NAME(cuEventElapsedTime, hipEventElapsedTime)(float *ms, void *from, void *to);
API NAME(cuEventElapsedTime, hipEventElapsedTime)(float *ms, void *from, void *to)
{
    event *a = from, *b = to;
    if (!a->done || !b->done) return NOT_READY;
    *ms = (float)(b->ns - a->ns) * 1e-6f;
    return fault("cuEventElapsedTime");
}

/* --- memory ---------------------------------------------------------------------------------- */

API NAME(cuMemAlloc_v2, hipMalloc)(void **out, size_t bytes);
API NAME(cuMemAlloc_v2, hipMalloc)(void **out, size_t bytes)
{
    int    code = fault("cuMemAlloc_v2");
    size_t whole = (bytes + page - 1) / page * page;
    if (code) return code;
    pthread_mutex_lock(&memory_lock);
    if (!base) {
        base = mmap(NULL, 2 * span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED) abort();
    }
    if (used + whole <= span) {
        mprotect(base + span + used, whole, PROT_READ | PROT_WRITE);
        memset(base + span + used, 0xff, whole); /* NaN */
        *out = base + used;
        used += whole;
        held++;
    } else {
        code = NO_MEMORY;
    }
    pthread_mutex_unlock(&memory_lock);
    return code;
}

API NAME(cuMemFree_v2, hipFree)(void *memory);
API NAME(cuMemFree_v2, hipFree)(void *memory)
{
    if (!standin_real(memory, 1)) return INVALID;
    pthread_mutex_lock(&memory_lock);
    held--;
    pthread_mutex_unlock(&memory_lock);
    return OK;
}

/* For tests: blocks of memory that nobody has given back. */
API standin_held(void);
API standin_held(void)
{
    return held;
}

typedef struct {
    void       *to;
    const void *from;
    size_t      bytes;
    void       *staged;
} copying;

static void copy(void *of)
{
    copying *c = of;
    memcpy(c->to, c->from, c->bytes);
    free(c->staged);
    free(c);
}

/* Returns when the source may be changed; what was written is there later. */
API NAME(cuMemcpyHtoD_v2, hipMemcpyHtoD)(void *to, const void *from, size_t bytes);
API NAME(cuMemcpyHtoD_v2, hipMemcpyHtoD)(void *to, const void *from, size_t bytes)
{
    void    *real = standin_real(to, bytes);
    copying *c = malloc(sizeof *c);
    if (!real) return INVALID;
    pthread_mutex_lock(&memory_lock);
    if (!default_queue) {
        void *made = NULL;
        (void)NAME(cuStreamCreate, hipStreamCreateWithFlags)(&made, 1);
        default_queue = made;
    }
    pthread_mutex_unlock(&memory_lock);
    *c = (copying){ real, NULL, bytes, malloc(bytes) };
    memcpy(c->staged, from, bytes);
    c->from = c->staged;
    standin_enqueue(default_queue, copy, c);
    return fault("cuMemcpyHtoD_v2");
}

/* At once, as the real one for a queue that does not heed the default queue. */
API NAME(cuMemcpyDtoH_v2, hipMemcpyDtoH)(void *to, const void *from, size_t bytes);
API NAME(cuMemcpyDtoH_v2, hipMemcpyDtoH)(void *to, const void *from, size_t bytes)
{
    const void *real = standin_real(from, bytes);
    if (!real) return INVALID;
    memcpy(to, real, bytes);
    return fault("cuMemcpyDtoH_v2");
}

API NAME(cuMemcpyDtoDAsync_v2, hipMemcpyDtoDAsync)(void *to, const void *from, size_t bytes, void *stream);
API NAME(cuMemcpyDtoDAsync_v2, hipMemcpyDtoDAsync)(void *to, const void *from, size_t bytes, void *stream)
{
    copying *c = malloc(sizeof *c);
    *c = (copying){ standin_real(to, bytes), standin_real(from, bytes), bytes, NULL };
    if (!c->to || !c->from) return INVALID;
    standin_enqueue(stream, copy, c);
    return fault("cuMemcpyDtoDAsync_v2");
}

/* --- devices --------------------------------------------------------------------------------- */

static int gpus(void)
{
    return getenv("STANDIN_GPUS") ? atoi(getenv("STANDIN_GPUS")) : 4;
}

API NAME(cuInit, hipInit)(unsigned flags);
API NAME(cuInit, hipInit)(unsigned flags)
{
    (void)flags;
    return fault("cuInit");
}

API NAME(cuDriverGetVersion, hipRuntimeGetVersion)(int *version);
API NAME(cuDriverGetVersion, hipRuntimeGetVersion)(int *version)
{
    *version = 12040;
    return fault("cuDriverGetVersion");
}

API NAME(cuDeviceGetCount, hipGetDeviceCount)(int *count);
API NAME(cuDeviceGetCount, hipGetDeviceCount)(int *count)
{
    *count = gpus();
    return fault("cuDeviceGetCount");
}

API NAME(cuDeviceGet, hipDeviceGet)(int *device, int index);
API NAME(cuDeviceGet, hipDeviceGet)(int *device, int index)
{
    int code = fault("cuDeviceGet");
    *device = index;
    return code ? code : index >= 0 && index < gpus() ? OK : NO_DEVICE;
}

API NAME(cuDeviceGetName, hipDeviceGetName)(char *name, int bytes, int device);
API NAME(cuDeviceGetName, hipDeviceGetName)(char *name, int bytes, int device)
{
    (void)device;
    snprintf(name, (size_t)bytes, "a stand-in");
    return fault("cuDeviceGetName");
}

API NAME(cuDeviceGetPCIBusId, hipDeviceGetPCIBusId)(char *bus, int bytes, int device);
API NAME(cuDeviceGetPCIBusId, hipDeviceGetPCIBusId)(char *bus, int bytes, int device)
{
    snprintf(bus, (size_t)bytes, "0000:%02x:00.0", device + 16);
    return fault("cuDeviceGetPCIBusId");
}

API NAME(cuDeviceTotalMem_v2, hipDeviceTotalMem)(size_t *bytes, int device);
API NAME(cuDeviceTotalMem_v2, hipDeviceTotalMem)(size_t *bytes, int device)
{
    (void)device;
    *bytes = span;
    return fault("cuDeviceTotalMem_v2");
}

#ifdef HIP
API hipSetDevice(int device);
API hipSetDevice(int device)
{
    int code = fault("hipSetDevice");
    return code ? code : device >= 0 && device < gpus() ? OK : NO_DEVICE;
}

__attribute__((visibility("default"))) const char *hipGetErrorString(int code);
const char                                        *hipGetErrorString(int code)
{
    return code == 700 ? "an illegal memory access was encountered" : "some other error";
}
#else
API cuDevicePrimaryCtxRetain(void **context, int device);
API cuDevicePrimaryCtxRetain(void **context, int device)
{
    *context = base + device;
    return fault("cuDevicePrimaryCtxRetain");
}

API cuCtxSetCurrent(void *context);
API cuCtxSetCurrent(void *context)
{
    (void)context;
    return fault("cuCtxSetCurrent");
}

API cuDevicePrimaryCtxRelease_v2(int device);
API cuDevicePrimaryCtxRelease_v2(int device)
{
    (void)device;
    return OK;
}

API cuGetErrorString(int code, const char **text);
API cuGetErrorString(int code, const char **text)
{
    *text = code == 700 ? "an illegal memory access was encountered" : "some other error";
    return OK;
}
#endif
