/* SPDX-License-Identifier: Apache-2.0 */
/* Facts of made-up machines are those of their files; what is not known is null and has a reason. */
#include "support/test.h"

#include "base/json.h"
#include "made_machine.h"
#include "system/environment.h"

#include <jansson.h>

/* --- facts and what is not known ---------------------------------------------------------------------------------- */

/* Every fact of a machine that has one value. */
static const char *const sections[][2] = {
    { "cpu", "model microcode sockets cores hardware_threads numa_nodes smt l1d_bytes l2_bytes l3_bytes "
             "max_frequency_khz virtual_machine" },
    { "memory", "total_bytes available_bytes swap_bytes huge_page_bytes huge_pages" },
    { "board", "system_maker system maker model version bios_maker bios_version bios_date" },
    { "os", "name kernel kernel_build kernel_command_line host" },
    { "drivers", "nvidia amdgpu" },
    { "gpus", "devices" },
    { "settings", "governor transparent_huge_pages transparent_huge_pages_defrag numa_balancing swappiness" },
    { "control_group", "cpus memory_bytes" },
};

typedef struct {
    const char *path, *value; /* as JSON; NULL: any */
} fact_row;

static json_t *member_at(json_t *object, const char *path)
{
    char name[64];
    for (const char *slash; (slash = strchr(path, '/')); path = slash + 1) {
        snprintf(name, sizeof name, "%.*s", (int)(slash - path), path);
        object = json_object_get(object, name);
    }
    return json_object_get(object, path);
}

/* A fact is null and has a reason, which names a file or says what is missing; or it is known and has none. */
static void reasons_are_complete(json_t *machine)
{
    json_t     *unknown = json_object_get(machine, "unknown"), *member, *items, *item;
    const char *key, *name, *of;
    size_t      reasons = 0;
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++) {
        char names[256], path[96];
        snprintf(names, sizeof names, "%s", sections[i][1]);
        for (char *rest = names, *word; (word = strsep(&rest, " "));) {
            snprintf(path, sizeof path, "%s/%s", sections[i][0], word);
            member = member_at(machine, path);
            if (!member) fail_msg("no %s", path);
            *strchr(path, '/') = '.';
            if (json_is_null(member) != json_is_string(json_object_get(unknown, path))) fail_msg("%s", path);
            reasons += json_is_null(member);
        }
    }
    for (int k = 0; k < 2; k++) {
        items = json_object_get(machine, k ? "disks" : "memory_modules");
        json_object_foreach(items, key, item)
        {
            char path[128];
            snprintf(path, sizeof path, "%s.%s", k ? "disks" : "memory_modules", key); /* "all" */
            if (json_is_null(item) != json_is_string(json_object_get(unknown, path))) fail_msg("%s", path);
            reasons += json_is_null(item);
            json_object_foreach(item, name, member)
            {
                snprintf(path, sizeof path, "%s.%s.%s", k ? "disks" : "memory_modules", key, name);
                if (json_is_null(member) != json_is_string(json_object_get(unknown, path))) fail_msg("%s", path);
                reasons += json_is_null(member);
            }
        }
    }
    json_object_foreach(unknown, of, member)
    {
        const char *text = json_string_value(member);
        bool        file = strchr(text, '/'), known = strstr(text, "no quota") || strstr(text, "no limit") ||
                                               strstr(text, "no driver shows any") ||
                                               strstr(text, "SMBIOS memory type");
        if (strncmp(of, "process.", 8) == 0 || strncmp(of, "build.", 6) == 0 || strncmp(of, "libraries.", 10) == 0 ||
            strncmp(of, "variables.", 10) == 0)
            continue;
        if (!file && !known) fail_msg("%s: %s", of, text);
        reasons--;
    }
    assert_int_equal(reasons, 0);
}

