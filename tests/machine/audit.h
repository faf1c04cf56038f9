/* SPDX-License-Identifier: Apache-2.0 */
/* Who notices when a wait, a barrier, a fence or a commit of a kernel is left out? Nothing here uses trainmark's
 * library.
 *
 *     machine_audit *audit = machine_audit_new("gfx942");
 *     machine_audit_run(audit, module, memory, &launch, error)      for every launch, in place of machine_run
 *     machine_tally sum = machine_audit_print(audit, "tests/gpu/proved.txt");
 *     machine_audit_free(audit);                                    before its modules
 *
 * A launch runs as it is; then, for each of the kernel's waits that ran and that nobody has missed yet, once more
 * without it, on the same memory, in three orders of waves, and with memory accessed at once. Named: a rule of the
 * interpreters says what is wrong. By values: it leaves other bits. The same for counts that are one too high. What
 * survives all launches is needless by the code alone (machine_needless) in every module, or must be in a file, with
 * why nothing can notice: lines of "ARCH KERNEL FILE:LINE INSTRUCTION: reason", each for one instruction; ARCH may be
 * the beginning of a name. "unreached" in the place of the instruction: why parts of that line's code never run. A line
 * that nothing takes is stale. */
#ifndef TESTS_MACHINE_AUDIT_H
#define TESTS_MACHINE_AUDIT_H

#include "machine/machine.h"

typedef struct machine_audit machine_audit;

machine_audit *machine_audit_new(const char *arch);
void           machine_audit_free(machine_audit *audit);

/* As machine_run, whose results are left in memory. */
bool machine_audit_run(machine_audit *audit, machine_module *module, machine_memory *memory,
                       const machine_launch *launch, char error[MACHINE_ERROR_ROOM]);

typedef struct machine_tally {
    int removed, named, by_values, needless, proved, survived;
    int stale; /* lines of the file */
} machine_tally;

/* Prints a table: a row for each kernel, its modules together: waits, barriers, counts; before it what survives, and
 * lines of the source with instructions that no launch ran; behind it stale lines of `proved`, a path. Returns the sum
 * of waits and barriers. */
machine_tally machine_audit_print(const machine_audit *audit, const char *proved);

#endif
