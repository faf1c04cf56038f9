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
#define GATED(name, of, metric_name, limit_value, value, good)                                                         \
    static const tm_gate name##_gates[] = {                                                                            \
        { .metric = metric_name, .kind = TM_GATE_MIN, .limit = limit_value, .measured = value, .passed = good }        \
    };                                                                                                                 \
    static const tm_check_perf name##_perf = { .metrics = of##_metrics,                                                \
                                               .n = sizeof of##_metrics / sizeof of##_metrics[0],                      \
                                               .gates = name##_gates,                                                  \
                                               .n_gates = 1 };                                                         \
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
METRICS(gemm, { "gemm.gflops_per_sec", 250 })
GATED(gemm_good, gemm, "gemm.gflops_per_sec", 200, 250, true)
GATED(gemm_slow, gemm, "gemm.gflops_per_sec", 600, 250, false)
METRICS(stream, { "stream.copy_gb_per_sec", 18 }, { "stream.triad_gb_per_sec", 17 })
GATED(stream_good, stream, "stream.triad_gb_per_sec", 15, 17, true)
METRICS(learns, { "training.loss_decreased", 1 }, { "training.final_loss", 3.1 })
METRICS(learns_nothing, { "training.loss_decreased", 0 }, { "training.final_loss", 4.2 })
METRICS(lost, { "training.loss_decreased", 0 }, { "training.final_loss", __builtin_nan("") })
GATED(trains_slowly, learns, "training.loss_decreased", 2, 1, false)
#include "check_settings.h"
#define DEAD "killed after 15 s (--per-gpu-timeout-sec)"
static const tm_check_perf dead_perf = { .problem = { DEAD, DEAD, DEAD } };
static const tm_metric     half_stream[] = { { "stream.copy_gb_per_sec", 18 } };
static const tm_check_perf half_perf = { .problem = { [TM_PERF_STREAM] = DEAD }, .metrics = half_stream, .n = 1 };
SET(measurement_half_done, h->perf = &half_perf)
SET(measurement_died, h->perf = &dead_perf)

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
    { "perf_gemm", TM_CHECK_PASS, "gflops_per_sec 250", gemm_good, { 0 } },
    { "perf_gemm", TM_CHECK_FAIL, "gemm.gflops_per_sec is 250, wanted at least 600", gemm_slow, { 0 } },
    { "perf_gemm", TM_CHECK_FAIL, "killed after 15 s", measurement_died, { 0 } },
    { "perf_gemm", TM_CHECK_INFO, "gflops_per_sec 250", gemm, { 0 } },
    { "perf_stream", TM_CHECK_PASS, "copy_gb_per_sec 18", stream_good, { 0 } },
    { "perf_stream", TM_CHECK_FAIL, "not measured: killed", measurement_half_done, { 0 } },
    { "perf_stream", TM_CHECK_INFO, "triad_gb_per_sec 17", stream, { 0 } },
    { "perf_train", TM_CHECK_PASS, "final_loss 3.1", learns, { 0 } },
    { "perf_train", TM_CHECK_FAIL, "does not fall", learns_nothing, { 0 } },
    { "perf_train", TM_CHECK_FAIL, "not finite", lost, { 0 } },
    { "perf_train", TM_CHECK_FAIL, "wanted at least 2", trains_slowly, { 0 } },
#include "check_limits.h"
#include "check_setup.h"
};
/* clang-format on */
enum { FIXTURES = sizeof fixtures / sizeof fixtures[0] };

#endif
