/* SPDX-License-Identifier: Apache-2.0 */
/* Machine facts: from a made-up tree where the right answer is known, and for this machine where they can be
 * cross-checked. */
#include "support/test.h"

#include "base/arena.h"
#include "base/cpu.h"
#include "base/file.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char root[64];

static void put(const char *path, const char *content)
{
    char full[512], folder[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    snprintf(folder, sizeof folder, "%s", full);
    *strrchr(folder, '/') = '\0';
    assert_int_equal(tm_folder_make(folder, NULL), TM_OK);
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(content, f);
    fclose(f);
}

static int make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/tm_cpu_XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

TEST_WITH(cgroup_v2_quota_and_memory, make_root, remove_root)
{
    put("/proc/self/cgroup", "0::/user.slice/job\n");
    put("/sys/fs/cgroup/user.slice/cpu.max", "150000 100000\n"); /* the parent is tighter than the group */
    put("/sys/fs/cgroup/user.slice/job/cpu.max", "400000 100000\n");
    put("/sys/fs/cgroup/user.slice/job/memory.max", "1000000\n");
    put("/sys/fs/cgroup/user.slice/job/memory.current", "700000\n");
    put("/sys/fs/cgroup/user.slice/job/memory.stat", "anon 5\ninactive_file 200000\n");
    put("/sys/fs/cgroup/user.slice/memory.max", "max\n");
    put("/proc/meminfo", "MemTotal:       8000 kB\nMemFree: 1 kB\nMemAvailable:   4000 kB\n");
    tm_cgroup_limits limits = tm_cgroup_limits_read(root);
    assert_true(limits.cpus > 1.499 && limits.cpus < 1.501);
    assert_int_equal(limits.memory_bytes, 1000000);
    assert_int_equal(limits.memory_used_bytes, 500000);
    assert_int_equal(tm_memory_total_bytes(root), 1000000);
    assert_int_equal(tm_memory_available_bytes(root), 500000);
}

TEST_WITH(cgroup_v1_in_a_container, make_root, remove_root)
{
    /* The path is the host's and not visible here: the mount itself is the group. "cpuset" must not pass for "cpu". */
    put("/proc/self/cgroup", "5:cpuset:/wrong\n4:memory:/docker/abc\n3:cpuacct,cpu:/docker/abc\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "250000\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/proc/meminfo", "MemTotal:       8000 kB\nMemAvailable:   4000 kB\n");
    tm_cgroup_limits limits = tm_cgroup_limits_read(root);
    assert_true(limits.cpus > 2.499 && limits.cpus < 2.501);
    assert_true(limits.memory_bytes == INT64_MAX);
    assert_int_equal(tm_memory_total_bytes(root), 8000 * 1024);
    assert_int_equal(tm_memory_available_bytes(root), 4000 * 1024);
}

TEST_WITH(no_limits, make_root, remove_root)
{
    tm_cgroup_limits limits = tm_cgroup_limits_read(root); /* nothing readable at all */
    assert_true(isinf(limits.cpus));
    assert_true(limits.memory_bytes == INT64_MAX);
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/cpu.cfs_quota_us", "-1\n");
    assert_true(isinf(tm_cgroup_limits_read(root).cpus));
}

TEST_WITH(caches_of_a_tree, make_root, remove_root)
{
    static const char *const rows[][4] = {
        { "Data", "1", "48K", "64" },
        { "Instruction", "1", "32K", "64" },
        { "Unified", "2", "2048K", "64" },
        { "Unified", "3", "32M", "64" },
    };
    static const char *const names[] = { "type", "level", "size", "coherency_line_size" };
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            char path[128];
            snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", i, names[j]);
            put(path, rows[i][j]);
        }
    tm_cpu_caches caches = tm_cpu_caches_read(root);
    assert_int_equal(caches.l1d_bytes, 48 << 10);
    assert_int_equal(caches.l2_bytes, 2 << 20);
    assert_int_equal(caches.l3_bytes, 32 << 20);
    assert_int_equal(caches.line_bytes, 64);
}

TEST(threads_follow_the_affinity)
{
    cpu_set_t was, one;
    assert_int_equal(sched_getaffinity(0, sizeof was, &was), 0);
    int all = tm_cpu_threads_allowed();
    assert_true(all >= 1 && all <= CPU_COUNT(&was));
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &was)) {
            CPU_SET(cpu, &one);
            break;
        }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(tm_cpu_threads_allowed(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof was, &was), 0);
}

