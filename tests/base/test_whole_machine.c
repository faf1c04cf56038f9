/* SPDX-License-Identifier: Apache-2.0 */
/* What is read of a machine, every figure, of made-up trees of /proc and /sys: limits of control groups of both
 * versions, memory, caches, processors, load. Beside each tree stands what it says. */
#include "support/folder.h"

#include "base/cpu.h"
#include "base/text.h"

#include "support/test.h"

#define GROUP "/proc/self/cgroup"
#define V2 "/sys/fs/cgroup"
#define INFO "/proc/meminfo"
#define CPU "/sys/devices/system/cpu"
#define MEMORY INFO, "MemTotal:       8000 kB\nMemFree: 1 kB\nMemAvailable:   4000 kB\n"
#define WHOLE "total 8192000 available 4096000 "
#define CACHE(cpu, index, type, level, size, line, shared)                                                             \
    CPU "/cpu" #cpu "/cache/index" #index "/type", type, CPU "/cpu" #cpu "/cache/index" #index "/level", level,        \
        CPU "/cpu" #cpu "/cache/index" #index "/size", size,                                                           \
        CPU "/cpu" #cpu "/cache/index" #index "/coherency_line_size", line,                                            \
        CPU "/cpu" #cpu "/cache/index" #index "/shared_cpu_list", shared

