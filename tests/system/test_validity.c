/* SPDX-License-Identifier: Apache-2.0 */
/* What the samples of a machine say: every row of the list on both sides of its thresholds, a GPU, what cannot be
 * read, and files that change under a running measurement. */
#include "support/fake_clock.h"
#include "support/test.h"

#include "base/clock.h"
#include "base/file.h"
#include "system/judge.h"
#include "support/folder.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <time.h>

static const double none = (double)NAN;

static void near(double value, double wanted)
{
    if (!(fabs(value - wanted) <= 1e-9 * (1 + fabs(wanted)))) fail_msg("%.12g is not %.12g", value, wanted);
}

/* --- the verdict -------------------------------------------------------------------------------------------------- */

enum { SAMPLES = 5, SECONDS = 10, PROCESSORS = 4 };

/* Ten calm seconds on four processors, of which this process used all. */
static void calm(sample s[SAMPLES])
{
    for (int i = 0; i < SAMPLES; i++) {
        double t = SECONDS * (double)i / (SAMPLES - 1);
        s[i] = (sample){ .at = 100 + t,
                         .raw = 50 + t,
                         .wall = 1.7e9 + t,
                         .cycles = 2e9 * t,
                         .counter = 7 + t,
                         .uptime = 90 + t,
                         .busy = 7 + PROCESSORS * t,
                         .own = 2 + PROCESSORS * t,
                         .iowait = 1,
                         .steal = 3,
                         .throttled = 4,
                         .minor_faults = 500,
                         .major_faults = 6,
                         .switches = 7,
                         .migrations = 8,
                         .thermal = 0,
                         .stalled_cpu = 1,
                         .stalled_memory = 1,
                         .stalled_io = 1,
                         .spin_ns = 8000 };
    }
}

static tm_validity_report judged(const sample s[SAMPLES], double thermal)
{
    tm_validity_report r;
    judge_samples(s, SAMPLES, PROCESSORS, thermal, &r);
    return r;
}

/* A GPU under full load: its power cap lowers the clock, which says nothing against the machine; heat does. */
TEST(a_gpu)
{
    static const struct {
        double     heat;
        tm_verdict verdict;
    } rows[] = { { 0, TM_VERDICT_VALID },
                 { 0.99, TM_VERDICT_VALID },
                 { 1.01, TM_VERDICT_NOISY },
                 { 49.9, TM_VERDICT_NOISY },
                 { 50.1, TM_VERDICT_INVALID } };
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        sample s[SAMPLES];
        calm(s);
        double sum = 0, hottest = 0;
        for (int i = 0; i < SAMPLES; i++) {
            s[i].gpu_clock = 1500 + 10 * i;
            s[i].gpu_power = i == 2 ? (double)NAN : i % 2 ? 700 : 600; /* not read once */
            s[i].gpu_temperature = i == 3 ? 83 : 70;
            s[i].gpu_time = 5000 + 100. * i / (SAMPLES - 1);
            s[i].gpu_capped = 30 + 75. * i / (SAMPLES - 1);
            s[i].gpu_heat = 20 + rows[k].heat * i / (SAMPLES - 1);
            sum += i == 2 ? 0 : s[i].gpu_power;
            hottest = fmax(hottest, s[i].gpu_temperature);
        }
        tm_validity_report r = judged(s, 0);
        near(r.facts[TM_MACHINE_GPU_CLOCK].value, 1500 + 5 * (SAMPLES - 1));
        near(r.facts[TM_MACHINE_GPU_POWER].value, sum / (SAMPLES - 1));
        near(r.facts[TM_MACHINE_GPU_TEMPERATURE].value, hottest);
        near(r.facts[TM_MACHINE_GPU_CAPPED].value, 75);
        near(r.facts[TM_MACHINE_GPU_HEAT].value, rows[k].heat);
        assert_int_equal(r.verdict, rows[k].verdict);
        assert_int_equal(strstr(r.reason, "heat held the GPU's clock down") != NULL,
                         rows[k].verdict != TM_VERDICT_VALID);
    }
}

/* The clock that runs off worst; the wall clock by the median of its stretches of 0.05 s and more, the processor's also
 * by its halves of 0.25 s and more. */
