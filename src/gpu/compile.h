/* SPDX-License-Identifier: Apache-2.0 */
/* gpu/compile.h - machine code from a kernel's source: NVIDIA's NVRTC or AMD's hiprtc, loaded at run time.
 *
 * What was compiled is kept (gpu/kept.h), by the hash of source, architecture, options and compiler.
 */
#ifndef TM_GPU_COMPILE_H
#define TM_GPU_COMPILE_H

#include "gpu/runtime.h"

typedef struct tm_gpu_compiler tm_gpu_compiler;

/* TM_UNSUPPORTED: there is none, with what to install. The library is the file that TRAINMARK_NVRTC or
 * TRAINMARK_HIPRTC names, else one of where toolkits and Python's packages have it. */
TM_MUST_USE tm_status tm_gpu_compiler_open(tm_gpu_maker maker, tm_gpu_compiler **out, tm_error *err);
void                  tm_gpu_compiler_close(tm_gpu_compiler *compiler); /* NULL is fine */
/* "NVRTC 13.0", and the file that was loaded. */
const char *tm_gpu_compiler_name(const tm_gpu_compiler *compiler);
int         tm_gpu_compiler_version(const tm_gpu_compiler *compiler); /* 1204 is 12.4 */
const char *tm_gpu_compiler_library(const tm_gpu_compiler *compiler);

enum { TM_GPU_MOST_DEFINES = 16 };

typedef struct {
    const char *name;                         /* for messages: "norm" */
    const char *source;                       /* the whole text: no file is included */
    const char *defines[TM_GPU_MOST_DEFINES]; /* "NAME=VALUE"; NULL ends them */
    const char *arch;                         /* "sm_90", "gfx942" */
} tm_gpu_source;

typedef struct {
    void  *code; /* released with free() */
    size_t bytes;
    bool   kept; /* it was in the folder already */
} tm_gpu_code;

/* TM_INTERNAL: the source has an error, with the compiler's words. */
TM_MUST_USE tm_status tm_gpu_compile(tm_gpu_compiler *compiler, const tm_gpu_source *source, tm_gpu_code *out,
                                     tm_error *err);

#endif
