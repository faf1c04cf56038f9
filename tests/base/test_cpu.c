/* SPDX-License-Identifier: Apache-2.0 */
/* What is read of this machine, cross-checked; what a test can hide of it; shares of its processors. (What is read of
 * made-up trees: test_whole_machine.c.) */
#include "support/test.h"

#include "base/cpu.h"
#include "base/file.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
