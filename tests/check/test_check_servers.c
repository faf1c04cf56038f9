/* SPDX-License-Identifier: Apache-2.0 */
/* Day one on a new server of eight GPUs: healthy ones have nothing to say; of one with a fault, the row that is made
 * for this fault says so, with what to do, and no other row does. */
#include "support/test.h"

#include "check_servers.h"
#include "base/root.h"
#include "apps/check/check.h"
#include "system/environment.h"

#include <ftw.h>

typedef enum { MI300X, MI355X, H100, SERVERS } kind;
enum { CHANGES = 8, VARIABLES = 4 };

typedef struct {
    const char     *name;
    kind            of;
    const char     *row; /* NULL: healthy */
    tm_check_status status;
    const char     *observed, *remedy; /* a word of each */
    const char     *changes[CHANGES];  /* as put() takes them; "!PATH" removes */
    char           *environment[VARIABLES];
    enum { NOTHING, NOT_IN_GROUP, READ_ONLY, SMALL_SHM, NO_NUMA_CALLS, PARTS, ACS } special;
} server;

#define P(bus) "/sys/bus/pci/devices/0000:" bus ":00.0"
#define NODES "/sys/class/kfd/kfd/topology/nodes"
#define PACKAGES "/opt/venv/lib/python3.12/site-packages"

