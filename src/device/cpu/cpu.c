/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu - the fast CPU device: kernel tables per instruction set, best first; then the converted reference. */
#include "base/cpu.h"
#include "device/cpu/cpu.h"
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
    const char             *sums[2]; /* as in tm_device_info */
} isa_row;

#define TM_CPU_TABLE(family) tm_cpu_##family##_base,
static const tm_kernel *const base_families[] = {
#include "device/cpu/kernel_tables.def"
    tm_cpu_copies, tm_host_collectives, tm_host_exchange, tm_host_messages, tm_host_ring, NULL
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
#define TM_CPU_TABLE(family) tm_cpu_##family##_avx512_bf16,
static const tm_kernel *const avx512_bf16_families[] = {
#include "device/cpu/product_tables.def"
    NULL
};
#undef TM_CPU_TABLE
#define TM_CPU_TABLE(family) tm_cpu_##family##_amx,
static const tm_kernel *const amx_families[] = {
#include "device/cpu/product_tables.def"
    NULL
};
#undef TM_CPU_TABLE
#endif

/* Orders of summation (gemm.h): chains of multiply-adds in blocks of 512 k, fused or rounded twice; groups of 32 k. */
static const isa_row isas[] = {
    { "base",
      base_families,
      { "base", tm_gemm_workspace_base, tm_gemm_run_base },
      { "rounded-twice", "rounded-twice" } },
#if defined(__x86_64__)
    { "avx2", avx2_families, { "avx2", tm_gemm_workspace_avx2, tm_gemm_run_avx2 }, { "fused", "fused" } },
    { "avx512", avx512_families, { "avx512", tm_gemm_workspace_avx512, tm_gemm_run_avx512 }, { "fused", "fused" } },
    { "avx512_bf16",
      avx512_bf16_families,
      { "avx512_bf16", tm_gemm_workspace_avx512_bf16, tm_gemm_run_avx512_bf16 },
      { "fused", "fused" } },
    { "amx", amx_families, { "amx", tm_gemm_workspace_amx, tm_gemm_run_amx }, { "fused", "groups-of-32" } },
#endif
};
enum { ISAS = sizeof isas / sizeof isas[0] };

static bool built(const isa_row *row)
{
    return row->families[0] != NULL;
}

/* Does the processor have it? */
static bool offered(const char *isa)
{
    tm_cpu_isa have = tm_cpu_isa_probe();
    if (strcmp(isa, "amx") == 0) return have.amx && have.avx512_bf16 && tm_cpu_allow_tiles();
    if (strcmp(isa, "avx512_bf16") == 0) return have.avx512_bf16;
    if (strcmp(isa, "avx512") == 0) return have.avx512;
    if (strcmp(isa, "avx2") == 0) return have.avx2;
    return true;
}

static bool supported(const isa_row *row)
{
    return built(row) && offered(row->name);
}

/* Taken unless others are asked for: avx512_bf16 gives the bits of avx512, not everywhere faster. */
static bool preferred(const isa_row *row)
{
    return offered(row->name) && (strcmp(row->name, "avx512_bf16") != 0 || tm_cpu_isa_probe().fast_bf16);
}

const tm_kernel *const *tm_cpu_kernel_tables(const char *isa)
{
    for (int i = 0; i < ISAS; i++)
        if (strcmp(isas[i].name, isa) == 0 && supported(&isas[i])) return isas[i].families;
    return NULL;
}

static void describe(tm_device *device)
{
    const isa_row *row = &isas[((const tm_cpu *)device->own)->isa], *best = row;
    char           note[80] = "";
    device->info.kernels = row->name;
    memcpy(device->info.sums, row->sums, sizeof device->info.sums);
    for (int i = 0; i < ISAS; i++)
        if (preferred(&isas[i]) && !built(&isas[i])) best = &isas[i];
    if (!supported(row)) {
        snprintf(note, sizeof note, " (not on this machine)");
    } else if (best > row) {
        snprintf(note, sizeof note, " (this build lacks %s; `make ISA=all` has it)", best->name);
    }
    snprintf(device->info.text, sizeof device->info.text, "%s: %s kernels%s, %d thread%s", device->info.name, row->name,
             note, device->info.threads, device->info.threads == 1 ? "" : "s");
}

void tm_cpu_info(tm_device *device, size_t bytes, int threads)
{
    TM_ASSERT(bytes >= sizeof(tm_cpu));
    tm_host_info(device, bytes, threads);
    tm_cpu *own = device->own;
    for (int i = 0; i < ISAS; i++)
        if (preferred(&isas[i]) && built(&isas[i])) own->isa = i;
    describe(device);
}

static void info(tm_device *device, int threads)
{
    tm_cpu_info(device, sizeof(tm_cpu), threads);
}

tm_status tm_cpu_open(tm_device *device, tm_error *err)
{
    (void)err;
    omp_set_dynamic(0);
    omp_set_num_threads(device->info.threads);
#pragma omp parallel num_threads(device->info.threads)
    tm_cpu_flush_denormals();
    return TM_OK;
}

tm_status tm_cpu_limit(tm_device *device, const char *isa, tm_error *err)
{
    tm_text list = { 0 };
    bool    left_out = false; /* of this build */
    for (int i = 0; i < ISAS; i++) {
        left_out = left_out || (strcmp(isas[i].name, isa) == 0 && !built(&isas[i]));
        bool there = device->planning ? built(&isas[i]) : supported(&isas[i]);
        if (there && strcmp(isas[i].name, isa) == 0) {
            ((tm_cpu *)device->own)->isa = i;
            describe(device);
            tm_text_fini(&list);
            return TM_OK;
        }
        if (there) tm_text_printf(&list, "%s%s", list.length ? ", " : "", isas[i].name);
    }
    tm_fail(err, TM_UNSUPPORTED, "no '%.100s' kernels (--isa); this %s: %s%s", isa,
            device->planning ? "build has" : "machine runs", list.data,
            left_out ? "; `make ISA=all` builds the others" : "");
    tm_text_fini(&list);
    return TM_UNSUPPORTED;
}

const tm_kernel *tm_cpu_choose(const tm_device *device, const tm_call *call, tm_text *refusals)
{
    tm_op_id op = tm_op_id_of(call->op);
    for (int isa = ((const tm_cpu *)device->own)->isa; isa >= 0; isa--)
        for (const tm_kernel *const *family = isas[isa].families; *family; family++)
            for (const tm_kernel *kernel = *family; kernel->name; kernel++) {
                if (kernel->op != op) continue;
                const char *why = kernel->refuse ? kernel->refuse(call) : NULL;
                if (!why) return kernel;
                if (refusals) tm_text_printf(refusals, "%s: %s\n", kernel->name, why);
            }
    return device->reference_allowed ? tm_reference_kernel(op, true) : NULL;
}

static const tm_gemm_kernel *gemm(const tm_device *device)
{
    return &isas[((const tm_cpu *)device->own)->isa].gemm;
}

const tm_backend tm_backend_cpu = {
    .name = "cpu",
    .info = info,
    .limit = tm_cpu_limit,
    .choose = tm_cpu_choose,
    .gemm = gemm,
    TM_HOST_CALLS_BUT_OPEN,
    .open = tm_cpu_open,
};
