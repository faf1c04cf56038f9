/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of limits follow from the members of a result, its slope from the sampled losses; the causes of a difference
 * come in the order of a list. */
#include "support/test.h"
#include "results/made_runs.h"
#include "results/compare.h"
#include "results/trend.h"

#include <jansson.h>
#include <math.h>

/* --- limits ------------------------------------------------------------------------------------------------------- */

/* The metrics of a run by the members of its file; NAN: it has no such metric. */
static void limits_are(const char *const *pairs, const char *lines, double mean_seconds, double decreased,
                       const char *cell, const char *long_cell)
{
    tm_result   *run = run_of("r", rich, pairs, lines);
    const double rate = tm_result_number(run, "tokens_per_second_per_device/median");
    const double devices = tm_result_number(run, "devices"), median = tm_result_number(run, "step_time/median");
    const double loss = tm_result_number(run, "loss/last");
    const struct {
        const char *name;
        double      value;
    } wanted[] = {
        { "tflops_per_sec_per_gpu", tm_result_flops(run, "titan") * rate * 1e-12 },
        { "tokens_per_sec_per_gpu", rate },
        { "tokens_per_sec_total", rate * devices },
        { "tokens_per_gpu", rate },
        { "elapsed_time_per_iteration", 1000 * mean_seconds },
        { "step_time_seconds", median },
        { "step_time_mean_ms", 1000 * mean_seconds },
        { "step_time_p50_ms", 1000 * median },
        { "step_time_p95_ms", 1000 * tm_result_number(run, "step_time/p95") },
        { "mem_usage", tm_result_number(run, "memory/used_bytes") / tm_result_number(run, "memory/limit_bytes") },
        { "loss", loss },
        { "final_loss", loss },
        { "loss_decreased", decreased },
        { "eval_loss", tm_result_number(run, "loss/validation") },
    };
    const tm_metric *all;
    const char      *cells[2];
    size_t           n = 0, at = 0;
    tm_error         err = { 0 };
    assert_int_equal(tm_results_metrics(run, &all, &n, cells, &err), TM_OK);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        if (isnan(wanted[i].value)) continue;
        assert_true(at < n);
        if (strcmp(all[at].name + strlen("training."), wanted[i].name) != 0 ||
            !close_to(all[at].value, wanted[i].value))
            fail_msg("%s %.17g, wanted %s %.17g", all[at].name, all[at].value, wanted[i].name, wanted[i].value);
        at++;
    }
    assert_int_equal(at, n);
    assert_string_equal(cells[0], cell);
    assert_string_equal(cells[1], long_cell);
    tm_result_destroy(run);
}

TEST(limits_have_their_metrics)
{
#define WITH_BATCH                                                                                                     \
    "\"configuration\": null", "\"configuration\": {\"training.local_batch_size\": 6, \"training.seq_len\": \"256\"}"
    static const char *const counted[] = { WITH_BATCH,      "\"convention\": \"all\"", "\"convention\": \"titan\"",
                                           "\"warmup\": 3", "\"warmup\": 1",           NULL };
    static const char *const none[] = { WITH_BATCH,
                                        "\"precision\": \"float32\"",
                                        "\"precision\": \"bfloat16\"",
                                        "\"warmup\": 3",
                                        "\"warmup\": 4",
                                        "\"devices\": 3",
                                        "\"devices\": 8",
                                        NULL };
    static const char *const all[] = {
        WITH_BATCH, "\"precision\": \"float32\"", "\"precision\": \"float16\"", "\"warmup\": 3", "\"warmup\": -1", NULL
    };
    static const char *const other[] = { WITH_BATCH, "\"precision\": \"float32\"", "\"precision\": \"float64\"", NULL };
    static const char *const unknown[] = { WITH_BATCH, "\"precision\": \"float32\"", "\"precision\": null", NULL };
    tm_text                  lines = told_text(metrics);
    /* Batches of 4096 tokens on each of the devices, in sequences of 256. */
    limits_are(counted, lines.data, (1 + 1.5 + 2) / 3, 1, "MBS=6,GBS=48,PRECISION=fp32",
               "NNODES=1,STEPS=40,PRECISION=fp32,BATCH=6,GBS=48,SEQLEN=256");
    limits_are(none, "{\"step\": 1, \"loss\": 2}\n{\"step\": 2, \"loss\": 3}\n", (double)NAN, 0,
               "MBS=6,GBS=128,PRECISION=bf16", "NNODES=1,STEPS=40,PRECISION=bf16,BATCH=6,GBS=128,SEQLEN=256");
    limits_are(all, "{\"step\": 1, \"loss\": 2}\n{\"step\": 2, \"loss\": 2}\n", 5.0 / 4, 1,
               "MBS=6,GBS=48,PRECISION=fp16", "NNODES=1,STEPS=40,PRECISION=fp16,BATCH=6,GBS=48,SEQLEN=256");
    limits_are(other, NULL, 2, (double)NAN, "MBS=6,GBS=48,PRECISION=float64",
               "NNODES=1,STEPS=40,PRECISION=float64,BATCH=6,GBS=48,SEQLEN=256");
    limits_are(unknown, NULL, 2, (double)NAN, "MBS=6,GBS=48,PRECISION=unknown",
               "NNODES=1,STEPS=40,PRECISION=unknown,BATCH=6,GBS=48,SEQLEN=256");
    tm_text_fini(&lines);
}

