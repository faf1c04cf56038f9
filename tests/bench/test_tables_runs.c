/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of the workloads that run models, processes and ranks, to the letter (see test_tables.c):
 * tests/golden/whole-bench-runs.txt. Ranks are measured by the real clock: their numbers stand as "#". `startup` starts
 * this program: it plays the runs, whose times are given.
 */
#include "support/test.h"
#include "bench/tables.h"

#include "comm/group.h"
#include "support/fake_run.h"
#include "support/folder.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *const of_all = "median_ms p5_ms p95_ms cv half_width_pct n warmup outliers loops";

/* --- startup --------------------------------------------------------------------------------- */

/* What a started run leaves: "run MODEL ... --out FOLDER words ...". The words are appended to the file of the first,
 * whose lines count the starts; a second word is what goes wrong. */
static int play_run(int argc, char **argv)
{
    static const double first[] = { 9, 2, 3.5, 2.5, 8, 2.25 }, step[] = { 1, 0.5, 0.25, 1.5, 0.125, 0.75 };
    const char         *folder = "", *wrong = "";
    char                path[4200];
    int                 n = 0, c;
    for (int i = 0; i + 1 < argc; i++)
        if (strcmp(argv[i], "--out") == 0) folder = argv[i + 1];
    for (int i = 0; i < argc; i++)
        if (strncmp(argv[i], "wrong=", 6) == 0) wrong = argv[i] + 6;
    FILE *words = fopen(getenv("TEST_STARTS"), "a+");
    rewind(words);
    while ((c = getc(words)) != EOF) n += c == '\n';
    for (int i = 0; i < argc; i++)
        fprintf(words, "%s%s", i ? " " : "", strcmp(argv[i], folder) == 0 ? "FOLDER" : argv[i]);
    fprintf(words, "\n");
    fclose(words);
    mkdir(folder, 0777);
    fprintf(stderr, "start %d went wrong\nsecond line\n", n);
    if (strcmp(wrong, "exit") == 0 && n > 1) return 7;
    if (strcmp(wrong, "signal") == 0) raise(SIGKILL);
    if (strcmp(wrong, "nothing") == 0) return 0;
    snprintf(path, sizeof path, "%s/result.json", folder);
    FILE *result = fopen(path, "w");
    if (strcmp(wrong, "text") == 0)
        fputs("none", result);
    else if (strcmp(wrong, "first") == 0)
        fputs("{\"step_seconds\": [1]}", result);
    else if (strcmp(wrong, "step") == 0)
        fputs("{\"first_step_seconds\": 1, \"step_seconds\": []}", result);
    else
        fprintf(result, "{\"first_step_seconds\": %g, \"step_seconds\": [%g, 77]}", first[n % 6], step[n % 6]);
    fclose(result);
    return 0;
}

/* A signal comes while a run is waited for; waiting for one that is gone would never end. */
static int waits;

pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage)
{
    if (waits++ % 2 == 0) {
        errno = EINTR;
        return -1;
    }
    long ended = syscall(SYS_wait4, pid, status, options, usage);
    if (ended != pid) fail_msg("waited for a run that is gone");
    return (pid_t)ended;
}

