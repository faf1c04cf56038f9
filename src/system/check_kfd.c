/* SPDX-License-Identifier: Apache-2.0 */
/* system/check_kfd.c - AMD's compute driver: who uses the GPUs, and how they are linked. */
#include "system/check_context.h"

#include <stdlib.h>
#include <string.h>

static const char topology[] = "/sys/class/kfd/kfd/topology/nodes";

/* --- processes ------------------------------------------------------------------------------- */

static bool allowed(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = list; p && *p; p += strcspn(p, ",")) {
        p += strspn(p, ", ");
        if (n > 0 && strncmp(p, name, n) == 0 && (p[n] == ',' || p[n] == '\0')) return true;
    }
    return false;
}

void check_foreign(check *c)
{
    static const char folder[] = "/sys/class/kfd/kfd/proc";
    size_t            n, gpus, count = 0;
    tm_text           list = { 0 };
    check_gpus(c, &gpus);
    if (check_no_gpu(c, gpus)) return;
    const char **pids = check_list(c, folder, "", true, &n);
    if (!pids) {
        check_say(c, TM_CHECK_SKIP, "%s is not there (amdgpu has it; NVIDIA: nvidia-smi)", folder);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const char *name = check_line(c, check_path(c, "/proc/%s/comm", pids[i]));
        if (!allowed(c->options->allowed_procs, name ? name : ""))
            check_list_add(&list, &count, 6, "%.20s %.40s", pids[i], name ? name : "(unknown)");
    }
    check_list_end(&list, count, 6);
    if (count == 0)
        check_say(c, TM_CHECK_PASS, n ? "only programs that are allowed" : "none");
    else
        check_say(c, c->options->allow_foreign ? TM_CHECK_INFO : TM_CHECK_FAIL, "%zu: %s", count, list.data);
    tm_text_fini(&list);
}

/* --- xgmi ------------------------------------------------------------------------------------ */

enum { GPUS = 256, XGMI = 11 };

typedef struct {
    int64_t     number; /* of the node */
    const char *folder;
} kfd_gpu;

static size_t read_gpus(check *c, kfd_gpu gpus[GPUS])
{
    size_t       all, n = 0;
    int64_t      id, number;
    const char **nodes = check_list(c, topology, "", true, &all);
    for (size_t i = 0; i < all && n < GPUS; i++) {
        const char *folder = check_path(c, "%s/%s", topology, nodes[i]);
        if (!check_number(check_line_in(c, folder, "gpu_id"), &id) || id == 0) continue;
        if (check_number(nodes[i], &number)) gpus[n++] = (kfd_gpu){ .number = number, .folder = folder };
    }
    return n;
}

/* Marks in `linked` to which GPUs a link of type 11 leads. */
static void read_links(check *c, const kfd_gpu *from, const kfd_gpu gpus[GPUS], size_t n, bool linked[GPUS])
{
    size_t       m;
    const char  *folder = check_path(c, "%s/io_links", from->folder);
    const char **links = check_list(c, folder, "", true, &m);
    memset(linked, 0, GPUS * sizeof *linked);
    for (size_t i = 0; i < m; i++) {
        const char *text = check_content(c, check_path(c, "%s/%s/properties", folder, links[i]));
        if (!text || check_field(text, "type") != XGMI) continue;
        int64_t to = check_field(text, "node_to");
        for (size_t k = 0; k < n; k++)
            if (gpus[k].number == to) linked[k] = true;
    }
}

void check_xgmi(check *c)
{
    kfd_gpu gpus[GPUS];
    bool    linked[GPUS];
    size_t  n = read_gpus(c, gpus), count = 0;
    tm_text missing = { 0 };
    if (n < 2) {
        check_say(c, TM_CHECK_SKIP, "%zu GPUs in %s: no pairs", n, topology);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        read_links(c, &gpus[i], gpus, n, linked);
        for (size_t k = 0; k < n; k++)
            if (k != i && !linked[k])
                check_list_add(&missing, &count, 6, "%lld to %lld", (long long)gpus[i].number,
                               (long long)gpus[k].number);
    }
    check_list_end(&missing, count, 6);
    if (count > 0)
        check_say(c, TM_CHECK_FAIL, "%zu of %zu links are missing: node %s", count, n * (n - 1), missing.data);
    else
        check_say(c, TM_CHECK_PASS, "all %zu links of %zu GPUs", n * (n - 1), n);
    tm_text_fini(&missing);
}
