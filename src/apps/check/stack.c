/* SPDX-License-Identifier: Apache-2.0 */
/* apps/check/stack.c - do driver and libraries belong together: ROCm's libraries of one release, amdgpu with that
 * release, NVIDIA's driver with its own library and with CUDA's; NVSwitches. Where libraries are looked for is the
 * order in which a GPU's device loads them (gpu/places.h). */
#include "apps/check/context.h"

#include "base/root.h"
#include "gpu/places.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- libraries ------------------------------------------------------------------------------- */

typedef struct {
    const char *name, *stem, *package;
} library;

static const library rocm_libraries[] = { { "HIP", "libamdhip64", "hip-runtime-amd" },
                                          { "hiprtc", "libhiprtc", "hip-runtime-amd" },
                                          { "hipBLASLt", "libhipblaslt", "hipblaslt" },
                                          { "RCCL", "librccl", "rccl" } };
enum { LIBRARIES = sizeof rocm_libraries / sizeof rocm_libraries[0] };

typedef struct {
    const tm_gpu_place *places;
    size_t              n;
    tm_gpu_file         files[LIBRARIES]; /* what would be loaded; path NULL: none */
    const char         *folders[LIBRARIES];
} stack;

/* The first file of a library that is of HIP's release, as the loader of a GPU's device takes it; else the first. */
static void find_library(check *c, stack *s, size_t k)
{
    for (size_t i = 0; i < s->n; i++) {
        tm_gpu_file file =
            tm_gpu_file_find(TM_GPU_HIP, c->sysroot, s->places[i].folder, rocm_libraries[k].stem, c->arena);
        bool fits = file.path && tm_gpu_release_same(file.release, s->files[0].release);
        if (!file.path || (s->files[k].path && !fits)) continue;
        s->files[k] = file;
        s->folders[k] = s->places[i].folder;
        if (fits) return;
    }
}

static stack find_rocm(check *c)
{
    stack s = { 0 };
    s.places = tm_gpu_places(TM_GPU_HIP, c->sysroot, c->host->environment, c->arena, &s.n);
    for (size_t k = 0; k < LIBRARIES; k++) find_library(c, &s, k);
    return s;
}

/* A folder with all four libraries, of one release; NULL: none. */
static const char *whole_place(check *c, const stack *s, const char **release)
{
    for (size_t i = 0; i < s->n; i++) {
        bool all = true;
        *release = NULL;
        for (size_t k = 0; k < LIBRARIES && all; k++) {
            tm_gpu_file file =
                tm_gpu_file_find(TM_GPU_HIP, c->sysroot, s->places[i].folder, rocm_libraries[k].stem, c->arena);
            all = file.path && tm_gpu_release_same(*release, file.release);
            if (file.release) *release = file.release;
        }
        if (all) return s->places[i].folder;
    }
    return NULL;
}

/* "/opt/rocm-6.4.1/lib" -> "/opt/rocm-6.4.1" */
static const char *parent(check *c, const char *folder)
{
    return check_path(c, "%.*s", (int)(strrchr(folder, '/') - folder), folder);
}

static void say_mixed(check *c, const stack *s, const char *mixed)
{
    const char *release, *whole = whole_place(c, s, &release), *first = s->files[0].release;
    if (whole)
        check_remedy(c, "export ROCM_PATH=%s, which has all of them%s%s; or uninstall the others", parent(c, whole),
                     release ? " of ROCm " : "", release ? release : "");
    else
        check_remedy(
            c,
            "install hiprtc, hipBLASLt and RCCL of ROCm %s beside it: apt-get install hip-runtime-amd hipblaslt "
            "rccl, from the repository of that release",
            first ? first : "(that of HIP)");
    check_say(c, TM_CHECK_FAIL, "of several releases: %s", mixed);
}

