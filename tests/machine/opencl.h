/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels' texts as C++ for OpenCL, computed by PoCL: a judge that shares neither compiler nor way to compute with
 * the interpreters of machine code. It knows nothing of waits, races and waves (opencl.cl), and takes portable texts
 * only: those without instructions of one maker. */
#ifndef TESTS_MACHINE_OPENCL_H
#define TESTS_MACHINE_OPENCL_H

#include "machine/machine.h"

/* What a module's text begins with: a comment of one line, which names it. */
#define OPENCL_HEAD "// OpenCL "

/* Why there is no PoCL that can do it, or no clang of its LLVM; NULL: there are. */
const char *machine_opencl_missing(void);

/* A text of the kernels behind its dialect, with its definitions. NULL: `error` says why. Pointers among the arguments
 * of its launches are addresses of their memory. */
machine_module *machine_load_opencl(const char *text, char error[MACHINE_ERROR_ROOM]);

/* LLVM bitcode of a text (SPIR), by `clang`; the caller frees it. NULL: `error` says why. */
unsigned char *opencl_bitcode(const char *text, const char *clang, size_t *bytes, char error[MACHINE_ERROR_ROOM]);

#endif
