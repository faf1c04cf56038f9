/* SPDX-License-Identifier: Apache-2.0 */
/* HIP takes HIP_VISIBLE_DEVICES, or CUDA_VISIBLE_DEVICES or GPU_DEVICE_ORDINAL where it is not set. */
#include "gpu/visible.h"

#include "gpu/places.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const *tm_gpu_visible_variables(tm_gpu_maker maker)
{
    static const char *const cuda[] = { "CUDA_VISIBLE_DEVICES", NULL };
    static const char *const hip[] = { "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES",
                                       "GPU_DEVICE_ORDINAL", NULL };
    return maker == TM_GPU_HIP ? hip : cuda;
}

/* Entries of a list up to the first that names no device. */
static int count(const char *name, const char *list, int devices, char wrong[96])
{
    int visible = 0;
    for (const char *at = list; *at; at += *at == ',') {
        size_t n = strcspn(at, ",");
        char  *end;
        long   index = strtol(at, &end, 10);
        bool   number = end != at && end == at + n,
             identifier = strncmp(at, "GPU-", 4) == 0 || strncmp(at, "MIG-", 4) == 0;
        if (!identifier && (!number || index < 0 || index >= devices)) {
            if (!*wrong) snprintf(wrong, 96, "'%.*s' of %s", n < 40 ? (int)n : 40, at, name);
            return visible;
        }
        visible++;
        at += n;
    }
    return visible < devices ? visible : devices;
}

int tm_gpu_visible(tm_gpu_maker maker, char *const *environment, int devices, tm_text *told, char wrong[96])
{
    bool own = false; /* HIP's own variable, or one in its place, is set */
    wrong[0] = '\0';
    for (const char *const *name = tm_gpu_visible_variables(maker); *name; name++) {
        const char *list = tm_gpu_variable(environment, *name);
        bool        rocr = strcmp(*name, "ROCR_VISIBLE_DEVICES") == 0;
        if (!list || (!rocr && own)) continue;
        if (!*list && maker == TM_GPU_HIP) continue; /* empty: not set. To CUDA: no device */
        own = own || !rocr;
        devices = count(*name, list, devices, wrong);
        if (told) tm_text_printf(told, "%s%s=%.100s", told->length ? ", " : "", *name, list);
    }
    return devices;
}

void tm_gpu_none_here(tm_gpu_maker maker, const char *root, char out[320])
{
    static const struct {
        const char *driver, *node, *absent, *closed;
    } rows[] = { [TM_GPU_CUDA] = { "/proc/driver/nvidia", "/dev/nvidiactl", /* as root, the runtime makes the node */
                                   "is NVIDIA's driver loaded (nvidia-smi)? Containers need --gpus all",
                                   "let this user open it" },
                 [TM_GPU_HIP] = { "/dev/kfd", "/dev/kfd",
                                  "is amdgpu loaded (lsmod)? Containers need --device=/dev/kfd --device=/dev/dri",
                                  "add this user to its group: usermod -a -G render,video" } };
    bool hip = maker == TM_GPU_HIP;
    char path[300], driver[300];
    snprintf(path, sizeof path, "%.200s%s", root, rows[hip].node);
    snprintf(driver, sizeof driver, "%.200s%s", root, rows[hip].driver);
    if (access(driver, F_OK) != 0)
        snprintf(out, 320, "there is no %s: %s", driver, rows[hip].absent);
    else if (access(path, R_OK | W_OK) != 0)
        snprintf(out, 320, "%s: %s; %s", path, strerror(errno), rows[hip].closed);
    else
        snprintf(out, 320, "see CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES and the job's allocation");
}
