/* SPDX-License-Identifier: Apache-2.0 */
/* tests/check/check_servers.h - healthy servers, made up as trees of files: eight MI300X with ROCm 6.4, eight MI355X
 * with ROCm 7.0, eight H100 with CUDA 13. Names and formats are the kernel's (sysfs-bus-pci, amdgpu_ras.c,
 * kfd_topology.c; io_link type 11 is XGMI), those of NVIDIA's open kernel modules and of ROCm's packages:
 * libamdhip64.so.6.4.60401 is of ROCm 6.4.1.
 */
#ifndef TM_TESTS_SYSTEM_CHECK_SERVERS_H
#define TM_TESTS_SYSTEM_CHECK_SERVERS_H

#include "trees.h"

#include <stdbool.h>
#include <stdlib.h>

enum { SERVER_GPUS = 8 };
/* Configuration space of a bridge: ACS (capability 000Dh) at 100h, its control at 106h. */
static void put_config(const char *address, bool acs)
{
    char          path[256];
    unsigned char config[4096] = { 0x22, 0x10 };
    config[0x100] = 0x0D;
    config[0x102] = 0x01;
    config[0x106] = acs ? 0x1D : 0x00;
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/config", address);
    put_bytes(path, config, sizeof config);
}

/* FOLDER/libx.so -> libx.so.MAJOR -> libx.so.VERSION, as packages install it. */
static void put_library(const char *folder, const char *stem, const char *version)
{
    int major = (int)strcspn(version, ".");
    put("%s/%s.so.%s=\177ELF", folder, stem, version);
    if (version[major]) put("%s/%s.so.%.*s->%s.so.%s", folder, stem, major, version, stem, version);
    put("%s/%s.so->%s.so.%.*s", folder, stem, stem, major, version);
}

/* "6.4.1" -> 60401 */
static void put_rocm(const char *folder, const char *hip, const char *blas, const char *packed)
{
    char version[64];
    snprintf(version, sizeof version, "%s.%s", hip, packed);
    put_library(folder, "libamdhip64", version);
    put_library(folder, "libhiprtc", version);
    snprintf(version, sizeof version, "%s.%s", blas, packed);
    put_library(folder, "libhipblaslt", version);
    snprintf(version, sizeof version, "1.0.%s", packed);
    put_library(folder, "librccl", version);
}

/* --- the host ---------------------------------------------------------------------------------- */

static void put_host(void)
{
    put("/proc/sys/kernel/hostname=node1\n");
    put("/proc/sys/kernel/numa_balancing=0\n");
    put("/proc/cmdline=ro pci=realloc=off,bfsort iommu=pt numa_balancing=disable\n");
    put("/proc/self/limits=Max locked memory         unlimited            unlimited            bytes\n");
    put("/proc/self/status=Name:\ttrainmark\nNoNewPrivs:\t0\nSeccomp:\t0\nSeccomp_filters:\t0\n");
    put("/proc/1/cgroup=0::/init.scope\n");
    put("/proc/uptime=100000.00 1.0\n");
    put("/dev/kmsg=6,1,99990000000,-;eth0: link up\n");
    put("/sys/devices/system/cpu/online=0-191\n");
    put("/sys/devices/system/cpu/present=0-191\n");
    for (int i = 0; i < 2; i++) {
        put("/sys/devices/system/node/node%d/cpulist=%d-%d\n", i, 96 * i, 96 * i + 95);
        put("/sys/devices/system/node/node%d/meminfo=Node %d MemTotal:       1550000000 kB\n", i, i);
    }
    put("/sys/bus/pci/devices/0000:00:01.1/class=0x060400\n");
    put("/sys/bus/pci/devices/0000:00:01.1/vendor=0x1022\n");
    put_config("0000:00:01.1", false);
}

static void put_pci(const char *address, int i, const char *vendor, const char *device, const char *class_id)
{
    static const char folder[] = "/sys/bus/pci/devices";
    put("%s/%s/vendor=%s\n", folder, address, vendor);
    put("%s/%s/device=%s\n", folder, address, device);
    put("%s/%s/class=%s\n", folder, address, class_id);
    put("%s/%s/numa_node=%d\n", folder, address, i / 4);
    put("%s/%s/current_link_speed=32.0 GT/s PCIe\n", folder, address);
    put("%s/%s/max_link_speed=32.0 GT/s PCIe\n", folder, address);
    put("%s/%s/current_link_width=16\n", folder, address);
    put("%s/%s/max_link_width=16\n", folder, address);
}

/* --- AMD --------------------------------------------------------------------------------------- */

typedef struct {
    const char *device;
    int         gfx; /* gfx_target_version */
    const char *driver, *release, *hip, *blas, *packed;
    const char *buses[SERVER_GPUS];
} amd_server;

static const amd_server mi300x = { "0x74a1", 90402,  "6.12.12", "6.4.1",
                                   "6.4",    "0.12", "60401",   { "05", "26", "46", "65", "85", "a6", "c6", "e5" } };
static const amd_server mi355x = { "0x75a3", 90500, "6.14.14", "7.0.2",
                                   "7.0",    "1.0", "70002",   { "05", "15", "65", "75", "85", "95", "e5", "f5" } };

