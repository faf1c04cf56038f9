/* SPDX-License-Identifier: Apache-2.0 */
/* The environment of a made-up machine, fact by fact; of this one, in shape and time; and secrets, which stay out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include "support/test.h"

#include "../support/folder.h"
#include "../support/fake_run.h"
#include "base/clock.h"
#include "base/csv.h"
#include "base/file.h"
#include "system/environment.h"
#include "base/secret.h"
#include "support/whole.h"

#include <dlfcn.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char root[256];

static void put_bytes(const char *path, const void *content, size_t bytes)
{
    char full[768], folder[768];
    snprintf(full, sizeof full, "%s%s", root, path);
    strcpy(folder, full);
    *strrchr(folder, '/') = '\0';
    assert_int_equal(tm_folder_make(folder, NULL), TM_OK);
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(content, 1, bytes, f), bytes);
    fclose(f);
}

static void put(const char *path, const char *content)
{
    put_bytes(path, content, strlen(content));
}

static void put_processors(int n)
{
    char path[256], text[256], info[4096] = "";
    for (int i = 0; i < n; i++) { /* two sockets, two threads per core, two nodes */
        int socket = i / (n / 2), core = i % (n / 2) / 2;
        snprintf(
            info + strlen(info), sizeof info - strlen(info),
            "processor\t: %d\nmodel name\t: Example CPU 9000\nphysical id\t: %d\ncore id\t\t: %d\nmicrocode\t: 0x2b\n"
            "flags\t\t: fpu avx2 hypervisor\n\n",
            i, socket, core);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/physical_package_id", i);
        snprintf(text, sizeof text, "%d\n", socket);
        put(path, text);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/core_id", i);
        snprintf(text, sizeof text, "%d\n", core);
        put(path, text);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings", i);
        snprintf(text, sizeof text, "%x\n", 3u << (i / 2 * 2));
        put(path, text);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/core_siblings", i);
        snprintf(text, sizeof text, "%x\n", socket ? 0xF0u : 0x0Fu);
        put(path, text);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor", i);
        put(path, i == 5 ? "powersave\n" : "performance\n");
    }
    put("/proc/cpuinfo", info);
    put("/sys/devices/system/cpu/online", "0-7\n");
    put("/sys/devices/system/cpu/possible", "0-7\n");
    put("/sys/devices/system/node/online", "0-1\n");
    put("/sys/devices/system/node/node0/cpumap", "0f\n");
    put("/sys/devices/system/node/node1/cpumap", "f0\n");
    put("/sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:  8000000 kB\n");
    put("/sys/devices/system/node/node1/meminfo", "Node 1 MemTotal:  8000000 kB\n");
}

static void put_module(void)
{
    unsigned char raw[256] = { 17, 0x28 };
    raw[0x0C] = 0xFF; /* 0x7FFF: the size is in the extended field */
    raw[0x0D] = 0x7F;
    raw[0x10] = 1; /* DIMM_A1 */
    raw[0x12] = 0x22;
    raw[0x15] = 0xC0; /* 4800 */
    raw[0x16] = 0x12;
    raw[0x17] = 2;
    raw[0x1A] = 3;
    raw[0x1E] = 1;    /* 65536 MiB */
    raw[0x20] = 0x30; /* 4400 */
    raw[0x21] = 0x11;
    memcpy(raw + 0x28, "DIMM_A1\0Maker\0PART-1\0", 22);
    put_bytes("/sys/firmware/dmi/entries/17-0/raw", raw, 0x28 + 22);
    unsigned char empty[64] = { 17, 0x28 }; /* an empty socket */
    put_bytes("/sys/firmware/dmi/entries/17-1/raw", empty, sizeof empty);
}