/* clang-format off */
#define NONE { 0 }
static const server servers[] = {
    { "8 x MI300X, ROCm 6.4.1", MI300X, NULL, TM_CHECK_PASS, "", "", NONE, NONE, NOTHING },
    { "8 x MI355X, ROCm 7.0.2", MI355X, NULL, TM_CHECK_PASS, "", "", NONE, NONE, NOTHING },
    { "8 x H100, CUDA 13", H100, NULL, TM_CHECK_PASS, "", "", NONE, NONE, NOTHING },
    /* device files */
    { "no /dev/kfd", MI300X, "gpu_devices", TM_CHECK_FAIL, "missing: /dev/kfd", "modprobe amdgpu", { "!/dev/kfd" },
      NONE, NOTHING },
    { "not in group render", MI300X, "gpu_devices", TM_CHECK_FAIL, "may not open /dev/kfd", "usermod -aG render",
      NONE, NONE, NOT_IN_GROUP },
    { "files that can only be read", MI300X, "gpu_devices", TM_CHECK_FAIL, "may not open /dev/kfd", "usermod -aG render",
      NONE, NONE, READ_ONLY },
    { "no /dev/nvidia-uvm", H100, "gpu_devices", TM_CHECK_FAIL, "missing: /dev/nvidia-uvm", "nvidia-modprobe",
      { "!/dev/nvidia-uvm" }, NONE, NOTHING },
    { "HIP_VISIBLE_DEVICES beyond the last", MI300X, "gpu_visible", TM_CHECK_FAIL, "2 of 8", "indices of devices",
      NONE, { "HIP_VISIBLE_DEVICES=0,1,8,2" }, NOTHING },
    { "a rank for each device", MI300X, "gpu_visible", TM_CHECK_PASS, "8 of 8 devices", "", NONE,
      { "GPUS_PER_NODE=8" }, NOTHING },
    { "more ranks", MI300X, "gpu_visible", TM_CHECK_FAIL, "8 of 8 devices, but LOCAL_WORLD_SIZE is 9", "", NONE,
      { "GPUS_PER_NODE=8", "LOCAL_WORLD_SIZE=9" }, NOTHING },
    /* the GPUs */
    { "a GPU that the driver does not have", MI300X, "gpu_count", TM_CHECK_FAIL, "7 in the driver", "dmesg",
      { "!" NODES "/9" }, NONE, NOTHING },
    { "DPX and NPS2: 16 devices", MI300X, "partition", TM_CHECK_WARN, "16 devices of 8 GPUs", "SPX", NONE, NONE,
      PARTS },
    { "an XGMI link is missing", MI300X, "xgmi", TM_CHECK_FAIL, "node 2 (0000:05:00.0) to 5 (0000:65:00.0)",
      "power-cycle", { NODES "/2/io_links/3/properties=type 2\nnode_from 2\nnode_to 5\nweight 20\n" }, NONE,
      NOTHING },
    { "half of the PCIe lanes", MI300X, "pcie", TM_CHECK_WARN, "x8", "reseat", { P("46") "/current_link_width=8\n" },
      NONE, NOTHING },
    { "uncorrectable errors", MI300X, "ecc", TM_CHECK_FAIL, "0000:a6:00.0 umc 2", "replace it",
      { P("a6") "/ras/umc_err_count=ue: 2\nce: 5\nde: 0\n" }, NONE, NOTHING },
    { "pages that wait for being retired", MI355X, "bad_pages", TM_CHECK_WARN, "1 retired, 1 pending",
      "load the driver again",
      { P("e5") "/ras/gpu_vram_bad_pages=0x027f5d43 : 0x00001000 : R\n0x027f5d4b : 0x00001000 : P\n" }, NONE,
      NOTHING },
    { "somebody else's training", MI300X, "foreign", TM_CHECK_FAIL, "77 python3", "end the processes",
      { "/sys/class/kfd/kfd/proc/77/pasid=32770\n", "/proc/77/comm=python3\n" }, NONE, NOTHING },
    { "a switch that is not driven", H100, "nvlink", TM_CHECK_FAIL, "not 0000:06:00.0", "nvswitch",
      { "!/proc/driver/nvidia-nvswitch/devices/0000:06:00.0" }, NONE, NOTHING },
    { "no fabric manager", H100, "nvlink", TM_CHECK_FAIL, "does not run",
      "systemctl enable --now nvidia-fabricmanager", { "!/proc/2212" }, NONE, NOTHING },
    /* the host */
    { "ACS is on", MI300X, "acs", TM_CHECK_WARN, "0000:00:01.1", "setpci", NONE, NONE, ACS },
    { "an Xid", H100, "klog", TM_CHECK_FAIL, "[xid]", "dmesg",
      { "/dev/kmsg=3,9,99990000000,-;NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus\n" }, NONE, NOTHING },
    /* limits of containers */
    { "a small /dev/shm", MI300X, "shm", TM_CHECK_FAIL, "64.00 MiB", "--shm-size", { "/.dockerenv=" }, NONE,
      SMALL_SHM },
    { "a seccomp profile", MI300X, "seccomp", TM_CHECK_WARN, "refuses mbind", "--security-opt seccomp=unconfined",
      { "/proc/self/status=Seccomp:\t2\nSeccomp_filters:\t1\n", "/.dockerenv=" }, NONE, NO_NUMA_CALLS },
    /* driver and libraries */
    { "hipBLASLt of ROCm 6.2 beside HIP", MI300X, "rocm", TM_CHECK_FAIL, "hipBLASLt 6.2.4", "of ROCm 6.4.1",
      { "/opt/rocm-6.4.1/lib/libhipblaslt.so.0->libhipblaslt.so.0.8.60204",
      "/opt/rocm-6.4.1/lib/libhipblaslt.so.0.8.60204=\177ELF" }, NONE, NOTHING },
    { "no ROCm", MI300X, "rocm", TM_CHECK_FAIL, "not found: HIP, hiprtc, hipBLASLt, RCCL",
      "apt-get install hip-runtime-amd hipblaslt rccl,", { "!/opt/rocm-6.4.1", "!/opt/rocm" }, NONE, NOTHING },
    { "no RCCL", MI355X, "rocm", TM_CHECK_WARN, "not found: RCCL", "apt-get install rccl of ROCm 7.0.2",
      { "!/opt/rocm-7.0.2/lib/librccl.so", "!/opt/rocm-7.0.2/lib/librccl.so.1",
      "!/opt/rocm-7.0.2/lib/librccl.so.1.0.70002" }, NONE, NOTHING },
    { "HIP of a PyTorch wheel in LD_LIBRARY_PATH", MI300X, "rocm", TM_CHECK_FAIL, "HIP 6.2",
      "export ROCM_PATH=/opt/rocm-6.4.1", { PACKAGES "/torch/lib/libamdhip64.so=\177ELF",
      PACKAGES "/torch-2.5.1+rocm6.2.dist-info/RECORD=" }, { "LD_LIBRARY_PATH=" PACKAGES "/torch/lib" }, NOTHING },
    { "ROCm 6.4 with MI355X", MI355X, "rocm", TM_CHECK_FAIL, "7.0 is the oldest", "install ROCm 7.0",
      { "!/opt/rocm-7.0.2", "!/opt/rocm", PACKAGES "/_rocm_sdk_core/lib/libamdhip64.so.6=",
      PACKAGES "/_rocm_sdk_core/lib/libhiprtc.so.6=",
      PACKAGES "/_rocm_sdk_libraries_gfx94X_dcgpu/lib/libhipblaslt.so.0=",
      PACKAGES "/_rocm_sdk_libraries_gfx94X_dcgpu/lib/librccl.so.1=",
      PACKAGES "/rocm_sdk_core-6.4.2.dist-info/RECORD=" }, NONE, NOTHING },
    { "a driver that is too old for ROCm", MI355X, "amdgpu", TM_CHECK_FAIL, "does not support ROCm 7.0.2",
      "install amdgpu of release", { "/sys/module/amdgpu/version=6.7.0\n" }, NONE, NOTHING },
    { "a driver that is too new for ROCm", MI300X, "amdgpu", TM_CHECK_FAIL, "does not support ROCm 6.2.4",
      "or ROCm 7.0", { "/sys/module/amdgpu/version=6.19.14\n", "!/opt/rocm-6.4.1", "!/opt/rocm", "/opt/rocm-6.2.4/" },
      NONE, NOTHING },
    { "another libcuda than the module's", H100, "cuda", TM_CHECK_FAIL, "the module is 580.65.06", "reboot",
      { "/usr/lib/x86_64-linux-gnu/libcuda.so.1->libcuda.so.580.95.05",
      "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05=\177ELF" }, NONE, NOTHING },
    { "CUDA 13 on a driver of CUDA 12", H100, "cuda", TM_CHECK_FAIL, "libnvrtc.so.13: of CUDA 13",
      "nvidia-cuda-nvrtc-cu12", { NVRM("550.54.15"), "/usr/lib/x86_64-linux-gnu/libcuda.so.1->libcuda.so.550.54.15",
      "/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15=\177ELF" }, NONE, NOTHING },
    { "no libcuda in the container", H100, "cuda", TM_CHECK_FAIL, "no libcuda.so.1", "--gpus all",
      { "!/usr/lib/x86_64-linux-gnu/libcuda.so.1", "!/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06",
      "!/usr/lib/x86_64-linux-gnu/libcuda.so" }, NONE, NOTHING },
};
/* clang-format on */
enum { N = sizeof servers / sizeof servers[0] };

