/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_MACHINE_AUDIT_H
#define TESTS_MACHINE_AUDIT_H

#include <stdbool.h>

/* Leaves out each wait and barrier of the kernels with `only` in their names; prints a table. `counts`: with counts
 * that are one too lax. Returns how many nobody notices and proved.txt does not have; -1: no code. */
int machine_audit(const char *arch, const char *only, bool counts);

#endif
