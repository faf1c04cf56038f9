/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of the workloads that run models, processes and ranks, by rules. Ranks are measured by the real clock.
 * `startup` starts this program: it plays the runs, whose times are given.
 */
#include "support/test.h"
#include "table_rules.h"

#include "comm/group.h"
#include "support/fake_run.h"
#include "support/folder.h"

#include <pthread.h>
#include <signal.h>

/* Refused with these words, or not at all. */
static void ends_with(const tried *t, const char *what, const char *words)
{
    if ((t->status != TM_OK) != (words != NULL) || (words && !strstr(t->err.text, words)))
        fail_msg("%s: '%s', wanted '%s'", what, t->err.text, words ? words : "");
}

/* --- startup --------------------------------------------------------------------------------- */

static const double first_seconds[] = { 9, 2, 3.5, 2.5, 8, 2.25 }, step_seconds[] = { 1, 0.5, 0.25, 1.5, 0.125, 0.75 };

/* What a started run leaves: "run MODEL ... --out FOLDER words ...". A word says what goes wrong; a line of the file
 * for each start counts them. */
static int play_run(int argc, char **argv)
{
    const char *folder = "", *wrong = "";
    char        path[4200];
    int         n = 0, c;
    for (int i = 0; i + 1 < argc; i++)
        if (strcmp(argv[i], "--out") == 0) folder = argv[i + 1];
    for (int i = 0; i < argc; i++)
        if (strncmp(argv[i], "wrong=", 6) == 0) wrong = argv[i] + 6;
    FILE *starts = fopen(getenv("TEST_STARTS"), "a+");
    rewind(starts);
    while ((c = getc(starts)) != EOF) n += c == '\n';
    fprintf(starts, "%s %s\n", argv[2], argv[argc - 1]);
    fclose(starts);
    mkdir(folder, 0777);
    fprintf(stderr, "start %d went wrong\n", n);
    if (strcmp(wrong, "exit") == 0 && n > 1) return 7;
    if (strcmp(wrong, "signal") == 0) raise(SIGKILL);
    if (strcmp(wrong, "nothing") == 0) return 0;
    snprintf(path, sizeof path, "%s/result.json", folder);
    FILE *result = fopen(path, "w");
    if (strcmp(wrong, "first") == 0)
        fputs("{\"step_seconds\": [1]}", result);
    else
        fprintf(result, "{\"first_step_seconds\": %g, \"step_seconds\": [%g, 77]}", first_seconds[n % 6],
                step_seconds[n % 6]);
    fclose(result);
    return 0;
}

