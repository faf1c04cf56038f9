/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels compiled for AMD GPUs by clang: $TM_HIP_CLANG (its words), else that of build/venv
 * (tools/kernel_compilers.sh). Texts are kept beside the test program, under a name that has the hash of all that they
 * depend on. */
#ifndef TESTS_MACHINE_COMPILE_AMD_H
#define TESTS_MACHINE_COMPILE_AMD_H

#include "machine/machine.h"

/* Is there no compiler? Then a test says so and is skipped; with TM_TEST_COMPILERS=required it fails. */
bool machine_amd_missing(void);

/* The assembler text of kernels/FILE for "gfx942" or "gfx950"; the caller frees it. NULL: `error` says why. */
char *machine_compile_amd(const char *file, const char *arch, char error[MACHINE_ERROR_ROOM]);

/* A file's bytes, ended by 0; the caller frees them. NULL: it cannot be read. */
char *machine_read_file(const char *path);

#endif
