/* SPDX-License-Identifier: Apache-2.0 */
/* system/software.c - probes of the software: system, drivers, kernel settings, control group, this program. */
#include "base/cpu.h"
#include "base/file.h"
#include "base/root.h"
#include "system/facts.h"
#include "base/secret.h"
#include "gpu/visible.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

/* --- the system ------------------------------------------------------------------------------ */

static void add_os(tm_environment *e)
{
    struct utsname name;
    fact_section(e, "os");
    const char *release = fact_content(e, "/etc/os-release");
    fact_text(e, "name", fact_field(e, release, "PRETTY_NAME"), "/etc/os-release names none");
    fact_file(e, "kernel", "/proc/sys/kernel/osrelease");
    fact_file(e, "kernel_build", "/proc/sys/kernel/version");
    fact_file(e, "kernel_command_line", "/proc/cmdline");
    fact_file(e, "host", "/proc/sys/kernel/hostname");
    fact_text(e, "architecture", uname(&name) == 0 ? name.machine : NULL, "uname failed");
}

static void add_drivers(tm_environment *e)
{
    fact_section(e, "drivers");
    fact_file(e, "nvidia", "/proc/driver/nvidia/version");
    if (tm_file_exists(fact_path(e, "/sys/module/amdgpu")) &&
        !tm_file_exists(fact_path(e, "/sys/module/amdgpu/version")))
        fact_text(e, "amdgpu", "the kernel's own", NULL);
    else
        fact_file(e, "amdgpu", "/sys/module/amdgpu/version");
}

/* Devices that the compute driver of AMD has, and GPUs that NVIDIA's has; how many *_VISIBLE_DEVICES leave. */
static void add_gpus(tm_environment *e)
{
    static const char nodes[] = "/sys/class/kfd/kfd/topology/nodes", gpus[] = "/proc/driver/nvidia/gpus";
    enum { LIMIT = 4096 };
    size_t       n, nvidia;
    int          amd = 0;
    char         id[64], wrong[96];
    tm_text      told = { 0 };
    const char **names = tm_root_list(e->sysroot, nodes, LIMIT, e->arena, &n);
    for (size_t i = 0; i < n; i++)
        if (tm_root_read_line(e->sysroot, tm_arena_format(e->arena, "%s/%s/gpu_id", nodes, names[i]), id, sizeof id))
            amd += strtol(id, NULL, 10) != 0;
    (void)tm_root_list(e->sysroot, gpus, LIMIT, e->arena, &nvidia);
    fact_section(e, "gpus");
    if (amd == 0 && nvidia == 0) {
        fact_unknown(e, "devices", "no driver shows any");
        return;
    }
    int devices = amd > 0 ? amd : (int)nvidia;
    fact_number(e, "devices", devices);
    fact_number(e, "visible", tm_gpu_visible(amd > 0 ? TM_GPU_HIP : TM_GPU_CUDA, environ, devices, &told, wrong));
    fact_text(e, "visible_by", told.data, "no variable hides any");
    tm_text_fini(&told);
}

/* "always [madvise] never" -> "madvise" */
static void add_choice(tm_environment *e, const char *name, const char *path)
{
    char  text[256];
    bool  read = tm_file_read_line(fact_path(e, "%s", path), text, sizeof text);
    char *from = read ? strchr(text, '[') : NULL, *to = from ? strchr(from, ']') : NULL;
    if (to) *to = '\0';
    fact_text(e, name, to ? from + 1 : NULL, tm_arena_format(e->arena, "%s cannot be read", path));
}

