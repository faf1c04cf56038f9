/* SPDX-License-Identifier: Apache-2.0 */
/* gpu/places.h - where the libraries of a GPU's maker are installed, and the release of a library's file.
 *
 * Everything is read below `sysroot` ("" for the running system, or a directory with copies), so installations can be
 * made up. Strings come from the arena.
 */
#ifndef TM_GPU_PLACES_H
#define TM_GPU_PLACES_H

#include "base/arena.h"
#include "gpu/runtime.h"

typedef struct {
    const char *folder; /* "/opt/rocm-6.4.1/lib" */
    const char *named;  /* who names it: "ROCM_PATH", "LD_LIBRARY_PATH", "the loader", "/opt", "a wheel", "torch" */
    bool        loader; /* the dynamic loader searches it by itself, without a variable */
} tm_gpu_place;

/* Existing folders in the order in which libraries are searched: LD_LIBRARY_PATH, ROCM_PATH (CUDA_HOME), the loader's,
 * /opt/rocm, /opt/rocm-* from the newest (/usr/local/cuda), Python's packages, the copies inside PyTorch. environment:
 * NAME=value, NULL-terminated. */
const tm_gpu_place *tm_gpu_places(tm_gpu_maker maker, const char *sysroot, char *const *environment, tm_arena *arena,
                                  size_t *n);

typedef struct {
    const char *path;    /* NULL: not in this folder */
    const char *version; /* what follows ".so." in the name of the file behind the links; "" if nothing does */
    const char *release; /* of ROCm, "6.4.1", or of a CUDA library, "13.1.80"; NULL: unknown */
} tm_gpu_file;

/* The library `stem` ("libhiprtc") in a folder: of several libhiprtc.so.N the one with the highest N, else
 * libhiprtc.so. */
tm_gpu_file tm_gpu_file_find(tm_gpu_maker maker, const char *sysroot, const char *folder, const char *stem,
                             tm_arena *arena);

/* Do two releases have the same first two numbers? NULL: unknown, which agrees with everything. */
bool tm_gpu_release_same(const char *a, const char *b);

/* The value of a variable of an environment; NULL if it is not set. */
const char *tm_gpu_variable(char *const *environment, const char *name);

#endif