static void put_machine(void)
{
    strcpy(root, test_in_folder("root"));
    put_processors(8);
    put_module();
    put("/proc/meminfo",
        "MemTotal:       16000000 kB\nMemAvailable:   15000000 kB\nSwapTotal: 0 kB\nHugePages_Total:  7\n"
        "Hugepagesize:  2048 kB\n");
    put("/sys/class/dmi/id/board_name", "X1\n");
    put("/sys/class/dmi/id/bios_version", "1.2, \"b\"\n");
    put("/sys/block/nvme0n1/device/model", "Fast Disk\n");
    put("/sys/block/nvme0n1/size", "2000409264\n");
    put("/sys/block/nvme0n1/queue/rotational", "0\n");
    put("/sys/block/loop0/size", "8\n");
    put("/etc/os-release", "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n");
    put("/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
    put("/proc/sys/kernel/hostname", "node7\n");
    put("/proc/sys/kernel/numa_balancing", "1\n");
    put("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    put("/sys/module/amdgpu/version", "6.7.0\n");
    put("/proc/self/cgroup", "0::/job\n");
    put("/sys/fs/cgroup/job/cpu.max", "250000 100000\n");
}

static int clean(void **state)
{
    (void)state;
    test_folder_remove();
    return 0;
}

static void expect(const tm_environment *e, const char *section, const char *item, const char *name, const char *wanted)
{
    const char *text = tm_environment_text(e, section, item, name);
    if (!text && !wanted) return;
    if (!text || !wanted || strcmp(text, wanted) != 0)
        fail_msg("%s.%s is %s, not %s", section, name, text ? text : "unknown", wanted ? wanted : "unknown");
}

static void facts_of_a_made_up_machine(void **state)
{
    (void)state;
    put_machine();
    tm_environment *e = tm_environment_read(root);
    expect(e, "cpu", NULL, "model", "Example CPU 9000");
    expect(e, "cpu", NULL, "microcode", "0x2b");
    expect(e, "cpu", NULL, "sockets", "2");
    expect(e, "cpu", NULL, "cores", "4");
    expect(e, "cpu", NULL, "hardware_threads", "8");
    expect(e, "cpu", NULL, "smt", "true");
    expect(e, "cpu", NULL, "numa_nodes", "2");
    expect(e, "cpu", NULL, "virtual_machine", "true");
    expect(e, "cpu", NULL, "l3_bytes", NULL);
    expect(e, "memory", NULL, "total_bytes", "16384000000");
    expect(e, "memory", NULL, "huge_pages", "7");
    expect(e, "memory_modules", "DIMM_A1 #0", "bytes", "68719476736");
    expect(e, "memory_modules", "DIMM_A1 #0", "type", "DDR5");
    expect(e, "memory_modules", "DIMM_A1 #0", "speed_mts", "4800");
    expect(e, "memory_modules", "DIMM_A1 #0", "configured_mts", "4400");
    expect(e, "memory_modules", "DIMM_A1 #0", "maker", "Maker");
    expect(e, "memory_modules", "DIMM_A1 #0", "part", "PART-1");
    expect(e, "board", NULL, "model", "X1");
    expect(e, "board", NULL, "maker", NULL);
    expect(e, "disks", "nvme0n1", "model", "Fast Disk");
    expect(e, "disks", "nvme0n1", "bytes", "1024209543168");
    expect(e, "disks", "nvme0n1", "rotational", "false");
    expect(e, "disks", "loop0", "bytes", NULL);
    expect(e, "os", NULL, "name", "Debian GNU/Linux 12 (bookworm)");
    expect(e, "os", NULL, "kernel", "6.1.0-18-amd64");
    expect(e, "os", NULL, "host", "node7");
    expect(e, "drivers", NULL, "amdgpu", "6.7.0");
    expect(e, "drivers", NULL, "nvidia", NULL);
    expect(e, "settings", NULL, "governor", "mixed");
    expect(e, "settings", NULL, "transparent_huge_pages", "madvise");
    expect(e, "settings", NULL, "numa_balancing", "1");
    expect(e, "control_group", NULL, "cpus", "2.5");
    expect(e, "control_group", NULL, "memory_bytes", NULL);
    struct stat own;
    char        bytes[32];
    assert_int_equal(stat("/proc/self/exe", &own), 0);
    snprintf(bytes, sizeof bytes, "%lld", (long long)own.st_size);
    expect(e, "build", NULL, "executable_bytes", bytes);
    tm_environment_destroy(e);
}

static void printed_forms(void **state)
{
    (void)state;
    put_machine();
    tm_environment *e = tm_environment_read(root);
    tm_text         text = { 0 }, csv = { 0 }, storage = { 0 };
    tm_json         json = { .out = &text, .indent = true };
    tm_environment_print_json(e, &json, NULL);
    json_t *object = json_loadb(text.data, text.length, 0, NULL);
    assert_non_null(object);
    json_t *board = json_object_get(object, "board"), *unknown = json_object_get(object, "unknown");
    assert_string_equal(json_string_value(json_object_get(board, "bios_version")), "1.2, \"b\"");
    assert_true(json_is_null(json_object_get(board, "maker")));
    assert_non_null(strstr(json_string_value(json_object_get(unknown, "board.maker")), "No such file"));
    json_t *disk = json_object_get(json_object_get(object, "disks"), "nvme0n1");
    assert_int_equal(json_integer_value(json_object_get(disk, "bytes")), 1024209543168);
    assert_true(json_is_false(json_object_get(disk, "rotational")));
    assert_true(json_is_object(json_object_get(json_object_get(object, "libraries"), "libc.so.6")));
    json_decref(object);

    tm_environment_print_csv(e, &csv);
    const char *cursor = csv.data;
    size_t      offsets[2], rows = 0, n;
    bool        found = false;
    for (; (n = tm_csv_read(&cursor, &storage, offsets, 2)) > 0; rows++) {
        assert_int_equal(n, 2);
        if (rows == 0) assert_string_equal(storage.data, "key");
        if (strcmp(storage.data, "board.bios_version") != 0) continue;
        assert_string_equal(storage.data + offsets[1], "1.2, \"b\"");
        found = true;
    }
    assert_true(found && rows > 50);
    tm_text_fini(&text);
    tm_text_fini(&csv);
    tm_text_fini(&storage);
    tm_environment_destroy(e);
}

/* --- whole ----------------------------------------------------------------------------------------------------- */

/* Lines of the JSON from `from` to before `to` (NULL: to the end), the folder's name and what is of this machine left
 * out. */
static void add_part(const char *json, const char *from, const char *to, tm_text *out)
{
    static const char *const of_this_machine[] = { "avx2_fma",        "\"avx512",     "\"amx\"",
                                                   "threads_allowed", "architecture", "\"build",
                                                   "\"libraries",     "\"variables",  "\"process" };
    const char              *at = strstr(json, from), *end = to ? strstr(at, to) : at + strlen(at);
    assert_true(at && end);
    for (size_t n; at < end; at += n + 1) {
        bool own = false;
        n = strcspn(at, "\n");
        for (size_t i = 0; i < sizeof of_this_machine / sizeof of_this_machine[0]; i++) {
            const char *found = strstr(at, of_this_machine[i]);
            own = own || (found && found < at + n);
        }
        const char *name = strstr(at, root);
        if (own) continue;
        if (name && name < at + n)
            tm_text_printf(out, "%.*sROOT%.*s\n", (int)(name - at), at, (int)(at + n - name - (int)strlen(root)),
                           name + strlen(root));
        else
            tm_text_printf(out, "%.*s\n", (int)n, at);
    }
}

static void add_machine(const char *what, tm_text *out)
{
    tm_environment *e = tm_environment_read(root);
    tm_text         text = { 0 };
    tm_json         json = { .out = &text, .indent = true };
    tm_environment_print_json(e, &json, NULL);
    tm_text_add(&text, "\n");
    tm_text_printf(out, "== %s\n", what);
    add_part(text.data, "{", "  \"build\"", out);
    add_part(text.data, "  \"unknown\"", NULL, out);
    tm_text_fini(&text);
    tm_environment_destroy(e);
}

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

static void whole_machines(void **state)
{
    static const char words[] = "Maker\0Slot\0Part\0";
    tm_text           out = { 0 };
    (void)state;
    put_machine();
    add_machine("eight processors", &out);
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
    for (int i = 0; i < 8; i++) {
        char path[128];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor", i);
        put(path, "schedutil\n");
    }
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
    add_machine("another one", &out);
    put("/proc/cpuinfo", "cpu\t\t: POWER9, altivec supported\nflags : vmx hypervisors\n");
    remove(test_in_folder("root/proc/meminfo"));
    add_machine("a third", &out);
    clean(NULL);
    snprintf(root, sizeof root, "%s", test_in_folder("nothing"));
    add_machine("none", &out);
    whole_is("tests/golden/whole-environment.txt", &out);
}

/* Which variables are recorded, and how. */
static void whole_variables(void **state)
{
    static char *const variables[] = { "NCCL_A=1",
                                       "NCCL=2",
                                       "OMP_NUM_THREADS=",
                                       "RANK=3",
                                       "RANKS=4",
                                       "RAN=5",
                                       "EXP=a=b",
                                       "NOEQUALS",
                                       "PRIMUS_X=x y",
                                       "pipeline=p",
                                       "Pipeline=q",
                                       "SEED=0",
                                       "NEXP=9",
                                       "HIP_=h",
                                       "HIPBLASLT_TUNING_OVERRIDE_FILE=f",
                                       "HOME=/x",
                                       "TRAINMARK_STORE=none",
                                       "LOGDIR=l",
                                       "SLURM_NODEID=1",
                                       "SLURM_JOB_ID=7" };
    enum { N = sizeof variables / sizeof variables[0] };
    static char *some[N + 1], *kept[4096]; /* setenv takes the list that it made before away */
    (void)state;
    for (int i = 0; environ[i] && i < 4095; i++) kept[i] = environ[i];
    memcpy(some, variables, sizeof variables);
    environ = some;
    tm_environment *e = tm_environment_read(test_in_folder("empty"));
    environ = kept;
    tm_text text = { 0 };
    tm_json json = { .out = &text };
    tm_environment_print_json(e, &json, NULL);
    char *from = strstr(text.data, "\"variables\""), *to = strstr(text.data, ", \"process\"");
    assert_true(from && to);
    *to = '\0';
    assert_string_equal(
        from, "\"variables\": {\"NCCL_A\": \"1\", \"OMP_NUM_THREADS\": null, \"RANK\": \"3\", \"EXP\": \"a=b\", "
              "\"PRIMUS_X\": \"x y\", \"pipeline\": \"p\", \"SEED\": \"0\", \"NEXP\": \"9\", \"HIP_\": \"h\", "
              "\"HIPBLASLT_TUNING_OVERRIDE_FILE\": \"f\", \"TRAINMARK_STORE\": \"none\", \"LOGDIR\": \"l\", "
              "\"SLURM_NODEID\": \"1\"}, \"variables_left_out\": {\"count\": 6}");
    tm_text_fini(&text);
    tm_environment_destroy(e);
}

/* What perf.csv keeps of them. */
static void variables_as_options(void **state)
{
    static char *variables[] = {
        "OMP_NUM_THREADS=4", "RCCL_MSCCL_ENABLE=0",      "HSA_X=it's", "NCCL_TOKEN=secret", "NCCL_DEBUG=a b",
        "HIP_EMPTY=",        "CUDA_VISIBLE_DEVICES=0,1", NULL
    };
    static char *kept[4096]; /* setenv takes the list that it made before away */
    tm_text      text = { 0 };
    (void)state;
    for (int i = 0; environ[i] && i < 4095; i++) kept[i] = environ[i];
    environ = variables;
    tm_environment *e = tm_environment_read(test_in_folder("empty"));
    environ = kept;
    tm_environment_print_options(e, &text);
    assert_string_equal(text.data, "-e CUDA_VISIBLE_DEVICES=0,1 -e HIP_EMPTY= -e HSA_X='it'\\''s' -e NCCL_DEBUG='a b' "
                                   "-e NCCL_TOKEN='***' -e RCCL_MSCCL_ENABLE=0");
    tm_text_fini(&text);
    tm_environment_destroy(e);
}

static void nothing_readable(void **state)
{
    (void)state;
    tm_environment *e = tm_environment_read(test_in_folder("empty"));
    expect(e, "cpu", NULL, "model", NULL);
    expect(e, "memory", NULL, "total_bytes", NULL);
    expect(e, "memory_modules", NULL, "all", NULL);
    expect(e, "disks", NULL, "all", NULL);
    tm_text text = { 0 };
    tm_json json = { .out = &text };
    tm_environment_print_json(e, &json, NULL);
    json_t *object = json_loadb(text.data, text.length, 0, NULL);
    assert_non_null(object);
    assert_non_null(json_object_get(json_object_get(object, "unknown"), "disks.all"));
    json_decref(object);
    tm_text_fini(&text);
    tm_environment_destroy(e);
}

/* Of this process: others may have the processors. */
static int64_t cpu_ns(void)
{
    struct timespec now;
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now), 0);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void this_machine(void **state)
{
    (void)state;
    int64_t         best_ns = INT64_MAX;
    tm_environment *e = NULL;
    for (int i = 0; i < 3; i++) {
        int64_t from = cpu_ns();
        tm_environment_destroy(e);
        e = tm_environment_read("");
        if (cpu_ns() - from < best_ns) best_ns = cpu_ns() - from;
    }
    print_message("read in %.1f ms\n", (double)best_ns * 1e-6);
    assert_true(best_ns < 2000000000); /* also where there are hundreds of processors and devices */
    assert_non_null(tm_environment_text(e, "cpu", NULL, "cores"));
    assert_non_null(tm_environment_text(e, "memory", NULL, "total_bytes"));
    assert_non_null(tm_environment_text(e, "os", NULL, "kernel"));
    assert_non_null(tm_environment_text(e, "libraries", "libc.so.6", "version"));
    assert_non_null(strstr(tm_environment_text(e, "build", NULL, "compiler"), "."));
    assert_non_null(strstr(tm_environment_text(e, "build", NULL, "flags"), "-ffp-contract=off"));
    assert_non_null(strstr(tm_environment_text(e, "process", NULL, "command_line"), "/system/"));
    assert_null(getenv("HWLOC_PLUGINS_PATH")); /* put back as it was */
    tm_environment_destroy(e);
}

/* The libraries that this program has loaded, their versions as they tell them themselves, and their bytes. */
static void libraries_of_this_program(void **state)
{
    static const char *const texts[][2] = { { "libyaml-", "yaml_get_version_string" },
                                            { "libjansson.", "jansson_version_str" },
                                            { "libc.so.6", "gnu_get_libc_version" },
                                            { "libsqlite3.", "sqlite3_libversion" },
                                            { "libz.so.", "zlibVersion" },
                                            { "libzstd.", "ZSTD_versionString" },
                                            { "libhwloc.", "hwloc_get_api_version" },
                                            { "libxxhash.", "XXH_versionNumber" },
                                            { "libm.so.6", NULL } };
    (void)state;
    tm_environment *e = tm_environment_read("");
    tm_text         text = { 0 };
    tm_json         json = { .out = &text };
    tm_environment_print_json(e, &json, NULL);
    json_t     *object = json_loadb(text.data, text.length, 0, NULL), *library;
    json_t     *all = json_object_get(object, "libraries"), *unknown = json_object_get(object, "unknown");
    const char *file;
    double      bytes = 0;
    int         found = 0;
    json_object_foreach(all, file, library)
    {
        const char *path = json_string_value(json_object_get(library, "path"));
        const char *version = json_string_value(json_object_get(library, "version"));
        struct stat info;
        char        wanted[64], key[128];
        assert_true(path && strcmp(strrchr(path, '/') + 1, file) == 0 && stat(path, &info) == 0);
        assert_int_equal(json_integer_value(json_object_get(library, "bytes")), info.st_size);
        bytes += (double)info.st_size;
        for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
            union {
                void *symbol;
                const char *(*text)(void);
                unsigned (*number)(void);
            } f = { .symbol = texts[i][1] ? dlsym(RTLD_DEFAULT, texts[i][1]) : NULL };
            if (strncmp(file, texts[i][0], strlen(texts[i][0])) != 0) continue;
            found++;
            snprintf(key, sizeof key, "libraries.%s.version", file);
            const char *why = json_string_value(json_object_get(unknown, key));
            if (!f.symbol) {
                assert_null(version);
                assert_string_equal(why, "it has no version function that is known here");
                continue;
            }
            unsigned v = i == 6 || i == 7 ? f.number() : 0;
            if (i == 6)
                snprintf(wanted, sizeof wanted, "%u.%u.%u", v / 65536, v / 256 % 256, v % 256);
            else if (i == 7)
                snprintf(wanted, sizeof wanted, "%u.%u.%u", v / 10000, v % 10000 / 100, v % 100);
            else
                snprintf(wanted, sizeof wanted, "%s", f.text());
            assert_string_equal(version, wanted);
            assert_null(why);
        }
    }
    assert_true(found >= 4 && bytes > 0);
    assert_true(json_number_value(json_object_get(json_object_get(object, "libraries_total"), "bytes")) == bytes);
    json_decref(object);
    tm_text_fini(&text);
    tm_environment_destroy(e);
}

