/* SPDX-License-Identifier: Apache-2.0 */
/* What an interpreter gives to machine.c, which sends each call to the module's own. */
#ifndef TESTS_MACHINE_MODULE_H
#define TESTS_MACHINE_MODULE_H

#include "machine/machine.h"

typedef struct machine_kind {
    void (*unload)(machine_module *module);
    bool (*run)(machine_module *module, machine_memory *memory, const machine_launch *launch,
                const machine_order *order, machine_counts *counts, char error[MACHINE_ERROR_ROOM]);
    int (*kernels)(const machine_module *module);
    const machine_kernel *(*kernel_at)(const machine_module *module, int i);
    machine_instruction (*instruction_at)(const machine_module *module, int at);
    bool (*orders)(const machine_module *module, int at);
} machine_kind;

/* The first member of each interpreter's own module. */
struct machine_module {
    const machine_kind *kind;
};

#endif