/* The machine has these facts; *named of its modules and disks; the rest is not known. */
static void machine_has(const fact_row *rows, size_t n, const char *modules, const char *disks)
{
    tm_environment *e = tm_environment_read(root);
    tm_text         text = { 0 }, keys = { 0 };
    tm_json         json = { .out = &text, .indent = true };
    size_t          known = 0, wanted = 0;
    tm_environment_print_json(e, &json, NULL);
    json_t *machine = json_loadb(text.data, text.length, JSON_REJECT_DUPLICATES, NULL), *member;
    assert_non_null(machine);
    reasons_are_complete(machine);
    for (size_t i = 0; i < n; i++) {
        char *value = json_dumps(member_at(machine, rows[i].path), JSON_ENCODE_ANY);
        if (!value || (rows[i].value && strcmp(value, rows[i].value) != 0))
            fail_msg("%s: %s, wanted %s", rows[i].path, value, rows[i].value);
        wanted += strncmp(rows[i].path, "memory_modules/", 15) != 0 && strncmp(rows[i].path, "disks/", 6) != 0;
        free(value);
    }
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++) {
        const char *name;
        json_object_foreach(json_object_get(machine, sections[i][0]), name, member) known +=
            !json_is_null(member) && strstr(sections[i][1], name) != NULL;
    }
    assert_int_equal(known, wanted);
    for (int k = 0; k < 2; k++) {
        const char *key;
        keys.length = 0;
        tm_text_add(&keys, "");
        json_object_foreach(json_object_get(machine, k ? "disks" : "memory_modules"), key, member)
            tm_text_printf(&keys, "%s%s", keys.length ? "," : "", key);
        assert_string_equal(keys.data, k ? disks : modules);
    }
    json_decref(machine);
    tm_text_fini(&text);
    tm_text_fini(&keys);
    tm_environment_destroy(e);
}
#define MACHINE_HAS(rows, modules, disks) machine_has(rows, sizeof(rows) / sizeof(rows)[0], modules, disks)

/* A module: its bytes from the size on, by their places. */
static void put_kind(int number, unsigned length, unsigned size, unsigned type, const char *strings, size_t bytes)
{
    unsigned char raw[256] = { 17 };
    char          path[64];
    raw[1] = (unsigned char)length;
    raw[0x0C] = (unsigned char)size;
    raw[0x0D] = (unsigned char)(size >> 8);
    raw[0x10] = 2;
    raw[0x12] = (unsigned char)type;
    raw[0x15] = 0x80, raw[0x16] = 0x0C; /* 3200 */
    raw[0x17] = 1, raw[0x1A] = 3;
    raw[0x1C] = 5, raw[0x1E] = 2, raw[0x1F] = 0x80;
    raw[0x20] = 0x75, raw[0x21] = 0x0B; /* 2933 */
    memcpy(raw + length, strings, bytes);
    snprintf(path, sizeof path, "/sys/firmware/dmi/entries/17-%d/raw", number);
    put_bytes(path, raw, length + bytes);
}

