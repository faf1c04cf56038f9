/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of the kernels for NVIDIA's tensor cores (kernels/), as cases.h has them. */
#ifndef TESTS_MACHINE_CASES_NVIDIA_H
#define TESTS_MACHINE_CASES_NVIDIA_H

#include "machine/cases.h"

/* Ends with a name of NULL. A kernel's file says for which architectures it is. */
extern const machine_case machine_nvidia_cases[];

#endif
