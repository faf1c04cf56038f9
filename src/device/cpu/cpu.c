/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu - the fast CPU device: kernel tables per instruction set, best first; then the converted reference. */
#include "base/cpu.h"
#include "device/backend.h"
#include "device/cpu/copy.h"
#include "device/cpu/gemm.h"
#include "device/cpu/simd/kernels.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    const char             *name;
    const tm_kernel *const *families; /* ends with NULL */
    tm_gemm_kernel          gemm;
} isa_row;

#define TM_CPU_TABLE(family) tm_cpu_##family##_base,
static const tm_kernel *const base_families[] = {
#include "device/cpu/kernel_tables.def"
    tm_cpu_copies, NULL
};
#undef TM_CPU_TABLE
#if defined(__x86_64__)
#define TM_CPU_TABLE(family) tm_cpu_##family##_avx2,
static const tm_kernel *const avx2_families[] = {
#include "device/cpu/kernel_tables.def"
    NULL
};
#undef TM_CPU_TABLE
#define TM_CPU_TABLE(family) tm_cpu_##family##_avx512,
static const tm_kernel *const avx512_families[] = {
#include "device/cpu/kernel_tables.def"
    NULL
};
#undef TM_CPU_TABLE
#endif

static const isa_row isas[] = {
    { "base", base_families, { "base", tm_gemm_workspace_base, tm_gemm_run_base } },
#if defined(__x86_64__)
    { "avx2", avx2_families, { "avx2", tm_gemm_workspace_avx2, tm_gemm_run_avx2 } },
    { "avx512", avx512_families, { "avx512", tm_gemm_workspace_avx512, tm_gemm_run_avx512 } },
#endif
};
enum { ISAS = sizeof isas / sizeof isas[0] };

static bool supported(const char *isa)
{
    tm_cpu_isa have = tm_cpu_isa_probe();
    if (strcmp(isa, "avx512") == 0) return have.avx512;
    if (strcmp(isa, "avx2") == 0) return have.avx2;
    return true;
}

const tm_kernel *const *tm_cpu_kernel_tables(const char *isa)
{
    for (int i = 0; i < ISAS; i++)
        if (strcmp(isas[i].name, isa) == 0 && supported(isa)) return isas[i].families;
    return NULL;
}

static void describe(tm_device *device)
{
    snprintf(device->info.text, sizeof device->info.text, "cpu: %s kernels, %d thread%s", isas[device->isa].name,
             device->info.threads, device->info.threads == 1 ? "" : "s");
}

static tm_status open_cpu(tm_device *device, int threads, tm_error *err)
{
    (void)err;
    device->info.kind = TM_DEVICE_CPU;
    device->info.computes = true;
    device->info.threads = threads > 0 ? threads : tm_cpu_threads_allowed();
    for (int i = 0; i < ISAS; i++)
        if (supported(isas[i].name)) device->isa = i;
    describe(device);
    omp_set_dynamic(0);
    omp_set_num_threads(device->info.threads);
#pragma omp parallel num_threads(device->info.threads)
    tm_cpu_flush_denormals();
    return TM_OK;
}

tm_status tm_device_limit_isa(tm_device *device, const char *isa, tm_error *err)
{
    for (int i = 0; i < ISAS; i++)
        if (strcmp(isas[i].name, isa) == 0 && supported(isa) && device->backend == &tm_backend_cpu) {
            device->isa = i;
            describe(device);
            return TM_OK;
        }
    tm_text list = { 0 };
    for (int i = 0; i < ISAS; i++)
        if (supported(isas[i].name)) tm_text_printf(&list, "%s%s", list.length ? ", " : "", isas[i].name);
    if (device->backend == &tm_backend_cpu)
        tm_fail(err, TM_UNSUPPORTED, "no '%.100s' kernels (--isa); this machine runs: %s", isa, list.data);
    else
        tm_fail(err, TM_UNSUPPORTED, "--isa %.100s is for device cpu, found device %s; leave it out", isa,
                device->info.name);
    tm_text_fini(&list);
    return TM_UNSUPPORTED;
}

static const tm_kernel *choose_cpu(const tm_device *device, const tm_call *call, tm_text *refusals)
{
    tm_op_id op = tm_op_id_of(call->op);
    for (int isa = device->isa; isa >= 0; isa--)
        for (const tm_kernel *const *family = isas[isa].families; *family; family++)
            for (const tm_kernel *kernel = *family; kernel->run; kernel++) {
                if (kernel->op != op) continue;
                const char *why = kernel->refuse ? kernel->refuse(call) : NULL;
                if (!why) return kernel;
                if (refusals) tm_text_printf(refusals, "%s: %s\n", kernel->name, why);
            }
    return device->reference_allowed ? tm_reference_kernel(op, true) : NULL;
}

const tm_gemm_kernel *tm_device_gemm(const tm_device *device)
{
    return device->backend == &tm_backend_cpu ? &isas[device->isa].gemm : NULL;
}

const tm_backend tm_backend_cpu = { .name = "cpu", .open = open_cpu, .choose = choose_cpu };