static void say_missing(check *c, const stack *s)
{
    tm_text names = { 0 }, packages = { 0 };
    for (size_t k = 0; k < LIBRARIES; k++) {
        if (s->files[k].path) continue;
        tm_text_printf(&names, "%s%s", names.length ? ", " : "", rocm_libraries[k].name);
        if (!packages.data || !strstr(packages.data, rocm_libraries[k].package))
            tm_text_printf(&packages, "%s%s", packages.length ? " " : "", rocm_libraries[k].package);
    }
    const char *of = s->files[0].release;
    check_remedy(c, "apt-get install %s%s%s, or name the installation: export ROCM_PATH=...", packages.data,
                 of ? " of ROCm " : "", of ? of : "");
    check_say(c, s->files[0].path ? TM_CHECK_WARN : TM_CHECK_FAIL, "not found: %s", names.data);
    tm_text_fini(&names);
    tm_text_fini(&packages);
}

/* The oldest release of ROCm for a GPU; NULL: any that trainmark loads. */
static const char *oldest_for(const check_gpu *gpus, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (gpus[i].vendor == CHECK_AMD && (gpus[i].device == 0x75A0 || gpus[i].device == 0x75A3)) return "7.0";
    return NULL;
}

static bool older(const char *release, const char *wanted)
{
    char *rest_a, *rest_b;
    if (!release || !wanted) return false;
    long a = strtol(release, &rest_a, 10), b = strtol(wanted, &rest_b, 10);
    if (a != b) return a < b;
    return *rest_a == '.' && *rest_b == '.' && strtol(rest_a + 1, NULL, 10) < strtol(rest_b + 1, NULL, 10);
}

void check_rocm(check *c)
{
    size_t           n, found = 0;
    bool             one = true;
    tm_text          list = { 0 };
    const check_gpu *gpus = check_gpus(c, &n);
    if (check_no_compute(c, gpus, n)) return;
    if (check_gpus_of(gpus, n, CHECK_AMD) == 0) {
        check_say(c, TM_CHECK_SKIP, "no GPU of AMD");
        return;
    }
    stack       s = find_rocm(c);
    const char *root = check_env(c, "ROCM_PATH"), *oldest = oldest_for(gpus, n);
    for (size_t k = 0; k < LIBRARIES; k++) {
        if (!s.files[k].path) continue;
        found++;
        for (size_t i = 0; i < k; i++)
            one = one && (!s.files[i].path || tm_gpu_release_same(s.files[i].release, s.files[k].release));
        tm_text_printf(&list, "%s%s %s in %.200s", list.length ? ", " : "", rocm_libraries[k].name,
                       s.files[k].release ? s.files[k].release : "of an unknown release", s.folders[k]);
    }
    if (root &&
        !tm_gpu_file_find(TM_GPU_HIP, c->sysroot, check_path(c, "%s/lib", root), "libamdhip64", c->arena).path) {
        check_remedy(c, "unset ROCM_PATH, or export ROCM_PATH=%s",
                     s.files[0].path ? parent(c, s.folders[0]) : "DIRECTORY (ls -d /opt/rocm*)");
        check_say(c, TM_CHECK_FAIL, "ROCM_PATH is '%.200s', which has no lib/libamdhip64.so", root);
    } else if (found > 0 && !one) {
        say_mixed(c, &s, list.data);
    } else if (found < LIBRARIES) {
        say_missing(c, &s);
    } else if (older(s.files[0].release, oldest)) {
        check_remedy(c, "install ROCm %s or later (the driver with it), or a container that has it", oldest);
        check_say(c, TM_CHECK_FAIL, "ROCm %s in %s does not have the kernels of these GPUs: %s is the oldest",
                  s.files[0].release, s.folders[0], oldest);
    } else {
        check_say(c, TM_CHECK_PASS, "%s", list.data);
    }
    tm_text_fini(&list);
}

/* --- amdgpu ---------------------------------------------------------------------------------- */

/* The version that the module reports, the release of the driver that has it, and the releases of ROCm that AMD
 * supports with it: "Compatibility matrix" of AMD's driver documentation (instinct.docs.amd.com, amdgpu-docs; in ROCm's
 * install guide before 2026, "User and AMD GPU Driver support matrix"). Versions of modules are those of the packages
 * amdgpu-dkms: 6.12.12.60401 is of 6.4.1, 6.16.6.30200100 of 30.20.1. All of a release have the same one. 31.10 to
 * 31.30 were previews, which are not in AMD's matrix. */
