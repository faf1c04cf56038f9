/* SPDX-License-Identifier: Apache-2.0 */
/* apps/check/gpu.c - GPUs, as the bus and the amdgpu driver show them. NVIDIA's driver shows none of these files: its
 * GPUs are counted and their links looked at, no more. */
#include "apps/check/context.h"

#include "base/root.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 4, FULL_NODE = 8 };

/* --- how many -------------------------------------------------------------------------------- */

/* GPUs that the maker's driver has; -1 without the driver. */
static int64_t driver_gpus(check *c, bool amd)
{
    static const char *const folders[] = { "/proc/driver/nvidia/gpus", "/sys/class/kfd/kfd/topology/nodes" };
    check_kfd_gpu            gpus[CHECK_KFD_GPUS];
    size_t                   n;
    if (!check_list(c, folders[amd], "", false, &n)) return -1;
    return amd ? (int64_t)check_kfd_gpus(c, gpus) : (int64_t)n;
}

void check_gpu_count(check *c)
{
    size_t           n, instinct = 0;
    const check_gpu *gpus = check_gpus(c, &n);
    size_t           amd = check_gpus_of(gpus, n, CHECK_AMD), of_driver = amd > 0 ? amd : n;
    for (size_t i = 0; i < n; i++) instinct += gpus[i].instinct;
    int     wanted = c->options->expected_gpus;
    int64_t driven = driver_gpus(c, amd > 0 || n == 0);
    if (wanted < 0 && instinct > 0) wanted = FULL_NODE;
    if (wanted < 0 && check_no_gpu(c, n)) return;
    const char *driver = driven < 0 ? "" : check_path(c, ", %lld in the driver", (long long)driven);
    if (wanted >= 0) check_expect(c, "%d; the driver has those that PCI shows", wanted);
    if (n > 0 && amd == 0) check_remedy(c, "nvidia-smi -q; dmesg | grep -e NVRM -e Xid; reseat or reset the GPU");
    bool good = (wanted < 0 || n == (size_t)wanted) && !(driven >= 0 && driven < (int64_t)of_driver);
    check_say(c,
              !good        ? TM_CHECK_FAIL
              : wanted < 0 ? TM_CHECK_INFO
                           : TM_CHECK_PASS,
              "%zu%s%s%s", n, n > 0 ? " x " : "", n > 0 ? gpus[0].name : "", driver);
}

/* --- link ------------------------------------------------------------------------------------ */

void check_pcie(check *c)
{
    static const double      instinct_speed = 32, instinct_width = 16;
    static const char *const names[] = { "current_link_speed", "current_link_width", "max_link_speed",
                                         "max_link_width" };
    size_t                   n, read = 0, count = 0;
    tm_text                  slow = { 0 };
    const check_gpu         *gpus = check_gpus(c, &n);
    if (check_no_gpu(c, n)) return;
    for (size_t i = 0; i < n; i++) {
        double values[4];
        bool   all = true;
        for (int k = 0; k < 4; k++) { /* "32.0 GT/s PCIe", "16", "Unknown" */
            const char *text = check_line_in(c, gpus[i].folder, names[k]);
            values[k] = text ? strtod(text, NULL) : 0;
            if (!(values[k] > 0)) all = false;
        }
        if (!all) continue;
        read++;
        double speed = gpus[i].instinct ? instinct_speed : values[2];
        double width = gpus[i].instinct ? instinct_width : values[3];
        if (!(values[0] >= speed && values[1] >= width))
            check_list_add(&slow, &count, SHOWN, "%.20s %g GT/s x%g instead of %g GT/s x%g", gpus[i].address, values[0],
                           values[1], speed, width);
    }
    check_list_end(&slow, count, SHOWN);
    if (read == 0)
        check_say(c, TM_CHECK_SKIP, "no GPU shows its link (a virtual machine)");
    else if (count > 0)
        check_say(c, TM_CHECK_WARN, "%zu of %zu are slow: %s", count, read, slow.data);
    else
        check_say(c, TM_CHECK_PASS, "full speed on %zu", read);
    tm_text_fini(&slow);
}

/* --- in use ---------------------------------------------------------------------------------- */

/* A number per GPU; `limit` is the most that is good. `unit` is one of what is printed, in the file's units. */
static void limit_file(check *c, const char *file, double limit, bool may_equal, double unit, const char *unit_name,
                       tm_check_status otherwise)
{
    size_t           n, read = 0, count = 0;
    double           highest = 0;
    tm_text          above = { 0 };
    const check_gpu *gpus = check_gpus(c, &n);
    if (check_no_gpu(c, n)) return;
    for (size_t i = 0; i < n; i++) {
        int64_t value;
        if (!check_number(check_line_in(c, gpus[i].folder, file), &value)) continue;
        read++;
        double amount = (double)value / unit;
        highest = fmax(highest, amount);
        if (may_equal ? amount > limit : amount >= limit)
            check_list_add(&above, &count, SHOWN, "%.20s %.3g %s", gpus[i].address, amount, unit_name);
    }
    check_list_end(&above, count, SHOWN);
    if (read == 0)
        check_say(c, TM_CHECK_SKIP, "no driver shows %s (amdgpu does; NVIDIA: nvidia-smi)", file);
    else if (count > 0)
        check_say(c, otherwise, "%zu of %zu are in use: %s", count, read, above.data);
    else
        check_say(c, TM_CHECK_PASS, "at most %.3g %s on %zu", highest, unit_name, read);
    tm_text_fini(&above);
}