TEST(isa_agrees_with_the_kernel)
{
    unsetenv("TM_TEST_CPU");
    tm_cpu_isa  isa = tm_cpu_isa_probe();
    static char info[1 << 16];
    if (!tm_file_read_line("/proc/cpuinfo", info, sizeof info) || !strstr(info, "\nflags")) {
        print_message("no processor flags in /proc/cpuinfo\n");
        skip();
    }
    *strchr(strstr(info, "\nflags") + 1, '\n') = ' ';
    assert_int_equal(isa.avx2, strstr(info, " avx2 ") && strstr(info, " fma ") && strstr(info, " f16c "));
    assert_int_equal(isa.avx512, strstr(info, " avx512f ") && strstr(info, " avx512bw ") &&
                                     strstr(info, " avx512vl ") && strstr(info, " avx512dq "));
    assert_int_equal(isa.avx512_bf16, isa.avx512 && strstr(info, " avx512_bf16 "));
    assert_int_equal(isa.amx, isa.avx512 && strstr(info, " amx_tile ") && strstr(info, " amx_bf16 "));
}

TEST(a_test_can_have_a_small_cache)
{
    unsetenv("TM_TEST_CACHE_MIB");
    int64_t all = tm_cpu_last_level_bytes("");
    setenv("TM_TEST_CACHE_MIB", "1", 1);
    assert_int_equal(tm_cpu_last_level_bytes(""), all < 1 << 20 ? all : 1 << 20);
    setenv("TM_TEST_CACHE_MIB", "1000000", 1);
    assert_int_equal(tm_cpu_last_level_bytes(""), all);
}

TEST(a_test_can_hide_instructions)
{
    unsetenv("TM_TEST_CPU");
    tm_cpu_isa all = tm_cpu_isa_probe();
    setenv("TM_TEST_CPU", "base", 1);
    tm_cpu_isa base = tm_cpu_isa_probe();
    setenv("TM_TEST_CPU", "avx2", 1);
    tm_cpu_isa avx2 = tm_cpu_isa_probe();
    setenv("TM_TEST_CPU", "avx512", 1);
    tm_cpu_isa avx512 = tm_cpu_isa_probe();
    unsetenv("TM_TEST_CPU");
    assert_false(base.avx2 || base.avx512 || base.avx512_bf16 || base.fast_bf16 || base.amx);
    assert_int_equal(avx2.avx2, all.avx2);
    assert_false(avx2.avx512 || avx2.avx512_bf16 || avx2.fast_bf16 || avx2.amx);
    assert_int_equal(avx512.avx2, all.avx2);
    assert_int_equal(avx512.avx512, all.avx512);
    assert_false(avx512.avx512_bf16 || avx512.fast_bf16 || avx512.amx);
}

TEST(denormals_are_flushed)
{
#if !defined(__x86_64__) && !defined(__aarch64__)
    print_message("no denormal control on this processor\n");
    skip();
#endif
    volatile float small = 1e-38f, tiny = small / 100.0f;
    assert_true(tiny > 0);
    tm_cpu_flush_denormals();
    volatile float flushed = small / 100.0f, read = tiny * 1e10f;
    assert_true(flushed == 0.0f);
    assert_true(read == 0.0f);
}

TEST(resident_memory_grows_with_use)
{
    enum { BYTES = 64 << 20 };
    int64_t before = tm_resident_anonymous_bytes();
    char   *block = tm_alloc(BYTES);
    for (size_t i = 0; i < BYTES; i += 4096) ((volatile char *)block)[i] = 1;
    int64_t after = tm_resident_anonymous_bytes();
    free(block);
    assert_true(before > 0);
    assert_true(after - before > BYTES - (4 << 20) && after - before < BYTES + (4 << 20));
    errno = EINTR; /* what others left */
    assert_true(tm_resident_bytes() >= tm_resident_anonymous_bytes());
    assert_true(tm_memory_available_bytes("") <= tm_memory_total_bytes(""));
    assert_true(tm_memory_available_bytes("") > 0);
}

