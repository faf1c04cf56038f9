/* SPDX-License-Identifier: Apache-2.0 */
/* What is made of the kernel's files and of samples of a machine, every figure: tests/system/whole-watch.txt. */
#include "support/folder.h"
#include "support/whole.h"

#include "base/file.h"
#include "system/judge.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

/* --- parsers ------------------------------------------------------------------------------------------------------ */

static const char *const lists[] = { "0",    "0\n",  " \t3", "0-2,9", "7-7",      "8-15",   "4095", "4096", "4090-4096",
                                     "-1",   "1-",   "1-x",  "3-1",   "0,1,2,3",  "0,",     ",0",   "",     "x",
                                     "0-3x", "1 ,2", "0,,1", "0--1",  "15,16,17", "0-4095", "/",    ":",    "9:" };
static const char *const stats[] = {
    "",
    "cpu  1 2 3 4 5 6 7 8 9 10\n",
    "cpu  1 2 3 4 5 6 7 8\ncpu0 1 2 4 8 16 32 64 128 256 512\ncpu1 3 5 7 11 13 17 19 23 29\nintr 5\ncpu2 1 1 1 1 1 1 1 "
    "1\n",
    "cpu0 1 2 4 8 16 32 64 128",
    "cpu0 1 2 4 8 16 32 64\n",
    "cpu0 1 2 4 8 16 32 64 x\ncpu1 3 5 7 11 13 17 19 23\n",
    "cpu1 3 5 7 11 13 17 19 23\ncpu0 1 2 4\n",
    "cpu9 3 5 7 11 13 17 19 23\n",
    "cpux 3 5 7 11 13 17 19 23\ncpu7 100 200 300 400 500 600 700 800\n",
    "cpu8 100 200 300 400 500 600 700 800\ncpu4095 1 1 1 1 1 1 1 1\n",
    "xcpu0 1 2 4 8 16 32 64 128",
};
static const char *const groups[] = {
    "",
    "throttled_usec 2500000",
    "xthrottled_usec 1\nthrottled_usec 2\n",
    "throttled_usec x\nthrottled_usec 3\n",
    "throttled_usec2 5\n",
    "throttled_time 1500000000\n",
    "throttled_time 1500000000\nthrottled_usec 7\n",
    "throttled_usec:9\n",
    "throttled_usec -9\n",
};
static const char *const pressures[] = {
    "",
    "some avg10=0 total=6125339\n",
    "some total=x\n",
    "some avg10=0\nfull total=3\n",
    "some  total=5",
    "somex total=5",
    "full total=5\n",
    "some total=\n",
    "some total=9\nfull total=3\n",
    "some total=:\n",
    "some total=/\n",
};
static const char *const moves[] = {
    "",
    "se.nr_migrations : 17\n",
    "a\n\nse.nr_migrations\t:\t18",
    "se.nr_migrations:x\nse.nr_migrations:2\n",
    "se.nr_migrations_x : 4\n",
    "xse.nr_migrations : 4\n",
    "se.nr_migrations : 0\n",
    "se.nr_migrations : 9e3\n",
};

static void add_parsers(tm_text *out)
{
    uint8_t bits[SAMPLE_CPUS / 8], some[SAMPLE_CPUS / 8];
    for (size_t i = 0; i < COUNT(lists); i++) {
        bool good = sample_parse_cpus(lists[i], bits);
        tm_text_printf(out, "cpus '%s': %s", lists[i], good ? "" : "no");
        for (int cpu = 0, shown = 0; good && cpu < SAMPLE_CPUS && shown < 20; cpu++)
            if (bits[cpu / 8] >> cpu % 8 & 1) tm_text_printf(out, " %d", cpu), shown++;
        tm_text_add(out, "\n");
    }
    assert_true(sample_parse_cpus("0-1,7,4095", some));
    for (size_t i = 0; i < COUNT(stats); i++) {
        double busy = 1, iowait = 2, steal = 3;
        int    n = sample_parse_stat(stats[i], some, &busy, &iowait, &steal);
        tm_text_printf(out, "stat %zu: %d, %g %g %g\n", i, n, busy, iowait, steal);
    }
    for (size_t i = 0; i < COUNT(groups); i++)
        tm_text_printf(out, "throttled %zu: %.9g\n", i, sample_parse_throttled(groups[i]));
    for (size_t i = 0; i < COUNT(pressures); i++)
        tm_text_printf(out, "pressure %zu: %.9g\n", i, sample_parse_pressure(pressures[i]));
    for (size_t i = 0; i < COUNT(moves); i++)
        tm_text_printf(out, "moves %zu: %.9g\n", i, sample_parse_migrations(moves[i]));
}

/* --- a tree of files ---------------------------------------------------------------------------------------------- */

static void put(const char *root, const char *path, const char *content)
{
    char     full[900], folder[900];
    tm_error err = { 0 };
    snprintf(full, sizeof full, "%s%s", root, path);
    strcpy(folder, full);
    *strrchr(folder, '/') = '\0';
    if (tm_folder_make(folder, &err) != TM_OK) fail_msg("%s", err.text);
    FILE *file = fopen(full, "w");
    assert_true(file && fputs(content, file) >= 0 && fclose(file) == 0);
}

