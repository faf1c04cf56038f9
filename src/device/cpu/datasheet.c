/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/datasheet.c - the peak as data sheets count it: cores x units x lanes x 2 x clock. */
#include "device/ceilings.h"

#include "base/cpu.h"
#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* Family and model as the vendors print them: extended fields added. */
tm_fma_width tm_datasheet_width(const char *vendor, unsigned signature, tm_cpu_isa isa)
{
    static const int two_wide[] = { 0x6a, 0x6c, 0x8f, 0xcf, 0xad, 0xae }; /* Xeon: Ice Lake to Granite Rapids */
    bool             amd = strcmp(vendor, "AuthenticAMD") == 0, intel = strcmp(vendor, "GenuineIntel") == 0;
    int              family = (int)(signature >> 8 & 15), model = (int)(signature >> 4 & 15);
    if (family == 6 || family == 15) model += (int)(signature >> 16 & 15) << 4;
    if (family == 15) family += (int)(signature >> 20 & 255);
    if (amd && family == 0x17) return (tm_fma_width){ 2, model < 0x30 ? 4 : 8 }; /* Zen: 128 bits wide; Zen 2 */
    if (amd && family == 0x19) return (tm_fma_width){ 2, 8 };                    /* Zen 3, 4: 512 bits in two cycles */
    if (amd && family == 0x1a && isa.avx512) return (tm_fma_width){ 2, 16 };     /* Zen 5 of servers */
    if (!intel || family != 6) return (tm_fma_width){ 0, 0 };
    for (size_t i = 0; i < sizeof two_wide / sizeof two_wide[0]; i++)
        if (model == two_wide[i] && isa.avx512) return (tm_fma_width){ 2, 16 };
    /* Skylake and Cascade Lake servers have one or two wide units, which no register tells. */
    return isa.avx512 || !isa.avx2 ? (tm_fma_width){ 0, 0 } : (tm_fma_width){ 2, 8 };
}

static tm_fma_width core_width(void)
{
#if defined(__x86_64__)
    unsigned signature, a, b, c, d, vendor[4] = { 0 };
    if (__get_cpuid(0, &a, &vendor[0], &vendor[2], &vendor[1]) && __get_cpuid(1, &signature, &b, &c, &d))
        return tm_datasheet_width((const char *)vendor, signature, tm_cpu_isa_probe());
#endif
    return (tm_fma_width){ 0, 0 };
}

double tm_datasheet_flops(int cores, tm_fma_width w, double hertz, char how[160])
{
    char units[64] = "width of the units unknown", clock[64] = "clock unknown";
    if (w.units) snprintf(units, sizeof units, "%d fused multiply-add units x %d lanes x 2", w.units, w.lanes);
    if (hertz > 0) snprintf(clock, sizeof clock, "%.3g GHz (highest)", hertz * 1e-9);
    snprintf(how, 160, "%d thread%s x %s x %s", cores, cores == 1 ? "" : "s", units, clock);
    return cores * (double)w.units * w.lanes * 2 * hertz;
}

double tm_device_datasheet_flops(const tm_device *device, char how[160])
{
    char   text[64];
    double hertz = 0;
    if (tm_file_read_line("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", text, sizeof text))
        hertz = strtod(text, NULL) * 1e3;
    return tm_datasheet_flops(tm_device_describe(device)->threads, core_width(), hertz, how);
}
