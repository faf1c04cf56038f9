/* SPDX-License-Identifier: Apache-2.0 */
/* apps/check/pci.c - the bus: which GPUs there are, address translation, access control. */
#include "base/root.h"
#include "apps/check/context.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static const char devices[] = "/sys/bus/pci/devices";

/* --- GPUs ------------------------------------------------------------------------------------ */

enum { CLASS_DISPLAY = 0x03, CLASS_ACCELERATOR = 0x12, DISPLAY_VGA = 0x0300 };

static const struct {
    unsigned    device;
    const char *name;
    double      host_tb_of_8;
} instinct_rows[] = {
    { 0x74A1, "MI300X", 1.5 }, { 0x74A2, "MI308X", 1.5 }, { 0x74A5, "MI325X", 2.5 },
    { 0x75A0, "MI350X", 3.0 }, { 0x75A3, "MI355X", 3.0 },
};

static bool hexadecimal(check *c, const char *folder, const char *file, unsigned *out)
{
    int64_t value;
    if (!check_number(check_line_in(c, folder, file), &value) || value < 0 || value > 0xFFFFFFFF) return false;
    *out = (unsigned)value;
    return true;
}

static bool read_gpu(check *c, const char *address, check_gpu *gpu)
{
    unsigned class;
    *gpu = (check_gpu){ .address = address, .folder = check_path(c, "%s/%s", devices, address) };
    if (!hexadecimal(c, gpu->folder, "vendor", &gpu->vendor) ||
        (gpu->vendor != CHECK_AMD && gpu->vendor != CHECK_NVIDIA))
        return false;
    if (!hexadecimal(c, gpu->folder, "class", &class) || !hexadecimal(c, gpu->folder, "device", &gpu->device))
        return false;
    if (class >> 16 != CLASS_DISPLAY && !(class >> 16 == CLASS_ACCELERATOR && gpu->vendor == CHECK_AMD)) return false;
    gpu->display = class >> 8 == DISPLAY_VGA;
    gpu->name = check_path(c, "%s device %04x", gpu->vendor == CHECK_AMD ? "AMD" : "NVIDIA", gpu->device);
    for (size_t i = 0; gpu->vendor == CHECK_AMD && i < sizeof instinct_rows / sizeof instinct_rows[0]; i++) {
        if (instinct_rows[i].device != gpu->device) continue;
        gpu->instinct = true;
        gpu->name = instinct_rows[i].name;
        gpu->host_tb_of_8 = instinct_rows[i].host_tb_of_8;
    }
    return true;
}

const check_gpu *check_gpus(check *c, size_t *n)
{
    size_t       all;
    const char **names = check_list(c, devices, "", false, &all);
    check_gpu   *gpus = tm_arena_take(c->arena, (all + 1) * sizeof *gpus);
    *n = 0;
    for (size_t i = 0; i < all; i++)
        if (read_gpu(c, names[i], &gpus[*n])) ++*n;
    return *n > 0 ? gpus : NULL;
}

size_t check_gpus_of(const check_gpu *gpus, size_t n, unsigned vendor)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += gpus[i].vendor == vendor;
    return count;
}

bool check_no_gpu(check *c, size_t n)
{
    if (n > 0) return false;
    check_say(c, TM_CHECK_SKIP, "no GPU of AMD or NVIDIA in %s", devices);
    return true;
}

bool check_no_compute(check *c, const check_gpu *gpus, size_t n)
{
    bool display = c->options->expected_gpus <= 0;
    if (check_no_gpu(c, n)) return true;
    for (size_t i = 0; i < n; i++) display = display && gpus[i].display;
    if (display) check_say(c, TM_CHECK_SKIP, "only graphics cards; --expected-gpus N has them checked, too");
    return display;
}

/* --- IOMMU ----------------------------------------------------------------------------------- */

