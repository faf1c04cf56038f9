/* SPDX-License-Identifier: Apache-2.0 */
/* apps/check/state.c - how amdgpu has set up the GPUs, and in which state they are: partitions, clocks, power,
 * temperature, retired memory, firmware. NVIDIA's driver has no such files. */
#include "apps/check/context.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 4 };

/* --- a text per GPU -------------------------------------------------------------------------- */

/* The content of a file of every GPU that has it. Of each kind of content one is shown with how many have it. */
typedef struct {
    size_t      read;
    const char *kinds[16];
    size_t      counts[16], n; /* further kinds are counted as the last */
    const char *odd;           /* address of the first GPU that is not of the kind of the first */
} contents;

static contents read_all(check *c, const char *file)
{
    enum { MOST = 16 };
    size_t           n;
    contents         all = { 0 };
    const check_gpu *gpus = check_gpus(c, &n);
    for (size_t i = 0; i < n; i++) {
        const char *text = check_line_in(c, gpus[i].folder, file);
        size_t      k = 0;
        if (!text || !*text) continue;
        all.read++;
        while (k < all.n && strcmp(all.kinds[k], text) != 0) k++;
        if (k == all.n && all.n < MOST) all.kinds[all.n++] = text;
        if (k == MOST) k--;
        all.counts[k]++;
        if (k > 0 && !all.odd) all.odd = gpus[i].address;
    }
    return all;
}

/* "7 x SPX, 1 x DPX" */
static const char *counted(check *c, const contents *all)
{
    tm_text list = { 0 };
    size_t  count = 0;
    for (size_t k = 0; k < all->n; k++)
        check_list_add(&list, &count, SHOWN, "%zu x %.60s", all->counts[k], all->kinds[k]);
    check_list_end(&list, count, SHOWN);
    const char *text = check_path(c, "%s", list.data ? list.data : "");
    tm_text_fini(&list);
    return text;
}

/* --- partitions ------------------------------------------------------------------------------ */

/* Documentation of amdgpu, "GPU partitioning": current_compute_partition has SPX, DPX, TPX, QPX or CPX,
 * current_memory_partition NPS1, NPS2, NPS4 or NPS8. */
void check_partition(check *c)
{
    check_kfd_gpu    kfd[CHECK_KFD_GPUS];
    size_t           n;
    const check_gpu *gpus = check_gpus(c, &n);
    if (check_no_gpu(c, n)) return;
    contents compute = read_all(c, "current_compute_partition"), memory = read_all(c, "current_memory_partition");
    if (compute.read == 0 && memory.read == 0) {
        check_say(c, TM_CHECK_SKIP, "no driver shows current_compute_partition (amdgpu of MI300 and later does)");
        return;
    }
    bool whole = (compute.read == 0 || strcmp(compute.kinds[0], "SPX") == 0) &&
                 (memory.read == 0 || strcmp(memory.kinds[0], "NPS1") == 0);
    const char *state = check_path(c, "%s; %s; %zu devices of %zu GPUs", counted(c, &compute), counted(c, &memory),
                                   check_kfd_gpus(c, kfd), check_gpus_of(gpus, n, CHECK_AMD));
    if (compute.n > 1 || memory.n > 1)
        check_say(c, TM_CHECK_FAIL, "not alike: %s; %s differs", state, compute.odd ? compute.odd : memory.odd);
    else
        check_say(c, whole ? TM_CHECK_PASS : TM_CHECK_WARN, "%s", state);
}

/* --- clocks ---------------------------------------------------------------------------------- */

/* The number behind the colon of a line "1: 2100Mhz *". */
static double line_mhz(const char *line, const char *end)
{
    const char *colon = memchr(line, ':', (size_t)(end - line));
    return colon ? strtod(colon + 1, NULL) : 0;
}

/* pp_dpm_sclk: a line per level; the star is now. */
static void read_clock(const char *text, double *now, double *highest)
{
    *now = *highest = 0;
    for (const char *line = text; *line;) {
        const char *end = strchr(line, '\n');
        if (!end) end = line + strlen(line);
        double mhz = line_mhz(line, end);
        *highest = fmax(*highest, mhz);
        if (mhz > 0 && memchr(line, '*', (size_t)(end - line))) *now = mhz;
        line = *end ? end + 1 : end;
    }
}

