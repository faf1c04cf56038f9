/* SPDX-License-Identifier: Apache-2.0 */
#include "machine/module.h"

void machine_unload(machine_module *module)
{
    if (module) module->kind->unload(module);
}

bool machine_run(machine_module *module, machine_memory *memory, const machine_launch *launch,
                 const machine_order *order, machine_counts *counts, char error[MACHINE_ERROR_ROOM])
{
    error[0] = 0;
    machine_memory_launch(memory);
    return module->kind->run(module, memory, launch, order, counts, error);
}

int machine_kernels(const machine_module *module)
{
    return module->kind->kernels(module);
}

const machine_kernel *machine_kernel_at(const machine_module *module, int i)
{
    return module->kind->kernel_at(module, i);
}

machine_instruction machine_instruction_at(const machine_module *module, int at)
{
    return module->kind->instruction_at(module, at);
}

int machine_find(const machine_module *module, int from, int end)
{
    for (int at = from; at < end; at++)
        if (module->kind->orders(module, at)) return at;
    return -1;
}
