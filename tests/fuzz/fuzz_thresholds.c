/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the JSON that `trainmark check` reads: files of limits, and reports of other nodes. */
#include "fuzz.h"

#include "apps/check/report.h"
#include "system/thresholds.h"

#include <math.h>

static void limits(const char *text, size_t size)
{
    tm_thresholds  *t;
    tm_error        err = { 0 };
    const tm_metric metrics[] = { { "training.loss_decreased", 1 }, { "gemm.gflops_per_sec", (double)NAN } };
    tm_status       st = tm_thresholds_parse(text, size, "x", &t, &err);
    TM_ASSERT((st == TM_OK) == (t != NULL) && (st == TM_OK || (tm_status_exit_code(st) == 4 && *err.text)));
    if (st != TM_OK) return;
    const tm_gate *gates;
    size_t         n;
    st = tm_thresholds_judge(t, "MBS=4,GBS=32,PRECISION=bf16", metrics, 2, &gates, &n, &err);
    for (size_t i = 0; st == TM_OK && i < n; i++)
        TM_ASSERT(gates[i].kind == TM_GATE_INFO || !gates[i].passed || !isnan(gates[i].measured));
    tm_thresholds_destroy(t);
}

/* What was read prints, and reads, as the same. */
static void report(const char *text, size_t size)
{
    tm_checks first = { 0 }, second = { 0 };
    tm_error  err = { 0 };
    if (tm_checks_parse(text, size, "x", &first, &err) == TM_OK) {
        tm_text once = { 0 }, twice = { 0 }, lines = { 0 };
        tm_checks_print(&first, &(tm_check_view){ 0 }, &lines);
        tm_checks_print_json(&first, &once);
        if (tm_checks_parse(once.data, once.length, "own", &second, &err) != TM_OK)
            tm_assert_failed(err.text, "own report", 0);
        tm_checks_print_json(&second, &twice);
        TM_ASSERT(strcmp(once.data, twice.data) == 0);
        tm_text_fini(&once);
        tm_text_fini(&twice);
        tm_text_fini(&lines);
    } else {
        TM_ASSERT(err.status == TM_FORMAT && *err.text);
    }
    tm_checks_fini(&first);
    tm_checks_fini(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    limits((const char *)data, size);
    report((const char *)data, size);
    return 0;
}