static const struct {
    const char *module, *driver, *rocm;
} drivers[] = {
    { "6.1.5", "5.6", "5.4 5.5 5.6 5.7 6.0" },
    { "6.2.4", "5.7", "5.5 5.6 5.7 6.0 6.1" },
    { "6.3.6", "6.0", "5.6 5.7 6.0 6.1 6.2" },
    { "6.7.0", "6.1", "5.7 6.0 6.1 6.2 6.3 6.4" },
    { "6.8.5", "6.2", "6.0 6.1 6.2 6.3 6.4 7.0" },
    { "6.10.5", "6.3", "6.1 6.2 6.3 6.4 7.0" },
    { "6.12.12", "6.4", "6.1 6.2 6.3 6.4 7.0 7.1 7.2" },
    { "6.14.14", "30.10", "6.2 6.3 6.4 7.0 7.1 7.2 7.14 10.0" },
    { "6.16.6", "30.20", "6.3 6.4 7.0 7.1 7.2 7.14 10.0" },
    { "6.16.13", "30.30", "6.3 6.4 7.0 7.1 7.2 7.14 10.0" },
    { "6.19.14", "31.40", "7.0 7.1 7.2 7.14 10.0" },
    { "7.1.3", "31.50", "7.0 7.1 7.2 7.14 10.0" },
};
enum { DRIVERS = sizeof drivers / sizeof drivers[0] };

/* "6.19.14" or, of some packages, "6.19.14.31400000-2364437". */
static bool is_module(const char *version, const char *module)
{
    size_t n = strlen(module);
    return strncmp(version, module, n) == 0 && (version[n] == '\0' || version[n] == '.' || version[n] == '-');
}

/* Is the release one of the list? */
static bool supports(const char *list, const char *release)
{
    for (const char *at = list; *at; at += strcspn(at, " "), at += strspn(at, " "))
        if (tm_gpu_release_same(at, release)) return true;
    return false;
}

/* Is it one that the table knows at all? */
static bool known_release(const char *release)
{
    bool known = false;
    for (size_t i = 0; i < DRIVERS; i++) known = known || supports(drivers[i].rocm, release);
    return known;
}

/* The releases of a list that have the kernels of GPUs whose oldest is given; "": none. */
static const char *releases_from(check *c, const char *list, const char *oldest)
{
    const char *out = "";
    for (const char *at = list; *at; at += strcspn(at, " "), at += strspn(at, " ")) {
        const char *release = tm_arena_text_n(c->arena, at, strcspn(at, " "));
        if (!older(release, oldest)) out = tm_arena_format(c->arena, "%s%s%s", out, *out ? " " : "", release);
    }
    return out;
}

static void judge_driver(check *c, size_t row, const char *release, const char *oldest)
{
    size_t      newest = DRIVERS;
    const char *others = releases_from(c, drivers[row].rocm, oldest);
    for (size_t i = 0; i < DRIVERS; i++)
        if (supports(drivers[i].rocm, release)) newest = i;
    if (supports(drivers[row].rocm, release)) {
        check_say(c, TM_CHECK_PASS, "amdgpu %s (release %s) with ROCm %s", drivers[row].module, drivers[row].driver,
                  release);
        return;
    }
    check_remedy(c, "install amdgpu of release %s (amdgpu-install)%s%s", drivers[newest].driver,
                 *others ? ", or ROCm " : "", others);
    check_say(c, TM_CHECK_FAIL, "amdgpu %s (release %s) does not support ROCm %s", drivers[row].module,
              drivers[row].driver, release);
}