TEST(clocks_that_disagree)
{
    static const struct {
        double at[SAMPLES], wall[SAMPLES],
            cycles[SAMPLES]; /* seconds; of the wall clock and the cycles: what is more */
        double error;        /* percent */
    } rows[] = {
        { { 0, 2, 4, 6, 8 }, { 0 }, { 0 }, 0 },
        { { 0, 2, 4, 6, 8 }, { 0, 5, 5, 5, 5 }, { 0 }, 0 }, /* set once */
        { { 0, 1, 2, 3, 4 }, { 0, 0, 0.01, 0.04, 0.08 }, { 0 }, 2 },
        { { 0, 1, 1.04, 2, 3 }, { 0, 0.03, 0.03, 0.0588, 0.0888 }, { 0 }, 3 },
        { { 0, 1, 1.0625, 2, 3 }, { 0, 0.01, 0.01, 0.0475, 0.0875 }, { 0 }, 2.5 },
        { { 0, 1, 1.04, 1.08, 2 }, { 0, 0.03, 0.03, 0.03, 0.06 }, { 0 }, 0 }, /* two stretches */
        { { 0, 2, 4, 6, 8 }, { 0 }, { 0, 0, 0, 0.08, 0.16 }, 100 * 0.04 / 1.02 },
        { { 0, 1, 2, 3, 3.5 }, { 0 }, { 0, 0, 0, 0.02, 0.04 }, 100 * 0.02 / (3.54 / 3.5) * 4 / 3 },
        { { 0, 1, 2, 5.9, 6.1 }, { 0 }, { 0, 0, 0, 0, 0.1 }, 0 }, /* the second half is too short */
    };
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        sample s[SAMPLES];
        calm(s);
        for (int i = 0; i < SAMPLES; i++) {
            const double t = rows[k].at[i];
            s[i].at = 100 + t, s[i].raw = 50 + t, s[i].counter = 7 + t, s[i].uptime = 90 + t;
            s[i].wall = 1e6 + t + rows[k].wall[i], s[i].cycles = 2e9 * (t + rows[k].cycles[i]);
        }
        tm_validity_report r = judged(s, 0);
        if (!(fabs(r.facts[TM_MACHINE_CLOCK].value - rows[k].error) < 1e-6))
            fail_msg("row %zu: %.9g, wanted %.9g", k, r.facts[TM_MACHINE_CLOCK].value, rows[k].error);
    }
    for (int clock = 0; clock < 3; clock++) {
        sample s[SAMPLES];
        calm(s);
        double *const own[] = { &s[SAMPLES - 1].raw, &s[SAMPLES - 1].counter, &s[SAMPLES - 1].uptime };
        *own[clock] -= 0.4;
        near(judged(s, 0).facts[TM_MACHINE_CLOCK].value, clock < 2 ? 4 : 3.8); /* of the uptime 0.02 s are rounding */
    }
}

/* Of what is all unknown, of which processors are, or which is too short, there is no verdict. */
TEST(unknown_is_not_zero)
{
    sample s[SAMPLES];
    calm(s);
    for (int i = 0; i < SAMPLES; i++) {
        double *value = (double *)&s[i];
        for (size_t k = 1; k < sizeof s[i] / sizeof *value; k++) value[k] = none;
    }
    tm_validity_report r = judged(s, none);
    assert_int_equal(r.verdict, TM_VERDICT_NOT_JUDGED);
    for (int i = 0; i < TM_MACHINE_COUNT; i++) assert_true(isnan(r.facts[i].value));
    calm(s);
    judge_samples(s, SAMPLES, 0, 0, &r); /* how many processors there are is unknown */
    assert_true(isnan(r.facts[TM_MACHINE_STEAL].value) && isnan(r.facts[TM_MACHINE_OTHER].value));
    for (int i = 0; i < SAMPLES; i++) s[i].at = 100 + 0.24 * i;
    s[SAMPLES - 1].steal += 50;
    assert_int_equal(judged(s, 0).verdict, TM_VERDICT_NOT_JUDGED); /* 0.96 s */
}

