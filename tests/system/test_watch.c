/* SPDX-License-Identifier: Apache-2.0 */
/* What is made of the kernel's files and of samples of a machine: the figures that are in the files, facts by their
 * definitions, verdicts by the thresholds. */
#include "support/folder.h"

#include "base/file.h"
#include "system/judge.h"

#include "support/test.h"

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

static void is_number(const char *what, double value, double wanted)
{
    if (isnan(value) && isnan(wanted)) return;
    if (!(fabs(value - wanted) <= 1e-9 * fmax(1, fabs(wanted))))
        fail_msg("%s: %.12g, wanted %.12g", what, value, wanted);
}

/* Lists of processors, and those that are in them; NULL: it is not a list. */
TEST(lists_of_processors)
{
    static const char *const lists[][2] = {
        { "0", "0" },   { "0-2,9\n", "0 1 2 9" }, { " \t3", "3" }, { "4096", NULL }, { "4090-4096", NULL },
        { "-1", NULL }, { "3-1", NULL },          { "", NULL },    { "0,,1", NULL }, { "0-3x", "0 1 2 3" }
    };
    for (size_t i = 0; i < COUNT(lists); i++) {
        uint8_t bits[SAMPLE_CPUS / 8];
        tm_text found = { 0 };
        bool    good = sample_parse_cpus(lists[i][0], bits);
        for (int cpu = 0; good && cpu < SAMPLE_CPUS; cpu++)
            if (bits[cpu / 8] >> cpu % 8 & 1) tm_text_printf(&found, "%s%d", found.length ? " " : "", cpu);
        if (good != (lists[i][1] != NULL) || (good && strcmp(found.data, lists[i][1]) != 0))
            fail_msg("'%s': %s", lists[i][0], good ? found.data : "is not a list");
        tm_text_fini(&found);
    }
}

/* --- a tree of files ---------------------------------------------------------------------------------------------- */

#define THROTTLE(cpu, what) "/sys/devices/system/cpu/cpu" #cpu "/thermal_throttle/" what "_throttle_count"
#define STAT                                                                                                           \
    "/proc/stat", "cpu  0 0 0 0 0 0 0 0\ncpu0 100 200 400 800 1600 3200 6400 12800\ncpu1 1 2 3 4 5 6 7 8\ncpu2 9 9 9 " \
                  "9 9 9 9 9\n"
#define GROUP "/sys/fs/cgroup"

/* clang-format off */
static const char *const trees[][40] = {
    { "/proc/uptime", "12.34 5.6\n" },
    { STAT, "/proc/self/task/1/status", "Cpus_allowed_list:\t0-1\n", "/proc/pressure/cpu", "some total=1000000\n",
      "/proc/pressure/memory", "some total=2000000\n", "/proc/pressure/io", "some total=3000000\n",
      "/proc/self/sched", "se.nr_migrations : 12\n", "/proc/uptime", "99.25 1\n", THROTTLE(0, "core"), "1\n",
      THROTTLE(1, "core"), "20\n", THROTTLE(2, "core"), "300\n", THROTTLE(0, "package"), "4000\n",
      THROTTLE(1, "package"), "x\n" },
    { STAT, "/proc/self/task/1/status", "Cpus_allowed_list:\t2\n", "/proc/self/task/7/status",
      "x\nCpus_allowed_list:\t0\n", "/proc/self/cgroup", "0::/a/b\n", GROUP "/a/b/cpu.stat",
      "throttled_usec 1000000\n", GROUP "/a/cpu.stat", "throttled_usec 20000000\n", GROUP "/cpu.stat",
      "usage_usec 300000000\n" },
    { STAT, "/proc/self/task/1/status", "Cpus_allowed_list:\tx\n", "/proc/self/cgroup",
      "4:cpu,cpuacct:/a/\n1:cpuset:/b\n", GROUP "/cpu/a/cpu.stat", "throttled_time 1000000000\n",
      GROUP "/cpu/cpu.stat", "throttled_time 20000000000\n", GROUP "/cpuset/b/cpu.stat",
      "throttled_time 300000000000\n" },
    { "/proc/self/cgroup", "0::/1/2/3/4/5/6/7/8/9\n", GROUP "/cpu.stat", "throttled_usec 1000000\n",
      GROUP "/1/cpu.stat", "throttled_usec 2000000\n", GROUP "/1/2/3/4/5/6/7/8/9/cpu.stat",
      "throttled_usec 4000000\n", GROUP "/1/2/cpu.stat", "throttled_usec 8000000\n", GROUP "/1/2/3/cpu.stat",
      "throttled_usec 16000000\n", GROUP "/1/2/3/4/cpu.stat", "throttled_usec 32000000\n",
      GROUP "/1/2/3/4/5/cpu.stat", "throttled_usec 64000000\n", GROUP "/1/2/3/4/5/6/cpu.stat",
      "throttled_usec 128000000\n", GROUP "/1/2/3/4/5/6/7/cpu.stat", "throttled_usec 256000000\n",
      GROUP "/1/2/3/4/5/6/7/8/cpu.stat", "throttled_usec 512000000\n" },
    { STAT, "/proc/self/task/1/status", "Cpus_allowed_list:\t0,2\n", THROTTLE(0, "core"), "0\n", THROTTLE(1, "core"),
      "10\n", THROTTLE(2, "core"), "200\n", THROTTLE(2, "package"), "9\n", "/proc/self/cgroup",
      "0::a\n:\n5:cpu\n:cpu:/x\n::\n4:,cpu,:/a//\n", GROUP "/cpu/a/cpu.stat", "throttled_usec 1\n",
      GROUP "/cpu/x/cpu.stat", "throttled_usec 20\n", "/proc/self/task/.2/status", "Cpus_allowed_list:\t1\n" },
    { STAT, "/proc/self/task/5/comm", "x\n", "/proc/self/task/6/status", "Cpus_allowed_list:\t1\n",
      "/proc/self/task/7/status", "Name:\tx\n" },
    { "/proc/stat", "cpu0 1 2 3 4 5 6 7 8\n", "/proc/self/task/1/status", "Cpus_allowed_list:\t0,1\n",
      THROTTLE(0, "core"), "3\n", THROTTLE(1, "core"), "40\n", "/proc/uptime", "\n", "/proc/self/sched", "",
      "/proc/pressure/cpu", "", "/proc/pressure/io", "full total=1\n" },
    { STAT, THROTTLE(1, "core"), "1\n", THROTTLE(2, "package"), "20\n", THROTTLE(3, "core"), "300\n",
      THROTTLE(5, "core"), "4000\n" }, /* of those that are shown */
};
/* clang-format on */