static void startup_tables(tm_text *out)
{
    static const struct {
        const char *arguments;
        double      seconds;
        bool        stopped;
    } cases[] = {
        { "cache=warm runs=5 model=tiny-gpt arguments=one++two=3+", 0, false },
        { "cache=warm runs=1", 0, false },
        { "cache=warm runs=2 arguments=wrong=exit", 0, false },
        { "cache=warm runs=2 arguments=wrong=signal", 0, false },
        { "cache=warm runs=2 arguments=wrong=nothing", 0, false },
        { "cache=warm runs=2 arguments=wrong=text", 0, false },
        { "cache=warm runs=2 arguments=wrong=first", 0, false },
        { "cache=warm runs=2 arguments=wrong=step", 0, false },
        { "cache=warm runs=2", 1e-9, false },
        { "cache=warm runs=2", 0, true },
        { "cache=warm runs=1 "
          "arguments=a+b+c+d+e+f+g+h+i+j+k+l+m+n+o+p+q+r+s+t+u+v+w+x+y+z+A+B+C+D+E+F+G+H+I+J+K+L+M+N+O+P+Q+"
          "R+S+T+U+V+W+X",
          0, false },
        { "cache=warm runs=1 "
          "arguments=a+b+c+d+e+f+g+h+i+j+k+l+m+n+o+p+q+r+s+t+u+v+w+x+y+z+A+B+C+D+E+F+G+H+I+J+K+L+M+N+O+P+Q+"
          "R+S+T+U+V+W+X+Y",
          0, false },
    };
    const char *starts = test_in_folder("starts");
    setenv("TEST_STARTS", starts, 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        unlink(starts);
        tell(out,
             &(trial){ tm_workload_find("startup"), "cpu", cases[i].arguments, cases[i].seconds, NULL,
                       cases[i].stopped },
             "bytes_read bytes_from_disk resident_bytes minor_faults major_faults executable_bytes", "", "");
        if (access(starts, F_OK) != 0) continue;
        tm_text words = fake_read(starts);
        tm_text_add(out, words.data);
        tm_text_fini(&words);
    }
}

/* What the system counts of a start: this program's own size, memory of pages, and less time than it all took. */
TEST(starts_are_measured)
{
    struct stat own;
    setenv("TEST_STARTS", test_in_folder("starts-2"), 1);
    int64_t begin = tm_now_ns();
    tried   t = try_workload(&(trial){ tm_workload_find("startup"), "cpu", "cache=warm runs=3", 0, NULL, false, true });
    double  seconds = (double)(tm_now_ns() - begin) * 1e-9;
    assert_int_equal(t.status, TM_OK);
    assert_int_equal(stat("/proc/self/exe", &own), 0);
    assert_int_equal((int64_t)number_at(t.table, 0, "executable_bytes"), own.st_size);
    double exits = number_at(t.table, 0, "exit_s"), bytes = number_at(t.table, 0, "bytes_read");
    assert_true(exits > 1e-4 && 2 * exits < seconds); /* the longer two of three take at least two medians */
    assert_true(isnan(bytes) || (bytes > 1000 && bytes < 1e8));
    double resident = number_at(t.table, 0, "resident_bytes"), faults = number_at(t.table, 0, "minor_faults");
    assert_true(resident > 1e6 && resident < 1e9 && (int64_t)resident % 1024 == 0);
    assert_true(faults > 50 && faults < 1e5);
    assert_true(number_at(t.table, 0, "major_faults") >= 0 && number_at(t.table, 0, "major_faults") < faults);
    tried_fini(&t);
}

/* --- gpt ------------------------------------------------------------------------------------- */

static void write_model(void)
{
    FILE *f = fopen(test_in_folder("tiny.yaml"), "w");
    fputs("model: { family: gpt, name: tiny, n_layers: 4, dim: 16, n_heads: 2, ffn_dim: 32, vocab_size: 24, "
          "max_seq_len: 8, tied: true, init: gpt2 }\n"
          "training: { local_batch_size: 3, seq_len: 8 }\n",
          f);
    fclose(f);
}

