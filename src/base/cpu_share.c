/* SPDX-License-Identifier: Apache-2.0 */
/* base/cpu_share.c - processes of one host that share its processors. */
#include "base/cpu.h"

#include "base/file.h"
#include "base/hash.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROCESSORS = 8192 };

typedef struct {
    int package, core, cpu;
} place;

static int topology(int cpu, const char *fact)
{
    char path[128], line[32];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, fact);
    return tm_file_read_line(path, line, sizeof line) ? atoi(line) : 0;
}

/* Threads of a core beside each other, cores of a package beside each other. */
static int by_place(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (x->package != y->package) return x->package < y->package ? -1 : 1;
    if (x->core != y->core) return x->core < y->core ? -1 : 1;
    return x->cpu - y->cpu;
}

/* The mask, for the caller to free; NULL: the system does not tell. */
static cpu_set_t *read_mask(void)
{
    cpu_set_t *mask = CPU_ALLOC(PROCESSORS);
    if (!mask) return NULL;
    CPU_ZERO_S(CPU_ALLOC_SIZE(PROCESSORS), mask);
    if (sched_getaffinity(0, CPU_ALLOC_SIZE(PROCESSORS), mask) == 0) return mask;
    CPU_FREE(mask);
    return NULL;
}

uint64_t tm_cpu_affinity_hash(void)
{
    cpu_set_t *mask = read_mask();
    uint64_t   hash = mask ? tm_hash(mask, CPU_ALLOC_SIZE(PROCESSORS)) : 0;
    if (mask) CPU_FREE(mask);
    return hash;
}

int tm_cpu_take_share(int index, int count)
{
    size_t     bytes = CPU_ALLOC_SIZE(PROCESSORS);
    cpu_set_t *mask = read_mask();
    place     *all = malloc(PROCESSORS * sizeof *all);
    int        n = 0, share = 0;
    for (int cpu = 0; cpu < PROCESSORS && mask && all; cpu++)
        if (CPU_ISSET_S((size_t)cpu, bytes, mask))
            all[n++] = (place){ topology(cpu, "physical_package_id"), topology(cpu, "core_id"), cpu };
    if (n > 0) {
        qsort(all, (size_t)n, sizeof *all, by_place);
        int first = n < count ? index % n : (int)((long long)n * index / count);
        int end = n < count ? first + 1 : (int)((long long)n * (index + 1) / count);
        CPU_ZERO_S(bytes, mask);
        for (int i = first; i < end; i++) CPU_SET_S((size_t)all[i].cpu, bytes, mask);
        if (sched_setaffinity(0, bytes, mask) == 0) share = end - first;
    }
    if (mask) CPU_FREE(mask);
    free(all);
    return share;
}