TEST(facts_are_those_of_the_files)
{
    static const char     words[] = "Maker\0Slot\0Part\0";
    static const fact_row another[] = {
        { "cpu/model", "\"implementer 0x41 part 0xd0c\"" },
        { "cpu/sockets", "2" },
        { "cpu/cores", "4" },
        { "cpu/hardware_threads", "8" },
        { "cpu/numa_nodes", "2" },
        { "cpu/smt", "true" },
        { "cpu/max_frequency_khz", "\"3500000\"" },
        { "memory/total_bytes", "5120" },
        { "memory/swap_bytes", "3072" },
        /* Sizes are MiB, or KiB with the highest bit; 0x7FFF: those of the extended field, 0x20005 MiB. */
        { "memory_modules/Slot #1/bytes", "4194304" },
        { "memory_modules/Slot #1/type", "\"DDR4\"" },
        { "memory_modules/Slot #1/speed_mts", "3200" },
        { "memory_modules/Slot #1/configured_mts", "2933" },
        { "memory_modules/Slot #1/maker", "\"Maker\"" },
        { "memory_modules/Slot #1/part", "\"Part\"" },
        { "memory_modules/Slot #2/bytes", "4096" },
        { "memory_modules/Slot #2/type", "\"DDR3\"" },
        { "memory_modules/Slot #3/bytes", "137444196352" },
        { "memory_modules/Slot #3/type", "\"HBM3\"" },
        { "memory_modules/Slot #4/bytes", "34358689792" },
        { "memory_modules/Slot #4/type", "null" },
        { "memory_modules/Slot #5",
          "{\"bytes\": 1048576, \"type\": \"HBM\", \"speed_mts\": 3200, \"maker\": \"Maker\", "
          "\"part\": \"Part\"}" },
        { "memory_modules/Slot #6", "{\"bytes\": 1048576, \"type\": null, \"speed_mts\": 3200, \"maker\": \"Maker\"}" },
        { "memory_modules/Slot #7", "{\"bytes\": 1048576, \"type\": \"DDR2\", \"speed_mts\": 3200}" },
        { "memory_modules/module 8", "{\"bytes\": 1048576, \"type\": \"DDR2\"}" },
        { "memory_modules/module 9", "{\"bytes\": 1048576, \"type\": \"HBM2\"}" },
        { "board/system_maker", "\"sys_vendor\"" },
        { "board/system", "\"product_name\"" },
        { "board/maker", "\"board_vendor\"" },
        { "board/model", "\"X1\"" },
        { "board/version", "\"board_version\"" },
        { "board/bios_maker", "\"bios_vendor\"" },
        { "board/bios_version", "\"1.2, \\\"b\\\"\"" },
        { "board/bios_date", "\"bios_date\"" },
        { "disks/sda", "{\"model\": null, \"bytes\": 1048576, \"rotational\": true}" },
        { "disks/sdb", "{\"model\": null, \"bytes\": 1048576}" },
        { "os/name", "\"Debian GNU/Linux 12 (bookworm)\"" },
        { "os/kernel", "\"6.1.0-18-amd64\"" },
        { "os/host", "\"node7\"" },
        { "drivers/nvidia", "\"NVRM version: 1.2  GCC\"" },
        { "drivers/amdgpu", "\"the kernel's own\"" },
        { "settings/governor", "\"mixed\"" },
        { "settings/transparent_huge_pages_defrag", "\"defer+madvise\"" },
        { "settings/numa_balancing", "\"1\"" },
        { "control_group/memory_bytes", "1048576" },
    };
    put_machine();
    put("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "3500000\n");
    put("/proc/cpuinfo", "processor : 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\nFeatures : fp\n");
    put("/proc/meminfo", "MemTotal: 5 kB\nSwapTotal:  3 kB\nMemAvailable 4 kB\nHugePages_Total:\n");
    put("/sys/module/amdgpu/x", "");
    remove(test_in_folder("root/sys/module/amdgpu/version"));
    put("/proc/driver/nvidia/version", "NVRM version: 1.2  GCC\nmore\n");
    put("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise never\n");
    put("/sys/kernel/mm/transparent_hugepage/defrag", "always [defer+madvise] never\n");
    put("/proc/sys/vm/swappiness", "\n");
    put("/sys/fs/cgroup/job/memory.max", "1048576\n");
    put("/sys/fs/cgroup/job/cpu.max", "max 100000\n");
    static const char *const board[] = { "sys_vendor",    "product_name", "board_vendor",
                                         "board_version", "bios_vendor",  "bios_date" };
    for (size_t i = 0; i < sizeof board / sizeof board[0]; i++) {
        char path[128];
        snprintf(path, sizeof path, "/sys/class/dmi/id/%s", board[i]);
        put(path, board[i]);
    }
    static const char *const disks[] = { "ram0", "zram0", "sr0", "fd0", "dm-0", "md0", "nbd0", "sdb", "sda", "vda" };
    for (size_t i = 0; i < sizeof disks / sizeof disks[0]; i++) {
        char path[128];
        snprintf(path, sizeof path, "/sys/block/%s/size", disks[i]);
        put(path, "2048\n");
    }
    put("/sys/block/sda/queue/rotational", "1\n");
    put_kind(1, 0x22, 0x0004, 0x1A, words, sizeof words);
    put_kind(2, 0x28, 0x8004, 0x18, words, sizeof words);
    put_kind(3, 0x22, 0x7FFF, 0x24, words, sizeof words);
    put_kind(4, 0x1F, 0x7FFF, 0x25, words, sizeof words); /* no extended size in so short a one */
    put_kind(5, 0x21, 0x0001, 0x20, words, sizeof words);
    put_kind(6, 0x1A, 0x0001, 0x19, words, sizeof words);
    put_kind(7, 0x17, 0x0001, 0x14, words, sizeof words);
    put_kind(8, 0x16, 0x0001, 0x14, "", 0);
    put_kind(9, 0x15, 0x0001, 0x21, "A\0", 2);
    put_kind(10, 0x15, 0x0000, 0x22, words, sizeof words);
    put_kind(11, 0x14, 0x0001, 0x22, words, sizeof words);
    MACHINE_HAS(another, "DIMM_A1 #0,Slot #1,Slot #2,Slot #3,Slot #4,Slot #5,Slot #6,Slot #7,module 8,module 9",
                "nvme0n1,sda,sdb,vda");
}

TEST_FIXTURE(NULL, clean)
