/* SPDX-License-Identifier: Apache-2.0 */
/* What machine.h's functions call: each interpreter's own. For gcn.c and ptx.c only. */
#ifndef TESTS_MACHINE_MODULE_H
#define TESTS_MACHINE_MODULE_H

#include "machine/machine.h"

typedef struct machine_interpreter {
    void (*unload)(machine_module *module);
    bool (*run)(machine_module *module, machine_memory *memory, const machine_launch *launch,
                const machine_order *order, machine_counts *counts, char error[MACHINE_ERROR_ROOM]);
    int (*kernels)(const machine_module *module);
    const machine_kernel *(*kernel_at)(const machine_module *module, int i);
    machine_instruction (*instruction_at)(const machine_module *module, int at);
    int (*find)(const machine_module *module, int from, int end);
    bool (*loosen)(machine_module *module, int at, int count, int by);
    bool (*needless)(const machine_module *module, int at); /* NULL: never */
} machine_interpreter;

/* The first member of every module. */
struct machine_module {
    const machine_interpreter *interpreter;
};

#endif
