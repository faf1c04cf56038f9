/* SPDX-License-Identifier: Apache-2.0 */
/* `trainmark check` with a measurement that is made up, on a machine that is made up: what is refused, limits and what
 * is written of them, reports and lists of nodes, to the letter (tests/golden/whole-check-*.txt). From the outside:
 * test_check.sh. */
#include "cli/cli.h"
#include "support/test.h"
#include "cli/check.h"
#include "support/fake_clock.h"
#include "told.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>

extern const tm_cli_command tm_command_check;
/* --- a measurement ------------------------------------------------------------------------------------------------ */

static const char *broken[TM_PERF_PARTS]; /* the parts that went wrong */
static bool        stops, partial;

const char *check_measurement_problem(const check_measurement *measurement)
{
    for (int i = 0; i < TM_PERF_PARTS; i++)
        if (measurement->problem[i]) return measurement->problem[i];
    return NULL;
}

void check_measure(double seconds, tm_arena *arena, check_measurement *out)
{
    static const tm_metric metrics[] = { { "training.loss_decreased", 1 }, { "training.final_loss", 3.25 },
                                         { "gemm.gflops_per_sec", 250 },   { "stream.copy_gb_per_sec", 12.25 },
                                         { "stream.dot_gb_per_sec", 20 },  { "training.step_time_mean_ms", 8 } };
    *out = (check_measurement){ 0 };
    assert_non_null(arena);
    tm_text_printf(&told, "measured within %g s\n", seconds);
    for (size_t i = 0; i < sizeof metrics / sizeof metrics[0]; i++)
        if (!partial || strncmp(metrics[i].name, "training.", 9) == 0) out->metrics[out->n++] = metrics[i];
    memcpy(out->problem, broken, sizeof broken);
    if (stops) tm_cli_stop = 1;
}

