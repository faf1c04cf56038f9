/* SPDX-License-Identifier: Apache-2.0 */
/* system/machine.c - probes of the hardware: processor, memory and its modules, board, disks. */
#include "base/cpu.h"
#include "base/file.h"
#include "system/facts.h"

#include <dirent.h>
#include <errno.h>
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- processor ------------------------------------------------------------------------------- */

/* hwloc is steered by environment variables: its plugins would load GPU libraries, and only a variable sets the root.
 */
static const char *const hwloc_names[] = { "HWLOC_PLUGINS_PATH", "HWLOC_COMPONENTS", "HWLOC_FSROOT",
                                           "HWLOC_THISSYSTEM" };
enum { HWLOC_NAMES = 4 };

static void steer_hwloc(const char *sysroot, char *was[HWLOC_NAMES])
{
    for (int i = 0; i < HWLOC_NAMES; i++) {
        const char *value = getenv(hwloc_names[i]);
        was[i] = value ? strdup(value) : NULL;
    }
    setenv("HWLOC_PLUGINS_PATH", "/nonexistent", 1);
    setenv("HWLOC_COMPONENTS", "-opencl,-cuda,-nvml,-rsmi,-levelzero,-gl,-pci", 1);
    if (*sysroot) setenv("HWLOC_FSROOT", sysroot, 1);
    if (*sysroot) setenv("HWLOC_THISSYSTEM", "0", 1);
}

static void restore_hwloc(char *was[HWLOC_NAMES])
{
    for (int i = 0; i < HWLOC_NAMES; i++) {
        if (was[i])
            setenv(hwloc_names[i], was[i], 1);
        else
            unsetenv(hwloc_names[i]);
        free(was[i]);
    }
}

static void add_count(tm_environment *e, hwloc_topology_t topology, hwloc_obj_type_t type, const char *name)
{
    int n = hwloc_get_nbobjs_by_type(topology, type);
    if (n > 0)
        fact_number(e, name, n);
    else
        fact_unknown(e, name, "not in the topology that the kernel shows");
}

/* The whole machine, also what this process may not use. */
static void add_topology(tm_environment *e)
{
    char            *was[HWLOC_NAMES];
    hwloc_topology_t topology;
    steer_hwloc(e->sysroot, was);
    bool made = hwloc_topology_init(&topology) == 0;
    bool loaded = made && hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) == 0 &&
                  hwloc_topology_load(topology) == 0;
    restore_hwloc(was);
    if (loaded) {
        add_count(e, topology, HWLOC_OBJ_PACKAGE, "sockets");
        add_count(e, topology, HWLOC_OBJ_CORE, "cores");
        add_count(e, topology, HWLOC_OBJ_PU, "hardware_threads");
        add_count(e, topology, HWLOC_OBJ_NUMANODE, "numa_nodes");
        fact_bool(e, "smt",
                  hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU) >
                      hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE));
    } else {
        fact_unknown(e, "sockets", "hwloc could not read the topology");
    }
    if (made) hwloc_topology_destroy(topology);
}

static void add_cache(tm_environment *e, const char *name, int64_t bytes)
{
    if (bytes > 0)
        fact_number(e, name, (double)bytes);
    else
        fact_unknown(e, name, "not listed in /sys/devices/system/cpu/cpu0/cache");
}

static const char *cpu_model(tm_environment *e, const char *info)
{
    const char *model = fact_field(e, info, "model name");
    if (model) return model;
    const char *implementer = fact_field(e, info, "CPU implementer"), *part = fact_field(e, info, "CPU part");
    if (implementer && part) return tm_arena_format(e->arena, "implementer %s part %s", implementer, part);
    return fact_field(e, info, "cpu"); /* POWER */
}

void probe_cpu(tm_environment *e)
{
    const char *info = fact_content(e, "/proc/cpuinfo");
    fact_section(e, "cpu");
    fact_text(e, "model", cpu_model(e, info), "/proc/cpuinfo names none");
    fact_text(e, "microcode", fact_field(e, info, "microcode"), "/proc/cpuinfo names none");
    add_topology(e);
    tm_cpu_caches caches = tm_cpu_caches_read(e->sysroot);
    add_cache(e, "l1d_bytes", caches.l1d_bytes);
    add_cache(e, "l2_bytes", caches.l2_bytes);
    add_cache(e, "l3_bytes", caches.l3_bytes);
    fact_file(e, "max_frequency_khz", "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq");
    tm_cpu_isa isa = tm_cpu_isa_probe();
    fact_bool(e, "avx2_fma", isa.avx2);
    fact_bool(e, "avx512", isa.avx512);
    fact_bool(e, "avx512_bf16", isa.avx512_bf16);
    fact_bool(e, "amx", isa.amx);
    const char *flags = fact_field(e, info, "flags");
    if (flags)
        fact_bool(e, "virtual_machine", strstr(flags, "hypervisor") != NULL);
    else
        fact_unknown(e, "virtual_machine", "/proc/cpuinfo has no flags");
    fact_number(e, "threads_allowed", tm_cpu_threads_allowed());
}

/* --- memory ---------------------------------------------------------------------------------- */

static unsigned word(const unsigned char *p)
{
    return (unsigned)p[0] | (unsigned)p[1] << 8;
}

/* String number `index` (from 1) of an SMBIOS structure of `n` bytes; NULL if there is none. */
static const char *smbios_string(const unsigned char *raw, size_t n, unsigned index)
{
    size_t at = raw[1];
    for (unsigned i = 1; at < n && raw[at] && index > 0; i++) {
        if (i == index) return (const char *)raw + at;
        at += strnlen((const char *)raw + at, n - at) + 1;
    }
    return NULL;
}