/* Losses are 1 but at one step, where it is 3: by deviations from the means. Of 20 and more steps every tenth counts,
 * and one without a loss does not. */
TEST(slopes_are_of_the_sampled_steps)
{
    static const int64_t lengths[] = { 1, 2, 19, 20, 40, 1001 };
    for (size_t k = 0; k < sizeof lengths / sizeof lengths[0]; k++)
        for (int64_t at = 1; at <= lengths[k]; at += at < 20 ? 1 : 165) {
            tm_text lines = { 0 };
            double  n = 0, mean = 0, mean_loss = 0, xx = 0, xy = 0;
            for (int pass = 0; pass < 2; pass++)
                for (int64_t s = 1; s <= lengths[k]; s++) {
                    const char *loss = s == at ? "3" : s % 97 == 5 ? "null" : "1";
                    if (pass == 0) tm_text_printf(&lines, "{\"step\": %lld, \"loss\": %s}\n", (long long)s, loss);
                    if ((lengths[k] >= 20 && s % 10 != 0) || *loss == 'n') continue;
                    double y = strtod(loss, NULL);
                    if (pass == 0) {
                        n++, mean += (double)s, mean_loss += y;
                        continue;
                    }
                    xx += pow((double)s - mean / n, 2);
                    xy += ((double)s - mean / n) * (y - mean_loss / n);
                }
            tm_result *run = run_of("r", poor, NULL, lines.data);
            double     slope = tm_results_loss_slope(run), wanted = n > 1 ? xy / xx : (double)NAN;
            if (isnan(slope) != isnan(wanted) || fabs(slope - wanted) > 1e-9)
                fail_msg("%lld steps, 3 at %lld: %g, wanted %g", (long long)lengths[k], (long long)at, slope, wanted);
            tm_result_destroy(run);
            tm_text_fini(&lines);
        }
}

/* --- what differs ------------------------------------------------------------------------------------------------- */

/* Members by how likely a difference of theirs changes speed or loss; those of a line are equally likely. */
static const char *const causes[] = {
    "model precision device devices workload configuration/model.dim",
    "parameters",
    "threads",
    "kernels sums batch_tokens",
    "configuration/training.steps",
    "options/M environment/cpu/model",
    "configuration/parallelism.ranks",
    "configuration/activation_checkpoint.mode",
    "environment/build/commit",
    "data_source configuration/optimizer.lr",
    "configuration/loss.chunk",
    "configuration/lr_scheduler.decay",
    "configuration/data.path",
    "environment/build/flags",
    "environment/cpu/cores environment/cpu/model2",
    "environment/settings/governor",
    "environment/control_group/cpus",
    "environment/variables/OMP",
    "configuration/debug.seed environment/memory_modules/speed",
    "environment/drivers/amdgpu",
    "environment/libraries/libc",
    "environment/memory/total_bytes",
    "environment/os/kernel",
    "environment/os/host",
    "seed",
    "environment/board/vendor",
    "configuration/validation.steps",
    "configuration/checkpoint.enable",
    "environment/cpu/mhz environment/other",
    "environment/disks/sda",
    "configuration/metrics.log_freq configuration/models.dim",
};
static const char *const no_causes[] = {
    "configuration/log.level configuration/store.path options/compare options/json "
    "options/output-file options/store environment/libraries_total "
    "environment/memory/available_bytes environment/memory/free_bytes "
    "environment/process/pid environment/unknown/x "
    "environment/variables/TRAINMARK_STORE environment/variables_left_out sample"
};
enum { CAUSES = sizeof causes / sizeof causes[0] };