tm_status check_gemm(double seconds, double *gflops, tm_error *err)
{
    *gflops = seconds;
    return tm_fail(err, TM_INTERNAL, "nobody asks for this");
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

static int64_t reading_ns = 1000; /* that a look at the clock takes */

/* Of words between blanks, '' is an empty one; standard output and error, and the end. */
static tm_status call_check(const char *words)
{
    char     copy[600], *rest = copy, *argv[40];
    int      argc = 0;
    tm_error err = { 0 };
    snprintf(copy, sizeof copy, "check %s", words);
    for (char *word; (word = strsep(&rest, " "));) argv[argc++] = strcmp(word, "''") == 0 ? word + 2 : word;
    argv[argc] = NULL;
    tm_text_printf(&told, "> %s\n", words);
    fake_clock_start(reading_ns, 0);
    told_begin();
    tm_status st = tm_cli_call(&tm_command_check, "check", argc, argv, &err);
    told_end(st, &err);
    fake_clock_stop();
    tm_cli_stop = 0;
    return st;
}

static void put(const char *path, const char *text)
{
    char     all[200];
    tm_error err = { 0 };
    snprintf(all, sizeof all, "m%s", path);
    *strrchr(all, '/') = '\0';
    assert_int_equal(tm_folder_make(all, &err), TM_OK);
    snprintf(all, sizeof all, "m%s", path);
    assert_int_equal(tm_file_write(all, text, strlen(text), &err), TM_OK);
}

/* A host with something of everything. */
static void make_machine(void)
{
    put("/proc/sys/kernel/hostname", "node7.example.org\n");
    put("/proc/sys/kernel/numa_balancing", "1\n");
    put("/proc/sys/kernel/nmi_watchdog", "0\n");
    put("/proc/self/limits", "Max locked memory         8388608              8388608              bytes\n");
    put("/proc/uptime", "100000.00 1.0\n");
    put("/dev/kmsg", "3,9,99990000000,-;NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus\n");
    put("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
    put("/sys/class/infiniband/mlx5_0/node_guid", "0\n");
    put("/run/keep", "");
}

/* --- tests -------------------------------------------------------------------------------------------------------- */

static void what_is_refused(void **state)
{
    static const char *const all[] = {
        "--all-ranks --perf",
        "--all-ranks --aggregate x",
        "--all-ranks --tune-host",
        "--all-ranks --restore-host",
        "--all-ranks --list",
        "--list --perf",
        "--list --aggregate x",
        "--list --tune-host",
        "--tune-host --list",
        "--list --restore-host",
        "--aggregate x --perf",
        "--aggregate x --tune-host",
        "--aggregate x --restore-host",
        "--restore-host --perf",
        "--restore-host --tune-host",
        "--ranks 2",
        "--mpi mpich",
        "--deadline 3",
        "--measure-sec 1",
        "--disk-path x",
        "--outside-pct 3",
        "--clock-limit-ms 1",
        "--thresholds x",
        "--write-thresholds x",
        "--gemm-tflops-min 1",
        "--hbm-gbs-min 1",
        "--expected-nodes x",
        "--perf false --thresholds x",
        "-- true",
        "--tune-host --",
        "--tune-host false -- true",
        "--perf --sysroot m",
        "--sysroot nowhere",
        "--report-file-name x.doc",
        "--report-file-name x.pdf --list",
        "word",
        "--dmesg-minutes -1",
        "--dmesg-minutes 10000001",
        "--ulimit-l-min-gb 1000001",
        "--shm-min-gb -0.5",
        "--expected-gpus 4097",
        "--expected-rdma-nics -1",
        "--gpu-activity-warn-pct 101",
        "--hbm-busy-threshold-gib -1",
        "--per-gpu-timeout-sec 0.001",
        "--per-gpu-timeout-sec 3601",
        "--ranks 257 --all-ranks",
        "--outside-pct 100.5 --all-ranks",
        "--measure-sec 601 --all-ranks",
        "--mpi lam --all-ranks",
        "--only cpuu --sysroot m",
        "--aggregate nowhere",
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) assert_int_not_equal(call_check(all[i]), TM_OK);
    told_is("tests/golden/whole-check-refused.txt");
}

static void limits_of_figures(void **state)
{
    (void)state;
    tm_error err = { 0 };
    call_check(
        "--only perf --perf --report-file-name all.csv --write-thresholds limits.json --per-gpu-timeout-sec 3.5");
    told_file("all.csv");
    told_file("limits.json");
    static const char *const options[] = { "--gemm-tflops-min 0.25 --hbm-gbs-min 12.25", "--gemm-tflops-min 0.2501",
                                           "--hbm-gbs-min 12.26", "--gemm-tflops-min 0 --thresholds limits.json",
                                           "--thresholds limits.json" };
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        char words[300];
        snprintf(words, sizeof words, "--only perf --perf --report-file-name some.csv %s", options[i]);
        call_check(words);
        told_file("some.csv");
    }
    static const char high[] = "{\"" CHECK_CELL "\": {\"training.final_loss\": {\"kind\": \"max\", \"value\": 3}, "
                               "\"stream.dot_gb_per_sec\": {\"kind\": \"min\", \"value\": 20.5}}}\n";
    assert_int_equal(tm_file_write("high.json", high, strlen(high), &err), TM_OK);
    call_check("--only perf --perf --report-file-name some.csv --thresholds high.json --hbm-gbs-min 1");
    told_file("some.csv");
    call_check("--only perf --perf --thresholds nowhere.json");
    /* A part is missing: its limits cannot be judged, and nothing is written. */
    partial = true;
    broken[TM_PERF_GEMM] = "no figure for gemm";
    broken[TM_PERF_STREAM] = "killed";
    call_check("--only perf --perf --report-file-name some.csv --thresholds high.json --gemm-tflops-min 1 "
               "--write-thresholds never.json");
    told_file("some.csv");
    call_check("--only governor --perf --write-thresholds never.json");
    told_file("never.json");
    partial = false;
    broken[TM_PERF_GEMM] = broken[TM_PERF_STREAM] = NULL;
    stops = true;
    call_check("--only governor --perf");
    stops = false;
    /* The name of this host and its governor are not the test's. */
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    host[strcspn(host, ".")] = '\0';
    tm_text masked = { 0 };
    bool    skips = false;
    for (const char *at = told.data; *at;) {
        size_t n = strcspn(at, "\n");
        bool   of_host = strncmp(at, host, strlen(host)) == 0 && at[strlen(host)] == ':';
        if (strncmp(at, "cpu\n", 4) == 0) skips = true;
        if (!skips)
            tm_text_printf(&masked, "%.*s\n", (int)n - (of_host ? (int)strlen(host) : 0),
                           at + (of_host ? strlen(host) : 0));
        if (of_host) skips = false;
        at += n + (at[n] == '\n');
    }
    tm_text_fini(&told);
    told = masked;
    told_is("tests/golden/whole-check-limits.txt");
}

/* Page faults of children that have ended. */
static long of_children(void)
{
    struct rusage use;
    assert_int_equal(getrusage(RUSAGE_CHILDREN, &use), 0);
    return use.ru_minflt;
}

/* A check is waited for ten seconds at most, or less. */
static void checks_that_take_too_long(void **state)
{
    static const struct {
        const char *words;
        double      seconds;
        const char *said;
    } cases[] = { { "--only memlock", 20, "no answer within 10 s" },
                  { "--only memlock --per-gpu-timeout-sec 11", 20, "no answer within 10 s" },
                  { "--only memlock --per-gpu-timeout-sec 4.5", 20, "no answer within 4.5 s" },
                  { "--only memlock --per-gpu-timeout-sec 4.5", 1e-9, NULL } };
    (void)state;
    make_machine();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char words[100];
        snprintf(words, sizeof words, "--sysroot m %s", cases[i].words);
        reading_ns = (int64_t)(cases[i].seconds * 1e9);
        told.length = 0;
        call_check(words);
        const char *found = strstr(told.data, "no answer within");
        if (!found != !cases[i].said || (found && strncmp(found, cases[i].said, strlen(cases[i].said)) != 0))
            fail_msg("%s: %s", words, told.data);
    }
    reading_ns = 1000;
    told.length = 0;
}

