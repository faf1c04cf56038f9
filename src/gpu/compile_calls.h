/* SPDX-License-Identifier: Apache-2.0 */
/* gpu/compile_calls.h - the calls of NVRTC and hiprtc; private to gpu/compile.c. `make judge-headers` compares them
 * with nvrtc.h and hiprtc.h. */
#ifndef TM_GPU_COMPILE_CALLS_H
#define TM_GPU_COMPILE_CALLS_H

#include <stddef.h>

/* The two libraries have the same calls. X(member, arguments, NVRTC's name, hiprtc's) */
#define COMPILER_CALLS(X)                                                                                              \
    X(version, (int *major, int *minor), "nvrtcVersion", "hiprtcVersion")                                              \
    X(create,                                                                                                          \
      (void **program, const char *source, const char *name, int n, const char *const *headers,                        \
       const char *const *names),                                                                                      \
      "nvrtcCreateProgram", "hiprtcCreateProgram")                                                                     \
    X(compile, (void *program, int n, const char *const *options), "nvrtcCompileProgram", "hiprtcCompileProgram")      \
    X(code_bytes, (void *program, size_t *bytes), "nvrtcGetCUBINSize", "hiprtcGetCodeSize")                            \
    X(code, (void *program, char *code), "nvrtcGetCUBIN", "hiprtcGetCode")                                             \
    X(log_bytes, (void *program, size_t *bytes), "nvrtcGetProgramLogSize", "hiprtcGetProgramLogSize")                  \
    X(log, (void *program, char *log), "nvrtcGetProgramLog", "hiprtcGetProgramLog")                                    \
    X(destroy, (void **program), "nvrtcDestroyProgram", "hiprtcDestroyProgram")

#endif
