/* SPDX-License-Identifier: Apache-2.0 */
#include "machine/module.h"

void machine_unload(machine_module *module)
{
    if (module) module->interpreter->unload(module);
}

bool machine_run(machine_module *module, machine_memory *memory, const machine_launch *launch,
                 const machine_order *order, machine_counts *counts, char error[MACHINE_ERROR_ROOM])
{
    return module->interpreter->run(module, memory, launch, order, counts, error);
}

int machine_kernels(const machine_module *module)
{
    return module->interpreter->kernels(module);
}

const machine_kernel *machine_kernel_at(const machine_module *module, int i)
{
    return module->interpreter->kernel_at(module, i);
}

machine_instruction machine_instruction_at(const machine_module *module, int at)
{
    return module->interpreter->instruction_at(module, at);
}

int machine_find(const machine_module *module, int from, int end)
{
    return module->interpreter->find(module, from, end);
}

bool machine_loosen(machine_module *module, int at, int count, int by)
{
    return module->interpreter->loosen(module, at, count, by);
}

bool machine_needless(const machine_module *module, int at)
{
    return module->interpreter->needless && module->interpreter->needless(module, at);
}
