/* SPDX-License-Identifier: Apache-2.0 */
/* apps/check/memory.c - memory: how much, how spread, how much of it a process may lock and share. */
#include "base/root.h"
#include "apps/check/context.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODE_OF_GPUS = 8 }; /* GPUs of a machine that the table's figures are for */

static const double kib = 1024, gib = 1073741824;

void check_memory(check *c)
{
    char        total_text[32], free_text[32];
    size_t      n, full = 0;
    double      wanted = 0;
    const char *info = check_content(c, "/proc/meminfo"), *name = NULL;
    double      total = info ? (double)check_field(info, "MemTotal") * kib : -1;
    double      available = info ? (double)check_field(info, "MemAvailable") * kib : -1;
    if (total <= 0 || available < 0) {
        check_say(c, TM_CHECK_SKIP, "/proc/meminfo has no MemTotal or no MemAvailable");
        return;
    }
    const check_gpu *gpus = check_gpus(c, &n);
    for (size_t i = 0; i < n; i++) {
        full += gpus[i].host_tb_of_8 > 0;
        if (gpus[i].host_tb_of_8 > wanted) name = gpus[i].name;
        wanted = fmax(wanted, gpus[i].host_tb_of_8);
    }
    if (full < NODE_OF_GPUS) wanted = 0;
    bool enough = total >= wanted * 1e12, free_enough = available >= 0.1 * total;
    tm_format_bytes(total_text, total);
    tm_format_bytes(free_text, available);
    check_say(c, enough && free_enough ? TM_CHECK_PASS : TM_CHECK_WARN, "%s, %s (%.0f %%) available%s%s%s", total_text,
              free_text, 100 * available / total, free_enough ? "" : ": too little is free",
              enough ? "" : "; too little for 8 x ", enough ? "" : name);
}

void check_hugepages(check *c)
{
    const char *info = check_content(c, "/proc/meminfo");
    int64_t     total = info ? check_field(info, "HugePages_Total") : -1;
    if (total < 0)
        check_say(c, TM_CHECK_SKIP, "/proc/meminfo has no HugePages_Total");
    else
        check_say(c, TM_CHECK_INFO, "%lld pages of %lld KiB, %lld free", (long long)total,
                  (long long)check_field(info, "Hugepagesize"), (long long)check_field(info, "HugePages_Free"));
}

void check_memlock(check *c)
{
    static const char row[] = "Max locked memory";
    char             *end = NULL, text[32];
    const char       *limits = check_content(c, "/proc/self/limits"), *line = limits ? strstr(limits, row) : NULL;
    double            wanted = c->options->memlock_min_gib * gib;
    if (!line) {
        check_say(c, TM_CHECK_SKIP, "/proc/self/limits has no '%s'", row);
        return;
    }
    line += strlen(row);
    line += strspn(line, " ");
    double soft = strncmp(line, "unlimited", 9) == 0 ? (double)INFINITY : strtod(line, &end);
    if (!isinf(soft) && end == line) {
        int n = (int)strcspn(line, "\n");
        check_say(c, TM_CHECK_SKIP, "/proc/self/limits: '%.*s' is not a number", n < 40 ? n : 40, line);
        return;
    }
    size_t gpus, cards;
    (void)check_gpus(c, &gpus);
    (void)check_list(c, "/sys/class/infiniband", "", false, &cards);
    if (soft < wanted && gpus == 0 && cards == 0) { /* only they lock memory for their transfers */
        check_say(c, TM_CHECK_SKIP, "%s; no GPU or RDMA card is here that would need more",
                  tm_format_bytes(text, soft));
        return;
    }
    check_expect(c, "at least %g GiB (--ulimit-l-min-gb)", c->options->memlock_min_gib);
    check_say(c, soft >= wanted ? TM_CHECK_PASS : TM_CHECK_FAIL, "%s",
              isinf(soft) ? "unlimited" : tm_format_bytes(text, soft));
}