#define THROTTLE(cpu, what) "/sys/devices/system/cpu/cpu" #cpu "/thermal_throttle/" what "_throttle_count"
#define STAT                                                                                                           \
    "/proc/stat", "cpu  0 0 0 0 0 0 0 0\ncpu0 100 200 400 800 1600 3200 6400 12800\ncpu1 1 2 3 4 5 6 7 8\ncpu2 9 9 9 " \
                  "9 9 9 9 9\n"
#define GROUP "/sys/fs/cgroup"

static const char *const trees[][40] = {
    { "/proc/uptime", "12.34 5.6\n" },
    { STAT,
      "/proc/self/task/1/status",
      "Cpus_allowed_list:\t0-1\n",
      "/proc/pressure/cpu",
      "some total=1000000\n",
      "/proc/pressure/memory",
      "some total=2000000\n",
      "/proc/pressure/io",
      "some total=3000000\n",
      "/proc/self/sched",
      "se.nr_migrations : 12\n",
      "/proc/uptime",
      "99.25 1\n",
      THROTTLE(0, "core"),
      "1\n",
      THROTTLE(1, "core"),
      "20\n",
      THROTTLE(2, "core"),
      "300\n",
      THROTTLE(0, "package"),
      "4000\n",
      THROTTLE(1, "package"),
      "x\n" },
    { STAT, "/proc/self/task/1/status", "Cpus_allowed_list:\t2\n", "/proc/self/task/7/status",
      "x\nCpus_allowed_list:\t0\n", "/proc/self/cgroup", "0::/a/b\n", GROUP "/a/b/cpu.stat", "throttled_usec 1000000\n",
      GROUP "/a/cpu.stat", "throttled_usec 20000000\n", GROUP "/cpu.stat", "usage_usec 300000000\n" },
    { STAT, "/proc/self/task/1/status", "Cpus_allowed_list:\tx\n", "/proc/self/cgroup",
      "4:cpu,cpuacct:/a/\n1:cpuset:/b\n", GROUP "/cpu/a/cpu.stat", "throttled_time 1000000000\n", GROUP "/cpu/cpu.stat",
      "throttled_time 20000000000\n", GROUP "/cpuset/b/cpu.stat", "throttled_time 300000000000\n" },
    { STAT, "/proc/self/task/1/status", "Cpus_allowed_list:\t0,9\n", "/proc/self/cgroup",
      "3:cpuacct,cpu:/a\nnothing\n2:xcpu:/a\n1:cpux:/a", GROUP "/cpu/a/cpu.stat", "throttled_time 5000000000\n" },
    { "/proc/self/cgroup",
      "0::/1/2/3/4/5/6/7/8/9\n",
      GROUP "/cpu.stat",
      "throttled_usec 1000000\n",
      GROUP "/1/cpu.stat",
      "throttled_usec 2000000\n",
      GROUP "/1/2/3/4/5/6/7/8/9/cpu.stat",
      "throttled_usec 4000000\n",
      GROUP "/1/2/cpu.stat",
      "throttled_usec 8000000\n",
      GROUP "/1/2/3/cpu.stat",
      "throttled_usec 16000000\n",
      GROUP "/1/2/3/4/cpu.stat",
      "throttled_usec 32000000\n",
      GROUP "/1/2/3/4/5/cpu.stat",
      "throttled_usec 64000000\n",
      GROUP "/1/2/3/4/5/6/cpu.stat",
      "throttled_usec 128000000\n",
      GROUP "/1/2/3/4/5/6/7/cpu.stat",
      "throttled_usec 256000000\n",
      GROUP "/1/2/3/4/5/6/7/8/cpu.stat",
      "throttled_usec 512000000\n" },
    { STAT, "/proc/self/task/1/status", "Cpus_allowed_list:\t0-1\n", THROTTLE(0, "core"), "none\n", THROTTLE(1, "core"),
      ":\n", THROTTLE(1, "package"), "" },
    { STAT, "/proc/self/task/1/status", "Cpus_allowed_list:\t0,2\n", THROTTLE(0, "core"), "0\n", THROTTLE(1, "core"),
      "10\n", THROTTLE(2, "core"), "200\n", THROTTLE(2, "package"), "9\n", "/proc/self/cgroup",
      "0::a\n:\n5:cpu\n:cpu:/x\n::\n4:,cpu,:/a//\n", GROUP "/cpu/a/cpu.stat", "throttled_usec 1\n",
      GROUP "/cpu/x/cpu.stat", "throttled_usec 20\n", "/proc/self/task/.2/status", "Cpus_allowed_list:\t1\n" },
    { STAT, "/proc/self/task/5/comm", "x\n" }, /* a thread that has just ended */
    { STAT, "/proc/self/task/5/comm", "x\n", "/proc/self/task/6/status", "Cpus_allowed_list:\t1\n",
      "/proc/self/task/7/status", "Name:\tx\n" },
    { "/proc/stat", "cpu0 1 2 3 4 5 6 7 8\n", "/proc/self/task/1/status", "Cpus_allowed_list:\t0,1\n",
      THROTTLE(0, "core"), "3\n", THROTTLE(1, "core"), "40\n", "/proc/uptime", "\n", "/proc/self/sched", "",
      "/proc/pressure/cpu", "", "/proc/pressure/io", "full total=1\n" },
    { STAT, THROTTLE(1, "core"), "1\n", THROTTLE(2, "package"), "20\n", THROTTLE(3, "core"), "300\n",
      THROTTLE(5, "core"), "4000\n" }, /* of those that are shown */
};