/* The figures that are known of it, then pairs of a file and what is in it. */
static const char *const trees[][49] = {
    { "", GROUP, "" },
    { WHOLE, MEMORY },
    { "total 1024 ", INFO, "MemTotal: 1 kB\n" },
    { "total 9216 available 7168 ", INFO, "MemAvailable: 7 kB\nMemTotal: 9 kB" },
    { "available 5120 ", INFO, "\n\nXMemTotal: 1 kB\nMemTotal 2 kB\nMemTotal:x\nMemAvailable:5\n" },
    /* the second version */
    { "cpus 0.5 " WHOLE, GROUP, "0::/a/b\n", MEMORY, V2 "/a/b/cpu.max", "50000 100000\n", V2 "/a/cpu.max",
      "200000 100000\n" },
    { "cpus 2.5 " WHOLE, GROUP, "0::/a/b\n", MEMORY, V2 "/a/b/cpu.max", "250000 100000\n", V2 "/cpu.max",
      "max 100000\n" },
    { "cpus 1 " WHOLE, GROUP, "0::/a/b/\n", MEMORY, V2 "/a/b/cpu.max", "100000 100000\n", V2 "/a/cpu.max",
      "100000 100000\n" },
    { "cpus 3 limit 4096 total 4096 available 4096 ", GROUP, "0::/\n", MEMORY, V2 "/cpu.max", "150000 50000\n",
      V2 "/memory.max", "4096\n" },
    { WHOLE, GROUP, "0::/a\n", MEMORY, V2 "/a/cpu.max", "0 100000\n", V2 "/a/memory.max", "max\n" },
    { "limit 0 ", GROUP, "0::/a\n", MEMORY, V2 "/a/cpu.max", "100000 0\n", V2 "/a/memory.max", "0\n" },
    { WHOLE, GROUP, "0::/a\n", MEMORY, V2 "/a/cpu.max", "100000\n", V2 "/a/memory.max", "-5\n" },
    { WHOLE, GROUP, "0::/a\n", MEMORY, V2 "/a/cpu.max", "", V2 "/a/memory.max", "" },
    { "cpus 3 limit 8192 used 1024 total 8192 available 7168 ", GROUP, "0::/a\n", MEMORY,
      "/sys/fs/cgroup/unified/a/cpu.max", "300000 100000\n", "/sys/fs/cgroup/unified/a/memory.max", "8192\n",
      "/sys/fs/cgroup/unified/a/memory.current", "1024\n" },
    { "limit 1000000 used 500000 total 1000000 available 500000 ", GROUP, "0::/a/b\n", MEMORY, V2 "/a/b/memory.max",
      "1000000\n", V2 "/a/b/memory.current", "700000\n", V2 "/a/b/memory.stat", "anon 5\ninactive_file 200000\n",
      V2 "/a/memory.max", "2000000\n", V2 "/a/memory.current", "1900000\n" },
    { "limit 1000000 used 600000 total 1000000 available 400000 ", GROUP, "0::/a/b\n", MEMORY, V2 "/a/b/memory.max",
      "2000000\n", V2 "/a/b/memory.current", "1900000\n", V2 "/a/memory.max", "1000000\n", V2 "/a/memory.current",
      "600000\n", V2 "/a/memory.stat", "inactive_file 0\n" },
    { "limit 1000 used 5000 total 1000 ", GROUP, "0::/a\n", MEMORY, V2 "/a/memory.max", "1000\n",
      V2 "/a/memory.current", "5000\n", V2 "/a/memory.stat", "xinactive_file 100\n" },
    { "limit 1000 used 499 total 1000 available 501 ", GROUP, "0::/a\n", MEMORY, V2 "/a/memory.max", "1000\n",
      V2 "/a/memory.current", "500\n", V2 "/a/memory.stat", "inactive_file 1\n" },
    { "limit 1000 total 1000 available 1000 ", GROUP, "0::/a\n", MEMORY, V2 "/a/memory.max", "1000\n",
      V2 "/a/memory.current", "500\n", V2 "/a/memory.stat", "inactive_file 600\n" },
    { "limit 9000000000 " WHOLE, GROUP, "0::/a\n", MEMORY, V2 "/a/memory.max", "9000000000\n" },
    { "limit 9223372036854771711 used 7 " WHOLE, GROUP, "0::/a\n", MEMORY, V2 "/a/memory.max", "9223372036854771711\n",
      V2 "/a/memory.current", "7\n" },
    { WHOLE, GROUP, "0::/a\n", MEMORY, V2 "/a/memory.max", "9223372036854771712\n", V2 "/a/memory.current", "7\n" },
    /* the first */
    { "cpus 0.7 limit 3000000 used 2000000 total 3000000 available 1000000 ", GROUP, "3:cpu,cpuacct:/x\n2:memory:/x\n",
      MEMORY, "/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "70000\n", "/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n",
      "/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "3000000\n", "/sys/fs/cgroup/memory/x/memory.usage_in_bytes",
      "2500000\n", "/sys/fs/cgroup/memory/x/memory.stat", "inactive_file 7\ntotal_inactive_file 500000\n" },
    { WHOLE, GROUP, "3:cpuacct,cpu:/x\n2:hugetlb,memory\n", MEMORY, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n",
      "/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n" },
    { "cpus 5 " WHOLE, GROUP, "3:cpuset,cpuX:/x\n2:xmemory,memoryx:/x\nbroken\n1:cpu:/x", MEMORY,
      "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "500000\n", "/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n",
      "/sys/fs/cgroup/memory/memory.limit_in_bytes", "3000000\n" },
    { "cpus 0.1 " WHOLE, GROUP, "1:name=systemd:/x\n\n0::/x\n4:memory:/x\n", MEMORY,
      "/sys/fs/cgroup/memory/memory.limit_in_bytes", "x\n", V2 "/x/cpu.max", "10000 100000\n" },
    /* processors and load */
    { "running 1 online 1 ", CPU "/online", "0\n", "/proc/loadavg", "0.57 0.18 0.10 1/95 7603\n" },
    { "running 12 online 5 ", CPU "/online", "0-3,8\n", "/proc/loadavg", "0.57 0.18 0.10 12/95 7603\n" },
    { "online 3 ", CPU "/online", "1,2,3", "/proc/loadavg", "0.57 0.18 0.10 0/95 7603\n" },
    { "", CPU "/online", "0-3,", "/proc/loadavg", "0.57 0.18 0.10\n" },
    { "", CPU "/online", "3-1", "/proc/loadavg", "0.57 0.18 0.10 -3/95 7603\n" },
    { "running 7 online 1 ", CPU "/online", "3-3", "/proc/loadavg", "x y z 7/8\n" },
    { "online 1048577 ", CPU "/online", "0-1048576", "/proc/loadavg", "" },
    { "", CPU "/online", "0-1048577" },
    { "", CPU "/online", "2-" },
    { "", CPU "/online", "" },
    /* caches */
    { "l1 49152 l2 2097152 l3 33554432 line 64 last 33554432 ", CACHE(0, 0, "Data", "1", "48K", "64", "0"),
      CACHE(0, 1, "Instruction", "1", "33K", "32", "0"), CACHE(0, 2, "Unified", "2", "2048K", "128", "0"),
      CACHE(0, 3, "Unified", "3", "32M", "256", "0") },
    { "l1 1073741824 line 65 last 5000 ", CACHE(0, 0, "Data", "1", "1G", "65", "0"),
      CACHE(0, 1, "Unified", "4", "5000", "64", "0"), CACHE(0, 2, "Instruction", "5", "9", "64", "0") },
    { "l3 4194304 last 4195328 ", CACHE(0, 0, "Unified", "3", "4M", "64", "1"),
      CACHE(1, 0, "Unified", "3", "8M", "64", "1"), CACHE(2, 0, "Data", "1", "1K", "64", "2") },
    { "l2 1024 last 12288 ", CACHE(0, 0, "Unified", "2", "1K", "64", "-4"),
      CACHE(1, 0, "Unified", "2", "2K", "64", "65536"), CACHE(2, 0, "Unified", "2", "4K", "64", "65535"),
      CACHE(3, 0, "Unified", "2", "8K", "64", "x") },
    { "last 2048 ", CPU "/cpu0/topology/core_id", "0", CACHE(1, 0, "Unified", "2", "2K", "64", "1"),
      CACHE(3, 0, "Unified", "2", "4K", "64", "3") },
    /* one for two processors, one for two of which one is offline, one without caches, one of its own */
    { "l3 16777216 last 58720256 ", CACHE(0, 0, "Unified", "3", "16M", "", "0-1"),
      CACHE(1, 0, "Unified", "3", "16M", "", "0-1"), CACHE(2, 0, "Unified", "3", "32M", "", "2,5"),
      CPU "/cpu3/topology/core_id", "2", CACHE(4, 0, "Unified", "3", "8M", "", "4") },
    { "l2 3072 last 3072 ", CACHE(0, 0, "Unified", "2", "2K", "64", "0"), CACHE(0, 1, "Unified", "2", "3K", "64", "0"),
      CACHE(0, 3, "Unified", "3", "4K", "64", "0") },
};