static void reports(void **state)
{
    (void)state;
    make_machine();
    long before = of_children();
    call_check("--sysroot m --only memlock");
    assert_true(of_children() > before); /* a check that hangs could be killed */
    static const char *const options[] = {
        "--only settings,-tuned",
        "--only settings,-tuned --json",
        "--only memlock,klog,governor",
        "--only memlock --ulimit-l-min-gb 0.0078125",
        "--only memlock --ulimit-l-min-gb 0.0079",
        "--only klog --dmesg-minutes 0.166",
        "--only klog --dmesg-minutes 0.167",
        "--only klog --skip-dmesg",
        "--only nic,gpu_count",
        "--only nic,gpu_count --expected-rdma-nics 1 --expected-gpus 0",
        "--only nic,gpu_count --expected-rdma-nics 2 --expected-gpus 1",
        "--only shm --shm-min-gb 1",
        "--only governor --report-file-name r.md -q",
        "--only governor --dump-path nodes",
        "--only numa_balancing --tune-host",
        "--restore-host",
        "--aggregate nodes",
        "--aggregate nodes --expected-nodes hosts",
    };
    tm_error err = { 0 };
    assert_int_equal(tm_file_write("hosts", "node7\nnode8\n", 12, &err), TM_OK);
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        char words[300];
        bool rooted = strncmp(options[i], "--aggregate", 11) != 0;
        snprintf(words, sizeof words, "%s%s", rooted ? "--sysroot m " : "", options[i]);
        call_check(words);
    }
    told_file("r.md");
    told_file("nodes/passing_nodes.txt");
    told_file("nodes/failing_nodes.txt");
    told_file("m/proc/sys/kernel/numa_balancing");
    /* Under a launcher the lists wait for the others. */
    static const char *const launchers[] = { "RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "NOBODY" };
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
        char path[40], words[100];
        snprintf(path, sizeof path, "of-%zu/passing_nodes.txt", i);
        snprintf(words, sizeof words, "--sysroot m --only governor --dump-path of-%zu", i);
        setenv(launchers[i], "0", 1);
        call_check(words);
        unsetenv(launchers[i]);
        tm_text_printf(&told, "%s: %s\n", launchers[i], tm_file_exists(path) ? "listed" : "not yet");
    }
    /* How often the clock was read depends on how long the children took. */
    char *seconds = strstr(told.data, "\"seconds\": ");
    assert_non_null(seconds);
    size_t digits = strspn(seconds + 11, "0123456789.e-");
    assert_true(digits > 2);
    memmove(seconds + 11, seconds + 11 + digits, strlen(seconds + 11 + digits) + 1);
    told.length -= digits;
    told_is("tests/golden/whole-check-reports.txt");
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(what_is_refused), cmocka_unit_test(limits_of_figures),
                                           cmocka_unit_test(checks_that_take_too_long), cmocka_unit_test(reports) };

TM_TESTS_ALONE(tests, told_enter, told_leave)
