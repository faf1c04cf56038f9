/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes what is made of MLPerf-style logs: three runs of the same log are judged, scored and taken apart, and their
 * seeds compared. A convergence test that passes has a record and enough samples; a valid score is a positive number.
 */
#include "fuzz.h"

#include "apps/mlperf/breakdown.h"
#include "apps/mlperf/seeds.h"

#include <math.h>

static void judge(const tm_submission *s, bool full)
{
    tm_rcp_verdict v;
    tm_error       err = { 0 };
    tm_text        text = { 0 };
    tm_status      st = tm_submission_judge(s, NULL, full, &v, &err);
    TM_ASSERT(st == TM_OK && v.message && v.factor >= 1);
    TM_ASSERT(!v.passed || (v.judged && v.samples * (1 + 1e-12) >= v.record.minimum));
    TM_ASSERT(v.factor <= 1 || tm_rcp_scales(&v));
    tm_rcp_print(&v, &text);
    TM_ASSERT(strstr(text.data, v.passed ? "RCP test PASSED" : "RCP test FAILED"));
    tm_text_fini(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tm_submission *s = tm_submission_create("x", TM_RULESET_5_1_0);
    tm_error       err = { 0 };
    for (int i = 0; i < 3; i++) {
        tm_mllog *log;
        if (tm_mllog_parse("x", (const char *)data, size, &log, &err) != TM_OK) break;
        tm_submission_add(s, "x", log);
    }
    if (s->n == 3) {
        tm_breakdown       b;
        tm_breakdown_ratio r;
        judge(s, false);
        judge(s, true);
        tm_seeds_report seeds = tm_seeds_check(s);
        TM_ASSERT(!seeds.passed); /* three times the same, or none at all */
        tm_status st = tm_breakdown_compute(s, NULL, &b, &err);
        TM_ASSERT(st == TM_OK);
        TM_ASSERT(!b.score.valid); /* three runs are not ten */
        for (size_t i = 0; i < b.n; i++) TM_ASSERT(!b.runs[i].used || (b.runs[i].seconds > 0 && b.runs[i].rate > 0));
        if (tm_breakdown_compare(s, &b, s, &b, &r)) TM_ASSERT(fabs(r.scaled - 1) < 1e-9 || isnan(r.scaled));
    }
    tm_submission_close(s);
    return 0;
}