/* --- trees ------------------------------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *info, int flag, struct FTW *ftw)
{
    (void)info, (void)flag, (void)ftw;
    return remove(path);
}

static void change(const char *entry)
{
    char path[1024];
    snprintf(path, sizeof path, "%s%s", machine_root, entry + 1);
    if (*entry != '!') put("%s", entry);
    if (*entry == '!' && nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0) fail_msg("'%s' is not there", path);
}

/* Device files belong to another user and to the test's group; 0660 of AMD's, 0666 of NVIDIA's. */
static void set_modes(const server *s)
{
    static const char *const folders[] = { "/dev", "/dev/dri" };
    char                     path[1024];
    for (int i = 0; i < 2; i++) {
        tm_arena    *arena = tm_arena_create();
        size_t       n;
        const char **names;
        snprintf(path, sizeof path, "%s%s", machine_root, folders[i]);
        names = tm_root_list("", path, 1000, arena, &n);
        for (size_t k = 0; k < n; k++) {
            snprintf(path, sizeof path, "%s%s/%s", machine_root, folders[i], names[k]);
            if (strcmp(names[k], "dri") != 0 && strcmp(names[k], "kmsg") != 0)
                chmod(path, s->of == H100 ? 0666 : s->special == READ_ONLY ? 0640 : 0660);
        }
        tm_arena_destroy(arena);
    }
}

