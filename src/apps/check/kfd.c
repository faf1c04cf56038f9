/* SPDX-License-Identifier: Apache-2.0 */
/* apps/check/kfd.c - AMD's compute driver: who uses the GPUs, and how they are linked. */
#include "apps/check/context.h"

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

/* --- devices --------------------------------------------------------------------------------- */

/* location_id is bus << 8 | device << 3 | function (drivers/gpu/drm/amd/amdkfd/kfd_topology.c). */
static const char *address_of(check *c, const char *properties)
{
    int64_t place = check_field(properties, "location_id"), domain = check_field(properties, "domain");
    if (place < 0) return NULL;
    return check_path(c, "%04llx:%02llx:%02llx.%llx", (unsigned long long)(domain > 0 ? domain : 0),
                      (unsigned long long)place >> 8, (unsigned long long)place >> 3 & 0x1F,
                      (unsigned long long)place & 7);
}

size_t check_kfd_gpus(check *c, check_kfd_gpu gpus[CHECK_KFD_GPUS])
{
    size_t       all, n = 0;
    int64_t      id, number;
    const char **nodes = check_list(c, topology, "", true, &all);
    for (size_t i = 0; i < all && n < CHECK_KFD_GPUS; i++) {
        const char *folder = check_path(c, "%s/%s", topology, nodes[i]);
        if (!check_number(check_line_in(c, folder, "gpu_id"), &id) || id == 0 || !check_number(nodes[i], &number))
            continue;
        const char *properties = check_content(c, check_path(c, "%s/properties", folder));
        gpus[n++] = (check_kfd_gpu){ .number = number,
                                     .folder = folder,
                                     .render = properties ? check_field(properties, "drm_render_minor") : -1,
                                     .address = properties ? address_of(c, properties) : NULL };
    }
    return n;
}

/* --- xgmi ------------------------------------------------------------------------------------ */

enum { XGMI = 11 };

/* Marks in `linked` to which GPUs a link of type 11 leads. */
static void read_links(check *c, const check_kfd_gpu *from, const check_kfd_gpu *gpus, size_t n,
                       bool linked[CHECK_KFD_GPUS])
{
    size_t       m;
    const char  *folder = check_path(c, "%s/io_links", from->folder);
    const char **links = check_list(c, folder, "", true, &m);
    memset(linked, 0, CHECK_KFD_GPUS * sizeof *linked);
    for (size_t i = 0; i < m; i++) {
        const char *text = check_content(c, check_path(c, "%s/%s/properties", folder, links[i]));
        if (!text || check_field(text, "type") != XGMI) continue;
        int64_t to = check_field(text, "node_to");
        for (size_t k = 0; k < n; k++)
            if (gpus[k].number == to) linked[k] = true;
    }
}

static const char *name_of(check *c, const check_kfd_gpu *gpu)
{
    if (!gpu->address) return check_path(c, "%lld", (long long)gpu->number);
    return check_path(c, "%lld (%s)", (long long)gpu->number, gpu->address);
}

void check_xgmi(check *c)
{
    check_kfd_gpu gpus[CHECK_KFD_GPUS];
    bool          linked[CHECK_KFD_GPUS];
    size_t        n = check_kfd_gpus(c, gpus), count = 0;
    tm_text       missing = { 0 };
    if (n < 2) {
        check_say(c, TM_CHECK_SKIP, "%zu GPUs in %s: no pairs", n, topology);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        read_links(c, &gpus[i], gpus, n, linked);
        for (size_t k = 0; k < n; k++)
            if (k != i && !linked[k])
                check_list_add(&missing, &count, 6, "%s to %s", name_of(c, &gpus[i]), name_of(c, &gpus[k]));
    }
    check_list_end(&missing, count, 6);
    if (count > 0)
        check_say(c, TM_CHECK_FAIL, "%zu of %zu links are missing: node %s", count, n * (n - 1), missing.data);
    else
        check_say(c, TM_CHECK_PASS, "all %zu links of %zu GPUs", n * (n - 1), n);
    tm_text_fini(&missing);
}
