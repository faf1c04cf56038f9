/* SPDX-License-Identifier: Apache-2.0 */
/* tests/check/check_fixtures.h - a made-up machine for every outcome that a check can have, one row each.
 *
 * `files` are "path=content", "path->target" (a symbolic link) or "path/" (an empty folder); a content that begins with
 * '%' names bytes that test_check.c makes.  "$NAME=value" is a variable. `set` changes options and what is not a file.
 */
#ifndef TM_TESTS_SYSTEM_CHECK_FIXTURES_H
#define TM_TESTS_SYSTEM_CHECK_FIXTURES_H

#include "apps/check/check.h"

enum { FIXTURE_FILES = 80 };

typedef struct {
    const char     *id;
    tm_check_status status;
    const char     *observed; /* must be part of what was observed */
    void (*set)(tm_check_options *options, tm_check_host *host);
    const char *files[FIXTURE_FILES];
} fixture;

/* --- what is not a file ----------------------------------------------------------------------- */

#define SET(name, statement)                                                                                           \
    static void name(tm_check_options *o, tm_check_host *h)                                                            \
    {                                                                                                                  \
        (void)o;                                                                                                       \
        (void)h;                                                                                                       \
        statement;                                                                                                     \
    }

#define METRICS(name, ...)                                                                                             \
    static const tm_metric     name##_metrics[] = { __VA_ARGS__ };                                                     \
    static const tm_check_perf name##_perf = { .metrics = name##_metrics,                                              \
                                               .n = sizeof name##_metrics / sizeof name##_metrics[0] };                \
    SET(name, h->perf = &name##_perf)

SET(shm_large, h->shm_bytes = INT64_C(64) << 30)
SET(shm_small, h->shm_bytes = 64 << 20)
SET(shm_enough, h->shm_bytes = INT64_C(8) << 30)
SET(shm_not_enough, h->shm_bytes = (INT64_C(8) << 30) - 1)
SET(clock_kept, (h->clock_synced = 1, h->clock_error_ms = 2.5))
SET(clock_free, h->clock_synced = 0)
SET(no_log, (h->klog = NULL, h->klog_problem = "Operation not permitted"))
SET(want_1_gpu, o->expected_gpus = 1)
SET(want_2_nics, o->expected_nics = 2)
SET(others_allowed, o->allow_foreign = true)
SET(trainers_allowed, o->allowed_procs = "python3, train")
METRICS(learns, { "training.loss_decreased", 1 }, { "training.final_loss", 3.1 })
METRICS(learns_nothing, { "training.loss_decreased", 0 }, { "training.final_loss", 4.2 })
METRICS(lost, { "training.loss_decreased", 0 }, { "training.final_loss", __builtin_nan("") })

SET(last_moment, h->wall_ms = INT64_C(253402300799999))
SET(half_a_gib, (o->memlock_min_gib = 0.5, o->shm_min_gib = 0.5, o->gpu_activity_warn_pct = 30.5,
                 o->hbm_busy_threshold_gib = 0.5, o->klog_minutes = 0.5, h->shm_bytes = 1 << 29))
SET(nothing_refused, h->numa_calls = 1)
SET(numa_refused, h->numa_calls = 0)

/* --- files ------------------------------------------------------------------------------------ */

#define PCI "/sys/bus/pci/devices/"
#define GPU_OF(address, vendor_id, id, class_id)                                                                       \
    PCI address "/vendor=" vendor_id "\n", PCI address "/device=" id "\n", PCI address "/class=" class_id "\n"
#define GPU(n, id) GPU_OF("0000:0" n ":00.0", "0x1002", id, "0x120000")
#define H200 GPU_OF("0000:41:00.0", "0x10de", "0x2335", "0x030200")
#define GPU_FILE(n, file) PCI "0000:0" n ":00.0/" file
#define EIGHT(id)                                                                                                      \
    GPU("0", id), GPU("1", id), GPU("2", id), GPU("3", id), GPU("4", id), GPU("5", id), GPU("6", id), GPU("7", id)
#define LINK(n, speed, width)                                                                                          \
    GPU_FILE(n, "current_link_speed=" speed " GT/s PCIe\n"), GPU_FILE(n, "current_link_width=" width "\n"),            \
        GPU_FILE(n, "max_link_speed=32.0 GT/s PCIe\n"), GPU_FILE(n, "max_link_width=16\n")
#define KFD "/sys/class/kfd/kfd/topology/nodes/"
#define XGMI(from, to)                                                                                                 \
    KFD from "/io_links/" to "/properties=type 11\nversion_major 0\nnode_from " from "\nnode_to " to "\nweight 15\n"
#define PCIE_LINK(from, to) KFD from "/io_links/" to "/properties=type 2\nnode_from " from "\nnode_to " to "\n"
#define IB "/sys/class/infiniband/"
#define PORT(nic, state, phys, rate, layer)                                                                            \
    IB nic "/ports/1/state=" state "\n", IB nic "/ports/1/phys_state=" phys "\n", IB nic "/ports/1/rate=" rate "\n",   \
        IB nic "/ports/1/link_layer=" layer "\n"
#define GID(nic, type)                                                                                                 \
    IB nic "/ports/1/gid_attrs/types/3=" type "\n", IB nic "/ports/1/gids/3=0000:0000:0000:0000:0000:ffff:0a00:0001\n"
#define NET "/sys/class/net/"
#define ROUTES                                                                                                         \
    "/proc/net/route=Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\n"                             \
    "eth1\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\n"                                                           \
    "eth0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\n"
#define SYSTEM_CPU "/sys/devices/system/cpu/"
#define NODE(n, cpus, kib)                                                                                             \
    "/sys/devices/system/node/node" n "/cpulist=" cpus "\n",                                                           \
        "/sys/devices/system/node/node" n "/meminfo=Node " n " MemTotal:       " kib " kB\n"
#define THP "/sys/kernel/mm/transparent_hugepage/"
#define GOOD_LINE "pci=realloc=off,bfsort iommu=pt numa_balancing=disable"

/* clang-format off */
static const fixture fixtures[] = {
    { "numa_balancing", TM_CHECK_PASS, "0", 0, { "/proc/sys/kernel/numa_balancing=0\n" } },
    { "numa_balancing", TM_CHECK_WARN, "1", 0, { "/proc/sys/kernel/numa_balancing=1\n" } },
    { "numa_balancing", TM_CHECK_SKIP, "no number", 0, { "/proc/sys/kernel/numa_balancing=off\n" } },
    { "cmdline", TM_CHECK_PASS, "all there", 0, { "/proc/cmdline=ro quiet " GOOD_LINE "\n",
      "/proc/cpuinfo=vendor_id\t: AuthenticAMD\n" } },
    { "cmdline", TM_CHECK_WARN, "missing: pci=bfsort, iommu=pt", 0,
      { "/proc/cmdline=pci=realloc=off,bfsortx xiommu=pt iommu=ptx numa_balancing=disable\n" } },
    { "cmdline", TM_CHECK_SKIP, "No such file", 0, { 0 } },
    { "nmi_watchdog", TM_CHECK_PASS, "0", 0, { "/proc/sys/kernel/nmi_watchdog=0\n" } },
    { "nmi_watchdog", TM_CHECK_INFO, "1", 0, { "/proc/sys/kernel/nmi_watchdog=1\n" } },
    { "nmi_watchdog", TM_CHECK_SKIP, "", 0, { 0 } },
    { "aslr", TM_CHECK_PASS, "0", 0, { "/proc/sys/kernel/randomize_va_space=0\n" } },
    { "aslr", TM_CHECK_INFO, "2", 0, { "/proc/sys/kernel/randomize_va_space=2\n" } },
    { "aslr", TM_CHECK_SKIP, "", 0, { 0 } },
    { "thp", TM_CHECK_PASS, "enabled always, defrag madvise", 0, { THP "enabled=[always] madvise never\n",
      THP "defrag=always defer defer+madvise [madvise] never\n" } },
    { "thp", TM_CHECK_INFO, "enabled never", 0, { THP "enabled=always madvise [never]\n",
      THP "defrag=always defer defer+madvise [madvise] never\n" } },
    { "thp", TM_CHECK_SKIP, "defrag", 0, { THP "enabled=[always] madvise never\n" } },
    { "clocksource", TM_CHECK_PASS, "tsc", 0,
      { "/sys/devices/system/clocksource/clocksource0/current_clocksource=tsc\n" } },
    { "clocksource", TM_CHECK_WARN, "hpet", 0,
      { "/sys/devices/system/clocksource/clocksource0/current_clocksource=hpet\n" } },
    { "clocksource", TM_CHECK_SKIP, "", 0, { 0 } },
    { "tuned", TM_CHECK_PASS, "none", 0, { 0 } },
    { "tuned", TM_CHECK_WARN, "without restoring", 0, { "/run/trainmark-tuned.json={}" } },
    { "tuned", TM_CHECK_INFO, "running process", 0, { "/run/trainmark-tuned.json=%locked" } },
    { "governor", TM_CHECK_PASS, "all 2", 0, { SYSTEM_CPU "cpu0/cpufreq/scaling_governor=performance\n",
      SYSTEM_CPU "cpu1/cpufreq/scaling_governor=performance\n", SYSTEM_CPU "cpufreq/scaling_governor=x\n" } },
    { "governor", TM_CHECK_WARN, "1 of 2 are not: cpu1 powersave", 0,
      { SYSTEM_CPU "cpu0/cpufreq/scaling_governor=performance\n",
      SYSTEM_CPU "cpu1/cpufreq/scaling_governor=powersave\n" } },
    { "governor", TM_CHECK_SKIP, "cpufreq", 0, { SYSTEM_CPU "cpu0/" } },
    { "cstate", TM_CHECK_PASS, "disabled", 0, { SYSTEM_CPU "cpu0/cpuidle/state1/name=C1\n",
      SYSTEM_CPU "cpu0/cpuidle/state1/disable=0\n", SYSTEM_CPU "cpu0/cpuidle/state2/name=C2\n",
      SYSTEM_CPU "cpu0/cpuidle/state2/disable=1\n" } },
    { "cstate", TM_CHECK_PASS, "no C2", 0, { SYSTEM_CPU "cpu0/cpuidle/state0/name=POLL\n" } },
    { "cstate", TM_CHECK_INFO, "1 of 2", 0, { SYSTEM_CPU "cpu0/cpuidle/state2/name=C2\n",
      SYSTEM_CPU "cpu0/cpuidle/state2/disable=0\n", SYSTEM_CPU "cpu1/cpuidle/state2/name=C6\n",
      SYSTEM_CPU "cpu1/cpuidle/state2/disable=1\n" } },
    { "cstate", TM_CHECK_SKIP, "", 0, { SYSTEM_CPU "cpu0/" } },
    { "smt", TM_CHECK_PASS, "0", 0, { SYSTEM_CPU "smt/active=0\n" } },
    { "smt", TM_CHECK_INFO, "1", 0, { SYSTEM_CPU "smt/active=1\n" } },
    { "smt", TM_CHECK_SKIP, "", 0, { 0 } },
    { "iommu_smt", TM_CHECK_PASS, "384 processors online", 0, { SYSTEM_CPU "online=0-383\n",
      SYSTEM_CPU "present=0-383\n", "/sys/class/iommu/ivhd0/" } },
    { "iommu_smt", TM_CHECK_FAIL, "255 processors online, 384 present", 0, { SYSTEM_CPU "online=0-254\n",
      SYSTEM_CPU "present=0-383\n" } },
    { "iommu_smt", TM_CHECK_SKIP, "", 0, { SYSTEM_CPU "online=all\n" } },
    { "cgroup_quota", TM_CHECK_PASS, "no quota", 0, { SYSTEM_CPU "online=0-7\n", "/proc/self/cgroup=0::/job\n",
      "/sys/fs/cgroup/job/cpu.max=max 100000\n" } },
    { "cgroup_quota", TM_CHECK_WARN, "2.5 processors' time of 8", 0, { SYSTEM_CPU "online=0-7\n", "/proc/self->12",
      "/proc/12/cgroup=0::/job/x\n", "/sys/fs/cgroup/job/cpu.max=250000 100000\n" } },
    { "cgroup_quota", TM_CHECK_SKIP, "", 0, { SYSTEM_CPU "online=0-7\n" } },
    { "memory", TM_CHECK_PASS, "90 %", 0,
      { "/proc/meminfo=MemTotal: 1000000 kB\nMemFree: 1 kB\nMemAvailable: 900000 kB\n" } },
    { "memory", TM_CHECK_WARN, "too little is free", 0,
      { "/proc/meminfo=MemTotal: 1000000 kB\nMemAvailable: 90000 kB\n" } },
    { "memory", TM_CHECK_WARN, "too little for 8 x MI325X", 0,
      { "/proc/meminfo=MemTotal: 2300000000 kB\nMemAvailable: 2200000000 kB\n", EIGHT("0x74a5") } },
    { "memory", TM_CHECK_SKIP, "", 0, { "/proc/meminfo=MemTotal: 1 kB\n" } },
    { "hugepages", TM_CHECK_INFO, "16 pages of 2048 KiB, 4 free", 0,
      { "/proc/meminfo=HugePages_Total:      16\nHugePages_Free:        4\nHugepagesize:       2048 kB\n" } },
    { "hugepages", TM_CHECK_SKIP, "", 0, { 0 } },
    { "memlock", TM_CHECK_PASS, "unlimited", 0,
      { "/proc/self/limits=Max locked memory         unlimited            unlimited            bytes\n" } },
    { "memlock", TM_CHECK_FAIL, "8.00 MiB", 0,
      { "/proc/self/limits=Limit  Soft\nMax locked memory         8388608              unlimited            bytes\n",
      GPU("1", "0x74a1") } },
    { "memlock", TM_CHECK_FAIL, "8.00 MiB", 0,
      { "/proc/self/limits=Max locked memory         8388608              unlimited            bytes\n",
      "/sys/class/infiniband/mlx5_0/" } },
    { "memlock", TM_CHECK_SKIP, "8.00 MiB; no GPU or RDMA card is here", 0,
      { "/proc/self/limits=Max locked memory         8388608              unlimited            bytes\n" } },
    { "shm", TM_CHECK_PASS, "64.00 GiB", shm_large, { 0 } },
    { "shm", TM_CHECK_FAIL, "64.00 MiB", shm_small, { 0 } },
    { "shm", TM_CHECK_SKIP, "sysroot", 0, { 0 } },
    { "numa_layout", TM_CHECK_PASS, "2 nodes", 0, { NODE("0", "0-3", "1000000"), NODE("1", "4-7", "990000"),
      NODE("2", "", "5000"), GPU("1", "0x74a1"), GPU_FILE("1", "numa_node=0\n"), GPU("2", "0x74a1"),
      GPU_FILE("2", "numa_node=1\n") } },
    { "numa_layout", TM_CHECK_WARN, "2 nodes", 0, { NODE("0", "0-3", "1000000"), NODE("1", "4-7", "800000") } },
    { "numa_layout", TM_CHECK_WARN, "on no node", 0, { NODE("0", "0-3", "1000000"), NODE("1", "4-7", "1000000"),
      GPU("1", "0x74a1"), GPU_FILE("1", "numa_node=-1\n") } },
    { "numa_layout", TM_CHECK_SKIP, "", 0, { 0 } },
    { "container", TM_CHECK_INFO, "docker", 0, { "/.dockerenv=" } },
    { "os", TM_CHECK_INFO, "Debian GNU/Linux 12", 0, { "/etc/os-release->../usr/lib/os-release",
      "/usr/lib/os-release=NAME=Debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\n" } },
    { "os", TM_CHECK_SKIP, "", 0, { 0 } },
    { "kernel", TM_CHECK_INFO, "6.1.0-18-amd64", 0, { "/proc/sys/kernel/osrelease=6.1.0-18-amd64\n" } },
    { "kernel", TM_CHECK_SKIP, "", 0, { 0 } },
    { "time", TM_CHECK_PASS, "2.5 ms", clock_kept, { 0 } },
    { "time", TM_CHECK_WARN, "no NTP service", clock_free, { 0 } },
    { "iommu", TM_CHECK_PASS, "identity in all 2", 0, { "/sys/kernel/iommu_groups/0/type=identity\n",
      "/sys/kernel/iommu_groups/1/type=identity\n" } },
    { "iommu", TM_CHECK_WARN, "group 1 DMA-FQ", 0, { "/sys/kernel/iommu_groups/0/type=identity\n",
      "/sys/kernel/iommu_groups/1/type=DMA-FQ\n" } },
    { "iommu", TM_CHECK_SKIP, "/sys/kernel/iommu_groups/0/type cannot be read (kernels before 5.11)", 0,
      { "/sys/kernel/iommu_groups/0/", "/sys/kernel/iommu_groups/1/" } },
    { "iommu", TM_CHECK_PASS, "identity in all 1 groups", 0, { "/sys/kernel/iommu_groups/0/type=identity\n",
      "/sys/kernel/iommu_groups/1/" } },
    { "iommu", TM_CHECK_SKIP, "", 0, { 0 } },
    { "acs", TM_CHECK_PASS, "all 2 PCIe bridges", 0, { PCI "0000:00:01.0/class=0x060400\n",
      PCI "0000:00:01.0/config=%acs-off", PCI "0000:00:02.0/class=0x060400\n", PCI "0000:00:02.0/config=%no-acs",
      PCI "0000:00:03.0/class=0x020000\n", PCI "0000:00:03.0/config=%acs-on" } },
    { "acs", TM_CHECK_WARN, "0000:00:01.0", 0, { PCI "0000:00:01.0/class=0x060400\n",
      PCI "0000:00:01.0/config=%acs-on" } },
    { "acs", TM_CHECK_SKIP, "root", 0, { PCI "0000:00:01.0/class=0x060400\n", PCI "0000:00:01.0/config=%short" } },
    { "klog", TM_CHECK_PASS, "2 recent kernel messages", 0, { "/proc/uptime=10000.5 1\n",
      "/dev/kmsg=3,1,1000000,-;NVRM: Xid (PCI:0000:41:00): 79\n" /* too old */ "6,2,9900000000,-;eth0: link up\n SUBSYSTEM=net\n DEVICE=c189:3 hardware error\n28,3,9900000001,-;amdgpu daemon: error (a program wrote this)\n5,4,1,-;Command line: amdgpu.lockup_timeout=10\n" } },
    { "klog", TM_CHECK_FAIL, "[xid]", 0, { "/proc/uptime=10000.5 1\n",
      "/dev/kmsg=3,1,9990000000,-;NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off\n" } },
    { "klog", TM_CHECK_FAIL, "3 of 4", 0,
      { "/dev/kmsg=3,1,1,-;NVRM: Xid (PCI:0000:41:00): 95, Uncontained\n3,2,2,-;NVRM: Xid (PCI:0000:41:00): 13, pid=1\n3,3,3,-;NVRM: Xid (PCI:0000:41:00): 13, pid=2\n6,4,4,-;eth0: Xids 79\n" } },
    { "klog", TM_CHECK_FAIL, "[hardware error]", 0,
      { "/dev/kmsg=<2>[  12.345678] mce: [Hardware Error]: Machine check events logged\n" } },
    { "klog", TM_CHECK_FAIL, "[amdgpu]", 0,
      { "/dev/kmsg=<3>[  12.345678] amdgpu 0000:05:00.0: ring sdma0 timeout\n" } },
    { "klog", TM_CHECK_PASS, "none indicating", 0,
      { "/dev/kmsg=6,7,10,-;mce: CPU supports 32 MCE banks\n5,8,11,-;maxids 4\n" } },
    { "klog", TM_CHECK_SKIP, "not permitted", no_log, { 0 } },
    { "gpu_count", TM_CHECK_PASS, "8 x MI300X", 0, { EIGHT("0x74a1") } },
    { "gpu_count", TM_CHECK_FAIL, "1 x MI350X, 0 in the driver", want_1_gpu, { GPU("1", "0x75a0"),
      KFD "0/gpu_id=0\n" } },
    { "gpu_count", TM_CHECK_INFO, "1 x NVIDIA", 0, { H200, GPU_OF("0000:01:00.0", "0x1a03", "0x2000", "0x030000") } },
    { "gpu_count", TM_CHECK_SKIP, "no GPU", 0, { PCI } },
    { "pcie", TM_CHECK_PASS, "full speed on 1", 0, { GPU("1", "0x74a2"), LINK("1", "32.0", "16") } },
    { "pcie", TM_CHECK_WARN, "8 GT/s x16 instead of 32 GT/s x16", 0, { GPU("1", "0x74a1"), LINK("1", "8.0", "16") } },
    { "pcie", TM_CHECK_SKIP, "", 0, { GPU("1", "0x74a1"), GPU_FILE("1", "current_link_speed=Unknown\n") } },
    { "gpu_busy", TM_CHECK_PASS, "at most 20 %", 0, { GPU("1", "0x74a1"), GPU_FILE("1", "gpu_busy_percent=20\n") } },
    { "gpu_busy", TM_CHECK_WARN, "0000:01:00.0 21 %", 0, { GPU("1", "0x74a1"),
      GPU_FILE("1", "gpu_busy_percent=21\n") } },
    { "gpu_busy", TM_CHECK_SKIP, "gpu_busy_percent", 0, { H200 } },
    { "gpu_mem", TM_CHECK_PASS, "GiB on 1", 0, { GPU("1", "0x74a1"),
      GPU_FILE("1", "mem_info_vram_used=2147483647\n") } },
    { "gpu_mem", TM_CHECK_FAIL, "2 GiB", 0, { GPU("1", "0x74a1"),
      GPU_FILE("1", "mem_info_vram_used=2147483648\n") } },
    { "gpu_mem", TM_CHECK_SKIP, "", 0, { 0 } },
    { "foreign", TM_CHECK_PASS, "allowed", trainers_allowed, { GPU("1", "0x74a1"),
      "/sys/class/kfd/kfd/proc/77/pasid=1\n", "/proc/77/comm=python3\n" } },
    { "foreign", TM_CHECK_FAIL, "1: 77 python3", 0, { GPU("1", "0x74a1"), "/sys/class/kfd/kfd/proc/77/pasid=1\n",
      "/proc/77/comm=python3\n" } },
    { "foreign", TM_CHECK_INFO, "77", others_allowed, { GPU("1", "0x74a1"),
      "/sys/class/kfd/kfd/proc/77/pasid=1\n" } },
    { "foreign", TM_CHECK_SKIP, "nvidia-smi", 0, { H200 } },
    { "ecc", TM_CHECK_PASS, "0 uncorrectable, 3 corrected", 0, { GPU("1", "0x74a1"),
      GPU_FILE("1", "ras/umc_err_count=ue: 0\nce: 3\n"), GPU_FILE("1", "ras/features=x\n") } },
    { "ecc", TM_CHECK_FAIL, "0000:01:00.0 umc 2", 0, { GPU("1", "0x74a1"),
      GPU_FILE("1", "ras/umc_err_count=ue: 2\nce: 3\n") } },
    { "ecc", TM_CHECK_SKIP, "nvidia-smi", 0, { H200 } },
    { "xgmi", TM_CHECK_PASS, "all 2 links of 2", 0, { KFD "0/gpu_id=0\n", KFD "1/gpu_id=11\n", KFD "2/gpu_id=12\n",
      XGMI("1", "2"), XGMI("2", "1"), PCIE_LINK("1", "0") } },
    { "xgmi", TM_CHECK_FAIL, "node 2 to 1", 0, { KFD "1/gpu_id=11\n", KFD "2/gpu_id=12\n", XGMI("1", "2"),
      PCIE_LINK("2", "1") } },
    { "xgmi", TM_CHECK_SKIP, "no pairs", 0, { KFD "0/gpu_id=0\n", KFD "1/gpu_id=11\n" } },
    { "versions", TM_CHECK_INFO, "amdgpu 6.7.0, vbios_version 113-M, mec_fw_version 0x1, NIC firmware 28.1", 0,
      { "/sys/module/amdgpu/version=6.7.0\n", GPU("1", "0x74a1"), GPU_FILE("1", "vbios_version=113-M\n"),
      GPU_FILE("1", "fw_version/mec_fw_version=0x1\n"), GPU("2", "0x74a1"), GPU_FILE("2", "vbios_version=113-M\n"),
      IB "mlx5_0/fw_ver=28.1\n" } },
    { "versions", TM_CHECK_SKIP, "", 0, { 0 } },
    { "gpu_clocks", TM_CHECK_INFO, "0000:01:00.0 132 of 2100 MHz", 0, { GPU("1", "0x74a1"),
      GPU_FILE("1", "pp_dpm_sclk=0: 132Mhz *\n1: 2100Mhz\n") } },
    { "gpu_clocks", TM_CHECK_WARN, "the highest clock is 1900 to 2100 MHz", 0, { GPU("1", "0x74a1"),
      GPU_FILE("1", "pp_dpm_sclk=0: 132Mhz *\n1: 2100Mhz\n"), GPU("2", "0x74a1"),
      GPU_FILE("2", "pp_dpm_sclk=0: 132Mhz *\n1: 1900Mhz\n") } },
    { "gpu_clocks", TM_CHECK_SKIP, "", 0, { H200 } },
    { "gpu_power", TM_CHECK_PASS, "limit on 1", 0, { GPU("1", "0x74a1"),
      GPU_FILE("1", "hwmon/hwmon4/power1_cap=750000000\n"),
      GPU_FILE("1", "hwmon/hwmon4/power1_cap_max=750000000\n") } },
    { "gpu_power", TM_CHECK_WARN, "500 of 750 W", 0, { GPU("1", "0x74a1"),
      GPU_FILE("1", "hwmon/hwmon4/power1_cap=500000000\n"),
      GPU_FILE("1", "hwmon/hwmon4/power1_cap_max=750000000\n") } },
    { "gpu_power", TM_CHECK_SKIP, "", 0, { H200 } },
    { "nic", TM_CHECK_PASS, "2 cards, 2 ports", want_2_nics,
      { PORT("mlx5_0", "4: ACTIVE", "5: LinkUp", "400 Gb/sec (4X NDR)", "InfiniBand"),
      PORT("mlx5_1", "4: ACTIVE", "5: LinkUp", "400 Gb/sec (4X NDR)", "Ethernet"), GID("mlx5_1", "RoCE v2"),
      IB "mlx5_1/device/net/eth2/speed=400000\n" } },
    { "nic", TM_CHECK_FAIL, "mlx5_0/1 is 1: DOWN", 0,
      { PORT("mlx5_0", "1: DOWN", "3: Disabled", "400 Gb/sec (4X NDR)", "InfiniBand") } },
    { "nic", TM_CHECK_FAIL, "has 200 Gb/sec", 0,
      { PORT("mlx5_0", "4: ACTIVE", "5: LinkUp", "200 Gb/sec (4X HDR)", "InfiniBand") } },
    { "nic", TM_CHECK_FAIL, "no RoCE v2 GID", 0, { PORT("mlx5_0", "4: ACTIVE", "5: LinkUp", "400 Gb/sec", "Ethernet"),
      GID("mlx5_0", "IB/RoCE v1") } },
    { "nic", TM_CHECK_FAIL, "eth2 100000 Mb/s", 0,
      { PORT("mlx5_0", "4: ACTIVE", "5: LinkUp", "400 Gb/sec", "InfiniBand"),
      IB "mlx5_0/device/net/eth2/speed=100000\n" } },
    { "nic", TM_CHECK_SKIP, "no card", 0, { 0 } },
    { "ifname", TM_CHECK_PASS, "eth0, route over eth0", 0, { "$NCCL_SOCKET_IFNAME=eth0", "$MASTER_ADDR=10.0.0.9", NET "eth0/operstate=up\n",
      NET "lo/operstate=unknown\n", ROUTES } },
    { "ifname", TM_CHECK_WARN, "no interface", 0, { "$NCCL_SOCKET_IFNAME==eth9", NET "eth99/operstate=up\n" } },
    { "ifname", TM_CHECK_WARN, "does not reach other machines", 0, { "$NCCL_SOCKET_IFNAME=docker", NET "docker0/operstate=up\n" } },
    { "ifname", TM_CHECK_WARN, "goes over eth0", 0, { "$NCCL_SOCKET_IFNAME=eth1", "$MASTER_ADDR=10.0.0.9", NET "eth0/operstate=up\n", NET "eth1/operstate=up\n",
      ROUTES } },
    { "ifname", TM_CHECK_SKIP, "not set", 0, { 0 } },
    { "dist_env", TM_CHECK_PASS, "rank 1 of 16, 10.0.0.1:29500; ranks of trainmark over TCP lack a secret", 0, { "$MASTER_ADDR=10.0.0.1", "$MASTER_PORT=29500", "$RANK=1", "$WORLD_SIZE=16", "$LOCAL_RANK=1", "$LOCAL_WORLD_SIZE=8", "$NNODES=2", "$NODE_RANK=0" } },
    { "dist_env", TM_CHECK_FAIL, "missing: MASTER_ADDR, MASTER_PORT", 0, { "$RANK=0", "$WORLD_SIZE=2" } },
    { "dist_env", TM_CHECK_FAIL, "RANK 2 is not below", 0, { "$MASTER_ADDR=node1", "$MASTER_PORT=29500", "$RANK=2", "$WORLD_SIZE=2" } },
    { "dist_env", TM_CHECK_PASS, "rank 1 of 2, node1:65535", 0, { "$MASTER_ADDR=node1", "$RANK=1", "$WORLD_SIZE=2", "$MASTER_PORT=65535", "$LOCAL_RANK=1", "$LOCAL_WORLD_SIZE=2", "$NNODES=1", "$NODE_RANK=0" } },
    { "dist_env", TM_CHECK_FAIL, "MASTER_PORT is '65536', not a number of 1 to 65535", 0, { "$MASTER_ADDR=node1", "$RANK=1", "$WORLD_SIZE=2", "$MASTER_PORT=65536" } },
    { "dist_env", TM_CHECK_FAIL, "LOCAL_WORLD_SIZE 3 is above WORLD_SIZE 2", 0, { "$MASTER_ADDR=node1", "$RANK=1", "$WORLD_SIZE=2", "$MASTER_PORT=1", "$LOCAL_WORLD_SIZE=3" } },
    { "dist_env", TM_CHECK_SKIP, "single process", 0, { 0 } },
    { "perf_train", TM_CHECK_PASS, "final_loss 3.1", learns, { 0 } },
    { "perf_train", TM_CHECK_FAIL, "does not fall", learns_nothing, { 0 } },
    { "perf_train", TM_CHECK_FAIL, "not finite", lost, { 0 } },
    /* values at their limits, lists that are longer than what is shown */
#define GOVERNOR(n, word) SYSTEM_CPU "cpu" n "/cpufreq/scaling_governor=" word "\n"
    { "governor", TM_CHECK_WARN, "5 of 6", 0, { GOVERNOR("0", "a"), GOVERNOR("1", "b"), GOVERNOR("2", "c"), GOVERNOR("3", "d"),
      GOVERNOR("4", "e"), GOVERNOR("5", "performance") } },
    { "pcie", TM_CHECK_WARN, "x16", 0, { EIGHT("0x74a1"), LINK("0", "2.5", "16"), LINK("1", "5.0", "16"), LINK("2", "8.0", "16"),
      LINK("3", "16.0", "16"), LINK("4", "16.0", "8"), LINK("5", "16.0", "4"), LINK("6", "32.0", "16"), LINK("7", "32.0", "15") } },
    { "xgmi", TM_CHECK_FAIL, "7 of 12", 0, { KFD "1/gpu_id=11\n", KFD "2/gpu_id=12\n", KFD "3/gpu_id=13\n", KFD "4/gpu_id=14\n",
      XGMI("1", "2"), XGMI("1", "3"), XGMI("1", "4"), XGMI("2", "1"), XGMI("4", "3") } },
#define PROCESS(n) "/sys/class/kfd/kfd/proc/" n "/pasid=1\n"
    { "foreign", TM_CHECK_FAIL, "8:", 0, { GPU("1", "0x74a1"), PROCESS("1"), PROCESS("2"), PROCESS("3"), PROCESS("4"), PROCESS("5"),
      PROCESS("6"), PROCESS("7"), PROCESS("8") } },
    { "klog", TM_CHECK_FAIL, "[mce:]", 0, { "/dev/kmsg=5,7,10,-;mce: CPU3: level five\n" } },
    { "klog", TM_CHECK_PASS, "none", 0, { "/dev/kmsg=6,7,10,-;mce: CPU3: level six\n7,8,11,-;mce: CPU3: level seven\n" } },
    { "klog", TM_CHECK_FAIL, "2 of 2", 0, { "/proc/uptime=1000 1\n", "/dev/kmsg=3,1,99999999,-;xid 1\n3,2,100000000,-;xid 2\n"
      "3,3,100000001,-;xid 3\n" } },
#define GROUP(n, type) "/sys/kernel/iommu_groups/" n "/type=" type "\n"
    { "iommu", TM_CHECK_WARN, "group", 0, { GROUP("0", "DMA"), GROUP("1", "DMA"), GROUP("2", "DMA"), GROUP("3", "DMA"), GROUP("4", "DMA"),
      GROUP("5", "identity") } },
#define BRIDGE(n) PCI "0000:00:0" n ".0/class=0x060400\n", PCI "0000:00:0" n ".0/config=%acs-on"
    { "acs", TM_CHECK_WARN, "0000", 0, { BRIDGE("1"), BRIDGE("2"), BRIDGE("3"), BRIDGE("4"), BRIDGE("5"), BRIDGE("6"), BRIDGE("7"),
      BRIDGE("8") } },
    { "memlock", TM_CHECK_FAIL, "GiB", 0, { "/proc/self/limits=Max locked memory         34359738367          34359738368          bytes\n",
      GPU("1", "0x74a1") } },
    { "shm", TM_CHECK_PASS, "8.00 GiB", shm_enough, { 0 } },
    { "shm", TM_CHECK_FAIL, "GiB", shm_not_enough, { 0 } },
    { "memory", TM_CHECK_PASS, "10 %", 0, { "/proc/meminfo=MemTotal: 1000000 kB\nMemAvailable: 100000 kB\n" } },
    { "memory", TM_CHECK_WARN, "%", 0, { "/proc/meminfo=MemTotal: 1000000 kB\nMemAvailable: 99999 kB\n" } },
    { "numa_layout", TM_CHECK_PASS, "2 nodes", 0, { NODE("0", "0-3", "1000000"), NODE("1", "4-7", "900000") } },
    { "numa_layout", TM_CHECK_WARN, "2 nodes", 0, { NODE("0", "0-3", "1000000"), NODE("1", "4-7", "899999") } },
    { "numa_balancing", TM_CHECK_PASS, "0", 0, { "/proc/sys/kernel/numa_balancing= 0x0 \t\n" } },
    { "numa_balancing", TM_CHECK_WARN, "-1", 0, { "/proc/sys/kernel/numa_balancing=-1\n" } },
    { "thp", TM_CHECK_INFO, "enabled always, defrag defer", 0, { THP "enabled=[always] madvise never\n", THP "defrag=always [defer] never\n" } },
#define CLOCK "/sys/devices/system/clocksource/clocksource0/current_clocksource="
    { "clocksource", TM_CHECK_PASS, "kvm-clock", 0, { CLOCK "kvm-clock\n" } },
#define IDLE(cpu, state, file) SYSTEM_CPU "cpu" cpu "/cpuidle/state" state "/" file "\n"
    { "cstate", TM_CHECK_INFO, "3 of 4 deep states are enabled, C10 of cpu0 for one", 0, { IDLE("0", "0", "name=POLL"), IDLE("0", "1", "name=C1E"),
      IDLE("0", "2", "name=C2"), IDLE("0", "2", "disable=2"), IDLE("0", "3", "name=C10"), IDLE("0", "4", "name=C6"), IDLE("0", "4", "disable=0"),
      IDLE("0", "x", "name=C9"), IDLE("0", "5", "disable=0"), IDLE("0", "6", "name=CX"), IDLE("0", "7", "name=c7"), IDLE("1", "3", "name=C3") } },
    { "iommu_smt", TM_CHECK_FAIL, "100 processors online, 256 present", 0, { SYSTEM_CPU "online=0-99\n", SYSTEM_CPU "present=0-255\n" } },
    { "iommu_smt", TM_CHECK_PASS, "255 processors online", 0, { SYSTEM_CPU "online=0-254\n", SYSTEM_CPU "present=0-300\n", "/sys/class/iommu/dmar0/" } },
#define MEMORY(total) "/proc/meminfo=MemTotal: " total " kB\nMemAvailable: " total " kB\n"
    { "memory", TM_CHECK_PASS, "100 %", 0, { MEMORY("1464843750"), EIGHT("0x74a1") } },
    { "memory", TM_CHECK_WARN, "8 x MI300X", 0, { MEMORY("1464843749"), EIGHT("0x74a1") } },
    { "memory", TM_CHECK_WARN, "8 x MI325X", 0, { MEMORY("2000000000"), GPU("0", "0x74a1"), GPU("1", "0x74a5"), GPU("2", "0x74a1"), GPU("3", "0x74a5"),
      GPU("4", "0x74a1"), GPU("5", "0x74a1"), GPU("6", "0x74a1"), GPU("7", "0x74a1") } },
    { "numa_layout", TM_CHECK_PASS, "2 nodes", 0, { NODE("3", "0-3", "1000"), NODE("8", "4-7", "1000"), GPU("1", "0x74a1"), GPU_FILE("1", "numa_node=3\n"),
      GPU("2", "0x74a1"), GPU_FILE("2", "numa_node=8\n") } },
    { "numa_layout", TM_CHECK_WARN, "on no node", 0, { NODE("0", "0-3", "1000"), NODE("1", "4-7", "1000"), GPU("1", "0x74a1"), GPU_FILE("1", "numa_node=0\n"),
      GPU("2", "0x74a1"), GPU_FILE("2", "numa_node=1\n"), GPU("3", "0x74a1"), GPU_FILE("3", "numa_node=2\n") } },
    { "numa_layout", TM_CHECK_WARN, "2 nodes", 0, { NODE("0", "0-3", "1000"), NODE("1", "4-7", "1000"), GPU("1", "0x74a1"), GPU_FILE("1", "numa_node=1\n") } },
    { "time", TM_CHECK_INFO, "9999-12-31T23:59:59Z", last_moment, { 0 } },
    { "iommu", TM_CHECK_WARN, "1 of 3", 0, { GROUP("0", "identity"), GROUP("1", "DMA"), "/sys/kernel/iommu_groups/2/" } },
    { "gpu_count", TM_CHECK_PASS, "1 x MI350X, 1 in the driver", want_1_gpu, { GPU("1", "0x75a0"), KFD "0/gpu_id=0\n", KFD "1/gpu_id=7\n" } },
    { "gpu_count", TM_CHECK_INFO, "1 x AMD device 744c", 0, { GPU_OF("0000:03:00.0", "0x1002", "0x744c", "0x030000"),
      GPU_OF("0000:04:00.0", "0x1002", "0x1234", "0x040300"), GPU_OF("0000:05:00.0", "0x10de", "0x1234", "0x120000") } },
#define LINKS(n, speed, width, most_speed, most_width) GPU_FILE(n, "current_link_speed=" speed " GT/s PCIe\n"), GPU_FILE(n, "current_link_width=" width "\n"), \
    GPU_FILE(n, "max_link_speed=" most_speed " GT/s PCIe\n"), GPU_FILE(n, "max_link_width=" most_width "\n")
    { "pcie", TM_CHECK_WARN, "1 of 2", 0, { GPU("1", "0x74a1"), LINKS("1", "16.0", "16", "16.0", "16"), GPU("2", "0x744c"), LINKS("2", "32.0", "16", "16.0", "8") } },
    { "gpu_busy", TM_CHECK_PASS, "at most 15 % on 2", 0, { GPU("1", "0x74a1"), GPU_FILE("1", "gpu_busy_percent=15\n"), GPU("2", "0x74a1"),
      GPU_FILE("2", "gpu_busy_percent=5\n"), GPU("3", "0x74a1") } },
#define RAS(block, counts) GPU_FILE("1", "ras/" block "=" counts)
    { "ecc", TM_CHECK_FAIL, "gfx 1, 0000:01:00.0 umc 2", 0, { GPU("1", "0x74a1"), RAS("umc_err_count", "ue: 2\nce: 1\n"), RAS("gfx_err_count", "ue: 1\n"),
      RAS("_err_count", "ue: 5\n"), RAS("x_err_counts", "ue: 6\n"), RAS("sdma_err_count", "ce: 9\n") } },
    { "gpu_clocks", TM_CHECK_WARN, "0000:01:00.0 2100 of 2100 MHz, 0000:02:00.0 0 of 90 MHz", 0, { GPU("1", "0x74a1"), GPU("2", "0x74a1"), GPU("3", "0x74a1"),
      GPU_FILE("1", "pp_dpm_sclk=OD_SCLK *\n0: 132Mhz\n1: 2100Mhz *"), GPU_FILE("2", "pp_dpm_sclk=0: 90Mhz\n1: 80Mhz\n"), GPU_FILE("3", "pp_dpm_sclk=none *\n") } },
#define POWER(n, monitor, cap, most) GPU_FILE(n, "hwmon/hwmon" monitor "/power1_cap=" cap "000000\n"), GPU_FILE(n, "hwmon/hwmon" monitor "/power1_cap_max=" most "000000\n")
    { "gpu_power", TM_CHECK_WARN, "and 1 more", 0, { GPU("1", "0x74a1"), POWER("1", "1", "1", "9"), POWER("1", "2", "2", "9"), POWER("1", "3", "3", "9"), POWER("1", "4", "4", "9"),
      GPU("2", "0x74a1"), POWER("2", "5", "5", "9") } },
    { "foreign", TM_CHECK_FAIL, "2: 77 python, 79 (unknown)", trainers_allowed, { GPU("1", "0x74a1"), PROCESS("77"), PROCESS("78"), PROCESS("79"), PROCESS("x"),
      "/proc/77/comm=python\n", "/proc/78/comm=train\n" } },
    { "foreign", TM_CHECK_SKIP, "is not there", 0, { GPU("1", "0x74a1") } },
    { "versions", TM_CHECK_INFO, "nvidia NVRM 5, NIC firmware 1, NIC firmware 2", 0, { "/proc/driver/nvidia/version=NVRM 5\nGCC\n", "/sys/module/amdgpu/version=\n",
      IB "a/fw_ver=1\n", IB "b/fw_ver=2\n", IB "c/fw_ver=1\n" } },
#define UP(nic, layer) PORT(nic, "4: ACTIVE", "5: LinkUp", "400 Gb/sec", layer)
    { "nic", TM_CHECK_FAIL, "a/1 is unreadable, b/1 is unreadable, c/1 has no rate, d/1 has no RoCE v2 GID at index 3 and 1 more", 0, { IB "a/ports/1/rate=400\n",
      IB "b/ports/1/state=4:ACTIVE\n", IB "c/ports/1/state=4:   ACTIVE\n", IB "c/ports/1/phys_state=5: LinkUp\n", UP("d", "Ethernet"),
      IB "d/ports/1/gid_attrs/types/3=RoCE v2\n", IB "d/ports/1/gids/3=0000:0000:0000:0000:0000:0000:0000:0000\n", UP("e", "Ethernet"),
      IB "e/ports/1/gid_attrs/types/3=RoCE v2\n" } },
    { "nic", TM_CHECK_FAIL, "e2 399999 Mb/s, 1 cards, not 2", want_2_nics, { UP("a", "InfiniBand"), IB "a/device/net/e0/speed=0\n", IB "a/device/net/e1/speed=-1\n",
      IB "a/device/net/e2/speed=399999\n", IB "a/device/net/e3/speed=x\n", IB "a/ports/x/state=1: DOWN\n" } },
#define NETS(name) NET name "/operstate=up\n"
    { "ifname", TM_CHECK_PASS, "=eth0, eth5, route over eth0", 0, { "$NCCL_SOCKET_IFNAME==eth0, eth5", "$MASTER_ADDR=10.0.0.9", NETS("eth0"), NET "eth01/operstate=down\n", NET "eth5/operstate=unknown\n", ROUTES } },
    { "ifname", TM_CHECK_PASS, "^docker,eth1, route over eth0", 0, { "$NCCL_SOCKET_IFNAME=^docker,eth1", "$MASTER_ADDR=10.0.0.9", ROUTES } },
    { "ifname", TM_CHECK_PASS, "not set, no route looked up: MASTER_ADDR is not an IPv4 address", 0, { "$MASTER_ADDR=node1", ROUTES } },
    { "ifname", TM_CHECK_PASS, "not set, MASTER_ADDR is this machine", 0, { "$MASTER_ADDR=127.3.2.1" } },
    { "ifname", TM_CHECK_PASS, "not set, route over eth2", 0, { "$MASTER_ADDR=10.0.0.9", "$NCCL_SOCKET_IFNAME=", "/proc/net/route=Iface\neth0 0000000A 0 0 0 0 0 000000FF\neth1 0000000A 0 0 0 0 0 000000FF\n"
      "eth2 0000000A 0 0 0 0 0 0000FFFF\neth3 00000000 0 0 0 0 0 00000000\neth4 0000000A 0 0\neth5 0000000B 0 0 0 0 0 FFFFFFFF\n" } },
    { "ifname", TM_CHECK_WARN, "lo does not reach", 0, { "$NCCL_SOCKET_IFNAME=lo,cni,br", NETS("lo") } },
    { "dist_env", TM_CHECK_PASS, "rank 16777215 of 16777216, a:1", 0, { "$MASTER_ADDR=a", "$MASTER_PORT=1", "$RANK=16777215", "$WORLD_SIZE=16777216", "$LOCAL_RANK=65536", "$NNODES=1048576", "$NODE_RANK=1048575" } },
    { "dist_env", TM_CHECK_FAIL, "WORLD_SIZE is '16777217', not a number of 1 to 16777216", 0, { "$MASTER_ADDR=a", "$MASTER_PORT=1", "$RANK=0", "$WORLD_SIZE=16777217" } },
    { "dist_env", TM_CHECK_FAIL, "LOCAL_WORLD_SIZE is '65537', not a number of 1 to 65536", 0, { "$MASTER_ADDR=a", "$MASTER_PORT=1", "$RANK=0", "$WORLD_SIZE=65537", "$LOCAL_WORLD_SIZE=65537" } },
    { "memlock", TM_CHECK_PASS, "512.00 MiB", half_a_gib, { "/proc/self/limits=Max locked memory         536870912          34359738368          bytes\n",
      GPU("1", "0x74a1") } },
    { "gpu_mem", TM_CHECK_FAIL, "0.5 GiB", half_a_gib, { GPU("1", "0x74a1"), GPU_FILE("1", "mem_info_vram_used=536870912\n") } },
    { "klog", TM_CHECK_PASS, "1 recent kernel message,", half_a_gib, { "/proc/uptime=1000 1\n", "/dev/kmsg=3,1,969999999,-;xid 1\n6,2,970000000,-;fine\n" } },
    { "cmdline", TM_CHECK_WARN, "missing: pci=bfsort, iommu=pt, numa_balancing=disable", 0, { "/proc/cmdline=pci=realloc=off bfsort iommu= pt x=numa_balancing=disable\n" } },
#define FREQUENCY(n, may, can) \
    SYSTEM_CPU "cpu" n "/cpufreq/scaling_max_freq=" may "\n", SYSTEM_CPU "cpu" n "/cpufreq/cpuinfo_max_freq=" can "\n"
    { "frequency", TM_CHECK_PASS, "no limit on all 2", 0, { FREQUENCY("0", "3500000", "3500000"),
      FREQUENCY("1", "3480000", "3500000") } },
    { "frequency", TM_CHECK_WARN, "2 of 2 are limited: cpu0 2.40 of 3.50 GHz", 0,
      { FREQUENCY("0", "2400000", "3500000"), FREQUENCY("1", "2400000", "3500000") } },
    { "frequency", TM_CHECK_FAIL, "1 of 2 are limited: cpu1 1.20 of 3.50 GHz", 0,
      { FREQUENCY("0", "3500000", "3500000"), FREQUENCY("1", "1200000", "3500000") } },
    { "frequency", TM_CHECK_SKIP, "no cpufreq", 0, { SYSTEM_CPU "cpu0/cpufreq/scaling_max_freq=x\n" } },
#define STAT(n, name, state, parent) "/proc/" n "/stat=" n " (" name ") " state " " parent " 1 1\n"
    { "zombies", TM_CHECK_PASS, "none of 2", 0, { STAT("1", "init", "S", "0"), STAT("7", "a) Z 1", "R", "1") } },
    { "zombies", TM_CHECK_WARN, "2: 8 python3 (parent 7), 9 a b (parent 1)", 0, { STAT("7", "sh", "S", "1"),
      STAT("8", "python3", "Z", "7"), STAT("9", "a b", "Z", "1") } },
#define TEN_DEAD(t) STAT(t "0", "x", "Z", "1"), STAT(t "1", "x", "Z", "1"), STAT(t "2", "x", "Z", "1"), \
    STAT(t "3", "x", "Z", "1"), STAT(t "4", "x", "Z", "1"), STAT(t "5", "x", "Z", "1"), STAT(t "6", "x", "Z", "1"), \
    STAT(t "7", "x", "Z", "1"), STAT(t "8", "x", "Z", "1"), STAT(t "9", "x", "Z", "1")
    { "zombies", TM_CHECK_FAIL, "20: ", 0, { TEN_DEAD("1"), TEN_DEAD("2") } },
    { "zombies", TM_CHECK_SKIP, "no processes", 0, { "/proc/meminfo=\n" } },
#define SEGMENTS "/proc/sysvipc/shm=       key      shmid perms                  size  cpid  lpid nattch   uid\n"
    { "left_shm", TM_CHECK_PASS, "5 B in 1 files of /dev/shm, the largest is a", 0,
      { "/proc/meminfo=MemTotal: 1000 kB\n", "/dev/shm/a=1234\n", SEGMENTS "0 1 666 900000 1 1 2 0\n" } },
    { "left_shm", TM_CHECK_WARN, "in 1 segments", 0, { "/proc/meminfo=MemTotal: 1000 kB\n",
      SEGMENTS "0 1 666 10240 1 1 0 0\n" } },
    { "left_shm", TM_CHECK_FAIL, "in 2 segments", 0, { "/proc/meminfo=MemTotal: 1000 kB\n",
      SEGMENTS "0 1 666 30000 1 1 0 0\n0 2 666 21200 1 1 0 0\n" } },
    { "left_shm", TM_CHECK_SKIP, "no MemTotal", 0, { "/proc/meminfo=\n" } },
    /* how the GPUs are set up, and what is installed for them; whole servers: test_check_servers.c */
#define STATUS(mode) "/proc/self/status=Name:\tx\nSeccomp:\t" mode "\nSeccomp_filters:\t1\n"
    { "seccomp", TM_CHECK_PASS, "no filter", 0, { STATUS("0") } },
    { "seccomp", TM_CHECK_PASS, "allows mbind", nothing_refused, { STATUS("2") } },
    { "seccomp", TM_CHECK_WARN, "refuses mbind", numa_refused, { STATUS("2") } },
    { "seccomp", TM_CHECK_SKIP, "only known on the running system", 0, { STATUS("2") } },
    { "seccomp", TM_CHECK_SKIP, "has no Seccomp", 0, { 0 } },
#define NODE_OF(n, id, minor, place) KFD n "/gpu_id=" id "\n", KFD n "/properties=simd_count 304\nlocation_id " place \
    "\ndomain 0\ndrm_render_minor " minor "\n"
    { "gpu_devices", TM_CHECK_PASS, "all 2 device files", 0, { GPU("1", "0x74a1"), NODE_OF("1", "7", "128", "256"), "/dev/kfd=", "/dev/dri/renderD128=" } },
    { "gpu_devices", TM_CHECK_FAIL, "missing: /dev/dri/renderD136", 0, { GPU("1", "0x74a1"), NODE_OF("1", "7", "136", "256"), "/dev/kfd=",
      "/dev/dri/renderD128=" } },
    { "gpu_devices", TM_CHECK_FAIL, "missing: /dev/kfd", 0, { GPU("1", "0x74a1"), "/dev/dri/renderD128=" } },
    { "gpu_devices", TM_CHECK_FAIL, "missing: /dev/nvidia-uvm, /dev/nvidia3", 0, { H200, "/dev/nvidiactl=",
      "/proc/driver/nvidia/gpus/0000:41:00.0/information=Model: \t\t NVIDIA H200\nDevice Minor: \t 3\n" } },
    { "gpu_devices", TM_CHECK_SKIP, "no device files below", 0, { GPU("1", "0x74a1") } },
#define GRAPHICS GPU_OF("0000:03:00.0", "0x1002", "0x164e", "0x030000")
    { "gpu_devices", TM_CHECK_SKIP, "only graphics cards", 0, { GRAPHICS, "/dev/dri/renderD128=" } },
    { "gpu_devices", TM_CHECK_FAIL, "missing: /dev/kfd", want_1_gpu, { GRAPHICS, "/dev/dri/renderD128=" } },
    { "rocm", TM_CHECK_WARN, "not found: hipBLASLt, RCCL", 0, { GPU("1", "0x74a1"), "/opt/rocm/lib/libamdhip64.so.6.2.60204=", "/opt/rocm/lib/libhiprtc.so.6.2.60204=" } },
    { "rocm", TM_CHECK_SKIP, "only graphics cards", 0, { GRAPHICS } },
    { "cuda", TM_CHECK_SKIP, "only graphics cards", 0, { GPU_OF("0000:03:00.0", "0x10de", "0x2684", "0x030000") } },
    { "gpu_devices", TM_CHECK_SKIP, "no GPU", 0, { 0 } },
#define TWO_GPUS GPU("1", "0x74a1"), GPU("2", "0x74a1")
    { "gpu_visible", TM_CHECK_PASS, "2 of 2 devices", 0, { TWO_GPUS } },
    { "gpu_visible", TM_CHECK_INFO, "2 of 2 devices (HIP_VISIBLE_DEVICES=0,1)", 0, { "$HIP_VISIBLE_DEVICES=0,1", TWO_GPUS } },
    { "gpu_visible", TM_CHECK_FAIL, "1 of 2 devices (HIP_VISIBLE_DEVICES=0,5): '5' of HIP_VISIBLE_DEVICES names no device", 0, { "$HIP_VISIBLE_DEVICES=0,5", TWO_GPUS } },
    { "gpu_visible", TM_CHECK_INFO, "2 of 4 devices (ROCR_VISIBLE_DEVICES=GPU-4b2c1a9f,1,2, HIP_VISIBLE_DEVICES=2,0)", 0, { "$ROCR_VISIBLE_DEVICES=GPU-4b2c1a9f,1,2", "$HIP_VISIBLE_DEVICES=2,0", "$CUDA_VISIBLE_DEVICES=0", TWO_GPUS, GPU("3", "0x74a1"), GPU("4", "0x74a1") } },
    { "gpu_visible", TM_CHECK_INFO, "1 of 2 devices (CUDA_VISIBLE_DEVICES=1)", 0, { "$CUDA_VISIBLE_DEVICES=1", TWO_GPUS } },
    { "gpu_visible", TM_CHECK_FAIL, "0 of 1 devices (CUDA_VISIBLE_DEVICES=), but LOCAL_WORLD_SIZE is 1", 0, { "$CUDA_VISIBLE_DEVICES=", "$LOCAL_WORLD_SIZE=1", H200 } },
    { "gpu_visible", TM_CHECK_FAIL, "2 of 2 devices, but GPUS_PER_NODE is 8", 0, { "$GPUS_PER_NODE=8", TWO_GPUS } },
    { "gpu_visible", TM_CHECK_SKIP, "no GPU", 0, { 0 } },
#define PARTITION(n, compute, memory) GPU(n, "0x74a1"), GPU_FILE(n, "current_compute_partition=" compute "\n"), \
    GPU_FILE(n, "current_memory_partition=" memory "\n")
    { "partition", TM_CHECK_PASS, "2 x SPX; 2 x NPS1; 0 devices of 2 GPUs", 0, { PARTITION("1", "SPX", "NPS1"), PARTITION("2", "SPX", "NPS1") } },
    { "partition", TM_CHECK_WARN, "1 x CPX; 1 x NPS4; 2 devices of 1 GPUs", 0, { PARTITION("1", "CPX", "NPS4"), KFD "1/gpu_id=11\n", KFD "2/gpu_id=12\n" } },
    { "partition", TM_CHECK_FAIL, "1 x NPS1, 1 x NPS4; 0 devices of 2 GPUs; 0000:02:00.0 differs", 0, { PARTITION("1", "CPX", "NPS1"),
      PARTITION("2", "CPX", "NPS4") } },
    { "partition", TM_CHECK_SKIP, "no driver shows", 0, { H200 } },
#define BAD_PAGES(n, lines) GPU(n, "0x74a1"), GPU_FILE(n, "ras/gpu_vram_bad_pages=" lines)
    { "bad_pages", TM_CHECK_PASS, "none", 0, { BAD_PAGES("1", "") } },
    { "bad_pages", TM_CHECK_INFO, "0000:01:00.0 2 retired, 0 pending, 0 not retired", 0, { BAD_PAGES("1", "0x1 : 0x1000 : R\n0x2 : 0x1000 : R\n") } },
    { "bad_pages", TM_CHECK_WARN, "0000:02:00.0 0 retired, 1 pending", 0, { BAD_PAGES("1", ""), BAD_PAGES("2", "0x1 : 0x1000 : P") } },
    { "bad_pages", TM_CHECK_FAIL, "0 retired, 1 pending, 1 not retired", 0, { BAD_PAGES("1", "0x1 : 0x1000 : P\n0x2 : 0x1000 : F \n") } },
    { "bad_pages", TM_CHECK_SKIP, "ROW_REMAPPER", 0, { H200 } },
#define NVSWITCH(address) GPU_OF(address, "0x10de", "0x22a3", "0x068000")
#define SWITCH_OF_DRIVER(address) "/proc/driver/nvidia-nvswitch/devices/" address "/information=\n"
    { "nvlink", TM_CHECK_PASS, "1 NVSwitches, the fabric manager runs", 0, { H200, NVSWITCH("0000:05:00.0"), SWITCH_OF_DRIVER("0000:05:00.0"),
      "/proc/9/comm=nv-fabricmanage\n" } },
    { "nvlink", TM_CHECK_INFO, "not seen from a container", 0, { H200, NVSWITCH("0000:05:00.0"), SWITCH_OF_DRIVER("0000:05:00.0"), "/.dockerenv=" } },
    { "nvlink", TM_CHECK_FAIL, "2 NVSwitches, the driver has 1; not 0000:06:00.0", 0, { H200, NVSWITCH("0000:05:00.0"), NVSWITCH("0000:06:00.0"),
      SWITCH_OF_DRIVER("0000:05:00.0"), "/proc/9/comm=nv-fabricmanage\n" } },
    { "nvlink", TM_CHECK_SKIP, "no NVSwitch", 0, { H200 } },
#define FOUR(folder, hip, blas, packed) folder "/libamdhip64.so." hip "." packed "=", folder "/libhiprtc.so." hip "." packed "=", \
    folder "/libhipblaslt.so." blas "." packed "=", folder "/librccl.so.1.0." packed "="
    { "rocm", TM_CHECK_PASS, "HIP 6.4.3 in /opt/rocm-6.4.3/lib, hiprtc 6.4.3", 0, { GPU("1", "0x74a1"), FOUR("/opt/rocm-6.4.3/lib", "6.4", "0.12", "60403"),
      FOUR("/opt/rocm-6.2.4/lib", "6.2", "0.8", "60204") } },
    { "rocm", TM_CHECK_PASS, "HIP 7.10.0 in /opt/venv/lib/python3.12/site-packages/_rocm_sdk_core/lib", 0, { GPU("1", "0x75a3"),
      "/opt/venv/lib/python3.12/site-packages/_rocm_sdk_core/lib/libamdhip64.so.7=", "/opt/venv/lib/python3.12/site-packages/_rocm_sdk_core/lib/libhiprtc.so.7=",
      "/opt/venv/lib/python3.12/site-packages/_rocm_sdk_libraries_gfx950_dcgpu/lib/libhipblaslt.so.1=",
      "/opt/venv/lib/python3.12/site-packages/_rocm_sdk_libraries_gfx950_dcgpu/lib/librccl.so.1=",
      "/opt/venv/lib/python3.12/site-packages/rocm_sdk_core-7.10.0.dist-info/METADATA=" } },
    { "rocm", TM_CHECK_PASS, "HIP of an unknown release", 0, { GPU("1", "0x74a1"), "/usr/lib64/libamdhip64.so.6.4.43484=", "/usr/lib64/libhiprtc.so.6=",
      "/usr/lib64/libhipblaslt.so.0=", "/usr/lib64/librccl.so.1=" } },
    { "rocm", TM_CHECK_FAIL, "ROCM_PATH is '/nowhere'", 0, { "$ROCM_PATH=/nowhere", GPU("1", "0x74a1"), FOUR("/opt/rocm-6.4.3/lib", "6.4", "0.12", "60403") } },
    { "rocm", TM_CHECK_SKIP, "no GPU of AMD", 0, { H200 } },
#define HIP_OF(path) "/opt/rocm/lib/libamdhip64.so." path "="
    { "amdgpu", TM_CHECK_FAIL, "amdgpu is not loaded", 0, { GPU("1", "0x74a1") } },
    { "amdgpu", TM_CHECK_INFO, "the kernel's own", 0, { GPU("1", "0x74a1"), "/sys/module/amdgpu/refcnt=1\n", HIP_OF("6.4.60400") } },
    { "amdgpu", TM_CHECK_INFO, "no ROCm was found", 0, { GPU("1", "0x74a1"), "/sys/module/amdgpu/version=6.12.12\n" } },
    { "amdgpu", TM_CHECK_INFO, "ROCm 7.12.0 is not in the table", 0, { GPU("1", "0x74a1"), "/sys/module/amdgpu/version=6.16.13\n", HIP_OF("7.12.71200") } },
    { "amdgpu", TM_CHECK_PASS, "amdgpu 6.10.5 (release 6.3) with ROCm 6.4.0", 0, { GPU("1", "0x74a1"), "/sys/module/amdgpu/version=6.10.5\n", HIP_OF("6.4.60400") } },
    { "amdgpu", TM_CHECK_SKIP, "no GPU of AMD", 0, { H200 } },
#define NVRM "/proc/driver/nvidia/version=NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
#define LIBCUDA(version) "/usr/lib64/libcuda.so.1->libcuda.so." version, "/usr/lib64/libcuda.so." version "="
#define NVRTC_12 "/opt/venv/lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12="
#define CUBLAS_12 "/opt/venv/lib/python3.12/site-packages/nvidia/cublas/lib/libcublasLt.so.12="
    { "cuda", TM_CHECK_PASS, "driver 550.54.15 (CUDA 12), NVRTC 12, cublasLt 12", 0, { H200, NVRM, LIBCUDA("550.54.15"), NVRTC_12, CUBLAS_12,
      "/usr/local/cuda/lib64/libnvrtc.so.13=" } },
    { "cuda", TM_CHECK_PASS, "driver 550.54.15 with the compatibility package of 575.57.08 (CUDA 12)", 0, { H200, NVRM, "/usr/local/cuda/compat/libcuda.so.1->libcuda.so.575.57.08",
      "/usr/local/cuda/compat/libcuda.so.575.57.08=", "/etc/ld.so.conf.d/cuda.conf=/usr/local/cuda/compat\n", NVRTC_12, CUBLAS_12 } },
    { "cuda", TM_CHECK_PASS, "550.54.15 with the compatibility package of 580.82.07 (CUDA 13), NVRTC 13, cublasLt 13", 0, { H200, NVRM, "/usr/local/cuda/compat/libcuda.so.1->libcuda.so.580.82.07",
      "/usr/local/cuda/compat/libcuda.so.580.82.07=", "/etc/ld.so.conf.d/cuda.conf=/usr/local/cuda/compat\n", "/usr/local/cuda/lib64/libnvrtc.so.13=",
      "/usr/local/cuda/lib64/libcublasLt.so.13=" } },
    { "cuda", TM_CHECK_WARN, "NVRTC: not found", 0, { H200, NVRM, LIBCUDA("550.54.15") } },
    { "cuda", TM_CHECK_FAIL, "the driver is not loaded", 0, { H200 } },
    { "cuda", TM_CHECK_SKIP, "no GPU of NVIDIA", 0, { GPU("1", "0x74a1") } },
    { "firmware", TM_CHECK_PASS, "1 of 8 kinds are read", 0, { GPU("1", "0x74a1"), GPU_FILE("1", "vbios_version=113-M\n") } },
    { "firmware", TM_CHECK_WARN, "mec_fw_version 1 x 0xb1, 1 x 0xb0 (0000:02:00.0)", 0, { TWO_GPUS, GPU_FILE("1", "fw_version/mec_fw_version=0xb1\n"),
      GPU_FILE("2", "fw_version/mec_fw_version=0xb0\n") } },
    { "firmware", TM_CHECK_SKIP, "nvidia-smi -q", 0, { H200 } },
    { "gpu_level", TM_CHECK_PASS, "1 x perf_determinism", 0, { GPU("1", "0x74a1"), GPU_FILE("1", "power_dpm_force_performance_level=perf_determinism\n") } },
    { "gpu_level", TM_CHECK_WARN, "1 x auto, 1 x high", 0, { TWO_GPUS, GPU_FILE("1", "power_dpm_force_performance_level=auto\n"),
      GPU_FILE("2", "power_dpm_force_performance_level=high\n") } },
    { "gpu_level", TM_CHECK_SKIP, "no driver shows", 0, { H200 } },
    { "gpu_temp", TM_CHECK_PASS, "at most 90 C on 1", 0, { GPU("1", "0x74a1"), GPU_FILE("1", "hwmon/hwmon4/temp2_input=90000\n") } },
    { "gpu_temp", TM_CHECK_WARN, "junction 90.001 of 100 C", 0, { GPU("1", "0x74a1"), GPU_FILE("1", "hwmon/hwmon4/temp2_input=90001\n"),
      GPU_FILE("1", "hwmon/hwmon4/temp2_label=junction\n") } },
    { "gpu_temp", TM_CHECK_WARN, "mem 85 of 94 C", 0, { GPU("1", "0x74a1"), GPU_FILE("1", "hwmon/hwmon4/temp3_input=85000\n"),
      GPU_FILE("1", "hwmon/hwmon4/temp3_label=mem\n"), GPU_FILE("1", "hwmon/hwmon4/temp3_crit=94000\n") } },
    { "gpu_temp", TM_CHECK_SKIP, "nvidia-smi", 0, { H200 } },
    { "gpu_power", TM_CHECK_PASS, "limit on 1", 0, { GPU("1", "0x74a1"), GPU_FILE("1", "hwmon/hwmon4/power1_cap=750000000\n"),
      GPU_FILE("1", "hwmon/hwmon4/power1_cap_default=750000000\n"), GPU_FILE("1", "hwmon/hwmon4/power1_cap_max=900000000\n") } },
    { "gpu_count", TM_CHECK_FAIL, "1 x NVIDIA device 2335, 0 in the driver", 0, { H200, "/proc/driver/nvidia/gpus/" } },
    { "xgmi", TM_CHECK_FAIL, "node 1 (0000:05:00.0) to 2 (0000:26:00.0), 2 (0000:26:00.0) to 1", 0, { NODE_OF("1", "7", "128", "1280"),
      NODE_OF("2", "8", "136", "9728") } },
};
/* clang-format on */
enum { FIXTURES = sizeof fixtures / sizeof fixtures[0] };

#endif