/* Pairs of values, as files have them. */
static const char *const values[][2] = {
    { "7", "8" }, { "7", "7.5" }, { "false", "true" }, { "\"a\"", "\"b\"" }, { "[1]", "null" }, { "null", "2" },
};
enum { VALUES = sizeof values / sizeof values[0] };

static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += n)
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
    return false;
}

static void set_member(json_t *tree, const char *path, json_t *value)
{
    char name[96];
    for (const char *slash; (slash = strchr(path, '/')); path = slash + 1) {
        snprintf(name, sizeof name, "%.*s", (int)(slash - path), path);
        if (!json_object_get(tree, name)) json_object_set_new(tree, name, json_object());
        tree = json_object_get(tree, name);
    }
    json_object_set_new(tree, path, value);
}

/* The members of a list of words, and what one of them is: its place in the list of values. */
static size_t set_members(json_t *trees[2], const char *words, size_t n)
{
    char  list[512];
    char *rest = list;
    snprintf(list, sizeof list, "%s", words);
    for (char *word; (word = strsep(&rest, " ")); n++)
        for (int side = 0; side < 2; side++)
            set_member(trees[side], word, json_loads(values[n % VALUES][side], JSON_DECODE_ANY, NULL));
    return n;
}

TEST(likely_causes_come_first)
{
    for (int backwards = 0; backwards < 2; backwards++) {
        json_t    *trees[2] = { json_object(), json_object() };
        tm_result *runs[2];
        size_t     n = 0, likelier = 0, rows;
        for (int side = 0; side < 2; side++)
            json_object_set_new(trees[side], "format", json_string("trainmark.result/1"));
        for (size_t i = 0; i < CAUSES; i++) n = set_members(trees, causes[backwards ? CAUSES - 1 - i : i], n);
        set_members(trees, no_causes[0], 0);
        set_member(trees[0], "configuration/model.equal", json_integer(1));
        set_member(trees[1], "configuration/model.equal", json_integer(1));
        for (int side = 0; side < 2; side++) {
            tm_text text = { 0 };
            char   *words = json_dumps(trees[side], 0);
            tm_text_add(&text, words);
            free(words);
            runs[side] = parsed("r", &text, NULL);
        }
        tm_table *table = tm_results_differences(runs[0], runs[1]);
        rows = tm_table_n_rows(table);
        assert_int_equal(rows, n);
        for (size_t row = 0; row < rows; row++) {
            const char *member = tm_table_cell(table, row, 1)->text;
            size_t      line = 0;
            while (line < CAUSES && !has_word(causes[line], member)) line++;
            if (line < likelier || line == CAUSES) fail_msg("'%s' is row %zu", member, row + 1);
            likelier = line;
            assert_int_equal(tm_table_cell(table, row, 0)->i64, row + 1);
            for (int side = 0; side < 2; side++) {
                json_t     *value = at_path(trees[side], member);
                bool        beside_array = json_is_null(value) && json_is_array(at_path(trees[!side], member));
                char       *text = json_dumps(value, JSON_ENCODE_ANY);
                const char *wanted = json_is_string(value) ? json_string_value(value) : beside_array ? "" : text;
                assert_string_equal(tm_table_cell(table, row, 2 + (size_t)side)->text, wanted);
                free(text);
            }
        }
        tm_table_destroy(table);
        for (int side = 0; side < 2; side++) tm_result_destroy(runs[side]), json_decref(trees[side]);
    }
}