static void build(const server *s)
{
    bool parts = s->special == PARTS;
    snprintf(machine_root, sizeof machine_root, "%s", test_in_folder("server"));
    if (s->of == H100)
        put_h100_server();
    else
        put_amd_server(s->of == MI300X ? &mi300x : &mi355x, parts ? 2 : 1, parts ? "DPX" : "SPX",
                       parts ? "NPS2" : "NPS1");
    set_modes(s);
    for (int i = 0; i < CHANGES && s->changes[i]; i++) change(s->changes[i]);
    if (strstr(s->name, "too new")) put_rocm("/opt/rocm-6.2.4/lib", "6.2", "0.8", "60204");
    if (s->special == ACS) put_config("0000:00:01.1", true);
}

static void run(const server *s, tm_checks *checks)
{
    static char     *nothing[] = { NULL };
    tm_arena        *arena = tm_arena_create();
    tm_check_host    host = tm_check_host_read(machine_root, true, arena);
    tm_check_options options = tm_check_options_default();
    tm_error         err = { 0 };
    int64_t          group = (int64_t)getegid();
    host.environment = s->environment[0] ? (char **)s->environment : nothing;
    host.wall_ms = 1767225600000;
    host.shm_bytes = s->special == SMALL_SHM ? 64 << 20 : INT64_C(64) << 30;
    host.numa_calls = s->special == NO_NUMA_CALLS ? 0 : 1;
    host.user = (int64_t)geteuid() + 1;
    host.group = group + 1;
    host.groups = &group;
    host.n_groups = s->special == NOT_IN_GROUP ? 0 : 1;
    options.sysroot = machine_root;
    options.host = &host;
    if (tm_checks_run(&options, checks, &err) != TM_OK) fail_msg("%s", err.text);
    tm_arena_destroy(arena);
}

static void judge(const server *s, const tm_checks *checks)
{
    bool found = false;
    for (size_t i = 0; i < checks->n; i++) {
        const tm_check_result *r = &checks->results[i];
        bool                   wanted = s->row && strcmp(r->id, s->row) == 0;
        found = found || wanted;
        if (wanted && (r->status != s->status || !strstr(r->observed, s->observed) || !strstr(r->remedy, s->remedy)))
            fail_msg("%s: %s is %s '%s', remedy '%s'; wanted %s '%s', '%s'", s->name, r->id,
                     tm_check_status_name(r->status), r->observed, r->remedy, tm_check_status_name(s->status),
                     s->observed, s->remedy);
        if (!wanted && (r->status == TM_CHECK_WARN || r->status == TM_CHECK_FAIL))
            fail_msg("%s: %s is %s '%s'", s->name, r->id, tm_check_status_name(r->status), r->observed);
    }
    if (s->row && !found) fail_msg("%s: there is no row %s", s->name, s->row);
}

static void try_one(const server *s)
{
    tm_checks checks = { 0 };
    build(s);
    run(s, &checks);
    judge(s, &checks);
    test_folder_remove();
    tm_checks_fini(&checks);
}

TEST(each_fault_is_named_by_its_row)
{
    int broken = 0;
    for (int i = 0; i < N; i++) {
        try_one(&servers[i]);
        broken += servers[i].row != NULL;
    }
    assert_true(broken >= 25);
    test_folder_remove();
}
