/* SPDX-License-Identifier: Apache-2.0 */
/* tests/system/made_machine.h - the files of a machine of eight processors, below a directory of the test. */
#ifndef TM_TESTS_SYSTEM_MADE_MACHINE_H
#define TM_TESTS_SYSTEM_MADE_MACHINE_H

#include "base/file.h"
#include "support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char root[256];

static inline void put_bytes(const char *path, const void *content, size_t bytes)
{
    char full[768], folder[768];
    snprintf(full, sizeof full, "%s%s", root, path);
    strcpy(folder, full);
    *strrchr(folder, '/') = '\0';
    assert_int_equal(tm_folder_make(folder, NULL), TM_OK);
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(content, 1, bytes, f), bytes);
    fclose(f);
}

static inline void put(const char *path, const char *content)
{
    put_bytes(path, content, strlen(content));
}

static inline void put_processors(int n)
{
    char path[256], text[256], info[4096] = "";
    for (int i = 0; i < n; i++) { /* two sockets, two threads per core, two nodes */
        int socket = i / (n / 2), core = i % (n / 2) / 2;
        snprintf(
            info + strlen(info), sizeof info - strlen(info),
            "processor\t: %d\nmodel name\t: Example CPU 9000\nphysical id\t: %d\ncore id\t\t: %d\nmicrocode\t: 0x2b\n"
            "flags\t\t: fpu avx2 hypervisor\n\n",
            i, socket, core);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/physical_package_id", i);
        snprintf(text, sizeof text, "%d\n", socket);
        put(path, text);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/core_id", i);
        snprintf(text, sizeof text, "%d\n", core);
        put(path, text);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings", i);
        snprintf(text, sizeof text, "%x\n", 3u << (i / 2 * 2));
        put(path, text);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/core_siblings", i);
        snprintf(text, sizeof text, "%x\n", socket ? 0xF0u : 0x0Fu);
        put(path, text);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor", i);
        put(path, i == 5 ? "powersave\n" : "performance\n");
    }
    put("/proc/cpuinfo", info);
    put("/sys/devices/system/cpu/online", "0-7\n");
    put("/sys/devices/system/cpu/possible", "0-7\n");
    put("/sys/devices/system/node/online", "0-1\n");
    put("/sys/devices/system/node/node0/cpumap", "0f\n");
    put("/sys/devices/system/node/node1/cpumap", "f0\n");
    put("/sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:  8000000 kB\n");
    put("/sys/devices/system/node/node1/meminfo", "Node 1 MemTotal:  8000000 kB\n");
}

static inline void put_module(void)
{
    unsigned char raw[256] = { 17, 0x28 };
    raw[0x0C] = 0xFF; /* 0x7FFF: the size is in the extended field */
    raw[0x0D] = 0x7F;
    raw[0x10] = 1; /* DIMM_A1 */
    raw[0x12] = 0x22;
    raw[0x15] = 0xC0; /* 4800 */
    raw[0x16] = 0x12;
    raw[0x17] = 2;
    raw[0x1A] = 3;
    raw[0x1E] = 1;    /* 65536 MiB */
    raw[0x20] = 0x30; /* 4400 */
    raw[0x21] = 0x11;
    memcpy(raw + 0x28, "DIMM_A1\0Maker\0PART-1\0", 22);
    put_bytes("/sys/firmware/dmi/entries/17-0/raw", raw, 0x28 + 22);
    unsigned char empty[64] = { 17, 0x28 }; /* an empty socket */
    put_bytes("/sys/firmware/dmi/entries/17-1/raw", empty, sizeof empty);
}

static inline void put_machine(void)
{
    strcpy(root, test_in_folder("root"));
    put_processors(8);
    put_module();
    put("/proc/meminfo",
        "MemTotal:       16000000 kB\nMemAvailable:   15000000 kB\nSwapTotal: 0 kB\nHugePages_Total:  7\n"
        "Hugepagesize:  2048 kB\n");
    put("/sys/class/dmi/id/board_name", "X1\n");
    put("/sys/class/dmi/id/bios_version", "1.2, \"b\"\n");
    put("/sys/block/nvme0n1/device/model", "Fast Disk\n");
    put("/sys/block/nvme0n1/size", "2000409264\n");
    put("/sys/block/nvme0n1/queue/rotational", "0\n");
    put("/sys/block/loop0/size", "8\n");
    put("/etc/os-release", "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n");
    put("/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
    put("/proc/sys/kernel/hostname", "node7\n");
    put("/proc/sys/kernel/numa_balancing", "1\n");
    put("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    put("/sys/module/amdgpu/version", "6.7.0\n");
    put("/proc/self/cgroup", "0::/job\n");
    put("/sys/fs/cgroup/job/cpu.max", "250000 100000\n");
}

static inline int clean(void **state)
{
    (void)state;
    test_folder_remove();
    return 0;
}

#endif
