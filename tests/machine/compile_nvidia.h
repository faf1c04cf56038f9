/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels compiled to PTX by NVRTC, which is looked for when it is wanted: nothing of CUDA is needed to build. */
#ifndef TESTS_MACHINE_COMPILE_NVIDIA_H
#define TESTS_MACHINE_COMPILE_NVIDIA_H

#include "machine/machine.h"

/* The PTX of tests/machine/kernels/`file` for an architecture ("sm_90a"): --fmad=false, with lines of the source. The
 * caller frees it. NULL: `error` says why; `*missing`: there is no NVRTC. What was compiled once is kept beside the
 * tests' program, by a hash of sources, architecture and compiler.
 *
 * `from`: this text of the source becomes `to`, a planted mistake. NULL: none.
 *
 * NVRTC is, in this order: $TM_NVRTC, what the loader finds, /usr/local/cuda/lib64, build/venv
 * (tools/kernel_compilers.sh). */
char *machine_compile_nvidia(const char *file, const char *arch, const char *from, const char *to, bool *missing,
                             char error[MACHINE_ERROR_ROOM]);

/* The same, loaded. Without NVRTC the test is skipped; with TM_TEST_COMPILERS=required it fails, as for any error. */
machine_module *machine_nvidia_module(const char *file, const char *arch);
machine_module *machine_nvidia_changed(const char *file, const char *arch, const char *from, const char *to);

#endif
