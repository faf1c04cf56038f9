/* SPDX-License-Identifier: Apache-2.0 */
/* what `trainmark check` reads of a machine: PCI configuration space, the kernel's arguments and log, lists of
 * processors, properties of the compute driver, and whole machines whose files all hold the input.
 *
 * The first byte says which. */
#include "fuzz.h"

#include "base/file.h"
#include "base/root.h"
#include "apps/check/context.h"
#include "apps/check/report.h"
#include "apps/check/tune.h"

#include <fcntl.h>

static void config_space(const uint8_t *data, size_t size)
{
    int acs = check_parse_acs(data, size);
    TM_ASSERT(acs >= -1 && acs <= 1);
}

static void kernel_log(const char *text, size_t size)
{
    const char  *cursor = text, *end = text + size, *before = cursor;
    check_record r;
    while (check_next_record(&cursor, end, &r)) {
        TM_ASSERT(cursor > before && cursor <= end && r.text >= before && r.text + r.length <= end);
        TM_ASSERT(r.level >= -1 && r.level <= 7 && !(r.seconds < 0));
        (void)check_bad_record(&r);
        before = cursor;
    }
    TM_ASSERT(cursor == end);
}

static void small_parsers(const char *text)
{
    int64_t number = 0;
    (void)check_number(text, &number);
    TM_ASSERT(check_count_cpus(text) <= 1 << 20);
    TM_ASSERT(check_field(text, "type") >= -1);
    TM_ASSERT(check_field(text, "node_to") >= -1);
    (void)check_argument(text, "pci", "bfsort");
    (void)check_argument(text, "iommu", "pt");
}

/* A small machine; every file holds the input, so that each check reads it as its own. */
static const char files[] =
    "/proc/cmdline /proc/cpuinfo /proc/meminfo /proc/self/limits /proc/self/cgroup /proc/uptime /proc/net/route "
    "/proc/sys/kernel/numa_balancing /proc/sys/kernel/hostname /etc/os-release /dev/kmsg "
    "/sys/kernel/mm/transparent_hugepage/enabled /sys/kernel/mm/transparent_hugepage/defrag "
    "/sys/devices/system/cpu/online /sys/devices/system/cpu/present "
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor /sys/devices/system/cpu/cpu0/cpuidle/state2/name "
    "/sys/devices/system/node/node0/cpulist /sys/devices/system/node/node0/meminfo "
    "/sys/kernel/iommu_groups/0/type /sys/fs/cgroup/cpu.max /run/trainmark-tuned.json "
    "/sys/bus/pci/devices/0000:00:01.0/config /sys/bus/pci/devices/0000:01:00.0/current_link_speed "
    "/sys/bus/pci/devices/0000:01:00.0/current_link_width /sys/bus/pci/devices/0000:01:00.0/pp_dpm_sclk "
    "/sys/bus/pci/devices/0000:01:00.0/gpu_busy_percent /sys/bus/pci/devices/0000:01:00.0/numa_node "
    "/sys/bus/pci/devices/0000:01:00.0/ras/umc_err_count /sys/class/kfd/kfd/topology/nodes/1/gpu_id "
    "/sys/class/kfd/kfd/topology/nodes/2/gpu_id /sys/class/kfd/kfd/topology/nodes/1/io_links/0/properties "
    "/sys/class/infiniband/x/ports/1/state /sys/class/infiniband/x/ports/1/rate";
static const char *const fixed[][2] = {
    { "/sys/bus/pci/devices/0000:00:01.0/class", "0x060400" },
    { "/sys/bus/pci/devices/0000:01:00.0/class", "0x120000" },
    { "/sys/bus/pci/devices/0000:01:00.0/vendor", "0x1002" },
    { "/sys/bus/pci/devices/0000:01:00.0/device", "0x74a1" },
};

static void put(const char *path, const void *data, size_t size)
{
    char full[256], folder[256];
    snprintf(full, sizeof full, "%s%s", fuzz_folder(), path);
    strcpy(folder, full);
    *strrchr(folder, '/') = '\0';
    TM_ASSERT(tm_folder_make(folder, NULL) == TM_OK);
    int fd = open(full, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    TM_ASSERT(fd >= 0 && write(fd, data, size) == (ssize_t)size && close(fd) == 0);
}

static void whole_machine(const uint8_t *data, size_t size)
{
    static char *variables[] = { "NCCL_SOCKET_IFNAME=eth0", "MASTER_ADDR=10.0.0.1", NULL };
    static bool  made;
    const char  *root = fuzz_folder();
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0] && !made; i++)
        put(fixed[i][0], fixed[i][1], strlen(fixed[i][1]));
    made = true;
    for (const char *at = files; *at; at += strcspn(at, " "), at += *at == ' ') {
        char path[120];
        snprintf(path, sizeof path, "%.*s", (int)strcspn(at, " "), at);
        put(path, data, size);
    }
    tm_checks        checks = { 0 }, again = { 0 };
    tm_check_options options = tm_check_options_default();
    tm_arena        *arena = tm_arena_create();
    tm_check_host    host = tm_check_host_read(root, true, arena);
    tm_text          json = { 0 }, notes = { 0 };
    tm_error         err = { 0 };
    host.environment = variables;
    options.sysroot = root;
    options.host = &host;
    TM_ASSERT(tm_checks_run(&options, &checks, NULL) == TM_OK && checks.n > 30);
    tm_checks_print_json(&checks, &json);
    if (tm_checks_parse(json.data, json.length, "own", &again, &err) != TM_OK)
        tm_assert_failed(err.text, "own report", 0);
    tm_status st = tm_tune_restore(root, &notes, NULL);
    TM_ASSERT(st == TM_OK || st == TM_FORMAT || st == TM_IO);
    tm_text_fini(&json);
    tm_text_fini(&notes);
    tm_checks_fini(&checks);
    tm_checks_fini(&again);
    tm_arena_destroy(arena);
}

FUZZ(check)
{
    if (size == 0) return;
    char *text = malloc(size); /* the rest, with its NUL */
    TM_ASSERT(text);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    switch (data[0] % 4) {
    case 0:
        config_space(data + 1, size - 1);
        break;
    case 1:
        kernel_log(text, size - 1);
        break;
    case 2:
        small_parsers(text);
        break;
    default:
        whole_machine(data + 1, size - 1);
        break;
    }
    free(text);
}
