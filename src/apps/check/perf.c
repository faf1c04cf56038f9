/* SPDX-License-Identifier: Apache-2.0 */
/* apps/check/perf.c - judges what a short measurement found. The measuring is cli's: it needs rooms above this one.
 */
#include "apps/check/context.h"

#include <math.h>
#include <string.h>

const char *tm_perf_part_name(tm_perf_part part)
{
    static const char *const names[] = { "training", "gemm", "stream" };
    return names[part];
}

static bool of_family(const char *metric, const char *family)
{
    size_t n = strlen(family);
    return strncmp(metric, family, n) == 0 && metric[n] == '.';
}

static void add_metrics(const tm_check_perf *perf, const char *family, tm_text *list, size_t *count)
{
    enum { SHOWN = 8 };
    for (size_t i = 0; i < perf->n; i++)
        if (of_family(perf->metrics[i].name, family))
            check_list_add(list, count, SHOWN, "%s %.6g", perf->metrics[i].name + strlen(family) + 1,
                           perf->metrics[i].value);
}

/* Appends the gates that are not passed; returns how many gates there are. */
static size_t judge(const tm_check_perf *perf, const char *family, tm_text *bad, size_t *count)
{
    enum { SHOWN = 4 };
    size_t gates = 0;
    for (size_t i = 0; i < perf->n_gates; i++) {
        const tm_gate *gate = &perf->gates[i];
        if (!of_family(gate->metric, family) || gate->kind == TM_GATE_INFO) continue;
        gates++;
        if (!gate->passed)
            check_list_add(bad, count, SHOWN, "%s is %.6g, %s %.6g", gate->metric, gate->measured,
                           gate->kind == TM_GATE_MIN ? "wanted at least" : "wanted at most", gate->limit);
    }
    check_list_end(bad, *count, SHOWN);
    return gates;
}

static double metric(const tm_check_perf *perf, const char *name)
{
    for (size_t i = 0; i < perf->n; i++)
        if (strcmp(perf->metrics[i].name, name) == 0) return perf->metrics[i].value;
    return (double)NAN;
}

/* `broken`: what is wrong whatever the gates say, or NULL. `otherwise`: the status without any gate. */
static void judge_part(check *c, tm_perf_part part, const char *broken, tm_check_status otherwise)
{
    const tm_check_perf *perf = c->host->perf;
    const char          *family = tm_perf_part_name(part), *problem = perf->problem[part];
    tm_text              list = { 0 }, bad = { 0 };
    size_t               n = 0, n_bad = 0;
    add_metrics(perf, family, &list, &n);
    size_t gates = judge(perf, family, &bad, &n_bad);
    if (problem || n == 0)
        check_say(c, TM_CHECK_FAIL, "not measured: %.300s", problem ? problem : "no figure");
    else if (broken)
        check_say(c, TM_CHECK_FAIL, "%s (%s)", broken, list.data);
    else if (n_bad > 0)
        check_say(c, TM_CHECK_FAIL, "%s", bad.data);
    else
        check_say(c, gates > 0 ? TM_CHECK_PASS : otherwise, "%s", list.data);
    tm_text_fini(&list);
    tm_text_fini(&bad);
}

void check_perf_gemm(check *c)
{
    judge_part(c, TM_PERF_GEMM, NULL, TM_CHECK_INFO);
}

void check_perf_stream(check *c)
{
    judge_part(c, TM_PERF_STREAM, NULL, TM_CHECK_INFO);
}

void check_perf_train(check *c)
{
    const tm_check_perf *perf = c->host->perf;
    const char          *broken = NULL;
    if (!isfinite(metric(perf, "training.final_loss")))
        broken = "the loss is not finite";
    else if (!(metric(perf, "training.loss_decreased") >= 1))
        broken = "the loss does not fall";
    judge_part(c, TM_PERF_TRAINING, broken, TM_CHECK_PASS);
}
