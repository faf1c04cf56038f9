/* SPDX-License-Identifier: Apache-2.0 */
/* apps/check/kernel.c - settings of the kernel that cost speed or make it wander. */
#include "base/root.h"
#include "apps/check/context.h"

#include <errno.h>
#include <string.h>

/* A file that should hold 0. */
static void expect_zero(check *c, tm_check_status otherwise)
{
    int64_t     value;
    const char *text = check_line(c, c->row->source);
    if (!text) {
        check_skip_unreadable(c, c->row->source);
        return;
    }
    if (!check_number(text, &value))
        check_say(c, TM_CHECK_SKIP, "%s holds no number: '%.60s'", c->row->source, text);
    else
        check_say(c, value == 0 ? TM_CHECK_PASS : otherwise, "%lld", (long long)value);
}

void check_numa_balancing(check *c)
{
    expect_zero(c, TM_CHECK_WARN);
}

void check_nmi_watchdog(check *c)
{
    expect_zero(c, TM_CHECK_INFO);
}

void check_aslr(check *c)
{
    expect_zero(c, TM_CHECK_INFO);
}

void check_smt(check *c)
{
    expect_zero(c, TM_CHECK_INFO);
}

void check_cmdline(check *c)
{
    static const char *const wanted[][2] = {
        { "pci", "realloc=off" }, { "pci", "bfsort" }, { "iommu", "pt" }, { "numa_balancing", "disable" }
    };
    tm_text     missing = { 0 };
    size_t      n = 0;
    const char *line = check_line(c, "/proc/cmdline"), *info;
    if (!line) {
        check_skip_unreadable(c, "/proc/cmdline");
        return;
    }
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (!check_argument(line, wanted[i][0], wanted[i][1]))
            check_list_add(&missing, &n, 8, "%s=%s", wanted[i][0], wanted[i][1]);
    info = check_content(c, "/proc/cpuinfo");
    if (info && strstr(info, "GenuineIntel") && !check_argument(line, "intel_iommu", "on"))
        check_list_add(&missing, &n, 8, "intel_iommu=on");
    if (n == 0) {
        check_say(c, TM_CHECK_PASS, "all there");
    } else {
        check_remedy(c, "add %s to GRUB_CMDLINE_LINUX in /etc/default/grub, then: update-grub && reboot", missing.data);
        check_say(c, TM_CHECK_WARN, "missing: %s", missing.data);
    }
    tm_text_fini(&missing);
}

void check_thp(check *c)
{
    static const char folder[] = "/sys/kernel/mm/transparent_hugepage";
    const char       *names[] = { "enabled", "defrag" }, *values[2];
    bool              good = true;
    for (int i = 0; i < 2; i++) {
        const char *text = check_line_in(c, folder, names[i]);
        if (!text) {
            check_skip_unreadable(c, check_path(c, "%s/%s", folder, names[i]));
            return;
        }
        values[i] = check_choice(c, text);
        if (strcmp(values[i], "always") != 0 && strcmp(values[i], "madvise") != 0) good = false;
    }
    check_say(c, good ? TM_CHECK_PASS : TM_CHECK_INFO, "enabled %.40s, defrag %.40s", values[0], values[1]);
}

void check_clocksource(check *c)
{
    static const char *const good[] = { "tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter",
                                        "timebase" };
    const char              *text = check_line(c, c->row->source);
    if (!text) {
        check_skip_unreadable(c, c->row->source);
        return;
    }
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        if (strcmp(text, good[i]) != 0) continue;
        check_say(c, TM_CHECK_PASS, "%s", text);
        return;
    }
    check_say(c, TM_CHECK_WARN, "%.60s: reading the clock is slow", text);
}