static void put_amd_gpu(const amd_server *s, int i, const char *compute, const char *memory)
{
    char f[128], address[32];
    snprintf(address, sizeof address, "0000:%s:00.0", s->buses[i]);
    put_pci(address, i, "0x1002", s->device, "0x120000");
    snprintf(f, sizeof f, "/sys/bus/pci/devices/%s", address);
    put("%s/current_compute_partition=%s\n", f, compute);
    put("%s/current_memory_partition=%s\n", f, memory);
    put("%s/ras/umc_err_count=ue: 0\nce: 0\nde: 0\n", f);
    put("%s/ras/gpu_vram_bad_pages=", f);
}

/* Nodes of processors, then one of each device: `parts` of every GPU. */
static void put_kfd(const amd_server *s, int parts)
{
    static const char nodes[] = "/sys/class/kfd/kfd/topology/nodes";
    int               n = SERVER_GPUS * parts;
    for (int i = 0; i < 2; i++) {
        put("%s/%d/gpu_id=0\n", nodes, i);
        put("%s/%d/properties=cpu_cores_count 96\nsimd_count 0\ndrm_render_minor 0\n", nodes, i);
    }
    for (int i = 0; i < n; i++) {
        int minor = 128 + 8 * (i / parts) + i % parts, bus = (int)strtol(s->buses[i / parts], NULL, 16);
        put("%s/%d/gpu_id=%d\n", nodes, i + 2, 1000 + i);
        put("%s/%d/properties=cpu_cores_count 0\nsimd_count %d\nio_links_count %d\ngfx_target_version %d\nvendor_id "
            "4098\n"
            "location_id %d\ndomain 0\ndrm_render_minor %d\nnum_xcc %d\n",
            nodes, i + 2, 1216 / parts, n, s->gfx, bus << 8, minor, 8 / parts);
        put("%s/%d/io_links/0/properties=type 2\nversion_major 0\nnode_from %d\nnode_to %d\nweight 20\nflags 1\n",
            nodes, i + 2, i + 2, i / parts / 4);
        for (int k = 0, link = 1; k < n; k++) {
            if (k == i) continue;
            put("%s/%d/io_links/%d/properties=type 11\nversion_major 0\nversion_minor 0\nnode_from %d\nnode_to %d\n"
                "weight 15\nmin_bandwidth 64000\nmax_bandwidth 64000\nflags 1\n",
                nodes, i + 2, link++, i + 2, k + 2);
        }
        put("/dev/dri/renderD%d=", minor);
    }
    put("/dev/kfd=");
    put("/sys/class/kfd/kfd/proc/");
}

static void put_amd_server(const amd_server *s, int parts, const char *compute, const char *memory)
{
    char root[64], lib[96];
    put_host();
    for (int i = 0; i < SERVER_GPUS; i++) put_amd_gpu(s, i, compute, memory);
    put_kfd(s, parts);
    put("/sys/module/amdgpu/version=%s\n", s->driver);
    put("/etc/group=render:x:%lld:\nvideo:x:44:\n", (long long)getegid());
    snprintf(root, sizeof root, "/opt/rocm-%s", s->release);
    snprintf(lib, sizeof lib, "%s/lib", root);
    put_rocm(lib, s->hip, s->blas, s->packed);
    put("%s/.info/version=%s-38\n", root, s->release);
    put("/opt/rocm->rocm-%s", s->release);
    put("/etc/ld.so.conf.d/10-rocm-opencl.conf=%s\n", lib);
}

/* --- NVIDIA ------------------------------------------------------------------------------------ */

#define NVRM(version)                                                                                                  \
    "/proc/driver/nvidia/version=NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  " version                    \
    "  Release Build  (dvs-builder@U22-I3-AE18)\nGCC version:  gcc version 12.3.0\n"

static void put_h100_server(void)
{
    static const char *const buses[] = { "1b", "43", "52", "61", "9d", "c3", "d1", "df" };
    put_host();
    for (int i = 0; i < SERVER_GPUS; i++) {
        char address[32];
        snprintf(address, sizeof address, "0000:%s:00.0", buses[i]);
        put_pci(address, i, "0x10de", "0x2330", "0x030200");
        put("/proc/driver/nvidia/gpus/%s/information=Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 18\nBus Location: "
            "\t %s\n"
            "Device Minor: \t %d\nGPU Firmware: \t 580.65.06\nGPU Excluded:\t No\n",
            address, address, i);
        put("/dev/nvidia%d=", i);
    }
    put("/dev/nvidiactl=");
    put("/dev/nvidia-uvm=");
    for (int i = 0; i < 4; i++) {
        char address[32];
        snprintf(address, sizeof address, "0000:0%d:00.0", 5 + i);
        put("/sys/bus/pci/devices/%s/vendor=0x10de\n", address);
        put("/sys/bus/pci/devices/%s/device=0x22a3\n", address);
        put("/sys/bus/pci/devices/%s/class=0x068000\n", address);
        put_config(address, false);
        put("/proc/driver/nvidia-nvswitch/devices/%s/information=", address);
    }
    put(NVRM("580.65.06"));
    put("/proc/2212/comm=nv-fabricmanage\n");
    put_library("/usr/lib/x86_64-linux-gnu", "libcuda", "1");
    put("/usr/lib/x86_64-linux-gnu/libcuda.so.1->libcuda.so.580.65.06");
    put("/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06=\177ELF");
    put_library("/usr/local/cuda/lib64", "libnvrtc", "13.0.88");
    put_library("/usr/local/cuda/lib64", "libcublasLt", "13.0.2.14");
}

#endif