static void gpt_tables(tm_text *out)
{
    static const struct {
        const char *device, *arguments;
        double      seconds;
        bool        stopped;
        int64_t     region_ns;
    } cases[] = {
        { "cpu", "sizes=tiny.yaml validate=always max_rounds=7 turn_ms=2 budget=1", 60, false },
        { "cpu", "sizes=tiny.yaml layers=1,3 validate=never memory_gib=0.000195 max_rounds=9 turn_ms=3 budget=1", 60,
          false },
        { "cpu", "sizes=tiny.yaml layers=1,2,3 validate=never memory_gib=0.000195 turn_ms=0 budget=1", 0.3, false },
        { "cpu", "sizes=tiny.yaml layers=1,2 validate=never memory_gib=0.000195 max_rounds=2 turn_ms=0.01 budget=1", 60,
          false, -1 },
        { "cpu", "sizes=tiny.yaml layers=1,2 validate=never memory_gib=0.000195 max_rounds=3 turn_ms=0.01 budget=1", 60,
          false, -1 },
        { "cpu", "sizes=tiny.yaml layers=1,2 validate=never memory_gib=0.000195 turn_ms=5 budget=1", 0.02, false },
        { "cpu", "sizes=tiny.yaml layers=1,2 validate=always turn_ms=5 budget=1", 0.1, false },
        { "cpu", "sizes=tiny.yaml layers=1,2 validate=always max_rounds=3 turn_ms=10 budget=1", 0.5, false },
        { "cpu", "sizes=tiny.yaml,tiny.yaml layers=1,2 validate=never budget=1", 0.1, false },
        { "cpu", "sizes=tiny.yaml layers=1,2 validate=never memory_gib=0.000195 max_rounds=2 turn_ms=1 budget=1", 600,
          false, 20000000 },
        { "cpu", "sizes=tiny.yaml layers=4", 0.001, false },
        { "cpu", "sizes=tiny.yaml layers=4,5 budget=1", 0.2, false },
        { "cpu", "sizes=tiny.yaml layers=2 validate=always budget=1", 0.2, false },
        { "cpu", "sizes=tiny.yaml layers=2 validate=always memory_gib=0.000195 budget=1", 0.2, false },
        { "cpu", "sizes=tiny.yaml layers=9 batch=2 dtype=bf16 validate=never budget=1", 0.2, false },
        { "cpu", "sizes=tiny.yaml layers=7 published=true dtype=bfloat16-pure validate=never seed=3 budget=1", 0.2,
          false },
        { "reference", "sizes=tiny.yaml layers=1 batch=1 budget=1", 0.2, false },
        { "null", "sizes=tiny.yaml layers=4 batch=1 budget=1", 0.2, false },
        { "cpu", "sizes=tiny.yaml,tiny.yaml memory_gib=0.00001", 0, false },
        { "cpu", "sizes=tiny.yaml layers=4 budget=1", 1e-9, false },
        { "cpu", "sizes=tiny.yaml layers=4", 0, true },
        { "cpu", "sizes=small,13b,tiny.yaml memory_gib=0.00001", 0, false },
        { "cpu", "sizes=small,3b,7b published=true memory_gib=0.00001", 0, false },
        { "cpu", "sizes=medium,tiny.yaml batch=3 dtype=bf16 memory_gib=0.00001", 0, false },
        { "cpu", "sizes=none-such", 0, false },
        { "cpu", "sizes=small,,medium", 0, false },
        { "cpu", "layers=1,1", 0, false },
        { "cpu", "layers=2,1", 0, false },
        { "cpu", "layers=0,1", 0, false },
        { "cpu", "layers=1,2x", 0, false },
        { "cpu", "layers=1,,2", 0, false },
        { "cpu", "layers=x", 0, false },
        { "cpu", "layers=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20", 0, false },
        { "cpu", "layers=1,1000000000", 0, false },
    };
    char old[4096];
    assert_non_null(getcwd(old, sizeof old));
    write_model();
    assert_int_equal(chdir(test_folder()), 0); /* so that the file's name is the same in all runs */
    whole_log_open();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tell(out,
             &(trial){ tm_workload_find("gpt"), cases[i].device, cases[i].arguments, cases[i].seconds, NULL,
                       cases[i].stopped, false, cases[i].region_ns },
             "", "", "");
        whole_log_take(out);
    }
    whole_log_close();
    assert_int_equal(chdir(old), 0);
}