/* The governor of all processors, or "mixed". */
static void add_governor(tm_environment *e)
{
    enum { LIMIT = 4096 };
    char first[64] = "", text[64];
    for (int cpu = 0; cpu < LIMIT; cpu++) {
        if (!tm_file_exists(fact_path(e, "/sys/devices/system/cpu/cpu%d", cpu))) break;
        const char *path = fact_path(e, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor", cpu);
        if (!tm_file_read_line(path, text, sizeof text)) continue;
        if (!*first) strcpy(first, text);
        if (strcmp(first, text) != 0) strcpy(first, "mixed");
    }
    fact_text(e, "governor", first, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor cannot be read");
}

static void add_settings(tm_environment *e)
{
    fact_section(e, "settings");
    add_governor(e);
    add_choice(e, "transparent_huge_pages", "/sys/kernel/mm/transparent_hugepage/enabled");
    add_choice(e, "transparent_huge_pages_defrag", "/sys/kernel/mm/transparent_hugepage/defrag");
    fact_file(e, "numa_balancing", "/proc/sys/kernel/numa_balancing");
    fact_file(e, "swappiness", "/proc/sys/vm/swappiness");
}

static void add_control_group(tm_environment *e)
{
    tm_cgroup_limits limits = tm_cgroup_limits_read(e->sysroot);
    fact_section(e, "control_group");
    if (isfinite(limits.cpus))
        fact_number(e, "cpus", limits.cpus);
    else
        fact_unknown(e, "cpus", "no quota");
    if (limits.memory_bytes < INT64_MAX)
        fact_number(e, "memory_bytes", (double)limits.memory_bytes);
    else
        fact_unknown(e, "memory_bytes", "no limit");
}

void probe_system(tm_environment *e)
{
    add_os(e);
    add_drivers(e);
    add_gpus(e);
    add_settings(e);
    add_control_group(e);
}

/* --- this program ---------------------------------------------------------------------------- */

static void add_build(tm_environment *e)
{
    struct stat info;
    const char *flags = NULL, *commit = NULL;
#ifdef TM_BUILD_FLAGS
    flags = TM_BUILD_FLAGS;
#endif
#ifdef TM_BUILD_COMMIT
    commit = TM_BUILD_COMMIT;
#endif
    fact_section(e, "build");
#ifdef __clang__
    fact_text(e, "compiler", __VERSION__, NULL); /* names itself */
#else
    fact_text(e, "compiler", "gcc " __VERSION__, NULL);
#endif
    fact_text(e, "flags", flags, "the build did not pass TM_BUILD_FLAGS");
    fact_text(e, "commit", commit, "built outside a git checkout");
    if (stat("/proc/self/exe", &info) == 0) fact_number(e, "executable_bytes", (double)info.st_size);
}

/* Libraries that can say their version. The symbol is looked up among what is loaded: nothing is linked for this. */
typedef enum { VERSION_TEXT, VERSION_PACKED_100, VERSION_PACKED_HEX, VERSION_DNNL } version_kind;
static const struct {
    const char  *file, *symbol;
    version_kind kind;
} version_rows[] = {
    { "libyaml", "yaml_get_version_string", VERSION_TEXT },
    { "libjansson", "jansson_version_str", VERSION_TEXT },
    { "libhwloc", "hwloc_get_api_version", VERSION_PACKED_HEX },
    { "libxxhash", "XXH_versionNumber", VERSION_PACKED_100 },
    { "libdnnl", "dnnl_version", VERSION_DNNL },
    { "libc.so", "gnu_get_libc_version", VERSION_TEXT },
    { "libsqlite3", "sqlite3_libversion", VERSION_TEXT },
    { "libz.so", "zlibVersion", VERSION_TEXT },
    { "libzstd", "ZSTD_versionString", VERSION_TEXT },
};

typedef struct {
    int major, minor, patch;
} dnnl_triple;

typedef union {
    void *symbol;
    const char *(*text)(void);
    unsigned (*number)(void);
    const dnnl_triple *(*dnnl)(void);
} version_function;

static const char *version_of(tm_environment *e, const char *file)
{
    for (size_t i = 0; i < sizeof version_rows / sizeof version_rows[0]; i++) {
        if (strncmp(file, version_rows[i].file, strlen(version_rows[i].file)) != 0) continue;
        version_function f = { .symbol = dlsym(RTLD_DEFAULT, version_rows[i].symbol) };
        if (!f.symbol) return NULL;
        if (version_rows[i].kind == VERSION_TEXT) return f.text();
        if (version_rows[i].kind == VERSION_DNNL)
            return tm_arena_format(e->arena, "%d.%d.%d", f.dnnl()->major, f.dnnl()->minor, f.dnnl()->patch);
        unsigned v = f.number();
        if (version_rows[i].kind == VERSION_PACKED_100)
            return tm_arena_format(e->arena, "%u.%u.%u", v / 10000, v / 100 % 100, v % 100);
        return tm_arena_format(e->arena, "%u.%u.%u", v >> 16, v >> 8 & 0xFF, v & 0xFF);
    }
    return NULL;
}

static int add_library(struct dl_phdr_info *object, size_t size, void *data)
{
    (void)size;
    tm_environment *e = data;
    struct stat     info;
    const char     *slash = strrchr(object->dlpi_name, '/');
    if (!slash) return 0; /* the program itself and the kernel's page */
    fact_item(e, slash + 1);
    fact_text(e, "path", object->dlpi_name, NULL);
    fact_text(e, "version", version_of(e, slash + 1), "it has no version function that is known here");
    if (stat(object->dlpi_name, &info) == 0) fact_number(e, "bytes", (double)info.st_size);
    return 0;
}

static void add_libraries(tm_environment *e)
{
    size_t first = e->count;
    fact_section(e, "libraries");
    dl_iterate_phdr(add_library, e);
    double bytes = 0;
    for (size_t i = first; i < e->count; i++)
        if (strcmp(e->facts[i].name, "bytes") == 0) bytes += e->facts[i].number;
    fact_section(e, "libraries_total");
    fact_number(e, "bytes", bytes);
}

/* The variables that are recorded; a name that ends in '*' stands for all that begin so. */
/* clang-format off */
static const char *const recorded_variables[] = {
    "NCCL_*", "RCCL_*", "HSA_*", "HIP_*", "ROCR_VISIBLE_DEVICES", "HIPBLASLT_*", "GPU_MAX_HW_QUEUES",
    "GPU_DEVICE_ORDINAL", "ROCM_PATH", "CUDA_HOME", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_VISIBLE_DEVICES", "OMP_*",
    "GOMP_*", "KMP_*", "DNNL_*", "ONEDNN_*", "TRAINMARK_*", "MALLOC_*", "GLIBC_TUNABLES", "LD_PRELOAD",
    "LD_LIBRARY_PATH", "NNODES", "NODE_RANK", "GPUS_PER_NODE", "MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE",
    "LOCAL_RANK", "LOCAL_WORLD_SIZE", "EXP", "TRAIN_LOG", "PRIMUS_*", "NVTE_*", "TORCH_NCCL_*",
    "MAD_SYSTEM_GPU_ARCHITECTURE", "MAD_RUNTIME_NGPUS", "MAD_MODEL_NAME", "MAD_MODEL_BATCH_SIZE", "MODEL_DIR",
    "BUILD_NUMBER", "pipeline", "SLURM_NNODES", "SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID",
    "SLURM_GPUS_ON_NODE", "SLURM_JOB_NODELIST", "DATADIR", "LOGDIR", "SEED", "NEXP",
};
/* clang-format on */

static bool recorded(const char *name)
{
    for (size_t i = 0; i < sizeof recorded_variables / sizeof recorded_variables[0]; i++) {
        const char *row = recorded_variables[i];
        size_t      n = strlen(row);
        if (row[n - 1] == '*' ? strncmp(name, row, n - 1) == 0 : strcmp(name, row) == 0) return true;
    }
    return false;
}

static void add_variables(tm_environment *e)
{
    double left_out = 0;
    fact_section(e, "variables");
    for (char **variable = environ; variable && *variable; variable++) {
        const char *equals = strchr(*variable, '=');
        if (!equals) continue;
        const char *name = tm_arena_text_n(e->arena, *variable, (size_t)(equals - *variable));
        left_out += !recorded(name);
        if (!recorded(name)) continue;
        tm_text value = { 0 };
        if (tm_secret_name(name))
            tm_text_add(&value, "***");
        else
            tm_secret_value(&value, equals + 1);
        fact_text(e, name, value.data, "set to nothing");
        tm_text_fini(&value);
    }
    fact_section(e, "variables_left_out"); /* not on the list above */
    fact_number(e, "count", left_out);
}

static void add_process(tm_environment *e)
{
    enum { LIMIT = 1 << 20 };
    tm_text arguments = { 0 }, line = { 0 };
    char    folder[4096];
    fact_section(e, "process");
    if (tm_file_read("/proc/self/cmdline", LIMIT, &arguments, NULL) == TM_OK)
        tm_secret_command_line(&line, arguments.data, arguments.length);
    fact_text(e, "command_line", line.data, "/proc/self/cmdline cannot be read");
    fact_text(e, "folder", getcwd(folder, sizeof folder), "getcwd failed");
    tm_text_fini(&arguments);
    tm_text_fini(&line);
}

void probe_program(tm_environment *e)
{
    add_build(e);
    add_libraries(e);
    add_variables(e);
    add_process(e);
}
