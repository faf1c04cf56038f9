/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/neighbours.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAME_NODE = 1, SAME_WAY = 2 }; /* how near: of one NUMA node; from here on links of PCI that are shared, and 2 */

static int numa_node_of(const char *device)
{
    char  path[PATH_MAX];
    int   node = -1;
    int   n = snprintf(path, sizeof path, "%s/numa_node", device);
    FILE *f = n < (int)sizeof path ? fopen(path, "re") : NULL;
    if (!f) return -1;
    if (fscanf(f, "%d", &node) != 1 || node < 0) node = -1; // NOLINT(cert-err34-c): anything else is unknown
    fclose(f);
    return node;
}

/* Folders that two devices' paths have in common behind the one of all PCI (".../pci0000:00/0000:00:01.0/..."); its
 * root complex counts. */
static int links_shared(const char *a, const char *b)
{
    const char *root = strstr(a, "/pci");
    int         shared = 0;
    if (!root || strncmp(a, b, (size_t)(root - a)) != 0) return 0;
    for (size_t i = (size_t)(root - a) + 1;; i++) {
        bool ends = (a[i] == '/' || !a[i]) && (b[i] == '/' || !b[i]);
        shared += ends;
        if (a[i] != b[i] || !a[i]) return shared;
    }
}

static int named(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* The nearest of those in a folder of /sys/class that are devices on a bus. */
static void find_nic(const char *gpu, const char *sysroot, const char *class, tm_gpu_neighbours *out)
{
    char            folder[PATH_MAX], link[PATH_MAX + 300], device[PATH_MAX];
    struct dirent **names;
    int             best = -1;
    snprintf(folder, sizeof folder, "%s/sys/class/%s", sysroot, class);
    int n = scandir(folder, &names, named, alphasort);
    for (int i = 0; i < n; i++) {
        snprintf(link, sizeof link, "%s/%s/device", folder, names[i]->d_name);
        if (strlen(names[i]->d_name) < sizeof out->nic && realpath(link, device)) {
            int shared = gpu[0] ? links_shared(gpu, device) : 0, near = 0;
            if (shared > 0)
                near = SAME_WAY + shared;
            else if (out->numa_node >= 0 && numa_node_of(device) == out->numa_node)
                near = SAME_NODE;
            if (near == best) out->nics++;
            if (near > best) {
                best = near, out->nics = 1;
                strcpy(out->nic, names[i]->d_name);
            }
        }
        free(names[i]);
    }
    if (n >= 0) free(names);
}

void tm_gpu_neighbours_find(const char *bus, const char *sysroot, tm_gpu_neighbours *out)
{
    char link[PATH_MAX], gpu[PATH_MAX] = "";
    *out = (tm_gpu_neighbours){ .numa_node = -1 };
    for (size_t i = 0; bus[i] && i + 1 < sizeof out->bus; i++) out->bus[i] = (char)tolower((unsigned char)bus[i]);
    snprintf(link, sizeof link, "%.2000s/sys/bus/pci/devices/%.32s", sysroot, out->bus);
    if (!realpath(link, gpu)) gpu[0] = '\0';
    if (gpu[0]) out->numa_node = numa_node_of(gpu);
    find_nic(gpu, sysroot, "infiniband", out);
    if (out->nics == 0) find_nic(gpu, sysroot, "net", out);
}