/* One "Memory Device" (type 17) of the SMBIOS specification, section 7.18. Empty sockets are left out. */
static void add_module(tm_environment *e, const unsigned char *raw, size_t n, int index)
{
    static const char *const types[] = {
        [0x14] = "DDR2", [0x18] = "DDR3", [0x1A] = "DDR4", [0x1B] = "LPDDR",  [0x1D] = "LPDDR3", [0x1E] = "LPDDR4",
        [0x20] = "HBM",  [0x21] = "HBM2", [0x22] = "DDR5", [0x23] = "LPDDR5", [0x24] = "HBM3"
    };
    unsigned length = raw[1], size = word(raw + 0x0C), type = raw[0x12];
    double   bytes = size & 0x8000 ? (size & 0x7FFF) * 1024.0 : size * 1048576.0;
    if (size == 0) return;
    if (size == 0x7FFF && length >= 0x20)
        bytes = (word(raw + 0x1C) + (word(raw + 0x1E) & 0x7FFF) * 65536.0) * 1048576.0;
    const char *place = smbios_string(raw, n, raw[0x10]);
    fact_item(e, tm_arena_format(e->arena, "%s%s%d", place ? place : "module", place ? " #" : " ", index));
    fact_number(e, "bytes", bytes);
    fact_text(e, "type", type < sizeof types / sizeof types[0] ? types[type] : NULL,
              tm_arena_format(e->arena, "SMBIOS memory type %#x", type));
    if (length >= 0x17 && word(raw + 0x15)) fact_number(e, "speed_mts", word(raw + 0x15));
    if (length >= 0x22 && word(raw + 0x20)) fact_number(e, "configured_mts", word(raw + 0x20));
    if (length >= 0x18) fact_text(e, "maker", smbios_string(raw, n, raw[0x17]), "not in SMBIOS");
    if (length >= 0x1B) fact_text(e, "part", smbios_string(raw, n, raw[0x1A]), "not in SMBIOS");
    fact_item(e, NULL);
}

static void add_modules(tm_environment *e)
{
    enum { MODULES = 256, SHORTEST = 0x15 };
    int  seen = 0;
    char cause[128] = "no such file";
    fact_section(e, "memory_modules");
    for (int i = 0; i < MODULES; i++) {
        unsigned char raw[1024];
        FILE         *f = fopen(fact_path(e, "/sys/firmware/dmi/entries/17-%d/raw", i), "re");
        if (!f) {
            snprintf(cause, sizeof cause, "%s", strerror(errno));
            break;
        }
        size_t n = fread(raw, 1, sizeof raw - 1, f);
        fclose(f);
        raw[n] = 0;
        if (n < SHORTEST || raw[1] < SHORTEST || raw[1] > n) continue;
        add_module(e, raw, n, i);
        seen++;
    }
    if (seen == 0) fact_unknown(e, "all", tm_arena_format(e->arena, "/sys/firmware/dmi/entries/17-0/raw: %s", cause));
}

void probe_memory(tm_environment *e)
{
    static const char *const rows[][2] = { { "total_bytes", "MemTotal" },
                                           { "available_bytes", "MemAvailable" },
                                           { "swap_bytes", "SwapTotal" },
                                           { "huge_page_bytes", "Hugepagesize" } };
    const char              *info = fact_content(e, "/proc/meminfo");
    fact_section(e, "memory");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *kib = fact_field(e, info, rows[i][1]);
        if (kib)
            fact_number(e, rows[i][0], strtod(kib, NULL) * 1024);
        else
            fact_unknown(e, rows[i][0], "not in /proc/meminfo");
    }
    const char *huge = fact_field(e, info, "HugePages_Total");
    fact_text(e, "huge_pages", huge, "not in /proc/meminfo");
    add_modules(e);
}

/* --- board and disks ------------------------------------------------------------------------- */

void probe_board(tm_environment *e)
{
    static const char *const rows[][2] = {
        { "system_maker", "sys_vendor" },   { "system", "product_name" },   { "maker", "board_vendor" },
        { "model", "board_name" },          { "version", "board_version" }, { "bios_maker", "bios_vendor" },
        { "bios_version", "bios_version" }, { "bios_date", "bios_date" },
    };
    fact_section(e, "board");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        fact_file(e, rows[i][0], tm_arena_format(e->arena, "/sys/class/dmi/id/%s", rows[i][1]));
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_disk(const struct dirent *entry)
{
    static const char *const others[] = { ".", "loop", "ram", "zram", "sr", "fd", "dm-", "md", "nbd" };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strncmp(entry->d_name, others[i], strlen(others[i])) == 0) return 0;
    return 1;
}

void probe_disks(tm_environment *e)
{
    struct dirent **list = NULL;
    int             n = scandir(fact_path(e, "/sys/block"), &list, is_disk, by_name);
    fact_section(e, "disks");
    if (n <= 0) fact_unknown(e, "all", n < 0 ? "/sys/block cannot be read" : "/sys/block lists none");
    for (int i = 0; i < n; i++) {
        char        text[64];
        const char *name = list[i]->d_name;
        fact_item(e, name);
        fact_file(e, "model", tm_arena_format(e->arena, "/sys/block/%s/device/model", name));
        if (tm_file_read_line(fact_path(e, "/sys/block/%s/size", name), text, sizeof text))
            fact_number(e, "bytes", strtod(text, NULL) * 512); /* the unit of this file, whatever the disk's sectors */
        if (tm_file_read_line(fact_path(e, "/sys/block/%s/queue/rotational", name), text, sizeof text))
            fact_bool(e, "rotational", text[0] == '1');
        free(list[i]);
    }
    free(list);
}
