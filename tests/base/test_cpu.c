/* SPDX-License-Identifier: Apache-2.0 */
/* What is read of this machine, cross-checked; what a test can hide of it; shares of its processors. (What is read of
 * made-up trees: test_whole_machine.c.) */
#include "support/test.h"

#include "base/arena.h"
#include "base/cpu.h"
#include "base/file.h"

#include <errno.h>
#include <sched.h>

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
    assert_true(tm_cpu_online("") >= tm_cpu_threads_allowed());
    assert_true(tm_cpu_running_tasks("") >= 1);
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