/* Slices: rows in order, each with what follows from its rate; the note is the line through them. */
TEST(slices_have_rows)
{
    static const char *const cases[] = { "tiny.yaml, 1 of 4 layers", "tiny.yaml, 2 of 4 layers",
                                         "tiny.yaml, 3 of 4 layers", "tiny.yaml" };
    char                     old[4096];
    assert_non_null(getcwd(old, sizeof old));
    write_model();
    assert_int_equal(chdir(test_folder()), 0);
    tried           t = try_workload(&(trial){ tm_workload_find("gpt"), "cpu",
                                               "sizes=tiny.yaml validate=always max_rounds=7 turn_ms=2", 0, NULL, false });
    const tm_table *table = t.table;
    assert_int_equal(t.status, TM_OK);
    assert_int_equal(tm_table_n_rows(table), 5);
    for (size_t row = 0; row < 4; row++) {
        assert_string_equal(tm_table_cell(table, row, 1)->text, cases[row]);
        assert_string_equal(tm_table_cell(table, row, 2)->text, row < 3 ? "slice" : "model");
        assert_string_equal(tm_table_cell(table, row, 3)->text, "measured");
        assert_int_equal((int)number_at(table, row, "n"), 7);
        assert_int_equal((int)number_at(table, row, "layers"), (int)row + 1);
        assert_true(fabs(number_at(table, row, "tokens_per_second") * number_at(table, row, "step_ms") - 24e3) < 1e-6);
        assert_true(fabs(number_at(table, row, "step_ms") / number_at(table, row, "median_ms") - 1) < 1e-9);
        assert_true(isfinite(number_at(table, row, "residual_pct")) == (row < 3));
        check_intervals(table, row);
    }
    assert_string_equal(tm_table_cell(table, 4, 2)->text, "prediction");
    assert_string_equal(tm_table_cell(table, 4, 3)->text, "predicted");
    /* "tiny.yaml: predicted step = A ms + B ms x 4 layers" is the prediction's median. */
    double      a, b, predicted = number_at(table, 4, "median_ms"), whole = number_at(table, 3, "median_ms");
    const char *note = tm_table_note_at(table, 0);
    assert_int_equal(sscanf(note, "tiny.yaml: predicted step = %lf ms + %lf ms x 4 layers", &a, &b), 2);
    assert_true(fabs(a + 4 * b - predicted) < 2e-3 * (fabs(a) + 4 * fabs(b)));
    assert_true(fabs(100 * (predicted / whole - 1) - number_at(table, 4, "error_pct")) < 1e-6);
    double least = number_at(table, 4, "tokens_per_second_lo"), most = number_at(table, 4, "tokens_per_second_hi");
    double buffer = number_at(table, 4, "half_width_pct") / 100;
    if (t.invalid.status == TM_OK) {
        check_intervals(table, 4);
        assert_true(fabs(least * predicted * (1 + buffer) - 24e3) < 1e-3);
        /* An interval that reaches a time of nothing: a rate without an upper end. */
        if (buffer < 0.999) assert_true(fabs(most * predicted * (1 - buffer) - 24e3) < 1e-3);
        if (buffer > 1.001) assert_true(isnan(most));
    }
    tried_fini(&t);
    assert_int_equal(chdir(old), 0);
}

/* Of this process: others may have the processors. */
static double cpu_seconds(void)
{
    struct timespec now;
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now), 0);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* A budget that is over after the probe ends the measurement after its first step, by the real clock. */
TEST(a_budget_that_is_over_ends_it)
{
    char old[4096];
    assert_non_null(getcwd(old, sizeof old));
    write_model();
    assert_int_equal(chdir(test_folder()), 0);
    for (int i = 1; i <= 8; i++) {
        double begin = cpu_seconds();
        tried  t = try_workload(&(trial){ tm_workload_find("gpt"), "cpu", "sizes=tiny.yaml layers=4 budget=1", i * 5e-4,
                                          NULL, false, true });
        assert_int_equal(t.status, TM_OK);
        assert_int_equal(tm_table_n_rows(t.table), 1);
        assert_true(cpu_seconds() - begin < 5);
        tried_fini(&t);
    }
    assert_int_equal(chdir(old), 0);
}

/* --- collectives ----------------------------------------------------------------------------- */

typedef struct {
    trial    what;
    tm_comm *world;
    tm_text  out;
} a_rank;

static void *run_rank(void *context)
{
    a_rank *r = context;
    char    measured[256];
    r->what.world = r->world;
    fake_clock.slow = 4 * tm_comm_rank(r->world); /* no two ranks read their clocks as fast */
    snprintf(measured, sizeof measured, "%s algorithm_gbps bus_gbps link_pct link stop", of_all);
    tell(&r->out, &r->what, measured, "algorithm_gbps*median_ms bus_gbps/algorithm_gbps", "");
    tm_comm_close(r->world);
    return NULL;
}

