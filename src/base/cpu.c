/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpu.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/root.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

/* XCR0: which registers the system saves. cpuid has promised OSXSAVE before this is asked. */
static uint64_t saved_registers(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* What the processor and the system have. */
static tm_cpu_isa probe(void)
{
    enum { YMM = 0x6, ZMM = 0xE6, TILES = 0x60000 };
    tm_cpu_isa isa = { 0 };
    unsigned   a, b, c, d, b7, c7, d7, a71, d71;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_AVX)) return isa;
    uint64_t saved = saved_registers();
    if ((saved & YMM) != YMM || !__get_cpuid_count(7, 0, &a, &b7, &c7, &d7)) return isa;
    isa.avx2 = (b7 & bit_AVX2) && (c & bit_FMA) && (c & bit_F16C);
    isa.avx512 = isa.avx2 && (saved & ZMM) == ZMM && (b7 & bit_AVX512F) && (b7 & bit_AVX512BW) && (b7 & bit_AVX512VL) &&
                 (b7 & bit_AVX512DQ);
    isa.amx = isa.avx512 && (saved & TILES) == TILES && (d7 & 1u << 24) && (d7 & 1u << 22); /* AMX-TILE, AMX-BF16 */
    if (a >= 1 && __get_cpuid_count(7, 1, &a71, &b, &c, &d71)) isa.avx512_bf16 = isa.avx512 && (a71 & 1u << 5);
    __get_cpuid(0, &a, &b, &c, &d);
    isa.fast_bf16 = isa.avx512_bf16 && b == signature_AMD_ebx;
    return isa;
}

/* The same: asked once, as cpuid takes tens of microseconds in a virtual machine. */
static tm_cpu_isa of_processor(void)
{
    enum { ASKED = 1, AVX2 = 2, AVX512 = 4, AVX512_BF16 = 8, FAST_BF16 = 16, AMX = 32 };
    static atomic_uint known;
    unsigned           bits = atomic_load_explicit(&known, memory_order_relaxed);
    if (!bits) {
        tm_cpu_isa isa = probe();
        bits = ASKED | (isa.avx2 ? AVX2 : 0u) | (isa.avx512 ? AVX512 : 0u) | (isa.avx512_bf16 ? AVX512_BF16 : 0u) |
               (isa.fast_bf16 ? FAST_BF16 : 0u) | (isa.amx ? AMX : 0u);
        atomic_store_explicit(&known, bits, memory_order_relaxed);
    }
    return (tm_cpu_isa){ .avx2 = bits & AVX2,
                         .avx512 = bits & AVX512,
                         .avx512_bf16 = bits & AVX512_BF16,
                         .fast_bf16 = bits & FAST_BF16,
                         .amx = bits & AMX };
}

tm_cpu_isa tm_cpu_isa_probe(void)
{
    tm_cpu_isa  isa = of_processor();
    const char *most = getenv("TM_TEST_CPU");
    if (!most || !*most) return isa;
    bool base = strcmp(most, "base") == 0, avx2 = strcmp(most, "avx2") == 0, avx512 = strcmp(most, "avx512") == 0;
    TM_ASSERT((base || avx2 || avx512) && "TM_TEST_CPU is base, avx2 or avx512");
    return (tm_cpu_isa){ .avx2 = isa.avx2 && !base, .avx512 = isa.avx512 && avx512 };
}

bool tm_cpu_has_avx2(void)
{
    static atomic_int known; /* 1: no, 2: yes */
    int               now = atomic_load_explicit(&known, memory_order_relaxed);
    if (now == 0) atomic_store_explicit(&known, now = tm_cpu_isa_probe().avx2 ? 2 : 1, memory_order_relaxed);
    return now == 2;
}