/* docs/statistics.md has every fact. */
TEST(every_fact_is_documented)
{
    tm_text  page = { 0 };
    tm_error err = { 0 };
    sample   s[SAMPLES];
    assert_int_equal(tm_file_read("docs/statistics.md", 1 << 20, &page, &err), TM_OK);
    calm(s);
    tm_validity_report r = judged(s, 0);
    for (int i = 0; i < TM_MACHINE_COUNT; i++) {
        char quoted[128];
        snprintf(quoted, sizeof quoted, "`%s`", r.facts[i].name);
        if (!strstr(page.data, quoted)) fail_msg("%s is not in docs/statistics.md", quoted);
    }
    tm_text_fini(&page);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static char root[64];

static void put(const char *path, const char *text)
{
    test_put(root, path, text);
}

static int make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/tm_validity_XXXXXX");
    return mkdtemp(root) ? 0 : 1;
}

static int remove_root(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

static void wait_ms(long ms)
{
    nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000 }, NULL);
}

TEST_WITH(files_under_a_measurement, make_root, remove_root)
{
    put("proc/self/task/1/status", "Name:\tx\nCpus_allowed_list:\t0\n");
    put("proc/self/task/2/status", "Name:\tx\nCpus_allowed_list:\t2\n");
    put("proc/self/cgroup", "5:cpu,cpuacct:/jobs/one\n0::/\n");
    put("proc/stat", "cpu 9 9 9 9 9 9 9 9\ncpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\ncpu2 0 0 0 0 0 0 0 100\n");
    put("proc/self/sched", "se.nr_migrations : 5\n");
    put("proc/pressure/memory", "some avg10=0 avg60=0 avg300=0 total=5000\n");
    put("sys/fs/cgroup/cpu/jobs/one/cpu.stat", "throttled_time 1000000000\n");
    put("sys/fs/cgroup/cpu/cpu.stat", "throttled_time 0\n");
    put("sys/devices/system/cpu/cpu2/thermal_throttle/core_throttle_count", "3\n");
    tm_validity *v = tm_validity_start(root);
    assert_int_equal(v->source.n_groups, 2);
    wait_ms(20);
    put("proc/stat", "cpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\ncpu2 0 0 0 0 0 0 0 200\n"); /* before from_ns */
    tm_validity_sample(v);
    int64_t from_ns = tm_now_ns() - 10000000;
    assert_int_equal(v->count, 2); /* the first call always takes one */
    tm_validity_sample(v);
    assert_int_equal(v->count, 2); /* the next is too early */
    wait_ms(1050);
    put("proc/stat", "cpu0 0 0 0 0 0 0 0 10\ncpu1 900 0 0 0 0 0 0 900\ncpu2 0 0 0 0 0 0 0 210\n");
    put("proc/self/sched", "se.nr_migrations : 105\n");
    put("proc/pressure/memory", "some avg10=0 avg60=0 avg300=0 total=55000\n");
    put("sys/fs/cgroup/cpu/jobs/one/cpu.stat", "throttled_time 1300000000\n");
    put("sys/devices/system/cpu/cpu2/thermal_throttle/core_throttle_count", "4\n");
    tm_validity_report r;
    tm_validity_stop(v, from_ns, &r);
    tm_validity_destroy(v);
    assert_int_equal(r.processors, 2);
    assert_int_equal(r.samples, 2);
    assert_true(r.seconds > 1.04);
    near(r.facts[TM_MACHINE_STEAL].value, 100 * 0.20 / 2 / r.seconds);
    near(r.facts[TM_MACHINE_THROTTLED].value, 100 * 0.3 / 2 / r.seconds);
    near(r.facts[TM_MACHINE_MIGRATIONS].value, 100 / r.seconds);
    near(r.facts[TM_MACHINE_MEMORY_PRESSURE].value, 100 * 0.05 / r.seconds);
    near(r.facts[TM_MACHINE_THERMAL].value, 1);
    assert_true(isnan(r.facts[TM_MACHINE_CPU_PRESSURE].value));
    assert_int_equal(r.verdict, TM_VERDICT_NOISY);
}

static double read_clock(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double read_own(const struct rusage *u)
{
    return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) +
           (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec) * 1e-6;
}