static void add_trees(tm_text *out)
{
    for (size_t i = 0; i < COUNT(trees); i++)
        for (int ends = 0; ends < 2; ends++) {
            char   *root = test_tree_make();
            sampler s;
            sample  now;
            for (int k = 0; trees[i][k]; k += 2) put(root, trees[i][k], trees[i][k + 1]);
            sampler_open(&s, root);
            sampler_take(&s, ends, &now);
            tm_text_printf(out,
                           "tree %zu: %d processors, %d groups; busy %.9g, iowait %.9g, steal %.9g, throttled %.9g, ",
                           i, s.processors, s.n_groups, now.busy, now.iowait, now.steal, now.throttled);
            tm_text_printf(out, "moves %.9g, thermal %.9g, stalled %.9g %.9g %.9g, uptime %.9g\n", now.migrations,
                           now.thermal, now.stalled_cpu, now.stalled_memory, now.stalled_io, now.uptime);
            assert_true(now.at > 0 && now.own > 0 && now.spin_ns > 0 && now.minor_faults > 0);
            sampler_close(&s);
            test_tree_remove(root);
        }
}

/* --- samples ------------------------------------------------------------------------------------------------------ */

/* One every `gap` seconds; how much is unusual in them grows with `how`. */
static void fill(sample *s, int n, double gap, int how)
{
    const double none = (double)NAN;
    for (int i = 0; i < n; i++) {
        double at = 100 + gap * i, odd = (how & 1) ? 0.01 * i * i : 0;
        s[i] = (sample){ .at = at,
                         .raw = how & 2 ? none : at * (1 + 0.0003 * (how & 1)) + 7,
                         .wall = 1e6 + at + (how & 4 ? 0.02 * i : 0) + (how & 8 && i == n / 2 ? 3600 : 0),
                         .cycles = 1e9 * (at + (how & 16 ? odd : 0)),
                         .counter = how & 32 ? at * 1.001 : none,
                         .uptime = how & 64 ? none : at + 5 + (how & 128 ? 0.05 * i : 0.01 * (i % 2)),
                         .busy = 2 * at + odd + (how & 256 && i > n / 2 ? 3 : 0),
                         .iowait = 0.125 * i,
                         .steal = (how & 512 ? 0.3 : 0.001) * i,
                         .own = 1.5 * at,
                         .throttled = how & 1024 ? 0.5 * i : none,
                         .minor_faults = 7 * i,
                         .major_faults = how & 2048 ? 40 * i : i / 3,
                         .switches = 11 * i * i,
                         .migrations = 13 * i,
                         .thermal = none,
                         .stalled_cpu = 0.01 * i,
                         .stalled_memory = how & 4096 ? none : 0.02 * i,
                         .stalled_io = 0.03 * i,
                         .spin_ns = 8000 + (how & 8192 ? 700 * i : i % 3) };
    }
}

static void add_judged(tm_text *out)
{
    static const struct {
        int    n;
        double gap;
    } sizes[] = { { 2, 0.4999 }, { 2, 0.9999 }, { 2, 1 },       { 3, 0.5 },      { 4, 0.25 }, { 5, 0.25 },
                  { 11, 0.1 },   { 21, 0.05 },  { 21, 0.0625 }, { 21, 0.04999 }, { 8, 1.25 } };
    sample             s[32];
    tm_validity_report r;
    for (size_t k = 0; k < COUNT(sizes); k++)
        for (int bit = -1; bit < 14; bit++) {
            int how = bit < 0 ? 0 : 1 << bit | (bit % 3 == 0);
            fill(s, sizes[k].n, sizes[k].gap, how);
            judge_samples(s, sizes[k].n, 1 + how % 5, how & 4 ? 2 : how & 2 ? (double)NAN : 0, &r);
            tm_text_printf(out, "%d every %g, %d: %s: %s\n  %.6g s, %d samples, %d processors:", sizes[k].n,
                           sizes[k].gap, how, tm_verdict_name(r.verdict), r.reason, r.seconds, r.samples, r.processors);
            for (int f = 0; f < r.n_facts; f++) tm_text_printf(out, " %.6g", r.facts[f].value);
            tm_text_add(out, "\n");
        }
}

static void all_to_the_letter(void **state)
{
    tm_text out = { 0 };
    (void)state;
    add_parsers(&out);
    add_trees(&out);
    add_judged(&out);
    whole_is("tests/system/whole-watch.txt", &out);
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(all_to_the_letter) };

TM_TESTS(tests, NULL, NULL)
