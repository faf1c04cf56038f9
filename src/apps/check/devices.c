/* SPDX-License-Identifier: Apache-2.0 */
/* apps/check/devices.c - may this process use the GPUs: device files and their permissions, variables that hide
 * devices. */
#include "apps/check/context.h"

#include "base/root.h"
#include "gpu/visible.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- permissions ----------------------------------------------------------------------------- */

enum { SHOWN = 4 };

/* What is wrong with device files, and whose group would do. */
typedef struct {
    tm_text missing, closed;
    size_t  n_missing, n_closed, n;
    int64_t group; /* of the first file that is closed; -1 = none */
} files;

static bool in_group(const tm_check_host *host, int64_t group)
{
    bool found = host->group == group;
    for (size_t i = 0; i < host->n_groups && !found; i++) found = host->groups[i] == group;
    return found;
}

/* Reading and writing, by the mode. */
static bool allowed(const tm_check_host *host, const struct stat *info)
{
    unsigned shift = host->user == (int64_t)info->st_uid ? 6 : in_group(host, (int64_t)info->st_gid) ? 3 : 0;
    return host->user == 0 || (info->st_mode >> shift & 6) == 6;
}

static void look(check *c, const char *path, files *f)
{
    struct stat info;
    int         fd = tm_root_open(c->sysroot, path, O_PATH);
    bool        there = fd >= 0 && fstat(fd, &info) == 0, open = there;
    if (fd >= 0) close(fd);
    f->n++;
    if (there && c->host->user >= 0) open = allowed(c->host, &info);
    if (there && c->host->user < 0 && !*c->sysroot) open = faccessat(AT_FDCWD, path, R_OK | W_OK, AT_EACCESS) == 0;
    if (!there) check_list_add(&f->missing, &f->n_missing, SHOWN, "%s", path);
    if (!there || open) return;
    check_list_add(&f->closed, &f->n_closed, SHOWN, "%s", path);
    if (f->group < 0) f->group = (int64_t)info.st_gid;
}

/* "render" from a line "render:x:109:"; NULL if the group has no name here. */
static const char *group_name(check *c, int64_t group)
{
    const char *text = check_content(c, "/etc/group");
    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        size_t      n = strcspn(line, ":\n");
        const char *number = line[n] == ':' ? strchr(line + n + 1, ':') : NULL;
        if (number && strtoll(number + 1, NULL, 10) == group && number[1] != '\n')
            return check_path(c, "%.*s", n < 64 ? (int)n : 64, line);
    }
    return NULL;
}

/* --- device files ---------------------------------------------------------------------------- */

static void look_at_amd(check *c, files *f)
{
    check_kfd_gpu gpus[CHECK_KFD_GPUS];
    size_t        n = check_kfd_gpus(c, gpus), m = 0;
    look(c, "/dev/kfd", f);
    for (size_t i = 0; i < n; i++)
        if (gpus[i].render >= 0) look(c, check_path(c, "/dev/dri/renderD%lld", (long long)gpus[i].render), f);
    if (n > 0) return;
    const char **nodes = check_list(c, "/dev/dri", "renderD", true, &m);
    for (size_t i = 0; i < m; i++) look(c, check_path(c, "/dev/dri/%s", nodes[i]), f);
    if (m == 0) look(c, "/dev/dri/renderD128", f);
}

/* /proc/driver/nvidia/gpus/ADDRESS/information: "Device Minor: \t 0". */
static void look_at_nvidia(check *c, files *f)
{
    static const char folder[] = "/proc/driver/nvidia/gpus";
    size_t            n;
    const char      **names = check_list(c, folder, "", false, &n);
    look(c, "/dev/nvidiactl", f);
    look(c, "/dev/nvidia-uvm", f);
    for (size_t i = 0; i < n; i++) {
        const char *text = check_content(c, check_path(c, "%s/%s/information", folder, names[i]));
        int64_t     minor = text ? check_field(text, "Device Minor") : -1;
        if (minor >= 0) look(c, check_path(c, "/dev/nvidia%lld", (long long)minor), f);
    }
}