/* What is no file: clocks and the usage of this process lie between what they are before and after. */
TEST(clocks_and_usage_are_those_of_now)
{
    static const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_REALTIME };
    sampler                s;
    sample                 first = { .raw = none }, now = { .raw = none }, late = now;
    double                 told = none;
    sampler_open(&s, "");
    told = s.counter_rate;
    s.counter_rate = 3e9;
    for (int turn = 0; turn < 2; turn++) {
        now.raw = none;
        for (int i = 0; i < 10000 && isnan(now.raw); i++) { /* on a busy machine each try may be interrupted */
            double        before[3], after[3];
            struct rusage from, to;
            for (int k = 0; k < 3; k++) before[k] = read_clock(clocks[k]);
            assert_int_equal(getrusage(RUSAGE_SELF, &from), 0);
            sampler_take(&s, false, &now);
            assert_int_equal(getrusage(RUSAGE_SELF, &to), 0);
            for (int k = 0; k < 3; k++) after[k] = read_clock(clocks[k]);
            assert_true(now.at >= before[0] && now.at <= after[0]);
            assert_true(now.own >= read_own(&from) - 1e-9 && now.own <= read_own(&to) + 1e-9);
            assert_true(now.minor_faults >= (double)from.ru_minflt && now.minor_faults <= (double)to.ru_minflt);
            assert_true(now.major_faults >= (double)from.ru_majflt && now.major_faults <= (double)to.ru_majflt);
            assert_true(now.switches >= (double)from.ru_nivcsw && now.switches <= (double)to.ru_nivcsw);
            assert_true(now.spin_ns > 100 && now.spin_ns * 1e-9 <= (after[0] - before[0]) / 4);
            assert_true(isnan(now.thermal));
            if (isnan(now.raw)) assert_true(isnan(now.wall) && isnan(now.cycles) && isnan(now.counter));
            if (isnan(now.raw)) continue;
            assert_true(now.raw >= before[1] && now.raw <= after[1] && now.wall >= before[2] && now.wall <= after[2]);
        }
        assert_false(isnan(now.raw));
        if (turn == 0) first = now, wait_ms(50);
    }
    for (int us = 4; us <= 8; us += 4) { /* three readings later: 12 us are one moment, 24 are not */
        fake_clock_start(us * 1000, 0);
        sampler_take(&s, false, &late);
        fake_clock_stop();
        assert_true(us == 4 ? !isnan(late.raw) && !isnan(late.wall)
                            : isnan(late.raw) && isnan(late.wall) && isnan(late.cycles) && isnan(late.counter));
    }
#if defined(__x86_64__) || defined(__aarch64__)
    assert_true(now.counter == now.cycles / 3e9 && now.cycles > first.cycles);
    double rate = (now.cycles - first.cycles) / (now.at - first.at);
    if (!isnan(told) && fabs(rate / told - 1) > 0.02) fail_msg("told %g ticks a second, found %g", told, rate);
#endif
    sampler_close(&s);
}

/* More samples than there is room for: every second goes, the first and the last stay. */
TEST(many_samples)
{
    tm_validity *v = tm_validity_start("/nowhere");
    v->samples[0].at = 0;
    int64_t last_ns = 0;
    for (int i = 1; i < 3 * VALIDITY_ROOM; i++) {
        v->next_ns = 0;
        last_ns = tm_now_ns();
        tm_validity_sample(v);
        v->samples[v->count - 1].at = i;
    }
    assert_in_range(v->count, VALIDITY_ROOM / 2, VALIDITY_ROOM);
    assert_true(v->gap_ns >= 800000000 && v->next_ns > last_ns + 500000000);
    assert_true(v->samples[0].at == 0 && v->samples[v->count - 1].at == 3 * VALIDITY_ROOM - 1);
    for (int i = 1; i < v->count; i++) {
        double gap = v->samples[i].at - v->samples[i - 1].at;
        assert_true(gap >= 1 && gap <= 32); /* thinned five times */
    }
    tm_validity_report r;
    tm_validity_stop(v, 0, &r);
    assert_true(isnan(r.facts[TM_MACHINE_STEAL].value));
    tm_validity_destroy(v);
    tm_validity_destroy(NULL);
}