void check_gpu_clocks(check *c)
{
    size_t           n, count = 0;
    double           least = (double)INFINITY, most = 0;
    tm_text          list = { 0 };
    const check_gpu *gpus = check_gpus(c, &n);
    if (check_no_gpu(c, n)) return;
    for (size_t i = 0; i < n; i++) {
        const char *text = check_content(c, check_path(c, "%s/pp_dpm_sclk", gpus[i].folder));
        double      now = 0, highest = 0;
        if (text) read_clock(text, &now, &highest);
        if (!(highest > 0)) continue;
        least = fmin(least, highest);
        most = fmax(most, highest);
        check_list_add(&list, &count, SHOWN, "%.20s %g of %g MHz", gpus[i].address, now, highest);
    }
    check_list_end(&list, count, SHOWN);
    if (count == 0)
        check_say(c, TM_CHECK_SKIP, "no driver shows pp_dpm_sclk (amdgpu does; NVIDIA: nvidia-smi -q -d CLOCK)");
    else if (least < most)
        check_say(c, TM_CHECK_WARN, "the highest clock is %g to %g MHz: %s", least, most, list.data);
    else
        check_say(c, TM_CHECK_INFO, "%s", list.data);
    tm_text_fini(&list);
}

/* amdgpu, "power_dpm_force_performance_level": auto, low, high, manual, profile_*, perf_determinism. The last is what
 * AMD recommends for even clocks, high and profile_peak are the highest clocks. */
void check_gpu_level(check *c)
{
    static const char *const fine[] = { "auto", "high", "perf_determinism", "profile_peak" };
    size_t                   n, slow = 0;
    check_gpus(c, &n);
    if (check_no_gpu(c, n)) return;
    contents all = read_all(c, "power_dpm_force_performance_level");
    for (size_t k = 0; k < all.n; k++) {
        bool found = false;
        for (size_t i = 0; i < sizeof fine / sizeof fine[0]; i++) found = found || strcmp(all.kinds[k], fine[i]) == 0;
        if (!found) slow += all.counts[k];
    }
    if (all.read == 0)
        check_say(c, TM_CHECK_SKIP, "no driver shows power_dpm_force_performance_level (amdgpu does)");
    else
        check_say(c, slow > 0 || all.n > 1 ? TM_CHECK_WARN : TM_CHECK_PASS, "%s", counted(c, &all));
}

/* --- power and temperature ------------------------------------------------------------------- */

/* Calls `look` with each hwmon folder of a GPU. */
typedef void (*look_at)(check *c, const check_gpu *gpu, const char *folder, void *data);

static void each_monitor(check *c, look_at look, void *data)
{
    size_t           n, m;
    const check_gpu *gpus = check_gpus(c, &n);
    for (size_t i = 0; i < n; i++) {
        const char  *folder = check_path(c, "%s/hwmon", gpus[i].folder);
        const char **monitors = check_list(c, folder, "hwmon", true, &m);
        for (size_t k = 0; k < m; k++) look(c, &gpus[i], check_path(c, "%s/%s", folder, monitors[k]), data);
    }
}

/* What was found about limits: how many were read, and those that are outside. */
typedef struct {
    size_t  read, count;
    double  highest;
    tm_text list;
} limits;

/* amdgpu, hwmon: power1_cap, power1_cap_default and power1_cap_max in microwatts. A driver that lets more be drawn than
 * the board is made for has a higher maximum than default. */
static void look_at_power(check *c, const check_gpu *gpu, const char *folder, void *data)
{
    limits *l = data;
    int64_t cap, most;
    if (!check_number(check_line_in(c, folder, "power1_cap"), &cap)) return;
    if (!check_number(check_line_in(c, folder, "power1_cap_default"), &most) &&
        !check_number(check_line_in(c, folder, "power1_cap_max"), &most))
        return;
    l->read++;
    if (cap < most)
        check_list_add(&l->list, &l->count, SHOWN, "%.20s %g of %g W", gpu->address, (double)cap * 1e-6,
                       (double)most * 1e-6);
}

void check_gpu_power(check *c)
{
    size_t n;
    limits l = { 0 };
    check_gpus(c, &n);
    if (check_no_gpu(c, n)) return;
    each_monitor(c, look_at_power, &l);
    check_list_end(&l.list, l.count, SHOWN);
    if (l.read == 0)
        check_say(c, TM_CHECK_SKIP, "no driver shows power1_cap (amdgpu does; NVIDIA: nvidia-smi -q -d POWER)");
    else if (l.count > 0)
        check_say(c, TM_CHECK_WARN, "capped: %s", l.list.data);
    else
        check_say(c, TM_CHECK_PASS, "the board's limit on %zu", l.read);
    tm_text_fini(&l.list);
}

/* amdgpu, hwmon: tempN_label is edge, junction or mem; tempN_input and tempN_crit are thousandths of a degree. */
static void look_at_heat(check *c, const check_gpu *gpu, const char *folder, void *data)
{
    enum { SENSORS = 3, CRITICAL = 100000, NEAR = 10000 };
    limits *l = data;
    for (int i = 1; i <= SENSORS; i++) {
        int64_t     now, critical;
        const char *label = check_line_in(c, folder, check_path(c, "temp%d_label", i));
        if (!check_number(check_line_in(c, folder, check_path(c, "temp%d_input", i)), &now)) continue;
        if (!check_number(check_line_in(c, folder, check_path(c, "temp%d_crit", i)), &critical)) critical = CRITICAL;
        l->read++;
        l->highest = fmax(l->highest, (double)now * 1e-3);
        if (now > critical - NEAR)
            check_list_add(&l->list, &l->count, SHOWN, "%.20s %.20s %g of %g C", gpu->address, label ? label : "?",
                           (double)now * 1e-3, (double)critical * 1e-3);
    }
}

