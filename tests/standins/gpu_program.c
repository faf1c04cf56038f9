/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in for a GPU's runtime: modules and launches. A module is the text that its stand-in compiler writes; a
 * launch executes it, in the order that STANDIN_GPU_ORDER names ("eager", "reversed", a number: waves at random; as
 * late as may be otherwise). STANDIN_GPU_BLIND=1: races are not looked for. STANDIN_GPU_AUDIT=ARCH: each launch is
 * audited (machine/audit.h), until standin_audit_print. */
#define _GNU_SOURCE
#include "gpu.h"

#include "machine/audit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    machine_module *module;
    char            name[96];
} kernel;

typedef struct {
    const kernel  *kernel;
    machine_launch launch;
    unsigned char  arguments[];
} launching;

API NAME(cuModuleLoadData, hipModuleLoadData)(void **out, const void *code);
API NAME(cuModuleLoadData, hipModuleLoadData)(void **out, const void *code)
{
    char error[MACHINE_ERROR_ROOM] = "";
    int  fault = standin_fault("cuModuleLoadData");
    if (fault) return fault;
    *out = NAME(machine_load_ptx, machine_load_gcn)(code, error);
    if (!*out) fprintf(stderr, "stand-in: a module cannot be loaded: %s\n", error);
    return *out ? OK : INVALID_IMAGE;
}

/* Kernels of graphs may still name it: it stays. */
API NAME(cuModuleUnload, hipModuleUnload)(void *module);
API NAME(cuModuleUnload, hipModuleUnload)(void *module)
{
    (void)module;
    return OK;
}

API NAME(cuModuleGetFunction, hipModuleGetFunction)(void **out, void *module, const char *name);
API NAME(cuModuleGetFunction, hipModuleGetFunction)(void **out, void *module, const char *name)
{
    int fault = standin_fault("cuModuleGetFunction");
    if (fault) return fault;
    for (int i = 0; i < machine_kernels(module); i++) {
        if (strcmp(machine_kernel_at(module, i)->name, name) != 0) continue;
        kernel *k = calloc(1, sizeof *k);
        k->module = module;
        snprintf(k->name, sizeof k->name, "%s", name);
        *out = k;
        return OK;
    }
    return NOT_FOUND;
}

#ifndef HIP
API cuFuncSetAttribute(void *of, int which, int value);
API cuFuncSetAttribute(void *of, int which, int value)
{
    int fault = standin_fault("cuFuncSetAttribute");
    (void)of;
    return fault ? fault : which == 8 && value <= 232448 ? OK : INVALID;
}
#endif

static machine_order order_of_day(void)
{
    const char   *wanted = getenv("STANDIN_GPU_ORDER"), *blind = getenv("STANDIN_GPU_BLIND");
    machine_order order = { .skip = -1, .blind = blind && *blind == '1' };
    if (!wanted) return order;
    order.eager = strcmp(wanted, "eager") == 0;
    order.waves = strcmp(wanted, "reversed") == 0 ? 1 : atoi(wanted);
    return order;
}

static machine_audit *audit;

SHOWN machine_tally standin_audit_print(const char *proved);
machine_tally       standin_audit_print(const char *proved)
{
    machine_tally none = { 0, 0, 0, 0, 0 };
    return audit ? machine_audit_print(audit, proved) : none;
}

static bool run_as_asked(const launching *l, char error[MACHINE_ERROR_ROOM])
{
    const char   *arch = getenv("STANDIN_GPU_AUDIT");
    machine_order order = order_of_day();
    if (!arch) return machine_run(l->kernel->module, standin_memory(), &l->launch, &order, NULL, error);
    if (!audit) audit = machine_audit_new(arch);
    return machine_audit_run(audit, l->kernel->module, standin_memory(), &l->launch, error);
}

static void run(void *with)
{
    launching *l = with;
    char       error[MACHINE_ERROR_ROOM] = "";
    if (run_as_asked(l, error)) return;
    fprintf(stderr, "stand-in: %s\n", error);
    standin_broken(ILLEGAL_ADDRESS);
}

API NAME(cuLaunchKernel, hipModuleLaunchKernel)(void *of, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                                unsigned by, unsigned bz, unsigned shared, void *stream,
                                                void **arguments, void **extra);
API NAME(cuLaunchKernel, hipModuleLaunchKernel)(void *of, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                                unsigned by, unsigned bz, unsigned shared, void *stream,
                                                void **arguments, void **extra)
{
    int       fault = standin_fault("cuLaunchKernel");
    uintptr_t end = NAME(0, 3); /* CU_LAUNCH_PARAM_END, HIP_LAUNCH_PARAM_END */
    if (fault) return fault;
    if (arguments || !extra || (uintptr_t)extra[0] != 1 || (uintptr_t)extra[2] != 2 || (uintptr_t)extra[4] != end)
        return INVALID;
    if (!gx || !gy || !gz || !bx || !by || !bz || (uint64_t)bx * by * bz > 1024 || gy > 65535 || gz > 65535)
        return INVALID; /* CUDA C++ Programming Guide, table of technical specifications */
    size_t     bytes = *(const size_t *)extra[3];
    launching *l = calloc(1, sizeof *l + bytes);
    memcpy(l->arguments, extra[1], bytes);
    l->kernel = of;
    l->launch = (machine_launch){ .kernel = l->kernel->name,
                                  .blocks = { gx, gy, gz },
                                  .threads = { bx, by, bz },
                                  .dynamic_shared = shared,
                                  .arguments = l->arguments,
                                  .argument_bytes = bytes };
    standin_put(stream, (standin_work){ .run = run, .drop = free, .with = l });
    return OK;
}