bool tm_cpu_allow_tiles(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM of asm/prctl.h, XFEATURE_XTILEDATA */
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

void tm_cpu_flush_denormals(void)
{
    _mm_setcsr(_mm_getcsr() | 0x8040);
}
#else
tm_cpu_isa tm_cpu_isa_probe(void)
{
    return (tm_cpu_isa){ 0 };
}

bool tm_cpu_has_avx2(void)
{
    return false;
}

bool tm_cpu_allow_tiles(void)
{
    return false;
}

void tm_cpu_flush_denormals(void)
{
#if defined(__aarch64__)
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    __asm__ volatile("msr fpcr, %0" : : "r"(control | 1u << 24));
#endif
}
#endif

/* --- files of /proc and /sys ----------------------------------------------------------------- */

enum { PATH_BYTES = 1536 };

/* "48K" -> 49152; 0 if unreadable. */
static int64_t read_size(const char *path)
{
    char text[64], *end;
    if (!tm_file_read_line(path, text, sizeof text)) return 0;
    int64_t value = strtoll(text, &end, 10);
    return *end == 'K' ? value << 10 : *end == 'M' ? value << 20 : *end == 'G' ? value << 30 : value;
}

tm_cpu_caches tm_cpu_caches_read(const char *sysroot)
{
    tm_cpu_caches caches = { 0 };
    for (int i = 0; i < 16; i++) {
        char path[PATH_BYTES], type[32];
        snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu0/cache/index%d/type", sysroot, i);
        if (!tm_file_read_line(path, type, sizeof type)) break;
        if (strcmp(type, "Instruction") == 0) continue;
        snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu0/cache/index%d/level", sysroot, i);
        int64_t level = read_size(path);
        snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu0/cache/index%d/size", sysroot, i);
        int64_t bytes = read_size(path);
        if (level == 1) caches.l1d_bytes = bytes;
        if (level == 2) caches.l2_bytes = bytes;
        if (level == 3) caches.l3_bytes = bytes;
        snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu0/cache/index%d/coherency_line_size", sysroot, i);
        if (level == 1) caches.line_bytes = read_size(path);
    }
    return caches;
}

/* Size of the highest data cache of a processor, and the lowest processor that shares it; false if there is none. */
static bool highest_cache(const char *sysroot, int cpu, int64_t *bytes, int *first)
{
    int64_t highest = 0;
    for (int i = 0; i < 16; i++) {
        char path[PATH_BYTES], text[4096];
        snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%d/cache/index%d/level", sysroot, cpu, i);
        int64_t level = read_size(path);
        if (level == 0) break;
        if (level < highest) continue;
        snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%d/cache/index%d/type", sysroot, cpu, i);
        if (!tm_file_read_line(path, text, sizeof text) || strcmp(text, "Instruction") == 0) continue;
        highest = level;
        snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%d/cache/index%d/size", sysroot, cpu, i);
        *bytes = read_size(path);
        snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%d/cache/index%d/shared_cpu_list", sysroot, cpu, i);
        *first = tm_file_read_line(path, text, sizeof text) ? (int)strtol(text, NULL, 10) : cpu;
    }
    return highest > 0;
}

enum { MOST_CPUS = 1 << 16 };

int64_t tm_cpu_last_level_bytes(const char *sysroot)
{
    cpu_set_t *set = CPU_ALLOC(MOST_CPUS);
    size_t     mask_bytes = CPU_ALLOC_SIZE(MOST_CPUS);
    bool       masked = set && !*sysroot && sched_getaffinity(0, mask_bytes, set) == 0;
    char      *seen = tm_alloc(MOST_CPUS);
    int64_t    total = 0;
    for (int cpu = 0; cpu < MOST_CPUS; cpu++) {
        char    path[PATH_BYTES], text[8];
        int64_t bytes = 0;
        int     first = cpu;
        if (masked && !CPU_ISSET_S(cpu, mask_bytes, set)) continue;
        if (!highest_cache(sysroot, cpu, &bytes, &first)) {
            snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%d/topology/core_id", sysroot, cpu);
            if (!masked && !tm_file_read_line(path, text, sizeof text)) break; /* the last processor was before */
            continue;
        }
        if (first < 0 || first >= MOST_CPUS || seen[first]) continue;
        seen[first] = 1;
        total += bytes;
    }
    free(seen);
    if (set) CPU_FREE(set);
    const char   *most = *sysroot ? NULL : getenv("TM_TEST_CACHE_MIB");
    const int64_t limit = most ? (int64_t)atoi(most) << 20 : total;
    return total < limit ? total : limit;
}

/* The number after `name` at the start of a line ("MemTotal:   123 kB", "inactive_file 123"); -1 if there is none. */
static int64_t number_after(const char *text, const char *name)
{
    size_t n = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        while (*line == '\n') line++;
        if (strncmp(line, name, n) == 0) return strtoll(line + n, NULL, 10);
        if (!*line) break;
    }
    return -1;
}

