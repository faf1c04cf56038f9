/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the stand-in for a GPU's runtime share. HIP: that of AMD, else CUDA's driver. */
#ifndef TESTS_STANDINS_GPU_H
#define TESTS_STANDINS_GPU_H

#include "machine/machine.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* those of the makers' headers */
#ifdef HIP
#define NAME(cuda, hip) hip
#else
#define NAME(cuda, hip) cuda
#endif
#define SHOWN __attribute__((visibility("default")))
#define API SHOWN int
/* What tests ask for. */
#define TOLD(name, value)                                                                                              \
    API name(void)                                                                                                     \
    {                                                                                                                  \
        return value;                                                                                                  \
    }
/* A function that fails on command, and otherwise only sets something. */
#define TELLS(cuda, hip, parameters, sets)                                                                             \
    API NAME(cuda, hip) parameters                                                                                     \
    {                                                                                                                  \
        sets;                                                                                                          \
        return standin_fault(#cuda);                                                                                   \
    }

/* cuda.h, enum cudaError_enum; hip_runtime_api.h has the same numbers. */
enum { OK = 0, INVALID = 1, NO_MEMORY = 2, NO_DEVICE = 100, INVALID_IMAGE = 200, NOT_FOUND = 500, NOT_READY = 600 };
enum { ILLEGAL_ADDRESS = 700, CAPTURE_UNJOINED = 904 };

enum { LATE_NS = 100000 }; /* work of a stream begins no sooner than that */

/* The code that the environment variable STANDIN_GPU_FAIL=NAME@N=CODE gives to the N-th call of NAME and all later
 * ones, or what an earlier kernel has met; 0: none. */
int        standin_fault(const char *name);
SHOWN void standin_broken(int code); /* from now on every call fails with it */

/* The memory of all GPUs, and the lock that whoever touches it holds: one piece of work runs at a time. */
machine_memory        *standin_memory(void);
extern pthread_mutex_t standin_lock;

/* Is the stream captured into a graph? NULL: does this thread capture any? */
SHOWN bool standin_captures(const void *stream);

/* Work of a stream. `run` may be called again if it is part of a graph; `drop` ends what `with` has. */
typedef struct standin_work {
    void (*run)(void *with);
    void (*drop)(void *with);
    void    *with;
    bool     unlocked; /* runs without standin_lock: it waits for others, or takes the lock itself */
    uint64_t tag;      /* of a library: what is noted of it */
} standin_work;

/* For tests: while work is noted (standin_noted), launches, copies and what libraries do are not done, and no address
 * is looked at. */
bool       standin_notes(void);
SHOWN void standin_note(const void *data, size_t bytes);

/* Until all streams are idle. */
void standin_settle(void);

/* Puts work into a stream, or into the graph that the stream is captured into. */
SHOWN void standin_put(void *stream, standin_work work);

/* The stream of what goes to the GPU at once, which others do not heed; NULL: there was nothing yet. */
void *standin_default_stream(void);

/* For stand-ins of other libraries: work, done as often as it is played; where the bytes of an address are. */
SHOWN void  standin_enqueue(void *stream, void (*run)(void *), void (*drop)(void *), void *with);
SHOWN void *standin_real(const void *address, size_t bytes);

#endif