/* The first start only warms; figures are medians of the others. */
TEST(starts_are_told)
{
    static const struct {
        const char *arguments;
        double      seconds, first, step, between; /* wanted; NAN: none */
        bool        stopped;
        const char *starts, *refused;
    } cases[] = {
        { "cache=warm runs=5 model=tiny-gpt arguments=one++two=3+", 0, 2.5, 0.5, 1.5, false, "tiny-gpt two=3 ", NULL },
        { "cache=warm runs=1", 0, 2, 0.5, 1.5, false, "tiny-llama ", NULL },
        { "cache=warm runs=2 arguments=wrong=exit", 0, NAN, NAN, NAN, false, "tiny-llama ",
          "the started run ended with exit code 7: start 2 went wrong" },
        { "cache=warm runs=2 arguments=wrong=signal", 0, NAN, NAN, NAN, false, "tiny-llama ",
          "the started run was ended by signal 9: start 0 went wrong" },
        { "cache=warm runs=2 arguments=wrong=nothing", 0, NAN, NAN, NAN, false, "tiny-llama ",
          "result.json: unable to open" },
        { "cache=warm runs=2 arguments=wrong=first", 0, NAN, NAN, NAN, false, "tiny-llama ",
          "/run/result.json has no first_step_seconds or no step_seconds" },
        { "cache=warm runs=2", 1e-9, NAN, NAN, NAN, false, "tiny-llama ", NULL },
        { "cache=warm runs=2", 0, NAN, NAN, NAN, true, "tiny-llama ", "stopped between two starts" },
    };
    const char *starts = test_in_folder("starts");
    setenv("TEST_STARTS", starts, 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        unlink(starts);
        tried t = try_workload(&(trial){ tm_workload_find("startup"), "cpu", cases[i].arguments, cases[i].seconds, NULL,
                                         cases[i].stopped });
        ends_with(&t, cases[i].arguments, cases[i].refused);
        tm_text told = fake_read(starts);
        assert_int_equal(strncmp(told.data, cases[i].starts, strcspn(cases[i].starts, " ") + 1), 0);
        tm_text_fini(&told);
        assert_int_equal(tm_table_n_rows(t.table), !cases[i].refused || cases[i].stopped);
        if (tm_table_n_rows(t.table)) {
            cell_is(t.table, 0, "first_step_s", cases[i].first);
            cell_is(t.table, 0, "step_s", cases[i].step);
            cell_is(t.table, 0, "startup_s", cases[i].between);
            assert_int_equal(*words_at(t.table, 0, "skipped") != 0, isnan(cases[i].first));
            assert_string_equal(words_at(t.table, 0, "stop"), isnan(cases[i].first) ? "" : "samples");
        }
        tried_fini(&t);
    }
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

/* Figures of a row follow from its shape and its time: dim 16, ffn 32, 24 words, 8 positions, with biases. */
static void gpt_row(const tm_table *table, size_t row)
{
    double layers = number_at(table, row, "layers"), tokens = number_at(table, row, "batch") * 8;
    double step = number_at(table, row, "step_ms"), words = 24 * 16 + 8 * 16 + 2 * 16;
    double layer = 4 * 16 * 16 + 4 * 16 + 2 * 16 * 32 + 32 + 16 + 4 * 16;
    cell_is(table, row, "parameters", words + layers * layer);
    if (row_is_skipped(table, row, "median_ms n") || isnan(step)) return; /* or a time of nothing */
    cell_is(table, row, "tokens_per_second", tokens / step * 1e3);
    cell_is(table, row, "tflops_6n", 6 * number_at(table, row, "parameters") * tokens / step * 1e-9);
    check_intervals(table, row);
}

static const struct {
    const char *device, *arguments;
    double      seconds;
    bool        stopped;
    int64_t     region_ns;
    const char *rows, *refused; /* "slice model prediction", "-" before one that is skipped */
} gpt_cases[] = {
    { "cpu", "sizes=tiny.yaml validate=always max_rounds=7 turn_ms=2 budget=1", 60, false, 0,
      "slice slice slice model prediction", NULL },
    { "cpu", "sizes=tiny.yaml layers=1,3 validate=never memory_gib=0.000195 max_rounds=9 turn_ms=3 budget=1", 60, false,
      0, "slice slice prediction", NULL },
    { "cpu", "sizes=tiny.yaml layers=1,2,3 validate=never memory_gib=0.000195 turn_ms=0 budget=1", 0.3, false, 0,
      "slice slice slice prediction", NULL },
    { "cpu", "sizes=tiny.yaml layers=1,2 validate=never memory_gib=0.000195 max_rounds=2 turn_ms=0.01 budget=1", 60,
      false, -1, "slice slice -prediction", NULL },
    { "cpu", "sizes=tiny.yaml layers=1,2 validate=never memory_gib=0.000195 turn_ms=5 budget=1", 0.02, false, 0,
      "slice slice prediction", NULL },
    { "cpu", "sizes=tiny.yaml,tiny.yaml layers=1,2 validate=never budget=1", 0.1, false, 0, "model model", NULL },
    { "cpu", "sizes=tiny.yaml layers=1,2 validate=never memory_gib=0.000195 max_rounds=2 turn_ms=1 budget=1", 600,
      false, 20000000, "slice slice prediction", NULL },
    { "cpu", "sizes=tiny.yaml,tiny.yaml layers=4 budget=1", 8, false, 20000000, "model -model", NULL },
    { "cpu", "sizes=tiny.yaml layers=4", 0.001, false, 0, "model", NULL },
    { "cpu", "sizes=tiny.yaml layers=4,5 budget=1", 0.2, false, 0, "model", NULL },
    { "cpu", "sizes=tiny.yaml layers=2 validate=always memory_gib=0.000195 budget=1", 0.2, false, 0, "-model", NULL },
    { "cpu", "sizes=tiny.yaml layers=9 batch=2 dtype=bf16 validate=never budget=1", 0.2, false, 0, "model", NULL },
    { "cpu", "sizes=tiny.yaml layers=7 published=true dtype=bfloat16-pure validate=never seed=3 budget=1", 0.2, false,
      0, "model", NULL },
    { "reference", "sizes=tiny.yaml layers=1 batch=1 budget=1", 0.2, false, 0, "model", NULL },
    { "null", "sizes=tiny.yaml layers=4 batch=1 budget=1", 0.2, false, 0, "model", NULL },
    { "cpu", "sizes=tiny.yaml,tiny.yaml memory_gib=0.00001", 0, false, 0, "-model -model", NULL },
    { "cpu", "sizes=tiny.yaml layers=4 budget=1", 1e-9, false, 0, "-model", NULL },
    { "cpu", "sizes=tiny.yaml layers=4", 0, true, 0, "-model", "stopped at size tiny.yaml" },
    { "cpu", "sizes=small,13b,tiny.yaml memory_gib=0.00001", 0, false, 0, "-model -model -model", NULL },
    { "cpu", "sizes=none-such", 0, false, 0, "", "unknown model 'none-such'" },
    { "cpu", "sizes=small,,medium", 0, false, 0, "",
      "--sizes must be names separated by commas, at most 64: --sizes small,medium" },
    { "cpu", "layers=1,1", 0, false, 0, "", "; wanted ascending whole numbers" },
    { "cpu", "layers=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20", 0, false, 0, "",
      "; wanted ascending whole numbers" },
    { "cpu", "layers=1,1000000000", 0, false, 0, "", "; wanted ascending whole numbers" },
};

TEST(gpt_tables_follow)
{
    write_model();
    test_folder_enter();
    for (size_t i = 0; i < sizeof gpt_cases / sizeof gpt_cases[0]; i++) {
        tried t =
            try_workload(&(trial){ tm_workload_find("gpt"), gpt_cases[i].device, gpt_cases[i].arguments,
                                   gpt_cases[i].seconds, NULL, gpt_cases[i].stopped, false, gpt_cases[i].region_ns });
        tm_text rows = { 0 };
        tm_text_add(&rows, "");
        ends_with(&t, gpt_cases[i].arguments, gpt_cases[i].refused);
        for (size_t row = 0; row < tm_table_n_rows(t.table); row++) {
            const char *kind = words_at(t.table, row, "row"), *tag = words_at(t.table, row, "tag");
            bool        skipped = strcmp(tag, "skipped") == 0;
            tm_text_printf(&rows, "%s%s%s", row ? " " : "", skipped ? "-" : "", kind);
            if (!skipped) assert_string_equal(tag, strcmp(kind, "prediction") ? "measured" : "predicted");
            if (strstr(words_at(t.table, row, "case"), "tiny.yaml")) gpt_row(t.table, row);
        }
        if (strcmp(rows.data, gpt_cases[i].rows) != 0) fail_msg("%s: '%s'", gpt_cases[i].arguments, rows.data);
        tm_text_fini(&rows);
        tried_fini(&t);
    }
    test_folder_leave();
}

/* --- collectives ----------------------------------------------------------------------------- */

typedef struct {
    trial    what;
    tm_comm *world;
    tried    t;
} a_rank;

static void *run_rank(void *context)
{
    a_rank *r = context;
    r->what.world = r->world;
    fake_clock.slow = 4 * tm_comm_rank(r->world); /* no two ranks read their clocks as fast */
    r->t = try_workload(&r->what);
    tm_comm_close(r->world);
    return NULL;
}

/* The word behind "name=", or the other one. */
static const char *given(const char *arguments, const char *name, const char *other, char out[64])
{
    const char *at = strstr(arguments, name);
    snprintf(out, 64, "%.*s", at ? (int)strcspn(at + strlen(name), " ") : 63, at ? at + strlen(name) : other);
    return out;
}

/* What each rank has of a call, over the bytes of it: NCCL's bus bandwidth. */
static double bus_factor(const char *call, double ranks)
{
    if (strcmp(call, "all-reduce") == 0) return 2 * (ranks - 1) / ranks;
    bool parts = strncmp(call, "all-", 4) == 0 || strcmp(call, "reduce-scatter") == 0;
    return parts ? (ranks - 1) / ranks : 1;
}

/* What crosses between two hosts of two ranks each: all that a rank has for one there, or a sum and its result once. */
static void crossing_is(const tm_table *table, size_t row, const char *arguments, double bytes)
{
    const char *call = words_at(table, row, "call");
    bool        direct = strstr(arguments, "direct") || strstr(arguments, "private") || strncmp(call, "all-to", 6) == 0;
    double      times = direct ? 4 : strcmp(words_at(table, row, "format"), "bfloat16") == 0 ? 3 : 2;
    assert_string_equal(words_at(table, row, "algorithm"), direct ? "from rank to rank" : "shared by hosts");
    if (strcmp(call, "all-reduce") == 0) /* with the headers of messages */
        cell_within(table, row, "between_hosts_bytes", bytes * times, 1.02 * bytes * times);
}

/* Sizes are multiples of an element for each rank, from the least in steps of the factor. */
static void collective_row(const tm_table *table, size_t row, const char *arguments, double ranks, bool hosts)
{
    char        format[64], buffers[64], text[64];
    const char *call = words_at(table, row, "call");
    double      bytes = number_at(table, row, "bytes"), rate = number_at(table, row, "algorithm_gbps");
    double      unit = ranks * bytes_of_format(given(arguments, "format=", "float32", format));
    double      factor = atof(given(arguments, "factor=", "8", text)), median = number_at(table, row, "median_ms");
    double      size = atof(given(arguments, "min-bytes=", "", text));
    while (ceil(size / unit) * unit < bytes - 0.5) size *= factor;
    assert_true(size <= atof(given(arguments, "max-bytes=", "", text)) && fabs(ceil(size / unit) * unit - bytes) < 0.5);
    assert_string_equal(words_at(table, row, "format"), format);
    assert_string_equal(words_at(table, row, "buffers"), given(arguments, "buffers=", "shared", buffers));
    cell_is(table, row, "ranks", ranks);
    cell_is(table, row, "hosts", hosts ? 2 : 1);
    if (row_is_skipped(table, row, "algorithm_gbps median_ms n")) return;
    assert_true(truth_at(table, row, "correct"));
    if (!(fabs(rate * median / (bytes * 1e-6) - 1) < 1e-6)) fail_msg("%s: %g GB/s in %g ms", call, rate, median);
    if (!(fabs(number_at(table, row, "bus_gbps") / rate / bus_factor(call, ranks) - 1) < 1e-6)) fail_msg("%s", call);
    assert_true(median * number_at(table, row, "loops") > 0.09); /* a sample of ranks lasts */
    if (strcmp(call, "copy") == 0 || strcmp(call, "p2p") == 0) return;
    assert_int_equal(number_at(table, row, "between_hosts_bytes") > 0, hosts);
    if (hosts) crossing_is(table, row, arguments, bytes);
}

TEST(collectives_follow)
{
    enum { MOST = 5 };
    static const int hosts[] = { 0, 0, 1, 1 };
    static const struct {
        int         ranks;
        const char *arguments;
        double      seconds;
        const int  *host; /* of each rank; NULL: one */
        int         rows;
        const char *refused;
    } cases[] = {
        { 2, "min-bytes=100 max-bytes=900 factor=3", 0, NULL, 24, NULL },
        { 3, "min-bytes=8 max-bytes=65536 factor=1000000 calls=all-to-all-v,p2p,copy format=bfloat16 buffers=private",
          0, NULL, 3, NULL },
        { 3, "min-bytes=65535 max-bytes=70000 calls=reduce-scatter,all-reduce format=float64", 0, NULL, 2, NULL },
        { 5, "min-bytes=600 max-bytes=600 calls=broadcast,all-gather,all-to-all", 0, NULL, 3, NULL },
        { 2, "min-bytes=64 max-bytes=64 calls=p2p", 1e-9, NULL, 1, NULL },
        { 3, "min-bytes=600 max-bytes=600 calls=broadcast buffers=private", 0, NULL, 1, NULL },
        { 2, "min-bytes=20 max-bytes=20 calls=all-reduce,all-to-all-v format=float64", 0, NULL, 2, NULL },
        { 2, "min-bytes=18 max-bytes=18 calls=all-reduce,all-to-all-v format=bfloat16", 0, NULL, 2, NULL },
        { 2, "min-bytes=65 max-bytes=64", 0, NULL, 0, "--min-bytes (65) is more than --max-bytes (64)" },
        { 2, "calls=copy,al-reduce", 0, NULL, 0, "--calls: 'al-reduce' is no call" },
        { 2, "library=x.so", 0, NULL, 0, "--library names a file for --engine nccl" },
        { 1, "calls=copy", 0, NULL, 0,
          "collective calls take two ranks: `trainmark bench collectives --ranks 2`, or mpirun" },
        { 4, "min-bytes=65536 max-bytes=65536", 0, hosts, 8, NULL },
        { 4, "min-bytes=65536 max-bytes=65536 calls=all-reduce,broadcast algorithm=direct", 0, hosts, 2, NULL },
        { 4, "min-bytes=65536 max-bytes=65536 calls=all-reduce format=bfloat16", 0, hosts, 1, NULL },
        { 4, "min-bytes=65536 max-bytes=65536 calls=all-reduce,all-gather buffers=private", 0, hosts, 2, NULL },
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
        ends_with(&rank[0].t, cases[i].arguments, cases[i].refused);
        assert_int_equal(tm_table_n_rows(rank[0].t.table), cases[i].rows);
        for (int row = 0; row < cases[i].rows; row++)
            collective_row(rank[0].t.table, (size_t)row, cases[i].arguments, n, cases[i].host != NULL);
        for (int r = 0; r < n; r++) tried_fini(&rank[r].t);
    }
    tried alone = try_workload(&(trial){ tm_workload_find("collectives"), "cpu", "calls=all", 0, NULL, false });
    ends_with(&alone, "alone", "collective calls take two ranks");
    tried_fini(&alone);
}

TM_TEST_ROLE("run", play_run)

TESTS_ALONE
TEST_FIXTURE(NULL, test_folder_teardown)
