/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_MACHINE_AUDIT_CASES_H
#define TESTS_MACHINE_AUDIT_CASES_H

/* Audits the kernels under kernels/ on an architecture and prints a table. Returns how many waits and barriers can be
 * left out and proved.txt does not have; -1: no code. */
int machine_audit_cases(const char *arch);

#endif