void check_amdgpu(check *c)
{
    size_t           n, row = 0;
    const check_gpu *gpus = check_gpus(c, &n);
    if (check_no_compute(c, gpus, n)) return;
    if (check_gpus_of(gpus, n, CHECK_AMD) == 0) {
        check_say(c, TM_CHECK_SKIP, "no GPU of AMD");
        return;
    }
    if (!tm_root_exists(c->sysroot, "/sys/module/amdgpu")) {
        check_say(c, TM_CHECK_FAIL, "amdgpu is not loaded");
        return;
    }
    const char *version = check_line(c, "/sys/module/amdgpu/version");
    stack       s = find_rocm(c);
    const char *release = s.files[0].path ? s.files[0].release : NULL;
    while (version && row < DRIVERS && !is_module(version, drivers[row].module)) row++;
    if (!version)
        check_say(c, TM_CHECK_INFO, "the kernel's own (it has no version)");
    else if (row == DRIVERS)
        check_say(c, TM_CHECK_INFO, "%.60s, which is not in the table", version);
    else if (!release)
        check_say(c, TM_CHECK_INFO, "%s (release %s); no ROCm was found", version, drivers[row].driver);
    else if (!known_release(release))
        check_say(c, TM_CHECK_INFO, "%s (release %s); ROCm %s is not in the table", version, drivers[row].driver,
                  release);
    else
        judge_driver(c, row, release, oldest_for(gpus, n));
}

/* --- NVIDIA ---------------------------------------------------------------------------------- */

/* The oldest driver of each major version of CUDA, all of whose minor versions it runs (docs.nvidia.com, CUDA
 * Compatibility, "Minor Version Compatibility": 12.x from 525 on, 13.x from 580 on; older ones on newer drivers). */
enum { DRIVER_OF_12 = 525, DRIVER_OF_13 = 580 };

/* The first number with a point in "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release". */
static const char *driver_version(check *c)
{
    const char *line = check_line(c, "/proc/driver/nvidia/version");
    for (const char *at = line; at && *at; at += strcspn(at, " \t"), at += strspn(at, " \t")) {
        size_t n = strspn(at, "0123456789.");
        if (isdigit((unsigned char)*at) && memchr(at, '.', n) && strchr(" \t", at[n]))
            return check_path(c, "%.*s", (int)n, at);
    }
    return NULL;
}

/* The newest of a CUDA library that the driver can run, and the newest of all. */
static void find_cuda(check *c, const char *stem, long most, tm_gpu_file *fits, tm_gpu_file *any)
{
    size_t              n;
    const tm_gpu_place *places = tm_gpu_places(TM_GPU_CUDA, c->sysroot, c->host->environment, c->arena, &n);
    *fits = *any = (tm_gpu_file){ 0 };
    for (size_t i = 0; i < n; i++) {
        tm_gpu_file file = tm_gpu_file_find(TM_GPU_CUDA, c->sysroot, places[i].folder, stem, c->arena);
        if (!file.path) continue;
        if (!any->path) *any = file;
        if (!fits->path && strtol(file.version, NULL, 10) <= most) *fits = file;
    }
}

static bool has_library(check *c, const char *name, const char *stem, long most, tm_text *told)
{
    tm_gpu_file fits, any;
    find_cuda(c, stem, most, &fits, &any);
    if (fits.path) tm_text_printf(told, ", %s %.40s", name, fits.version);
    if (fits.path) return true;
    const char *pip = strcmp(stem, "libnvrtc") == 0 ? "nvidia-cuda-nvrtc" : "nvidia-cublas";
    check_remedy(c, "pip install %s%s", pip, most < 13 ? "-cu12" : "");
    if (any.path && most < 13)
        check_remedy(c, "install a driver of CUDA 13 (%d or later), or libraries of CUDA 12: pip install %s-cu12",
                     DRIVER_OF_13, pip);
    check_say(c, any.path ? TM_CHECK_FAIL : TM_CHECK_WARN, "%s: %s%s", any.path ? any.path : name,
              any.path ? "of CUDA 13, which this driver cannot run" : "not found",
              any.path ? "" : ": kernels that are not inside cannot be compiled, products use own kernels");
    return false;
}