/* What is in the trees: the processors of cpus (bits; -1: no processor is known), seconds of cgroups' throttling,
 * events. */
static const struct {
    int    cpus, groups;
    double throttled, moves, thermal, stalled_cpu, stalled_memory, stalled_io, uptime;
} found[COUNT(trees)] = {
    { -1, 0, NAN, NAN, NAN, NAN, NAN, NAN, 12.34 },
    { 3, 0, NAN, 12, 1 + 20 + 4000, 1, 2, 3, 99.25 },
    { 5, 3, 1 + 20, NAN, NAN, NAN, NAN, NAN, NAN }, /* of all threads; every group above, but the last has no line */
    { 7, 2, 1 + 20, NAN, NAN, NAN, NAN, NAN, NAN }, /* the list is not one: all; the group of cpu, not of cpuset */
    { -1, 8, 4 + 16 + 32 + 64 + 128 + 256 + 512 + 8, NAN, NAN, NAN, NAN, NAN, NAN }, /* eight at most, from below */
    { 5, 2, 1e-6 + 20e-6, NAN, 0 + 200 + 9, NAN, NAN, NAN, NAN },
    { 2, 0, NAN, NAN, NAN, NAN, NAN, NAN, NAN },
    { 8, 0, NAN, NAN, 3, NAN, NAN, NAN, 0 },
    { 7, 0, NAN, NAN, 1 + 20, NAN, NAN, NAN, NAN },
};

