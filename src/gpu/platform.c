/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/platform.h"

#include "base/arena.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What data sheets call GB of a GPU are 2^30 bytes: stacks of chips. */
#define GB(n) ((int64_t)(n) << 30)
#define MB(n) ((int64_t)(n) << 20)
#define AMD_SHEET(name) "AMD Instinct " name " data sheet"
#define NVIDIA_SHEET(name) "NVIDIA " name " data sheet"

/* clang-format off */
static const tm_gpu_sheet sheets[] = {
    /* name          maker     arch      memory   cache    MHz    f32    bf16    fp8     fp4 */
    { "MI210",      "AMD",    "gfx90a", GB(64),  0,       1700,  45.3,  181.0,      0,      0, AMD_SHEET("MI210") },
    { "MI250X",     "AMD",    "gfx90a", GB(64),  0,       1700, 47.85,  191.5,      0,      0, AMD_SHEET("MI250X") ", half of it: a die" },
    { "MI300A",     "AMD",    "gfx942", GB(128), MB(256), 2100, 122.6,  980.6, 1961.2,      0, AMD_SHEET("MI300A") },
    { "MI300X",     "AMD",    "gfx942", GB(192), MB(256), 2100, 163.4, 1307.4, 2614.9,      0, AMD_SHEET("MI300X") },
    { "MI325X",     "AMD",    "gfx942", GB(256), MB(256), 2100, 163.4, 1307.4, 2614.9,      0, AMD_SHEET("MI325X") },
    { "MI350X",     "AMD",    "gfx950", GB(288), MB(256), 2200, 144.2, 2306.9, 4613.7, 9227.5, AMD_SHEET("MI350X") },
    { "MI355X",     "AMD",    "gfx950", GB(288), MB(256), 2400, 157.3, 2516.6, 5033.2,10066.3, AMD_SHEET("MI355X") },
    { "A100-40GB",  "NVIDIA", "sm_80",  GB(40),  0,       1410,  19.5,  312.0,      0,      0, NVIDIA_SHEET("A100") },
    { "A100-80GB",  "NVIDIA", "sm_80",  GB(80),  0,       1410,  19.5,  312.0,      0,      0, NVIDIA_SHEET("A100") },
    { "H20",        "NVIDIA", "sm_90",  GB(96),  0,          0,  44.0,  148.0,  296.0,      0, NVIDIA_SHEET("H20") },
    { "H100",       "NVIDIA", "sm_90",  GB(80),  0,       1830,  67.0,  989.4, 1978.9,      0, NVIDIA_SHEET("H100") ", SXM" },
    { "H100-PCIe",  "NVIDIA", "sm_90",  GB(80),  0,       1620,  51.2,  756.0, 1513.0,      0, NVIDIA_SHEET("H100") ", PCIe" },
    { "H200",       "NVIDIA", "sm_90",  GB(141), 0,       1830,  67.0,  989.4, 1978.9,      0, NVIDIA_SHEET("H200") ", SXM" },
    { "B200",       "NVIDIA", "sm_100", GB(180), 0,          0,  80.0, 2250.0, 4500.0, 9000.0, "NVIDIA Blackwell architecture brief, HGX B200 of 1000 W" },
    { "B300",       "NVIDIA", "sm_103", GB(270), 0,          0,  80.0, 2250.0, 4500.0,13500.0, NVIDIA_SHEET("B300") ", HGX" },
    { "GB200",      "NVIDIA", "sm_100", GB(185), 0,          0,  80.0, 2500.0, 5000.0,10000.0, NVIDIA_SHEET("GB200") ", what programs see of 186 GB" },
    { "GB300",      "NVIDIA", "sm_103", GB(277), 0,          0,  80.0, 2500.0, 5000.0,15000.0, NVIDIA_SHEET("GB300") ", what programs see of 288 GB" },
};
/* clang-format on */
enum { SHEETS = sizeof sheets / sizeof sheets[0], MOST_NODES = 1 << 14, MOST_GPUS = 64 };

int64_t tm_platform_room(int64_t memory_bytes)
{
    return memory_bytes - ((int64_t)3 << 30);
}

int64_t tm_platform_usable(const tm_gpu_sheet *gpu)
{
    return tm_platform_room(gpu->memory_bytes);
}

