/* SPDX-License-Identifier: Apache-2.0 */
/* gpu/platform.h - hardware that need not be here, by name: "MI300X", "8xMI300X", "4x8xMI355X"; and what the makers of
 * GPUs publish of them. */
#ifndef TM_GPU_PLATFORM_H
#define TM_GPU_PLATFORM_H

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

/* A data sheet. Rates are dense, of the matrix units where there are any, in TFLOP/s at the highest clock; 0: none is
 * published, or the GPU has no such unit. A module of two dies that software sees as two GPUs is two of them. */
typedef struct {
    const char *name, *maker, *arch; /* "MI300X", "AMD", "gfx942" */
    int64_t     memory_bytes;
    int64_t cache_bytes; /* of the last level, where it lies behind the L2 that a runtime tells; 0: that is the last */
    int     mhz;         /* the clock at which bfloat16 products reach that rate; 0: not published */
    double  tflops_f32, tflops_bf16, tflops_fp8, tflops_fp4;
    const char *source;
} tm_gpu_sheet;

typedef struct {
    const tm_gpu_sheet *gpu;
    int                 nodes, gpus; /* gpus: of a node */
} tm_platform;

/* NULL behind the last. */
const tm_gpu_sheet *tm_gpu_sheet_at(size_t i);
/* Of the GPU that calls itself `device` ("AMD Instinct MI300X OAM", "NVIDIA A100-SXM4-80GB"): that whose words all are
 * in it, the most of them; NULL: none, and for parts of one (MIG). arch: "gfx942", NULL: any. */
const tm_gpu_sheet *tm_gpu_sheet_of(const char *device, const char *arch);
/* Has the device's name all words of the sheet's? */
bool tm_gpu_sheet_names(const tm_gpu_sheet *sheet, const char *device);
/* [NODESx]GPUSxNAME or NAME; the case does not matter. TM_USAGE: not of that form; TM_INVALID: no such GPU, with the
 * names of all. */
TM_MUST_USE tm_status tm_platform_read(const char *text, tm_platform *out, tm_error *err);
/* "8x MI300X (AMD, gfx942), 192 GiB each; float32 163, bf16 1307, ... TFLOP/s dense; published: ...", one line
 * without its end. */
void tm_platform_describe(const tm_platform *platform, tm_text *out);
/* Bytes of its memory that a plan may take: all but 3 GiB, which the driver's context (0.5 GiB), workspaces of the
 * matrix library and buffers of the communication library take. */
int64_t tm_platform_usable(const tm_gpu_sheet *gpu);
/* The same of so many bytes, for which a GPU that is here is known. */
int64_t tm_platform_room(int64_t memory_bytes);

#endif
