/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of limits follow from the members of a result, its slope from the sampled losses. */
#include "support/test.h"
#include "results/made_runs.h"
#include "results/compare.h"
#include "results/trend.h"

/* --- limits ------------------------------------------------------------------------------------------------------- */

/* The metrics of a run by the members of its file; NAN: it has no such metric. */
static void limits_are(const char *changes, const char *lines, double mean_seconds, double decreased, const char *cell,
                       const char *long_cell)
{
    tm_result   *run = run_of("r", rich, changes, lines);
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
    "'configuration': null => 'configuration': {'training.local_batch_size': 6, 'training.seq_len': '256'}; "
    static const char counted[] = WITH_BATCH "'convention': 'all' => 'convention': 'titan'; 'warmup': 3 => 'warmup': 1";
    static const char none[] = WITH_BATCH "'precision': 'float32' => 'precision': 'bfloat16'; "
                                          "'warmup': 3 => 'warmup': 4; 'devices': 3 => 'devices': 8";
    static const char all[] =
        WITH_BATCH "'precision': 'float32' => 'precision': 'float16'; 'warmup': 3 => 'warmup': -1";
    static const char other[] = WITH_BATCH "'precision': 'float32' => 'precision': 'float64'";
    static const char unknown[] = WITH_BATCH "'precision': 'float32' => 'precision': null";
    tm_text           lines = told_text(metrics);
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