static void remedy(check *c, const files *f, bool amd)
{
    const char *kind = check_container_kind(c), *name = f->group >= 0 ? group_name(c, f->group) : NULL;
    if (f->n_missing > 0 && kind)
        check_remedy(c, amd ? "start the container with: --device /dev/kfd --device /dev/dri"
                            : "start the container with: --gpus all (NVIDIA Container Toolkit)");
    else if (f->n_missing > 0)
        check_remedy(c,
                     amd ? "modprobe amdgpu; dmesg | grep -e amdgpu -e kfd; in containers: --device /dev/kfd --device "
                           "/dev/dri"
                         : "nvidia-modprobe -u -c 0; in containers: --gpus all");
    else if (!amd)
        check_remedy(c, "chmod 666 %s (nvidia-modprobe makes it so)", "/dev/nvidia*");
    else if (kind)
        check_remedy(c, "start the container with: --group-add %lld%s%s%s", (long long)f->group, name ? " (" : "",
                     name ? name : "", name ? ")" : "");
    else
        check_remedy(c, "usermod -aG %s $USER, then log in again; in containers: --group-add %lld",
                     name ? name : "render,video", (long long)f->group);
}

void check_gpu_devices(check *c)
{
    size_t           n;
    files            f = { .group = -1 };
    const check_gpu *gpus = check_gpus(c, &n);
    if (check_no_compute(c, gpus, n)) return;
    bool amd = check_gpus_of(gpus, n, CHECK_AMD) > 0;
    if (*c->sysroot && !tm_root_exists(c->sysroot, "/dev/dri") && !tm_root_exists(c->sysroot, "/dev/nvidiactl") &&
        !tm_root_exists(c->sysroot, "/dev/kfd")) {
        check_say(c, TM_CHECK_SKIP, "no device files below this sysroot");
        return;
    }
    if (amd)
        look_at_amd(c, &f);
    else
        look_at_nvidia(c, &f);
    check_list_end(&f.missing, f.n_missing, SHOWN);
    check_list_end(&f.closed, f.n_closed, SHOWN);
    if (f.n_missing > 0 || f.n_closed > 0) remedy(c, &f, amd);
    if (f.n_missing > 0)
        check_say(c, TM_CHECK_FAIL, "missing: %s", f.missing.data);
    else if (f.n_closed > 0)
        check_say(c, TM_CHECK_FAIL, "this user may not open %s (group %lld)", f.closed.data, (long long)f.group);
    else
        check_say(c, TM_CHECK_PASS, "all %zu device files", f.n);
    tm_text_fini(&f.missing);
    tm_text_fini(&f.closed);
}

/* --- variables ------------------------------------------------------------------------------- */

/* What a variable says about the number of devices; -1: nothing. */
static int64_t wanted_by(const check *c, const char *name)
{
    int64_t n;
    return check_number(check_env(c, name), &n) ? n : -1;
}

void check_gpu_visible(check *c)
{
    static const char *const counts[] = { "GPUS_PER_NODE", "LOCAL_WORLD_SIZE" };
    check_kfd_gpu            kfd[CHECK_KFD_GPUS];
    char                     wrong[96];
    size_t                   n;
    tm_text                  told = { 0 };
    const check_gpu         *gpus = check_gpus(c, &n);
    if (check_no_gpu(c, n)) return;
    bool        amd = check_gpus_of(gpus, n, CHECK_AMD) > 0;
    size_t      driven = amd ? check_kfd_gpus(c, kfd) : 0;
    int         devices = driven > 0 ? (int)driven : (int)check_gpus_of(gpus, n, amd ? CHECK_AMD : CHECK_NVIDIA);
    int         visible = tm_gpu_visible(amd ? TM_GPU_HIP : TM_GPU_CUDA, c->host->environment, devices, &told, wrong);
    const char *by = told.length ? check_path(c, " (%s)", told.data) : "";
    const char *few = NULL;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0] && !few; i++)
        if (wanted_by(c, counts[i]) > visible) few = counts[i];
    if (*wrong)
        check_say(c, TM_CHECK_FAIL, "%d of %d devices%s: %s names no device, what follows it is hidden", visible,
                  devices, by, wrong);
    else if (few)
        check_say(c, TM_CHECK_FAIL, "%d of %d devices%s, but %s is %lld", visible, devices, by, few,
                  (long long)wanted_by(c, few));
    else
        check_say(c, told.length ? TM_CHECK_INFO : TM_CHECK_PASS, "%d of %d devices%s", visible, devices, by);
    tm_text_fini(&told);
}