void check_shm(check *c)
{
    char text[32];
    if (c->host->shm_bytes < 0) {
        check_say(c, TM_CHECK_SKIP, *c->sysroot ? "not below a sysroot" : "/dev/shm is not there");
        return;
    }
    check_expect(c, "at least %g GiB (--shm-min-gb)", c->options->shm_min_gib);
    check_say(c, (double)c->host->shm_bytes >= c->options->shm_min_gib * gib ? TM_CHECK_PASS : TM_CHECK_FAIL, "%s",
              tm_format_bytes(text, (double)c->host->shm_bytes));
}

/* --- layout ---------------------------------------------------------------------------------- */

enum { NODES = 1024 };

typedef struct {
    int64_t cpus, gpus;
    double  bytes;
    int64_t number;
} node;

/* The GPUs of each node; false if one is on none of them. */
static bool place_gpus(check *c, node *nodes, size_t n)
{
    size_t           n_gpus;
    const check_gpu *gpus = check_gpus(c, &n_gpus);
    bool             placed = true;
    for (size_t i = 0; i < n_gpus; i++) {
        int64_t where = -1;
        bool    found = false;
        (void)check_number(check_line_in(c, gpus[i].folder, "numa_node"), &where);
        for (size_t k = 0; k < n; k++) {
            if (nodes[k].number != where) continue;
            nodes[k].gpus++;
            found = true;
        }
        if (!found) placed = false;
    }
    return placed || n == 1; /* with one node the number is often not given */
}

/* Nodes without processors (memory expanders) do not count. */
static size_t read_nodes(check *c, node nodes[NODES])
{
    static const char folder[] = "/sys/devices/system/node";
    size_t            all, n = 0;
    const char      **names = check_list(c, folder, "node", true, &all);
    for (size_t i = 0; i < all && n < NODES; i++) {
        const char *place = check_path(c, "%s/%s", folder, names[i]), *list = check_line_in(c, place, "cpulist");
        const char *info = check_content(c, check_path(c, "%s/meminfo", place));
        int64_t     number, count = list ? check_count_cpus(list) : -1;
        if (count <= 0 || !check_number(names[i] + strlen("node"), &number)) continue;
        double bytes =
            info ? (double)check_field(info, check_path(c, "Node %lld MemTotal", (long long)number)) * kib : 0;
        nodes[n++] = (node){ .cpus = count, .bytes = bytes, .number = number };
    }
    return n;
}

void check_numa_layout(check *c)
{
    static const double spread = 0.1;
    node               *nodes = tm_arena_take(c->arena, NODES * sizeof *nodes);
    size_t              n = read_nodes(c, nodes);
    if (n == 0) {
        check_say(c, TM_CHECK_SKIP, "the system shows no NUMA nodes");
        return;
    }
    bool    placed = place_gpus(c, nodes, n), even = true;
    node    low = nodes[0], high = nodes[0];
    tm_text list = { 0 };
    size_t  count = 0;
    for (size_t i = 0; i < n; i++) {
        char text[32];
        low.bytes = fmin(low.bytes, nodes[i].bytes);
        high.bytes = fmax(high.bytes, nodes[i].bytes);
        even = even && nodes[i].cpus == nodes[0].cpus && nodes[i].gpus == nodes[0].gpus;
        check_list_add(&list, &count, 8, "%lld processors, %s, %lld GPUs", (long long)nodes[i].cpus,
                       tm_format_bytes(text, nodes[i].bytes), (long long)nodes[i].gpus);
    }
    check_list_end(&list, count, 8);
    even = even && low.bytes >= (1 - spread) * high.bytes;
    check_say(c, even && placed ? TM_CHECK_PASS : TM_CHECK_WARN, "%zu node%s: %s%s", n, n == 1 ? "" : "s", list.data,
              placed ? "" : "; a GPU is on no node");
    tm_text_fini(&list);
}
