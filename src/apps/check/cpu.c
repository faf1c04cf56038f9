/* SPDX-License-Identifier: Apache-2.0 */
/* apps/check/cpu.c - processors: clocks, sleep, threads of a core, what the control group leaves. */
#include "base/cpu.h"
#include "base/root.h"
#include "apps/check/context.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char cpus[] = "/sys/devices/system/cpu";

void check_governor(check *c)
{
    size_t       n, read = 0, count = 0;
    tm_text      other = { 0 };
    const char **names = check_list(c, cpus, "cpu", true, &n);
    for (size_t i = 0; i < n; i++) {
        const char *governor = check_line(c, check_path(c, "%s/%s/cpufreq/scaling_governor", cpus, names[i]));
        if (!governor) continue;
        read++;
        if (strcmp(governor, "performance") != 0) check_list_add(&other, &count, 4, "%s %.40s", names[i], governor);
    }
    check_list_end(&other, count, 4);
    if (read == 0)
        check_say(c, TM_CHECK_SKIP, "the system shows no cpufreq (a virtual machine, or the firmware controls it)");
    else if (count == 0)
        check_say(c, TM_CHECK_PASS, "performance on all %zu", read);
    else
        check_say(c, TM_CHECK_WARN, "%zu of %zu are not: %s", count, read, other.data);
    tm_text_fini(&other);
}

/* Limits that differ between processors are a fault, one that all have may be wanted. */
void check_frequency(check *c)
{
    size_t       n, read = 0, count = 0;
    double       least = (double)INFINITY, most = 0;
    tm_text      limited = { 0 };
    const char **names = check_list(c, cpus, "cpu", true, &n);
    for (size_t i = 0; i < n; i++) {
        int64_t     may, can;
        const char *folder = check_path(c, "%s/%s/cpufreq", cpus, names[i]);
        if (!check_number(check_line_in(c, folder, "scaling_max_freq"), &may) ||
            !check_number(check_line_in(c, folder, "cpuinfo_max_freq"), &can) || can <= 0)
            continue;
        double part = (double)may / (double)can;
        read++;
        least = fmin(least, part), most = fmax(most, part);
        if (part < 0.99)
            check_list_add(&limited, &count, 4, "%s %.2f of %.2f GHz", names[i], (double)may * 1e-6,
                           (double)can * 1e-6);
    }
    check_list_end(&limited, count, 4);
    if (read == 0)
        check_say(c, TM_CHECK_SKIP, "the system shows no cpufreq (a virtual machine, or the firmware controls it)");
    else if (count == 0)
        check_say(c, TM_CHECK_PASS, "no limit on all %zu", read);
    else
        check_say(c, most - least > 0.01 ? TM_CHECK_FAIL : TM_CHECK_WARN, "%zu of %zu are limited: %s", count, read,
                  limited.data);
    tm_text_fini(&limited);
}

/* "C2", "C6", "C10" - not "POLL", "C1", "C1E". */
static bool is_deep(const char *name)
{
    return name[0] == 'C' && isdigit((unsigned char)name[1]) && strtol(name + 1, NULL, 10) >= 2;
}

void check_cstate(check *c)
{
    size_t       n, states = 0, enabled = 0, read = 0;
    const char **names = check_list(c, cpus, "cpu", true, &n), *first = NULL;
    for (size_t i = 0; i < n; i++) {
        size_t       m;
        const char  *folder = check_path(c, "%s/%s/cpuidle", cpus, names[i]);
        const char **idle = check_list(c, folder, "state", true, &m);
        for (size_t k = 0; k < m; k++) {
            int64_t     off = 0;
            const char *state = check_path(c, "%s/%s", folder, idle[k]), *name = check_line_in(c, state, "name");
            if (!name) continue;
            read++;
            if (!is_deep(name)) continue;
            states++;
            if (check_number(check_line_in(c, state, "disable"), &off) && off != 0) continue;
            if (!first) first = check_path(c, "%.40s of %s", name, names[i]);
            enabled++;
        }
    }
    if (read == 0)
        check_say(c, TM_CHECK_SKIP,
                  "the system shows no cpuidle states (a virtual machine, or the firmware controls them)");
    else if (enabled == 0)
        check_say(c, TM_CHECK_PASS, states ? "all disabled" : "there is no C2 or deeper");
    else
        check_say(c, TM_CHECK_INFO, "%zu of %zu deep states are enabled, %s for one", enabled, states, first);
}

/* Without an IOMMU interrupts reach 255 processors only: the kernel leaves the others off. */
void check_iommu_smt(check *c)
{
    size_t      iommus;
    const char *online = check_line_in(c, cpus, "online"), *present = check_line_in(c, cpus, "present");
    int64_t     n_online = online ? check_count_cpus(online) : -1, n_present = present ? check_count_cpus(present) : -1;
    if (n_online < 0) {
        check_say(c, TM_CHECK_SKIP, "%s/online cannot be read", cpus);
        return;
    }
    check_list(c, "/sys/class/iommu", "", false, &iommus);
    bool limited = iommus == 0 && (n_online == 255 || (n_present > 255 && n_online < 255));
    check_say(c, limited ? TM_CHECK_FAIL : TM_CHECK_PASS, "%lld processors online, %lld present, IOMMU %s",
              (long long)n_online, (long long)n_present, iommus ? "on" : "off or not shown");
}

void check_cgroup_quota(check *c)
{
    const char *online = check_line_in(c, cpus, "online");
    int64_t     n = online ? check_count_cpus(online) : -1;
    if (n < 0 || !tm_root_exists(c->sysroot, "/proc/self/cgroup")) {
        check_say(c, TM_CHECK_SKIP,
                  n < 0 ? "the processors that are online cannot be read" : "/proc/self/cgroup is not there");
        return;
    }
    double quota = tm_cgroup_limits_read(c->sysroot).cpus;
    if (!isfinite(quota))
        check_say(c, TM_CHECK_PASS, "no quota");
    else
        check_say(c, quota >= (double)n ? TM_CHECK_PASS : TM_CHECK_WARN,
                  "%g processors' time of %lld: threads are stopped when it is used up", quota, (long long)n);
}