void check_gpu_busy(check *c)
{
    check_expect(c, "at most %g %% (--gpu-activity-warn-pct)", c->options->gpu_activity_warn_pct);
    limit_file(c, "gpu_busy_percent", c->options->gpu_activity_warn_pct, true, 1, "%", TM_CHECK_WARN);
}

void check_gpu_mem(check *c)
{
    static const double gib = 1073741824;
    check_expect(c, "below %g GiB (--hbm-busy-threshold-gib)", c->options->hbm_busy_threshold_gib);
    limit_file(c, "mem_info_vram_used", c->options->hbm_busy_threshold_gib, false, gib, "GiB", TM_CHECK_FAIL);
}

/* --- errors ---------------------------------------------------------------------------------- */

/* Files ras/<block>_err_count: "ue: 0\nce: 12\n". */
void check_ecc(check *c)
{
    size_t           n, read = 0, count = 0;
    int64_t          corrected = 0;
    tm_text          bad = { 0 };
    const check_gpu *gpus = check_gpus(c, &n);
    if (check_no_gpu(c, n)) return;
    for (size_t i = 0; i < n; i++) {
        size_t       m;
        const char  *folder = check_path(c, "%s/ras", gpus[i].folder);
        const char **files = check_list(c, folder, "", false, &m);
        for (size_t k = 0; k < m; k++) {
            size_t length = strlen(files[k]), suffix = strlen("_err_count");
            if (length <= suffix || strcmp(files[k] + length - suffix, "_err_count") != 0) continue;
            const char *text = check_content(c, check_path(c, "%s/%s", folder, files[k]));
            int64_t     ue = text ? check_field(text, "ue") : -1, ce = text ? check_field(text, "ce") : -1;
            if (ue < 0) continue;
            read++;
            if (ce > 0 && ce < INT64_MAX / 1024) corrected += ce;
            if (ue > 0)
                check_list_add(&bad, &count, SHOWN, "%.20s %.*s %lld", gpus[i].address, (int)(length - suffix),
                               files[k], (long long)ue);
        }
    }
    check_list_end(&bad, count, SHOWN);
    if (read == 0)
        check_say(c, TM_CHECK_SKIP,
                  "no driver shows ras/*_err_count (amdgpu with ECC does; NVIDIA: nvidia-smi -q -d ECC)");
    else if (count > 0)
        check_say(c, TM_CHECK_FAIL, "uncorrectable: %s", bad.data);
    else
        check_say(c, TM_CHECK_PASS, "0 uncorrectable, %lld corrected", (long long)corrected);
    tm_text_fini(&bad);
}

/* --- versions -------------------------------------------------------------------------------- */

static void add_once(check *c, tm_text *list, const char *name, const char *value)
{
    const char *pair = value && *value ? check_path(c, "%s %.100s", name, value) : NULL;
    if (!pair || (list->data && strstr(list->data, pair))) return;
    if (list->length) tm_text_add(list, ", ");
    tm_text_add(list, pair);
}

void check_versions(check *c)
{
    static const char        infiniband[] = "/sys/class/infiniband";
    static const char *const firmware[] = { "vbios_version", "fw_version/mec_fw_version", "fw_version/smc_fw_version",
                                            "fw_version/sos_fw_version" };
    size_t                   n, m;
    tm_text                  list = { 0 };
    const check_gpu         *gpus = check_gpus(c, &n);
    const char             **nics = check_list(c, infiniband, "", false, &m);
    add_once(c, &list, "amdgpu", check_line(c, "/sys/module/amdgpu/version"));
    add_once(c, &list, "nvidia", check_line(c, "/proc/driver/nvidia/version"));
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < sizeof firmware / sizeof firmware[0]; k++) {
            const char *slash = strchr(firmware[k], '/');
            add_once(c, &list, slash ? slash + 1 : firmware[k], check_line_in(c, gpus[i].folder, firmware[k]));
        }
    for (size_t i = 0; i < m; i++)
        add_once(c, &list, "NIC firmware", check_line(c, check_path(c, "%s/%s/fw_ver", infiniband, nics[i])));
    if (list.length)
        check_say(c, TM_CHECK_INFO, "%s", list.data);
    else
        check_say(c, TM_CHECK_SKIP, "no driver of a GPU or NIC shows a version");
    tm_text_fini(&list);
}