static void add(tm_text *out, const char *name, int64_t value, int64_t unknown)
{
    if (value != unknown) tm_text_printf(out, "%s %lld ", name, (long long)value);
}

TEST(machines_are_read)
{
    for (size_t i = 0; i < sizeof trees / sizeof trees[0]; i++) {
        char   *root = test_tree_make();
        tm_text out = { 0 };
        for (int k = 1; trees[i][k]; k += 2) test_put(root, trees[i][k], trees[i][k + 1]);
        tm_cgroup_limits limits = tm_cgroup_limits_read(root);
        tm_cpu_caches    caches = tm_cpu_caches_read(root);
        tm_text_add(&out, "");
        if (!isinf(limits.cpus)) tm_text_printf(&out, "cpus %.6g ", limits.cpus);
        add(&out, "limit", limits.memory_bytes, INT64_MAX);
        add(&out, "used", limits.memory_used_bytes, 0);
        add(&out, "total", tm_memory_total_bytes(root), 0);
        add(&out, "available", tm_memory_available_bytes(root), 0);
        add(&out, "running", tm_cpu_running_tasks(root), 0);
        add(&out, "online", tm_cpu_online(root), 0);
        add(&out, "l1", caches.l1d_bytes, 0);
        add(&out, "l2", caches.l2_bytes, 0);
        add(&out, "l3", caches.l3_bytes, 0);
        add(&out, "line", caches.line_bytes, 0);
        add(&out, "last", tm_cpu_last_level_bytes(root), 0);
        if (strcmp(out.data, trees[i][0]) != 0) fail_msg("tree %zu: %s, wanted %s", i, out.data, trees[i][0]);
        tm_text_fini(&out);
        test_tree_remove(root);
    }
}