void check_gpu_temp(check *c)
{
    size_t n;
    limits l = { 0 };
    check_gpus(c, &n);
    if (check_no_gpu(c, n)) return;
    each_monitor(c, look_at_heat, &l);
    check_list_end(&l.list, l.count, SHOWN);
    if (l.read == 0)
        check_say(c, TM_CHECK_SKIP, "no driver shows temp*_input (amdgpu does; NVIDIA: nvidia-smi -q -d TEMPERATURE)");
    else if (l.count > 0)
        check_say(c, TM_CHECK_WARN, "hot: %s", l.list.data);
    else
        check_say(c, TM_CHECK_PASS, "at most %g C on %zu sensors", l.highest, l.read);
    tm_text_fini(&l.list);
}

/* --- retired memory -------------------------------------------------------------------------- */

/* amdgpu, ras/gpu_vram_bad_pages: a line "0x027f5d43 : 0x00001000 : R" per page. R: retired. P: pending until the
 * driver is loaded again. F: cannot be retired. */
void check_bad_pages(check *c)
{
    size_t           n, read = 0, retired = 0, pending = 0, failed = 0, count = 0;
    tm_text          list = { 0 };
    const check_gpu *gpus = check_gpus(c, &n);
    if (check_no_gpu(c, n)) return;
    for (size_t i = 0; i < n; i++) {
        size_t      r = 0, p = 0, f = 0;
        const char *text = check_content(c, check_path(c, "%s/ras/gpu_vram_bad_pages", gpus[i].folder));
        if (!text) continue;
        read++;
        for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
            size_t length = strcspn(line, "\n");
            while (length > 0 && line[length - 1] == ' ') length--;
            char flag = length > 1 && strncmp(line, "0x", 2) == 0 ? line[length - 1] : '\0';
            r += flag == 'R';
            p += flag == 'P';
            f += flag == 'F';
        }
        retired += r;
        pending += p;
        failed += f;
        if (r + p + f > 0)
            check_list_add(&list, &count, SHOWN, "%.20s %zu retired, %zu pending, %zu not retired", gpus[i].address, r,
                           p, f);
    }
    check_list_end(&list, count, SHOWN);
    if (read == 0)
        check_say(c, TM_CHECK_SKIP,
                  "no driver shows ras/gpu_vram_bad_pages (amdgpu with ECC does; NVIDIA: nvidia-smi -q "
                  "-d PAGE_RETIREMENT,ROW_REMAPPER)");
    else if (failed > 0)
        check_say(c, TM_CHECK_FAIL, "%s", list.data);
    else if (pending > 0)
        check_say(c, TM_CHECK_WARN, "%s", list.data);
    else
        check_say(c, retired > 0 ? TM_CHECK_INFO : TM_CHECK_PASS, "%s", retired > 0 ? list.data : "none");
    tm_text_fini(&list);
}

/* --- firmware -------------------------------------------------------------------------------- */

void check_firmware(check *c)
{
    static const char *const names[] = { "vbios_version",
                                         "fw_version/mec_fw_version",
                                         "fw_version/smc_fw_version",
                                         "fw_version/sos_fw_version",
                                         "fw_version/sdma_fw_version",
                                         "fw_version/rlc_fw_version",
                                         "fw_version/ta_ras_fw_version",
                                         "fw_version/ta_xgmi_fw_version" };
    size_t                   n, read = 0, count = 0;
    tm_text                  list = { 0 };
    check_gpus(c, &n);
    if (check_no_gpu(c, n)) return;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *slash = strrchr(names[i], '/');
        contents    all = read_all(c, names[i]);
        read += all.read > 0;
        if (all.n > 1)
            check_list_add(&list, &count, SHOWN, "%s %s (%s)", slash ? slash + 1 : names[i], counted(c, &all), all.odd);
    }
    check_list_end(&list, count, SHOWN);
    if (read == 0)
        check_say(c, TM_CHECK_SKIP,
                  "no driver shows vbios_version or fw_version/ (amdgpu does; NVIDIA: nvidia-smi -q)");
    else if (count > 0)
        check_say(c, TM_CHECK_WARN, "differs: %s", list.data);
    else
        check_say(c, TM_CHECK_PASS, "%zu of %zu kinds are read, the same on all GPUs", read,
                  sizeof names / sizeof names[0]);
    tm_text_fini(&list);
}
