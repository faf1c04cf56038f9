/* SPDX-License-Identifier: Apache-2.0 */
/* gpu/library.h - a library of others, found and loaded when it is needed. Never from the current folder. */
#ifndef TM_GPU_LIBRARY_H
#define TM_GPU_LIBRARY_H

#include "base/text.h"
#include "gpu/runtime.h"

#include <limits.h>
#include <stdbool.h>

typedef struct {
    void *handle;
    char  path[PATH_MAX]; /* of the file, links followed */
} tm_library;

/* Loads the first that can be: names that the loader looks for, files with their folders, and patterns of these
 * ("/opt/a*b/lib.so": the last that fits, which has the highest number). NULL ends the list. False: none; `tried` says
 * what was tried, and what was wrong with a file that is there. A library stays loaded. */
bool tm_library_open(const char *const *names, tm_library *out, tm_text *tried);

/* Loads a library of a GPU's maker: the first of `names` ("libhiprtc.so.7", ...; the last may be without a number, as
 * copies inside PyTorch are) in the first of the maker's places (gpu/places.h) that has one. Of ROCm's
 * libraries one of another release than the HIP runtime that is loaded is not taken: `tried` says so. NULL ends the
 * names. */
bool tm_library_open_of(tm_gpu_maker maker, const char *const *names, tm_library *out, tm_text *tried);

/* NULL: it has none of that name. */
void *tm_library_symbol(const tm_library *library, const char *name);

#endif
