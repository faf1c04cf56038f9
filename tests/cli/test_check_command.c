/* SPDX-License-Identifier: Apache-2.0 */
/* `trainmark check` with a measurement that is made up, on a machine that is made up: what is refused, limits, the
 * outcomes that options make, reports that agree with each other, and lists of nodes. From the outside: test_check.sh.
 */
#include "cli/cli.h"
#include "support/test.h"
#include "cli/check.h"
#include "support/fake_clock.h"
#include "told.h"

#include <jansson.h>
#include <signal.h>
#include <strings.h>
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

/* Of words between blanks, '' is an empty one; standard output and error, and the end. */
static tm_status call_check(const char *words)
{
    fake_clock_start(1000, 0);
    tm_status st = told_call(&tm_command_check, words, " ");
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

/* --- what is printed ---------------------------------------------------------------------------------------------- */

static const char *string_of(json_t *row, const char *name)
{
    const char *text = json_string_value(json_object_get(row, name));
    return text ? text : "";
}

/* A line of the text that begins so; it may not be missing. */
static const char *has_line(const char *words, const char *line)
{
    for (const char *at = told.data; at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
        if (strncmp(at, line, strlen(line)) == 0) return at;
    fail_msg("%s: no line '%s' in\n%s", words, line, told.data);
    return NULL;
}

/* The text has the rows in their order, with what helps below those that need it, and counts them. */
static void text_has_rows(json_t *rows, const char *words)
{
    static const char *const names[] = { "PASS", "WARN", "FAIL", "INFO", "SKIP" };
    int                      counts[5] = { 0 };
    const char              *before = told.data;
    char                     line[600];
    size_t                   i;
    json_t                  *row;
    json_array_foreach(rows, i, row)
    {
        const char *status = string_of(row, "status");
        for (int k = 0; k < 5; k++) counts[k] += strcmp(names[k], status) == 0;
        has_line(words, string_of(row, "group"));
        snprintf(line, sizeof line, "  %s  %-14s  %s\n", status, string_of(row, "id"), string_of(row, "observed"));
        const char *at = has_line(words, line), *below = strchr(at, '\n') + 1;
        bool        helps = strcmp(status, "FAIL") == 0 || strcmp(status, "WARN") == 0;
        assert_true(at > before);
        assert_int_equal(strncmp(below, "                        expected:", 33) == 0, helps);
        if (helps) assert_true(strstr(below, string_of(row, "source")) && strstr(below, string_of(row, "remedy")));
        before = at;
    }
    snprintf(line, sizeof line, ":  %s  %d pass, %d warn, %d fail, %d info, %d skipped (", counts[2] ? "FAIL" : "PASS",
             counts[0], counts[1], counts[2], counts[3], counts[4]);
    if (!strstr(told.data, line)) fail_msg("%s: no '%s' in\n%s", words, line, told.data);
}

/* A call whose checks end so: "ID STATUS what is observed", separated by "|"; of FAIL it is a negative verdict. */
static void reported(const char *words, const char *wanted)
{
    char    all[400], copy[600], *rest = copy;
    size_t  i = 0;
    json_t *rows = json_array();
    snprintf(all, sizeof all, "%s --report-file-name rows.jsonl", words);
    told.length = 0;
    tm_status st = call_check(all);
    tm_text   file = fake_read("rows.jsonl");
    for (char *line = file.data, *end; (end = strchr(line, '\n')); line = end + 1)
        json_array_append_new(rows, json_loadb(line, (size_t)(end - line), 0, NULL));
    snprintf(copy, sizeof copy, "%s", wanted);
    for (char *one; (one = strsep(&rest, "|")); i++) {
        char    is[300];
        json_t *row = json_array_get(rows, i);
        snprintf(is, sizeof is, "%s %s %s", string_of(row, "id"), string_of(row, "status"), string_of(row, "observed"));
        if (strncmp(is, one, strlen(one)) != 0) fail_msg("%s: '%s', wanted '%s'", words, is, one);
    }
    assert_int_equal(json_array_size(rows), i);
    text_has_rows(rows, words);
    bool fails = strstr(wanted, " FAIL ") != NULL;
    if (st != (fails ? TM_NEGATIVE : TM_OK)) fail_msg("%s: %s", words, tm_status_text(st));
    json_decref(rows);
    tm_text_fini(&file);
}

/* --- tests -------------------------------------------------------------------------------------------------------- */

#define PASSES "perf_train PASS loss_decreased 1, final_loss 3.25, step_time_mean_ms 8"
#define STREAM "copy_gb_per_sec 12.25, dot_gb_per_sec 20"

TEST(limits_are_judged)
{
    static const char high[] = "{\"" CHECK_CELL "\": {\"training.final_loss\": {\"kind\": \"max\", \"value\": 3}, "
                               "\"stream.dot_gb_per_sec\": {\"kind\": \"min\", \"value\": 20.5}}}\n";
    tm_error          err = { 0 };
    reported("--only perf --perf --write-thresholds limits.json --per-gpu-timeout-sec 3.5",
             "perf_gemm INFO gflops_per_sec 250|perf_stream INFO " STREAM "|" PASSES);
    has_line("", "measured within 3.5 s\n");
    reported("--only perf --perf --thresholds limits.json",
             "perf_gemm PASS gflops_per_sec 250|perf_stream PASS " STREAM "|" PASSES);
    reported("--only perf --perf --gemm-tflops-min 0.25 --hbm-gbs-min 12.25",
             "perf_gemm PASS gflops_per_sec 250|perf_stream PASS " STREAM "|" PASSES);
    reported("--only perf --perf --gemm-tflops-min 0.2501",
             "perf_gemm FAIL gemm.gflops_per_sec is 250, wanted at least 250.1|perf_stream INFO " STREAM "|" PASSES);
    has_line("", "-> negative verdict: 1 of 3 checks failed: perf_gemm\n");
    reported("--only perf --perf --hbm-gbs-min 12.26",
             "perf_gemm INFO gflops_per_sec 250|perf_stream FAIL "
             "stream.copy_gb_per_sec is 12.25, wanted at least 12.26|" PASSES);
    assert_int_equal(tm_file_write("high.json", high, strlen(high), &err), TM_OK);
    reported("--only perf --perf --thresholds high.json --hbm-gbs-min 1",
             "perf_gemm INFO gflops_per_sec 250|perf_stream FAIL stream.dot_gb_per_sec is 20, wanted at least 20.5|"
             "perf_train FAIL training.final_loss is 3.25, wanted at most 3");
    has_line("", "-> negative verdict: 2 of 3 checks failed: perf_stream, perf_train\n");
    told.length = 0;
    assert_int_equal(call_check("--only perf --perf --thresholds nowhere.json"), TM_INVALID);
    assert_non_null(strstr(told.data, "cannot open 'nowhere.json'"));
    assert_null(strstr(told.data, "measured"));
    /* A part is missing: its limits cannot be judged, and nothing is written. */
    partial = true;
    broken[TM_PERF_GEMM] = "no figure for gemm";
    broken[TM_PERF_STREAM] = "killed";
    reported("--only perf --perf --thresholds high.json --gemm-tflops-min 1 --write-thresholds never.json",
             "perf_gemm FAIL not measured: no figure for gemm|perf_stream FAIL not measured: killed|" PASSES);
    has_line("", "-> negative verdict: no thresholds are written to 'never.json': no figure for gemm\n");
    assert_int_equal(call_check("--only governor --perf --write-thresholds never.json"), TM_NEGATIVE);
    assert_false(tm_file_exists("never.json"));
    partial = false;
    broken[TM_PERF_GEMM] = broken[TM_PERF_STREAM] = NULL;
    stops = true;
    assert_int_equal(call_check("--only governor --perf"), TM_INTERRUPTED);
    stops = false;
}

/* Page faults of children that have ended. */
static long of_children(void)
{
    struct rusage use;
    assert_int_equal(getrusage(RUSAGE_CHILDREN, &use), 0);
    return use.ru_minflt;
}

TEST(options_reach_their_checks)
{
    static const char *const cases[][2] = {
        { "settings,-tuned",
          "numa_balancing WARN 1|cmdline SKIP /proc/cmdline|nmi_watchdog PASS 0|aslr SKIP /proc/sys/kernel/"
          "randomize_va_space|thp SKIP /sys/kernel/mm/|clocksource SKIP /sys/devices/system/clocksource" },
        { "memlock,klog,governor",
          "governor WARN 1 of 1 are not: cpu0 powersave|memlock FAIL 8.00 MiB|klog FAIL 1 of 1 "
          "records: [xid] 'NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus'" },
        /* A limit is reached by what is equal to it: 8 MiB, and a message of ten seconds ago. */
        { "memlock --ulimit-l-min-gb 0.0078125", "memlock PASS 8.00 MiB" },
        { "memlock --ulimit-l-min-gb 0.0079", "memlock FAIL 8.00 MiB" },
        { "klog --dmesg-minutes 0.166", "klog PASS 0 recent kernel messages" },
        { "klog --dmesg-minutes 0.167", "klog FAIL 1 of 1 records" },
        { "klog --skip-dmesg", "klog SKIP left out (--skip-dmesg)" },
        { "nic,gpu_count", "gpu_count SKIP no GPU of AMD or NVIDIA|nic PASS 1 cards, 0 ports" },
        { "nic,gpu_count --expected-rdma-nics 1 --expected-gpus 0", "gpu_count PASS 0|nic PASS 1 cards, 0 ports" },
        { "nic,gpu_count --expected-rdma-nics 2 --expected-gpus 1", "gpu_count FAIL 0|nic FAIL 1 cards, not 2" },
        { "shm --shm-min-gb 1", "shm SKIP not below a sysroot" },
        { "governor -q", "governor WARN 1 of 1 are not: cpu0 powersave" },
        { "governor --dump-path nodes", "governor WARN 1 of 1 are not: cpu0 powersave" },
        { "numa_balancing --tune-host", "numa_balancing PASS 0" }, /* while it is tuned */
    };
    make_machine();
    long before = of_children();
    reported("--sysroot m --only memlock", "memlock FAIL 8.00 MiB");
    assert_true(of_children() > before); /* a check that hangs could be killed */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char words[200];
        snprintf(words, sizeof words, "--sysroot m --only %s", cases[i][0]);
        reported(words, cases[i][1]);
        has_line(words,
                 strstr(words, "--tune-host") ? "tuned  numa_balancing = 0: 1 changed, 0 so before\n" : "node7:  ");
    }
    has_line("", "2 host settings restored\n");
    tm_text restored = fake_read("m/proc/sys/kernel/numa_balancing");
    assert_string_equal(restored.data, "1\n");
    tm_text_fini(&restored);
    told.length = 0;
    assert_int_equal(call_check("--sysroot m --restore-host"), TM_OK);
    has_line("", "no host settings to restore\n");
#define GPU "/sys/bus/pci/devices/0000:01:00.0/"
    static const char *const gpu[][2] = { { GPU "vendor", "0x1002\n" },
                                          { GPU "device", "0x74a1\n" },
                                          { GPU "class", "0x120000\n" },
                                          { GPU "gpu_busy_percent", "31\n" },
                                          { GPU "mem_info_vram_used", "1073741824\n" } };
    static const char *const with_it[][2] = {
        { "gpu_busy --gpu-activity-warn-pct 31", "gpu_busy PASS at most 31 %" },
        { "gpu_busy --gpu-activity-warn-pct 30.5", "gpu_busy WARN 1 of 1 are in use: 0000:01:00.0 31 %" },
        { "gpu_mem --hbm-busy-threshold-gib 1.01", "gpu_mem PASS" },
        { "gpu_mem --hbm-busy-threshold-gib 1", "gpu_mem FAIL 1 of 1 are in use: 0000:01:00.0 1 GiB" },
    };
    for (int i = 0; i < 5; i++) put(gpu[i][0], gpu[i][1]);
    for (int i = 0; i < 4; i++) {
        char words[200];
        snprintf(words, sizeof words, "--sysroot m --only %s", with_it[i][0]);
        reported(words, with_it[i][1]);
    }
}

TEST(nodes_are_listed)
{
    static const char *const launchers[] = { "RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "NOBODY" };
    tm_error                 err = { 0 };
    make_machine();
    told.length = 0;
    assert_int_equal(call_check("--sysroot m --only governor --dump-path nodes"), TM_OK);
    assert_int_equal(call_check("--aggregate nodes"), TM_OK);
    has_line("", "1 nodes pass, 0 fail: nodes/smoke_report.md\n");
    assert_int_equal(tm_file_write("hosts", "node7\nnode8\n", 12, &err), TM_OK);
    assert_int_equal(call_check("--aggregate nodes --expected-nodes hosts"), TM_NEGATIVE);
    has_line("", "1 nodes pass, 1 fail: nodes/smoke_report.md\n");
    has_line("", "-> negative verdict: 1 of 2 nodes fail; 'nodes/failing_nodes.txt' names them\n");
    tm_text passing = fake_read("nodes/passing_nodes.txt"), failing = fake_read("nodes/failing_nodes.txt");
    assert_string_equal(passing.data, "node7\n");
    assert_string_equal(failing.data, "node8\n");
    tm_text_fini(&passing);
    tm_text_fini(&failing);
    /* Under a launcher the lists wait for the others. */
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
        char path[40], words[100];
        snprintf(path, sizeof path, "of-%zu/passing_nodes.txt", i);
        snprintf(words, sizeof words, "--sysroot m --only governor --dump-path of-%zu", i);
        setenv(launchers[i], "0", 1);
        call_check(words);
        unsetenv(launchers[i]);
        assert_int_equal(tm_file_exists(path), strcmp(launchers[i], "NOBODY") == 0);
    }
}

TESTS_ALONE
TEST_FIXTURE(told_enter, told_leave)