/* hwloc is steered by variables: they are as they were afterwards, set or not. */
static void variables_are_put_back(void **state)
{
    static const char *const names[] = { "HWLOC_PLUGINS_PATH", "HWLOC_COMPONENTS", "HWLOC_FSROOT", "HWLOC_THISSYSTEM" };
    (void)state;
    put_machine();
    for (int set = 0; set < 2; set++) {
        for (int i = 0; i < 4; i++) {
            if (set)
                setenv(names[i], i == 3 ? "1" : "/own", 1);
            else
                unsetenv(names[i]);
        }
        tm_environment *e = tm_environment_read(root);
        expect(e, "cpu", NULL, "hardware_threads", "8");
        tm_environment_destroy(e);
        for (int i = 0; i < 4; i++) {
            if (set)
                assert_string_equal(getenv(names[i]), i == 3 ? "1" : "/own");
            else
                assert_null(getenv(names[i]));
            unsetenv(names[i]);
        }
    }
}

static void secrets_stay_out(void **state)
{
    (void)state;
    setenv("NCCL_SECRET_THING", "abc", 1);
    setenv("MY_API_KEY", "hunter22", 1);
    setenv("SOME_TOKEN", "1", 1); /* too short to be searched for */
    setenv("PRIMUS_TEAM", "team-hunter22-x", 1);
    setenv("NOT_ON_THE_LIST", "private", 1);
    setenv("OMP_NUM_THREADS", "2", 1);
    tm_environment *e = tm_environment_read("");
    expect(e, "variables", NULL, "NCCL_SECRET_THING", "***");
    expect(e, "variables", NULL, "PRIMUS_TEAM", "team-***-x");
    expect(e, "variables", NULL, "OMP_NUM_THREADS", "2");
    expect(e, "variables", NULL, "NOT_ON_THE_LIST", NULL);
    expect(e, "variables", NULL, "MY_API_KEY", NULL);
    tm_environment_destroy(e);

    static const char arguments[] =
        "trainmark\0run\0--hub.token\0abc\0api_key=xyz\0--data.tokenizer\0bpe\0training.tokens=5\0"
        "--note\0it's hunter22\0--password\0--steps\0"
        "11\0--db_pass=q\0";
    tm_text line = { 0 };
    tm_secret_command_line(&line, arguments, sizeof arguments - 1);
    assert_string_equal(line.data, "trainmark run --hub.token *** api_key=*** --data.tokenizer bpe training.tokens=5 "
                                   "--note 'it'\\''s ***' --password --steps 11 --db_pass=***");
    tm_text_fini(&line);
    assert_true(tm_secret_name("hf_token") && tm_secret_name("AWS_SECRET") && tm_secret_name("SSH_KEY") &&
                tm_secret_name("PGPASSWORD"));
    assert_false(tm_secret_name("OMP_NUM_THREADS"));
    unsetenv("NCCL_SECRET_THING");
    unsetenv("MY_API_KEY");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_teardown(facts_of_a_made_up_machine, clean),
    cmocka_unit_test_teardown(printed_forms, clean),
    cmocka_unit_test_teardown(whole_machines, clean),
    cmocka_unit_test(whole_variables),
    cmocka_unit_test(variables_as_options),
    cmocka_unit_test_teardown(nothing_readable, clean),
    cmocka_unit_test(this_machine),
    cmocka_unit_test_teardown(variables_are_put_back, clean),
    cmocka_unit_test(libraries_of_this_program),
    cmocka_unit_test(secrets_stay_out),
};

TM_TESTS(tests, NULL, NULL)
