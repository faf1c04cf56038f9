/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/sites.c - where the ranks run, and which nodes are of one kind. */
#include "apps/node/node.h"

#include "base/arena.h"
#include "base/root.h"
#include "system/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the kind of a node ------------------------------------------------------------------------------------------- */

/* Devices of PCI that compute: displays (0x03) and processing accelerators (0x12), as "10de:2335", by model. */
static void add_devices(const char *sysroot, tm_text *out)
{
    enum { MOST = 4096 };
    size_t       n, models = 0;
    tm_arena    *arena = tm_arena_create();
    const char **names = tm_root_list(sysroot, "/sys/bus/pci/devices", MOST, arena, &n);
    struct model {
        char name[20];
        int  count;
    } *all = tm_arena_take(arena, (n + 1) * sizeof *all);
    for (size_t i = 0; i < n; i++) {
        char class[16], vendor[16], device[16], name[40];
        if (!tm_root_read_line(sysroot, tm_arena_format(arena, "/sys/bus/pci/devices/%s/class", names[i]), class, 16) ||
            (strncmp(class, "0x0302", 6) != 0 && strncmp(class, "0x0300", 6) != 0 && strncmp(class, "0x0380", 6) != 0 &&
             strncmp(class, "0x12", 4) != 0))
            continue;
        tm_root_read_line(sysroot, tm_arena_format(arena, "/sys/bus/pci/devices/%s/vendor", names[i]), vendor, 16);
        tm_root_read_line(sysroot, tm_arena_format(arena, "/sys/bus/pci/devices/%s/device", names[i]), device, 16);
        snprintf(name, sizeof name, "%.6s:%.6s", vendor + (vendor[0] ? 2 : 0), device + (device[0] ? 2 : 0));
        size_t m = 0;
        while (m < models && strcmp(all[m].name, name) != 0) m++;
        if (m == models) snprintf(all[models++].name, sizeof all[m].name, "%.19s", name), all[m].count = 0;
        all[m].count++;
    }
    for (size_t m = 0; m < models; m++) tm_text_printf(out, ", %d x PCI %s", all[m].count, all[m].name);
    tm_arena_destroy(arena);
}

static void describe(const char *sysroot, char kind[TM_NODE_TEXT])
{
    tm_text         text = { 0 };
    tm_environment *e = tm_environment_read(sysroot);
    const char     *model = tm_environment_text(e, "cpu", NULL, "model");
    const char     *threads = tm_environment_text(e, "cpu", NULL, "hardware_threads");
    tm_text_printf(&text, "%s x %s", threads ? threads : "?", model ? model : "unknown processor");
    add_devices(sysroot, &text);
    snprintf(kind, TM_NODE_TEXT, "%s", text.data);
    tm_text_fini(&text);
    tm_environment_destroy(e);
}

/* --- all ranks ---------------------------------------------------------------------------------------------------- */

tm_status tm_node_sites(tm_comm *world, const char *sysroot, tm_node_site *sites, tm_error *err)
{
    const int    rank = world ? tm_comm_rank(world) : 0, ranks = world ? tm_comm_size(world) : 1;
    tm_node_site own;
    memset(&own, 0, sizeof own);
    describe(sysroot, own.kind);
    if (world) {
        const tm_comm_place place = tm_comm_place_of(world, rank);
        own.number = place.host;
        snprintf(own.host, sizeof own.host, "%s", place.host_name);
    } else {
        if (!tm_root_read_line(sysroot, "/proc/sys/kernel/hostname", own.host, sizeof own.host))
            snprintf(own.host, sizeof own.host, "unknown");
    }
    if (ranks == 1) {
        sites[0] = own;
        return TM_OK;
    }
    return tm_comm_run(world,
                       &(tm_collective){ .kind = TM_COMM_ALL_GATHER,
                                         .format = TM_COMM_BYTES,
                                         .send = &own,
                                         .receive = sites,
                                         .count = sizeof own,
                                         .what = "sites of ranks",
                                         .step = -1 },
                       err);
}