static void collective_tables(tm_text *out)
{
    enum { MOST = 5 };
    static const int hosts[] = { 0, 0, 1, 1 };
    static const struct {
        int         ranks;
        const char *arguments;
        double      seconds;
        const int  *host; /* of each rank; NULL: one */
    } cases[] = {
        { 2, "min-bytes=100 max-bytes=900 factor=3", 0, NULL },
        { 3, "min-bytes=8 max-bytes=65536 factor=1000000 calls=all-to-all-v,p2p,copy format=bfloat16 buffers=private",
          0, NULL },
        { 3, "min-bytes=65535 max-bytes=70000 calls=reduce-scatter,all-reduce format=float64", 0, NULL },
        { 5, "min-bytes=600 max-bytes=600 calls=broadcast,all-gather,all-to-all", 0, NULL },
        { 2, "min-bytes=64 max-bytes=64 calls=p2p", 1e-9, NULL },
        { 3, "min-bytes=600 max-bytes=600 calls=all-to-all", 0, NULL },
        { 3, "min-bytes=600 max-bytes=600 calls=all-gather", 0, NULL },
        { 3, "min-bytes=600 max-bytes=600 calls=reduce-scatter", 0, NULL },
        { 3, "min-bytes=600 max-bytes=600 calls=all-to-all-v", 0, NULL },
        { 3, "min-bytes=600 max-bytes=600 calls=broadcast buffers=private", 0, NULL },
        { 2, "min-bytes=20 max-bytes=20 calls=all-reduce,all-to-all-v format=float64", 0, NULL },
        { 2, "min-bytes=18 max-bytes=18 calls=all-reduce,all-to-all-v format=bfloat16", 0, NULL },
        { 2, "min-bytes=65 max-bytes=64", 0, NULL },
        { 2, "calls=copy,al-reduce", 0, NULL },
        { 2, "library=x.so", 0, NULL },
        { 1, "calls=copy", 0, NULL },
        { 4, "min-bytes=65536 max-bytes=65536", 0, hosts },
        { 4, "min-bytes=65536 max-bytes=65536 calls=all-reduce,broadcast algorithm=direct", 0, hosts },
        { 4, "min-bytes=65536 max-bytes=65536 calls=all-reduce format=bfloat16", 0, hosts },
        { 4, "min-bytes=65536 max-bytes=65536 calls=all-reduce,all-gather buffers=private", 0, hosts },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        a_rank    rank[MOST] = { 0 };
        pthread_t thread[MOST];
        tm_comm  *world[MOST];
        tm_error  err = { 0 };
        int       n = cases[i].ranks;
        assert_int_equal(tm_comm_open_threads_on(n, cases[i].host, 60, world, &err), TM_OK);
        for (int r = 0; r < n; r++) {
            rank[r].world = world[r];
            rank[r].what =
                (trial){ tm_workload_find("collectives"), "cpu", cases[i].arguments, cases[i].seconds, NULL, false };
            assert_int_equal(pthread_create(&thread[r], NULL, run_rank, &rank[r]), 0);
        }
        for (int r = 0; r < n; r++) pthread_join(thread[r], NULL);
        for (int r = n - 1; r >= 0; r--) {
            if (r == 0) tm_text_add(out, rank[0].out.data);
            tm_text_fini(&rank[r].out);
        }
    }
    tell(out, &(trial){ tm_workload_find("collectives"), "cpu", "calls=all", 0, NULL, false }, "", "", "");
}

FULL_TEST(tables_say_all)
{
    tm_text out = { 0 };
    startup_tables(&out);
    gpt_tables(&out);
    collective_tables(&out);
    whole_is("tests/golden/whole-bench-runs.txt", &out);
}

TM_TEST_ROLE("run", play_run)

TESTS_ALONE
TEST_FIXTURE(NULL, test_folder_teardown)