void check_iommu(check *c)
{
    static const char folder[] = "/sys/kernel/iommu_groups";
    size_t            n, count = 0, unknown = 0;
    tm_text           other = { 0 };
    const char      **groups = check_list(c, folder, "", true, &n);
    if (!groups) {
        check_skip_unreadable(c, folder);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const char *type = check_line(c, check_path(c, "%s/%s/type", folder, groups[i]));
        if (!type)
            unknown++;
        else if (strcmp(type, "identity") != 0)
            check_list_add(&other, &count, 4, "group %s %.20s", groups[i], type);
    }
    check_list_end(&other, count, 4);
    if (n == 0)
        check_say(c, TM_CHECK_PASS, "no IOMMU groups: nothing is translated");
    else if (unknown == n)
        check_say(c, TM_CHECK_SKIP, "%s/%s/type cannot be read (kernels before 5.11)", folder, groups[0]);
    else if (count == 0)
        check_say(c, TM_CHECK_PASS, "identity in all %zu groups", n - unknown);
    else
        check_say(c, TM_CHECK_WARN, "%zu of %zu groups translate addresses: %s", count, n, other.data);
    tm_text_fini(&other);
}

/* --- ACS ------------------------------------------------------------------------------------- */

enum { CONFIG_BYTES = 4096, CONFIG_UNPRIVILEGED = 64, EXTENDED = 0x100, CLASS_BRIDGE = 0x06 };

static unsigned word(const unsigned char *p)
{
    return (unsigned)p[0] | (unsigned)p[1] << 8;
}

/* PCI Express base specification, 7.6.3 (extended capabilities) and 7.7.11 (ACS: capability 000Dh, control at +6). */
int check_parse_acs(const unsigned char *config, size_t n)
{
    enum { ACS = 0x0D, MOST = (CONFIG_BYTES - EXTENDED) / 4 };
    size_t at = EXTENDED;
    if (n <= CONFIG_UNPRIVILEGED) return -1;
    if (n <= EXTENDED) return 0; /* conventional PCI: there is no extended space */
    for (int i = 0; i < MOST && at >= EXTENDED; i++) {
        if (at + 8 > n) return -1;
        unsigned id = word(config + at), next = word(config + at + 2) >> 4 & 0xFFC;
        if (id == ACS) return (int)(word(config + at + 6) & 1);
        if (id == 0 || id == 0xFFFF) return 0;
        at = next;
    }
    return 0;
}

static size_t read_config(check *c, const char *folder, unsigned char config[CONFIG_BYTES])
{
    int     fd = tm_root_open(c->sysroot, check_path(c, "%s/config", folder), O_RDONLY);
    size_t  used = 0;
    ssize_t n = 1;
    while (fd >= 0 && used < CONFIG_BYTES && n > 0) {
        n = read(fd, config + used, CONFIG_BYTES - used);
        if (n > 0) used += (size_t)n;
    }
    if (fd >= 0) close(fd);
    return used;
}

void check_acs(check *c)
{
    unsigned char config[CONFIG_BYTES];
    size_t        n, bridges = 0, hidden = 0, count = 0;
    tm_text       on = { 0 };
    const char  **names = check_list(c, devices, "", false, &n);
    if (!names) {
        check_skip_unreadable(c, devices);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        unsigned class;
        const char *folder = check_path(c, "%s/%s", devices, names[i]);
        if (!hexadecimal(c, folder, "class", &class) || class >> 16 != CLASS_BRIDGE) continue;
        bridges++;
        int acs = check_parse_acs(config, read_config(c, folder, config));
        if (acs < 0) hidden++;
        if (acs > 0) check_list_add(&on, &count, 6, "%.20s", names[i]);
    }
    check_list_end(&on, count, 6);
    if (count > 0)
        check_say(c, TM_CHECK_WARN, "SrcValid is on in %zu of %zu bridges: %s", count, bridges, on.data);
    else if (hidden > 0)
        check_say(c, TM_CHECK_SKIP, "the extended configuration space of %zu bridges can only be read by root", hidden);
    else if (bridges == 1)
        check_say(c, TM_CHECK_PASS, "disabled on the only PCIe bridge");
    else
        check_say(c, TM_CHECK_PASS, "disabled on all %zu PCIe bridges", bridges);
    tm_text_fini(&on);
}