TEST_WITH(load_of_a_tree, make_root, remove_root)
{
    put("/proc/loadavg", "0.57 0.18 0.10 3/95 7603\n");
    put("/sys/devices/system/cpu/online", "0-3,8,10-11\n");
    assert_int_equal(tm_cpu_running_tasks(root), 3);
    assert_int_equal(tm_cpu_online(root), 7);
    put("/proc/loadavg", "0.57 0.18\n");
    put("/sys/devices/system/cpu/online", "3-1\n");
    assert_int_equal(tm_cpu_running_tasks(root), 0);
    assert_int_equal(tm_cpu_online(root), 0);
    assert_int_equal(tm_cpu_running_tasks("/nowhere"), 0);
    assert_int_equal(tm_cpu_online("/nowhere"), 0);
    assert_true(tm_cpu_online("") >= tm_cpu_threads_allowed());
    assert_true(tm_cpu_running_tasks("") >= 1);
}

/* A processor of a made-up tree: its own second-level cache, and a third one that it shares with `shared`. */
static void put_processor(int cpu, const char *l3_size, const char *shared)
{
    const char *const rows[][4] = {
        { "Data", "1", "32K", "" },
        { "Unified", "2", "1024K", "" },
        { "Unified", "3", l3_size, shared },
        { "Instruction", "1", "64K", "" },
    };
    static const char *const names[] = { "type", "level", "size", "shared_cpu_list" };
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            char path[128], own[16];
            snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cache/index%d/%s", cpu, i, names[j]);
            snprintf(own, sizeof own, "%d", cpu);
            put(path, *rows[i][j] ? rows[i][j] : own);
        }
}

TEST_WITH(last_level_caches_are_added_up, make_root, remove_root)
{
    assert_int_equal(tm_cpu_last_level_bytes(root), 0);
    put_processor(0, "16M", "0-1");
    put_processor(1, "16M", "0-1");
    assert_int_equal(tm_cpu_last_level_bytes(root), 16 << 20);
    put_processor(2, "32M", "2,3");
    put_processor(3, "32M", "2,3");
    assert_int_equal(tm_cpu_last_level_bytes(root), 48 << 20);
    /* A hole: processor 4 is offline and shows no caches. */
    put("/sys/devices/system/cpu/cpu4/topology/core_id", "2");
    put_processor(5, "8M", "5");
    assert_int_equal(tm_cpu_last_level_bytes(root), 56 << 20);
}

static int topology(int cpu, const char *fact)
{
    char path[128], line[32];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, fact);
    return tm_file_read_line(path, line, sizeof line) ? atoi(line) : 0;
}

/* Processors of this program: by package, then by core, then by number. */
static int processors_in_order(const cpu_set_t *mask, int order[CPU_SETSIZE])
{
    int n = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, mask)) continue;
        int at = n++;
        for (; at > 0; at--) {
            int before = order[at - 1], p = topology(before, "physical_package_id"), c = topology(before, "core_id");
            if (p < topology(cpu, "physical_package_id")) break;
            if (p == topology(cpu, "physical_package_id") && c <= topology(cpu, "core_id")) break;
            order[at] = before;
        }
        order[at] = cpu;
    }
    return n;
}

/* Every process of a host has processors beside each other, and each processor one process, as far as there are enough.
 */
TEST(processes_share_the_processors)
{
    cpu_set_t was, now;
    int       order[CPU_SETSIZE];
    assert_int_equal(sched_getaffinity(0, sizeof was, &was), 0);
    int      n = processors_in_order(&was, order);
    uint64_t hash = tm_cpu_affinity_hash();
    assert_true(hash != 0);
    for (int count = 1; count <= n + 3; count++)
        for (int index = 0; index < count; index++) {
            int first = n < count ? index % n : n * index / count,
                end = n < count ? first + 1 : n * (index + 1) / count;
            assert_int_equal(tm_cpu_take_share(index, count), end - first);
            assert_int_equal(sched_getaffinity(0, sizeof now, &now), 0);
            assert_int_equal(CPU_COUNT(&now), end - first);
            for (int i = first; i < end; i++) assert_true(CPU_ISSET(order[i], &now));
            assert_int_equal(tm_cpu_affinity_hash() == hash, end - first == n);
            assert_int_equal(sched_setaffinity(0, sizeof was, &was), 0);
        }
    assert_true(tm_cpu_affinity_hash() == hash);
}