const tm_gpu_sheet *tm_gpu_sheet_at(size_t i)
{
    return i < SHEETS ? &sheets[i] : NULL;
}

/* Is the word of n letters one of a name, whose words blanks and signs part? */
static bool has_word(const char *name, const char *word, size_t n)
{
    for (const char *at = name; *at;) {
        size_t length = 0;
        while (isalnum((unsigned char)at[length])) length++;
        if (length == n && memcmp(at, word, n) == 0) return true;
        at += length ? length : 1;
    }
    return false;
}

/* How many words a sheet's name has; 0: the device lacks one of them. */
static int words_of(const tm_gpu_sheet *sheet, const char *device)
{
    int words = 0;
    for (const char *at = sheet->name; *at; words++) {
        size_t n = strcspn(at, "-");
        if (!has_word(device, at, n)) return 0;
        at += n + (at[n] == '-');
    }
    return words;
}

bool tm_gpu_sheet_names(const tm_gpu_sheet *sheet, const char *device)
{
    return words_of(sheet, device) > 0;
}

const tm_gpu_sheet *tm_gpu_sheet_of(const char *device, const char *arch)
{
    const tm_gpu_sheet *best = NULL;
    int                 most = 0;
    if (has_word(device, "MIG", 3)) return NULL;
    for (size_t i = 0; i < SHEETS; i++) {
        int words = words_of(&sheets[i], device);
        if (words <= most || (arch && strcmp(arch, sheets[i].arch) != 0)) continue;
        best = &sheets[i];
        most = words;
    }
    return best;
}

static tm_status refuse(const char *text, const char *why, tm_status status, tm_error *err)
{
    tm_text names = { 0 };
    for (size_t i = 0; i < SHEETS; i++) tm_text_printf(&names, "%s%s", i ? ", " : "", sheets[i].name);
    tm_status st =
        tm_fail(err, status, "--platform '%.60s': %s; wanted NAME, GPUSxNAME or NODESxGPUSxNAME, NAME is one of %s",
                text, why, names.data);
    tm_text_fini(&names);
    return st;
}

/* "8x" at *at: a number that is stepped over with its x; 0: there is none. */
static int count(const char **at)
{
    char *end;
    if (!isdigit((unsigned char)**at)) return 0;
    long n = strtol(*at, &end, 10);
    if (*end != 'x' && *end != 'X') return 0;
    *at = end + 1;
    return n < 1 || n > MOST_NODES ? -1 : (int)n;
}

tm_status tm_platform_read(const char *text, tm_platform *out, tm_error *err)
{
    const char *name = text;
    int         first = count(&name), second = first ? count(&name) : 0;
    *out = (tm_platform){ .nodes = second ? first : 1, .gpus = second ? second : first ? first : 1 };
    if (first < 0 || second < 0 || out->gpus > MOST_GPUS)
        return refuse(text, "nodes are 1 to 16384, GPUs of a node 1 to 64", TM_USAGE, err);
    if (!*name || isdigit((unsigned char)*name)) return refuse(text, "names no GPU", TM_USAGE, err);
    for (size_t i = 0; i < SHEETS; i++)
        if (tm_names_equal(sheets[i].name, name)) out->gpu = &sheets[i];
    return out->gpu ? TM_OK : refuse(text, "unknown GPU", TM_INVALID, err);
}

static void rate(const char *format, double tflops, const char **comma, tm_text *out)
{
    if (tflops <= 0) return;
    tm_text_printf(out, "%s %s %.0f", *comma, format, tflops);
    *comma = ",";
}

void tm_platform_describe(const tm_platform *platform, tm_text *out)
{
    const tm_gpu_sheet *gpu = platform->gpu;
    const char         *comma = ";";
    if (platform->nodes > 1) tm_text_printf(out, "%d nodes of ", platform->nodes);
    tm_text_printf(out, "%dx %s (%s, %s), %lld GiB each", platform->gpus, gpu->name, gpu->maker, gpu->arch,
                   (long long)(gpu->memory_bytes >> 30));
    rate("float32", gpu->tflops_f32, &comma, out);
    rate("bf16", gpu->tflops_bf16, &comma, out);
    rate("fp8", gpu->tflops_fp8, &comma, out);
    rate("fp4", gpu->tflops_fp4, &comma, out);
    tm_text_printf(out, " TFLOP/s dense; published: %s", gpu->source);
}