/* --- control groups -------------------------------------------------------------------------- */

/* An integer file of a group; -1 if unreadable or "max". */
static int64_t group_number(const char *sysroot, const char *group, const char *file)
{
    char path[PATH_BYTES + 64], text[64], *end;
    snprintf(path, sizeof path, "%s/%s", group, file);
    if (!tm_root_read_line(sysroot, path, text, sizeof text)) return -1;
    int64_t value = strtoll(text, &end, 10);
    return end == text ? -1 : value;
}

static void apply_memory(tm_cgroup_limits *limits, const char *sysroot, const char *group, bool v2)
{
    int64_t limit = group_number(sysroot, group, v2 ? "memory.max" : "memory.limit_in_bytes");
    if (limit < 0 || limit >= INT64_MAX / 4096 * 4096 || limit >= limits->memory_bytes) return; /* v1: "none" is huge */
    char path[PATH_BYTES + 64], *text = tm_alloc(16384);
    snprintf(path, sizeof path, "%s/memory.stat", group);
    int64_t droppable = 0;
    if (tm_root_read_line(sysroot, path, text, 16384))
        droppable = number_after(text, v2 ? "inactive_file " : "total_inactive_file ");
    free(text);
    int64_t used = group_number(sysroot, group, v2 ? "memory.current" : "memory.usage_in_bytes");
    if (droppable > 0) used -= droppable;
    limits->memory_bytes = limit;
    limits->memory_used_bytes = used > 0 ? used : 0;
}

static void apply_cpu(tm_cgroup_limits *limits, const char *sysroot, const char *group, bool v2)
{
    double quota = -1, period = -1;
    if (v2) {
        char path[PATH_BYTES + 64], text[64], *rest;
        snprintf(path, sizeof path, "%s/cpu.max", group);
        if (!tm_root_read_line(sysroot, path, text, sizeof text)) return;
        quota = strtod(text, &rest); /* "max 100000" has no number here: 0, no quota */
        period = strtod(rest, NULL);
    } else {
        quota = (double)group_number(sysroot, group, "cpu.cfs_quota_us");
        period = (double)group_number(sysroot, group, "cpu.cfs_period_us");
    }
    if (quota > 0 && period > 0 && quota / period < limits->cpus) limits->cpus = quota / period;
}

/* From the group upwards to the mount. In a container the path is often the host's and does not exist below the mount:
 * then only the mount itself, which is the container's group, answers. */
static void apply_line(tm_cgroup_limits *limits, const char *sysroot, const char *mount, const char *group_path,
                       bool v2, bool cpu, bool memory)
{
    char   path[PATH_BYTES];
    size_t root = strlen(mount);
    if ((size_t)snprintf(path, sizeof path, "%s%s", mount, group_path) >= sizeof path) return;
    while (strlen(path) > root) {
        if (path[strlen(path) - 1] != '/') {
            if (cpu) apply_cpu(limits, sysroot, path, v2);
            if (memory) apply_memory(limits, sysroot, path, v2);
        }
        *strrchr(path, '/') = '\0';
    }
    if (cpu) apply_cpu(limits, sysroot, mount, v2);
    if (memory) apply_memory(limits, sysroot, mount, v2);
}

/* Is `name` one of the comma-separated `list`? */
static bool listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (strncmp(p, name, n) == 0 && (p[n] == ',' || p[n] == '\0')) return true;
    return false;
}