void check_cuda(check *c)
{
    size_t           n;
    tm_text          told = { 0 };
    const check_gpu *gpus = check_gpus(c, &n);
    if (check_no_compute(c, gpus, n)) return;
    if (check_gpus_of(gpus, n, CHECK_NVIDIA) == 0) {
        check_say(c, TM_CHECK_SKIP, "no GPU of NVIDIA");
        return;
    }
    const char *driver = driver_version(c);
    if (!driver) {
        check_remedy(c, "install NVIDIA's driver; in containers: --gpus all");
        check_say(c, TM_CHECK_FAIL, "/proc/driver/nvidia/version has no version: the driver is not loaded");
        return;
    }
    tm_gpu_file own, ignored;
    find_cuda(c, "libcuda", 1000000, &own, &ignored);
    /* CUDA's package for older drivers: its libcuda decides */
    bool compat = own.path && strstr(own.path, "/compat/") && strchr(own.version, '.');
    long number = strtol(compat ? own.version : driver, NULL, 10), most = number >= DRIVER_OF_13 ? 13 : 12;
    tm_text_printf(&told, "driver %s%s%s (CUDA %ld)", driver, compat ? " with the compatibility package of " : "",
                   compat ? own.version : "", most);
    if (number < DRIVER_OF_12) {
        check_remedy(c, "install a driver of %d or later", DRIVER_OF_12);
        check_say(c, TM_CHECK_FAIL, "driver %s is older than CUDA 12", driver);
    } else if (!own.path) {
        check_remedy(c, "install the driver's libraries (libcuda.so.1); in containers: --gpus all");
        check_say(c, TM_CHECK_FAIL, "driver %s, but no libcuda.so.1", driver);
    } else if (strchr(own.version, '.') && strcmp(own.version, driver) != 0 && !compat) {
        check_remedy(c, "reboot, so that the module of %s is loaded; or install libraries of %s", own.version, driver);
        check_say(c, TM_CHECK_FAIL, "the module is %s, %s is %s", driver, own.path, own.version);
    } else if (has_library(c, "NVRTC", "libnvrtc", most, &told) &&
               has_library(c, "cublasLt", "libcublasLt", most, &told)) {
        check_say(c, TM_CHECK_PASS, "%s", told.data);
    }
    tm_text_fini(&told);
}

/* An NVSwitch is a bridge of class 0680h on the bus; /proc/driver/nvidia-nvswitch/devices has those that the driver
 * has. GPUs behind switches do not begin without the fabric manager. */
void check_nvlink(check *c)
{
    static const char pci[] = "/sys/bus/pci/devices", of_driver[] = "/proc/driver/nvidia-nvswitch/devices";
    size_t            n, all, switches = 0, driven, count = 0;
    tm_text           missing = { 0 };
    const check_gpu  *gpus = check_gpus(c, &n);
    if (check_no_gpu(c, n)) return;
    const char **names = check_list(c, pci, "", false, &all);
    check_list(c, of_driver, "", false, &driven);
    for (size_t i = 0; i < all; i++) {
        int64_t class = 0, vendor = 0;
        const char *folder = check_path(c, "%s/%s", pci, names[i]);
        if (!check_number(check_line_in(c, folder, "class"), &class) || class >> 8 != 0x0680) continue;
        if (!check_number(check_line_in(c, folder, "vendor"), &vendor) || vendor != CHECK_NVIDIA) continue;
        switches++;
        if (!tm_root_exists(c->sysroot, check_path(c, "%s/%s", of_driver, names[i])))
            check_list_add(&missing, &count, 4, "%.20s", names[i]);
    }
    check_list_end(&missing, count, 4);
    if (check_gpus_of(gpus, n, CHECK_NVIDIA) == 0 || switches == 0)
        check_say(c, TM_CHECK_SKIP, "no NVSwitch: links of NVIDIA's GPUs are not shown as files (nvidia-smi topo -m)");
    else if (count > 0)
        check_say(c, TM_CHECK_FAIL, "%zu NVSwitches, the driver has %zu; not %s", switches, driven, missing.data);
    else if (check_running(c, "nv-fabricmanage"))
        check_say(c, TM_CHECK_PASS, "%zu NVSwitches, the fabric manager runs", switches);
    else if (check_container_kind(c))
        check_say(c, TM_CHECK_INFO, "%zu NVSwitches; the fabric manager is not seen from a container", switches);
    else
        check_say(c, TM_CHECK_FAIL, "%zu NVSwitches, but the fabric manager does not run", switches);
    tm_text_fini(&missing);
}