TEST(trees_are_sampled)
{
    /* Hundredths of seconds in STAT: busy, iowait and steal of its processors; the fourth is that of tree 10. */
    static const double each[4][3] = {
        { 103, 16, 128 }, { 0.19, 0.05, 0.08 }, { 0.45, 0.09, 0.09 }, { 0.19, 0.05, 0.08 }
    };
    for (size_t i = 0; i < COUNT(trees); i++)
        for (int ends = 0; ends < 2; ends++) {
            char   *root = test_tree_make();
            double  sums[3] = { 0 };
            int     processors = 0;
            sampler s;
            sample  now;
            for (int k = 0; trees[i][k]; k += 2) test_put(root, trees[i][k], trees[i][k + 1]);
            sampler_open(&s, root);
            sampler_take(&s, ends, &now);
            for (int cpu = 0; cpu < 4; cpu++)
                for (int k = 0; k < 3 && found[i].cpus > 0 && found[i].cpus >> cpu & 1; k++)
                    sums[k] += each[cpu][k], processors += k == 0;
            if (found[i].cpus < 0) sums[0] = sums[1] = sums[2] = (double)NAN;
            const double is[] = { s.processors,    s.n_groups,         now.busy,       now.iowait,
                                  now.steal,       now.throttled,      now.migrations, now.thermal,
                                  now.stalled_cpu, now.stalled_memory, now.stalled_io, now.uptime };
            /* Events of heat are read at both ends only. */
            const double wanted[] = { processors,
                                      found[i].groups,
                                      sums[0],
                                      sums[1],
                                      sums[2],
                                      found[i].throttled,
                                      found[i].moves,
                                      ends ? found[i].thermal : (double)NAN,
                                      found[i].stalled_cpu,
                                      found[i].stalled_memory,
                                      found[i].stalled_io,
                                      found[i].uptime };
            for (size_t k = 0; k < COUNT(is); k++) {
                char what[40];
                snprintf(what, sizeof what, "tree %zu, figure %zu", i, k);
                is_number(what, is[k], wanted[k]);
            }
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

/* Another way to the facts: every definition once more, over all pairs of samples. */
static double middle_of(const double *x, int n, double share)
{
    double sorted[32];
    for (int i = 0; i < n; i++) {
        int k = i;
        for (; k > 0 && sorted[k - 1] > x[i]; k--) sorted[k] = sorted[k - 1];
        sorted[k] = x[i];
    }
    double at = share * (n - 1), low = floor(at);
    return sorted[(int)low] + (at - low) * (sorted[(int)ceil(at)] - sorted[(int)low]);
}

static double others_of(const sample *a, const sample *b, int processors)
{
    return fmax(0, 100 * ((b->busy - b->own) - (a->busy - a->own)) / (processors * (b->at - a->at)));
}

/* The worst error of a clock: of those that are known. */
static double clocks_of(const sample *s, int n)
{
    const sample *a = &s[0], *b = &s[n - 1], *half = a;
    double        passed = b->at - a->at, worst = (double)NAN, ratios[32], one, two;
    int           stretches = 0;
    for (int i = n - 1; i > 0 && s[i].at >= (a->at + b->at) / 2; i--) half = &s[i]; /* the first of the second half */
    one = half->at - a->at, two = b->at - half->at;
    if (passed >= 1) {
        worst = fmax(worst, fabs(b->raw - a->raw - passed) / passed);
        worst = fmax(worst, fabs(b->counter - a->counter - passed) / passed);
        double off = fabs(b->uptime - a->uptime - passed);
        if (!isnan(off)) worst = fmax(worst, fmax(0, off - 0.02) / passed);
    }
    for (int i = 1; i < n; i++)
        if (s[i].at - s[i - 1].at >= 0.05) ratios[stretches++] = (s[i].wall - s[i - 1].wall) / (s[i].at - s[i - 1].at);
    if (stretches >= 3) worst = fmax(worst, fabs(middle_of(ratios, stretches, 0.5) - 1));
    if (one >= 0.25 && two >= 0.25)
        worst = fmax(worst, fabs((b->cycles - half->cycles) / two - (half->cycles - a->cycles) / one) /
                                ((b->cycles - a->cycles) / passed));
    return 100 * worst;
}

static void facts_by_definition(const sample *s, int n, int processors, double thermal, double wanted[TM_MACHINE_COUNT])
{
    const sample *a = &s[0], *b = &s[n - 1];
    double        t = b->at - a->at, spins[32], worst = (double)NAN;
    for (int i = 0; i < n; i++) {
        spins[i] = s[i].spin_ns;
        for (int k = i + 1; k < n; k++)
            if (s[k].at - s[i].at >= 1 && s[k - 1].at - s[i].at < 1)
                worst = fmax(worst, others_of(&s[i], &s[k], processors));
    }
    for (int i = 0; i < TM_MACHINE_COUNT; i++) wanted[i] = (double)NAN;
    wanted[TM_MACHINE_STEAL] = 100 * (b->steal - a->steal) / t / processors;
    wanted[TM_MACHINE_THROTTLED] = 100 * (b->throttled - a->throttled) / t / processors;
    wanted[TM_MACHINE_OTHER] = others_of(a, b, processors);
    wanted[TM_MACHINE_OTHER_WORST] = worst;
    if (n >= 3) wanted[TM_MACHINE_FREQUENCY] = 100 * (middle_of(spins, n, 0.95) / middle_of(spins, n, 0.05) - 1);
    wanted[TM_MACHINE_CLOCK] = clocks_of(s, n);
    wanted[TM_MACHINE_MAJOR] = (b->major_faults - a->major_faults) / t;
    wanted[TM_MACHINE_MINOR] = 7 * (n - 1) / t;
    wanted[TM_MACHINE_SWITCHES] = 11 * (n - 1) * (n - 1) / t;
    wanted[TM_MACHINE_MIGRATIONS] = 13 * (n - 1) / t;
    wanted[TM_MACHINE_THERMAL] = thermal;
    wanted[TM_MACHINE_IOWAIT] = 12.5 * (n - 1) / t / processors;
    wanted[TM_MACHINE_CPU_PRESSURE] = 1 * (n - 1) / t;
    wanted[TM_MACHINE_MEMORY_PRESSURE] = isnan(b->stalled_memory) ? (double)NAN : 2 * (n - 1) / t;
    wanted[TM_MACHINE_IO_PRESSURE] = 3 * (n - 1) / t;
}

/* The thresholds of docs/statistics.md: a value above one makes a run noisy, above the other invalid. */
static const struct {
    tm_machine_fact fact;
    double          noisy, invalid;
    const char     *words;
} thresholds[] = {
    { TM_MACHINE_STEAL, 1, 50, "hypervisor" },
    { TM_MACHINE_THROTTLED, 1, 50, "control group's quota" },
    { TM_MACHINE_OTHER, 5, 1e300, "other work" },
    { TM_MACHINE_FREQUENCY, 5, 1e300, "processor's clock changed" },
    { TM_MACHINE_CLOCK, 0.1, 1, "clocks disagree" },
    { TM_MACHINE_MAJOR, 100, 1e300, "came from disk" },
    { TM_MACHINE_MINOR, 10000, 1e300, "page faults" },
    { TM_MACHINE_MIGRATIONS, 10, 1e300, "main thread moved" },
    { TM_MACHINE_THERMAL, 0, 1e300, "thermal throttle" },
    { TM_MACHINE_MEMORY_PRESSURE, 1, 1e300, "waited for memory" },
};

/* The worst fact decides, and the reason names all that are as bad, with their figures, and no other. */
static void verdict_is_right(const tm_validity_report *r)
{
    tm_verdict worst = TM_VERDICT_VALID, one[COUNT(thresholds)];
    for (size_t i = 0; i < COUNT(thresholds); i++) {
        double value = r->facts[thresholds[i].fact].value;
        one[i] = value > thresholds[i].invalid ? TM_VERDICT_INVALID
                 : value > thresholds[i].noisy ? TM_VERDICT_NOISY
                                               : TM_VERDICT_VALID;
        if (one[i] == TM_VERDICT_INVALID || (one[i] == TM_VERDICT_NOISY && worst == TM_VERDICT_VALID)) worst = one[i];
    }
    if (r->seconds < 1) {
        assert_int_equal(r->verdict, TM_VERDICT_NOT_JUDGED);
        assert_non_null(strstr(r->reason, "too short to judge the machine by"));
        return;
    }
    assert_int_equal(r->verdict, worst);
    if (worst == TM_VERDICT_VALID) assert_string_equal(r->reason, "nothing disturbed the machine");
    for (size_t i = 0; i < COUNT(thresholds); i++) {
        const char *named = strstr(r->reason, thresholds[i].words);
        char        value[32];
        snprintf(value, sizeof value, thresholds[i].fact == TM_MACHINE_THERMAL ? "%.0f" : "%.3g",
                 r->facts[thresholds[i].fact].value);
        if ((named != NULL) != (worst != TM_VERDICT_VALID && one[i] == worst))
            fail_msg("'%s': %s", r->reason, thresholds[i].words);
        if (named && !strstr(r->reason, value)) fail_msg("'%s' has no %s", r->reason, value);
    }
}

TEST(samples_are_judged)
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
            int    how = bit < 0 ? 0 : 1 << bit | (bit % 3 == 0), n = sizes[k].n, processors = 1 + how % 5;
            double wanted[TM_MACHINE_COUNT], thermal = how & 4 ? 2 : how & 2 ? (double)NAN : 0;
            fill(s, n, sizes[k].gap, how);
            judge_samples(s, n, processors, thermal, &r);
            facts_by_definition(s, n, processors, thermal, wanted);
            is_number("seconds", r.seconds, s[n - 1].at - s[0].at);
            assert_int_equal(r.samples, n);
            assert_int_equal(r.processors, processors);
            assert_int_equal(r.n_facts, TM_MACHINE_GPU);
            for (int f = 0; f < r.n_facts; f++) {
                char what[80];
                snprintf(what, sizeof what, "%d every %g, %d: %s", n, sizes[k].gap, how, r.facts[f].name);
                is_number(what, r.facts[f].value, wanted[f]);
            }
            verdict_is_right(&r);
        }
}