tm_cgroup_limits tm_cgroup_limits_read(const char *sysroot)
{
    tm_cgroup_limits limits = { .cpus = (double)INFINITY, .memory_bytes = INT64_MAX };
    char             text[8192], *next;
    if (!tm_root_read_line(sysroot, "/proc/self/cgroup", text, sizeof text)) return limits;
    for (char *line = text; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = '\0';
        char *controllers = strchr(line, ':'); /* "4:cpu,cpuacct:/path"; version 2 names no controllers: "0::/path" */
        char *group = controllers ? strchr(++controllers, ':') : NULL;
        if (!group) continue;
        *group++ = '\0';
        if (!*controllers) {
            apply_line(&limits, sysroot, "/sys/fs/cgroup", group, true, true, true);
            apply_line(&limits, sysroot, "/sys/fs/cgroup/unified", group, true, true, true);
        }
        if (listed(controllers, "cpu")) apply_line(&limits, sysroot, "/sys/fs/cgroup/cpu", group, false, true, false);
        if (listed(controllers, "memory"))
            apply_line(&limits, sysroot, "/sys/fs/cgroup/memory", group, false, false, true);
    }
    return limits;
}

int tm_cpu_threads_allowed(void)
{
    int threads = 0;
    for (int bits = 1024; bits <= 1 << 18 && threads == 0; bits *= 4) { /* larger until the kernel's mask fits */
        cpu_set_t *set = CPU_ALLOC((size_t)bits);
        size_t     bytes = CPU_ALLOC_SIZE((size_t)bits);
        if (!set) break;
        if (sched_getaffinity(0, bytes, set) == 0) threads = CPU_COUNT_S(bytes, set);
        CPU_FREE(set);
    }
    if (threads < 1) threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    double quota = ceil(tm_cgroup_limits_read("").cpus);
    if (quota < (double)threads) threads = (int)quota;
    return threads < 1 ? 1 : threads;
}

int tm_cpu_running_tasks(const char *sysroot)
{
    char path[PATH_BYTES], text[128];
    int  running;
    snprintf(path, sizeof path, "%s/proc/loadavg", sysroot); /* "0.57 0.18 0.10 1/95 7603" */
    if (!tm_file_read_line(path, text, sizeof text)) return 0;
    return sscanf(text, "%*s %*s %*s %d/", &running) == 1 && running > 0 ? running : 0;
}

int tm_cpu_online(const char *sysroot)
{
    char path[PATH_BYTES], text[4096], *at = text, *end;
    snprintf(path, sizeof path, "%s/sys/devices/system/cpu/online", sysroot); /* "0-3,8" */
    if (!tm_file_read_line(path, text, sizeof text)) return 0;
    int count = 0;
    for (bool more = true; more; at = end + 1) {
        long first = strtol(at, &end, 10), last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        if (end == at || last < first || last - first > 1 << 20) return 0;
        count += (int)(last - first + 1);
        more = *end == ',';
    }
    return count;
}

/* --- memory ---------------------------------------------------------------------------------- */

static int64_t meminfo_bytes(const char *sysroot, const char *name)
{
    char path[PATH_BYTES], text[8192];
    snprintf(path, sizeof path, "%s/proc/meminfo", sysroot);
    int64_t kib = tm_file_read_line(path, text, sizeof text) ? number_after(text, name) : -1;
    return kib < 0 ? 0 : kib * 1024;
}

int64_t tm_memory_total_bytes(const char *sysroot)
{
    int64_t total = meminfo_bytes(sysroot, "MemTotal:"), limit = tm_cgroup_limits_read(sysroot).memory_bytes;
    return limit < total ? limit : total;
}

int64_t tm_memory_available_bytes(const char *sysroot)
{
    int64_t          available = meminfo_bytes(sysroot, "MemAvailable:");
    tm_cgroup_limits limits = tm_cgroup_limits_read(sysroot);
    int64_t          left = limits.memory_bytes - limits.memory_used_bytes;
    if (left < 0) left = 0;
    return left < available ? left : available;
}

static int64_t own_status_bytes(const char *name)
{
    char text[8192];
    int  fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t n;
    do {
        n = read(fd, text, sizeof text - 1);
    } while (n < 0 && errno == EINTR);
    close(fd);
    if (n < 0) return -1;
    text[n] = '\0';
    int64_t kib = number_after(text, name);
    return kib < 0 ? -1 : kib * 1024;
}

int64_t tm_resident_bytes(void)
{
    return own_status_bytes("VmRSS:");
}

int64_t tm_resident_anonymous_bytes(void)
{
    return own_status_bytes("RssAnon:");
}
